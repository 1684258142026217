/* Matrix products by AMX tiles. The weights are the A operand: 16 output rows are unpacked to bf16
 * (unpack_amx.c) into tiles that stay in the L1 cache; the activations are the B operand, packed
 * once for all matrices that share them. One product serves up to 16 rows, so a verification of 16
 * rows costs what one costs.
 *
 * The sum over `in` runs from first to last inside the accumulator tile. With many rows it is cut
 * in slices and the accumulators wait in memory between them, which changes no bit. F16 weights are
 * split exactly in two bf16 parts and x in two that hold 16 bits: three products a step.
 *
 * Packed x: [rows / 16][in / 32] tiles; with F16 twice, the second holding what bf16 leaves of x.
 */
#include "kernels/x86/tile_amx.h"
#include "kernels/x86/unpack_amx.h"

enum {
    GROUP = TILE_ROWS, /* activation rows, or outputs, of one tile */
    FEW_GROUPS = 4,    /* up to 64 rows keep their accumulators in tiles */
    SLICE_FEW = 1024,  /* values of `in` unpacked at a time: 32 KiB for one output tile, */
    SLICE_MANY = 512,  /* and for two */
    SLICE_BYTES = SLICE_FEW / TILE_K * TILE_BYTES,
    MANY_ROWS = 512 /* rows whose accumulators wait in scratch */
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- activations ---- */

static size_t groups_of(int n)
{
    return ((size_t)n + GROUP - 1) / GROUP;
}

static size_t group_size(int in)
{
    return ((size_t)in + TILE_K - 1) / TILE_K * TILE_BYTES;
}

static size_t packed_size(int n, int in)
{
    return groups_of(n) * group_size(in);
}

static size_t packed_size_split(int n, int in)
{
    return 2 * packed_size(n, in);
}

static inline __m512i load_bf16(const float *x)
{
    return to_bf16_32(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
}

/* What bf16 leaves of x, again as bf16. */
static inline __m512i load_rest(const float *x)
{
    __m512i hi = load_bf16(x);
    __m512 a = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(hi)), 16);
    __m512 b =
        (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(hi, 1)), 16);
    return to_bf16_32(_mm512_sub_ps(_mm512_loadu_ps(x), a),
                      _mm512_sub_ps(_mm512_loadu_ps(x + 16), b));
}

/* Tiles of the rows x[0..n) of one group; columns of rows past n are zero. */
static inline __attribute__((always_inline)) void pack_group(uint8_t *tiles, const float *x,
                                                             size_t stride, int n, int in, int rest)
{
    for (int k = 0; k < in; k += TILE_K, tiles += TILE_BYTES) {
        __m512i r[16];
        for (int i = 0; i < GROUP; i++) {
            const float *p = x + (size_t)i * stride + k;
            r[i] = i >= n ? _mm512_setzero_si512() : rest ? load_rest(p) : load_bf16(p);
        }
        transpose_16x16(r);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(tiles + i * 64, r[i]);
    }
}

/* One row: only its column is written; what the others hold reaches no output. */
static inline void pack_one(uint8_t *tiles, const float *x, int in, int rest)
{
    for (int k = 0; k < in; k += TILE_K, tiles += TILE_BYTES) {
        const __m512i at = _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64,
                                            48, 32, 16, 0);
        _mm512_i32scatter_epi32(tiles, at, rest ? load_rest(x + k) : load_bf16(x + k), 4);
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n == 1) {
        pack_one(xp, x, in, 0);
        return;
    }
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), x + (size_t)r * stride,
                   stride, min_int(GROUP, n - r), in, 0);
}

static void pack_split(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    pack(xp, x, stride, n, in, r0, r1);
    if (n == 1) {
        pack_one((uint8_t *)xp + packed_size(n, in), x, in, 1);
        return;
    }
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + packed_size(n, in) + (size_t)(r / GROUP) * group_size(in),
                   x + (size_t)r * stride, stride, min_int(GROUP, n - r), in, 1);
}

