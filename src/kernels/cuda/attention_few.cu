/* Attention of few rows over the KV cache: decode and verify steps, chains and trees.
 *
 * The KV cache is reduced in a structure that is fixed by absolute position. Tiles of KEYS
 * positions are processed in order with a running softmax. Each split of KV_SPLIT positions gives a
 * partial result (max, sum, out), and a row's partial results are joined in an order that depends
 * only on their number. Scores, sums and outputs are computed on the tensor cores, whose result for
 * a row does not depend on the other rows; the sum is an extra column of V that is all ones. So the
 * distribution of work changes no bit, and there are two kinds of blocks:
 *
 *   narrow  up to 16 rows (query row, head of the group): the warps of a block share the keys of a
 *           tile for the scores, and the columns for the sum over values
 *   wide    each warp has 16 rows of its own; up to WIDE_WARPS warps
 *
 * A row of a tree attends to its ancestors as if they followed the cache in path order. Tiles that
 * end before the tree are shared by all rows. A later tile is loaded separately for each query row,
 * as that row sees it, and is used for the heads of that row only. Only narrow blocks do that; wide
 * blocks skip splits that contain tree nodes.
 *
 * One launch handles neighbouring runs that have the same number of rows and lie in one pool.
 *
 * K and V below first_slot were written by earlier steps, so they are loaded before dep_wait. */
#include "kernels/cuda/attention_few.cuh"

enum {
    NARROW_ROWS = 16,
    NARROW_WARPS = 4,
    WIDE_WARPS = 6,
    SCORE_STRIDE = KEYS + 8,  /* floats; puts rows into different banks */
    JOIN_WARPS = 4,           /* warps of a join_kernel block: warp s % 4 takes split s */
    PATH_NODES = 1 << 14,     /* most nodes in all paths of a block */
    SCRATCH_LIMIT = 256 << 20 /* bytes; rows that do not fit run in several slices */
};

/* ---- the 16 rows of a warp ---- */

/* Find the block's query row and the head of one of the thread's two rows. Returns false if there
 * is no such row. */
__device__ static inline bool row_find(const struct few_args &a, const struct few_block &b,
                                       int first, int h, int *query, int *head)
{
    int m = first + (int)threadIdx.x % 32 / 4 + 8 * h;
    *query = (b.m0 + m) / a.group - b.q0;
    *head = b.kv_head * a.group + (b.m0 + m) % a.group;
    return m < b.m;
}

/* Set up the 16 rows from `first` on and load their queries. */
template <int D, bool EXACT>
__device__ static inline void rows_begin(struct tile_rows *r, uint32_t q[D / 16][4],
                                         const struct few_args &a, const struct few_block &b,
                                         int first)
{
    const uint16_t *from[2] = { NULL, NULL };
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int query, head;
        r->max[h] = -INFINITY;
        r->sum[2 * h] = r->sum[2 * h + 1] = 0;
        r->limit[h] = INT32_MAX;
        if (!row_find(a, b, first, h, &query, &head))
            continue;
        from[h] = a.q + ((size_t)(own_row(a) + b.q0 + query) * a.n_heads + head) * a.d;
        r->limit[h] = b.first + b.pending + a.row0 + b.q0 + query + 1;
        if (b.tree)
            r->limit[h] = b.limits ? b.limits[query] : b.first;
    }
    load_queries<D, EXACT>(q, from[0], from[1], a.d);
}

/* Store two neighbouring numbers of the result. */
__device__ static inline void store_out(void *out, bool f32, size_t at, float x, float y)
{
    if (f32)
        *(float2 *)((float *)out + at) = make_float2(x, y);
    else
        *(uint32_t *)((uint16_t *)out + at) = bf16_bits(x) | bf16_bits(y) << 16;
}

/* Store the columns from `column` on of the rows that see this split. One warp also stores max and
 * sum (with_top). */
