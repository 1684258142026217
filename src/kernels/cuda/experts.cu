/* The experts of a sparse layer, i.e. a mixture of experts (struct device_ops.experts).
 *
 * Everything happens on the device, so a step with experts can be recorded as a graph like any
 * other. The kernels in order: the router's product; the choice of each row's experts (one warp per
 * row); sorting (row, expert) pairs by expert and cutting them into tiles of rows with the same
 * expert (one block); gate and up of all tiles; down of all tiles; and the weighted sum of a row's
 * results, in ascending order of its experts. A place is the index of a pair after sorting. Grids
 * are large enough for any choice of experts, and blocks without a tile return at once.
 *
 * The products are those of matmul_few_kernel.cuh, except for their rows: a block finds the expert
 * of its tile in a table of pointers, and fetches the rows of x that use this expert. The division
 * of K among warps depends only on the shape, so the bits of a row do not depend on the tiles, and
 * are the same for few rows and for prompts. */
#include "kernels/cuda/experts_parts.cuh"
#include "kernels/cuda/matmul_few_kernel.cuh"

namespace {

enum {
    SORT_THREADS = 256,
    ROUTE_WARPS = SORT_THREADS / 32,
    WARPS = 8,          /* warps per block of a product */
    MOST_DEPTH = 6,     /* most stages of its ring */
    TILE_LEAST = 8,     /* fewest rows of a tile */
    TILE_MOST = 64,     /* most rows of a tile */
    F32_OUTS = WARPS,   /* outputs of a block of F32 weights */
    ONE_ROW_BLOCK = 64, /* up to so many rows, one block chooses and sorts, */
    ONE_ROW_WARPS = 4   /* with so many warps choosing, limited by shared memory */
};

/* Rows of an expert that are multiplied together: places [first, first + n). */
struct expert_tile {
    int expert, first, n;
};

/* Scratch memory of a pass; see carve. */
struct expert_room {
    float *logits;            /* [rows, n] */
    int *expert;              /* [rows, used], ascending */
    float *weight;            /* [rows, used] */
    int *place;               /* [rows, used] */
    int *row;                 /* [places] */
    int *pair;                /* [places]: row * used + number among its experts */
    struct expert_tile *tile; /* [most_tiles] */
    int *n_tiles;
    void *mid;   /* [places, ffn] BF16 or F32 */
    float *gate; /* [places, ffn], if gate and up differ in type */
    float *out;  /* [places, hidden] */
};

} // namespace

/* ---- the router ---- */

namespace {

enum { ROUTER_WARPS = 4, ROUTER_THREADS = ROUTER_WARPS * 32, ROUTER_AHEAD = 4 };

struct router_args {
    const float *w, *x;
    float *logits;
    int in, stride, n;
    const float *norm_weight; /* NULL: x needs no norm */
    const float *squares;
    float eps;
};

__device__ inline float dot4(const float4 &w, const float4 &x, float sum)
{
    return fmaf(w.w, x.w, fmaf(w.z, x.z, fmaf(w.y, x.y, fmaf(w.x, x.x, sum))));
}

/* Four of an expert's weights, times the norm's weights. */
__device__ inline float4 router_weights(const router_args &a, const float *w, int group)
{
    float4 v = ((const float4 *)w)[group];
    if (a.norm_weight) {
        float4 n = ((const float4 *)a.norm_weight)[group];
        v = make_float4(v.x * n.x, v.y * n.y, v.z * n.z, v.w * n.w);
    }
    return v;
}

/* One block per (expert, row). Each thread takes every ROUTER_THREADS-th group of four elements.
 * The first weights are loaded before the preceding kernel has ended. `in` is a multiple of 4. */
__global__ void __launch_bounds__(ROUTER_THREADS) router_kernel(const router_args a)
{
    __shared__ float sums[ROUTER_WARPS];
    int e = (int)blockIdx.x, t = (int)threadIdx.x, groups = a.in / 4;
    const float *w = a.w + (size_t)e * (size_t)a.stride;
    const float4 *x = (const float4 *)(a.x + (size_t)blockIdx.y * (size_t)a.in);
    float sum = 0, scale = 0;
    float4 ahead[ROUTER_AHEAD];
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++)
        ahead[i] = i * ROUTER_THREADS + t < groups ? router_weights(a, w, i * ROUTER_THREADS + t)
                                                   : make_float4(0, 0, 0, 0);
    dep_wait();
    dep_launch(); /* not earlier, so that the next kernel's blocks find empty SMs */
    if (a.squares && t < 32)
        scale = norm_take(a.squares + (size_t)blockIdx.y * (size_t)(a.in / NORM_OCTET), a.in);
#pragma unroll
    for (int i = 0; i < ROUTER_AHEAD; i++)
        if (i * ROUTER_THREADS + t < groups)
            sum = dot4(ahead[i], x[i * ROUTER_THREADS + t], sum);
    for (int k = ROUTER_AHEAD * ROUTER_THREADS + t; k < groups; k += ROUTER_THREADS)
        sum = dot4(router_weights(a, w, k), x[k], sum);
    sum = warp_sum(sum);
    if (t % 32 == 0)
        sums[t / 32] = sum;
    if (a.squares && t < 32)
        scale = norm_end(scale, a.in, a.eps);
    __syncthreads();
    if (t > 0)
        return;
    for (int i = 1; i < ROUTER_WARPS; i++)
        sum += sums[i];
    a.logits[(size_t)blockIdx.y * (size_t)a.n + (size_t)e] = a.squares ? sum * scale : sum;
}

} // namespace

