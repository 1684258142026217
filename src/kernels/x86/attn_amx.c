/* Attention of a tile of queries over one chunk of a bf16 KV cache by AMX tiles; and the same with
 * every number stored as the sum of two bf16 numbers (attn_parts_amx.h has the method;
 * attn_tree_amx.c is for chunks that end in a tree).
 *
 * With two planes (attn_pair_amx), rows of K and V^T are followed by their second parts; of the
 * four products, that of the two second parts is left out. An f16 cache is split in this way
 * (attn_f16_amx). */
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

/* Store the four C tiles one after the other in `c`. */
static void store_c(float *c)
{
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
}

/* Multiply all rows of V^T by one group, 64 or 16 at a time: out[query][d]. Rows of P have `wide`
 * bytes. */
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

/* Multiply rows [i, i + 32) of V^T, which are at v, by the n queries of one group or two. */
static inline __attribute__((always_inline)) void values_block(float *out, const uint8_t *v, int i,
                                                               const struct prob_place *from, int d,
                                                               int n, int positions, float *c,
                                                               int planes, struct fetcher *f)
{
    values_2x2(v, from, positions, planes, n > GROUP ? 2 : 1, f);
    store_c(c);
    for (int j = 0; j < 4; j++) {
        int q = j % 2 * GROUP, left = n - q < GROUP ? n - q : GROUP;
        if (left > 0)
            store_values(out + (size_t)q * (size_t)d + i + j / 2 * GROUP, d, left, c + j * 256);
    }
}

/* ---- the kernel ---- */

/* The groups of a call are processed two at a time, because the L1 cache holds the scores of two. P
 * overwrites the scores from which it is computed. */
struct pair_mem {
    float *s; /* [2][KV_CHUNK][16] */
    float *c; /* four tiles */
};

enum { PAIR_APART = KV_CHUNK * GROUP };

/* Process queries [q, q + n), one group or two. */
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
        for (int i = 0; i < d; i += 2 * GROUP)
            values_block(out, (const uint8_t *)chunk->vt + (size_t)i * KV_CHUNK * 2, i, &from, d, n,
                         m->positions, mem.c, 1, f);
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
                                           .lay = attn_lay_bf16_amx,
                                           .run = run,
                                           .head_size = attn_head_size_amx,
                                           .head = attn_head_bf16_amx };

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

/* Multiply 32 positions by one group of queries, or by two, the second `q_step` bytes after the
 * first; tiles 0 1 / 2 3 are positions by groups. */
static inline __attribute__((always_inline)) void pair_score_tiles(const uint8_t *k,
                                                                   const uint8_t *q, size_t q_step,
                                                                   int d, int groups)
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
        if (groups > 1)
            _tile_loadd(7, q + q_step + TILE_BYTES, 64);
        products_by(groups);
        _tile_loadd(6, q, 64);
        if (groups > 1)
            _tile_loadd(7, q + q_step, 64);
        products_by(groups);
        _tile_loadd(4, k + (size_t)d * 2, stride);
        _tile_loadd(5, k + second + (size_t)d * 2, stride);
        products_by(groups);
    }
}

/* Where keys and values come from: pairs that are stored as such, or f16 numbers. An f16 number is
 * exactly the sum of two bf16 numbers: its first eight bits and the remaining three. They are split
 * in blocks of 32 rows, which stay in the L1 cache until they are used. */
struct pair_source {
    const struct attn_chunk *chunk;
    uint16_t *room; /* for a block; NULL: pairs */
};

static size_t room_size(int d)
{
    return (size_t)(2 * GROUP * 2) * sizeof(uint16_t) * (size_t)(d > KV_CHUNK ? d : KV_CHUNK);
}

/* Split 32 rows of n numbers, `stride` apart; each becomes a row of first parts and a row of rests.
 */
static void split_block(uint16_t *y, const uint16_t *x, int n, size_t stride)
{
    for (int r = 0; r < 2 * GROUP; r++, x += stride, y += 2 * stride)
        for (int i = 0; i < n; i += TILE_K)
            split_f16((uint8_t *)(y + i), stride * 2, _mm512_loadu_si512(x + i));
    phase();
}

/* Get the keys of positions [p, p + 32) as pairs; and (pair_values) rows [i, i + 32) of V^T. */
static const uint8_t *pair_keys(const struct pair_source *from, int p, int d)
{
    size_t at = (size_t)p * (size_t)d;
    if (!from->room)
        return (const uint8_t *)from->chunk->k + 4 * at;
    split_block(from->room, (const uint16_t *)from->chunk->k + at, d, (size_t)d);
    return (const uint8_t *)from->room;
}

