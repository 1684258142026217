/* What the blocks of matmul_few_packed_hopper.cu do: the thread that feeds the copy engine, the
 * warps that multiply, and the end of a tile. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_H
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_H

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/matmul_few_mma.h"

enum {
    MAX_STAGES = 16,
    LINE = TILE_COLS * 2, /* bytes: a row of x in a tile */
    SUM_STRIDE = 20,      /* floats from column to column of a unit's sums: banks differ */
    MOST_OCTETS = 36,     /* of a tile */
    MOST_WARPS = 18,      /* that multiply */
    ROOMY = 896           /* see packed_bound */
};

struct packed_job {
    void *y;
    size_t y_stride;
    const float *bias, *bias2;
    int out, tile0; /* its first tile */
};

/* A tile is `octets` of a matrix, or half of them from each of two; two octets are a unit. A step
 * is `slots` of K of a tile, a stage what lies in the ring of it: x, quants, scales. */
struct packed_args {
    CUtensorMap w[DEVICE_MAX_JOBS], scale[DEVICE_MAX_JOBS], x;
    struct packed_job job[DEVICE_MAX_JOBS];
    int n_jobs, n, tiles, octets;
    int wm, wk; /* warps: of different units, of the same ones */
    int slots, steps, stages;
    int x_size, w_size, half_scales, stage_size; /* bytes; half_scales: of a job's octets */
    int ring_size;
    int add, gated, y_bf16;
};

/* Threads that there are to be registers for: with a lone row more than there are, so that the
 * small kernels between products find room beside the blocks. */
