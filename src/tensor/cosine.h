/* Cosine similarities of rows of floats. Sums are in double precision and in the order defined
 * here; every device gives the same bits (struct device_ops), so the video tokens that a view
 * selects depend on neither the number of threads nor the device. */
#ifndef PV_TENSOR_COSINE_H
#define PV_TENSOR_COSINE_H

#include <stddef.h>
#include <stdint.h>

/* a . b: sum k of DOT_LANES takes the products k, k + 8, k + 16, ...; the result starts at 0 and
 * adds the products after the last whole group of eight, then the eight sums, each in order. */
enum { DOT_LANES = 8 };
double rows_dot(const float *a, const float *b, int width);
/* The cosine from ab = a.b, aa = a.a and bb = b.b: exactly 1 for equal vectors, 0 if one is
 * zero. */
double cosine_of(double ab, double aa, double bb);
/* Variance, computed relative to the first number, so that equal numbers give exactly 0. */
double variance_of(const double *x, int n);

/* out[i] = cosine of rows i and i + apart of x, i in [from, to). Rows are `stride` floats apart. */
void cosines_apart_ref(double *out, const float *x, size_t stride, int width, int apart, int from,
                       int to);
/* For a group of n <= GROUP_MOST rows of x: out[r] = variance of the cosines of row r with all rows
 * of the group, itself included, in their order. */
enum { GROUP_MOST = 49 };
void cosine_spread_ref(double *out, const float *x, size_t stride, int width, const int32_t *rows,
                       int n);

/* 1 / |x|; 0 if x is zero or not finite. */
double unit_scale(const float *x, int width);
/* to = x * scale, the row scaled to length 1, as IEEE half; does nothing if scale is 0. */
void unit_row(uint16_t *to, const float *x, int width, double scale);
/* sum += x * scale in columns [from, to); does nothing if scale is 0. */
void unit_add(double *sum, const float *x, double scale, int from, int to);
/* Sum of u[k] * sum[k], k ascending. */
double unit_dot(const uint16_t *u, const double *sum, int width);

#endif
