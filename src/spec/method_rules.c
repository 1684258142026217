/* Which drafters, views, shapes, schedules and rules of acceptance can be combined. The engine and
 * the command line both use these functions, so each rule is written once. Rules name properties of
 * the tables of drafters and views, not their entries: a new entry needs no new rule. */
#include "spec/method_rules.h"

#include "base/pool.h"
#include "base/sized.h"
#include "spec/drafter_kind.h"
#include "spec/lossy.h"
#include "spec/view.h"

#include <stdio.h>

enum { MAX_WIDTH = 16 };      /* of a growing tree: what grow.c has room for */
enum { DEFAULT_KEEP = 1024 }; /* entries of a layer's KV cache, as STD was published */
enum { DEFAULT_WINDOW = 5, DEFAULT_TOTAL = 30, DEFAULT_DEPTH = 3, DEFAULT_WIDTH = 8 };
enum { NAMES_SIZE = 128 };

static const char *const shape_names[] = { "chain", "tree", "dynamic", "fitted" };
enum { N_SHAPES = sizeof shape_names / sizeof *shape_names };

static int or_default(int given, int usual)
{
    return given ? given : usual;
}

struct pv_method_test method_test(const struct pv_method *m)
{
    return m->test ? *m->test : (struct pv_method_test){ 0 };
}

void method_fill(struct pv_method *m, const struct method_setting *setting)
{
    const struct drafter_kind *kind = drafter_find(m->drafter);
    bool fitted;
    if (!kind)
        return;
    if (m->automatic && kind->info.needs_draft && kind->info.as_head && setting->has_head &&
        (!setting->has_draft || setting->crowded)) {
        m->drafter = kind->info.as_head;
        kind = drafter_find(m->drafter);
        m->view = kind->info.view ? kind->info.view : m->view;
    }
    /* Fitted trees of a cheap drafter shrink to plain decoding where nothing else pays, so there is
     * nothing left to choose; but not where steps whose shape keeps changing are slow. Under
     * rejection the text must not depend on measured times. */
    if (m->automatic && kind->cheap && !(setting->recorded && m->accept == PV_ACCEPT_EXACT)) {
        m->shape = m->accept == PV_ACCEPT_EXACT ? PV_SHAPE_FITTED : PV_SHAPE_DYNAMIC;
        m->automatic = false;
    }
    fitted = m->shape == PV_SHAPE_FITTED;
    if (!m->view)
        m->view = view_name(VIEW_FULL);
    if (m->schedule == PV_SCHEDULE_SERIAL)
        m->window = or_default(m->window, DEFAULT_WINDOW);
    m->total = or_default(m->total, fitted ? FITTED_TOTAL : DEFAULT_TOTAL);
    m->depth = or_default(m->depth, fitted ? FITTED_DEPTH : DEFAULT_DEPTH);
    m->width = or_default(m->width, fitted ? FITTED_WIDTH : DEFAULT_WIDTH);
    m->keep = or_default(m->keep, DEFAULT_KEEP);
    if (m->lambda == 0)
        m->lambda = setting->lambda;
    if (m->positions == PV_POS_AUTO)
        m->positions = kind->keeps_position ? PV_POS_ORIGINAL : setting->positions;
}

/* ---- rules ---- */

static bool fits_trees(const struct drafter_kind *kind)
{
    return kind->fits_trees;
}

static bool has_probabilities(const struct drafter_kind *kind)
{
    return kind->info.probabilities;
}

static bool measures(const struct drafter_kind *kind)
{
    return kind->measures;
}

