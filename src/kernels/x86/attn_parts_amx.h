/* What attention by AMX tiles is made of (attn_amx.c, attn_tree_amx.c): scores of positions by
 * queries, their softmax, and the product of values by probabilities.
 *
 *   S^T [positions][queries] = K . Q^T      A = K rows as they lie, B = packed queries
 *   P^T = exp(scale (S^T - max)), masked    vertical: lanes are queries, no sums across lanes
 *   O^T [d][queries] = V^T . P^T            A = V^T rows as they lie, B = P^T in bf16
 *
 * A query is a column from beginning to end, so its bits do not depend on its neighbours. Positions
 * past a query's limit get p = 0, which adds exactly nothing; the rest of a chunk that no query of
 * the tile sees is left out. */
#ifndef PV_KERNELS_X86_ATTN_PARTS_AMX_H
#define PV_KERNELS_X86_ATTN_PARTS_AMX_H

#include "kernels/x86/tile_amx.h"

enum {
    GROUP = TILE_ROWS, /* queries of one tile */
    GROUPS = 4,        /* of one call */
    LANES = 4          /* partial sums of p, by position modulo LANES */
};

/* The chunk after this one, of K and of V, follows it in memory. When it will be asked for it is
 * fetched meanwhile, evenly, for a burst would only wait. */
struct fetcher {
    const char *k, *v;
    int lines;             /* of each, still to be fetched */
    int by_score, by_prob; /* in a step of the scores, and of the probabilities */
};

static inline struct fetcher fetcher_start(const struct attn_chunk *c, int d, int groups)
{
    size_t chunk = (size_t)KV_CHUNK * (size_t)d * 2;
    return (struct fetcher){ .k = (const char *)c->k + chunk,
                             .v = (const char *)c->vt + chunk,
                             .lines = c->more ? (int)(chunk / 64) : 0,
                             .by_score = groups == 1 ? 16 : 8,
                             .by_prob = groups == 1 ? 4 : 6 / groups };
}

static inline void fetch_lines(struct fetcher *f, int n)
{
    n = n < f->lines ? n : f->lines;
    f->lines -= n;
    for (int i = 0; i < n; i++, f->k += 64, f->v += 64) {
        _mm_prefetch(f->k, _MM_HINT_T1);
        _mm_prefetch(f->v, _MM_HINT_T1);
    }
}

/* ---- scores ---- */

/* Sixteen positions by up to four groups of queries; group g to s + g * apart. */
static inline __attribute__((always_inline)) void score_tile(float *s, size_t apart,
                                                             const uint8_t *k, const uint8_t *qp,
                                                             int d, int groups)
{
    size_t step = (size_t)(d / TILE_K) * TILE_BYTES;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < d / TILE_K; i++) {
        const uint8_t *b = qp + (size_t)i * TILE_BYTES;
        _tile_loadd(4, k + (size_t)i * 64, (size_t)d * 2);
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (groups > 1) {
            _tile_loadd(6, b + step, 64);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (groups > 2) {
            _tile_loadd(7, b + 2 * step, 64);
            _tile_dpbf16ps(2, 4, 7);
        }
        if (groups > 3) {
            _tile_loadd(5, b + 3 * step, 64);
            _tile_dpbf16ps(3, 4, 5);
        }
    }
    _tile_stored(0, s, 64);
    if (groups > 1)
        _tile_stored(1, s + apart, 64);
    if (groups > 2)
        _tile_stored(2, s + 2 * apart, 64);
    if (groups > 3)
        _tile_stored(3, s + 3 * apart, 64);
}

/* One group of queries of 64 values: they stay in tiles 6 and 7. positions is a multiple of 32. */
static inline void scores_64(float *s, const uint8_t *k, const uint8_t *qp, int positions,
                             struct fetcher *f)
{
    _tile_loadd(6, qp, 64);
    _tile_loadd(7, qp + TILE_BYTES, 64);
    for (int p = 0; p < positions; p += 32, k += 32 * 128, s += 32 * GROUP) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(2, k, 128);
        _tile_loadd(3, k + 64, 128);
        _tile_loadd(4, k + 16 * 128, 128);
        _tile_loadd(5, k + 16 * 128 + 64, 128);
        _tile_dpbf16ps(0, 2, 6);
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(0, 3, 7);
        _tile_dpbf16ps(1, 5, 7);
        _tile_stored(0, s, 64);
        _tile_stored(1, s + 16 * GROUP, 64);
        fetch_lines(f, f->by_score);
    }
}

