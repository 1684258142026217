/* Elementwise operations and operations on whole rows: activations, sums, conversions, RoPE of
 * towers, choosing and mixing rows. All are limited by memory bandwidth: one pass, 16 bytes per
 * access where addresses allow. */
#include "kernels/cuda/element.h"

namespace {

enum { THREADS = ELEMENT_THREADS, WARPS = THREADS / 32 };

/* ---- elementwise ---- */

/* Results that are rounded to BF16 do not need the last bits of a division and an exponential,
 * which would cost more time than the memory accesses. */
template <class T> __device__ inline float divide(float a, float b)
{
    return sizeof(T) == 2 ? __fdividef(a, b) : a / b;
}

template <class T> __device__ inline float exponential(float a)
{
    return sizeof(T) == 2 ? __expf(a) : expf(a);
}

template <class T> __device__ inline float silu(float a)
{
    return divide<T>(a, 1.0f + exponential<T>(-a));
}

/* g = silu(g) u, with two accesses to each array in flight. */
template <class T>
__global__ void __launch_bounds__(THREADS) gated_silu_kernel(T *g, const T *u, size_t n, bool vec)
{
    constexpr int N = 16 / (int)sizeof(T);
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t step = (size_t)gridDim.x * THREADS, body = vec ? n / N : 0;

    dep_launch();
    dep_wait();
    for (size_t i = first; i < body; i += 2 * step) {
        const size_t j = i + step;
        float a[2][N], b[2][N];
        load_vec<N>(a[0], g + i * N);
        load_vec<N>(b[0], u + i * N);
        if (j < body) {
            load_vec<N>(a[1], g + j * N);
            load_vec<N>(b[1], u + j * N);
        }
#pragma unroll
        for (int e = 0; e < N; e++)
            a[0][e] = silu<T>(a[0][e]) * b[0][e];
        store_vec<N>(g + i * N, a[0]);
        if (j < body) {
#pragma unroll
            for (int e = 0; e < N; e++)
                a[1][e] = silu<T>(a[1][e]) * b[1][e];
            store_vec<N>(g + j * N, a[1]);
        }
    }
    for (size_t i = body * N + first; i < n; i += step)
        from_float(g + i, silu<T>(to_float(g[i])) * to_float(u[i]));
}

/* (1 + tanh(u)) / 2 is computed as 1 / (1 + exp(-2u)), and 1 + erf(u) as erfc(-u): this loses no
 * digits for u < 0. */
template <class T, int KIND> __device__ inline float gelu(float x)
{
    if (KIND == GELU_ERF)
        return 0.5f * x * erfcf(-0.70710678118654752440f * x);
    if (KIND == GELU_QUICK)
        return divide<T>(x, 1.0f + exponential<T>(-1.702f * x));
    float u = 0.79788456080286535588f * (x + 0.044715f * x * x * x);
    return divide<T>(x, 1.0f + exponential<T>(-2.0f * u));
}

template <class T, int KIND>
__global__ void __launch_bounds__(THREADS) gelu_kernel(T *x, size_t n, bool vec)
{
    constexpr int N = 16 / (int)sizeof(T);
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t step = (size_t)gridDim.x * THREADS, body = vec ? n / N : 0;

    dep_launch();
    dep_wait();
    for (size_t i = first; i < body; i += 2 * step) {
        const size_t j = i + step;
        float a[2][N];
        load_vec<N>(a[0], x + i * N);
        if (j < body)
            load_vec<N>(a[1], x + j * N);
#pragma unroll
        for (int e = 0; e < N; e++)
            a[0][e] = gelu<T, KIND>(a[0][e]);
        store_vec<N>(x + i * N, a[0]);
        if (j < body) {
#pragma unroll
            for (int e = 0; e < N; e++)
                a[1][e] = gelu<T, KIND>(a[1][e]);
            store_vec<N>(x + j * N, a[1]);
        }
    }
    for (size_t i = body * N + first; i < n; i += step)
        from_float(x + i, gelu<T, KIND>(to_float(x[i])));
}

struct convert_job {
    size_t y_stride, x_stride, n, dim;
};

template <class Y, class X, bool VEC>
__global__ void __launch_bounds__(THREADS) convert_kernel(Y *y, const X *x, struct convert_job j)
{
    constexpr int N = VEC ? 8 : 1;
    const size_t pieces = j.y_stride / N, all = j.n * pieces, step = (size_t)gridDim.x * THREADS;

    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        size_t row, col;
        split(i, pieces, &row, &col);
        Y *to = y + row * j.y_stride + col * N;
        const X *from = x + row * j.x_stride + col * N;
        if constexpr (VEC) {
            float a[N] = {};
            if (col * N < j.dim)
                load_vec<N>(a, from);
            store_vec<N>(to, a);
        } else {
            from_float(to, col < j.dim ? to_float(*from) : 0.0f);
        }
    }
}