/* ---- routing ---- */

namespace {

struct route_args {
    const float *logits;
    int *expert, *place, *row, *pair, *n_tiles;
    float *weight;
    struct expert_tile *tile;
    int rows, n, used, tile_rows;
    bool normed;
};

/* A warp's working data, in shared memory because each step depends on the one before. */
struct route_shared {
    float logits[DEVICE_MAX_EXPERTS];
    int chosen[DEVICE_MAX_USED];
};

/* Find the experts of a row and their weights. Called by a whole warp. */
__device__ inline void route_row(const route_args &a, int r, route_shared &s, int lane)
{
    const float *from = a.logits + (size_t)r * (size_t)a.n;
    size_t at = (size_t)r * (size_t)a.used;
    for (int e = lane; e < a.n; e += 32)
        s.logits[e] = from[e];
    __syncwarp();
    choose_experts(s.chosen, s.logits, a.n, a.used, lane);
    weigh_experts(a.expert + at, a.weight + at, s.chosen, s.logits, a.n, a.used, a.normed, lane);
}

struct sort_shared {
    int count[2][DEVICE_MAX_EXPERTS], tiles[2][DEVICE_MAX_EXPERTS]; /* double buffers */
    int cursor[DEVICE_MAX_EXPERTS];
};

/* Sort the pairs by expert: set places, their rows, and the tiles. Called by one block. */
__device__ inline void sort_pairs(const route_args &a, sort_shared &s)
{
    int pairs = a.rows * a.used, turn = 0, t = (int)threadIdx.x;
    for (int e = t; e < a.n; e += SORT_THREADS)
        s.count[0][e] = 0;
    __syncthreads();
    for (int i = t; i < pairs; i += SORT_THREADS)
        atomicAdd(&s.count[0][a.expert[i]], 1);
    __syncthreads();
    for (int e = t; e < a.n; e += SORT_THREADS) {
        s.cursor[e] = s.count[0][e];
        s.tiles[0][e] = (s.count[0][e] + a.tile_rows - 1) / a.tile_rows;
    }
    __syncthreads();
    for (int step = 1; step < a.n; step *= 2, turn ^= 1) { /* prefix sums over experts */
        for (int e = t; e < a.n; e += SORT_THREADS) {
            int before = e - step;
            s.count[turn ^ 1][e] = s.count[turn][e] + (before >= 0 ? s.count[turn][before] : 0);
            s.tiles[turn ^ 1][e] = s.tiles[turn][e] + (before >= 0 ? s.tiles[turn][before] : 0);
        }
        __syncthreads();
    }
    for (int e = t; e < a.n; e += SORT_THREADS) {
        int n = s.cursor[e], first = s.count[turn][e] - n;
        int tile = s.tiles[turn][e] - (n + a.tile_rows - 1) / a.tile_rows;
        for (int i = 0; i < n; i += a.tile_rows)
            a.tile[tile++] = { e, first + i, min(a.tile_rows, n - i) };
        s.cursor[e] = first;
    }
    if (t == 0)
        *a.n_tiles = s.tiles[turn][a.n - 1];
    __syncthreads();
    for (int i = t; i < pairs; i += SORT_THREADS) {
        int place = atomicAdd(&s.cursor[a.expert[i]], 1); /* in any order: each has its own bits */
        a.place[i] = place;
        a.row[place] = i / a.used;
        a.pair[place] = i;
    }
}

__global__ void __launch_bounds__(SORT_THREADS) route_kernel(const route_args a)
{
    __shared__ struct route_shared each[ROUTE_WARPS];
    int warp = (int)threadIdx.x / 32, r = (int)blockIdx.x * ROUTE_WARPS + warp;
    dep_launch();
    dep_wait();
    if (r < a.rows)
        route_row(a, r, each[warp], (int)threadIdx.x % 32);
}

/* A lone row's pairs are sorted already, and each pair is a tile. Called by the warp that chose. */
__device__ inline void one_row_tiles(const route_args &a, const route_shared &s, int lane)
{
    for (int k = lane; k < a.used; k += 32) {
        int rank = rank_of_expert(s.chosen, a.used, k);
        a.tile[rank] = { s.chosen[k], rank, 1 };
        a.place[rank] = a.pair[rank] = rank;
        a.row[rank] = 0;
    }
    if (lane == 0)
        *a.n_tiles = a.used;
}

/* One block sorts; with `routes` it also chooses the experts. */
__global__ void __launch_bounds__(SORT_THREADS) sort_kernel(const route_args a, bool routes)
{
    __shared__ struct route_shared each[ONE_ROW_WARPS];
    __shared__ struct sort_shared s;
    int warp = (int)threadIdx.x / 32;
    dep_launch();
    dep_wait();
    for (int r = warp; warp < ONE_ROW_WARPS && r < a.rows && routes; r += ONE_ROW_WARPS)
        route_row(a, r, each[warp], (int)threadIdx.x % 32);
    if (routes && a.rows == 1) {
        if (warp == 0)
            one_row_tiles(a, each[0], (int)threadIdx.x % 32);
        return;
    }
    __syncthreads();
    sort_pairs(a, s);
}

/* ---- the products ---- */

/* p: as in matmul_few, with one job; its matrices are replaced by those of the tile's expert. */
struct expert_args {
    struct few_params p;
    const struct expert_plane *plane[2]; /* [experts]; gate and up, or the same twice */
    const struct expert_tile *tile;
    const int *n_tiles;
    const int *row;       /* row of x for each place; NULL: the place itself */
    const float *squares; /* of x's rows (norm.h); NULL: x is scaled already */
    float eps;
};

/* Fetch x of a stage; rows[] are the rows of x. Called by the whole block. */
template <enum dtype T, int NT>
__device__ inline void pull_rows(const few_params &p, uint8_t *to, int stage, int log_wk,
                                 const int *rows, int n)
{
    constexpr int U = few_x_units(T), E = T == DTYPE_F16 ? 4 : 8;
    int log_units = log_wk + (U == 16 ? 4 : 3), units = n << log_units, slot0 = stage << log_wk;
    for (int i = (int)threadIdx.x; i < units; i += (int)blockDim.x) {
        int col = i >> log_units, u = i & ((1 << log_units) - 1), wk = u / U;
        int k = slot0 * slot_elements(T) + u * E;
        uint8_t *place = to + wk * NT * 8 * U * 16 + few_x_place<T, NT>(col, u % U);
        if (slot0 + wk >= p.slots)
            continue;
        if (p.aligned)
            copy_async16(place,
                         (const uint8_t *)p.x +
                             ((size_t)rows[col] * (size_t)p.in + (size_t)(k < p.in ? k : 0)) *
                                 (16 / E),
                         k < p.in ? 16 : 0);
        else
            *(uint4 *)place = few_x_slow<T>(p, rows[col], k);
    }
}

/* The tile's job: its expert's matrices, and its rows of y. */
__device__ inline few_job job_of_tile(const expert_args &a, const expert_tile &t)
{
    few_job j = a.p.job[0];
    for (int i = 0; i < 2; i++) {
        j.w[i] = a.plane[i][t.expert].w;
        j.scale[i] = a.plane[i][t.expert].scale;
    }
    j.y = (uint8_t *)j.y + (size_t)t.first * j.y_stride * (a.p.y_bf16 ? 2 : 4);
    if (j.gate)
        j.gate += (size_t)t.first * (size_t)j.out;
    return j;
}

template <enum dtype T, int MT, int NT>
__global__ void __launch_bounds__(WARPS * 32) expert_kernel(const __grid_constant__ expert_args a)
{
    SHARED_MEMORY(uint8_t, ring);
    __shared__ int rows[NT * 8];
    __shared__ float scale[NT * 8];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, at = 0, pull_at = 0;
    dep_launch();
    dep_wait();
    if ((int)blockIdx.y >= *a.n_tiles)
        return;
    const expert_tile tile = a.tile[blockIdx.y];
    few_params p = a.p;
    const few_job j = job_of_tile(a, tile);
    int log_wk = j.log_wk, wk = warp & ((1 << log_wk) - 1), units = WARPS >> log_wk;
    int stages = (p.slots + (1 << log_wk) - 1) >> log_wk;
    uint8_t *my_w = ring + warp * few_warp_size(T, MT), *x0 = ring + p.x_at;
    uint8_t *my_x = x0 + wk * NT * 8 * few_x_units(T) * 16;
    float acc[MT][NT][4] = {};
    few_aim<T, MT> aim;

    p.n = tile.n;
    p.scale = a.squares ? scale : NULL;
    if ((int)threadIdx.x < tile.n)
        rows[threadIdx.x] =
            a.row ? a.row[tile.first + (int)threadIdx.x] : tile.first + (int)threadIdx.x;
    few_take_aim(&aim, p, j, (int)blockIdx.x * units + (warp >> log_wk), lane);
    __syncthreads();
    for (int i = 1 - p.depth; i < stages; i++) {
        int pull = i + p.depth - 1, slot = (pull << log_wk) + wk;
        if (i >= 0) {
            few_wait(p.depth - 2);
            __syncthreads();
        }
        if (pull < stages) {
            if (slot < p.slots)
                few_pull(aim, j, my_w + pull_at * p.stage_size, slot, lane);
            pull_rows<T, NT>(p, x0 + pull_at * p.stage_size, pull, log_wk, rows, tile.n);
            pull_at = pull_at + 1 == p.depth ? 0 : pull_at + 1;
        }
        copy_async_commit(); /* even if empty, so that groups can be counted */
        if (i < 0)
            continue;
        slot = (i << log_wk) + wk;
        if (slot < p.slots)
            few_slot<T, MT, NT>(acc, my_w + at * p.stage_size, my_x + at * p.stage_size, lane,
                                slot);
        at = at + 1 == p.depth ? 0 : at + 1;
    }
    for (int c = warp; a.squares && c < tile.n; c += WARPS) {
        const float *of_row = a.squares + (size_t)rows[c] * (size_t)(p.in / NORM_OCTET);
        float v = norm_end(norm_take(of_row, p.in), p.in, a.eps);
        if (lane == 0)
            scale[c] = v;
    }
    few_put_tile<MT, NT>(p, j, acc, (float *)ring, (int)blockIdx.x, 0, units);
}

/* F32 weights, where speed does not matter: one warp per output; a lane takes every 32nd element.
 */
__global__ void __launch_bounds__(WARPS * 32)
    expert_f32_kernel(const __grid_constant__ expert_args a)
{
    int o = (int)blockIdx.x * F32_OUTS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    dep_launch();
    dep_wait();
    if ((int)blockIdx.y >= *a.n_tiles || o >= a.p.job[0].out)
        return;
    const expert_tile tile = a.tile[blockIdx.y];
    const few_job j = job_of_tile(a, tile);
    size_t stride = (size_t)a.p.row_units * 4;
    const float *w = (const float *)j.w[0] + (size_t)o * stride;
    const float *up = (const float *)j.w[1] + (size_t)o * stride;
    for (int c = 0; c < tile.n; c++) {
        int place = tile.first + c, row = a.row ? a.row[place] : place;
        const float *x = (const float *)a.p.x + (size_t)row * (size_t)a.p.in;
        float v = 0, v2 = 0;
        for (int k = lane; k < a.p.in; k += 32) {
            v = fmaf(w[k], x[k], v);
            if (a.p.gated)
                v2 = fmaf(up[k], x[k], v2);
        }
        v = warp_sum(v);
        v2 = warp_sum(v2);
        if (lane == 0)
            few_put(a.p, j, o, c, v, v2);
    }
}

/* ---- the sum ---- */

struct sum_args {
    float *y;
    const float *out, *weight;
    const int *place;
    int rows, used, hidden;
    size_t y_stride;
    bool add;
    struct few_norm norm; /* weight: of the next norm; a row is whole warps */
};

__global__ void __launch_bounds__(ELEMENT_THREADS) sum_kernel(const sum_args a)
{
    size_t n = (size_t)a.rows * (size_t)a.hidden;
    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * ELEMENT_THREADS + threadIdx.x; i < n;
         i += (size_t)gridDim.x * ELEMENT_THREADS) {
        size_t row, col;
        float sum = 0;
        split(i, (size_t)a.hidden, &row, &col);
#pragma unroll 8
        for (int k = 0; k < a.used; k++) {
            size_t pair = row * (size_t)a.used + (size_t)k;
            sum = fmaf(a.weight[pair], a.out[(size_t)a.place[pair] * (size_t)a.hidden + col], sum);
        }
        float *y = a.y + row * a.y_stride + col;
        sum = a.add ? *y + sum : sum;
        *y = sum;
        if (a.norm.weight) {
            float squares = octet_squares(sum, 1);
            a.norm.xn[i] = (uint16_t)bf16_bits(sum * a.norm.weight[col]);
            if (col % NORM_OCTET == 0)
                a.norm.sums[i / NORM_OCTET] = squares;
        }
    }
}