static inline void score_tiles(float *s, size_t apart, const uint8_t *k, const uint8_t *qp, int d,
                               int groups)
{
    if (groups == 1)
        score_tile(s, apart, k, qp, d, 1);
    else if (groups == 2)
        score_tile(s, apart, k, qp, d, 2);
    else if (groups == 3)
        score_tile(s, apart, k, qp, d, 3);
    else
        score_tile(s, apart, k, qp, d, 4);
}

/* To s [groups][KV_CHUNK][16]. */
static inline void scores(float *s, const uint8_t *k, const uint8_t *qp, int d, int groups,
                          int positions, struct fetcher *f)
{
    if (groups == 1 && d == 64) {
        scores_64(s, k, qp, positions, f);
        return;
    }
    for (int p = 0; p < positions; p += 16) {
        fetch_lines(f, f->by_score);
        score_tiles(s + (size_t)p * GROUP, KV_CHUNK * GROUP, k + (size_t)p * (size_t)d * 2, qp, d,
                    groups);
    }
}

/* ---- softmax ---- */

/* Positions below `all` are seen by every query of the group; from there on each has its limit. */
static inline __m512 column_max(const float *s, __m512i limit, int all, int positions)
{
    const __m512 low = _mm512_set1_ps(-3e38f);
    __m512 top[LANES] = { low, low, low, low };
    int p = 0;
    for (; p < all; p += LANES)
        for (int i = 0; i < LANES; i++)
            top[i] = _mm512_max_ps(top[i], _mm512_load_ps(s + (p + i) * GROUP));
    for (; p < positions; p++) {
        __mmask16 m = _mm512_cmpgt_epi32_mask(limit, _mm512_set1_epi32(p));
        top[0] = _mm512_mask_max_ps(top[0], m, top[0], _mm512_load_ps(s + p * GROUP));
    }
    return _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
}

/* 2^x for x <= 0, within 2e-7; 2^0 is 1; far below it goes to 0. A polynomial of 2^f on |f| <= 1/2.
 */
static inline __m512 exp2_16(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 f = _mm512_sub_ps(x, n), p = _mm512_set1_ps(1.326470819e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.671514665e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.550733812e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.402224205e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931469775e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* p of two positions, as bf16 pairs of one query next to each other: a row of a B tile, and with
 * two planes one of the tile after it. */
static inline __attribute__((always_inline)) void pair_rows(uint8_t *pt, __m512 even, __m512 odd,
                                                            int planes)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i first = to_bf16_32(even, odd);
    _mm512_store_si512(pt, _mm512_permutexvar_epi16(order, first));
    if (planes == 2)
        _mm512_store_si512(pt + TILE_BYTES,
                           _mm512_permutexvar_epi16(order, rest_bf16_32(first, even, odd)));
}

/* Where the B tile row of positions p, p + 1 lies. */
static inline uint8_t *pair_place(uint8_t *pt, int p, int planes)
{
    return pt + (size_t)(p / TILE_K * planes) * TILE_BYTES + p % TILE_K * 32;
}

/* LANES positions from p on: B tile rows to pt, sums by lane. */
static inline __attribute__((always_inline)) void exp_rows(uint8_t *pt, __m512 sum[LANES],
                                                           const float *s, __m512 top, __m512 scale,
                                                           __m512i limit, int p, int masked,
                                                           int planes)
{
    __m512 e[LANES];
    for (int i = 0; i < LANES; i++) {
        __m512 x = _mm512_sub_ps(_mm512_load_ps(s + (p + i) * GROUP), top);
        e[i] = exp2_16(_mm512_mul_ps(scale, x));
        if (masked)
            e[i] =
                _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(limit, _mm512_set1_epi32(p + i)), e[i]);
        sum[i] = _mm512_add_ps(sum[i], e[i]);
    }
    pair_rows(pair_place(pt, p, planes), e[0], e[1], planes);
    pair_rows(pair_place(pt, p + 2, planes), e[2], e[3], planes);
}

/* positions is a multiple of 32, `all` of LANES; scale includes log2(e). Returns the sums of p; B
 * tiles to pt. */
