/* The part of attention_few_hopper.cu for a lone row, or a few rows with at most eight pairs of row
 * and head, and for the last splits of each row of a tree; with the same bits. For these, wgmma's
 * 64 rows would be nearly empty, and processing blocks of keys one after the other would be a chain
 * of waits. Here keys are the rows of mma.sync and pairs its columns. A warp has 16 keys; all warps
 * together process several blocks at once, called a pass. Then the running maxima of the blocks are
 * known, and with them every P. Then come the values, block after block, with one warp per 16
 * elements of the head. (On Hopper, a chain of mma.sync has the bits of wgmma's, whichever operand
 * has the rows; the kernel checker verifies it.)
 *
 * All blocks are requested before the preceding kernel has ended. Keys and values that this step
 * writes, and those of a tree's branch, are copied into them when those exist: after dep_wait, or
 * at once if the preceding kernel has waited for them (split_args.beside). */
#ifndef PV_KERNELS_CUDA_ATTENTION_FEW_ONE_ROW_HOPPER_CUH
#define PV_KERNELS_CUDA_ATTENTION_FEW_ONE_ROW_HOPPER_CUH

#include "kernels/cuda/attention_few_hopper.cuh"

#include <math.h>

enum {
    ONE_ROW_PAIRS = 8, /* mma's N */
    PASS_BARRIER = 1   /* for all warps that compute */
};

/* One kernel instance. PASS: blocks of keys per pass. */
template <int HEAD, int SPLIT, int PASS, int STAGES, int BLOCKS, int FLIGHT> struct one_row_shape {
    static constexpr int d = HEAD, block = 64, split = SPLIT, pass = PASS, stages = STAGES;
    static constexpr int blocks = BLOCKS, groups = 1;   /* per multiprocessor; see split_shape */
    static constexpr bool once = SPLIT == PASS * block; /* the whole split in one pass */
    static constexpr int warps = PASS * 4, workers = warps * 32, threads = workers + 32;
    /* Launch bound, which leaves registers to other kernels. */
    static constexpr int roomy = once ? 576 : threads;
    static constexpr int value_warps = HEAD / 16;
    static constexpr int block_size = block * HEAD * 2;
    static constexpr int k_at = 0, v_at = STAGES * block_size, bars_at = 2 * v_at;
    static constexpr int rest_at = bars_at + (3 * STAGES * 8 + 127) / 128 * 128;
    static constexpr int flight = FLIGHT;
    static_assert(KV_CHUNK % block == 0, "a block of keys lies in one page");
    static_assert(SPLIT % block == 0 && STAGES >= PASS && warps > value_warps, "a pass at a time");
};

/* Data exchanged between warps. */
template <class T> struct one_row_shared {
    float p[ONE_ROW_PAIRS][T::pass * T::block + 8]; /* rows 8 banks apart */
    int2 top[2][T::pass][ONE_ROW_PAIRS / 2]; /* maximum up to a block, as rank_of; two buffers */
    float2 turn[T::pass][ONE_ROW_PAIRS];     /* per block: maximum up to it; factor for O */
    float inverse[ONE_ROW_PAIRS];
    uint4 q[ONE_ROW_PAIRS][T::d / 8 + 1]; /* rows 4 banks apart */
};

#ifdef HOPPER_CODE

/* State of a thread of the computing warps. It has rows lane / 4 and lane / 4 + 8 of a tile [16
 * keys or elements of a head][8 pairs], columns lane % 4 * 2 and the next. */
template <class T> struct one_row {
    const split_args &a;
    const struct split_job &b;
    struct one_row_shared<T> &shared;
    const unsigned char *memory;
    uint32_t base, bars;      /* addresses of `memory` and of the barriers */
    int warp, lane, pair;     /* pair: the first of two */
    uint32_t q[T::d / 32][4]; /* of pair lane / 4; each for two mma steps */
    int limit[2];             /* number of positions that the pairs see */
    int to[2];                /* value warps: where O goes; -1: nowhere */
    int top_to;               /* sum warp: where its pair's maximum and sum go */
    float m[2];               /* the pairs' maxima so far */
    float o[4];               /* value warps: part of O */
    const uint16_t *path;     /* tree: nodes from the row to the root; NULL: chain */
    float l;                  /* sum warp: sum of pair lane / 4, keys lane % 4 * 2, .. */
    int stage, parity;        /* of the pass's first block */
};

