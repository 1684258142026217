/* One bad scale makes a row of a matrix NaN, and from there every number that follows. Reading all
 * weights for it costs as much as reading them from the disk, so opening a model does not: this
 * runs when a step has shown that something is wrong, and for `prevue inspect --check`. */
#include "format/tensor_check.h"

#include "format/model_file.h"
#include "tensor/quant.h"

static bool is_checked(const struct tensor *t)
{
    return t->dtype < DTYPE_COUNT && tensor_cols(t) > 0 && t->data;
}

enum pv_status model_file_check(const struct model_file *mf, struct pv_error *err)
{
    for (int i = 0; i < model_file_n_tensors(mf); i++) {
        const struct tensor *t = model_file_tensor(mf, i);
        size_t row_size;
        if (!is_checked(t))
            continue;
        row_size = dtype_row_size(t->dtype, tensor_cols(t));
        for (int64_t r = 0; r < tensor_rows(t); r++)
            if (!row_is_finite((const uint8_t *)t->data + (size_t)r * row_size, t->dtype,
                               tensor_cols(t)))
                return fail(err, PV_E_FORMAT,
                            "%s: row %lld of the tensor %s (%s) holds a NaN or an infinity",
                            model_file_path(mf), (long long)r, t->name, dtype_name(t->dtype));
    }
    return PV_OK;
}
