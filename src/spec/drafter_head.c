/* A draft head (Sparrow, MSD, EAGLE, EAGLE-3). Its rows are those of the target's that it sees,
 * without the first: the row of token t is made of the token's embedding and the target's state of
 * the row before. So the state that the target found for the last row it ran, and the token it
 * chose there, are the head's next row; what the head says of further tokens rests on states of its
 * own, and a node of a tree takes that of its parent.
 *
 * The cache holds rows of true states only, of the prompt and of the answer as far as the target
 * has run it. In the serial schedule that is all of it. In the parallel one the target still runs
 * the last tokens of what is to be continued: their rows rest on the head's own states and lie
 * behind the cache, until the target's are there and they are made again. A tree lies behind all
 * that and is forgotten. A prompt's text may be the same as the last one's and its states others,
 * because another video stands before it: rows are used again as far as the target's own rows are
 * the same. */
#include "spec/drafter_head.h"

#include "base/mem.h"
#include "lm/states.h"
#include "spec/drafter_kind.h"
#include "spec/grow.h"

#include <math.h>
#include <string.h>

/* A row of the cache, or to be. */
struct head_row {
    int row; /* of the target's */
    int32_t id, pos[3];
};

enum { OWN_MAX = 2 * TREE_MAX_DEPTH + 8 }; /* rows of two windows, and some */

struct head_drafter {
    struct drafter base;
    const struct decoder *dec; /* borrowed, as h */
    const struct head_config *h;
    struct stepper *stepper;
    struct kvcache kv;
    int chunk, context;
    struct head_row *rows; /* [context]: n_rows, of these kv.len are in the cache, */
    int n_own;             /* then so many behind it, on the head's own states */
    int n_rows, n_prompt_rows;
    int32_t *target_ids; /* [context]: the target's prompt and answer, n_ids */
    int n_ids, n_prompt;
    int32_t next; /* position of the answer's first token in the target */
    bool original;
    struct states *states;    /* of the target */
    float *embeds, *features; /* [rows of a step, hidden], [rows, width] */
    size_t width;             /* of the target's states of a row */
    float *logits;            /* [GROW_LEVEL, vocab] */
    float *draft_logits;      /* the same of a draft vocabulary; NULL: it has none */
    struct grow_top top;      /* with k > 0: in their place */
    struct grow_pool pool;
    struct grow_ahead ahead; /* trees that run in one step */
    float *last;             /* [hidden]: the head's state of the last row in the cache, */
    float *own;              /* [OWN_MAX, hidden]: of those behind it, */
    float *grown;            /* [GROW_MAX_ROWS, hidden]: and of a tree's rows */
    int32_t *ids, (*pos)[3];
    struct candidate *candidates;
};

static struct head_drafter *of(struct drafter *d)
{
    return (struct head_drafter *)d;
}

bool drafter_head_wants_all(const struct head_config *h, bool sees_media)
{
    return sees_media && h->visual == HEAD_VISUAL_FC;
}

int drafter_head_wants_layer(const struct head_config *h, bool sees_media)
{
    return sees_media && h->visual == HEAD_VISUAL_LAYER ? h->visual_layer : 0;
}

/* ---- rows ---- */

/* Row `row` of the target, with target position pos, as the k-th of ours. */
static struct head_row make_row(const struct head_drafter *d, int k, int row, int32_t id,
                                const int32_t pos[3])
{
    struct head_row r = { .row = row, .id = id };
    for (int a = 0; a < 3; a++)
        r.pos[a] = !d->original ? k : d->h->positions == HEAD_POS_INDEX ? row : pos[a];
    return r;
}

