/* Products of few rows with BF16 weights on Hopper GPUs: the copy engine keeps a ring of weight
 * tiles full, wgmma reads them from shared memory, weights as its 64 rows and the rows of x as its
 * columns.
 *
 * A block has a tile of the matrix's rows to itself and walks all of K, so nothing is summed across
 * blocks. How many rows a tile has is chosen by the shape so that the tiles come out as few equal
 * waves of blocks, one to a multiprocessor: a wgmma of 64 rows whose last ones are other numbers is
 * cheaper than a wave that is half empty. The bits of an output are those of one chain of sums over
 * K, whatever lies beside it. (Tried and slower on an H200: tiles cut along K and summed by the
 * last block to arrive or over a cluster of two, several warpgroups to a row, persistent blocks.)
 *
 * Norms live in here as norm.h says: warps beside those that multiply find the rows' scales while
 * the weights come, and a product that adds to x leaves x ready for the next norm.
 *
 * Weights are asked for before the kernel in front has ended. A block takes more than half of the
 * shared memory: two on one multiprocessor would leave another one idle. */
#include "kernels/cuda/matmul_few.h"

#ifdef PV_CUDASIM

bool few_hopper_ready(const struct device_work *w)
{
    (void)w;
    return false;
}

bool few_hopper(struct device_work *w, const struct few_call *c)
{
    (void)w, (void)c;
    return false;
}

#else

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/norm.h"

enum {
    MET = 1,         /* barriers: sums are in shared memory, ... */
    SCALED = 2,      /* ... and the rows' scales */
    GROUP = 64,      /* rows of a warpgroup: wgmma's M */
    BLOCKS = 132,    /* of a wave: as many as an H200 has multiprocessors */
    CONSUMERS = 256, /* threads: two warpgroups that multiply */
    SCALE_ROWS = 4,  /* whose 1 / rms a warp finds at a time */
    ROW_BYTES = TILE_COLS * 2,
    STAGE_SIZE = 16 << 10, /* weights of a stage, about */
    MAX_STAGES = 16,
    RING_SIZE = 160 << 10,
    MAX_DEPTH = 16,
    OVERHANG = GROUP * ROW_BYTES, /* what wgmma reads beyond a tile */
    SWAP_ROWS = 2 * GROUP         /* rows of a tile whose sums meet in shared memory */
};

/* Threads that find the rows' 1 / rms meanwhile, and all. */
__host__ __device__ static constexpr int scalers(int n)
{
    return n == 8 ? 32 : 96;
}

__host__ __device__ static constexpr int threads(int n)
{
    return CONSUMERS + 32 + scalers(n);
}

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
    struct few_norm norm; /* its pointers: of the launch's first row */
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
    int tile = (int)blockIdx.x, j = job_of(a, tile), row = (tile - a.job[j].tile0) * a.rows;
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

__device__ static inline void store(const stream_args &a, const stream_job &j, int col, int row,
                                    float v)
{
    size_t at = (size_t)col * j.y_stride + (size_t)row;
    if (a.y_bf16)
        ((uint16_t *)j.y)[at] = (uint16_t)bf16_bits(v);
    else
        ((float *)j.y)[at] = v;
}

/* Rows' 1 / rms, by warps beside those that multiply. */
template <int N> __device__ static inline void find_scales(const stream_args &a, float *scale)
{
    int dim = a.steps * TILE_COLS, warp = ((int)threadIdx.x - CONSUMERS - 32) / 32;
    dep_wait();
    for (int col = warp * SCALE_ROWS; col < a.n; col += scalers(N) / 32 * SCALE_ROWS) {
        float sum[SCALE_ROWS];
        norm_take_rows<SCALE_ROWS>(sum, a.norm.squares + (size_t)col * (dim / NORM_OCTET), dim,
                                   a.n - col);
#pragma unroll
        for (int r = 0; r < SCALE_ROWS; r++) {
            float s = norm_end(sum[r], dim, a.norm.eps);
            if (threadIdx.x % 32 == 0 && col + r < a.n)
                scale[col + r] = s;
        }
    }
}

/* c += one step's products, begun. */
template <int N> __device__ static inline void step(float (&c)[N / 2], uint32_t weights, uint32_t x)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply<N>(c, tile_descriptor(weights + k * 32, 0), tile_descriptor(x + k * 32, 0), 1);
    wgmma_commit();
}

/* All of K for the thread's rows of the tile: register 4 j + 2 i + e of c is row lane / 4 + 8 i of
 * its warp's 16, column 8 j + lane % 4 * 2 + e. */
