/* Proof of what chooses tokens on the device: the largest, the k largest with the mass of all, and
 * draws, which must be those of the host (lm/sampling.h), id for id. */
#include "check_cuda.h"

#include "lm/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int vocabulary(const struct cuda_check *t, int i)
{
    static const int dims[] = { 1, 2, 3, 31, 64, 100, 1001, 2048, 2049, 5003 };
    if (i >= (int)(sizeof dims / sizeof dims[0]))
        return 0;
    return t->full && dims[i] == 5003 ? MAX_VOCAB : dims[i];
}

/* Six rows of logits: normal, all alike, nothing possible, the last, two equal ones, with NaN. */
enum { N = 6 };

static float *logits_open(struct cuda_check *t, struct gbuf *g, int dim)
{
    float *x = normal_both(t, g, (size_t)N * (size_t)dim, 2);
    size_t d = (size_t)dim;
    for (size_t i = 0; i < d; i++) {
        x[d + i] = 1;
        x[2 * d + i] = -INFINITY;
        x[3 * d + i] = i == d - 1 ? 2.0f : -3.0f;
        if (i % 3 == 1)
            x[5 * d + i] = i % 2 ? NAN : -INFINITY;
        else if (i % 5 == 0)
            x[5 * d + i] = i % 2 ? 0.0f : -0.0f;
    }
    x[4 * d + d / 2] = x[4 * d + d / 3] = 100;
    gbuf_put(g, x, g->size);
    return x;
}

/* The argmax of n rows from `first` on, whose wait tells whether all their numbers are finite. */
static void argmax_waits(struct cuda_check *t, struct gbuf *ids, const struct gbuf *gx,
                         const float *x, int first, int n, int dim)
{
    size_t from = (size_t)first * (size_t)dim;
    enum pv_status want = PV_OK, got;
    struct pv_error err = { 0 };
    for (size_t i = from; i < from + (size_t)n * (size_t)dim; i++)
        want = isfinite(x[i]) ? want : PV_E_NOT_FINITE;
    t->ops->argmax(t->w, ids->p, (const float *)gx->p + from, n, dim);
    got = t->ops->wait(t->w, &err);
    if (got != want || (want && strcmp(err.text, DEVICE_NOT_FINITE) != 0))
        check_fail(&t->c, "dim %d: rows %d to %d: waiting gave %d \"%s\"", dim, first,
                   first + n - 1, (int)got, err.text);
}

static void check_argmax(struct cuda_check *t)
{
    for (int l = 0, dim; (dim = vocabulary(t, l)) > 0; l++) {
        struct gbuf gx, gi;
        float *x = logits_open(t, &gx, dim);
        int32_t got[N];
        gbuf_open(t, &gi, sizeof got);
        argmax_waits(t, &gi, &gx, x, 0, 2, dim);
        argmax_waits(t, &gi, &gx, x, 5, 1, dim);
        argmax_waits(t, &gi, &gx, x, 3, 2, dim);
        argmax_waits(t, &gi, &gx, x, 0, N - 1, dim);
        gbuf_get(&gi, got, sizeof got);
        for (int r = 0; r < N - 1; r++) {
            const float *v = x + (size_t)r * (size_t)dim;
            int best = 0;
            for (int i = 1; i < dim; i++)
                if (v[i] > v[best])
                    best = i;
            if (got[r] != best)
                check_fail(&t->c, "dim %d: row %d has its largest at %d, not %d", dim, r,
                           (int)got[r], best);
        }
        gbuf_close(&gx);
        gbuf_close(&gi);
        free(x);
    }
}

/* ---- the k largest ---- */

