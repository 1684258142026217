/* Attention of few rows over the KV cache on Hopper GPUs: decode and verify steps, chains and
 * trees, with the same bits for any number of rows.
 *
 * A pair is a query row with one head of the KV head's group. Pairs are the 64 rows of wgmma's
 * tile; padding them is cheap, because a step is limited by memory bandwidth. The KV cache is cut
 * by absolute position: blocks of keys are processed in order with a running softmax, every `split`
 * positions give a partial result (max, sum, out), and a row's partial results are joined in an
 * order that depends only on their number. A thread block handles one split of one KV head. It has
 * a warpgroup for each of some tiles of pairs, which read the same keys and values, and one more
 * that keeps a ring of keys and values full by TMA. A row's result depends on no other row of its
 * tile, so neither the number of rows nor the assignment to thread blocks changes a bit. All runs
 * of a step whose caches lie in one pool are handled by the same launches; blocks beyond the end of
 * a shorter run return at once.
 *
 * A row of a tree attends to its ancestors as if they followed the cache in path order. Splits that
 * end before the tree are processed as for chains. The others are processed row by row by the
 * kernel for lone rows (attention_few_one_row_hopper.cuh), which also handles lone rows of chains
 * and gives the same bits.
 *
 * K and V below first_slot were written by earlier steps, so they are loaded before dep_wait. */
#include "kernels/cuda/cuda.h"

#include "kernels/cuda/attention_few_join_hopper.cuh"
#include "kernels/cuda/attention_few_one_row_hopper.cuh"

#include <math.h>

#ifdef HOPPER_CODE

/* ---- arithmetic: a warpgroup ---- */

/* A thread's state: its part of S [64, block] and O [64, d], as wgmma distributes them over the
 * threads (of the warp's 16 rows, rows lane / 4 and lane / 4 + 8; columns 8 i + lane % 4 * 2 and
 * the next). */
template <class T> struct walk {
    float s[T::block / 2], o[T::d / 2];
    uint32_t p[T::block / 4]; /* P as operand of the next product */
    float shrink[2];          /* factor for O after the maximum has grown */
    float m[2], l[2];         /* of the two rows: maximum; sum over this thread's columns */
    int limit[2];             /* number of positions they see */
    float scale;
    uint64_t q, k, v; /* descriptors; k and v: of the first stage */
    uint32_t k_full, v_full, empty;
    struct ring ring, held; /* held: the block whose P is not yet multiplied by V */
    int lane;
};

/* Set columns from `seen` on (seen[i] for the thread's row i) to -inf. */
template <int N> __device__ __forceinline__ void mask(float (&s)[N], int lane, const int seen[2])
{
    int reach[2] = { seen[0] - lane % 4 * 2, seen[1] - lane % 4 * 2 };
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i / 4 * 8 + i % 2 >= reach[i / 2 % 2])
            s[i] = -INFINITY;
}

/* Turn S into P, not yet divided by the row's sum. The maximum of a row that has seen no key yet is
 * -inf; it is replaced by 0 here. */
