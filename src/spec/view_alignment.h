/* Scores of the view `alignment` (ParallelVLM's UV-Prune): how much closer to the text of the
 * prompt the target's first L layers brought each video token, from two snapshots of the residual
 * stream: before the first layer and after layer L. */
#ifndef PV_SPEC_VIEW_ALIGNMENT_H
#define PV_SPEC_VIEW_ALIGNMENT_H

#include "base/status.h"

enum alignment_snapshot { ALIGNMENT_BEFORE, ALIGNMENT_AFTER, ALIGNMENT_SNAPSHOTS };

/* What a row is, where it is no video token. */
enum { ALIGNMENT_TEXT = -1, ALIGNMENT_NEITHER = -2 };

/* How many layers L is: a number of them, not more than there are, or below 1 a fraction of them,
 * but at least one layer. */
int alignment_layers(double l, int n_layers);

struct alignment;

/* For n_video tokens of `width` numbers; holds 4 n_video * width bytes. */
enum pv_status alignment_open(struct alignment **out, int n_video, int width, struct pv_error *err);
void alignment_close(struct alignment **a);
/* Rows of one snapshot: token[i] is the number of the video token or one of the above. Rows may
 * come in chunks of any size, text and video in any order. Allocates nothing. */
void alignment_add(struct alignment *a, enum alignment_snapshot at, const int *token,
                   const float *rows, int n);
/* scores [n_video]. A token of which no row came, or without a direction, is as far from the text
 * as one at a right angle. */
void alignment_finish(const struct alignment *a, float *scores);

#endif