/* ---- launching ---- */

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Rows of a tile: twice the average number of rows per expert, so that most experts have one tile.
 */
static int tile_rows_of(const struct expert_weights *e, int n)
{
    int rows = TILE_LEAST;
    while (rows < TILE_MOST && rows < n && (int64_t)rows * e->n < 2 * (int64_t)n * e->used)
        rows *= 2;
    return rows;
}

static int most_tiles(int experts, int used, int rows, int tile_rows)
{
    int pairs = rows * used;
    return (experts < pairs ? experts : pairs) + pairs / tile_rows;
}

template <enum dtype T, int MT, int NT>
static cudaError_t launch_tiles(expert_args *a, dim3 grid, cudaStream_t stream)
{
    static struct by_gpu allowed;
    int device = 0, most = 0;
    size_t x = (size_t)(NT * 8 * few_x_units(T) * 16) << a->p.job[0].log_wk, stage, smem;
    size_t sums = (size_t)(WARPS * NT * 8 * few_sum_stride(MT)) * sizeof(float);
    cudaError_t e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess) /* minus the static shared memory */
        e = allow_smem(&allowed, device, expert_kernel<T, MT, NT>, (size_t)most - 1024, false);
    if (e != cudaSuccess)
        return e;
    a->p.x_at = WARPS * few_warp_size(T, MT);
    stage = (size_t)a->p.x_at + x;
    a->p.stage_size = (int)stage;
    /* Two blocks per multiprocessor; three with few rows, so that all blocks of a lone row run at
     * once. */
    a->p.depth = (int)((size_t)(most - 1024) / (NT <= 2 ? 3 : 2) / stage);
    a->p.depth = a->p.depth > MOST_DEPTH ? (int)MOST_DEPTH : a->p.depth;
    if (a->p.depth < 3)
        a->p.depth = (size_t)(most - 1024) / stage < 3 ? 2 : 3;
    smem = (size_t)a->p.depth * stage;
    return launch(expert_kernel<T, MT, NT>, grid, dim3(WARPS * 32), smem > sums ? smem : sums,
                  stream, *a);
}

