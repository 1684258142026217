/* What the blocks of matmul_few_packed_hopper.cu do: the thread that feeds the copy engine, the
 * warps that multiply, and the end of a tile. Several rows of x; one alone is the business of
 * matmul_few_packed_lone_hopper.cuh. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_CUH

#include "kernels/cuda/matmul_few_packed_slot_hopper.cuh"

#ifdef HOPPER_CODE

/* ---- one thread: the copy engine ---- */

template <enum dtype T>
__device__ static inline void load_weights(const packed_args &a, uint32_t to, uint32_t full,
                                           int tile, int slot)
{
    constexpr int words = slot_scales(T) / slots_per_scale(T) / 4; /* of a slot */
    uint32_t scales = to + a.w_size;
    int j = a.gated ? 0 : job_of(a, tile), octet = first_octet(a, a.job[j], tile);
    load_box3_once(to, &a.w[j], full, 0, slot, octet);
    load_box3_once(scales, &a.scale[j], full, slot * words, octet, 0);
    if (a.gated) {
        load_box3_once(to + a.w_size / 2, &a.w[1], full, 0, slot, octet);
        load_box3_once(scales + a.half_scales, &a.scale[1], full, slot * words, octet, 0);
    }
}

template <enum dtype T>
__device__ static inline void load_x(const packed_args &a, uint32_t to, uint32_t full, int slot)
{
    load_box3(to, &a.x, full, 0, 0, slot * (slot_elements(T) / TILE_COLS));
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

/* N: tiles of 8 columns. */
__host__ __device__ static constexpr int packed_sums(int n)
{
    return 4 * n;
}

/* x for two mma of a block. `x` is that of the slot, at this lane's place (share_of). */
template <int N>
__device__ static inline void x_block(uint32_t (&b)[4], const unsigned char *x, int odd, int block,
                                      int nt)
{
    load_matrix4(b, x + block / 2 * (N * 8 * LINE) + nt * 8 * LINE + (block % 2 ? odd : 0));
}

/* A slot of a unit times all rows of x. odd: from an even block to the odd one beside it. */
template <enum dtype T, int N>
__device__ static inline void multiply_slot(float (&acc)[packed_sums(N)],
                                            const packed_slot<T> &slot, const unsigned char *x,
                                            int odd)
{
#pragma unroll
    for (int block = 0; block < slot_elements(T) / QUANT_BLOCK; block++) {
        few_block w;
        float f[2] = { scale_of<T>(slot, 0, block), scale_of<T>(slot, 1, block) };
        unpack<T>(w, slot, block);
#pragma unroll
        for (int nt = 0; nt < N; nt++) {
            uint32_t b[4];
            float c[4];
            x_block<N>(b, x, odd, block, nt);
            mma_bf16_first(c, w.a0, b);
            mma_bf16(c, w.a1, b + 2);
#pragma unroll
            for (int i = 0; i < 4; i++)
                acc[nt * 4 + i] = fmaf(f[i / 2], c[i], acc[nt * 4 + i]);
        }
    }
}

/* What is too much in Q4_K, by the sums that a warp beside has made: [nt][lane]. */
template <int N>
__device__ static inline void take_less(float (&acc)[packed_sums(N)],
                                        const packed_slot<DTYPE_Q4_K> &slot, const uint2 *parts,
                                        int lane)
{
    q4_k_rows r = q4_k_rows_of(slot, lane);
#pragma unroll
    for (int nt = 0; nt < N; nt++) {
        uint2 v = parts[nt * 32 + lane];
        const uint32_t b[2] = { v.x, v.y };
        q4_k_less<1>(acc + nt * 4, r, b);
    }
}

/* Where the sums of a stage lie in it. */
__device__ static inline int parts_at(const packed_args &a)
{
    return a.x_size + a.w_size + a.half_scales * (a.gated ? 2 : 1);
}

/* The sums of x over the blocks of a slot, ready to be multiplied: an mma adds those of eight rows
 * over a block, in two halves, to the columns `block` and `block` + 4, as lanes want them. */
template <int N>
__device__ static inline void sum_slot(uint2 *parts, const unsigned char *x, int odd, int lane)
{
    float c[N][4] = {};
#pragma unroll
    for (int block = 0; block < 4; block++) {
        uint32_t one = lane / 4 % 4 == block ? 0x3f803f80u : 0, b[4];
        const uint32_t ones[2] = { one, one };
#pragma unroll
        for (int nt = 0; nt < N; nt++) {
            x_block<N>(b, x, odd, block, nt);
            mma_bf16(c[nt], b, ones);
        }
    }
#pragma unroll
    for (int nt = 0; nt < N; nt++) {
        uint32_t part[3];
        split_sums(part, c[nt][0] + c[nt][2], c[nt][1] + c[nt][3]);
        parts[nt * 32 + lane] =
            lane % 4 < 2 ? make_uint2(part[0], part[2]) : make_uint2(part[1], 0);
    }
}

/* ---- the end of a tile ---- */

__device__ static inline void store(const packed_args &a, const packed_job &j, size_t at, float v)
{
    if (a.y_bf16)
        ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
    else
        ((float *)j.y)[at] = v;
}

/* What an output needs beside its sum, asked for early: y as it is, biases, the next norm. */
struct packed_ending {
    float old, bias, bias2, weight;
};

__device__ static inline void take_biases(packed_ending &e, const packed_args &a,
                                          const packed_job &j, int row)
{
    e.bias = j.bias ? j.bias[row] : 0;
    e.bias2 = j.bias2 ? j.bias2[row] : 0;
    e.weight = a.norm.weight ? a.norm.weight[row] : 0;
}

__device__ static inline void take_old(packed_ending &e, const packed_args &a, const packed_job &j,
                                       size_t at)
{
    e.old = a.add ? __ldcg((const float *)j.y + at) : 0;
}

/* Of a sum, and that of the same row of the second matrix; scale: 1 / rms of the row of x. */
__device__ static inline float result(const packed_args &a, const packed_ending &e, float v,
                                      float v2, float scale)
{
    v = a.norm.squares ? fmaf(v, scale, e.bias) : v + e.bias;
    if (a.gated)
        v = gate_of(v) * (a.norm.squares ? fmaf(v2, scale, e.bias2) : v2 + e.bias2);
    return a.add ? e.old + v : v;
}

/* Rows' 1 / rms for all, by all warps that multiply. */
template <int N>
__device__ static inline void find_scales(const packed_args &a, float *scale, int warp, int warps)
{
    constexpr int AT_ONCE = N > 2 ? 2 : 1;
    for (int col = warp * AT_ONCE; col < a.n; col += warps * AT_ONCE) {
        float sum[AT_ONCE];
        norm_take_rows<AT_ONCE>(sum, a.norm.squares + (size_t)col * (a.in / NORM_OCTET), a.in,
                                a.n - col);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            float v = norm_end(sum[r], a.in, a.norm.eps);
            if (threadIdx.x % 32 == 0 && col + r < a.n)
                scale[col + r] = v;
        }
    }
    named_sync(1, warps * 32);
}

