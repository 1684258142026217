/* A decoder as a drafter. Its cache holds the rows of the prompt it may see, then the answer; what
 * of that is still true is found by comparing, at the beginning of a prompt and of every round.
 *
 * Chains run token by token, or all at once where the device feeds each token to the next row by
 * itself; trees where it chooses the rows of each level by itself do, too. Otherwise trees grow
 * level by level: a step runs the nodes whose children are wanted, and leaves them behind the cache
 * as pending rows, parents of the next level's. Nothing of a tree is committed: the next round
 * finds out what was right, and runs that as a chain. */
#include "spec/drafter_model.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "spec/drafter_kind.h"
#include "spec/grow.h"

#include <string.h>

/* A row of the prompt in the cache. */
struct held_row {
    int32_t id, pos[3];
    int row; /* of the target's prompt: tells rows of one media item apart */
};

struct model_drafter {
    struct drafter base;
    const struct decoder *dec; /* borrowed, as stepper */
    struct stepper *stepper;
    struct kvcache kv;
    int chunk, context;
    int target_vocab, vocab; /* vocab: ids that both know are below it */
    struct held_row *rows;   /* [context]: the prompt as seen, n_rows */
    int n_rows, n_cached;    /* of these rows, in the cache */
    int32_t *answer;         /* [context]: behind the prompt, n_answer of them cached */
    int n_answer;
    int32_t next; /* position of the answer's first token */
    float *embeds, *logits;
    float *draft_logits; /* of a draft vocabulary, where these are made from; NULL: it has none */
    bool wants_best;     /* of the last row only `best`, the likeliest token: no logits */
    int32_t best;
    struct grow_top top; /* with k > 0: of trees, in the place of logits */
    struct grow_pool pool;
    struct grow_ahead ahead; /* trees that run in one step */
    int32_t *ids, (*pos)[3];
    int *all; /* [chunk]: 0, 1, ... */
    struct candidate *candidates;
};

static struct model_drafter *of(struct drafter *d)
{
    return (struct model_drafter *)d;
}

/* ---- opening ---- */

static int most_rows(int chunk)
{
    return chunk < TREE_MAX ? TREE_MAX : chunk;
}

size_t drafter_model_size(const struct decoder *dec, int chunk, int context)
{
    const struct config *c = decoder_config(dec);
    return sizeof(struct model_drafter) +
           (size_t)context * (sizeof(struct held_row) + sizeof(int32_t)) +
           ((size_t)most_rows(chunk) + STEP_MAX_CHAIN) * 3 * sizeof(int32_t) +
           (size_t)most_rows(chunk) * ((size_t)config_media_width(c) + 2) * sizeof(float) +
           (decoder_draft_ids(dec) ? (size_t)c->vocab * GROW_LEVEL * sizeof(float) : 0) +
           (size_t)decoder_input_vocab(dec) *
               (GROW_LEVEL * sizeof(float) + sizeof(struct candidate));
}

static void close_model(struct drafter *base)
{
    struct model_drafter *d = of(base);
    kvcache_close(&d->kv);
    mem_free(d->rows);
    mem_free(d->answer);
    mem_free(d->embeds);
    mem_free(d->logits);
    mem_free(d->draft_logits);
    mem_free(d->ids);
    mem_free(d->pos);
    mem_free(d->all);
    mem_free(d->candidates);
    mem_free(d);
}

static void step_model_by(struct drafter *base, struct stepper *steps)
{
    of(base)->stepper = steps;
}

/* ---- the prompt ---- */

/* The rows of the prompt that are seen, with the positions they take. */
static void list_rows(struct model_drafter *d, const struct draft_prompt *p)
{
    int same = 0, n = 0;
    bool equal = true;
    for (int i = 0; i < p->n; i++) {
        struct held_row r = { .id = p->ids[i], .row = p->ids[i] < 0 ? i : 0 };
        if (!p->visible[i])
            continue;
        for (int a = 0; a < 3; a++)
            r.pos[a] = p->original ? p->pos[i][a] : n;
        equal = equal && n < d->n_cached && memcmp(&d->rows[n], &r, sizeof r) == 0;
        same += equal;
        d->rows[n++] = r;
    }
    d->n_rows = n;
    d->n_cached = p->attention ? min_int(same, p->query0) : same; /* what is measured runs */
    d->n_answer = 0;
    d->next = p->original ? p->next : n;
    kvcache_truncate(&d->kv, d->n_cached);
}