static inline __attribute__((always_inline)) __m512 column_exp(uint8_t *pt, const float *s,
                                                               __m512 top, __m512 scale,
                                                               __m512i limit, int all,
                                                               int positions, struct fetcher *f,
                                                               int planes)
{
    __m512 sum[LANES];
    int p = 0;
    for (int i = 0; i < LANES; i++)
        sum[i] = _mm512_setzero_ps();
    for (; p < all; p += LANES) {
        fetch_lines(f, f->by_prob);
        exp_rows(pt, sum, s, top, scale, limit, p, 0, planes);
    }
    for (; p < positions; p += LANES)
        exp_rows(pt, sum, s, top, scale, limit, p, 1, planes);
    return _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
}

/* ---- a group of queries ---- */

/* Limits of one group as lanes; lanes without a query see everything, and nobody looks. */
static inline __m512i group_limits(const int *limit, int n)
{
    __mmask16 m = (__mmask16)((1u << n) - 1);
    return _mm512_mask_loadu_epi32(_mm512_set1_epi32(KV_CHUNK), m, limit);
}

/* Max and sum of one group, P to pt. */
static inline __attribute__((always_inline)) void group_softmax(float *max, float *sum, uint8_t *pt,
                                                                const float *s, const int *limit,
                                                                int n, int positions, float scale,
                                                                struct fetcher *f, int planes)
{
    __mmask16 lanes = (__mmask16)((1u << n) - 1);
    __m512i limits = group_limits(limit, n);
    int all = _mm512_reduce_min_epi32(limits) / LANES * LANES;
    all = all < positions ? all : positions;
    __m512 top = column_max(s, limits, all, positions);
    __m512 total = column_exp(pt, s, top, _mm512_set1_ps(scale * 1.44269504f), limits, all,
                              positions, f, planes);
    _mm512_mask_storeu_ps(max, lanes, _mm512_mul_ps(top, _mm512_set1_ps(scale)));
    _mm512_mask_storeu_ps(sum, lanes, total);
}

/* Positions that some query sees, rounded up. */
static inline int positions_seen(const int *limit, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++)
        most = limit[i] > most ? limit[i] : most;
    return (most + TILE_K - 1) / TILE_K * TILE_K;
}

static inline __attribute__((always_inline)) void groups_softmax(float *max, float *sum,
                                                                 uint8_t *pt, const float *s,
                                                                 const int *limit, int n,
                                                                 int positions, float scale,
                                                                 struct fetcher *f, int planes)
{
    phase();
    for (int q = 0; q < n; q += GROUP)
        group_softmax(max + q, sum + q, pt + (size_t)(q * planes) * KV_CHUNK * 2,
                      s + (size_t)q * KV_CHUNK, limit + q, n - q < GROUP ? n - q : GROUP, positions,
                      scale, f, planes);
    phase();
}

/* ---- values ---- */

static inline void store_values(float *out, int d, int n, const float *c)
{
    struct tile_place p = {
        .y = out, .stride = (size_t)d, .apart = 1, .n_out = TILE_ROWS, .n_rows = n
    };
    store_tile(&p, c);
}

/* 32 rows of V^T by two groups of queries, P of the second `p_step` bytes on: tiles 0 1 / 2 3 are
 * rows by groups. */
static inline __attribute__((always_inline)) void values_2x2(const uint8_t *v, const uint8_t *pt,
                                                             size_t p_step, int positions,
                                                             int planes)
{
    const size_t stride = (size_t)planes * KV_CHUNK * 2, second = GROUP * stride;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int p = 0; p < positions; p += TILE_K, v += TILE_K * 2, pt += planes * TILE_BYTES) {
        _tile_loadd(4, v, stride);
        _tile_loadd(5, v + second, stride);
        if (planes == 2) {
            _tile_loadd(6, pt + TILE_BYTES, 64);
            _tile_loadd(7, pt + p_step + TILE_BYTES, 64);
            products_2x2();
        }
        _tile_loadd(6, pt, 64);
        _tile_loadd(7, pt + p_step, 64);
        products_2x2();
        if (planes == 2) {
            _tile_loadd(4, v + KV_CHUNK * 2, stride);
            _tile_loadd(5, v + second + KV_CHUNK * 2, stride);
            products_2x2();
        }
    }
}

#endif
