/* The rig and the reference of check_cuda_layer.h. */
#include "check_cuda_layer.h"

#include "tensor/f8.h"

#include "larger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

static bool open_matrices(struct rig *g, const struct rig_shape *s, enum dtype type,
                          enum rig_kind kind)
{
    int q = s->n_heads * s->d, kv = s->n_kv * s->d;
    const struct {
        struct cuda_matrix_pair *p;
        int in, out;
        bool bias, given;
    } parts[] = { { &g->q, s->hidden, q, s->bias, false },
                  { &g->k, s->hidden, kv, s->bias, false },
                  { &g->v, s->hidden, kv, s->bias, false },
                  { &g->gate, s->hidden, s->ffn, s->bias, false },
                  { &g->up, s->hidden, s->ffn, s->bias, false },
                  { &g->o, q, s->hidden, false, kind == RIG_ATTENTION },
                  { &g->down, s->ffn, s->hidden, false, kind == RIG_ATTENTION } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int in = parts[i].in, out = parts[i].out;
        if (parts[i].given) {
            float *w = calloc((size_t)in * (size_t)out, sizeof *w);
            for (int j = 0; j < out && i == 5; j++)
                w[(size_t)j * (size_t)in + (size_t)(j % in)] = 1;
            pair_from(g->t, parts[i].p, w, in, out);
            free(w);
        } else if (!pair_open(g->t, parts[i].p, type, in, out, parts[i].bias, PAIR_TAME)) {
            return false;
        }
    }
    return true;
}

static float *open_norm(struct rig *g, struct gbuf *b, int n, float size, bool wanted)
{
    if (!wanted)
        return NULL;
    float *w = normal_floats(g->t, (size_t)n, 0.3f);
    for (int i = 0; i < n; i++)
        w[i] = size * (w[i] + 1);
    gbuf_open(g->t, b, sizeof *w * (size_t)n);
    gbuf_put(b, w, b->size);
    return w;
}

/* Weights of about 0.1 (random_rows) and norms of 1 give scores of some units, so that softmax is
 * neither flat nor a choice; with long rows of the weights the norms are smaller for it. (Scores of
 * 40 would make a choice between two keys, and a query rounded the other way another choice.)
 * Blocks are wilder: their scales are as random_rows has them. */
static void open_norms(struct rig *g, bool norms)
{
    float size = g->s.hidden > 256 ? sqrtf(256 / (float)g->s.hidden) : 1;
    g->attn_norm = open_norm(g, &g->norm[0], g->s.hidden, size, true);
    g->ffn_norm = open_norm(g, &g->norm[1], g->s.hidden, size, true);
    g->q_norm = open_norm(g, &g->norm[2], g->s.head_dim, 1, norms);
    g->k_norm = open_norm(g, &g->norm[3], g->s.head_dim, 1, norms);
    g->w = (struct layer_weights){ .attn_norm = g->norm[0].p,
                                   .ffn_norm = g->norm[1].p,
                                   .q_norm = g->norm[2].p,
                                   .k_norm = g->norm[3].p,
                                   .q = g->q.m,
                                   .k = g->k.m,
                                   .v = g->v.m,
                                   .o = g->o.m,
                                   .gate = g->gate.m,
                                   .up = g->up.m,
                                   .down = g->down.m };
}

/* ---- reference ---- */

