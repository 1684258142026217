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
            fetch_lines(f, f->by_score);
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

static void run(float *max, float *sum, float *out, const void *qp, int n, int d,
                const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    float *s = scratch, *c = s + KV_CHUNK * GROUP * GROUPS;
    uint8_t *pt = (uint8_t *)(c + 4 * 256);
    int groups = (n + GROUP - 1) / GROUP, positions = positions_seen(limit, n);
    struct fetcher f = fetcher_start(chunk, d, groups);
    if (chunk->tree) {
        attn_tree_amx(max, sum, out, qp, n, d, chunk, limit, scale, scratch);
        return;
    }
    tile_config();
    scores(s, chunk->k, qp, d, groups, positions, &f);
    groups_softmax(max, sum, pt, s, limit, n, positions, scale, &f, 1);
    if (groups > 1)
        values_many(out, chunk->vt, pt, d, n, positions, c, 1);
    else
        values(out, chunk->vt, pt, d, n, positions, c, &f);
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
    struct fetcher none = { 0 };
    float *s = scratch, *c = s + KV_CHUNK * GROUP * GROUPS;
    uint8_t *pt = (uint8_t *)(c + 4 * 256);
    int positions = positions_seen(limit, n);
    tile_config();
    pair_scores(s, chunk->k, qp, d, (n + GROUP - 1) / GROUP, positions);
    groups_softmax(max, sum, pt, s, limit, n, positions, scale, &none, 2);
    values_many(out, chunk->vt, pt, d, n, positions, c, 2);
    _tile_release();
}

const struct attn_kernel attn_pair_amx = { .max_queries = GROUP * GROUPS,
                                           .d_multiple = TILE_K,
                                           .packed_size = pair_packed_size,
                                           .scratch_size = scratch_size,
                                           .pack = pair_pack,
                                           .run = pair_run };