template <enum dtype T>
static cudaError_t launch_type(expert_args *a, int tile_rows, int tiles, cudaStream_t stream)
{
    int mt = tile_rows == TILE_MOST ? 2 : 1;
    int octets = (a->p.gated ? 1 : 2) * mt * (WARPS >> a->p.job[0].log_wk);
    dim3 grid((unsigned)divide_up(a->p.job[0].octets, octets), (unsigned)tiles);
    switch (tile_rows) {
    case 8:
        return launch_tiles<T, 1, 1>(a, grid, stream);
    case 16:
        return launch_tiles<T, 1, 2>(a, grid, stream);
    case 32:
        return launch_tiles<T, 1, 4>(a, grid, stream);
    default:
        return launch_tiles<T, 2, 8>(a, grid, stream);
    }
}

static cudaError_t launch_product(expert_args *a, enum dtype t, int tile_rows, int tiles,
                                  cudaStream_t stream)
{
    switch (t) {
    case DTYPE_BF16:
        return launch_type<DTYPE_BF16>(a, tile_rows, tiles, stream);
    case DTYPE_F16:
        return launch_type<DTYPE_F16>(a, tile_rows, tiles, stream);
    case DTYPE_Q8_0:
        return launch_type<DTYPE_Q8_0>(a, tile_rows, tiles, stream);
    case DTYPE_Q4_0:
        return launch_type<DTYPE_Q4_0>(a, tile_rows, tiles, stream);
    case DTYPE_Q4_K:
        return launch_type<DTYPE_Q4_K>(a, tile_rows, tiles, stream);
    default:
        return launch(expert_f32_kernel,
                      dim3((unsigned)divide_up(a->p.job[0].out, F32_OUTS), (unsigned)tiles),
                      dim3(WARPS * 32), 0, stream, *a);
    }
}

