/* Products with F16 weights by AMX tiles: weights and x are stored in two bf16 planes each
 * (many_rows_amx.c), with three tile products where BF16 needs one. x keeps 17 bits, more than F16
 * has. As with BF16, up to 16 rows take as long as one, and up to 64 keep their accumulators in
 * tiles.
 *
 * Splitting the weights takes longer than the tile products, so with few rows the two overlap: a
 * step of 32 values of 16 far-apart outputs is split while the previous step is multiplied, and
 * later values are prefetched. One row with weights from memory then takes as long as in f32
 * arithmetic.
 *
 * Packed x: [rows / 16][in / 32][2] tiles, rounded up, pairs of values in the order of split_place.
 * Up to 16 rows have tiles of just as many columns, [16 pairs][columns]: whole tiles would be twice
 * as large as the weights they are multiplied by, and would evict these from L1 (one row, weights
 * from memory, one core: 14.8 GB/s with whole tiles, 16.2 with one column). */
#include "kernels/x86/many_rows_amx.h"

enum {
    FEW_GROUPS = 4,        /* groups of rows that count as few: 64 rows */
    STEP = 2 * TILE_BYTES, /* bytes of both planes */
    COLUMN = 4,            /* bytes of a pair of values */
    AHEAD = 1024           /* prefetch distance in bytes of a row */
};

/* Columns of the tiles of x, for n rows. */
static int columns_of(int n)
{
    return n == 1 ? 1 : n < GROUP ? (n + 3) / 4 * 4 : GROUP;
}

/* Bytes per plane of a step. */
static size_t plane_size(int columns)
{
    return (size_t)(GROUP * COLUMN) * (size_t)columns;
}

/* ---- activations ---- */

static size_t group_size(int in)
{
    return (size_t)steps_of(in) * STEP;
}

static size_t packed_size(int n, int in)
{
    return groups_of(n) * (size_t)steps_of(in) * 2 * plane_size(columns_of(n));
}

/* Split the next 32 of n values of row x: first parts and the rest. */
static inline void split_x(__m512i part[2], const float *x, int n)
{
    __m512 v[2];
    load_32(v, x, n);
    part[0] = to_bf16_32(v[0], v[1]);
    part[1] = rest_bf16_32(part[0], v[0], v[1]);
}

static void turn(uint8_t *tile, __m512i r[16], int columns)
{
    __mmask16 there = (__mmask16)((1u << columns) - 1);
    transpose_16x16(r);
    for (int i = 0; i < 16; i++)
        _mm512_mask_storeu_epi32(tile + split_place(i) * columns * COLUMN, there, r[i]);
}

/* Pack the rows x[0..n) of one group into tiles; columns of rows after n are zero. */
static void pack_group(uint8_t *tiles, const float *x, size_t stride, int n, int in, int columns)
{
    size_t plane = plane_size(columns);
    for (int k = 0; k < in; k += TILE_K, tiles += 2 * plane) {
        __m512i first[16], rest[16], part[2];
        for (int i = 0; i < GROUP; i++) {
            part[0] = part[1] = _mm512_setzero_si512();
            if (i < n)
                split_x(part, x + (size_t)i * stride + k, in - k);
            first[i] = part[0];
            rest[i] = part[1];
        }
        turn(tiles, first, columns);
        turn(tiles + plane, rest, columns);
    }
}

/* Pack one row: its column is a cache line. */
static void pack_one(uint8_t *tiles, const float *x, int in)
{
    int from[16];
    for (int i = 0; i < 16; i++)
        from[split_place(i)] = i;
    __m512i order = _mm512_loadu_si512(from), part[2];
    for (int k = 0; k < in; k += TILE_K, tiles += 2 * GROUP * COLUMN) {
        split_x(part, x + k, in - k);
        _mm512_store_si512(tiles, _mm512_permutexvar_epi32(order, part[0]));
        _mm512_store_si512(tiles + GROUP * COLUMN, _mm512_permutexvar_epi32(order, part[1]));
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    if (n == 1) {
        pack_one(xp, x, in);
        return;
    }
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), x + (size_t)r * stride,
                   stride, min_int(GROUP, n - r), in, columns_of(n));
}

/* ---- few rows: the accumulators stay in tiles 0 to 3 ---- */

/* Scratch memory for many rows, or for four C tiles and two steps of sixteen outputs. */
static size_t scratch_size(int in)
{
    size_t few = 4 * TILE_BYTES + 2 * STEP, many = many_rows_scratch();
    (void)in;
    return few > many ? few : many;
}

/* Tiles 0 to 3 hold sums, 4 and 5 weights, 6 and 7 rows. */
static void config(int columns)
{
    struct tile_shape s = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        s.colsb[i] = (uint16_t)(i == 4 || i == 5 ? 64 : columns * COLUMN);
        s.rows[i] = TILE_ROWS;
    }
    tile_load_shape(&s);
}

/* Packed x of few rows: group by group, in tiles of `columns` columns. */
struct few_x {
    const uint8_t *p;
    int groups, columns;
};

