/* Opens drafters and provides their rows of media: from the draft model's own tower or, for
 * drafters with the target's weights or a vision adaptor, from the rows that the target's tower
 * has computed. */
#include "engine/drafting.h"

#include "base/mem.h"
#include "engine/media_open.h"
#include "format/family.h"
#include "spec/drafter_head.h"
#include "spec/grow.h"
#include "spec/method_rules.h"
#include "spec/verify.h"

#include <stdio.h>
#include <string.h>

enum { MAX_AHEAD = 1024 }; /* tokens of an answer for whose states there is room in advance */

/* ---- opening ---- */

/* Whether rows are computed from equal stretches of the same features. */
static bool same_audio_encoder(const struct audio_config *x, const struct audio_config *y)
{
    return x->mel == y->mel && x->positions == y->positions && x->window == y->window;
}

/* The draft model must divide pictures and sound like the target, so that rows correspond. */
static enum pv_status check_towers(const struct pv_model *a, const struct pv_model *b,
                                   struct pv_error *err)
{
    const struct vision_config *x, *y;
    if (!a->vision || !b->vision)
        return PV_OK;
    x = vision_config(a->vision);
    y = vision_config(b->vision);
    if (x->family->number != y->family->number || x->newline != y->newline ||
        x->patch != y->patch || x->temporal != y->temporal || x->merge != y->merge ||
        x->image != y->image || !same_audio_encoder(&x->audio, &y->audio) ||
        memcmp(x->mean, y->mean, sizeof x->mean) != 0 || memcmp(x->std, y->std, sizeof x->std) != 0)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s preprocesses pictures or sound differently from %s: it cannot draft for it",
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

static bool same_ears(const struct pv_model *a, const struct pv_model *b)
{
    const struct audio_config *x = audio_encoder_config(a->audio_encoder),
                              *y = audio_encoder_config(b->audio_encoder);
    bool same = x->n_layers == y->n_layers && x->q_layers == y->q_layers &&
                same_tensors(model_file_audio_tensors(a->file), model_file_audio_tensors(b->file),
                             sizeof(struct audio_tensors));
    for (int i = 0; i < x->n_layers && same; i++)
        same = same_tensors(model_file_audio_layer(a->file, i), model_file_audio_layer(b->file, i),
                            sizeof(struct vision_layer_tensors));
    for (int i = 0; i < x->q_layers && same; i++)
        same = same_tensors(model_file_query_layer(a->file, i), model_file_query_layer(b->file, i),
                            sizeof(struct query_layer_tensors));
    return same;
}

/* Whether both towers are bit for bit the same, including the projector; then their rows are
 * shared. */
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
    return !a->audio_encoder || same_ears(a, b);
}

static enum pv_status open_states(struct drafting *d, struct pv_error *err)
{
    const struct config *c = decoder_config(d->engine->model->dec);
    struct head_features features =
        head_features_of(head_file_config(d->engine->model->head_file), c->n_layers);
    size_t size;
    enum pv_status s =
        states_open(&d->states, d->engine->context, c->hidden, features, d->engine->chunk, err);
    if (s)
        return s;
    size = TREE_MAX * states_width(&d->states) * sizeof *d->step_states;
    d->step_states = mem_alloc(size);
    return d->step_states ? PV_OK : fail_nomem(err, size);
}

static enum pv_status open_draft_model(struct drafting *d, struct pv_error *err)
{
    struct pv_model *target = d->engine->model, *draft = d->engine->draft;
    int theirs = pv_model_vocab_size(draft), ours = pv_model_vocab_size(target);
    enum pv_status s;
    d->model = draft;
    if (theirs < ours / 2 || ours < theirs / 2)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s has a vocabulary of %d, %s one of %d: it cannot draft for it",
                    model_file_path(draft->file), theirs, model_file_path(target->file), ours);
    s = check_towers(target, draft, err);
    if (!s && draft->adaptor)
        s = model_adaptor_fit(draft, target, err);
    d->shared = !s && same_tower(target, draft);
    if (!s && draft->vision)
        s = encoder_open(&d->encoder, draft->vision, draft->audio_encoder, err);
    return s;
}