template <int N>
__device__ static inline void walk(const stream_args &a, float (&c)[N / 2], uint32_t base,
                                   uint32_t full)
{
    uint32_t empty = full + a.stages * 8;
    int size = stage_size<N>(a), x_at = weights_size(a), count = a.steps / a.depth;
    int half = (int)threadIdx.x / 128, lane = (int)threadIdx.x % 32, tile_size = a.rows * ROW_BYTES;
    uint32_t mine = a.gated ? half * tile_size * a.depth : half * GROUP * ROW_BYTES;
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        c[r] = 0;
    for (int i = 0, stage = 0, parity = 0, before = 0; i < count; i++) {
        uint32_t from = base + stage * size + mine, x = base + stage * size + x_at;
        barrier_wait(full + stage * 8, parity);
        pin(c);
        step<N>(c, from, x);
        wgmma_wait<1>(); /* the stage before this one has been used up */
        if (lane == 0 && i > 0)
            barrier_arrive(empty + before * 8);
        before = stage;
        for (int d = 1; d < a.depth; d++)
            step<N>(c, from + d * tile_size, x + d * N * ROW_BYTES);
        stage = stage + 1 == a.stages ? 0 : stage + 1;
        parity ^= stage == 0;
    }
    wgmma_wait<0>();
    pin(c);
}

/* ---- gated tiles: half 0 has the gate, half 1 what it opens; they meet in `swap` [N][64] ---- */

template <int N>
__device__ static inline void consume_gated(const stream_args &a, uint32_t base, uint32_t full,
                                            float *swap, const float *scale)
{
    const stream_job &j = a.job[0];
    int half = (int)threadIdx.x / 128, lane = (int)threadIdx.x % 32;
    int first = (int)threadIdx.x % 128 / 32 * 16 + lane / 4, row0 = (int)blockIdx.x * a.rows;
    const float *from = half ? j.bias2 : j.bias;
    float c[N / 2], bias[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = row0 + first + 8 * i;
        bias[i] = from && row < j.out ? from[row] : 0.0f;
    }
    walk<N>(a, c, base, full);
    dep_wait();
    if (a.norm.squares)
        named_sync(SCALED, CONSUMERS + scalers(N));
#pragma unroll
    for (int r = 0; r < N / 2; r++) {
        int col = r / 4 * 8 + lane % 4 * 2 + r % 2, i = r / 2 % 2;
        c[r] = a.norm.squares ? fmaf(c[r], scale[col], bias[i]) : c[r] + bias[i];
        if (half == 0)
            swap[col * GROUP + first + 8 * i] = c[r] / (1 + __expf(-c[r]));
    }
    named_sync(MET, CONSUMERS);
#pragma unroll
    for (int r = 0; r < N / 2 && half == 1; r++) {
        int col = r / 4 * 8 + lane % 4 * 2 + r % 2, in_tile = first + r / 2 % 2 * 8;
        if (col < a.n && in_tile < a.rows && row0 + in_tile < j.out)
            store(a, j, col, row0 + in_tile, c[r] * swap[col * GROUP + in_tile]);
    }
}

/* ---- plain tiles: the sums go through shared memory, so that a thread's numbers at the end lie
 * beside its neighbours' ---- */

/* What a thread needs of its numbers at the end, asked for early: number k of thread t is row
 * i % rows, column i / rows, with i = t + CONSUMERS k. */
template <int N> struct ending {
    static constexpr int most = (N * SWAP_ROWS + CONSUMERS - 1) / CONSUMERS;
    float bias[most], weight[most], old[most];
};

template <int N>
__device__ static inline void ending_begin(struct ending<N> &e, const stream_args &a,
                                           const stream_job &j, int row0)
{
#pragma unroll
    for (int k = 0; k < ending<N>::most && CONSUMERS * k < N * a.rows; k++) {
        int i = (int)threadIdx.x + CONSUMERS * k, row = row0 + i % a.rows;
        bool there = i < N * a.rows && row < j.out;
        e.bias[k] = there && j.bias ? j.bias[row] : 0.0f;
        e.weight[k] = there && a.norm.weight ? a.norm.weight[row] : 0.0f;
    }
    dep_wait();
#pragma unroll
    for (int k = 0; k < ending<N>::most && CONSUMERS * k < N * a.rows; k++) {
        int i = (int)threadIdx.x + CONSUMERS * k, row = row0 + i % a.rows, col = i / a.rows;
        e.old[k] = 0;
        if (a.add && i < N * a.rows && row < j.out && col < a.n)
            e.old[k] = ((const float *)j.y)[(size_t)col * j.y_stride + (size_t)row];
    }
}

/* The thread's sums to [N][rows]. */
template <int N>
__device__ static inline void put_sums(const stream_args &a, const float (&c)[N / 2], float *sums)
{
    int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int r = 0; r < N / 2; r++) {
        int col = r / 4 * 8 + lane % 4 * 2 + r % 2, in_tile = first + r / 2 % 2 * 8;
        if (col < a.n && in_tile < a.rows)
            sums[col * a.rows + in_tile] = c[r];
    }
}

template <int N>
__device__ static inline void finish_plain(const stream_args &a, const struct ending<N> &e,
                                           const stream_job &j, const float *sums,
                                           const float *scale, int row0)
{
#pragma unroll
    for (int k = 0; k < ending<N>::most && CONSUMERS * k < N * a.rows; k++) {
        int i = (int)threadIdx.x + CONSUMERS * k, row = row0 + i % a.rows, col = i / a.rows;
        bool there = i < N * a.rows && row < j.out && col < a.n;
        float v = 0;
        if (there) {
            v = a.norm.squares ? fmaf(sums[i], scale[col], e.bias[k]) : sums[i] + e.bias[k];
            if (a.add)
                v += e.old[k];
            store(a, j, col, row, v);
        }
        if (a.norm.weight) {
            float s = octet_squares(v, 1);
            if (there)
                a.norm.xn[(size_t)col * j.out + row] = (uint16_t)bf16_bits(v * e.weight[k]);
            if (there && threadIdx.x % NORM_OCTET == 0)
                a.norm.sums[(size_t)col * (j.out / NORM_OCTET) + row / NORM_OCTET] = s;
        }
    }
}