static int falling(const void *a, const void *b)
{
    const struct top_entry *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void compare_top(struct cuda_check *t, const struct top_entry *got, float mass,
                        const float *x, int dim, int k, float temperature)
{
    struct top_entry *all = malloc(sizeof *all * (size_t)dim);
    double sum = 0, want;
    int n = 0;
    for (int i = 0; i < dim; i++)
        if (!isnan(x[i]))
            all[n++] = (struct top_entry){ x[i], i };
    qsort(all, (size_t)n, sizeof *all, falling);
    for (int i = 0; i < k; i++) {
        int32_t id = i < n ? all[i].id : -1;
        if (got[i].id != id || (id >= 0 && got[i].logit != all[i].logit))
            check_fail(&t->c, "dim %d k %d: number %d is %d (%g), not %d (%g)", dim, k, i,
                       (int)got[i].id, got[i].logit, (int)id, i < n ? all[i].logit : NAN);
    }
    for (int i = 0; i < n && all[0].logit > -INFINITY; i++)
        sum += exp(((double)all[i].logit - all[0].logit) / temperature);
    want = sum > 0 ? all[0].logit / temperature + log(sum) : 0;
    if (sum > 0 && !(fabs(mass - want) <= 1e-5 * (1 + fabs(want))))
        check_fail(&t->c, "dim %d k %d: mass %.7g, not %.7g", dim, k, mass, want);
    free(all);
}

static void check_top(struct cuda_check *t)
{
    static const int ks[] = { 1, 3, 10, DEVICE_MAX_TOP };
    for (int l = 0, dim; (dim = vocabulary(t, l)) > 0; l++) {
        struct gbuf gx, go, gm;
        float *x = logits_open(t, &gx, dim), mass[N], alone[N];
        struct top_entry got[N * DEVICE_MAX_TOP], one[N * DEVICE_MAX_TOP];
        gbuf_open(t, &gm, sizeof mass);
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            int k = ks[i];
            float temperature = i % 2 ? 0.7f : 1;
            size_t size = sizeof *got * (size_t)(N * k);
            gbuf_open(t, &go, size);
            t->ops->top(t->w, go.p, gm.p, gx.p, N, dim, k, temperature);
            check_wait(t, t->w);
            gbuf_get(&go, got, size);
            gbuf_get(&gm, mass, sizeof mass);
            for (int r = 0; r < N; r++) {
                const float *v = x + (size_t)r * (size_t)dim;
                compare_top(t, got + r * k, mass[r], v, dim, k, temperature);
                t->ops->top(t->w, (struct top_entry *)go.p + r * k, (float *)gm.p + r,
                            (float *)gx.p + (size_t)r * (size_t)dim, 1, dim, k, temperature);
            }
            gbuf_get(&go, one, size);
            gbuf_get(&gm, alone, sizeof alone);
            if (memcmp(one, got, size) || memcmp(alone, mass, sizeof mass))
                check_fail(&t->c, "dim %d k %d: rows alone give other bits", dim, k);
            gbuf_close(&go);
        }
        gbuf_close(&gx);
        gbuf_close(&gm);
        free(x);
    }
}

/* ---- the next level of a tree ---- */

enum { GROWN = 1 + 2 * DEVICE_MAX_LEVEL }; /* rows: the root, the level that ran and the next */

/* A tree of three levels on both sides. */
struct grown {
    struct top_entry top[GROWN * DEVICE_MAX_LEVEL];
    float mass[GROWN], score[GROWN];
    int32_t next[DEVICE_MAX_LEVEL], id[GROWN], above[GROWN];
};

static float path_score(const struct grown *g, int candidate, int k)
{
    int row = candidate / k;
    double p = (double)g->top[candidate].logit - (double)g->mass[row];
    return (row > 0 ? g->score[row] : 0) + (float)fmin(p, 0);
}

/* One after another the best candidate that is left, the first among equals. */
static void grow_plainly(struct grown *g, const struct grow_job *j)
{
    bool taken[GROWN * DEVICE_MAX_LEVEL] = { 0 };
    int from = j->row0 * j->k, to = from + j->n * j->k, row = j->row0 + j->n;
    for (int i = 0; i < j->n_next; i++) {
        int best = -1;
        for (int c = from; c < to; c++)
            if (!taken[c] && g->top[c].id >= 0 &&
                (best < 0 || path_score(g, c, j->k) > path_score(g, best, j->k)))
                best = c;
        if (best >= 0)
            taken[best] = true;
    }
    for (int c = from; c < to; c++)
        if (taken[c]) {
            g->id[row] = g->top[c].id;
            g->score[row] = path_score(g, c, j->k);
            g->above[row++] = c / j->k;
        }
    for (; row < j->row0 + j->n + j->n_next; row++) {
        g->id[row] = g->above[row] = 0;
        g->score[row] = -INFINITY;
    }
}

/* Few different numbers, so that many candidates are equal; some are missing. */
static void fill_grown(struct cuda_check *t, struct grown *g, int k)
{
    memset(g, 0, sizeof *g);
    for (int r = 0; r < GROWN; r++) {
        int real = rng_next(&t->c.rng) % 4 ? k : (int)(rng_next(&t->c.rng) % (uint64_t)(k + 1));
        g->mass[r] = 4 + (float)(rng_next(&t->c.rng) % 3);
        g->score[r] = -(float)(rng_next(&t->c.rng) % 3);
        for (int c = 0; c < k; c++)
            g->top[r * k + c] =
                (struct top_entry){ (float)(rng_next(&t->c.rng) % 5), c < real ? r * 50 + c : -1 };
    }
}

static void compare_grown(struct cuda_check *t, const struct grown *got, const struct grown *want,
                          const struct grow_job *j)
{
    int first = j->row0 + j->n;
    for (int i = 0; i < j->n_next; i++)
        if (got->next[i] != want->id[first + i] || got->id[first + i] != want->id[first + i] ||
            got->above[first + i] != want->above[first + i] ||
            (!j->named && got->score[first + i] != want->score[first + i]))
            check_fail(&t->c,
                       "k %d, %d of %d rows: row %d is %d below %d (%g), not %d below %d (%g)",
                       j->k, j->n_next, j->n, i, (int)got->id[first + i],
                       (int)got->above[first + i], got->score[first + i], (int)want->id[first + i],
                       (int)want->above[first + i], want->score[first + i]);
}

