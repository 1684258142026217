/* Proof of the decoder's blocks: error of attention and of the whole layer against double
 * precision, column sums, slots moved and copied.
 *
 * Attention has BF16 queries, keys, values and probabilities: where the reference rounds what the
 * device rounds, what is left is a part in 2^9 of the probabilities and here and there a number
 * that was rounded the other way, so an output is held to 2^-6 of the largest value. The layer's
 * output is held to a part of the root mean square of what the layer adds, some three times of what
 * independent roundings amount to: 0.4 % with BF16 between the matrices, 0.08 % with F32. */
#include "check_cuda_layer.h"
#include "check_cuda_rows.h"
#include "larger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- error ---- */

static void iota(int *list, int from, int n)
{
    for (int i = 0; i < n; i++)
        list[i] = from + i;
}

/* Rows [first, first + n) of a chain against the reference. */
static void compare_attention(struct rig *g, const float *out, int first, int n)
{
    int hidden = g->s.hidden, q = g->s.n_heads * g->s.head_dim, path[2048];
    double *att = malloc(sizeof *att * (size_t)q), most = 0;
    iota(path, 0, first + n);
    for (int i = 0; i < (first + n) * g->s.n_kv_heads * g->s.head_dim; i++)
        most = larger(most, fabs(g->ref_v[i]));
    for (int r = 0; r < n; r++) {
        const float *x = g->token + (size_t)(first + r) * (size_t)hidden;
        ref_attention(g, att, path, first + r + 1);
        for (int i = 0; i < hidden && i < q; i++) {
            double got = (double)out[r * hidden + i] - x[i];
            if (!(fabs(got - att[i]) <= 0x1p-6 * most))
                check_fail(&g->t->c, "%s: slot %d, head %d [%d] is %.6g, not %.6g +- %.2g", g->what,
                           first + r, i / g->s.head_dim, i % g->s.head_dim, got, att[i],
                           0x1p-6 * most);
        }
    }
    free(att);
}

/* Rounding x to BF16 costs a share of what a layer adds: many rows together keep to it, one whose
 * scores are large may be four times as far off. */
static void compare_layer(struct rig *g, const float *out, int first, int n)
{
    int hidden = g->s.hidden, path[2048];
    double *want = malloc(sizeof *want * (size_t)hidden), all_added = 0, all_off = 0;
    double share = pair_rounds_x(g->q.m.dtype) ? 0.012 : 0.003;
    iota(path, 0, first + n);
    for (int r = 0; r < n; r++) {
        const float *x = g->token + (size_t)(first + r) * (size_t)hidden;
        double added = 0, off = 0, worst = 0;
        ref_layer(g, want, path, first + r + 1);
        for (int i = 0; i < hidden; i++) {
            double e = fabs(out[r * hidden + i] - want[i]);
            added += (want[i] - x[i]) * (want[i] - x[i]) / hidden;
            off += e * e / hidden;
            worst = e <= worst ? worst : e; /* NaN too */
        }
        all_added += added;
        all_off += off;
        if (!(sqrt(off) <= 4 * share * sqrt(added) && worst <= 20 * share * sqrt(added)))
            check_fail(&g->t->c, "%s: slot %d is off by %.2g (mean) and %.2g (most) of %.3g",
                       g->what, first + r, sqrt(off), worst, sqrt(added));
    }
    if (n >= 16 && !(sqrt(all_off) <= share * sqrt(all_added)))
        check_fail(&g->t->c, "%s: %d rows are off by %.2g of %.3g", g->what, n, sqrt(all_off),
                   sqrt(all_added));
    free(want);
}

