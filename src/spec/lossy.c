/* The table of lossy methods, as their papers and their authors' code have them; layers that are
 * published for one depth are scaled to the model's.
 *
 *   fastv        FastV: after layer 2 the tokens that the prompt's last row attended to most there.
 *   sparsevlm    SparseVLM: after layers 2, 6 and 15 of 32 those that the raters attended to most;
 *                some of the rest are recycled (lossy_recycle.c).
 *   pyramiddrop  PyramidDrop: after each quarter of the layers, by the last row's attention as the
 *                next layer has it.
 *   dycoke       DyCoke: temporal merging before the first layer, at most 0.7 of a later frame;
 * where that is not enough, each token of the answer chooses, by its attention in layer 4, what the
 * deeper layers read.
 *
 * The shares of several stages fall geometrically to 1 - ratio: PyramidDrop's 1/2, 1/4 and 1/8 at
 * 0.875. */
#include "spec/lossy.h"

#include "base/mem.h"
#include "spec/view_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PUBLISHED_LAYERS = 32, FASTV_LAYERS = 2, DYCOKE_LAYERS = 4, NAMES_SIZE = 128 };
static const double most_ratio = 0.99;
static const double dycoke_merges = 0.7 * 0.75; /* of all tokens: of three frames of four */
static const double turned_below = 0.9;

/* Adds a stage that begins at a layer; one that would have no layers is left out. */
static void add_stage(struct lossy_plan *p, int layer0, enum lossy_signal signal, double keep)
{
    struct lossy_stage *before = p->n > 0 ? &p->stage[p->n - 1] : NULL;
    if (before && layer0 <= before->layer0)
        layer0 = before->layer0 + 1;
    if (before && layer0 >= before->layer1)
        return;
    p->stage[p->n] = (struct lossy_stage){
        .layer0 = layer0, .layer1 = before ? before->layer1 : 0, .signal = signal, .keep = keep
    };
    if (before)
        before->layer1 = layer0;
    p->n++;
}

static void begin_plan(struct lossy_plan *p, int n_layers, enum lossy_signal signal, double keep)
{
    add_stage(p, 0, signal, keep);
    p->stage[0].layer1 = n_layers;
}

static void plan_fastv(struct lossy_plan *p, int n_layers)
{
    begin_plan(p, n_layers, LOSSY_ALL, 1);
    add_stage(p, FASTV_LAYERS < n_layers ? FASTV_LAYERS : n_layers - 1, LOSSY_LAST_ROW,
              1 - p->ratio);
}

/* Stages after these of PUBLISHED_LAYERS layers, with falling shares. */
static void add_falling(struct lossy_plan *p, int n_layers, const int *after, int n,
                        enum lossy_signal signal)
{
    begin_plan(p, n_layers, LOSSY_ALL, 1);
    for (int i = 0; i < n; i++)
        add_stage(p, (after[i] * n_layers + PUBLISHED_LAYERS / 2) / PUBLISHED_LAYERS, signal,
                  pow(1 - p->ratio, (double)(i + 1) / n));
    p->stage[p->n - 1].keep = 1 - p->ratio; /* also of a model with fewer layers than stages */
}

static void plan_sparsevlm(struct lossy_plan *p, int n_layers)
{
    static const int after[] = { 2, 6, 15 };
    add_falling(p, n_layers, after, 3, LOSSY_RATERS);
    for (int i = 1; i < p->n; i++)
        p->stage[i].merges = true;
}

static void plan_pyramiddrop(struct lossy_plan *p, int n_layers)
{
    static const int after[] = { 8, 16, 24 };
    p->compact = true;
    add_falling(p, n_layers, after, 3, LOSSY_NEXT_LAYER);
}

static void plan_dycoke(struct lossy_plan *p, int n_layers)
{
    double merged = p->ratio < dycoke_merges ? p->ratio : dycoke_merges;
    p->compact = true;
    begin_plan(p, n_layers, LOSSY_FEATURES, 1 - merged);
    if (p->ratio > merged)
        add_stage(p, DYCOKE_LAYERS < n_layers ? DYCOKE_LAYERS : n_layers - 1, LOSSY_DECODING,
                  1 - p->ratio);
}

static const struct {
    const char *name;
    void (*plan)(struct lossy_plan *p, int n_layers);
} methods[] = {
    { "fastv", plan_fastv },
    { "sparsevlm", plan_sparsevlm },
    { "pyramiddrop", plan_pyramiddrop },
    { "dycoke", plan_dycoke },
};
enum { N_METHODS = sizeof methods / sizeof *methods };

const char *lossy_name(int i)
{
    return i >= 0 && i < N_METHODS ? methods[i].name : NULL;
}

const char *pv_lossy_name(int i)
{
    return lossy_name(i);
}

bool lossy_prunes(const char *text)
{
    return text && strcmp(text, PV_LOSSY_KV_FP8) != 0;
}

/* A number from 0 to most_ratio, and nothing behind it. */
static bool parse_ratio(const char *text, double *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    *out = strtod(text, &end);
    return *end == 0 && *out >= 0 && *out <= most_ratio;
}

enum pv_status lossy_plan(struct lossy_plan *out, const char *text, int n_layers,
                          struct pv_error *err)
{
    size_t len = strcspn(text, ":");
    struct lossy_plan p = { .n = 0 };
    char names[NAMES_SIZE] = "";
    int i = 0;
    while (i < N_METHODS && (strlen(methods[i].name) != len || memcmp(methods[i].name, text, len)))
        i++;
    for (int k = 0; k < N_METHODS; k++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, k ? ", %s" : "%s", methods[k].name);
    }
    if (i == N_METHODS)
        return fail(err, PV_E_ARG,
                    "unknown lossy method '%.40s' (expected " PV_LOSSY_KV_FP8
                    ", or NAME:RATIO with %s)",
                    text, names);
    if (text[len] != ':' || !parse_ratio(text + len + 1, &p.ratio))
        return fail(err, PV_E_ARG,
                    "'%.40s': expected %s:RATIO, the share of the video's tokens that is pruned, 0 "
                    "to %g",
                    text, methods[i].name, most_ratio);
    if (n_layers == 1)
        return fail(err, PV_E_UNSUPPORTED, "lossy pruning needs a model of at least 2 layers");
    snprintf(p.name, sizeof p.name, "%s", methods[i].name);
    if (n_layers > 0)
        methods[i].plan(&p, n_layers);
    *out = p;
    return PV_OK;
}

int lossy_budget(int m, double keep)
{
    int n = view_floor(m * keep + 0.5); /* rounded, as FastV's code does */
    return n < 1 ? m < 1 ? m : 1 : n < m ? n : m;
}

static int compare_indices(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

enum pv_status lossy_highest(int *kept, const float *score, int n, int k, struct pv_error *err)
{
    struct marks marks;
    enum pv_status s = marks_open(&marks, 1, n, err);
    if (s)
        return s;
    for (int i = 0; i < n; i++)
        marks.rank[i] = (struct ranked){ (double)score[i], i };
    rank_falling(marks.rank, n);
    for (int i = 0; i < k; i++)
        kept[i] = marks.rank[i].index;
    qsort(kept, (size_t)k, sizeof *kept, compare_indices);
    marks_close(&marks);
    return PV_OK;
}

bool lossy_turned(const float *before, const float *now, int n)
{
    double dot = 0, a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        dot += (double)before[i] * now[i];
        a += (double)before[i] * before[i];
        b += (double)now[i] * now[i];
    }
    return !(dot >= turned_below * sqrt(a) * sqrt(b));
}
