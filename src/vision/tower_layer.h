/* The transformer layer that the towers of pictures and of sound are made of. */
#ifndef PV_VISION_TOWER_LAYER_H
#define PV_VISION_TOWER_LAYER_H

#include "base/mem.h"
#include "format/model_file.h"
#include "tensor/device.h"

/* Rows that go through the matrices together: a frame of 27 x 27 patches is one chunk. Enough to
 * read each weight once for many rows; what an MLP needs between its matrices is bounded by it. A
 * multiple of merge * merge. */
enum { TOWER_CHUNK = 768 };

/* What layers work with: sizes that all of them share, and rows on the device. With a block for the
 * layer (device_ops.tower) only x, cos and sin are used. */
struct layer_room {
    const struct device_ops *ops;
    struct device_work *work;
    int hidden, ffn, n_heads, head_dim;
    float eps;
    enum gelu_kind gelu;    /* of MLPs without a gate */
    enum dtype attn;        /* that keys and values are rounded to */
    float *x;               /* [n, hidden] */
    float *q, *k, *v;       /* [rows attended together, hidden]; attention's result replaces q */
    const float *cos, *sin; /* [n, head_dim / 2]; NULL: no rope */
    float *xn, *tmp;        /* [TOWER_CHUNK, hidden] */
    float *gate, *up;       /* [TOWER_CHUNK, ffn] */
    int *segments;          /* host: [TOWER_CHUNK + 1] */
};

/* One layer over the rows of x, whose segments [bounds[i], bounds[i + 1]) attend to themselves. */
void tower_layer_run(const struct layer_room *r, const struct tower_layer *l, const int *bounds,
                     int n_segments);

/* LayerNorm, or without a bias RMSNorm. */
void tower_norm(const struct layer_room *r, float *y, const float *x, const float *weight,
                const float *bias, int n, int dim);

/* ---- weights ---- */

/* A matrix [out, in] and its bias. */
struct tower_part {
    struct matrix *m;
    const struct tensor *t, *bias;
    int out, in;
};

/* Takes the matrices, for many rows; `at` as in weights_small. Those without a tensor are left. */
enum pv_status tower_take_parts(struct device *dev, const struct tower_part *parts, size_t n,
                                float **at, struct pv_error *err);
enum pv_status tower_take_layer(struct device *dev, struct tower_layer *l,
                                const struct vision_layer_tensors *t, int hidden, int ffn,
                                float **at, struct pv_error *err);
void tower_drop_layer(struct device *dev, struct tower_layer *l);
/* Floats of a layer's norms and biases. */
size_t tower_layer_floats(const struct vision_layer_tensors *t);
/* What keys and values are rounded to, by the type of the matrix that makes them. */
enum dtype tower_attention_dtype(const struct tensor *k);

/* ---- memory of a state ---- */

/* Takes `size` bytes from the arena and adds their cost to *total; with `a` NULL the bytes are only
 * counted. NULL for 0 bytes. */
void *tower_reserve(struct arena *a, size_t *total, size_t size);
/* Allocates device_size zeroed bytes on the device, which *block owns and *on_device hands out, and
 * host_size bytes for *on_host. On failure tower_memory_close frees what there is. */
enum pv_status tower_memory_open(struct device *dev, void **block, size_t device_size,
                                 struct arena *on_device, struct arena *on_host, size_t host_size,
                                 struct pv_error *err);
void tower_memory_close(struct device *dev, void *block, struct arena *on_host);

#endif
