/* Proof of page tables: a step of as many sequences as there may be, which share pages of one pool,
 * of one row each or with chains and trees among them, and sequences of very many pages. Slots of a
 * cache are written from the host, so that their number costs nothing; each page has keys and
 * values of a few tokens that its neighbours do not have. Also a step whose tables are longer than
 * its work has room for. */
#include "check_cuda_layer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CACHED = 64, /* tokens in the cache, again and again */
    ROWS = 8,    /* further tokens */
    RUNS = 64    /* of a step */
};

static int pages_of(int slots)
{
    return (slots + KV_CHUNK - 1) / KV_CHUNK;
}

static int token_at(int slot)
{
    return (slot / KV_CHUNK * 13 + slot % 4) % CACHED;
}

/* The first n slots of a cache; `source` has the keys and values of the tokens. */
static void fill(struct seq *s, struct seq *source, int n)
{
    size_t row = 2 * (size_t)s->kv.d, page = 2 * s->pool->half;
    uint8_t *from = seq_save(source), *to = seq_save(s);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < 2 * s->kv.n_kv; h++) /* of K, then of V */
            memcpy(to + (size_t)(i / KV_CHUNK) * page + (size_t)(h * KV_CHUNK + i % KV_CHUNK) * row,
                   from + (size_t)(h * KV_CHUNK + token_at(i)) * row, row);
    seq_load(s, to);
    free(from);
    free(to);
}

static bool open_rig(struct rig *g, struct cuda_check *t, const struct rig_shape *shape,
                     struct seq_pool *pool, struct seq *source, int context, int n_pages)
{
    int tokens[CACHED];
    float *out = malloc(sizeof *out * (size_t)(CACHED * shape->hidden));
    bool opened =
        rig_open(g, t, shape, DTYPE_BF16, RIG_ATTENTION, 2 * RUNS, context, CACHED + ROWS);
    if (opened) {
        g->n_bulk = CACHED;
        rig_reference(g);
        seq_pool_open(g, pool, n_pages);
        seq_open_in(pool, g, source, KV_CHUNK);
        for (int i = 0; i < CACHED; i++)
            tokens[i] = i;
        rig_chain(g, source, 0, tokens, CACHED, true, out);
    }
    free(out);
    return opened;
}

static void close_rig(struct rig *g, struct seq_pool *pool, struct seq *source)
{
    seq_close(source);
    seq_pool_close(pool);
    rig_close(g);
}

/* ---- many sequences ---- */

/* Sequence i of so many slots: all whole pages are those of the first sequence. */
static void open_like(struct rig *g, struct seq_pool *pool, struct seq *s, struct seq *first,
                      int slots)
{
    int slot[KV_CHUNK], whole = slots / KV_CHUNK, rest = slots % KV_CHUNK;
    seq_open_in(pool, g, s, pages_of(slots + ROWS) * KV_CHUNK);
    seq_share(s, first, whole);
    for (int i = 0; i < rest; i++)
        slot[i] = whole * KV_CHUNK + i;
    if (rest)
        g->t->ops->kv_copy(g->work, &s->kv, &first->kv, slot, slot, rest);
}

/* So many runs in one step (with a key: recorded), then one by one, with the same bits. True: the
 * step was played from a record. */
