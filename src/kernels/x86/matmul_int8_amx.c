/* Matrix products of Q8_0, Q4_0 and Q5_0 weights in int8. The activations are rounded to int8 in
 * blocks of 32 with one f32 scale each, like the weights. The sum of a block is an exact integer;
 * the blocks are scaled and added in f32, in order:
 *
 *   acc = fma(float(sum) * dx, dw, acc)
 *
 * The integers may come from any instruction and the lanes of a vector may be outputs or rows: an
 * output has the same bits. So one to three rows use VNNI dot products, 16 outputs at a time,
 * straight from the file; more use AMX tiles of 16 outputs by 16 rows.
 *
 * While 16 weight rows are worked on the next 16 are fetched in the order of memory, which keeps a
 * core at its read bandwidth. */
#include "base/load.h"
#include "kernels/x86/tile_amx.h"

enum {
    BLOCK = 32,
    GROUP = 16,             /* outputs or rows of a tile */
    FEW_ROWS = 3,           /* up to here dot products are faster than tiles */
    PANEL = 64,             /* outputs prepared together */
    X_TILE = BLOCK * GROUP, /* bytes of a block of 16 rows of x */
    C_TILES = 4             /* sums in flight between tiles and vectors */
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

/* ---- activations ---- */

/* Few rows, each: [in / 32][32] int8, [in / 32] scales, [in / 32] sums of the int8 values.
 * Groups of 16 rows: [in / 32] tiles of [8][16][4] int8, then [in / 32][16] scales. */

static size_t blocks_of(int in)
{
    return ((size_t)in + BLOCK - 1) / BLOCK;
}

static size_t row_bytes(int in)
{
    return (blocks_of(in) * (BLOCK + sizeof(float) + sizeof(int32_t)) + 63) / 64 * 64;
}

static size_t group_size(int in)
{
    return blocks_of(in) * (X_TILE + GROUP * sizeof(float));
}

static size_t packed_size(int n, int in)
{
    return ((size_t)n + GROUP - 1) / GROUP * group_size(in);
}

/* 32 floats to int8; returns the scale. */
static inline float quantise(__m256i *q, const float *x)
{
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    float top = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
    __m512 inv = _mm512_set1_ps(top > 0 ? 127.0f / top : 0);
    __m128i lo = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inv)));
    __m128i hi = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inv)));
    *q = _mm256_inserti128_si256(_mm256_castsi128_si256(lo), hi, 1);
    return top / 127.0f;
}

static inline int32_t sum_bytes(__m256i q)
{
    __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    return _mm512_reduce_add_epi32(_mm512_zextsi256_si512(s));
}

static void pack_row(uint8_t *xp, const float *x, int in)
{
    size_t blocks = blocks_of(in);
    float *scale = (float *)(xp + blocks * BLOCK);
    int32_t *sum = (int32_t *)(scale + blocks);
    for (size_t i = 0; i < blocks; i++) {
        __m256i q;
        scale[i] = quantise(&q, x + i * BLOCK);
        sum[i] = sum_bytes(q);
        _mm256_store_si256((__m256i *)(xp + i * BLOCK), q);
    }
}

/* Rows past n are zero. Two blocks of 16 rows are one 16 x 16 transpose of dwords. */
static void pack_group(uint8_t *xp, const float *x, size_t stride, int n, int in)
{
    size_t blocks = blocks_of(in);
    float *scale = (float *)(xp + blocks * X_TILE);
    for (size_t i = 0; i < blocks; i += 2) {
        int pair = i + 1 < blocks;
        __m512i r[16];
        for (int j = 0; j < GROUP; j++) {
            __m256i q[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
            for (int b = 0; b <= pair; b++)
                scale[(i + (size_t)b) * GROUP + (size_t)j] =
                    j < n ? quantise(&q[b], x + (size_t)j * stride + (i + (size_t)b) * BLOCK) : 0;
            r[j] = _mm512_inserti64x4(_mm512_castsi256_si512(q[0]), q[1], 1);
        }
        transpose_16x16(r);
        for (int j = 0; j < 8 + 8 * pair; j++)
            _mm512_store_si512(xp + i * X_TILE + (size_t)j * 64, r[j]);
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n <= FEW_ROWS) {
        for (int r = r0; r < r1; r++)
            pack_row((uint8_t *)xp + (size_t)r * row_bytes(in), x + (size_t)r * stride, in);
        return;
    }
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), x + (size_t)r * stride,
                   stride, min_int(GROUP, n - r), in);
}

