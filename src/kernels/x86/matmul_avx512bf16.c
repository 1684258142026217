/* Products with BF16 weights by AVX512-BF16: x is rounded to bf16, and vdpbf16ps adds two products
 * per lane. As in matmul_float.h there is one accumulator of 16 lanes per (row, output), elements
 * are taken in ascending order, and four accumulators are summed by one tree. Weights are used as
 * they are in memory. With many rows of x, long rows are cut into pieces, with the accumulators
 * kept in scratch memory, so that a tile of x stays in the L1 cache. */
#include "kernels/kernels.h"
#include "kernels/x86/vec_avx512.h"

enum {
    TILE_OUTS = 4,
    TILE_ROWS = 6,
    STEP = 32,    /* elements per instruction */
    PIECE = 2048, /* elements of `in` per piece */
    GROUP = 32,   /* outputs that share a tile of x */
    STATE = TILE_OUTS * TILE_ROWS * VEC,
};

/* What a tile reads and writes. */
struct tile {
    const uint8_t *w;  /* first weight row, at the first element of the piece */
    size_t w_stride;   /* bytes */
    size_t ahead;      /* bytes to the same weight of the next tile, to prefetch it */
    const uint16_t *x; /* zero beyond `in` up to a multiple of STEP */
    size_t x_stride;
    int len;          /* elements of the piece */
    float *state;     /* accumulators kept between pieces */
    bool first, last; /* first, last piece of the row */
    float *y;
    size_t y_stride;
    const float *bias; /* of the first output, or NULL */
};

static size_t stride_of(int in)
{
    return ((size_t)in + STEP - 1) / STEP * STEP + STEP;
}

static size_t packed_size(int n, int in)
{
    return sizeof(uint16_t) * (size_t)n * stride_of(in);
}

static size_t scratch_size(int in)
{
    (void)in;
    return sizeof(float) * (GROUP / TILE_OUTS) * STATE;
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    (void)n;
    for (int r = r0; r < r1; r++) {
        uint16_t *row = (uint16_t *)xp + stride_of(in) * (size_t)r;
        const float *src = x + stride * (size_t)r;
        int i = 0, rest = in % VEC;
        for (; i < in - rest; i += VEC)
            vec_store_bf16(row + i, vec_load(src + i));
        if (rest) {
            vec_store_bf16(row + i, vec_load_part(src + i, rest)); /* packed rows are padded */
            i += VEC;
        }
        memset(row + i, 0, sizeof *row * (stride_of(in) - (size_t)i));
    }
}

INLINE vec dot(vec acc, ivec w, ivec x)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
}

INLINE void tile_finish(const struct tile *t, vec (*acc)[TILE_ROWS], int outs, int rows)
{
    vec zero = vec_zero();
    for (int r = 0; r < rows; r++) {
        __m128 sum = vec_sum4(acc[0][r], outs > 1 ? acc[1][r] : zero, outs > 2 ? acc[2][r] : zero,
                              outs > 3 ? acc[3][r] : zero);
        __mmask8 mask = (__mmask8)((1u << outs) - 1);
        if (t->bias)
            sum = _mm_add_ps(sum, _mm_maskz_loadu_ps(mask, t->bias));
        _mm_mask_storeu_ps(t->y + t->y_stride * (size_t)r, mask, sum);
    }
}