__host__ __device__ static constexpr int packed_bound(int n)
{
    return n == 0 ? (int)ROOMY : MOST_WARPS * 32 + 32;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ static inline int job_of(const packed_args &a, int tile)
{
    int j = 0;
    while (j + 1 < a.n_jobs && tile >= a.job[j + 1].tile0)
        j++;
    return j;
}

/* Octets of a tile that come from one matrix. */
__device__ static inline int octets_each(const packed_args &a)
{
    return a.gated ? a.octets / 2 : a.octets;
}

/* Barriers: a stage is full, it is empty. */
__device__ static inline uint32_t full_bar(uint32_t bars, int stage)
{
    return bars + stage * 16;
}

__device__ static inline uint32_t empty_bar(uint32_t bars, int stage)
{
    return bars + stage * 16 + 8;
}

/* ---- one thread: the copy engine ---- */

template <enum dtype T>
__device__ static inline void load_weights(const packed_args &a, uint32_t to, uint32_t full,
                                           int tile, int slot)
{
    constexpr int words = slot_scales(T) / slots_per_scale(T) / 4; /* of a slot */
    int each = octets_each(a);
    uint32_t scales = to + a.w_size;
    int j = a.gated ? 0 : job_of(a, tile), octet = (tile - a.job[j].tile0) * each;
    load_box3(to, &a.w[j], full, 0, slot, octet);
    load_box3(scales, &a.scale[j], full, slot * words, octet, 0);
    if (a.gated) {
        load_box3(to + a.w_size / 2, &a.w[1], full, 0, slot, octet);
        load_box3(scales + a.half_scales, &a.scale[1], full, slot * words, octet, 0);
    }
}

template <enum dtype T>
__device__ static inline void load_x(const packed_args &a, uint32_t to, uint32_t full, int slot)
{
    load_box3(to, &a.x, full, 0, 0, slot * (slot_elements(T) / TILE_COLS));
}

/* What kernels in front have written the copy engine sees, too. */
__device__ static inline void outside_written()
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* How far the thread that feeds the ring is. */
struct packed_feed {
    int tile, step, total, early;
    int x_bytes, w_bytes;
};

/* The first round of the ring, but for x: before the kernel in front has ended. */
template <enum dtype T>
__device__ static inline void feed_early(packed_feed &f, const packed_args &a, uint32_t base,
                                         uint32_t bars)
{
    f.tile = (int)blockIdx.x;
    f.step = 0;
    f.total = (a.tiles - f.tile + (int)gridDim.x - 1) / (int)gridDim.x * a.steps;
    f.early = f.total < a.stages ? f.total : a.stages;
    for (int i = 0; i < f.early; i++) {
        barrier_arrive_expect(full_bar(bars, i), f.w_bytes + f.x_bytes);
        load_weights<T>(a, base + i * a.stage_size + a.x_size, full_bar(bars, i), f.tile,
                        f.step * a.slots);
        if (++f.step == a.steps)
            f.step = 0, f.tile += (int)gridDim.x;
    }
}

template <enum dtype T>
__device__ static inline void feed(packed_feed &f, const packed_args &a, uint32_t base,
                                   uint32_t bars)
{
    dep_wait();
    outside_written();
    for (int i = 0, s = 0; i < f.early; i++) {
        load_x<T>(a, base + i * a.stage_size, full_bar(bars, i), s * a.slots);
        s = s + 1 == a.steps ? 0 : s + 1;
    }
    for (int i = f.early, stage = 0, parity = 0; i < f.total; i++) {
        uint32_t to = base + stage * a.stage_size, full = full_bar(bars, stage);
        int slot = f.step * a.slots;
        barrier_wait(empty_bar(bars, stage), parity);
        barrier_arrive_expect(full, f.w_bytes + f.x_bytes);
        load_weights<T>(a, to + a.x_size, full, f.tile, slot);
        load_x<T>(a, to, full, slot);
        if (++f.step == a.steps)
            f.step = 0, f.tile += (int)gridDim.x;
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

/* ---- the warps that multiply ---- */

/* What a lane holds of a slot and a unit: quants and scales of its two rows. */
template <enum dtype T> struct packed_slot {
    uint4 q[2];
    uint2 d[2];              /* f16 */
    float scale[2], less[2]; /* Q4_K: of block lane % 4 */
};

/* Where the two octets of a unit lie in a stage. */
struct packed_unit {
    int w[2], scale[2];
};

__device__ static inline packed_unit unit_of(const packed_args &a, int unit, int scales)
{
    packed_unit u;
    int each = octets_each(a);
#pragma unroll
    for (int o = 0; o < 2; o++) {
        int octet = a.gated ? unit : 2 * unit + o;
        octet = octet < each ? octet : each - 1; /* an odd number: computed, never stored */
        u.w[o] = (octet * a.slots) * OCTET_SLOT + (a.gated ? o * (a.w_size / 2) : 0);
        u.scale[o] = octet * a.slots * scales + (a.gated ? o * a.half_scales : 0);
    }
    return u;
}

template <enum dtype T>
__device__ static inline void take_slot(packed_slot<T> &s, const unsigned char *w,
                                        const unsigned char *scales, const packed_unit &u, int slot,
                                        int lane)
{
#pragma unroll
    for (int o = 0; o < 2; o++) {
        const unsigned char *d = scales + u.scale[o];
        s.q[o] = *(const uint4 *)(w + u.w[o] + slot * OCTET_SLOT + lane * 16);
        if constexpr (T == DTYPE_Q8_0) {
            s.d[o].x = *(const uint32_t *)(d + slot * 32 + lane / 4 * 4);
        } else if constexpr (T == DTYPE_Q4_0) {
            s.d[o] = *(const uint2 *)(d + slot * 64 + lane / 4 * 8);
        } else {
            uint4 h = *(const uint4 *)(d + slot / 2 * 128 + lane / 4 * 16);
            uint32_t factors, mins;
            q4_k_pairs(&factors, &mins, h.y, h.z, h.w, slot & 1);
            s.scale[o] = f16_float(h.x & 0xffffu) * byte_float(factors, lane % 4);
            s.less[o] = fmaf(16.0f, s.scale[o], f16_float(h.x >> 16) * byte_float(mins, lane % 4));
        }
    }
}

template <enum dtype T>
__device__ static inline void unpack(few_block &b, const packed_slot<T> &s, int block)
{
    if constexpr (T == DTYPE_Q8_0)
        few_unpack_q8_0(&b, s.q[0], s.q[1], block);
    else if constexpr (T == DTYPE_Q4_0)
        few_unpack_q4_0(&b, s.q[0], s.q[1], block);
    else
        few_unpack_q4_k(&b, s.q[0], s.q[1], block);
}

/* Scales of a block, of Q4_K also what is taken off for each sum of x. */
template <enum dtype T>
__device__ static inline void scales_of(float (&f)[2], float (&l)[2], const packed_slot<T> &s,
                                        int block)
{
#pragma unroll
    for (int o = 0; o < 2; o++) {
        if constexpr (T == DTYPE_Q4_K) {
            f[o] = __shfl_sync(0xffffffffu, s.scale[o], block, 4);
            l[o] = __shfl_sync(0xffffffffu, s.less[o], block, 4);
        } else {
            uint32_t pair = block < 2 ? s.d[o].x : s.d[o].y;
            f[o] = f16_float(block % 2 ? pair >> 16 : pair & 0xffffu);
        }
    }
}

/* N: tiles of 8 columns, 0 for a lone row of x, which all columns are. Then half of a thread's
 * numbers are the other half. */
__host__ __device__ static constexpr int packed_tiles(int n)
{
    return n == 0 ? 1 : n;
}

__host__ __device__ static constexpr int packed_sums(int n)
{
    return n == 0 ? 2 : 4 * n;
}

/* x for two mma of a block. A lone row lies as it is, more in swizzled tiles. `x` is that of the
 * slot, at this lane's place (packed_x_lane). */
template <enum dtype T, int N>
__device__ static inline void x_block(uint32_t b[4], const unsigned char *x, int odd, int block,
                                      int nt)
{
    if (N == 0)
        load_matrix4(b, x + block * 64);
    else
        load_matrix4(b, x + block / 2 * (N * 8 * LINE) + nt * 8 * LINE + (block % 2 ? odd : 0));
}

/* A slot of a unit times all rows of x. odd: from an even block to the odd one beside it. */
template <enum dtype T, int N>
__device__ static inline void multiply_slot(float (&acc)[packed_sums(N)],
                                            const packed_slot<T> &slot, const unsigned char *x,
                                            int odd)
{
    const uint32_t ones[4] = { 0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u };
#pragma unroll
    for (int block = 0; block < slot_elements(T) / QUANT_BLOCK; block++) {
        few_block w;
        float f[2], l[2];
        unpack<T>(w, slot, block);
        scales_of<T>(f, l, slot, block);
#pragma unroll
        for (int nt = 0; nt < packed_tiles(N); nt++) {
            uint32_t b[4];
            float c[4], sum[4];
            x_block<T, N>(b, x, odd, block, nt);
            if constexpr (T == DTYPE_Q4_K) {
                mma_bf16_first(sum, ones, b);
                mma_bf16(sum, ones, b + 2);
            }
            mma_bf16_first(c, w.a0, b);
            mma_bf16(c, w.a1, b + 2);
#pragma unroll
            for (int i = 0; i < 4; i += N == 0 ? 2 : 1) {
                float *to = &acc[N == 0 ? i / 2 : nt * 4 + i];
                *to = fmaf(f[i / 2], c[i], *to);
                if constexpr (T == DTYPE_Q4_K)
                    *to = fmaf(-l[i / 2], sum[i], *to);
            }
        }
    }
}

/* ---- the end of a tile ---- */

__device__ static inline float gate_of(float v)
{
    return v / (1.0f + __expf(-v));
}

__device__ static inline void store(const packed_args &a, const packed_job &j, size_t at, float v)
{
    if (a.y_bf16)
        ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
    else
        ((float *)j.y)[at] = v;
}

/* What an output needs beside its sum, asked for early: y as it is, and biases. */
struct packed_ending {
    float old, bias, bias2;
};

__device__ static inline void take_biases(packed_ending &e, const packed_job &j, int row)
{
    e.bias = j.bias ? j.bias[row] : 0;
    e.bias2 = j.bias2 ? j.bias2[row] : 0;
}

__device__ static inline void take_old(packed_ending &e, const packed_args &a, const packed_job &j,
                                       size_t at)
{
    e.old = a.add ? ((const float *)j.y)[at] : 0;
}

/* Of a sum, and that of the same row of the second matrix. */
__device__ static inline float result(const packed_args &a, const packed_ending &e, float v,
                                      float v2)
{
    v += e.bias;
    if (a.gated)
        v = gate_of(v) * (v2 + e.bias2);
    return a.add ? e.old + v : v;
}

/* A unit that no other warp has a part of, out of registers. */
template <int N>
__device__ static inline void finish_alone(const packed_args &a, const float (&acc)[packed_sums(N)],
                                           int unit, int tile, int lane)
{
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    int each = octets_each(a), octet0 = (tile - j.tile0) * each;
#pragma unroll
    for (int r = 0; r < packed_sums(N); r++) {
        int col = N == 0 ? lane % 4 : r / 4 * 8 + lane % 4 * 2 + r % 2;
        int second = N == 0 ? r : r / 2 % 2, octet = a.gated ? unit : unit * 2 + second;
        int row = (octet0 + octet) * 8 + lane / 4;
        size_t at = (size_t)col * j.y_stride + (size_t)row;
        packed_ending e;
        if (col >= a.n || octet >= each || row >= j.out || (a.gated && second))
            continue;
        take_biases(e, j, row);
        take_old(e, a, j, at);
        store(a, j, at, result(a, e, acc[r], acc[N == 0 ? 1 : (r + 2) % packed_sums(N)]));
    }
}

/* Output i of a tile: rows of a column first. */
struct packed_place {
    bool there;
    int col, in_tile, row;
    size_t at;
};

__device__ static inline packed_place place_of(const packed_args &a, const packed_job &j, int tile,
                                               int i)
{
    packed_place p;
    int rows = octets_each(a) * 8;
    p.col = i / rows;
    p.in_tile = i - p.col * rows;
    p.row = (tile - j.tile0) * rows + p.in_tile;
    p.at = (size_t)p.col * j.y_stride + (size_t)p.row;
    p.there = p.col < a.n && p.row < j.out;
    return p;
}

/* The sums of a warp's unit to [wk][unit][column][SUM_STRIDE]. */
template <int N>
__device__ static inline void leave_sums(const packed_args &a, const float (&acc)[packed_sums(N)],
                                         float *sums, int wm, int wk, int lane)
{
    constexpr int cols = N == 0 ? 1 : 8 * N;
    float *to = sums + (wk * a.wm + wm) * cols * SUM_STRIDE + lane / 4;
#pragma unroll
    for (int r = 0; r < packed_sums(N); r++) {
        if (N == 0 && lane % 4 == 0)
            to[r * 8] = acc[r];
        if (N > 0)
            to[(r / 4 * 8 + lane % 4 * 2 + r % 2) * SUM_STRIDE + r / 2 % 2 * 8] = acc[r];
    }
}

/* Units that wk warps have parts of. `e` is of this thread's first output. */
template <int N>
__device__ static inline void finish_shared(const packed_args &a,
                                            const float (&acc)[packed_sums(N)], float *sums, int wm,
                                            int wk, int tile, int lane, packed_ending e)
{
    constexpr int cols = N == 0 ? 1 : 8 * N;
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    int threads = a.wm * a.wk * 32, part = a.wm * cols * SUM_STRIDE;
    int count = octets_each(a) * 8 * a.n, up = a.gated ? 8 : 0;
    named_sync(1, threads); /* the ring is no longer read */
    leave_sums<N>(a, acc, sums, wm, wk, lane);
    named_sync(1, threads);
    for (int i = (int)threadIdx.x; i < count; i += threads) {
        packed_place p = place_of(a, j, tile, i);
        int unit = a.gated ? p.in_tile / 8 : p.in_tile / 16;
        const float *from =
            sums + (unit * cols + p.col) * SUM_STRIDE + (a.gated ? p.in_tile % 8 : p.in_tile % 16);
        float v = 0, v2 = 0;
        if (!p.there)
            continue;
#pragma unroll 4
        for (int k = 0; k < a.wk; k++) {
            v += from[k * part];
            v2 += from[k * part + up];
        }
        if (i != (int)threadIdx.x) {
            take_biases(e, j, p.row);
            take_old(e, a, j, p.at);
        }
        store(a, j, p.at, result(a, e, v, v2));
    }
}

/* Where a warp is in its part of a tile's K: step, slot of it, and the step's place in the ring. */
struct packed_walk {
    int step, slot, stage, parity;
};

/* What of the ring and of the tile is a warp's. */
struct packed_share {
    const unsigned char *memory;
    uint32_t bars;
    packed_unit unit;
    int slot0, stride; /* its first slot of a step, and from one of its steps to the next */
    int lane, x_lane, odd;
};

template <enum dtype T>
__device__ static inline void take_next(packed_slot<T> &slot, const packed_args &a,
                                        const packed_share &h, const packed_walk &at)
{
    const unsigned char *w = h.memory + at.stage * a.stage_size + a.x_size;
    take_slot<T>(slot, w, w + a.w_size, h.unit, at.slot, h.lane);
}

/* Multiplies the slot `now`, after asking for the one behind it, which goes to `next`. False: there
 * is none. A step is waited for before the one in front is given back, so the ring has more stages
 * than a stride. */
template <enum dtype T, int N>
__device__ static inline bool walk_slot(float (&acc)[packed_sums(N)], packed_walk &at,
                                        const packed_slot<T> &now, packed_slot<T> &next,
                                        const packed_args &a, const packed_share &h)
{
    constexpr int slot_x = slot_elements(T) * 2 * (N == 0 ? 1 : 8 * N);
    packed_walk was = at;
    at.slot += a.wk;
    if (at.slot >= a.slots) {
        at.slot = h.slot0;
        at.step += h.stride;
        for (at.stage += h.stride; at.stage >= a.stages; at.stage -= a.stages)
            at.parity ^= 1;
        if (at.step < a.steps)
            barrier_wait(full_bar(h.bars, at.stage), at.parity);
    }
    bool more = at.step < a.steps;
    if (more)
        take_next<T>(next, a, h, at);
    multiply_slot<T, N>(acc, now,
                        h.memory + was.stage * a.stage_size + was.slot * slot_x + h.x_lane, h.odd);
    if (at.stage != was.stage || !more) {
        __syncwarp();
        if (h.lane == 0)
            barrier_arrive(empty_bar(h.bars, was.stage));
    }
    return more;
}

template <enum dtype T, int N>
__device__ static inline packed_share share_of(const packed_args &a, const unsigned char *memory,
                                               uint32_t bars, int wm, int wk, int lane)
{
    packed_share h;
    h.memory = memory;
    h.bars = bars;
    h.unit = unit_of(a, wm, slot_scales(T) / slots_per_scale(T));
    h.slot0 = wk % a.slots;
    h.stride = a.slots < a.wk ? a.wk / a.slots : 1;
    h.lane = lane;
    h.x_lane = N == 0 ? lane / 8 * 16 : lane % 8 * LINE + (lane / 8 ^ lane % 8) * 16;
    h.odd = (h.x_lane ^ 64) - h.x_lane;
    return h;
}

template <enum dtype T, int N>
__device__ static inline void consume(const packed_args &a, unsigned char *memory, uint32_t bars)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int wk = warp % a.wk, wm = warp / a.wk, step = wk / a.slots, tile = (int)blockIdx.x;
    packed_share h = share_of<T, N>(a, memory, bars, wm, wk, lane);
    packed_walk at = { step, h.slot0, step % a.stages, step / a.stages & 1 };
    packed_ending e = {};
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    packed_place p = place_of(a, j, tile, (int)threadIdx.x);
    bool early = a.wk > 1 && p.there;
    if (early)
        take_biases(e, j, p.row);
    dep_wait();
    if (early)
        take_old(e, a, j, p.at);
    for (; tile < a.tiles; tile += (int)gridDim.x) {
        float acc[packed_sums(N)] = {};
        if (at.step < a.steps) {
            packed_slot<T> slot[2];
            barrier_wait(full_bar(bars, at.stage), at.parity);
            take_next<T>(slot[0], a, h, at);
#pragma unroll 1
            while (walk_slot<T, N>(acc, at, slot[0], slot[1], a, h) &&
                   walk_slot<T, N>(acc, at, slot[1], slot[0], a, h))
                ;
        }
        at.step = 0; /* a block with several tiles has wk 1 */
        if (a.wk == 1)
            finish_alone<N>(a, acc, wm, tile, lane);
        else
            finish_shared<N>(a, acc, (float *)memory, wm, wk, tile, lane, e);
    }
}

#endif

#endif
