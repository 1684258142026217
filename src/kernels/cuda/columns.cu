/* Column sums of attention: how much the given query rows attend to the given keys.
 *
 * Two passes over the keys, neither of which stores the whole matrix. The first finds max and sum
 * of each query, over all slots it sees or over the given keys it sees: a block takes KV_SPLIT
 * keys, and the partial results are joined in order. In the second pass a block owns KEYS columns;
 * it computes the scores again and adds up the probabilities of all rows and heads, always in the
 * same order.
 *
 * The host waits for the result, so this is never part of a recorded step. */
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/f8.cuh"
#include "kernels/cuda/gpus.h"

enum {
    COLUMN_WARPS = 4,
    COLUMN_SUMS = KEYS / 4,          /* column sums per thread */
    COLUMN_ROWS = COLUMN_WARPS * 16, /* (query row, head) pairs a block handles at a time */
    STAT_THREADS = 128
};

struct column_args {
    const uint16_t *q; /* from the run's first row on */
    struct kv_pages kv;
    const int *rows; /* [n_rows] */
    const int *keys; /* [n_keys], NULL: slots 0 .. n_keys - 1 */
    float2 *part;    /* [n_kv, n_rows * group, splits]: max and sum */
    float2 *stat;    /* [n_kv, n_rows * group]: max, and 1 / sum */
    float *sums;     /* [n_keys] */
    int n_rows, n_keys, n_heads, n_kv, group, d;
    int first; /* slot of the run's first row */
    int splits;
    float scale; /* of scores, times log2(e) */
    bool add;    /* add to sums instead of overwriting them */
    /* If other GPUs have heads before or after these: what the threads have added up so far,
     * [blocks, threads, COLUMN_SUMS]; NULL: all heads are on this GPU. Blocks are numbered from
     * block0 on. */
    float *carry;
    bool begins, ends;
    int block0;
    bool f8; /* type of the cache */
};

/* Keys of a tile: their slots (-1 after the end of the list), and their offsets in memory. */
struct column_keys {
    int64_t at[KEYS];
    int slot[KEYS];
};

/* Load keys [e0, e0 + KEYS) of the list to shared memory. */
template <int D>
__device__ static void load_keys(const struct column_args &a, uint16_t *tile,
                                 struct column_keys *keys, int kv_head, int e0)
{
    __syncthreads(); /* all threads have finished with the previous keys */
    for (int i = (int)threadIdx.x; i < KEYS; i += (int)blockDim.x) {
        int e = e0 + i, slot = e >= a.n_keys ? -1 : a.keys ? a.keys[e] : e;
        keys->slot[i] = slot;
        keys->at[i] = slot < 0 ? 0 : slot_at(a.kv, a.kv.page[slot_chunk(slot)], kv_head, slot, a.d);
    }
    __syncthreads();
    if (a.f8) {
        for (int i = (int)threadIdx.x; i < KEYS * (D / 8); i += (int)blockDim.x) {
            int r = i / (D / 8), c = i % (D / 8), slot = keys->slot[r];
            uint4 piece = make_uint4(0, 0, 0, 0);
            if (slot >= 0) {
                struct f8_rows rows =
                    f8_page(a.kv.k, a.kv.step, a.kv.page[slot_chunk(slot)], kv_head, a.d);
                piece = f8_piece(rows, slot_row(slot), c, a.d);
            }
            *(uint4 *)(tile + piece_at<D>(r, c)) = piece;
        }
    } else if (a.d % 8 == 0) {
        for (int i = (int)threadIdx.x; i < KEYS * (D / 8); i += (int)blockDim.x) {
            int r = i / (D / 8), c = i % (D / 8);
            bool there = keys->slot[r] >= 0 && c * 8 < a.d;
            copy_async16(tile + piece_at<D>(r, c), a.kv.k + (there ? keys->at[r] + c * 8 : 0),
                         there ? 16 : 0);
        }
    } else {
        for (int i = (int)threadIdx.x; i < KEYS * D; i += (int)blockDim.x) {
            int r = i / D, c = i % D;
            tile[piece_at<D>(r, c / 8) + c % 8] =
                keys->slot[r] >= 0 && c < a.d ? a.kv.k[keys->at[r] + c] : (uint16_t)0;
        }
    }
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
}

/* Load the queries of this thread's two rows, of the block's COLUMN_ROWS from m0 on. A row sees
 * slots below its `limit`. */