static bool check_together(struct rig *g, const struct attn_run *runs, int n_runs,
                           const int *tokens, bool bulk, const char *key)
{
    int n = runs[n_runs - 1].row0 + runs[n_runs - 1].n;
    size_t row = sizeof(float) * (size_t)g->s.hidden;
    uint8_t *all = malloc(row * (size_t)n), *alone = malloc(row * (size_t)n);
    struct rig_step step = {
        .n = n, .tokens = tokens, .n_runs = n_runs, .runs = runs, .bulk = bulk, .key = key
    };
    bool played = rig_run(g, &step, (float *)(void *)all);
    for (int i = 0; i < n_runs; i++) {
        struct attn_run run = runs[i];
        size_t at = row * (size_t)run.row0;
        step = (struct rig_step){
            .n = run.n, .tokens = tokens + run.row0, .n_runs = 1, .runs = &run, .bulk = bulk
        };
        run.row0 = 0;
        rig_run(g, &step, (float *)(void *)(alone + at));
        if (memcmp(alone + at, all + at, row * (size_t)run.n))
            check_fail(&g->t->c, "run %d of %d (d=%d, slot %d, %d rows%s): other bits than alone",
                       i, n_runs, g->s.head_dim, run.first_slot, run.n,
                       run.parent ? " of a tree" : "");
    }
    free(all);
    free(alone);
    return played;
}

/* Sequences of different lengths. */
static void check_many(struct cuda_check *t, const struct rig_shape *shape, int slots)
{
    struct rig g;
    struct seq_pool pool;
    struct seq source, first, *s = malloc(sizeof *s * RUNS);
    struct attn_run runs[RUNS];
    int tokens[2 * RUNS], n = 0, own = pages_of(KV_CHUNK + ROWS);
    if (!open_rig(&g, t, shape, &pool, &source, slots + KV_CHUNK,
                  2 * pages_of(slots) + RUNS * own + 4)) {
        free(s);
        return;
    }
    seq_open_in(&pool, &g, &first, pages_of(slots) * KV_CHUNK);
    fill(&first, &source, slots);
    for (int i = 0; i < RUNS; i++) {
        int length = check_int(&t->c, slots / 8, slots);
        if (i < 2) /* the longest, and one whose rows go over the end of a page */
            length = i ? slots / KV_CHUNK * KV_CHUNK - 1 : slots;
        open_like(&g, &pool, &s[i], &first, length);
        runs[i] = (struct attn_run){
            .row0 = n, .n = i < 2 || i % 9 == 0 ? 2 : 1, .first_slot = length, .kv = &s[i].kv
        };
        for (int r = 0; r < runs[i].n; r++)
            tokens[n++] = CACHED + check_int(&t->c, 0, ROWS - 1);
    }
    check_together(&g, runs, RUNS, tokens, false, NULL);
    check_together(&g, runs, t->full ? RUNS : 4, tokens, true, NULL);
    for (int i = 0; i < RUNS; i++)
        seq_close(&s[i]);
    seq_close(&first);
    close_rig(&g, &pool, &source);
    free(s);
}

/* ---- rows of many requests ---- */

/* Of a tree: the second and third node are children of the first, and so on. */
static const int bush[8] = { -1, 0, 0, 1, 1, 2, 2, 3 };

/* Run i of a step: one row, or in some a chain or a tree, in some of them with pending rows. */
static struct attn_run mixed_run(int i, int row0, int length, const struct seq *s)
{
    struct attn_run run = { .row0 = row0, .n = 1, .first_slot = length, .kv = &s->kv };
    if (i % 7 == 3)
        run.n = 2 + i % 5;
    else if (i % 11 == 1)
        run.n = 4, run.parent = bush;
    if (i % 4 == 3 && length >= 2) {
        run.pending = 2;
        run.first_slot -= 2;
    }
    return run;
}

/* So many requests of all lengths in a step, and as a recorded step, which is played again with the
 * sequences of one row each in each other's place. */