template <int N>
__device__ static inline void store_rows(const struct few_args &a, const struct few_block &b,
                                         const struct tile_rows &r, const float out[N][4],
                                         int first, int column, bool with_top)
{
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int query, head;
        float inverse = 1.0f / r.sum[2 * h];
        size_t row;
        if (!row_find(a, b, first, h, &query, &head) || r.limit[h] <= b.split * KV_SPLIT)
            continue;
        row = (size_t)((a.direct ? own_row(a) : own_part(a)) + b.q0 + query) * a.n_heads + head;
        if (!a.direct)
            row = row * a.splits + b.split;
        if (!a.direct && with_top && lane % 4 == 0)
            a.top[row] = make_float2(r.max[h], r.sum[2 * h]);
#pragma unroll
        for (int i = 0; i < N; i++) {
            int c = column + i * 8 + lane % 4 * 2;
            if (c >= a.d)
                continue;
            if (a.direct) /* same bits as joining one partial result */
                store_out(a.out, a.f32, row * a.d + c, (out[i][2 * h] + 0.0f) * inverse,
                          (out[i][2 * h + 1] + 0.0f) * inverse);
            else
                *(float2 *)(a.part + row * a.d + c) = make_float2(out[i][2 * h], out[i][2 * h + 1]);
        }
    }
}

/* ---- blocks ---- */

template <bool F8>
__device__ static inline void block_find(struct few_block *b, const struct few_args &a, int index,
                                         int tiles, int tile_rows)
{
    const struct staged_run *run = own_run(a);
    int rows = a.rows * a.group, tile = index % tiles;
    index /= tiles;
    b->kv_head = index % a.n_kv;
    b->split = index / a.n_kv;
    int64_t head = (F8 ? f8_head_size(a.d) / 2 : (int64_t)KV_CHUNK * a.d) * b->kv_head;
    b->k = a.kv.k + head;
    b->v = a.kv.v + head;
    b->m0 = tile * tile_rows;
    b->m = min(tile_rows, rows - b->m0);
    b->q0 = b->m0 / a.group;
    b->n_q = (b->m0 + b->m - 1) / a.group + 1 - b->q0;
    b->first = run->first_slot;
    b->pending = run->pending;
    b->tree = run->has_parents != 0;
    b->n_nodes = run->pending + run->n;
    b->end = b->first + b->n_nodes;
    b->limits = NULL;
    b->path = NULL;
}

/* Count the tiles of the split up to `limit`; in a tree, tiles from first_slot on count once per
 * query row. Also look up the split's pages; table entries after the run's last page are read but
 * not used. */
__device__ static inline void block_steps(struct few_block *b, const struct few_args &a, int limit)
{
#pragma unroll
    for (int i = 0; i < SPLIT_PAGES; i++)
        b->page[i] = own_table(a)[b->split * SPLIT_PAGES + i] * a.kv.step;
    int begin = b->split * SPLIT_TILES, tiles = (limit + KEYS - 1) / KEYS - begin;
    tiles = max(0, min(tiles, (int)SPLIT_TILES));
    b->shared = b->tree ? max(0, min(tiles, b->first / KEYS - begin)) : tiles;
    b->steps = b->shared + (tiles - b->shared) * b->n_q;
}

/* Find the paths through the tree to the block's query rows. Returns the number of positions that
 * the deepest of them sees. */
__device__ static int find_paths(struct few_block *b, const struct few_args &a, int *memory)
{
    int *limits = memory, *parent = memory + NARROW_ROWS, most = 0;
    uint16_t *path = (uint16_t *)(parent + b->n_nodes);
    for (int i = (int)threadIdx.x; i < b->n_nodes; i += (int)blockDim.x)
        parent[i] = a.staged->list[own_run(a)->parents + i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < b->n_q; i += (int)blockDim.x) {
        int node = b->pending + a.row0 + b->q0 + i, depth = 0;
        for (int p = node; p >= 0; p = parent[p])
            depth++;
        limits[i] = b->first + depth;
        for (int p = node; p >= 0; p = parent[p])
            path[i * b->n_nodes + --depth] = (uint16_t)p;
    }
    __syncthreads();
    for (int i = 0; i < b->n_q; i++)
        most = max(most, limits[i]);
    b->limits = limits;
    b->path = path;
    return most;
}

/* Store for join_kernel how many positions the rows of a tree see. */
__device__ static inline void tell_limits(const struct few_args &a, const struct few_block &b)
{
    if (b.kv_head == 0 && b.split == b.first / KV_SPLIT && (int)threadIdx.x < b.n_q)
        a.limit[own_part(a) + b.q0 + (int)threadIdx.x] = b.limits[threadIdx.x];
}

