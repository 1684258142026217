/* Attention over a chunk of F32, F16 or BF16 in f32 arithmetic, with the queries in the lanes of
 * vectors: a key or a value is one number by which all lanes are multiplied, so nothing is summed
 * across lanes.
 *
 *   scores   s[p] += q[k] K[p][k], for k = 0, 1, ...    over blocks of positions
 *   softmax  p[p] = exp(scale (s[p] - max)), lane by lane
 *   values   o[i] += p[p] V^T[i][p], for p = 0, 1, ...  over blocks of rows of V^T
 *
 * K and V^T are converted to f32 a block at a time, in the L1 cache. With few queries, a vector has
 * room for `share` = 2 or 4 positions (or rows of V^T) of each query. These are interleaved when
 * they are widened; lane l then belongs to query l / share and position l % share.
 *
 * The sums of a query have one order whatever the share: scores over k, values over p, and the sum
 * of p in four parts by p % 4, which are added as (0 + 1) + (2 + 3).
 *
 * Packed queries: [vectors][d][VEC]. Compiled once per instruction set. */
#ifndef PV_KERNELS_X86_ATTN_FLOAT_H
#define PV_KERNELS_X86_ATTN_FLOAT_H

#include "kernels/kernels.h"
#include "kernels/x86/activation.h"

#include <math.h>

enum {
    MAX_QUERIES = 64,
    PAIR = 2,                  /* vectors of queries that share a broadcast number */
    UNITS = VEC == 16 ? 8 : 4, /* positions, or rows of V^T, processed together */
    KEYS = 64,                 /* positions widened at a time */
    ROWS = 32,                 /* rows of V^T widened at a time */
    PARTS = 4                  /* partial sums of p */
};

static inline int attn_share(int n)
{
    return n <= VEC / 4 ? 4 : n <= VEC / 2 ? 2 : 1;
}

static inline int attn_vecs(int n)
{
    return (n + VEC - 1) / VEC;
}

/* Floats of a widened row of n values. */
static inline size_t attn_stride(int n)
{
    return (size_t)(n + VEC - 1) / VEC * VEC;
}

static size_t attn_packed_size(int n, int d)
{
    return sizeof(float) * VEC * (size_t)attn_vecs(n) * (size_t)d;
}

/* Scratch memory of a thread. */
struct attn_room {
    float *scores; /* [vectors][positions / share][VEC], then probabilities, [vectors][positions] */
    float *spread; /* probabilities, if a vector has several positions */
    float *wide;   /* a block of K or V^T */
    float *turned; /* [d][vectors][VEC]: results */
};

static size_t attn_room_init(struct attn_room *r, float *mem, int n, int d)
{
    size_t vecs = (size_t)attn_vecs(n), rows = (size_t)ROWS * KV_CHUNK;
    size_t keys = KEYS * attn_stride(d);
    r->scores = mem;
    r->spread = r->scores + vecs * KV_CHUNK * VEC;
    r->wide = r->spread + KV_CHUNK * VEC;
    r->turned = r->wide + (keys > rows ? keys : rows);
    return (size_t)(r->turned - mem) + vecs * (size_t)d * VEC;
}

static size_t attn_scratch_size(int n, int d)
{
    struct attn_room r;
    static float none[1];
    return sizeof(float) * attn_room_init(&r, none, n, d);
}

static void attn_pack(void *qp, const float *const *q, int n, int d)
{
    int share = attn_share(n);
    float *to = qp;
    for (int v = 0; v < attn_vecs(n); v++)
        for (int k = 0; k < d; k++, to += VEC)
            for (int l = 0; l < VEC; l++) {
                int i = v * VEC + l / share;
                to[l] = i < n ? q[i][k] : 0;
            }
}

/* ---- keys and values to f32 ---- */

INLINE vec attn_load(const uint8_t *row, int i, int n, enum dtype t)
{
    if (t == DTYPE_F32)
        return n < VEC ? vec_load_part((const float *)(const void *)row + i, n)
                       : vec_load((const float *)(const void *)row + i);
    const uint16_t *half = (const uint16_t *)(const void *)row + i;
    if (t == DTYPE_F16)
        return n < VEC ? vec_load_f16_part(half, n) : vec_load_f16(half);
    return n < VEC ? vec_load_bf16_part(half, n) : vec_load_bf16(half);
}

/* Widen `share` rows of n values, `size` bytes apart, and interleave them: [n rounded up][share].
 */
