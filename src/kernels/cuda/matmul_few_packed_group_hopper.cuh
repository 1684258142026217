/* Several rows of x times packed weights by wgmma, with the bits of a lone row
 * (matmul_few_packed_one_row_hopper.cuh): each partial sum covers the same slots of K, the order of
 * sums is the same, and mma and wgmma round in the same way.
 *
 * Four units of a tile are a warpgroup's 64 rows. Each warp unpacks its unit in registers, where
 * wgmma reads it, and x is read from shared memory once for all four. A tile whose K is shared by
 * several warps would have too few units for that, and each block would read all of x. So `parts`
 * blocks share its K, and each has `parts` times as many rows. Their sums go through global memory,
 * and the last block to arrive adds them up in order. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PACKED_GROUP_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PACKED_GROUP_HOPPER_CUH

#include "kernels/cuda/matmul_few_packed_hopper.cuh"

enum {
    GROUP_UNITS = 4,   /* units per warpgroup */
    GROUP_SUMMERS = 2, /* warps that sum x (Q4_K) */
    GROUP_MET = 1,     /* barriers: the warps that multiply meet; */
    GROUP_SCALED = 2   /* the rows' scales are ready */
};

/* Most warpgroups that multiply; one more feeds the ring, sums x and finds scales. */
__host__ __device__ static constexpr int most_groups(int n)
{
    return n > 4 ? 4 : 5;
}

__host__ __device__ static constexpr int group_threads(int n)
{
    return most_groups(n) * 128 + 128;
}

/* Most warps that multiply by mma. */
__host__ __device__ static constexpr int most_singles(int n)
{
    return n > 4 ? 16 : 20;
}

/* Warps that find scales. */
__host__ __device__ static constexpr int group_scalers(enum dtype t)
{
    return t == DTYPE_Q4_K ? 1 : 3;
}

/* Floats per column of sums in shared memory, chosen against bank conflicts. */
__host__ __device__ static inline int group_stride(int rows)
{
    return (rows + 15) / 16 * 16 + 4;
}

#ifdef HOPPER_CODE

/* ---- one thread: TMA requests ---- */

/* The first slot of a step in this block's part of K. */
__device__ static inline int group_slot(const packed_args &a, int step)
{
    return step * a.step_slots + (int)blockIdx.y * a.slots;
}

/* Request the first weights before the preceding kernel has ended; not as many as there is room
 * for, because x would queue behind them. */
template <enum dtype T>
__device__ static inline void group_feed_early(packed_feed &f, const packed_args &a, uint32_t base,
                                               uint32_t bars)
{
    f.tile = (int)blockIdx.x;
    f.step = 0;
    f.total = (a.tiles - f.tile + (int)gridDim.x - 1) / (int)gridDim.x * a.steps;
    f.early = f.total < a.flight ? f.total : a.flight;
#pragma unroll 1
    for (int i = 0; i < f.early; i++) {
        barrier_arrive_expect(full_bar(bars, i), f.w_bytes + f.x_bytes);
        load_weights<T>(a, base + i * a.stage_size + a.x_size, full_bar(bars, i), f.tile,
                        group_slot(a, f.step));
        if (++f.step == a.steps)
            f.step = 0, f.tile += (int)gridDim.x;
    }
}

