/* What a pass of a model takes by its number of rows, when only some numbers were measured. */
#ifndef PV_SPEC_ROW_TIMES_H
#define PV_SPEC_ROW_TIMES_H

/* Seconds of a pass of `rows` rows, from by_rows [max + 1] (0: not measured): as measured, between
 * its neighbours, or beyond the last of them. 0 when nothing was measured. 1 <= rows <= max. */
double row_times_at(const double *by_rows, int max, int rows);

#endif
