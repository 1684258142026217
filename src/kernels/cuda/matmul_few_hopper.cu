/* Products of few rows with BF16 weights on Hopper GPUs: the copy engine keeps a ring of weight
 * tiles full, wgmma reads them from shared memory, weights as its 64 rows and the rows of x as its
 * columns.
 *
 * A block has a tile of the matrix's rows to itself and walks all of K, so nothing is summed across
 * blocks. How many rows a tile has is chosen by the shape so that the tiles come out as few equal
 * waves of blocks, one to a multiprocessor: a wgmma of 64 rows whose last ones are other numbers is
 * cheaper than a wave that is half empty. The bits of an output are those of one chain of sums over
 * K, whatever lies beside it. (Tried and slower on an H200: tiles cut along K and summed by the
 * last block to arrive, several warpgroups to a row, persistent blocks.)
 *
 * Weights are asked for before the kernel in front has ended. A block takes more than half of the
 * shared memory: two on one multiprocessor would leave another one idle. */
#include "kernels/cuda/matmul_few.h"

#ifdef PV_CUDASIM

bool few_hopper(struct device_work *w, const struct few_call *c)
{
    (void)w, (void)c;
    return false;
}

#else

#include "kernels/cuda/hopper.h"

enum {
    GROUP = 64,      /* rows of a warpgroup: wgmma's M */
    BLOCKS = 132,    /* of a wave: as many as an H200 has multiprocessors */
    CONSUMERS = 256, /* threads: two warpgroups that multiply */
    THREADS = CONSUMERS + 32,
    ROW_BYTES = TILE_COLS * 2,
    STAGE_SIZE = 16 << 10, /* weights of a stage, about */
    MAX_STAGES = 12,
    RING_SIZE = 160 << 10,
    MAX_DEPTH = 16,
    OVERHANG = GROUP * ROW_BYTES /* what wgmma reads beyond a tile */
};

struct stream_job {
    void *y;
    size_t y_stride;
    const float *bias, *bias2;
    int out, tile0; /* its first tile */
};

struct stream_args {
    CUtensorMap w[DEVICE_MAX_JOBS], x;
    struct stream_job job[DEVICE_MAX_JOBS];
    int n_jobs, n, steps; /* steps: of TILE_COLS columns */
    int tiles;
    int rows;          /* of a tile; of a gated product, of each half */
    int depth, stages; /* steps of a stage; stages of the ring */
    int add, gated, y_bf16;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int N>
__device__ static inline void multiply(float (&c)[N / 2], uint64_t a, uint64_t b, int add)
{
    if constexpr (N == 8)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, "
                     "%4, %5, p, 1, 1, 0, 0;\n}"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 16)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7}, %8, %9, p, 1, 1, 0, 0;\n}"
                     : EIGHT(c, 0)
                     : "l"(a), "l"(b), "r"(add));
    else if constexpr (N == 32)
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
                     "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 0, "
                     "0;\n}"
                     : EIGHT(c, 0), EIGHT(c, 8)
                     : "l"(a), "l"(b), "r"(add));
    else
        wgmma_shared<N>(c, a, b, add);
}

__device__ static inline int job_of(const stream_args &a, int tile)
{
    int j = 0;
    while (j + 1 < a.n_jobs && tile >= a.job[j + 1].tile0)
        j++;
    return j;
}

/* Bytes: of a stage's weights (both halves of a gated product), and of all of it. */
__device__ static inline int weights_size(const stream_args &a)
{
    return a.rows * ROW_BYTES * a.depth * (a.gated ? 2 : 1);
}

template <int N> __device__ static inline int stage_size(const stream_args &a)
{
    return weights_size(a) + N * ROW_BYTES * a.depth;
}

__device__ static inline void load_weights(const stream_args &a, uint32_t to, uint32_t full, int j,
                                           int row, int step)
{
    load_box3(to, &a.w[j], full, 0, row, step);
    if (a.gated)
        load_box3(to + a.rows * ROW_BYTES * a.depth, &a.w[1], full, 0, row, step);
}

/* One thread: the stages of the tile. The first round of the ring is asked for before the kernel in
 * front has ended, but for x. */
