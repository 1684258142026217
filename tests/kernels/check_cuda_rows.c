/* Row invariance of the decoder's layer. The yardstick is one token at a time; whatever else is
 * done with the same tokens must give the same bits, of outputs and of the cache. */
#include "check_cuda_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 2048, DECOYS = 64 };

/* Tokens 0 .. cached - 1 are in the cache, `chain` follow; the last DECOYS of the table belong to
 * nobody and stand in branches of trees. */
struct walk {
    struct rig *g;
    struct cuda_check *t;
    struct seq s;
    int cached, chain;
    int tokens[MAX_TOKENS];
    uint8_t *before, *after; /* the cache, before and after the chain */
    float *single;           /* [chain, hidden] one token at a time */
    float *out;              /* [max_rows, hidden] */
};

static const float *single_row(const struct walk *k, int i)
{
    return k->single + (size_t)i * (size_t)k->g->s.hidden;
}

static bool same_row(const struct walk *k, const float *a, const float *b)
{
    return memcmp(a, b, sizeof *a * (size_t)k->g->s.hidden) == 0;
}

static void expect_row(const struct walk *k, int row, int token, const char *how, int n)
{
    const float *got = k->out + (size_t)row * (size_t)k->g->s.hidden, *want = single_row(k, token);
    int i = 0;
    if (same_row(k, got, want))
        return;
    while (memcmp(&got[i], &want[i], sizeof *got) == 0)
        i++;
    check_fail(&k->t->c, "%s (%d rows): token %d at [%d] is %.9g, alone it is %.9g", how, n, token,
               i, got[i], want[i]);
}

static void expect_cache(struct walk *k, const char *how, int n)
{
    uint8_t *now = seq_save(&k->s);
    if (memcmp(now, k->after, seq_size(&k->s)))
        check_fail(&k->t->c, "%s (%d rows): the cache holds other bits", how, n);
    free(now);
}