/* A unit that no other warp has a part of, out of registers. */
template <int N>
__device__ static inline void finish_alone(const packed_args &a, const float (&acc)[packed_sums(N)],
                                           const float *scale, int unit, int tile, int lane)
{
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    int each = octets_each(a), octet0 = (tile - j.tile0) * each;
#pragma unroll
    for (int r = 0; r < packed_sums(N); r++) {
        int col = r / 4 * 8 + lane % 4 * 2 + r % 2, second = r / 2 % 2;
        int octet = a.gated ? unit : unit * 2 + second, row = (octet0 + octet) * 8 + lane / 4;
        size_t at = (size_t)col * j.y_stride + (size_t)row;
        bool there = col < a.n && octet < each && row < j.out && !(a.gated && second);
        packed_ending e = {};
        float v = 0;
        if (there) {
            take_biases(e, a, j, row);
            take_old(e, a, j, at);
            v = result(a, e, acc[r], acc[(r + 2) % packed_sums(N)],
                       a.norm.squares ? scale[col] : 1.0f);
            store(a, j, at, v);
        }
        if (a.norm.weight)
            leave_norm(a, there, j.out, col, row, v, e.weight, 4);
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
    float *to = sums + (wk * a.wm + wm) * 8 * N * SUM_STRIDE + lane / 4;
#pragma unroll
    for (int r = 0; r < packed_sums(N); r++)
        to[(r / 4 * 8 + lane % 4 * 2 + r % 2) * SUM_STRIDE + r / 2 % 2 * 8] = acc[r];
}

/* Units that wk warps have parts of. `e` is of this thread's first output. */
template <int N>
__device__ static inline void finish_shared(const packed_args &a,
                                            const float (&acc)[packed_sums(N)], float *sums,
                                            const float *scale, int wm, int wk, int tile, int lane,
                                            packed_ending e)
{
    constexpr int cols = 8 * N;
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    int threads = a.wm * a.wk * 32, part = a.wm * cols * SUM_STRIDE;
    int count = octets_each(a) * 8 * a.n, up = a.gated ? 8 : 0;
    named_sync(1, threads); /* the ring is no longer read */
    leave_sums<N>(a, acc, sums, wm, wk, lane);
    named_sync(1, threads);
    for (int i = (int)threadIdx.x; i - lane < count; i += threads) {
        packed_place p = place_of(a, j, tile, i);
        int unit = a.gated ? p.in_tile / 8 : p.in_tile / 16;
        const float *from =
            sums + (unit * cols + p.col) * SUM_STRIDE + (a.gated ? p.in_tile % 8 : p.in_tile % 16);
        float v = 0, v2 = 0;
        if (p.there) {
#pragma unroll 4
            for (int k = 0; k < a.wk; k++) {
                v += from[k * part];
                v2 += from[k * part + up];
            }
            if (i != (int)threadIdx.x) {
                take_biases(e, a, j, p.row);
                take_old(e, a, j, p.at);
            }
            v = result(a, e, v, v2, a.norm.squares ? scale[p.col] : 1.0f);
            store(a, j, p.at, v);
        }
        if (a.norm.weight)
            leave_norm(a, p.there, j.out, p.col, p.row, v, e.weight, 1);
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
    take_slot<T>(slot, w, w + a.w_size, h.unit, at.slot, at.slot & 1, h.lane);
}

/* To the slot behind; false: there is none. */
__device__ static inline bool walk_on(packed_walk &at, const packed_args &a, const packed_share &h)
{
    at.slot += a.wk;
    if (at.slot >= a.slots) {
        at.slot = h.slot0;
        at.step += h.stride;
        for (at.stage += h.stride; at.stage >= a.stages; at.stage -= a.stages)
            at.parity ^= 1;
    }
    return at.step < a.steps;
}

/* A warp that is done with a stage. */
__device__ static inline void give_back(const packed_share &h, int stage)
{
    __syncwarp();
    if (h.lane == 0)
        barrier_arrive(empty_bar(h.bars, stage));
}

/* Multiplies the slot `now`, after asking for the one behind it, which goes to `next`. False: there
 * is none. A step is waited for before the one in front is given back, so the ring has more stages
 * than a stride. */
template <enum dtype T, int N>
__device__ static inline bool walk_slot(float (&acc)[packed_sums(N)], packed_walk &at,
                                        const packed_slot<T> &now, packed_slot<T> &next,
                                        const packed_args &a, const packed_share &h)
{
    constexpr int slot_x = slot_elements(T) * 2 * 8 * N;
    packed_walk was = at;
    bool more = walk_on(at, a, h);
    if (more && at.step != was.step)
        barrier_wait(full_bar(h.bars, at.stage), at.parity);
    if (more)
        take_next<T>(next, a, h, at);
    multiply_slot<T, N>(acc, now,
                        h.memory + was.stage * a.stage_size + was.slot * slot_x + h.x_lane, h.odd);
    if (at.step != was.step)
        give_back(h, was.stage);
    return more;
}

/* Q4_K, whose slots are too much to hold two of them, and which asks for the sums of x: one after
 * the other, and all warps go through all steps, as a ring of few stages wants it. turn: of its
 * first step. */
template <int N>
__device__ static inline void walk_q4_k(float (&acc)[packed_sums(N)], packed_walk &at,
                                        const packed_args &a, const packed_share &h, int turn)
{
    constexpr int slot_x = slot_elements(DTYPE_Q4_K) * 2 * 8 * N;
#pragma unroll 1
    for (at.step = 0; at.step < a.steps; at.step++) {
        const unsigned char *stage = h.memory + at.stage * a.stage_size;
        barrier_wait(full_bar(h.bars, at.stage), at.parity);
        at.slot = turn == 0 ? h.slot0 : a.slots;
        turn = turn == 0 ? h.stride - 1 : turn - 1;
#pragma unroll 1
        while (at.slot < a.slots) {
            packed_slot<DTYPE_Q4_K> slot;
            take_next<DTYPE_Q4_K>(slot, a, h, at);
            multiply_slot<DTYPE_Q4_K, N>(acc, slot, stage + at.slot * slot_x + h.x_lane, h.odd);
            barrier_wait(summed_bar(h.bars, at.stage), at.parity);
            take_less<N>(acc, slot, (const uint2 *)(stage + parts_at(a)) + at.slot * N * 32,
                         h.lane);
            at.slot += at.slot & 1 ? 2 * a.wk - 1 : 1;
        }
        give_back(h, at.stage);
        if (++at.stage == a.stages)
            at.stage = 0, at.parity ^= 1;
    }
}

/* From a row of x to this lane's place in a swizzled tile. */
__device__ static inline int x_place(int lane)
{
    return lane % 8 * LINE + (lane / 8 ^ lane % 8) * 16;
}

template <enum dtype T>
__device__ static inline packed_share share_of(const packed_args &a, const unsigned char *memory,
                                               uint32_t bars, int wm, int wk, int lane)
{
    constexpr int deal = slots_per_scale(T);
    packed_share h;
    int pieces = a.slots / deal;
    h.memory = memory;
    h.bars = bars;
    h.unit = unit_of(a, wm, slot_scales(T) / slots_per_scale(T));
    h.slot0 = wk % pieces * deal;
    h.stride = pieces < a.wk ? a.wk / pieces : 1;
    h.lane = lane;
    h.x_lane = x_place(lane);
    h.odd = (h.x_lane ^ 64) - h.x_lane;
    return h;
}

/* A warp of its own: the sums of x, stage by stage. */
template <int N>
__device__ static inline void sum_stages(const packed_args &a, unsigned char *memory, uint32_t bars)
{
    constexpr int slot_x = slot_elements(DTYPE_Q4_K) * 2 * 8 * N;
    int lane = (int)threadIdx.x % 32, x_lane = x_place(lane), odd = (x_lane ^ 64) - x_lane;
    int total = (a.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x * a.steps;
    for (int i = 0, stage = 0, parity = 0; i < total; i++) {
        unsigned char *at = memory + stage * a.stage_size;
        barrier_wait(full_bar(bars, stage), parity);
        for (int slot = 0; slot < a.slots; slot++)
            sum_slot<N>((uint2 *)(at + parts_at(a)) + slot * N * 32, at + slot * slot_x + x_lane,
                        odd, lane);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(summed_bar(bars, stage));
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

template <enum dtype T, int N>
__device__ static inline void consume(const packed_args &a, unsigned char *memory, uint32_t bars,
                                      float *scale)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int wk = warp % a.wk, wm = warp / a.wk, tile = (int)blockIdx.x;
    int step = wk / (a.slots / slots_per_scale(T));
    packed_share h = share_of<T>(a, memory, bars, wm, wk, lane);
    packed_walk at = { step, h.slot0, step % a.stages, step / a.stages & 1 };
    if (T == DTYPE_Q4_K)
        at = {};
    packed_ending e = {};
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    packed_place p = place_of(a, j, tile, (int)threadIdx.x);
    bool early = a.wk > 1 && p.there;
    if (early)
        take_biases(e, a, j, p.row);
    dep_wait();
    if (early)
        take_old(e, a, j, p.at);
    if (a.norm.squares)
        find_scales<N>(a, scale, warp, a.wm * a.wk);
    for (; tile < a.tiles; tile += (int)gridDim.x) {
        float acc[packed_sums(N)] = {};
        if constexpr (T == DTYPE_Q4_K) {
            walk_q4_k<N>(acc, at, a, h, step);
        } else if (at.step < a.steps) {
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
            finish_alone<N>(a, acc, scale, wm, tile, lane);
        else
            finish_shared<N>(a, acc, (float *)memory, scale, wm, wk, tile, lane, e);
    }
}

#endif

#endif
