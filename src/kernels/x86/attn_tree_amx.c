/* Attention over a chunk that ends in a draft tree, by AMX tiles: the committed positions are
 * processed for all queries at once, and only the blocks of 32 positions after them once per path.
 *
 * A score belongs to one position and one query: the scores of the nodes are computed once and put
 * where each query's path has the node. The sums over values run by blocks of 32 positions, in
 * order: blocks that all queries share are added for all of them; then the rest is added path by
 * path, with the values in the order of the path and p = 0 for queries that are not on it, which
 * adds exactly nothing. So a query has the same bits as if its path were in the cache. */
#include "kernels/x86/attn_parts_amx.h"

struct tree_mem {
    float *s;      /* [GROUPS][KV_CHUNK][16] */
    float *nodes;  /* [GROUPS][ATTN_NODES][16]: scores of the nodes */
    float *c;      /* [GROUPS][d / 16] tiles: sums over values */
    uint8_t *pt;   /* [GROUPS][KV_CHUNK / 32] tiles: probabilities */
    uint8_t *v;    /* [d][32] bf16: a block of values in the order of a path */
    uint8_t *mine; /* a tile of probabilities of the queries on the path */
};

static size_t tree_mem_sizes(int d, size_t at[6])
{
    const size_t sizes[6] = { sizeof(float) * KV_CHUNK * GROUP * GROUPS,
                              sizeof(float) * ATTN_NODES * GROUP * GROUPS,
                              (size_t)(d / GROUP) * TILE_BYTES * GROUPS,
                              sizeof(uint16_t) * KV_CHUNK * GROUP * GROUPS,
                              (size_t)d * TILE_K * 2,
                              TILE_BYTES };
    size_t total = 0;
    for (int i = 0; i < 6; i++) {
        at[i] = total;
        total += sizes[i];
    }
    return total;
}

static struct tree_mem tree_mem(void *scratch, int d)
{
    size_t at[6];
    uint8_t *p = scratch;
    tree_mem_sizes(d, at);
    return (struct tree_mem){ .s = (float *)(p + at[0]),
                              .nodes = (float *)(p + at[1]),
                              .c = (float *)(p + at[2]),
                              .pt = p + at[3],
                              .v = p + at[4],
                              .mine = p + at[5] };
}

size_t attn_tree_scratch(int n, int d)
{
    size_t at[6];
    (void)n;
    return tree_mem_sizes(d, at);
}

/* ---- scores ---- */

/* Compute the scores of all groups into s [groups], `apart` floats from one to the next,
 * [positions][16]. */
static void group_scores(float *s, size_t apart, const uint8_t *k, const uint8_t *qp, int d,
                         int groups, int positions, struct fetcher *f)
{
    for (int g = 0; g < groups; g += 2) {
        struct score_place to = { s + (size_t)g * apart, apart, { GROUP, GROUP } };
        scores(&to, k, qp + (size_t)(g * (d / TILE_K)) * TILE_BYTES, d, groups - g, positions, f);
    }
}

/* Compute the scores of the nodes, then copy them to positions [shared, shared + tail) as each
 * query sees them; no query sees the rest up to `positions`. */
static void tail_scores(const struct tree_mem *m, const struct attn_tree *tree, const void *qp,
                        int groups, int d, int tail, int positions)
{
    const size_t apart = ATTN_NODES * GROUP;
    struct fetcher none = { 0 };
    group_scores(m->nodes, apart, tree->k, qp, d, groups,
                 (tree->n_nodes + TILE_K - 1) / TILE_K * TILE_K, &none);
    for (int g = 0; g < groups; g++) {
        float *to = m->s + ((size_t)g * KV_CHUNK + (size_t)tree->shared) * GROUP;
        const float *from = m->nodes + (size_t)g * apart;
        for (int t = 0; tree->shared + t < positions; t++, to += GROUP) {
            __m512 v = _mm512_setzero_ps();
            if (t < tail) {
                __m512i node = _mm512_loadu_si512(tree->node[t] + g * GROUP);
                node = _mm512_add_epi32(_mm512_slli_epi32(node, 4), lanes_apart(1));
                v = _mm512_i32gather_ps(node, from, 4);
            }
            _mm512_store_ps(to, v);
        }
    }
}

/* ---- values ---- */

/* Add the values of blocks that all queries share: positions [0, end) of all rows of V^T. */
static void shared_values(const struct tree_mem *m, const uint8_t *vt, int groups, int d, int end,
                          struct fetcher *f)
{
    const size_t p_step = (size_t)KV_CHUNK * GROUP * 2, c_step = (size_t)(d / GROUP) * 256;
    for (int g = 0; g < groups; g += 2)
        for (int i = 0; i < d; i += 2 * GROUP) {
            float *c = m->c + (size_t)g * c_step + (size_t)(i / GROUP) * 256;
            size_t second = g + 1 < groups ? c_step : 0;
            struct prob_place from = { m->pt + (size_t)g * p_step,
                                       second ? p_step : 0,
                                       { 64, 64 } };
            values_2x2(vt + (size_t)i * KV_CHUNK * 2, &from, end, 1, 2, f);
            _tile_stored(1, c + second, 64);
            _tile_stored(3, c + second + 256, 64);
            _tile_stored(0, c, 64);
            _tile_stored(2, c + 256, 64);
        }
}

