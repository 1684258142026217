/* Opens drafters and serves them rows of media: through the draft model's own tower, or, for the
 * model's own weights, from the rows that the target's tower made already. */
#include "engine/draft_side.h"

#include "base/mem.h"
#include "engine/session.h"
#include "spec/drafter_head.h"
#include "spec/grow.h"
#include "spec/method_rules.h"

#include <stdio.h>
#include <string.h>

enum { MAX_AHEAD = 1024 }; /* tokens of an answer whose states have room before they are there */

/* ---- opening ---- */

/* The draft model must cut pictures as the target does: rows are then the same rows. */
static enum pv_status check_towers(const struct pv_model *a, const struct pv_model *b,
                                   struct pv_error *err)
{
    const struct vision_config *x, *y;
    if (!a->vision || !b->vision)
        return PV_OK;
    x = vision_config(a->vision);
    y = vision_config(b->vision);
    if (x->kind != y->kind || x->patch != y->patch || x->temporal != y->temporal ||
        x->merge != y->merge || x->image != y->image ||
        memcmp(x->mean, y->mean, sizeof x->mean) != 0 || memcmp(x->std, y->std, sizeof x->std) != 0)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s cuts pictures in another way than %s: it cannot draft for it",
                    model_file_path(b->file), model_file_path(a->file));
    return PV_OK;
}

static bool same_tensors(const void *a, const void *b, size_t size)
{
    const struct tensor *const *x = a, *const *y = b;
    for (size_t i = 0; i < size / sizeof *x; i++) {
        if (!x[i] && !y[i])
            continue;
        if (!x[i] || !y[i] || x[i]->dtype != y[i]->dtype || x[i]->size != y[i]->size ||
            memcmp(x[i]->data, y[i]->data, x[i]->size) != 0)
            return false;
    }
    return true;
}

/* Whether both towers are the same to the bit, projector included: their rows are then shared. */
static bool same_tower(const struct pv_model *a, const struct pv_model *b)
{
    int n;
    if (!a->vision || !b->vision || a->cpu != b->cpu)
        return false;
    n = vision_config(a->vision)->n_layers;
    if (n != vision_config(b->vision)->n_layers ||
        vision_config(a->vision)->out != vision_config(b->vision)->out ||
        !same_tensors(model_file_vision_tensors(a->file), model_file_vision_tensors(b->file),
                      sizeof(struct vision_tensors)))
        return false;
    for (int i = 0; i < n; i++)
        if (!same_tensors(model_file_vision_layer(a->file, i), model_file_vision_layer(b->file, i),
                          sizeof(struct vision_layer_tensors)))
            return false;
    return true;
}

static enum pv_status open_states(struct draft_side *d, const struct pv_session *s,
                                  struct pv_error *err)
{
    int hidden = decoder_config(s->model->dec)->hidden;
    size_t size = TREE_MAX * (size_t)hidden * sizeof *d->step_states;
    enum pv_status st = states_open(&d->states, s->line.context, hidden, s->engine->chunk, err);
    if (st)
        return st;
    d->step_states = mem_alloc(size);
    return d->step_states ? PV_OK : fail_nomem(err, size);
}

enum pv_status draft_side_open(struct draft_side *d, struct pv_session *s, struct pv_model *draft,
                               struct pv_error *err)
{
    size_t n = (size_t)s->line.context;
    enum pv_status st = s->model->head ? open_states(d, s, err) : PV_OK;
    if (st)
        return st;
    d->model = draft;
    if (draft) {
        int theirs = pv_model_vocab_size(draft), ours = pv_model_vocab_size(s->model);
        if (theirs < ours / 2 || ours < theirs / 2)
            return fail(err, PV_E_UNSUPPORTED,
                        "%s has a vocabulary of %d, %s one of %d: it cannot draft for it",
                        model_file_path(draft->file), theirs, model_file_path(s->model->file),
                        ours);
        st = check_towers(s->model, draft, err);
        d->shared = !st && same_tower(s->model, draft);
        if (!st && draft->vision)
            st = encoder_open(&d->encoder, draft->vision, err);
    }
    if (st)
        return st;
    d->seen = mem_alloc(n * sizeof *d->seen);
    d->rows = mem_alloc(n * sizeof *d->rows);
    d->scores = mem_zalloc(n * sizeof *d->scores);
    d->sums = mem_zalloc(n * sizeof *d->sums);
    if (!d->seen || !d->rows || !d->scores || !d->sums)
        return fail_nomem(err, n * (sizeof *d->seen + sizeof *d->rows + 2 * sizeof *d->scores));
    return PV_OK;
}

