/* The parts of attention by AMX tiles, shared by attn_amx.c, attn_head_amx.c and attn_tree_amx.c:
 * scores of positions by queries, their softmax, and the product of values and probabilities.
 *
 *   S^T [positions][queries] = K . Q^T      A = rows of K as stored, B = packed queries
 *   P^T = exp(scale (S^T - max)), masked    vertical: lanes are queries, no sums across lanes
 *   O^T [d][queries] = V^T . P^T            A = rows of V^T as stored, B = P^T in bf16
 *
 * A query is a column from beginning to end, so its bits do not depend on its neighbours. Positions
 * after a query's limit get p = 0, which adds exactly nothing; the rest of a chunk that no query of
 * the tile sees is skipped. */
#ifndef PV_KERNELS_X86_ATTN_PARTS_AMX_H
#define PV_KERNELS_X86_ATTN_PARTS_AMX_H

#include "kernels/x86/tile_amx.h"

enum {
    GROUP = TILE_ROWS, /* queries of one tile */
    GROUPS = 4,        /* groups per call */
    LANES = 4          /* partial sums of p, by position modulo LANES */
};

/* A group of few queries uses narrow tiles of 4 or 8 columns. Scores are stored as
 * [positions][lanes], so a vector holds 4 or 2 positions: the same bits with a quarter or half of
 * the work. */
static inline int lanes_for(int n)
{
    return n <= 4 ? 4 : n <= 8 ? 8 : GROUP;
}

/* Configures tiles for two groups at a time: C tiles 0 and 2 and B tile 6 are of the first group, C
 * tiles 1 and 3 and B tile 7 of the second; A tiles are 4 and 5. */
static inline void config_lanes(int first, int second)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = (uint16_t)(i == 4 || i == 5 ? 64 : 4 * (i % 2 ? second : first));
        s.rows[i] = TILE_ROWS;
    }
    tile_load_shape(&s);
}

/* Prefetches the next chunk during the computation, evenly, because a burst of requests would
 * stall. */
struct fetcher {
    const char *k, *v;
    int lines;                       /* lines of K and of V still to prefetch */
    int by_score, by_prob, by_value; /* lines per step of each part of the work */
};

