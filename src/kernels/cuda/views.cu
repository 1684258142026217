/* The cosine similarities that views need, with the bits of tensor/cosine.h. A dot product there
 * has eight partial sums, so a team of eight threads computes one, with one sum each. A product of
 * two floats is exact in double and may be fused with the addition that follows. Other products are
 * rounded before they are added, which __dmul_rn and __dadd_rn tell the compiler. */
#include "kernels/cuda/element.h"

extern "C" {
#include "tensor/cosine.h"
}

namespace {

enum {
    THREADS = ELEMENT_THREADS,
    TEAMS = THREADS / DOT_LANES, /* teams of eight threads in a block */
    TILE = 64,                   /* columns of a group's rows in shared memory */
    TILE_ROW = TILE + 8,         /* row stride: rows begin in different banks */
    TEAM_PAIRS = 11,             /* dot products of a team at once: 325 pairs of 25 rows */
    GROUP_PAIRS = GROUP_MOST * (GROUP_MOST + 1) / 2,
    AHEAD = 4 /* 16-byte loads in flight for a row that one thread reads */
};

/* Add up the eight sums of a team in order, after the products of the tail. */
__device__ inline double join_lanes(double lane, double tail)
{
#pragma unroll
    for (int k = 0; k < DOT_LANES; k++)
        tail = __dadd_rn(tail, __shfl_sync(0xffffffffu, lane, k, DOT_LANES));
    return tail;
}

__device__ inline double tail_dot(const float *a, const float *b, int width)
{
    double sum = 0;
    for (int k = width / DOT_LANES * DOT_LANES; k < width; k++)
        sum = __dadd_rn(sum, __dmul_rn((double)a[k], (double)b[k]));
    return sum;
}

__device__ inline double cosine(double ab, double aa, double bb)
{
    double c = ab / sqrt(__dmul_rn(aa, bb));
    return isfinite(c) ? c : 0;
}

/* ---- holistic ---- */

/* One team per pair. All threads of a warp stay to the end, for the shuffles. */
__global__ void __launch_bounds__(THREADS)
    apart_kernel(double *out, const float *x, size_t stride, int n, int width, int apart)
{
    const int lane = (int)threadIdx.x % DOT_LANES;
    const int pair = (int)(blockIdx.x * TEAMS + threadIdx.x / DOT_LANES);
    const float *a = x + (size_t)(pair < n ? pair : 0) * stride, *b = a + (size_t)apart * stride;
    double ab = 0, aa = 0, bb = 0;

    dep_launch();
    dep_wait();
#pragma unroll 4
    for (int k = lane; k < width / DOT_LANES * DOT_LANES; k += DOT_LANES) {
        double u = a[k], v = b[k];
        ab = fma(u, v, ab);
        aa = fma(u, u, aa);
        bb = fma(v, v, bb);
    }
    ab = join_lanes(ab, tail_dot(a, b, width));
    aa = join_lanes(aa, tail_dot(a, a, width));
    bb = join_lanes(bb, tail_dot(b, b, width));
    if (lane == 0 && pair < n)
        out[pair] = cosine(ab, aa, bb);
}

/* Index of the cosine of rows i and j of a group; only the lower half of the symmetric matrix is
 * stored. */
__device__ inline int pair_at(int i, int j)
{
    return i > j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i;
}

/* The row of pair p in the lower half; its column follows from that. */
__device__ inline int pair_row(int p)
{
    int i = 0;
    while ((i + 1) * (i + 2) / 2 <= p)
        i++;
    return i;
}

__device__ double variance(const double *cosines, int i, int n)
{
    double first = cosines[pair_at(i, 0)], mean = 0, sum = 0;
    for (int j = 0; j < n; j++)
        mean = __dadd_rn(mean, __dadd_rn(cosines[pair_at(i, j)], -first));
    mean = mean / n;
    for (int j = 0; j < n; j++) {
        double d = __dadd_rn(__dadd_rn(cosines[pair_at(i, j)], -first), -mean);
        sum = __dadd_rn(sum, __dmul_rn(d, d));
    }
    return sum / n;
}

struct group_job {
    const float *x;
    size_t stride;
    int width;
};

/* Compute the dot products of the pairs from p0 on, TEAM_PAIRS per team. */
__device__ void dot_pairs(double *dots, float *tile, const struct group_job *g, const int32_t *rows,
                          int n, int p0)
{
    const int lane = (int)threadIdx.x % DOT_LANES, team = (int)threadIdx.x / DOT_LANES;
    const int n_pairs = n * (n + 1) / 2, whole = g->width / DOT_LANES * DOT_LANES;
    int row_a[TEAM_PAIRS], row_b[TEAM_PAIRS];
    double sum[TEAM_PAIRS];
#pragma unroll
    for (int q = 0; q < TEAM_PAIRS; q++) {
        int p = p0 + q * TEAMS + team;
        p = p < n_pairs ? p : 0;
        row_a[q] = pair_row(p);
        row_b[q] = p - row_a[q] * (row_a[q] + 1) / 2;
        sum[q] = 0;
    }
    for (int k0 = 0; k0 < whole; k0 += TILE) {
        int columns = whole - k0 < TILE ? whole - k0 : TILE;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n * TILE; i += THREADS) {
            int r = i / TILE, k = i % TILE;
            if (k < columns)
                tile[r * TILE_ROW + k] = g->x[(size_t)rows[r] * g->stride + k0 + k];
        }
        __syncthreads();
        for (int k = lane; k < columns; k += DOT_LANES)
#pragma unroll
            for (int q = 0; q < TEAM_PAIRS; q++)
                sum[q] = fma((double)tile[row_a[q] * TILE_ROW + k],
                             (double)tile[row_b[q] * TILE_ROW + k], sum[q]);
    }
#pragma unroll
    for (int q = 0; q < TEAM_PAIRS; q++) {
        const float *a = g->x + (size_t)rows[row_a[q]] * g->stride;
        const float *b = g->x + (size_t)rows[row_b[q]] * g->stride;
        double dot = join_lanes(sum[q], tail_dot(a, b, g->width));
        int p = p0 + q * TEAMS + team;
        if (lane == 0 && p < n_pairs)
            dots[p] = dot;
    }
}