template <class T>
__device__ __forceinline__ void softmax(struct walk<T> &w, float (&s)[T::block / 2])
{
    float top[2][2], sum[2][2], minus[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        top[i / 2][i % 2] = s[i];
#pragma unroll
    for (int i = 4; i < T::block / 2; i++)
        top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float t = fmaxf(top[r][0], top[r][1]), from;
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
        t = fmaxf(t, w.m[r]);
        from = t == -INFINITY ? 0.0f : t;
        w.shrink[r] = exp2_fast((w.m[r] - from) * w.scale);
        w.m[r] = t;
        minus[r] = -from * w.scale;
        sum[r][0] = sum[r][1] = 0;
    }
#pragma unroll
    for (int i = 0; i < T::block / 2; i++) {
        s[i] = exp2_fast(fmaf(s[i], w.scale, minus[i / 2 % 2]));
        sum[i / 2 % 2][i % 2] += s[i];
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        w.l[r] = fmaf(w.l[r], w.shrink[r], sum[r][0] + sum[r][1]);
}

/* Rescale O if a maximum has grown, and convert P to BF16 for the tensor cores. */
template <class T>
__device__ __forceinline__ void prepare_o(struct walk<T> &w, const float (&s)[T::block / 2])
{
    if (__any_sync(0xffffffffu, w.shrink[0] != 1 || w.shrink[1] != 1)) {
#pragma unroll
        for (int i = 0; i < T::d / 2; i++)
            w.o[i] *= w.shrink[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < T::block / 4; i++)
        w.p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
    w.held = w.ring;
}

/* Start S = Q K^T for the block at this stage. */
template <class T>
__device__ __forceinline__ void begin_s(struct walk<T> &w, float (&s)[T::block / 2], int stage)
{
    uint64_t k = w.k + (uint32_t)(stage * (T::block_size / 16));
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < T::d / 16; c++)
        wgmma_shared<T::block>(s, w.q + (c / 4 * PAIRS * 128 + c % 4 * 32) / 16,
                               k + (c / 4 * T::block * 128 + c % 4 * 32) / 16, c > 0);
    wgmma_commit();
}

/* Start O += P V for the held block. */
template <class T> __device__ __forceinline__ void begin_o(struct walk<T> &w)
{
    uint64_t v = w.v + (uint32_t)(w.held.stage * (T::block_size / 16));
    barrier_wait(w.v_full + w.held.stage * 8, w.held.parity);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < T::block / 16; c++)
        wgmma_registers<T::d>(w.o, w.p + 4 * c, v + c * (16 * 128 / 16));
    wgmma_commit();
}

/* One step: S of the ring's current block, overlapped with O += P V of the held block. If no block
 * is held, P is zero and the current block's values take its place. All steps share this code,
 * because loading more code into the instruction cache costs more than the superfluous product. */
template <class T>
__device__ __forceinline__ void step(struct walk<T> &w, const int seen[2], bool masked, bool holds)
{
    if (!holds) {
        w.held = w.ring;
#pragma unroll
        for (int i = 0; i < T::block / 4; i++)
            w.p[i] = 0;
    }
    begin_s<T>(w, w.s, w.ring.stage);
    begin_o(w);
    wgmma_wait<1>();
    pin(w.s);
    if (masked)
        mask(w.s, w.lane, seen);
    softmax<T>(w, w.s);
    hold(w.l[0] + w.l[1]);
    wgmma_wait<0>();
    pin(w.o);
    if (w.lane == 0 && holds)
        barrier_arrive(w.empty + w.held.stage * 8);
    prepare_o<T>(w, w.s);
}

/* O += P V for the held block, at the end. */
template <class T> __device__ __forceinline__ void last_values(struct walk<T> &w)
{
    begin_o(w);
    wgmma_wait<0>();
    pin(w.o);
    if (w.lane == 0)
        barrier_arrive(w.empty + w.held.stage * 8);
}

/* Copy the queries of the warpgroup's pairs to shared memory; missing pairs are zero. */
template <class T>
__device__ static inline void load_queries(const split_args &a, const struct split_job &b,
                                           unsigned char *to)
{
    constexpr int PIECES = T::d / 8;
    const uint16_t *q = a.q + (size_t)own_slice(a).row * a.n_heads * T::d;
#pragma unroll
    for (int i = (int)threadIdx.x % 128; i < PAIRS * PIECES; i += 128) {
        int r = i / PIECES, c = i % PIECES, pair = b.m0 + r;
        uint4 x = make_uint4(0, 0, 0, 0);
        if (r < b.m) {
            size_t row = (size_t)(pair / a.group) * a.n_heads + b.kv_head * a.group;
            x = *(const uint4 *)(q + (row + pair % a.group) * T::d + c * 8);
        }
        *(uint4 *)(to + (c / 8 * PAIRS + r) * 128 + ((c % 8) ^ (r & 7)) * 16) = x;
    }
}

/* Store O of one of the thread's rows: a partial result, or the final result if there is one split.
 */