static inline struct fetcher fetcher_start(const struct attn_chunk *c, int d, int n)
{
    size_t chunk = (size_t)KV_CHUNK * (size_t)d * 2;
    int groups = (n + GROUP - 1) / GROUP, pairs = (groups + 1) / 2;
    return (struct fetcher){ .k = c->next_k,
                             .v = c->next_vt,
                             .lines = c->next_k ? (int)(chunk / 64) : 0,
                             .by_score = groups == 1 ? 16 : 24 / pairs,
                             .by_prob = n <= 4   ? 16
                                        : n <= 8 ? 8
                                                 : 4 / groups,
                             .by_value = groups == 1 ? 16 : 12 / pairs };
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

/* Compute the scores of 32 positions by one group of queries in tiles 0 and 2, or by two groups,
 * the second `step` bytes after the first, in 0 1 / 2 3. Keys and values are used once, so they are
 * loaded with a streaming hint and do not evict other data from L1. */
static inline __attribute__((always_inline)) void score_tiles(const uint8_t *k, const uint8_t *qp,
                                                              size_t step, int d, int groups)
{
    const size_t stride = (size_t)d * 2, second = TILE_ROWS * stride;
    _tile_zero(0);
    _tile_zero(2);
    if (groups > 1) {
        _tile_zero(1);
        _tile_zero(3);
    }
    for (int i = 0; i < d; i += TILE_K, k += TILE_K * 2, qp += TILE_BYTES) {
        _tile_stream_loadd(4, k, stride);
        _tile_stream_loadd(5, k + second, stride);
        _tile_loadd(6, qp, 64);
        if (groups > 1) {
            _tile_loadd(7, qp + step, 64);
            products_2x2();
        } else {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(2, 5, 6);
        }
    }
}

/* Place of the scores of one or two groups: [positions][lanes], those of the second `apart` floats
 * further. */
struct score_place {
    float *s;
    size_t apart;
    int lanes[2];
};

static inline __attribute__((always_inline)) void scores_of(const struct score_place *to,
                                                            const uint8_t *k, const uint8_t *qp,
                                                            int d, int groups, int positions,
                                                            struct fetcher *f)
{
    const size_t step = (size_t)(d / TILE_K) * TILE_BYTES;
    const size_t wide0 = (size_t)to->lanes[0] * 4, wide1 = (size_t)to->lanes[1] * 4;
    for (int p = 0; p < positions; p += 32, k += (size_t)d * 64) {
        float *s0 = to->s + p * to->lanes[0], *s1 = to->s + to->apart + p * to->lanes[1];
        score_tiles(k, qp, step, d, groups);
        _tile_stored(0, s0, wide0);
        _tile_stored(2, s0 + 16 * to->lanes[0], wide0);
        if (groups > 1) {
            _tile_stored(1, s1, wide1);
            _tile_stored(3, s1 + 16 * to->lanes[1], wide1);
        }
        fetch_lines(f, f->by_score);
    }
}

/* Compute all scores; positions is a multiple of 32. */
static inline void scores(const struct score_place *to, const uint8_t *k, const uint8_t *qp, int d,
                          int groups, int positions, struct fetcher *f)
{
    if (groups > 1)
        scores_of(to, k, qp, d, 2, positions, f);
    else
        scores_of(to, k, qp, d, 1, positions, f);
}

/* ---- softmax ---- */

/* Which positions the queries of a group see, by lanes of a vector: lane l belongs to query l %
 * lanes, and to position l / lanes of those in the vector. */
struct seen {
    __m512i limit, place;
    int all;       /* every query sees the vectors below this; a multiple of LANES */
    int positions; /* positions per vector */
    int vectors;   /* number of vectors; a multiple of LANES */
};

/* Lanes without a query see everything; their results are not used. */
static inline struct seen seen_of(const int *limit, int n, int lanes, int positions)
{
    __m512i at = _mm512_and_si512(lanes_apart(1), _mm512_set1_epi32(lanes - 1));
    __mmask16 m = (__mmask16)((1u << n) - 1);
    __m512i limits = _mm512_mask_loadu_epi32(_mm512_set1_epi32(KV_CHUNK), m, limit);
    int all = _mm512_reduce_min_epi32(limits), each = GROUP / lanes;
    all = all < positions ? all : positions;
    return (struct seen){ .limit = _mm512_permutexvar_epi32(at, limits),
                          .place =
                              _mm512_srl_epi32(lanes_apart(1), _mm_cvtsi32_si128(lanes == 16  ? 4
                                                                                 : lanes == 8 ? 3
                                                                                              : 2)),
                          .all = all / (each * LANES) * LANES,
                          .positions = each,
                          .vectors = positions / each };
}

/* Mask of the lanes of vector v that their queries see. */
static inline __mmask16 seen_lanes(const struct seen *w, int v)
{
    __m512i at = _mm512_add_epi32(w->place, _mm512_set1_epi32(v * w->positions));
    return _mm512_cmpgt_epi32_mask(w->limit, at);
}

/* Swap the halves of a vector, or (swap_quarters) the quarters within each half. */
static inline __m512 swap_halves(__m512 v)
{
    return _mm512_shuffle_f32x4(v, v, 0x4e);
}

static inline __m512 swap_quarters(__m512 v)
{
    return _mm512_shuffle_f32x4(v, v, 0xb1);
}

/* The maximum of each query, in all its lanes. */
static inline __attribute__((always_inline)) __m512 column_max(const float *s, const struct seen *w,
                                                               int lanes)
{
    const __m512 low = _mm512_set1_ps(-3e38f);
    __m512 top[LANES] = { low, low, low, low };
    int v = 0;
    for (; v < w->all; v += LANES)
        for (int i = 0; i < LANES; i++)
            top[i] = _mm512_max_ps(top[i], _mm512_load_ps(s + (v + i) * 16));
    for (; v < w->vectors; v++)
        top[0] = _mm512_mask_max_ps(top[0], seen_lanes(w, v), top[0], _mm512_load_ps(s + v * 16));
    top[0] = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
    if (lanes < 16)
        top[0] = _mm512_max_ps(top[0], swap_halves(top[0]));
    return lanes < 8 ? _mm512_max_ps(top[0], swap_quarters(top[0])) : top[0];
}

/* 2^x for x <= 0, within 2e-7; 2^0 is 1; far below, it goes to 0. A polynomial of 2^f on |f| <=
 * 1/2. Processes LANES vectors together, to hide the latency of the chain of operations. */
static inline __attribute__((always_inline)) void exp2_lanes(__m512 x[LANES])
{
    static const float power[] = { 9.671514665e-3f, 5.550733812e-2f, 2.402224205e-1f,
                                   6.931469775e-1f, 1.0f };
    __m512 n[LANES], f[LANES], p[LANES];
    for (int i = 0; i < LANES; i++)
        f[i] = _mm512_reduce_ps(x[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    for (int i = 0; i < LANES; i++) {
        n[i] = _mm512_sub_ps(x[i], f[i]);
        p[i] = _mm512_set1_ps(1.326470819e-3f);
    }
#pragma GCC unroll 8
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < LANES; i++)
            p[i] = _mm512_fmadd_ps(p[i], f[i], _mm512_set1_ps(power[k]));
    for (int i = 0; i < LANES; i++)
        x[i] = _mm512_scalef_ps(p[i], n[i]);
}

/* Where the probabilities of vectors v and v + 1 go. With two planes there are always 16 lanes. */
static inline uint8_t *pair_place(uint8_t *pt, int v, int planes)
{
    return planes == 1 ? pt + (size_t)v * 32
                       : pt + (size_t)(v / TILE_K * 2) * TILE_BYTES + v % TILE_K * 32;
}

/* Values of a group's softmax that are the same for all its vectors. */
struct exp_terms {
    __m512 top, scale; /* scale includes log2(e) */
    __m512i order;
    struct seen seen;
};

/* Process LANES vectors from v on: writes rows of B tiles to pt, and adds up sums by position
 * modulo LANES. */
static inline __attribute__((always_inline)) void exp_rows(uint8_t *pt, __m512 sum[LANES],
                                                           const float *s,
                                                           const struct exp_terms *t, int v,
                                                           int masked, int lanes, int planes)
{
    __m512 e[LANES];
    for (int i = 0; i < LANES; i++)
        e[i] = _mm512_mul_ps(t->scale, _mm512_sub_ps(_mm512_load_ps(s + (v + i) * 16), t->top));
    exp2_lanes(e);
    for (int i = 0; i < LANES; i++) {
        int of = lanes == 16 ? i : lanes == 8 ? i % 2 : 0;
        if (masked)
            e[i] = _mm512_maskz_mov_ps(seen_lanes(&t->seen, v + i), e[i]);
        sum[of] = _mm512_add_ps(sum[of], e[i]);
    }
    pair_rows(pair_place(pt, v, planes), e[0], e[1], t->order, planes);
    pair_rows(pair_place(pt, v + 2, planes), e[2], e[3], t->order, planes);
}

/* Write the B tiles to pt, which may be s if there is one plane, and return the sums of p of each
 * query, as (s0 + s1) + (s2 + s3). */
static inline __attribute__((always_inline)) __m512 column_exp(uint8_t *pt, const float *s,
                                                               const struct exp_terms *t,
                                                               struct fetcher *f, int lanes,
                                                               int planes)
{
    __m512 sum[LANES];
    int v = 0;
    for (int i = 0; i < LANES; i++)
        sum[i] = _mm512_setzero_ps();
    for (; v < t->seen.all; v += LANES) {
        exp_rows(pt, sum, s, t, v, 0, lanes, planes);
        fetch_lines(f, f->by_prob);
    }
    for (; v < t->seen.vectors; v += LANES)
        exp_rows(pt, sum, s, t, v, 1, lanes, planes);
    if (lanes == 16)
        return _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    if (lanes == 8)
        return _mm512_add_ps(_mm512_add_ps(sum[0], swap_halves(sum[0])),
                             _mm512_add_ps(sum[1], swap_halves(sum[1])));
    sum[0] = _mm512_add_ps(sum[0], swap_quarters(sum[0]));
    return _mm512_add_ps(sum[0], swap_halves(sum[0]));
}

/* ---- a group of queries ---- */

/* Number of positions that some query sees, rounded up. */
static inline int positions_seen(const int *limit, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++)
        most = limit[i] > most ? limit[i] : most;
    return (most + TILE_K - 1) / TILE_K * TILE_K;
}

/* The softmax of some queries: its inputs, and where the results go. */
struct softmax {
    float *max, *sum;
    const int *limit;
    int n;
    int positions;
    float scale;
};

/* Compute max and sum of up to 16 queries from q on, and write P to pt. */
static inline __attribute__((always_inline)) void group_softmax(const struct softmax *m, int q,
                                                                uint8_t *pt, const float *s,
                                                                struct fetcher *f, int lanes,
                                                                int planes)
{
    int n = m->n - q < GROUP ? m->n - q : GROUP;
    __mmask16 there = (__mmask16)((1u << n) - 1);
    struct exp_terms t = { .scale = _mm512_set1_ps(m->scale * 1.44269504f),
                           .order = pair_order(lanes),
                           .seen = seen_of(m->limit + q, n, lanes, m->positions) };
    t.top = column_max(s, &t.seen, lanes);
    __m512 total = column_exp(pt, s, &t, f, lanes, planes);
    _mm512_mask_storeu_ps(m->max + q, there, _mm512_mul_ps(t.top, _mm512_set1_ps(m->scale)));
    _mm512_mask_storeu_ps(m->sum + q, there, total);
}

static inline void group_softmax_lanes(const struct softmax *m, int q, uint8_t *pt, const float *s,
                                       struct fetcher *f, int lanes)
{
    if (lanes == 4)
        group_softmax(m, q, pt, s, f, 4, 1);
    else if (lanes == 8)
        group_softmax(m, q, pt, s, f, 8, 1);
    else
        group_softmax(m, q, pt, s, f, 16, 1);
}

/* ---- values ---- */

static inline void store_values(float *out, int d, int n, const float *c)
{
    struct tile_place p = {
        .y = out, .stride = (size_t)d, .apart = 1, .n_out = TILE_ROWS, .n_rows = n
    };
    store_tile(&p, c);
}

/* Place of P of two groups: B tiles with rows of `wide` bytes, those of the second group `apart`
 * bytes further. */
struct prob_place {
    const uint8_t *pt;
    size_t apart;
    size_t wide[2];
};

/* Multiply 32 rows of V^T by one group of queries or two: tiles 0 1 / 2 3 are rows by groups. */
static inline __attribute__((always_inline)) void value_tiles(const uint8_t *v,
                                                              const struct prob_place *from,
                                                              int positions, int planes, int groups,
                                                              struct fetcher *f)
{
    const size_t stride = (size_t)planes * KV_CHUNK * 2, second = GROUP * stride;
    const size_t wide0 = from->wide[0], wide1 = from->wide[1];
    const uint8_t *p0 = from->pt, *p1 = from->pt + from->apart;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int p = 0; p < positions; p += TILE_K, v += TILE_K * 2) {
        _tile_stream_loadd(4, v, stride);
        _tile_stream_loadd(5, v + second, stride);
        if (planes == 2) {
            _tile_loadd(6, p0 + TILE_BYTES, 64);
            if (groups > 1)
                _tile_loadd(7, p1 + TILE_BYTES, 64);
            products_by(groups);
        }
        _tile_loadd(6, p0, wide0);
        if (groups > 1)
            _tile_loadd(7, p1, wide1);
        products_by(groups);
        if (planes == 2) {
            _tile_loadd(4, v + KV_CHUNK * 2, stride);
            _tile_loadd(5, v + second + KV_CHUNK * 2, stride);
            products_by(groups);
        }
        p0 += TILE_ROWS * wide0 * (size_t)planes;
        p1 += TILE_ROWS * wide1 * (size_t)planes;
        fetch_lines(f, f->by_value);
    }
}

static inline __attribute__((always_inline)) void values_2x2(const uint8_t *v,
                                                             const struct prob_place *from,
                                                             int positions, int planes, int groups,
                                                             struct fetcher *f)
{
    if (groups > 1)
        value_tiles(v, from, positions, planes, 2, f);
    else
        value_tiles(v, from, positions, planes, 1, f);
}

#endif
