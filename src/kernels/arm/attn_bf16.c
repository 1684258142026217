/* Attention over one chunk of BF16 keys and values with BFMMLA (matmul_bf16.c explains how it pairs
 * rows).
 *
 * Rows of K and of V^T are paired once per chunk, in panels that all queries of the tile use. Then
 * the queries are processed in groups of up to GROUP_PAIRS pairs, whose scores stay in L1: scores,
 * softmax, probabilities rounded to bf16 in pairs, weighted sums.
 *
 * For one query these are the operations that the generic kernel (attn_chunk.c) does with the
 * matrix products of this instruction set, in the same order, so the bits are the same too.
 * Positions that no query of the tile sees are skipped: their probabilities are zeros at the end of
 * the sums, and BFMMLA does not change a sum to which it adds products of zero. */
#include "kernels/arm/arm.h"
#include "kernels/arm/lanes.h"

#include "base/mem.h"

#include <string.h>

enum {
    MAX_QUERIES = 64,
    STRIP_PAIRS = 4, /* pairs of panel rows per register block */
    STRIP_ROWS = 2 * STRIP_PAIRS,
    GROUP_PAIRS = 6 /* pairs of queries per register block: 24 accumulators, as in matmul_bf16.c */
};

/* Elements from one packed pair of rows of n elements to the next: an odd number of whole cache
 * lines. */
static size_t pair_stride(int n)
{
    return ((2 * (size_t)n + 63) & ~(size_t)63) + 32;
}

ALWAYS_INLINE void pack_four(uint16_t *dst, const float *a, const float *b)
{
    bfloat16x8_t v = vcvtq_low_bf16_f32(vld1q_f32(a));
    v = vcvtq_high_bf16_f32(v, vld1q_f32(b));
    vst1q_u16(dst, vreinterpretq_u16_bf16(v));
}

/* Pack two rows of n elements, a multiple of 4. */
static void pack_pair(uint16_t *dst, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i += 4, dst += 8)
        pack_four(dst, a + i, b + i);
}

ALWAYS_INLINE bfloat16x8_t load_bf16(const uint16_t *p)
{
    return vreinterpretq_bf16_u16(vld1q_u16(p));
}

/* ---- panels [strip][k / 4][pair of the strip][2 rows][4] ---- */

/* Make a panel of n_rows rows of n elements, both multiples of 8, which are `stride` elements
 * apart. */
static void panel_pair(uint16_t *panel, const uint16_t *rows, size_t stride, int n_rows, int n)
{
    for (int r = 0; r < n_rows; r += 2) {
        const uint16_t *a = rows + (size_t)r * stride, *b = a + stride;
        uint16_t *dst = panel + (size_t)(r / STRIP_ROWS) * STRIP_ROWS * (size_t)n +
                        (size_t)(r % STRIP_ROWS) * 4;
        for (int k = 0; k < n; k += 8, dst += 16 * STRIP_PAIRS) {
            uint64x2_t va = vreinterpretq_u64_u16(vld1q_u16(a + k));
            uint64x2_t vb = vreinterpretq_u64_u16(vld1q_u16(b + k));
            vst1q_u16(dst, vreinterpretq_u16_u64(vzip1q_u64(va, vb)));
            vst1q_u16(dst + 8 * STRIP_PAIRS, vreinterpretq_u16_u64(vzip2q_u64(va, vb)));
        }
    }
}

/* y[r][o] = sum over n elements, for np pairs of rows of x (of which n_rows rows exist and are
 * written) and the n_out rows of the panel. np is a compile-time constant. */
ALWAYS_INLINE void product(int np, float *y, size_t y_stride, int n_rows, const uint16_t *x,
                           const uint16_t *panel, int n_out, int n)
{
    size_t xs = pair_stride(n);
    for (int o = 0; o < n_out; o += STRIP_ROWS) {
        float32x4_t acc[GROUP_PAIRS][STRIP_PAIRS];
        const uint16_t *from = x;
        UNROLL
        for (int p = 0; p < np; p++)
            UNROLL
        for (int i = 0; i < STRIP_PAIRS; i++)
            acc[p][i] = vdupq_n_f32(0);
        for (int k = 0; k < n; k += 4, from += 8, panel += 8 * STRIP_PAIRS) {
            bfloat16x8_t a[STRIP_PAIRS];
            UNROLL
            for (int i = 0; i < STRIP_PAIRS; i++)
                a[i] = load_bf16(panel + 8 * i);
            UNROLL
            for (int p = 0; p < np; p++) {
                bfloat16x8_t b = load_bf16(from + (size_t)p * xs);
                UNROLL
                for (int i = 0; i < STRIP_PAIRS; i++)
                    acc[p][i] = vbfmmlaq_f32(acc[p][i], a[i], b);
                keep_order();
            }
        }
        UNROLL
        for (int p = 0; p < np; p++)
            UNROLL
        for (int i = 0; i < STRIP_PAIRS; i += 2)
            store_pair(y + 2 * (size_t)p * y_stride + o + 2 * i, y_stride, acc[p][i], acc[p][i + 1],
                       4, 2 * p + 1 < n_rows, NULL);
    }
}

