/* Products with many rows, y = x . w^T + bias: by cuBLASLt (matmul_library.cu), or by our own plain
 * kernel if the library does not support them. Quantised weights are converted to BF16 first.
 *
 * Hopper's tensor cores do not multiply F32. In a tower's products outside its layers (the patch
 * embedding of most models) F32 numbers are therefore written as sums of three BF16 numbers, a + b
 * + c, and all products of two parts that matter are summed as one BF16 product of six times the
 * length, the small ones first: ca, ac, bb, ba, ab, aa. What is missing is below 2^-24. */
#include "kernels/cuda/element.h"
#include "kernels/cuda/matmul_library.h"

namespace {

enum {
    TILE = 64, /* plain kernel: rows and outputs of a block */
    TILE_IN = 16,
    THREADS = ELEMENT_THREADS
};

/* ---- the plain kernel ---- */

/* Load rows of p from row0 on, columns from k0 on, transposed: to[k][row]. */
template <class T>
__device__ inline void plain_load(float (*to)[TILE + 1], const T *p, size_t stride, int row0, int n,
                                  int k0, int in)
{
    for (int i = (int)threadIdx.x; i < TILE * TILE_IN; i += THREADS) {
        int k = i % TILE_IN, r = i / TILE_IN;
        bool inside = row0 + r < n && k0 + k < in;
        to[k][r] = inside ? to_float(p[(size_t)(row0 + r) * stride + k0 + k]) : 0.0f;
    }
}

/* A block computes 64 rows by 64 outputs, a thread 4 by 4 of them, each summed from first to last.
 */
template <class X, class W, class Y>
__global__ void __launch_bounds__(THREADS) plain_kernel(struct product p)
{
    __shared__ float xs[TILE_IN][TILE + 1], ws[TILE_IN][TILE + 1];
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const int out0 = (int)blockIdx.x * TILE, row0 = (int)blockIdx.y * TILE;
    float sum[4][4] = {};

    dep_launch();
    dep_wait();
    for (int k0 = 0; k0 < p.in; k0 += TILE_IN) {
        plain_load(xs, (const X *)p.x, p.x_stride, row0, p.n, k0, p.in);
        plain_load(ws, (const W *)p.w, (size_t)p.stride, out0, p.out, k0, p.in);
        __syncthreads();
        for (int k = 0; k < TILE_IN; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(xs[k][ty + 16 * i], ws[k][tx + 16 * j], sum[i][j]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int r = row0 + ty + 16 * i, o = out0 + tx + 16 * j;
            if (r >= p.n || o >= p.out)
                continue;
            Y *y = (Y *)p.y + (size_t)r * p.y_stride + o;
            float v = sum[i][j] + (p.bias ? p.bias[o] : 0.0f);
            from_float(y, p.add ? to_float(*y) + v : v);
        }
}

template <class X, class W> void plain_launch(struct device_work *w, const struct product *p)
{
    const int most = 65535 * TILE; /* most rows of one launch */
    struct product part = *p;
    size_t x_row = sizeof(X) * p->x_stride;
    size_t y_row = (p->y_dtype == DTYPE_F32 ? 4 : 2) * p->y_stride;

    for (int r = 0; r < p->n; r += most) {
        part.n = p->n - r < most ? p->n - r : most;
        part.x = (const char *)p->x + r * x_row;
        part.y = (char *)p->y + r * y_row;
        dim3 grid((unsigned)(p->out + TILE - 1) / TILE, (unsigned)(part.n + TILE - 1) / TILE);
        work_check(
            w,
            launch(p->y_dtype == DTYPE_F32 ? plain_kernel<X, W, float> : plain_kernel<X, W, bf16>,
                   grid, dim3(THREADS), 0, w->stream, part),
            "product");
    }
}

void plain_product(struct device_work *w, const struct product *p)
{
    if (p->w_dtype == DTYPE_BF16)
        plain_launch<bf16, bf16>(w, p);
    else if (p->w_dtype == DTYPE_F16)
        plain_launch<float, __half>(w, p);
    else
        plain_launch<float, float>(w, p);
}

/* ---- F32 as sums of BF16 ---- */

enum { SPLIT = 6, SPLIT_BYTES = 2 * SPLIT };

/* Rows of `in` numbers, x_stride apart, to rows of SPLIT times `part` numbers: their parts, in the
 * order of x or of the weights. `part` is a multiple of 4. */
template <bool WEIGHTS>
__global__ void __launch_bounds__(THREADS)
    split_kernel(uint16_t *y, const float *x, size_t x_stride, int n, int in, int part)
{
    const int quads = part / 4;
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x, row = i / quads;
    const int k = (int)(i - row * quads) * 4;
    float p[3][4];

    dep_launch();
    dep_wait();
    if (row >= (size_t)n)
        return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float left = k + e < in ? x[row * x_stride + k + e] : 0.0f;
#pragma unroll
        for (int j = 0; j < 3; j++) {
            p[j][e] = bf16_float((uint16_t)bf16_bits(left));
            left -= p[j][e];
        }
    }
    y += row * SPLIT * part + k;
#pragma unroll
    for (int j = 0; j < SPLIT; j++) {
        constexpr int of_x[SPLIT] = { 2, 0, 1, 1, 0, 0 }, of_w[SPLIT] = { 0, 2, 1, 0, 1, 0 };
        store_vec<4>((bf16 *)y + j * part, p[WEIGHTS ? of_w[j] : of_x[j]]);
    }
}

template <bool WEIGHTS>
void split_rows(struct device_work *w, void *y, const void *x, size_t x_stride, int n, int in,
                int part)
{
    size_t blocks = ((size_t)n * (size_t)(part / 4) + THREADS - 1) / THREADS;
    work_check(w,
               launch(split_kernel<WEIGHTS>, dim3((unsigned)blocks), dim3(THREADS), 0, w->stream,
                      (uint16_t *)y, (const float *)x, x_stride, n, in, part),
               "parts of a product");
}

/* Whether the parts of x and w have room; never depends on the number of rows. */
bool can_split(const struct device_work *w, const struct product *p)
{
    size_t row = (size_t)SPLIT_BYTES * (size_t)((p->in + 7) / 8 * 8);
    return w->gpu->major == 9 && w->shape.context == 0 && w->shape.ffn > 0 &&
           p->w_dtype == DTYPE_F32 && p->y_dtype == DTYPE_F32 &&
           row <= 2 * sizeof(float) * (size_t)w->shape.ffn &&
           row * (size_t)p->out <= w->weights16_size;
}

/* x goes to w->mid and w->mid2, which is next to it, the weights to w->weights16. */
void split_product(struct device_work *w, struct product *p)
{
    int part = (p->in + 7) / 8 * 8;
    split_rows<false>(w, w->mid, p->x, p->x_stride, p->n, p->in, part);
    split_rows<true>(w, w->weights16, p->w, (size_t)p->stride, p->out, p->in, part);
    p->x = w->mid;
    p->w = w->weights16;
    p->x_dtype = p->w_dtype = DTYPE_BF16;
    p->in = p->stride = SPLIT * part;
    p->x_stride = (size_t)p->in;
}

} // namespace

bool weights_fit(struct device_work *w, int out, int stride, size_t element)
{
    bool fit = (size_t)(out + 7) / 8 * 8 * (size_t)stride * element <= w->weights16_size;
    if (!fit)
        work_check(w, cudaErrorInvalidValue, "a matrix larger than its work was opened for");
    return fit;
}

/* Describe the product for the library; quantised weights are converted to BF16. Returns false if
 * there is no room for that. */
static bool take_product(struct device_work *w, struct product *p, const struct matrix *m, void *y,
                         enum dtype y_dtype, size_t y_stride, const void *x, size_t x_stride, int n)
{
    const struct cuda_matrix *c = cuda_of(m);
    int whole = (c->in + 7) / 8 * 8; /* includes the matrix's padding zeros, to keep rows aligned */
    int outputs = (c->out + 7) / 8 * 8;