template <class T, int R>
__device__ __forceinline__ void store_row(struct walk<T> &w, const split_args &a,
                                          const struct split_job &b, int pair, float l)
{
    const split_slice &s = own_slice(a);
    size_t row = (size_t)(pair / a.group + (a.direct ? s.row : s.part)) * a.n_heads;
    int column = w.lane % 4 * 2;
    row += b.kv_head * a.group + pair % a.group;
    if (!a.direct) {
        row = row * a.splits + b.split;
        float *to = a.part + row * T::d + column;
        if (w.lane % 4 == 0)
            a.top[row] = make_float2(w.m[R], l);
#pragma unroll
        for (int c = 0; c < T::d / 8; c++)
            *(float2 *)(to + 8 * c) = make_float2(w.o[4 * c + 2 * R], w.o[4 * c + 2 * R + 1]);
        return;
    }
    float inverse = 1.0f / l;
#pragma unroll
    for (int c = 0; c < T::d / 8; c++) {
        w.o[4 * c + 2 * R] *= inverse;
        w.o[4 * c + 2 * R + 1] *= inverse;
    }
    if (a.f32) {
        float *to = (float *)a.out + row * T::d + column;
#pragma unroll
        for (int c = 0; c < T::d / 8; c++)
            *(float2 *)(to + 8 * c) = make_float2(w.o[4 * c + 2 * R], w.o[4 * c + 2 * R + 1]);
    } else {
        uint16_t *to = (uint16_t *)a.out + row * T::d + column;
#pragma unroll
        for (int c = 0; c < T::d / 8; c++) /* averages of BF16 values: no overflow */
            *(uint32_t *)(to + 8 * c) = pack_bf16(w.o[4 * c + 2 * R], w.o[4 * c + 2 * R + 1]);
    }
}

template <class T, int R>
__device__ __forceinline__ void store_rows(struct walk<T> &w, const split_args &a,
                                           const struct split_job &b, int m)
{
    float l = w.l[R];
    l += __shfl_xor_sync(0xffffffffu, l, 1);
    l += __shfl_xor_sync(0xffffffffu, l, 2);
    if (m + 8 * R < b.m && w.limit[R] > b.split * T::split)
        store_row<T, R>(w, a, b, b.m0 + m + 8 * R, l);
}

/* Find how many positions the thread's rows see. */
template <class T>
__device__ static inline void rows_begin(struct walk<T> &w, const split_args &a,
                                         const struct split_job &b, int m)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        bool there = m + 8 * r < b.m;
        int query = (b.m0 + m + 8 * r) / a.group;
        w.limit[r] = there ? b.seen + query : INT32_MAX;
        w.m[r] = -INFINITY;
        w.l[r] = 0;
    }
#pragma unroll
    for (int c = 0; c < T::d / 2; c++)
        w.o[c] = 0;
}

/* Process all blocks of a job in order. */
template <class T>
__device__ __forceinline__ void walk_steps(struct walk<T> &w, const struct split_job &b)
{
#pragma unroll 1
    for (int j = 0; j < b.steps; j++) {
        int begin = b.split * T::split + j * T::block;
        int seen[2] = { w.limit[0] - begin, w.limit[1] - begin };
        barrier_wait(w.k_full + w.ring.stage * 8, w.ring.parity);
        step<T>(w, seen, begin + T::block > b.low, j > 0);
        ring_next<T>(w.ring);
    }
    last_values(w);
}

template <class T>
__device__ static inline void consume(const split_args &a, const struct split_job &b,
                                      unsigned char *memory, int group)
{
    struct walk<T> w;
    uint32_t base = shared_address(memory);
    int thread = (int)threadIdx.x % 128, m = thread / 32 * 16 + thread % 32 / 4;
    w.lane = thread % 32;
    w.scale = a.scale;
    w.k_full = base + T::bars_at;
    w.v_full = w.k_full + T::stages * 8;
    w.empty = w.v_full + T::stages * 8;
    w.q = tile_descriptor(base + group * T::q_size, 16);
    w.k = tile_descriptor(base + T::k_at, 16);
    w.v = tile_descriptor(base + T::v_at, T::block * 128);
    w.ring = { 0, 0 };
    rows_begin(w, a, b, m);

    dep_wait();
    if (a.ahead)
        dep_launch();
    load_queries<T>(a, b, memory + group * T::q_size);
    shared_written();
    named_sync(QUERY_BARRIER + group, 128);
    walk_steps<T>(w, b);
    store_rows<T, 0>(w, a, b, m);
    store_rows<T, 1>(w, a, b, m);
}

