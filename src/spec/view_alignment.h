/* Scores of the view `alignment` (ParallelVLM's UV-Prune): how much closer to the text of the
 * prompt the target's first L layers brought each video token, from two snapshots of the residual
 * stream: before the first layer and after layer L. */
#ifndef PV_SPEC_VIEW_ALIGNMENT_H
#define PV_SPEC_VIEW_ALIGNMENT_H

#include "tensor/device.h"

enum alignment_snapshot { ALIGNMENT_BEFORE, ALIGNMENT_AFTER, ALIGNMENT_SNAPSHOTS };

/* What a row is, where it is no video token. */
enum { ALIGNMENT_TEXT = -1, ALIGNMENT_NEITHER = -2 };

/* How many layers L is: a number of them, not more than there are, or below 1 a fraction of them,
 * but at least one layer. */
int alignment_layers(double l, int n_layers);

struct alignment;

/* For n_video tokens of `width` numbers, on the device that the rows lie on, by one of its works;
 * borrows both. max_rows: of one call of alignment_add. Holds alignment_size bytes there, about 4
 * n_video * width, and a few lists here. */
size_t alignment_size(int n_video, int width, int max_rows);
enum pv_status alignment_open(struct alignment **out, struct device *dev, struct device_work *work,
                              int n_video, int width, int max_rows, struct pv_error *err);
void alignment_close(struct alignment **a);
/* Rows of one snapshot, on the device: token[i] is the number of the video token or one of the
 * above. Rows may come in chunks of any size, text and video in any order; the bits of the scores
 * do not depend on it. Allocates nothing. */
enum pv_status alignment_add(struct alignment *a, enum alignment_snapshot at, const int *token,
                             const float *rows, int n, struct pv_error *err);
/* scores [n_video], on the host. A token of which no row came, or without a direction, is as far
 * from the text as one at a right angle. */
enum pv_status alignment_finish(struct alignment *a, float *scores, struct pv_error *err);

#endif
