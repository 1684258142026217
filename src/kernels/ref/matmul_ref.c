/* Matrix product in plain C, for every dtype. x stays f32; each weight row is converted to f32, and
 * the sum over `in` runs from first to last in f32. Slow on purpose: this is the reference that the
 * fast kernels are checked against. */
#include "kernels/kernels.h"
#include "tensor/quant.h"

#include <string.h>

static size_t packed_size(int n, int in)
{
    return sizeof(float) * (size_t)n * (size_t)in;
}

static size_t scratch_size(int in)
{
    return sizeof(float) * (size_t)in;
}

static void pack(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1)
{
    float *rows = xp;
    (void)n;
    for (int r = r0; r < r1; r++)
        memcpy(rows + (size_t)r * in, x + (size_t)r * stride, sizeof(float) * (size_t)in);
}

static void run(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch)
{
    const float *x = xp;
    float *row = scratch;
    for (int o = o0; o < o1; o++) {
        row_to_f32(row, (const uint8_t *)w->data + (size_t)o * w->row_size, w->dtype, w->in);
        for (int r = 0; r < n; r++) {
            float sum = 0;
            for (int i = 0; i < w->in; i++)
                sum += x[(size_t)r * w->in + i] * row[i];
            y[(size_t)r * y_stride + o] = w->bias ? sum + w->bias[o] : sum;
        }
    }
}

#define REF_KERNEL                                                                                 \
    {                                                                                              \
        .name = "ref", .in_multiple = 1, .row_step = 1, .out_step = 1, .packed_size = packed_size, \
        .scratch_size = scratch_size, .pack = pack, .run = run                                     \
    }

const struct matmul_kernel matmul_ref[DTYPE_COUNT] = {
    [DTYPE_F32] = REF_KERNEL,  [DTYPE_F16] = REF_KERNEL,  [DTYPE_BF16] = REF_KERNEL,
    [DTYPE_Q8_0] = REF_KERNEL, [DTYPE_Q4_0] = REF_KERNEL, [DTYPE_Q5_0] = REF_KERNEL,
    [DTYPE_Q4_K] = REF_KERNEL, [DTYPE_Q5_K] = REF_KERNEL, [DTYPE_Q6_K] = REF_KERNEL,
    [DTYPE_Q4_1] = REF_KERNEL, [DTYPE_Q5_1] = REF_KERNEL, [DTYPE_IQ4_NL] = REF_KERNEL,
};