/* One block per group. */
__global__ void __launch_bounds__(THREADS)
    spread_kernel(double *out, struct group_job g, const int32_t *rows, const int32_t *bounds)
{
    __shared__ double dots[GROUP_PAIRS], cosines[GROUP_PAIRS];
    __shared__ float tile[GROUP_MOST * TILE_ROW];

    dep_launch();
    dep_wait();
    const int32_t *mine = rows + bounds[blockIdx.x];
    const int n = bounds[blockIdx.x + 1] - bounds[blockIdx.x], n_pairs = n * (n + 1) / 2;
    for (int p0 = 0; p0 < n_pairs; p0 += TEAMS * TEAM_PAIRS)
        dot_pairs(dots, tile, &g, mine, n, p0);
    __syncthreads();
    for (int p = (int)threadIdx.x; p < n_pairs; p += THREADS) {
        int i = pair_row(p), j = p - i * (i + 1) / 2;
        cosines[p] = cosine(dots[p], dots[pair_at(i, i)], dots[pair_at(j, j)]);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        out[mine[i]] = variance(cosines, i, n);
}

/* ---- alignment ---- */

/* One team per row: finds its scale, and for the first n_units rows stores the scaled row. */
__global__ void __launch_bounds__(THREADS) unit_kernel(struct unit_job j)
{
    const int lane = (int)threadIdx.x % DOT_LANES, n = j.n_units + j.n_sums;
    const int i = (int)(blockIdx.x * TEAMS + threadIdx.x / DOT_LANES);
    double sum = 0;

    dep_launch();
    dep_wait();
    const float *x = j.x + (size_t)j.rows[i < n ? i : 0] * j.width;
#pragma unroll 4
    for (int k = lane; k < j.width / DOT_LANES * DOT_LANES; k += DOT_LANES)
        sum = fma((double)x[k], (double)x[k], sum);
    sum = join_lanes(sum, tail_dot(x, x, j.width));
    double scale = 1 / sqrt(sum);
    if (!isfinite(scale))
        scale = 0;
    if (lane == 0 && i < n)
        j.scale[i] = scale;
    if (i >= j.n_units || scale == 0)
        return;
    __half *to = (__half *)j.units + (size_t)j.to[i] * j.width;
#pragma unroll 4
    for (int k = lane; k < j.width; k += DOT_LANES)
        to[k] = __float2half_rn((float)__dmul_rn((double)x[k], scale));
}

/* One thread per column; rows are added one after the other. */
__global__ void __launch_bounds__(THREADS) sum_kernel(struct unit_job j)
{
    const int k = (int)(blockIdx.x * THREADS + threadIdx.x);

    dep_launch();
    dep_wait();
    if (k >= j.width)
        return;
    double sum = j.sum[k];
#pragma unroll 4
    for (int i = j.n_units; i < j.n_units + j.n_sums; i++) {
        double scale = j.scale[i], x = j.x[(size_t)j.rows[i] * j.width + k];
        if (scale != 0)
            sum = __dadd_rn(sum, __dmul_rn(x, scale));
    }
    j.sum[k] = sum;
}

__device__ inline double add_eight(double dot, uint4 u, const double *sum)
{
    union {
        uint4 u;
        uint16_t h[8];
    } a;
    a.u = u;
#pragma unroll
    for (int e = 0; e < 8; e++)
        dot = __dadd_rn(dot, __dmul_rn((double)__half2float(__ushort_as_half(a.h[e])), sum[e]));
    return dot;
}

/* One thread per row, so that its sum has a fixed order. `vec`: rows begin at multiples of 16
 * bytes. */
__global__ void __launch_bounds__(THREADS)
    dots_kernel(double *out, const uint16_t *units, const double *sum, int n, int width, bool vec)
{
    const int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    double dot = 0;
    int k = 0;

    dep_launch();
    dep_wait();
    if (i >= n)
        return;
    const uint16_t *u = units + (size_t)i * width;
    for (; vec && k + 8 * AHEAD <= width; k += 8 * AHEAD) {
        uint4 v[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            v[a] = ((const uint4 *)(u + k))[a];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            dot = add_eight(dot, v[a], sum + k + 8 * a);
    }
    for (; k < width; k++)
        dot = __dadd_rn(dot, __dmul_rn((double)__half2float(__ushort_as_half(u[k])), sum[k]));
    out[i] = dot;
}

dim3 blocks_of(int n, int each)
{
    return dim3((unsigned)((n + each - 1) / each));
}

} // namespace

void cosines_apart(struct device_work *w, double *out, const float *x, size_t stride, int n,
                   int width, int apart)
{
    if (n <= apart)
        return;
    work_check(w,
               launch(apart_kernel, blocks_of(n - apart, TEAMS), dim3(THREADS), 0, w->stream, out,
                      x, stride, n - apart, width, apart),
               "cosines");
}

void cosine_spread(struct device_work *w, double *out, const float *x, size_t stride, int width,
                   const int32_t *rows, const int32_t *bounds, int n_groups)
{
    struct group_job g = { x, stride, width };
    if (n_groups <= 0)
        return;
    work_check(w,
               launch(spread_kernel, dim3((unsigned)n_groups), dim3(THREADS), 0, w->stream, out, g,
                      rows, bounds),
               "cosines of groups");
}

void unit_rows(struct device_work *w, const struct unit_job *j)
{
    if (j->n_units + j->n_sums > 0)
        work_check(w,
                   launch(unit_kernel, blocks_of(j->n_units + j->n_sums, TEAMS), dim3(THREADS), 0,
                          w->stream, *j),
                   "unit rows");
    if (j->n_sums > 0)
        work_check(
            w, launch(sum_kernel, blocks_of(j->width, THREADS), dim3(THREADS), 0, w->stream, *j),
            "a sum of unit rows");
}

void unit_dots(struct device_work *w, double *out, const uint16_t *units, const double *sum, int n,
               int width)
{
    bool vec = aligned(units) && width % 8 == 0;
    if (n <= 0)
        return;
    work_check(w,
               launch(dots_kernel, blocks_of(n, THREADS), dim3(THREADS), 0, w->stream, out, units,
                      sum, n, width, vec),
               "dots of unit rows");
}
