/* Attention of a tile of queries over one chunk of a bf16 KV cache, by AMX tiles; and the same with
 * every number as the sum of two bf16 numbers.
 *
 *   S^T [positions][queries] = K . Q^T      A = K rows as they lie, B = packed queries
 *   P^T = exp(scale (S^T - max)), masked    vertical: lanes are queries, no sums across lanes
 *   O^T [d][queries] = V^T . P^T            A = V^T rows as they lie, B = P^T in bf16
 *
 * A query is a column from beginning to end, so its bits do not depend on its neighbours. Positions
 * past a query's limit get p = 0, which adds exactly nothing; the rest of a chunk that no query of
 * the tile sees is left out.
 *
 * In two planes (attn_pair_amx) rows of K and V^T are followed by their second parts; of the four
 * products the one of the second parts is left out. */
#include "kernels/x86/tile_amx.h"

enum {
    GROUP = TILE_ROWS, /* queries of one tile */
    GROUPS = 4,        /* of one call */
    LANES = 4          /* partial sums of p, by position modulo LANES */
};

static size_t packed_size(int n, int d)
{
    return ((size_t)n + GROUP - 1) / GROUP * (size_t)(d / TILE_K) * TILE_BYTES;
}

/* Scores [GROUPS][KV_CHUNK][16]; four C tiles; P in bf16, in up to two planes. */
static size_t scratch_size(int n, int d)
{
    (void)n;
    (void)d;
    return (sizeof(float) + 2 * sizeof(uint16_t)) * KV_CHUNK * GROUP * GROUPS + 4 * TILE_BYTES;
}

static void pack(void *qp, const float *const *q, int n, int d)
{
    uint8_t *tile = qp;
    for (int g = 0; g < n; g += GROUP)
        for (int k = 0; k < d; k += TILE_K, tile += TILE_BYTES) {
            __m512i r[16];
            for (int i = 0; i < GROUP; i++)
                r[i] = g + i < n ? to_bf16_32(_mm512_loadu_ps(q[g + i] + k),
                                              _mm512_loadu_ps(q[g + i] + k + 16))
                                 : _mm512_setzero_si512();
            transpose_16x16(r);
            for (int i = 0; i < 16; i++)
                _mm512_store_si512(tile + i * 64, r[i]);
        }
}

/* The chunk after this one, of K and of V, follows it in memory. One group of queries is faster
 * than memory: it fetches the next chunk while it works, evenly, for a burst would only wait. */
struct fetcher {
    const char *k, *v;
    int lines; /* of each, still to be fetched */
};

static struct fetcher fetcher_start(const void *k, const void *vt, int d, int groups)
{
    size_t chunk = (size_t)KV_CHUNK * (size_t)d * 2;
    return (struct fetcher){ (const char *)k + chunk, (const char *)vt + chunk,
                             groups == 1 ? (int)(chunk / 64) : 0 };
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

/* Sixteen positions by up to four groups of queries; group g to s + g * KV_CHUNK * GROUP. */
static inline __attribute__((always_inline)) void score_tile(float *s, const uint8_t *k,
                                                             const uint8_t *qp, int d, int groups)
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
        _tile_stored(1, s + KV_CHUNK * GROUP, 64);
    if (groups > 2)
        _tile_stored(2, s + 2 * KV_CHUNK * GROUP, 64);
    if (groups > 3)
        _tile_stored(3, s + 3 * KV_CHUNK * GROUP, 64);
}

/* One group of queries of 64 values: they stay in tiles 6 and 7. positions is a multiple of 32. */
static void scores_64(float *s, const uint8_t *k, const uint8_t *qp, int positions,
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
        fetch_lines(f, 16);
    }
}

static void scores(float *s, const uint8_t *k, const uint8_t *qp, int d, int groups, int positions,
                   struct fetcher *f)
{
    if (groups == 1 && d == 64) {
        scores_64(s, k, qp, positions, f);
        return;
    }
    for (int p = 0; p < positions; p += 16) {
        const uint8_t *row = k + (size_t)p * (size_t)d * 2;
        float *to = s + (size_t)p * GROUP;
        fetch_lines(f, 16);
        if (groups == 1)
            score_tile(to, row, qp, d, 1);
        else if (groups == 2)
            score_tile(to, row, qp, d, 2);
        else if (groups == 3)
            score_tile(to, row, qp, d, 3);
        else
            score_tile(to, row, qp, d, 4);
    }
}

/* ---- softmax ---- */

