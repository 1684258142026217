/* The sparse drafter (STD, Sparse-to-Dense): the target reading part of its own cache. Each KV head
 * of each layer keeps the entries of the text and those of the video that the text attended to most
 * in the heads that share it, chosen once for a prompt. Every KV head keeps another set but the
 * same number, so the entries, copied together in ascending order, are an ordinary cache; their
 * keys are rotated already, and new rows take the positions they have in the target.
 *
 * Behind them lies the answer: what is verified is copied from the target, and what was drafted is
 * forgotten at the next round, right or wrong. */
#include "base/mem.h"
#include "base/rng.h"
#include "lm/decoder.h"
#include "spec/drafter_kind.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    COPY_ROWS = 64, /* of the answer, at once */
};

struct sparse_drafter {
    struct drafter base;
    const struct decoder *dec; /* borrowed, as stepper */
    struct stepper *stepper;
    struct kvcache kv;
    int context, keep;
    int n_kept;   /* entries of the prompt */
    int n_answer; /* rows of the answer behind them, copied from the target */
    int n_prompt; /* rows of the target's prompt */
    int32_t next; /* position of the answer's first token */
    float *logits;
    struct candidate *candidates;
};

static struct sparse_drafter *of(struct drafter *d)
{
    return (struct sparse_drafter *)d;
}

/* ---- choosing ---- */

