/* The GPU as a device: opening it, memory, the work of a session and the table of operations.
 *
 * Each work has its own stream, so two works on one GPU overlap. Copies of a work go through its
 * own pinned memory and are ordered with its kernels. Steps that repeat are recorded as CUDA graphs
 * (recorder.cu). */
#include "kernels/cuda/experts.h"

#include "base/minmax.h"
#include "kernels/cuda/work.h"

#include <stdio.h>
#include <string.h>

enum { OLDEST_MAJOR = 8 };

/* ---- memory ---- */

static struct cuda_device *gpu_of(struct device *dev)
{
    return (struct cuda_device *)dev->impl;
}

static void select(const struct cuda_device *gpu)
{
    cudaSetDevice(gpu->index);
}

/* A block of device memory. CUDA does not tell the size of a block that is freed. */
struct gpu_block {
    void *p;
    size_t size;
    struct gpu_block *next;
};

static void *gpu_alloc(struct device *dev, size_t size)
{
    struct cuda_device *gpu = gpu_of(dev);
    struct gpu_block *b = (struct gpu_block *)mem_zalloc(sizeof *b);
    if (!b)
        return NULL;
    b->size = size ? size : 1;
    select(gpu);
    if (cudaMalloc(&b->p, b->size) != cudaSuccess) {
        cudaGetLastError(); /* clear the error: NULL reports it */
        mem_free(b);
        return NULL;
    }
    /* Waiting for the whole device would fail while another thread records a step. */
    if (cudaMemset(b->p, 0, b->size) != cudaSuccess || cudaStreamSynchronize(0) != cudaSuccess) {
        cudaFree(b->p);
        cudaGetLastError();
        mem_free(b);
        return NULL;
    }
    mem_hold(b->size);
    pthread_mutex_lock(&gpu->lock);
    b->next = gpu->blocks;
    gpu->blocks = b;
    pthread_mutex_unlock(&gpu->lock);
    return b->p;
}

static void gpu_free(struct device *dev, void *p)
{
    struct cuda_device *gpu = gpu_of(dev);
    struct gpu_block **at, *b;
    pthread_mutex_lock(&gpu->lock);
    for (at = &gpu->blocks; *at && (*at)->p != p;)
        at = &(*at)->next;
    b = *at;
    if (b)
        *at = b->next;
    pthread_mutex_unlock(&gpu->lock);
    select(gpu);
    cudaFree(p);
    if (b) /* NULL: p is NULL */
        mem_release(b->size);
    mem_free(b);
}

static void gpu_upload(struct device *dev, void *dst, const void *src, size_t size)
{
    select(gpu_of(dev));
    cudaMemcpy(dst, src, size, cudaMemcpyHostToDevice);
    cudaStreamSynchronize(0); /* the copy may still be running, and works do not wait for it */
}

static void gpu_download(struct device *dev, void *dst, const void *src, size_t size)
{
    select(gpu_of(dev));
    cudaDeviceSynchronize();
    cudaMemcpy(dst, src, size, cudaMemcpyDeviceToHost);
}

static void gpu_room(struct device *dev, size_t *left, size_t *all)
{
    select(gpu_of(dev));
    *left = *all = 0;
    if (cudaMemGetInfo(left, all) != cudaSuccess)
        *all = gpu_of(dev)->memory;
}

/* ---- errors ---- */

void work_check(struct device_work *w, cudaError_t e, const char *what)
{
    if (e == cudaSuccess || w->error != cudaSuccess)
        return;
    w->error = e;
    w->failed = what;
}

static enum pv_status gpu_wait(struct device_work *w, struct pv_error *err)
{
    cudaError_t e;
    const char *what;
    select(w->gpu);
    work_check(w, cudaStreamSynchronize(w->stream), "waiting for the stream");
    e = w->error;
    what = w->failed;
    w->error = cudaSuccess;
    w->staging = false;
    if (e == cudaSuccess && !*w->not_finite)
        return PV_OK;
    *w->not_finite = 0;
    if (e == cudaSuccess)
        return fail(err, PV_E_NOT_FINITE, "%s", DEVICE_NOT_FINITE);
    cudaGetLastError();
    return fail(err, PV_E_DEVICE, "%s failed on %s: %s", what, w->gpu->name, cudaGetErrorString(e));
}

/* ---- scratch ---- */

static size_t padded_rows(int n)
{
    return (size_t)((n + ROW_PAD - 1) / ROW_PAD * ROW_PAD);
}