/* One pass over some rows of a call. */
struct expert_pass {
    const struct expert_weights *e;
    const struct expert_table *table;
    const float *squares; /* of unscaled rows (norm.h), or NULL */
    float eps;
    struct expert_room room;
    int rows, tile_rows, tiles;
};

/* y [places, out] = role0 x, or silu(role0 x) * (role1 x) if the roles differ. rows: row of x for
 * each place; NULL: the place itself. gate: multiply the result by silu(gate). */
static void product(struct device_work *w, const struct expert_pass *s, int role0, int role1,
                    const void *x, const int *rows, void *y, enum dtype y_dtype, const float *gate)
{
    const struct matrix *of[] = { s->e->gate, s->e->up, s->e->down };
    const struct cuda_matrix *m = cuda_of(of[role0]);
    size_t x_size = m->dtype == DTYPE_F16 || m->dtype == DTYPE_F32 ? 4 : 2;
    int slots = slots_of(m->dtype, m->in), log_wk = 2;
    expert_args a = {};
    while (log_wk > 0 && slots < 1 << log_wk)
        log_wk--;
    a.p.in = m->in;
    a.p.slots = slots;
    a.p.row_units = (uint32_t)((size_t)m->stride * (m->dtype == DTYPE_F32 ? 4 : 2) / 16);
    a.p.x = x;
    a.p.aligned = (size_t)m->in * x_size % 16 == 0 && ((uintptr_t)x & 15) == 0;
    a.p.warps = WARPS;
    a.p.gated = role0 != role1;
    a.p.y_bf16 = y_dtype == DTYPE_BF16;
    a.p.n_jobs = 1;
    a.p.job[0].y = y;
    a.p.job[0].y_stride = (size_t)m->out;
    a.p.job[0].gate = gate;
    a.p.job[0].out = m->out;
    a.p.job[0].octets = octets_of(m->out);
    a.p.job[0].log_wk = log_wk;
    a.p.job[0].splits = 1;
    a.plane[0] = s->table->plane + (size_t)role0 * (size_t)s->e->n;
    a.plane[1] = s->table->plane + (size_t)role1 * (size_t)s->e->n;
    a.tile = s->room.tile;
    a.n_tiles = s->room.n_tiles;
    a.row = rows;
    a.squares = role0 < 2 ? s->squares : NULL;
    a.eps = s->eps;
    work_check(w, launch_product(&a, m->dtype, s->tile_rows, s->tiles, w->stream), "experts");
}

