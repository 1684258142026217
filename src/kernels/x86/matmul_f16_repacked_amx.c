/* Products with repacked F16 weights by AMX tiles, with the bits of matmul_f16_amx.c; for few rows,
 * where splitting the weights takes most of the time. The repacked 16-bit code of a number can be
 * split into its two bf16 parts by nine instructions for 32 numbers instead of fourteen. The
 * numbers are stored in the order of the tile: x is the A operand, so few rows are small tiles.
 *
 * Repacked order: [out / 16][in / 32] tiles of 16 pairs of values (in the order of split_place) by
 * 16 outputs, rounded up. The 16 lines of a tile are distributed over PLANES planes in turn, which
 * are as many long streams for the hardware to prefetch. Then follows a byte for each 16 outputs:
 * whether their numbers are coded. They are if all are below 64 in magnitude; then w 2^10 is normal
 * in F16, or zero, and its bits s eeeee mmmmmmm rrr are stored as s rrr eeeee mmmmmmm. Others are
 * stored as F16.
 *
 * Up to 32 rows are computed here; more rows use the file's order. Packed x: [rows, one or two
 * groups][in / 32][2][rows of a group][32 values]. */
#include "kernels/x86/many_rows_amx.h"

enum {
    MOST_ROWS = 2 * TILE_ROWS,
    STEP = 2 * TILE_BYTES, /* bytes of both parts of a tile */
    STREAMS = 2,           /* far-apart groups of outputs that are read together */
    LINE = 64,
    PLANES = 8,
    PLANE_STEP = TILE_BYTES / PLANES, /* bytes of a tile per plane */
    AHEAD = 512,                      /* prefetch distance in bytes of a plane */
    TOO_LARGE = 0x5400                /* 64 in F16 */
};

/* Rows per group, for n rows. */
static int height_of(int n)
{
    return n <= TILE_ROWS ? n : (n + 1) / 2;
}

static size_t group_size(int height, int in)
{
    return (size_t)steps_of(in) * 2 * LINE * (size_t)height;
}

static size_t packed_size(int n, int in)
{
    return n > MOST_ROWS ? matmul_f16_amx.packed_size(n, in)
                         : groups_of(n) * group_size(height_of(n), in);
}

static size_t scratch_size(int in)
{
    size_t repacked = 4 * TILE_BYTES + 2 * STREAMS * STEP, file = matmul_f16_amx.scratch_size(in);
    return repacked > file ? repacked : file;
}

/* ---- activations ---- */

static void pack_row(uint8_t *to, size_t plane, const float *x, int in, __m512i order)
{
    for (int k = 0; k < in; k += TILE_K, to += 2 * plane) {
        __m512 v[2];
        load_32(v, x + k, in - k);
        __m512i first = to_bf16_32(v[0], v[1]);
        _mm512_store_si512(to, _mm512_permutexvar_epi32(order, first));
        _mm512_store_si512(to + plane,
                           _mm512_permutexvar_epi32(order, rest_bf16_32(first, v[0], v[1])));
    }
}

static void zero_row(uint8_t *to, size_t plane, int in)
{
    for (int k = 0; k < in; k += TILE_K, to += 2 * plane) {
        _mm512_store_si512(to, _mm512_setzero_si512());
        _mm512_store_si512(to + plane, _mm512_setzero_si512());
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n > MOST_ROWS) {
        matmul_f16_amx.pack(xp, x, stride, n, in, r0, r1);
        return;
    }
    int height = height_of(n), from[16];
    size_t plane = (size_t)height * LINE;
    for (int i = 0; i < 16; i++)
        from[split_place(i)] = i;
    __m512i order = _mm512_loadu_si512(from);
    for (int r = r0; r < r1 || (r1 == n && r % height != 0); r++) {
        uint8_t *to = (uint8_t *)xp + (size_t)(r / height) * group_size(height, in) +
                      (size_t)(r % height) * LINE;
        if (r < r1)
            pack_row(to, plane, x + (size_t)r * stride, in, order);
        else
            zero_row(to, plane, in);
    }
}

/* ---- weights ---- */

/* Bytes from plane to plane: not a multiple of a page, because lines of all planes would then fall
 * into the same few cache sets. */
