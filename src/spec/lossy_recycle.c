/* SparseVLM: which rows of text rate the video's tokens, and what becomes of tokens that go.
 *
 * Recycling: of the tokens that a stage drops, the 30 % with the highest scores are clustered, to
 * one cluster for ten of them and one more. Density peaks: a row's density is exp(- mean of its
 * squared distances to its 5 nearest neighbours); a centre is dense and far from any denser row
 * (the product of both counts); every other row belongs to the nearest centre, and a cluster
 * becomes the mean of its rows. Published code adds noise to break ties; here the lower index comes
 * first. */
#include "base/mem.h"
#include "spec/lossy.h"
#include "spec/view_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEIGHBOURS = 5, LANES = 8 };
static const double recycled_share = 0.3, rows_of_cluster = 10;

static float dot(const float *a, const float *b, int n)
{
    float sum[LANES] = { 0 }, all = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sum[k] += a[i + k] * b[i + k];
    for (int k = 0; k < LANES; k++)
        all += sum[k];
    for (; i < n; i++)
        all += a[i] * b[i];
    return all;
}

/* ---- raters ---- */

/* weight[i] += softmax over i of text[i] . row */
static void add_softmax(double *weight, double *product, const float *text, int n_text,
                        const float *row, int width)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n_text; i++) {
        product[i] = (double)dot(text + (size_t)i * (size_t)width, row, width);
        max = product[i] > max ? product[i] : max;
    }
    for (int i = 0; i < n_text; i++) {
        product[i] = exp(product[i] - max);
        sum += product[i];
    }
    for (int i = 0; i < n_text; i++)
        weight[i] += product[i] / sum;
}

enum pv_status lossy_raters(bool *rates, const float *text, int n_text, const float *video,
                            int n_video, int width, struct pv_error *err)
{
    size_t size = 2 * (size_t)n_text * sizeof(double);
    double *weight = mem_zalloc(size), mean = (double)n_video / n_text;
    if (!weight)
        return fail_nomem(err, size);
    for (int v = 0; v < n_video; v++)
        add_softmax(weight, weight + n_text, text, n_text, video + (size_t)v * (size_t)width,
                    width);
    for (int i = 0; i < n_text; i++) /* their mean, but for rounding */
        rates[i] = weight[i] >= mean * (1 - 1e-12);
    mem_free(weight);
    return PV_OK;
}

/* ---- recycling ---- */

struct lossy_recycling lossy_recycle(int m, int budget)
{
    int clustered = view_floor((m - budget) * recycled_share);
    int clusters = (int)(clustered / rows_of_cluster) + 1;
    if (clustered < 2 || clusters >= budget)
        return (struct lossy_recycling){ .kept = budget };
    return (struct lossy_recycling){ .kept = budget - clusters,
                                     .clustered = clustered,
                                     .clusters = clusters };
}

struct clustering {
    float *distance; /* [n, n], squared, of a number of the row */
    double *density; /* [n] */
    struct ranked *rank;
    int *of; /* [n]: the row's centre */
    bool *is_centre;
};

static void clustering_clear(struct clustering *c)
{
    mem_free(c->distance);
    mem_free(c->density);
    mem_free(c->rank);
    mem_free(c->of);
    mem_free(c->is_centre);
}

static enum pv_status clustering_open(struct clustering *c, int n, struct pv_error *err)
{
    size_t rows = (size_t)n, size = 0;
    *c = (struct clustering){ 0 };
    if (mul_size(rows, rows, &size) && mul_size(size, sizeof *c->distance, &size))
        c->distance = mem_alloc(size);
    c->density = mem_alloc(rows * sizeof *c->density);
    c->rank = mem_alloc(rows * sizeof *c->rank);
    c->of = mem_alloc(rows * sizeof *c->of);
    c->is_centre = mem_zalloc(rows * sizeof *c->is_centre);
    if (c->distance && c->density && c->rank && c->of && c->is_centre)
        return PV_OK;
    clustering_clear(c);
    return fail_nomem(err, size);
}

