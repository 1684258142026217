/* Products of few rows with BF16 weights on Hopper GPUs: TMA keeps a ring of weight tiles full, and
 * wgmma reads them from shared memory, with weights as its 64 rows and the rows of x as its
 * columns.
 *
 * An output is the sum of two chains: the even and the odd steps of 64 columns of K, whatever the
 * other outputs are and however many rows x has. With up to 32 rows of x, a tile of matrix rows
 * belongs to one block. The number of rows of a tile is chosen by the shape so that the tiles form
 * few, equal waves, with one block per multiprocessor: superfluous rows in a wgmma of 64 are
 * cheaper than a half-empty wave. A block takes tile after tile, and the weights of the next one
 * arrive while the results of the last one are written.
 *
 * With more rows, blocks would wait for x: a multiprocessor receives at most 62 GB/s, wherever the
 * data comes from, and each block needs all of x for each of its tiles. So two blocks form a pair
 * (a cluster). Their tile is larger, each computes one of the chains, which needs half of x, and
 * they exchange sums through each other's shared memory.
 *
 * Norms are applied as described in norm.h: warps other than those that multiply find the rows'
 * scales while the weights arrive, and a product that adds to x prepares x for the next norm.
 *
 * Weights are requested before the preceding kernel has ended, but at most FLIGHT bytes at a time,
 * because the requests for x queue behind them in the TMA unit. A block takes more than half of the
 * shared memory; otherwise two could share a multiprocessor while another one is idle.
 *
 * Tried on an H200, and slower: pairs for up to 32 rows; one of two blocks that leaves its sums in
 * global memory for the other; several warpgroups per row; one block per tile; parts of x fetched
 * for all blocks of a cluster (multicast); x in boxes of eight rows; requesting the whole ring at
 * once. */
#include "kernels/cuda/matmul_few.h"

#include "kernels/cuda/matmul_few_pair_hopper.cuh"

enum {
    BLOCKS = 132,            /* blocks of a wave: the multiprocessors of an H200 */
    STAGE_SIZE = 20 << 10,   /* most bytes of weights in a stage ... */
    X_STAGE_SIZE = 16 << 10, /* ... and of x */
    RING_SIZE = 128 << 10,   /* least size of the weights' ring if there is room */
    FLIGHT = 60 << 10,       /* bytes of weights in flight ... */
    FLIGHT_MORE = 64 << 10,  /* ... if a block has more than one tile */
    FLIGHT_PAIR = 76 << 10,  /* ... of a block of a pair */
    MAX_DEPTH = 16,
    STREAM_ROWS = 2 * FEW_ROWS, /* most rows of x per launch */
    SCALE_THREADS = 128,
    SMEM_SIZE = 227 << 10 /* most shared memory of a block */
};

/* Bytes of the ring of x: 5 to 16 steps, which cover its latency. */
static constexpr int x_ring_size(int columns)
{
    return parts(columns) > 1 ? 80 << 10 : 64 << 10;
}

template <int N>
__global__ void __launch_bounds__(threads(N), 1)
    stream_kernel(const __grid_constant__ stream_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    struct ring w = {}, x = {};
    w.size = a.rows * ROW_BYTES * a.depth * (a.gated ? 2 : 1);
    x.size = N * ROW_BYTES * a.depth;
    w.stages = a.stages;
    x.stages = a.x_stages;
    /* wgmma may read beyond the last tile of weights, but never beyond the sums. */
    float *sums = (float *)(memory + w.size * w.stages + x.size * x.stages);
    float *scale = sums + sum_columns(N) * sum_step(N);
    w.at = shared_address(memory);
    x.at = w.at + w.size * w.stages;
    w.full = shared_address(scale + N);
    w.empty = w.full + 8 * MAX_STAGES;
    x.full = w.empty + 8 * MAX_STAGES;
    x.empty = x.full + 8 * X_STAGES;
    struct exchange e = {};
    if constexpr (parts(N) > 1) {
        e.sums = sums;
        e.full = x.empty + 8 * X_STAGES;
        e.room = e.full + 8;
        e.peer_sums = peer_address(shared_address(sums));
        e.peer_full = peer_address(e.full);
        e.peer_room = peer_address(e.room);
        exchange_open<N>(a, e);
    }
    dep_launch();
#pragma unroll 1
    for (int i = (int)threadIdx.x / 32; i < w.stages + x.stages; i += threads(N) / 32)
        if (threadIdx.x % 32 == 0) {
            bool of_x = i >= w.stages;
            barrier_init(of_x ? x.full + (i - w.stages) * 8 : w.full + i * 8, 1);
            barrier_init(of_x ? x.empty + (i - w.stages) * 8 : w.empty + i * 8, a.busy / 32);
        }
    barrier_init_done();
    if constexpr (parts(N) > 1)
        pair_sync();
    else
        __syncthreads();
    constexpr int THREADS = consumers(N);
    if (threadIdx.x < THREADS) {
        bool busy = (int)threadIdx.x < a.busy;
        if constexpr (parts(N) > 1)
            consume_pair<N>(a, w, x, e, scale, busy);
        else
            consume<N>(a, w, x, sums, scale, busy);
    } else if (threadIdx.x == THREADS) {
        produce_weights<N>(a, w);
    } else if (threadIdx.x == THREADS + 32) {
        produce_x<N>(a, x);
    } else if (threadIdx.x >= THREADS + PRODUCERS) {
        if constexpr (parts(N) > 1) {
            finish_pairs<N>(a, e, scale);
        } else if (a.norm.squares) {
            find_scales<N>(a, scale);
            named_arrive(SCALED, THREADS + scalers(N));
        }
    }
#endif
}

