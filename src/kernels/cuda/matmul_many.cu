/* Products with many rows, y = x . w^T + bias, through cuBLASLt. The library chooses its algorithm
 * by the number of rows, which would make a row's last bits depend on its company. So each product
 * (shape, types, alignment: nothing of the rows) is asked for once with CHOSEN_ROWS rows, only
 * algorithms count that sum a row in one piece (no split of the sum, no workspace to put parts in),
 * and the first of them serves every number of rows from then on.
 *
 * Blocks are turned to BF16 first, F16 to F32 multiplied as TF32, which holds all its bits; F32
 * stays F32. What the library does not take, a plain kernel of our own does. */
#include "kernels/cuda/element.h"

extern "C" {
#include "base/status.h"
}

#ifndef PV_CUDASIM
#include <cublasLt.h>
#include <pthread.h>
#include <string.h>
#endif

namespace {

enum {
    CHOSEN_ROWS = 8192,
    MAX_PRODUCTS = 256, /* remembered; others are asked for each time, with the same answer */
    TILE = 64,          /* of the plain kernel: rows and outputs of a block */
    TILE_IN = 16,
    THREADS = ELEMENT_THREADS
};

/* A product whose weights are plain numbers. */
struct product {
    const void *w, *x;
    void *y;
    enum dtype w_dtype, x_dtype, y_dtype;
    int out, in, stride, n;
    int pad; /* rows of zeros behind the weights, with room in y: aligned outputs are far faster */
    size_t x_stride, y_stride;
    const float *bias;
    bool add;
};

/* Whether the work has room for the matrix turned to plain elements of so many bytes, and for rows
 * of zeros up to a multiple of 8; if not, that is told. */
bool weights_fit(struct device_work *w, int out, int stride, size_t element)
{
    bool fit = (size_t)(out + 7) / 8 * 8 * (size_t)stride * element <= w->weights16_size;
    if (!fit)
        work_check(w, cudaErrorInvalidValue, "a matrix larger than its work was opened for");
    return fit;
}

/* ---- the plain kernel ---- */

/* rows [tile * TILE, ...) of p, columns from k on, turned: to[k][row]. */
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

/* 64 rows by 64 outputs; a thread has 4 by 4 of them, each summed from first to last. */
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
    const int most = 65535 * TILE; /* rows of one launch */
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

} // namespace

#ifdef PV_CUDASIM

struct many {
    int unused;
};

enum pv_status many_open(struct cuda_device *gpu, struct pv_error *err)
{
    (void)err;
    gpu->many = NULL;
    return PV_OK;
}

void many_close(struct cuda_device *gpu)
{
    gpu->many = NULL;
}

static bool library_product(struct device_work *w, const struct product *p)
{
    (void)w, (void)p;
    return false;
}

#else

namespace {

/* All that an algorithm may depend on. Compared byte by byte, so zeroed first. */
struct key {
    int out, in, stride;
    int w_dtype, x_dtype, y_dtype;
    size_t x_stride, y_stride;
    int align_w, align_x, align_y;
    bool bias, add, tf32;
};

struct choice {
    struct key key;
    bool found;       /* false: left to the plain kernel */
    bool bias_inside; /* false: the bias is added by a pass of its own */
    cublasLtMatmulAlgo_t algo;
};

/* A product as cuBLASLt describes it, column by column: y^T [out, n] = (w^T)^T x^T. */
struct description {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};

} // namespace

struct many {
    cublasLtHandle_t handle;
    pthread_mutex_t lock; /* of what follows */
    int n;
    struct choice choices[MAX_PRODUCTS];
};

