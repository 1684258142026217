/* Products with many rows through cuBLASLt. The library chooses its algorithm by the number of
 * rows, so a row's last bits could depend on the other rows. To prevent that, each product (shape,
 * types, alignment: nothing about the rows) is looked up once, with CHOSEN_ROWS rows. Only
 * algorithms that sum a row in one piece are considered (no split of the sum, no workspace for
 * partial sums). The first of them defines the right bits.
 *
 * That algorithm needs many rows to be fast, and fills the GPU. For other numbers of rows, and for
 * work that leaves a part of the GPU free, another algorithm is used if it gives the same bits:
 * this is tested with random numbers before it is first used. On Hopper, all algorithms that sum in
 * one piece agree; if none does, the first one is used for everything.
 *
 * F16 times F32 is computed as TF32, which holds all bits of F16; F32 stays F32. */
#include "kernels/cuda/element.h"
#include "kernels/cuda/matmul_library.h"

extern "C" {
#include "base/status.h"
}

#ifndef PV_CUDASIM
#include <cublasLt.h>
#include <pthread.h>
#include <string.h>
#endif

#ifdef PV_CUDASIM

struct many {
    int unused;
};

size_t many_version(void)
{
    return 0;
}

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

bool library_product(struct device_work *w, const struct product *p)
{
    (void)w, (void)p;
    return false;
}

#else

namespace {

enum {
    CHOSEN_ROWS = 8192,
    MAX_PRODUCTS = 256, /* most remembered; others are looked up each time */
    CLASSES = 8,        /* of row counts: up to FEWEST, twice that, ..., and all above LARGEST */
    FEWEST = 64,
    LARGEST = FEWEST << (CLASSES - 2),
    CANDIDATES = 16,
    TRIAL_ROWS = 256, /* most rows and outputs of a trial */
    TRIAL_OUT = 512,
    THREADS = ELEMENT_THREADS
};

/* Everything that an algorithm may depend on. Compared byte by byte, so zeroed first. */
struct key {
    int out, whole, in, stride;
    int w_dtype, x_dtype, y_dtype;
    size_t x_stride, y_stride;
    int align_w, align_x, align_y;
    bool bias, add, tf32, gelu;
    int n_sm; /* multiprocessors it may use; 0: all */
};

/* An algorithm for some number of rows. */
struct algorithm {
    cublasLtMatmulAlgo_t algo;
    int n_sm;
};

struct choice {
    struct key key;
    bool found;             /* false: use the plain kernel */
    bool bias_inside;       /* false: a separate kernel adds the bias */
    struct algorithm right; /* defines the right bits */
    bool tried[CLASSES];
    struct algorithm fit[CLASSES];
};

/* How a product is computed, apart from its algorithm. */
struct terms {
    bool tf32;
    int n_sm;
    const void *bias; /* in the epilogue's type; NULL: none */
};

/* A product in cuBLASLt's column-major terms: y^T [out, n] = (w^T)^T x^T. */
struct description {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};

} // namespace

struct many {
    cublasLtHandle_t handle;
    pthread_mutex_t lock; /* protects the members below */
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

/* The largest power of two, at most 16, that divides both an address and the size of a row. */
int alignment(const void *p, size_t row)
{
    size_t a = (size_t)(uintptr_t)p | row | 16;
    return (int)(a & (0 - a));
}

cublasStatus_t describe(struct description *d, const struct product *p, int n,
                        const struct terms *t)
{
    const cublasOperation_t turned = CUBLAS_OP_T;
    const uint32_t epilogue = !p->gelu  ? CUBLASLT_EPILOGUE_BIAS
                              : t->bias ? CUBLASLT_EPILOGUE_GELU_BIAS
                                        : CUBLASLT_EPILOGUE_GELU;
    const int32_t bias_type = library_type(p->y_dtype);
    cublasStatus_t s = cublasLtMatmulDescInit(
        &d->op, t->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!s)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
                                           sizeof turned);
    if (!s && (t->bias || p->gelu))
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue);
    if (!s && t->bias)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                           sizeof bias_type);
    if (!s && t->bias)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t->bias,
                                           sizeof t->bias);
    if (!s && t->n_sm > 0)
        s = cublasLtMatmulDescSetAttribute(&d->op, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &t->n_sm,
                                           sizeof t->n_sm);
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

/* Whether a row is summed in one piece, in an order that only the algorithm fixes. */
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

