/* A lone row of x times packed weights, with the bits of matmul_few_packed_hopper.cuh: a warp has
 * the same slots of K, and the sums are the same. The differences serve a single row. All of x is
 * in shared memory. It is loaded by ordinary copies, which would be slow behind many requests for
 * weights: so few weights are in flight until x has arrived, and then as many as the ring has room
 * for. Two blocks share a multiprocessor, a ring is no larger than its tile, and few registers are
 * used, so that the next kernel finds room to request its own weights. There is little code between
 * the wait for the preceding kernels and the first product: addresses are computed before; 1 / rms
 * and what the end of a tile needs are found by a separate warp or kept in shared memory. q, k and
 * v may continue at once: a unit then has an octet of the first half of a head and the matching one
 * of the second, and is rotated and stored as in rope_kv.cu. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_ONE_ROW_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_ONE_ROW_HOPPER_CUH

#include "kernels/cuda/matmul_few_packed_slot_hopper.cuh"

/* What a unit contains: two octets of a matrix, gate and up, or the two halves of a head. ALONE
 * (below): no other warp shares the unit. */
enum one_row_mode { ONE_ROW_PLAIN, ONE_ROW_GATED, ONE_ROW_PAIRED };

enum {
    ONE_ROW_PAD = 512, /* elements: x is padded to a multiple of this */
    ONE_ROW_WK = 8     /* most warps that share a unit */
};

/* Bytes of shared memory after the ring: x, its sums (Q4_K), the warps' sums, what the ends of
 * tiles need, barriers. */
__host__ __device__ static inline int one_row_x_size(int in)
{
    return (in + ONE_ROW_PAD - 1) / ONE_ROW_PAD * ONE_ROW_PAD * 2;
}

__host__ __device__ static inline int one_row_parts_size(enum dtype t, int in)
{
    return t == DTYPE_Q4_K ? one_row_x_size(in) / 256 * 32 : 0;
}

/* Offsets after the ring's barriers: the barrier for 1 / rms, 1 / rms itself, and whether x has
 * arrived. */
enum {
    ONE_ROW_SCALED = MAX_STAGES * 16,
    ONE_ROW_SCALE = ONE_ROW_SCALED + 8,
    ONE_ROW_THERE = ONE_ROW_SCALED + 12,
    ONE_ROW_BARS = ONE_ROW_SCALED + 16
};

__host__ __device__ static inline int one_row_sums_size(int wm, int wk)
{
    return wk > 1 ? wm * 16 * ONE_ROW_WK * 4 : 0;
}

/* octets: adjacent octets of a tile. */
static inline int one_row_ends_size(bool paired, int wk, int octets)
{
    return wk > 1 ? octets * 8 * (paired ? 32 : 16) : 0;
}

#ifdef HOPPER_CODE

/* What a thread needs at the end for its output, loaded early. */
struct alignas(16) one_row_end {
    float bias, bias2;
    float weight, old; /* weight of the next norm; old y */
};

/* What is needed for an output and its partner in the other half of a head. */
struct alignas(16) one_row_pair {
    uint16_t *to; /* NULL: no such output */
    float cos, sin, bias, bias2;
    int turns, none;
};

/* Number of adjacent octets of a tile, and (one_row_first) the index of the first in its matrix;
 * with ONE_ROW_PAIRED, in the first half of the head. */
template <int MODE> __device__ static inline int one_row_each(const packed_args &a)
{
    return MODE == ONE_ROW_PLAIN ? a.octets : a.octets / 2;
}

template <int MODE>
__device__ static inline int one_row_first(const packed_args &a, const packed_job &j, int tile)
{
    int n = (tile - j.tile0) * one_row_each<MODE>(a);
    return MODE == ONE_ROW_PAIRED ? (n >> a.heads.shift << a.heads.shift) + n : n;
}

/* The matrix row of output i of the tile, -1 if there is none. */
template <int MODE>
__device__ static inline int one_row_row(const packed_args &a, const packed_job &j, int tile, int i)
{
    int row = one_row_first<MODE>(a, j, tile) * 8 + i;
    return i < one_row_each<MODE>(a) * 8 && row < j.out ? row : -1;
}

