/* Matrix products by AMX tiles. The weights are the A operand: 16 output rows are unpacked to bf16
 * (unpack_amx.c) one after the other, in the order in which they lie in memory, into a panel of
 * tiles that stays in cache; the activations are the B operand, packed once for all matrices that
 * share them. One product serves up to 16 rows, so a verification of 16 rows costs what one costs.
 *
 * Panel: [out / 16][in / 32] tiles of 1 KiB. Packed x: [rows / 16][in / 32] tiles. F16 weights are
 * split exactly in two bf16 parts and x in two of 16 bits together: three products a tile. */
#include "kernels/kernels.h"
#include "kernels/x86/tile_amx.h"
#include "kernels/x86/unpack_amx.h"

#include <string.h>

enum {
    PANEL_TILES = 4,           /* 16-output tiles of one panel */
    PANEL_LIMIT = 1280 * 1024, /* bytes of a panel: what the L2 cache keeps */
    GROUP_ROWS = TILE_ROWS,    /* activation rows of one tile */
    AHEAD = 256                /* bytes of the next panel fetched per k step */
};

/* ---- activations ---- */

static size_t groups_of(int n)
{
    return ((size_t)n + GROUP_ROWS - 1) / GROUP_ROWS;
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
        for (int i = 0; i < GROUP_ROWS; i++) {
            const float *p = x + (size_t)i * stride + k;
            r[i] = i >= n ? _mm512_setzero_si512() : rest ? load_rest(p) : load_bf16(p);
        }
        transpose_16x16(r);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(tiles + i * 64, r[i]);
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    (void)r1;
    int left = n - r0 < GROUP_ROWS ? n - r0 : GROUP_ROWS;
    pack_group((uint8_t *)xp + (size_t)(r0 / GROUP_ROWS) * group_size(in), x + (size_t)r0 * stride,
               stride, left, in, 0);
}

static void pack_all(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    for (int r = r0; r < r1; r += GROUP_ROWS)
        pack(xp, x, stride, n, in, r, r1);
}

static void pack_split(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    for (int r = r0; r < r1; r += GROUP_ROWS) {
        int left = n - r < GROUP_ROWS ? n - r : GROUP_ROWS;
        uint8_t *hi = (uint8_t *)xp + (size_t)(r / GROUP_ROWS) * group_size(in);
        pack_group(hi, x + (size_t)r * stride, stride, left, in, 0);
        pack_group(hi + packed_size(n, in), x + (size_t)r * stride, stride, left, in, 1);
    }
}

/* ---- weights ---- */

/* 16-output tiles of a panel: fewer when rows are very long. */
static int panel_tiles(int in, int parts)
{
    size_t tile = group_size(in) * (size_t)parts;
    int n = PANEL_TILES;
    while (n > 1 && tile * (size_t)n > PANEL_LIMIT)
        n /= 2;
    return n;
}

static size_t scratch_size(int in)
{
    return group_size(in) * PANEL_TILES + 4 * TILE_BYTES;
}

static size_t scratch_size_split(int in)
{
    return 2 * scratch_size(in);
}

static void unpack_row(uint8_t *panel, size_t lo_offset, const struct matrix *w, int o, int slot)
{
    uint16_t *dst = (uint16_t *)(panel + (size_t)(slot / 16) * group_size(w->in)) + slot % 16 * 32;
    const uint8_t *src = (const uint8_t *)w->data + (size_t)o * w->row_size;
    switch (w->dtype) {
    case DTYPE_F16:
        unpack_f16(dst, dst + lo_offset / 2, src, w->in);
        break;
    case DTYPE_BF16:
        unpack_bf16(dst, src, w->in);
        break;
    case DTYPE_Q8_0:
        unpack_q8_0(dst, src, w->in);
        break;
    case DTYPE_Q4_0:
        unpack_q4_0(dst, src, w->in);
        break;
    case DTYPE_Q5_0:
        unpack_q5_0(dst, src, w->in);
        break;
    case DTYPE_Q4_K:
        unpack_q4_k(dst, src, w->in);
        break;
    case DTYPE_Q5_K:
        unpack_q5_k(dst, src, w->in);
        break;
    default:
        unpack_q6_k(dst, src, w->in);
        break;
    }
}