/* ---- weights ---- */

/* Row offsets of outputs o .. o + 15. Past the last output the last is repeated: its products are
 * computed and not stored. */
static inline __m512i row_offsets(const struct matrix *w, int o)
{
    __m512i i = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    i = _mm512_min_epi32(i, _mm512_set1_epi32(w->out - 1 - o));
    return _mm512_mullo_epi32(i, _mm512_set1_epi32((int)w->row_size));
}

/* f16 scales of one block of 16 rows. */
static inline __m512 load_scales(const uint8_t *block, __m512i at)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_i32gather_epi32(at, block, 1)));
}

/* The 32 quants of a block as unsigned bytes, the type's zero being `zero_of`. */
static inline __attribute__((always_inline)) __m256i load_quants(const uint8_t *p, enum dtype t)
{
    const __m256i low = _mm256_set1_epi8(15);
    if (t == DTYPE_Q8_0)
        return _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(p + 2)),
                                _mm256_set1_epi8((char)0x80));
    __m128i b = _mm_loadu_si128((const __m128i *)(p + (t == DTYPE_Q4_0 ? 2 : 6)));
    __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(b), _mm_srli_epi16(b, 4), 1);
    q = _mm256_and_si256(q, low);
    return t == DTYPE_Q4_0 ? q : _mm256_mask_add_epi8(q, load_le32(p + 2), q, _mm256_set1_epi8(16));
}

static inline __attribute__((always_inline)) int zero_of(enum dtype t)
{
    return t == DTYPE_Q8_0 ? 128 : t == DTYPE_Q4_0 ? 8 : 16;
}

static inline void fetch(const uint8_t *p, size_t size)
{
    for (size_t i = 0; i < size; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/* ---- few rows: dot products, lanes are outputs ---- */

/* Sums of the 8 dwords of each half of s[0..7], in the order: low halves of s[0..3], high halves of
 * s[0..3], low halves of s[4..7], high halves of s[4..7]. */
static inline __m512i sum_halves(const __m512i s[8])
{
    __m512i p[4], q[2];
    for (int i = 0; i < 4; i++)
        p[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2 * i], s[2 * i + 1]),
                                _mm512_unpackhi_epi32(s[2 * i], s[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        q[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(p[2 * i], p[2 * i + 1]),
                                _mm512_unpackhi_epi64(p[2 * i], p[2 * i + 1]));
    return _mm512_add_epi32(_mm512_shuffle_i32x4(q[0], q[1], 0x88),
                            _mm512_shuffle_i32x4(q[0], q[1], 0xdd));
}

/* 16 outputs by `rows` rows. */
static inline __attribute__((always_inline)) void dot_group(__m512 *acc, const uint8_t *xp,
                                                            const struct matrix *w, int o, int rows,
                                                            enum dtype t)
{
    size_t blocks = blocks_of(w->in), size = (size_t)dtype_block_size(t), stride = row_bytes(w->in);
    const uint8_t *base = (const uint8_t *)w->data + (size_t)o * w->row_size;
    const uint8_t *next = base + GROUP * w->row_size;
    const size_t ahead = GROUP * size;
    __m512i at = row_offsets(w, o);
    int32_t off[GROUP];
    _mm512_storeu_si512(off, at);
    for (int r = 0; r < rows; r++)
        acc[r] = _mm512_setzero_ps();
    for (size_t i = 0; i < blocks; i++) {
        const uint8_t *p = base + i * size;
        __m512 dw = load_scales(p, at);
        __m512i q[8];
        for (int j = 0; j < 8; j++) {
            int a = j < 4 ? j : j + 4;
            q[j] = _mm512_inserti64x4(_mm512_castsi256_si512(load_quants(p + off[a], t)),
                                      load_quants(p + off[a + 4], t), 1);
        }
        fetch(next + i * ahead, ahead);
        for (int r = 0; r < rows; r++) {
            const uint8_t *x = xp + (size_t)r * stride;
            const float *scale = (const float *)(x + blocks * BLOCK);
            const int32_t *sum = (const int32_t *)(scale + blocks);
            __m512i xv =
                _mm512_broadcast_i64x4(_mm256_load_si256((const __m256i *)(x + i * BLOCK)));
            __m512i zero = _mm512_maskz_set1_epi32(0x0101, -zero_of(t) * sum[i]);
            __m512i s[8];
            for (int j = 0; j < 8; j++)
                s[j] = _mm512_dpbusd_epi32(zero, q[j], xv);
            __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum_halves(s)), _mm512_set1_ps(scale[i]));
            acc[r] = _mm512_fmadd_ps(v, dw, acc[r]);
        }
    }
}

static inline __attribute__((always_inline)) void run_few(float *y, size_t y_stride, const void *xp,
                                                          int n, const struct matrix *w, int o0,
                                                          int o1, enum dtype t)
{
    for (int o = o0; o < o1; o += GROUP) {
        __mmask16 m = (__mmask16)((1u << min_int(GROUP, o1 - o)) - 1);
        __m512 acc[FEW_ROWS];
        if (n == 1)
            dot_group(acc, xp, w, o, 1, t);
        else if (n == 2)
            dot_group(acc, xp, w, o, 2, t);
        else
            dot_group(acc, xp, w, o, 3, t);
        for (int r = 0; r < n; r++) {
            __m512 v = acc[r];
            if (w->bias)
                v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, w->bias + o));
            _mm512_mask_storeu_ps(y + (size_t)r * y_stride + o, m, v);
        }
    }
}

