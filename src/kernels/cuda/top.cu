/* The most likely tokens of each row of logits, so that the logits need not be copied to the host.
 *
 * A logit and its id form a 64-bit key with the order "larger first, lower id first". A block sorts
 * a part of a row; then the best of all parts are sorted once more. Sums of exponentials are added
 * up by parts in a fixed order. The noise of sampling is that of base/rng.h, in double precision as
 * on the host. */
#include "kernels/cuda/cuda.h"

enum { PART = 2048, SORT_THREADS = 512, MERGE = 16384 };

/* Ascending order of keys is descending order of logits; NaN and missing entries come last. */
__device__ static uint64_t key_of(float v, int id)
{
    uint32_t u = v == 0 ? 0 : __float_as_uint(v); /* the two zeros are equal */
    if (v != v)
        return ~(uint64_t)0;
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)~u << 32 | (uint32_t)id;
}

__device__ static float number_of(uint64_t key)
{
    uint32_t u = ~(uint32_t)(key >> 32);
    return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u);
}

/* Bitonic sort of n keys, n a power of two. Called by all threads of the block. */
__device__ static void sort_keys(uint64_t *keys, int n)
{
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < n / 2; i += (int)blockDim.x) {
                int a = 2 * i - (i & (step - 1)), b = a + step; /* i / step * 2 * step + i % step */
                uint64_t x = keys[a], y = keys[b];
                if ((x > y) == ((a & size) == 0)) {
                    keys[a] = y;
                    keys[b] = x;
                }
            }
        }
    __syncthreads();
}

/* The k smallest keys of a part, its largest logit m, and its sum of exp((x - m) / t). */
__global__ static void top_parts(uint64_t *best, float *stats, const float *x, int dim, int k,
                                 float inv_t)
{
    SHARED_MEMORY(uint64_t, keys);
    __shared__ float sums[SORT_THREADS];
    int from = (int)blockIdx.x * PART, row = (int)blockIdx.y, parts = (int)gridDim.x;
    size_t at = (size_t)row * (size_t)parts + blockIdx.x;
    const float *v = x + (size_t)row * (size_t)dim;
    float top, sum = 0;
    dep_launch();
    dep_wait();
    for (int i = (int)threadIdx.x; i < PART; i += SORT_THREADS)
        keys[i] = from + i < dim ? key_of(v[from + i], from + i) : ~(uint64_t)0;
    __syncthreads();
    sort_keys(keys, PART);
    top = keys[0] == ~(uint64_t)0 ? -INFINITY : number_of(keys[0]);
    for (int i = (int)threadIdx.x; i < PART; i += SORT_THREADS)
        if (keys[i] != ~(uint64_t)0 && top > -INFINITY)
            sum += expf((number_of(keys[i]) - top) * inv_t);
    sums[threadIdx.x] = sum;
    for (int step = SORT_THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step)
            sums[threadIdx.x] += sums[threadIdx.x + step];
    }
    for (int i = (int)threadIdx.x; i < k; i += SORT_THREADS)
        best[at * (size_t)k + i] = keys[i];
    if (threadIdx.x == 0) {
        stats[2 * at] = top;
        stats[2 * at + 1] = sums[0];
    }
}

/* Merge all parts of a row. `room` is the number of keys rounded up to a power of two. */
__global__ static void top_merge(struct top_entry *out, float *mass, const uint64_t *best,
                                 const float *stats, int parts, int k, int room, float inv_t)
{
    SHARED_MEMORY(uint64_t, keys);
    int row = (int)blockIdx.x, n = parts * k;
    const uint64_t *mine = best + (size_t)row * (size_t)n;
    const float *s = stats + 2 * (size_t)row * (size_t)parts;
    dep_launch();
    dep_wait();
    for (int i = (int)threadIdx.x; i < room; i += SORT_THREADS)
        keys[i] = i < n ? mine[i] : ~(uint64_t)0;
    __syncthreads();
    sort_keys(keys, room);
    for (int i = (int)threadIdx.x; i < k; i += SORT_THREADS) {
        struct top_entry e = { 0, -1 };
        if (keys[i] != ~(uint64_t)0) {
            e.logit = number_of(keys[i]);
            e.id = (int32_t)(uint32_t)keys[i];
        }
        out[(size_t)row * (size_t)k + i] = e;
    }
    if (threadIdx.x == 0) {
        float top = keys[0] == ~(uint64_t)0 ? -INFINITY : number_of(keys[0]);
        double sum = 0;
        for (int p = 0; p < parts; p++)
            if (s[2 * p] > -INFINITY)
                sum += (double)s[2 * p + 1] * exp((double)(s[2 * p] - top) * (double)inv_t);
        mass[row] = (float)((double)top * (double)inv_t + log(sum));
    }
}

size_t top_scratch_size(int rows, int dim)
{
    size_t parts = (size_t)(dim + PART - 1) / PART;
    return (size_t)rows * parts * (DEVICE_MAX_TOP * sizeof(uint64_t) + 2 * sizeof(float));
}