static void choose_and_sort(struct device_work *w, const struct expert_pass *s)
{
    const struct expert_room *r = &s->room;
    route_args a = {};
    bool alone = s->rows <= ONE_ROW_BLOCK;
    a.logits = r->logits;
    a.expert = r->expert;
    a.place = r->place;
    a.row = r->row;
    a.pair = r->pair;
    a.n_tiles = r->n_tiles;
    a.weight = r->weight;
    a.tile = r->tile;
    a.rows = s->rows;
    a.n = s->e->n;
    a.used = s->e->used;
    a.tile_rows = s->tile_rows;
    a.normed = s->e->normed;
    if (!alone)
        work_check(w,
                   launch(route_kernel, dim3((unsigned)divide_up(s->rows, ROUTE_WARPS)),
                          dim3(SORT_THREADS), 0, w->stream, a),
                   "the choice of experts");
    work_check(w, launch(sort_kernel, dim3(1), dim3(SORT_THREADS), 0, w->stream, a, alone),
               "the choice of experts");
}

/* ---- scratch ---- */

/* Take the scratch memory from base; if it is NULL, only count the bytes. */
static size_t carve(struct expert_room *r, uint8_t *base, int rows, int experts, int used,
                    int hidden, int ffn)
{
    size_t n = (size_t)rows, pairs = n * (size_t)used, f = sizeof(float), at = 0;
    struct {
        void *field;
        size_t size;
    } parts[] = {
        { &r->logits, f * n * (size_t)experts },
        { &r->expert, sizeof(int) * pairs },
        { &r->weight, f * pairs },
        { &r->place, sizeof(int) * pairs },
        { &r->row, sizeof(int) * pairs },
        { &r->pair, sizeof(int) * pairs },
        { &r->tile, sizeof *r->tile * (size_t)most_tiles(experts, used, rows, TILE_LEAST) },
        { &r->n_tiles, sizeof(int) },
        { &r->mid, f * pairs * (size_t)ffn },
        { &r->gate, f * pairs * (size_t)ffn },
        { &r->out, f * pairs * (size_t)hidden },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = base ? base + at : NULL;
        *(void **)parts[i].field = p;
        at += (parts[i].size + 255) / 256 * 256;
    }
    return at;
}

/* Most rows of a pass. */
static int rows_at_once(int rows)
{
    return rows < EXPERT_ROWS ? rows : (int)EXPERT_ROWS;
}

} // namespace

size_t experts_scratch_size(const struct work_shape *s)
{
    struct expert_room none;
    return s->n_experts > 0 ? carve(&none, NULL, rows_at_once(s->rows), s->n_experts, s->n_used,
                                    s->hidden, s->expert_ffn)
                            : 0;
}

/* ---- the operation ---- */

