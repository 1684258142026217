/* W + scale * B * A, row by row: in f32, the sum over the rank in ascending order, and rounded
 * once, to the type of the file. */
#include "format/adapter_write.h"

#include "base/mem.h"
#include "tensor/quant.h"

#ifdef PV_CORE

enum pv_status write_adapted(struct write_job *j, const struct tensor *t, enum dtype to, bool *done,
                             struct pv_error *err)
{
    (void)j, (void)t, (void)to, (void)err;
    *done = false;
    return PV_OK;
}

#else

#include "format/adapter_hf.h"

/* A whole tensor as f32, in fresh memory. */
static float *as_f32(const struct tensor *t)
{
    int64_t n = tensor_rows(t) * tensor_cols(t);
    float *x = mem_alloc((size_t)n * sizeof *x);
    if (x)
        row_to_f32(x, t->data, t->dtype, n);
    return x;
}

/* One row: x += scale * b . A */
static void add_row(float *x, const float *b, const float *a, int64_t rank, int64_t in, float scale)
{
    for (int64_t k = 0; k < rank; k++) {
        const float w = scale * b[k], *row = a + k * in;
        for (int64_t i = 0; i < in; i++)
            x[i] += w * row[i];
    }
}

enum pv_status write_adapted(struct write_job *j, const struct tensor *t, enum dtype to, bool *done,
                             struct pv_error *err)
{
    struct lora l;
    int64_t rows = tensor_rows(t), in = tensor_cols(t), rank;
    const size_t row_size = dtype_row_size(t->dtype, in);
    float *a, *b;
    enum pv_status s = PV_OK;

    *done = j->mf && adapter_adds(j->mf->adapter, t->name, &l);
    if (!*done)
        return PV_OK;
    if (in > JOB_CHUNK)
        return fail(err, PV_E_UNSUPPORTED, "%s: rows of %lld numbers in %s are too long to add to",
                    j->path, (long long)in, t->name);
    rank = tensor_rows(l.a);
    a = as_f32(l.a);
    b = as_f32(l.b);
    if (!a || !b)
        s = fail_nomem(err, (size_t)(rank * (in + rows)) * sizeof *a);
    for (int64_t r = 0; r < rows && !s; r++) {
        row_to_f32(j->values, (const uint8_t *)t->data + (size_t)r * row_size, t->dtype, in);
        add_row(j->values, b + r * rank, a, rank, in, l.scale);
        s = write_values(j, j->values, in, to, t->name, err);
    }
    mem_free(a);
    mem_free(b);
    return s;
}

#endif