template <class Y, class X>
void convert_launch(struct device_work *w, Y *y, const X *x, const struct convert_job *j)
{
    bool vec = aligned(y) && aligned(x) && (j->y_stride | j->x_stride | j->dim) % 8 == 0;
    work_check(w,
               launch(vec ? convert_kernel<Y, X, true> : convert_kernel<Y, X, false>,
                      grid_for(w, j->n * j->y_stride / (vec ? 8 : 1)), dim3(THREADS), 0, w->stream,
                      y, x, *j),
               "convert");
}

template <class Y>
void convert_from(struct device_work *w, Y *y, const void *x, enum dtype x_dtype,
                  const struct convert_job *j)
{
    if (x_dtype == DTYPE_F32)
        convert_launch(w, y, (const float *)x, j);
    else if (x_dtype == DTYPE_BF16)
        convert_launch(w, y, (const bf16 *)x, j);
    else if (x_dtype == DTYPE_F16)
        convert_launch(w, y, (const __half *)x, j);
    else
        unknown_type(w, "convert");
}

__global__ void __launch_bounds__(THREADS) add_kernel(float *y, const float *x, size_t n, bool vec)
{
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t step = (size_t)gridDim.x * THREADS, body = vec ? n / 4 : 0;

    dep_launch();
    dep_wait();
    for (size_t i = first; i < body; i += step) {
        float a[4], b[4];
        load_vec<4>(a, y + i * 4);
        load_vec<4>(b, x + i * 4);
#pragma unroll
        for (int e = 0; e < 4; e++)
            a[e] += b[e];
        store_vec<4>(y + i * 4, a);
    }
    for (size_t i = body * 4 + first; i < n; i += step)
        y[i] += x[i];
}

/* ---- rope ---- */

struct rope_job {
    size_t stride; /* elements from row to row */
    int n, n_heads, d;
    const float *weight, *cos, *sin; /* weight: [d], or NULL */
    float eps;
};

/* Each thread rotates V pairs (j, j + d/2). */
template <class T, int V>
__global__ void __launch_bounds__(THREADS) rope_kernel(T *x, struct rope_job job)
{
    const int half = job.d / 2, pieces = half / V;
    const size_t row_pieces = (size_t)job.n_heads * pieces;
    const size_t all = job.n * row_pieces, step = (size_t)gridDim.x * THREADS;

    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        size_t row, in_row;
        split(i, row_pieces, &row, &in_row);
        int head = (int)in_row / pieces, j = ((int)in_row - head * pieces) * V;
        T *p = x + row * job.stride + head * job.d + j;
        const float *c = job.cos + row * half + j, *s = job.sin + row * half + j;
        float a[V], b[V];
        if constexpr (V > 1) {
            float cv[V], sv[V], lo[V], hi[V];
            load_vec<V>(a, p);
            load_vec<V>(b, p + half);
            load_vec<V>(cv, c);
            load_vec<V>(sv, s);
#pragma unroll
            for (int e = 0; e < V; e++) {
                lo[e] = a[e] * cv[e] - b[e] * sv[e];
                hi[e] = b[e] * cv[e] + a[e] * sv[e];
            }
            store_vec<V>(p, lo);
            store_vec<V>(p + half, hi);
        } else {
            a[0] = to_float(p[0]);
            b[0] = to_float(p[half]);
            from_float(p, a[0] * c[0] - b[0] * s[0]);
            from_float(p + half, b[0] * c[0] + a[0] * s[0]);
        }
    }
}

