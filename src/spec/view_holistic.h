/* The parts of the view `holistic`, declared for its tests and for devices. */
#ifndef PV_SPEC_VIEW_HOLISTIC_H
#define PV_SPEC_VIEW_HOLISTIC_H

#include "spec/view.h"
#include "tensor/device.h"

/* An axis of `size` tokens is divided into crops of about five: the number of crops, and where crop
 * i begins (`size` for i = that number). The crops are near-equal, larger ones first; `literal`: 5,
 * 5, ... and a remainder. */
int holistic_crops(int size, bool literal);
int holistic_crop_start(int size, int i, bool literal);

/* Scores [m] in time and in space, for a checked input that has the features. */
void holistic_time(const struct view_input *in, double *out);
enum pv_status holistic_space(const struct view_input *in, double *out, struct pv_error *err);
/* x = (x - mean) / standard deviation of its n values; all 0 if they are equal. */
void holistic_normalise(double *x, int n);

/* Compute the cosines of a checked input (struct view_cosines) on the device that holds the rows x
 * of its m tokens, `stride` floats apart; in->features is ignored. w: a work of the device. next,
 * spread [m] are on the host. The bits equal those computed from features on the host. */
enum pv_status holistic_measure(const struct view_input *in, struct device *dev,
                                struct device_work *w, const float *x, size_t stride, double *next,
                                double *spread, struct pv_error *err);

#endif