static void check_mixed(struct cuda_check *t, const struct rig_shape *shape, int n_runs, int slots)
{
    struct rig g;
    struct seq_pool pool;
    struct seq source, first, *s = malloc(sizeof *s * RUNS);
    struct attn_run runs[RUNS], swapped[RUNS];
    int tokens[8 * RUNS], n = 0, one[RUNS], n_one = 0, own = pages_of(KV_CHUNK + ROWS);
    bool played;
    if (!open_rig(&g, t, shape, &pool, &source, slots + KV_CHUNK,
                  2 * pages_of(slots) + n_runs * own + 4)) {
        free(s);
        return;
    }
    seq_open_in(&pool, &g, &first, pages_of(slots) * KV_CHUNK);
    fill(&first, &source, slots);
    for (int i = 0; i < n_runs; i++) {
        int length = i % 3 ? check_int(&t->c, 1, slots / 8) : check_int(&t->c, 1, slots);
        length = i == 0 ? 1 : i == n_runs - 1 ? slots : length;
        open_like(&g, &pool, &s[i], &first, length);
        runs[i] = swapped[i] = mixed_run(i, n, length, &s[i]);
        if (runs[i].n == 1 && runs[i].pending == 0)
            one[n_one++] = i;
        for (int r = 0; r < runs[i].n; r++)
            tokens[n++] = CACHED + check_int(&t->c, 0, ROWS - 1);
    }
    for (int i = 0; i < n_one; i++) {
        swapped[one[i]].kv = runs[one[n_one - 1 - i]].kv;
        swapped[one[i]].first_slot = runs[one[n_one - 1 - i]].first_slot;
    }
    check_together(&g, runs, n_runs, tokens, false, NULL);
    struct rig_step step = {
        .n = n, .tokens = tokens, .n_runs = n_runs, .runs = swapped, .key = "mixed"
    };
    rig_ask(&g, &step);
    rig_ask(&g, &step);
    played = check_together(&g, swapped, n_runs, tokens, false, "mixed");
    if (!played || !check_together(&g, runs, n_runs, tokens, false, "mixed"))
        check_fail(&t->c, "a step of %d runs is not played from a record", n_runs);
    for (int i = 0; i < n_runs; i++)
        seq_close(&s[i]);
    seq_close(&first);
    close_rig(&g, &pool, &source);
    free(s);
}

/* ---- long sequences ---- */

/* Token CACHED + r behind `slots` slots and r more tokens. */
static void expect_near(struct rig *g, const float *out, int slots, int r)
{
    int hidden = g->s.hidden, q = g->s.n_heads * g->s.head_dim, n = slots + r + 1;
    int *path = malloc(sizeof *path * (size_t)n);
    double *att = malloc(sizeof *att * (size_t)q), most = 0;
    const float *x = g->token + (size_t)(CACHED + r) * (size_t)hidden;
    for (int i = 0; i < n; i++)
        path[i] = i < slots ? token_at(i) : CACHED + i - slots;
    for (int i = 0; i < g->n_tokens * g->s.n_kv_heads * g->s.head_dim; i++)
        most = fmax(most, fabs(g->ref_v[i]));
    ref_attention(g, att, path, n);
    for (int i = 0; i < hidden && i < q; i++)
        if (!(fabs((double)out[i] - x[i] - att[i]) <= 0x1p-6 * most))
            check_fail(&g->t->c, "d=%d, slot %d [%d] is %.6g, not %.6g", g->s.head_dim, n - 1, i,
                       (double)out[i] - x[i], att[i]);
    free(path);
    free(att);
}

/* Rows behind very many slots: alone, as a chain with the same bits, and (bulk) of a prompt. */
static void check_long(struct cuda_check *t, const struct rig_shape *shape, int slots, int rows,
                       bool bulk)
{
    struct rig g;
    struct seq_pool pool;
    struct seq source, s;
    int tokens[ROWS], n = pages_of(slots + ROWS), hidden = shape->hidden;
    if (!open_rig(&g, t, shape, &pool, &source, n * KV_CHUNK, n + 5))
        return;
    float *alone = malloc(sizeof *alone * (size_t)(ROWS * hidden));
    float *out = malloc(sizeof *out * (size_t)(ROWS * hidden));
    seq_open_in(&pool, &g, &s, n * KV_CHUNK);
    fill(&s, &source, slots);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = CACHED + i;
    for (int i = 0; i < rows; i++) {
        rig_chain(&g, &s, slots + i, tokens + i, 1, false, alone + (size_t)(i * hidden));
        expect_near(&g, alone + (size_t)(i * hidden), slots, i);
    }
    rig_chain(&g, &s, slots, tokens, rows, false, out);
    if (memcmp(out, alone, sizeof *out * (size_t)(rows * hidden)))
        check_fail(&t->c, "d=%d, %d slots: rows of a chain have other bits than alone", shape->d,
                   slots);
    if (bulk)
        rig_chain(&g, &s, slots, tokens, rows, true, out);
    for (int i = 0; bulk && i < rows; i++)
        expect_near(&g, out + (size_t)(i * hidden), slots, i);
    seq_close(&s);
    close_rig(&g, &pool, &source);
    free(alone);
    free(out);
}