/* One warp per head: RMS norm with a weight, then RoPE. */
template <class T>
__global__ void __launch_bounds__(THREADS) norm_rope_kernel(T *x, struct rope_job job)
{
    constexpr int MOST = DEVICE_MAX_HEAD_DIM / 64;
    const int half = job.d / 2, lane = (int)threadIdx.x % 32;
    const size_t all = (size_t)job.n * job.n_heads, step = (size_t)gridDim.x * WARPS;

    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / 32; i < all; i += step) {
        size_t row, head;
        split(i, (size_t)job.n_heads, &row, &head);
        T *p = x + row * job.stride + head * job.d;
        const float *c = job.cos + row * half, *s = job.sin + row * half;
        float a[MOST], b[MOST], sum = 0;
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            int j = lane + 32 * k;
            a[k] = j < half ? to_float(p[j]) : 0.0f;
            b[k] = j < half ? to_float(p[j + half]) : 0.0f;
            sum += a[k] * a[k];
            sum += b[k] * b[k];
        }
        float scale = 1.0f / sqrtf(warp_sum(sum) / (float)job.d + job.eps);
#pragma unroll
        for (int k = 0; k < MOST; k++) {
            int j = lane + 32 * k;
            if (j < half) {
                float lo = job.weight[j] * (a[k] * scale);
                float hi = job.weight[j + half] * (b[k] * scale);
                from_float(p + j, lo * c[j] - hi * s[j]);
                from_float(p + j + half, hi * c[j] + lo * s[j]);
            }
        }
    }
}

template <class T> void rope_any(struct device_work *w, T *x, const struct rope_job *j)
{
    constexpr int V = 16 / (int)sizeof(T);
    size_t pairs = (size_t)j->n * j->n_heads * (j->d / 2);
    bool base = aligned(x) && aligned(j->cos) && aligned(j->sin);
    bool wide = base && j->d % (2 * V) == 0 && j->stride % V == 0;
    bool narrow = base && j->d % 8 == 0 && j->stride % 4 == 0; /* four pairs per thread */
    cudaError_t e;

    if (j->weight)
        e = launch(norm_rope_kernel<T>, grid_for(w, (size_t)j->n * j->n_heads * 32), dim3(THREADS),
                   0, w->stream, x, *j);
    else if (wide)
        e = launch(rope_kernel<T, V>, grid_for(w, pairs / V), dim3(THREADS), 0, w->stream, x, *j);
    else if (narrow)
        e = launch(rope_kernel<T, 4>, grid_for(w, pairs / 4), dim3(THREADS), 0, w->stream, x, *j);
    else
        e = launch(rope_kernel<T, 1>, grid_for(w, pairs), dim3(THREADS), 0, w->stream, x, *j);
    work_check(w, e, "rope");
}

/* ---- rows ---- */

__global__ void __launch_bounds__(THREADS)
    gather_kernel(float *y, const float *x, const int32_t *rows, int n, int dim, bool vec)
{
    const size_t pieces = (size_t)(vec ? dim / 4 : dim);
    const size_t all = n * pieces, step = (size_t)gridDim.x * THREADS;

    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        size_t row, j;
        split(i, pieces, &row, &j);
        const float *from = x + (size_t)rows[row] * dim;
        if (vec)
            ((float4 *)y)[i] = ((const float4 *)from)[j];
        else
            y[i] = from[j];
    }
}