/* All consumers, those without rows in the tile too. */
template <int N>
__device__ static inline void consume_plain(const stream_args &a, uint32_t base, uint32_t full,
                                            float *sums, const float *scale, int busy)
{
    const stream_job &j = a.job[job_of(a, (int)blockIdx.x)];
    int row0 = ((int)blockIdx.x - j.tile0) * a.rows;
    struct ending<N> e;
    ending_begin<N>(e, a, j, row0);
    if ((int)threadIdx.x < busy) {
        float c[N / 2];
        walk<N>(a, c, base, full);
        put_sums<N>(a, c, sums);
    }
    if (a.norm.squares)
        named_sync(SCALED, CONSUMERS + scalers(N));
    named_sync(MET, CONSUMERS);
    finish_plain<N>(a, e, j, sums, scale, row0);
}

#endif

template <int N>
__global__ void __launch_bounds__(threads(N), 1)
    stream_kernel(const __grid_constant__ stream_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    TILE_MEMORY(raw);
    unsigned char *memory = raw + (1024 - shared_address(raw) % 1024) % 1024;
    int ring_size = RING_SIZE + OVERHANG, swap_size = N * SWAP_ROWS * 4;
    float *swap = (float *)(memory + ring_size), *scale = swap + N * SWAP_ROWS;
    uint32_t base = shared_address(memory), full = base + ring_size + swap_size + N * 4;
    /* A tile of 64 rows or less has nothing for the second warpgroup. */
    int busy = a.gated || a.rows > GROUP ? CONSUMERS : CONSUMERS / 2;
    dep_launch();
    if (threadIdx.x == CONSUMERS) {
        map_prefetch(&a.w[job_of(a, (int)blockIdx.x)]);
        map_prefetch(&a.x);
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < a.stages; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(full + (a.stages + i) * 8, busy / 32);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < CONSUMERS) {
        if (a.gated)
            consume_gated<N>(a, base, full, swap, scale);
        else
            consume_plain<N>(a, base, full, swap, scale, busy);
    } else if (threadIdx.x == CONSUMERS) {
        produce<N>(a, base, full);
    } else if (threadIdx.x >= CONSUMERS + 32 && a.norm.squares) {
        find_scales<N>(a, scale);
        named_arrive(SCALED, CONSUMERS + scalers(N));
    }
#endif
}

/* ---- host ---- */

template <int N> static cudaError_t launch_stream(struct device_work *w, stream_args &a)
{
    static bool allowed;
    int halves = a.gated ? 2 : 1, step_size = (a.rows * halves + N) * ROW_BYTES;
    int rest = OVERHANG + (SWAP_ROWS + 1) * N * 4 + 2 * MAX_STAGES * 8 + 1024;
    if (!allowed) {
        cudaError_t e = allow_smem(stream_kernel<N>, RING_SIZE + rest);
        if (e != cudaSuccess)
            return e;
        allowed = true;
    }
    a.stages = RING_SIZE / (step_size * a.depth);
    a.stages = a.stages < MAX_STAGES ? a.stages : (int)MAX_STAGES;
    return launch(stream_kernel<N>, dim3((unsigned)a.tiles), dim3(threads(N)),
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

static encode_fn find_once(void)
{
    static encode_fn encode;
    if (!encode)
        encode = find_encode();
    return encode;
}

bool few_hopper_ready(const struct device_work *w)
{
    return w->gpu->major == 9 && find_once();
}

/* The norm's numbers for rows from `at` on. */
static struct few_norm norm_from(const struct few_call *c, size_t at)
{
    struct few_norm n = c->norm;
    if (n.squares)
        n.squares += at * (size_t)(c->in / NORM_OCTET);
    if (n.weight) {
        size_t out = (size_t)cuda_of(c->w[0])->out;
        n.xn += at * out;
        n.sums += at * (out / NORM_OCTET);
    }
    return n;
}

bool few_hopper(struct device_work *w, const struct few_call *c)
{
    encode_fn encode = find_once();
    stream_args a = {};
    if (!suits(w, c) || !encode)
        return false;
    fill_args(c, &a);
    for (int at = 0; at < c->n; at += FEW_ROWS) {
        int n = c->n - at < FEW_ROWS ? c->n - at : (int)FEW_ROWS;
        int columns = n <= 8 ? 8 : n <= 16 ? 16 : n <= 32 ? 32 : 64;
        const uint16_t *x = (const uint16_t *)c->x + (size_t)at * (size_t)c->in;
        bool mapped;
        a.n = n;
        a.norm = norm_from(c, (size_t)at);
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