static size_t stride_of(int n)
{
    return (size_t)((n + 63) / 64 * 64);
}

static size_t whole_octets(int n)
{
    return (size_t)((n + 7) / 8 * 8);
}

/* Elements of the largest matrix that is multiplied by many rows. In a decoder (context > 0) this
 * is a matrix of a layer, never the LM head; in a tower, any matrix that its shape allows. */
static size_t largest_matrix(const struct work_shape *s)
{
    int q = s->n_heads * s->head_dim, mid = s->ffn > q ? s->ffn : q;
    int out = s->out > s->hidden ? s->out : s->hidden;
    if (s->context > 0)
        return max_size(stride_of(s->hidden) * whole_octets(mid),
                        stride_of(mid) * whole_octets(s->hidden));
    return stride_of(s->in) * whole_octets(out > mid ? out : mid);
}

/* Bytes of the staged runs and their lists, for all levels of a chain. */
static size_t staged_size(const struct device_work *w)
{
    size_t one = sizeof(struct staged) + sizeof(int32_t) * w->list_size;
    return DEVICE_MAX_CHAIN * ((one + 255) / 256 * 256);
}

/* Take the scratch memory from `base`; if it is NULL, only count the bytes. Activations between
 * matrices have room for f32, which products with F32 and F16 weights need. */
static size_t carve(struct device_work *w, uint8_t *base, const struct work_shape *s)
{
    size_t rows = padded_rows(s->rows), f = sizeof(float), q = (size_t)(s->n_heads * s->head_dim);
    size_t kv = (size_t)(s->n_kv_heads * s->head_dim), hidden = stride_of(s->hidden);
    size_t widest = stride_of(s->in), ffn = stride_of(s->ffn), at = 0;
    size_t matrix = largest_matrix(s);
    struct {
        void *field;
        size_t size;
    } parts[] = {
        { &w->staged_levels, staged_size(w) },
        { &w->q, f * rows * q },
        { &w->k, f * rows * kv },
        { &w->v, f * rows * kv },
        { &w->q16, 2 * rows * q },
        { &w->att, f * rows * stride_of((int)q) },
        { &w->xn, f * rows * max_size(hidden, widest) },
        { &w->mid, f * rows * ffn },
        { &w->mid2, f * rows * ffn },
        { &w->gathered, f * rows * max_size(hidden, q) },
        { &w->few_scratch, w->few_size },
        { &w->attn_scratch, w->attn_size },
        { &w->full_scratch, w->full_size },
        { &w->top_scratch, s->context > 0 ? top_scratch_size(FEW_ROWS, s->out) : 0 },
        { &w->expert_scratch, experts_scratch_size(s) },
        { &w->weights16, f * matrix },
    };
    w->weights16_size = f * matrix;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = base ? base + at : NULL;
        memcpy(parts[i].field, &p, sizeof p);
        at += (parts[i].size + 255) / 256 * 256;
    }
    return at;
}

static size_t measure(struct device_work *w, const struct work_shape *s)
{
    size_t runs = s->rows < MAX_RUNS ? (size_t)s->rows : (size_t)MAX_RUNS;
    w->list_size = runs * (size_t)table_size(round_positions(s->context)) + RUN_PARENTS;
    w->few_size = few_scratch_size(s);
    w->attn_size = s->context > 0 ? attn_few_scratch_size(s) : 0;
    w->full_size = full_scratch_size(s);
    return carve(w, NULL, s);
}

static size_t gpu_work_size(struct device *dev, const struct work_shape *s)
{
    struct device_work w = {};
    (void)dev;
    return measure(&w, s);
}

static void gpu_work_close(struct device *dev, struct device_work **work)
{
    struct device_work *w = *work;
    if (!w)
        return;
    select(gpu_of(dev));
    if (w->stream)
        cudaStreamSynchronize(w->stream);
    recorder_close(w);
    stager_close(w);
    gpu_free(dev, w->block);
    cudaFreeHost(w->staged_host);
    cudaFreeHost(w->not_finite);
    if (w->stream)
        cudaStreamDestroy(w->stream);
    mem_free(w);
    *work = NULL;
}

/* The share of the multiprocessors that long kernels of bulky work may use. A kernel that fills the
 * GPU lets others in only when it ends. Measured with a 7B model on an H200: with this share,
 * prompts take 1.6 times as long, and tokens generated at the same time 2.6 times; with 0.88, it is
 * 1.4 and 3.6 times. */
static const double bulky_share = 0.7;

