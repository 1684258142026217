/* The patch embedding of files that keep one matrix for each frame of a patch. */
#include "tensor/quant.h"
#include "tensor/weights.h"
#include "vision/tower.h"

#include <string.h>

/* Rows of a tensor are [channel][place]; those of the joined matrix [channel][frame][place]. In the
 * tensors' own type where they share one of plain numbers, otherwise as f32: the matrix is small
 * beside the layers. */
enum pv_status patch_matrix_join(struct vision *v, const struct tensor *const frames[2],
                                 const float *bias, struct pv_error *err)
{
    enum dtype first = frames[0]->dtype;
    bool plain = first == frames[1]->dtype && dtype_block(first) == 1;
    enum dtype type = plain ? first : DTYPE_F32;
    size_t area = (size_t)v->c.patch * (size_t)v->c.patch, in = 3 * 2 * area;
    size_t number = dtype_row_size(type, 1), size = number * (size_t)v->c.hidden * in;
    float *rows = mem_alloc(sizeof(float) * 3 * area);
    struct matrix m = { .dtype = type,
                        .out = v->c.hidden,
                        .in = (int)in,
                        .row_size = number * in,
                        .bias = bias,
                        .many_rows = true };
    v->joined = mem_alloc(size);
    if (!rows || !v->joined) {
        mem_free(rows);
        return fail_nomem(err, size);
    }
    for (size_t r = 0; r < (size_t)v->c.hidden; r++)
        for (size_t t = 0; t < 2; t++) {
            size_t row_size = dtype_row_size(frames[t]->dtype, (int64_t)(3 * area));
            const uint8_t *from = (const uint8_t *)frames[t]->data + r * row_size;
            if (!plain) {
                row_to_f32(rows, from, frames[t]->dtype, (int64_t)(3 * area));
                from = (const uint8_t *)rows;
            }
            for (size_t channel = 0; channel < 3; channel++)
                memcpy(v->joined + (r * in + (channel * 2 + t) * area) * number,
                       from + channel * area * number, area * number);
        }
    mem_free(rows);
    m.data = v->joined;
    return weights_take(v->dev, &v->patch, m, err);
}