template <int N>
__device__ static inline void produce(const stream_args &a, uint32_t base, uint32_t full)
{
    uint32_t empty = full + a.stages * 8;
    int size = stage_size<N>(a), x_at = weights_size(a), count = a.steps / a.depth;
    int j = job_of(a, (int)blockIdx.x), row = ((int)blockIdx.x - a.job[j].tile0) * a.rows;
    int early = count < a.stages ? count : a.stages;
    for (int i = 0; i < early; i++) {
        barrier_arrive_expect(full + i * 8, size);
        load_weights(a, base + i * size, full + i * 8, j, row, i * a.depth);
    }
    dep_wait();
    asm volatile("fence.proxy.async;" ::: "memory");
    for (int i = 0; i < early; i++)
        load_box3(base + i * size + x_at, &a.x, full + i * 8, 0, 0, i * a.depth);
    for (int i = early, stage = 0, parity = 0; i < count; i++) {
        barrier_wait(empty + stage * 8, parity);
        barrier_arrive_expect(full + stage * 8, size);
        load_weights(a, base + stage * size, full + stage * 8, j, row, i * a.depth);
        load_box3(base + stage * size + x_at, &a.x, full + stage * 8, 0, 0, i * a.depth);
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
}

/* Where a thread's numbers lie in its warpgroup's rows: register 4 j + 2 i + e is row `row + 8 i`,
 * column 8 j + col + e. */
struct place {
    int row, col;
};

__device__ static inline void store(const stream_args &a, const stream_job &j, int col, int row,
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

/* Half h of the tile's rows: plain tiles have their rows 64 h and on there, gated ones the gate
 * (0) and what it opens (1). */
template <int N>
__device__ static inline void finish_plain(const stream_args &a, const float (&c)[N / 2],
                                           struct place p, int half, int tile)
{
    const stream_job &j = a.job[job_of(a, tile)];
    int row0 = (tile - j.tile0) * a.rows, in_tile = half * GROUP + p.row;
#pragma unroll
    for (int r = 0; r < N / 2; r++) {
        int col = r / 4 * 8 + p.col + r % 2, i = in_tile + r / 2 % 2 * 8, row = row0 + i;
        if (col < a.n && i < a.rows && row < j.out)
            store(a, j, col, row, j.bias ? c[r] + j.bias[row] : c[r]);
    }
}

/* The halves meet in `swap` [N][64]. */
template <int N>
__device__ static inline void finish_gated(const stream_args &a, const float (&c)[N / 2],
                                           struct place p, int half, int tile, float *swap)
{
    const stream_job &j = a.job[0];
    int row0 = tile * a.rows;
#pragma unroll
    for (int r = 0; r < N / 2 && half == 0; r++) {
        int col = r / 4 * 8 + p.col + r % 2, i = p.row + r / 2 % 2 * 8, row = row0 + i;
        float v = j.bias && row < j.out ? c[r] + j.bias[row] : c[r];
        swap[col * GROUP + i] = v / (1 + __expf(-v));
    }
    named_sync(1, CONSUMERS);
#pragma unroll
    for (int r = 0; r < N / 2 && half == 1; r++) {
        int col = r / 4 * 8 + p.col + r % 2, i = p.row + r / 2 % 2 * 8, row = row0 + i;
        if (col < a.n && i < a.rows && row < j.out) {
            float v = j.bias2 ? c[r] + j.bias2[row] : c[r];
            store(a, j, col, row, v * swap[col * GROUP + i]);
        }
    }
}

template <int N>
__device__ static inline void consume(const stream_args &a, uint32_t base, uint32_t full,
                                      float *swap)
{
    uint32_t empty = full + a.stages * 8;
    int size = stage_size<N>(a), x_at = weights_size(a), count = a.steps / a.depth;
    int half = (int)threadIdx.x / 128, warp = (int)threadIdx.x % 128 / 32;
    int lane = (int)threadIdx.x % 32, tile_size = a.rows * ROW_BYTES;
    uint32_t mine = a.gated ? half * tile_size * a.depth : half * GROUP * ROW_BYTES;
    struct place p = { warp * 16 + lane / 4, lane % 4 * 2 };
    float c[N / 2];
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        c[r] = 0;
    for (int i = 0, stage = 0, parity = 0; i < count; i++) {
        uint32_t from = base + stage * size;
        barrier_wait(full + stage * 8, parity);
        pin(c);
        for (int d = 0; d < a.depth; d++) {
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < 4; k++)
                multiply<N>(c, tile_descriptor(from + mine + d * tile_size + k * 32, 0),
                            tile_descriptor(from + x_at + d * N * ROW_BYTES + k * 32, 0), 1);
            wgmma_commit();
        }
        wgmma_wait<0>();
        pin(c);
        if (lane == 0)
            barrier_arrive(empty + stage * 8);
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
    dep_wait();
    if (a.gated)
        finish_gated<N>(a, c, p, half, (int)blockIdx.x, swap);
    else
        finish_plain<N>(a, c, p, half, (int)blockIdx.x);
}

#endif

template <int N>
__global__ void __launch_bounds__(THREADS, 1) stream_kernel(const __grid_constant__ stream_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    int ring_size = RING_SIZE + OVERHANG, swap_size = N * GROUP * 4;
    uint32_t base = shared_address(memory), full = base + ring_size + swap_size;
    /* A tile of 64 rows or less has nothing for the second warpgroup. */
    int busy = a.gated || a.rows > GROUP ? CONSUMERS : CONSUMERS / 2;
    dep_launch();
    if (threadIdx.x == 0) {
        for (int i = 0; i < a.stages; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(full + (a.stages + i) * 8, busy / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    if ((int)threadIdx.x < busy)
        consume<N>(a, base, full, (float *)(memory + ring_size));
    else if (threadIdx.x == CONSUMERS)
        produce<N>(a, base, full);
#endif
}

/* ---- host ---- */

template <int N> static cudaError_t launch_stream(struct device_work *w, stream_args &a)
{
    static bool allowed;
    int halves = a.gated ? 2 : 1, step_size = (a.rows * halves + N) * ROW_BYTES;
    int rest = OVERHANG + GROUP * N * 4 + 2 * MAX_STAGES * 8 + 1024;
    if (!allowed) {
        cudaError_t e = allow_smem(stream_kernel<N>, RING_SIZE + rest);
        if (e != cudaSuccess)
            return e;
        allowed = true;
    }
    a.stages = RING_SIZE / (step_size * a.depth);
    a.stages = a.stages < MAX_STAGES ? a.stages : (int)MAX_STAGES;
    return launch(stream_kernel<N>, dim3((unsigned)a.tiles), dim3(THREADS),
                  (size_t)(RING_SIZE + rest), w->stream, a);
}

/* Whether all of the call is for this kernel: nothing of it depends on the rows of x. */
static bool suits(const struct device_work *w, const struct few_call *c)
{
    if (w->gpu->major != 9 || c->n_jobs > DEVICE_MAX_JOBS || c->in % TILE_COLS != 0)
        return false;
    for (int i = 0; i < c->n_jobs; i++)
        if (cuda_of(c->w[i])->dtype != DTYPE_BF16 || cuda_of(c->w[i])->in != c->in)
            return false;
    return true;
}

/* Tiles of so many rows. */
static int count_tiles(const struct few_call *c, int rows)
{
    int n = 0;
    for (int i = 0; i < (c->gated ? 1 : c->n_jobs); i++)
        n += (cuda_of(c->w[i])->out + rows - 1) / rows;
    return n;
}

/* Rows of a tile (of a gated product, of a half): eights, at most 128 (64), so that the waves of
 * blocks have the least rows to read one after the other; the larger of equals. */
static int choose_rows(const struct few_call *c)
{
    int most = c->gated ? GROUP : 2 * GROUP, best = most;
    int64_t least = INT64_MAX;
    for (int rows = most; rows >= 8; rows -= 8) {
        int64_t waves = (count_tiles(c, rows) + BLOCKS - 1) / BLOCKS;
        if (waves * rows < least) {
            least = waves * rows;
            best = rows;
        }
    }
    return best;
}

/* Steps of a stage: a divisor of all. */
static int choose_depth(const stream_args &a, int columns)
{
    int step_size = a.rows * (a.gated ? 2 : 1) * ROW_BYTES, depth = 1;
    for (int d = 2; d <= MAX_DEPTH; d++)
        if (a.steps % d == 0 && d * step_size <= STAGE_SIZE &&
            d * columns * ROW_BYTES <= STAGE_SIZE)
            depth = d;
    return depth;
}

/* The maps of the weights: boxes of a tile and `depth` steps. */
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

static void fill_args(const struct few_call *c, stream_args *a)
{
    a->n_jobs = c->gated ? 1 : c->n_jobs;
    a->steps = c->in / TILE_COLS;
    a->add = c->add;
    a->gated = c->gated;
    a->y_bf16 = c->y_bf16;
    a->rows = choose_rows(c);
    for (int i = 0; i < a->n_jobs; i++) {
        a->job[i].bias = c->w[i]->bias;
        a->job[i].out = cuda_of(c->w[i])->out;
        a->job[i].y_stride = c->y_stride[i];
        a->job[i].tile0 = a->tiles;
        a->tiles += (a->job[i].out + a->rows - 1) / a->rows;
    }
    if (c->gated)
        a->job[0].bias2 = c->w[1]->bias;
}

bool few_hopper(struct device_work *w, const struct few_call *c)
{
    static encode_fn encode;
    stream_args a = {};
    if (!suits(w, c))
        return false;
    if (!encode)
        encode = find_encode();
    if (!encode)
        return false;
    fill_args(c, &a);
    for (int at = 0; at < c->n; at += FEW_ROWS) {
        int n = c->n - at < FEW_ROWS ? c->n - at : (int)FEW_ROWS;
        int columns = n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : 64;
        const uint16_t *x = (const uint16_t *)c->x + (size_t)at * (size_t)c->in;
        bool mapped;
        a.n = n;
        a.depth = choose_depth(a, columns);
        for (int i = 0; i < a.n_jobs; i++)
            a.job[i].y = (uint8_t *)c->y[i] + (size_t)at * c->y_stride[i] * (c->y_bf16 ? 2 : 4);
        mapped = map_weights(c, &a, encode) &&
                 encode_map(encode, &a.x, x, n, a.steps, 0, (size_t)c->in * 2, 0, columns, a.depth);
        work_check(w,
                   !mapped         ? cudaErrorInvalidValue
                   : columns == 8  ? launch_stream<8>(w, a)
                   : columns == 16 ? launch_stream<16>(w, a)
                   : columns == 32 ? launch_stream<32>(w, a)
                                   : launch_stream<64>(w, a),
                   "a product of few rows");
    }
    return true;
}

#endif