static void free_features(struct feature_rows *f)
{
    mem_free(f->rows);
    mem_free(f->have);
}

static void forget_all(struct draft_side *d)
{
    for (int i = 0; i < d->n_features; i++)
        free_features(&d->features[i]);
    d->n_features = 0;
}

void draft_side_close(struct draft_side *d)
{
    for (int i = 0; i < PV_DRAFT_COUNT; i++)
        if (d->drafter[i])
            d->drafter[i]->close(d->drafter[i]);
    forget_all(d);
    mem_free(d->features);
    encoder_close(&d->encoder);
    for (int i = 0; i < DRAFTER_DECODERS; i++)
        decoder_state_close(&d->lone_state[i]);
    device_close(&d->crew[0]);
    device_close(&d->crew[1]);
    mem_free(d->seen);
    mem_free(d->rows);
    mem_free(d->scores);
    mem_free(d->sums);
    mem_free(d->layer_scores);
    states_close(&d->states);
    mem_free(d->step_states);
    *d = (struct draft_side){ 0 };
}

/* ---- memory ---- */

size_t draft_side_size(const struct draft_side *d)
{
    size_t size = d->tower_bytes + d->n_layer_scores * sizeof *d->layer_scores;
    for (int i = 0; i < PV_DRAFT_COUNT; i++)
        size += d->drafter_bytes[i];
    return size + (d->states.hidden > 0 ? states_size(&d->states) : 0);
}

void draft_side_want(struct draft_side *d, const struct pv_model *m, bool media)
{
    const struct head_config *h = head_file_config(m->head_file);
    states_want(&d->states, drafter_head_wants_all(h, media), drafter_head_wants_layer(h, media));
}

enum pv_status draft_side_reserve(struct pv_session *s, int first, int answer, struct pv_error *err)
{
    struct states *states = &s->draft.states;
    int room = s->line.context - s->line.n, more = answer < room ? answer : room;
    size_t need;
    enum pv_status st;
    if (states->hidden == 0)
        return PV_OK;
    more = more < MAX_AHEAD ? more : MAX_AHEAD;
    states_truncate(states, first);
    need = states_need(states, s->line.ids, s->line.n, more) * sizeof(float);
    st = session_claim(s, need, "the states that a draft head reads", err);
    if (!st)
        st = states_reserve(states, s->line.ids, s->line.n, more, err);
    return err ? st : PV_OK;
}

void draft_side_decoded(struct draft_side *d, int from, const int *path, int n)
{
    if (d->states.hidden > 0)
        (void)states_add(&d->states, from, d->step_states, path, n, NULL);
}

enum pv_status draft_side_tower(struct pv_session *s, bool stills, struct pv_error *err)
{
    struct draft_side *d = &s->draft;
    enum pv_status st = PV_OK;
    for (int k = 0; k < s->line.n_spans && !st; k++) {
        const struct media *m = &s->line.media[s->line.span[k].medium].m;
        if (!m->video || !stills)
            st = session_tower(s, d->encoder, &d->tower_bytes, m, err);
    }
    return st;
}

enum pv_status draft_side_scores(struct pv_session *s, struct pv_error *err)
{
    struct draft_side *d = &s->draft;
    size_t layers = (size_t)decoder_config(s->model->dec)->n_layers;
    size_t need = 2 * layers * (size_t)d->n_rows, size = need * sizeof *d->layer_scores;
    enum pv_status st;
    if (need > d->n_layer_scores) {
        mem_free(d->layer_scores);
        d->layer_scores = NULL;
        d->n_layer_scores = 0;
        st = session_claim(s, size, "the video's attention in every layer", err);
        if (st)
            return st;
        d->layer_scores = mem_alloc(size);
        if (!d->layer_scores)
            return fail_nomem(err, size);
        d->n_layer_scores = need;
    }
    if (need > 0)
        memset(d->layer_scores, 0, size);
    return PV_OK;
}