static void walk_open(struct walk *k, struct rig *g, int cached, int chain)
{
    int cap = (cached + chain + DECOYS + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK;
    size_t hidden = (size_t)g->s.hidden;
    *k = (struct walk){ .g = g, .t = g->t, .cached = cached, .chain = chain };
    for (int i = 0; i < g->n_tokens; i++)
        k->tokens[i] = i;
    seq_open(g, &k->s, cap);
    k->out = malloc(sizeof *k->out * (size_t)g->max_rows * hidden);
    k->single = malloc(sizeof *k->single * (size_t)chain * hidden);
    if (cached)
        rig_chain(g, &k->s, 0, k->tokens, cached, true, k->out);
    k->before = seq_save(&k->s);
    for (int i = 0; i < chain; i++)
        rig_chain(g, &k->s, cached + i, k->tokens + cached + i, 1, false,
                  k->single + (size_t)i * hidden);
    k->after = seq_save(&k->s);
}

static void walk_close(struct walk *k)
{
    seq_close(&k->s);
    free(k->before);
    free(k->after);
    free(k->out);
    free(k->single);
}

/* ---- chains ---- */

/* The chain in steps of `least` rows and more. */
static void check_chains(struct walk *k, int least)
{
    static const int counts[] = { 2, 3, 5, 8, 26, 33, 41, 64, 66, 128 };
    for (size_t c = 0; c < sizeof counts / sizeof counts[0] && counts[c] <= k->chain; c++) {
        if (counts[c] < least)
            continue;
        seq_load(&k->s, k->before);
        for (int i = 0; i < k->chain; i += counts[c]) {
            int n = k->chain - i < counts[c] ? k->chain - i : counts[c];
            rig_chain(k->g, &k->s, k->cached + i, k->tokens + k->cached + i, n, false, k->out);
            for (int r = 0; r < n; r++)
                expect_row(k, r, i + r, "chain", n);
        }
        expect_cache(k, "chain", counts[c]);
    }
}

/* Only some of the rows go on. */
static void check_finish_rows(struct walk *k)
{
    int32_t rows[3] = { k->chain - 1, 0, k->chain / 2 };
    struct attn_run run = { .n = k->chain, .first_slot = k->cached, .kv = &k->s.kv };
    struct rig_step step = { .n = k->chain,
                             .tokens = k->tokens + k->cached,
                             .n_runs = 1,
                             .runs = &run,
                             .n_rows = 3,
                             .rows = rows };
    seq_load(&k->s, k->before);
    rig_run(k->g, &step, k->out);
    for (int i = 0; i < 3; i++)
        expect_row(k, i, rows[i], "chosen rows", k->chain);
}

/* ---- trees ---- */

struct tree {
    int n;
    int token[2 * MAX_TOKENS], parent[2 * MAX_TOKENS]; /* token -1: a decoy */
    int row_of[MAX_TOKENS];                            /* of the chain's i-th token */
};

/* The chain's first `depth` tokens with up to `branches` decoys beside each. */
static void tree_grow(struct walk *k, struct tree *t, int depth, int branches)
{
    int above = -1, decoy = 0;
    t->n = 0;
    for (int i = 0; i < depth; i++) {
        int at = check_int(&k->t->c, 0, branches), parent = above;
        for (int b = 0; b <= branches; b++) {
            int row = t->n++;
            t->parent[row] = b != at && row && check_int(&k->t->c, 0, 2) == 0 && row > 1
                                 ? check_int(&k->t->c, 0, row - 1)
                                 : parent;
            t->token[row] = b == at ? k->cached + i : k->g->n_tokens - 1 - decoy++ % DECOYS;
            if (b == at) {
                t->parent[row] = parent;
                above = t->row_of[i] = row;
            }
        }
    }
}

/* Rows [from, from + n) of the tree, those before them pending. */
static bool tree_run(struct walk *k, const struct tree *t, int from, int n, const char *key)
{
    struct attn_run run = {
        .n = n, .first_slot = k->cached, .kv = &k->s.kv, .parent = t->parent, .pending = from
    };
    struct rig_step step = {
        .n = n, .tokens = t->token + from, .n_runs = 1, .runs = &run, .key = key
    };
    return rig_run(k->g, &step, k->out);
}

static void tree_expect(struct walk *k, const struct tree *t, int depth, int from, int n,
                        const char *how)
{
    for (int i = 0; i < depth; i++)
        if (t->row_of[i] >= from && t->row_of[i] < from + n)
            expect_row(k, t->row_of[i] - from, i, how, n);
}

/* The accepted path moved together, the next token must find what a chain would have left. */
static void tree_accept(struct walk *k, const struct tree *t, int depth)
{
    int to[MAX_TOKENS], from[MAX_TOKENS];
    for (int i = 0; i < depth; i++) {
        to[i] = k->cached + i;
        from[i] = k->cached + t->row_of[i];
    }
    k->t->ops->kv_move(k->g->work, &k->s.kv, to, from, depth);
    rig_chain(k->g, &k->s, k->cached + depth, k->tokens + k->cached + depth, 1, false, k->out);
    expect_row(k, 0, depth, "after a tree", 1);
}

static void check_trees(struct walk *k)
{
    static const int sizes[][2] = { { 1, 1 }, { 2, 2 }, { 3, 0 }, { 5, 3 }, { 8, 1 }, { 20, 2 } };
    struct tree *t = malloc(sizeof *t);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int depth = sizes[i][0];
        if (depth >= k->chain)
            continue;
        tree_grow(k, t, depth, sizes[i][1]);
        seq_load(&k->s, k->before);
        tree_run(k, t, 0, t->n, NULL);
        tree_expect(k, t, depth, 0, t->n, "tree");
        tree_accept(k, t, depth);
        seq_load(&k->s, k->before); /* the same in parts */
        for (int from = 0; from < t->n;) {
            int n = check_int(&k->t->c, 1, t->n - from);
            tree_run(k, t, from, n, NULL);
            tree_expect(k, t, depth, from, n, "tree with pending rows");
            from += n;
        }
        tree_accept(k, t, depth);
    }
    free(t);
}

/* ---- several sequences ---- */

/* A chain, a tree and a single token of three sequences in one step; the last has a pool of its
 * own. */
static void check_runs(struct walk *k)
{
    struct seq other[2];
    struct seq_pool apart;
    struct tree *t = malloc(sizeof *t);
    int depth = k->chain > 5 ? 4 : 1, n = 0, tokens[MAX_TOKENS];
    tree_grow(k, t, depth, 1);
    seq_load(&k->s, k->before);
    seq_pool_open(k->g, &apart, k->s.kv.cap / KV_CHUNK + 3);
    for (int i = 0; i < 2; i++) { /* of another size, too */
        seq_open_in(i ? &apart : &k->g->pool, k->g, &other[i], k->s.kv.cap + i * KV_CHUNK);
        k->t->ops->kv_copy(k->g->work, &other[i].kv, &k->s.kv, k->tokens, k->tokens, k->cached);
    }
    struct attn_run runs[3] = {
        { .row0 = 0, .n = depth + 1, .first_slot = k->cached, .kv = &k->s.kv },
        { .row0 = depth + 1,
          .n = t->n,
          .first_slot = k->cached,
          .kv = &other[0].kv,
          .parent = t->parent },
        { .row0 = depth + 1 + t->n, .n = 1, .first_slot = k->cached, .kv = &other[1].kv },
    };
    for (int i = 0; i <= depth; i++)
        tokens[n++] = k->cached + i;
    for (int i = 0; i < t->n; i++)
        tokens[n++] = t->token[i];
    tokens[n++] = k->cached;
    struct rig_step step = { .n = n, .tokens = tokens, .n_runs = 3, .runs = runs };
    rig_run(k->g, &step, k->out);
    for (int i = 0; i <= depth; i++)
        expect_row(k, i, i, "chain of several runs", n);
    for (int i = 0; i < depth; i++)
        expect_row(k, depth + 1 + t->row_of[i], i, "tree of several runs", n);
    expect_row(k, n - 1, 0, "token of several runs", n);
    seq_close(&other[0]);
    seq_close(&other[1]);
    seq_pool_close(&apart);
    free(t);
}