namespace {

cudaDataType_t library_type(enum dtype t)
{
    return t == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

int dtype_bytes(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

/* What both an address and a row are a multiple of, at most 16. */
int alignment(const void *p, size_t row)
{
    size_t a = (size_t)(uintptr_t)p | row | 16;
    return (int)(a & (0 - a));
}

cublasStatus_t describe(struct description *d, const struct product *p, int n, bool tf32,
                        const void *bias)
{
    const cublasOperation_t turned = CUBLAS_OP_T;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const int32_t bias_type = library_type(p->y_dtype);
    cublasStatus_t s = cublasLtMatmulDescInit(
        &d->op, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!s)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                           sizeof turned);
    if (!s && bias)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue);
    if (!s && bias)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                           sizeof bias_type);
    if (!s && bias)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof bias);
    if (!s)
        s = cublasLtMatrixLayoutInit(&d->w, library_type(p->w_dtype), (uint64_t)p->in,
                                     (uint64_t)(p->out + p->pad), p->stride);
    if (!s)
        s = cublasLtMatrixLayoutInit(&d->x, library_type(p->x_dtype), (uint64_t)p->in, (uint64_t)n,
                                     (int64_t)p->x_stride);
    if (!s)
        s = cublasLtMatrixLayoutInit(&d->y, library_type(p->y_dtype), (uint64_t)(p->out + p->pad),
                                     (uint64_t)n, (int64_t)p->y_stride);
    return s;
}

/* A row is summed in one piece, in an order that the algorithm alone fixes. */
bool whole_sums(const cublasLtMatmulHeuristicResult_t *r)
{
    int32_t splits = 1;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t size;
    if (r->state != CUBLAS_STATUS_SUCCESS || r->workspaceSize > 0)
        return false;
    if (cublasLtMatmulAlgoConfigGetAttribute(&r->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                             sizeof splits, &size) ||
        cublasLtMatmulAlgoConfigGetAttribute(&r->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                             &scheme, sizeof scheme, &size))
        return false;
    return splits <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

bool choose_algorithm(struct many *m, struct choice *c, const struct product *p, const void *bias)
{
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t found[16];
    struct description d;
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint64_t no_bytes = 0;
    const uint32_t align[3] = { (uint32_t)c->key.align_w, (uint32_t)c->key.align_x,
                                (uint32_t)c->key.align_y };
    int n = 0;

    if (describe(&d, p, CHOSEN_ROWS, c->key.tf32, bias) || cublasLtMatmulPreferenceInit(&pref))
        return false;
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                         sizeof none);
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &no_bytes,
                                         sizeof no_bytes);
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                         &align[0], sizeof align[0]);
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                         &align[1], sizeof align[1]);
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                         &align[2], sizeof align[2]);
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                                         &align[2], sizeof align[2]);
    if (cublasLtMatmulAlgoGetHeuristic(m->handle, &d.op, &d.w, &d.x, &d.y, &d.y, &pref, 16, found,
                                       &n))
        return false;
    for (int i = 0; i < n; i++)
        if (whole_sums(&found[i])) {
            c->algo = found[i].algo;
            return true;
        }
    return false;
}

/* The algorithm of a product, remembered. `bias` as the epilogue would read it. */
struct choice choice_of(struct many *m, const struct product *p, const void *bias, bool tf32)
{
    struct choice c;

    memset(&c, 0, sizeof c);
    c.key.out = p->out + p->pad, c.key.in = p->in, c.key.stride = p->stride;
    c.key.w_dtype = p->w_dtype, c.key.x_dtype = p->x_dtype, c.key.y_dtype = p->y_dtype;
    c.key.x_stride = p->x_stride, c.key.y_stride = p->y_stride;
    c.key.align_w = alignment(p->w, (size_t)p->stride * dtype_bytes(p->w_dtype));
    c.key.align_x = alignment(p->x, p->x_stride * dtype_bytes(p->x_dtype));
    c.key.align_y = alignment(p->y, p->y_stride * dtype_bytes(p->y_dtype));
    c.key.bias = bias != NULL, c.key.add = p->add, c.key.tf32 = tf32;

    pthread_mutex_lock(&m->lock);
    int i = 0;
    while (i < m->n && memcmp(&m->choices[i].key, &c.key, sizeof c.key))
        i++;
    if (i < m->n) {
        c = m->choices[i];
    } else {
        c.found = c.bias_inside = choose_algorithm(m, &c, p, bias);
        if (!c.found && bias)
            c.found = choose_algorithm(m, &c, p, NULL);
        if (m->n < MAX_PRODUCTS)
            m->choices[m->n++] = c;
    }
    pthread_mutex_unlock(&m->lock);
    return c;
}