template <int MODE>
__device__ static inline one_row_end one_row_find(const packed_args &a, const packed_job &j,
                                                  int row)
{
    one_row_end e = {};
    if (row < 0 || MODE == ONE_ROW_PAIRED)
        return e;
    if (j.bias)
        e.bias = j.bias[row];
    if (MODE == ONE_ROW_GATED && j.bias2)
        e.bias2 = j.bias2[row];
    if (MODE == ONE_ROW_PLAIN && a.norm.weight)
        e.weight = a.norm.weight[row];
    return e;
}

/* Load the rest of it, once the preceding kernels have ended. */
template <int MODE>
__device__ static inline void one_row_ask(one_row_end &e, const packed_args &a, const packed_job &j,
                                          int row)
{
    if (MODE == ONE_ROW_PLAIN && a.add && row >= 0)
        e.old = __ldcg((const float *)j.y + row);
}

/* The same for pairs, before (one_row_pair_find) and after the preceding kernels have ended; see
 * rope_kv.cu. */
__device__ static inline one_row_pair one_row_pair_find(const packed_args &a, const packed_job &j,
                                                        int row)
{
    const packed_heads &h = a.heads;
    one_row_pair p = {};
    int of = (int)(&j - a.job), head = row >> (h.shift + 4), at = row & (h.d - 1);
    p.to = of == 0 ? h.q16 + row : (of == 1 ? h.kv.k : h.kv.v) + (size_t)head * KV_CHUNK * h.d + at;
    p.turns = of < 2;
    if (j.bias) {
        p.bias = j.bias[row];
        p.bias2 = j.bias[row + h.d / 2];
    }
    return p;
}

__device__ static inline void one_row_pair_ask(one_row_pair &p, const packed_args &a,
                                               const packed_job &j, int row)
{
    const packed_heads &h = a.heads;
    int at = row & (h.d - 1), slot = __ldcg(&h.run->first_slot), more = __ldcg(&h.run->pending);
    int page = __ldcg(&h.run->row_page);
    p.cos = __ldcg(h.cos + at);
    p.sin = __ldcg(h.sin + at);
    if (&j != a.job)
        p.to += slot_at(h.kv, page, 0, slot + more, h.d);
}

/* The same as bf16_bits, without a branch. */
__device__ static inline uint32_t one_row_bits(float f)
{
    uint32_t u = __float_as_uint(f), size = u & 0x7fffffffu, high = u >> 16;
    uint32_t bits = (u + 0x7fffu + (high & 1)) >> 16;
    bits = size - 0x7f7f8000u < 0x8000u ? bits - 1 : bits;
    return size > 0x7f800000u ? high | 64 : bits;
}

/* Rotate and store an element of a head and its partner. */
__device__ static inline void one_row_turn(const one_row_pair &p, int half, float v, float v2)
{
    float turned = fmaf(v, p.cos, -(v2 * p.sin)); /* as rope_kv.cu does it */
    float turned2 = fmaf(v2, p.cos, v * p.sin);
    uint32_t lo = one_row_bits(p.turns ? turned : v), hi = one_row_bits(p.turns ? turned2 : v2);
    if (p.to) {
        p.to[0] = (uint16_t)lo;
        p.to[half] = (uint16_t)hi;
    }
}

/* Finish an output. v: its sum; v2: the sum of the same row of the second matrix; scale: 1 / rms,
 * or 1; step: as in octet_squares. Called by a whole warp. */
template <int MODE>
__device__ static inline void one_row_finish(const packed_args &a, const packed_job &j,
                                             const one_row_end &e, int row, float v, float v2,
                                             float scale, int step, bool writes)
{
    writes = writes && row >= 0;
    v = fmaf(v, scale, e.bias);
    if (MODE == ONE_ROW_GATED) {
        v = gate_of(v) * fmaf(v2, scale, e.bias2);
        if (writes && a.y_bf16)
            ((uint16_t *)j.y)[row] = (uint16_t)one_row_bits(v);
        else if (writes)
            ((float *)j.y)[row] = v;
        return;
    }
    if (a.add)
        v += e.old;
    if (writes)
        ((float *)j.y)[row] = v;
    if (a.norm.weight)
        leave_norm(a, writes, j.out, 0, row, v, e.weight, step);
}

/* ---- one thread: TMA requests ---- */

/* State of the ring: the next stage to fill, and the oldest one that may be in flight. */
struct one_row_ring {
    int stage, round, oldest, oldest_round, away; /* away: how many may be in flight */
};