/* "model, self or head": the drafters that have a property. */
static const char *name_drafters(char out[NAMES_SIZE], bool (*has)(const struct drafter_kind *))
{
    int n = 0, left = 0;
    out[0] = 0;
    for (int i = 0; i < PV_DRAFT_COUNT; i++)
        left += drafter_find((enum pv_drafter)i) && has(drafter_find((enum pv_drafter)i));
    for (int i = 0; i < PV_DRAFT_COUNT && n < NAMES_SIZE; i++) {
        const struct drafter_kind *kind = drafter_find((enum pv_drafter)i);
        if (!kind || !has(kind))
            continue;
        left--;
        n += snprintf(out + n, (size_t)(NAMES_SIZE - n), "%s%s", kind->info.name,
                      left > 1    ? ", "
                      : left == 1 ? " or "
                                  : "");
    }
    return out;
}

/* Every choice is one of those that exist. */
static enum pv_status check_choices(const struct pv_method *m, struct pv_error *err)
{
    if (!drafter_find(m->drafter))
        return fail(err, PV_E_ARG, "unknown drafter %d", (int)m->drafter);
    if (m->view && view_named(m->view) == VIEW_UNKNOWN)
        return fail(err, PV_E_ARG, "unknown view '%s'", m->view);
    if ((unsigned)m->shape >= N_SHAPES)
        return fail(err, PV_E_ARG, "unknown shape %d", (int)m->shape);
    if ((unsigned)m->accept > PV_ACCEPT_REJECTION)
        return fail(err, PV_E_ARG, "unknown rule of acceptance %d", (int)m->accept);
    if ((unsigned)m->schedule > PV_SCHEDULE_PARALLEL)
        return fail(err, PV_E_ARG, "unknown schedule %d", (int)m->schedule);
    return PV_OK;
}

static enum pv_status check_numbers(const struct pv_method *m, struct pv_error *err)
{
    bool grows = m->shape == PV_SHAPE_DYNAMIC || m->shape == PV_SHAPE_FITTED;
    if (m->draft_threads < 0 || m->draft_threads > POOL_MAX_THREADS)
        return fail(err, PV_E_ARG, "expected 1 to %d threads for the drafter, found %d",
                    POOL_MAX_THREADS, m->draft_threads);
    if (!(m->layer >= 0))
        return fail(err, PV_E_ARG, "expected a view after at least one layer, found layer %g",
                    m->layer);
    if (!(m->ratio >= 0 && m->ratio <= 1))
        return fail(err, PV_E_ARG, "a pruning ratio of %g is not between 0 and 1", m->ratio);
    if (!(m->lambda >= 0 && m->lambda <= 1))
        return fail(err, PV_E_ARG, "a share of attention (lambda) of %g is not between 0 and 1",
                    m->lambda);
    if (grows && m->width > MAX_WIDTH)
        return fail(err, PV_E_ARG, "expected a tree of width 1 to %d, found width %d", MAX_WIDTH,
                    m->width);
    return PV_OK;
}

static enum pv_status check_parallel(const struct pv_method *m, const struct drafter_kind *kind,
                                     struct pv_error *err)
{
    if (m->schedule != PV_SCHEDULE_PARALLEL)
        return PV_OK;
    if (kind->info.reads_kv_cache)
        return fail(err, PV_E_ARG,
                    "the parallel schedule does not work with drafter %s, which reads the model's "
                    "KV cache",
                    kind->info.name);
    if (m->automatic)
        return fail(err, PV_E_ARG,
                    "an automatic method chooses its schedule; it cannot be set to "
                    "parallel");
    if (m->shape != PV_SHAPE_CHAIN)
        return fail(err, PV_E_ARG, "the parallel schedule works with chains only; shape is %s",
                    shape_names[m->shape]);
    /* The drafter passes on tokens only. */
    if (m->accept == PV_ACCEPT_REJECTION)
        return fail(err, PV_E_ARG,
                    "acceptance by rejection needs probabilities, which the parallel schedule "
                    "does not pass on");
    return PV_OK;
}

/* The drafter's own prefill measures what such a view needs; a parallel drafter would have to read
 * the prompt twice while the model decodes. */