/* ---- recorded steps ---- */

/* Steps with equal keys: other slots, other tokens, other trees, and two sequences with the same
 * contents in other pages, by turns. */
static void check_records(struct walk *k)
{
    struct tree *t = malloc(sizeof *t);
    struct seq twin;
    int played = 0;
    seq_open(k->g, &twin, k->s.kv.cap);
    seq_load(&k->s, k->before);
    seq_load(&twin, k->before);
    for (int i = 0; i / 2 * 2 + 2 <= k->chain && i < 12; i++) {
        int slot = k->cached + i / 2 * 2;
        struct attn_run run = { .n = 2, .first_slot = slot, .kv = i % 2 ? &twin.kv : &k->s.kv };
        struct rig_step step = {
            .n = 2, .tokens = k->tokens + slot, .n_runs = 1, .runs = &run, .key = "two"
        };
        played += rig_run(k->g, &step, k->out);
        expect_row(k, 0, slot - k->cached, "recorded", 2);
        expect_row(k, 1, slot - k->cached + 1, "recorded", 2);
    }
    seq_close(&twin);
    if (k->chain >= 8 && !played)
        check_fail(&k->t->c, "a step that comes again is not played from a record");
    for (int i = 0; i < 5 && k->chain > 4; i++) {
        tree_grow(k, t, 3, 2);
        seq_load(&k->s, k->before);
        tree_run(k, t, 0, t->n, "tree");
        tree_expect(k, t, 3, 0, t->n, "recorded tree");
    }
    for (int i = 0; i < 4 && k->chain > 4; i++) { /* pending rows are part of the key */
        tree_grow(k, t, 3, 2);
        seq_load(&k->s, k->before);
        tree_run(k, t, 0, 4, "tree of 4");
        tree_run(k, t, 4, t->n - 4, "tree with 4 pending");
        tree_expect(k, t, 3, 4, t->n - 4, "recorded tree with pending rows");
    }
    free(t);
}

/* Steps asked for one after the other, nobody waits in between. */
static void check_queue(struct walk *k)
{
    size_t row = sizeof(float) * (size_t)k->g->s.hidden;
    int n = k->chain / 2 < 12 ? k->chain / 2 : 12;
    struct gbuf kept;
    gbuf_open(k->t, &kept, 2 * (size_t)n * row);
    seq_load(&k->s, k->before);
    for (int i = 0; i < n; i++) {
        struct attn_run run = { .n = 2, .first_slot = k->cached + 2 * i, .kv = &k->s.kv };
        struct rig_step step = { .n = 2,
                                 .tokens = k->tokens + k->cached + 2 * i,
                                 .n_runs = 1,
                                 .runs = &run,
                                 .key = i < n / 2 ? NULL : "two" };
        rig_ask(k->g, &step);
        k->t->ops->copy(k->g->work, (uint8_t *)kept.p + 2 * (size_t)i * row, k->g->x.p, 2 * row);
    }
    k->t->ops->get(k->g->work, k->out, kept.p, 2 * (size_t)n * row);
    check_wait(k->t, k->g->work);
    for (int i = 0; i < 2 * n; i++)
        expect_row(k, i, i, "step after step", 2);
    gbuf_close(&kept);
}

/* ---- prompts ---- */