/* The product of a step for one group of rows, in the order of many_rows_amx.c: w1 x2, w1 x1,
 * w2 x1. */
#define GROUP_PRODUCT(c, b)                                                                        \
    do {                                                                                           \
        _tile_loadd(6, (b) + plane, row);                                                          \
        _tile_dpbf16ps(c, 4, 6);                                                                   \
        _tile_loadd(7, b, row);                                                                    \
        _tile_dpbf16ps(c, 4, 7);                                                                   \
        _tile_dpbf16ps(c, 5, 7);                                                                   \
    } while (0)

static inline __attribute__((always_inline)) void step_product(const uint8_t *a, const uint8_t *b,
                                                               size_t b_step, int groups,
                                                               int columns)
{
    const int row = columns * COLUMN, plane = GROUP * row;
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + TILE_BYTES, 64);
    GROUP_PRODUCT(0, b);
    if (groups > 1)
        GROUP_PRODUCT(1, b + b_step);
    if (groups > 2)
        GROUP_PRODUCT(2, b + 2 * b_step);
    if (groups > 3)
        GROUP_PRODUCT(3, b + 3 * b_step);
}

static inline __attribute__((always_inline)) void step_split(uint8_t *a, const uint8_t **row, int k,
                                                             int left)
{
    for (int r = 0; r < GROUP; r++) {
        _mm_prefetch((const char *)row[r] + (size_t)k * 2 + AHEAD, _MM_HINT_T1);
        split_row(a + r * 64, row[r] + (size_t)k * 2, left);
    }
    tiles_written();
}

/* Multiply all of `in`, one step behind the splitting. */
static inline __attribute__((always_inline)) void steps(uint8_t *a, const uint8_t **row, int in,
                                                        const uint8_t *b, int groups, int columns)
{
    const size_t b_step = group_size(in), step = 2 * plane_size(columns);
    int k = 0, whole = in / TILE_K * TILE_K;
    for (; k < in; k += TILE_K) {
        if (k < whole)
            step_split(a + k / TILE_K % 2 * STEP, row, k, TILE_K);
        else
            step_split(a + k / TILE_K % 2 * STEP, row, k, in - k);
        if (k > 0) {
            step_product(a + (k / TILE_K + 1) % 2 * STEP, b, b_step, groups, columns);
            b += step;
        }
    }
    step_product(a + (k / TILE_K + 1) % 2 * STEP, b, b_step, groups, columns);
}

static void steps_few(uint8_t *a, const uint8_t **row, int in, const struct few_x *x)
{
    switch (x->groups) {
    case 1:
        if (x->columns == 1)
            steps(a, row, in, x->p, 1, 1);
        else
            steps(a, row, in, x->p, 1, x->columns);
        break;
    case 2:
        steps(a, row, in, x->p, 2, GROUP);
        break;
    case 3:
        steps(a, row, in, x->p, 3, GROUP);
        break;
    default:
        steps(a, row, in, x->p, 4, GROUP);
        break;
    }
}

/* Compute outputs o, o + apart, ..., o + 15 apart. */
static void few_outputs(const struct target *t, const struct few_x *x, const struct matrix *w,
                        int o, int apart, void *scratch)
{
    const uint8_t *row[GROUP];
    float *c = scratch;
    for (int r = 0; r < GROUP; r++)
        row[r] = weight_row(w, o + r * apart);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    steps_few((uint8_t *)scratch + 4 * TILE_BYTES, row, w->in, x);
    _tile_stored(0, c, 64);
    if (x->groups > 1) {
        _tile_stored(1, c + 256, 64);
        _tile_stored(2, c + 512, 64);
        _tile_stored(3, c + 768, 64);
    }
    tiles_written();
    for (int g = 0; g < x->groups; g++)
        put_tile(t, c + g * 256, o, apart, g);
}

static void run_few(const struct target *t, const struct few_x *x, const struct matrix *w, int o0,
                    void *scratch)
{
    int apart = rows_apart(w, t->o1 - o0);
    config(x->columns);
    while (apart > 0) {
        for (int i = 0; i < apart; i++)
            few_outputs(t, x, w, o0 + i, apart, scratch);
        o0 += GROUP * apart;
        apart = rows_apart(w, t->o1 - o0);
    }
    if (o0 < t->o1)
        few_outputs(t, x, w, o0, 1, scratch);
}

/* ---- the kernel ---- */

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    if (groups_of(n) <= FEW_GROUPS) {
        run_few(&t, &(struct few_x){ xp, (int)groups_of(n), columns_of(n) }, w, o0, scratch);
    } else {
        tile_config();
        many_rows_run(&t, xp, w, o0, scratch);
    }
    _tile_release();
}

const struct matmul_kernel matmul_f16_amx = { .name = "amx",
                                              .in_multiple = 1,
                                              .row_step = GROUP,
                                              .out_step = GROUP,
                                              .packed_size = packed_size,
                                              .scratch_size = scratch_size,
                                              .pack = pack,
                                              .run = run,
                                              .fused = many_rows_fused };