/* ---- weights ---- */

/* Scratch: accumulators of MANY_ROWS rows by 32 outputs, then two slices of weights. */
static size_t scratch_size(int in)
{
    (void)in;
    return (size_t)MANY_ROWS / GROUP * 2 * TILE_BYTES + 2 * (size_t)SLICE_BYTES;
}

static uint8_t *slice_of(void *scratch)
{
    return (uint8_t *)scratch + (size_t)MANY_ROWS / GROUP * 2 * TILE_BYTES;
}

/* Values [k0, k1) of outputs o .. o + 15. Past the last output the last one is repeated: its
 * products are computed and not stored. */
static struct row_pieces pieces(const struct matrix *w, int o, int k0, int k1)
{
    struct row_pieces p = { .base = (const uint8_t *)w->data + (size_t)o * w->row_size +
                                    dtype_row_size(w->dtype, k0),
                            .n = k1 - k0 };
    for (int r = 0; r < 16; r++)
        p.at[r] = (int32_t)((size_t)(min_int(o + r, w->out - 1) - o) * w->row_size);
    /* Next come the same rows further on, or after their end the next sixteen rows. */
    p.ahead = (ptrdiff_t)dtype_row_size(w->dtype, k1 - k0);
    if (k1 == w->in)
        p.ahead = (ptrdiff_t)(16 * w->row_size) - (ptrdiff_t)dtype_row_size(w->dtype, k0);
    return p;
}

static void unpack(uint8_t *hi, uint8_t *lo, const struct matrix *w, int o, int k0, int k1)
{
    struct row_pieces p = pieces(w, o, k0, k1);
    if (w->dtype == DTYPE_F16)
        unpack_f16((uint16_t *)hi, (uint16_t *)lo, &p);
    else
        unpack_find(w->dtype)((uint16_t *)hi, &p);
}

/* ---- where results go ---- */

struct target {
    float *y;
    size_t stride;
    const float *bias;
    int n;  /* rows */
    int o1; /* end of the outputs asked for */
};

static void put_tile(const struct target *t, const float *c, int o, int group)
{
    int r = group * GROUP;
    store_tile(t->y + (size_t)r * t->stride + o, t->stride, c, t->bias ? t->bias + o : NULL,
               min_int(GROUP, t->o1 - o), min_int(GROUP, t->n - r));
}

/* ---- few rows: the accumulators stay in tiles 0 to 3 ---- */

/* A tiles of sixteen outputs: `step` bytes apart, their rows `stride`. While one is used the
 * weights at `next` are fetched, as much as a tile holds. */
struct a_tiles {
    const uint8_t *p;
    size_t step, stride;
    const uint8_t *next; /* NULL: nothing */
};

