/* Matrix products of BF16 weights by AMX tiles, x being rounded to bf16. The weights are the A
 * operand: 16 output rows by 32 values a tile, where they lie in the file; the activations are the
 * B operand, packed once for all matrices that share them. One product serves up to 16 rows, so a
 * verification of 16 rows costs what one costs.
 *
 * The sum over `in` runs from first to last inside the accumulator tile. With many rows it is cut
 * in slices and the accumulators wait in memory between them, which changes no bit.
 *
 * Packed x: [rows / 16][in / 32] tiles. */
#include "kernels/x86/tile_amx.h"

enum {
    GROUP = TILE_ROWS, /* activation rows, or outputs, of one tile */
    FEW_GROUPS = 4,    /* up to 64 rows keep their accumulators in tiles */
    SLICE = 512,       /* values of `in` that many rows work on: 16 KiB for an output tile */
    SLICE_BYTES = SLICE / TILE_K * TILE_BYTES,
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

static inline __m512i load_bf16(const float *x)
{
    return to_bf16_32(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16));
}

/* Tiles of the rows x[0..n) of one group; columns of rows past n are zero. */
static void pack_group(uint8_t *tiles, const float *x, size_t stride, int n, int in)
{
    for (int k = 0; k < in; k += TILE_K, tiles += TILE_BYTES) {
        __m512i r[16];
        for (int i = 0; i < GROUP; i++)
            r[i] = i < n ? load_bf16(x + (size_t)i * stride + k) : _mm512_setzero_si512();
        transpose_16x16(r);
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(tiles + i * 64, r[i]);
    }
}

/* One row: only its column is written; what the others hold reaches no output. */
static void pack_one(uint8_t *tiles, const float *x, int in)
{
    const __m512i at =
        _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0);
    for (int k = 0; k < in; k += TILE_K, tiles += TILE_BYTES)
        _mm512_i32scatter_epi32(tiles, at, load_bf16(x + k), 4);
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

/* A tiles of sixteen outputs: `step` bytes apart, their rows `stride`. */
struct a_tiles {
    const uint8_t *p;
    size_t step, stride;
};

/* Scratch: accumulators of MANY_ROWS rows by 32 outputs, then weights copied into tiles: two
 * slices, or the last outputs of a matrix in full length. */
static size_t scratch_size(int in)
{
    size_t whole = group_size(in), slices = 2 * (size_t)SLICE_BYTES;
    return (size_t)MANY_ROWS / GROUP * 2 * TILE_BYTES + (whole > slices ? whole : slices);
}

static uint8_t *tiles_of(void *scratch)
{
    return (uint8_t *)scratch + (size_t)MANY_ROWS / GROUP * 2 * TILE_BYTES;
}

/* Values [k0, k1) of outputs o .. o + 15 into tiles, row after row as they lie in memory. Past the
 * last output the last one is repeated: its products are computed and not stored. */
static void copy_tiles(uint8_t *dst, const struct matrix *w, int o, int k0, int k1)
{
    for (int r = 0; r < GROUP; r++) {
        const uint8_t *src =
            (const uint8_t *)w->data + (size_t)min_int(o + r, w->out - 1) * w->row_size;
        for (int k = k0; k < k1; k += TILE_K)
            _mm512_store_si512(dst + (size_t)((k - k0) / TILE_K) * TILE_BYTES + r * 64,
                               _mm512_loadu_si512(src + (size_t)k * 2));
    }
}

/* Outputs o, o + apart, ... in full length: where they lie, or copied if the matrix ends before. */
static struct a_tiles whole_rows(const struct matrix *w, int o, int apart, uint8_t *mem)
{
    if (o + (GROUP - 1) * apart < w->out)
        return (struct a_tiles){ (const uint8_t *)w->data + (size_t)o * w->row_size, 64,
                                 (size_t)apart * w->row_size };
    copy_tiles(mem, w, o, 0, w->in);
    tiles_written();
    return (struct a_tiles){ mem, TILE_BYTES, 64 };
}