/* y = the weighted sum of four rows of x, or of their GELU: piece j of the rows, which is four
 * numbers (vec) or one. */
template <bool GELU>
__device__ inline void blend_piece(float *y, const float *x, const int (&rows)[4],
                                   const float (&weights)[4], int dim, size_t j, bool vec)
{
    float sum[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float *from = x + (size_t)rows[k] * dim;
        float a[4] = { 0, 0, 0, 0 }, weight = weights[k];
        if (vec)
            load_vec<4>(a, from + 4 * j);
        else
            a[0] = from[j];
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[e] += weight * (GELU ? gelu<float, GELU_ERF>(a[e]) : a[e]);
    }
    if (vec)
        store_vec<4>(y + 4 * j, sum);
    else
        y[j] = sum[0];
}

__global__ void __launch_bounds__(THREADS)
    blend_kernel(float *y, const float *x, const int (*rows)[4], const float (*weights)[4], int n,
                 int dim, bool vec)
{
    const size_t pieces = (size_t)(vec ? dim / 4 : dim);
    const size_t all = n * pieces, step = (size_t)gridDim.x * THREADS;

    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        size_t row, j;
        split(i, pieces, &row, &j);
        blend_piece<false>(y + row * dim, x, rows[row], weights[row], dim, j, vec);
    }
}

/* One piece of a row per thread; the y dimension of the grid is the frames. */
__global__ void __launch_bounds__(THREADS) gelu_blend_kernel(struct gelu_blend_job job, bool vec)
{
    const int pieces = vec ? job.dim / 4 : job.dim;
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const int row = (int)(i / pieces), j = (int)(i - (size_t)row * pieces);
    const float *x = job.x + (size_t)blockIdx.y * job.from * job.dim;
    float *y = job.y + ((size_t)blockIdx.y * job.n + row) * job.dim;

    dep_launch();
    dep_wait();
    if (row < job.n)
        blend_piece<true>(y, x, job.rows[row], job.weights[row], job.dim, (size_t)j, vec);
}

} // namespace
void gated_silu(struct device_work *w, void *g, const void *u, enum dtype dtype, size_t n)
{
    bool vec = aligned(g) && aligned(u);
    if (n == 0)
        return;
    if (dtype == DTYPE_BF16)
        work_check(w,
                   launch(gated_silu_kernel<bf16>, grid_for(w, vec ? n / 8 : n), dim3(THREADS), 0,
                          w->stream, g, u, n, vec),
                   "gated silu");
    else if (dtype == DTYPE_F32)
        work_check(w,
                   launch(gated_silu_kernel<float>, grid_for(w, vec ? n / 4 : n), dim3(THREADS), 0,
                          w->stream, g, u, n, vec),
                   "gated silu");
    else
        unknown_type(w, "gated silu");
}

template <class T> static auto gelu_of(enum gelu_kind kind)
{
    return kind == GELU_ERF     ? gelu_kernel<T, GELU_ERF>
           : kind == GELU_QUICK ? gelu_kernel<T, GELU_QUICK>
                                : gelu_kernel<T, GELU_TANH>;
}

void gelu_rows(struct device_work *w, void *x, enum dtype dtype, size_t n, enum gelu_kind kind)
{
    bool vec = aligned(x);
    size_t pieces = vec ? n / (dtype == DTYPE_BF16 ? 8 : 4) : n;
    if (n == 0)
        return;
    if (dtype == DTYPE_BF16)
        work_check(w,
                   launch(gelu_of<bf16>(kind), grid_for(w, pieces), dim3(THREADS), 0, w->stream, x,
                          n, vec),
                   "gelu");
    else if (dtype == DTYPE_F32)
        work_check(w,
                   launch(gelu_of<float>(kind), grid_for(w, pieces), dim3(THREADS), 0, w->stream, x,
                          n, vec),
                   "gelu");
    else
        unknown_type(w, "gelu");
}

