/* Matrix products with BF16 weights by AMX tiles; x is rounded to bf16. The weights are the A
 * operand: tiles of 16 output rows by 32 values, read directly from the file's layout. The
 * activations are the B operand, packed once for all matrices that share them. One tile product
 * serves up to 16 rows, so verifying 16 rows takes as long as one.
 *
 * The sum over `in` runs from first to last inside the accumulator tile. With many rows it is cut
 * into slices, and the accumulators are kept in memory between them, which changes no bit. Rows
 * whose length is not a multiple of 32 end in a tile padded with zeros, in x and in the weights.
 *
 * Packed x: [rows / 16][in / 32] tiles, both rounded up. */
#include "kernels/x86/many_rows_amx.h"

enum { FEW_GROUPS = 4 }; /* up to 64 rows keep their accumulators in tiles */

/* ---- activations ---- */

static size_t group_size(int in)
{
    return (size_t)steps_of(in) * TILE_BYTES;
}

static size_t packed_size(int n, int in)
{
    return groups_of(n) * group_size(in);
}

static inline __m512i load_bf16(const float *x, int n)
{
    __m512 v[2];
    load_32(v, x, n);
    return to_bf16_32(v[0], v[1]);
}

/* Pack the rows x[0..n) of one group into tiles; columns of rows after n are zero. */
static void pack_group(uint8_t *tiles, const float *x, size_t stride, int n, int in)
{
    for (int k = 0; k < in; k += TILE_K, tiles += TILE_BYTES) {
        __m512i r[16];
        for (int i = 0; i < GROUP; i++)
            r[i] = i < n ? load_bf16(x + (size_t)i * stride + k, in - k) : _mm512_setzero_si512();
        transpose_16x16(r);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(tiles + i * 64, r[i]);
    }
}

/* Pack one row: only its column is written; the contents of the others reach no output. */
static void pack_one(uint8_t *tiles, const float *x, int in)
{
    const __m512i at =
        _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0);
    for (int k = 0; k < in; k += TILE_K, tiles += TILE_BYTES)
        _mm512_i32scatter_epi32(tiles, at, load_bf16(x + k, in - k), 4);
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n == 1) {
        pack_one(xp, x, in);
        return;
    }
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), x + (size_t)r * stride,
                   stride, min_int(GROUP, n - r), in);
}

/* ---- weights ---- */

/* A tiles of sixteen outputs: `step` bytes apart, with rows `stride` bytes apart. */
struct a_tiles {
    const uint8_t *p;
    size_t step, stride;
};

/* Scratch memory for many rows, or for four C tiles and a copy of sixteen whole outputs. */
static size_t scratch_size(int in)
{
    size_t few = 4 * TILE_BYTES + group_size(in), many = many_rows_scratch();
    return few > many ? few : many;
}

/* ---- few rows: the accumulators stay in tiles 0 to 3 ---- */

/* Multiply n steps for each of `groups` groups of rows; A is in tile 4. */
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

/* Compute outputs o, o + apart, ..., o + 15 apart. */
static void few_outputs(const struct target *t, const uint8_t *xp, const struct matrix *w, int o,
                        int apart, void *scratch)
{
    uint8_t *copy = (uint8_t *)scratch + 4 * TILE_BYTES;
    int groups = (int)groups_of(t->n);
    /* Tiles can be loaded directly from the matrix, except at its end and at the ends of its rows.
     */
    int ready = o + (GROUP - 1) * apart < w->out ? w->in / TILE_K : 0, all = steps_of(w->in);
    struct a_tiles a = { (const uint8_t *)w->data + (size_t)o * w->row_size, 64,
                         (size_t)apart * w->row_size };
    struct a_tiles rest = { copy, TILE_BYTES, 64 };
    float *c = scratch;
    if (ready < all)
        copy_tiles(copy, w, o, apart, ready * TILE_K, w->in);
    tiles_written();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (ready > 0)
        steps_few(&a, xp, group_size(w->in), ready, groups);
    if (ready < all)
        steps_few(&rest, xp + (size_t)ready * TILE_BYTES, group_size(w->in), all - ready, groups);
    _tile_stored(0, c, 64);
    _tile_stored(1, c + 256, 64);
    _tile_stored(2, c + 512, 64);
    _tile_stored(3, c + 768, 64);
    for (int g = 0; g < groups; g++)
        put_tile(t, c + g * 256, o, apart, g);
}

