/* Proof of the optional attention kernels: one chunk of KV_CHUNK positions against the formula in
 * double precision, and a query alone against itself among others, each with its own limit. K and V
 * are of a KV type, or pairs of bf16 numbers. */
#include "check.h"

#include "base/mem.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIM = 128, MAX_TILE = 256 };

struct chunk {
    struct check *c;
    const struct attn_kernel *kernel;
    enum dtype t;
    bool pairs;
    int n, d;
    float scale;
    struct fence k, vt;     /* as stored */
    float *kf, *vtf;        /* the same in f32 */
    float *q;               /* [n, d] */
    float *max, *sum, *out; /* results of all n together */
    int limit[MAX_TILE];
};

/* A row as pairs, the second numbers after the first; and what it then is. */
static void row_to_pairs(uint16_t *p, float *wide, const float *row, int n)
{
    for (int i = 0; i < n; i++) {
        p[i] = bf16_from_f32(row[i]);
        p[n + i] = bf16_from_f32(row[i] - bf16_to_f32(p[i]));
        wide[i] = bf16_to_f32(p[i]) + bf16_to_f32(p[n + i]);
    }
}

static void side_open(struct chunk *ch, struct fence *f, float **wide, int rows, int cols)
{
    size_t row_size = dtype_row_size(ch->t, ch->pairs ? 2 * cols : cols);
    float *row = malloc(sizeof *row * (size_t)cols);

    fence_open(f, row_size * (size_t)rows, MEM_ALIGN);
    *wide = malloc(sizeof(float) * (size_t)rows * (size_t)cols);
    for (int r = 0; r < rows; r++) {
        uint8_t *p = (uint8_t *)f->p + row_size * (size_t)r;
        for (int i = 0; i < cols; i++)
            row[i] = rng_normal(&ch->c->rng);
        if (ch->pairs) {
            row_to_pairs((uint16_t *)(void *)p, *wide + (size_t)r * (size_t)cols, row, cols);
            continue;
        }
        row_from_f32(p, row, ch->t, cols);
        row_to_f32(*wide + (size_t)r * (size_t)cols, p, ch->t, cols);
    }
    free(row);
}

/* Queries [i0, i0 + n) of the chunk as a tile of their own, over its first positions. */
static void tile_run(struct chunk *ch, float *max, float *sum, float *out, int i0, int n,
                     int positions)
{
    const struct attn_kernel *a = ch->kernel;
    const float *rows[MAX_TILE];
    struct fence qp, scratch;

    fence_open(&qp, a->packed_size(n, ch->d), MEM_ALIGN);
    fence_open(&scratch, a->scratch_size(n, ch->d), MEM_ALIGN);
    memset(qp.p, 0xff, qp.size);
    memset(scratch.p, 0xff, scratch.size);
    for (int i = 0; i < n; i++)
        rows[i] = ch->q + (size_t)(i0 + i) * (size_t)ch->d;
    a->pack(qp.p, rows, n, ch->d);
    struct attn_chunk chunk = { .k = ch->k.p, .vt = ch->vt.p, .positions = positions };
    a->run(max, sum, out, qp.p, n, ch->d, &chunk, ch->limit + i0, ch->scale, scratch.p);
    if (!fence_whole(&qp) || !fence_whole(&scratch))
        check_fail(ch->c, "n=%d d=%d: wrote outside packed rows or scratch", n, ch->d);
    fence_close(&qp);
    fence_close(&scratch);
}

/* Query i by the formula. The bound allows q, k and p rounded to 16 bits (2^-8, 2^-11) or pairs. */
static void check_query(struct chunk *ch, int i)
{
    const float *q = ch->q + (size_t)i * (size_t)ch->d;
    double s[KV_CHUNK], top = -INFINITY, sum = 0, slack = 0,
                        unit = ch->pairs             ? 0x1p-15
                               : ch->t == DTYPE_BF16 ? 0x1p-8
                                                     : 0x1p-11;
    unsigned round = ch->t == DTYPE_F32 ? 0 : 1;

    for (int j = 0; j < ch->limit[i]; j++) {
        double abs_sum = 0;
        s[j] = 0;
        for (int x = 0; x < ch->d; x++) {
            double term = (double)q[x] * ch->kf[(size_t)j * (size_t)ch->d + (size_t)x];
            s[j] += term;
            abs_sum += fabs(term);
        }
        s[j] *= ch->scale;
        top = s[j] > top ? s[j] : top;
        abs_sum *= ch->scale * (round * unit + 1e-6);
        slack = abs_sum > slack ? abs_sum : slack;
    }
    for (int j = 0; j < ch->limit[i]; j++) {
        s[j] = exp(s[j] - top);
        sum += s[j];
    }
    /* A score off by e moves its probability by a factor exp(e), and the maximum all of them. */
    double factor = exp(2 * slack) - 1 + round * unit * 2 + 4e-6;
    if (!(fabs(ch->max[i] - top) <= slack + 1e-6))
        check_fail(ch->c, "n=%d d=%d query %d: max %.9g, not %.9g", ch->n, ch->d, i, ch->max[i],
                   top);
    if (!(fabs(ch->sum[i] - sum) <= factor * sum))
        check_fail(ch->c, "n=%d d=%d query %d: sum %.9g, not %.9g", ch->n, ch->d, i, ch->sum[i],
                   sum);
    for (int x = 0; x < ch->d; x++) {
        double exact = 0, abs_sum = 0, got = ch->out[(size_t)i * (size_t)ch->d + (size_t)x];
        for (int j = 0; j < ch->limit[i]; j++) {
            double term = s[j] * ch->vtf[(size_t)x * KV_CHUNK + (size_t)j];
            exact += term;
            abs_sum += fabs(term);
        }
        if (!(fabs(got - exact) <= factor * abs_sum + 1e-30))
            check_fail(ch->c, "n=%d d=%d limit=%d query %d: out[%d] is %.9g, not %.9g +- %.3g",
                       ch->n, ch->d, ch->limit[i], i, x, got, exact, factor * abs_sum);
    }
}

