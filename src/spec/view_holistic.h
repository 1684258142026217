/* The parts of the view `holistic`, apart from each other. */
#ifndef PV_SPEC_VIEW_HOLISTIC_H
#define PV_SPEC_VIEW_HOLISTIC_H

#include "spec/view.h"
#include "tensor/device.h"

/* An axis of `size` tokens in crops of about five: how many, and where crop i begins (i = their
 * number: `size`). Near-equal, larger ones first, or `literal`: 5, 5, ... and a rest. */
int holistic_crops(int size, bool literal);
int holistic_crop_start(int size, int i, bool literal);

/* Scores [m] of a checked input with the features it needs. */
void holistic_time(const struct view_input *in, double *out);
enum pv_status holistic_space(const struct view_input *in, double *out, struct pv_error *err);
/* x becomes (x - mean) / deviation of its n; all 0 where they are equal. */
void holistic_normalise(double *x, int n);

/* The cosines of a checked input (struct view_cosines) by a work of the device on which the rows x
 * of its m tokens lie, `stride` floats apart; in->features is not read. next, spread [m], on the
 * host. The bits are those that features on the host give. */
enum pv_status holistic_measure(const struct view_input *in, struct device *dev,
                                struct device_work *w, const float *x, size_t stride, double *next,
                                double *spread, struct pv_error *err);

#endif