/* ---- many rows: tiles, lanes are rows ---- */

/* 16 outputs ready for products: int8 rows and their scales. */
struct group {
    const uint8_t *q; /* first block of the first row */
    size_t stride;    /* bytes from row to row */
    size_t step;      /* bytes from block to block */
    float *scale;     /* [blocks][16] */
};

static size_t panel_group_size(int in)
{
    return blocks_of(in) * (BLOCK * GROUP + GROUP * sizeof(float));
}

static size_t scratch_size(int in)
{
    return C_TILES * TILE_BYTES + PANEL / GROUP * panel_group_size(in);
}

/* Tiles of Q8_0 are loaded where they lie; other types, and the last outputs of a matrix, are
 * unpacked to int8 first. */
static inline __attribute__((always_inline)) void prepare(struct group *g, uint8_t *mem,
                                                          const struct matrix *w, int o,
                                                          enum dtype t)
{
    size_t blocks = blocks_of(w->in), size = (size_t)dtype_block_size(t);
    const uint8_t *base = (const uint8_t *)w->data + (size_t)o * w->row_size;
    float *scale = (float *)(mem + blocks * BLOCK * GROUP);
    __m512i at = row_offsets(w, o);
    int32_t off[GROUP];
    _mm512_storeu_si512(off, at);
    for (size_t i = 0; i < blocks; i++)
        _mm512_store_ps(scale + i * GROUP, load_scales(base + i * size, at));
    if (t == DTYPE_Q8_0 && o + GROUP <= w->out) {
        *g = (struct group){ .q = base + 2, .stride = w->row_size, .step = size, .scale = scale };
        return;
    }
    for (int r = 0; r < GROUP; r++)
        for (size_t i = 0; i < blocks; i++)
            _mm256_store_si256((__m256i *)(mem + i * BLOCK * GROUP + (size_t)r * BLOCK),
                               _mm256_sub_epi8(load_quants(base + off[r] + i * size, t),
                                               _mm256_set1_epi8((char)zero_of(t))));
    *g = (struct group){ .q = mem, .stride = BLOCK, .step = BLOCK * GROUP, .scale = scale };
}

static void config(void)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = i == 4 || i == 5 ? BLOCK : 64;
        s.rows[i] = i >= 6 ? BLOCK / 4 : GROUP;
    }
    tile_load_shape(&s);
}

/* Integer sums of block i to c[i % C_TILES]. Two sets of tiles take turns; a tile's number is part
 * of the instruction, hence the two spellings. */
static inline void block_sums(int32_t *c, const struct group *g, const uint8_t *xp, size_t i)
{
    const uint8_t *a = g->q + i * g->step, *b = xp + i * X_TILE;
    int32_t *to = c + i % C_TILES * 256;
    if (i % 2) {
        _tile_zero(1);
        _tile_loadd(5, a, g->stride);
        _tile_loadd(7, b, 64);
        _tile_dpbssd(1, 5, 7);
        _tile_stored(1, to, 64);
    } else {
        _tile_zero(0);
        _tile_loadd(4, a, g->stride);
        _tile_loadd(6, b, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, to, 64);
    }
}