static const uint8_t *pair_values(const struct pair_source *from, int i, int positions)
{
    size_t at = (size_t)i * KV_CHUNK;
    if (!from->room)
        return (const uint8_t *)from->chunk->vt + 4 * at;
    split_block(from->room, (const uint16_t *)from->chunk->vt + at, positions, KV_CHUNK);
    return (const uint8_t *)from->room;
}

static void pair_scores(float *s, const struct pair_source *from, const uint8_t *qp, int d,
                        int groups, int positions, struct fetcher *f)
{
    const size_t step = (size_t)(d / TILE_K) * 2 * TILE_BYTES;
    for (int p = 0; p < positions; p += 2 * GROUP) {
        const uint8_t *k = pair_keys(from, p, d);
        for (int g = 0; g < groups; g += 2) {
            const uint8_t *q = qp + (size_t)g * step;
            float *to = s + ((size_t)g * KV_CHUNK + (size_t)p) * GROUP;
            if (g + 1 < groups) {
                pair_score_tiles(k, q, step, d, 2);
                _tile_stored(1, to + KV_CHUNK * GROUP, 64);
                _tile_stored(3, to + KV_CHUNK * GROUP + GROUP * GROUP, 64);
            } else {
                pair_score_tiles(k, q, step, d, 1);
            }
            _tile_stored(0, to, 64);
            _tile_stored(2, to + GROUP * GROUP, 64);
            fetch_lines(f, f->by_score);
        }
    }
}

static void pair_any(const struct softmax *m, float *out, const void *qp, int d,
                     const struct pair_source *from, void *scratch)
{
    const size_t step = (size_t)2 * KV_CHUNK * GROUP * 2; /* bytes of P per group */
    int n = m->n;
    struct fetcher f = fetcher_start(from->chunk, d, n);
    float *s = scratch, *c = s + KV_CHUNK * GROUP * GROUPS;
    uint8_t *pt = (uint8_t *)(c + 4 * 256);
    tile_config();
    pair_scores(s, from, qp, d, (n + GROUP - 1) / GROUP, m->positions, &f);
    phase();
    for (int q = 0; q < n; q += GROUP)
        group_softmax(m, q, pt + (size_t)(q / GROUP) * step, s + (size_t)q * KV_CHUNK, &f, GROUP,
                      2);
    phase();
    for (int i = 0; i < d; i += 2 * GROUP) {
        const uint8_t *v = pair_values(from, i, m->positions);
        for (int q = 0; q < n; q += 2 * GROUP) {
            struct prob_place p = { pt + (size_t)(q / GROUP) * step,
                                    q + GROUP < n ? step : 0,
                                    { 64, 64 } };
            values_block(out + (size_t)q * (size_t)d, v, i, &p, d, n - q, m->positions, c, 2, &f);
        }
    }
    _tile_release();
}

static void pair_run(float *max, float *sum, float *out, const void *qp, int n, int d,
                     const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    struct softmax m = { max, sum, limit, n, positions_seen(limit, n), scale };
    struct pair_source from = { chunk, NULL };
    pair_any(&m, out, qp, d, &from, scratch);
}

static size_t f16_scratch_size(int n, int d)
{
    return room_size(d) + scratch_size(n, d);
}

static void f16_run(float *max, float *sum, float *out, const void *qp, int n, int d,
                    const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    struct softmax m = { max, sum, limit, n, positions_seen(limit, n), scale };
    struct pair_source from = { chunk, scratch };
    pair_any(&m, out, qp, d, &from, (uint8_t *)scratch + room_size(d));
}

const struct attn_kernel attn_pair_amx = { .max_queries = GROUP * GROUPS,
                                           .d_multiple = TILE_K,
                                           .packed_size = pair_packed_size,
                                           .scratch_size = scratch_size,
                                           .pack = pair_pack,
                                           .lay = attn_lay_pair_amx,
                                           .run = pair_run };

const struct attn_kernel attn_f16_amx = { .max_queries = GROUP * GROUPS,
                                          .d_multiple = TILE_K,
                                          .packed_size = pair_packed_size,
                                          .scratch_size = f16_scratch_size,
                                          .pack = pair_pack,
                                          .run = f16_run };