/* Wait until the next stage is free and few enough are in flight. Until x has arrived the limit is
 * lower, because x would queue behind them. */
__device__ static inline void one_row_wait(one_row_ring &r, const packed_args &a, const int *there,
                                           uint32_t bars)
{
    if (r.round > 0)
        barrier_wait(empty_bar(bars, r.stage), (uint32_t)(r.round - 1) & 1);
    while (r.away >= (*(const volatile int *)there ? a.late : a.flight)) {
        if (r.away < a.stages)
            barrier_wait(full_bar(bars, r.oldest), (uint32_t)r.oldest_round & 1);
        if (++r.oldest == a.stages)
            r.oldest = 0, r.oldest_round++;
        r.away--;
    }
}

template <enum dtype T, int MODE, bool ALONE>
__device__ static inline void one_row_feed(const packed_args &a, unsigned char *memory,
                                           uint32_t base, uint32_t bars)
{
    constexpr int scales = slot_scales(T) / slots_per_scale(T), words = scales / 4;
    const int *there = (const int *)(memory + a.ring_size + a.row_size + ONE_ROW_THERE);
    int tile = (int)blockIdx.x, bytes = a.octets * a.slots * (OCTET_SLOT + scales);
    one_row_ring r = {};
#pragma unroll 1
    do {
        int j = MODE == ONE_ROW_GATED || a.n_jobs == 1 ? 0 : job_of(a, tile);
        int octet = one_row_first<MODE>(a, a.job[j], tile);
#pragma unroll 1
        for (int slot = 0; slot < a.in_slots; slot += a.slots) {
            uint32_t to = base + r.stage * a.stage_size, at = to + a.w_size;
            uint32_t full = full_bar(bars, r.stage);
            one_row_wait(r, a, there, bars);
            barrier_arrive_expect(full, bytes);
            load_box3_once(to, &a.w[j], full, 0, slot, octet);
            load_box3_once(at, &a.scale[j], full, slot * words, octet, 0);
            if (MODE != ONE_ROW_PLAIN) {
                int k = MODE == ONE_ROW_GATED ? 1 : j;
                int other = MODE == ONE_ROW_GATED ? octet : octet + (1 << a.heads.shift);
                load_box3_once(to + a.w_size / 2, &a.w[k], full, 0, slot, other);
                load_box3_once(at + a.half_scales, &a.scale[k], full, slot * words, other, 0);
            }
            r.away++;
            if (++r.stage == a.stages)
                r.stage = 0, r.round++;
        }
        tile += (int)gridDim.x;
    } while (ALONE && tile < a.tiles);
}

/* ---- x and its sums ---- */

/* Copy x to shared memory, followed by zeros. */
__device__ static inline void one_row_take_x(const packed_args &a, unsigned char *x, int threads)
{
#pragma unroll 1
    for (int i = (int)threadIdx.x * 8; i < one_row_x_size(a.in) / 2; i += threads * 8)
        copy_async16_to(shared_address(x + i * 2), a.row + (i < a.in ? i : 0), i < a.in ? 16 : 0);
    copy_async_commit();
    copy_async_wait<0>();
}

/* Compute the sums of eight blocks of x at a time, in the form of sum_slot and split_sums:
 * [slot][lane % 4]. */
__device__ static inline void one_row_take_sums(uint2 *parts, const unsigned char *x, int in,
                                                int warp, int warps, int lane)
{
    const uint32_t ones[2] = { 0x3f803f80u, 0x3f803f80u };
    int items = one_row_x_size(in) / (8 * 64), g = lane / 4;
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

/* The warps' sums at the end of a tile; cleared first, because one_row_add also reads those of
 * warps that do not exist. */
template <enum dtype T>
__device__ static inline float *one_row_sums(const packed_args &a, unsigned char *memory)
{
    return (float *)(memory + a.ring_size + one_row_x_size(a.in) + one_row_parts_size(T, a.in));
}

/* What the ends of tiles need: a one_row_pair or one_row_end per output. */
template <enum dtype T>
__device__ static inline unsigned char *one_row_ends(const packed_args &a, unsigned char *memory)
{
    return (unsigned char *)one_row_sums<T>(a, memory) + one_row_sums_size(a.wm, a.wk);
}

template <enum dtype T>
__device__ static inline void one_row_clear_sums(const packed_args &a, unsigned char *memory)
{
    float *sums = one_row_sums<T>(a, memory);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < one_row_sums_size(a.wm, a.wk) / 4; i += (int)blockDim.x)
        sums[i] = 0;
}