/* Copy the values of positions [p, p + 32) as query `tip` sees them to m->v. */
static void path_values(const struct tree_mem *m, const struct attn_chunk *chunk, int d, int p,
                        int tip, int limit)
{
    const struct attn_tree *tree = chunk->tree;
    const uint8_t *base = (const uint8_t *)chunk->vt + (size_t)p * 2, *nodes = tree->vt;
    uint16_t node[TILE_K] = { 0 };
    __mmask32 of_tree = 0;
    for (int i = 0; i < TILE_K; i++) {
        int t = p + i - tree->shared;
        of_tree |= (__mmask32)(t >= 0) << i;
        if (t >= 0 && p + i < limit)
            node[i] = (uint16_t)tree->node[t][tip];
    }
    __m512i at = _mm512_loadu_si512(node);
    for (int i = 0; i < d; i++, base += KV_CHUNK * 2, nodes += ATTN_NODES * 2) {
        __m512i v = _mm512_permutex2var_epi16(_mm512_loadu_si512(nodes), at,
                                              _mm512_loadu_si512(nodes + 64));
        v = _mm512_mask_mov_epi16(_mm512_loadu_si512(base), of_tree, v);
        _mm512_store_si512(m->v + (size_t)i * 64, v);
    }
}

/* Add the block m->v times the probabilities of some queries of one group. */
static void add_values(const struct tree_mem *m, const uint8_t *p, float *c, int d, __mmask16 mine)
{
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(m->mine + i * 64,
                           _mm512_maskz_mov_epi32(mine, _mm512_load_si512(p + i * 64)));
    tiles_written();
    _tile_loadd(7, m->mine, 64);
    for (int i = 0; i < d; i += 2 * GROUP, c += 512) {
        _tile_loadd(0, c, 64);
        _tile_loadd(1, c + 256, 64);
        _tile_loadd(4, m->v + (size_t)i * 64, 64);
        _tile_loadd(5, m->v + (size_t)(i + GROUP) * 64, 64);
        _tile_dpbf16ps(0, 4, 7);
        _tile_dpbf16ps(1, 5, 7);
        _tile_stored(0, c, 64);
        _tile_stored(1, c + 256, 64);
    }
}

/* Add the values of positions from `begin` on for the queries of one set. */
static void set_values(const struct tree_mem *m, const struct attn_chunk *chunk, int set, int n,
                       int d, int begin, const int *limit)
{
    const struct attn_tree *tree = chunk->tree;
    int tip = tree->tip[set];
    __mmask16 mine[GROUPS] = { 0 };
    for (int i = 0; i < n; i++)
        mine[i / GROUP] |= (__mmask16)((tree->set[i] == set) << i % GROUP);
    for (int p = begin; p < limit[tip]; p += TILE_K) {
        path_values(m, chunk, d, p, tip, limit[tip]);
        for (int g = 0; g < GROUPS; g++)
            if (mine[g])
                add_values(m, m->pt + ((size_t)g * KV_CHUNK + (size_t)p) * GROUP * 2,
                           m->c + (size_t)g * (size_t)(d / GROUP) * 256, d, mine[g]);
    }
}

/* ---- the kernel ---- */

void attn_tree_amx(float *max, float *sum, float *out, const void *qp, int n, int d,
                   const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    const struct attn_tree *tree = chunk->tree;
    int groups = (n + GROUP - 1) / GROUP, positions = positions_seen(limit, n), most = 0;
    int committed = (tree->shared + TILE_K - 1) / TILE_K * TILE_K;
    int whole = tree->shared / TILE_K * TILE_K;
    struct fetcher f = fetcher_start(chunk, d, n);
    struct softmax sm = { max, sum, limit, n, positions, scale };
    struct tree_mem m = tree_mem(scratch, d);
    for (int i = 0; i < n; i++)
        most = limit[i] > most ? limit[i] : most;
    tile_config();
    group_scores(m.s, KV_CHUNK * GROUP, chunk->k, qp, d, groups,
                 committed < positions ? committed : positions, &f);
    phase();
    tail_scores(&m, tree, qp, groups, d, most - tree->shared, positions);
    phase();
    for (int g = 0; g < groups; g++)
        group_softmax(&sm, g * GROUP, m.pt + (size_t)g * KV_CHUNK * GROUP * 2,
                      m.s + (size_t)g * KV_CHUNK * GROUP, &f, GROUP, 1);
    phase();
    shared_values(&m, chunk->vt, groups, d, whole < positions ? whole : positions, &f);
    for (int set = 0; set < tree->n_sets; set++)
        set_values(&m, chunk, set, n, d, whole, limit);
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < d; i += GROUP)
            store_values(out + (size_t)g * GROUP * (size_t)d + i, d,
                         n - g * GROUP < GROUP ? n - g * GROUP : GROUP,
                         m.c + ((size_t)g * (size_t)(d / GROUP) + (size_t)(i / GROUP)) * 256);
    _tile_release();
}
