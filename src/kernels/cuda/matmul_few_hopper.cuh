/* The work of a block of matmul_few_hopper.cu: one thread requests the weights, one requests x, two
 * or three warpgroups multiply and finish the tiles, the other warps find the rows' scales. What
 * differs if two blocks share K is in matmul_few_pair_hopper.cuh.
 *
 * Weights and x have separate rings of stages. A block needs x again for each tile; it comes from
 * L2 with a short latency, while the weights' ring must hide the latency of memory. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_HOPPER_CUH

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/norm.h"

enum {
    MET = 1,         /* barriers: sums are in shared memory; */
    DONE = 2,        /* sums have been read; */
    SCALED = 3,      /* the rows' scales are ready; */
    LAST = 4,        /* sums of a pair's last tile are in shared memory */
    GROUP = 64,      /* rows of a warpgroup: wgmma's M */
    CONSUMERS = 256, /* threads of a block without a partner that multiply: two warpgroups */
    PRODUCERS = 64,  /* a warp for the weights and one for x */
    SCALE_ROWS = 4,  /* rows whose 1 / rms a warp finds at a time */
    ROW_BYTES = TILE_COLS * 2,
    MAX_STAGES = 16, /* most stages of the weights' ring; of x's: X_STAGES */
    X_STAGES = 16,
    SUM_STEP = CONSUMERS / 2 + 4, /* floats per column: no bank conflicts within a warp */
    QUAD = 4                      /* rows of a tile that a thread finishes at a time */
};

/* What follows depends on n, the rows of x in a launch. Blocks that share the K of a tile: */
__host__ __device__ static constexpr int parts(int n)
{
    return n > 32 ? 2 : 1;
}

/* Threads that multiply. */
__host__ __device__ static constexpr int consumers(int n)
{
    return parts(n) > 1 ? 384 : (int)CONSUMERS;
}

/* Threads that find the rows' 1 / rms and, in a pair, finish tiles; and (threads) all threads of a
 * block. More would leave too few registers to those that multiply. */
__host__ __device__ static constexpr int scalers(int n)
{
    return parts(n) > 1 ? 64 : n == 8 ? 32 : 96;
}

__host__ __device__ static constexpr int threads(int n)
{
    return consumers(n) + PRODUCERS + scalers(n);
}

/* Columns whose sums a block has in shared memory and finishes, and floats per column. */
__host__ __device__ static constexpr int sum_columns(int n)
{
    return n / parts(n);
}

__host__ __device__ static constexpr int sum_step(int n)
{
    return parts(n) > 1 ? consumers(n) / 2 + 4 : (int)SUM_STEP;
}

struct stream_job {
    void *y;
    size_t y_stride;
    const float *bias, *bias2;
    int out, tile0; /* tile0: its first tile */
};

struct stream_args {
    CUtensorMap w[DEVICE_MAX_JOBS], x;
    struct stream_job job[DEVICE_MAX_JOBS];
    int n_jobs, n, in;
    int steps;                    /* of TILE_COLS columns: an even number; the last may be empty */
    int tiles;                    /* blocks, or pairs of them, take one after another */
    int rows;                     /* per tile; in a gated product, per half */
    int up;                       /* in a gated product: from gate's sums to those of up */
    int depth;                    /* steps of a stage: an even number or 1; 1 if K is shared */
    int stages, x_stages;         /* of the rings */
    int flight;                   /* stages of weights in flight */
    uint32_t quad_inverse;        /* inverse() for i / (rows / QUAD) */
    int add, gated, y_bf16, wide; /* wide: access y by quads */
    struct few_norm norm;         /* its pointers: to the launch's first row */
    int busy;                     /* threads with rows in a tile */
};

/* A factor for computing i / d by a multiplication, for i up to 3072 and d up to 48. */
__host__ __device__ static constexpr uint32_t inverse(uint32_t d)
{
    return ((1u << 20) + d - 1) / d;
}

__host__ __device__ static constexpr int divide(int i, uint32_t inverse)
{
    return (int)((uint32_t)i * inverse >> 20);
}

#ifdef HOPPER_CODE

/* ---- the rings ---- */