/* Multiply 16 keys of a block by the queries. */
template <class T>
__device__ __forceinline__ void one_row_scores(float (&s)[4], struct one_row<T> &w, int stage)
{
    int row = w.warp % 4 * 16 + w.lane % 16, piece = w.lane / 16;
    const unsigned char *keys = w.memory + T::k_at + stage * T::block_size + row * 128;
    uint32_t k[T::d / 16][4];
#pragma unroll
    for (int c = 0; c < T::d / 16; c++)
        load_matrix4(k[c], keys + c / 4 * T::block * 128 + ((c % 4 * 2 + piece) ^ (row & 7)) * 16);
    mma_bf16_first(s, k[0], w.q[0]);
#pragma unroll
    for (int c = 1; c < T::d / 16; c++)
        mma_bf16(s, k[c], w.q[c / 2] + c % 2 * 2);
}

/* Map floats to integers with the same order, and back (of_rank). */
__device__ __forceinline__ int rank_of(float f)
{
    int i = __float_as_int(f);
    return i ^ (i >> 31 & INT32_MAX);
}

__device__ __forceinline__ float of_rank(int i)
{
    return __int_as_float(i ^ (i >> 31 & INT32_MAX));
}

/* Reset the maxima of a buffer. */
template <class T> __device__ __forceinline__ void one_row_forget(struct one_row<T> &w, int turn)
{
    int thread = (int)threadIdx.x, least = rank_of(-INFINITY);
    if (thread < T::pass * ONE_ROW_PAIRS / 2)
        w.shared.top[turn][thread / 4][thread % 4] = make_int2(least, least);
}

/* Add the warp's maxima to those of its block and all later blocks of the pass; one lane per block.
 */
template <class T>
__device__ __forceinline__ void one_row_tell(struct one_row<T> &w, const float (&s)[4], int turn)
{
    float t[2] = { fmaxf(s[0], s[2]), fmaxf(s[1], s[3]) };
    int block = w.warp / 4 + w.lane / 4;
#pragma unroll
    for (int bit = 4; bit < 32; bit *= 2)
#pragma unroll
        for (int e = 0; e < 2; e++)
            t[e] = fmaxf(t[e], __shfl_xor_sync(0xffffffffu, t[e], bit));
    if (block < T::pass) {
        int2 *to = &w.shared.top[turn][block][w.lane % 4];
        atomicMax(&to->x, rank_of(t[0]));
        atomicMax(&to->y, rank_of(t[1]));
    }
}

/* Maxima of the two pairs up to a block of the pass, including everything before the pass. */
template <class T>
__device__ __forceinline__ float2 one_row_top(const struct one_row<T> &w, int turn, int block)
{
    int2 r = w.shared.top[turn][block][w.lane % 4];
    return make_float2(fmaxf(of_rank(r.x), w.m[0]), fmaxf(of_rank(r.y), w.m[1]));
}

/* Factor for O when the maximum grows. */
__device__ __forceinline__ float one_row_shrink(float before, float now, float scale)
{
    return exp2_fast((before - (now == -INFINITY ? 0.0f : now)) * scale);
}

/* Store P of the warp's keys, once all maxima are known; the first warp of a block also stores the
 * block's maximum and factor. */
template <class T>
__device__ __forceinline__ void one_row_give(struct one_row<T> &w, const float (&s)[4], int turn)
{
    int own = w.warp / 4, key = w.warp * 16 + w.lane / 4;
    float2 now = one_row_top(w, turn, own);
    float mine[2] = { now.x, now.y };
    if (w.warp % 4 == 0 && w.lane < 4) {
        float2 before = make_float2(w.m[0], w.m[1]);
        if (own > 0)
            before = one_row_top(w, turn, own - 1);
        w.shared.turn[own][w.pair] = make_float2(now.x, one_row_shrink(before.x, now.x, w.a.scale));
        w.shared.turn[own][w.pair + 1] =
            make_float2(now.y, one_row_shrink(before.y, now.y, w.a.scale));
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float from = mine[i % 2] == -INFINITY ? 0.0f : mine[i % 2];
        w.shared.p[w.pair + i % 2][key + i / 2 * 8] =
            exp2_fast(fmaf(s[i], w.a.scale, -from * w.a.scale));
    }
}