static size_t repacked_plane(const struct matrix *w)
{
    size_t size = groups_of(w->out) * (size_t)steps_of(w->in) * PLANE_STEP;
    return (size + 4095) / 4096 * 4096 + 9 * LINE;
}

static size_t repacked_size(const struct matrix *w)
{
    return PLANES * repacked_plane(w) + (groups_of(w->out) + LINE - 1) / LINE * LINE;
}

static uint8_t *coded_flags(const void *repacked, const struct matrix *w)
{
    return (uint8_t *)(uintptr_t)repacked + PLANES * repacked_plane(w);
}

/* Offset of line i of a tile from its first line. */
static inline size_t line_at(size_t plane, int i)
{
    return (size_t)(i % PLANES) * plane + (size_t)(i / PLANES) * LINE;
}

/* Load the next 32 of n > 0 numbers of a row, with zeros after the last. */
static __m512i row_part(const uint8_t *src, int n)
{
    return _mm512_maskz_loadu_epi16(n < TILE_K ? (1u << n) - 1 : ~0u, src);
}

static bool all_small(const struct matrix *w, int o)
{
    const __m512i most = _mm512_set1_epi16(TOO_LARGE), sign = _mm512_set1_epi16(0x7fff);
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *src = weight_row(w, o + r);
        for (int k = 0; k < w->in; k += TILE_K)
            if (_mm512_cmpge_epu16_mask(
                    _mm512_and_si512(row_part(src + (size_t)k * 2, w->in - k), sign), most))
                return false;
    }
    return true;
}

static __m256i times_1024(__m256i h)
{
    __m512 v = _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(1024));
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static __m512i code(__m512i h)
{
    h = _mm512_inserti64x4(_mm512_castsi256_si512(times_1024(_mm512_castsi512_si256(h))),
                           times_1024(_mm512_extracti64x4_epi64(h, 1)), 1);
    __m512i sign = _mm512_and_si512(h, _mm512_set1_epi16((short)0x8000));
    __m512i rest = _mm512_slli_epi16(_mm512_and_si512(h, _mm512_set1_epi16(7)), 12);
    __m512i top = _mm512_srli_epi16(_mm512_and_si512(h, _mm512_set1_epi16(0x7fff)), 3);
    /* -0 becomes 0: the code of a sign alone would be another number. */
    return _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(h, _mm512_set1_epi16(0x7fff)),
                                  _mm512_or_si512(sign, _mm512_or_si512(rest, top)));
}

static void repack(void *to, const struct matrix *w, int o0, int o1)
{
    int steps = steps_of(w->in);
    size_t plane = repacked_plane(w);
    for (int o = o0; o < o1; o += GROUP) {
        uint8_t *tile = (uint8_t *)to + (size_t)(o / GROUP) * (size_t)steps * PLANE_STEP;
        bool coded = all_small(w, o);
        coded_flags(to, w)[o / GROUP] = coded;
        for (int k = 0; k < w->in; k += TILE_K, tile += PLANE_STEP) {
            __m512i r[16];
            for (int i = 0; i < GROUP; i++) {
                __m512i h = row_part(weight_row(w, o + i) + (size_t)k * 2, w->in - k);
                r[i] = coded ? code(h) : h;
            }
            transpose_16x16(r);
            for (int i = 0; i < 16; i++)
                _mm512_store_si512(tile + line_at(plane, split_place(i)), r[i]);
        }
    }
}

/* What is added to the first part and to the exponent of the second, indexed by the bits s rrr. The
 * first part is rounded up if rrr is 4 or more; the second is rrr or rrr - 8. */
struct code_tables {
    __m512i first, second;
};

static struct code_tables code_tables(void)
{
    /* Bits of 1, 2, 3, 4 in bf16. */
    static const uint16_t small[] = { 0, 0x3f80, 0x4000, 0x4040, 0x4080 };
    uint16_t first[32] = { 0 }, second[32] = { 0 };
    for (int i = 0; i < 16; i++) {
        int r = i % 8, up = r >= 4;
        first[i] = (uint16_t)((102 << 7) + up);                    /* 127 - 15 - 10 */
        second[i] = (uint16_t)(small[up ? 8 - r : r] - (35 << 7)); /* 15 + 10 + 10 */
        second[i] |= (uint16_t)((i / 8 != up) << 15);
    }
    return (struct code_tables){ _mm512_loadu_si512(first), _mm512_loadu_si512(second) };
}