struct ring {
    uint32_t at, full, empty; /* addresses of the stages and their barriers */
    int size, stages;         /* size: bytes of a stage */
    int stage;
    uint32_t parity; /* of the stage's current round */
};

__device__ static inline void ring_next(struct ring &r)
{
    r.stage = r.stage + 1 == r.stages ? 0 : r.stage + 1;
    r.parity ^= r.stage == 0;
}

__device__ static inline uint32_t stage_at(const struct ring &r)
{
    return r.at + r.stage * r.size;
}

/* Wait until the stage may be filled again. */
__device__ static inline void stage_claim(const struct ring &r)
{
    barrier_wait(r.empty + r.stage * 8, r.parity ^ 1);
    barrier_arrive_expect(r.full + r.stage * 8, r.size);
}

/* Blocks of the grid take tiles in turn. Two that share the K of a tile are neighbours: one takes
 * the even steps, one the odd ones. */
template <int N> __device__ static inline int first_tile()
{
    return (int)blockIdx.x / parts(N);
}

template <int N> __device__ static inline int tile_stride()
{
    return (int)gridDim.x / parts(N);
}

template <int N> __device__ static inline int first_step()
{
    return (int)blockIdx.x % parts(N);
}

__device__ static inline int job_of(const stream_args &a, int tile)
{
    int j = 0;
    while (j + 1 < a.n_jobs && tile >= a.job[j + 1].tile0)
        j++;
    return j;
}

/* One thread: requests the weights of the block's tiles. It need not wait for the preceding kernel,
 * but does not request the whole ring at once, because TMA would then serve x last. */
template <int N> __device__ static inline void produce_weights(const stream_args &a, struct ring w)
{
    struct ring landed = w;
    int on_way = 0;
    for (int tile = first_tile<N>(); tile < a.tiles; tile += tile_stride<N>()) {
        int j = job_of(a, tile), row = (tile - a.job[j].tile0) * a.rows;
#pragma unroll 1
        for (int step = first_step<N>(); step < a.steps; step += a.depth * parts(N)) {
            uint32_t full = w.full + w.stage * 8;
            if (on_way == a.flight) {
                barrier_wait(landed.full + landed.stage * 8, landed.parity);
                ring_next(landed);
            } else {
                on_way++;
            }
            stage_claim(w);
            load_box3_once(stage_at(w), &a.w[j], full, 0, row, step);
            if (a.gated)
                load_box3_once(stage_at(w) + w.size / 2, &a.w[1], full, 0, row, step);
            ring_next(w);
        }
    }
}

/* One thread: requests x, again for every tile, once the preceding kernel has written it. */
template <int N> __device__ static inline void produce_x(const stream_args &a, struct ring x)
{
    map_prefetch(&a.x);
    dep_wait();
    global_written();
    for (int tile = first_tile<N>(); tile < a.tiles; tile += tile_stride<N>())
#pragma unroll 1
        for (int step = first_step<N>(); step < a.steps; step += a.depth * parts(N)) {
            uint32_t full = x.full + x.stage * 8;
            stage_claim(x);
            load_box3(stage_at(x), &a.x, full, 0, 0, step);
            ring_next(x);
        }
}

/* Find 1 / rms of the rows that the block finishes, by warps that do not multiply. */
template <int N> __device__ static inline void find_scales(const stream_args &a, float *scale)
{
    constexpr int SCALERS = scalers(N), COLUMNS = sum_columns(N);
    int thread = (int)threadIdx.x - consumers(N) - PRODUCERS;
    int col0 = first_step<N>() * COLUMNS, end = min(a.n, col0 + COLUMNS);
    dep_wait();
    if constexpr (N > 64) {
        for (int col = col0 + thread; col < end; col += SCALERS)
            scale[col] = __ldcg(a.norm.scales + col);
    } else {
        for (int col = col0 + thread / 32 * SCALE_ROWS; col < end;
             col += SCALERS / 32 * SCALE_ROWS) {
            float sum[SCALE_ROWS];
            norm_take_rows<SCALE_ROWS>(sum, a.norm.squares + (size_t)col * (a.in / NORM_OCTET),
                                       a.in, end - col);
#pragma unroll
            for (int r = 0; r < SCALE_ROWS; r++) {
                float s = norm_end(sum[r], a.in, a.norm.eps);
                if (thread % 32 == 0 && col + r < end)
                    scale[col + r] = s;
            }
        }
    }
}