/* y = x + bias, rows x_stride and y_stride apart; y may be x, bias NULL. */
template <class Y, class X>
__global__ void __launch_bounds__(THREADS)
    finish_kernel(Y *y, size_t y_stride, const X *x, size_t x_stride, const float *bias, int n,
                  int out)
{
    const size_t all = (size_t)n * out, step = (size_t)gridDim.x * THREADS;
    dep_launch();
    dep_wait();
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += step) {
        size_t r = i / out, o = i - r * out;
        from_float(y + r * y_stride + o, to_float(x[r * x_stride + o]) + (bias ? bias[o] : 0.0f));
    }
}

template <class Y, class X>
void finish(struct device_work *w, const struct product *p, Y *y, const X *x, size_t x_stride,
            const float *bias)
{
    work_check(w,
               launch(finish_kernel<Y, X>, dim3((unsigned)w->gpu->n_sm * 16), dim3(THREADS), 0,
                      w->stream, y, p->y_stride, x, x_stride, bias, p->n, p->out),
               "product");
}

cudaError_t library_error(cublasStatus_t s)
{
    switch (s) {
    case CUBLAS_STATUS_SUCCESS:
        return cudaSuccess;
    case CUBLAS_STATUS_ALLOC_FAILED:
        return cudaErrorMemoryAllocation;
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return cudaErrorNotSupported;
    case CUBLAS_STATUS_INVALID_VALUE:
        return cudaErrorInvalidValue;
    default:
        return cudaErrorUnknown;
    }
}

/* False: not for this product, whatever its rows. F16 weights lie as F32 here: tf32. */
bool run_product(struct device_work *w, const struct product *p, bool tf32)
{
    const float one = 1, beta = p->add ? 1 : 0;
    const void *bias = p->bias;
    struct description d;

    /* The epilogue reads a bias of y's type. */
    if (bias && p->y_dtype == DTYPE_BF16) {
        convert_rows(w, w->full_scratch, DTYPE_BF16, (size_t)(p->out + p->pad), bias, DTYPE_F32,
                     (size_t)p->out, 1, p->out);
        bias = w->full_scratch;
    } else if (bias && (uintptr_t)bias % 16) {
        work_check(w,
                   cudaMemcpyAsync(w->full_scratch, bias, sizeof(float) * (size_t)p->out,
                                   cudaMemcpyDeviceToDevice, w->stream),
                   "bias");
        bias = w->full_scratch;
    }
    struct choice c = choice_of(w->gpu->many, p, bias, tf32);
    if (!c.found)
        return false;
    cublasStatus_t s = describe(&d, p, p->n, tf32, c.bias_inside ? bias : NULL);
    if (!s)
        s = cublasLtMatmul(w->gpu->many->handle, &d.op, &one, p->w, &d.w, p->x, &d.x, &beta, p->y,
                           &d.y, p->y, &d.y, &c.algo, NULL, 0, w->stream);
    work_check(w, library_error(s), "library product");
    if (bias && !c.bias_inside && p->y_dtype == DTYPE_F32)
        finish(w, p, (float *)p->y, (const float *)p->y, p->y_stride, p->bias);
    else if (bias && !c.bias_inside)
        finish(w, p, (bf16 *)p->y, (const bf16 *)p->y, p->y_stride, p->bias);
    return true;
}

/* Bytes at the beginning of full_scratch that hold a bias. */
size_t bias_room(const struct product *p)
{
    return ((size_t)p->out * sizeof(float) + 255) / 256 * 256;
}

