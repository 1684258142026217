/* Two lists that only grow at their end and are cut there, each with the place of every row of the
 * cache in it: with a long video nearly all rows have none. */
#include "lm/states.h"

#include "base/mem.h"

#include <string.h>

/* Without features of layers it is one: the state after the last norm. */
static int count_features(struct head_features f)
{
    return f.n > 0 ? f.n : 1;
}

static enum pv_status list_open(struct state_list *l, int context, int n_features,
                                struct pv_error *err)
{
    size_t size = (size_t)context * sizeof *l->place;
    l->n_features = n_features;
    l->place = mem_alloc(size);
    return l->place ? PV_OK : fail_nomem(err, size);
}

static void list_close(struct state_list *l)
{
    mem_free(l->place);
    for (int k = 0; k < l->n_features; k++)
        mem_free(l->rows[k]);
    *l = (struct state_list){ 0 };
}

/* Room for n rows in all. */
static enum pv_status list_reserve(struct state_list *l, int n, int hidden, struct pv_error *err)
{
    int cap = n > l->cap + l->cap / 2 ? n : l->cap + l->cap / 2;
    size_t size = (size_t)cap * (size_t)hidden * sizeof *l->rows[0];
    if (n <= l->cap)
        return PV_OK;
    for (int k = 0; k < l->n_features; k++) {
        float *rows = mem_realloc(l->rows[k], size);
        if (!rows)
            return fail_nomem(err, size);
        l->rows[k] = rows;
    }
    l->cap = cap;
    return PV_OK;
}

/* Where the next row of a feature goes. */
static float *list_end(const struct state_list *l, int k, int hidden)
{
    return l->rows[k] + (size_t)l->n * (size_t)hidden;
}

static void list_truncate(struct state_list *l, int from, int to)
{
    for (int i = from; i < to; i++)
        l->n -= l->place[i] >= 0;
}

enum pv_status states_open(struct states *s, int context, int hidden, struct head_features features,
                           int max_rows, struct pv_error *err)
{
    size_t rows = (size_t)max_rows * sizeof *s->rows[0];
    enum pv_status st;
    *s = (struct states){
        .hidden = hidden, .context = context, .features = features, .max_rows = max_rows
    };
    pthread_mutex_init(&s->lock, NULL);
    st = list_open(&s->post, context, count_features(features), err);
    if (!st)
        st = list_open(&s->mid, context, 1, err);
    for (int i = 0; i < 2 && !st; i++) {
        s->rows[i] = mem_alloc(rows);
        if (!s->rows[i])
            st = fail_nomem(err, rows);
    }
    if (st)
        states_close(s);
    return st;
}

void states_close(struct states *s)
{
    if (s->hidden > 0)
        pthread_mutex_destroy(&s->lock);
    list_close(&s->post);
    list_close(&s->mid);
    for (int i = 0; i < 2; i++)
        mem_free(s->rows[i]);
    *s = (struct states){ 0 };
}

size_t states_width(const struct states *s)
{
    return (size_t)s->post.n_features * (size_t)s->hidden;
}

size_t states_size(const struct states *s)
{
    return ((size_t)s->post.cap * states_width(s) + (size_t)s->mid.cap * (size_t)s->hidden) *
               sizeof(float) +
           2 * ((size_t)s->context + (size_t)s->max_rows) * sizeof(int);
}

size_t states_row_size(int hidden, struct head_features features)
{
    size_t rows = (size_t)count_features(features) + 1; /* and that of a media row */
    return rows * (size_t)hidden * sizeof(float) + 2 * sizeof(int);
}

void states_want(struct states *s, bool all, int layer)
{
    bool more = (all && !s->all) || (layer > 0 && layer != s->layer);
    s->all = s->all || all;
    s->layer = layer > 0 ? layer : s->layer;
    if (more)
        states_truncate(s, 0);
}

void states_truncate(struct states *s, int n)
{
    if (n >= s->n)
        return;
    list_truncate(&s->post, n, s->n);
    list_truncate(&s->mid, n, s->n);
    s->n = n;
}

/* The state after the norm is for the token that follows; of what follows the last row, nobody
 * knows. */
static bool keeps_post(const struct states *s, const int32_t *ids, int n_line, int row)
{
    return s->all || row + 1 >= n_line || ids[row + 1] >= 0;
}

static bool keeps_mid(const struct states *s, const int32_t *ids, int row)
{
    return s->layer > 0 && ids[row] < 0;
}

static void count(const struct states *s, const int32_t *ids, int n, int *post, int *mid)
{
    *post = *mid = 0;
    for (int i = s->n; i < n; i++) {
        *post += keeps_post(s, ids, n, i);
        *mid += keeps_mid(s, ids, i);
    }
}

size_t states_need(const struct states *s, const int32_t *ids, int n, int more)
{
    int post, mid, most_post, most_mid;
    count(s, ids, n, &post, &mid);
    most_post = s->post.n + post + more - s->post.cap;
    most_mid = s->mid.n + mid - s->mid.cap;
    return (size_t)(most_post > 0 ? most_post : 0) * states_width(s) +
           (size_t)(most_mid > 0 ? most_mid : 0) * (size_t)s->hidden;
}

enum pv_status states_reserve(struct states *s, const int32_t *ids, int n, int more,
                              struct pv_error *err)
{
    int post, mid;
    enum pv_status st;
    count(s, ids, n, &post, &mid);
    st = list_reserve(&s->post, s->post.n + post + more, s->hidden, err);
    return st ? st : list_reserve(&s->mid, s->mid.n + mid, s->hidden, err);
}