static void measure_distances(struct clustering *c, const float *rows, int n, int width)
{
    for (int i = 0; i < n; i++)
        c->density[i] =
            (double)dot(rows + (size_t)i * (size_t)width, rows + (size_t)i * (size_t)width, width);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double d = c->density[i] + c->density[j] -
                       2 * (double)dot(rows + (size_t)i * (size_t)width,
                                       rows + (size_t)j * (size_t)width, width);
            d = i == j || d < 0 ? 0 : d / width;
            c->distance[(size_t)i * (size_t)n + (size_t)j] = (float)d;
            c->distance[(size_t)j * (size_t)n + (size_t)i] = (float)d;
        }
}

/* exp(- mean over the nearest rows, the row itself among them). */
static double find_density(const float *distance, int n)
{
    double nearest[NEIGHBOURS], sum = 0;
    int k = 0;
    for (int j = 0; j < n; j++) {
        double d = (double)distance[j];
        int at;
        if (k == NEIGHBOURS && d >= nearest[k - 1])
            continue;
        for (at = k < NEIGHBOURS ? k++ : k - 1; at > 0 && nearest[at - 1] > d; at--)
            nearest[at] = nearest[at - 1];
        nearest[at] = d;
    }
    for (int i = 0; i < k; i++)
        sum += nearest[i];
    return exp(-sum / k);
}

/* Centres: dense, and far from what is denser. */
static void choose_centres(struct clustering *c, int n, int n_clusters)
{
    for (int i = 0; i < n; i++)
        c->density[i] = find_density(c->distance + (size_t)i * (size_t)n, n);
    for (int i = 0; i < n; i++) {
        const float *distance = c->distance + (size_t)i * (size_t)n;
        double far = 0, near = INFINITY;
        for (int j = 0; j < n; j++) {
            bool denser =
                c->density[j] > c->density[i] || (c->density[j] == c->density[i] && j < i);
            far = (double)distance[j] > far ? (double)distance[j] : far;
            if (denser && (double)distance[j] < near)
                near = (double)distance[j];
        }
        c->rank[i] = (struct ranked){ sqrt(near < INFINITY ? near : far) * c->density[i], i };
    }
    rank_falling(c->rank, n);
    for (int k = 0; k < n_clusters; k++)
        c->is_centre[c->rank[k].index] = true;
}

static void assign_rows(struct clustering *c, int n)
{
    for (int i = 0; i < n; i++) {
        const float *distance = c->distance + (size_t)i * (size_t)n;
        c->of[i] = i;
        for (int j = 0, best = -1; j < n && !c->is_centre[i]; j++)
            if (c->is_centre[j] && (best < 0 || distance[j] < distance[best]))
                c->of[i] = best = j;
    }
}

static void average_rows(const struct clustering *c, float *rows, int n, int width)
{
    for (int i = 0; i < n; i++) {
        float *to = rows + (size_t)i * (size_t)width;
        int members = 1;
        if (!c->is_centre[i])
            continue;
        for (int j = 0; j < n; j++) {
            const float *from = rows + (size_t)j * (size_t)width;
            if (j == i || c->of[j] != i)
                continue;
            for (int k = 0; k < width; k++)
                to[k] += from[k];
            members++;
        }
        for (int k = 0; k < width; k++)
            to[k] /= (float)members;
    }
}

enum pv_status lossy_cluster(float *rows, int n, int width, int n_clusters, int *centre,
                             struct pv_error *err)
{
    struct clustering c;
    int found = 0;
    enum pv_status s = clustering_open(&c, n, err);
    if (s)
        return s;
    measure_distances(&c, rows, n, width);
    choose_centres(&c, n, n_clusters);
    assign_rows(&c, n);
    average_rows(&c, rows, n, width);
    for (int i = 0; i < n; i++)
        if (c.is_centre[i])
            centre[found++] = i;
    clustering_clear(&c);
    return PV_OK;
}