/* F32 products give F32: BF16 is made of it, some rows at a time. */
bool run_through_f32(struct device_work *w, const struct product *p, bool tf32)
{
    size_t used = bias_room(p), row = sizeof(float) * (size_t)p->out;
    size_t most = w->full_size > used ? (w->full_size - used) / row : 0;
    struct product part = *p, to = *p;

    part.y = (char *)w->full_scratch + used;
    part.y_dtype = DTYPE_F32;
    part.y_stride = (size_t)p->out;
    if (most == 0)
        work_check(w, cudaErrorMemoryAllocation, "scratch of a product");
    for (size_t r = 0; r < (size_t)p->n && most > 0; r += most) {
        part.n = to.n = (size_t)p->n - r < most ? (int)((size_t)p->n - r) : (int)most;
        part.x = (const float *)p->x + r * p->x_stride;
        if (!run_product(w, &part, tf32))
            return false;
        finish(w, &to, (bf16 *)p->y + r * p->y_stride, (const float *)part.y, part.y_stride, NULL);
    }
    return true;
}

bool library_product(struct device_work *w, const struct product *p)
{
    struct product wide = *p;
    bool tf32 = p->w_dtype == DTYPE_F16;

    if (tf32) {
        size_t stride = (size_t)p->stride;
        if (!weights_fit(w, p->out, p->stride, sizeof(float)))
            return true;
        convert_rows(w, w->weights16, DTYPE_F32, stride, p->w, DTYPE_F16, stride, p->out,
                     p->stride);
        wide.w = w->weights16;
        wide.w_dtype = DTYPE_F32;
    }
    if (wide.w_dtype == DTYPE_F32 && p->y_dtype == DTYPE_BF16)
        return run_through_f32(w, &wide, tf32);
    return run_product(w, &wide, tf32);
}

} // namespace

enum pv_status many_open(struct cuda_device *gpu, struct pv_error *err)
{
    struct many *m = (struct many *)mem_zalloc(sizeof *m);
    if (!m)
        return fail_nomem(err, sizeof *m);
    cudaSetDevice(gpu->index);
    cublasStatus_t s = cublasLtCreate(&m->handle);
    if (s) {
        mem_free(m);
        return fail(err, PV_E_DEVICE, "%s: cuBLASLt does not start: %s", gpu->name,
                    cublasLtGetStatusString(s));
    }
    pthread_mutex_init(&m->lock, NULL);
    gpu->many = m;
    return PV_OK;
}

void many_close(struct cuda_device *gpu)
{
    struct many *m = gpu->many;
    if (!m)
        return;
    cublasLtDestroy(m->handle);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
    gpu->many = NULL;
}

#endif /* PV_CUDASIM */

void matmul_many(struct device_work *w, const struct matrix *m, void *y, enum dtype y_dtype,
                 size_t y_stride, const void *x, size_t x_stride, int n, bool add)
{
    const struct cuda_matrix *c = cuda_of(m);
    int whole = (c->in + 7) / 8 * 8; /* zeros of the matrix included: rows stay aligned */
    int outputs = (c->out + 7) / 8 * 8;
    struct product p = {};

    if (n <= 0)
        return;
    p.x = x;
    p.y = y;
    p.y_dtype = y_dtype;
    p.out = c->out, p.stride = c->stride, p.n = n;
    p.in = x_stride >= (size_t)whole ? whole : c->in;
    p.x_stride = x_stride, p.y_stride = y_stride;
    p.bias = m->bias;
    p.add = add;
    p.w = c->w;
    p.w_dtype = c->dtype;
    if (c->dtype != DTYPE_BF16 && c->dtype != DTYPE_F16 && c->dtype != DTYPE_F32) {
        if (!weights_fit(w, c->out, c->stride, sizeof(uint16_t)))
            return;
        matrix_to_bf16(w, w->weights16, c);
        p.w = w->weights16;
        p.w_dtype = DTYPE_BF16;
    }
    if (p.w_dtype == DTYPE_BF16 && y_dtype == DTYPE_BF16 && y_stride >= (size_t)outputs)
        p.pad = outputs - c->out;
    if (p.pad && p.w != c->w)
        work_check(w,
                   cudaMemsetAsync((uint16_t *)w->weights16 + (size_t)c->out * (size_t)c->stride, 0,
                                   2 * (size_t)p.pad * (size_t)c->stride, w->stream),
                   "rows of zeros");
    p.x_dtype = p.w_dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    if (!library_product(w, &p))
        plain_product(w, &p);
}