/* Embeddings of the media's rows among [from, from + n) of the list. */
static enum pv_status fill_embeds(struct model_drafter *d, const struct draft_prompt *p, int from,
                                  int n, struct pv_error *err)
{
    size_t width = (size_t)config_media_width(decoder_config(d->dec));
    for (int i = 0; i < n;) {
        const struct held_row *r = &d->rows[from + i];
        int some = 1;
        enum pv_status s;
        if (r->id >= 0) {
            i++;
            continue;
        }
        while (i + some < n && r[some].id == r->id && r[some].row == r->row + some)
            some++;
        s = p->embed(p->user, r->row, some, d->embeds + (size_t)i * width, err);
        if (s)
            return s;
        i += some;
    }
    return PV_OK;
}

static enum pv_status run_prompt(struct model_drafter *d, const struct draft_prompt *p, int n,
                                 struct pv_error *err)
{
    bool measures = p->attention && d->n_cached >= p->query0;
    struct column_tap tap = { .layer1 = decoder_config(d->dec)->n_layers,
                              .n_rows = n,
                              .rows = d->all,
                              .n_keys = p->n_scores,
                              .keys = p->score_rows,
                              .sums = p->sums };
    struct step_seq seq = { .kv = &d->kv, .n = n };
    struct step step = { .n = n,
                         .ids = d->ids,
                         .embeds = d->embeds,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_columns = measures,
                         .columns = &tap,
                         .bulk = true };
    enum pv_status s = fill_embeds(d, p, d->n_cached, n, err);
    if (s)
        return s;
    for (int i = 0; i < n; i++) {
        const struct held_row *r = &d->rows[d->n_cached + i];
        d->ids[i] = r->id;
        memcpy(d->pos[i], r->pos, sizeof r->pos);
    }
    s = stepper_run(d->stepper, &step, err);
    if (s)
        return s;
    for (int i = 0; i < p->n_scores && measures; i++)
        p->attention[i] += p->sums[i];
    drafter_count(&d->base, d->kv.len, n);
    kvcache_advance(&d->kv, n);
    d->n_cached += n;
    return PV_OK;
}

/* Rows of the next step. If attention is measured, a step ends before the question, so that sums
 * do not depend on how many rows before it were in the cache. */
static int next_rows(const struct model_drafter *d, const struct draft_prompt *p)
{
    int end = p->attention && d->n_cached < p->query0 ? p->query0 : d->n_rows;
    return min_int(end - d->n_cached, d->chunk);
}

static enum pv_status begin_model(struct drafter *base, const struct draft_prompt *p,
                                  struct pv_error *err)
{
    struct model_drafter *d = of(base);
    if (p->n > d->context)
        return fail(err, PV_E_LIMIT, "a prompt of %d tokens does not fit the drafter's %d", p->n,
                    d->context);
    for (int i = 0; i < p->n; i++)
        if (p->ids[i] >= d->vocab)
            return fail(err, PV_E_ARG,
                        "token id %d of the prompt is not in the drafter's vocabulary of %d",
                        (int)p->ids[i], d->vocab);
    list_rows(d, p);
    while (d->n_cached < d->n_rows) {
        enum pv_status s = run_prompt(d, p, next_rows(d, p), err);
        if (s)
            return s;
        if (p->progress && !p->progress(p->user, d->n_cached, d->n_rows))
            return fail(err, PV_E_CANCELLED, "stopped after %d of the drafter's %d prompt tokens",
                        d->n_cached, d->n_rows);
    }
    return PV_OK;
}

/* ---- rounds ---- */

/* Where a step leaves its logits; NULL: the likeliest tokens are enough. */
static float *step_logits(const struct model_drafter *d)
{
    return d->top.k > 0 ? NULL : d->draft_logits ? d->draft_logits : d->logits;
}

static void spread_logits(struct model_drafter *d, int n)
{
    if (d->draft_logits)
        drafter_spread(d->dec, d->logits, d->draft_logits, n);
}

