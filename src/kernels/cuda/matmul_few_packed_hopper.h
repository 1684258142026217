/* What the blocks of matmul_few_packed_hopper.cu do: the thread that feeds the copy engine, the
 * warp that sums x, the warps that multiply, and the end of a tile. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_H
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_HOPPER_H

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/matmul_few_mma.h"

enum {
    GROUP = 64, /* rows of a warpgroup: wgmma's M */
    TILE = 2 * GROUP,
    TILE_OCTETS = TILE / OCTET,
    UNIT_SLOTS = 2,
    UNIT_OCTET = UNIT_SLOTS * OCTET_SLOT,   /* bytes of an octet in a unit */
    UNIT_QUANTS = TILE_OCTETS * UNIT_OCTET, /* bytes */
    PARTS = 132,     /* blocks for an H200's multiprocessors; they have room for twice as many */
    TILE_PARTS = 8,  /* of a tile, at most */
    CONSUMERS = 256, /* threads */
    MOST_ROWS = 32,  /* of a launch */
    MAX_TILES = 8192,
    SMEM = 112 << 10 /* two blocks to a multiprocessor */
};

struct packed_job {
    void *y;
    size_t y_stride;
    const float *bias, *bias2;
    int out, tile0; /* its first tile */
};

struct packed_args {
    CUtensorMap w[DEVICE_MAX_JOBS], scale[DEVICE_MAX_JOBS], x;
    struct packed_job job[DEVICE_MAX_JOBS];
    int n_jobs, n, steps, tiles, parts;
    int add, gated, y_bf16;
    float *partial;    /* [2 * parts][TILE * columns] */
    unsigned *arrived; /* [tiles], zero between launches */
};