/* Outputs past o1 become rows of zeros. */
static void unpack_panel(uint8_t *panel, size_t lo_offset, const struct matrix *w, int o0, int o1,
                         int tiles)
{
    for (int i = 0; i < tiles * 16; i++) {
        if (o0 + i < o1) {
            unpack_row(panel, lo_offset, w, o0 + i, i);
            continue;
        }
        uint8_t *dst = panel + (size_t)(i / 16) * group_size(w->in) + i % 16 * 64;
        for (int k = 0; k < w->in / TILE_K; k++) {
            memset(dst + (size_t)k * TILE_BYTES, 0, 64);
            if (lo_offset)
                memset(dst + lo_offset + (size_t)k * TILE_BYTES, 0, 64);
        }
    }
}

/* ---- products ---- */

/* C tile [16 outputs][16 rows] to y, bias added. */
static void store_tile(float *y, size_t y_stride, const float *c, const float *bias, int n_out,
                       int n_rows)
{
    __mmask16 m = (__mmask16)((1u << n_out) - 1);
    __m512 b = bias ? _mm512_maskz_loadu_ps(m, bias) : _mm512_setzero_ps();
    if (n_rows <= 2) {
        const __m512i at = _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64,
                                            48, 32, 16, 0);
        for (int r = 0; r < n_rows; r++) {
            __m512 v = _mm512_i32gather_ps(at, c + r, 4);
            _mm512_mask_storeu_ps(y + (size_t)r * y_stride, m, bias ? _mm512_add_ps(v, b) : v);
        }
        return;
    }
    __m512i t[16];
    for (int i = 0; i < 16; i++)
        t[i] = _mm512_load_si512(c + i * 16);
    transpose_16x16(t);
    for (int r = 0; r < n_rows; r++) {
        __m512 v = (__m512)t[r];
        _mm512_mask_storeu_ps(y + (size_t)r * y_stride, m, bias ? _mm512_add_ps(v, b) : v);
    }
}

/* Four output tiles by one group of rows: c[4]. `next` is fetched meanwhile. */
static void product_4x1(float *c, const uint8_t *a, size_t a_step, const uint8_t *b, int steps,
                        const uint8_t *next)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < steps; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(6, b, 64);
        _tile_loadd(4, a, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + a_step, 64);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(4, a + 2 * a_step, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(5, a + 3 * a_step, 64);
        _tile_dpbf16ps(3, 5, 6);
        for (int i = 0; i < AHEAD; i += 64)
            _mm_prefetch((const char *)next + (size_t)k * AHEAD + i, _MM_HINT_T1);
    }
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
}

/* Two output tiles by two groups of rows: c[2][2] as (output, group). */
static void product_2x2(float *c, const uint8_t *a, size_t a_step, const uint8_t *b, size_t b_step,
                        int steps)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < steps; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + b_step, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + a_step, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
}

/* One output tile by one group, for what the larger shapes leave. */
static void product_1x1(float *c, const uint8_t *a, const uint8_t *b, int steps)
{
    _tile_zero(0);
    for (int k = 0; k < steps; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, c, 64);
}

struct panel {
    const uint8_t *a;
    size_t step;         /* bytes from one output tile to the next */
    int tiles;           /* 16-output tiles */
    int o0, o1;          /* outputs */
    const uint8_t *next; /* the weights that come after */
};

struct target {
    float *y;
    size_t stride;
    const float *bias;
    int n; /* rows */
};

static void put_tile(const struct target *t, const struct panel *p, const float *c, int tile,
                     int group)
{
    int o = p->o0 + tile * 16, r = group * GROUP_ROWS;
    int n_out = p->o1 - o < 16 ? p->o1 - o : 16, n_rows = t->n - r < 16 ? t->n - r : 16;
    if (n_out > 0 && n_rows > 0)
        store_tile(t->y + (size_t)r * t->stride + o, t->stride, c, t->bias ? t->bias + o : NULL,
                   n_out, n_rows);
}

