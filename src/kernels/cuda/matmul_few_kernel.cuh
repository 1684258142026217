/* The kernel of matmul_few.h for any type of weights, and its launch.
 *
 * Weights and x go through a ring of `depth` stages in shared memory; a stage is WK slots. The
 * weights of the first stages are requested before the preceding kernel has ended. A barrier begins
 * each stage: it makes x, which the whole block fetches, visible, and frees the previous stage,
 * which is refilled at once. A block that takes several tiles (WK = 1 and no splits) goes from one
 * to the next without emptying the ring. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_KERNEL_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_KERNEL_CUH

#include "kernels/cuda/matmul_few_mma.cuh"

/* Wait until at most `open` groups of copies are in flight. */
__device__ static inline void few_wait(int open)
{
    switch (open) {
    case 0:
        copy_async_wait<0>();
        break;
    case 1:
        copy_async_wait<1>();
        break;
    case 2:
        copy_async_wait<2>();
        break;
    case 3:
        copy_async_wait<3>();
        break;
    case 4:
        copy_async_wait<4>();
        break;
    case 5:
        copy_async_wait<5>();
        break;
    default:
        copy_async_wait<6>();
        break;
    }
}

/* What a lane fetches of a unit: offsets in 16-byte units of w (for slot 0), and in the scales. */
template <enum dtype T, int MT> struct few_aim {
    enum { PLAIN = few_octet_size(T) == 1024, N = PLAIN ? 4 * MT : 2 * MT };
    uint32_t at[N], scale_at;
    bool any;
};

template <int MT> __device__ static inline int few_octet(bool gated, int unit, int o)
{
    return gated ? unit * MT + o / 2 : unit * 2 * MT + o;
}

template <enum dtype T, int MT>
__device__ static inline void few_take_aim(few_aim<T, MT> *f, const few_params &p, const few_job &j,
                                           int unit, int lane)
{
    f->any = few_octet<MT>(p.gated, unit, 0) < j.octets;
#pragma unroll
    for (int i = 0; i < few_aim<T, MT>::N; i++) {
        if (few_aim<T, MT>::PLAIN) { /* four rows of 128 bytes at a time */
            int row = few_octet<MT>(p.gated, unit, i / 2) * 8 + i % 2 * 4 + lane / 8;
            f->at[i] = (uint32_t)min(row, j.out - 1) * p.row_units + (uint32_t)lane % 8;
        } else {
            int octet = min(few_octet<MT>(p.gated, unit, i), j.octets - 1);
            f->at[i] = (uint32_t)(octet * p.slots) * 32u + (uint32_t)lane;
        }
    }
    f->scale_at = 0;
    if (slot_scales(T)) {
        constexpr int LANES = slot_scales(T) ? slot_scales(T) / 16 : 1; /* lanes per octet */
        int octet = min(few_octet<MT>(p.gated, unit, lane / LANES), j.octets - 1);
        f->scale_at = (uint32_t)(octet * (p.slots / slots_per_scale(T)) * LANES + lane % LANES);
    }
}

template <enum dtype T, int MT>
__device__ static inline void few_pull(const few_aim<T, MT> &f, const few_job &j, uint8_t *to,
                                       int slot, int lane)
{
    if (!f.any)
        return;
#pragma unroll
    for (int i = 0; i < few_aim<T, MT>::N; i++) {
        if (few_aim<T, MT>::PLAIN) {
            const uint8_t *from = j.w[i / 2 % 2] + (size_t)(f.at[i] + (uint32_t)slot * 8u) * 16;
            copy_async16_stream(to + few_plain_place(i / 2, i % 2 * 4 + lane / 8, lane % 8), from);
        } else {
            const uint8_t *from = j.w[i % 2] + (size_t)(f.at[i] + (uint32_t)slot * 32u) * 16;
            copy_async16_stream(to + i * OCTET_SLOT + lane * 16, from);
        }
    }
    if (slot_scales(T)) {
        constexpr int LANES = slot_scales(T) ? slot_scales(T) / 16 : 1;
        uint32_t at = f.scale_at + (uint32_t)(slot / slots_per_scale(T)) * LANES;
        if (lane < 2 * MT * LANES)
            copy_async16_stream(to + 2 * MT * OCTET_SLOT + lane * 16,
                                j.scale[lane / LANES % 2] + (size_t)at * 16);
    }
}

