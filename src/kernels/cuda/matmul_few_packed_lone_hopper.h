/* A lone row of x times packed weights, with the bits of matmul_few_packed_hopper.h: the same slots
 * of K to a warp, the same sums. What is different serves one row alone. x lies in shared memory as
 * a whole and comes by ordinary copies, which do not queue behind many weights, as few of those are
 * on the way at a time. Two blocks share a multiprocessor, a ring is no larger than its tile, and
 * registers are few, so that the kernel behind finds room to ask for its own weights. Code is
 * short: a launch meets it anew, and fetching it counts. q, k and v may go on at once: a unit has
 * an octet of the first half of a head and its partner of the second, is rotated and stored as
 * rope_kv.cu would. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_LONE_HOPPER_H
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_LONE_HOPPER_H

#include "kernels/cuda/matmul_few_packed_slot_hopper.h"

/* What becomes of a unit. ALONE: no other warp has a part of it. */
enum lone_mode { LONE_PLAIN, LONE_GATED, LONE_PAIRED };

enum {
    LONE_PAD = 512, /* elements: x ends on a multiple, so that what it is cut into fits */
    LONE_WK = 8     /* warps that share a unit, at most */
};

/* Bytes of shared memory behind the ring: x, its sums (Q4_K), the warps' sums, barriers. */
__host__ __device__ static inline int lone_x_size(int in)
{
    return (in + LONE_PAD - 1) / LONE_PAD * LONE_PAD * 2;
}

__host__ __device__ static inline int lone_parts_size(enum dtype t, int in)
{
    return t == DTYPE_Q4_K ? lone_x_size(in) / 256 * 32 : 0;
}

enum { LONE_SUMS = MOST_WARPS * 16 * 4, LONE_BARS = MAX_STAGES * 16 + 16 };

#ifdef HOPPER_CODE

/* What a thread needs at the end for its output (two of them where units are pairs of a head),
 * asked for early. */
struct lone_end {
    int row;  /* of the matrix; -1: none */
    int slot; /* of the cache */
    float bias, bias2;
    float first, second; /* of a pair: cosine and sine; else the next norm's weight, and y */
};

/* Output i of the tile. */
template <int MODE>
__device__ static inline lone_end lone_find(const packed_args &a, const packed_job &j, int tile,
                                            int i)
{
    lone_end e = {};
    int row = first_octet(a, j, tile) * 8 + i;
    e.row = i < octets_each(a) * 8 && row < j.out ? row : -1;
    if (e.row < 0)
        return e;
    if (j.bias) {
        e.bias = j.bias[row];
        if (MODE == LONE_PAIRED)
            e.bias2 = j.bias[row + a.heads.d / 2];
    }
    if (MODE == LONE_GATED && j.bias2)
        e.bias2 = j.bias2[row];
    if (MODE == LONE_PLAIN && a.norm.weight)
        e.first = a.norm.weight[row];
    return e;
}

/* The rest of it, when the kernels in front have ended. */
template <int MODE>
__device__ static inline void lone_ask(lone_end &e, const packed_args &a, const packed_job &j)
{
    const packed_heads &h = a.heads;
    if (e.row < 0)
        return;
    if (MODE == LONE_PLAIN && a.add)
        e.second = __ldcg((const float *)j.y + e.row);
    if (MODE == LONE_PAIRED) {
        int at = e.row & (h.d - 1);
        e.slot = __ldcg(&h.run->first_slot) + __ldcg(&h.run->pending);
        e.first = __ldcg(h.cos + at);
        e.second = __ldcg(h.sin + at);
    }
}

/* A number of a head and its partner. */
__device__ static inline void lone_turn(const packed_args &a, const packed_job &j,
                                        const lone_end &e, float v, float v2, bool writes)
{
    const packed_heads &h = a.heads;
    int of = (int)(&j - a.job), at = e.row & (h.d - 1);
    size_t slot = (size_t)(e.row >> (h.shift + 4)) * h.cap + (size_t)e.slot;
    uint16_t *to = of == 0 ? h.q16 + e.row : (of == 1 ? h.keys : h.values) + slot * h.d + at;
    float turned = fmaf(v, e.first, -(v2 * e.second)); /* as rope_kv.cu does it */
    float turned2 = fmaf(v2, e.first, v * e.second);
    uint32_t lo = bf16_bits(of < 2 ? turned : v), hi = bf16_bits(of < 2 ? turned2 : v2);
    if (writes) {
        to[0] = (uint16_t)lo;
        to[h.d / 2] = (uint16_t)hi;
    }
}