static inline void add_block(__m512 acc[GROUP], const int32_t *c, __m512 dx, const float *dw)
{
    for (int o = 0; o < GROUP; o++) {
        __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(c + o * 16)), dx);
        acc[o] = _mm512_fmadd_ps(t, _mm512_set1_ps(dw[o]), acc[o]);
    }
}

/* 16 outputs by 16 rows, one accumulator an output. Result to c[16 outputs][16 rows]. */
static void tile_group(const struct group *g, const uint8_t *xp, size_t blocks, int32_t *c,
                       const uint8_t *next, size_t next_step)
{
    const float *dx = (const float *)(xp + blocks * X_TILE);
    __m512 acc[GROUP];
    for (int o = 0; o < GROUP; o++)
        acc[o] = _mm512_setzero_ps();
    block_sums(c, g, xp, 0);
    for (size_t i = 0; i < blocks; i++) {
        if (i + 1 < blocks)
            block_sums(c, g, xp, i + 1);
        if (next)
            fetch(next + i * next_step, next_step);
        add_block(acc, c + i % C_TILES * 256, _mm512_load_ps(dx + i * GROUP), g->scale + i * GROUP);
    }
    for (int o = 0; o < GROUP; o++)
        _mm512_store_ps(c + o * 16, acc[o]);
}

static inline __attribute__((always_inline)) void run_many(float *y, size_t y_stride,
                                                           const uint8_t *xp, int n,
                                                           const struct matrix *w, int o0, int o1,
                                                           void *scratch, enum dtype t)
{
    size_t blocks = blocks_of(w->in), step = GROUP * (size_t)dtype_block_size(t);
    uint8_t *mem = (uint8_t *)scratch + C_TILES * TILE_BYTES;
    struct group g[PANEL / GROUP];
    config();
    for (int o = o0; o < o1; o += PANEL) {
        int groups = (min_int(PANEL, o1 - o) + GROUP - 1) / GROUP;
        const uint8_t *next = (const uint8_t *)w->data + (size_t)(o + PANEL) * w->row_size;
        for (int i = 0; i < groups; i++)
            prepare(&g[i], mem + (size_t)i * panel_group_size(w->in), w, o + i * GROUP, t);
        for (int r = 0; r < n; r += GROUP)
            for (int i = 0; i < groups; i++) {
                int at = o + i * GROUP;
                const uint8_t *ahead = next + (size_t)i * GROUP * w->row_size;
                tile_group(&g[i], xp + (size_t)(r / GROUP) * group_size(w->in), blocks, scratch,
                           r == 0 ? ahead : NULL, step);
                store_tile(y + (size_t)r * y_stride + at, y_stride, scratch,
                           w->bias ? w->bias + at : NULL, min_int(GROUP, o1 - at),
                           min_int(GROUP, n - r));
            }
    }
    _tile_release();
}

/* ---- the kernels ---- */

static inline __attribute__((always_inline)) void run_type(float *y, size_t y_stride,
                                                           const void *xp, int n,
                                                           const struct matrix *w, int o0, int o1,
                                                           void *scratch, enum dtype t)
{
    if (n <= FEW_ROWS)
        run_few(y, y_stride, xp, n, w, o0, o1, t);
    else
        run_many(y, y_stride, xp, n, w, o0, o1, scratch, t);
}

static void run_q8_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q8_0);
}

static void run_q4_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q4_0);
}

static void run_q5_0(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                     int o0, int o1, void *scratch)
{
    run_type(y, y_stride, xp, n, w, o0, o1, scratch, DTYPE_Q5_0);
}

#define INT8_KERNEL(fn)                                                                            \
    {                                                                                              \
        .name = "amx-int8", .in_multiple = BLOCK, .row_step = GROUP, .out_step = GROUP,            \
        .packed_size = packed_size, .scratch_size = scratch_size, .pack = pack, .run = fn          \
    }

const struct matmul_kernel matmul_q8_0_amx = INT8_KERNEL(run_q8_0);
const struct matmul_kernel matmul_q4_0_amx = INT8_KERNEL(run_q4_0);
const struct matmul_kernel matmul_q5_0_amx = INT8_KERNEL(run_q5_0);
