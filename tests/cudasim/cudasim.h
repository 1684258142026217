/* A simulator of CUDA for tests on machines without a GPU: kernels are compiled by the host's C++
 * compiler, every thread of a block is a fibre on the CPU, and blocks run one after the other. It
 * is exact about what threads see of each other (a barrier missed is a wrong result, a barrier
 * that some miss an abort) and about the layout of matrix fragments, and knows nothing of time.
 * Shared memory holds 0xff at the start of a block, copies come as late as they may, and the
 * order of threads and blocks changes from launch to launch: what a kernel may not rely on does
 * not hold here.
 *
 * src/kernels/cuda/launch.h includes this in place of CUDA's headers when PV_CUDASIM is defined. */
#ifndef PV_TESTS_CUDASIM_CUDASIM_H
#define PV_TESTS_CUDASIM_CUDASIM_H

#include "cudasim/runtime.h"
#include "cudasim/types.h"
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef __clang__
#pragma GCC diagnostic ignored "-Wpass-failed" /* that the same was not done */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __builtin_assume(x) (void)0
#define __CUDASIM__ 1

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

/* ---- launching ---- */

template <class... P, class... A>
static inline cudaError_t cudasim_launch(cudasim_site site, void (*kernel)(P...), dim3 grid,
                                         dim3 block, size_t smem, cudaStream_t stream, A... args)
{
    std::tuple<typename std::decay<P>::type...> held((P)args...);
    return cudasim_launch_body(site, (const void *)kernel, grid, block, smem, stream,
                               [kernel, held] { std::apply(kernel, held); });
}

#define launch(...) cudasim_launch(cudasim_site{ __FILE__, __LINE__, #__VA_ARGS__, 1 }, __VA_ARGS__)
#define launch_pairs(...)                                                                          \
    cudasim_launch(cudasim_site{ __FILE__, __LINE__, #__VA_ARGS__, 2 }, __VA_ARGS__)

/* Dynamic shared memory of the block, 128-byte aligned and not a byte more than was asked for. */
void *cudasim_shared();
void *cudasim_shared_of(int rank); /* of a block of the cluster */
int cudasim_rank();                /* of this block in its cluster */
#define SHARED_MEMORY(T, name) T *name = (T *)cudasim_shared()

/* ---- threads together ---- */

/* Stop the program and name the kernel, block and thread. */
[[noreturn]] void cudasim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Wait for the block: the number of threads (that have not ended) with a predicate. */
int cudasim_barrier(const char *file, int line, bool predicate);
#define __syncthreads() (void)cudasim_barrier(__FILE__, __LINE__, false)
#define __syncthreads_count(p) cudasim_barrier(__FILE__, __LINE__, (p) != 0)
#define __syncthreads_or(p) (int)(cudasim_barrier(__FILE__, __LINE__, (p) != 0) > 0)
#define __syncthreads_and(p) (int)(cudasim_barrier(__FILE__, __LINE__, !(p)) == 0)

/* Wait until all lanes of `mask` that have not ended call this with the same mask and function;
 * then the function runs once over their arguments, NULL for lanes outside or ended. */
typedef void (*cudasim_together)(void *const arg[32], unsigned mask);
void cudasim_warp(const char *name, cudasim_together f, unsigned mask, bool whole, void *arg);
int cudasim_lane();
unsigned __activemask();

/* One thread after the other: nothing to order. */
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}
static inline void __threadfence_system()
{
}
void __nanosleep(unsigned ns);
long long clock64();

static inline void __trap()
{
    cudasim_fail("trap");
}

void __syncwarp(unsigned mask = 0xffffffffu);
unsigned __ballot_sync(unsigned mask, int predicate);

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

template <class T> struct cudasim_shuffle {
    T value, result;
    int source;
};

/* What comes from a lane that does not take part is 0xff. */
template <class T> static void cudasim_shuffled(void *const arg[32], unsigned mask)
{
    for (int i = 0; i < 32; i++) {
        if (!arg[i])
            continue;
        auto *a = (cudasim_shuffle<T> *)arg[i];
        if (mask >> a->source & 1 && arg[a->source])
            a->result = ((cudasim_shuffle<T> *)arg[a->source])->value;
        else
            memset((void *)&a->result, 0xff, sizeof a->result);
    }
}

template <class T> static inline T cudasim_exchange(unsigned mask, T value, int source)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    cudasim_shuffle<T> a = { value, value, source };
    cudasim_warp("shuffle", cudasim_shuffled<T>, mask, false, &a);
    return a.result;
}

template <class T> static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32)
{
    int lane = cudasim_lane();
    return cudasim_exchange(mask, v, (lane & ~(width - 1)) | (source & (width - 1)));
}

template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32)
{
    int lane = cudasim_lane(), source = lane ^ bits;
    return cudasim_exchange(mask, v, source > (lane | (width - 1)) ? lane : source);
}

template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32)
{
    int lane = cudasim_lane(), source = lane + (int)delta;
    return cudasim_exchange(mask, v, source > (lane | (width - 1)) ? lane : source);
}

template <class T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32)
{
    int lane = cudasim_lane(), source = lane - (int)delta;
    return cudasim_exchange(mask, v, source < (lane & ~(width - 1)) ? lane : source);
}

/* ---- memory ---- */

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}
template <class T> static inline void __stcg(T *p, T v)
{
    *p = v;
}

/* Threads give way only where they wait, so plain reads and writes are atomic. */
template <class T>
using cudasim_same = typename std::common_type<T>::type; /* follows, never decides */

template <class T> static inline T atomicAdd(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old + v);
    return old;
}

template <class T> static inline T atomicSub(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old - v);
    return old;
}

template <class T> static inline T atomicMax(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old > v ? old : v);
    return old;
}

template <class T> static inline T atomicMin(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old < v ? old : v);
    return old;
}

template <class T> static inline T atomicExch(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(v);
    return old;
}

template <class T> static inline T atomicOr(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old | v);
    return old;
}

template <class T> static inline T atomicAnd(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old & v);
    return old;
}

template <class T> static inline T atomicInc(T *p, cudasim_same<T> v)
{
    T old = *p;
    *p = (T)(old >= v ? 0 : old + 1);
    return old;
}

template <class T> static inline T atomicCAS(T *p, cudasim_same<T> compare, cudasim_same<T> v)
{
    T old = *p;
    if (old == compare)
        *p = v;
    return old;
}

static inline size_t __cvta_generic_to_shared(const void *p)
{
    return (size_t)p;
}

/* ---- the instructions of launch.h ---- */

static inline void dep_wait()
{
}
static inline void dep_launch()
{
}

uint4 load_stream(const void *p);

/* The copy happens in copy_async_wait; until then the target holds 0xff. */
void copy_async16(void *shared, const void *global, int bytes);
void copy_async_commit();
void cudasim_copy_wait(int open);
template <int N> static inline void copy_async_wait()
{
    cudasim_copy_wait(N);
}

void load_matrix4(uint32_t r[4], const void *shared);
void load_matrix4_trans(uint32_t r[4], const void *shared);
void load_matrix2(uint32_t r[2], const void *shared);
void load_matrix2_trans(uint32_t r[2], const void *shared);

/* sum [16 x 8] = a [16 x depth] b [depth x 8], the products of each added up in the order of k. */
void cudasim_add_up(double sum[16][8], int depth, const double a[16][16], const double b[16][8]);

/* Sums in double in the order of k, rounded once. */
void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]);
void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]);
void mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2]);
uint32_t tf32_round(float f);

static inline float exp2_fast(float x)
{
    return exp2f(x);
}

#include "cudasim/sm90.h"

#endif