void convert_rows(struct device_work *w, void *y, enum dtype y_dtype, size_t y_stride,
                  const void *x, enum dtype x_dtype, size_t x_stride, int n, int dim)
{
    struct convert_job j = { y_stride, x_stride, (size_t)n, (size_t)dim };
    if (n <= 0 || dim <= 0)
        return;
    if (y_stride == (size_t)dim && x_stride == (size_t)dim) { /* contiguous: one long row */
        j.dim = j.y_stride = j.x_stride = (size_t)n * (size_t)dim;
        j.n = 1;
    }
    if (y_dtype == DTYPE_F32)
        convert_from(w, (float *)y, x, x_dtype, &j);
    else if (y_dtype == DTYPE_BF16)
        convert_from(w, (bf16 *)y, x, x_dtype, &j);
    else if (y_dtype == DTYPE_F16)
        convert_from(w, (__half *)y, x, x_dtype, &j);
    else
        unknown_type(w, "convert");
}

void rope_rows(struct device_work *w, void *x, enum dtype dtype, size_t stride, int n, int n_heads,
               int d, const float *weight, float eps, const float *cos, const float *sin)
{
    struct rope_job j = { stride, n, n_heads, d, weight, cos, sin, eps };
    if (n <= 0)
        return;
    if (dtype == DTYPE_BF16)
        rope_any(w, (bf16 *)x, &j);
    else if (dtype == DTYPE_F32)
        rope_any(w, (float *)x, &j);
    else
        unknown_type(w, "rope");
}

void add_rows(struct device_work *w, float *y, const float *x, size_t n)
{
    bool vec = aligned(y) && aligned(x);
    if (n == 0)
        return;
    work_check(
        w,
        launch(add_kernel, grid_for(w, vec ? n / 4 : n), dim3(THREADS), 0, w->stream, y, x, n, vec),
        "add");
}

void gather_rows(struct device_work *w, float *y, const float *x, const int32_t *rows, int n,
                 int dim)
{
    bool vec = aligned(y) && aligned(x) && dim % 4 == 0;
    if (n <= 0)
        return;
    work_check(w,
               launch(gather_kernel, grid_for(w, (size_t)n * (vec ? dim / 4 : dim)), dim3(THREADS),
                      0, w->stream, y, x, rows, n, dim, vec),
               "gather");
}

void blend_rows(struct device_work *w, float *y, const float *x, const int (*rows)[4],
                const float (*weights)[4], int n, int dim)
{
    bool vec = aligned(y) && aligned(x) && dim % 4 == 0;
    if (n <= 0)
        return;
    work_check(w,
               launch(blend_kernel, grid_for(w, (size_t)n * (vec ? dim / 4 : dim)), dim3(THREADS),
                      0, w->stream, y, x, rows, weights, n, dim, vec),
               "blend");
}

void gelu_blend(struct device_work *w, const struct gelu_blend_job *job)
{
    const int most = 65535; /* frames of a launch */
    struct gelu_blend_job some = *job;
    bool vec = aligned(job->y) && aligned(job->x) && job->dim % 4 == 0;
    size_t pieces = (size_t)job->n * (size_t)(vec ? job->dim / 4 : job->dim);
    unsigned blocks = (unsigned)((pieces + THREADS - 1) / THREADS);
    for (int f = 0; f < job->frames && pieces > 0; f += most) {
        some.frames = job->frames - f < most ? job->frames - f : most;
        some.x = job->x + (size_t)f * (size_t)job->from * (size_t)job->dim;
        some.y = job->y + (size_t)f * (size_t)job->n * (size_t)job->dim;
        work_check(w,
                   launch(gelu_blend_kernel, dim3(blocks, (unsigned)some.frames), dim3(THREADS), 0,
                          w->stream, some, vec),
                   "blend");
    }
}
