/* Products of F16 weights that always meet many rows, by AMX tiles: weights and x in two bf16
 * planes each (many_rows_amx.c). Three tile products where BF16 needs one, three to four times
 * faster than f32 arithmetic; x keeps 17 bits, more than F16 has. With few rows unpacking the
 * weights would cost more than it saves, so this is for matrices that say many_rows, and no row is
 * treated otherwise for being alone.
 *
 * Packed x: [rows / 16][in / 32][2] tiles, rounded up. */
#include "kernels/x86/many_rows_amx.h"

static size_t group_size(int in)
{
    return (size_t)steps_of(in) * 2 * TILE_BYTES;
}

static size_t packed_size(int n, int in)
{
    return groups_of(n) * group_size(in);
}

static size_t scratch_size(int in)
{
    (void)in;
    return many_rows_scratch();
}

static void pack_group(uint8_t *tiles, const float *x, size_t stride, int n, int in)
{
    for (int k = 0; k < in; k += TILE_K, tiles += 2 * TILE_BYTES) {
        for (int i = 0; i < GROUP; i++) {
            __m512 v[2] = { _mm512_setzero_ps(), _mm512_setzero_ps() };
            if (i < n)
                load_32(v, x + (size_t)i * stride + k, in - k);
            split_bf16_32(tiles + i * 64, v[0], v[1]);
        }
        turn_tile(tiles);
        turn_tile(tiles + TILE_BYTES);
    }
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    for (int r = r0; r < r1; r += GROUP)
        pack_group((uint8_t *)xp + (size_t)(r / GROUP) * group_size(in), x + (size_t)r * stride,
                   stride, min_int(GROUP, n - r), in);
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    struct target t = { .y = y, .stride = y_stride, .bias = w->bias, .n = n, .o1 = o1 };
    tile_config();
    many_rows_run(&t, xp, w, o0, scratch);
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
