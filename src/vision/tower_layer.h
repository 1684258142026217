/* The transformer layer of vision towers and audio encoders. */
#ifndef PV_VISION_TOWER_LAYER_H
#define PV_VISION_TOWER_LAYER_H

#include "base/mem.h"
#include "format/model_file.h"
#include "tensor/device.h"

/* Rows that are multiplied together; a frame of 27 x 27 patches is one chunk. Large enough to read
 * each weight once for many rows, and it bounds the memory inside an MLP. A multiple of merge *
 * merge. */
enum { TOWER_CHUNK = 768 };

/* Sizes and scratch rows (on the device) that all layers share. If the device computes a whole
 * layer itself (device_ops.tower), only x, cos and sin are used. */
struct layer_room {
    const struct device_ops *ops;
    struct device_work *work;
    int hidden, ffn, n_heads, head_dim;
    float eps;
    enum gelu_kind gelu;    /* in MLPs without a gate */
    enum dtype attn;        /* type to which keys and values are rounded */
    float *x;               /* [n, hidden] */
    float *q, *k, *v;       /* [rows of one attention call, hidden]; its result replaces q */
    const float *cos, *sin; /* [n, head_dim / 2]; NULL: no rope */
    float *xn, *tmp;        /* [TOWER_CHUNK, hidden] */
    float *gate, *up;       /* [TOWER_CHUNK, ffn] */
    int *segments;          /* host: [TOWER_CHUNK + 1] */
};

/* Run one layer over the rows of x. Each segment [bounds[i], bounds[i + 1]) attends to itself
 * only. */
void tower_layer_run(const struct layer_room *r, const struct tower_layer *l, const int *bounds,
                     int n_segments);

/* LayerNorm; RMSNorm if `bias` is NULL. */
void tower_norm(const struct layer_room *r, float *y, const float *x, const float *weight,
                const float *bias, int n, int dim);

/* ---- weights ---- */

/* A matrix [out, in] and its bias. */
struct tower_part {
    struct matrix *m;
    const struct tensor *t, *bias;
    int out, in;
};

/* Upload the matrices, laid out for many rows; skip those without a tensor. `at`: see
 * weights_small. */
enum pv_status tower_take_parts(struct device *dev, const struct tower_part *parts, size_t n,
                                float **at, struct pv_error *err);
enum pv_status tower_take_layer(struct device *dev, struct tower_layer *l,
                                const struct vision_layer_tensors *t, int hidden, int ffn,
                                float **at, struct pv_error *err);
void tower_drop_layer(struct device *dev, struct tower_layer *l);
/* Floats of a layer's norms and biases. */
size_t tower_layer_floats(const struct vision_layer_tensors *t);
/* The type to which keys and values are rounded, from the type of the key matrix. */
enum dtype tower_attention_dtype(const struct tensor *k);

/* ---- memory of a state ---- */

/* Take `size` bytes from the arena and add them, with padding, to *total. If `a` is NULL, only
 * count. Returns NULL for 0 bytes. */
void *tower_reserve(struct arena *a, size_t *total, size_t size);
/* Allocate device_size zeroed bytes on the device as *block, from which *on_device takes, and
 * host_size bytes for *on_host. Call tower_memory_close after a failure too. */
enum pv_status tower_memory_open(struct device *dev, void **block, size_t device_size,
                                 struct arena *on_device, struct arena *on_host, size_t host_size,
                                 struct pv_error *err);
void tower_memory_close(struct device *dev, void *block, struct arena *on_host);

#endif