template <enum dtype T>
__device__ static inline void group_feed(packed_feed &f, const packed_args &a, uint32_t base,
                                         uint32_t bars)
{
    int stage = f.early == a.stages ? 0 : f.early, parity = f.early == a.stages ? 0 : 1;
    dep_wait();
    outside_written();
#pragma unroll 1
    for (int i = 0, s = 0; i < f.early; i++) {
        load_x<T>(a, base + i * a.stage_size, full_bar(bars, i), group_slot(a, s));
        s = s + 1 == a.steps ? 0 : s + 1;
    }
#pragma unroll 1
    for (int i = f.early; i < f.total; i++) {
        uint32_t to = base + stage * a.stage_size, full = full_bar(bars, stage);
        int slot = group_slot(a, f.step);
        barrier_wait(empty_bar(bars, stage), parity);
        barrier_arrive_expect(full, f.w_bytes + f.x_bytes);
        load_x<T>(a, to, full, slot);
        load_weights<T>(a, to + a.x_size, full, f.tile, slot);
        if (++f.step == a.steps)
            f.step = 0, f.tile += (int)gridDim.x;
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

/* ---- the warps that multiply ---- */

/* A warp's part of the ring and of the tile. */
struct group_share {
    packed_unit unit;
    int number, slot0; /* index of the unit; the warp's first slot of a step */
    int lane;
};

/* Unpack at this point; the compiler would move it after the next wait. */
template <enum dtype T>
__device__ static inline void unpack_now(few_block &b, const packed_slot<T> &s, int block)
{
    unpack<T>(b, s, block);
#ifndef PV_CUDASIM
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+r"(b.a0[i]), "+r"(b.a1[i]));
#endif
}

/* Multiply a slot of a unit by all rows of x, which are at `x` in shared memory. */
template <enum dtype T, int N>
__device__ static inline void group_multiply(float (&acc)[packed_sums(N)],
                                             const packed_slot<T> &slot, uint32_t x)
{
    constexpr int BLOCKS = slot_elements(T) / QUANT_BLOCK, HALVES = N > 4 ? 2 : 1;
    constexpr int COLS = 8 * N / HALVES;
    uint64_t tile = tile_descriptor(x, 0);
    few_block w[2];
    unpack<T>(w[0], slot, 0);
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
        const few_block &now = w[block % 2];
        uint32_t from = block / 2 * (N * 8 * LINE) + block % 2 * (LINE / 2);
        float f[2] = { scale_of<T>(slot, 0, block), scale_of<T>(slot, 1, block) };
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            float c[COLS / 2];
            wgmma_fence();
            wgmma_register_a<COLS>(c, now.a0, tile + ((from + h * COLS * LINE) >> 4), 0);
            wgmma_register_a<COLS>(c, now.a1, tile + ((from + h * COLS * LINE + 32) >> 4), 1);
            wgmma_commit();
            if (h == 0 && block + 1 < BLOCKS)
                unpack_now<T>(w[(block + 1) % 2], slot, block + 1);
            wgmma_wait<0>();
            pin(c);
#pragma unroll
            for (int i = 0; i < COLS / 2; i++)
                acc[h * (COLS / 2) + i] = fmaf(f[i / 2 % 2], c[i], acc[h * (COLS / 2) + i]);
        }
    }
}

