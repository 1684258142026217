/* Kernel launches and special instructions as functions. Only this file knows whether a real GPU
 * runs a kernel or the simulator of the tests (PV_CUDASIM), which runs every thread of a block as a
 * fiber on the CPU. Kernels use plain CUDA, the functions here and, in files that the simulator
 * does not build, their own PTX. */
#ifndef PV_KERNELS_CUDA_LAUNCH_H
#define PV_KERNELS_CUDA_LAUNCH_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Whether bodies of Hopper's own kernels are compiled: for sm_90a, and in the simulator. */
#if defined(PV_CUDASIM) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_CODE 1
#endif

#ifdef PV_CUDASIM
#include "cudasim/cudasim.h"
#define OUT_OF_LINE __attribute__((noinline))
#define launch_after launch
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define OUT_OF_LINE __noinline__

/* Whether the GPU supports overlapping launches (9.0 and later); set when one is opened. */
inline bool launch_overlaps = true;

/* Launch kernel<<<grid, block, smem, stream>>>(args...). `overlap`: it may start before the
 * preceding one on the stream has ended; `together`: blocks of a cluster. */
template <class... P, class... A>
static inline cudaError_t launch_as(bool overlap, unsigned together, void (*kernel)(P...),
                                    dim3 grid, dim3 block, size_t smem, cudaStream_t stream,
                                    A... args)
{
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute a[2];
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = smem;
    c.stream = stream;
    c.attrs = a;
    if (overlap) {
        a[c.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a[c.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (together > 1) {
        a[c.numAttrs].id = cudaLaunchAttributeClusterDimension;
        a[c.numAttrs].val.clusterDim.x = together;
        a[c.numAttrs].val.clusterDim.y = 1;
        a[c.numAttrs++].val.clusterDim.z = 1;
    }
    return cudaLaunchKernelEx(&c, kernel, (P)args...);
}

/* A kernel that may start before the preceding one has ended (programmatic dependent launch): it
 * must call dep_wait() before it touches anything but weights. (On GPUs before 9.0 it is an
 * ordinary launch. One kernel waits differently: attention of trees' rows, split_args.beside.) */
template <class... P, class... A>
static inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                 cudaStream_t stream, A... args)
{
    return launch_as(launch_overlaps, 1, kernel, grid, block, smem, stream, args...);
}

/* The same for a kernel whose blocks 2 i and 2 i + 1 run at the same time and reach each other's
 * shared memory (Hopper's clusters). */
template <class... P, class... A>
static inline cudaError_t launch_pairs(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                       cudaStream_t stream, A... args)
{
    return launch_as(launch_overlaps, 2, kernel, grid, block, smem, stream, args...);
}

/* The same as launch() for a kernel that starts when all earlier kernels have ended. */
template <class... P, class... A>
static inline cudaError_t launch_after(void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                       cudaStream_t stream, A... args)
{
    return launch_as(false, 1, kernel, grid, block, smem, stream, args...);
}

/* Dynamic shared memory as an array of T, 128-byte aligned. */
#define SHARED_MEMORY(T, name)                                                                     \
    extern __shared__ __align__(128) unsigned char shared_memory_[];                               \
    T *name = (T *)shared_memory_

#endif /* PV_CUDASIM */

enum { MAX_GPUS = 64 };

/* A fact about a kernel on each GPU; zero-initialised, used by one thread at a time. */
struct by_gpu {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int known[MAX_GPUS] = {};
};

/* Set the limit of dynamic shared memory; a kernel that needs more than 48 KB must do so on each
 * GPU. */
template <class... P> static inline cudaError_t set_smem(void (*kernel)(P...), size_t smem)
{
    return cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)smem);
}

/* A multiprocessor changes the division between L1 and shared memory only when it is idle. A kernel
 * whose blocks should run together with blocks that need much shared memory must ask for the same
 * division. */
template <class... P> static inline cudaError_t set_all_shared(void (*kernel)(P...))
{
    return cudaFuncSetAttribute((const void *)kernel,
                                cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}

/* Call it before a launch with this much shared memory: raises the limit if it is lower. The limit
 * is never lowered, because another thread may be about to launch the kernel with more. */
template <class... P>
static inline cudaError_t allow_smem(struct by_gpu *allowed, int gpu, void (*kernel)(P...),
                                     size_t smem, bool all_shared)
{
    cudaError_t e = cudaSuccess;
    pthread_mutex_lock(&allowed->lock);
    if (allowed->known[gpu] <= (int)smem) {
        if (smem > 0)
            e = set_smem(kernel, smem);
        if (e == cudaSuccess && all_shared)
            e = set_all_shared(kernel);
        if (e == cudaSuccess)
            allowed->known[gpu] = (int)smem + 1;
    }
    pthread_mutex_unlock(&allowed->lock);
    return e;
}

/* The result of `find` for the current GPU, computed once. */
static inline bool is_ready(struct by_gpu *ready, int gpu, bool (*find)(void))
{
    bool yes;
    pthread_mutex_lock(&ready->lock);
    if (ready->known[gpu] == 0)
        ready->known[gpu] = find() ? 2 : 1;
    yes = ready->known[gpu] == 2;
    pthread_mutex_unlock(&ready->lock);
    return yes;
}

#ifndef PV_CUDASIM

/* Wait until all earlier kernels have ended and their writes are visible. */
__device__ static inline void dep_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel may be started from now on. It still waits for this one's end in dep_wait. */
__device__ static inline void dep_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Load 16 bytes that are read once: bypasses L1, evicted first from L2. */
__device__ static inline uint4 load_stream(const void *p)
{
    uint4 v;
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.v4.u32 "
                 "{%0,%1,%2,%3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p), "l"(policy));
    return v;
}

/* Copy 16 bytes asynchronously from global to shared memory; `bytes` of them (0 or 16), the rest
 * zero. Commit ends a group of copies; wait until at most N groups are unfinished. */
__device__ static inline void copy_async16(void *shared, const void *global, int bytes)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(s), "l"(global), "r"(bytes)
                 : "memory");
}