static void product_rows(float *y, size_t y_stride, int n_rows, const uint16_t *x,
                         const uint16_t *panel, int n_out, int n)
{
    switch ((n_rows + 1) / 2) {
    case 1:
        product(1, y, y_stride, n_rows, x, panel, n_out, n);
        break;
    case 2:
        product(2, y, y_stride, n_rows, x, panel, n_out, n);
        break;
    case 3:
        product(3, y, y_stride, n_rows, x, panel, n_out, n);
        break;
    case 4:
        product(4, y, y_stride, n_rows, x, panel, n_out, n);
        break;
    case 5:
        product(5, y, y_stride, n_rows, x, panel, n_out, n);
        break;
    default:
        product(6, y, y_stride, n_rows, x, panel, n_out, n);
        break;
    }
}

/* ---- the kernel ---- */

struct attn_mem {
    uint16_t *k, *v; /* panels */
    float *scores;   /* [2 GROUP_PAIRS, KV_CHUNK] */
    uint16_t *p;     /* the same, packed */
};

static size_t attn_mem_init(struct attn_mem *m, void *mem, int d)
{
    size_t panel = sizeof(uint16_t) * KV_CHUNK * (size_t)d;
    size_t scores = sizeof(float) * 2 * GROUP_PAIRS * KV_CHUNK;
    size_t packed = sizeof(uint16_t) * GROUP_PAIRS * pair_stride(KV_CHUNK);
    size_t total = 2 * arena_cost(panel) + arena_cost(scores) + arena_cost(packed);
    if (mem) {
        struct arena a;
        arena_init(&a, mem, total);
        m->k = arena_push(&a, panel);
        m->v = arena_push(&a, panel);
        m->scores = arena_push(&a, scores);
        m->p = arena_push(&a, packed);
    }
    return total;
}

static size_t attn_packed_size(int n, int d)
{
    return sizeof(uint16_t) * (size_t)((n + 1) / 2) * pair_stride(d);
}

static size_t attn_scratch_size(int n, int d)
{
    (void)n;
    return attn_mem_init(NULL, NULL, d);
}

static void attn_pack(void *qp, const float *const *q, int n, int d)
{
    for (int i = 0; i < n; i += 2)
        pack_pair((uint16_t *)qp + (size_t)(i / 2) * pair_stride(d), q[i],
                  i + 1 < n ? q[i + 1] : q[i], d);
}

/* Turn the scores of n <= 2 GROUP_PAIRS queries into packed probabilities; `seen`: number of
 * positions. */
static void group_softmax(const struct attn_mem *m, float *max, float *sum, int n, int seen,
                          const int *limit, float scale)
{
    for (int i = 0; i < n; i++) {
        float *row = m->scores + (size_t)i * KV_CHUNK;
        if (limit[i] > 0)
            sum[i] = softmax_neon(row, row, seen, limit[i], scale, &max[i]);
        else
            memset(row, 0, sizeof(float) * (size_t)seen);
    }
    for (int i = 0; i < n; i += 2) {
        const float *row = m->scores + (size_t)i * KV_CHUNK;
        pack_pair(m->p + (size_t)(i / 2) * pair_stride(seen), row, i + 1 < n ? row + KV_CHUNK : row,
                  seen);
    }
}

static void attn_run(float *max, float *sum, float *out, const void *qp, int n, int d,
                     const struct attn_chunk *chunk, const int *limit, float scale, void *scratch)
{
    int pairs = (n + 1) / 2, groups = (pairs + GROUP_PAIRS - 1) / GROUP_PAIRS, seen = 0;
    struct attn_mem m = { 0 };
    for (int i = 0; i < n; i++)
        seen = limit[i] > seen ? limit[i] : seen;
    if (seen == 0)
        return;
    seen = (seen + STRIP_ROWS - 1) / STRIP_ROWS * STRIP_ROWS;
    attn_mem_init(&m, scratch, d);
    panel_pair(m.k, chunk->k, (size_t)d, seen, d);
    panel_pair(m.v, chunk->vt, KV_CHUNK, d, seen);
    for (int g = 0; g < groups; g++) {
        int p0 = pairs * g / groups, q0 = 2 * p0, q1 = 2 * (pairs * (g + 1) / groups);
        int count = (q1 < n ? q1 : n) - q0;
        product_rows(m.scores, KV_CHUNK, count, (const uint16_t *)qp + (size_t)p0 * pair_stride(d),
                     m.k, seen, d);
        group_softmax(&m, max + q0, sum + q0, count, seen, limit + q0, scale);
        product_rows(out + (size_t)q0 * (size_t)d, (size_t)d, count, m.p, m.v, d, seen);
    }
}

static const struct attn_kernel kernel = {
    .max_queries = MAX_QUERIES,
    .d_multiple = STRIP_ROWS,
    .packed_size = attn_packed_size,
    .scratch_size = attn_scratch_size,
    .pack = attn_pack,
    .run = attn_run,
};

void attn_init_bf16(struct kernels *k)
{
    k->attn[DTYPE_BF16] = &kernel;
}