/* `outs` and `rows` are compile-time constants. */
INLINE void tile_run(const struct tile *t, int outs, int rows)
{
    vec acc[TILE_OUTS][TILE_ROWS];
    int i = 0, rest = t->len % STEP;

    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            acc[o][r] = t->first ? vec_zero() : vec_load(t->state + (o * TILE_ROWS + r) * VEC);
    for (; i < t->len - rest; i += STEP) {
        ivec x[TILE_ROWS];
        for (int r = 0; r < rows; r++)
            x[r] = ivec_load(t->x + t->x_stride * (size_t)r + i);
        for (int o = 0; o < outs; o++) {
            const uint8_t *at = t->w + t->w_stride * (size_t)o + 2 * (size_t)i;
            ivec w = ivec_load(at);
            _mm_prefetch((const char *)at + t->ahead, _MM_HINT_T1);
            for (int r = 0; r < rows; r++)
                acc[o][r] = dot(acc[o][r], w, x[r]);
        }
    }
    for (int o = 0; rest && o < outs; o++) {
        ivec w = _mm512_maskz_loadu_epi16((1u << rest) - 1,
                                          t->w + t->w_stride * (size_t)o + 2 * (size_t)i);
        for (int r = 0; r < rows; r++)
            acc[o][r] = dot(acc[o][r], w, ivec_load(t->x + t->x_stride * (size_t)r + i));
    }
    if (t->last) {
        tile_finish(t, acc, outs, rows);
        return;
    }
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++)
            vec_store(t->state + (o * TILE_ROWS + r) * VEC, acc[o][r]);
}

INLINE void tile_of(const struct tile *t, int outs, int rows)
{
    if (outs == TILE_OUTS)
        tile_run(t, TILE_OUTS, rows);
    else
        tile_run(t, 1, rows);
}

static void tile_any(const struct tile *t, int outs, int rows)
{
    switch (rows) {
    case 1:
        tile_of(t, outs, 1);
        break;
    case 2:
        tile_of(t, outs, 2);
        break;
    case 3:
        tile_of(t, outs, 3);
        break;
    case 4:
        tile_of(t, outs, 4);
        break;
    case 5:
        tile_of(t, outs, 5);
        break;
    default:
        tile_of(t, outs, TILE_ROWS);
        break;
    }
}

/* Rows of the next tile if `left` rows are left; the last two tiles are made equal. */
static int tile_rows(int left)
{
    if (left >= 2 * TILE_ROWS || left <= TILE_ROWS)
        return left < TILE_ROWS ? left : TILE_ROWS;
    return (left + 1) / 2;
}

/* Compute at most GROUP outputs of one tile of rows. */
static void rows_run(struct tile *t, const struct matrix *w, const uint16_t *x, float *y, int rows,
                     int o0, int o1, int piece, float *scratch)
{
    for (int i = 0; i < w->in; i += piece) {
        t->len = w->in - i < piece ? w->in - i : piece;
        t->first = i == 0;
        t->last = i + t->len == w->in;
        t->state = scratch;
        t->x = x + i;
        for (int o = o0, outs; o < o1; o += outs) {
            outs = o1 - o < TILE_OUTS ? 1 : TILE_OUTS;
            t->w = (const uint8_t *)w->data + w->row_size * (size_t)o + 2 * (size_t)i;
            t->bias = w->bias ? w->bias + o : NULL;
            t->y = y + o;
            tile_any(t, outs, rows);
            t->state += TILE_ROWS * VEC * outs;
        }
    }
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    struct tile t = { .w_stride = w->row_size, .x_stride = stride_of(w->in), .y_stride = y_stride };
    /* With few rows, whole rows of weights are used, so each group of outputs is read once from
     * memory. */
    bool few = n <= 2 * TILE_ROWS;
    int group = few ? TILE_OUTS : GROUP, piece = few ? w->in : PIECE;

    t.ahead = few ? TILE_OUTS * w->row_size : 0;

    for (int o = o0; o < o1; o += group)
        for (int r = 0, rows; r < n; r += rows) {
            rows = tile_rows(n - r);
            rows_run(&t, w, (const uint16_t *)xp + t.x_stride * (size_t)r, y + y_stride * (size_t)r,
                     rows, o, o1 - o < group ? o1 : o + group, piece, scratch);
        }
}

static const struct matmul_kernel matmul_bf16 = {
    .name = "avx512bf16",
    .in_multiple = 1,
    .row_step = 1,
    .out_step = 1,
    .packed_size = packed_size,
    .scratch_size = scratch_size,
    .pack = pack,
    .run = run,
};

void kernels_init_avx512bf16(struct kernels *k)
{
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &matmul_bf16;
}