static enum pv_status open_stream(struct device_work *w, const struct work_shape *s,
                                  struct pv_error *err)
{
    int least = 0, greatest = 0;
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithPriority(&w->stream, cudaStreamNonBlocking,
                                         s->priority == WORK_URGENT ? greatest : least);
    if (e == cudaSuccess)
        e = cudaMallocHost((void **)&w->staged_host, staged_size(w));
    if (e == cudaSuccess)
        e = cudaMallocHost((void **)&w->not_finite, sizeof *w->not_finite);
    if (e == cudaSuccess)
        *w->not_finite = 0;
    else
        return fail(err, PV_E_DEVICE, "no stream on %s: %s", w->gpu->name, cudaGetErrorString(e));
    return PV_OK;
}

static enum pv_status gpu_work_open(struct device *dev, struct device_work **out,
                                    const struct work_shape *s, struct pv_error *err)
{
    struct device_work *w = (struct device_work *)mem_zalloc(sizeof *w);
    enum pv_status st;
    size_t size;
    if (!w)
        return fail_nomem(err, sizeof *w);
    select(gpu_of(dev));
    w->gpu = gpu_of(dev);
    w->shape = *s;
    w->n_sm = w->gpu->n_sm;
    if (s->priority == WORK_BULKY)
        w->n_sm = (int)(bulky_share * w->n_sm) / 2 * 2;
    size = measure(w, s);
    st = open_stream(w, s, err);
    if (!st)
        st = device_alloc(dev, &w->block, size, err);
    if (!st)
        st = stager_open(w, err);
    if (!st)
        st = recorder_open(w, err);
    if (st) {
        gpu_work_close(dev, &w);
        return st;
    }
    carve(w, (uint8_t *)w->block, s);
    *out = w;
    return PV_OK;
}

static void gpu_work_on(struct device_work *w, struct device *group)
{
    (void)w, (void)group; /* thread groups exist on CPUs only */
}

/* ---- operations outside blocks ---- */

static void gpu_copy(struct device_work *w, void *dst, const void *src, size_t size)
{
    select(w->gpu);
    work_check(w, cudaMemcpyAsync(dst, src, size, cudaMemcpyDeviceToDevice, w->stream), "a copy");
}

static void gpu_rmsnorm(struct device_work *w, float *y, const float *x, const float *weight, int n,
                        int dim, float eps)
{
    norm_rows(w, y, DTYPE_F32, x, weight, NULL, n, dim, eps);
}

static void gpu_layernorm(struct device_work *w, float *y, const float *x, const float *weight,
                          const float *bias, int n, int dim, float eps)
{
    norm_rows(w, y, DTYPE_F32, x, weight, bias, n, dim, eps);
}

const void *as_input(struct device_work *w, const struct matrix *m, const float *x, int n,
                     size_t *stride)
{
    enum dtype t = few_x_dtype(m);
    *stride = (size_t)m->in;
    if (t == DTYPE_F32)
        return x;
    if (m->many_rows && m->in % 8 != 0)
        *stride = stride_of(m->in);
    convert_rows(w, w->xn, t, *stride, x, DTYPE_F32, (size_t)m->in, n, m->in);
    return w->xn;
}

void gpu_matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                int n)
{
    for (int j = 0; j < n_jobs;) {
        const struct matrix *m = jobs[j].w;
        size_t stride;
        const void *in = as_input(w, m, x, n, &stride);
        int end = j + 1;
        if (m->many_rows) {
            matmul_many_apart(w, m, jobs[j].y, jobs[j].y_stride, in, stride, n);
        } else {
            while (end < n_jobs && !jobs[end].w->many_rows &&
                   few_x_dtype(jobs[end].w) == few_x_dtype(m))
                end++;
            matmul_few(w, jobs + j, end - j, in, n, false);
        }
        j = end;
    }
}

static void gpu_rope(struct device_work *w, float *x, int n, int n_heads, int d,
                     const float *weight, float eps, const float *cos, const float *sin)
{
    rope_rows(w, x, DTYPE_F32, (size_t)(n_heads * d), n, n_heads, d, weight, eps, cos, sin);
}

static void gpu_silu_mul(struct device_work *w, float *g, const float *u, int n, int dim)
{
    gated_silu(w, g, u, DTYPE_F32, (size_t)n * (size_t)dim);
}

static void gpu_gelu(struct device_work *w, float *x, int n, int dim, enum gelu_kind kind)
{
    gelu_rows(w, x, DTYPE_F32, (size_t)n * (size_t)dim, kind);
}