/* Compute scores and P of the warp's keys. Called by all computing warps. */
template <class T>
__device__ __forceinline__ void one_row_weights(struct one_row<T> &w, int j, int blocks)
{
    int block = w.warp / 4, stage = w.stage + block, parity = w.parity;
    int turn = T::once ? 0 : j / T::pass % 2;
    float s[4];
    if (!T::once && stage >= T::stages)
        stage -= T::stages, parity ^= 1;
    if (block < blocks) {
        int position = w.b.split * T::split + j * T::block + w.warp * 16 + w.lane / 4;
        barrier_wait(w.bars + stage * 8, parity);
        one_row_scores<T>(s, w, stage);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (position + i / 2 * 8 >= w.limit[i % 2])
                s[i] = -INFINITY;
        one_row_tell(w, s, turn);
    }
    named_sync(PASS_BARRIER, T::workers);
    if (!T::once)
        one_row_forget(w, turn ^ 1);
    if (block < blocks)
        one_row_give(w, s, turn);
    if (!T::once) {
        float2 all = one_row_top(w, turn, blocks - 1);
        w.m[0] = all.x;
        w.m[1] = all.y;
    }
    named_sync(PASS_BARRIER, T::workers);
}

/* Operands of one mma: values and P of 16 keys. */
struct one_row_step {
    uint32_t v[4], p[2];
};

__device__ __forceinline__ void one_row_take(struct one_row_step &to, const unsigned char *values,
                                             const float *p)
{
    float2 low = *(const float2 *)p, high = *(const float2 *)(p + 8);
    load_matrix4_trans(to.v, values);
    to.p[0] = pack_bf16(low.x, low.y);
    to.p[1] = pack_bf16(high.x, high.y);
}

/* O^T += V^T P^T for 16 elements of the head. The mma form a chain, so operands are loaded two
 * steps ahead. */
template <class T> __device__ __forceinline__ void one_row_values(struct one_row<T> &w, int blocks)
{
    constexpr int STEPS = T::block / 16, STEP_SIZE = 16 * 128;
    int row = w.lane % 8 + w.lane / 16 * 8, piece = w.warp * 2 + w.lane / 8 % 2, stage = w.stage;
    const unsigned char *values =
        w.memory + T::v_at + (piece / 8 * T::block + row) * 128 + ((piece % 8) ^ (row & 7)) * 16;
    const unsigned char *from = values + stage * T::block_size;
    const float *p = &w.shared.p[w.lane / 4][w.lane % 4 * 2];
    const float2 *turn = &w.shared.turn[0][w.pair];
    struct one_row_step step[STEPS];
    int parity = w.parity;
    barrier_wait(w.bars + (T::stages + stage) * 8, parity);
    one_row_take(step[0], from, p);
    one_row_take(step[1], from + STEP_SIZE, p + 16);
#pragma unroll 1
    for (int i = 0; i < blocks; i++) {
        float2 low = turn[0], high = turn[1];
        uint32_t empty = w.bars + (2 * T::stages + stage) * 8;
        one_row_take(step[2], from + 2 * STEP_SIZE, p + 32);
        one_row_take(step[3], from + 3 * STEP_SIZE, p + 48);
        w.o[0] *= low.y;
        w.o[1] *= high.y;
        w.o[2] *= low.y;
        w.o[3] *= high.y;
        mma_bf16(w.o, step[0].v, step[0].p);
        mma_bf16(w.o, step[1].v, step[1].p);
        if (i + 1 < blocks) { /* the next block's first steps */
            stage++;
            if (!T::once && stage == T::stages)
                stage = 0, parity ^= 1;
            from = values + stage * T::block_size;
            p += T::block;
            turn += ONE_ROW_PAIRS;
            barrier_wait(w.bars + (T::stages + stage) * 8, parity);
            one_row_take(step[0], from, p);
            one_row_take(step[1], from + STEP_SIZE, p + 16);
        }
        mma_bf16(w.o, step[2].v, step[2].p);
        mma_bf16(w.o, step[3].v, step[3].p);
        if (!T::once) {
            __syncwarp();
            if (w.lane == 0)
                barrier_arrive(empty);
        }
    }
}