template <int D>
__device__ static inline void column_rows(const struct column_args &a, uint32_t q[D / 16][4],
                                          int limit[2], int kv_head, int m0)
{
    const uint16_t *from[2] = { NULL, NULL };
    for (int h = 0; h < 2; h++) {
        int m = m0 + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + 8 * h;
        limit[h] = 0;
        if (m >= a.n_rows * a.group)
            continue;
        int row = a.rows[m / a.group], head = kv_head * a.group + m % a.group;
        limit[h] = a.first + row + 1;
        from[h] = a.q + ((size_t)row * a.n_heads + head) * a.d;
    }
    load_queries<D, false>(q, from[0], from[1], a.d);
}

/* Whether element j of s[i] belongs to a key that its row sees. */
__device__ static inline bool column_seen(const int *slots, const int limit[2], int i, int j)
{
    int slot = slots[i * 8 + (int)threadIdx.x % 4 * 2 + j % 2];
    return slot >= 0 && slot < limit[j / 2];
}

/* Pass one: max and sum of each query over one split of the keys. */
template <int D>
__global__ __launch_bounds__(COLUMN_WARPS * 32) void column_parts(struct column_args a)
{
    SHARED_MEMORY(uint16_t, tile);
    struct column_keys *keys = (struct column_keys *)(tile + KEYS * D);
    int split = (int)blockIdx.x, m0 = (int)blockIdx.y * COLUMN_ROWS, kv_head = (int)blockIdx.z;
    int end = min((split + 1) * KV_SPLIT, a.n_keys), limit[2];
    float top[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 };
    uint32_t q[D / 16][4];
    dep_launch();
    dep_wait();
    column_rows<D>(a, q, limit, kv_head, m0);
    for (int e = split * KV_SPLIT; e < end; e += KEYS) {
        float s[KEYS / 8][4], most[2] = { top[0], top[1] }, part[2] = { 0, 0 };
        load_keys<D>(a, tile, keys, kv_head, e);
        tile_scores<D, KEYS / 16>(s, q, tile, 0);
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                s[i][j] = column_seen(keys->slot, limit, i, j) ? s[i][j] : -INFINITY;
                most[j / 2] = fmaxf(most[j / 2], s[i][j]);
            }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 1));
            most[h] = fmaxf(most[h], __shfl_xor_sync(0xffffffffu, most[h], 2));
            float base = most[h] == -INFINITY ? 0.0f : most[h] * a.scale;
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
                part[h] += exp2_fast(fmaf(s[i][2 * h], a.scale, -base)) +
                           exp2_fast(fmaf(s[i][2 * h + 1], a.scale, -base));
            if (most[h] != top[h])
                sum[h] *= exp2_fast((top[h] - most[h]) * a.scale);
            sum[h] += part[h];
            top[h] = most[h];
        }
    }
    for (int h = 0; h < 2; h++) {
        int m = m0 + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + 8 * h;
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
        if (threadIdx.x % 4 == 0 && m < a.n_rows * a.group)
            a.part[((size_t)kv_head * a.n_rows * a.group + m) * a.splits + split] =
                make_float2(top[h], sum[h]);
    }
}

__global__ __launch_bounds__(STAT_THREADS) void column_stats(struct column_args a)
{
    int i = (int)(blockIdx.x * STAT_THREADS + threadIdx.x);
    const float2 *part = a.part + (size_t)i * a.splits;
    float top = -INFINITY, sum = 0;
    dep_launch();
    dep_wait();
    if (i >= a.n_kv * a.n_rows * a.group)
        return;
    for (int s = 0; s < a.splits; s++)
        top = fmaxf(top, part[s].x);
    for (int s = 0; s < a.splits; s++)
        if (part[s].x != -INFINITY)
            sum = fmaf(part[s].y, exp2_fast((part[s].x - top) * a.scale), sum);
    a.stat[i] = make_float2(top, sum > 0 ? 1.0f / sum : 0.0f);
}

/* Pass two: each thread adds up its rows of all tiles; then the threads that share a column are
 * added up, then the warps. */