    *p = {};
    p->x = x;
    p->y = y;
    p->y_dtype = y_dtype;
    p->out = c->out, p->whole = c->whole, p->stride = c->stride, p->n = n;
    p->in = x_stride >= (size_t)whole ? whole : c->in;
    p->x_stride = x_stride, p->y_stride = y_stride;
    p->bias = m->bias;
    p->w = c->w;
    p->w_dtype = c->dtype;
    if (c->dtype != DTYPE_BF16 && c->dtype != DTYPE_F16 && c->dtype != DTYPE_F32) {
        if (!weights_fit(w, c->out, c->stride, sizeof(uint16_t)))
            return false;
        matrix_to_bf16(w, w->weights16, c);
        p->w = w->weights16;
        p->w_dtype = DTYPE_BF16;
    }
    if (p->w_dtype == DTYPE_BF16 && y_dtype == DTYPE_BF16 && y_stride >= (size_t)outputs)
        p->pad = outputs - c->out, p->whole = (c->whole + 7) / 8 * 8;
    if (p->pad && p->w != c->w)
        work_check(w,
                   cudaMemsetAsync((uint16_t *)w->weights16 + (size_t)c->out * (size_t)c->stride, 0,
                                   2 * (size_t)p->pad * (size_t)c->stride, w->stream),
                   "rows of zeros");
    p->x_dtype = p->w_dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    return true;
}

void matmul_many(struct device_work *w, const struct matrix *m, void *y, enum dtype y_dtype,
                 size_t y_stride, const void *x, size_t x_stride, int n, bool add)
{
    struct product p;
    if (n <= 0 || !take_product(w, &p, m, y, y_dtype, y_stride, x, x_stride, n))
        return;
    p.add = add;
    if (!library_product(w, &p))
        plain_product(w, &p);
}

void matmul_many_apart(struct device_work *w, const struct matrix *m, float *y, size_t y_stride,
                       const void *x, size_t x_stride, int n)
{
    struct product p;
    if (n <= 0 || !take_product(w, &p, m, y, DTYPE_F32, y_stride, x, x_stride, n))
        return;
    if (can_split(w, &p))
        split_product(w, &p);
    if (!library_product(w, &p))
        plain_product(w, &p);
}

bool matmul_many_gelu(struct device_work *w, const struct matrix *m, void *y, size_t y_stride,
                      const void *x, size_t x_stride, int n)
{
    struct product p;
    if (few_x_dtype(m) != DTYPE_BF16)
        return false;
    if (n <= 0 || !take_product(w, &p, m, y, DTYPE_BF16, y_stride, x, x_stride, n))
        return true;
    p.gelu = true;
    return library_product(w, &p);
}