/* Rows of the prompt that are seen, from the second on. */
static void list_rows(struct head_drafter *d, const struct draft_prompt *p)
{
    int same = 0, equal_ids = 0, n = 0;
    bool equal = true;
    while (equal_ids < p->n && equal_ids < d->n_ids &&
           p->ids[equal_ids] == d->target_ids[equal_ids])
        equal_ids++;
    for (int i = 1; i < p->n; i++) {
        struct head_row r;
        if (!p->visible[i])
            continue;
        r = make_row(d, n, i, p->ids[i], p->pos[i]);
        equal = equal && i < equal_ids && n < d->kv.len && memcmp(&d->rows[n], &r, sizeof r) == 0;
        same += equal;
        d->rows[n++] = r;
    }
    memcpy(d->target_ids, p->ids, (size_t)p->n * sizeof *p->ids);
    d->n_ids = d->n_prompt = p->n;
    d->n_rows = d->n_prompt_rows = n;
    d->next = p->next;
    d->n_own = 0;
    kvcache_truncate(&d->kv, same);
}

static enum pv_status missing_state(int row, struct pv_error *err)
{
    return fail(err, PV_E_ARG, "a draft head without the target's state of row %d", row);
}

static enum pv_status fill_feature(struct head_drafter *d, int i, int row, struct pv_error *err)
{
    if (!states_copy(d->states, row - 1, d->features + (size_t)i * d->width))
        return missing_state(row - 1, err);
    return PV_OK;
}

/* Rows of media, `some` of them from the i-th of this step on. */
static enum pv_status fill_media(struct head_drafter *d, const struct draft_prompt *p, int i,
                                 const struct head_row *r, int some, struct pv_error *err)
{
    size_t hidden = (size_t)decoder_config(d->dec)->hidden;
    float *to = d->embeds + (size_t)i * hidden;
    enum pv_status s = PV_OK;
    if (d->h->visual != HEAD_VISUAL_LAYER)
        s = p->embed(p->user, r->row, some, to, err);
    for (int k = 0; k < some && !s; k++) {
        const float *state = states_mid(d->states, r->row + k);
        d->ids[i + k] = d->h->visual == HEAD_VISUAL_FC ? STEP_PAIRED : STEP_READY;
        if (d->h->visual == HEAD_VISUAL_FC)
            s = fill_feature(d, i + k, r->row + k, err);
        else if (d->h->visual == HEAD_VISUAL_LAYER && !state)
            s = missing_state(r->row + k, err);
        else if (d->h->visual == HEAD_VISUAL_LAYER)
            memcpy(to + (size_t)k * hidden, state, hidden * sizeof *state);
    }
    return s;
}

/* Inputs of the n rows that follow the cache. p: NULL where none is a media item's. */
static enum pv_status fill_rows(struct head_drafter *d, const struct draft_prompt *p, int n,
                                struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (int i = 0; i < n && !s;) {
        const struct head_row *r = &d->rows[d->kv.len + i];
        int some = 1;
        while (r->id < 0 && i + some < n && r[some].id == r->id && r[some].row == r->row + some)
            some++;
        for (int k = 0; k < some; k++)
            memcpy(d->pos[i + k], r[k].pos, sizeof r->pos);
        d->ids[i] = r->id;
        s = r->id < 0 ? fill_media(d, p, i, r, some, err) : fill_feature(d, i, r->row, err);
        i += some;
    }
    return s;
}

/* ---- a draft vocabulary ---- */

/* Where a step leaves logits; NULL: the likeliest tokens are enough. */
static float *step_logits(const struct head_drafter *d)
{
    return d->top.k > 0 ? NULL : d->draft_logits ? d->draft_logits : d->logits;
}

/* After a step with logits of n rows: the tokens are the target's. */
static void name_tokens(struct head_drafter *d, int n)
{
    if (d->draft_logits && d->top.k == 0)
        drafter_spread(d->dec, d->logits, d->draft_logits, n);
}

/* ---- steps ---- */

/* What is wanted of the last row of a step. */
enum head_want { WANT_NOTHING, WANT_STATE, WANT_LOGITS };

/* A step of n rows whose inputs are there, `own`: made of the head's states; state: where that of
 * the last one goes. */