static void gpu_add(struct device_work *w, float *y, const float *x, int n, int dim)
{
    add_rows(w, y, x, (size_t)n * (size_t)dim);
}

/* ---- the device ---- */

static void gpu_close(struct device **dev)
{
    struct cuda_device *gpu = gpu_of(*dev);
    select(gpu);
    many_close(gpu);
    pthread_mutex_destroy(&gpu->lock);
    mem_free(gpu);
    *dev = NULL;
}

/* The separate operations attention, attention_columns, attention_full and kv_write are missing:
 * decoder and towers use the fused blocks. */
static const struct device_ops gpu_ops = {
    .name = "cuda",
    .alloc = gpu_alloc,
    .free = gpu_free,
    .upload = gpu_upload,
    .download = gpu_download,
    .room = gpu_room,
    .take = matrix_take,
    .drop = matrix_drop,
    .join = matrix_join,
    .take_experts = experts_take,
    .drop_experts = experts_drop,
    .draw = matrix_draw,
    .close = gpu_close,
    .work_size = gpu_work_size,
    .work_open = gpu_work_open,
    .work_close = gpu_work_close,
    .work_on = gpu_work_on,
    .put = stager_put,
    .put_ahead = stager_put_ahead,
    .copy = gpu_copy,
    .get = stager_get,
    .begin = recorder_begin,
    .end = recorder_end,
    .again = recorder_again,
    .first_runs = recorder_first_runs,
    .wait = gpu_wait,
    .chains = true,
    .ways_differ = true,
    .attn = block_attn,
    .finish = block_finish,
    .tower = block_tower,
    .logits = block_logits,
    .patches = cut_patches,
    .embed = block_embed,
    .rmsnorm = gpu_rmsnorm,
    .matmul = gpu_matmul,
    .rope = gpu_rope,
    .kv_write = NULL,
    .kv_move = kv_move,
    .kv_copy = kv_copy,
    .attention = NULL,
    .attention_columns = NULL,
    .attention_full = NULL,
    .attention_windows = attention_windows,
    .silu_mul = gpu_silu_mul,
    .experts = experts_op,
    .layernorm = gpu_layernorm,
    .gelu = gpu_gelu,
    .blend = blend_rows,
    .gelu_blend = gelu_blend,
    .add = gpu_add,
    .gather = gather_rows,
    .argmax = argmax_rows,
    .top = top_rows,
    .name_ids = name_ids,
    .grow = grow_rows,
    .draw_token = draw_rows,
    .cosines_apart = cosines_apart,
    .cosine_spread = cosine_spread,
    .unit_rows = unit_rows,
    .unit_dots = unit_dots,
};

/* ---- opening ---- */

/* The target for which the code that runs on this GPU was compiled. */
struct gpu_code {
    int arch;   /* value of __CUDA_ARCH__ */
    int hopper; /* 1: includes Hopper's own kernels (sm_90a) */
};

__global__ void code_kernel(struct gpu_code *code)
{
    struct gpu_code c = { 800, 0 };
#if defined(__CUDA_ARCH__)
    c.arch = __CUDA_ARCH__;
#endif
#ifdef HOPPER_CODE
    c.hopper = 1;
#endif
    *code = c;
}

static cudaError_t read_code(struct gpu_code *code)
{
    struct gpu_code *there = NULL;
    cudaError_t e = cudaMalloc((void **)&there, sizeof *there);
    if (e == cudaSuccess)
        e = launch(code_kernel, dim3(1), dim3(1), 0, (cudaStream_t)0, there);
    if (e == cudaSuccess)
        e = cudaMemcpy(code, there, sizeof *code, cudaMemcpyDeviceToHost);
    cudaFree(there);
    cudaGetLastError();
    return e;
}

static enum pv_status no_gpu(cudaError_t e, struct pv_error *err)
{
    int has = 0, wants = 0;
    cudaGetLastError();
    if (e == cudaErrorInsufficientDriver && cudaDriverGetVersion(&has) == cudaSuccess &&
        cudaRuntimeGetVersion(&wants) == cudaSuccess && has > 0)
        return fail(err, PV_E_DEVICE,
                    "the NVIDIA driver of this machine is for CUDA %d.%d: this build needs one for "
                    "%d.%d",
                    has / 1000, has % 1000 / 10, wants / 1000, wants % 1000 / 10);
    if (e == cudaErrorInsufficientDriver)
        return fail(err, PV_E_DEVICE, "this machine has no NVIDIA driver");
    return fail(err, PV_E_DEVICE, "no NVIDIA GPU can be used: %s", cudaGetErrorString(e));
}