/* Split a tile of coded numbers into its two parts. */
static inline __attribute__((always_inline)) void split_coded(uint8_t *to, const uint8_t *tile,
                                                              size_t plane,
                                                              const struct code_tables *t)
{
    const __m512i top = _mm512_set1_epi16((short)0x8fff), exponent = _mm512_set1_epi16(0x0f80);
    const __m512i rest = _mm512_set1_epi16(0x7000);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_ROWS; i++, to += LINE) {
        const uint8_t *line = tile + line_at(plane, i);
        __m512i u = _mm512_load_si512(line), at = _mm512_srli_epi16(u, 12);
        __mmask32 any = _mm512_test_epi16_mask(u, u), second = _mm512_test_epi16_mask(u, rest);
        _mm_prefetch((const char *)line + AHEAD, _MM_HINT_T0);
        _mm512_store_si512(to, _mm512_maskz_add_epi16(any, _mm512_and_si512(u, top),
                                                      _mm512_permutexvar_epi16(at, t->first)));
        _mm512_store_si512(to + TILE_BYTES,
                           _mm512_maskz_add_epi16(second, _mm512_and_si512(u, exponent),
                                                  _mm512_permutexvar_epi16(at, t->second)));
    }
}

/* The same for a tile of F16 numbers. */
static void split_plain(uint8_t *to, const uint8_t *tile, size_t plane)
{
    for (int i = 0; i < TILE_ROWS; i++, to += LINE)
        split_f16_rounded(to, TILE_BYTES, _mm512_load_si512(tile + line_at(plane, i)));
}

/* ---- sums ---- */

/* Rows of x and where their results go. */
struct repacked_rows {
    const uint8_t *xp;
    int n, groups, height;
    const struct target *t;
};

/* Tiles 0 to 3 hold sums, [outputs][groups of rows], 4 and 5 weights, 6 and 7 rows. */
static void config(int height)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = 64;
        s.rows[i] = (uint8_t)(i == 4 || i == 5 ? TILE_ROWS : height);
    }
    tile_load_shape(&s);
}

/* Products in the order w1 x2, w1 x1, w2 x1, for one group of rows or two. */
#define ONE_GROUP(c)                                                                               \
    do {                                                                                           \
        _tile_dpbf16ps(c, 6, 4);                                                                   \
        _tile_dpbf16ps(c, 7, 4);                                                                   \
        _tile_dpbf16ps(c, 7, 5);                                                                   \
    } while (0)
#define TWO_GROUPS(c, c2, b, b2)                                                                   \
    do {                                                                                           \
        _tile_loadd(6, (b) + plane, LINE);                                                         \
        _tile_dpbf16ps(c, 6, 4);                                                                   \
        _tile_loadd(7, (b2) + plane, LINE);                                                        \
        _tile_dpbf16ps(c2, 7, 4);                                                                  \
        _tile_loadd(6, b, LINE);                                                                   \
        _tile_dpbf16ps(c, 6, 4);                                                                   \
        _tile_dpbf16ps(c, 6, 5);                                                                   \
        _tile_loadd(7, b2, LINE);                                                                  \
        _tile_dpbf16ps(c2, 7, 4);                                                                  \
        _tile_dpbf16ps(c2, 7, 5);                                                                  \
    } while (0)

/* Multiply one step of `streams` tiles of weights at a. */
static inline __attribute__((always_inline)) void step_product(const uint8_t *a, const uint8_t *b,
                                                               size_t group, size_t plane,
                                                               int streams, int groups)
{
    if (groups == 1) {
        _tile_loadd(6, b + plane, LINE);
        _tile_loadd(7, b, LINE);
    }
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + TILE_BYTES, 64);
    if (groups == 1)
        ONE_GROUP(0);
    else
        TWO_GROUPS(0, 1, b, b + group);
    if (streams == 1)
        return;
    _tile_loadd(4, a + STEP, 64);
    _tile_loadd(5, a + STEP + TILE_BYTES, 64);
    if (groups == 1)
        ONE_GROUP(2);
    else
        TWO_GROUPS(2, 3, b, b + group);
}

/* Multiply all of `in` for the groups of outputs at w[0..streams); products are one step behind the
 * splitting. */