/* Sums of P in the order of the other kernel's threads: a lane has keys 8 i + lane % 4 * 2 and the
 * next. */
template <class T> __device__ __forceinline__ void one_row_sums(struct one_row<T> &w, int blocks)
{
    const float *p = &w.shared.p[w.lane / 4][w.lane % 4 * 2];
#pragma unroll 1
    for (int i = 0; i < blocks; i++, p += T::block) {
        float even = 0, odd = 0;
#pragma unroll
        for (int c = 0; c < T::block / 8; c++) {
            float2 x = *(const float2 *)(p + 8 * c);
            even += x.x;
            odd += x.y;
        }
        w.l = fmaf(w.l, w.shared.turn[i][w.lane / 4].y, even + odd);
    }
}

template <class T>
__device__ __forceinline__ void one_row_store_sums(struct one_row<T> &w, int blocks)
{
    int pair = w.lane / 4;
    float l = w.l;
    l += __shfl_xor_sync(0xffffffffu, l, 1);
    l += __shfl_xor_sync(0xffffffffu, l, 2);
    if (w.a.direct)
        w.shared.inverse[pair] = 1.0f / l;
    else if (w.lane % 4 == 0 && w.top_to >= 0)
        w.a.top[w.top_to] = make_float2(w.shared.turn[blocks - 1][pair].x, l);
}

template <class T> __device__ __forceinline__ void one_row_store(struct one_row<T> &w)
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float low = w.o[e], high = w.o[e + 2];
        if (w.to[e] < 0)
            continue;
        if (w.a.direct) {
            low *= w.shared.inverse[w.pair + e];
            high *= w.shared.inverse[w.pair + e];
        }
        if (w.a.direct && !w.a.f32) {
            uint16_t *out = (uint16_t *)w.a.out + w.to[e];
            uint32_t both = pack_bf16(low, high); /* averages of BF16 values: no overflow */
            out[0] = (uint16_t)both;
            out[8] = (uint16_t)(both >> 16);
        } else {
            float *out = (w.a.direct ? (float *)w.a.out : w.a.part) + w.to[e];
            out[0] = low;
            out[8] = high;
        }
    }
}

/* How many positions a pair sees (*limit), and where its results go; -1: nowhere. */
template <class T>
__device__ __forceinline__ int one_row_place(const struct one_row<T> &w, int pair, int *limit)
{
    const split_args &a = w.a;
    const split_slice &s = own_slice(a);
    int query = (w.b.m0 + pair) / a.group, head = w.b.m0 + pair - query * a.group;
    int row = (query + (a.direct ? s.row : s.part)) * a.n_heads + w.b.kv_head * a.group + head;
    *limit = pair < w.b.m ? w.b.low + query - w.b.q0 : 0;
    row = a.direct ? row : row * a.splits + w.b.split;
    return *limit > w.b.split * T::split ? row : -1;
}

/* Compute limits and destinations, before the preceding kernel has ended. */
template <class T> __device__ __forceinline__ void one_row_places(struct one_row<T> &w)
{
    int limit;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int to = one_row_place(w, w.pair + e, &w.limit[e]);
        w.to[e] = to < 0 ? -1 : to * T::d + w.warp * 16 + w.lane / 4;
    }
    w.top_to = one_row_place(w, w.lane / 4, &limit);
    hold(w.to[0] & w.to[1] & w.limit[0] & w.limit[1] & w.top_to);
}

/* Start copying the queries to shared memory. If each warp loaded them for itself, the whole GPU
 * would request the same line of L2. */
template <class T>
__device__ __forceinline__ void one_row_ask(struct one_row<T> &w, const uint16_t *q)
{
    constexpr int PIECES = T::d / 8;
    int thread = (int)threadIdx.x;
    if (thread < ONE_ROW_PAIRS * PIECES)
        copy_async16_to(shared_address(&w.shared.q[thread / PIECES][thread % PIECES]), q, 16);
}