/* Check that this build has code for the GPU, and find out which. Only code for 9.0 and later lets
 * kernels overlap. A GPU of 9.0 without the sm_90a code is treated like one of 8.0. */
static enum pv_status check_code(struct cuda_device *gpu, struct pv_error *err)
{
    struct gpu_code code = { 0, 0 };
    cudaError_t e;
#ifndef PV_CUDASIM
    bool others = launch_overlaps;
    launch_overlaps = false;
#endif
    e = read_code(&code);
#ifndef PV_CUDASIM
    launch_overlaps = others && (e != cudaSuccess || code.arch >= 900);
#endif
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        return fail(err, PV_E_UNSUPPORTED,
                    "this build has no code for compute capability %d.%d, that of GPU %d (%s)",
                    gpu->major, gpu->minor, gpu->index, gpu->name);
    if (e != cudaSuccess)
        return fail(err, PV_E_DEVICE, "GPU %d (%s) cannot be used: %s", gpu->index, gpu->name,
                    cudaGetErrorString(e));
    if (gpu->major == 9 && !code.hopper) {
        gpu->major = 8;
        gpu->minor = 0;
    }
    return PV_OK;
}

static enum pv_status check_gpu(struct cuda_device *gpu, int index, struct pv_error *err)
{
    cudaDeviceProp prop;
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess)
        return no_gpu(e, err);
    if (index < 0 || index >= n)
        return fail(err, PV_E_DEVICE, "there is no GPU %d: this machine has %d", index, n);
    if (index >= MAX_GPUS)
        return fail(err, PV_E_UNSUPPORTED, "GPU %d cannot be used: only the first %d can", index,
                    (int)MAX_GPUS);
    e = cudaGetDeviceProperties(&prop, index);
    if (e == cudaSuccess)
        e = cudaSetDevice(index);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return fail(err, PV_E_DEVICE, "GPU %d cannot be used: %s", index, cudaGetErrorString(e));
    }
    if (prop.major < OLDEST_MAJOR)
        return fail(err, PV_E_UNSUPPORTED,
                    "GPU %d (%s) has compute capability %d.%d: at least %d.0 is needed", index,
                    prop.name, prop.major, prop.minor, OLDEST_MAJOR);
    gpu->index = index;
    gpu->major = prop.major;
    gpu->minor = prop.minor;
    gpu->n_sm = prop.multiProcessorCount;
    gpu->memory = prop.totalGlobalMem;
    snprintf(gpu->name, sizeof gpu->name, "%s", prop.name);
    return check_code(gpu, err);
}

/* Name GPU and software versions. The driver's own version comes from the system if possible:
 * cudaDriverGetVersion returns a CUDA version, which many drivers share. */
static void name_identity(struct cuda_device *gpu)
{
    char driver[256] = "";
    int interface = 0, runtime = 0;
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    if (f && !fgets(driver, sizeof driver, f))
        driver[0] = 0;
    if (f)
        fclose(f);
    cudaDriverGetVersion(&interface);
    cudaRuntimeGetVersion(&runtime);
    snprintf(gpu->identity, sizeof gpu->identity,
             "%s, %d.%d, %d SM; CUDA %d on %d, cuBLASLt %zu; %s", gpu->name, gpu->major, gpu->minor,
             gpu->n_sm, runtime, interface, many_version(), driver);
    gpu->dev.identity = gpu->identity;
}

extern "C" enum pv_status device_cuda_open(struct device **out, int index, struct pv_error *err)
{
    struct cuda_device *gpu = (struct cuda_device *)mem_zalloc(sizeof *gpu);
    enum pv_status s;
    if (!gpu)
        return fail_nomem(err, sizeof *gpu);
    s = check_gpu(gpu, index, err);
    if (!s)
        s = many_open(gpu, err);
    if (s) {
        mem_free(gpu);
        return s;
    }
    pthread_mutex_init(&gpu->lock, NULL);
    gpu->ops = gpu_ops;
    gpu->ops.name = gpu->name;
    gpu->dev.ops = &gpu->ops;
    gpu->dev.impl = gpu;
#ifndef PV_CUDASIM
    gpu->dev.slow_start = true;
#endif
    name_identity(gpu);
    *out = &gpu->dev;
    return PV_OK;
}
