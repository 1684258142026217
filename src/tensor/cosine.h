/* Directions of rows of floats, summed in double in one order that these functions fix: every
 * device gives their bits (struct device_ops), so what a view chooses by them depends on neither
 * threads nor device. */
#ifndef PV_TENSOR_COSINE_H
#define PV_TENSOR_COSINE_H

#include <stddef.h>
#include <stdint.h>

/* a . b: eight sums of every eighth product, in order; then, from 0, the products behind the last
 * whole eight and the eight sums, in order. */
enum { DOT_LANES = 8 };
double rows_dot(const float *a, const float *b, int width);
/* Of ab = a.b, aa = a.a and bb = b.b: exactly 1 for equal vectors, 0 for one without direction. */
double cosine_of(double ab, double aa, double bb);
/* Around the first of n numbers, so that equal ones have a variance of 0 and not of rounding. */
double variance_of(const double *x, int n);

/* out[i] = cosine of rows i and i + apart of x, i in [from, to). Rows are `stride` floats apart. */
void cosines_apart_ref(double *out, const float *x, size_t stride, int width, int apart, int from,
                       int to);
/* Of a group of n rows of x, at most GROUP_MOST: out[r] of each = variance of its cosines with all
 * of them, itself among them, in their order. */
enum { GROUP_MOST = 49 };
void cosine_spread_ref(double *out, const float *x, size_t stride, int width, const int32_t *rows,
                       int n);

/* 1 / |x|; 0 for a row without a direction, and for one that is not finite. */
double unit_scale(const float *x, int width);
/* The row of length 1 as IEEE half; nothing where scale is 0. */
void unit_row(uint16_t *to, const float *x, int width, double scale);
/* Columns [from, to) of sum += x * scale; nothing where scale is 0. */
void unit_add(double *sum, const float *x, double scale, int from, int to);
/* sum over k, from 0 on, of u[k] * sum[k]. */
double unit_dot(const uint16_t *u, const double *sum, int width);

#endif