/* Three prompts, of which only some last rows are asked for: of the second one none. */
static void check_needed(struct walk *k, const float *whole, int n)
{
    size_t hidden = (size_t)k->g->s.hidden;
    const int needed[3] = { 3, 0, 1 }, m[3] = { n / 2, n / 4, n / 4 };
    struct attn_run runs[3];
    struct seq s[3];
    uint8_t *saved[3], *fresh[3];
    int tokens[MAX_TOKENS], at = 0;
    for (int i = 0; i < 3; i++) {
        seq_open(k->g, &s[i], k->s.kv.cap);
        fresh[i] = seq_save(&s[i]);
        rig_chain(k->g, &s[i], 0, k->tokens, m[i], true, k->out);
        saved[i] = seq_save(&s[i]);
        seq_load(&s[i], fresh[i]);
        runs[i] = (struct attn_run){ .row0 = at, .n = m[i], .kv = &s[i].kv };
        memcpy(tokens + at, k->tokens, sizeof *tokens * (size_t)m[i]);
        at += m[i];
    }
    const int32_t rows[3] = { m[0] - 1, m[0] - 3, at - 1 };
    struct rig_step step = { .n = at,
                             .tokens = tokens,
                             .n_runs = 3,
                             .runs = runs,
                             .n_rows = 3,
                             .rows = rows,
                             .bulk = true,
                             .needed = needed };
    rig_run(k->g, &step, k->out);
    for (int i = 0; i < 3; i++) {
        int token = i < 2 ? rows[i] : m[2] - 1;
        uint8_t *now = seq_save(&s[i]);
        if (!same_row(k, k->out + (size_t)i * hidden, whole + (size_t)token * hidden))
            check_fail(&k->t->c, "last rows of prompts: row %d has other bits", rows[i]);
        if (memcmp(now, saved[i], seq_size(&s[i])))
            check_fail(&k->t->c, "last rows of prompts: cache %d holds other bits", i);
        seq_close(&s[i]);
        free(fresh[i]);
        free(saved[i]);
        free(now);
    }
}

static void check_bulk(struct walk *k)
{
    static const int pieces[] = { 1, 2, 7, 26, 64, 66, 128 };
    int n = k->cached + k->chain, hidden = k->g->s.hidden;
    struct seq s;
    float *whole = malloc(sizeof *whole * (size_t)n * (size_t)hidden);
    seq_open(k->g, &s, k->s.kv.cap);
    uint8_t *fresh = seq_save(&s);
    rig_chain(k->g, &s, 0, k->tokens, n, true, whole);
    uint8_t *after = seq_save(&s);
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
        int piece = pieces[p] < n ? pieces[p] : n;
        if (n / piece > (k->t->full ? 100 : 8) || (p && pieces[p - 1] >= n))
            continue;
        seq_load(&s, fresh);
        for (int i = 0; i < n; i += piece) {
            int m = n - i < piece ? n - i : piece;
            rig_chain(k->g, &s, i, k->tokens + i, m, true, k->out);
            for (int r = 0; r < m; r++)
                if (!same_row(k, k->out + (size_t)(r * hidden), whole + (size_t)((i + r) * hidden)))
                    check_fail(&k->t->c, "prompt in pieces of %d: token %d has other bits", piece,
                               i + r);
        }
        uint8_t *now = seq_save(&s);
        if (memcmp(now, after, seq_size(&s)))
            check_fail(&k->t->c, "prompt in pieces of %d: the cache holds other bits", piece);
        free(now);
    }
    seq_close(&s);
    if (n >= 12)
        check_needed(k, whole, n);
    free(fresh);
    free(after);
    free(whole);
}

void check_rows(struct cuda_check *t, const struct rig_shape *shape, enum dtype type, int cached,
                int chain)
{
    struct rig g;
    struct walk *k = malloc(sizeof *k);
    int n = cached + chain, context = (n + DECOYS + KV_CHUNK) / KV_CHUNK * KV_CHUNK;
    if (rig_open(&g, t, shape, type, RIG_PLAIN, n > MANY_ROWS ? n : MANY_ROWS, context + KV_CHUNK,
                 n + DECOYS)) {
        walk_open(k, &g, cached, chain);
        check_chains(k, 2);
        check_finish_rows(k);
        check_trees(k);
        check_runs(k);
        check_records(k);
        check_queue(k);
        check_bulk(k);
        walk_close(k);
        rig_close(&g);
    }
    free(k);
}

void check_wide_rows(struct cuda_check *t, const struct rig_shape *shape, int chain)
{
    struct rig g;
    struct walk *k = malloc(sizeof *k);
    int context = (chain + KV_CHUNK) / KV_CHUNK * KV_CHUNK;
    if (rig_open(&g, t, shape, DTYPE_BF16, RIG_PLAIN, MANY_ROWS, context + KV_CHUNK, chain)) {
        walk_open(k, &g, 0, chain);
        check_chains(k, 41);
        walk_close(k);
        rig_close(&g);
    }
    free(k);
}
