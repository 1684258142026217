/* Checks of single tensors, shared by the decoder's and the towers' tables.
 *
 * One-dimensional tensors (norms and biases) are scanned for NaN and infinity here. The matrices
 * are not: reading them all would page the whole file in, and a NaN in one shows in its output. */
#include "format/tensor_expect.h"

#include "tensor/quant.h"

#include <stdio.h>

/* The dimensions as "[2, 3]", for messages. */
struct shape_text {
    char text[128];
};

static struct shape_text shape_text(const int64_t *dim, int n_dims)
{
    struct shape_text s;
    size_t used = 0;

    s.text[0] = 0;
    for (int i = 0; i < n_dims && used < sizeof s.text - 32; i++)
        used += (size_t)snprintf(s.text + used, sizeof s.text - used, "%s%lld", i ? ", " : "[",
                                 (long long)dim[i]);
    snprintf(s.text + used, sizeof s.text - used, "]");
    return s;
}

enum pv_status tensor_expect_plain(const struct tensor *t, const char *where, struct pv_error *err)
{
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s: the tensor %s has type %s, where f32, f16 or bf16 was expected", where,
                    t->name, dtype_name(t->dtype));
    return PV_OK;
}

enum pv_status tensor_expect(const struct tensor *t, const int64_t *dim, int n_dims,
                             const char *where, struct pv_error *err)
{
    bool same = t->n_dims == n_dims;
    enum pv_status s;

    for (int i = 0; same && i < n_dims; i++)
        same = t->dim[i] == dim[i];
    if (!same)
        return fail(err, PV_E_FORMAT, "%s: the tensor %s has the shape %s, where %s was expected",
                    where, t->name, shape_text(t->dim, t->n_dims).text,
                    shape_text(dim, n_dims).text);
    if (n_dims > 1)
        return PV_OK;
    s = tensor_expect_plain(t, where, err);
    if (s)
        return s;
    if (!row_is_finite(t->data, t->dtype, t->dim[0]))
        return fail(err, PV_E_FORMAT, "%s: the tensor %s has a number that is not finite", where,
                    t->name);
    return PV_OK;
}