/* ---- where results go ---- */

struct target {
    float *y;
    size_t stride;
    const float *bias;
    int n;  /* rows */
    int o1; /* end of the outputs asked for */
};

static void put_tile(const struct target *t, const float *c, int o, int apart, int group)
{
    int r = group * GROUP;
    struct tile_place p = { .y = t->y + (size_t)r * t->stride + o,
                            .stride = t->stride,
                            .bias = t->bias ? t->bias + o : NULL,
                            .apart = apart,
                            .n_out = apart > 1 ? GROUP : min_int(GROUP, t->o1 - o),
                            .n_rows = min_int(GROUP, t->n - r) };
    store_tile(&p, c);
}

/* ---- few rows: the accumulators stay in tiles 0 to 3 ---- */

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

/* Outputs o, o + apart, ... , o + 15 apart. */
static void few_outputs(const struct target *t, const uint8_t *xp, const struct matrix *w, int o,
                        int apart, void *scratch)
{
    struct a_tiles a = whole_rows(w, o, apart, tiles_of(scratch));
    int groups = (int)groups_of(t->n);
    float *c = scratch;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    steps_few(&a, xp, group_size(w->in), w->in / TILE_K, groups);
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

/* Rows of groups [g0, g0 + groups) by outputs o .. o + 31. An odd last group is computed twice,
 * which gives the same twice. c[group][2 output tiles]. */
static void run_many(const struct target *t, const uint8_t *xp, const struct matrix *w, int o,
                     int g0, int groups, void *scratch)
{
    size_t gs = group_size(w->in);
    float *c = scratch;
    uint8_t *a = tiles_of(scratch);
    for (int k0 = 0; k0 < w->in; k0 += SLICE) {
        int k1 = min_int(w->in, k0 + SLICE);
        copy_tiles(a, w, o, k0, k1);
        copy_tiles(a + SLICE_BYTES, w, o + GROUP, k0, k1);
        tiles_written();
        for (int g = 0; g < groups; g += 2) {
            size_t second = g + 1 < groups ? 1 : 0;
            const uint8_t *b = xp + (size_t)(g0 + g) * gs + (size_t)(k0 / TILE_K) * TILE_BYTES;
            float *acc = c + (size_t)g * 512;
            load_c(acc, second * 512, k0 == 0);
            steps_2x2(a, SLICE_BYTES, b, second * gs, (k1 - k0) / TILE_K);
            _tile_stored(1, acc + second * 512, 64);
            _tile_stored(3, acc + second * 512 + 256, 64);
            _tile_stored(0, acc, 64);
            _tile_stored(2, acc + 256, 64);
        }
    }
    for (int g = 0; g < groups; g++)
        for (int i = 0; i < 2; i++)
            if (o + i * GROUP < t->o1)
                put_tile(t, c + (size_t)g * 512 + i * 256, o + i * GROUP, 1, g0 + g);
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

static const struct matmul_kernel amx_bf16 = { .name = "amx",
                                               .in_multiple = TILE_K,
                                               .row_step = GROUP,
                                               .out_step = GROUP,
                                               .packed_size = packed_size,
                                               .scratch_size = scratch_size,
                                               .pack = pack,
                                               .run = run };

/* Other types stay with AVX-512, whose kernels read them at the speed of memory: unpacking them to
 * bf16 tiles does not (2 to 8 GB/s a core). */
void kernels_init_amx(struct kernels *k)
{
    k->matmul[DTYPE_BF16] = &amx_bf16;
    k->matmul[DTYPE_Q8_0] = &matmul_q8_0_amx;
    k->matmul[DTYPE_Q4_0] = &matmul_q4_0_amx;
    k->matmul[DTYPE_Q5_0] = &matmul_q5_0_amx;
    k->attn[DTYPE_BF16] = &attn_bf16_amx;
}
