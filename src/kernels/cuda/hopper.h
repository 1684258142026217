/* Hopper's special instructions as functions: wgmma, TMA (the tensor memory accelerator), barriers
 * in shared memory. For the files *_hopper.cu, on the target sm_90a only; the simulator has its own
 * versions.
 *
 * Tiles in shared memory: rows of 64 BF16 numbers (128 bytes) one after the other, beginning at a
 * multiple of 1024 bytes, the 16-byte piece c of row r at place c ^ r % 8 (the 128-byte swizzle of
 * TMA and wgmma). Longer rows are several such tiles, one after the other. */
#ifndef PV_KERNELS_CUDA_HOPPER_H
#define PV_KERNELS_CUDA_HOPPER_H

#include "kernels/cuda/cuda.h"

enum { TILE_COLS = 64 /* columns of a swizzled tile */ };

#ifndef PV_CUDASIM

#include <cuda.h>

__device__ static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Dynamic shared memory with the alignment that tiles need. */
#define TILE_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]

/* ---- barriers in shared memory: a phase ends when all threads and all bytes have arrived ---- */

__device__ static inline void barrier_init(uint32_t bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

/* Makes initialised barriers visible to TMA. */
__device__ static inline void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ static inline void barrier_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ static inline void barrier_arrive_expect(uint32_t bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

__device__ static inline bool barrier_try(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n.reg .pred p;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done != 0;
}

/* Wait until the phase of this parity has ended. In a test build, endless waits are detected. */
__device__ static inline void barrier_wait(uint32_t bar, uint32_t parity)
{
#ifdef HOPPER_STUCK
    long long begin = 0;
    while (!barrier_try(bar, parity)) {
        if (begin == 0)
            begin = clock64();
        else if (clock64() - begin > 1000000000ll)
            HOPPER_STUCK(bar, parity);
    }
#else
    while (!barrier_try(bar, parity))
        ;
#endif
}

/* Named barriers of the block: wait for, or arrive at, a barrier of `threads` threads. */
__device__ static inline void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ static inline void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- the other block of a pair (launch_pairs) ---- */

/* Wait for all threads of both blocks. */
__device__ static inline void pair_sync()
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
}

/* The address of the same place in the other block's shared memory; places beside it lie beside
 * this address, too. */
__device__ static inline uint32_t peer_address(uint32_t address)
{
    uint32_t peer;
    asm volatile("{\n"
                 ".reg .u32 rank;\n"
                 "mov.u32 rank, %%cluster_ctarank;\n"
                 "xor.b32 rank, rank, 1;\n"
                 "mapa.shared::cluster.u32 %0, %1, rank;\n"
                 "}"
                 : "=r"(peer)
                 : "r"(address));
    return peer;
}

/* Store in the other block; its barrier counts the bytes. Takes addresses of the other block. */
__device__ static inline void store_peer(uint32_t to, uint32_t bar, float4 v)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
                 "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(bar)
                 : "memory");
}

/* Arrive at a barrier of the other block, and (barrier_wait_peer) wait at one at which the other
 * block arrives: with the order of both blocks' memory accesses. */
__device__ static inline void barrier_arrive_peer(uint32_t bar)
{
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar)
                 : "memory");
}

__device__ static inline void barrier_wait_peer(uint32_t bar, uint32_t parity)
{
    uint32_t done;
    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    while (!done);
}

/* ---- TMA ---- */

__device__ static inline void map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Copy a box to shared memory; the barrier counts its bytes. Elements outside the tensor are
 * zero. */
__device__ static inline void load_box3(uint32_t to, const CUtensorMap *map, uint32_t bar, int x,
                                        int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ static inline void load_box4(uint32_t to, const CUtensorMap *map, uint32_t bar, int x,
                                        int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

/* The same for data that no other block and no later kernel reads soon: it is evicted first from
 * L2, so that code and intermediate results stay there. */
__device__ static inline uint64_t once_policy()
{
    uint64_t p;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}

__device__ static inline void load_box3_once(uint32_t to, const CUtensorMap *map, uint32_t bar,
                                             int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "l"(once_policy())
                 : "memory");
}

__device__ static inline void load_box4_once(uint32_t to, const CUtensorMap *map, uint32_t bar,
                                             int x, int y, int z, int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z), "r"(w), "l"(once_policy())
                 : "memory");
}