/* Addresses in shared memory of a tile of weights and of the rows of x for the same step. (An
 * output is the sum of two chains over K, the even steps and the odd ones.) */
struct operands {
    uint32_t w, x;
};

/* The descriptor of the k-th 16 columns of a tile: that of the tile plus a number, which never
 * carries into the upper half. */
__device__ static inline uint64_t part_of(uint32_t tile, int k)
{
    uint64_t d = tile_descriptor(tile, 0);
    return (d & ~0xffffffffull) | ((uint32_t)d + (uint32_t)k * (32 >> 4));
}

/* Start the products of an even and an odd step, added to c and d in turn: a wgmma waits some 50
 * cycles for an earlier one that adds to the same accumulator. */
template <int N>
__device__ static inline void multiply_two(float (&c)[N / 2], float (&d)[N / 2], struct operands e,
                                           struct operands o)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        wgmma_shared<N>(c, part_of(e.w, k), part_of(e.x, k), 1);
        wgmma_shared<N>(d, part_of(o.w, k), part_of(o.x, k), 1);
    }
    wgmma_commit();
}

/* Wait for a stage of both rings. Returns where the warpgroup's rows, and x, begin. */
__device__ static inline struct operands take(const struct ring &w, const struct ring &x,
                                              uint32_t mine)
{
    barrier_wait(w.full + w.stage * 8, w.parity);
    barrier_wait(x.full + x.stage * 8, x.parity);
    return { stage_at(w) + mine, stage_at(x) };
}

/* The warp has finished with the current stage of both rings; go on to the next. */
__device__ static inline void release(struct ring &w, struct ring &x)
{
    int lane = (int)threadIdx.x % 32;
    if (lane == 0)
        barrier_arrive(w.empty + w.stage * 8);
    if (lane == 1)
        barrier_arrive(x.empty + x.stage * 8);
    ring_next(w);
    ring_next(x);
}

/* Sum over all of K for the thread's rows of the tile. Register 4 j + 2 i + e of c is row lane / 4
 * + 8 i of the warp's 16 rows, column 8 j + lane % 4 * 2 + e. */
template <int N>
__device__ static inline void walk(const stream_args &a, float (&c)[N / 2], struct ring &w,
                                   struct ring &x)
{
    int half = (int)threadIdx.x / 128, tile_size = a.rows * ROW_BYTES;
    uint32_t mine = half * (a.gated ? w.size / 2 : GROUP * ROW_BYTES);
    struct ring w_done = w, x_done = x;
    float odd[N / 2];
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        c[r] = odd[r] = 0;
#pragma unroll 1
    for (int i = 0; i < a.steps; i += a.depth == 1 ? 2 : a.depth) {
        struct operands e = take(w, x, mine);
        struct operands o = { e.w + tile_size, e.x + N * ROW_BYTES };
        ring_next(w);
        ring_next(x);
        if (a.depth == 1) {
            o = take(w, x, mine);
            ring_next(w);
            ring_next(x);
        }
        pin(c);
        pin(odd);
        multiply_two<N>(c, odd, e, o);
        wgmma_wait<1>(); /* the products of the previous stages have ended */
        if (i > 0) {
            release(w_done, x_done);
            if (a.depth == 1)
                release(w_done, x_done);
        }
#pragma unroll 1
        for (int d = 2; d < a.depth; d += 2) {
            e.w += 2 * tile_size, o.w += 2 * tile_size;
            e.x += 2 * N * ROW_BYTES, o.x += 2 * N * ROW_BYTES;
            multiply_two<N>(c, odd, e, o);
        }
    }
    wgmma_wait<0>();
    pin(c);
    pin(odd);
    release(w_done, x_done);
    if (a.depth == 1)
        release(w_done, x_done);
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        c[r] += odd[r];
}

/* ---- the end of a tile: the sums go through shared memory, so that a thread has quads of rows and
 * its neighbours the adjacent ones. The code is kept small, because it is not in the instruction
 * cache when everything waits for it. ---- */