/* Positions below `all` are seen by every query of the group; from there on each has its limit. */
static __m512 column_max(const float *s, __m512i limit, int all, int positions)
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
        fetch_lines(f, 4);
        exp_rows(pt, sum, s, top, scale, limit, p, 0, planes);
    }
    for (; p < positions; p += LANES)
        exp_rows(pt, sum, s, top, scale, limit, p, 1, planes);
    return _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
}

/* ---- values ---- */

static void store_values(float *out, int d, int n, const float *c)
{
    struct tile_place p = {
        .y = out, .stride = (size_t)d, .apart = 1, .n_out = TILE_ROWS, .n_rows = n
    };
    store_tile(&p, c);
}

/* 16 or 64 rows of V^T by one group: out[query][d0 ...]. */
static void values(float *out, const uint8_t *vt, const uint8_t *pt, int d, int n, int positions,
                   float *c, struct fetcher *f)
{
    const size_t stride = KV_CHUNK * 2, tile = 16 * stride;
    int i = 0;
    for (; i + 64 <= d; i += 64) {
        const uint8_t *v = vt + (size_t)i * stride;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int p = 0; p < positions; p += TILE_K) {
            _tile_loadd(7, pt + (size_t)p * 32, 64);
            _tile_loadd(4, v + p * 2, stride);
            _tile_dpbf16ps(0, 4, 7);
            _tile_loadd(5, v + tile + p * 2, stride);
            _tile_dpbf16ps(1, 5, 7);
            _tile_loadd(6, v + 2 * tile + p * 2, stride);
            _tile_dpbf16ps(2, 6, 7);
            _tile_loadd(4, v + 3 * tile + p * 2, stride);
            _tile_dpbf16ps(3, 4, 7);
            fetch_lines(f, 16);
        }
        _tile_stored(0, c, 64);
        _tile_stored(1, c + 256, 64);
        _tile_stored(2, c + 512, 64);
        _tile_stored(3, c + 768, 64);
        for (int j = 0; j < 4; j++)
            store_values(out + i + j * 16, d, n, c + j * 256);
    }
    for (; i < d; i += 16) {
        _tile_zero(0);
        for (int p = 0; p < positions; p += TILE_K) {
            _tile_loadd(7, pt + (size_t)p * 32, 64);
            _tile_loadd(4, vt + (size_t)i * stride + p * 2, stride);
            _tile_dpbf16ps(0, 4, 7);
        }
        _tile_stored(0, c, 64);
        store_values(out + i, d, n, c);
    }
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

/* All rows of V^T by n queries in several groups, two at a time: V^T is read half as often. An odd
 * last group is computed twice. */
static inline __attribute__((always_inline)) void values_many(float *out, const uint8_t *vt,
                                                              const uint8_t *pt, int d, int n,
                                                              int positions, float *c, int planes)
{
    const size_t step = (size_t)planes * KV_CHUNK * GROUP * 2;
    for (int q = 0; q < n; q += 2 * GROUP, pt += 2 * step)
        for (int i = 0; i < d; i += 2 * GROUP) {
            values_2x2(vt + (size_t)(i * planes) * KV_CHUNK * 2, pt, q + GROUP < n ? step : 0,
                       positions, planes);
            _tile_stored(0, c, 64);
            _tile_stored(1, c + 256, 64);
            _tile_stored(2, c + 512, 64);
            _tile_stored(3, c + 768, 64);
            for (int j = 0; j < 4; j++) {
                int q0 = q + j % 2 * GROUP, left = n - q0 < GROUP ? n - q0 : GROUP;
                if (left > 0)
                    store_values(out + (size_t)q0 * (size_t)d + i + j / 2 * GROUP, d, left,
                                 c + j * 256);
            }
        }
}

/* ---- the kernel ---- */

/* Limits of one group as lanes; lanes without a query see everything, and nobody looks. */
static __m512i group_limits(const int *limit, int n)
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
static int positions_seen(const int *limit, int n)
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
                                                                 int planes)
{
    struct fetcher none = { 0 };
    phase();
    for (int q = 0; q < n; q += GROUP)
        group_softmax(max + q, sum + q, pt + (size_t)(q * planes) * KV_CHUNK * 2,
                      s + (size_t)q * KV_CHUNK, limit + q, n - q < GROUP ? n - q : GROUP, positions,
                      scale, &none, planes);
    phase();
}