INLINE void widen_unit(float *to, const uint8_t *row, size_t size, int n, int share, enum dtype t)
{
    for (int i = 0; i < n; i += VEC, to += (size_t)VEC * (size_t)share) {
        vec v[4], w[4];
        for (int j = 0; j < share; j++)
            v[j] = attn_load(row + (size_t)j * size, i, n - i, t);
        if (share == 1) {
            vec_store(to, v[0]);
        } else if (share == 2) {
            vec_interleave(w, v[0], v[1]);
            vec_store(to, w[0]);
            vec_store(to + VEC, w[1]);
        } else {
            vec_interleave(w, v[0], v[2]);
            vec_interleave(w + 2, v[1], v[3]);
            vec_interleave(v, w[0], w[2]);
            vec_interleave(v + 2, w[1], w[3]);
            for (int j = 0; j < 4; j++)
                vec_store(to + j * VEC, v[j]);
        }
    }
}

/* Widen units of `share` rows each. Prefetches the cache lines of the same rows at `next`. */
INLINE void widen_by(float *to, const uint8_t *row, const uint8_t *next, size_t size, int n,
                     int units, int share, enum dtype t)
{
    int bytes = n * (t == DTYPE_F32 ? 4 : 2);
    for (int u = 0; u < units; u++, row += (size_t)share * size) {
        widen_unit(to, row, size, n, share, t);
        to += attn_stride(n) * (size_t)share;
        if (!next)
            continue;
        for (int j = 0; j < share; j++, next += size)
            for (int i = 0; i < bytes; i += 64)
                _mm_prefetch((const char *)next + i, _MM_HINT_T1);
    }
}

INLINE void widen_rows(float *to, const uint8_t *row, const uint8_t *next, size_t size, int n,
                       int units, int share, enum dtype t)
{
    if (share == 1)
        widen_by(to, row, next, size, n, units, 1, t);
    else if (share == 2)
        widen_by(to, row, next, size, n, units, 2, t);
    else
        widen_by(to, row, next, size, n, units, 4, t);
}

/* ---- products ---- */

INLINE vec broadcast(const float *p, int share)
{
    return share == 1 ? vec_set(*p) : share == 2 ? vec_set_2(p) : vec_set_4(p);
}

/* acc[u][v] += w[u] x[v] for n elements. w: units `w_step` floats apart; x: vectors `x_step` floats
 * apart; both advance by one number per lane. */
INLINE void multiply(float *y, size_t y_step, size_t y_vec, const float *w, size_t w_step,
                     const float *x, size_t x_step, int n, int units, int vecs, int share)
{
    vec acc[2 * UNITS][PAIR];
    for (int u = 0; u < units; u++)
        for (int v = 0; v < vecs; v++)
            acc[u][v] = vec_zero();
    for (int k = 0; k < n; k++, w += share, x += VEC) {
        vec b[PAIR];
        for (int v = 0; v < vecs; v++)
            b[v] = vec_load(x + (size_t)v * x_step);
#pragma GCC unroll 16
        for (int u = 0; u < units; u++) {
            vec a = broadcast(w + (size_t)u * w_step, share);
            for (int v = 0; v < vecs; v++)
                acc[u][v] = vec_fma(a, b[v], acc[u][v]);
        }
    }
    for (int u = 0; u < units; u++)
        for (int v = 0; v < vecs; v++)
            vec_store(y + (size_t)u * y_step + (size_t)v * y_vec, acc[u][v]);
}

/* Arguments of multiply for `units` units. */
struct attn_product {
    float *y;
    size_t y_step, y_vec;
    const float *w;
    size_t w_step;
    const float *x;
    size_t x_step;
    int n, units;
};

INLINE void product_by(const struct attn_product *m, int vecs, int share)
{
    const int many = vecs == 1 ? 2 * UNITS : UNITS;
    int u = 0;
    for (; u + many <= m->units; u += many)
        multiply(m->y + (size_t)u * m->y_step, m->y_step, m->y_vec, m->w + (size_t)u * m->w_step,
                 m->w_step, m->x, m->x_step, m->n, many, vecs, share);
    for (; u + UNITS <= m->units; u += UNITS)
        multiply(m->y + (size_t)u * m->y_step, m->y_step, m->y_vec, m->w + (size_t)u * m->w_step,
                 m->w_step, m->x, m->x_step, m->n, UNITS, vecs, share);
    for (; u < m->units; u += 2)
        multiply(m->y + (size_t)u * m->y_step, m->y_step, m->y_vec, m->w + (size_t)u * m->w_step,
                 m->w_step, m->x, m->x_step, m->n, 2, vecs, share);
}

static void product_1(const struct attn_product *m)
{
    product_by(m, 1, 1);
}

static void product_pair(const struct attn_product *m)
{
    product_by(m, 2, 1);
}

static void product_share_2(const struct attn_product *m)
{
    product_by(m, 1, 2);
}

static void product_share_4(const struct attn_product *m)
{
    product_by(m, 1, 4);
}

static void product(const struct attn_product *m, int vecs, int share)
{
    if (share == 4)
        product_share_4(m);
    else if (share == 2)
        product_share_2(m);
    else if (vecs == 2)
        product_pair(m);
    else
        product_1(m);
}

