/* The drafter `cascade`: n-grams first, and where they find nothing, the draft model. N-grams cost
 * nothing and are often right where an answer repeats its prompt or itself; the model drafts the
 * rest. Both are told the prompt and, as every drafter, the whole answer in each round, so neither
 * needs to know which of them proposed before.
 *
 * N-grams have no probabilities, hence neither has the cascade: no fitted trees, and no rejection
 * of chains. */
#include "base/mem.h"
#include "lab_drafters.h"

struct cascade_drafter {
    struct drafter base;
    struct drafter *ngram, *model; /* owned */
};

static struct cascade_drafter *of(struct drafter *d)
{
    return (struct cascade_drafter *)d;
}

static enum pv_status begin_cascade(struct drafter *base, const struct draft_prompt *p,
                                    struct pv_error *err)
{
    struct cascade_drafter *d = of(base);
    enum pv_status s = d->ngram->begin(d->ngram, p, err);
    return s ? s : d->model->begin(d->model, p, err);
}

static enum pv_status propose_cascade(struct drafter *base, const struct draft_request *r,
                                      struct pv_error *err)
{
    struct cascade_drafter *d = of(base);
    enum pv_status s = d->ngram->propose(d->ngram, r, err);
    if (!s && r->tree->n == 1)
        s = d->model->propose(d->model, r, err);
    base->rows = d->model->rows;
    base->slots = d->model->slots;
    return s;
}

static void close_cascade(struct drafter *base)
{
    struct cascade_drafter *d = of(base);
    if (d->ngram)
        d->ngram->close(d->ngram);
    if (d->model)
        d->model->close(d->model);
    mem_free(d);
}

static void step_cascade_by(struct drafter *base, struct stepper *steps)
{
    struct drafter *model = of(base)->model;
    model->step_by(model, steps);
}

static enum pv_status open_kind(struct drafter **out, const struct drafter_resources *r,
                                struct pv_error *err)
{
    struct cascade_drafter *d = mem_zalloc(sizeof *d);
    enum pv_status s;
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->base = (struct drafter){ .name = "cascade",
                                .begin = begin_cascade,
                                .propose = propose_cascade,
                                .close = close_cascade,
                                .step_by = step_cascade_by };
    s = drafter_ngram.open(&d->ngram, r, err);
    if (!s)
        s = drafter_model.open(&d->model, r, err);
    if (s) {
        close_cascade(&d->base);
        return s;
    }
    *out = &d->base;
    return PV_OK;
}

static size_t size_kind(const struct drafter_resources *r)
{
    return drafter_model.size(r);
}

const struct drafter_kind drafter_cascade = {
    .info = { .name = "cascade", .preset = "sd", .needs_draft = true, .reads_prompt = true },
    .open = open_kind,
    .size = size_kind,
    .runs = DRAFTER_RUNS_DRAFT,
    .draft_media = true,
    .measures = true,
};
