/* Estimates the time of a model's pass from its number of rows, if only some were measured. */
#ifndef PV_SPEC_ROW_TIMES_H
#define PV_SPEC_ROW_TIMES_H

/* Seconds of a pass of `rows` rows, from by_rows [max + 1] (0: not measured): the measured value,
 * or interpolated or extrapolated. 0 if nothing was measured. 1 <= rows <= max. */
double row_times_at(const double *by_rows, int max, int rows);

#endif
