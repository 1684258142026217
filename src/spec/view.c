/* The table of views, the budget they share, and the parts they are built from. A view is a row of
 * the table. What the row says it needs is checked here once; the views themselves only choose. */
#include "spec/view.h"

#include "base/mem.h"
#include "spec/view_alignment.h"
#include "spec/view_parts.h"
#include "tensor/cosine.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Layers that alignment looks at: as published for a model of 28, and the same share of a model
 * that has no more than those. */
enum { ALIGNMENT_LAYERS = 20, ALIGNMENT_OF = 28 };

/* Views that show all media. */
#define WHOLE .videos = true, .pictures = true
/* Views that keep a part of each video. */
#define PART .videos = true, .pictures = true, .takes_ratio = true

static const struct view views[VIEW_COUNT] = {
    [VIEW_FULL] = { { "full", WHOLE }, view_full },
    [VIEW_NONE] = { { "none", .pictures = true }, view_none },
    [VIEW_TEXT] = { { "text" }, view_none },
    [VIEW_RANDOM] = { { "random", PART }, view_random },
    [VIEW_UNIFORM] = { { "uniform", PART }, view_uniform },
    [VIEW_ATTENTION] = { { "attention", PART, .signal = PV_SIGNAL_ATTENTION }, view_attention },
    [VIEW_SPECVLM] = { { "specvlm", PART, .signal = PV_SIGNAL_ATTENTION, .takes_lambda = true },
                       view_specvlm },
    [VIEW_HOLISTIC] = { { "holistic", PART, .signal = PV_SIGNAL_VIDEO_ATTENTION, .features = true,
                          .takes_layer = true, .takes_terms = true },
                        view_holistic,
                        .early = true,
                        .grid = true,
                        .on_device = true },
    /* It keeps the highest scores too; only their origin differs. */
    [VIEW_ALIGNMENT] = { { "alignment", PART, .signal = PV_SIGNAL_ALIGNMENT, .takes_layer = true,
                           .takes_text = true },
                         view_attention,
                         .layers = ALIGNMENT_LAYERS,
                         .layer_share = (double)ALIGNMENT_LAYERS / ALIGNMENT_OF,
                         .early = true },
};

/* Those of the laboratory; written before a model is opened, and never again. */
static const struct view *added[VIEWS_MOST_ADDED];
static int n_added;

const struct view *view_find(enum view_kind kind)
{
    int i = (int)kind;
    if (i < 0 || i >= VIEW_COUNT + n_added)
        return NULL;
    return i < VIEW_COUNT ? &views[i] : added[i - VIEW_COUNT];
}

const char *view_name(enum view_kind kind)
{
    const struct view *v = view_find(kind);
    return v ? v->info.name : NULL;
}

enum view_kind view_named(const char *name)
{
    for (int k = 0; k < VIEW_COUNT + n_added; k++)
        if (!strcmp(name, view_name((enum view_kind)k)))
            return (enum view_kind)k;
    return VIEW_UNKNOWN;
}

bool views_add(const struct view *rows, int n)
{
    for (int k = 0; k < n; k++) {
        if (n_added == VIEWS_MOST_ADDED || view_named(rows[k].info.name) != VIEW_UNKNOWN)
            return false;
        added[n_added++] = &rows[k];
    }
    return true;
}

bool view_wants_scores(enum view_kind kind)
{
    const struct view *v = view_find(kind);
    return v && v->info.signal != PV_SIGNAL_NONE;
}

bool view_wants_features(enum view_kind kind)
{
    const struct view *v = view_find(kind);
    return v && v->info.features;
}

const struct pv_view_info *pv_view_find(const char *name)
{
    const struct view *v = view_find(view_named(name));
    return v ? &v->info : NULL;
}

const char *pv_view_name(int i)
{
    return view_name((enum view_kind)i);
}

int view_layers(enum view_kind kind, double layer, int n_layers)
{
    const struct view *v = view_find(kind);
    if (!v->info.takes_layer)
        return n_layers;
    if (layer == 0)
        layer = n_layers > v->layers ? v->layers : v->layer_share;
    return layer > 0 ? alignment_layers(layer, n_layers) : n_layers;
}

int view_floor(double x)
{
    return (int)floor(x + 1e-9);
}

int view_budget(int m, double ratio)
{
    int b;
    if (m <= 0 || ratio >= 1)
        return 0;
    if (!(ratio > 0))
        return m;
    b = view_floor((1 - ratio) * m);
    return b < 1 ? 1 : b > m ? m : b;
}