/* Compute 1 / rms of the rows, one warp per row. */
__global__ void __launch_bounds__(SCALE_THREADS)
    scales_kernel(float *scale, const float *squares, int n, int dim, float eps)
{
    int row = ((int)blockIdx.x * SCALE_THREADS + (int)threadIdx.x) / 32;
    dep_launch();
    dep_wait();
    if (row >= n)
        return;
    float s = norm_end(norm_take(squares + (size_t)row * (dim / NORM_OCTET), dim), dim, eps);
    if (threadIdx.x % 32 == 0)
        scale[row] = s;
}

/* ---- host ---- */

template <int N> static cudaError_t launch_stream(struct device_work *w, stream_args &a)
{
    static struct by_gpu allowed;
    int size = a.rows * ROW_BYTES * a.depth * (a.gated ? 2 : 1), x_size = N * ROW_BYTES * a.depth;
    int sums = sum_columns(N) * sum_step(N) + N;
    int rest = 1024 + sums * 4 + 2 * (MAX_STAGES + X_STAGES) * 8 + 16, ring = x_ring_size(N);
    int all = least(rest + RING_SIZE + ring, SMEM_SIZE), blocks = w->gpu->n_sm / parts(N);
    int flight = parts(N) > 1 ? FLIGHT_PAIR : a.tiles > blocks ? FLIGHT_MORE : FLIGHT;
    cudaError_t e = allow_smem(&allowed, w->gpu->index, stream_kernel<N>, (size_t)all, false);
    if (e != cudaSuccess)
        return e;
    a.x_stages = least(ring / x_size, X_STAGES);
    a.stages = least((all - rest - a.x_stages * x_size) / size, MAX_STAGES);
    a.flight = least(flight / size, a.stages);
    dim3 grid((unsigned)(least(a.tiles, blocks) * parts(N))), block(threads(N));
    if (parts(N) > 1)
        return launch_pairs(stream_kernel<N>, grid, block, (size_t)all, w->stream, a);
    return launch(stream_kernel<N>, grid, block, (size_t)all, w->stream, a);
}

/* Whether this kernel supports the call; must not depend on the rows of x. */
static bool suits(const struct device_work *w, const struct few_call *c)
{
    if (w->gpu->major != 9 || c->n_jobs > DEVICE_MAX_JOBS || c->in % TILE_COLS != 0)
        return false;
    for (int i = 0; i < c->n_jobs; i++)
        if (cuda_of(c->w[i])->dtype != DTYPE_BF16 || cuda_of(c->w[i])->in != c->in)
            return false;
    return true;
}

/* Number of tiles of `rows` rows. */
static int count_tiles(const struct few_call *c, int rows)
{
    int n = 0;
    for (int i = 0; i < (c->gated ? 1 : c->n_jobs); i++)
        n += (cuda_of(c->w[i])->out + rows - 1) / rows;
    return n;
}

/* Choose the rows of a tile (of each half, in a gated product): a multiple of 8, at most 128 (64),
 * of a pair 192 (96), such that a block reads the fewest rows in all its waves; the largest among
 * equals. For a pair, rows of x count as well, because there are many. */
static int choose_rows(const struct few_call *c, int columns)
{
    int halves = c->gated ? 2 : 1, most = consumers(columns) / 2 / halves, best = most;
    int blocks = BLOCKS / parts(columns);
    int64_t least = INT64_MAX;
    for (int rows = most; rows >= 8; rows -= 8) {
        int64_t waves = (count_tiles(c, rows) + blocks - 1) / blocks;
        int64_t cost = waves * (rows * halves + (parts(columns) > 1 ? columns : 0));
        if (cost < least) {
            least = cost;
            best = rows;
        }
    }
    return best;
}

/* Choose the steps of a stage: 1 or an even divisor of all steps. */
static int choose_depth(const stream_args &a, int columns)
{
    int step_size = a.rows * (a.gated ? 2 : 1) * ROW_BYTES, depth = 1;
    for (int d = 2; d <= MAX_DEPTH; d += 2)
        if (a.steps % d == 0 && d * step_size <= STAGE_SIZE &&
            d * columns * ROW_BYTES <= X_STAGE_SIZE)
            depth = d;
    return depth;
}

