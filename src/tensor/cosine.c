/* The plain definitions. A product of two floats is exact in double, so a fused multiply-add gives
 * the same bits in rows_dot; nowhere else. */
#include "tensor/cosine.h"

#include "tensor/half.h"

#include <math.h>

double rows_dot(const float *a, const float *b, int width)
{
    double lane[DOT_LANES] = { 0 }, sum = 0; /* which a compiler can keep in vector registers */
    int i = 0;
    for (; i + DOT_LANES <= width; i += DOT_LANES)
        for (int k = 0; k < DOT_LANES; k++)
            lane[k] += (double)a[i + k] * b[i + k];
    for (; i < width; i++)
        sum += (double)a[i] * b[i];
    for (int k = 0; k < DOT_LANES; k++)
        sum += lane[k];
    return sum;
}

double cosine_of(double ab, double aa, double bb)
{
    double c = ab / sqrt(aa * bb); /* one root: that of a square is exact; floats do not overflow */
    return isfinite(c) ? c : 0;
}

double variance_of(const double *x, int n)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] - x[0];
    mean /= n;
    for (int i = 0; i < n; i++) {
        double d = x[i] - x[0] - mean;
        sum += d * d;
    }
    return sum / n;
}

void cosines_apart_ref(double *out, const float *x, size_t stride, int width, int apart, int from,
                       int to)
{
    for (int i = from; i < to; i++) {
        const float *a = x + (size_t)i * stride, *b = a + (size_t)apart * stride;
        out[i] = cosine_of(rows_dot(a, b, width), rows_dot(a, a, width), rows_dot(b, b, width));
    }
}

void cosine_spread_ref(double *out, const float *x, size_t stride, int width, const int32_t *rows,
                       int n)
{
    double s[GROUP_MOST * (GROUP_MOST + 1) / 2], square[GROUP_MOST], row[GROUP_MOST];
    for (int i = 0; i < n; i++) {
        const float *a = x + (size_t)rows[i] * stride;
        square[i] = rows_dot(a, a, width);
        for (int j = 0; j <= i; j++) {
            double ab = j < i ? rows_dot(a, x + (size_t)rows[j] * stride, width) : square[i];
            s[i * (i + 1) / 2 + j] = cosine_of(ab, square[i], square[j]);
        }
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) /* of a symmetric matrix the lower half is kept */
            row[j] = s[i > j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i];
        out[rows[i]] = variance_of(row, n);
    }
}

double unit_scale(const float *x, int width)
{
    double inverse = 1 / sqrt(rows_dot(x, x, width));
    return isfinite(inverse) ? inverse : 0; /* of an infinite row it is 0 */
}

void unit_row(uint16_t *to, const float *x, int width, double scale)
{
    for (int k = 0; k < width && scale != 0; k++)
        to[k] = f16_from_f32((float)(x[k] * scale));
}

void unit_add(double *sum, const float *x, double scale, int from, int to)
{
    for (int k = from; k < to && scale != 0; k++)
        sum[k] += x[k] * scale;
}

double unit_dot(const uint16_t *u, const double *sum, int width)
{
    double dot = 0;
    for (int k = 0; k < width; k++)
        dot += f16_to_f32(u[k]) * sum[k];
    return dot;
}