/* Copy keys and values from slot `first` on into the blocks of the pass, over the outdated ones
 * that TMA loaded. Waits until they and the queries have arrived. */
template <class T>
__device__ __forceinline__ void one_row_mend(struct one_row<T> &w, int j, int blocks)
{
    constexpr int PIECES = T::d / 8;
    const split_args &a = w.a;
    int from = max(w.b.first, w.b.split * T::split + j * T::block);
    int items = min(w.b.high, w.b.split * T::split + (j + blocks) * T::block) - from;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < items * 2 * PIECES; i += T::workers) {
        int piece = i % PIECES, value = i / PIECES % 2, position = from + i / (2 * PIECES);
        int row = position % T::block, slot = position, parity = w.parity;
        int stage = w.stage + (position - w.b.split * T::split) / T::block - j;
        if (w.path)
            slot = w.b.first + w.path[w.b.high - 1 - position];
        int page = w.b.page;
        if (slot_chunk(slot) != slot_chunk(w.b.first))
            page = own_table(a)[slot_chunk(slot)];
        if (!T::once && stage >= T::stages)
            stage -= T::stages, parity ^= 1;
        barrier_wait(w.bars + (value ? T::stages + stage : stage) * 8, parity);
        copy_async16_to(w.base + (value ? T::v_at : T::k_at) + stage * T::block_size +
                            (piece / 8 * T::block + row) * 128 + ((piece % 8) ^ (row & 7)) * 16,
                        (value ? a.kv.v : a.kv.k) + slot_at(a.kv, page, w.b.kv_head, slot, T::d) +
                            piece * 8,
                        16);
    }
    copy_async_commit();
    copy_async_wait<0>();
}

/* Process all blocks of keys. */
template <class T> __device__ __forceinline__ void one_row_walk(struct one_row<T> &w)
{
    int j = 0, steps = w.b.steps;
    w.o[0] = w.o[1] = w.o[2] = w.o[3] = w.l = 0;
    w.m[0] = w.m[1] = -INFINITY;
#pragma unroll 1
    do {
        int blocks = min(steps - j, (int)T::pass);
        if (j == 0 || w.b.split * T::split + (j + blocks) * T::block > w.b.first) {
            one_row_mend(w, j, blocks);
            named_sync(PASS_BARRIER, T::workers);
        }
        if (j == 0)
#pragma unroll
            for (int c = 0; c < T::d / 32; c++)
                load_matrix4(w.q[c], &w.shared.q[w.lane % 8][c * 4 + w.lane / 8]);
        one_row_weights<T>(w, j, blocks);
        if (w.warp < T::value_warps)
            one_row_values<T>(w, blocks);
        else if (w.warp == T::value_warps)
            one_row_sums<T>(w, blocks);
        j += T::pass;
        if (w.warp == T::value_warps && (T::once || j >= steps))
            one_row_store_sums(w, blocks);
        w.stage += blocks;
        if (w.stage >= T::stages)
            w.stage -= T::stages, w.parity ^= 1;
    } while (!T::once && j < steps);
}

template <class T>
__device__ __forceinline__ void one_row_consume(const split_args &a, const struct split_job &b,
                                                unsigned char *memory, const uint16_t *path)
{
    constexpr int PIECES = T::d / 8;
    struct one_row<T> w = {
        a, b, *(struct one_row_shared<T> *)(memory + T::rest_at), memory
    };
    int thread = (int)threadIdx.x, pair = thread / PIECES < b.m ? thread / PIECES : 0;
    int query = (b.m0 + pair) / a.group, head = b.m0 + pair - query * a.group;
    /* a missing pair reads some query, but sees no position */
    const uint16_t *q = a.q + (size_t)(own_slice(a).row + query) * a.n_heads * T::d;
    q += (b.kv_head * a.group + head) * T::d + thread % PIECES * 8;
    w.base = shared_address(memory);
    w.bars = w.base + T::bars_at;
    w.warp = thread / 32;
    w.lane = thread % 32;
    w.pair = w.lane % 4 * 2;
    w.path = path;
    one_row_places(w);
    one_row_forget(w, 0);
    if (!a.beside)
        dep_wait();
    one_row_ask(w, q); /* from L2, see split_args.beside */
    one_row_walk<T>(w);
    if (a.direct)
        named_sync(PASS_BARRIER, T::workers);
    if (w.warp < T::value_warps)
        one_row_store(w);
}