/* The 16-byte unit at element k of a row of x, zero after its end; for rows that are not aligned.
 */
template <enum dtype T>
__device__ static inline uint4 few_x_slow(const few_params &p, int row, int k)
{
    uint32_t v[4] = { 0, 0, 0, 0 };
    size_t at = (size_t)row * (size_t)p.in + (size_t)k;
    if (T == DTYPE_F16) {
        for (int i = 0; i < 4; i++)
            v[i] = k + i < p.in ? ((const uint32_t *)p.x)[at + i] : 0;
    } else {
        for (int i = 0; i < 8; i++)
            if (k + i < p.in)
                v[i / 2] |= (uint32_t)((const uint16_t *)p.x)[at + i] << i % 2 * 16;
    }
    return make_uint4(v[0], v[1], v[2], v[3]);
}

/* A block's range of slots in K. */
struct few_span {
    int slot0, slot1, log_wk;
};

/* Fetch x of a stage. Called by the whole block. */
template <enum dtype T, int NT>
__device__ static inline void few_pull_x(const few_params &p, const few_span &s, uint8_t *to,
                                         int stage)
{
    constexpr int U = few_x_units(T), E = T == DTYPE_F16 ? 4 : 8;
    int log_units = s.log_wk + (U == 16 ? 4 : 3), units = p.n << log_units;
    int slot0 = s.slot0 + (stage << s.log_wk);
    for (int i = (int)threadIdx.x; i < units; i += (int)blockDim.x) {
        int row = i >> log_units, u = i & ((1 << log_units) - 1), wk = u / U;
        int k = slot0 * slot_elements(T) + u * E;
        uint8_t *place = to + wk * NT * 8 * U * 16 + few_x_place<T, NT>(row, u % U);
        if (slot0 + wk >= s.slot1)
            continue;
        if (p.aligned)
            copy_async16(place,
                         (const uint8_t *)p.x +
                             ((size_t)row * (size_t)p.in + (size_t)(k < p.in ? k : 0)) * (16 / E),
                         k < p.in ? 16 : 0);
        else
            *(uint4 *)place = few_x_slow<T>(p, row, k);
    }
}

/* Fetch x of the first stages. Asynchronous copies complete in order, so x would wait for the
 * weights requested before; instead it goes through registers, as much at a time as they hold. */
template <enum dtype T, int NT>
__device__ static inline void few_first_x(const few_params &p, const few_span &s, uint8_t *x0,
                                          int stages)
{
    constexpr int U = few_x_units(T), E = T == DTYPE_F16 ? 4 : 8, BATCH = 8;
    int log_units = s.log_wk + (U == 16 ? 4 : 3), units = (stages * p.n) << log_units;
    for (int i0 = (int)threadIdx.x; i0 < units; i0 += BATCH * (int)blockDim.x) {
        uint4 v[BATCH];
        int place[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            int i = i0 + b * (int)blockDim.x, u = i & ((1 << log_units) - 1);
            int stage = (i >> log_units) / p.n, row = (i >> log_units) - stage * p.n;
            int slot = s.slot0 + (stage << s.log_wk) + u / U;
            int k = slot * slot_elements(T) + u % U * E;
            place[b] = i < units && slot < s.slot1
                           ? stage * p.stage_size + u / U * NT * 8 * U * 16 +
                                 few_x_place<T, NT>(row, u % U)
                           : -1;
            v[b] = make_uint4(0, 0, 0, 0);
            if (place[b] >= 0 && !p.aligned)
                v[b] = few_x_slow<T>(p, row, k);
            else if (place[b] >= 0 && k < p.in)
                v[b] = *(const uint4 *)((const uint8_t *)p.x +
                                        ((size_t)row * (size_t)p.in + (size_t)k) * (16 / E));
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++)
            if (place[b] >= 0)
                *(uint4 *)(x0 + place[b]) = v[b];
    }
}