enum pv_status drafting_open(struct drafting *d, struct pv_engine *e, struct budget *b,
                             struct pv_error *err)
{
    size_t n = (size_t)e->context;
    enum pv_status s = PV_OK;
    d->engine = e;
    d->budget = b;
    if (e->model->head)
        s = open_states(d, err);
    if (!s && e->draft)
        s = open_draft_model(d, err);
    if (s)
        return s;
    d->visible = mem_alloc(n * sizeof *d->visible);
    d->rows = mem_alloc(n * sizeof *d->rows);
    d->scores = mem_zalloc(n * sizeof *d->scores);
    d->sums = mem_zalloc(n * sizeof *d->sums);
    if (!d->visible || !d->rows || !d->scores || !d->sums)
        return fail_nomem(err, n * (sizeof *d->visible + sizeof *d->rows + 2 * sizeof *d->scores));
    return PV_OK;
}

enum draft_media drafting_media(const struct drafting *d, const struct drafter_kind *kind,
                                const struct pv_view_info *view)
{
    if (!view->pictures)
        return DRAFT_MEDIA_HIDDEN;
    if (kind->target_media)
        return DRAFT_MEDIA_TARGET;
    if (!kind->draft_media)
        return DRAFT_MEDIA_UNREAD;
    if (d->model->adaptor)
        return DRAFT_MEDIA_ADAPTED;
    return d->shared ? DRAFT_MEDIA_TARGET : d->model->vision ? DRAFT_MEDIA_OWN : DRAFT_MEDIA_HIDDEN;
}

void adapted_rows_close(struct adapted_rows *a)
{
    vision_adaptor_state_close(&a->state);
    mem_free(a->rows);
    mem_free(a->at);
    mem_free(a->of_item);
    mem_free(a->lent);
    *a = (struct adapted_rows){ 0 };
}

static void free_features(const struct drafting *d, struct feature_rows *f)
{
    struct device *dev = f->on_device ? d->engine->model->dev : NULL;
    if (dev && f->rows)
        dev->ops->free(dev, f->rows);
    else
        mem_free(f->rows);
    mem_free(f->have);
}

static void forget_ahead(struct drafting *d, const struct timeline *t)
{
    int kept = 0;
    for (int i = 0; i < d->n_ahead; i++) {
        bool known = false;
        for (int k = 0; t && k < t->n_media; k++)
            known = known || t->media[k].key == d->ahead[i].key;
        if (known)
            d->ahead[kept++] = d->ahead[i];
        else
            mem_free(d->ahead[i].rows);
    }
    d->n_ahead = kept;
}

static void forget_all(struct drafting *d)
{
    for (int i = 0; i < d->n_features; i++)
        free_features(d, &d->features[i]);
    d->n_features = 0;
}

void drafting_close(struct drafting *d)
{
    for (int i = 0; i < PV_DRAFT_COUNT; i++)
        if (d->drafter[i])
            d->drafter[i]->close(d->drafter[i]);
    forget_all(d);
    mem_free(d->features);
    forget_ahead(d, NULL);
    mem_free(d->ahead);
    encoder_close(&d->encoder);
    adapted_rows_close(&d->adapted);
    for (int i = 0; i < DRAFTER_DECODERS; i++)
        decoder_state_close(&d->lone_state[i]);
    device_close(&d->group[0]);
    device_close(&d->group[1]);
    mem_free(d->visible);
    mem_free(d->rows);
    mem_free(d->scores);
    mem_free(d->sums);
    mem_free(d->layer_scores);
    mem_free(d->tree_logits);
    mem_free(d->draft_q);
    mem_free(d->verify_scratch);
    states_close(&d->states);
    mem_free(d->step_states);
    *d = (struct drafting){ 0 };
}

bool drafting_starved(struct drafting *d)
{
    bool starved = false;
    for (int i = 0; i < DRAFTER_DECODERS; i++) {
        starved = starved || d->steps[i].base.starved || d->lone[i].base.starved;
        d->steps[i].base.starved = d->lone[i].base.starved = false;
    }
    return starved;
}

void drafting_set_task(struct drafting *d, struct task *t)
{
    d->task = t;
    for (int i = 0; i < DRAFTER_DECODERS; i++)
        d->steps[i].task = t;
}

/* ---- memory ---- */

size_t drafting_size(const struct drafting *d)
{
    size_t size = d->tower_bytes + d->adapted.bytes + d->drawing_bytes +
                  d->n_layer_scores * sizeof *d->layer_scores;
    for (int i = 0; i < PV_DRAFT_COUNT; i++)
        size += d->drafter_bytes[i];
    for (int i = 0; i < d->n_ahead; i++)
        size += d->ahead[i].size;
    return size + (d->states.hidden > 0 ? states_size(&d->states) : 0);
}