/* Router logits of few rows, whose width is a multiple of 4. */
static void route_few(struct device_work *w, const struct expert_pass *s, const float *x,
                      const float *norm_weight)
{
    const struct cuda_matrix *m = cuda_of(&s->e->router);
    router_args a = { (const float *)m->w, x,          s->room.logits, m->in, m->stride, s->e->n,
                      norm_weight,         s->squares, s->eps };
    work_check(w,
               launch(router_kernel, dim3((unsigned)s->e->n, (unsigned)s->rows),
                      dim3(ROUTER_THREADS), 0, w->stream, a),
               "the router");
}

static void route(struct device_work *w, const struct expert_pass *s, const struct expert_call *c,
                  const float *x)
{
    const struct matrix *router = &s->e->router;
    size_t n = (size_t)s->e->n;
    struct matmul_job job = { router, s->room.logits, n };
    if (c->bulk)
        matmul_many(w, router, s->room.logits, DTYPE_F32, n, x, (size_t)router->in, s->rows, false);
    else if (router->in % 4 == 0)
        route_few(w, s, x, c->squares ? c->norm_weight : NULL);
    else
        matmul_few(w, &job, 1, x, s->rows, false);
}

/* Add up the results of a row's experts, multiplied by their weights. */
static void add_up(struct device_work *w, const struct expert_pass *s, const struct expert_call *c,
                   float *y, const struct few_norm *norm)
{
    size_t width = (size_t)cuda_of(&s->e->down[0])->out; /* the whole row, or this GPU's part */
    sum_args a = {};
    a.y = y;
    a.out = s->room.out;
    a.weight = s->room.weight;
    a.place = s->room.place;
    a.rows = s->rows;
    a.used = s->e->used;
    a.hidden = (int)width;
    a.y_stride = (size_t)s->e->router.in;
    a.add = c->add;
    a.norm = *norm;
    work_check(w,
               launch(sum_kernel, grid_for(w, (size_t)s->rows * width), dim3(ELEMENT_THREADS), 0,
                      w->stream, a),
               "the sum of experts");
}

/* Choose experts, sort pairs, and compute gate and up of all places. */
static void multiply_up(struct device_work *w, const struct expert_pass *s, const void *xn)
{
    const struct expert_weights *e = s->e;
    const struct expert_room *r = &s->room;
    enum dtype mid = few_x_dtype(&e->down[0]);
    choose_and_sort(w, s);
    if (cuda_of(&e->gate[0])->dtype == cuda_of(&e->up[0])->dtype) {
        product(w, s, 0, 1, xn, r->row, r->mid, mid, NULL);
    } else {
        product(w, s, 0, 0, xn, r->row, r->gate, DTYPE_F32, NULL);
        product(w, s, 1, 1, xn, r->row, r->mid, mid, r->gate);
    }
}

/* Set up the pass over rows [first, first + rows) of a call. */
static struct expert_pass open_pass(struct device_work *w, const struct expert_call *c, int first,
                                    int rows)
{
    const struct expert_weights *e = c->e;
    size_t octets = (size_t)e->router.in / NORM_OCTET;
    struct expert_pass s = {};
    s.e = e;
    s.table = (const struct expert_table *)e->handle;
    s.squares = c->squares ? c->squares + (size_t)first * octets : NULL;
    s.eps = c->eps;
    s.rows = rows;
    s.tile_rows = tile_rows_of(e, rows);
    s.tiles = most_tiles(e->n, e->used, rows, s.tile_rows);
    carve(&s.room, (uint8_t *)w->expert_scratch, rows_at_once(w->shape.rows), e->n, e->used,
          e->router.in, cuda_of(&e->gate[0])->out);
    return s;
}

/* The input rows of gate and up, from row `first` of the call on. */
static const void *rows_from(const struct expert_call *c, int first)
{
    size_t wide = few_x_dtype(&c->e->gate[0]) == DTYPE_F32 ? 4 : 2;
    return (const uint8_t *)c->xn + (size_t)first * (size_t)c->e->router.in * wide;
}

void experts_rows(struct device_work *w, const struct expert_call *c)
{
    const struct expert_weights *e = c->e;
    size_t hidden = (size_t)e->router.in, octets = hidden / NORM_OCTET;
    int most = rows_at_once(w->shape.rows);
    for (int first = 0; first < c->n; first += most) {
        struct expert_pass s = open_pass(w, c, first, c->n - first < most ? c->n - first : most);
        size_t at = (size_t)first;
        const void *xn = rows_from(c, first);
        float *y = c->y + at * hidden;
        struct few_norm next = c->next;
        if (next.weight) {
            next.xn += at * hidden;
            next.sums += at * octets;
        }
        route(w, &s, c, c->x + at * hidden);
        next.squares = s.squares;
        next.eps = s.eps;
        struct one_row_call one_row = {
            e, s.table, s.room.logits, (const uint16_t *)xn, (uint16_t *)s.room.mid, y, c->add, next
        };
        if (s.rows == 1 && !c->bulk && experts_one_row(w, &one_row))
            continue;
        multiply_up(w, &s, xn);
        product(w, &s, 2, 2, s.room.mid, NULL, s.room.out, DTYPE_F32, NULL);
        add_up(w, &s, c, y, &next);
    }
}