__device__ static inline void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ static inline void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four (two) 8 x 8 matrices of 16-bit numbers from shared memory; lane i gives the address of row
 * i % 8 of matrix i / 8. Trans: each transposed. */
__device__ static inline void load_matrix4(uint32_t r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(s));
}

__device__ static inline void load_matrix4_trans(uint32_t r[4], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(s));
}

__device__ static inline void load_matrix2(uint32_t r[2], const void *shared)
{
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(s));
}

/* c [16 x 8] += a [16 x 16] b [16 x 8], BF16, fragments as PTX lays them over the lanes. */
__device__ static inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* c [16 x 8] += a [16 x 8] b [8 x 8], TF32 in 32-bit registers. */
__device__ static inline void mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* A float rounded to TF32 (nearest, ties away), as the register holds it. */
__device__ static inline uint32_t tf32_round(float f)
{
    uint32_t u;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(u) : "f"(f));
    return u;
}

/* 2^x, and two floats as BF16 in one register (lo in the low half). */
__device__ static inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif /* PV_CUDASIM */

/* A finite number stays finite: one that is too large for BF16 becomes BF16's largest number. */
__device__ static inline uint32_t bf16_bits(float f)
{
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (u >> 16) | 64;
    if ((u & 0x7fffffffu) < 0x7f800000u && (u & 0x7fffffffu) >= 0x7f7f8000u)
        return (u >> 16 & 0x8000u) | 0x7f7fu;
    return (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
}

__device__ static inline float bf16_float(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* Two numbers rounded to BF16 in one register, lo in the low half; may overflow to infinity. */
__device__ static inline uint32_t pack_bf16(float lo, float hi)
{
#ifdef PV_CUDASIM
    return (bf16_bits(lo) & 0xffffu) | bf16_bits(hi) << 16;
#else
    uint32_t u;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(u) : "f"(hi), "f"(lo));
#else
    u = (bf16_bits(lo) & 0xffffu) | bf16_bits(hi) << 16;
#endif
    return u;
#endif
}

/* copy_async16 for data that is read once; adjacent bytes are fetched into L2 as well. */
__device__ static inline void copy_async16_stream(void *shared, const void *global)
{
#ifdef PV_CUDASIM
    copy_async16(shared, global, 16);
#else
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(s), "l"(global)
                 : "memory");
#endif
}

/* If `wanted`, load data that other kernels wrote, bypassing L1; else v does not change. Uses a
 * predicate instead of a branch, which would delay later loads. */
__device__ static inline void load_if(uint4 &v, const uint4 *p, bool wanted)
{
#ifdef PV_CUDASIM
    if (wanted)
        v = *p;
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
                 "@p ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(p), "r"((int)wanted));
#endif
}

__device__ static inline void load_if(float &v, const float *p, bool wanted)
{
#ifdef PV_CUDASIM
    if (wanted)
        v = *p;
#else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.cg.f32 %0, [%1];\n}"
                 : "+f"(v)
                 : "l"(p), "r"((int)wanted));
#endif
}

__device__ static inline void load_if(float4 &v, const float4 *p, bool wanted)
{
    uint4 bits = make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                            __float_as_uint(v.w));
    load_if(bits, (const uint4 *)p, wanted);
    v = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                    __uint_as_float(bits.w));
}

/* Forces the compiler to compute p before this point. */
template <class T> __device__ static inline void settle(T *&p)
{
#ifdef PV_CUDASIM
    (void)p;
#else
    asm volatile("" : "+l"(p)::"memory");
#endif
}

/* c = a b, as mma_bf16 from zero. */
__device__ static inline void mma_bf16_first(float c[4], const uint32_t a[4], const uint32_t b[2])
{
#ifdef PV_CUDASIM
    c[0] = c[1] = c[2] = c[3] = 0;
    mma_bf16(c, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
#endif
}

/* (v & mask) | bits as one instruction; without this, the assembler makes two if both are
 * constants. */
__device__ static inline uint32_t and_or(uint32_t v, uint32_t mask, uint32_t bits)
{
#ifdef PV_CUDASIM
    return (v & mask) | bits;
#else
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(v), "r"(mask), "r"(bits));
    return d;
#endif
}

/* a * b + c for two pairs of BF16. */
__device__ static inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c)
{
#ifdef PV_CUDASIM
    float lo = fmaf(bf16_float(a & 0xffffu), bf16_float(b & 0xffffu), bf16_float(c & 0xffffu));
    float hi = fmaf(bf16_float(a >> 16), bf16_float(b >> 16), bf16_float(c >> 16));
    return pack_bf16(lo, hi);
#else
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#endif
}

#endif