void drafting_want(struct drafting *d, bool media)
{
    const struct head_config *h = head_file_config(d->engine->model->head_file);
    states_want(&d->states, drafter_head_wants_all(h, media), drafter_head_wants_layer(h, media));
}

enum pv_status drafting_reserve(struct drafting *d, const struct timeline *t, int first, int answer,
                                struct pv_error *err)
{
    struct states *states = &d->states;
    int room = t->context - t->n, more = answer < room ? answer : room;
    size_t need;
    enum pv_status s;
    if (states->hidden == 0)
        return PV_OK;
    more = more < MAX_AHEAD ? more : MAX_AHEAD;
    states_truncate(states, first);
    need = states_need(states, t->ids, t->n, more) * sizeof(float);
    s = budget_claim(d->budget, need, "the states that a draft head reads", err);
    if (!s)
        s = states_reserve(states, t->ids, t->n, more, err);
    return err ? s : PV_OK;
}

void drafting_ask(const struct drafting *d, struct step *step, const int *rows,
                  struct hidden_tap tap[STATES_MAX_TAPS])
{
    if (d->states.hidden > 0)
        states_ask(&d->states, step, step->n, rows, d->step_states,
                   TREE_MAX * (size_t)d->states.hidden, tap);
}

void drafting_decoded(struct drafting *d, int from, const int *path, int n)
{
    if (d->states.hidden > 0)
        (void)states_add(&d->states, from, d->step_states, TREE_MAX * (size_t)d->states.hidden,
                         path, n, NULL);
}

enum pv_status drafting_tower(struct drafting *d, const struct timeline *t, bool stills,
                              struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (int k = 0; k < t->n_spans && !s; k++) {
        struct media *m = &t->media[t->span[k].item].m;
        if (t->span[k].first > 0 || (m->video && stills))
            continue;
        s = media_open_pixels(m, d->engine, err);
        if (!s)
            s = budget_claim_tower(d->budget, d->encoder, &d->tower_bytes, m, err);
    }
    return s;
}

static struct ahead_rows *find_ahead(const struct drafting *d, const struct media_item *m)
{
    for (int i = 0; i < d->n_ahead; i++)
        if (d->ahead[i].key == m->key)
            return &d->ahead[i];
    return NULL;
}

void drafting_make_ahead(struct drafting *d, const struct timeline *t)
{
    size_t width = (size_t)config_media_width(decoder_config(d->model->dec));
    for (int k = 0; k < t->n_media; k++) {
        const struct media_item *m = &t->media[k];
        struct ahead_rows a = { .key = m->key, .n = m->m.n_units * m->m.unit_rows }, *all;
        a.size = (uint64_t)a.n * width * sizeof *a.rows;
        if (!m->m.video || find_ahead(d, m) || budget_claim(d->budget, a.size, "", NULL))
            continue;
        all = mem_realloc(d->ahead, ((size_t)d->n_ahead + 1) * sizeof *all);
        d->ahead = all ? all : d->ahead;
        a.rows = all ? mem_alloc(a.size) : NULL;
        if (a.rows)
            d->ahead[d->n_ahead++] = a;
    }
}

const float *drafting_ahead(const struct drafting *d, const struct media_item *m, int row, int n)
{
    size_t width = d->model ? (size_t)config_media_width(decoder_config(d->model->dec)) : 0;
    const struct ahead_rows *a = find_ahead(d, m);
    return a && row + n <= a->made ? a->rows + (size_t)row * width : NULL;
}

enum pv_status drafting_scores(struct drafting *d, struct pv_error *err)
{
    const struct config *c = decoder_config(d->engine->model->dec);
    size_t groups = c->spread ? 1 : (size_t)c->n_kv_heads; /* each rank has some of the heads */
    size_t need = 2 * (size_t)c->n_layers * groups * (size_t)d->n_rows;
    size_t size = need * sizeof *d->layer_scores;
    enum pv_status s;
    d->score_groups = (int)groups;
    if (need > d->n_layer_scores) {
        mem_free(d->layer_scores);
        d->layer_scores = NULL;
        d->n_layer_scores = 0;
        s = budget_claim(d->budget, size, "the video's attention in every layer", err);
        if (s)
            return s;
        d->layer_scores = mem_alloc(size);
        if (!d->layer_scores)
            return fail_nomem(err, size);
        d->n_layer_scores = need;
    }
    if (need > 0)
        memset(d->layer_scores, 0, size);
    return PV_OK;
}

