/* Attention of one head of a vision tower's rows by AMX tiles: what attn_amx.c computes chunk by
 * chunk, with the same bits, for all queries of a head at once.
 *
 * Results stay as tiles have them, [d][16 queries], until the last chunk is joined: a chunk joins
 * them by vectors whose lanes are queries, and only the finished rows are transposed. Columns of V
 * that only fill up the head (72 values are 80 in tiles of 16, not 96) are left out. */
#include "kernels/x86/attn_parts_amx.h"

#include "base/mem.h"
#include "base/minmax.h"

#include <math.h>

enum {
    PAIR = 2 * GROUP,
    APART = KV_CHUNK * GROUP, /* scores of the two groups of a pair, in floats */
    TILE_FLOATS = TILE_BYTES / 4
};

struct head_mem {
    uint8_t *qp;      /* [groups][steps] tiles */
    float *acc;       /* [groups][columns][16] */
    float *max, *sum; /* [groups][16] */
    uint8_t *k, *vt;  /* the current chunk */
    float *s;         /* [2][KV_CHUNK][16] */
    float *c;         /* four tiles */
};

/* A head's values in tiles of 32 (keys and queries) or of 16 (values). */
static int wide_of(int d)
{
    return (d + TILE_K - 1) / TILE_K * TILE_K;
}

static int columns_of(int d)
{
    return (d + GROUP - 1) / GROUP * GROUP;
}

static int groups_of(int n)
{
    return (n + GROUP - 1) / GROUP;
}