/* Find the thread block's work: up to eight heads of a row of a tree, and a split that contains
 * tree nodes. The path from the row's node to the root is stored in `path`, which has room for all
 * nodes twice and one more. Returns false if the row sees nothing in the split. Called by all
 * threads. */
template <class T>
__device__ static inline bool branch_find(struct split_job *b, struct split_pages<T> &pages,
                                          const split_args &a, uint16_t *path, bool loads)
{
    const split_slice &s = own_slice(a);
    const struct staged_run *run = &a.staged->run[s.run];
    int i = (int)blockIdx.x, nodes = run->pending + run->n, part = i % a.n_parts;
    int16_t *parent = (int16_t *)(path + nodes);
    i /= a.n_parts;
    b->kv_head = i % a.n_kv;
    i /= a.n_kv;
    b->q0 = i % a.tree_rows;
    b->first = run->first_slot;
    b->page = run->first_page;
    b->split = b->first / T::split + i / a.tree_rows;
    b->m0 = b->q0 * a.group + part * ONE_ROW_PAIRS;
    b->m = min(a.group - part * ONE_ROW_PAIRS, (int)ONE_ROW_PAIRS);
    if (b->q0 >= s.rows || b->split * T::split >= b->first + nodes)
        return false;
    if (loads)
        ask_pages<T>(pages, a, b->split);
    for (int n = (int)threadIdx.x; n < nodes; n += T::threads)
        parent[n] = (int16_t)a.staged->list[run->parents + n];
    __syncthreads();
    if (threadIdx.x == 0) {
        int n = run->pending + s.row0 + b->q0, up = 0;
        for (; n >= 0; n = parent[n])
            path[up++] = (uint16_t)n;
        parent[nodes] = (int16_t)up;
    }
    __syncthreads();
    b->low = b->high = b->first + parent[nodes];
    return job_steps<T>(b);
}

/* A grid that did not wait for the one before it must not end earlier: one block stays. */
__device__ static inline void end_with_both(const split_args &a)
{
    if (a.beside && blockIdx.x == 0 && blockIdx.y == 0)
        dep_wait();
}

#endif

/* TREE: rows of trees; otherwise rows of chains. */
template <class T, bool TREE>
__global__ void __launch_bounds__(T::roomy, T::blocks)
    attention_one_row_kernel(const __grid_constant__ split_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(one_row_memory);
    uint32_t base = shared_address(one_row_memory), bars = base + T::bars_at;
    uint16_t *path = (uint16_t *)(one_row_memory + T::rest_at + sizeof(struct one_row_shared<T>));
    bool loads = threadIdx.x == T::workers;
    struct split_job b = {};
    struct split_pages<T> pages = {};
    dep_launch();
    if (base % 1024)
        __trap();
    if (TREE ? !branch_find<T>(&b, pages, a, path, loads) : !job_find<T>(&b, pages, a, 0, loads)) {
        end_with_both(a);
        return;
    }
    if (loads) {
        map_prefetch(&a.k_map);
        map_prefetch(&a.v_map);
        for (int s = 0; s < 3 * T::stages; s++)
            barrier_init(bars + s * 8, s < 2 * T::stages ? 1 : T::value_warps);
        barrier_init_done();
    }
    __syncthreads();
    if (loads)
        produce<T, true>(a, b, pages, base);
    else if (threadIdx.x < T::workers)
        one_row_consume<T>(a, b, one_row_memory, TREE ? path : NULL);
    if (TREE && threadIdx.x == 0 && b.kv_head == 0 && b.split == b.first / T::split)
        a.limit[own_slice(a).part + b.q0] = b.high;
    end_with_both(a);
#endif
}

#endif