/* ---- softmax ---- */

/* Which positions the lanes of one vector see. */
struct attn_lanes {
    float limit[VEC]; /* limit of the lane's query */
    float at[VEC];    /* the lane's position in the first unit */
    bool all;         /* all lanes see all positions */
    int n, share;     /* n: queries */
};

static struct attn_lanes attn_lanes(const int *limit, int n, int share, int positions)
{
    struct attn_lanes l = { .all = true, .n = n, .share = share };
    for (int i = 0; i < VEC; i++) {
        int q = i / share;
        l.limit[i] = q < n ? (float)limit[q] : (float)positions;
        l.at[i] = (float)(i % share);
        l.all = l.all && l.limit[i] >= (float)positions;
    }
    return l;
}

/* s if the lane sees its position, otherwise `other`. */
INLINE vec seen(vec s, vec at, vec limit, vec other, bool all)
{
    return all ? s : vec_below(at, limit, s, other);
}

INLINE void soften_by(float *p, const float *s, const struct attn_lanes *l, int units, float scale,
                      float *top, vec part[PARTS], int share, bool all)
{
    const vec limit = vec_load(l->limit), lowest = vec_set(-INFINITY), factor = vec_set(scale);
    const vec step = vec_set((float)share);
    vec at = vec_load(l->at), high = lowest;
    for (int u = 0; u < units; u++, at = vec_add(at, step))
        high = vec_max(high, seen(vec_load(s + (size_t)u * VEC), at, limit, lowest, all));
    vec_store(top, high);
    for (int i = 0; i < VEC; i += share) { /* the lanes of one query */
        float most = top[i];
        for (int j = 1; j < share; j++)
            most = top[i + j] > most ? top[i + j] : most;
        for (int j = 0; j < share; j++)
            top[i + j] = most;
    }
    high = vec_load(top);
    at = vec_load(l->at);
    for (int j = 0; j < PARTS; j++)
        part[j] = vec_zero();
    for (int u = 0; u < units; u += PARTS / share)
        for (int j = 0; j < PARTS / share; j++, s += VEC, at = vec_add(at, step)) {
            vec e = vec_exp(vec_mul(factor, vec_sub(vec_load(s), high)));
            e = seen(e, at, limit, vec_zero(), all);
            part[j] = vec_add(part[j], e);
            if (share == 1) {
                vec_store(p, e);
            } else if (share == 2) {
                vec_store(p, vec_spread_2(e, 0));
                vec_store(p + VEC, vec_spread_2(e, 1));
            } else {
                vec_store(p, vec_spread_4(e, 0));
                vec_store(p + VEC, vec_spread_4(e, 1));
                vec_store(p + 2 * VEC, vec_spread_4(e, 2));
                vec_store(p + 3 * VEC, vec_spread_4(e, 3));
            }
            p += (size_t)share * VEC;
        }
}

