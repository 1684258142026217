/* The experts of a sparse layer on the GPU (experts.cu). */
#ifndef PV_KERNELS_CUDA_EXPERTS_H
#define PV_KERNELS_CUDA_EXPERTS_H

#include "kernels/cuda/cuda.h"

/* Rows of one pass; more rows take several passes, with the same bits. */
enum { EXPERT_ROWS = 2048 };

/* Create the device's table of the experts' matrices, after `take` of these; and free it. */
enum pv_status experts_take(struct device *dev, struct expert_weights *e, struct pv_error *err);
void experts_drop(struct device *dev, struct expert_weights *e);

/* Bytes of device_work.expert_scratch. */
size_t experts_scratch_size(const struct work_shape *s);

/* y = (with add: y +=) the weighted sum of the experts' results for n rows. */
struct expert_call {
    const struct expert_weights *e;
    const float *x; /* for the router */
    const void *xn; /* in the type that gate and up take; may be x */
    float *y;
    int n;
    bool add;
    bool bulk; /* the router uses the kernels for many rows, and x is padded to whole tiles of
                  ROW_PAD rows */
    /* If squares is not NULL (norm.h): x is the row before the norm with these weights, and xn is x
     * times the weights, without the scale. */
    const float *norm_weight, *squares;
    float eps;
    struct few_norm next; /* weight not NULL: also prepare y for the next norm */
};
void experts_rows(struct device_work *w, const struct expert_call *c);

/* The same in two halves, if each of several GPUs has some outputs of all experts. The first half
 * stores its part of silu(gate) * up in `part` [rows * used, outputs of gate], one pair (a row and
 * one of its experts) after the other. The second half gets all outputs of that, and adds to the
 * outputs of y that its down has, which c->y points to. At most experts_most_rows rows at a time.
 */
int experts_most_rows(const struct device_work *w);
void experts_part_up(struct device_work *w, const struct expert_call *c, int first, int rows,
                     void *part);
void experts_part_down(struct device_work *w, const struct expert_call *c, int first, int rows,
                       const void *mid);
/* blocks.cu: rows after the norm, as F32 for the router and in the type that the experts need. */
void norm_sparse(struct device_work *w, const struct finish_block *b, struct expert_call *c);

/* struct device_ops.experts */
void experts_op(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                int n);

#endif