template <int D, bool EXACT, bool F8>
__device__ static void narrow_block(const struct few_args &a, uint16_t *tiles)
{
    constexpr int COLUMNS = D / NARROW_WARPS;
    float *shared_scores = (float *)((uint8_t *)tiles + pipe_size<D, F8>(a.stages));
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, limit;
    int query[2], head;
    struct few_block b;
    struct few_pipe pipe;
    struct tile_rows r;
    uint32_t q[D / 16][4];
    float out[COLUMNS / 8][4] = {};
    block_find<F8>(&b, a, (int)blockIdx.x, a.narrow_tiles, a.narrow_rows);
    b.split += a.narrow_tail ? b.first / KV_SPLIT : 0;
    if (b.split * KV_SPLIT >= b.end)
        return;
    limit = b.first + b.pending + a.row0 + b.q0 + b.n_q;
    if (b.tree)
        limit = find_paths(&b, a, (int *)(shared_scores + NARROW_ROWS * SCORE_STRIDE));
    block_steps(&b, a, limit);
    if (b.steps == 0)
        return;
    pipe_open<D, EXACT, F8, true>(&pipe, tiles, a, b);
    if (b.tree && !a.direct)
        tell_limits(a, b);
    rows_begin<D, EXACT>(&r, q, a, b, 0);
    for (int h = 0; h < 2; h++)
        if (!row_find(a, b, 0, h, &query[h], &head))
            query[h] = -1;
    for (int j = 0; j < b.steps; j++) {
        int pass, begin = step_begin(b, j, &pass), seen[2];
        const uint16_t *tile = pipe_next<D, EXACT, F8, true>(&pipe, a, b);
        float part[2][4], s[KEYS / 8][4], factor[2];
        uint32_t p[KEYS / 16][4];
        if (warp < NARROW_WARPS)
            tile_scores<D, 1>(part, q, tile, warp * 16);
        for (int i = 0; i < 4 && warp < NARROW_WARPS; i++)
            *(float2 *)(shared_scores + (lane / 4 + i % 2 * 8) * SCORE_STRIDE + warp * 16 +
                        i / 2 * 8 + lane % 4 * 2) =
                make_float2(part[i / 2][i % 2 * 2], part[i / 2][i % 2 * 2 + 1]);
        __syncthreads();
        if (warp >= NARROW_WARPS) /* extra warps in a launch with wide blocks: only load */
            continue;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float2 x = *(const float2 *)(shared_scores + (lane / 4 + i % 2 * 8) * SCORE_STRIDE +
                                         i / 2 * 8 + lane % 4 * 2);
            s[i / 2][i % 2 * 2] = x.x;
            s[i / 2][i % 2 * 2 + 1] = x.y;
        }
        for (int h = 0; h < 2; h++)
            seen[h] = pass < 0 || query[h] == pass ? r.limit[h] - begin : 0;
        probabilities(p, factor, s, &r, seen, a.scale);
        add_values<D, COLUMNS / 8>(out, &r, factor, p, tile + KEYS * D, warp * COLUMNS);
    }
    if (warp < NARROW_WARPS)
        store_rows<COLUMNS / 8>(a, b, r, out, 0, warp * COLUMNS, warp == 0);
}