/* Store the thread's sums of the block's columns, the first ones of c, as [columns][sum_step]. */
template <int N> __device__ static inline void put_sums(const float (&c)[N / 2], float *sums)
{
    constexpr int STEP = sum_step(N);
    int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16 + lane / 4;
    sums += lane % 4 * 2 * STEP + first;
#pragma unroll
    for (int r = 0; r < sum_columns(N) / 2; r++)
        sums[(r / 4 * 8 + r % 2) * STEP + r / 2 % 2 * 8] = c[r];
}

/* The place of quad i of a tile that begins at row0 of its matrix, for columns from col0 on. */
struct place {
    int col, row;
    int at; /* index in the sums */
    bool there;
};

template <int N>
__device__ static inline struct place place_of(const stream_args &a, const stream_job &j, int row0,
                                               int col0, int i)
{
    struct place p;
    int col = divide(i, a.quad_inverse), in_tile = (i - col * (a.rows / QUAD)) * QUAD;
    p.col = col0 + col;
    p.row = row0 + in_tile;
    p.at = col * sum_step(N) + in_tile;
    p.there = col < sum_columns(N) && p.col < a.n && p.row < j.out;
    return p;
}

/* Two numbers as BF16, as by bf16_bits. Not inlined, because it is hardly ever needed. */
__device__ OUT_OF_LINE static uint32_t two_bf16_bits(float lo, float hi)
{
    return (bf16_bits(lo) & 0xffffu) | bf16_bits(hi) << 16;
}

__device__ static inline uint32_t two_bf16(float lo, float hi)
{
    uint32_t u = pack_bf16(lo, hi);
    if ((u & 0x7fffu) >= 0x7f80u || (u & 0x7fff0000u) >= 0x7f800000u)
        u = two_bf16_bits(lo, hi);
    return u;
}

__device__ static inline uint2 four_bf16(float4 v)
{
    return make_uint2(two_bf16(v.x, v.y), two_bf16(v.z, v.w));
}

/* a b + c */
__device__ static inline float4 scale_quad(float4 a, float b, float4 c)
{
    return make_float4(fmaf(a.x, b, c.x), fmaf(a.y, b, c.y), fmaf(a.z, b, c.z), fmaf(a.w, b, c.w));
}

__device__ static inline float opened(float gate, float v)
{
    return v * (gate / (1 + __expf(-gate)));
}

/* What a quad needs in addition to its sums. */
struct ending {
    float4 bias, more; /* more: up's bias, or the next norm's weights */
    float4 old;
};

/* Four floats that need not be aligned, as vectors in a model file are not. */
__device__ static inline float4 quad_at(const float *v)
{
    return make_float4(v[0], v[1], v[2], v[3]);
}

__device__ static inline struct ending ending_of(const stream_args &a, const stream_job &j,
                                                 const struct place &p)
{
    const float *more = a.gated ? j.bias2 : a.norm.weight;
    struct ending e = {};
    bool there = p.there && a.wide;
    if (there && j.bias)
        e.bias = quad_at(j.bias + p.row);
    if (there && more)
        e.more = quad_at(more + p.row);
    dep_wait();
    if (there && a.add)
        e.old = *(const float4 *)((const float *)j.y + (size_t)p.col * j.y_stride + p.row);
    return e;
}

/* Finish a quad. Two neighbouring quads are an octet of the next norm. Called by a whole warp. */
__device__ static inline void finish_quad(const stream_args &a, const stream_job &j,
                                          const struct place &p, const struct ending &e,
                                          const float *sums, const float *scale)
{
    const float *at = sums + p.at;
    size_t to = (size_t)p.col * j.y_stride + (size_t)p.row;
    float4 v = make_float4(0, 0, 0, 0);
    if (p.there) {
        float s = a.norm.squares ? scale[p.col] : 1.0f;
        v = scale_quad(*(const float4 *)at, s, e.bias);
        if (a.gated) {
            float4 u = scale_quad(*(const float4 *)(at + a.up), s, e.more);
            v = make_float4(opened(v.x, u.x), opened(v.y, u.y), opened(v.z, u.z), opened(v.w, u.w));
        }
        if (a.add)
            v = make_float4(v.x + e.old.x, v.y + e.old.y, v.z + e.old.z, v.w + e.old.w);
        if (a.y_bf16)
            *(uint2 *)((uint16_t *)j.y + to) = four_bf16(v);
        else
            *(float4 *)((float *)j.y + to) = v;
    }
    if (!a.norm.weight)
        return;
    float s = __fadd_rn(__fadd_rn(__fmul_rn(v.x, v.x), __fmul_rn(v.y, v.y)),
                        __fadd_rn(__fmul_rn(v.z, v.z), __fmul_rn(v.w, v.w)));
    s += __shfl_xor_sync(0xffffffffu, s, 1);
    if (!p.there)
        return;
    v = make_float4(v.x * e.more.x, v.y * e.more.y, v.z * e.more.z, v.w * e.more.w);
    to = (size_t)p.col * j.out + (size_t)p.row;
    *(uint2 *)(a.norm.xn + to) = four_bf16(v);
    if (p.row % NORM_OCTET == 0)
        a.norm.sums[to / NORM_OCTET] = s;
}