static void multiply_panel(const struct target *t, const struct panel *p, const uint8_t *xp, int in,
                           float *c)
{
    int groups = (int)groups_of(t->n), steps = in / TILE_K, g = 0;
    size_t gs = group_size(in);
    for (; g + 1 < groups && p->tiles % 2 == 0; g += 2)
        for (int i = 0; i < p->tiles; i += 2) {
            product_2x2(c, p->a + (size_t)i * p->step, p->step, xp + (size_t)g * gs, gs, steps);
            for (int j = 0; j < 4; j++)
                put_tile(t, p, c + j * 256, i + j / 2, g + j % 2);
        }
    for (; g < groups; g++)
        if (p->tiles == 4) {
            product_4x1(c, p->a, p->step, xp + (size_t)g * gs, steps, p->next);
            for (int j = 0; j < 4; j++)
                put_tile(t, p, c + j * 256, j, g);
        } else {
            for (int i = 0; i < p->tiles; i++) {
                product_1x1(c, p->a + (size_t)i * p->step, xp + (size_t)g * gs, steps);
                put_tile(t, p, c, i, g);
            }
        }
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    float *c = scratch;
    uint8_t *panel = (uint8_t *)scratch + 4 * TILE_BYTES;
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n };
    int width = panel_tiles(w->in, 1) * 16;
    tile_config();
    for (int o = o0; o < o1; o += width) {
        int end = o + width < o1 ? o + width : o1;
        struct panel p = { .a = panel,
                           .step = group_size(w->in),
                           .tiles = width / 16,
                           .o0 = o,
                           .o1 = end,
                           .next = (const uint8_t *)w->data + (size_t)end * w->row_size };
        unpack_panel(panel, 0, w, o, end, p.tiles);
        multiply_panel(&t, &p, xp, w->in, c);
    }
    _tile_release();
}

/* ---- F16: three products ---- */

/* c = hi.hi + lo.hi + hi.lo, each step of k in this order. */
static void product_split(float *c, const uint8_t *a, size_t a_lo, const uint8_t *b, size_t b_lo,
                          int steps)
{
    _tile_zero(0);
    for (int k = 0; k < steps; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + a_lo, 64);
        _tile_dpbf16ps(0, 5, 6);
        _tile_loadd(7, b + b_lo, 64);
        _tile_dpbf16ps(0, 4, 7);
    }
    _tile_stored(0, c, 64);
}

/* The same for two groups at once: half the loads of A. */
static void product_split_x2(float *c, const uint8_t *a, size_t a_lo, const uint8_t *b, size_t b_lo,
                             size_t b_step, int steps)
{
    _tile_zero(0);
    _tile_zero(1);
    for (int k = 0; k < steps; k++, a += TILE_BYTES, b += TILE_BYTES) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, a + a_lo, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + b_step, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(0, 5, 6);
        _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(6, b + b_lo, 64);
        _tile_loadd(7, b + b_lo + b_step, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
}

static void run_split(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                      int o0, int o1, void *scratch)
{
    float *c = scratch;
    uint8_t *panel = (uint8_t *)scratch + 4 * TILE_BYTES;
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n };
    size_t gs = group_size(w->in), b_lo = packed_size(n, w->in);
    int tiles = panel_tiles(w->in, 2), groups = (int)groups_of(n), steps = w->in / TILE_K;
    size_t a_lo = gs * (size_t)tiles;
    tile_config();
    for (int o = o0; o < o1; o += tiles * 16) {
        int end = o + tiles * 16 < o1 ? o + tiles * 16 : o1;
        struct panel p = { .a = panel, .step = gs, .tiles = tiles, .o0 = o, .o1 = end };
        unpack_panel(panel, a_lo, w, o, end, tiles);
        for (int i = 0; i < tiles; i++) {
            const uint8_t *b = xp;
            int g = 0;
            for (; g + 1 < groups; g += 2) {
                product_split_x2(c, panel + (size_t)i * gs, a_lo, b + (size_t)g * gs, b_lo, gs,
                                 steps);
                put_tile(&t, &p, c, i, g);
                put_tile(&t, &p, c + 256, i, g + 1);
            }
            if (g < groups) {
                product_split(c, panel + (size_t)i * gs, a_lo, b + (size_t)g * gs, b_lo, steps);
                put_tile(&t, &p, c, i, g);
            }
        }
    }
    _tile_release();
}

static const struct matmul_kernel amx = { .name = "amx",
                                          .in_multiple = TILE_K,
                                          .row_step = GROUP_ROWS,
                                          .out_step = 16,
                                          .packed_size = packed_size,
                                          .scratch_size = scratch_size,
                                          .pack = pack_all,
                                          .run = run };

static const struct matmul_kernel amx_split = { .name = "amx-split",
                                                .in_multiple = TILE_K,
                                                .row_step = GROUP_ROWS,
                                                .out_step = 16,
                                                .packed_size = packed_size_split,
                                                .scratch_size = scratch_size_split,
                                                .pack = pack_split,
                                                .run = run_split };

void kernels_init_amx(struct kernels *k)
{
    static const enum dtype types[] = { DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q5_0,
                                        DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K };
    k->name = "amx";
    k->matmul[DTYPE_F16] = &amx_split;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        k->matmul[types[i]] = &amx;
}