/* ---- the loop ---- */

/* Multiply a slot of a unit. x and parts point to the slot, at this lane's place. */
template <enum dtype T>
__device__ static inline void one_row_multiply(float (&acc)[2], const packed_slot<T> &s,
                                               const unsigned char *x, const uint2 *parts, int lane,
                                               uint32_t two_23)
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
        acc[0] = fmaf(scale_of<T>(s, 0, block, two_23), c[0], acc[0]);
        acc[1] = fmaf(scale_of<T>(s, 1, block, two_23), c[2], acc[1]);
    }
    if constexpr (T == DTYPE_Q4_K) {
        uint2 v = *parts;
        const uint32_t b[2] = { v.x, v.y };
        q4_k_less<2>(acc, q4_k_rows_of(s, lane), b);
    }
}

/* A warp's part of a tile, and addresses, all at this lane's place. */
struct one_row_share {
    const unsigned char *ring, *x;
    const uint2 *parts;
    uint32_t bars;
    int scale;                /* offset from quants to scales */
    int other_w, other_scale; /* offset from an octet to the other one */
    int slot0, lane;
};

template <enum dtype T, int MODE>
__device__ static inline one_row_share one_row_share_of(const packed_args &a, unsigned char *memory,
                                                        uint32_t bars, int warp, int lane)
{
    constexpr int deal = slots_per_scale(T), scales = slot_scales(T) / deal;
    one_row_share h;
    int unit = warp * a.wk_inverse >> 16, slot = (warp - unit * a.wk) * deal;
    bool lacks = MODE == ONE_ROW_PLAIN && 2 * unit + 1 >= a.octets; /* computed but not stored */
    const unsigned char *x = memory + a.ring_size;
    int w = unit * a.unit_w + slot * OCTET_SLOT + lane * 16;
    h.ring = memory + w;
    h.scale = a.w_size + unit * a.unit_scale + slot * scales + lane / 4 * (slot_scales(T) / 8) - w;
    h.other_w = lacks ? 0 : a.other_w;
    h.other_scale = lacks ? 0 : a.other_scale;
    h.x = x + slot * slot_elements(T) * 2 + lane / 8 * 16;
    h.parts = (const uint2 *)(x + one_row_x_size(a.in)) + slot * 4 + lane % 4;
    h.bars = bars;
    h.slot0 = slot;
    h.lane = lane;
    return h;
}

/* Load slot i of two consecutive ones (Q4_K), or the only one. */
template <enum dtype T>
__device__ static inline void one_row_take(packed_slot<T> &s, const one_row_share &h,
                                           const unsigned char *w, const unsigned char *scales,
                                           int i)
{
#pragma unroll
    for (int o = 0; o < 2; o++) {
        const unsigned char *d = scales + (o ? h.other_scale : 0);
        s.q[o] = *(const uint4 *)(w + (o ? h.other_w : 0) + i * OCTET_SLOT);
        if constexpr (T == DTYPE_Q8_0) {
            s.d[o].x = *(const uint32_t *)d;
        } else if constexpr (T == DTYPE_Q4_0) {
            s.d[o] = *(const uint2 *)d;
        } else {
            uint4 head = *(const uint4 *)d;
            s.d[o].x = head.x;
            q4_k_pairs(&s.factors[o], &s.mins[o], head.y, head.z, head.w, i);
        }
    }
}