/* Add up the four parts of query q's sum, in a fixed order. */
static float part_sum(const float (*part)[VEC], int q, int share)
{
    float s[PARTS];
    for (int j = 0; j < PARTS; j++)
        s[j] = part[j / share][q * share + j % share];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Turn the scores of one vector into probabilities at p, which may be s if share is 1. */
static void soften(float *p, const float *s, const struct attn_lanes *l, int positions, float scale,
                   float *max, float *sum)
{
    float top[VEC], parts[PARTS][VEC];
    vec part[PARTS];
    int units = positions / l->share;
    if (l->share == 4)
        soften_by(p, s, l, units, scale, top, part, 4, false);
    else if (l->share == 2)
        soften_by(p, s, l, units, scale, top, part, 2, false);
    else if (l->all)
        soften_by(p, s, l, units, scale, top, part, 1, true);
    else
        soften_by(p, s, l, units, scale, top, part, 1, false);
    for (int j = 0; j < PARTS; j++)
        vec_store(parts[j], part[j]);
    for (int q = 0; q < l->n; q++) {
        max[q] = scale * top[q * l->share];
        sum[q] = part_sum((const float(*)[VEC])parts, q, l->share);
    }
}

/* ---- a chunk ---- */

/* Transpose `turned` [d / share][vectors][VEC] to rows of d, if each lane is a query. */
static void turn_back(float *out, const float *turned, int n, int d, int vecs)
{
    for (int v = 0; v < vecs; v++, out += (size_t)VEC * (size_t)d)
        for (int k = 0; k < d; k += VEC) {
            int left = d - k < VEC ? d - k : VEC, queries = n - v * VEC < VEC ? n - v * VEC : VEC;
            vec r[VEC];
            for (int i = 0; i < VEC; i++)
                r[i] = i < left
                           ? vec_load(turned + ((size_t)(k + i) * (size_t)vecs + (size_t)v) * VEC)
                           : vec_zero();
            vec_turn(r);
            for (int i = 0; i < queries; i++)
                if (left == VEC)
                    vec_store(out + (size_t)i * (size_t)d + k, r[i]);
                else
                    vec_store_part(out + (size_t)i * (size_t)d + k, r[i], left);
        }
}

/* The same if each query has `share` lanes. */
INLINE void gather_back(float *out, const float *turned, int n, int d, int share)
{
    for (int k = 0; k < d; k += share, turned += VEC)
        for (int i = 0; i < n; i++)
            memcpy(out + (size_t)i * (size_t)d + k, turned + i * share,
                   sizeof *out * (size_t)share);
}

INLINE void attn_run(float *max, float *sum, float *out, const float *q, int n, int d,
                     const struct attn_chunk *chunk, const int *limit, float scale, float *scratch,
                     enum dtype t)
{
    const int share = attn_share(n), vecs = attn_vecs(n), positions = chunk->positions;
    const size_t k_size = (size_t)d * (t == DTYPE_F32 ? 4 : 2);
    const size_t v_size = (size_t)KV_CHUNK * (t == DTYPE_F32 ? 4 : 2);
    const size_t column = (size_t)(positions / share) * VEC; /* floats of scores per vector */
    const uint8_t *k = chunk->k, *vt = chunk->vt;
    const uint8_t *next_k = chunk->next_k, *next_vt = chunk->next_vt;
    struct attn_room r;
    attn_room_init(&r, scratch, n, d);
    for (int p = 0; p < positions; p += KEYS) {
        struct attn_product m = { .y_step = VEC,
                                  .y_vec = column,
                                  .w = r.wide,
                                  .w_step = attn_stride(d) * (size_t)share,
                                  .x_step = (size_t)d * VEC,
                                  .n = d,
                                  .units = KEYS / share };
        widen_rows(r.wide, k + (size_t)p * k_size, next_k ? next_k + (size_t)p * k_size : NULL,
                   k_size, d, KEYS / share, share, t);
        for (int v = 0; v < vecs; v += PAIR) {
            m.y = r.scores + (size_t)v * column + (size_t)(p / share) * VEC;
            m.x = q + (size_t)v * m.x_step;
            product(&m, vecs - v < PAIR ? 1 : PAIR, share);
        }
    }
    float *probs = share == 1 ? r.scores : r.spread;
    for (int v = 0; v < vecs; v++) {
        int left = n - v * VEC;
        struct attn_lanes l =
            attn_lanes(limit + v * VEC, left < VEC ? left : VEC, share, positions);
        float *s = r.scores + (size_t)v * column;
        soften(share == 1 ? s : probs, s, &l, positions, scale, max + v * VEC, sum + v * VEC);
    }
    for (int i = 0; i < d; i += ROWS) {
        int units = (d - i < ROWS ? d - i : ROWS) / share;
        struct attn_product m = { .y_step = (size_t)vecs * VEC,
                                  .y_vec = VEC,
                                  .w = r.wide,
                                  .w_step = attn_stride(positions) * (size_t)share,
                                  .x_step = (size_t)positions * VEC,
                                  .n = positions,
                                  .units = units };
        widen_rows(r.wide, vt + (size_t)i * v_size, next_vt ? next_vt + (size_t)i * v_size : NULL,
                   v_size, positions, units, share, t);
        for (int v = 0; v < vecs; v += PAIR) {
            m.y = r.turned + ((size_t)(i / share) * (size_t)vecs + (size_t)v) * VEC;
            m.x = probs + (size_t)v * m.x_step;
            product(&m, vecs - v < PAIR ? 1 : PAIR, share);
        }
    }
    if (share == 4)
        gather_back(out, r.turned, n, d, 4);
    else if (share == 2)
        gather_back(out, r.turned, n, d, 2);
    else
        turn_back(out, r.turned, n, d, vecs);
}

#define ATTN_FLOAT(name, dtype)                                                                    \
    static void name(float *max, float *sum, float *out, const void *qp, int n, int d,             \
                     const struct attn_chunk *chunk, const int *limit, float scale, void *scratch) \
    {                                                                                              \
        attn_run(max, sum, out, qp, n, d, chunk, limit, scale, scratch, dtype);                    \
    }
ATTN_FLOAT(attn_run_f16, DTYPE_F16)
ATTN_FLOAT(attn_run_bf16, DTYPE_BF16)

#define ATTN_KERNEL(f)                                                                             \
    {                                                                                              \
        .max_queries = MAX_QUERIES, .d_multiple = 8, .least = 4, .packed_size = attn_packed_size,  \
        .scratch_size = attn_scratch_size, .pack = attn_pack, .run = f                             \
    }

#endif
