/* How weights reach a device. The CPU leaves matrices in the mapped file, a GPU copies them; norms,
 * biases and tables are small, and kept as f32 so that no kernel needs a variant for them. */
#include "tensor/weights.h"

#include "tensor/quant.h"

size_t weights_count(const struct tensor *t)
{
    return t ? (size_t)(tensor_rows(t) * tensor_cols(t)) : 0;
}

/* Each upload waits for the device, so there are few of them. */
const float *weights_small(struct device *dev, float **at, const struct tensor *t)
{
    enum { PART = 8 * DTYPE_BLOCK_MAX }; /* whole blocks of every type */
    float part[PART];
    float *out = *at;
    size_t n = weights_count(t);
    if (!t)
        return NULL;
    if (t->dtype == DTYPE_F32)
        dev->ops->upload(dev, out, t->data, sizeof(float) * n);
    for (size_t i = 0; i < n && t->dtype != DTYPE_F32; i += PART) {
        size_t m = n - i < PART ? n - i : PART;
        row_to_f32(part, (const uint8_t *)t->data + dtype_row_size(t->dtype, (int64_t)i), t->dtype,
                   (int64_t)m);
        dev->ops->upload(dev, out + i, part, sizeof(float) * m);
    }
    *at += n;
    return out;
}

struct matrix weights_matrix(const struct tensor *t, int out, int in, const float *bias)
{
    return (struct matrix){ .dtype = t->dtype,
                            .out = out,
                            .in = in,
                            .data = t->data,
                            .row_size = dtype_row_size(t->dtype, in),
                            .bias = bias };
}

enum pv_status weights_take(struct device *dev, struct matrix *out, struct matrix m,
                            struct pv_error *err)
{
    enum pv_status s;
    if (dev->go_on && !dev->go_on(dev->user))
        return device_stopped(err);
    if (!dev->draws)
        s = dev->ops->take(dev, &m, err);
    else if (dev->ops->draw)
        s = dev->ops->draw(dev, &m, ++dev->drawn, err);
    else
        s = fail(err, PV_E_UNSUPPORTED, "random weights are for a GPU only");
    if (s)
        return s;
    dev->taken += (uint64_t)m.out * m.row_size;
    *out = m;
    return PV_OK;
}

void weights_drop(struct device *dev, struct matrix *m)
{
    if (m->data)
        dev->ops->drop(dev, m);
    m->data = NULL;
}