template <int D>
__global__ __launch_bounds__(COLUMN_WARPS * 32) void column_sums(struct column_args a)
{
    SHARED_MEMORY(uint16_t, tile);
    struct column_keys *keys = (struct column_keys *)(tile + KEYS * D);
    float *shared_sums = (float *)(keys + 1);
    int e0 = (a.block0 + (int)blockIdx.x) * KEYS, n = a.n_rows * a.group, i;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float sum[KEYS / 8][2] = {};
    float *carry = a.carry + ((size_t)blockIdx.x * COLUMN_WARPS * 32 + threadIdx.x) * COLUMN_SUMS;
    dep_launch();
    dep_wait();
    for (int x = 0; x < COLUMN_SUMS && a.carry && !a.begins; x++)
        sum[x / 2][x % 2] = carry[x];
    for (int kv_head = 0; kv_head < a.n_kv; kv_head++) {
        load_keys<D>(a, tile, keys, kv_head, e0);
        for (int m0 = 0; m0 < n; m0 += COLUMN_ROWS) {
            int limit[2];
            uint32_t q[D / 16][4];
            float s[KEYS / 8][4];
            float2 stat[2];
            column_rows<D>(a, q, limit, kv_head, m0);
            for (int h = 0; h < 2; h++) {
                int m = min(m0 + warp * 16 + lane / 4 + 8 * h, n - 1);
                stat[h] = a.stat[(size_t)kv_head * n + m];
                stat[h].x = stat[h].x == -INFINITY ? 0.0f : stat[h].x * a.scale;
            }
            tile_scores<D, KEYS / 16>(s, q, tile, 0);
#pragma unroll
            for (int x = 0; x < KEYS / 8; x++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (column_seen(keys->slot, limit, x, j))
                        sum[x][j % 2] = fmaf(exp2_fast(fmaf(s[x][j], a.scale, -stat[j / 2].x)),
                                             stat[j / 2].y, sum[x][j % 2]);
        }
    }
    if (a.carry && !a.ends) {
        for (int x = 0; x < COLUMN_SUMS; x++)
            carry[x] = sum[x / 2][x % 2];
        return;
    }
#pragma unroll
    for (int x = 0; x < KEYS / 8; x++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            for (int bit = 4; bit < 32; bit *= 2)
                sum[x][j] += __shfl_xor_sync(0xffffffffu, sum[x][j], bit);
            if (lane < 4)
                shared_sums[warp * KEYS + x * 8 + lane * 2 + j] = sum[x][j];
        }
    __syncthreads();
    i = (int)threadIdx.x;
    if (i < KEYS && e0 + i < a.n_keys) {
        float total = a.add ? a.sums[e0 + i] : 0;
        for (int w = 0; w < COLUMN_WARPS; w++)
            total += shared_sums[w * KEYS + i];
        a.sums[e0 + i] = total;
    }
}

/* ---- host ---- */

template <int D> static size_t column_smem(void)
{
    return KEYS * D * sizeof(uint16_t) + sizeof(struct column_keys) +
           KEYS * COLUMN_WARPS * sizeof(float);
}

/* Launch pass one. `keys` is the list of keys; the softmax runs over it only with over_keys. */
template <int D>
static void find_stats(struct device_work *w, struct column_args a, const int *keys, int n_keys,
                       bool over_keys)
{
    int rows = a.n_rows * a.group, tiles = (rows + COLUMN_ROWS - 1) / COLUMN_ROWS;
    int stats = a.n_kv * rows;
    if (over_keys) {
        a.keys = keys;
        a.n_keys = n_keys;
    }
    work_check(w,
               launch(column_parts<D>, dim3((unsigned)a.splits, (unsigned)tiles, (unsigned)a.n_kv),
                      dim3(COLUMN_WARPS * 32), column_smem<D>(), w->stream, a),
               "maxima of columns");
    work_check(w,
               launch(column_stats, dim3((unsigned)((stats + STAT_THREADS - 1) / STAT_THREADS)),
                      dim3(STAT_THREADS), 0, w->stream, a),
               "maxima of columns");
}

/* Launch pass two for `blocks` blocks of columns. */
template <int D>
static void add_columns(struct device_work *w, struct column_args a, const int *keys, int n_keys,
                        int blocks)
{
    a.keys = keys;
    a.n_keys = n_keys;
    work_check(w,
               launch(column_sums<D>, dim3((unsigned)blocks), dim3(COLUMN_WARPS * 32),
                      column_smem<D>(), w->stream, a),
               "sums of columns");
}

static void both_stats(struct device_work *w, const struct column_args &a, const int *keys,
                       const struct column_job *job)
{
    (a.d <= 64    ? find_stats<64>
     : a.d <= 128 ? find_stats<128>
                  : find_stats<256>)(w, a, keys, job->n_keys, job->over_keys);
}

static void add_blocks(struct device_work *w, const struct column_args &a, const int *keys,
                       const struct column_job *job, int blocks)
{
    (a.d <= 64    ? add_columns<64>
     : a.d <= 128 ? add_columns<128>
                  : add_columns<256>)(w, a, keys, job->n_keys, blocks);
}

static int column_blocks(const struct column_job *job)
{
    return (job->n_keys + KEYS - 1) / KEYS;
}

/* Parts of the scratch memory: the job's keys and rows, and how many rows fit at a time. */
struct column_room {
    int *keys, *rows;
    int slice;
};

/* Start the upload of the lists. slice is 0 if there is not enough scratch memory. */
static cudaError_t columns_open(struct device_work *w, const struct column_job *job,
                                struct column_args *a, struct column_room *room)
{
    size_t keys = (size_t)job->n_keys, rows = (size_t)job->n_rows, slices;
    size_t lists = (2 * keys + rows + 1) / 2 * 2 * sizeof(float);
    size_t each = (size_t)a->n_heads * (size_t)(a->splits + 1) * sizeof(float2);
    cudaError_t e;
    if (w->full_size < lists + each)
        return cudaErrorMemoryAllocation;
    slices = (w->full_size - lists) / each;
    room->slice = slices < rows ? (int)slices : (int)rows;
    room->keys = (int *)w->full_scratch;
    room->rows = room->keys + 2 * keys;
    a->sums = (float *)(room->keys + keys);
    a->stat = (float2 *)((uint8_t *)w->full_scratch + lists);
    a->part = a->stat + (size_t)room->slice * (size_t)a->n_heads;
    e = cudaMemcpyAsync(room->keys, job->keys, keys * sizeof(int), cudaMemcpyHostToDevice,
                        w->stream);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(room->rows, job->rows, rows * sizeof(int), cudaMemcpyHostToDevice,
                            w->stream);
    return e;
}

/* Set the arguments for the slice of rows from `row` on. */
static void set_slice(struct column_args *a, const struct column_room *room,
                      const struct column_job *job, int row)
{
    a->rows = room->rows + row;
    a->n_rows = job->n_rows - row < room->slice ? job->n_rows - row : room->slice;
    a->add = row > 0;
}

/* Upload the lists, run both passes for as many rows at a time as there is room for, and download
 * the sums. */
static cudaError_t columns_run(struct device_work *w, const struct column_job *job,
                               struct column_args a, float *sums)
{
    struct column_room room = {};
    cudaError_t e = columns_open(w, job, &a, &room);
    if (e != cudaSuccess)
        return e;
    for (int row = 0; row < job->n_rows; row += room.slice) {
        set_slice(&a, &room, job, row);
        both_stats(w, a, room.keys, job);
        add_blocks(w, a, room.keys, job, column_blocks(job));
    }
    e = cudaMemcpyAsync(sums, a.sums, (size_t)job->n_keys * sizeof(float), cudaMemcpyDeviceToHost,
                        w->stream);
    return e == cudaSuccess ? cudaStreamSynchronize(w->stream) : e;
}

/* The arguments of a job for the heads of its run's KV cache; q points to the first of these heads.
 */
static struct column_args args_of(struct device_work *w, const struct column_job *job, int index,
                                  const struct kv_layer *kv, const uint16_t *q, int n_heads,
                                  int group, int d, float scale)
{
    const struct attn_run *run = job->run;
    struct column_args a = {};
    int listed;
    a.q = q + (size_t)run->row0 * (size_t)n_heads * (size_t)d;
    a.kv = pages_of(w, kv, index);
    a.first = run->first_slot + run->pending;
    a.n_keys = a.first + job->rows[job->n_rows - 1] + 1;
    a.n_heads = n_heads;
    a.n_kv = kv->n_kv;
    a.group = group;
    a.d = d;
    a.scale = scale * 1.4426950408889634f;
    a.f8 = kv->dtype == DTYPE_F8;
    listed = job->over_keys ? job->n_keys : a.n_keys;
    a.splits = (listed + KV_SPLIT - 1) / KV_SPLIT;
    return a;
}

/* Add the sums of one group of heads to those of the host. */
static void add_to_sums(struct device_work *w, const struct column_job *job, const float *sums,
                        int group)
{
    float *to = job->sums + (size_t)group * (size_t)job->n_keys;
    for (int i = 0; i < job->n_keys && w->error == cudaSuccess; i++)
        to[i] += sums[i];
}

void attention_columns(struct device_work *w, const struct column_job *job, int index,
                       const void *q16, int n_heads, int d, float scale)
{
    struct kv_layer kv = *job->run->kv;
    int groups = job->by_group ? kv.n_kv : 1, group = n_heads / kv.n_kv;
    size_t head = kv_head_size(kv.dtype, kv.d);
    float *sums;
    if (job->n_rows == 0 || job->n_keys == 0)
        return;
    sums = (float *)stager_lend(w, (size_t)job->n_keys * sizeof(float));
    if (!sums) {
        work_check(w, cudaErrorMemoryAllocation, "sums of columns");
        return;
    }
    kv.n_kv /= groups;
    for (int g = 0; g < groups; g++) { /* all heads at once, or one KV head at a time */
        const uint16_t *q = (const uint16_t *)q16 + (size_t)g * (size_t)group * (size_t)d;
        kv.k = (uint8_t *)job->run->kv->k + (size_t)g * head;
        struct column_args a = args_of(w, job, index, &kv, q, n_heads, group, d, scale);
        work_check(w, columns_run(w, job, a, sums), "sums of columns");
        add_to_sums(w, job, sums, g);
    }
}

/* ---- heads on several GPUs ---- */

/* A GPU that has KV heads which no GPU before it has. */
struct column_owner {
    struct gpus_rank *r;
    struct column_args a;
    struct column_room room;
};

/* Compute the sums of `blocks` blocks of columns. The sums go from GPU to GPU in the order of the
 * heads; each GPU continues where the one before it stopped. The host waits for each GPU in turn,
 * which is slow but rare. */
static void pass_on(struct column_owner *o, int n, const struct column_job *job, int block,
                    int blocks)
{
    size_t size = (size_t)blocks * COLUMN_WARPS * 32 * COLUMN_SUMS * sizeof(float);
    for (int i = 0; i < n; i++) {
        struct device_work *w = o[i].r->w;
        struct column_args a = o[i].a;
        a.carry = (float *)o[i].r->part2;
        a.begins = i == 0;
        a.ends = i == n - 1;
        a.block0 = block;
        on_gpu(o[i].r);
        if (i > 0)
            work_check(w,
                       cudaMemcpyPeerAsync(a.carry, w->gpu->index, o[i - 1].r->part2,
                                           o[i - 1].r->w->gpu->index, size, w->stream),
                       "sums of columns");
        add_blocks(w, a, o[i].room.keys, job, blocks);
        work_check(w, cudaStreamSynchronize(w->stream), "sums of columns");
    }
}

static void sum_over_gpus(struct gpus_work *g, struct column_owner *o, int n,
                          const struct column_job *job, float *sums)
{
    struct device_work *last = o[n - 1].r->w;
    int all = column_blocks(job);
    int most = (int)(g->part_size / (COLUMN_WARPS * 32 * COLUMN_SUMS * sizeof(float)));
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < n && e == cudaSuccess; i++) {
        on_gpu(o[i].r);
        e = columns_open(o[i].r->w, job, &o[i].a, &o[i].room);
    }
    for (int row = 0; row < job->n_rows && e == cudaSuccess; row += o[0].room.slice) {
        for (int i = 0; i < n; i++) {
            on_gpu(o[i].r);
            set_slice(&o[i].a, &o[i].room, job, row);
            both_stats(o[i].r->w, o[i].a, o[i].room.keys, job);
        }
        for (int block = 0; block < all; block += most)
            pass_on(o, n, job, block, all - block < most ? all - block : most);
    }
    on_gpu(o[n - 1].r);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(sums, o[n - 1].a.sums, (size_t)job->n_keys * sizeof(float),
                            cudaMemcpyDeviceToHost, last->stream);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(last->stream);
    work_check(g->r[0].w, e, "sums of columns");
}

void gpus_columns(struct gpus_work *g, const struct gpus_layer *l, const struct column_job *job,
                  int index, int n_heads, int group, int d, float scale)
{
    struct column_owner o[GPUS_MOST] = {};
    float *sums;
    int n = 0;
    if (job->n_rows == 0 || job->n_keys == 0)
        return;
    for (int r = 0; r < g->n; r++) {
        struct gpus_rank *k = &g->r[r];
        if (r > 0 && l->kv[r].from < l->kv[r - 1].to)
            continue;
        o[n].r = k;
        o[n++].a = args_of(k->w, job, index, &k->kv[index],
                           (const uint16_t *)k->w->gathered + (size_t)(l->kv[r].from * group * d),
                           n_heads, group, d, scale);
    }
    sums = (float *)stager_lend(g->r[0].w, (size_t)job->n_keys * sizeof(float));
    if (sums)
        sum_over_gpus(g, o, n, job, sums);
    else
        work_check(g->r[0].w, cudaErrorMemoryAllocation, "sums of columns");
    on_gpu(&g->r[0]);
    add_to_sums(g->r[0].w, job, sums, 0);
}