/* Copy contiguous bytes that are read once; size and both addresses are multiples of 16. */
__device__ static inline void load_bytes_once(uint32_t to, const void *from, int bytes,
                                              uint32_t bar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "l"(once_policy())
                 : "memory");
}

/* Makes this thread's writes to shared memory visible to TMA and wgmma. */
__device__ static inline void shared_written()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Makes writes of earlier kernels to global memory visible to TMA. */
__device__ static inline void outside_written()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ static inline void global_written()
{
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

/* copy_async16 of launch.h, to an address in shared memory. */
__device__ static inline void copy_async16_to(uint32_t shared, const void *global, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(bytes)
                 : "memory");
}

/* ---- registers ---- */

template <int N> __device__ static inline void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ static inline void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- wgmma ---- */

__device__ static inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ static inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Wait until at most N groups are unfinished. */
template <int N> __device__ static inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Prevents the compiler from moving accesses to r across this point. */
template <int N> __device__ static inline void pin(float (&r)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(r[i])::"memory");
}

/* Forces x (not negative) to be computed before this point. The assembler would otherwise move the
 * computation after the next wait, where nothing overlaps with it; it does not move it across a
 * branch. */
__device__ static inline void hold(float x)
{
    if (!(x >= 0))
        asm volatile("nanosleep.u32 0;" ::: "memory");
}

/* The same for an integer other than INT_MAX. */
__device__ static inline void hold(int x)
{
    if (x == INT32_MAX)
        asm volatile("nanosleep.u32 0;" ::: "memory");
}

/* c [64 x N] (+)= a b^T, sums of 16: the registers of an accumulator, by the width N. */
#define EIGHT(r, i)                                                                                \
    "+f"(r[i]), "+f"(r[i + 1]), "+f"(r[i + 2]), "+f"(r[i + 3]), "+f"(r[i + 4]), "+f"(r[i + 5]),    \
        "+f"(r[i + 6]), "+f"(r[i + 7])
#define REGISTERS_64                                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "             \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define OPERANDS_64(r) EIGHT(r, 0), EIGHT(r, 8), EIGHT(r, 16), EIGHT(r, 24)

#define REGISTERS_128                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "             \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "             \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "             \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define OPERANDS_128(r)                                                                            \
    EIGHT(r, 0), EIGHT(r, 8), EIGHT(r, 16), EIGHT(r, 24), EIGHT(r, 32), EIGHT(r, 40),              \
        EIGHT(r, 48), EIGHT(r, 56)

#define REGISTERS_176                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "             \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "             \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "             \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "             \
    "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "             \
    "%82, %83, %84, %85, %86, %87"
#define OPERANDS_176(r)                                                                            \
    EIGHT(r, 0), EIGHT(r, 8), EIGHT(r, 16), EIGHT(r, 24), EIGHT(r, 32), EIGHT(r, 40),              \
        EIGHT(r, 48), EIGHT(r, 56), EIGHT(r, 64), EIGHT(r, 72), EIGHT(r, 80)

/* Both operands in shared memory, K-major: c = a b^T, or with `add` c += a b^T. */
template <int N>
__device__ static inline void wgmma_shared(float (&c)[N / 2], uint64_t a, uint64_t b, int add)
{
    if constexpr (N == 8)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, "
                     "%4, %5, p, 1, 1, 0, 0;\n}"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 16)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7}, %8, %9, p, 1, 1, 0, 0;\n}"
                     : EIGHT(c, 0)
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 32)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, "
                     "0;\n}"
                     : EIGHT(c, 0), EIGHT(c, 8)
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 64)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_64
                     "}, %32, %33, p, 1, 1, 0, 0;\n}"
                     : OPERANDS_64(c)
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 128)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_128
                     "}, %64, %65, p, 1, 1, 0, 0;\n}"
                     : OPERANDS_128(c)
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 176)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %90, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 {" REGISTERS_176
                     "}, %88, %89, p, 1, 1, 0, 0;\n}"
                     : OPERANDS_176(c)
                     : "l"(a), "l"(b), "r"(add));
}