static enum pv_status run_step(struct head_drafter *d, struct step_seq *seq, bool own,
                               enum head_want want, float *state, struct pv_error *err)
{
    int last = seq->n - 1;
    struct hidden_tap tap = { .post_norm = true, .n_rows = 1, .rows = &last, .out = state };
    struct step_choice choice = grow_top_choice(&d->top);
    struct step step = { .n = seq->n,
                         .ids = d->ids,
                         .embeds = d->embeds,
                         .features = d->features,
                         .own_features = own,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = seq,
                         .n_logits = want == WANT_LOGITS,
                         .logit_rows = &last,
                         .logits = want == WANT_LOGITS ? step_logits(d) : NULL,
                         .choice = want == WANT_LOGITS && d->top.k ? &choice : NULL,
                         .states = want == WANT_LOGITS ? state : NULL,
                         .n_hidden = want == WANT_STATE,
                         .hidden = &tap };
    enum pv_status s;
    if (want == WANT_LOGITS)
        grow_ahead_ask(&d->ahead, &step);
    for (int i = 0; i < step.chain; i++)
        for (int a = 0; a < 3; a++)
            d->pos[seq->n + i][a] = d->pos[last][a] + d->ahead.depth[i];
    s = stepper_run(d->stepper, &step, err);
    if (!s && step.tree)
        grow_ahead_root(&d->ahead, &d->top);
    else if (!s && want == WANT_LOGITS)
        name_tokens(d, 1);
    if (!s)
        drafter_count(&d->base, d->kv.len + seq->pending, seq->n);
    return s;
}

/* Runs and commits the next n rows. */
static enum pv_status run_rows(struct head_drafter *d, const struct draft_prompt *p, int n,
                               enum head_want want, struct pv_error *err)
{
    struct step_seq seq = { .kv = &d->kv, .n = n };
    enum pv_status s = fill_rows(d, p, n, err);
    if (!s)
        s = run_step(d, &seq, false, want, d->last, err);
    if (!s)
        kvcache_advance(&d->kv, n);
    return s;
}

static enum pv_status begin_head(struct drafter *base, const struct draft_prompt *p,
                                 struct pv_error *err)
{
    struct head_drafter *d = of(base);
    if (p->n > d->context)
        return fail(err, PV_E_LIMIT, "a prompt of %d tokens does not fit the drafter's %d", p->n,
                    d->context);
    if (!p->states)
        return missing_state(0, err);
    d->states = p->states;
    d->original = p->original;
    list_rows(d, p);
    while (d->kv.len < d->n_rows) {
        int left = d->n_rows - d->kv.len;
        enum pv_status s = run_rows(d, p, left < d->chunk ? left : d->chunk, WANT_NOTHING, err);
        if (s)
            return s;
        if (p->progress && !p->progress(p->user, d->kv.len, d->n_rows))
            return fail(err, PV_E_CANCELLED, "stopped after %d of the drafter's %d prompt tokens",
                        d->kv.len, d->n_rows);
    }
    return PV_OK;
}

/* ---- rounds ---- */

/* The head's state of the last row that it has run. */
static const float *last_state(const struct head_drafter *d)
{
    size_t hidden = (size_t)decoder_config(d->dec)->hidden;
    return d->n_own > 0 ? d->own + (size_t)(d->n_own - 1) * hidden : d->last;
}

/* Runs the next row on the head's state of the one before. */
static enum pv_status run_own(struct head_drafter *d, enum head_want want, struct pv_error *err)
{
    size_t hidden = (size_t)decoder_config(d->dec)->hidden;
    const struct head_row *r = &d->rows[d->kv.len + d->n_own];
    struct step_seq seq = { .kv = &d->kv, .n = 1, .pending = d->n_own };
    enum pv_status s;
    d->ids[0] = r->id;
    memcpy(d->pos[0], r->pos, sizeof r->pos);
    memcpy(d->features, last_state(d), hidden * sizeof *d->features);
    s = run_step(d, &seq, true, want, d->own + (size_t)d->n_own * hidden, err);
    d->n_own += !s;
    return s;
}

/* The list of rows agrees with the answer; rows that no longer do, and the root's, are taken back.
 */