static enum pv_status list_take(struct state_list *l, const struct state_list *from, int n,
                                int hidden, struct pv_error *err)
{
    int rows = 0;
    enum pv_status s;
    for (int i = 0; i < n; i++)
        rows += from->place[i] >= 0;
    s = list_reserve(l, rows, hidden, err);
    if (s)
        return s;
    memcpy(l->place, from->place, (size_t)n * sizeof *l->place); /* rows only come at the end */
    for (int k = 0; k < l->n_features && rows > 0; k++)
        memcpy(l->rows[k], from->rows[k], (size_t)rows * (size_t)hidden * sizeof *l->rows[k]);
    l->n = rows;
    return PV_OK;
}

enum pv_status states_take(struct states *s, const struct states *from, int n, struct pv_error *err)
{
    enum pv_status st;
    states_truncate(s, 0);
    st = list_take(&s->post, &from->post, n, s->hidden, err);
    if (!st)
        st = list_take(&s->mid, &from->mid, n, s->hidden, err);
    s->n = st ? 0 : n;
    if (st)
        s->post.n = s->mid.n = 0;
    return st;
}

/* A tap of the k-th feature of the given rows. */
static struct hidden_tap tap_feature(const struct states *s, int k, const int *rows, int n,
                                     float *out)
{
    return (struct hidden_tap){ .post_norm = s->features.n == 0,
                                .layer = s->features.n == 0 ? 0 : s->features.layer[k] - 1,
                                .n_rows = n,
                                .rows = rows,
                                .out = out };
}

int states_tap(struct states *s, const int32_t *ids, int n_line, int from, int n,
               struct hidden_tap tap[STATES_MAX_TAPS])
{
    int post = 0, mid = 0, n_taps = 0;
    if (from != s->n || n > s->max_rows)
        return 0;
    for (int i = 0; i < n; i++) {
        if (keeps_post(s, ids, n_line, from + i))
            s->rows[0][post++] = i;
        if (keeps_mid(s, ids, from + i))
            s->rows[1][mid++] = i;
    }
    if (s->post.n + post > s->post.cap || s->mid.n + mid > s->mid.cap)
        return 0;
    for (int k = 0; k < s->post.n_features && post > 0; k++)
        tap[n_taps++] = tap_feature(s, k, s->rows[0], post, list_end(&s->post, k, s->hidden));
    if (mid > 0)
        tap[n_taps++] = (struct hidden_tap){ .layer = s->layer - 1,
                                             .n_rows = mid,
                                             .rows = s->rows[1],
                                             .out = list_end(&s->mid, 0, s->hidden) };
    return n_taps;
}

void states_ask(const struct states *s, struct step *step, int n, const int *rows, float *out,
                size_t plane, struct hidden_tap tap[STATES_MAX_TAPS])
{
    if (s->features.n == 0) {
        step->states = out;
        return;
    }
    for (int k = 0; k < s->features.n; k++)
        tap[k] = tap_feature(s, k, rows, n, out + (size_t)k * plane);
    step->n_hidden = s->features.n;
    step->hidden = tap;
}

void states_commit(struct states *s, const int32_t *ids, int n_line, int from, int n)
{
    int post, mid;
    if (from != s->n)
        return;
    post = s->post.n;
    mid = s->mid.n;
    for (int i = from; i < from + n; i++) {
        post += keeps_post(s, ids, n_line, i);
        mid += keeps_mid(s, ids, i);
    }
    if (post > s->post.cap || mid > s->mid.cap) /* there was no room, and no tap */
        return;
    for (int i = from; i < from + n; i++) {
        s->post.place[i] = keeps_post(s, ids, n_line, i) ? s->post.n++ : -1;
        s->mid.place[i] = keeps_mid(s, ids, i) ? s->mid.n++ : -1;
    }
    s->n = from + n;
}

enum pv_status states_add(struct states *s, int from, const float *from_rows, size_t plane,
                          const int *path, int n, struct pv_error *err)
{
    size_t hidden = (size_t)s->hidden;
    enum pv_status st;
    if (from != s->n)
        return PV_OK;
    pthread_mutex_lock(&s->lock);
    st = list_reserve(&s->post, s->post.n + n, s->hidden, err);
    for (int i = 0; i < n && !st; i++) {
        for (int k = 0; k < s->post.n_features; k++)
            memcpy(list_end(&s->post, k, s->hidden),
                   from_rows + (size_t)k * plane + (size_t)path[i] * hidden,
                   hidden * sizeof *from_rows);
        s->post.place[from + i] = s->post.n++;
        s->mid.place[from + i] = -1;
    }
    s->n += st ? 0 : n;
    pthread_mutex_unlock(&s->lock);
    return st;
}

int states_known(struct states *s)
{
    int n;
    pthread_mutex_lock(&s->lock);
    n = s->n;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool states_copy(struct states *s, int row, float *out)
{
    size_t hidden = (size_t)s->hidden;
    bool kept;
    pthread_mutex_lock(&s->lock);
    kept = states_feature(s, row, 0) != NULL;
    for (int k = 0; k < s->post.n_features && kept; k++)
        memcpy(out + (size_t)k * hidden, states_feature(s, row, k), hidden * sizeof *out);
    pthread_mutex_unlock(&s->lock);
    return kept;
}

static const float *list_row(const struct state_list *l, int row, int k, int hidden)
{
    return l->place[row] < 0 ? NULL : l->rows[k] + (size_t)l->place[row] * (size_t)hidden;
}

const float *states_feature(const struct states *s, int row, int k)
{
    return row < 0 || row >= s->n ? NULL : list_row(&s->post, row, k, s->hidden);
}

const float *states_mid(const struct states *s, int row)
{
    return row < 0 || row >= s->n ? NULL : list_row(&s->mid, row, 0, s->hidden);
}