/* For y or rows of y that are not aligned: element by element; no norm follows. */
template <int N, int THREADS>
__device__ static inline void finish_odd(const stream_args &a, const stream_job &j,
                                         const float *sums, const float *scale, int row0, int col0,
                                         int columns, int thread)
{
#pragma unroll 1
    for (int i = thread; i < columns * a.rows; i += THREADS) {
        int col = col0 + i / a.rows, in_tile = i % a.rows, row = row0 + in_tile;
        const float *at = sums + i / a.rows * sum_step(N) + in_tile;
        size_t to = (size_t)col * j.y_stride + (size_t)row;
        float s = a.norm.squares ? scale[col] : 1.0f;
        if (row >= j.out)
            continue;
        float v = fmaf(*at, s, j.bias ? j.bias[row] : 0.0f);
        if (a.gated)
            v = opened(v, fmaf(at[a.up], s, j.bias2 ? j.bias2[row] : 0.0f));
        if (a.add)
            v += ((const float *)j.y)[to];
        if (a.y_bf16)
            ((uint16_t *)j.y)[to] = (uint16_t)bf16_bits(v);
        else
            ((float *)j.y)[to] = v;
    }
}

/* Finish columns from col0 on of a tile, whose sums are in shared memory: the quads of `thread` of
 * THREADS. `p` and `e` are those of its first quad. */
template <int N, int THREADS>
__device__ static inline void finish(const stream_args &a, const stream_job &j, struct place p,
                                     struct ending e, const float *sums, const float *scale,
                                     int row0, int col0, int columns, int thread)
{
    int quads = a.wide ? columns * (a.rows / QUAD) : 0, lane = thread % 32, first = thread - lane;
    if (!a.wide)
        finish_odd<N, THREADS>(a, j, sums, scale, row0, col0, columns, thread);
#pragma unroll 1
    while (first < quads) {
        finish_quad(a, j, p, e, sums, scale);
        first += THREADS;
        if (first < quads) {
            p = place_of<N>(a, j, row0, col0, first + lane);
            e = ending_of(a, j, p);
        }
    }
}

/* The work of the consumers of a block that has no partner; also of those without rows in the
 * tile. */
template <int N>
__device__ static inline void consume(const stream_args &a, struct ring w, struct ring x,
                                      float *sums, const float *scale, bool busy)
{
    constexpr int THREADS = consumers(N);
    bool first = true;
#pragma unroll 1
    for (int tile = first_tile<N>(); tile < a.tiles; tile += tile_stride<N>()) {
        const stream_job &j = a.job[job_of(a, tile)];
        int row0 = (tile - j.tile0) * a.rows;
        struct place p = place_of<N>(a, j, row0, 0, (int)threadIdx.x);
        struct ending e = ending_of(a, j, p);
        float c[N / 2];
        if (busy)
            walk<N>(a, c, w, x);
        if (!first)
            named_sync(DONE, THREADS);
        else if (a.norm.squares)
            named_sync(SCALED, THREADS + scalers(N));
        first = false;
        if (busy)
            put_sums<N>(c, sums);
        named_sync(MET, THREADS);
        finish<N, THREADS>(a, j, p, e, sums, scale, row0, 0, a.n, (int)threadIdx.x);
    }
}

#endif
#endif