static void run_few(const struct target *t, const uint8_t *xp, const struct matrix *w, int o0,
                    void *scratch)
{
    int apart = rows_apart(w, t->o1 - o0);
    while (apart > 0) {
        for (int i = 0; i < apart; i++)
            few_outputs(t, xp, w, o0 + i, apart, scratch);
        o0 += GROUP * apart;
        apart = rows_apart(w, t->o1 - o0);
    }
    if (o0 < t->o1)
        few_outputs(t, xp, w, o0, 1, scratch);
}

/* ---- the kernel ---- */

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    tile_config();
    if (groups_of(n) <= FEW_GROUPS)
        run_few(&t, xp, w, o0, scratch);
    else
        many_rows_run(&t, xp, w, o0, scratch);
    _tile_release();
}

static const struct matmul_kernel amx_bf16 = { .name = "amx",
                                               .in_multiple = 1,
                                               .row_step = GROUP,
                                               .out_step = GROUP,
                                               .packed_size = packed_size,
                                               .scratch_size = scratch_size,
                                               .pack = pack,
                                               .run = run,
                                               .fused = many_rows_fused };

/* ---- a matrix stored in tiles: [out / 16][in / 32] of them ---- */

static size_t repacked_size(const struct matrix *w)
{
    return groups_of(w->out) * group_size(w->in);
}

static void repack(void *to, const struct matrix *w, int o0, int o1)
{
    for (int o = o0; o < o1; o += GROUP)
        copy_tiles((uint8_t *)to + (size_t)(o / GROUP) * group_size(w->in), w, o, 1, 0, w->in);
}

static void repacked_run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w,
                         int o0, int o1, void *scratch)
{
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    tile_config();
    many_rows_run(&t, xp, w, o0, scratch);
    _tile_release();
}

static const struct matmul_kernel amx_bf16_repacked = { .name = "amx",
                                                        .in_multiple = 1,
                                                        .row_step = GROUP,
                                                        .out_step = GROUP,
                                                        .packed_size = packed_size,
                                                        .scratch_size = scratch_size,
                                                        .pack = pack,
                                                        .run = repacked_run,
                                                        .fused = many_rows_fused,
                                                        .repacked_size = repacked_size,
                                                        .repack = repack };

/* Other types use AVX-512, whose kernels are limited by memory bandwidth; unpacking them to bf16
 * tiles is slower (2 to 8 GB/s per core). */
void kernels_init_amx(struct kernels *k)
{
    k->matmul[DTYPE_BF16] = k->matmul_any[DTYPE_BF16] = &amx_bf16;
    k->matmul[DTYPE_F16] = k->matmul_any[DTYPE_F16] = &matmul_f16_amx;
    k->matmul_repacked[DTYPE_Q8_0] = k->matmul_repacked[DTYPE_Q4_0] =
        k->matmul_repacked[DTYPE_Q5_0] = k->matmul_repacked[DTYPE_IQ4_NL] = &matmul_repacked_amx;
    k->matmul_repacked[DTYPE_F16] = &matmul_f16_repacked_amx;
    quant_init_amx(k);
    k->matmul[DTYPE_Q8_0] = &matmul_q8_0_amx;
    k->matmul[DTYPE_Q4_0] = &matmul_q4_0_amx;
    k->matmul[DTYPE_Q5_0] = &matmul_q5_0_amx;
    k->matmul[DTYPE_IQ4_NL] = &matmul_iq4_nl_amx;
    k->matmul_many_repacked[DTYPE_BF16] = &amx_bf16_repacked;
    k->attn[DTYPE_BF16] = &attn_bf16_amx;
    k->attn[DTYPE_F16] = &attn_f16_amx;
    k->attn_pair = &attn_pair_amx;
}