static enum pv_status check_view(const struct pv_method *m, const struct drafter_kind *kind,
                                 struct pv_error *err)
{
    const struct pv_view_info *view = m->view ? pv_view_find(m->view) : NULL;
    char names[NAMES_SIZE];
    if (!view || view->signal != PV_SIGNAL_DRAFT_ATTENTION)
        return PV_OK;
    if (!kind->measures)
        return fail(err, PV_E_ARG,
                    "view %s is chosen by the drafter's own attention (drafter %s); drafter is %s",
                    m->view, name_drafters(names, measures), kind->info.name);
    if (m->schedule == PV_SCHEDULE_PARALLEL)
        return fail(err, PV_E_ARG,
                    "view %s works with the serial schedule only: the drafter reads the whole "
                    "prompt before it is chosen",
                    m->view);
    return PV_OK;
}

/* Drafts are verified by the whole model, and a pruned one has no tree of its own. */
static enum pv_status check_lossy(const struct pv_method *m, struct pv_error *err)
{
    struct lossy_plan plan;
    if (!lossy_prunes(m->lossy))
        return PV_OK;
    if (m->drafter != PV_DRAFT_NONE)
        return fail(err, PV_E_ARG,
                    "lossy pruning (%s) is for plain decoding (method ar); method %s drafts",
                    m->lossy, m->name ? m->name : "");
    return lossy_plan(&plan, m->lossy, 0, err);
}

enum pv_status method_check(const struct pv_method *m, struct pv_error *err)
{
    const struct drafter_kind *kind;
    char names[NAMES_SIZE];
    enum pv_status s = check_choices(m, err);
    if (!s)
        s = check_numbers(m, err);
    if (!s)
        s = check_lossy(m, err);
    if (s)
        return s;
    kind = drafter_find(m->drafter);
    if (!kind->open) /* plain decoding proposes nothing */
        return PV_OK;
    s = check_parallel(m, kind, err);
    if (!s)
        s = check_view(m, kind, err);
    if (s)
        return s;
    if (m->shape == PV_SHAPE_FITTED && !kind->fits_trees)
        return fail(err, PV_E_ARG,
                    "shape fitted needs a drafter with probabilities (%s); drafter is %s",
                    name_drafters(names, fits_trees), kind->info.name);
    /* Trees are fitted by measured times, and under rejection the tree decides the text. */
    if (m->shape == PV_SHAPE_FITTED && m->accept == PV_ACCEPT_REJECTION)
        return fail(err, PV_E_ARG,
                    "shape fitted goes with exact acceptance only: with rejection the text would "
                    "depend on measured times");
    if (m->shape == PV_SHAPE_CHAIN && m->accept == PV_ACCEPT_REJECTION && !kind->info.probabilities)
        return fail(err, PV_E_ARG,
                    "rejection needs probabilities of a chain (drafter %s); drafter is %s",
                    name_drafters(names, has_probabilities), kind->info.name);
    return PV_OK;
}

enum pv_status method_read(struct pv_method *own, const struct pv_method *theirs,
                           struct pv_error *err)
{
    *own = (struct pv_method){ 0 };
    return sized_read(own, sizeof *own, theirs, "a method", err);
}

enum pv_status pv_method_check(const struct pv_method *m, struct pv_error *err)
{
    struct pv_method own;
    enum pv_status s = method_read(&own, m, err);
    return s ? s : method_check(&own, err);
}

enum pv_status method_shape(struct shape *out, const struct pv_method *m, struct pv_error *err)
{
    switch (m->shape) {
    case PV_SHAPE_CHAIN:
        return shape_chain(out, or_default(m->window, DEFAULT_WINDOW), err);
    case PV_SHAPE_DYNAMIC:
        return shape_dynamic(out, m->total, m->depth, m->width, err);
    case PV_SHAPE_FITTED:
        return shape_fitted(out, m->total, m->depth, m->width, err);
    case PV_SHAPE_TREE:
        break;
    }
    if (m->tree_file)
        return shape_read(out, m->tree_file, err);
    shape_static25(out);
    return PV_OK;
}