/* Find algorithms for so many rows, the one that the library expects to be fastest first. */
int find_algorithms(struct many *m, const struct key *key, const struct product *p,
                    const struct terms *terms, int rows, cublasLtMatmulHeuristicResult_t *found)
{
    cublasLtMatmulPreferenceOpaque_t pref;
    struct description d;
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint64_t no_bytes = 0;
    const uint32_t align[3] = { (uint32_t)key->align_w, (uint32_t)key->align_x,
                                (uint32_t)key->align_y };
    int n = 0, kept = 0;

    if (describe(&d, p, rows, terms) || cublasLtMatmulPreferenceInit(&pref))
        return 0;
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
    if (cublasLtMatmulAlgoGetHeuristic(m->handle, &d.op, &d.w, &d.x, &d.y, &d.y, &pref, CANDIDATES,
                                       found, &n))
        return 0;
    for (int i = 0; i < n; i++)
        if (whole_sums(&found[i]))
            found[kept++] = found[i];
    return kept;
}

/* The product of the whole matrix, of which p's is a part. */
struct product whole_product(const struct product *p)
{
    struct product whole = *p;
    size_t out = (size_t)(p->out + p->pad);
    whole.out = p->whole;
    whole.pad = 0;
    if (p->y_stride == out)
        whole.y_stride = (size_t)p->whole;
    else if (p->y_stride == (out + 63) / 64 * 64)
        whole.y_stride = (size_t)(p->whole + 63) / 64 * 64;
    return whole;
}

/* Chosen by the whole matrix, so that a part of it has the same bits. */
bool choose_algorithm(struct many *m, struct choice *c, const struct product *part,
                      const void *bias)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    struct terms terms = { c->key.tf32, 0, bias };
    struct product p = whole_product(part);
    if (find_algorithms(m, &c->key, &p, &terms, CHOSEN_ROWS, found) == 0)
        return false;
    c->right.algo = found[0].algo;
    return true;
}

/* ---- trials of other algorithms ---- */

/* Random numbers of both signs and different magnitudes, so that another order of sums gives other
 * bits. */
template <class T>
__global__ void __launch_bounds__(THREADS) draw_kernel(T *y, size_t n, uint32_t seed)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (size_t)gridDim.x * THREADS) {
        uint32_t h = ((uint32_t)i + seed) * 2654435761u;
        h = (h ^ h >> 16) * 2246822507u;
        h = (h ^ h >> 13) * 3266489909u;
        h ^= h >> 16;
        from_float(y + i, ldexpf((float)(h & 0xffff) / 65536 - 0.5f, -(int)(h >> 29)));
    }
}

__global__ void __launch_bounds__(THREADS)
    differ_kernel(const uint16_t *a, const uint16_t *b, size_t n, int *differ)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (size_t)gridDim.x * THREADS)
        if (a[i] != b[i])
            *differ = 1;
}

void draw(struct device_work *w, void *y, enum dtype type, size_t n, uint32_t seed)
{
    dim3 blocks((unsigned)w->gpu->n_sm * 4);
    if (type == DTYPE_BF16)
        work_check(
            w, launch(draw_kernel<bf16>, blocks, dim3(THREADS), 0, w->stream, (bf16 *)y, n, seed),
            "trial");
    else
        work_check(
            w, launch(draw_kernel<float>, blocks, dim3(THREADS), 0, w->stream, (float *)y, n, seed),
            "trial");
}

cublasStatus_t run_algorithm(struct device_work *w, const struct product *p, bool tf32,
                             const void *bias, const struct algorithm *a)
{
    const float one = 1, beta = p->add ? 1 : 0;
    const struct terms terms = { tf32, a->n_sm, bias };
    struct description d;
    cublasStatus_t s = describe(&d, p, p->n, &terms);
    if (!s)
        s = cublasLtMatmul(w->gpu->many->handle, &d.op, &one, p->w, &d.w, p->x, &d.x, &beta, p->y,
                           &d.y, p->y, &d.y, &a->algo, NULL, 0, w->stream);
    return s;
}

/* A small product of random numbers that is otherwise like a given one. */
struct trial {
    struct product p;
    void *y[2];
    size_t y_size;
    int *differ;
    char *memory;
};

size_t place(size_t *size, size_t bytes)
{
    size_t at = *size;
    *size += (bytes + 255) / 256 * 256;
    return at;
}