/* ---- several GPUs: each has some outputs of every expert ---- */

int experts_most_rows(const struct device_work *w)
{
    return rows_at_once(w->shape.rows);
}

void experts_part_up(struct device_work *w, const struct expert_call *c, int first, int rows,
                     void *part)
{
    struct expert_pass s = open_pass(w, c, first, rows);
    enum dtype mid = few_x_dtype(&c->e->down[0]);
    int out = cuda_of(&c->e->gate[0])->out, pairs = rows * c->e->used;
    route(w, &s, c, c->x + (size_t)first * (size_t)c->e->router.in);
    if (out == 0) { /* no outputs here, but the sum needs the places */
        choose_and_sort(w, &s);
        return;
    }
    multiply_up(w, &s, rows_from(c, first));
    gather_rows(w, (float *)part, (const float *)s.room.mid, s.room.place, pairs,
                mid == DTYPE_F32 ? out : out / 2);
}

void experts_part_down(struct device_work *w, const struct expert_call *c, int first, int rows,
                       const void *mid)
{
    struct expert_pass s = open_pass(w, c, first, rows);
    struct few_norm none = {};
    if (cuda_of(&c->e->down[0])->out == 0)
        return;
    product(w, &s, 2, 2, mid, s.room.pair, s.room.out, DTYPE_F32, NULL);
    add_up(w, &s, c, c->y + (size_t)first * (size_t)c->e->router.in, &none);
}

/* ---- loading weights ---- */

/* Check that all experts' matrices of a role have the type and shape of the first. */
static enum pv_status check_role(const struct matrix *m, int n, struct pv_error *err)
{
    for (int i = 1; i < n; i++)
        if (m[i].dtype != m[0].dtype || m[i].out != m[0].out || m[i].in != m[0].in)
            return fail(
                err, PV_E_UNSUPPORTED,
                "experts of one layer have the types %s and %s, which is not supported on a GPU",
                dtype_name(m[0].dtype), dtype_name(m[i].dtype));
    return PV_OK;
}

enum pv_status experts_take(struct device *dev, struct expert_weights *e, struct pv_error *err)
{
    const struct matrix *role[] = { e->gate, e->up, e->down };
    size_t n = (size_t)e->n, size = 3 * n * sizeof(struct expert_plane);
    struct expert_plane *plane = (struct expert_plane *)mem_alloc(size);
    struct expert_table *table = (struct expert_table *)mem_zalloc(sizeof *table);
    enum pv_status s = plane && table ? PV_OK : fail_nomem(err, size + sizeof *table);
    void *there = NULL;
    for (int i = 0; i < 3 && !s; i++) {
        s = check_role(role[i], e->n, err);
        for (size_t k = 0; k < n && !s; k++) {
            const struct cuda_matrix *m = cuda_of(&role[i][k]);
            plane[(size_t)i * n + k] = { (const uint8_t *)m->w, (const uint8_t *)m->scale };
        }
    }
    if (!s && few_x_dtype(&e->gate[0]) != few_x_dtype(&e->up[0]))
        s = fail(err, PV_E_UNSUPPORTED,
                 "gate and up of experts are %s and %s, which is not supported on a GPU",
                 dtype_name(e->gate[0].dtype), dtype_name(e->up[0].dtype));
    if (!s)
        s = device_alloc(dev, &there, size, err);
    if (!s) {
        dev->ops->upload(dev, there, plane, size);
        table->plane = (struct expert_plane *)there;
        e->handle = table;
    } else {
        mem_free(table);
    }
    mem_free(plane);
    return s;
}

void experts_drop(struct device *dev, struct expert_weights *e)
{
    struct expert_table *table = (struct expert_table *)e->handle;
    if (!table)
        return;
    dev->ops->free(dev, table->plane);
    mem_free(table);
    e->handle = NULL;
}

void experts_op(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                int n)
{
    enum dtype t = few_x_dtype(&e->gate[0]);
    size_t hidden = (size_t)e->router.in;
    struct expert_call c = {};
    if (t != DTYPE_F32)
        convert_rows(w, w->xn, t, hidden, x, DTYPE_F32, hidden, n, (int)hidden);
    c.e = e;
    c.x = x;
    c.xn = t == DTYPE_F32 ? (const void *)x : w->xn;
    c.y = y;
    c.n = n;
    experts_rows(w, &c);
}