static inline __attribute__((always_inline)) void steps(uint8_t *a, const uint8_t *const *w,
                                                        size_t from, const bool *coded, int n_steps,
                                                        const struct repacked_rows *x, size_t group,
                                                        int streams, int groups)
{
    const struct code_tables tables = code_tables();
    const size_t plane = (size_t)x->height * LINE;
    const uint8_t *b = x->xp;
    for (int k = 0; k <= n_steps; k++) {
        for (int j = 0; j < streams && k < n_steps; j++) {
            uint8_t *to = a + (k % 2 * STREAMS + j) * STEP;
            if (coded[j])
                split_coded(to, w[j] + (size_t)k * PLANE_STEP, from, &tables);
            else
                split_plain(to, w[j] + (size_t)k * PLANE_STEP, from);
        }
        tiles_written();
        if (k > 0) {
            step_product(a + (k - 1) % 2 * STREAMS * STEP, b, group, plane, streams, groups);
            b += 2 * plane;
        }
    }
}

static void put_rows(const struct repacked_rows *x, const float *c, int o, int g)
{
    const struct target *t = x->t;
    int n = min_int(x->height, x->n - g * x->height);
    __mmask16 there = (__mmask16)((1u << min_int(GROUP, t->o1 - o)) - 1);
    float *y = t->y + (size_t)(g * x->height) * t->stride + o;
    for (int r = 0; r < n; r++, y += t->stride) {
        __m512 v = _mm512_load_ps(c + r * 16);
        if (t->bias)
            v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(there, t->bias + o));
        _mm512_mask_storeu_ps(y, there, v);
    }
}

/* Compute the 16 outputs from each of o[0..streams) on. */
static void run_outputs(const struct repacked_rows *x, const struct matrix *w, const int *o,
                        int streams, float *c)
{
    uint8_t *a = (uint8_t *)(c + 4 * 256);
    const uint8_t *tiles[STREAMS] = { 0 };
    bool coded[STREAMS] = { false };
    int n = steps_of(w->in);
    size_t group = group_size(x->height, w->in), from = repacked_plane(w);
    for (int j = 0; j < streams; j++) {
        tiles[j] = (const uint8_t *)w->repacked + (size_t)(o[j] / GROUP) * (size_t)n * PLANE_STEP;
        coded[j] = coded_flags(w->repacked, w)[o[j] / GROUP] != 0;
    }
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (streams == 1 && x->groups == 1)
        steps(a, tiles, from, coded, n, x, group, 1, 1);
    else if (streams == 1)
        steps(a, tiles, from, coded, n, x, group, 1, 2);
    else if (x->groups == 1)
        steps(a, tiles, from, coded, n, x, group, 2, 1);
    else
        steps(a, tiles, from, coded, n, x, group, 2, 2);
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
    tiles_written();
    for (int j = 0; j < streams; j++)
        for (int g = 0; g < x->groups; g++)
            put_rows(x, c + (2 * j + g) * 256, o[j], g);
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    if (n > MOST_ROWS) {
        struct matrix file = *w;
        file.repacked = NULL;
        matmul_f16_amx.run(y, y_stride, xp, n, &file, o0, o1, scratch);
        return;
    }
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    struct repacked_rows x = { xp, n, (int)groups_of(n), height_of(n), &t };
    int groups = (o1 - o0 + GROUP - 1) / GROUP, apart = groups / STREAMS;
    config(x.height);
    for (int i = 0; i < apart; i++)
        run_outputs(&x, w, (int[]){ o0 + i * GROUP, o0 + (i + apart) * GROUP }, STREAMS, scratch);
    if (groups % STREAMS != 0)
        run_outputs(&x, w, (int[]){ o0 + (groups - 1) * GROUP, 0 }, 1, scratch);
    _tile_release();
}

const struct matmul_kernel matmul_f16_repacked_amx = { .name = "amx",
                                                       .in_multiple = 1,
                                                       .row_step = GROUP,
                                                       .out_step = GROUP,
                                                       .packed_size = packed_size,
                                                       .scratch_size = scratch_size,
                                                       .pack = pack,
                                                       .run = run,
                                                       .few_rows = true,
                                                       .repacked_size = repacked_size,
                                                       .repack = repack };
