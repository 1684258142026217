/* Sends parts of rows from GPU to GPU. If every GPU can read the memory of the others (also if
 * several of them are the same one), a kernel on each GPU fetches the parts that it lacks.
 * Otherwise NCCL does it if the library is available (nccl.cu), or else copies made by the driver.
 */
#include "kernels/cuda/gpus.h"
#include "kernels/cuda/nccl.h"

enum { THREADS = 256, BLOCKS_MOST = 264 };

/* ---- synchronising the streams ---- */

static void record(const struct gpus_rank *r)
{
    on_gpu(r);
    work_check(r->w, cudaEventRecord(r->ready, r->w->stream), "an event");
}

static void wait_for(const struct gpus_rank *r, const struct gpus_rank *other)
{
    on_gpu(r);
    work_check(r->w, cudaStreamWaitEvent(r->w->stream, other->ready, 0), "an event");
}

void gpus_fork(struct gpus_work *g)
{
    record(&g->r[0]);
    for (int i = 1; i < g->n; i++)
        wait_for(&g->r[i], &g->r[0]);
    on_gpu(&g->r[0]);
}

void gpus_join(struct gpus_work *g)
{
    for (int i = 1; i < g->n; i++) {
        record(&g->r[i]);
        wait_for(&g->r[0], &g->r[i]);
    }
    on_gpu(&g->r[0]);
}

/* ---- fetching parts ---- */

struct pull_args {
    const uint8_t *from[GPUS_MOST]; /* NULL: nothing to fetch from this GPU */
    size_t from_stride[GPUS_MOST];  /* in bytes, like all sizes here */
    size_t first[GPUS_MOST], width[GPUS_MOST];
    uint8_t *to;
    size_t to_stride;
    int rows, n;
};

/* Each block copies pieces of all rows of one source after another. Launched only after the
 * preceding kernel has ended (launch_after), because it reads memory of other GPUs. */
template <class T> __global__ void __launch_bounds__(THREADS) pull_kernel(const pull_args a)
{
    for (int s = 0; s < a.n; s++) {
        size_t pieces = a.width[s] / sizeof(T), all = pieces * (size_t)a.rows;
        if (!a.from[s])
            continue;
        for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < all;
             i += (size_t)gridDim.x * THREADS) {
            size_t row = i / pieces, col = i - row * pieces;
            ((T *)(a.to + row * a.to_stride + a.first[s]))[col] =
                ((const T *)(a.from[s] + row * a.from_stride[s]))[col];
        }
    }
}

static size_t grain_of(const pull_args &a)
{
    size_t all = (size_t)(uintptr_t)a.to | a.to_stride | 16;
    for (int s = 0; s < a.n; s++)
        if (a.from[s])
            all |= (size_t)(uintptr_t)a.from[s] | a.from_stride[s] | a.first[s] | a.width[s];
    return all & (0 - all);
}

static void pull(const struct gpus_rank *r, const pull_args &a)
{
    size_t bytes = 0, grain = grain_of(a), blocks;
    void (*kernel)(const pull_args) = grain == 16  ? pull_kernel<uint4>
                                      : grain == 8 ? pull_kernel<uint2>
                                      : grain == 4 ? pull_kernel<uint32_t>
                                      : grain == 2 ? pull_kernel<uint16_t>
                                                   : pull_kernel<uint8_t>;
    for (int s = 0; s < a.n; s++)
        bytes = a.from[s] && a.width[s] > bytes ? a.width[s] : bytes;
    bytes *= (size_t)a.rows;
    if (bytes == 0)
        return;
    blocks = (bytes / grain + THREADS - 1) / THREADS;
    on_gpu(r);
    work_check(r->w,
               launch_after(kernel, dim3((unsigned)(blocks < BLOCKS_MOST ? blocks : BLOCKS_MOST)),
                            dim3(THREADS), 0, r->w->stream, a),
               "parts of rows");
}