static void list_answer(struct head_drafter *d, const struct draft_request *r)
{
    int known = d->n_ids - d->n_prompt, same = 0;
    while (same < known && same < r->n_answer - 1 &&
           d->target_ids[d->n_prompt + same] == r->answer[same])
        same++;
    d->n_rows = d->n_prompt_rows + same;
    if (d->kv.len > d->n_rows)
        kvcache_truncate(&d->kv, d->n_rows);
    if (d->n_own > d->n_rows - d->kv.len)
        d->n_own = d->n_rows - d->kv.len;
    for (int i = same; i < r->n_answer; i++) {
        const int32_t pos[3] = { d->next + i, d->next + i, d->next + i };
        d->target_ids[d->n_prompt + i] = r->answer[i];
        d->rows[d->n_rows] = make_row(d, d->n_rows, d->n_prompt + i, r->answer[i], pos);
        d->n_rows++;
    }
    d->n_ids = d->n_prompt + r->n_answer;
}

/* All rows have been run, those with a state of the target's on that; the root's logits are there.
 * Of rows behind the ones that are made again, each rests on the state of the one before: they are
 * made again too. */
static enum pv_status catch_up(struct head_drafter *d, int n_true, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    if (d->kv.len < n_true)
        d->n_own = 0;
    while (d->kv.len < n_true && !s) {
        int left = n_true - d->kv.len, n = left < d->chunk ? left : d->chunk;
        enum head_want want = n < left             ? WANT_NOTHING
                              : n_true < d->n_rows ? WANT_STATE
                                                   : WANT_LOGITS;
        s = run_rows(d, NULL, n, want, err);
    }
    while (d->kv.len + d->n_own < d->n_rows && !s)
        s = run_own(d, d->kv.len + d->n_own + 1 < d->n_rows ? WANT_STATE : WANT_LOGITS, err);
    return s;
}

/* Parents of a tree's rows when rows of the answer lie between the cache and them. */
static const int *parents_behind(const struct head_drafter *d, const struct grown *g,
                                 int parent[OWN_MAX + GROW_MAX_ROWS])
{
    if (d->n_own == 0)
        return g->parent;
    for (int i = 0; i < d->n_own; i++)
        parent[i] = i - 1;
    for (int i = 0; i < g->n; i++)
        parent[d->n_own + i] = d->n_own + g->parent[i]; /* the root: the last of those */
    return parent;
}

/* Runs the new rows of a tree, each on its parent's state, unless they have run with the root. */
static enum pv_status run_level(void *user, const struct grown *g, struct pv_error *err)
{
    struct head_drafter *d = user;
    size_t hidden = (size_t)decoder_config(d->dec)->hidden;
    int parents[OWN_MAX + GROW_MAX_ROWS], all[GROW_LEVEL], n = g->n_new, first = g->n - n;
    const struct head_row *root = &d->rows[d->n_rows - 1];
    struct step_seq seq = {
        .kv = &d->kv, .n = n, .parent = parents_behind(d, g, parents), .pending = d->n_own + first
    };
    struct step_choice choice = grow_top_choice(&d->top);
    struct step step = { .n = n,
                         .ids = g->id,
                         .features = d->features,
                         .own_features = true,
                         .pos = (const int32_t(*)[3])d->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = n,
                         .logit_rows = all,
                         .logits = step_logits(d),
                         .choice = d->top.k ? &choice : NULL,
                         .states = d->grown + (size_t)first * hidden };
    enum pv_status s;
    for (int i = 0; i < n; i++)
        drafter_count(&d->base, d->n_rows + g->depth[i] - 1, 1);
    if (d->ahead.n_levels > 0)
        return grow_ahead_take(&d->ahead, g, &d->top, err);
    for (int i = 0; i < n; i++) {
        int parent = g->parent[first + i];
        all[i] = i;
        memcpy(d->features + (size_t)i * hidden,
               parent < 0 ? last_state(d) : d->grown + (size_t)parent * hidden,
               hidden * sizeof *d->features);
        for (int a = 0; a < 3; a++)
            d->pos[i][a] = root->pos[a] + g->depth[i];
    }
    s = stepper_run(d->stepper, &step, err);
    if (!s)
        name_tokens(d, n);
    return s;
}