/* n rows of the answer, of which `ids` are those of the first, have run: they are committed. */
static void commit_answer(struct model_drafter *d, const int32_t *ids, int n)
{
    drafter_count(&d->base, d->kv.len, n);
    kvcache_advance(&d->kv, n);
    memcpy(d->answer + d->n_answer, ids, (size_t)n * sizeof *ids);
    d->n_answer += n;
}

/* Positions of the next n rows of the answer. */
static void place_answer(struct model_drafter *d, int n)
{
    for (int i = 0; i < n; i++)
        for (int a = 0; a < 3; a++)
            d->pos[i][a] = d->next + d->n_answer + i;
}

/* Rows of answer tokens as one chain; logits of the last. They are committed. `root`: the last is
 * the root, behind which d->ahead grows. */
static enum pv_status run_answer(struct model_drafter *d, const int32_t *ids, int n, bool root,
                                 struct pv_error *err)
{
    struct step_seq seq = { .kv = &d->kv, .n = n };
    struct step_choice choice = grow_top_choice(&d->top);
    int last = n - 1;
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = d->wants_best ? NULL : step_logits(d),
                         .argmax = d->wants_best ? &d->best : NULL,
                         .choice = d->top.k ? &choice : NULL };
    enum pv_status s;
    place_answer(d, n);
    if (root)
        grow_ahead_ask(&d->ahead, &step);
    for (int i = 0; i < step.chain; i++)
        for (int a = 0; a < 3; a++)
            d->pos[n + i][a] = d->pos[n - 1][a] + d->ahead.depth[i];
    s = stepper_run(d->stepper, &step, err);
    if (s)
        return s;
    if (step.tree)
        grow_ahead_root(&d->ahead, &d->top);
    if (step.logits)
        spread_logits(d, 1);
    commit_answer(d, ids, n);
    return PV_OK;
}

/* The cache keeps of the answer what still holds, but not the root. */
static void take_back(struct model_drafter *d, const struct draft_request *r)
{
    int same = 0;
    while (same < d->n_answer && same < r->n_answer - 1 && d->answer[same] == r->answer[same])
        same++;
    d->n_answer = same;
    kvcache_truncate(&d->kv, d->n_rows + same);
}

/* Rows of the answer until at most `rest` of them are left; the logits of the last, which is the
 * root's if none are, are in d->logits. */
static enum pv_status catch_up(struct model_drafter *d, const struct draft_request *r, int rest,
                               struct pv_error *err)
{
    while (r->n_answer - d->n_answer > rest) {
        int left = r->n_answer - d->n_answer - rest, n = min_int(left, d->chunk);
        enum pv_status s = run_answer(d, r->answer + d->n_answer, n, n == left && rest == 0, err);
        if (s)
            return s;
    }
    return PV_OK;
}

static int32_t next_token(struct model_drafter *d, const struct draft_request *r, int depth)
{
    uint64_t position = r->position + (uint64_t)depth;
    float *q;
    if (d->wants_best)
        return d->best;
    if (!r->q)
        return sample_token(d->logits, d->vocab, r->how, position, d->candidates);
    q = r->q + (size_t)depth * (size_t)d->target_vocab;
    memset(q, 0, (size_t)d->target_vocab * sizeof *q);
    sample_distribution(d->logits, d->vocab, r->how, q, d->candidates);
    return drafter_draw(q, d->vocab, r->how, position);
}

static enum pv_status propose_chain(struct model_drafter *d, const struct draft_request *r,
                                    int window, struct pv_error *err)
{
    int room = d->context - d->n_rows - d->n_answer;
    if (window > r->most)
        window = r->most;
    for (int i = 0; i < window; i++) {
        int32_t id = next_token(d, r, i);
        enum pv_status s;
        if (tree_add(r->tree, r->tree->n - 1, id) < 0 || i + 1 == window || i >= room)
            break;
        s = run_answer(d, &id, 1, false, err);
        if (s)
            return s;
    }
    return PV_OK;
}

/* Runs n rows of the answer and chooses the next `window` tokens, of which all but the last run
 * too. */