/* What a view needs; with terms, only what those need that are on. */
static enum pv_status check_wanted(enum view_kind kind, const struct view_input *in,
                                   struct pv_error *err)
{
    const struct view *v = view_find(kind);
    bool terms = v->info.takes_terms;
    bool scores = view_wants_scores(kind) && (!terms || view_terms(in) & HOLISTIC_ATTENTION);
    bool features = v->info.features && (!terms || view_terms(in) != HOLISTIC_ATTENTION);
    if (scores && !in->scores)
        return fail(err, PV_E_ARG, "view %s needs a score of each video token", view_name(kind));
    if (v->grid && (in->grid_width <= 0 || in->frame_tokens % in->grid_width))
        return fail(err, PV_E_ARG, "view %s: frames of %d tokens in rows of %d", view_name(kind),
                    in->frame_tokens, in->grid_width);
    if (features && !in->cosines && (!in->features || in->width <= 0))
        return fail(err, PV_E_ARG, "view %s needs the features of each video token",
                    view_name(kind));
    return PV_OK;
}

static enum pv_status check_input(enum view_kind kind, const struct view_input *in,
                                  struct pv_error *err)
{
    const char *name = view_name(kind);
    if (!name)
        return fail(err, PV_E_ARG, "unknown view %d", (int)kind);
    if (in->n_frames < 0 || in->frame_tokens < 0 ||
        (int64_t)in->n_frames * in->frame_tokens > INT_MAX)
        return fail(err, PV_E_ARG, "view %s: %d frames of %d tokens are no video", name,
                    in->n_frames, in->frame_tokens);
    if (!(in->ratio >= 0 && in->ratio <= 1))
        return fail(err, PV_E_ARG, "view %s: a ratio of %g is not within 0 and 1", name, in->ratio);
    if (view_find(kind)->info.takes_lambda && !(in->lambda >= 0 && in->lambda <= 1))
        return fail(err, PV_E_ARG, "view %s: a lambda of %g is not within 0 and 1", name,
                    in->lambda);
    if (view_find(kind)->info.takes_terms && in->holistic_terms & ~(unsigned)HOLISTIC_ALL)
        return fail(err, PV_E_ARG, "view %s: unknown terms %u", name, in->holistic_terms);
    return view_tokens(in) == 0 ? PV_OK : check_wanted(kind, in, err);
}

enum pv_status view_choose(enum view_kind kind, const struct view_input *in, int *kept, int *n,
                           int *stage1, struct pv_error *err)
{
    struct view_choice choice = { .kept = kept };
    enum pv_status s = check_input(kind, in, err);
    if (s)
        return s;
    if (view_tokens(in) > 0) {
        s = view_find(kind)->choose(in, &choice, err);
        if (s)
            return s;
    }
    *n = choice.n;
    if (stage1)
        *stage1 = choice.stage1;
    return PV_OK;
}

int spread_point(int i, int u, int n)
{
    double step;
    if (u == 1)
        return 0;
    step = (double)(n - 1) / (u - 1);
    return i < u / 2 ? (int)(step * i) : (int)((n - 1) - step * (u - 1 - i));
}

double view_cosine(const struct view_input *in, int i, int j)
{
    const float *a = view_feature(in, i), *b = view_feature(in, j);
    return cosine_of(rows_dot(a, b, in->width), rows_dot(a, a, in->width),
                     rows_dot(b, b, in->width));
}

static int by_falling_score(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

void rank_falling(struct ranked *r, int n)
{
    for (int i = 0; i < n; i++)
        if (isnan(r[i].score))
            r[i].score = -INFINITY; /* NaN compares with nothing: the sort would be undefined */
    qsort(r, (size_t)n, sizeof *r, by_falling_score);
}

enum pv_status marks_open(struct marks *k, int m, int n_rank, struct pv_error *err)
{
    size_t kept_size = (size_t)m * sizeof *k->kept, rank_size = (size_t)n_rank * sizeof *k->rank;
    k->kept = mem_zalloc(kept_size);
    if (!k->kept)
        return fail_nomem(err, kept_size);
    k->rank = mem_alloc(rank_size);
    if (k->rank)
        return PV_OK;
    mem_free(k->kept);
    return fail_nomem(err, rank_size);
}

void marks_close(struct marks *k)
{
    mem_free(k->rank);
    mem_free(k->kept);
    *k = (struct marks){ 0 };
}

void marks_spread(struct marks *k, int from, int n, int count)
{
    for (int i = 0; i < count; i++)
        k->kept[from + spread_point(i, count, n)] = true;
}

void marks_collect(const struct marks *k, int m, struct view_choice *out)
{
    out->n = 0;
    for (int j = 0; j < m; j++)
        if (k->kept[j])
            out->kept[out->n++] = j;
}