static void run(float *max, float *sum, float *out, const void *qp, int n, int d, const void *k,
                const void *vt, const int *limit, float scale, void *scratch)
{
    float *s = scratch, *c = s + KV_CHUNK * GROUP * GROUPS;
    uint8_t *pt = (uint8_t *)(c + 4 * 256);
    int groups = (n + GROUP - 1) / GROUP, positions = positions_seen(limit, n);
    struct fetcher f = fetcher_start(k, vt, d, groups);
    tile_config();
    scores(s, k, qp, d, groups, positions, &f);
    if (groups > 1) {
        groups_softmax(max, sum, pt, s, limit, n, positions, scale, 1);
        values_many(out, vt, pt, d, n, positions, c, 1);
    } else {
        phase();
        group_softmax(max, sum, pt, s, limit, n, positions, scale, &f, 1);
        phase();
        values(out, vt, pt, d, n, positions, c, &f);
    }
    _tile_release();
}

const struct attn_kernel attn_bf16_amx = { .max_queries = GROUP * GROUPS,
                                           .d_multiple = TILE_K,
                                           .packed_size = packed_size,
                                           .scratch_size = scratch_size,
                                           .pack = pack,
                                           .run = run };

/* ---- two planes ---- */

static size_t pair_packed_size(int n, int d)
{
    return 2 * packed_size(n, d);
}

static void pair_pack(void *qp, const float *const *q, int n, int d)
{
    uint8_t *tile = qp;
    for (int g = 0; g < n; g += GROUP)
        for (int k = 0; k < d; k += TILE_K, tile += 2 * TILE_BYTES) {
            for (int i = 0; i < GROUP; i++) {
                __m512 v[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
                if (g + i < n) {
                    v[0] = _mm512_loadu_ps(q[g + i] + k);
                    v[1] = _mm512_loadu_ps(q[g + i] + k + 16);
                }
                split_bf16_32(tile + i * 64, v[0], v[1]);
            }
            turn_tile(tile);
            turn_tile(tile + TILE_BYTES);
        }
}

/* 32 positions by two groups of queries, the second `q_step` bytes on: tiles 0 1 / 2 3 are
 * positions by groups. */
static void pair_scores_2x2(const uint8_t *k, const uint8_t *q, size_t q_step, int d)
{
    const size_t stride = (size_t)d * 4, second = GROUP * stride;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int i = 0; i < d; i += TILE_K, k += TILE_K * 2, q += 2 * TILE_BYTES) {
        _tile_loadd(4, k, stride);
        _tile_loadd(5, k + second, stride);
        _tile_loadd(6, q + TILE_BYTES, 64);
        _tile_loadd(7, q + q_step + TILE_BYTES, 64);
        products_2x2();
        _tile_loadd(6, q, 64);
        _tile_loadd(7, q + q_step, 64);
        products_2x2();
        _tile_loadd(4, k + (size_t)d * 2, stride);
        _tile_loadd(5, k + second + (size_t)d * 2, stride);
        products_2x2();
    }
}

static void pair_scores(float *s, const uint8_t *k, const uint8_t *qp, int d, int groups,
                        int positions)
{
    const size_t step = (size_t)(d / TILE_K) * 2 * TILE_BYTES;
    for (int g = 0; g < groups; g += 2)
        for (int p = 0; p < positions; p += 2 * GROUP) {
            float *to = s + ((size_t)g * KV_CHUNK + (size_t)p) * GROUP;
            size_t other = g + 1 < groups ? (size_t)KV_CHUNK * GROUP : 0;
            pair_scores_2x2(k + (size_t)p * (size_t)d * 4, qp + (size_t)g * step, other ? step : 0,
                            d);
            _tile_stored(1, to + other, 64);
            _tile_stored(3, to + other + GROUP * GROUP, 64);
            _tile_stored(0, to, 64);
            _tile_stored(2, to + GROUP * GROUP, 64);
        }
}

static void pair_run(float *max, float *sum, float *out, const void *qp, int n, int d,
                     const void *k, const void *vt, const int *limit, float scale, void *scratch)
{
    float *s = scratch, *c = s + KV_CHUNK * GROUP * GROUPS;
    uint8_t *pt = (uint8_t *)(c + 4 * 256);
    int positions = positions_seen(limit, n);
    tile_config();
    pair_scores(s, k, qp, d, (n + GROUP - 1) / GROUP, positions);
    groups_softmax(max, sum, pt, s, limit, n, positions, scale, 2);
    values_many(out, vt, pt, d, n, positions, c, 2);
    _tile_release();
}

const struct attn_kernel attn_pair_amx = { .max_queries = GROUP * GROUPS,
                                           .d_multiple = TILE_K,
                                           .packed_size = pair_packed_size,
                                           .scratch_size = scratch_size,
                                           .pack = pair_pack,
                                           .run = pair_run };