/* Arguments for fetching the parts that GPU d lacks. */
static pull_args pull_of(const struct gpus_work *g, const struct exchange *e, int d)
{
    pull_args a = {};
    a.n = g->n;
    a.rows = e->n;
    a.to = (uint8_t *)e->to[d];
    a.to_stride = e->to_stride * e->size;
    for (int s = 0; s < g->n; s++) {
        size_t first = (size_t)e->at->at[s] * e->size;
        a.first[s] = first;
        a.width[s] = (size_t)(e->at->at[s + 1] - e->at->at[s]) * e->size;
        a.from_stride[s] = e->from_stride[s] * e->size;
        if (a.width[s] > 0 && e->from[s] != a.to + first)
            a.from[s] = (const uint8_t *)e->from[s];
    }
    return a;
}

/* Copies by the driver, which need no access to the other GPUs' memory. */
static void copy_parts(const struct gpus_work *g, const pull_args &a, int d)
{
    const struct gpus_rank *r = &g->r[d];
    on_gpu(r);
    for (int s = 0; s < a.n; s++) {
        cudaMemcpy3DPeerParms p = {};
        if (!a.from[s])
            continue;
        p.srcPtr =
            make_cudaPitchedPtr((void *)a.from[s], a.from_stride[s], a.width[s], (size_t)a.rows);
        p.dstPtr = make_cudaPitchedPtr(a.to + a.first[s], a.to_stride, a.width[s], (size_t)a.rows);
        p.srcDevice = g->r[s].w->gpu->index;
        p.dstDevice = r->w->gpu->index;
        p.extent = make_cudaExtent(a.width[s], (size_t)a.rows, 1);
        work_check(r->w, cudaMemcpy3DPeerAsync(&p, r->w->stream), "parts of rows");
    }
}

/* ---- NCCL ---- */

/* Offset of the part of GPU s, if all parts of n rows are stored one after the other. */
static size_t stage_at(const struct exchange *e, int s)
{
    return (size_t)e->at->at[s] * (size_t)e->n * e->size;
}

static size_t stage_size(const struct exchange *e, int s)
{
    return stage_at(e, s + 1) - stage_at(e, s);
}

/* Send all parts to all GPUs, or only to the first. */
static void call_nccl(struct gpus_work *g, const struct exchange *e, bool all)
{
    struct nccl *x = g->g->nccl;
    cudaError_t err = nccl_begin(x);
    for (int s = 0; s < g->n && err == cudaSuccess; s++) {
        size_t at = stage_at(e, s), size = stage_size(e, s);
        if (size == 0)
            continue;
        for (int r = 0; r < g->n && all && err == cudaSuccess; r++)
            err = nccl_broadcast(x, r, s, g->r[r].stage + at, g->r[r].stage + at, size,
                                 g->r[r].w->stream);
        if (all || s == 0)
            continue;
        if (err == cudaSuccess)
            err = nccl_send(x, s, 0, g->r[s].stage + at, size, g->r[s].w->stream);
        if (err == cudaSuccess)
            err = nccl_receive(x, 0, s, g->r[0].stage + at, size, g->r[0].w->stream);
    }
    if (err == cudaSuccess)
        err = nccl_end(x);
    work_check(g->r[0].w, err, "NCCL");
}

/* Each GPU copies its part into its `stage` buffer, NCCL exchanges the parts, and each GPU copies
 * them out of the buffer. */