/* Sum over the block's K for a unit. */
template <enum dtype T, int N>
__device__ static inline void group_walk(float (&acc)[packed_sums(N)], const packed_args &a,
                                         const group_share &h, unsigned char *memory, uint32_t base,
                                         uint32_t bars, int &stage, uint32_t &parity)
{
    constexpr int deal = slots_per_scale(T), slot_x = slot_elements(T) * 2 * 8 * N;
    int here = a.wk_here * deal;
#pragma unroll 1
    for (int step = 0; step < a.steps; step++) {
        const unsigned char *at = memory + stage * a.stage_size, *w = at + a.x_size;
        int left = a.in_slots - group_slot(a, step), end = left < a.slots ? left : a.slots;
        barrier_wait(full_bar(bars, stage), parity);
#pragma unroll 1
        for (int slot = h.slot0; slot < end; slot += here) {
#pragma unroll 1
            for (int i = slot; i < slot + deal; i++) {
                packed_slot<T> s;
                take_slot<T>(s, w, w + a.w_size, h.unit, i, i & (deal - 1), h.lane);
                group_multiply<T, N>(acc, s, base + stage * a.stage_size + i * slot_x);
                if constexpr (T == DTYPE_Q4_K) {
                    barrier_wait(summed_bar(bars, stage), parity);
                    take_less<N>(acc, s, (const uint2 *)(at + parts_at(a)) + i * N * 32, h.lane);
                }
            }
        }
        __syncwarp();
        if (h.lane == 0)
            barrier_arrive(empty_bar(bars, stage));
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

/* ---- the end of a tile. The code is kept small, in loops, because it is not in the instruction
 * cache when everything waits for it. ---- */

/* Place of the sums of a tile: [column][stride], rows of gate before those of up. There are `parts`
 * partial sums, `part` floats apart, which are added up. */
struct group_sums {
    float *at;
    int stride, part, parts;
};

/* Store a warp's sums as partial sum k. */
template <int N>
__device__ static inline void group_leave(const packed_args &a, const float (&acc)[packed_sums(N)],
                                          const group_sums &to, int unit, int lane, int k)
{
    int each = octets_each(a), octet = a.gated ? unit : 2 * unit;
    int second = a.gated ? each : 1; /* octets between the two of a unit */
    float *at = to.at + k * to.part + lane % 4 * 2 * to.stride + octet * 8 + lane / 4;
#pragma unroll
    for (int o = 0; o < 2; o++) {
        if (octet + (a.gated ? 0 : o) >= each)
            continue;
#pragma unroll
        for (int nt = 0; nt < N; nt++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                at[(nt * 8 + e) * to.stride + o * second * 8] = acc[nt * 4 + o * 2 + e];
    }
}

/* Add up, in order, the sums of the blocks that share a tile, and store them in shared memory. */
__device__ static inline void group_gather(const packed_args &a, const group_sums &to,
                                           const group_sums &from, int threads)
{
    int quads = a.octets * 2, count = quads * a.n;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < count; i += threads) {
        int col = i / quads, row = (i - col * quads) * 4;
        const float *at = from.at + col * from.stride + row;
        float4 v = make_float4(0, 0, 0, 0);
#pragma unroll 4
        for (int k = 0; k < from.parts; k++) {
            float4 p = __ldcg((const float4 *)(at + k * from.part));
            v.x += p.x, v.y += p.y, v.z += p.z, v.w += p.w;
        }
        *(float4 *)(to.at + col * to.stride + row) = v;
    }
}

/* Finish the outputs; each thread takes a row of a column at a time. */
__device__ static inline void group_finish(const packed_args &a, const group_sums &from,
                                           const float *scale, int tile, int threads)
{
    const packed_job &j = a.job[a.gated ? 0 : job_of(a, tile)];
    int rows = octets_each(a) * 8, count = rows * a.n, lane = (int)threadIdx.x % 32;
    int row0 = (tile - j.tile0) * rows, more = threads / rows, rest = threads - more * rows;
    int col = (int)threadIdx.x / rows, in_tile = (int)threadIdx.x - col * rows;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i - lane < count; i += threads) {
        int row = row0 + in_tile;
        size_t at = (size_t)col * j.y_stride + (size_t)row;
        bool there = i < count && row < j.out;
        packed_ending e = {};
        float v = 0, up = 0;
        if (there) {
            const float *sum = from.at + col * from.stride + in_tile;
            take_biases(e, a, j, row);
            take_old(e, a, j, at);
#pragma unroll 1
            for (int k = 0; k < from.parts; k++, sum += from.part) {
                v += sum[0];
                if (a.gated)
                    up += sum[rows];
            }
            v = result(a, e, v, up, a.norm.squares ? scale[col] : 1.0f);
            store(a, j, at, v);
        }
        if (a.norm.weight)
            leave_norm(a, there, j.out, col, row, v, e.weight, 1);
        in_tile += rest;
        col += more;
        if (in_tile >= rows)
            in_tile -= rows, col++;
    }
}

/* Whether this block is the last of those that share a tile, so that all have stored their sums. */
__device__ static inline bool group_last(const packed_args &a, int *flag, int tile, int threads)
{
    __threadfence();
    named_sync(GROUP_MET, threads);
    if (threadIdx.x == 0) {
        *flag = atomicAdd(a.counter + tile, 1) == a.parts - 1;
        if (*flag)
            a.counter[tile] = 0;
    }
    named_sync(GROUP_MET, threads);
    __threadfence();
    return *flag != 0;
}

/* Finish a tile. `sums` is in shared memory outside the ring. */
template <int N>
__device__ static inline void group_end(const packed_args &a, const float (&acc)[packed_sums(N)],
                                        float *sums, const float *scale, int *flag, int unit,
                                        int lane, int k, int tile)
{
    int threads = a.warps * 32, rows = a.octets * 8;
    group_sums to = { sums, group_stride(rows), group_stride(rows) * 8 * N, a.wk };
    if (a.parts > 1) {
        group_sums out = { a.partial, rows, rows * 8 * N, a.wk };
        out.at += (size_t)tile * a.wk * out.part;
        group_leave<N>(a, acc, out, unit, lane, (int)blockIdx.y * a.wk_here + k);
        if (!group_last(a, flag, tile, threads))
            return;
        to.parts = 1;
        group_gather(a, to, out, threads);
    } else {
        named_sync(GROUP_MET, threads); /* the sums of the previous tile have been read */
        group_leave<N>(a, acc, to, unit, lane, k);
    }
    named_sync(GROUP_MET, threads);
    group_finish(a, to, scale, tile, threads);
}

template <enum dtype T, int N>
__device__ static inline void group_consume(const packed_args &a, unsigned char *memory,
                                            uint32_t bars, float *scale, int others)
{
    int warp = (int)threadIdx.x / 32, group = warp / GROUP_UNITS, k = group / a.groups;
    int stage = 0;
    uint32_t parity = 0, base = shared_address(memory);
    group_share h;
    h.lane = (int)threadIdx.x % 32;
    h.number = (group - k * a.groups) * GROUP_UNITS + warp % GROUP_UNITS;
    h.unit = unit_of(a, h.number, slot_scales(T) / slots_per_scale(T));
    h.slot0 = k * slots_per_scale(T);
    dep_wait();
#pragma unroll 1
    for (int tile = (int)blockIdx.x; tile < a.tiles; tile += (int)gridDim.x) {
        float acc[packed_sums(N)] = {};
        group_walk<T, N>(acc, a, h, memory, base, bars, stage, parity);
        if (a.norm.squares && tile == (int)blockIdx.x)
            named_sync(GROUP_SCALED, a.warps * 32 + others);
        group_end<N>(a, acc, scale + 8 * N + 4, scale, (int *)(scale + 8 * N), h.number, h.lane, k,
                     tile);
    }
}

/* ---- the same by mma, with one unit per warp ---- */

/* Multiply a slot of a unit by all rows of x. Uses four accumulators in turn, because an mma waits
 * for an earlier one that adds to the same accumulator. */
template <enum dtype T, int N>
__device__ static inline void single_multiply(float (&acc)[packed_sums(N)],
                                              const packed_slot<T> &slot, const unsigned char *x,
                                              int odd)
{
    constexpr int BLOCKS = slot_elements(T) / QUANT_BLOCK, TILES = N < 4 ? N : 4;
    constexpr int AT_ONCE = 4 / TILES < BLOCKS ? 4 / TILES : BLOCKS;
#pragma unroll
    for (int b0 = 0; b0 < BLOCKS; b0 += AT_ONCE) {
        few_block w[AT_ONCE];
        float f[AT_ONCE][2];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            unpack<T>(w[i], slot, b0 + i);
            f[i][0] = scale_of<T>(slot, 0, b0 + i);
            f[i][1] = scale_of<T>(slot, 1, b0 + i);
        }
#pragma unroll
        for (int n0 = 0; n0 < N; n0 += TILES) {
            uint32_t b[AT_ONCE][TILES][4];
            float c[AT_ONCE][TILES][4];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
                    x_block<N>(b[i][nt], x, odd, b0 + i, n0 + nt);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
                    mma_bf16_first(c[i][nt], w[i].a0, b[i][nt]);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
                    mma_bf16(c[i][nt], w[i].a1, b[i][nt] + 2);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
#pragma unroll
                for (int nt = 0; nt < TILES; nt++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        acc[(n0 + nt) * 4 + e] =
                            fmaf(f[i][e / 2], c[i][nt][e], acc[(n0 + nt) * 4 + e]);
        }
    }
}

template <enum dtype T, int N>
__device__ static inline void single_walk(float (&acc)[packed_sums(N)], const packed_args &a,
                                          const group_share &h, unsigned char *memory,
                                          uint32_t bars, int &stage, uint32_t &parity)
{
    constexpr int deal = slots_per_scale(T), slot_x = slot_elements(T) * 2 * 8 * N;
    int here = a.wk_here * deal, x_lane = x_place(h.lane), odd = (x_lane ^ 64) - x_lane;
#pragma unroll 1
    for (int step = 0; step < a.steps; step++) {
        const unsigned char *at = memory + stage * a.stage_size, *w = at + a.x_size;
        int left = a.in_slots - group_slot(a, step), end = left < a.slots ? left : a.slots;
        barrier_wait(full_bar(bars, stage), parity);
#pragma unroll 1
        for (int slot = h.slot0; slot < end; slot += here) {
#pragma unroll 1
            for (int i = slot; i < slot + deal; i++) {
                packed_slot<T> s;
                take_slot<T>(s, w, w + a.w_size, h.unit, i, i & (deal - 1), h.lane);
                single_multiply<T, N>(acc, s, at + i * slot_x + x_lane, odd);
                if constexpr (T == DTYPE_Q4_K) {
                    const uint2 *sums = (const uint2 *)(at + parts_at(a)) + i * N * 32;
                    barrier_wait(summed_bar(bars, stage), parity);
                    take_less<N>(acc, s, sums, h.lane);
                }
            }
        }
        __syncwarp();
        if (h.lane == 0)
            barrier_arrive(empty_bar(bars, stage));
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

template <enum dtype T, int N>
__device__ static inline void single_consume(const packed_args &a, unsigned char *memory,
                                             uint32_t bars, float *scale, int others)
{
    int warp = (int)threadIdx.x / 32, k = warp / a.groups, stage = 0;
    uint32_t parity = 0;
    group_share h;
    h.lane = (int)threadIdx.x % 32;
    h.number = warp - k * a.groups;
    h.unit = unit_of(a, h.number, slot_scales(T) / slots_per_scale(T));
    h.slot0 = k * slots_per_scale(T);
    dep_wait();
#pragma unroll 1
    for (int tile = (int)blockIdx.x; tile < a.tiles; tile += (int)gridDim.x) {
        float acc[packed_sums(N)] = {};
        single_walk<T, N>(acc, a, h, memory, bars, stage, parity);
        if (a.norm.squares && tile == (int)blockIdx.x)
            named_sync(GROUP_SCALED, a.warps * 32 + others);
        group_end<N>(a, acc, scale + 8 * N + 4, scale, (int *)(scale + 8 * N), h.number, h.lane, k,
                     tile);
    }
}

/* Find the rows' 1 / rms, by warps that do not multiply. */
__device__ static inline void group_scales(const packed_args &a, float *scale, int warp, int warps)
{
    constexpr int AT_ONCE = 2;
    dep_wait();
#pragma unroll 1
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
}

/* The beginning of both kernels for several rows; `f` is used by the thread that feeds the ring. */
template <enum dtype T, int N>
__device__ static inline void group_begin(packed_feed &f, const packed_args &a, uint32_t base,
                                          uint32_t bars)
{
    dep_launch();
    if ((int)threadIdx.x == a.warps * 32) {
        constexpr int scales = slot_scales(T) / slots_per_scale(T);
        f.x_bytes = a.slots * slot_elements(T) * 2 * 8 * N;
        f.w_bytes = a.octets * a.slots * (OCTET_SLOT + scales);
#pragma unroll 1
        for (int i = 0; i < a.stages; i++) {
            barrier_init(full_bar(bars, i), 1);
            barrier_init(empty_bar(bars, i), a.warps);
            barrier_init(summed_bar(bars, i), GROUP_SUMMERS);
        }
        barrier_init_done();
        map_prefetch(&a.x);
        group_feed_early<T>(f, a, base, bars);
    }
    __syncthreads();
}

/* The work of the four warps that do not multiply. */
template <enum dtype T, int N>
__device__ static inline void group_serve(packed_feed &f, const packed_args &a,
                                          unsigned char *memory, uint32_t bars, float *scale)
{
    constexpr int scalers = group_scalers(T);
    int warp = (int)threadIdx.x / 32 - a.warps;
    if (warp >= 4 - scalers) {
        if (a.norm.squares) {
            group_scales(a, scale, warp - 4 + scalers, scalers);
            named_arrive(GROUP_SCALED, (a.warps + scalers) * 32);
        }
    } else if ((int)threadIdx.x == a.warps * 32) {
        group_feed<T>(f, a, shared_address(memory), bars);
    } else if (T == DTYPE_Q4_K && warp > 0) {
        sum_stages<N>(a, memory, bars, warp - 1, GROUP_SUMMERS);
    }
}

#endif

#endif
