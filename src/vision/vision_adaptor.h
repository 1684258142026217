/* A vision adaptor (format/vision_adaptor_file.h) on a device: rows of media as a target's tower
 * made them become rows of a draft model. Row-invariant, as everything on a device. */
#ifndef PV_VISION_VISION_ADAPTOR_H
#define PV_VISION_VISION_ADAPTOR_H

#include "format/vision_adaptor_file.h"
#include "tensor/device.h"

struct vision_adaptor;       /* weights on a device: immutable, shared */
struct vision_adaptor_state; /* scratch */

/* Borrows the device, and what the tensors point to. With `t` NULL, on a device that draws random
 * weights, it has some. */
enum pv_status vision_adaptor_open(struct vision_adaptor **out,
                                   const struct vision_adaptor_config *c,
                                   const struct vision_adaptor_tensors *t, struct device *dev,
                                   struct pv_error *err);
void vision_adaptor_close(struct vision_adaptor **a);

/* Borrows the adaptor. */
size_t vision_adaptor_state_size(const struct vision_adaptor *a);
enum pv_status vision_adaptor_state_open(struct vision_adaptor_state **out,
                                         const struct vision_adaptor *a, struct pv_error *err);
void vision_adaptor_state_close(struct vision_adaptor_state **st);
/* As device_ops.work_on. */
void vision_adaptor_state_work_on(struct vision_adaptor_state *st, struct device *group);

/* Most rows of one job. */
int vision_adaptor_rows(const struct vision_adaptor *a);

struct adaptor_job {
    /* Rows to choose from, `from_width` floats apart, a multiple of what the adaptor takes: it
     * takes the first floats of each. */
    const float *from;
    int from_width;
    bool from_device;    /* they lie on the adaptor's device (on a CPU: always true) */
    const int32_t *rows; /* [n]: which of them; host */
    int n;
    /* Host: [n] rows `out_width` floats apart; what the adaptor does not fill becomes zero. */
    float *out;
    int out_width;
};

/* PV_E_LIMIT when n is too large. Allocates nothing. */
enum pv_status vision_adaptor_run(struct vision_adaptor_state *st, const struct adaptor_job *job,
                                  struct pv_error *err);

#endif
