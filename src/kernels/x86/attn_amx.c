/* Attention of a tile of queries over one chunk of a bf16 KV cache, by AMX tiles; and the same with
 * every number as the sum of two bf16 numbers (attn_parts_amx.h says how; attn_tree_amx.c has the
 * chunks that end in a tree).
 *
 * In two planes (attn_pair_amx) rows of K and V^T are followed by their second parts; of the four
 * products the one of the second parts is left out. */
#include "kernels/x86/attn_parts_amx.h"

static size_t packed_size(int n, int d)
{
    return ((size_t)n + GROUP - 1) / GROUP * (size_t)(d / TILE_K) * TILE_BYTES;
}

/* Scores [GROUPS][KV_CHUNK][16]; four C tiles; P in bf16, in two planes. */
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

/* ---- values ---- */

/* A C tile of each of four, side by side in `c`. */
static void store_c(float *c)
{
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
}

/* All rows of V^T by one group, 64 or 16 at a time: out[query][d]. Rows of P are `wide` bytes. */
static void values_one(float *out, const uint8_t *vt, const uint8_t *pt, size_t wide, int d, int n,
                       int positions, float *c, struct fetcher *f)
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
            _tile_loadd(7, pt + (size_t)(p / 2) * wide, wide);
            _tile_stream_loadd(4, v + p * 2, stride);
            _tile_dpbf16ps(0, 4, 7);
            _tile_stream_loadd(5, v + tile + p * 2, stride);
            _tile_dpbf16ps(1, 5, 7);
            _tile_stream_loadd(4, v + 2 * tile + p * 2, stride);
            _tile_dpbf16ps(2, 4, 7);
            _tile_stream_loadd(5, v + 3 * tile + p * 2, stride);
            _tile_dpbf16ps(3, 5, 7);
            fetch_lines(f, f->by_value);
        }
        store_c(c);
        for (int j = 0; j < 4; j++)
            store_values(out + i + j * 16, d, n, c + j * 256);
    }
    for (; i < d; i += 16) {
        _tile_zero(0);
        for (int p = 0; p < positions; p += TILE_K) {
            _tile_loadd(7, pt + (size_t)(p / 2) * wide, wide);
            _tile_loadd(4, vt + (size_t)i * stride + p * 2, stride);
            _tile_dpbf16ps(0, 4, 7);
        }
        _tile_stored(0, c, 64);
        store_values(out + i, d, n, c);
    }
}

/* All rows of V^T by the n queries of one group or two, V^T being read once for both. */
static inline __attribute__((always_inline)) void values_two(float *out, const uint8_t *vt,
                                                             const struct prob_place *from, int d,
                                                             int n, int positions, float *c,
                                                             int planes, struct fetcher *f)
{
    for (int i = 0; i < d; i += 2 * GROUP) {
        values_2x2(vt + (size_t)(i * planes) * KV_CHUNK * 2, from, positions, planes, f);
        store_c(c);
        for (int j = 0; j < 4; j++) {
            int q = j % 2 * GROUP, left = n - q < GROUP ? n - q : GROUP;
            if (left > 0)
                store_values(out + (size_t)q * (size_t)d + i + j / 2 * GROUP, d, left, c + j * 256);
        }
    }
}

/* ---- the kernel ---- */

/* The groups of a call are worked on by twos: their scores are what the first cache holds. P takes
 * the place of the scores it comes from. */
struct pair_mem {
    float *s; /* [2][KV_CHUNK][16] */
    float *c; /* four tiles */
};

enum { PAIR_APART = KV_CHUNK * GROUP };

/* Queries [q, q + n), one group or two. */
static void pair_groups(const struct softmax *m, float *out, const uint8_t *qp, int q, int n, int d,
                        const struct attn_chunk *chunk, struct pair_mem mem, struct fetcher *f)
{
    int second = n > GROUP ? n - GROUP : n;
    struct score_place to = { mem.s, PAIR_APART, { lanes_for(n), lanes_for(second) } };
    struct prob_place from = { (const uint8_t *)mem.s,
                               PAIR_APART * sizeof(float),
                               { (size_t)to.lanes[0] * 4, (size_t)to.lanes[1] * 4 } };
    config_lanes(to.lanes[0], to.lanes[1]);
    scores(&to, chunk->k, qp, d, n > GROUP ? 2 : 1, m->positions, f);
    phase();
    for (int g = 0; g * GROUP < n; g++) {
        float *s = mem.s + g * PAIR_APART;
        group_softmax_lanes(m, q + g * GROUP, (uint8_t *)s, s, f, to.lanes[g]);
    }
    phase();
    if (n > GROUP)
        values_two(out, chunk->vt, &from, d, n, m->positions, mem.c, 1, f);
    else
        values_one(out, chunk->vt, from.pt, from.wide[0], d, n, m->positions, mem.c, f);
}

static void run(float *max, float *sum, float *out, const void *qp, int n, int d,
                const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    struct pair_mem mem = { scratch, (float *)scratch + 2 * PAIR_APART };
    struct softmax m = { max, sum, limit, n, positions_seen(limit, n), scale };
    struct fetcher f = fetcher_start(chunk, d, n);
    if (chunk->tree) {
        attn_tree_amx(max, sum, out, qp, n, d, chunk, limit, scale, scratch);
        return;
    }
    for (int q = 0; q < n; q += 2 * GROUP)
        pair_groups(&m, out + (size_t)q * (size_t)d,
                    (const uint8_t *)qp + (size_t)(q / GROUP * (d / TILE_K)) * TILE_BYTES, q,
                    n - q < 2 * GROUP ? n - q : 2 * GROUP, d, chunk, mem, &f);
    _tile_release();
}

const struct attn_kernel attn_bf16_amx = { .max_queries = GROUP * GROUPS,
                                           .d_multiple = TILE_K,
                                           .trees = true,
                                           .packed_size = packed_size,
                                           .scratch_size = attn_tree_scratch,
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
                     const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    const size_t step = (size_t)2 * KV_CHUNK * GROUP * 2; /* P of a group */
    struct fetcher none = { 0 };
    float *s = scratch, *c = s + KV_CHUNK * GROUP * GROUPS;
    uint8_t *pt = (uint8_t *)(c + 4 * 256);
    struct softmax m = { max, sum, limit, n, positions_seen(limit, n), scale };
    tile_config();
    pair_scores(s, chunk->k, qp, d, (n + GROUP - 1) / GROUP, m.positions);
    phase();
    for (int q = 0; q < n; q += GROUP)
        group_softmax(&m, q, pt + (size_t)(q / GROUP) * step, s + (size_t)q * KV_CHUNK, &none,
                      GROUP, 2);
    phase();
    for (int q = 0; q < n; q += 2 * GROUP) {
        struct prob_place from = { pt + (size_t)(q / GROUP) * step,
                                   q + GROUP < n ? step : 0,
                                   { 64, 64 } };
        values_two(out + (size_t)q * (size_t)d, chunk->vt, &from, d, n - q, m.positions, c, 2,
                   &none);
    }
    _tile_release();
}

const struct attn_kernel attn_pair_amx = { .max_queries = GROUP * GROUPS,
                                           .d_multiple = TILE_K,
                                           .packed_size = pair_packed_size,
                                           .scratch_size = scratch_size,
                                           .pack = pair_pack,
                                           .run = pair_run };