/* With no more positions there than the queries see. */
static void check_alone(struct chunk *ch, int i0, int n)
{
    int seen = 1;
    float max[MAX_TILE], sum[MAX_TILE], *out = malloc(sizeof *out * (size_t)(n * ch->d));

    for (int i = i0; i < i0 + n; i++)
        seen = ch->limit[i] > seen ? ch->limit[i] : seen;
    tile_run(ch, max, sum, out, i0, n, (seen + 63) / 64 * 64);
    for (int i = 0; i < n; i++) {
        size_t at = (size_t)(i0 + i) * (size_t)ch->d;
        if (ch->limit[i0 + i] == 0)
            continue;
        if (memcmp(max + i, ch->max + i0 + i, sizeof *max) ||
            memcmp(sum + i, ch->sum + i0 + i, sizeof *sum) ||
            memcmp(out + (size_t)i * (size_t)ch->d, ch->out + at, sizeof *out * (size_t)ch->d))
            check_fail(ch->c, "d=%d: query %d differs among %d and %d", ch->d, i0 + i, n, ch->n);
    }
    free(out);
}

static void check_chunk(struct check *c, const struct attn_kernel *kernel, enum dtype t, int n,
                        int d)
{
    static const int limits[] = { KV_CHUNK, 1, 0, KV_CHUNK - 1, 17, 64, 33, 128, 200 };
    struct chunk ch = { .c = c, .kernel = kernel, .t = t, .n = n, .d = d };
    struct fence fout;

    ch.pairs = kernel == c->k.attn_pair;
    ch.scale = 1 / sqrtf((float)d);
    side_open(&ch, &ch.k, &ch.kf, KV_CHUNK, d);
    side_open(&ch, &ch.vt, &ch.vtf, d, KV_CHUNK);
    fence_open(&fout, sizeof(float) * (size_t)(n * d), sizeof(float));
    ch.q = malloc(fout.size);
    ch.max = calloc((size_t)n, sizeof *ch.max);
    ch.sum = calloc((size_t)n, sizeof *ch.sum);
    ch.out = fout.p;
    for (int i = 0; i < n * d; i++)
        ch.q[i] = 2 * rng_normal(&c->rng);
    for (int i = 0; i < n; i++)
        ch.limit[i] = check_int(c, 0, 2) ? limits[check_int(c, 0, 8)] : check_int(c, 1, KV_CHUNK);
    tile_run(&ch, ch.max, ch.sum, ch.out, 0, n, KV_CHUNK);
    if (!fence_whole(&fout))
        check_fail(c, "n=%d d=%d: wrote outside out", n, d);
    for (int i = 0; i < n; i++)
        if (ch.limit[i] > 0)
            check_query(&ch, i);
    for (int i = 0; i < n; i++)
        check_alone(&ch, i, 1);
    if (n > 3)
        check_alone(&ch, 1, n - 2);
    fence_close(&fout);
    fence_close(&ch.k);
    fence_close(&ch.vt);
    free(ch.kf);
    free(ch.vtf);
    free(ch.q);
    free(ch.max);
    free(ch.sum);
}

static void check_kernel(struct check *c, const struct attn_kernel *a, enum dtype t)
{
    static const int dims[] = { 64, 80, 128, 8, 72, 96 };
    static const int counts[] = { 1, 2, 3, 7, 14, 16, 20, 23, 31, 52, 64 };
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            int n = counts[j] < a->max_queries ? counts[j] : a->max_queries;
            if (dims[i] % a->d_multiple == 0 && (!c->quick || (i + j) % 4 == 0))
                check_chunk(c, a, t, n < MAX_TILE ? n : MAX_TILE, dims[i]);
        }
}

void check_attention(struct check *c)
{
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (!c->k.attn[t] || !check_begin(c, "attention", dtype_name((enum dtype)t)))
            continue;
        check_kernel(c, c->k.attn[t], (enum dtype)t);
        check_end(c);
    }
    if (c->k.attn_pair && check_begin(c, "attention", "pairs")) {
        check_kernel(c, c->k.attn_pair, DTYPE_BF16);
        check_end(c);
    }
}