/* Allocate floats that stay with the session, unless they exist already. */
static enum pv_status reserve_floats(struct drafting *d, float **p, size_t n, struct pv_error *err)
{
    size_t size = n * sizeof **p;
    enum pv_status s =
        *p ? PV_OK : budget_claim(d->budget, size, "drawing tokens from a tree", err);
    if (s || *p)
        return s;
    *p = mem_zalloc(size);
    if (!*p)
        return fail_nomem(err, size);
    d->drawing_bytes += size;
    return PV_OK;
}

enum pv_status drafting_drawing(struct drafting *d, bool rejection, struct pv_error *err)
{
    size_t vocab = (size_t)pv_model_vocab_size(d->engine->model), n = TREE_MAX * vocab;
    enum pv_status s = reserve_floats(d, &d->tree_logits, n, err);
    if (!s && rejection)
        s = reserve_floats(d, &d->draft_q, n, err);
    if (!s && rejection)
        s = reserve_floats(d, &d->verify_scratch, verify_scratch((int)vocab), err);
    return s;
}

/* ---- drafters ---- */

static enum pv_status claim_drafter(struct drafting *d, size_t need, struct pv_error *err)
{
    char what[64];
    snprintf(what, sizeof what, "a drafter for a context of %d tokens", d->engine->context);
    return budget_claim(d->budget, need, what, err);
}

static struct drafter_resources resources(struct drafting *d, const struct drafter_kind *kind,
                                          const struct pv_method *m)
{
    const struct pv_model *target = d->engine->model;
    struct pv_method_test test = method_test(m);
    return (struct drafter_resources){
        .steps = &d->steps[kind->runs].base,
        .head_config = target->head ? head_file_config(target->head_file) : NULL,
        .chunk = d->engine->chunk,
        .context = d->engine->context,
        .vocab = pv_model_vocab_size(target),
        .keep = m->keep,
        .seed = test.seed,
        .answer = test.answer,
        .n_answer = (int)test.n_answer,
        .errors = test.errors,
    };
}

/* Open a drafter, claiming memory for it and for what all drafters of its decoder share. */
static enum pv_status open_drafter(struct drafting *d, const struct drafter_kind *kind,
                                   const struct pv_method *m, struct drafter **out, size_t *held,
                                   struct pv_error *err)
{
    struct drafter_resources r = resources(d, kind, m);
    const struct decoder *dec = engine_decoder(d->engine, kind->runs);
    struct draft_engine *shared;
    size_t need;
    enum pv_status s = PV_OK;
    r.steps->dec = dec;
    need = kind->size ? kind->size(&r) : 0;
    if (need > 0)
        s = claim_drafter(d, need + engine_drafts_size(d->engine, kind->runs), err);
    if (!s && dec) {
        s = engine_drafts(d->engine, kind->runs, &shared, err);
        if (!s)
            task_stepper_init(&d->steps[kind->runs], shared->batch);
        d->steps[kind->runs].task = d->task;
    }
    if (!s)
        s = kind->open(out, &r, err);
    if (!s)
        *held = need;
    return s;
}

enum pv_status drafting_drafter(struct drafting *d, const struct pv_method *m, struct drafter **out,
                                struct pv_error *err)
{
    const struct drafter_kind *kind = drafter_find(m->drafter);
    struct drafter **open = &d->drafter[m->drafter];
    size_t *held = &d->drafter_bytes[m->drafter];
    enum pv_status s = PV_OK;
    if (kind->info.needs_draft && !d->engine->draft)
        return fail(err, PV_E_ARG, "method '%s' needs a draft model, and there is none", m->name);
    if (kind->info.needs_head && !d->engine->model->head)
        return fail(err, PV_E_ARG, "method '%s' needs a draft head, and the model has none",
                    m->name);
    if (*open && kind->made_anew) {
        (*open)->close(*open);
        *open = NULL;
        *held = 0;
    }
    if (!*open)
        s = open_drafter(d, kind, m, open, held, err);
    if (!s) {
        d->used = m->drafter;
        *out = *open;
    }
    return s;
}

/* ---- on its own thread ---- */