/* Floats that stay with the session, unless they are there already. */
static enum pv_status reserve_floats(struct pv_session *s, float **p, size_t n,
                                     struct pv_error *err)
{
    size_t size = n * sizeof **p;
    enum pv_status st = *p ? PV_OK : session_claim(s, size, "drawing tokens from a tree", err);
    if (st || *p)
        return st;
    *p = mem_zalloc(size);
    if (!*p)
        return fail_nomem(err, size);
    s->drawing_bytes += size;
    return PV_OK;
}

enum pv_status draft_side_drawing(struct pv_session *s, bool rejection, struct pv_error *err)
{
    size_t vocab = (size_t)pv_model_vocab_size(s->model), n = TREE_MAX * vocab;
    enum pv_status st = reserve_floats(s, &s->tree_logits, n, err);
    if (!st && rejection)
        st = reserve_floats(s, &s->draft_q, n, err);
    if (!st && rejection)
        st = reserve_floats(s, &s->verify_scratch, verify_scratch((int)vocab), err);
    return st;
}

/* ---- drafters ---- */

static enum pv_status claim_drafter(struct pv_session *s, size_t need, struct pv_error *err)
{
    char what[64];
    snprintf(what, sizeof what, "a drafter for a context of %d tokens", s->line.context);
    return session_claim(s, need, what, err);
}

static struct drafter_resources resources(struct pv_session *s, const struct drafter_kind *kind,
                                          const struct pv_method *m)
{
    const struct pv_model *target = s->model;
    struct pv_method_test test = method_test(m);
    return (struct drafter_resources){
        .steps = &s->draft.steps[kind->runs].base,
        .head_config = target->head ? head_file_config(target->head_file) : NULL,
        .chunk = s->engine->chunk,
        .context = s->line.context,
        .vocab = pv_model_vocab_size(target),
        .keep = m->keep,
        .seed = test.seed,
        .answer = test.answer,
        .n_answer = (int)test.n_answer,
        .errors = test.errors,
    };
}

/* Room for it, and for what all drafters of its decoder share. */
static enum pv_status open_drafter(struct pv_session *s, const struct drafter_kind *kind,
                                   const struct pv_method *m, struct drafter **out, size_t *held,
                                   struct pv_error *err)
{
    struct drafter_resources r = resources(s, kind, m);
    const struct decoder *dec = engine_decoder(s->engine, kind->runs);
    struct draft_engine *shared;
    size_t need;
    enum pv_status st = PV_OK;
    r.steps->dec = dec;
    need = kind->size ? kind->size(&r) : 0;
    if (need > 0)
        st = claim_drafter(s, need + engine_drafts_size(s->engine, kind->runs), err);
    if (!st && dec) {
        st = engine_drafts(s->engine, kind->runs, &shared, err);
        if (!st)
            task_stepper_init(&s->draft.steps[kind->runs], shared->batch);
        s->draft.steps[kind->runs].task = s->task;
    }
    if (!st)
        st = kind->open(out, &r, err);
    if (!st)
        *held = need;
    return st;
}

enum pv_status draft_side_drafter(struct pv_session *s, const struct pv_method *m,
                                  struct drafter **out, struct pv_error *err)
{
    const struct drafter_kind *kind = drafter_find(m->drafter);
    struct drafter **d = &s->draft.drafter[m->drafter];
    size_t *held = &s->draft.drafter_bytes[m->drafter];
    enum pv_status st = PV_OK;
    if (kind->info.needs_draft && !s->engine->draft)
        return fail(err, PV_E_ARG, "method '%s' needs a draft model, and there is none", m->name);
    if (kind->info.needs_head && !s->model->head)
        return fail(err, PV_E_ARG, "method '%s' needs a draft head, and the model has none",
                    m->name);
    if (*d && kind->made_anew) {
        (*d)->close(*d);
        *d = NULL;
        *held = 0;
    }
    if (!*d)
        st = open_drafter(s, kind, m, d, held, err);
    if (!st)
        *out = *d;
    return st;
}

/* ---- on a thread of its own ---- */