/* a [64 x 16] in registers, b [16 rows of the sum x N] MN-major: c += a b. */
template <int N>
__device__ static inline void wgmma_registers(float (&c)[N / 2], const uint32_t *a, uint64_t b)
{
    if constexpr (N == 64)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_64
                     "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                     : OPERANDS_64(c)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    else if constexpr (N == 128)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_128
                     "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n}"
                     : OPERANDS_128(c)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* a [64 x 16] in registers, b in shared memory, K-major: c = a b^T, or with `add` c += a b^T. */
template <int N>
__device__ static inline void wgmma_register_a(float (&c)[N / 2], const uint32_t *a, uint64_t b,
                                               int add)
{
    if constexpr (N == 8)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, %8, p, 1, 1, 0;\n}"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
    else if constexpr (N == 16)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"
                     : EIGHT(c, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
    else if constexpr (N == 32)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, "
                     "%20, p, 1, 1, 0;\n}"
                     : EIGHT(c, 0), EIGHT(c, 8)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* ---- host: descriptors of tensors for TMA ---- */

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function, found by name, so that the driver library is not linked. */
static inline encode_fn find_encode(void)
{
    void *f = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000,
                                                     cudaEnableDefault, &found);
#else
    cudaError_t e =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &f, cudaEnableDefault, &found);
#endif
    if (e != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        cudaGetLastError();
        return NULL;
    }
    return (encode_fn)f;
}

#endif /* PV_CUDASIM */

/* ---- shared by GPU and simulator ---- */

/* A tile as an operand. Rows along the sum (K-major): groups of 8 rows 1024 bytes apart, `between`
 * not used. The sum over the rows (MN-major): groups of 8 rows likewise, `between` the bytes from
 * one tile of 64 columns to the next. */
__device__ static inline uint64_t tile_descriptor(uint32_t address, uint32_t between)
{
    uint32_t lo = (address & 0x3ffffu) >> 4 | (between >> 4) << 16;
    uint32_t hi = (1024u >> 4) | 1u << 30;
    return (uint64_t)hi << 32 | lo;
}

static inline encode_fn find_encode_once(void)
{
    static encode_fn encode;
    if (!encode)
        encode = find_encode();
    return encode;
}

/* BF16 numbers as [pages][depth][rows][64] columns: rows row_step bytes apart, pages page_step; 0
 * pages: a map without that dimension. A box is box_rows rows of box_depth tiles, swizzled. */
static inline bool encode_map(encode_fn encode, CUtensorMap *map, const void *data, int rows,
                              int depth, int pages, size_t row_step, size_t page_step, int box_rows,
                              int box_depth)
{
    cuuint64_t dim[4] = { TILE_COLS, (cuuint64_t)rows, (cuuint64_t)depth, (cuuint64_t)pages };
    cuuint64_t step[3] = { row_step, TILE_COLS * 2, page_step };
    cuuint32_t box[4] = { TILE_COLS, (cuuint32_t)box_rows, (cuuint32_t)box_depth, 1 };
    cuuint32_t one[4] = { 1, 1, 1, 1 };
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, pages ? 4 : 3, (void *)data, dim, step,
                  box, one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* K or V (`data`) of a layer in all pages of the pool. A page has rows of d numbers, KV_CHUNK of
 * the first KV head and then those of the next: row r of head h is row h * KV_CHUNK + r. The box of
 * a page that does not exist, such as -1, is zero. */
static inline bool encode_pages(encode_fn encode, CUtensorMap *map, const struct kv_layer *kv,
                                const void *data, int box_rows, int box_depth)
{
    return encode_map(encode, map, data, kv->n_kv * KV_CHUNK, kv->d / TILE_COLS, kv->n_pool,
                      (size_t)kv->d * sizeof(uint16_t), kv->page_size, box_rows, box_depth);
}

#endif