/* Returns false if there is no memory for it. */
bool trial_open(struct trial *t, struct device_work *w, const struct product *p, int rows)
{
    size_t size = 0, row = (size_t)p->stride * (size_t)dtype_bytes(p->w_dtype);
    t->p = *p;
    t->p.pad = 0;
    t->p.out = p->out + p->pad < TRIAL_OUT ? p->out + p->pad : TRIAL_OUT;
    t->p.n = rows < TRIAL_ROWS ? rows : TRIAL_ROWS;
    t->p.x_stride = (size_t)p->stride;
    t->p.y_stride = (size_t)t->p.out;
    t->y_size = (size_t)t->p.n * t->p.y_stride * (size_t)dtype_bytes(p->y_dtype);

    size_t w_at = place(&size, row * (size_t)t->p.out), x_at = place(&size, row * (size_t)t->p.n);
    size_t y_at = place(&size, t->y_size), other_at = place(&size, t->y_size);
    size_t differ_at = place(&size, sizeof *t->differ);
    if (cudaMallocAsync((void **)&t->memory, size, w->stream) != cudaSuccess) {
        cudaGetLastError(); /* ignored: the work continues without a trial */
        return false;
    }
    t->p.w = t->memory + w_at;
    t->p.x = t->memory + x_at;
    t->y[0] = t->memory + y_at;
    t->y[1] = t->memory + other_at;
    t->differ = (int *)(void *)(t->memory + differ_at);
    draw(w, t->memory + w_at, p->w_dtype, (size_t)t->p.out * (size_t)p->stride, 1);
    draw(w, t->memory + x_at, p->x_dtype, (size_t)t->p.n * (size_t)p->stride, 1u << 30);
    return true;
}

/* Tiles (outputs by rows) that were faster on an H200 than the library's first choice, for many
 * rows (doc/notes/cuda.md). Large tiles are slow to finish an F32 result if the sum is short. */
struct liking {
    bool f32, gelu;
    int divides, most_in; /* of the outputs; of the inputs */
    cublasLtMatmulTile_t tile;
    cublasLtClusterShape_t cluster;
};

const struct liking likings[] = {
    { true, false, 256, 8192, CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_CLUSTER_SHAPE_2x1x1 },
    { true, false, 96, 4096, CUBLASLT_MATMUL_TILE_96x128, CUBLASLT_CLUSTER_SHAPE_2x1x1 },
    { false, true, 8, 2048, CUBLASLT_MATMUL_TILE_256x136, CUBLASLT_CLUSTER_SHAPE_1x2x1 },
};

bool is_liked(const cublasLtMatmulAlgo_t *a, const struct liking *l)
{
    uint32_t tile = 0;
    uint16_t cluster = 0;
    size_t size;
    return !cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_TILE_ID, &tile,
                                                 sizeof tile, &size) &&
           !cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster,
                                                 sizeof cluster, &size) &&
           tile == (uint32_t)l->tile && cluster == (uint16_t)l->cluster;
}

/* Find the first of the algorithms that is known to be fast for the product. */
const cublasLtMatmulAlgo_t *find_liked(const struct product *p,
                                       const cublasLtMatmulHeuristicResult_t *found, int n)
{
    for (const struct liking &l : likings)
        for (int i = 0; i < n && (p->y_dtype == DTYPE_F32) == l.f32 && p->gelu == l.gelu &&
                        p->in <= l.most_in && (p->out + p->pad) % l.divides == 0;
             i++)
            if (is_liked(&found[i].algo, &l))
                return &found[i].algo;
    return NULL;
}

/* An algorithm for so many rows that is known to be fast: one of those found for them, or one that
 * the library proposes for CHOSEN_ROWS. */
bool take_liked(struct device_work *w, const struct choice *c, const struct product *p,
                const struct terms *terms, int rows, const cublasLtMatmulHeuristicResult_t *found,
                int n, cublasLtMatmulAlgo_t *algo)
{
    cublasLtMatmulHeuristicResult_t usual[CANDIDATES];
    const cublasLtMatmulAlgo_t *liked = NULL;
    if (rows <= LARGEST || c->key.n_sm > 0 || p->w_dtype != DTYPE_BF16 || w->gpu->major != 9)
        return false;
    liked = find_liked(p, found, n);
    if (!liked)
        liked = find_liked(p, usual,
                           find_algorithms(w->gpu->many, &c->key, p, terms, CHOSEN_ROWS, usual));
    if (liked)
        *algo = *liked;
    return liked != NULL;
}

bool same_bits(struct trial *t, struct device_work *w, bool tf32, const void *bias,
               const struct algorithm *right, const struct algorithm *other)
{
    int differ = 1;
    for (int i = 0; i < 2; i++) {
        t->p.y = t->y[i];
        if (cudaMemsetAsync(t->p.y, 0, t->y_size, w->stream) != cudaSuccess ||
            run_algorithm(w, &t->p, tf32, bias, i ? other : right) != CUBLAS_STATUS_SUCCESS)
            return false;
    }
    if (cudaMemsetAsync(t->differ, 0, sizeof differ, w->stream) != cudaSuccess)
        return false;
    differ_kernel<<<(unsigned)w->gpu->n_sm, THREADS, 0, w->stream>>>(
        (const uint16_t *)t->y[0], (const uint16_t *)t->y[1], t->y_size / 2, t->differ);
    if (cudaMemcpyAsync(&differ, t->differ, sizeof differ, cudaMemcpyDeviceToHost, w->stream) ||
        cudaStreamSynchronize(w->stream) != cudaSuccess)
        return false;
    return !differ;
}