/* What lies where in shared memory: x, weights, sums of x (Q4_K), barriers. */
template <enum dtype T, int N> struct packed_shape {
    static constexpr int per_slot = slot_elements(T) / QUANT_BLOCK; /* blocks */
    static constexpr int blocks = UNIT_SLOTS * per_slot;            /* of a unit */
    static constexpr int x_tiles = blocks / 2;
    static constexpr int x_size = x_tiles * N * TILE_COLS * 2;
    static constexpr int octet_scales = slot_scales(T) * UNIT_SLOTS / slots_per_scale(T);
    static constexpr int w_size = UNIT_QUANTS + TILE_OCTETS * octet_scales;
    static constexpr int sums_size = T == DTYPE_Q4_K ? blocks * N * 4 : 0;
    static constexpr int x_stages = N == 32 ? 2 : 3;
    static constexpr int room = SMEM - 1024 - 256 - x_stages * (x_size + sums_size);
    static constexpr int w_stages = room / w_size < 8 ? room / w_size : 8;
    static constexpr int w_at = x_stages * x_size;
    static constexpr int sums_at = w_at + w_stages * w_size;
    static constexpr int bars_at = sums_at + x_stages * sums_size;
    static constexpr int size = bars_at + 256 + 1024;
    static constexpr int threads = CONSUMERS + (T == DTYPE_Q4_K ? 64 : 32);
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* c [64 x N] (+)= a b^T: a in registers, b in shared memory, K-major. */
template <int N, int ADD>
__device__ static inline void multiply(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b)
{
    if constexpr (N == 8)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, %8, p, 1, 1, 0;\n}"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
    else if constexpr (N == 16)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"
                     : EIGHT(c, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
    else
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, "
                     "%20, p, 1, 1, 0;\n}"
                     : EIGHT(c, 0), EIGHT(c, 8)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
}

__device__ static inline int part_begin(const packed_args &a, int part)
{
    return (int)((int64_t)part * a.tiles * a.steps / a.parts);
}

__device__ static inline int part_of(const packed_args &a, int unit)
{
    return (int)(((int64_t)(unit + 1) * a.parts - 1) / ((int64_t)a.tiles * a.steps));
}

__device__ static inline int job_of(const packed_args &a, int tile)
{
    int j = 0;
    while (j + 1 < a.n_jobs && tile >= a.job[j + 1].tile0)
        j++;
    return j;
}

/* ---- one thread of the warp behind the consumers: the copy engine ---- */

template <enum dtype T, int N>
__device__ static inline void load_weights(const packed_args &a, uint32_t to, uint32_t full,
                                           int unit)
{
    typedef packed_shape<T, N> S;
    constexpr int words = S::octet_scales / 4;
    int tile = unit / a.steps, k = unit % a.steps;
    uint32_t scales = to + UNIT_QUANTS;
    barrier_arrive_expect(full, S::w_size);
    if (a.gated) {
        int octet = tile * (TILE_OCTETS / 2);
        load_box3(to, &a.w[0], full, k * (UNIT_OCTET / 4), octet, 0);
        load_box3(to + UNIT_QUANTS / 2, &a.w[1], full, k * (UNIT_OCTET / 4), octet, 0);
        load_box3(scales, &a.scale[0], full, k * words, octet, 0);
        load_box3(scales + TILE_OCTETS / 2 * S::octet_scales, &a.scale[1], full, k * words, octet,
                  0);
    } else {
        int j = job_of(a, tile), octet = (tile - a.job[j].tile0) * TILE_OCTETS;
        load_box3(to, &a.w[j], full, k * (UNIT_OCTET / 4), octet, 0);
        load_box3(scales, &a.scale[j], full, k * words, octet, 0);
    }
}

/* Barriers: weights are there, x is, its sums are, a unit is done with. */
template <enum dtype T, int N> struct packed_bars {
    typedef packed_shape<T, N> S;
    static constexpr int w = 0, x = S::w_stages * 8, sums = x + S::x_stages * 8,
                         done = sums + S::x_stages * 8, flag = done + S::w_stages * 8;
    static_assert(flag + 4 <= 256, "barriers");
};

template <enum dtype T, int N>
__device__ static inline void produce(const packed_args &a, uint32_t base, int begin, int end)
{
    typedef packed_shape<T, N> S;
    typedef packed_bars<T, N> B;
    uint32_t bars = base + S::bars_at;
    int total = end - begin;
    for (int i = 0; i < S::w_stages && i < total; i++)
        load_weights<T, N>(a, base + S::w_at + i * S::w_size, bars + B::w + i * 8, begin + i);
    dep_wait();
    asm volatile("fence.proxy.async;" ::: "memory");
    for (int i = -S::x_stages; i < total; i++) {
        int x = i + S::x_stages, w = i + S::w_stages;
        if (i >= 0)
            barrier_wait(bars + B::done + i % S::w_stages * 8, i / S::w_stages & 1);
        if (i >= 0 && w < total)
            load_weights<T, N>(a, base + S::w_at + w % S::w_stages * S::w_size,
                               bars + B::w + w % S::w_stages * 8, begin + w);
        if (x < total) {
            uint32_t bar = bars + B::x + x % S::x_stages * 8;
            barrier_arrive_expect(bar, S::x_size);
            load_box3(base + x % S::x_stages * S::x_size, &a.x, bar, 0, 0,
                      (begin + x) % a.steps * S::x_tiles);
        }
    }
}

/* ---- a warp: sums of x over blocks of 32, which the minima of Q4_K multiply ---- */

__device__ static inline float sum_of_eight(uint4 v)
{
    float s0 = bf16_float(v.x & 0xffffu) + __uint_as_float(v.x & 0xffff0000u);
    float s1 = bf16_float(v.y & 0xffffu) + __uint_as_float(v.y & 0xffff0000u);
    float s2 = bf16_float(v.z & 0xffffu) + __uint_as_float(v.z & 0xffff0000u);
    float s3 = bf16_float(v.w & 0xffffu) + __uint_as_float(v.w & 0xffff0000u);
    return (s0 + s1) + (s2 + s3);
}

template <enum dtype T, int N>
__device__ static inline void sum_x(const packed_args &a, unsigned char *memory, uint32_t base,
                                    int total, int lane)
{
    typedef packed_shape<T, N> S;
    typedef packed_bars<T, N> B;
    for (int i = 0; i < total; i++) {
        int stage = i % S::x_stages;
        const unsigned char *x = memory + stage * S::x_size;
        float *sums = (float *)(memory + S::sums_at + stage * S::sums_size);
        barrier_wait(base + S::bars_at + B::x + stage * 8, i / S::x_stages & 1);
        for (int at = lane; at < S::blocks * N; at += 32) {
            int row = at % N, block = at / N;
            const unsigned char *from = x + (block / 2 * N + row) * 128;
            float s[4];
            if (row >= a.n)
                continue;
#pragma unroll
            for (int p = 0; p < 4; p++)
                s[p] = sum_of_eight(*(const uint4 *)(from + ((block % 2 * 4 + p) ^ row % 8) * 16));
            sums[at] = (s[0] + s[1]) + (s[2] + s[3]);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(base + S::bars_at + B::sums + stage * 8);
    }
}

/* ---- the end of a tile ---- */

/* Where a thread's numbers lie in a tile: register 4 j + 2 i + e is row `row + 8 i` (of the second
 * matrix in a gated product), column 8 j + col + e. */
struct place {
    int pair, row, col; /* pair: of octets; row: in an octet */
};

template <int N>
__device__ static inline void leave_part(const packed_args &a, const float (&c)[N / 2],
                                         struct place p, int slot)
{
    float *to = a.partial + (size_t)slot * (TILE * N) + p.pair * 16 + p.row;
#pragma unroll
    for (int r = 0; r < N / 2; r++) {
        int col = r / 4 * 8 + p.col + r % 2;
        if (col < a.n)
            __stcg(to + col * TILE + r / 2 % 2 * 8, c[r]);
    }
}

/* The parts of a tile, in order, some under way at once. */
template <int N>
__device__ static inline void add_parts(const packed_args &a, float (&c)[N / 2], struct place p,
                                        int tile)
{
    constexpr int AHEAD = N == 8 ? 8 : N == 16 ? 4 : 2;
    int first = part_of(a, tile * a.steps), last = part_of(a, (tile + 1) * a.steps - 1);
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        c[r] = 0;
#pragma unroll 1
    for (int part = first; part <= last; part += AHEAD) {
        float v[AHEAD][N / 2];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int slot =
                2 * (part + i) + (i == 0 && part == first && part_begin(a, part) / a.steps != tile);
            const float *from = a.partial + (size_t)slot * (TILE * N) + p.pair * 16 + p.row;
#pragma unroll
            for (int r = 0; r < N / 2; r++) {
                int col = r / 4 * 8 + p.col + r % 2;
                v[i][r] = part + i <= last && col < a.n ? __ldcg(from + col * TILE + r / 2 % 2 * 8)
                                                        : 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
#pragma unroll
            for (int r = 0; r < N / 2; r++)
                c[r] = part + i <= last ? c[r] + v[i][r] : c[r];
        }
    }
}

__device__ static inline void store(const packed_args &a, const packed_job &j, int col, int row,
                                    float v)
{
    size_t at = (size_t)col * j.y_stride + (size_t)row;
    if (a.y_bf16)
        ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
    else if (a.add)
        ((float *)j.y)[at] += v;
    else
        ((float *)j.y)[at] = v;
}

template <int N>
__device__ static inline void store_tile(const packed_args &a, const float (&c)[N / 2],
                                         struct place p, int tile)
{
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    int row0 =
        a.gated ? tile * GROUP + p.pair * 8 + p.row : (tile - j.tile0) * TILE + p.pair * 16 + p.row;
#pragma unroll
    for (int r = 0; r < N / 2; r++) {
        int col = r / 4 * 8 + p.col + r % 2, second = r / 2 % 2;
        int row = a.gated ? row0 : row0 + second * 8;
        float v = c[r];
        if (col >= a.n || row >= j.out || (a.gated && second))
            continue;
        if (j.bias)
            v += j.bias[row];
        if (a.gated) {
            float u = c[(r + 2) % (N / 2)];
            if (j.bias2)
                u += j.bias2[row];
            v = v / (1.0f + expf(-v)) * u;
        }
        store(a, j, col, row, v);
    }
}

/* A tile's sum, or this block's part of it. */
template <int N>
__device__ static inline void finish(const packed_args &a, float (&c)[N / 2], struct place p,
                                     int tile, bool whole, unsigned *last)
{
    if (!whole) {
        int first = part_of(a, tile * a.steps), end = part_of(a, (tile + 1) * a.steps - 1);
        int mine = (int)blockIdx.x;
        leave_part<N>(a, c, p, 2 * mine + (part_begin(a, mine) / a.steps != tile));
        named_sync(1, CONSUMERS);
        if (threadIdx.x == 0) {
            __threadfence(); /* what the barrier showed this thread, all see before the count */
            *last = atomicAdd(&a.arrived[tile], 1u) == (unsigned)(end - first);
            if (*last)
                a.arrived[tile] = 0;
            __threadfence();
        }
        named_sync(1, CONSUMERS);
        if (!*last)
            return;
        add_parts<N>(a, c, p, tile);
    }
    store_tile<N>(a, c, p, tile);
}

/* ---- the consumers ---- */

/* What a lane holds of a slot: quants and scales of its two rows. */
template <enum dtype T> struct packed_slot {
    uint4 q[2];
    uint2 d[2];              /* f16 */
    float scale[2], less[2]; /* Q4_K: of block lane % 4 */
};

template <enum dtype T>
__device__ static inline void take_slot(packed_slot<T> &s, const unsigned char *w,
                                        const int (&octet)[2], int slot, int lane)
{
    constexpr int scales = slot_scales(T) * UNIT_SLOTS / slots_per_scale(T);
#pragma unroll
    for (int o = 0; o < 2; o++) {
        const unsigned char *head = w + UNIT_QUANTS + octet[o] * scales;
        s.q[o] = *(const uint4 *)(w + octet[o] * UNIT_OCTET + slot * OCTET_SLOT + lane * 16);
        if constexpr (T == DTYPE_Q8_0) {
            s.d[o].x = *(const uint32_t *)(head + slot * 32 + lane / 4 * 4);
        } else if constexpr (T == DTYPE_Q4_0) {
            s.d[o] = *(const uint2 *)(head + slot * 64 + lane / 4 * 8);
        } else {
            uint4 h = *(const uint4 *)(head + lane / 4 * 16);
            uint32_t factors, mins;
            q4_k_pairs(&factors, &mins, h.y, h.z, h.w, slot);
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

/* acc += the sums c of a block, scaled. */
template <enum dtype T, int N>
__device__ static inline void add_block(float (&acc)[N / 2], const float (&c)[N / 2],
                                        const packed_slot<T> &s, int block, const float *sums,
                                        int lane)
{
    float f[2], l[2];
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
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float2 x = make_float2(0, 0);
        if constexpr (T == DTYPE_Q4_K)
            x = *(const float2 *)(sums + j * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float v = fmaf(f[i / 2], c[4 * j + i], acc[4 * j + i]);
            if constexpr (T == DTYPE_Q4_K)
                v = fmaf(-l[i / 2], i % 2 ? x.y : x.x, v);
            acc[4 * j + i] = v;
        }
    }
}

/* A unit: while wgmma has a block, the one before is added and the next unpacked. */
template <enum dtype T, int N>
__device__ static inline void multiply_unit(float (&acc)[N / 2], const unsigned char *w, uint32_t x,
                                            uint32_t x_bar, uint32_t sums_bar, uint32_t x_parity,
                                            const float *sums, const int (&octet)[2], int lane)
{
    typedef packed_shape<T, N> S;
    packed_slot<T> slot[2];
    few_block a[2];
    float c[2][N / 2];
    take_slot<T>(slot[0], w, octet, 0, lane);
    unpack<T>(a[0], slot[0], 0);
    barrier_wait(x_bar, x_parity);
    uint64_t b = tile_descriptor(x, 0);
    uint32_t b_lo = (uint32_t)b;
#pragma unroll
    for (int i = 0; i < S::blocks; i++) {
        uint32_t lo = b_lo + (uint32_t)((i / 2 * N * 128 + i % 2 * 64) >> 4);
        uint64_t at = (b & ~0xffffffffull) | lo, next = (b & ~0xffffffffull) | (lo + 2);
        wgmma_fence();
        multiply<N, 0>(c[i % 2], a[i % 2].a0, at);
        multiply<N, 1>(c[i % 2], a[i % 2].a1, next);
        wgmma_commit();
        if (i == S::per_slot - 2)
            take_slot<T>(slot[1], w, octet, 1, lane);
        if (i == 0 && T == DTYPE_Q4_K)
            barrier_wait(sums_bar, x_parity);
        if (i > 0) {
            wgmma_wait<1>();
            pin(c[(i + 1) % 2]);
            add_block<T, N>(acc, c[(i + 1) % 2], slot[(i - 1) / S::per_slot], (i - 1) % S::per_slot,
                            sums + (i - 1) * N, lane);
        }
        if (i + 1 < S::blocks)
            unpack<T>(a[(i + 1) % 2], slot[(i + 1) / S::per_slot], (i + 1) % S::per_slot);
    }
    wgmma_wait<0>();
    pin(c[(S::blocks - 1) % 2]);
    add_block<T, N>(acc, c[(S::blocks - 1) % 2], slot[1], S::per_slot - 1,
                    sums + (S::blocks - 1) * N, lane);
}

template <enum dtype T, int N>
__device__ static inline void consume(const packed_args &a, uint32_t base, unsigned char *memory,
                                      int begin, int end)
{
    typedef packed_shape<T, N> S;
    typedef packed_bars<T, N> B;
    uint32_t bars = base + S::bars_at;
    unsigned *last = (unsigned *)(memory + S::bars_at + B::flag);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int octet[2] = { a.gated ? warp : 2 * warp, a.gated ? warp + TILE_OCTETS / 2 : 2 * warp + 1 };
    struct place p = { warp, lane / 4, lane % 4 * 2 };
    int w_stage = 0, x_stage = 0;
    uint32_t w_parity = 0, x_parity = 0;
    dep_wait();
    for (int unit = begin; unit < end;) {
        int tile = unit / a.steps, from = unit;
        int to = (tile + 1) * a.steps < end ? (tile + 1) * a.steps : end;
        float acc[N / 2];
#pragma unroll
        for (int r = 0; r < N / 2; r++)
            acc[r] = 0;
#pragma unroll 1
        for (; unit < to; unit++) {
            barrier_wait(bars + B::w + w_stage * 8, w_parity);
            multiply_unit<T, N>(
                acc, memory + S::w_at + w_stage * S::w_size, base + x_stage * S::x_size,
                bars + B::x + x_stage * 8, bars + B::sums + x_stage * 8, x_parity,
                (const float *)(memory + S::sums_at + x_stage * S::sums_size), octet, lane);
            __syncwarp();
            if (lane == 0)
                barrier_arrive(bars + B::done + w_stage * 8);
            if (++w_stage == S::w_stages)
                w_stage = 0, w_parity ^= 1;
            if (++x_stage == S::x_stages)
                x_stage = 0, x_parity ^= 1;
        }
        finish<N>(a, acc, p, tile, to - from == a.steps, last);
    }
}

#endif

#endif