#endif

template <class T>
__global__ void __launch_bounds__(T::threads, T::blocks)
    attention_few_hopper_kernel(const __grid_constant__ split_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(few_memory);
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    uint32_t base = shared_address(few_memory), bars = base + T::bars_at;
    struct split_job b;
    struct split_pages<T> pages = {};
    bool loads = threadIdx.x == T::groups * 128;
    if (!a.ahead)
        dep_launch();
    if (loads) {
        map_prefetch(&a.k_map);
        map_prefetch(&a.v_map);
    }
    if (base % 1024)
        __trap();
    if (!job_find<T>(&b, pages, a, group, loads)) {
        if (blockIdx.x == 0 || a.ahead) /* someone must wait, or this grid might end before earlier
                                         * ones, or the next one start before they end */
            dep_wait();
        return;
    }
    if (loads) {
        for (int s = 0; s < 2 * T::stages; s++)
            barrier_init(bars + s * 8, 1);
        for (int s = 2 * T::stages; s < 3 * T::stages; s++)
            barrier_init(bars + s * 8, 4 * b.n_groups);
        barrier_init_done();
    }
    __syncthreads();
    if (group == T::groups) {
        registers_lower<T::few>();
        if (loads)
            produce<T, false>(a, b, pages, base);
    } else {
        registers_raise<T::most>();
        if (group < b.n_groups)
            consume<T>(a, b, few_memory, group);
    }
#endif
}

/* ---- host ---- */

/* Kinds of slices, in the order in which a batch stores them. */
enum slice_kind { SLICE_ONE_ROW, SLICE_CHAIN, SLICE_TREE, SLICE_KINDS };

/* Whether this build has the real kernel for this GPU. Builds for other targets have an empty
 * kernel, which is recognised by its few registers. */