static enum pv_status open_lone(struct drafting *d, enum drafter_decoder which,
                                struct pv_error *err)
{
    const struct decoder *dec = engine_decoder(d->engine, which);
    int rows = d->engine->chunk > TREE_MAX ? d->engine->chunk : TREE_MAX;
    enum dtype kv = d->engine->kv;
    enum pv_status s = PV_OK;
    if (!d->lone_state[which])
        s = budget_claim(d->budget,
                         decoder_state_size(dec, rows, GROW_LEVEL, d->engine->context, kv),
                         "a drafter on a thread of its own", err);
    if (!s && !d->lone_state[which])
        s = decoder_state_open_priority(&d->lone_state[which], dec, rows, GROW_LEVEL,
                                        d->engine->context, kv, WORK_URGENT, err);
    if (!s)
        lone_stepper_init(&d->lone[which], dec, d->lone_state[which], d->steps[which].base.pool);
    return s;
}

enum pv_status drafting_part(struct drafting *d, const struct pv_method *m, enum draft_place place,
                             struct pv_error *err)
{
    struct drafter *drafter = d->drafter[m->drafter];
    enum drafter_decoder which = drafter_find(m->drafter)->runs;
    enum pv_status s;
    d->place = place;
    if (!drafter->step_by)
        return PV_OK;
    s = open_lone(d, which, err);
    if (s)
        return s;
    if (place == DRAFT_BESIDE) {
        d->lone[which].lock =
            which == DRAFTER_RUNS_DRAFT ? d->model->step_lock : d->engine->model->step_lock;
        d->lone[which].go_on = d->task ? task_goes_on : NULL;
        d->lone[which].user = d->task;
    }
    drafter->step_by(drafter, &d->lone[which].base);
    return PV_OK;
}

void drafting_join(struct drafting *d, const struct pv_method *m)
{
    struct drafter *drafter = d->drafter[m->drafter];
    if (drafter->step_by)
        drafter->step_by(drafter, &d->steps[drafter_find(m->drafter)->runs].base);
    d->place = DRAFT_TAKES_TURNS;
}

/* ---- rows computed by the target's tower ---- */

/* Whether device and host need separate copies: on a CPU, device memory is host memory. */
static bool is_apart(const struct drafting *d, bool on_device)
{
    return on_device && d->engine->model->gpu >= 0;
}

static struct feature_rows *find_features(const struct drafting *d, const struct media_item *m,
                                          bool on_device)
{
    on_device = is_apart(d, on_device);
    for (int i = 0; i < d->n_features; i++)
        if (d->features[i].key == m->key && d->features[i].on_device == on_device)
            return &d->features[i];
    return NULL;
}

void drafting_forget(struct drafting *d, const struct timeline *t)
{
    int kept = 0;
    forget_ahead(d, t);
    for (int i = 0; i < d->n_features; i++) {
        bool known = false;
        for (int k = 0; k < t->n_media; k++)
            known = known || t->media[k].key == d->features[i].key;
        if (known)
            d->features[kept++] = d->features[i];
        else
            free_features(d, &d->features[i]);
    }
    d->n_features = kept;
}

void drafting_fit(struct drafting *d, uint64_t room)
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

static float *alloc_rows(const struct drafting *d, size_t size, bool on_device)
{
    void *p = NULL;
    if (!on_device)
        return mem_alloc(size);
    return device_alloc(d->engine->model->dev, &p, size, NULL) == PV_OK ? p : NULL;
}

static struct feature_rows *new_features(struct drafting *d, const struct media_item *m,
                                         size_t hidden, bool on_device)
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
                               .on_device = on_device,
                               .size = need,
                               .rows = alloc_rows(d, rows * hidden * sizeof(float), on_device),
                               .have = mem_zalloc(rows * sizeof(bool)) };
    if (!f.rows || !f.have) {
        free_features(d, &f);
        return NULL;
    }
    d->room -= need;
    d->features[d->n_features++] = f;
    return &d->features[n];
}

float *drafting_keep(struct drafting *d, const struct media_item *m, int row, int n, size_t hidden,
                     bool on_device)
{
    struct feature_rows *f = find_features(d, m, on_device);
    if (!f)
        f = new_features(d, m, hidden, is_apart(d, on_device));
    if (!f)
        return NULL;
    memset(f->have + row, true, (size_t)n);
    return f->rows + (size_t)row * hidden;
}

const float *drafting_features(const struct drafting *d, const struct media_item *m, int row, int n,
                               size_t hidden, bool on_device)
{
    const struct feature_rows *f = find_features(d, m, on_device);
    if (!f)
        return NULL;
    for (int i = 0; i < n; i++)
        if (!f->have[row + i])
            return NULL;
    return f->rows + (size_t)row * hidden;
}