/* v: the sum of the output, v2: that of the same row of the second matrix, or of the partner. step:
 * as octet_squares has it. A whole warp. */
template <int MODE>
__device__ static inline void lone_finish(const packed_args &a, const packed_job &j,
                                          const lone_end &e, float v, float v2, float scale,
                                          int step, bool writes)
{
    writes = writes && e.row >= 0;
    v = a.norm.squares ? fmaf(v, scale, e.bias) : v + e.bias;
    if (MODE != LONE_PLAIN)
        v2 = a.norm.squares ? fmaf(v2, scale, e.bias2) : v2 + e.bias2;
    if (MODE == LONE_PAIRED)
        return lone_turn(a, j, e, v, v2, writes);
    if (MODE == LONE_GATED) {
        v = gate_of(v) * v2;
        uint32_t bits = bf16_bits(v);
        if (writes && a.y_bf16)
            ((uint16_t *)j.y)[e.row] = (uint16_t)bits;
        else if (writes)
            ((float *)j.y)[e.row] = v;
        return;
    }
    if (a.add)
        v += e.second;
    if (writes)
        ((float *)j.y)[e.row] = v;
    if (a.norm.weight)
        leave_norm(a, writes, j.out, 0, e.row, v, e.first, step);
}

/* ---- one thread: the copy engine ---- */

/* One body for the first round of the ring, which does not wait for room, and the rest. */
template <enum dtype T, int MODE, bool ALONE>
__device__ static inline void lone_feed(const packed_args &a, uint32_t base, uint32_t bars)
{
    constexpr int scales = slot_scales(T) / slots_per_scale(T), words = scales / 4;
    int tile = (int)blockIdx.x, stage = 0, round = 0, bytes = a.octets * a.slots;
    int before = -a.flight, before_round = 0; /* the stage that must have come */
    bytes *= OCTET_SLOT + scales;
#pragma unroll 1
    do {
        int j = MODE == LONE_GATED || a.n_jobs == 1 ? 0 : job_of(a, tile);
        int octet = first_octet(a, a.job[j], tile);
#pragma unroll 1
        for (int slot = 0; slot < a.in_slots; slot += a.slots) {
            uint32_t to = base + stage * a.stage_size, at = to + a.w_size;
            uint32_t full = full_bar(bars, stage);
            if (round > 0)
                barrier_wait(empty_bar(bars, stage), (uint32_t)(round - 1) & 1);
            if (before >= 0)
                barrier_wait(full_bar(bars, before), (uint32_t)before_round & 1);
            barrier_arrive_expect(full, bytes);
            load_box3_once(to, &a.w[j], full, 0, slot, octet);
            load_box3_once(at, &a.scale[j], full, slot * words, octet, 0);
            if (MODE != LONE_PLAIN) {
                int k = MODE == LONE_GATED ? 1 : j;
                int other = MODE == LONE_GATED ? octet : octet + (1 << a.heads.shift);
                load_box3_once(to + a.w_size / 2, &a.w[k], full, 0, slot, other);
                load_box3_once(at + a.half_scales, &a.scale[k], full, slot * words, other, 0);
            }
            if (++stage == a.stages)
                stage = 0, round++;
            if (++before == a.stages)
                before = 0, before_round++;
        }
        tile += (int)gridDim.x;
    } while (ALONE && tile < a.tiles);
}

/* ---- x and its sums ---- */

/* x to shared memory, zeros behind it. */
__device__ static inline void lone_take_x(const packed_args &a, unsigned char *x, int threads)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x * 8; i < lone_x_size(a.in) / 2; i += threads * 8)
        copy_async16_to(shared_address(x + i * 2), a.row + (i < a.in ? i : 0), i < a.in ? 16 : 0);
    copy_async_commit();
}