int class_of(int rows)
{
    int i = 0;
    while (i < CLASSES - 1 && rows > FEWEST << i)
        i++;
    return i;
}

/* Find an algorithm for a class of row counts that has the bits of the right one. */
void try_class(struct device_work *w, struct choice *c, const struct product *p, const void *bias,
               int rows, struct algorithm *fit)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    struct terms terms = { c->key.tf32, c->key.n_sm, bias };
    struct trial t;
    bool same = false;
    int n = find_algorithms(w->gpu->many, &c->key, p, &terms, rows, found);
    cublasLtMatmulAlgo_t first;
    bool liked = take_liked(w, c, p, &terms, rows, found, n, &first);

    *fit = c->right;
    if (!liked && n > 0)
        first = found[0].algo;
    if (n == 0 || (c->key.n_sm == 0 && !memcmp(&first, &c->right.algo, sizeof first)) ||
        !trial_open(&t, w, p, rows))
        return;
    for (int i = liked ? -1 : 0; i < n && !same; i++) {
        fit->algo = i < 0 ? first : found[i].algo;
        fit->n_sm = c->key.n_sm;
        same = same_bits(&t, w, c->key.tf32, bias, &c->right, fit);
    }
    if (!same)
        *fit = c->right;
    cudaFreeAsync(t.memory, w->stream);
}

/* ---- the algorithm of a product ---- */

bool captured(struct device_work *w)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(w->stream, &status) || status != cudaStreamCaptureStatusNone;
}

/* The choice for a product, and in `fit` the algorithm for its number of rows. `bias` is in the
 * epilogue's type. No trial is made while a step is being recorded. */
struct choice choice_of(struct device_work *w, const struct product *p, const void *bias, bool tf32,
                        struct algorithm *fit)
{
    struct many *m = w->gpu->many;
    struct choice c;
    int i = 0, class_ = class_of(p->n);

    memset(&c, 0, sizeof c);
    c.key.out = p->out + p->pad, c.key.whole = p->whole, c.key.in = p->in, c.key.stride = p->stride;
    c.key.w_dtype = p->w_dtype, c.key.x_dtype = p->x_dtype, c.key.y_dtype = p->y_dtype;
    c.key.x_stride = p->x_stride, c.key.y_stride = p->y_stride;
    c.key.align_w = alignment(p->w, (size_t)p->stride * dtype_bytes(p->w_dtype));
    c.key.align_x = alignment(p->x, p->x_stride * dtype_bytes(p->x_dtype));
    c.key.align_y = alignment(p->y, p->y_stride * dtype_bytes(p->y_dtype));
    c.key.bias = bias != NULL, c.key.add = p->add, c.key.tf32 = tf32;
    c.key.gelu = p->gelu;
    c.key.n_sm = w->n_sm < w->gpu->n_sm ? w->n_sm : 0;

    pthread_mutex_lock(&m->lock);
    while (i < m->n && memcmp(&m->choices[i].key, &c.key, sizeof c.key))
        i++;
    if (i < m->n) {
        c = m->choices[i];
    } else {
        c.found = c.bias_inside = choose_algorithm(m, &c, p, bias);
        if (!c.found && bias && !p->gelu)
            c.found = choose_algorithm(m, &c, p, NULL);
        m->n += m->n < MAX_PRODUCTS;
    }
    if (c.found && !c.tried[class_] && i < MAX_PRODUCTS && !captured(w)) {
        try_class(w, &c, p, c.bias_inside ? bias : NULL,
                  class_ < CLASSES - 1 ? FEWEST << class_ : p->n, &c.fit[class_]);
        c.tried[class_] = true;
    }
    *fit = c.tried[class_] ? c.fit[class_] : c.right;
    if (i < MAX_PRODUCTS)
        m->choices[i] = c;
    pthread_mutex_unlock(&m->lock);
    return c;
}

/* y = x + bias, with rows x_stride and y_stride elements apart; y may be x, bias may be NULL. */
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

/* Returns false if the product is not supported, whatever its number of rows. F16 weights have been
 * converted to F32 here: tf32. */
bool run_product(struct device_work *w, const struct product *p, bool tf32)
{
    const void *bias = p->bias;
    struct algorithm fit;

    /* The epilogue reads the bias in y's type. */
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
    struct choice c = choice_of(w, p, bias, tf32, &fit);
    if (!c.found)
        return false;
    cublasStatus_t s = run_algorithm(w, p, tf32, c.bias_inside ? bias : NULL, &fit);
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

/* Products with F32 give F32: convert the result to BF16, some rows at a time. */
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

} // namespace

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

size_t many_version(void)
{
    return cublasLtGetVersion();
}

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