/* Sum over all of K for a unit. */
template <enum dtype T>
__device__ static inline void one_row_walk(float (&acc)[2], const packed_args &a,
                                           const one_row_share &h, int &stage, int &parity)
{
    constexpr int deal = slots_per_scale(T), scales = slot_scales(T) / deal;
    const unsigned char *x = h.x;
    const uint2 *parts = h.parts;
#pragma unroll 1
    for (int first = 0; first < a.in_slots; first += a.slots) {
        const unsigned char *w = h.ring + stage * a.stage_size, *d = w + h.scale;
        int here = a.in_slots - first < a.slots ? a.in_slots - first : a.slots;
        uint32_t bar = full_bar(h.bars, stage);
        barrier_wait(bar, parity);
#pragma unroll 1
        for (int slot = h.slot0; slot < here; slot += deal * a.wk) {
#pragma unroll
            for (int i = 0; i < deal; i++) {
                packed_slot<T> s;
                one_row_take<T>(s, h, w, d, i);
                one_row_multiply<T>(acc, s, x + i * slot_elements(T) * 2, parts + i * 4, h.lane,
                                    a.two_23);
                asm volatile("" ::: "memory"); /* in order, to save registers */
            }
            w += deal * a.wk * OCTET_SLOT;
            d += deal * a.wk * scales;
            x += deal * a.wk * slot_elements(T) * 2;
            parts += deal * a.wk * 4;
        }
        __syncwarp();
        if (h.lane == 0)
            barrier_arrive(bar + 8);
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

/* ---- the end of a tile ---- */

/* Finish a unit that no other warp shares, directly from registers: the lane's outputs are row lane
 * / 4 of one octet, or of both. */
template <int MODE>
__device__ static inline void one_row_end_alone(const packed_args &a, const float (&acc)[2],
                                                float scale, int unit, int tile, int lane)
{
    const packed_job &j = a.job[MODE == ONE_ROW_GATED ? 0 : job_of(a, tile)];
#pragma unroll 1
    for (int o = 0; o < (MODE == ONE_ROW_PLAIN ? 2 : 1); o++) {
        int i = (MODE == ONE_ROW_PLAIN ? 2 * unit + o : unit) * 8 + lane / 4;
        int row = one_row_row<MODE>(a, j, tile, i);
        one_row_end e = one_row_find<MODE>(a, j, row);
        one_row_ask<MODE>(e, a, j, row);
        one_row_finish<MODE>(a, j, e, row, o ? acc[1] : acc[0], acc[1], scale, 4, lane % 4 == 0);
    }
}

/* Wait for 1 / rms and return it; 1 if there is no norm before the product. */
__device__ static inline float one_row_scale(const packed_args &a, const unsigned char *memory,
                                             uint32_t bars)
{
    if (!a.norm.squares && !a.paired)
        return 1;
    barrier_wait(bars + ONE_ROW_SCALED, 0);
    return *(const float *)(memory + a.ring_size + a.row_size + ONE_ROW_SCALE);
}

/* Add up the sums of the warps that share a unit, [unit][row of 16][ONE_ROW_WK], for a row and for
 * the row eight further. */
template <int MODE> __device__ static inline void one_row_add(float (&v)[2], const float *from)
{
    float part[2][ONE_ROW_WK];
#pragma unroll
    for (int o = 0; o < (MODE == ONE_ROW_PLAIN ? 1 : 2); o++) {
#pragma unroll
        for (int k = 0; k < ONE_ROW_WK; k += 4)
            *(float4 *)(part[o] + k) = *(const float4 *)(from + o * 8 * ONE_ROW_WK + k);
        v[o] = 0;
#pragma unroll
        for (int k = 0; k < ONE_ROW_WK; k++) /* zero for warps that do not exist */
            v[o] += part[o][k];
    }
}

template <enum dtype T, int MODE>
__device__ static inline void one_row_end_shared(const packed_args &a, const packed_job &j,
                                                 const float (&acc)[2], unsigned char *memory,
                                                 uint32_t bars, int warp, int lane)
{
    int unit = warp * a.wk_inverse >> 16, i = (int)threadIdx.x, rows = one_row_each<MODE>(a) * 8;
    float *sums = one_row_sums<T>(a, memory), v[2], scale;
    if (lane % 4 == 0) {
        float *to = sums + (unit * 16 + lane / 4) * ONE_ROW_WK + warp - unit * a.wk;
        to[0] = acc[0];
        to[8 * ONE_ROW_WK] = acc[1];
    }
    named_sync(1, a.wm * a.wk * 32);
    if (i - lane >= rows)
        return;
    i = i < rows ? i : 0;
    one_row_add<MODE>(v, sums + (MODE == ONE_ROW_PLAIN ? i : i / 8 * 16 + i % 8) * ONE_ROW_WK);
    scale = one_row_scale(a, memory, bars);
    if (MODE == ONE_ROW_PAIRED) {
        one_row_pair p = ((const one_row_pair *)one_row_ends<T>(a, memory))[i];
        if ((int)threadIdx.x < rows)
            one_row_turn(p, a.heads.d / 2, fmaf(v[0], scale, p.bias), fmaf(v[1], scale, p.bias2));
    } else {
        one_row_end e = ((const one_row_end *)one_row_ends<T>(a, memory))[i];
        int row = one_row_row<MODE>(a, j, (int)blockIdx.x, (int)threadIdx.x);
        one_row_finish<MODE>(a, j, e, row, v[0], v[1], scale, 1, true);
    }
}

/* 1 / rms of the row, with the bits of norm_take but with all loads in flight at once. */
__device__ static inline float one_row_norm(const packed_args &a, int lane)
{
    constexpr int AT_ONCE = 4;
    int octets = a.in / NORM_OCTET;
    float sum = 0;
#pragma unroll 1
    for (int i = lane * 4; i < octets; i += 128 * AT_ONCE) {
        float4 v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            v[k] = make_float4(0, 0, 0, 0);
            if (i + 128 * k < octets)
                v[k] = __ldcg((const float4 *)(a.norm.squares + i + 128 * k));
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sum = sum + v[k].x + v[k].y + v[k].z + v[k].w;
    }
    __syncwarp();
    return norm_end(sum, a.in, a.norm.eps);
}

/* A separate warp: finds what the ends of tiles need while the others multiply. */
template <enum dtype T, int MODE>
__device__ static inline void one_row_prepare(const packed_args &a, unsigned char *memory,
                                              uint32_t bars)
{
    int lane = (int)threadIdx.x % 32, tile = (int)blockIdx.x;
    const packed_job &j = a.job[MODE == ONE_ROW_GATED ? 0 : job_of(a, tile)];
    float scale = 1;
    if (MODE == ONE_ROW_PAIRED) { /* a tile has one octet of each half */
        int row = one_row_first<MODE>(a, j, tile) * 8 + lane;
        one_row_pair p = {};
        if (lane < 8 && row < j.out)
            p = one_row_pair_find(a, j, row);
        dep_wait();
        if (p.to)
            one_row_pair_ask(p, a, j, row);
        if (lane < 8)
            ((one_row_pair *)one_row_ends<T>(a, memory))[lane] = p;
    } else {
        dep_wait();
    }
    if (a.norm.squares)
        scale = one_row_norm(a, lane);
    __syncwarp();
    if (lane == 0) {
        *(float *)(memory + a.ring_size + a.row_size + ONE_ROW_SCALE) = scale;
        barrier_arrive(bars + ONE_ROW_SCALED);
    }
}

/* The warps that multiply. Only blocks whose units are not shared (ALONE) have several tiles. */
template <enum dtype T, int MODE, bool ALONE>
__device__ static inline void one_row_consume(const packed_args &a, unsigned char *memory,
                                              uint32_t bars)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, warps = a.wm * a.wk;
    unsigned char *x = memory + a.ring_size;
    uint2 *parts = (uint2 *)(x + one_row_x_size(a.in));
    int tile = (int)blockIdx.x, stage = 0, parity = 0;
    const packed_job &j = a.job[MODE == ONE_ROW_GATED ? 0 : job_of(a, tile)];
    int row = ALONE ? -1 : one_row_row<MODE>(a, j, tile, (int)threadIdx.x);
    one_row_end e = one_row_find<MODE>(a, j, row);
    one_row_share h = one_row_share_of<T, MODE>(a, memory, bars, warp, lane);
    dep_wait();
    one_row_ask<MODE>(e, a, j, row);
    one_row_take_x(a, x, warps * 32);
    if (!ALONE && MODE != ONE_ROW_PAIRED && row >= 0)
        ((one_row_end *)one_row_ends<T>(a, memory))[threadIdx.x] = e;
    named_sync(1, warps * 32);
    if (threadIdx.x == 0)
        *(volatile int *)(memory + a.ring_size + a.row_size + ONE_ROW_THERE) = 1;
    if (T == DTYPE_Q4_K) {
        one_row_take_sums(parts, x, a.in, warp, warps, lane);
        named_sync(1, warps * 32);
    }
#pragma unroll 1
    do {
        float acc[2] = {};
        one_row_walk<T>(acc, a, h, stage, parity);
        if (ALONE) {
            one_row_end_alone<MODE>(a, acc, one_row_scale(a, memory, bars), warp, tile, lane);
            tile += (int)gridDim.x;
        } else {
            one_row_end_shared<T, MODE>(a, j, acc, memory, bars, warp, lane);
        }
    } while (ALONE && tile < a.tiles);
}

#endif

#endif