template <int D, bool EXACT, bool F8>
__device__ static void wide_block(const struct few_args &a, uint16_t *tiles)
{
    int warp = (int)threadIdx.x / 32;
    bool busy;
    struct few_block b;
    struct few_pipe pipe;
    struct tile_rows r;
    uint32_t q[D / 16][4];
    float out[D / 8][4] = {};
    block_find<F8>(&b, a, (int)blockIdx.x - a.narrow_blocks, a.wide_tiles, a.wide_rows);
    if (b.tree && (b.split + 1) * KV_SPLIT > b.first)
        return;
    block_steps(&b, a, b.first + (b.tree ? 0 : b.pending + a.row0 + b.q0 + b.n_q));
    if (b.steps == 0)
        return;
    pipe_open<D, EXACT, F8, false>(&pipe, tiles, a, b);
    busy = warp * 16 < b.m; /* warps without rows only load */
    rows_begin<D, EXACT>(&r, q, a, b, warp * 16);
    for (int j = 0; j < b.steps; j++) {
        int begin = b.split * KV_SPLIT + j * KEYS, seen[2];
        const uint16_t *tile = pipe_next<D, EXACT, F8, false>(&pipe, a, b);
        float s[KEYS / 8][4], factor[2];
        uint32_t p[KEYS / 16][4];
        if (!busy)
            continue;
        tile_scores<D, KEYS / 16>(s, q, tile, 0);
        for (int h = 0; h < 2; h++)
            seen[h] = r.limit[h] - begin;
        probabilities(p, factor, s, &r, seen, a.scale);
        add_values<D, D / 8>(out, &r, factor, p, tile + KEYS * D, 0);
    }
    if (busy)
        store_rows<D / 8>(a, b, r, out, warp * 16, 0, true);
}

template <int D, bool EXACT, bool F8>
__global__ __launch_bounds__(WIDE_WARPS * 32, D <= 128 ? 2 : 1) void few_kernel(struct few_args a)
{
    SHARED_MEMORY(uint16_t, tiles);
    dep_launch();
    if ((int)blockIdx.x < a.narrow_blocks)
        narrow_block<D, EXACT, F8>(a, tiles);
    else if constexpr (D <= 128)
        wide_block<D, EXACT, F8>(a, tiles);
}

/* ---- joining partial results ---- */

/* Join one head of one row: warp w adds up splits w, w + JOIN_WARPS, ..., then the warps' results
 * are added in order. */
template <int N> /* N: pairs of columns per lane */
__global__ __launch_bounds__(JOIN_WARPS * 32) void join_kernel(struct few_args a)
{
    __shared__ float2 shared_out[JOIN_WARPS][N * 32];
    __shared__ float shared_sum[JOIN_WARPS];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, row = (int)blockIdx.y, limit;
    const struct staged_run *run = &a.staged->run[a.run + (int)blockIdx.z];
    int part_row = (int)blockIdx.z * a.rows + row;
    size_t at = (size_t)part_row * a.n_heads + blockIdx.x;
    const float2 *top = a.top + at * a.splits;
    const float *part = a.part + at * a.splits * a.d;
    float most = -INFINITY, sum = 0;
    float2 out[N] = {};
    dep_launch();
    dep_wait();
    limit =
        run->has_parents ? a.limit[part_row] : run->first_slot + run->pending + a.row0 + row + 1;
    limit = (limit + KV_SPLIT - 1) / KV_SPLIT;
    for (int s = lane; s < limit; s += 32)
        most = fmaxf(most, top[s].x);
    for (int bit = 16; bit > 0; bit /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, bit));
#pragma unroll 4
    for (int s = warp; s < limit; s += JOIN_WARPS) {
        float2 t = top[s];
        float weight = exp2_fast((t.x - most) * a.scale);
        sum = fmaf(t.y, weight, sum);
#pragma unroll
        for (int i = 0; i < N; i++) {
            int c = (i * 32 + lane) * 2;
            if (c < a.d) {
                float2 x = *(const float2 *)(part + (size_t)s * a.d + c);
                out[i].x = fmaf(x.x, weight, out[i].x);
                out[i].y = fmaf(x.y, weight, out[i].y);
            }
        }
    }
    for (int i = 0; i < N; i++)
        shared_out[warp][i * 32 + lane] = out[i];
    if (lane == 0)
        shared_sum[warp] = sum;
    __syncthreads();
    sum = 0;
    at = (size_t)(run->row0 + a.row0 + row) * a.n_heads + blockIdx.x;
    for (int w = 0; w < JOIN_WARPS; w++)
        sum += shared_sum[w];
    for (int i = (int)threadIdx.x; i < a.d / 2; i += JOIN_WARPS * 32) {
        float2 x = make_float2(0, 0);
        for (int w = 0; w < JOIN_WARPS; w++) {
            x.x += shared_out[w][i].x;
            x.y += shared_out[w][i].y;
        }
        store_out(a.out, a.f32, at * a.d + (size_t)i * 2, x.x * (1.0f / sum), x.y * (1.0f / sum));
    }
}