/* Sums of eight blocks of x at a time, as sum_slot and split_sums make them: [slot][lane % 4]. */
__device__ static inline void lone_take_sums(uint2 *parts, const unsigned char *x, int in, int warp,
                                             int warps, int lane)
{
    const uint32_t ones[2] = { 0x3f803f80u, 0x3f803f80u };
    int items = lone_x_size(in) / (8 * 64), g = lane / 4;
#pragma unroll 1
    for (int i = warp; i < items; i += warps) {
        uint32_t m[4], part[3];
        float c[4], other;
        load_matrix4(m, x + i * 512 + lane % 8 * 64 + lane / 8 * 16);
        mma_bf16_first(c, m, ones);
        c[0] += c[2];
        other = __shfl_xor_sync(0xffffffffu, c[0], 4);
        split_sums(part, c[0], other);
        if (g % 2 == 0 && lane % 4 < 2)
            parts[(i * 2 + g / 4) * 4 + g / 2 % 2 + lane % 4 * 2] =
                lane % 4 == 0 ? make_uint2(part[0], part[2]) : make_uint2(part[1], 0);
    }
}

/* ---- the loop ---- */

/* A slot of a unit. x, parts: of the slot, at this lane's place. */
template <enum dtype T>
__device__ static inline void lone_multiply(float (&acc)[2], const packed_slot<T> &s,
                                            const unsigned char *x, const uint2 *parts, int lane)
{
#pragma unroll
    for (int block = 0; block < slot_elements(T) / QUANT_BLOCK; block++) {
        few_block w;
        float c[4];
        uint32_t b[4];
        load_matrix4(b, x + block * 64);
        unpack<T>(w, s, block);
        mma_bf16_first(c, w.a0, b);
        mma_bf16(c, w.a1, b + 2);
        acc[0] = fmaf(scale_of<T>(s, 0, block), c[0], acc[0]);
        acc[1] = fmaf(scale_of<T>(s, 1, block), c[2], acc[1]);
    }
    if constexpr (T == DTYPE_Q4_K) {
        uint2 v = *parts;
        const uint32_t b[2] = { v.x, v.y };
        q4_k_less<2>(acc, q4_k_rows_of(s, lane), b);
    }
}

/* What of a tile is a warp's, and where things are. */
struct lone_share {
    const unsigned char *ring, *x; /* x at this lane's place */
    const uint2 *parts;
    uint32_t bars;
    packed_unit unit;
    int wk, lane;
};

/* A slot of a stage, of Q4_K the two of a super-block. x_slot: its number in K. */
template <enum dtype T>
__device__ static inline void lone_slots(float (&acc)[2], const packed_args &a, const lone_share &h,
                                         const unsigned char *w, int slot, int x_slot)
{
    constexpr int count = slots_per_scale(T);
    packed_slot<T> s[count];
#pragma unroll
    for (int i = 0; i < count; i++)
        take_slot<T>(s[i], w, w + a.w_size, h.unit, slot + i, i, h.lane);
#pragma unroll
    for (int i = 0; i < count; i++)
        lone_multiply<T>(acc, s[i], h.x + (x_slot + i) * slot_elements(T) * 2,
                         h.parts + (x_slot + i) * 4, h.lane);
}