static int32_t next_token(struct head_drafter *d, const struct draft_request *r, int depth)
{
    int vocab = decoder_input_vocab(d->dec);
    uint64_t position = r->position + (uint64_t)depth;
    float *q;
    if (d->top.k > 0)
        return d->top.entry[0].id; /* -1: the logits are no numbers */
    if (!r->q)
        return sample_token(d->logits, vocab, r->how, position, d->candidates);
    q = r->q + (size_t)depth * (size_t)vocab;
    sample_distribution(d->logits, vocab, r->how, q, d->candidates);
    return drafter_draw(q, vocab, r->how, position);
}

static enum pv_status propose_chain(struct head_drafter *d, const struct draft_request *r,
                                    int window, struct pv_error *err)
{
    struct grown g = { .n = 0 };
    int room = d->context - d->n_rows;
    window = window < r->most ? window : r->most;
    for (int i = 0; i < window; i++) {
        int32_t id = next_token(d, r, i);
        enum pv_status s;
        if (id < 0 || tree_add(r->tree, r->tree->n - 1, id) < 0 || i + 1 == window || i >= room)
            break;
        g.parent[g.n++] = i - 1;
        g.n_new = 1;
        g.id[0] = id;
        g.depth[0] = i + 1;
        s = run_level(d, &g, err);
        if (s)
            return s;
    }
    return PV_OK;
}

static enum pv_status propose_head(struct drafter *base, const struct draft_request *r,
                                   struct pv_error *err)
{
    struct head_drafter *d = of(base);
    int room = d->context - d->n_prompt_rows - r->n_answer;
    struct grower w = { .r = r,
                        .vocab = decoder_input_vocab(d->dec),
                        .logits = d->logits,
                        .stride = (size_t)decoder_input_vocab(d->dec),
                        .top = &d->top,
                        .scratch = d->candidates,
                        .pool = &d->pool,
                        .run = run_level,
                        .user = d };
    int known = states_known(d->states) - d->n_prompt + 1; /* rows of the answer with a state */
    bool chain;
    enum pv_status s;
    known = known < r->n_answer ? known : r->n_answer;
    if (r->most < 1 || room < 0 || d->n_prompt + r->n_answer > d->context ||
        r->n_answer - known > OWN_MAX)
        return PV_OK;
    if (known < 1)
        return missing_state(d->n_prompt - 1, err);
    list_answer(d, r);
    w.room = d->context - d->n_rows;
    chain = r->shape->kind == SHAPE_CHAIN || r->q ||
            (w.room < TREE_MAX && r->shape->kind != SHAPE_FITTED); /* which minds the room itself */
    d->top.k = !chain ? grow_top_needs(r) : !r->q && r->how->temperature == 0;
    grow_ahead_plan(&d->ahead, d->dec, r, chain ? shape_depth(r->shape) : 0, w.room);
    s = catch_up(d, d->n_prompt_rows + known, err);
    if (s)
        return s;
    if (chain)
        return propose_chain(d, r, shape_depth(r->shape), err);
    return grow_tree(&w, err);
}

/* ---- opening ---- */

static int most_rows(int chunk)
{
    return chunk < GROW_LEVEL ? GROW_LEVEL : chunk;
}

size_t drafter_head_size(const struct decoder *dec, int chunk, int context)
{
    const struct config *c = decoder_config(dec);
    size_t rows = (size_t)most_rows(chunk), hidden = (size_t)c->hidden;
    size_t vocab = (size_t)decoder_input_vocab(dec),
           draft = decoder_draft_ids(dec) ? (size_t)c->vocab : 0;
    return sizeof(struct head_drafter) +
           (size_t)context * (sizeof(struct head_row) + sizeof(int32_t)) +
           ((rows + GROW_MAX_ROWS + OWN_MAX + 1) * hidden + rows * decoder_feature_width(dec)) *
               sizeof(float) +
           (rows * 4 + STEP_MAX_CHAIN * 3) * sizeof(int32_t) + draft * GROW_LEVEL * sizeof(float) +
           vocab * (GROW_LEVEL * sizeof(float) + sizeof(struct candidate));
}