/* One step for each of `groups` groups of rows, A in tile 4. */
static inline __attribute__((always_inline)) void steps(const struct a_tiles *a, const uint8_t *b,
                                                        size_t b_step, int n, int groups)
{
    const uint8_t *p = a->p;
    for (int k = 0; k < n; k++, p += a->step, b += TILE_BYTES) {
        _tile_loadd(4, p, a->stride);
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (groups > 1) {
            _tile_loadd(6, b + b_step, 64);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (groups > 2) {
            _tile_loadd(7, b + 2 * b_step, 64);
            _tile_dpbf16ps(2, 4, 7);
        }
        if (groups > 3) {
            _tile_loadd(5, b + 3 * b_step, 64);
            _tile_dpbf16ps(3, 4, 5);
        }
        for (int i = 0; a->next && i < TILE_BYTES; i += 64)
            _mm_prefetch((const char *)a->next + (size_t)k * TILE_BYTES + i, _MM_HINT_T0);
    }
}

static void steps_few(const struct a_tiles *a, const uint8_t *b, size_t b_step, int n, int groups)
{
    switch (groups) {
    case 1:
        steps(a, b, b_step, n, 1);
        break;
    case 2:
        steps(a, b, b_step, n, 2);
        break;
    case 3:
        steps(a, b, b_step, n, 3);
        break;
    default:
        steps(a, b, b_step, n, 4);
        break;
    }
}

/* hi.hi + lo.hi + hi.lo for one group of rows, in this order at every step. The accumulator is
 * tile 0 or 1: the number is part of the instruction. */
static inline __attribute__((always_inline)) void steps_split(const uint8_t *a, const uint8_t *a_lo,
                                                              const uint8_t *b, const uint8_t *b_lo,
                                                              int n)
{
    for (int k = 0; k < n; k++) {
        size_t at = (size_t)k * TILE_BYTES;
        _tile_loadd(4, a + at, 64);
        _tile_loadd(5, b + at, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, a_lo + at, 64);
        _tile_dpbf16ps(0, 6, 5);
        _tile_loadd(7, b_lo + at, 64);
        _tile_dpbf16ps(0, 4, 7);
    }
}

/* Sixteen outputs of few rows; bf16 weights are used where they lie. */
static void multiply_few(const struct matrix *w, int o, const uint8_t *xp, int groups, uint8_t *mem)
{
    size_t gs = group_size(w->in);
    const uint8_t *row = (const uint8_t *)w->data + (size_t)o * w->row_size;
    if (w->dtype == DTYPE_BF16 && o + GROUP <= w->out) {
        struct a_tiles a = { row, 64, w->row_size, row + GROUP * w->row_size };
        steps_few(&a, xp, gs, w->in / TILE_K, groups);
        return;
    }
    for (int k0 = 0; k0 < w->in; k0 += SLICE_FEW) {
        int k1 = min_int(w->in, k0 + SLICE_FEW);
        struct a_tiles a = { mem, TILE_BYTES, 64, NULL };
        unpack(mem, NULL, w, o, k0, k1);
        steps_few(&a, xp + (size_t)(k0 / TILE_K) * TILE_BYTES, gs, (k1 - k0) / TILE_K, groups);
    }
}

static void run_few(const struct target *t, const uint8_t *xp, const struct matrix *w, int o0,
                    void *scratch)
{
    int groups = (int)groups_of(t->n);
    float *c = scratch;
    for (int o = o0; o < t->o1; o += GROUP) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        multiply_few(w, o, xp, groups, slice_of(scratch));
        _tile_stored(0, c, 64);
        _tile_stored(1, c + 256, 64);
        _tile_stored(2, c + 512, 64);
        _tile_stored(3, c + 768, 64);
        for (int g = 0; g < groups; g++)
            put_tile(t, c + g * 256, o, g);
    }
}

/* ---- many rows: slices outermost, accumulators in memory ---- */

static inline void load_c(const float *c, size_t step, int first)
{
    if (first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, c, 64);
    _tile_loadd(1, c + step, 64);
    _tile_loadd(2, c + 256, 64);
    _tile_loadd(3, c + step + 256, 64);
}