static void exchange_by_nccl(struct gpus_work *g, const struct exchange *e)
{
    bool all = false;
    for (int d = 1; d < g->n; d++)
        all = all || e->to[d];
    if (stage_at(e, g->n) > g->stage_size) {
        work_check(g->r[0].w, cudaErrorInvalidValue, "rows too long for an exchange");
        return;
    }
    for (int r = 0; r < g->n; r++) {
        pull_args a = {};
        a.n = 1;
        a.rows = e->n;
        a.to = g->r[r].stage + stage_at(e, r);
        a.width[0] = a.to_stride = (size_t)(e->at->at[r + 1] - e->at->at[r]) * e->size;
        a.from[0] = (const uint8_t *)e->from[r];
        a.from_stride[0] = e->from_stride[r] * e->size;
        pull(&g->r[r], a);
    }
    call_nccl(g, e, all);
    for (int d = 0; d < g->n; d++) {
        pull_args a = pull_of(g, e, d);
        for (int s = 0; s < g->n && e->to[d]; s++) {
            if (a.from[s] && s != d) {
                a.from[s] = g->r[d].stage + stage_at(e, s);
                a.from_stride[s] = a.width[s];
            }
        }
        if (e->to[d])
            pull(&g->r[d], a);
    }
    on_gpu(&g->r[0]);
}

void gpus_exchange(struct gpus_work *g, const struct exchange *e)
{
    if (e->n <= 0)
        return;
    if (g->g->nccl) {
        exchange_by_nccl(g, e);
        return;
    }
    for (int s = 0; s < g->n; s++)
        record(&g->r[s]);
    for (int d = 0; d < g->n; d++) {
        if (!e->to[d])
            continue;
        for (int s = 0; s < g->n; s++)
            if (s != d && e->at->at[s + 1] > e->at->at[s])
                wait_for(&g->r[d], &g->r[s]);
        if (g->g->reach)
            pull(&g->r[d], pull_of(g, e, d));
        else
            copy_parts(g, pull_of(g, e, d), d);
    }
    on_gpu(&g->r[0]);
}

void gpus_share(struct gpus_work *g, void *const *to, const void *from, size_t size)
{
    struct exchange e = {};
    struct gpus_ranges at = {};
    cudaError_t err = cudaSuccess;
    if (g->g->nccl) {
        err = nccl_begin(g->g->nccl);
        for (int r = 0; r < g->n && err == cudaSuccess; r++)
            err = nccl_broadcast(g->g->nccl, r, 0, from, r == 0 ? (void *)(uintptr_t)from : to[r],
                                 size, g->r[r].w->stream);
        if (err == cudaSuccess)
            err = nccl_end(g->g->nccl);
        work_check(g->r[0].w, err, "NCCL");
        return;
    }
    for (int i = 1; i <= g->n; i++)
        at.at[i] = (int)(size / 4);
    e.at = &at;
    e.n = 1;
    e.size = 4;
    e.from[0] = from;
    e.from_stride[0] = e.to_stride = size / 4;
    for (int i = 1; i < g->n; i++)
        e.to[i] = to[i];
    gpus_exchange(g, &e);
}

/* ---- connections ---- */

static bool same_gpu(const int *index, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (index[i] == index[j])
                return true;
    return false;
}

/* Enable access of GPU a to the memory of GPU b. Returns whether it is possible. */
static bool reaches(int a, int b)
{
    int can = 0;
    cudaError_t e;
    if (a == b)
        return true;
    if (cudaDeviceCanAccessPeer(&can, a, b) != cudaSuccess || !can)
        return false;
    cudaSetDevice(a);
    e = cudaDeviceEnablePeerAccess(b, 0);
    cudaGetLastError();
    return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
}

void gpus_connect(struct gpus_device *g)
{
    int index[GPUS_MOST];
    for (int i = 0; i < g->n; i++)
        index[i] = ((const struct cuda_device *)g->gpu[i]->impl)->index;
    g->reach = true;
    for (int i = 0; i < g->n; i++)
        for (int j = 0; j < g->n; j++)
            g->reach = reaches(index[i], index[j]) && g->reach;
    if (!g->reach && !same_gpu(index, g->n))
        g->nccl = nccl_open(index, g->n);
}

void gpus_disconnect(struct gpus_device *g)
{
    nccl_close(&g->nccl);
}