static bool kernel_ready(void (*kernel)(const split_args))
{
    cudaFuncAttributes at;
    if (cudaFuncGetAttributes(&at, (const void *)kernel) != cudaSuccess || at.numRegs < 32 ||
        set_smem(kernel, SMEM_MOST) != cudaSuccess || set_all_shared(kernel) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return true;
}

template <class S> static bool set_ready(void)
{
    return kernel_ready(attention_few_hopper_kernel<typename S::one>) &&
           kernel_ready(attention_few_hopper_kernel<typename S::busy>) &&
           kernel_ready(attention_few_hopper_kernel<typename S::two>) &&
           kernel_ready(attention_few_hopper_kernel<typename S::three>) &&
           kernel_ready(attention_one_row_kernel<typename S::one_row, false>) &&
           kernel_ready(attention_one_row_kernel<typename S::one_row, true>) &&
           kernel_ready(attention_one_row_kernel<typename S::crowd, true>);
}

/* Slices of one pool that are launched together, sorted by kind. */
struct split_batch {
    struct split_args a;
    int n_slices, n_rows;
    int n_of[SLICE_KINDS];
    int tiles; /* largest number of tiles of a slice */
    int nodes; /* largest number of nodes of a tree */
};

template <class T>
static cudaError_t few_launch(const struct device_work *w, struct split_batch &b, int first,
                              int n_splits)
{
    b.a.n_sets = (b.tiles + T::groups - 1) / T::groups;
    b.a.slice0 = first;
    return launch(
        attention_few_hopper_kernel<T>,
        dim3((unsigned)(b.a.n_sets * b.a.n_kv * n_splits), (unsigned)(b.n_slices - first)),
        dim3(T::threads), T::size, w->stream, b.a);
}

/* Launch the slices of kind SLICE_ONE_ROW: few pairs of a chain each, usually one row. */
template <class T>
static cudaError_t one_row_launch(const struct device_work *w, struct split_batch &b, int n_splits)
{
    b.a.n_sets = 1;
    b.a.slice0 = 0;
    return launch(attention_one_row_kernel<T, false>,
                  dim3((unsigned)(b.a.n_kv * n_splits), (unsigned)b.n_of[SLICE_ONE_ROW]),
                  dim3(T::threads), T::rest_at + sizeof(struct one_row_shared<T>), w->stream, b.a);
}

/* Launch the splits that contain tree nodes, for rows of trees. */
template <class T>
static cudaError_t tree_launch(const struct device_work *w, struct split_batch &b)
{
    size_t paths = sizeof(uint16_t) * (2 * (size_t)b.nodes + 1);
    int splits = (b.nodes + T::split - 2) / T::split + 1;
    b.a.n_parts = (b.a.group + ONE_ROW_PAIRS - 1) / ONE_ROW_PAIRS;
    b.a.slice0 = b.n_slices - b.n_of[SLICE_TREE];
    return launch(attention_one_row_kernel<T, true>,
                  dim3((unsigned)(b.a.tree_rows * b.a.n_parts * b.a.n_kv * splits),
                       (unsigned)b.n_of[SLICE_TREE]),
                  dim3(T::threads), T::rest_at + sizeof(struct one_row_shared<T>) + paths,
                  w->stream, b.a);
}

/* The kernel instances for a head size: one, two and three warpgroups per thread block, and
 * variants. */
template <int HEAD, int BLOCK, int SPLIT, int STAGES1, int BLOCKS1, int STAGES2, int BLOCKS2,
          int STAGES3, int BLOCKS3, int PASS, int ONE_ROW_BLOCKS, int FLIGHT>
struct split_set {
    static constexpr int d = HEAD, block = BLOCK, split = SPLIT;
    typedef one_row_shape<HEAD, SPLIT, PASS, STAGES1, ONE_ROW_BLOCKS, FLIGHT> one_row;
    typedef one_row_shape<HEAD, SPLIT, 3, 3, 2, HEAD == 64 ? FLIGHT : 2>
        crowd; /* for many rows of trees */
    typedef split_shape<HEAD, BLOCK, SPLIT, 1, STAGES1, BLOCKS1> one;
    typedef split_shape<HEAD, BLOCK, SPLIT, 1, 3, 2> busy;
    typedef split_shape<HEAD, BLOCK, SPLIT, 2, STAGES2, BLOCKS2> two;
    typedef split_shape<HEAD, BLOCK, SPLIT, 3, STAGES3, BLOCKS3> three;
};

/* Warpgroups per thread block: the smallest number with which all thread blocks run at once, one
 * per multiprocessor. */
static int pick_groups(const struct device_work *w, int tiles, int blocks)
{
    int groups = 1;
    while (groups < tiles && groups < MOST_GROUPS &&
           (tiles + groups - 1) / groups * blocks > w->gpu->n_sm)
        groups++;
    return groups;
}

/* Run the splits that look the same to all rows. When blocks fill the GPU, the longer rings of the
 * general kernel use memory bandwidth better than the kernel for lone rows, which takes one pass at
 * a time. Sets a.ahead if the rows of trees may run beside the last kernel. */
template <class S>
static cudaError_t splits_run(const struct device_work *w, struct split_batch &b, int n_splits)
{
    int one_row = b.n_of[SLICE_ONE_ROW], blocks = b.a.n_kv * n_splits, groups;
    cudaError_t e = cudaSuccess;
    one_row = S::one_row::once || 2 * blocks * one_row <= w->gpu->n_sm ? one_row : 0;
    if (one_row > 0)
        e = one_row_launch<typename S::one_row>(w, b, n_splits);
    if (e != cudaSuccess || one_row == b.n_slices)
        return e;
    if (b.n_of[SLICE_TREE] == b.n_slices - one_row) /* only trees: the last split contains nodes */
        n_splits--;
    if (n_splits == 0)
        return e;
    b.a.ahead = b.n_of[SLICE_TREE] > 0;
    blocks = b.a.n_kv * n_splits * (b.n_slices - one_row);
    groups = pick_groups(w, b.tiles, blocks);
    /* With several runs and more blocks than multiprocessors, use smaller blocks, two per
     * multiprocessor: while one starts or ends, the other keeps the memory busy. */
    if (groups == 1 && b.n_slices - one_row > 1 && blocks > w->gpu->n_sm)
        return few_launch<typename S::busy>(w, b, one_row, n_splits);
    return groups == 1   ? few_launch<typename S::one>(w, b, one_row, n_splits)
           : groups == 2 ? few_launch<typename S::two>(w, b, one_row, n_splits)
                         : few_launch<typename S::three>(w, b, one_row, n_splits);
}

/* Launch everything in a batch, and empty it. */
template <class S> static void batch_run(struct device_work *w, struct split_batch &b, int n_splits)
{
    cudaError_t e;
    if (b.n_slices == 0)
        return;
    int branches = b.a.tree_rows * b.n_of[SLICE_TREE] * b.a.n_kv;
    e = splits_run<S>(w, b, n_splits);
    b.a.beside = b.a.ahead;
    b.a.ahead = 0;
    if (e == cudaSuccess && branches > 0) /* with many rows, two blocks per multiprocessor */
        e = branches > 2 * w->gpu->n_sm ? tree_launch<typename S::crowd>(w, b)
                                        : tree_launch<typename S::one_row>(w, b);
    b.a.beside = 0;
    if (e == cudaSuccess && !b.a.direct)
        e = launch(n_splits <= JOIN_WARPS       ? split_join_kernel<S::d, S::split, 1>
                   : n_splits <= 5 * JOIN_WARPS ? split_join_kernel<S::d, S::split, 5>
                                                : split_join_kernel < S::d,
                   S::split, S::d == 64 ? 17 : 9 >, dim3((unsigned)b.a.n_heads, (unsigned)b.n_rows),
                   dim3(JOIN_WARPS * 32), 0, w->stream, b.a);
    work_check(w, e, "attention");
    b.n_slices = b.n_rows = b.tiles = b.nodes = b.a.tree_rows = 0;
    for (int i = 0; i < SLICE_KINDS; i++)
        b.n_of[i] = 0;
}

static enum slice_kind kind_of(const struct split_args &a, const struct attn_run *run)
{
    if (run->parent)
        return SLICE_TREE;
    return run->n * a.group <= ONE_ROW_PAIRS && run->pending + run->n <= ONE_ROW_PAIRS
               ? SLICE_ONE_ROW
               : SLICE_CHAIN;
}

/* Add rows [row0, row0 + rows) of a run to the batch. */
static void batch_add(struct split_batch &b, const struct attn_run *run, int index, int row0,
                      int rows)
{
    struct split_slice *s = &b.a.slice[b.n_slices];
    enum slice_kind kind = kind_of(b.a, run);
    int tiles = slice_tiles(rows, b.a.group), nodes = run->pending + run->n;
    *s = split_slice{ run->row0 + row0, (uint16_t)row0, (uint16_t)index, (uint16_t)rows,
                      (uint16_t)b.n_rows };
    for (int r = 0; r < rows; r++)
        b.a.slice_of[b.n_rows + r] = (uint8_t)b.n_slices;
    b.n_slices++;
    b.n_rows += rows;
    b.n_of[kind]++;
    b.tiles = tiles > b.tiles ? tiles : b.tiles;
    if (kind != SLICE_TREE)
        return;
    b.nodes = nodes > b.nodes ? nodes : b.nodes;
    b.a.tree_rows = rows > b.a.tree_rows ? rows : b.a.tree_rows;
}

/* Divide the scratch memory into part, top and limit. Returns the number of rows it has room for.
 */
template <class S>
static int few_scratch(struct split_args &a, const struct device_work *w, int n_splits)
{
    size_t splits = (size_t)n_splits, heads = (size_t)a.n_heads;
    size_t row = heads * splits * (S::d * sizeof(float) + sizeof(float2)) + sizeof(int);
    size_t fit = w->attn_size / row;
    int slice = fit < (size_t)SPLIT_ROWS ? (int)fit : (int)SPLIT_ROWS;
    a.splits = (int)splits;
    a.part = (float *)w->attn_scratch;
    a.top = (float2 *)(a.part + (size_t)slice * heads * splits * S::d);
    a.limit = (int *)(a.top + (size_t)slice * heads * splits);
    return a.direct ? (int)SPLIT_ROWS : slice;
}

/* Run runs [first, end), which lie in one pool: all of one kind, then those of the next. */
template <class S>
static void runs_run(struct device_work *w, const struct attn_block *b, struct split_batch &batch,
                     int first, int end, int n_splits)
{
    int room = few_scratch<S>(batch.a, w, n_splits);
    if (room == 0) {
        work_check(w, cudaErrorInvalidValue, "attention without scratch");
        return;
    }
    for (int kind = 0; kind < SLICE_KINDS; kind++)
        for (int i = first; i < end; i++) {
            const struct attn_run *run = &b->runs[i];
            if (kind_of(batch.a, run) != kind)
                continue;
            for (int row = 0, rows; row < run->n; row += rows) {
                if (batch.n_rows == room)
                    batch_run<S>(w, batch, n_splits);
                rows = room - batch.n_rows;
                rows = run->n - row < rows ? run->n - row : rows;
                batch_add(batch, run, i, row, rows);
            }
        }
    batch_run<S>(w, batch, n_splits);
}

template <class S>
static bool run_few(struct device_work *w, const struct attn_block *b, const void *q16, void *out,
                    enum dtype out_dtype)
{
    static struct by_gpu ready;
    static const encode_fn encode = find_encode();
    const struct layer_shape *s = b->shape;
    int n_splits = (w->max_positions + S::split - 1) / S::split;
    if (!is_ready(&ready, w->gpu->index, set_ready<S>) || !encode)
        return false;
    for (int i = 0, end; i < b->n_runs; i = end) {
        const struct kv_layer *kv = b->runs[i].kv;
        struct split_batch batch = {};
        struct split_args &a = batch.a;
        for (end = i + 1; end < b->n_runs && same_pool(kv, b->runs[end].kv);)
            end++;
        if (!encode_pages(encode, &a.k_map, kv, kv->k, S::block, S::d / TILE_COLS) ||
            !encode_pages(encode, &a.v_map, kv, kv->v, S::block, S::d / TILE_COLS)) {
            work_check(w, cudaErrorInvalidValue, "attention without a map of the cache");
            return true;
        }
        a.direct = n_splits <= 1;
        a.n_heads = s->n_heads;
        a.n_kv = s->n_kv_heads;
        a.group = s->n_heads / s->n_kv_heads;
        a.kv = pages_of(w, kv, 0);
        a.table_size = w->table_size;
        a.q = (const uint16_t *)q16;
        a.out = out;
        a.staged = w->staged;
        a.scale = 1.4426950408889634f / sqrtf((float)S::d);
        a.f32 = out_dtype == DTYPE_F32;
        runs_run<S>(w, b, batch, i, end, n_splits);
    }
    return true;
}

bool attention_few_hopper(struct device_work *w, const struct attn_block *b, const void *q16,
                          void *out, enum dtype out_dtype)
{
    int d = b->shape->head_dim;
    if (w->gpu->major != 9 || (d != 64 && d != 128) ||
        b->shape->n_heads / b->shape->n_kv_heads > PAIRS || (uintptr_t)q16 % 16 ||
        (out_dtype != DTYPE_BF16 && out_dtype != DTYPE_F32))
        return false;
    for (int i = 0; i < b->n_runs; i++) {
        const struct kv_layer *kv = b->runs[i].kv;
        if (kv->dtype != DTYPE_BF16 || kv->d != d || (uintptr_t)kv->k % 16 || (uintptr_t)kv->v % 16)
            return false;
    }
    /* The rings take more than half of the shared memory. Otherwise two blocks could share a
     * multiprocessor while another one is idle. */
    return d == 128
               ? run_few<split_set<128, 64, SPLIT_128, 6, 2, 6, 1, 5, 1, 5, 1, 3>>(w, b, q16, out,
                                                                                   out_dtype)
               : run_few<split_set<64, 64, SPLIT_64, 3, 2, 4, 1, 4, 1, 3, 2, 1>>(w, b, q16, out,
                                                                                 out_dtype);
}