/* Two output tiles (a, a + a_step) by two groups of rows (b, b + b_step): tiles 0 1 / 2 3. */
static void steps_2x2(const uint8_t *a, size_t a_step, const uint8_t *b, size_t b_step, int n)
{
    for (int k = 0; k < n; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + b_step, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + a_step, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* Rows of groups [g0, g0 + 2 * pairs) by outputs o .. o + 31. An odd last group is computed twice,
 * its second accumulators being dropped. c[group][2 output tiles]. */
static void run_many(const struct target *t, const uint8_t *xp, const struct matrix *w, int o,
                     int g0, int groups, void *scratch)
{
    size_t gs = group_size(w->in);
    float *c = scratch;
    uint8_t *a = slice_of(scratch);
    for (int k0 = 0; k0 < w->in; k0 += SLICE_MANY) {
        int k1 = min_int(w->in, k0 + SLICE_MANY);
        unpack(a, NULL, w, o, k0, k1);
        unpack(a + SLICE_BYTES / 2, NULL, w, min_int(o + GROUP, w->out - 1), k0, k1);
        for (int g = 0; g < groups; g += 2) {
            size_t second = g + 1 < groups ? 1 : 0;
            const uint8_t *b = xp + (size_t)(g0 + g) * gs + (size_t)(k0 / TILE_K) * TILE_BYTES;
            float *acc = c + (size_t)g * 512;
            load_c(acc, second * 512, k0 == 0);
            steps_2x2(a, SLICE_BYTES / 2, b, second * gs, (k1 - k0) / TILE_K);
            _tile_stored(1, acc + second * 512, 64);
            _tile_stored(3, acc + second * 512 + 256, 64);
            _tile_stored(0, acc, 64);
            _tile_stored(2, acc + 256, 64);
        }
    }
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < 2; i++)
            if (o + i * GROUP < t->o1)
                put_tile(t, c + (size_t)g * 512 + i * 256, o + i * GROUP, g0 + g);
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    int groups = (int)groups_of(n);
    tile_config();
    if (groups <= FEW_GROUPS) {
        run_few(&t, xp, w, o0, scratch);
    } else {
        for (int o = o0; o < o1; o += 2 * GROUP)
            for (int g = 0; g < groups; g += MANY_ROWS / GROUP)
                run_many(&t, xp, w, o, g, min_int(MANY_ROWS / GROUP, groups - g), scratch);
    }
    _tile_release();
}

/* ---- F16 ---- */

static void run_split(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                      int o0, int o1, void *scratch)
{
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    size_t gs = group_size(w->in), x_lo = packed_size(n, w->in);
    uint8_t *a = slice_of(scratch), *a_lo = a + SLICE_BYTES;
    int groups = (int)groups_of(n);
    float *c = scratch;
    tile_config();
    for (int o = o0; o < o1; o += GROUP)
        for (int g0 = 0; g0 < groups; g0 += 2 * MANY_ROWS / GROUP) {
            int m = min_int(2 * MANY_ROWS / GROUP, groups - g0);
            for (int k0 = 0; k0 < w->in; k0 += SLICE_MANY) {
                int k1 = min_int(w->in, k0 + SLICE_MANY);
                unpack(a, a_lo, w, o, k0, k1);
                for (int g = 0; g < m; g++) {
                    const uint8_t *b = (const uint8_t *)xp + (size_t)(g0 + g) * gs +
                                       (size_t)(k0 / TILE_K) * TILE_BYTES;
                    if (k0 == 0)
                        _tile_zero(0);
                    else
                        _tile_loadd(0, c + (size_t)g * 256, 64);
                    steps_split(a, a_lo, b, b + x_lo, (k1 - k0) / TILE_K);
                    _tile_stored(0, c + (size_t)g * 256, 64);
                }
            }
            for (int g = 0; g < m; g++)
                put_tile(&t, c + (size_t)g * 256, o, g0 + g);
        }
    _tile_release();
}

static const struct matmul_kernel amx = { .name = "amx",
                                          .in_multiple = TILE_K,
                                          .row_step = GROUP,
                                          .out_step = GROUP,
                                          .packed_size = packed_size,
                                          .scratch_size = scratch_size,
                                          .pack = pack,
                                          .run = run };

static const struct matmul_kernel amx_split = { .name = "amx-split",
                                                .in_multiple = TILE_K,
                                                .row_step = GROUP,
                                                .out_step = GROUP,
                                                .packed_size = packed_size_split,
                                                .scratch_size = scratch_size,
                                                .pack = pack_split,
                                                .run = run_split };

void kernels_init_amx(struct kernels *k)
{
    k->name = "amx";
    k->matmul[DTYPE_F16] = &amx_split;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (unpack_find((enum dtype)t))
            k->matmul[t] = &amx;
    k->matmul[DTYPE_Q8_0] = &matmul_q8_0_amx;
    k->matmul[DTYPE_Q4_0] = &matmul_q4_0_amx;
    k->matmul[DTYPE_Q5_0] = &matmul_q5_0_amx;
    k->attn[DTYPE_BF16] = &attn_bf16_amx;
}