/* A prompt in bulk, then a chain of few rows, for both ways. */
static void check_error(struct cuda_check *t, const struct rig_shape *shape, enum dtype type,
                        enum rig_kind kind, int prompt, int chain)
{
    struct rig g;
    struct seq s;
    char what[64];
    int tokens[2048], n = prompt + chain, cap = (n + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK;
    if (!rig_open(&g, t, shape, type, kind, n, cap, n))
        return;
    snprintf(what, sizeof what, "%s hidden=%d heads=%d/%d d=%d", dtype_name(type), shape->hidden,
             shape->n_heads, shape->n_kv, shape->d);
    g.what = what;
    g.n_bulk = prompt;
    float *out = malloc(sizeof *out * (size_t)n * (size_t)shape->hidden);
    iota(tokens, 0, n);
    rig_reference(&g);
    seq_open(&g, &s, cap);
    rig_chain(&g, &s, 0, tokens, prompt, true, out);
    rig_chain(&g, &s, prompt, tokens + prompt, chain, false,
              out + (size_t)(prompt * shape->hidden));
    rig_read_cache(&g, &s, n);
    for (int r = 0; r < n; r += r + 1 == prompt || n < 128 ? 1 : 7) {
        if (kind == RIG_ATTENTION)
            compare_attention(&g, out + (size_t)r * (size_t)shape->hidden, r, 1);
        else
            compare_layer(&g, out + (size_t)r * (size_t)shape->hidden, r, 1);
    }
    seq_close(&s);
    rig_close(&g);
    free(out);
}

/* ---- column sums ---- */

static void column_reference(const struct rig *g, double *sums, const struct column_job *job)
{
    int slots[2048], seen[2048];
    double p[2048];
    for (int r = 0; r < job->n_rows; r++) {
        int token = job->run->first_slot + job->rows[r], n = token + 1, m = 0;
        iota(slots, 0, n);
        for (int i = 0; i < job->n_keys && job->keys[i] < n; i++)
            seen[m++] = job->keys[i];
        for (int h = 0; h < g->s.n_heads; h++) {
            if (job->over_keys)
                ref_probabilities(g, p, token, h, seen, m);
            else
                ref_probabilities(g, p, token, h, slots, n);
            double *to =
                sums + (job->by_group ? h / (g->s.n_heads / g->s.n_kv_heads) * job->n_keys : 0);
            for (int i = 0; i < m; i++)
                to[i] += job->over_keys ? p[i] : p[seen[i]];
        }
    }
}

static void check_columns_of(struct cuda_check *t, const struct rig_shape *shape, int cached, int n,
                             bool bulk)
{
    struct rig g;
    struct seq s;
    int tokens[2048], rows[128], keys[2048], n_rows = 0, n_keys = 0;
    int all = cached + n, cap = (all + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK;
    float *out = malloc(sizeof *out * (size_t)all * (size_t)shape->hidden), *sums[3];
    rig_open(&g, t, shape, DTYPE_BF16, RIG_PLAIN, all, cap, all);
    iota(tokens, 0, all);
    rig_reference(&g);
    seq_open(&g, &s, cap);
    if (cached)
        rig_chain(&g, &s, 0, tokens, cached, true, out);
    for (int i = 0; i < n; i += check_int(&t->c, 1, 1 + n / 60))
        rows[n_rows++] = i;
    for (int i = 0; i < all; i += check_int(&t->c, 1, 2))
        keys[n_keys++] = i;
    struct attn_run run = { .n = n, .first_slot = cached, .kv = &s.kv };
    struct column_job jobs[3];
    for (int j = 0; j < 3; j++) {
        sums[j] = malloc(sizeof **sums * (size_t)(n_keys * shape->n_kv));
        jobs[j] = (struct column_job){ .sums = sums[j],
                                       .run = &run,
                                       .n_heads = shape->n_heads,
                                       .scale = 1 / sqrtf((float)shape->d),
                                       .n_rows = n_rows,
                                       .rows = rows,
                                       .n_keys = n_keys,
                                       .keys = keys,
                                       .over_keys = j == 1,
                                       .by_group = j == 2 };
        for (int i = 0; i < n_keys * shape->n_kv; i++)
            sums[j][i] = (float)(i % 5); /* to be added to */
    }
    struct rig_step step = { .n = n,
                             .tokens = tokens + cached,
                             .n_runs = 1,
                             .runs = &run,
                             .bulk = bulk,
                             .n_columns = 3,
                             .columns = jobs };
    rig_run(&g, &step, out);
    rig_read_cache(&g, &s, all);
    for (int j = 0; j < 3; j++) {
        double *want = calloc((size_t)(n_keys * shape->n_kv), sizeof *want);
        column_reference(&g, want, &jobs[j]);
        for (int i = 0; i < (j == 2 ? n_keys * shape->n_kv : n_keys); i++)
            if (!(fabs(sums[j][i] - i % 5 - want[i]) <= 0.02 * want[i] + 1e-4))
                check_fail(&t->c, "%d rows, slot %d%s: %.6g, not %.6g", n, keys[i % n_keys],
                           j == 1   ? " over keys"
                           : j == 2 ? " of a KV head"
                                    : "",
                           sums[j][i] - i % 5, want[i]);
        free(want);
        free(sums[j]);
    }
    seq_close(&s);
    rig_close(&g);
    free(out);
}

/* ---- slots ---- */

/* Slots moved are what they would be had their tokens been written there; and so are copies. */
static void check_slots(struct cuda_check *t, const struct rig_shape *shape)
{
    enum { N = 40, CAP = 512 };
    struct rig g;
    struct seq a, b, c;
    int tokens[N], moved[N], to[N], from[N], n = 0;
    float *out = malloc(sizeof *out * (size_t)(N * shape->hidden));
    rig_open(&g, t, shape, DTYPE_BF16, RIG_PLAIN, N, CAP, N);
    iota(tokens, 0, N);
    memcpy(moved, tokens, sizeof moved);
    seq_open(&g, &a, CAP);
    seq_open(&g, &b, CAP);
    seq_open(&g, &c, 2 * CAP);
    for (int f = 3, at = 3; f < N; f += check_int(&t->c, 1, 3)) {
        to[n] = at++;
        from[n++] = f;
    }
    rig_chain(&g, &a, 0, tokens, N, false, out);
    for (int i = 0; i < n; i++)
        t->ops->kv_copy(g.work, &c.kv, &a.kv, &(int){ 300 + 2 * i }, &from[i], 1);
    t->ops->kv_move(g.work, &a.kv, to, from, n);
    for (int i = 0; i < n; i++)
        moved[to[i]] = from[i];
    rig_chain(&g, &b, 0, moved, N, false, out);
    uint8_t *x = seq_save(&a), *y = seq_save(&b);
    if (memcmp(x, y, seq_size(&a)))
        check_fail(&t->c, "d=%d: slots are not what was moved there", shape->d);
    for (int i = 0; i < n; i++) /* back, in one go, and into another place */
        from[i] = 300 + 2 * i, to[i] = 3 + i;
    seq_load(&a, y);
    t->ops->kv_copy(g.work, &a.kv, &c.kv, to, from, n);
    check_wait(t, g.work);
    uint8_t *z = seq_save(&a);
    if (memcmp(z, y, seq_size(&a)))
        check_fail(&t->c, "d=%d: slots are not what was copied there", shape->d);
    free(x);
    free(y);
    free(z);
    free(out);
    seq_close(&a);
    seq_close(&b);
    seq_close(&c);
    rig_close(&g);
}

/* ---- all ---- */

static const struct rig_shape tiny_shapes[] = {
    { 128, 160, 2, 1, 64, false, true },  { 64, 96, 4, 2, 16, true, false },
    { 256, 128, 2, 2, 128, true, false }, { 96, 64, 3, 1, 32, false, true },
    { 160, 72, 2, 1, 80, false, false },  { 96, 64, 2, 1, 256, true, false },
    { 40, 24, 2, 1, 20, true, false },    { 896, 64, 1, 1, 64, false, true },
    { 64, 4288, 1, 1, 64, true, true },   { 64, 96, 9, 1, 64, true, false },
};
static const struct rig_shape true_shapes[] = {
    { 896, 4864, 14, 2, 64, false, true },   { 1024, 3072, 16, 8, 128, true, false },
    { 3584, 2048, 28, 4, 128, false, true }, { 256, 512, 4, 2, 64, true, false },
    { 64, 96, 4, 2, 16, true, false },       { 96, 64, 2, 1, 256, true, false },
    { 40, 24, 2, 1, 20, true, false },       { 512, 5312, 2, 1, 64, true, true },
    { 64, 4288, 1, 1, 64, true, true },      { 256, 512, 16, 1, 128, true, false },
};
enum { N_SHAPES = sizeof tiny_shapes / sizeof tiny_shapes[0] };
/* For every type: rows are whole blocks, norms keep scores in bounds. */
static const struct rig_shape any_type = { 256, 256, 4, 2, 64, true, true };
static const struct rig_shape small_type = { 64, 96, 2, 1, 32, true, true };
/* Without norms of heads: products put keys and values into the cache themselves. */
static const struct rig_shape no_norms = { 512, 256, 4, 2, 64, false, true };
static const struct rig_shape small_no_norms = { 256, 64, 2, 1, 64, false, true };
/* Wide enough that two blocks of matmul_few_hopper.cu have several warpgroups' rows of a tile, and
 * with odd numbers of 64 columns. */
static const struct rig_shape wide = { 3584, 9536, 28, 4, 128, false, true };
static const struct rig_shape small_wide = { 64, 8512, 1, 1, 64, false, true };
/* K of the MLP's second matrix is shared by three blocks. */
static const struct rig_shape small_deep = { 64, 13440, 1, 1, 64, false, true };
/* Caches of F8. */
static const struct rig_shape tiny_f8[] = {
    { 128, 160, 2, 1, 64, false, true, true },  { 64, 96, 4, 2, 16, true, false, true },
    { 256, 128, 2, 2, 128, true, false, true }, { 160, 72, 2, 1, 80, false, false, true },
    { 96, 64, 2, 1, 256, true, false, true },   { 40, 24, 2, 1, 20, true, false, true },
    { 64, 96, 9, 1, 64, true, false, true },
};
static const struct rig_shape true_f8[] = {
    { 896, 4864, 14, 2, 64, false, true, true },   { 1024, 3072, 16, 8, 128, true, false, true },
    { 3584, 2048, 28, 4, 128, false, true, true }, { 256, 512, 4, 2, 64, true, false, true },
    { 64, 96, 4, 2, 16, true, false, true },       { 96, 64, 2, 1, 256, true, false, true },
    { 40, 24, 2, 1, 20, true, false, true },
};
enum { N_F8 = sizeof tiny_f8 / sizeof tiny_f8[0] };
_Static_assert(sizeof true_f8 == sizeof tiny_f8, "as many");
static const enum dtype types[] = { DTYPE_BF16, DTYPE_F16,  DTYPE_F32,
                                    DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_K };

/* Invariance of a shape's rows; also over the ends of a page, a pass and a split, if `longer` or if
 * its heads have the usual size. */
static void check_rows_of(struct cuda_check *t, const struct rig_shape *s, const char *name,
                          bool longer)
{
    if (!check_begin(&t->c, "rows", name))
        return;
    check_rows(t, s, DTYPE_BF16, 3, t->full ? 64 : 9);
    if (longer || (s->d == 128 && !left_out_brief()))
        check_rows(t, s, DTYPE_BF16, t->full ? 750 : 250, t->full ? 64 : 12);
    check_end(&t->c);
}

static void check_shapes(struct cuda_check *t)
{
    const struct rig_shape *shapes = t->full ? true_shapes : tiny_shapes;
    char name[64];
    for (int i = 0; i < N_SHAPES; i++) {
        const struct rig_shape *s = &shapes[i];
        snprintf(name, sizeof name, "hidden=%d heads=%d/%d d=%d", s->hidden, s->n_heads, s->n_kv,
                 s->d);
        if (check_begin(&t->c, "attn", name)) {
            check_error(t, s, DTYPE_BF16, RIG_ATTENTION, 70, 9);
            if (i == 0 || (t->full && i > 2)) /* more than one split */
                check_error(t, s, DTYPE_BF16, RIG_ATTENTION, t->full ? 1500 : 510, 5);
            check_end(&t->c);
        }
        if (s->hidden <= 2048 && check_begin(&t->c, "columns", name)) {
            check_columns_of(t, s, 0, 30, true);
            check_columns_of(t, s, 37, 5, false);
            if (i == 0 || (t->full && i > 2))
                check_columns_of(t, s, 500, 70, true);
            check_end(&t->c);
        }
        if (s->hidden <= 2048 && check_begin(&t->c, "slots", name)) {
            check_slots(t, s);
            check_end(&t->c);
        }
        if (s->bias && check_begin(&t->c, "layer", name)) {
            check_error(t, s, DTYPE_BF16, RIG_PLAIN, 20, 9);
            check_end(&t->c);
        }
        check_rows_of(t, s, name, i == 0);
    }
}

static void check_f8(struct cuda_check *t)
{
    if (check_begin(&t->c, "attn", "F8 codes")) {
        check_f8_codes(t);
        check_end(&t->c);
    }
    for (int i = 0; i < N_F8; i++) {
        const struct rig_shape *s = t->full ? &true_f8[i] : &tiny_f8[i];
        char name[64];
        snprintf(name, sizeof name, "F8 hidden=%d heads=%d/%d d=%d", s->hidden, s->n_heads, s->n_kv,
                 s->d);
        if (check_begin(&t->c, "attn", name)) {
            check_error(t, s, DTYPE_BF16, RIG_ATTENTION, 70, 9);
            if (i == 0 || (t->full && i < 5)) /* more than one split */
                check_error(t, s, DTYPE_BF16, RIG_ATTENTION, t->full ? 1500 : 510, 5);
            check_end(&t->c);
        }
        if (s->hidden <= 2048 && check_begin(&t->c, "columns", name)) {
            check_columns_of(t, s, 0, 30, true);
            check_columns_of(t, s, 37, 5, false);
            check_end(&t->c);
        }
        if (s->hidden <= 2048 && check_begin(&t->c, "slots", name)) {
            check_slots(t, s);
            check_end(&t->c);
        }
        check_rows_of(t, s, name, i == 0);
    }
}

void check_cuda_layers(struct cuda_check *t)
{
    check_shapes(t);
    check_f8(t);
    if (check_begin(&t->c, "rows", "wide")) {
        check_wide_rows(t, t->full ? &wide : &small_wide, t->full ? 128 : 66);
        check_end(&t->c);
    }
    if (check_begin(&t->c, "rows", "deep")) {
        check_rows(t, &small_deep, DTYPE_BF16, 3, t->full ? 64 : 9);
        check_end(&t->c);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (check_begin(&t->c, "layer", dtype_name(types[i]))) {
            check_error(t, &any_type, types[i], RIG_PLAIN, 20, 5);
            if (t->full)
                check_error(t, &any_type, types[i], RIG_PLAIN, 600, 64);
            check_end(&t->c);
        }
        if (check_begin(&t->c, "rows", dtype_name(types[i]))) {
            const struct rig_shape *s =
                dtype_block(types[i]) > 32 || t->full ? &any_type : &small_type;
            check_rows(t, s, types[i], 3, t->full || i == 0 ? 64 : 9);
            if (t->full || i == 0) /* more than one split */
                check_rows(t, s, types[i], t->full ? 1000 : 500, t->full ? 64 : 20);
            check_end(&t->c);
        }
        if ((t->full || types[i] == DTYPE_Q8_0) &&
            check_begin(&t->c, "qkv", dtype_name(types[i]))) { /* over a page's end */
            check_rows(t, t->full ? &no_norms : &small_no_norms, types[i], 252, t->full ? 64 : 6);
            check_end(&t->c);
        }
    }
}