static size_t take(size_t *at, size_t size)
{
    size_t from = *at;
    *at += (size + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    return from;
}

static size_t mem_init(struct head_mem *m, uint8_t *mem, int n_q, int d)
{
    size_t groups = (size_t)groups_of(n_q), wide = (size_t)wide_of(d), at = 0;
    size_t qp = take(&at, groups * wide / TILE_K * TILE_BYTES);
    size_t acc = take(&at, groups * (size_t)columns_of(d) * GROUP * sizeof(float));
    size_t max = take(&at, groups * GROUP * sizeof(float));
    size_t sum = take(&at, groups * GROUP * sizeof(float));
    size_t k = take(&at, KV_CHUNK * wide * 2), vt = take(&at, KV_CHUNK * wide * 2);
    size_t s = take(&at, 2 * APART * sizeof(float)), c = take(&at, 4 * TILE_BYTES);
    if (m)
        *m = (struct head_mem){ .qp = mem + qp,
                                .acc = (float *)(void *)(mem + acc),
                                .max = (float *)(void *)(mem + max),
                                .sum = (float *)(void *)(mem + sum),
                                .k = mem + k,
                                .vt = mem + vt,
                                .s = (float *)(void *)(mem + s),
                                .c = (float *)(void *)(mem + c) };
    return at;
}

size_t attn_head_size_amx(int n_q, int d)
{
    return mem_init(NULL, NULL, n_q, d);
}

/* ---- queries ---- */

static void pack_queries(const struct attn_head *h, uint8_t *tile)
{
    for (int g = 0; g < h->n_q; g += GROUP)
        for (int k = 0; k < h->d; k += TILE_K, tile += TILE_BYTES) {
            const float *q = h->q + (size_t)g * h->stride + k;
            __m512i r[16];
            for (int i = 0; i < GROUP; i++, q += h->stride) {
                __m512 v[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
                if (g + i < h->n_q)
                    load_32(v, q, h->d - k);
                r[i] = to_bf16_32(v[0], v[1]);
            }
            transpose_16x16(r);
            for (int i = 0; i < 16; i++)
                _mm512_store_si512(tile + i * 64, r[i]);
        }
}

/* ---- joining ---- */

/* Factors of what a group has and of the chunk's results, as partial_join has them. */
struct factors {
    __m512 a, b;
};

static struct factors join_sums(float *max, float *sum, const float *max2, const float *sum2, int n)
{
    _Alignas(64) float a[GROUP] = { 0 }, b[GROUP] = { 0 };
    for (int i = 0; i < n; i++) {
        float top = max[i] > max2[i] ? max[i] : max2[i];
        a[i] = max[i] == top ? 1 : expf(max[i] - top);
        b[i] = max2[i] == top ? 1 : expf(max2[i] - top);
        sum[i] = sum[i] * a[i] + sum2[i] * b[i];
        max[i] = top;
    }
    return (struct factors){ _mm512_load_ps(a), _mm512_load_ps(b) };
}

/* Join a C tile, [16 columns][16 queries]. */
static inline void join_tile(float *acc, const float *c, struct factors f)
{
    for (int i = 0; i < TILE_FLOATS; i += 16)
        _mm512_store_ps(acc + i, _mm512_fmadd_ps(_mm512_load_ps(acc + i), f.a,
                                                 _mm512_mul_ps(_mm512_load_ps(c + i), f.b)));
}

/* ---- one chunk ---- */

struct chunk_at {
    const struct attn_head *h;
    const struct head_mem *m;
    const int *limit; /* limits of a pair's queries: all the same */
    int n;            /* positions, */
    int positions;    /* rounded up to tiles */
};

/* Multiply the last 16 columns of V^T by one group or two: tiles 0 and 1. */
static inline __attribute__((always_inline)) void value_half(const uint8_t *v, const uint8_t *p,
                                                             int positions, int groups)
{
    const size_t stride = KV_CHUNK * 2, apart = APART * sizeof(float);
    _tile_zero(0);
    _tile_zero(1);
    for (int i = 0; i < positions; i += TILE_K, v += TILE_K * 2, p += TILE_BYTES) {
        _tile_stream_loadd(4, v, stride);
        _tile_loadd(6, p, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (groups > 1) {
            _tile_loadd(7, p + apart, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
    }
}

static inline __attribute__((always_inline)) void join_values(const struct chunk_at *at, float *acc,
                                                              const struct factors f[2], int groups)
{
    const int columns = columns_of(at->h->d);
    const size_t stride = KV_CHUNK * 2, apart = (size_t)columns * GROUP;
    const struct prob_place from = { (const uint8_t *)at->m->s, APART * sizeof(float), { 64, 64 } };
    struct fetcher none = { 0 };
    float *c = at->m->c;
    for (int i = 0; i < columns; i += PAIR, acc += PAIR * GROUP) {
        const uint8_t *v = at->m->vt + (size_t)i * stride;
        bool both = i + GROUP < columns;
        if (both)
            value_tiles(v, &from, at->positions, 1, groups, &none);
        else
            value_half(v, from.pt, at->positions, groups);
        for (int g = 0; g < groups; g++) {
            if (g == 0)
                _tile_stored(0, c, 64);
            else
                _tile_stored(1, c + TILE_FLOATS, 64);
            if (both && g == 0)
                _tile_stored(2, c + 2 * TILE_FLOATS, 64);
            else if (both)
                _tile_stored(3, c + 3 * TILE_FLOATS, 64);
        }
        tiles_written();
        for (int g = 0; g < groups; g++) {
            join_tile(acc + g * apart, c + g * TILE_FLOATS, f[g]);
            if (both)
                join_tile(acc + g * apart + TILE_FLOATS, c + (2 + g) * TILE_FLOATS, f[g]);
        }
    }
}

/* Process queries [q, q + 16 groups). */
static inline __attribute__((always_inline)) void pair_run(const struct chunk_at *at, int q,
                                                           int groups)
{
    const struct head_mem *m = at->m;
    const int wide = wide_of(at->h->d), columns = columns_of(at->h->d);
    const struct score_place to = { m->s, APART, { GROUP, GROUP } };
    const uint8_t *qp = m->qp + (size_t)(q / GROUP) * (size_t)(wide / TILE_K) * TILE_BYTES;
    _Alignas(64) float max[PAIR], sum[PAIR];
    const struct softmax softmax = { max,           sum,         at->limit, groups * GROUP,
                                     at->positions, at->h->scale };
    struct fetcher none = { 0 };
    struct factors f[2];
    scores_of(&to, m->k, qp, wide, groups, at->positions, &none);
    phase();
    for (int g = 0; g < groups; g++) {
        int at_q = q + g * GROUP;
        float *s = m->s + g * APART;
        group_softmax(&softmax, g * GROUP, (uint8_t *)s, s, &none, GROUP, 1);
        f[g] = join_sums(m->max + at_q, m->sum + at_q, max + g * GROUP, sum + g * GROUP,
                         min_int(GROUP, at->h->n_q - at_q));
    }
    phase();
    join_values(at, m->acc + (size_t)q * (size_t)columns, f, groups);
}

static void chunk_run(const struct chunk_at *at, int first)
{
    const struct attn_head *h = at->h;
    struct attn_rows rows = { .k = h->k + (size_t)first * h->stride,
                              .v = h->v + (size_t)first * h->stride,
                              .stride = h->stride,
                              .n = at->n,
                              .d = h->d };
    attn_lay_bf16_amx(at->m->k, at->m->vt, &rows, wide_of(h->d));
    phase();
    for (int q = 0; q < h->n_q; q += PAIR) {
        if (h->n_q - q > GROUP)
            pair_run(at, q, 2);
        else
            pair_run(at, q, 1);
    }
}

/* ---- the head ---- */

static void clear(const struct head_mem *m, int n_q, int d)
{
    int groups = groups_of(n_q);
    for (int i = 0; i < groups * GROUP; i++) {
        m->max[i] = -INFINITY;
        m->sum[i] = 0;
    }
    memset(m->acc, 0, sizeof(float) * (size_t)(groups * GROUP) * (size_t)columns_of(d));
}

static void write_rows(const struct attn_head *h, const struct head_mem *m)
{
    const float *acc = m->acc;
    for (int g = 0; g < h->n_q; g += GROUP) {
        __m512 scale = _mm512_div_ps(_mm512_set1_ps(1), _mm512_load_ps(m->sum + g));
        for (int c = 0; c < h->d; c += GROUP, acc += TILE_FLOATS) {
            __mmask16 there = (__mmask16)((1u << min_int(GROUP, h->d - c)) - 1);
            float *out = h->out + (size_t)g * h->stride + c;
            __m512i t[16];
            for (int i = 0; i < 16; i++)
                t[i] = (__m512i)_mm512_mul_ps(_mm512_load_ps(acc + i * 16), scale);
            transpose_16x16(t);
            for (int i = 0; i < 16 && g + i < h->n_q; i++, out += h->stride)
                _mm512_mask_storeu_ps(out, there, (__m512)t[i]);
        }
    }
}

void attn_head_bf16_amx(const struct attn_head *h, void *scratch)
{
    struct head_mem m;
    int limit[PAIR];
    mem_init(&m, scratch, h->n_q, h->d);
    pack_queries(h, m.qp);
    clear(&m, h->n_q, h->d);
    tile_config();
    for (int first = 0; first < h->n; first += KV_CHUNK) {
        int n = min_int(KV_CHUNK, h->n - first);
        struct chunk_at at = {
            .h = h, .m = &m, .limit = limit, .n = n, .positions = (n + TILE_K - 1) / TILE_K * TILE_K
        };
        for (int i = 0; i < PAIR; i++)
            limit[i] = n;
        chunk_run(&at, first);
    }
    _tile_release();
    write_rows(h, &m);
}