/* ---- the end of a tile ---- */

__device__ static inline float few_silu(float g)
{
    return g / (1.0f + expf(-g));
}

/* Finish and store the sum v for row `row` of w and row `col` of x (v2: for the second matrix of a
 * gated product). */
__device__ static inline void few_put(const few_params &p, const few_job &j, int row, int col,
                                      float v, float v2)
{
    size_t at = (size_t)col * j.y_stride + (size_t)row;
    if (p.scale) {
        v *= p.scale[col];
        v2 *= p.scale[col];
    }
    if (j.bias[0])
        v += j.bias[0][row];
    if (p.gated) {
        if (j.bias[1])
            v2 += j.bias[1][row];
        v = few_silu(v) * v2;
    }
    if (j.gate)
        v = few_silu(j.gate[(size_t)col * (size_t)j.out + (size_t)row]) * v;
    if (p.y_bf16)
        ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
    else if (p.add)
        ((float *)j.y)[at] += v;
    else
        ((float *)j.y)[at] = v;
}

/* The matrix row of row `r` of a tile, -1 if there is none (gated: also for rows of the second
 * matrix). */
template <int MT>
__device__ static inline int few_row(const few_params &p, const few_job &j, int tile_unit, int r)
{
    int unit = tile_unit + r / (16 * MT), o = r % (16 * MT) / 8;
    int row = few_octet<MT>(p.gated, unit, o) * 8 + r % 8;
    return row < j.out && !(p.gated && o % 2) ? row : -1;
}

/* Store a unit that belongs to a single warp, through the warp's own `sums` [8][few_sum_stride]. */
template <int MT, int NT>
__device__ static inline void few_put_unit(const few_params &p, const few_job &j,
                                           float acc[MT][NT][4], float *sums, int unit, int lane)
{
    constexpr int STRIDE = few_sum_stride(MT);
#pragma unroll
    for (int nt = 0; nt < NT; nt++) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4 * MT; i++) {
            int mt = i / 4, c = i % 4;
            sums[(lane % 4 * 2 + c % 2) * STRIDE + mt * 16 + lane / 4 + c / 2 * 8] = acc[mt][nt][c];
            acc[mt][nt][c] = 0;
        }
        __syncwarp();
        if (nt * 8 < p.n) {
#pragma unroll 1
            for (int i = lane; i < 8 * 16 * MT; i += 32) {
                int col = i / (16 * MT), r = i % (16 * MT), row = few_row<MT>(p, j, unit, r);
                if (row >= 0 && nt * 8 + col < p.n)
                    few_put(p, j, row, nt * 8 + col, sums[col * STRIDE + r],
                            p.gated ? sums[col * STRIDE + r + 8] : 0);
            }
        }
    }
}

/* The sum of a tile's element over the WK warps that share it. */
template <int MT, int NT>
__device__ static inline float few_sum_warps(const float *sums, int log_wk, int r, int col)
{
    constexpr int STRIDE = few_sum_stride(MT);
    const float *at =
        sums + ((r / (16 * MT)) << log_wk) * NT * 8 * STRIDE + col * STRIDE + r % (16 * MT);
    float v = at[0];
    for (int wk = 1; wk < 1 << log_wk; wk++)
        v += at[wk * NT * 8 * STRIDE];
    return v;
}

/* The same over the blocks that share it; `left` is [split][n][rows of a tile]. */
__device__ static inline float few_sum_splits(const float *left, int splits, size_t size, size_t at)
{
    float v = __ldcg(left + at);
    for (int s = 1; s < splits; s++)
        v += __ldcg(left + (size_t)s * size + at);
    return v;
}