static void ref_norm(double *y, const double *x, const float *w, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    double scale = 1 / sqrt(sum / n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

static double angle(const struct rig *g, int pos, int j)
{
    return pos * pow(10000, -2.0 * j / g->s.head_dim);
}

static void ref_turn(const struct rig *g, double *x, const float *norm, int heads, int pos)
{
    int d = g->s.head_dim, half = d / 2;
    for (int h = 0; h < heads; h++) {
        double *v = x + h * d;
        if (norm)
            ref_norm(v, v, norm, d, (double)g->s.eps);
        for (int j = 0; j < half; j++) {
            double c = (double)(float)cos(angle(g, pos, j)), a = v[j], b = v[j + half];
            double s = (double)(float)sin(angle(g, pos, j));
            v[j] = a * c - b * s;
            v[j + half] = b * c + a * s;
        }
    }
}

static void ref_token(struct rig *g, int i)
{
    int hidden = g->s.hidden, d = g->s.head_dim, q = g->s.n_heads * d, kv = g->s.n_kv_heads * d;
    double *x = malloc(sizeof *x * (size_t)hidden);
    double *rq = g->ref_q + (size_t)i * (size_t)q, *rk = g->ref_k + (size_t)i * (size_t)kv;
    double *rv = g->ref_v + (size_t)i * (size_t)kv;
    for (int j = 0; j < hidden; j++)
        x[j] = g->token[(size_t)i * (size_t)hidden + (size_t)j];
    ref_norm(x, x, g->attn_norm, hidden, (double)g->s.eps);
    pair_product(&g->q, rq, x, i < g->n_bulk);
    pair_product(&g->k, rk, x, i < g->n_bulk);
    pair_product(&g->v, rv, x, i < g->n_bulk);
    ref_turn(g, rq, g->q_norm, g->s.n_heads, g->pos[i]);
    ref_turn(g, rk, g->k_norm, g->s.n_kv_heads, g->pos[i]);
    for (int j = 0; j < q; j++)
        rq[j] = bf16_round(rq[j]);
    for (int j = 0; j < kv && !g->f8; j++) {
        rk[j] = bf16_round(rk[j]);
        rv[j] = bf16_round(rv[j]);
    }
    free(x);
}

void ref_probabilities(const struct rig *g, double *p, int token, int head, const int *list, int n)
{
    int d = g->s.head_dim, group = g->s.n_heads / g->s.n_kv_heads;
    const double *q = g->ref_q + ((size_t)token * (size_t)g->s.n_heads + (size_t)head) * (size_t)d;
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        const double *k =
            g->ref_k +
            ((size_t)list[i] * (size_t)g->s.n_kv_heads + (size_t)(head / group)) * (size_t)d;
        p[i] = 0;
        for (int j = 0; j < d; j++)
            p[i] += q[j] * k[j];
        p[i] /= sqrt(d);
        most = larger(most, p[i]);
    }
    for (int i = 0; i < n; i++)
        sum += p[i] = exp(p[i] - most);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

void ref_attention(const struct rig *g, double *att, const int *path, int n)
{
    int d = g->s.head_dim, group = g->s.n_heads / g->s.n_kv_heads;
    double *p = malloc(sizeof *p * (size_t)n);
    for (int h = 0; h < g->s.n_heads; h++) {
        ref_probabilities(g, p, path[n - 1], h, path, n);
        for (int j = 0; j < d; j++) {
            double sum = 0;
            for (int i = 0; i < n; i++)
                sum += p[i] *
                       g->ref_v[((size_t)path[i] * (size_t)g->s.n_kv_heads + (size_t)(h / group)) *
                                    (size_t)d +
                                (size_t)j];
            att[h * d + j] = sum;
        }
    }
    free(p);
}

void ref_layer(const struct rig *g, double *out, const int *path, int n)
{
    int hidden = g->s.hidden, ffn = g->s.ffn, q = g->s.n_heads * g->s.head_dim;
    double *x = malloc(sizeof *x * (size_t)hidden), *att = malloc(sizeof *att * (size_t)q);
    double *a = malloc(sizeof *a * (size_t)ffn), *b = malloc(sizeof *b * (size_t)ffn);
    bool bulk = path[n - 1] < g->n_bulk;
    ref_attention(g, att, path, n);
    pair_product(&g->o, out, att, bulk);
    for (int i = 0; i < hidden; i++)
        out[i] += g->token[(size_t)path[n - 1] * (size_t)hidden + (size_t)i];
    ref_norm(x, out, g->ffn_norm, hidden, (double)g->s.eps);
    pair_product(&g->gate, a, x, bulk);
    pair_product(&g->up, b, x, bulk);
    for (int i = 0; i < ffn; i++)
        a[i] = a[i] / (1 + exp(-a[i])) * b[i];
    pair_product(&g->down, x, a, bulk);
    for (int i = 0; i < hidden; i++)
        out[i] += x[i];
    free(x);
    free(att);
    free(a);
    free(b);
}

/* ---- the rig ---- */

static void open_tokens(struct rig *g, int n)
{
    size_t q = (size_t)(g->s.n_heads * g->s.head_dim),
           kv = (size_t)(g->s.n_kv_heads * g->s.head_dim);
    g->n_tokens = n;
    g->token = normal_floats(g->t, (size_t)n * (size_t)g->s.hidden, 1);
    g->pos = malloc(sizeof *g->pos * (size_t)n);
    g->ref_q = malloc(sizeof(double) * (size_t)n * q);
    g->ref_k = malloc(sizeof(double) * (size_t)n * kv);
    g->ref_v = malloc(sizeof(double) * (size_t)n * kv);
    for (int i = 0; i < n; i++)
        g->pos[i] = i;
}

bool rig_open(struct rig *g, struct cuda_check *t, const struct rig_shape *shape, enum dtype type,
              enum rig_kind kind, int max_rows, int context, int n_tokens)
{
    int q = shape->n_heads * shape->d, in = shape->hidden > shape->ffn ? shape->hidden : shape->ffn;
    struct work_shape ws = { .rows = max_rows,
                             .in = in > q ? in : q,
                             .n_heads = shape->n_heads,
                             .n_kv_heads = shape->n_kv,
                             .head_dim = shape->d,
                             .context = context,
                             .kv_dtype = shape->f8 ? DTYPE_F8 : DTYPE_BF16,
                             .hidden = shape->hidden,
                             .ffn = shape->ffn };
    struct pv_error err = { 0 };
    size_t half = (size_t)shape->d / 2, f = sizeof(float), rows = (size_t)max_rows;
    *g = (struct rig){ .t = t, .max_rows = max_rows, .f8 = shape->f8 };
    g->s = (struct layer_shape){ .hidden = shape->hidden,
                                 .ffn = shape->ffn,
                                 .n_heads = shape->n_heads,
                                 .n_kv_heads = shape->n_kv,
                                 .head_dim = shape->d,
                                 .eps = 1e-6f };
    if (!open_matrices(g, shape, type, kind)) {
        rig_close(g);
        return false;
    }
    open_norms(g, shape->norms);
    open_tokens(g, n_tokens);
    gbuf_open(t, &g->x, f * rows * (size_t)shape->hidden);
    gbuf_open(t, &g->cos, f * rows * half);
    gbuf_open(t, &g->sin, f * rows * half);
    gbuf_open(t, &g->rows, sizeof(int32_t) * rows);
    seq_pool_open(g, &g->pool, 5 * (context / KV_CHUNK + 1) + 3);
    check_must(t->ops->work_open(t->dev, &g->work, &ws, &err), &err);
    return true;
}

void rig_close(struct rig *g)
{
    struct cuda_matrix_pair *all[] = { &g->q, &g->k, &g->v, &g->o, &g->gate, &g->up, &g->down };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_close(g->t, all[i]);
    for (int i = 0; i < 4; i++)
        gbuf_close(&g->norm[i]);
    if (g->work)
        g->t->ops->work_close(g->t->dev, &g->work);
    gbuf_close(&g->x);
    gbuf_close(&g->cos);
    gbuf_close(&g->sin);
    gbuf_close(&g->rows);
    seq_pool_close(&g->pool);
    free(g->attn_norm);
    free(g->ffn_norm);
    free(g->q_norm);
    free(g->k_norm);
    free(g->token);
    free(g->pos);
    free(g->ref_q);
    free(g->ref_k);
    free(g->ref_v);
    *g = (struct rig){ 0 };
}

void rig_reference(struct rig *g)
{
    for (int i = 0; i < g->n_tokens; i++)
        ref_token(g, i);
}

/* ---- pages ---- */

enum { OTHER_LAYERS = 512 }; /* bytes at the beginning of a page */

static size_t page_size(const struct seq_pool *p)
{
    return OTHER_LAYERS + 2 * p->half;
}

void seq_pool_open(struct rig *g, struct seq_pool *p, int n)
{
    *p = (struct seq_pool){ .n = n, .n_free = n };
    p->half = (size_t)g->s.n_kv_heads * kv_head_size(g->f8 ? DTYPE_F8 : DTYPE_BF16, g->s.head_dim);
    p->free = malloc(sizeof *p->free * (size_t)n);
    p->used = calloc((size_t)n, sizeof *p->used);
    gbuf_open(g->t, &p->mem, page_size(p) * (size_t)n);
    for (int i = 0; i < n; i++)
        p->free[i] = i;
}

void seq_pool_close(struct seq_pool *p)
{
    for (int i = 0; i < p->n; i++)
        if (!gbuf_untouched_part(&p->mem, (size_t)i * page_size(p),
                                 p->used[i] ? (size_t)OTHER_LAYERS : page_size(p)))
            check_fail(&p->mem.t->c, "page %d of %d was written to by others", i, p->n);
    gbuf_close(&p->mem);
    free(p->free);
    free(p->used);
    *p = (struct seq_pool){ 0 };
}

static int32_t seq_pool_take(struct seq_pool *p)
{
    int i = check_int(&p->mem.t->c, 0, p->n_free - 1);
    int32_t page = p->free[i];
    p->free[i] = p->free[--p->n_free];
    p->used[page] = true;
    return page;
}

void seq_open_in(struct seq_pool *p, struct rig *g, struct seq *s, int cap)
{
    int n = cap / KV_CHUNK;
    *s = (struct seq){ .pool = p, .page = malloc(sizeof *s->page * (size_t)n) };
    if (n > p->n_free) {
        fprintf(stderr, "check_cuda: %d pages of a pool that has %d\n", n, p->n_free);
        abort();
    }
    for (int i = 0; i < n; i++)
        s->page[i] = seq_pool_take(p);
    s->kv = (struct kv_layer){ .dtype = g->f8 ? DTYPE_F8 : DTYPE_BF16,
                               .n_kv = g->s.n_kv_heads,
                               .d = g->s.head_dim,
                               .cap = cap,
                               .k = (uint8_t *)p->mem.p + OTHER_LAYERS,
                               .v = (uint8_t *)p->mem.p + OTHER_LAYERS + p->half,
                               .page_size = page_size(p),
                               .n_pool = p->n,
                               .page = s->page };
}

void seq_open(struct rig *g, struct seq *s, int cap)
{
    seq_open_in(&g->pool, g, s, cap);
}

void seq_share(struct seq *s, const struct seq *from, int n)
{
    for (int i = 0; i < n; i++) {
        s->pool->free[s->pool->n_free++] = s->page[i];
        s->page[i] = from->page[i];
    }
    s->n_shared = n;
}

void seq_close(struct seq *s)
{
    for (int i = s->n_shared; i < s->kv.cap / KV_CHUNK; i++)
        s->pool->free[s->pool->n_free++] = s->page[i];
    free(s->page);
    *s = (struct seq){ 0 };
}

size_t seq_size(const struct seq *s)
{
    return 2 * s->pool->half * (size_t)(s->kv.cap / KV_CHUNK);
}

static void *seq_page(const struct seq *s, int i)
{
    return (uint8_t *)s->kv.k + (size_t)s->page[i] * s->kv.page_size;
}

uint8_t *seq_save(struct seq *s)
{
    uint8_t *saved = malloc(seq_size(s));
    struct device *dev = s->pool->mem.t->dev;
    size_t size = 2 * s->pool->half;
    for (int i = 0; i < s->kv.cap / KV_CHUNK; i++)
        dev->ops->download(dev, saved + (size_t)i * size, seq_page(s, i), size);
    return saved;
}

void seq_load(struct seq *s, const uint8_t *saved)
{
    struct device *dev = s->pool->mem.t->dev;
    size_t size = 2 * s->pool->half;
    for (int i = 0; i < s->kv.cap / KV_CHUNK; i++)
        dev->ops->upload(dev, seq_page(s, i), saved + (size_t)i * size, size);
}

/* One row of an F8 cache: `code` [d] times 2^e. Each number must be the nearest to `ref`, but for
 * the error of the device's product, and the exponent the smallest that holds the row. */
static void read_row(struct rig *g, double *ref, const uint8_t *code, uint8_t exponent)
{
    int d = g->s.head_dim;
    double factor = (double)f8_factor(exponent), most = 0, found = 0;
    for (int i = 0; i < d; i++)
        most = fabs(ref[i]) > most ? fabs(ref[i]) : most;
    for (int i = 0; i < d; i++) {
        double got = (double)f8_to_f32(code[i]) * factor;
        double step = fabs(ref[i]) < 0x1p-6 * factor ? 0x1p-10 * factor : fabs(ref[i]) / 16;
        if (!(fabs(got - ref[i]) <= step + 0.02 * most))
            check_fail(&g->t->c, "F8 row: [%d] is %.6g, not %.6g", i, got, ref[i]);
        found = fabs(got) > found ? fabs(got) : found;
        ref[i] = got;
    }
    if (!(found > 223 * factor && found <= 448 * factor))
        check_fail(&g->t->c, "F8 row: its largest number is %.6g, its exponent %d", found,
                   exponent - F8_EXPONENT_BIAS);
}

void rig_read_cache(struct rig *g, struct seq *s, int n)
{
    int d = g->s.head_dim, n_kv = g->s.n_kv_heads;
    size_t head = kv_head_size(s->kv.dtype, d);
    if (!g->f8)
        return;
    uint8_t *saved = seq_save(s);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < n_kv; h++) {
            const uint8_t *k = saved + 2 * s->pool->half * (size_t)(i / KV_CHUNK);
            int row = i % KV_CHUNK;
            size_t at = (size_t)(i * n_kv + h) * (size_t)d;
            k += (size_t)h * head;
            read_row(g, g->ref_k + at, k + row * d, k[KV_CHUNK * d + row]);
            k += s->pool->half;
            read_row(g, g->ref_v + at, k + row * d, k[KV_CHUNK * d + row]);
        }
    free(saved);
}

/* ---- steps ---- */

static void put_inputs(struct rig *g, const struct rig_step *s)
{
    size_t hidden = (size_t)g->s.hidden, half = (size_t)g->s.head_dim / 2, n = (size_t)s->n;
    float *x = malloc(sizeof *x * n * hidden), *co = malloc(sizeof *co * n * half);
    float *si = malloc(sizeof *si * n * half);
    for (int i = 0; i < s->n; i++) {
        memcpy(x + (size_t)i * hidden, g->token + (size_t)s->tokens[i] * hidden,
               sizeof *x * hidden);
        for (int j = 0; j < (int)half; j++) {
            co[(size_t)i * half + (size_t)j] = (float)cos(angle(g, g->pos[s->tokens[i]], j));
            si[(size_t)i * half + (size_t)j] = (float)sin(angle(g, g->pos[s->tokens[i]], j));
        }
    }
    g->t->ops->put(g->work, g->x.p, x, sizeof *x * n * hidden);
    g->t->ops->put(g->work, g->cos.p, co, sizeof *co * n * half);
    g->t->ops->put(g->work, g->sin.p, si, sizeof *si * n * half);
    if (s->n_rows)
        g->t->ops->put(g->work, g->rows.p, s->rows, sizeof *s->rows * (size_t)s->n_rows);
    free(x);
    free(co);
    free(si);
}

bool rig_ask(struct rig *g, const struct rig_step *s)
{
    const struct device_ops *ops = g->t->ops;
    struct work_plan plan = {
        .n_runs = s->n_runs, .runs = s->runs, .key = s->key, .key_size = s->key ? strlen(s->key) : 0
    };
    struct attn_block a = { .w = &g->w,
                            .shape = &g->s,
                            .x = g->x.p,
                            .n = s->n,
                            .cos = g->cos.p,
                            .sin = g->sin.p,
                            .n_runs = s->n_runs,
                            .runs = s->runs,
                            .n_columns = s->n_columns,
                            .columns = s->columns,
                            .bulk = s->bulk,
                            .needed = s->needed };
    struct finish_block f = { .w = &g->w,
                              .shape = &g->s,
                              .x = g->x.p,
                              .n = s->n,
                              .rows = s->n_rows ? g->rows.p : NULL,
                              .n_rows = s->n_rows ? s->n_rows : s->n,
                              .bulk = s->bulk };
    put_inputs(g, s);
    bool asked = ops->begin(g->work, &plan);
    if (asked) {
        ops->attn(g->work, &a);
        ops->finish(g->work, &f);
    }
    ops->end(g->work);
    if (ops->again && ops->again(g->work)) {
        ops->attn(g->work, &a);
        ops->finish(g->work, &f);
        ops->end(g->work);
    }
    return !asked;
}

bool rig_run(struct rig *g, const struct rig_step *s, float *out)
{
    size_t row = sizeof *out * (size_t)g->s.hidden, n = (size_t)(s->n_rows ? s->n_rows : s->n);
    gbuf_fill(&g->x);
    bool played = rig_ask(g, s);
    check_wait(g->t, g->work);
    g->t->ops->get(g->work, out, g->x.p, row * n);
    if (!gbuf_untouched(&g->x, row * (size_t)s->n))
        check_fail(&g->t->c, "%d rows: rows past them were written", s->n);
    return played;
}

void rig_chain(struct rig *g, struct seq *s, int first_slot, const int *tokens, int n, bool bulk,
               float *out)
{
    struct attn_run run = { .n = n, .first_slot = first_slot, .kv = &s->kv };
    struct rig_step step = { .n = n, .tokens = tokens, .n_runs = 1, .runs = &run, .bulk = bulk };
    rig_run(g, &step, out);
}
