/* What a decoder that is spread is asked, and one that is not: prompts, trees, taps of everything,
 * steps of which only some rows go on. All numbers that come of it lie on a sheet. */
#ifndef PV_TESTS_RANK_PROGRAM_H
#define PV_TESTS_RANK_PROGRAM_H

#include "rig.h"

enum { CONTEXT = 768, MAX_ROWS = 64, PROMPT = 270, KEYS = 40, LAYERS_MOST = 2, BULK = 40 };

/* Numbers one after the other. */
struct sheet {
    float *at;
    size_t n, cap;
};

static inline float *sheet_take(struct sheet *s, size_t n)
{
    float *p = s->at + s->n;
    CHECK(s->n + n <= s->cap);
    s->n += n;
    return p;
}

static const int tree[] = { -1, -1, -1, 0, 0, 1, 3, 3, 5, 6, 6 };
enum { TREE = sizeof tree / sizeof tree[0] };

/* A tree, one path of which is accepted; then three single tokens. */
static inline bool run_tree(struct rig *r, struct sheet *out, const int32_t *ids)
{
    static const int path[] = { 0, 3, 6, 10 };
    size_t vocab = (size_t)r->c->vocab;
    if (!rig_run(r, ids, TREE, tree, sheet_take(out, TREE * vocab)))
        return false;
    kvcache_gather(&r->kv, decoder_state_work(r->st), path, 4);
    for (int i = 0; i < 3; i++) {
        if (!rig_run(r, ids + i, 1, NULL, sheet_take(out, vocab)))
            return false;
        kvcache_advance(&r->kv, 1);
    }
    return true;
}

/* Taps of everything, logits of two rows. */
static inline bool run_taps(struct rig *r, struct sheet *out, const int32_t *ids, int n,
                            bool halves)
{
    int layers = r->c->n_layers, hidden = r->c->hidden, rows[MAX_ROWS], keys[KEYS];
    int wanted[] = { n - 1, 2 };
    struct pv_error err = { 0 };
    struct hidden_tap taps[LAYERS_MOST + 2];
    float *residual = sheet_take(out, (size_t)n * (size_t)hidden);
    int32_t best[2];
    for (int i = 0; i < n; i++) {
        rows[i] = i;
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = r->kv.len + i;
    }
    for (int i = 0; i < KEYS; i++)
        keys[i] = i * (r->kv.len / KEYS) + 2;
    for (int i = 0; i < layers + 2; i++)
        taps[i] = (struct hidden_tap){ .layer = i - 1,
                                       .post_norm = i == layers + 1,
                                       .n_rows = n,
                                       .rows = rows,
                                       .out = sheet_take(out, (size_t)n * (size_t)hidden) };
    struct column_tap columns[] = { { .layer0 = 0, .layer1 = layers },
                                    { .layer0 = layers - 1, .layer1 = layers, .over_keys = true } };
    for (int i = 0; i < 2; i++) {
        columns[i].n_rows = n;
        columns[i].rows = rows;
        columns[i].n_keys = KEYS;
        columns[i].keys = keys;
        columns[i].sums = sheet_take(out, KEYS);
    }
    struct step_seq seq = { .kv = &r->kv, .n = n };
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 2,
                         .logit_rows = wanted,
                         .logits = sheet_take(out, 2 * (size_t)r->c->vocab),
                         .argmax = best,
                         .residual = residual,
                         .n_hidden = layers + 2,
                         .hidden = taps,
                         .n_columns = 2,
                         .columns = columns };
    if (halves && layers > 1) {
        struct step first = step;
        first.n_logits = 0;
        first.layer1 = 1;
        step.layer0 = 1;
        step.layer1 = layers;
        if (!CHECK_MSG(!decoder_step(r->dec, r->st, &first, &err), "%s", err.text))
            return false;
    }
    if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
        return false;
    for (int i = 0; i < 2; i++)
        *sheet_take(out, 1) = (float)best[i];
    return true;
}

/* Only the last row of a step goes on after the last attention. */
static inline bool run_last_row(struct rig *r, struct sheet *out, const int32_t *ids, int n,
                                bool bulk)
{
    int last = n - 1;
    struct pv_error err = { 0 };
    struct top_entry top[4];
    float mass;
    struct step_choice choice = { .k = 4, .t = 0.7f, .top = top, .mass = &mass };
    struct step_seq seq = { .kv = &r->kv, .n = n };
    for (int i = 0; i < n; i++)
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = r->kv.len + i;
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = sheet_take(out, (size_t)r->c->vocab),
                         .choice = &choice,
                         .bulk = bulk };
    if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
        return false;
    for (int i = 0; i < 4; i++)
        *sheet_take(out, 1) = (float)top[i].id;
    *sheet_take(out, 1) = mass;
    return true;
}

/* With a prompt of n tokens, the first BULK of them in the way of prompts. */
static inline bool run_program(struct rig *r, struct sheet *out, const int32_t *ids, int n)
{
    size_t rest = (size_t)(n - BULK);
    if (!run_last_row(r, out, ids, BULK, true))
        return false;
    kvcache_advance(&r->kv, BULK);
    return rig_feed(r, ids + BULK, n - BULK, 50, sheet_take(out, rest * (size_t)r->c->vocab)) &&
           run_tree(r, out, ids) && run_taps(r, out, ids + 7, 30, false) &&
           run_taps(r, out, ids + 9, 30, true) && run_last_row(r, out, ids + 30, 40, false);
}

static inline struct sheet sheet_open(const struct config *c)
{
    size_t cap = 1000 * (size_t)c->vocab + 1000 * (size_t)c->hidden;
    return (struct sheet){ .at = calloc(cap, sizeof(float)), .cap = cap };
}

static inline void sheet_compare(const struct sheet *want, const struct sheet *got,
                                 const char *what)
{
    size_t at = 0;
    while (at < want->n && !memcmp(&want->at[at], &got->at[at], sizeof(float)))
        at++;
    CHECK_MSG(want->n == got->n && at == want->n, "%s: number %zu of %zu is %g, not %g", what, at,
              want->n, at < got->n ? (double)got->at[at] : 0.0,
              at < want->n ? (double)want->at[at] : 0.0);
}

#endif