/* ---- host ---- */

static size_t row_scratch(int n_heads, int splits, int d)
{
    return (size_t)n_heads * (size_t)splits * ((size_t)d * sizeof(float) + sizeof(float2)) +
           sizeof(int);
}

size_t attn_few_scratch_size(const struct work_shape *s)
{
    int splits = (round_positions(s->context) + KV_SPLIT_LEAST - 1) / KV_SPLIT_LEAST;
    size_t row = row_scratch(s->n_heads, splits, s->head_dim);
    size_t rows = s->rows < FEW_ROWS ? (size_t)s->rows : (size_t)FEW_ROWS;
    if (rows * row > (size_t)SCRATCH_LIMIT)
        rows = (size_t)SCRATCH_LIMIT / row;
    return (rows > 0 ? rows : 1) * row + 256;
}

/* Bytes of shared memory available to a block on this GPU. */
static size_t smem_limit(const struct device_work *w)
{
    int cc = w->gpu->major * 10 + w->gpu->minor;
    return (size_t)(cc >= 90 && cc < 120 ? 227 : cc == 80 || cc == 87 ? 163 : 99) * 1024;
}

template <int D, bool EXACT, bool F8>
static cudaError_t few_launch(const struct device_work *w, struct few_args &a, dim3 grid, int warps,
                              size_t smem)
{
    static struct by_gpu allowed;
    size_t stage = pipe_size<D, F8>(2) - pipe_size<D, F8>(1), limit = smem_limit(w);
    cudaError_t e = allow_smem(&allowed, w->gpu->index, few_kernel<D, EXACT, F8>, limit, false);
    if (e != cudaSuccess)
        return e;
    smem += pipe_size<D, F8>(0);
    /* Six stages if each multiprocessor has one block, or if two blocks with six stages fit. */
    a.stages = (int)(grid.x * grid.y) <= w->gpu->n_sm || 2 * (6 * stage + smem) <= limit ? 6 : 3;
    while (a.stages > 1 && a.stages * stage + smem > limit)
        a.stages = a.stages > 3 ? 3 : a.stages - 1;
    return launch(few_kernel<D, EXACT, F8>, grid, dim3((unsigned)warps * 32),
                  a.stages * stage + smem, w->stream, a);
}

/* Assign rows to narrow and wide blocks. Returns the number of blocks per run. */
static int few_grid(struct few_args *a, const struct attn_run *run, int max_splits, int *warps)
{
    int rows = a->rows * a->group, nodes = run->pending + run->n, tail = max_splits;
    bool wide = rows > NARROW_ROWS && a->d <= 128, narrow = !wide;
    *warps = NARROW_WARPS;
    if (wide) {
        int tiles = (rows + WIDE_WARPS * 16 - 1) / (WIDE_WARPS * 16), each;
        each = ((rows + tiles - 1) / tiles + 15) / 16;
        a->wide_rows = each * 16;
        a->wide_tiles = (rows + a->wide_rows - 1) / a->wide_rows;
        *warps = each > NARROW_WARPS ? each : NARROW_WARPS;
    }
    if (wide && run->parent) {
        tail = (nodes + KV_SPLIT - 2) / KV_SPLIT + 1;
        a->narrow_tail = narrow = true;
    }
    if (narrow) {
        int queries = a->group < NARROW_ROWS ? NARROW_ROWS / a->group : 1;
        int most = run->parent && nodes > 0 ? PATH_NODES / nodes : queries;
        queries = queries < most ? queries : most > 0 ? most : 1;
        a->narrow_rows = a->group < NARROW_ROWS ? queries * a->group : NARROW_ROWS;
        a->narrow_tiles = (rows + a->narrow_rows - 1) / a->narrow_rows;
        a->narrow_blocks = a->narrow_tiles * a->n_kv * tail;
    }
    return a->narrow_blocks + a->wide_tiles * a->n_kv * max_splits;
}