static enum pv_status open_lone(struct pv_session *s, enum drafter_decoder which,
                                struct pv_error *err)
{
    struct draft_side *d = &s->draft;
    const struct decoder *dec = engine_decoder(s->engine, which);
    int rows = s->engine->chunk > TREE_MAX ? s->engine->chunk : TREE_MAX;
    enum dtype kv = s->engine->kv;
    enum pv_status st = PV_OK;
    if (!d->lone_state[which])
        st = session_claim(s, decoder_state_size(dec, rows, GROW_LEVEL, s->line.context, kv),
                           "a drafter on a thread of its own", err);
    if (!st && !d->lone_state[which])
        st = decoder_state_open_urgent(&d->lone_state[which], dec, rows, GROW_LEVEL,
                                       s->line.context, kv, err);
    if (!st)
        lone_stepper_init(&d->lone[which], dec, d->lone_state[which], d->steps[which].base.pool);
    return st;
}

enum pv_status draft_side_part(struct pv_session *s, const struct pv_method *m,
                               struct pv_error *err)
{
    struct drafter *drafter = s->draft.drafter[m->drafter];
    enum drafter_decoder which = drafter_find(m->drafter)->runs;
    enum pv_status st;
    if (!drafter->step_by)
        return PV_OK;
    st = open_lone(s, which, err);
    if (st)
        return st;
    if (!s->draft.divided)
        s->draft.lone[which].lock =
            which == DRAFTER_RUNS_DRAFT ? s->draft.model->step_lock : s->model->step_lock;
    drafter->step_by(drafter, &s->draft.lone[which].base);
    return PV_OK;
}

void draft_side_join(struct pv_session *s, const struct pv_method *m)
{
    struct drafter *drafter = s->draft.drafter[m->drafter];
    if (drafter->step_by)
        drafter->step_by(drafter, &s->draft.steps[drafter_find(m->drafter)->runs].base);
}

/* ---- rows that the target's tower made ---- */

static struct feature_rows *find_features(const struct draft_side *d, const struct medium *m)
{
    for (int i = 0; i < d->n_features; i++)
        if (d->features[i].key == m->key)
            return &d->features[i];
    return NULL;
}

void draft_side_forget(struct draft_side *d, const struct timeline *t)
{
    int kept = 0;
    for (int i = 0; i < d->n_features; i++) {
        bool known = false;
        for (int k = 0; k < t->n_media; k++)
            known = known || t->media[k].key == d->features[i].key;
        if (known)
            d->features[kept++] = d->features[i];
        else
            free_features(&d->features[i]);
    }
    d->n_features = kept;
}

void draft_side_fit(struct draft_side *d, uint64_t room)
{
    uint64_t held = 0;
    for (int i = 0; i < d->n_features; i++)
        held += d->features[i].size;
    if (held > room) {
        forget_all(d);
        held = 0;
    }
    d->room = room - held;
}

static struct feature_rows *new_features(struct draft_side *d, const struct medium *m,
                                         size_t hidden)
{
    size_t n = (size_t)d->n_features, rows = (size_t)m->m.n_rows;
    uint64_t need = rows * (hidden * sizeof(float) + sizeof(bool));
    struct feature_rows *all = mem_realloc(d->features, (n + 1) * sizeof *all), f;
    if (!all)
        return NULL;
    d->features = all;
    if (need > d->room)
        return NULL;
    f = (struct feature_rows){ .key = m->key,
                               .size = need,
                               .rows = mem_alloc(rows * hidden * sizeof(float)),
                               .have = mem_zalloc(rows * sizeof(bool)) };
    if (!f.rows || !f.have) {
        free_features(&f);
        return NULL;
    }
    d->room -= need;
    d->features[d->n_features++] = f;
    return &d->features[n];
}

float *draft_side_keep(struct draft_side *d, const struct medium *m, int row, int n, size_t hidden)
{
    struct feature_rows *f = find_features(d, m);
    if (!f)
        f = new_features(d, m, hidden);
    if (!f)
        return NULL;
    memset(f->have + row, true, (size_t)n);
    return f->rows + (size_t)row * hidden;
}

const float *draft_side_features(const struct draft_side *d, const struct medium *m, int row, int n,
                                 size_t hidden)
{
    const struct feature_rows *f = find_features(d, m);
    if (!f)
        return NULL;
    for (int i = 0; i < n; i++)
        if (!f->have[row + i])
            return NULL;
    return f->rows + (size_t)row * hidden;
}