/* Make the TMA maps of the weights: a box is a tile of `depth` steps. */
static bool map_weights(const struct few_call *c, stream_args *a, encode_fn encode)
{
    for (int i = 0; i < c->n_jobs; i++) {
        const struct cuda_matrix *m = cuda_of(c->w[i]);
        if (!encode_map(encode, &a->w[i], m->w, m->out, m->stride / TILE_COLS, 0,
                        (size_t)m->stride * 2, 0, a->rows, a->depth))
            return false;
    }
    return true;
}

static void fill_args(const struct few_call *c, stream_args *a, int columns)
{
    int rows = choose_rows(c, columns);
    bool pair = parts(columns) > 1;
    *a = stream_args{};
    a->n_jobs = c->gated ? 1 : c->n_jobs;
    a->in = c->in;
    a->steps = (c->in / TILE_COLS + 1) / 2 * 2;
    a->add = c->add;
    a->gated = c->gated;
    a->y_bf16 = c->y_bf16;
    a->rows = rows;
    a->up = pair ? rows : (int)GROUP; /* a warpgroup has gate and one has up, except in a pair */
    a->busy = c->gated && !pair ? 256 : (rows * (c->gated ? 2 : 1) + GROUP - 1) / GROUP * 128;
    a->quad_inverse = inverse((uint32_t)(rows / QUAD));
    for (int i = 0; i < a->n_jobs; i++) {
        a->job[i].bias = c->w[i]->bias;
        a->job[i].out = cuda_of(c->w[i])->out;
        a->job[i].y_stride = c->y_stride[i];
        a->job[i].tile0 = a->tiles;
        a->tiles += (a->job[i].out + rows - 1) / rows;
    }
    if (c->gated)
        a->job[0].bias2 = c->w[1]->bias;
}

static bool aligned(const void *p, size_t to)
{
    return (uintptr_t)p % to == 0;
}

/* Whether four elements of y may be read and written in one access. */
static bool quads_fit(const stream_args &a)
{
    for (int i = 0; i < a.n_jobs; i++) {
        const stream_job &j = a.job[i];
        if (!aligned(j.y, a.y_bf16 ? 8 : 16) || j.y_stride % QUAD || j.out % QUAD)
            return false;
    }
    return aligned(a.norm.xn, 8);
}

bool few_hopper_ready(const struct device_work *w)
{
    return w->gpu->major == 9 && find_encode_once();
}

/* Compute the scales of all rows in a kernel of its own: with more than 64 rows, each block would
 * take longer to read the sums of all octets than to read its weights. */
static void scale_rows(struct device_work *w, stream_args *a)
{
    float *scale = (float *)((int *)w->few_scratch + FEW_COUNTERS);
    unsigned blocks = (unsigned)(a->n * 32 + SCALE_THREADS - 1) / SCALE_THREADS;
    work_check(w,
               launch(scales_kernel, dim3(blocks), dim3(SCALE_THREADS), 0, w->stream, scale,
                      a->norm.squares, a->n, a->in, a->norm.eps),
               "scales of rows");
    a->norm.scales = scale;
}

static cudaError_t launch_columns(struct device_work *w, stream_args &a, int columns)
{
    switch (columns) {
    case 8:
        return launch_stream<8>(w, a);
    case 16:
        return launch_stream<16>(w, a);
    case 32:
        return launch_stream<32>(w, a);
    case 64:
        return launch_stream<64>(w, a);
    default:
        return launch_stream<128>(w, a);
    }
}

bool few_hopper(struct device_work *w, const struct few_call *c)
{
    encode_fn encode = find_encode_once();
    if (!suits(w, c) || !encode)
        return false;
    for (int at = 0; at < c->n; at += STREAM_ROWS) {
        int n = c->n - at < STREAM_ROWS ? c->n - at : (int)STREAM_ROWS;
        int columns = n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : n <= 64 ? 64 : 128;
        const uint16_t *x = (const uint16_t *)c->x + (size_t)at * (size_t)c->in;
        stream_args a;
        bool mapped;
        fill_args(c, &a, columns);
        a.n = n;
        a.norm = few_norm_from(c, (size_t)at);
        if (columns > FEW_ROWS && a.norm.squares)
            scale_rows(w, &a);
        a.depth = parts(columns) > 1 ? 1 : choose_depth(a, columns);
        for (int i = 0; i < a.n_jobs; i++)
            a.job[i].y = (uint8_t *)c->y[i] + (size_t)at * c->y_stride[i] * (c->y_bf16 ? 2 : 4);
        a.wide = quads_fit(a);
        mapped = (a.wide || !a.norm.weight) && map_weights(c, &a, encode) &&
                 encode_map(encode, &a.x, x, n, c->in / TILE_COLS, 0, (size_t)c->in * 2, 0, columns,
                            a.depth);
        work_check(w, mapped ? launch_columns(w, a, columns) : cudaErrorInvalidValue,
                   "a product of few rows");
    }
    return true;
}