static void top_some(struct device_work *w, struct top_entry *out, float *mass, const float *x,
                     int n, int dim, int k, float t)
{
    int parts = (dim + PART - 1) / PART, room = 2;
    uint64_t *best = (uint64_t *)w->top_scratch;
    float *stats = (float *)(best + (size_t)n * (size_t)parts * (size_t)k);
    static struct by_gpu allowed;
    while (room < parts * k)
        room *= 2;
    work_check(
        w, allow_smem(&allowed, w->gpu->index, top_merge, sizeof(uint64_t) * (size_t)room, false),
        "the likeliest tokens");
    work_check(w,
               launch(top_parts, dim3((unsigned)parts, (unsigned)n), dim3(SORT_THREADS),
                      sizeof(uint64_t) * PART, w->stream, best, stats, x, dim, k, 1 / t),
               "the likeliest tokens");
    work_check(w,
               launch(top_merge, dim3((unsigned)n), dim3(SORT_THREADS),
                      sizeof(uint64_t) * (size_t)room, w->stream, out, mass, (const uint64_t *)best,
                      (const float *)stats, parts, k, room, 1 / t),
               "the likeliest tokens");
}

void top_rows(struct device_work *w, struct top_entry *out, float *mass, const float *x, int n,
              int dim, int k, float t)
{
    for (int at = 0; at < n; at += FEW_ROWS)
        top_some(w, out + (size_t)at * (size_t)k, mass + at, x + (size_t)at * (size_t)dim,
                 n - at < FEW_ROWS ? n - at : (int)FEW_ROWS, dim, k, t);
}

/* ---- draft vocabularies ---- */

enum { NAME_THREADS = 128 };

__global__ static void name_kernel(int32_t *ids, int n, int step, const int32_t *names)
{
    int i = (int)blockIdx.x * NAME_THREADS + (int)threadIdx.x;
    dep_launch();
    dep_wait();
    if (i < n && ids[i * step] >= 0)
        ids[i * step] = names[ids[i * step]];
}

void name_ids(struct device_work *w, int32_t *ids, int n, int step, const int32_t *names)
{
    if (n > 0)
        work_check(w,
                   launch(name_kernel, dim3((unsigned)((n + NAME_THREADS - 1) / NAME_THREADS)),
                          dim3(NAME_THREADS), 0, w->stream, ids, n, step, names),
                   "naming tokens");
}

/* ---- sampling ---- */

__device__ static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* rng_uniform of base/rng.c; its first two rounds are the same for a whole row, and given as h. */
__device__ static double uniform(uint64_t h, uint64_t index)
{
    h = mix(mix(h + index * 0x9e3779b97f4a7c15u) ^ 0xa0761d6478bd642fu);
    return ((double)(h >> 12) + 0.5) * 0x1p-52;
}

struct drawn {
    double score;
    int id;
};

__device__ static struct drawn better(struct drawn a, struct drawn b)
{
    bool first =
        a.id >= 0 && (b.id < 0 || a.score > b.score || (a.score == b.score && a.id < b.id));
    return first ? a : b;
}

/* Find the best token of a part of a row of x, or, if `from` is given, of the parts' best tokens.
 */
__global__ static void draw_part(struct drawn *out, int32_t *ids, const struct drawn *from,
                                 const float *x, int n, const uint64_t *position, uint64_t seed,
                                 double t)
{
    __shared__ struct drawn best[SORT_THREADS];
    int row = (int)blockIdx.y, per = (n + (int)gridDim.x - 1) / (int)gridDim.x;
    int first = (int)blockIdx.x * per, last = first + per < n ? first + per : n;
    struct drawn mine = { 0, -1 };
    dep_launch();
    dep_wait();
    uint64_t h = mix(seed + 0x9e3779b97f4a7c15u);
    h = mix(h ^ (position[row] * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du));
    for (int i = first + (int)threadIdx.x; i < last; i += SORT_THREADS) {
        struct drawn d;
        if (from) {
            d = from[(size_t)row * (size_t)n + i];
        } else {
            float v = x[(size_t)row * (size_t)n + i];
            d.id = v == v ? i : -1;
            d.score = (double)v / t - log(-log(uniform(h, (uint64_t)i)));
        }
        mine = better(mine, d);
    }
    best[threadIdx.x] = mine;
    for (int step = SORT_THREADS / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step)
            best[threadIdx.x] = better(best[threadIdx.x], best[threadIdx.x + step]);
    }
    if (threadIdx.x == 0 && out)
        out[(size_t)row * gridDim.x + blockIdx.x] = best[0];
    if (threadIdx.x == 0 && ids)
        ids[row] = best[0].id < 0 ? 0 : best[0].id;
}

static void draw_some(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
                      const uint64_t *position, uint64_t seed, float t)
{
    int parts = (dim + PART - 1) / PART;
    struct drawn *left = (struct drawn *)w->top_scratch;
    work_check(w,
               launch(draw_part, dim3((unsigned)parts, (unsigned)n), dim3(SORT_THREADS), 0,
                      w->stream, left, (int32_t *)NULL, (const struct drawn *)NULL, x, dim,
                      position, seed, (double)t),
               "drawing tokens");
    work_check(w,
               launch(draw_part, dim3(1, (unsigned)n), dim3(SORT_THREADS), 0, w->stream,
                      (struct drawn *)NULL, ids, (const struct drawn *)left, x, parts, position,
                      seed, (double)t),
               "drawing tokens");
}

void draw_rows(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
               const uint64_t *position, uint64_t seed, float t)
{
    for (int at = 0; at < n; at += FEW_ROWS)
        draw_some(w, ids + at, x + (size_t)at * (size_t)dim,
                  n - at < FEW_ROWS ? n - at : (int)FEW_ROWS, dim, position + at, seed, t);
}