/* All of K for a unit. */
template <enum dtype T>
__device__ static inline void lone_walk(float (&acc)[2], const packed_args &a, const lone_share &h,
                                        int &stage, int &parity)
{
    constexpr int deal = slots_per_scale(T);
#pragma unroll 1
    for (int first = 0; first < a.in_slots; first += a.slots) {
        const unsigned char *w = h.ring + stage * a.stage_size;
        int here = a.in_slots - first < a.slots ? a.in_slots - first : a.slots;
        barrier_wait(full_bar(h.bars, stage), parity);
#pragma unroll 1
        for (int slot = h.wk * deal; slot < here; slot += deal * a.wk)
            lone_slots<T>(acc, a, h, w, slot, first + slot);
        __syncwarp();
        if (h.lane == 0)
            barrier_arrive(empty_bar(h.bars, stage));
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

/* ---- the end of a tile ---- */

/* A unit that no other warp has a part of, out of registers: its outputs are those of lane / 4 in
 * one octet, or in two. */
template <int MODE>
__device__ static inline void lone_end_alone(const packed_args &a, const float (&acc)[2],
                                             float scale, int unit, int tile, int lane)
{
    const packed_job &j = a.job[MODE == LONE_GATED ? 0 : job_of(a, tile)];
#pragma unroll 1
    for (int o = 0; o < (MODE == LONE_PLAIN ? 2 : 1); o++) {
        lone_end e =
            lone_find<MODE>(a, j, tile, (MODE == LONE_PLAIN ? 2 * unit + o : unit) * 8 + lane / 4);
        lone_ask<MODE>(e, a, j);
        lone_finish<MODE>(a, j, e, o ? acc[1] : acc[0], acc[1], scale, 4, lane % 4 == 0);
    }
}

/* Units that wk warps have parts of. */
template <int MODE>
__device__ static inline void lone_end_shared(const packed_args &a, const packed_job &j,
                                              const float (&acc)[2], float squares, float *sums,
                                              int warp, int lane, const lone_end &e)
{
    int i = (int)threadIdx.x, rows = octets_each(a) * 8, part = a.wm * 16;
    int at = MODE == LONE_PLAIN ? i : i / 8 * 16 + i % 8;
    float v = 0, v2 = 0, scale = 1;
    if (lane % 4 == 0) {
        float *to = sums + warp % a.wk * part + warp / a.wk * 16 + lane / 4;
        to[0] = acc[0];
        to[8] = acc[1];
    }
    named_sync(1, a.wm * a.wk * 32);
    if (i - lane >= rows)
        return;
    if (a.norm.squares)
        scale = norm_end(squares, a.in, a.norm.eps);
#pragma unroll
    for (int k = 0; k < LONE_WK; k++)
        if (k < a.wk && i < rows) {
            v += sums[k * part + at];
            if (MODE != LONE_PLAIN)
                v2 += sums[k * part + at + 8];
        }
    lone_finish<MODE>(a, j, e, v, v2, scale, 1, true);
}

/* Blocks with several tiles are those whose units are alone. */
template <enum dtype T, int MODE, bool ALONE>
__device__ static inline void lone_consume(const packed_args &a, unsigned char *memory,
                                           uint32_t bars)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, warps = a.wm * a.wk;
    unsigned char *x = memory + a.ring_size;
    uint2 *parts = (uint2 *)(x + lone_x_size(a.in));
    float *sums = (float *)((unsigned char *)parts + lone_parts_size(T, a.in));
    uint32_t scaled = bars + MAX_STAGES * 16;
    int tile = (int)blockIdx.x, stage = 0, parity = 0;
    const packed_job &j = a.job[MODE == LONE_GATED ? 0 : job_of(a, tile)];
    lone_end e = {};
    lone_share h = { memory, x + lane / 8 * 16, parts + lane % 4, bars };
    h.unit = unit_of(a, warp / a.wk, slot_scales(T) / slots_per_scale(T));
    h.wk = warp % a.wk;
    h.lane = lane;
    float scale = 1, squares = 0;
    if (!ALONE)
        e = lone_find<MODE>(a, j, tile, (int)threadIdx.x);
    dep_wait();
    lone_take_x(a, x, warps * 32);
    if (!ALONE)
        lone_ask<MODE>(e, a, j);
    if (a.norm.squares && (ALONE ? warp == 0 : warp * 32 < octets_each(a) * 8))
        squares = norm_take(a.norm.squares, a.in);
    copy_async_wait<0>();
    named_sync(1, warps * 32);
    if (T == DTYPE_Q4_K) {
        lone_take_sums(parts, x, a.in, warp, warps, lane);
        named_sync(1, warps * 32);
    }
    if (ALONE && a.norm.squares && warp == 0) {
        scale = norm_end(squares, a.in, a.norm.eps);
        if (lane == 0) {
            sums[0] = scale;
            barrier_arrive(scaled);
        }
    }
#pragma unroll 1
    do {
        float acc[2] = {};
        lone_walk<T>(acc, a, h, stage, parity);
        if (ALONE) {
            if (a.norm.squares) {
                barrier_wait(scaled, 0);
                scale = sums[0];
            }
            lone_end_alone<MODE>(a, acc, scale, warp, tile, lane);
            tile += (int)gridDim.x;
        } else {
            lone_end_shared<MODE>(a, j, acc, squares, sums, warp, lane, e);
        }
    } while (ALONE && tile < a.tiles);
}

#endif

#endif
