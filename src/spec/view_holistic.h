/* The parts of the view `holistic`, apart from each other. */
#ifndef PV_SPEC_VIEW_HOLISTIC_H
#define PV_SPEC_VIEW_HOLISTIC_H

#include "spec/view.h"

/* An axis of `size` tokens in crops of about five: how many, and where crop i begins (i = their
 * number: `size`). Near-equal, larger ones first, or `literal`: 5, 5, ... and a rest. */
int holistic_crops(int size, bool literal);
int holistic_crop_start(int size, int i, bool literal);

/* Scores [m] of a checked input with the features it needs. */
void holistic_time(const struct view_input *in, double *out);
void holistic_space(const struct view_input *in, double *out);
/* x becomes (x - mean) / deviation of its n; all 0 where they are equal. */
void holistic_normalise(double *x, int n);

#endif