/* Store the block's sums for others. Returns whether all blocks of the tile have done so. */
template <int MT, int NT>
__device__ static inline bool few_leave(const few_params &p, const few_job &j, const float *sums,
                                        float *left, int tile, int split, int rows)
{
    __shared__ bool last;
    for (int i = (int)threadIdx.x; i < rows * p.n; i += (int)blockDim.x)
        __stcg(left + (size_t)split * (size_t)(rows * p.n) + (size_t)i,
               few_sum_warps<MT, NT>(sums, j.log_wk, i % rows, i / rows));
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        int *counter = p.counter + j.counter + tile;
        last = atomicAdd(counter, 1) == j.splits - 1;
        if (last)
            *counter = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}

/* Finish a tile whose sums are spread over several warps, and possibly several blocks. */
template <int MT, int NT>
__device__ static inline void few_put_tile(const few_params &p, const few_job &j,
                                           const float acc[MT][NT][4], float *sums, int tile,
                                           int split, int units)
{
    constexpr int STRIDE = few_sum_stride(MT);
    int lane = (int)threadIdx.x % 32, rows = units * 16 * MT, size = rows * p.n;
    float *mine = sums + (int)threadIdx.x / 32 * NT * 8 * STRIDE;
    float *left = p.partial + j.partial + (size_t)tile * (size_t)j.splits * (size_t)size;
    __syncthreads(); /* no warp reads the ring any more */
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
#pragma unroll
        for (int nt = 0; nt < NT; nt++) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                mine[(nt * 8 + lane % 4 * 2 + i % 2) * STRIDE + mt * 16 + lane / 4 + i / 2 * 8] =
                    acc[mt][nt][i];
        }
    }
    __syncthreads();
    if (j.splits > 1 && !few_leave<MT, NT>(p, j, sums, left, tile, split, rows))
        return;
    for (int i = (int)threadIdx.x; i < size; i += (int)blockDim.x) {
        int r = i % rows, col = i / rows, row = few_row<MT>(p, j, tile * units, r);
        float v, v2 = 0;
        if (row < 0)
            continue;
        if (j.splits > 1) {
            v = few_sum_splits(left, j.splits, (size_t)size, (size_t)i);
            if (p.gated)
                v2 = few_sum_splits(left, j.splits, (size_t)size, (size_t)i + 8);
        } else {
            v = few_sum_warps<MT, NT>(sums, j.log_wk, r, col);
            if (p.gated)
                v2 = few_sum_warps<MT, NT>(sums, j.log_wk, r + 8, col);
        }
        few_put(p, j, row, col, v, v2);
    }
}

/* ---- the kernel ---- */