static void close_head(struct drafter *base)
{
    struct head_drafter *d = of(base);
    kvcache_close(&d->kv);
    mem_free(d->rows);
    mem_free(d->target_ids);
    mem_free(d->embeds);
    mem_free(d->features);
    mem_free(d->logits);
    mem_free(d->draft_logits);
    mem_free(d->last);
    mem_free(d->own);
    mem_free(d->grown);
    mem_free(d->ids);
    mem_free(d->pos);
    mem_free(d->candidates);
    mem_free(d);
}

static void step_head_by(struct drafter *base, struct stepper *steps)
{
    of(base)->stepper = steps;
}

static enum pv_status alloc_parts(struct head_drafter *d, size_t rows, struct pv_error *err)
{
    const struct config *c = decoder_config(d->dec);
    size_t hidden = (size_t)c->hidden, n = (size_t)d->context;
    size_t vocab = (size_t)decoder_input_vocab(d->dec);
    bool drafts = decoder_draft_ids(d->dec) != NULL;
    d->width = decoder_feature_width(d->dec);
    d->rows = mem_zalloc(n * sizeof *d->rows);
    d->target_ids = mem_alloc(n * sizeof *d->target_ids);
    d->embeds = mem_zalloc(rows * hidden * sizeof *d->embeds);
    d->features = mem_zalloc(rows * d->width * sizeof *d->features);
    d->logits = mem_alloc(vocab * GROW_LEVEL * sizeof *d->logits);
    if (drafts)
        d->draft_logits = mem_alloc((size_t)c->vocab * GROW_LEVEL * sizeof *d->draft_logits);
    d->last = mem_alloc(hidden * sizeof *d->last);
    d->own = mem_alloc(OWN_MAX * hidden * sizeof *d->own);
    d->grown = mem_alloc(GROW_MAX_ROWS * hidden * sizeof *d->grown);
    d->ids = mem_alloc(rows * sizeof *d->ids);
    d->pos = mem_alloc((rows + STEP_MAX_CHAIN) * sizeof *d->pos);
    d->candidates = mem_alloc(vocab * sizeof *d->candidates);
    if (!d->rows || !d->target_ids || !d->embeds || !d->features || !d->logits || !d->last ||
        !d->own || !d->grown || !d->ids || !d->pos || !d->candidates ||
        (drafts && !d->draft_logits))
        return fail_nomem(err,
                          (rows * (hidden + d->width) + GROW_MAX_ROWS * hidden) * sizeof(float));
    return PV_OK;
}

enum pv_status drafter_head_open(struct drafter **out, struct stepper *steps,
                                 const struct head_config *h, int chunk, int context,
                                 struct pv_error *err)
{
    struct head_drafter *d = mem_zalloc(sizeof *d);
    enum pv_status s;
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->base = (struct drafter){ .name = "head",
                                .begin = begin_head,
                                .propose = propose_head,
                                .close = close_head,
                                .step_by = step_head_by };
    d->dec = steps->dec;
    d->stepper = steps;
    d->h = h;
    d->chunk = chunk;
    d->context = context;
    s = kvcache_attach(&d->kv, steps->pool, context, err);
    if (!s)
        s = alloc_parts(d, (size_t)most_rows(chunk), err);
    if (s) {
        close_head(&d->base);
        return s;
    }
    *out = &d->base;
    return PV_OK;
}

static enum pv_status open_kind(struct drafter **out, const struct drafter_resources *r,
                                struct pv_error *err)
{
    return drafter_head_open(out, r->steps, r->head_config, r->chunk, r->context, err);
}

static size_t size_kind(const struct drafter_resources *r)
{
    return drafter_head_size(r->steps->dec, r->chunk, r->context);
}

const struct drafter_kind drafter_head = {
    .info = { .name = "head",
              .preset = "sparrow",
              .view = "text",
              .needs_head = true,
              .reads_prompt = true,
              .probabilities = true },
    .open = open_kind,
    .size = size_kind,
    .runs = DRAFTER_RUNS_HEAD,
    .fits_trees = true,
    .states = true,
    .target_media = true,
    .cheap = true,
    .keeps_position = true,
};
