/* Scores of the view `alignment` (ParallelVLM's UV-Prune): how much closer to the text of the
 * prompt the target's first L layers brought each video token, from two snapshots of the residual
 * stream: before the first layer and after layer L. */
#ifndef PV_SPEC_VIEW_ALIGNMENT_H
#define PV_SPEC_VIEW_ALIGNMENT_H

#include "tensor/device.h"

enum alignment_snapshot { ALIGNMENT_BEFORE, ALIGNMENT_AFTER, ALIGNMENT_SNAPSHOTS };

/* What a row is if it is no video token. */
enum { ALIGNMENT_TEXT = -1, ALIGNMENT_NEITHER = -2 };

/* The number of layers L: l itself, at most n_layers; if l is below 1, that fraction of n_layers,
 * at least 1. */
int alignment_layers(double l, int n_layers);

struct alignment;

/* For n_video tokens of `width` floats. dev: the device on which the rows are; work: one of its
 * works; both are borrowed. max_rows: rows of one call of alignment_add. Allocates alignment_size
 * bytes on the device, about 4 * n_video * width, and a little host memory. */
size_t alignment_size(int n_video, int width, int max_rows);
enum pv_status alignment_open(struct alignment **out, struct device *dev, struct device_work *work,
                              int n_video, int width, int max_rows, struct pv_error *err);
void alignment_close(struct alignment **a);
/* Add rows (on the device) of one snapshot: token[i] is the number of the video token, or
 * ALIGNMENT_TEXT or _NEITHER. Rows may come in chunks of any size, text and video in any order; the
 * scores do not depend on that. Allocates nothing. */
enum pv_status alignment_add(struct alignment *a, enum alignment_snapshot at, const int *token,
                             const float *rows, int n, struct pv_error *err);
/* Compute scores [n_video], on the host. For a token without a row, or whose row is zero, the
 * cosine with the text counts as 0. */
enum pv_status alignment_finish(struct alignment *a, float *scores, struct pv_error *err);

#endif