template <enum dtype T, int MT, int NT>
__global__ void __launch_bounds__(few_max_warps(T, NT) * 32)
    few_kernel(const __grid_constant__ few_params p)
{
    SHARED_MEMORY(uint8_t, ring);
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, job = 0;
    dep_launch();
    while (job + 1 < p.n_jobs && (int)blockIdx.x >= p.job[job + 1].first_block)
        job++;
    const few_job &j = p.job[job];
    int block = (int)blockIdx.x - j.first_block, split = block % j.splits, tile = block / j.splits;
    int wk = warp & ((1 << j.log_wk) - 1), wm = warp >> j.log_wk, units = p.warps >> j.log_wk;
    few_span s = { p.slots * split / j.splits, p.slots * (split + 1) / j.splits, j.log_wk };
    int stages = (s.slot1 - s.slot0 + (1 << j.log_wk) - 1) >> j.log_wk;
    int total = (j.tiles - tile + p.tile_step - 1) / p.tile_step * stages;
    int ahead = min(p.depth - 1, total);
    uint8_t *my_w = ring + warp * few_warp_size(T, MT), *x0 = ring + p.x_at;
    uint8_t *my_x = x0 + wk * NT * 8 * few_x_units(T) * 16;
    int stage = 0, pull_stage = 0, pull_tile = tile, at = 0, pull_at = 0;
    bool alone = j.log_wk == 0 && j.splits == 1;
    float acc[MT][NT][4] = {};
    few_aim<T, MT> aim;

    few_take_aim(&aim, p, j, tile * units + wm, lane);
    for (int i = 1 - p.depth; i < total; i++) {
        if (i == 0) {
            dep_wait();
            for (int first = 0; first < ahead; first += stages) /* each tile begins at slot0 */
                few_first_x<T, NT>(p, s, x0 + first * p.stage_size, min(stages, ahead - first));
        }
        if (i >= 0) {
            few_wait(p.depth - 2);
            __syncthreads();
        }
        if (i + p.depth - 1 < total) {
            int slot = s.slot0 + (pull_stage << j.log_wk) + wk;
            if (slot < s.slot1)
                few_pull(aim, j, my_w + pull_at * p.stage_size, slot, lane);
            if (i >= 0)
                few_pull_x<T, NT>(p, s, x0 + pull_at * p.stage_size, pull_stage);
            pull_at = pull_at + 1 == p.depth ? 0 : pull_at + 1;
            if (++pull_stage == stages) {
                pull_stage = 0;
                pull_tile += p.tile_step;
                few_take_aim(&aim, p, j, pull_tile * units + wm, lane);
            }
        }
        copy_async_commit(); /* even if empty, so that groups can be counted */
        if (i < 0)
            continue;
        int slot = s.slot0 + (stage << j.log_wk) + wk;
        if (slot < s.slot1)
            few_slot<T, MT, NT>(acc, my_w + at * p.stage_size, my_x + at * p.stage_size, lane,
                                slot);
        at = at + 1 == p.depth ? 0 : at + 1;
        if (++stage == stages && alone) {
            float *sums = (float *)(ring + p.depth * p.stage_size) + warp * 8 * few_sum_stride(MT);
            few_put_unit<MT, NT>(p, j, acc, sums, tile * units + wm, lane);
            stage = 0;
            tile += p.tile_step;
        }
    }
    if (!alone)
        few_put_tile<MT, NT>(p, j, acc, (float *)ring, tile, split, units);
}

template <enum dtype T, int MT, int NT>
static inline cudaError_t few_launch(const few_params *p, int blocks, size_t smem,
                                     cudaStream_t stream)
{
    static struct by_gpu allowed;
    int device = 0, most = 0;
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) /* minus the static shared memory */
        e = allow_smem(&allowed, device, few_kernel<T, MT, NT>, (size_t)most - 1024, false);
    if (e != cudaSuccess)
        return e;
    return launch(few_kernel<T, MT, NT>, dim3((unsigned)blocks), dim3((unsigned)p->warps * 32),
                  smem, stream, *p);
}

template <enum dtype T>
static inline cudaError_t few_run(const few_params *p, int mt, int nt, int blocks, size_t smem,
                                  cudaStream_t stream)
{
    switch (mt * 16 + nt) {
    case 17:
        return few_launch<T, 1, 1>(p, blocks, smem, stream);
    case 18:
        return few_launch<T, 1, 2>(p, blocks, smem, stream);
    case 19:
        return few_launch<T, 1, 3>(p, blocks, smem, stream);
    case 20:
        return few_launch<T, 1, 4>(p, blocks, smem, stream);
    case 22:
        return few_launch<T, 1, 6>(p, blocks, smem, stream);
    case 24:
        return few_launch<T, 1, 8>(p, blocks, smem, stream);
    case 33:
        return few_launch<T, 2, 1>(p, blocks, smem, stream);
    case 34:
        return few_launch<T, 2, 2>(p, blocks, smem, stream);
    case 35:
        return few_launch<T, 2, 3>(p, blocks, smem, stream);
    case 36:
        return few_launch<T, 2, 4>(p, blocks, smem, stream);
    case 38:
        return few_launch<T, 2, 6>(p, blocks, smem, stream);
    case 40:
        return few_launch<T, 2, 8>(p, blocks, smem, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

#endif