/* ---- no room ---- */

/* A step longer than its work was made for fails; the next one does not. */
static void check_no_room(struct cuda_check *t, const struct rig_shape *shape)
{
    struct rig g;
    struct seq_pool pool;
    struct seq source, s;
    struct pv_error err = { 0 };
    int token = CACHED, most = RUNS * (KV_CHUNK + 768);
    if (!open_rig(&g, t, shape, &pool, &source, KV_CHUNK, pages_of(2 * most) + 4))
        return;
    float *out = malloc(sizeof *out * (size_t)shape->hidden);
    seq_open_in(&pool, &g, &s, pages_of(2 * most) * KV_CHUNK);
    fill(&s, &source, CACHED);
    struct attn_run run = { .n = 1, .first_slot = 2 * most - 1, .kv = &s.kv };
    struct rig_step step = { .n = 1, .tokens = &token, .n_runs = 1, .runs = &run };
    rig_ask(&g, &step);
    if (t->ops->wait(g.work, &err) != PV_E_DEVICE || !strstr(err.text, "page tables"))
        check_fail(&t->c, "page tables without room: \"%s\"", err.text);
    rig_chain(&g, &s, CACHED, &token, 1, false, out);
    expect_near(&g, out, CACHED, 0);
    seq_close(&s);
    close_rig(&g, &pool, &source);
    free(out);
}

/* ---- all ---- */

static const struct rig_shape shapes[] = {
    { 128, 96, 4, 2, 64, false, true },
    { 128, 96, 2, 1, 128, true, false },
    { 96, 64, 3, 1, 32, true, true },
    { 40, 24, 2, 1, 20, true, false },
};

/* Runs of a step of such a shape that the simulator can afford. */
static const int most_simulated[] = { 33, 5, 5, RUNS };

void check_cuda_pages(struct cuda_check *t)
{
    char name[16];
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        snprintf(name, sizeof name, "d=%d", shapes[i].d);
        if (check_begin(&t->c, "pages_many", name)) {
            check_many(t, &shapes[i], t->full ? 4096 : 700);
            check_end(&t->c);
        }
        if (check_begin(&t->c, "pages_mixed", name)) {
            static const int n_runs[] = { 2, 5, 33, RUNS };
            for (size_t r = 0; r < sizeof n_runs / sizeof n_runs[0]; r++)
                if (t->full || n_runs[r] <= most_simulated[i])
                    check_mixed(t, &shapes[i], n_runs[r],
                                t->full          ? 5000
                                : n_runs[r] < 33 ? 1100
                                                 : 600);
            check_end(&t->c);
        }
        if (check_begin(&t->c, "pages_long", name)) {
            check_long(t, &shapes[i], 2814, t->full ? ROWS : 3, true);
            if (t->full || i == 0) /* the simulator would take a minute for more */
                check_long(t, &shapes[i], 100000, t->full ? ROWS : 1, t->full);
            check_end(&t->c);
        }
    }
    if (check_begin(&t->c, "pages_no_room", "")) {
        check_no_room(t, &shapes[0]);
        check_end(&t->c);
    }
}