static float in_middle(float a, float b, float c)
{
    float low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* The k-th largest (k from 1) of x[n], which is reordered. */
static float kth_largest(float *x, int n, int k)
{
    int low = 0, high = n - 1;
    while (low < high) {
        float middle = in_middle(x[low], x[low + (high - low) / 2], x[high]);
        int i = low, j = high;
        while (i <= j) {
            while (x[i] > middle)
                i++;
            while (x[j] < middle)
                j--;
            if (i <= j) {
                float swap = x[i];
                x[i++] = x[j];
                x[j--] = swap;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            break;
    }
    return x[k - 1];
}

/* Marks the k highest scores, the first of equals; one that is no number comes last.
 * scratch [n]. */
static void mark_highest(bool *chosen, const int *rows, const float *score, int n, int k,
                         float *scratch)
{
    float least;
    int ties = k;
    if (k < 1)
        return;
    for (int i = 0; i < n; i++)
        scratch[i] = isnan(score[i]) ? -INFINITY : score[i];
    least = kth_largest(scratch, n, k);
    for (int i = 0; i < n; i++)
        ties -= score[i] > least;
    for (int i = 0; i < n; i++) {
        float s = isnan(score[i]) ? -INFINITY : score[i];
        if (s > least || (s == least && ties > 0)) {
            ties -= s == least;
            chosen[rows[i]] = true;
        }
    }
}

/* ---- the prompt ---- */

/* Room for choosing and listing the entries of one layer. */
struct plan {
    bool *chosen;   /* [n] rows of the prompt */
    int *to, *from; /* [n] */
    float *scratch; /* [n_scores] */
    struct arena arena;
};

static enum pv_status plan_open(struct plan *l, const struct draft_prompt *p, struct pv_error *err)
{
    size_t n = (size_t)p->n, ints = n * sizeof(int);
    size_t scores = (size_t)p->n_scores * sizeof(float);
    size_t size = arena_cost(n * sizeof(bool)) + 2 * arena_cost(ints) + arena_cost(scores);
    *l = (struct plan){ 0 };
    if (!arena_open(&l->arena, size))
        return fail_nomem(err, size);
    l->chosen = arena_push(&l->arena, n * sizeof(bool));
    l->to = arena_push(&l->arena, ints);
    l->from = arena_push(&l->arena, ints);
    l->scratch = arena_push(&l->arena, scores);
    return PV_OK;
}

/* The entries of one layer that have the highest scores [n_scores], and those without one: l->from,
 * ascending, to l->to. */
static void list_entries(const struct sparse_drafter *d, const struct draft_prompt *p,
                         struct plan *l, const float *scores)
{
    int n = 0, text = p->n - p->n_scores;
    for (int i = 0; i < p->n; i++)
        l->chosen[i] = true;
    for (int i = 0; i < p->n_scores; i++)
        l->chosen[p->score_rows[i]] = false;
    if (p->n_scores > 0)
        mark_highest(l->chosen, p->score_rows, scores, p->n_scores, d->n_kept - text, l->scratch);
    for (int i = 0; i < p->n; i++)
        if (l->chosen[i]) {
            l->to[n] = n;
            l->from[n++] = i;
        }
    assert(n == d->n_kept);
}

static void keep_layer(struct sparse_drafter *d, const struct draft_prompt *p, struct plan *l,
                       int layer)
{
    const float *scores = p->scores;
    if (p->n_scores == 0 || p->n_groups == 1) {
        if (p->n_scores > 0)
            scores += (size_t)layer * (size_t)p->n_scores;
        list_entries(d, p, l, scores);
        kvcache_copy(&d->kv, p->target, d->stepper->work, layer, l->to, l->from, d->n_kept);
        return;
    }
    for (int g = 0; g < p->n_groups; g++) {
        size_t at = (size_t)layer * (size_t)p->n_groups + (size_t)g;
        list_entries(d, p, l, scores + at * (size_t)p->n_scores);
        kvcache_copy_head(&d->kv, p->target, d->stepper->work, layer, g, l->to, l->from, d->n_kept);
    }
}

static enum pv_status begin_sparse(struct drafter *base, const struct draft_prompt *p,
                                   struct pv_error *err)
{
    struct sparse_drafter *d = of(base);
    int text = p->n - p->n_scores, kept = text > d->keep ? text : d->keep;
    struct plan l;
    enum pv_status s;
    kept = kept < p->n ? kept : p->n;
    if (kept > d->context)
        return fail(err, PV_E_LIMIT, "%d entries of the prompt do not fit the drafter's %d", kept,
                    d->context);
    if (p->target->len < p->n || (p->n_scores > 0 && (!p->scores || !p->score_rows)))
        return fail(err, PV_E_ARG, "a sparse drafter without the target's cache or scores");
    kvcache_truncate(&d->kv, 0);
    d->stepper->starved = !kvcache_reserve(&d->kv, d->stepper->work, kept);
    if (d->stepper->starved)
        return fail(err, PV_E_DRAFTER, "no KV page is free for the drafter's %d entries", kept);
    s = plan_open(&l, p, err);
    if (s)
        return s;
    d->n_kept = kept;
    d->n_prompt = p->n;
    d->n_answer = 0;
    d->next = p->next;
    for (int i = 0; i < d->kv.n_layers; i++)
        keep_layer(d, p, &l, i);
    kvcache_advance(&d->kv, kept);
    arena_close(&l.arena);
    return PV_OK;
}

/* ---- rounds ---- */

/* Drops what was drafted and takes what was verified since; false: the pool has no page for it. */
static bool catch_up(struct sparse_drafter *d, const struct draft_request *r)
{
    int verified = r->n_answer - 1, to[COPY_ROWS], from[COPY_ROWS];
    assert(r->target->len >= d->n_prompt + verified);
    d->n_answer = d->n_answer < verified ? d->n_answer : verified;
    kvcache_truncate(&d->kv, d->n_kept + d->n_answer);
    while (d->n_answer < verified) {
        int n = verified - d->n_answer < COPY_ROWS ? verified - d->n_answer : COPY_ROWS;
        if (!kvcache_reserve(&d->kv, d->stepper->work, n))
            return false;
        for (int i = 0; i < n; i++) {
            to[i] = d->n_kept + d->n_answer + i;
            from[i] = d->n_prompt + d->n_answer + i;
        }
        for (int l = 0; l < d->kv.n_layers; l++)
            kvcache_copy(&d->kv, r->target, d->stepper->work, l, to, from, n);
        kvcache_advance(&d->kv, n);
        d->n_answer += n;
    }
    return true;
}

/* The token after the one at this depth, from the logits of its row. */
static int32_t next_token(struct sparse_drafter *d, const struct draft_request *r, int depth)
{
    int vocab = decoder_config(d->dec)->vocab;
    uint64_t position = r->position + (uint64_t)depth;
    float *q;
    if (!r->q)
        return sample_token(d->logits, vocab, r->how, position, d->candidates);
    q = r->q + (size_t)depth * (size_t)vocab;
    sample_distribution(d->logits, vocab, r->how, q, d->candidates);
    return drafter_draw(q, vocab, r->how, position);
}

/* Runs one token of the given depth after what the cache holds; *next follows it. */
static enum pv_status run_token(struct sparse_drafter *d, const struct draft_request *r, int32_t id,
                                int depth, int32_t *next, struct pv_error *err)
{
    bool greedy = r->how->temperature == 0 && !r->q;
    int32_t at = d->next + r->n_answer - 1 + depth, pos[1][3] = { { at, at, at } };
    struct step_seq seq = { .kv = &d->kv, .n = 1 };
    int row = 0;
    struct step step = { .n = 1,
                         .ids = &id,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &row,
                         .logits = greedy ? NULL : d->logits,
                         .argmax = greedy ? next : NULL };
    enum pv_status s = stepper_run(d->stepper, &step, err);
    if (s)
        return s;
    drafter_count(&d->base, d->kv.len, 1);
    kvcache_advance(&d->kv, 1);
    if (!greedy)
        *next = next_token(d, r, depth);
    return PV_OK;
}

/* Runs the last token of the tree and all but the last of the n tokens that follow it, which the
 * device chooses by itself. */
static enum pv_status run_chain(struct sparse_drafter *d, const struct draft_request *r, int n,
                                struct pv_error *err)
{
    int32_t made[STEP_MAX_CHAIN + 1], pos[STEP_MAX_CHAIN + 1][3];
    uint64_t position[STEP_MAX_CHAIN + 1];
    int depth = r->tree->n - 1, row = 0;
    bool greedy = r->how->temperature == 0;
    struct step_seq seq = { .kv = &d->kv, .n = 1 };
    struct step_choice choice = {
        .t = r->how->temperature, .drawn = made, .position = position, .seed = r->how->seed
    };
    struct step step = { .n = 1,
                         .ids = &r->tree->id[depth],
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &row,
                         .argmax = greedy ? made : NULL,
                         .choice = greedy ? NULL : &choice,
                         .chain = n - 1 };
    enum pv_status s;
    for (int i = 0; i < n; i++) {
        position[i] = r->position + (uint64_t)(depth + i);
        for (int a = 0; a < 3; a++)
            pos[i][a] = d->next + r->n_answer - 1 + depth + i;
    }
    s = stepper_run(d->stepper, &step, err);
    if (s)
        return s;
    drafter_count(&d->base, d->kv.len, n);
    kvcache_advance(&d->kv, n);
    for (int i = 0; i < n; i++)
        tree_add(r->tree, r->tree->n - 1, made[i]);
    return PV_OK;
}

static enum pv_status propose_sparse(struct drafter *base, const struct draft_request *r,
                                     struct pv_error *err)
{
    struct sparse_drafter *d = of(base);
    int room = d->context - d->n_kept - (r->n_answer - 1), window = shape_depth(r->shape), row = 0;
    window = window < r->most ? window : r->most;
    window = window < room ? window : room;
    if (window < 1)
        return PV_OK;
    if (!catch_up(d, r))
        return PV_OK;
    if (drafter_chains_at_once(d->dec, r)) {
        enum pv_status s = PV_OK;
        window = window < TREE_MAX - 1 ? window : TREE_MAX - 1;
        for (int i = 0; i < window && !s; i += STEP_MAX_CHAIN + 1)
            s = run_chain(d, r, window - i < STEP_MAX_CHAIN + 1 ? window - i : STEP_MAX_CHAIN + 1,
                          err);
        return s;
    }
    for (int i = 0; i < window && row >= 0; i++) {
        int32_t next;
        enum pv_status s = run_token(d, r, r->tree->id[row], i, &next, err);
        if (s)
            return s;
        row = tree_add(r->tree, row, next);
    }
    return PV_OK;
}

/* ---- opening ---- */

static void close_sparse(struct drafter *base)
{
    struct sparse_drafter *d = of(base);
    kvcache_close(&d->kv);
    mem_free(d->logits);
    mem_free(d->candidates);
    mem_free(d);
}

enum pv_status drafter_sparse_open(struct drafter **out, struct stepper *steps, int context,
                                   int keep, struct pv_error *err)
{
    const struct config *c = decoder_config(steps->dec);
    struct sparse_drafter *d = mem_zalloc(sizeof *d);
    enum pv_status s;
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->base = (struct drafter){
        .name = "sparse", .begin = begin_sparse, .propose = propose_sparse, .close = close_sparse
    };
    d->dec = steps->dec;
    d->stepper = steps;
    d->context = context;
    d->keep = keep;
    d->logits = mem_alloc((size_t)c->vocab * sizeof *d->logits);
    d->candidates = mem_alloc((size_t)c->vocab * sizeof *d->candidates);
    if (!d->logits || !d->candidates)
        s = fail_nomem(err, (size_t)c->vocab * (sizeof *d->logits + sizeof *d->candidates));
    else
        s = kvcache_attach(&d->kv, steps->pool, context, err);
    if (s) {
        close_sparse(&d->base);
        return s;
    }
    *out = &d->base;
    return PV_OK;
}

static enum pv_status open_kind(struct drafter **out, const struct drafter_resources *r,
                                struct pv_error *err)
{
    return drafter_sparse_open(out, r->steps, r->context, r->keep, err);
}

static size_t size_kind(const struct drafter_resources *r)
{
    return (size_t)decoder_config(r->steps->dec)->vocab *
           (sizeof(float) + sizeof(struct candidate));
}

const struct drafter_kind drafter_sparse = {
    .info = { .name = "sparse",
              .preset = "std",
              .takes_keep = true,
              .reads_kv_cache = true,
              .probabilities = true },
    .open = open_kind,
    .size = size_kind,
    .runs = DRAFTER_RUNS_TARGET,
    .layer_scores = true,
    .made_anew = true,
};