template <bool F8>
static cudaError_t few_run(const struct device_work *w, struct few_args &a,
                           const struct attn_run *run, int n_runs)
{
    int warps, blocks = few_grid(&a, run, w->max_splits, &warps), nodes = run->pending + run->n;
    dim3 all((unsigned)blocks, (unsigned)n_runs);
    size_t smem = sizeof(float) * NARROW_ROWS * SCORE_STRIDE;
    cudaError_t e;
    if (run->parent) {
        size_t paths = (size_t)a.narrow_rows / (size_t)a.group + 2;
        smem +=
            sizeof(int) * (NARROW_ROWS + (size_t)nodes) + sizeof(uint16_t) * paths * (size_t)nodes;
    }
    if (a.d == 64)
        e = few_launch<64, true, F8>(w, a, all, warps, smem);
    else if (a.d == 128)
        e = few_launch<128, true, F8>(w, a, all, warps, smem);
    else if (a.d < 64)
        e = few_launch<64, false, F8>(w, a, all, warps, smem);
    else if (a.d < 128)
        e = few_launch<128, false, F8>(w, a, all, warps, smem);
    else
        e = few_launch<256, false, F8>(w, a, all, warps, smem);
    if (e != cudaSuccess || a.direct)
        return e;
    dim3 grid((unsigned)a.n_heads, (unsigned)a.rows, (unsigned)n_runs), block(JOIN_WARPS * 32);
    if (a.d <= 64)
        return launch(join_kernel<1>, grid, block, 0, w->stream, a);
    if (a.d <= 128)
        return launch(join_kernel<2>, grid, block, 0, w->stream, a);
    return launch(join_kernel<4>, grid, block, 0, w->stream, a);
}

/* Number of runs, from `first` on, that one launch can handle: they lie in one pool, have the same
 * number of rows, and fit into a slice. */
static int runs_together(const struct attn_block *b, int first, int slice)
{
    const struct attn_run *run = &b->runs[first];
    int n = 1;
    while (first + n < b->n_runs && (n + 1) * run->n <= slice && run[n].n == run->n &&
           run[n].pending == run->pending && !run[n].parent == !run->parent &&
           same_pool(run[n].kv, run->kv))
        n++;
    return n;
}

void attention_few(struct device_work *w, const struct attn_block *b, const void *q16, void *out,
                   enum dtype out_dtype)
{
    const struct layer_shape *s = b->shape;
    size_t stride = (size_t)s->n_heads * (size_t)s->head_dim;
    size_t fit = w->attn_size / row_scratch(s->n_heads, w->max_splits, s->head_dim);
    int slice = fit < (size_t)FEW_ROWS ? (int)fit : (int)FEW_ROWS;
    struct few_args base = {};
    if (attention_few_hopper(w, b, q16, out, out_dtype))
        return;
    if (slice == 0 && w->max_splits > 1) {
        work_check(w, cudaErrorInvalidValue, "attention without scratch");
        return;
    }
    slice = w->max_splits > 1 ? slice : (int)FEW_ROWS;
    base.q = (const uint16_t *)q16;
    base.f32 = out_dtype == DTYPE_F32;
    base.out = out;
    base.splits = w->max_splits;
    base.top = (float2 *)w->attn_scratch;
    base.part = (float *)(base.top + (size_t)slice * (size_t)s->n_heads * (size_t)base.splits);
    base.limit = (int *)(base.part + (size_t)slice * (size_t)base.splits * stride);
    base.staged = w->staged;
    base.table_size = w->table_size;
    base.n_heads = s->n_heads;
    base.n_kv = s->n_kv_heads;
    base.group = s->n_heads / s->n_kv_heads;
    base.d = s->head_dim;
    base.scale = 1.4426950408889634f / sqrtf((float)s->head_dim);
    base.direct = w->max_splits <= 1;
    for (int i = 0, n; i < b->n_runs; i += n) {
        const struct attn_run *run = &b->runs[i];
        n = runs_together(b, i, slice);
        for (int row = 0; row < run->n; row += slice) {
            struct few_args a = base;
            a.rows = run->n - row < slice ? run->n - row : slice;
            a.kv = pages_of(w, run->kv, i);
            a.run = i;
            a.row0 = row;
            bool f8 = run->kv->dtype == DTYPE_F8;
            work_check(w, (f8 ? few_run<true> : few_run<false>)(w, a, run, n), "attention");
        }
    }
}