static void grow_once(struct cuda_check *t, struct gbuf *b, int k, int n, int n_next, bool named)
{
    static struct grown want, got;
    static const int parents[GROWN];
    static const int32_t page[2];
    struct kv_layer kv = { .dtype = DTYPE_BF16, .n_kv = 1, .d = 64, .cap = KV_CHUNK, .page = page };
    struct attn_run runs[3] = {
        { .n = 1, .kv = &kv },
        { .n = n, .first_slot = 1, .parent = parents, .kv = &kv },
        { .n = n_next, .first_slot = 1, .parent = parents, .pending = n, .kv = &kv }
    };
    struct work_plan plan = { .n_runs = 1, .runs = runs, .n_levels = 3 };
    struct grown *there = b->p;
    struct grow_job j = { .top = there->top,
                          .mass = there->mass,
                          .k = k,
                          .row0 = 1,
                          .n = n,
                          .n_next = n_next,
                          .named = named,
                          .next = there->next,
                          .id = there->id,
                          .score = there->score,
                          .above = there->above };
    fill_grown(t, &want, k);
    for (int i = 0; i < n_next; i++)
        want.next[i] = (int32_t)(rng_next(&t->c.rng) % (uint64_t)((1 + n) * k));
    gbuf_put(b, &want, sizeof want);
    t->ops->begin(t->w, &plan);
    t->ops->grow(t->w, &j);
    t->ops->end(t->w);
    check_wait(t, t->w);
    gbuf_get(b, &got, sizeof got);
    for (int i = 0; named && i < n_next; i++) {
        want.id[1 + n + i] = want.top[want.next[i]].id < 0 ? 0 : want.top[want.next[i]].id;
        want.above[1 + n + i] = want.next[i] / k;
    }
    if (!named)
        grow_plainly(&want, &j);
    compare_grown(t, &got, &want, &j);
}

static void check_grow(struct cuda_check *t)
{
    struct gbuf b;
    gbuf_open(t, &b, sizeof(struct grown));
    for (int i = 0; i < (t->full ? 200 : 40); i++) {
        int k = 1 + (int)(rng_next(&t->c.rng) % DEVICE_MAX_LEVEL);
        int n = 1 + (int)(rng_next(&t->c.rng) % DEVICE_MAX_LEVEL);
        int next = 1 + (int)(rng_next(&t->c.rng) % DEVICE_MAX_LEVEL);
        grow_once(t, &b, i == 0 ? DEVICE_MAX_LEVEL : k, i == 0 ? DEVICE_MAX_LEVEL : n, next,
                  i % 4 == 3);
    }
    gbuf_close(&b);
}

/* ---- draws ---- */

static void check_draws(struct cuda_check *t)
{
    for (int l = 0, dim; (dim = vocabulary(t, l)) > 0; l++) {
        struct gbuf gx, gi, gp;
        float *x = logits_open(t, &gx, dim);
        struct candidate *scratch = malloc(sizeof *scratch * (size_t)dim);
        gbuf_open(t, &gi, sizeof(int32_t) * N);
        gbuf_open(t, &gp, sizeof(uint64_t) * N);
        for (int k = 0; k < (t->full ? 40 : 8); k++) {
            struct sampling s = { .temperature = k % 3 ? 0.4f + 0.1f * (float)k : 1,
                                  .top_p = 1,
                                  .seed = rng_next(&t->c.rng) };
            uint64_t position[N];
            int32_t got[N];
            for (int r = 0; r < N; r++)
                position[r] = (uint64_t)(k * 1000 + r * r);
            gbuf_put(&gp, position, sizeof position);
            t->ops->draw_token(t->w, gi.p, gx.p, N, dim, gp.p, s.seed, s.temperature);
            check_wait(t, t->w);
            gbuf_get(&gi, got, sizeof got);
            for (int r = 0; r < N; r++) {
                const float *v = x + (size_t)r * (size_t)dim;
                int32_t want = sample_token(v, dim, &s, position[r], scratch);
                if (got[r] != want)
                    check_fail(&t->c, "dim %d, T %g: row %d draws %d, not %d", dim, s.temperature,
                               r, (int)got[r], (int)want);
            }
        }
        gbuf_close(&gx);
        gbuf_close(&gi);
        gbuf_close(&gp);
        free(x);
        free(scratch);
    }
}

void check_cuda_tokens(struct cuda_check *t)
{
    static const struct {
        const char *name;
        void (*run)(struct cuda_check *t);
    } tests[] = { { "argmax", check_argmax },
                  { "top", check_top },
                  { "grow", check_grow },
                  { "draws", check_draws } };
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (!check_begin(&t->c, tests[i].name, ""))
            continue;
        tests[i].run(t);
        check_end(&t->c);
    }
}