static enum pv_status run_chain(struct model_drafter *d, const struct draft_request *r,
                                const int32_t *ids, int n, int window, struct pv_error *err)
{
    int32_t made[STEP_MAX_CHAIN + 1];
    uint64_t position[STEP_MAX_CHAIN + 1];
    int last = n - 1, depth = r->tree->n - 1;
    bool greedy = r->how->temperature == 0;
    struct step_seq seq = { .kv = &d->kv, .n = n };
    struct step_choice choice = {
        .t = r->how->temperature, .drawn = made, .position = position, .seed = r->how->seed
    };
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .argmax = greedy ? made : NULL,
                         .choice = greedy ? NULL : &choice,
                         .chain = window - 1 };
    enum pv_status s;
    place_answer(d, n + window - 1);
    for (int i = 0; i < window; i++)
        position[i] = r->position + (uint64_t)(depth + i);
    s = stepper_run(d->stepper, &step, err);
    if (s)
        return s;
    commit_answer(d, ids, n);
    commit_answer(d, made, window - 1);
    for (int i = 0; i < window; i++)
        tree_add(r->tree, r->tree->n - 1, made[i]);
    return PV_OK;
}

/* The chain that propose_chain makes after catch_up, in one step, or in a few if it is long. */
static enum pv_status propose_at_once(struct model_drafter *d, const struct draft_request *r,
                                      int window, struct pv_error *err)
{
    int room = d->context - d->n_rows - r->n_answer; /* for rows of drafted tokens */
    int left = min_int(min_int(window, r->most), min_int(room + 1, TREE_MAX - r->tree->n));
    enum pv_status s = catch_up(d, r, d->chunk, err);
    const int32_t *ids = r->answer + d->n_answer;
    int n = r->n_answer - d->n_answer;
    while (left > 0 && !s) {
        int some = min_int(left, STEP_MAX_CHAIN + 1);
        s = run_chain(d, r, ids, n, some, err);
        left -= some;
        ids = &r->tree->id[r->tree->n - 1];
        n = 1;
    }
    return s;
}

/* Runs the new rows, unless they have run with the root; their logits, in that order, are in
 * d->logits. */
static enum pv_status run_level(void *user, const struct grown *g, struct pv_error *err)
{
    struct model_drafter *d = user;
    int all[GROW_LEVEL], n = g->n_new;
    struct step_seq seq = { .kv = &d->kv, .n = n, .parent = g->parent, .pending = g->n - n };
    struct step_choice choice = grow_top_choice(&d->top);
    struct step step = { .n = n,
                         .ids = g->id,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = n,
                         .logit_rows = all,
                         .logits = step_logits(d),
                         .choice = d->top.k ? &choice : NULL };
    enum pv_status s;
    for (int i = 0; i < n; i++) {
        all[i] = i;
        for (int a = 0; a < 3; a++)
            d->pos[i][a] = d->next + d->n_answer - 1 + g->depth[i];
        drafter_count(&d->base, d->kv.len + g->depth[i] - 1, 1);
    }
    if (d->ahead.n_levels > 0)
        return grow_ahead_take(&d->ahead, g, &d->top, err);
    s = stepper_run(d->stepper, &step, err);
    if (!s && step.logits)
        spread_logits(d, n);
    return s;
}

static enum pv_status propose_tree(struct model_drafter *d, const struct draft_request *r,
                                   struct pv_error *err)
{
    struct grower w = { .r = r,
                        .vocab = d->vocab,
                        .room = d->context - d->kv.len,
                        .logits = d->logits,
                        .stride = (size_t)decoder_input_vocab(d->dec),
                        .top = &d->top,
                        .scratch = d->candidates,
                        .pool = &d->pool,
                        .run = run_level,
                        .user = d };
    return grow_tree(&w, err);
}

static enum pv_status propose_model(struct drafter *base, const struct draft_request *r,
                                    struct pv_error *err)
{
    struct model_drafter *d = of(base);
    int room = d->context - d->n_rows - r->n_answer;
    bool chain = r->shape->kind == SHAPE_CHAIN || r->q ||
                 (room < TREE_MAX && r->shape->kind != SHAPE_FITTED); /* minds it itself */
    bool whole;
    enum pv_status s;
    if (r->most < 1 || room < 0)
        return PV_OK;
    for (int i = 0; i < r->n_answer; i++)
        if (r->answer[i] >= d->vocab) /* a word that this decoder does not know */
            return PV_OK;
    whole = d->vocab == decoder_input_vocab(d->dec);
    d->wants_best = chain && !r->q && r->how->temperature == 0 && whole;
    d->top.k = !chain && whole ? grow_top_needs(r) : 0;
    d->ahead.n_levels = 0;
    if (!chain && whole)
        grow_ahead_plan(&d->ahead, d->dec, r, 0, room);
    take_back(d, r);
    if (chain && whole && drafter_chains_at_once(d->dec, r))
        return propose_at_once(d, r, shape_depth(r->shape), err);
    s = catch_up(d, r, 0, err);
    if (s)
        return s;
    return chain ? propose_chain(d, r, shape_depth(r->shape), err) : propose_tree(d, r, err);
}

enum pv_status drafter_model_open(struct drafter **out, struct stepper *steps, int chunk,
                                  int context, int vocab, struct pv_error *err)
{
    const struct decoder *dec = steps->dec;
    const struct config *c = decoder_config(dec);
    struct model_drafter *d = mem_zalloc(sizeof *d);
    size_t rows = (size_t)most_rows(chunk), n = (size_t)context,
           v = (size_t)decoder_input_vocab(dec);
    bool drafts = decoder_draft_ids(dec) != NULL;
    enum pv_status s;
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->base = (struct drafter){ .name = "model",
                                .begin = begin_model,
                                .propose = propose_model,
                                .close = close_model,
                                .step_by = step_model_by };
    d->dec = dec;
    d->stepper = steps;
    d->chunk = chunk;
    d->context = context;
    d->target_vocab = vocab;
    d->vocab = vocab < (int)v ? vocab : (int)v;
    s = kvcache_attach(&d->kv, steps->pool, context, err);
    d->rows = mem_zalloc(n * sizeof *d->rows);
    d->answer = mem_alloc(n * sizeof *d->answer);
    d->embeds = mem_alloc(rows * (size_t)config_media_width(c) * sizeof *d->embeds);
    d->logits = mem_alloc(v * GROW_LEVEL * sizeof *d->logits);
    if (drafts)
        d->draft_logits = mem_alloc((size_t)c->vocab * GROW_LEVEL * sizeof *d->logits);
    d->ids = mem_alloc(rows * sizeof *d->ids);
    d->pos = mem_alloc((rows + STEP_MAX_CHAIN) * sizeof *d->pos);
    d->all = mem_alloc(rows * sizeof *d->all);
    d->candidates = mem_alloc(v * sizeof *d->candidates);
    if (!s && (!d->rows || !d->answer || !d->embeds || !d->logits || !d->ids || !d->pos ||
               !d->all || !d->candidates || (drafts && !d->draft_logits)))
        s = fail_nomem(err, drafter_model_size(dec, chunk, context));
    if (s) {
        close_model(&d->base);
        return s;
    }
    for (int i = 0; i < (int)rows; i++)
        d->all[i] = i;
    *out = &d->base;
    return PV_OK;
}

static enum pv_status open_kind(struct drafter **out, const struct drafter_resources *r,
                                struct pv_error *err)
{
    return drafter_model_open(out, r->steps, r->chunk, r->context, r->vocab, err);
}

static size_t size_kind(const struct drafter_resources *r)
{
    return drafter_model_size(r->steps->dec, r->chunk, r->context);
}

const struct drafter_kind drafter_model = {
    .info = { .name = "model",
              .preset = "auto",
              .needs_draft = true,
              .reads_prompt = true,
              .probabilities = true,
              .as_self = PV_DRAFT_SELF,
              .as_head = PV_DRAFT_HEAD },
    .open = open_kind,
    .size = size_kind,
    .runs = DRAFTER_RUNS_DRAFT,
    .fits_trees = true,
    .draft_media = true,
    .measures = true,
};

const struct drafter_kind drafter_self = {
    .info = { .name = "self",
              .preset = "auto",
              .reads_prompt = true,
              .own_weights = true,
              .probabilities = true },
    .open = open_kind,
    .size = size_kind,
    .runs = DRAFTER_RUNS_TARGET,
    .fits_trees = true,
    .target_media = true,
    .measures = true,
};
