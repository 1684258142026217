/* Copies between host and device, in order with a work's kernels. The caller may reuse its memory
 * when a call returns, so data for the device is first copied to a pinned slot. There are a few
 * slots, used in turn; a slot is free again when the event after its last copy has occurred.
 * Pinning takes about a millisecond per 3 MB, and most works only move a few numbers, so a slot
 * grows only as its copies need it. One core copies several times slower than the bus, so the work
 * of a vision tower, which waits for pictures, has a few threads for copying. */
#include "kernels/cuda/work.h"

extern "C" {
#include "base/cpu.h"
#include "base/pool.h"
}

#include <string.h>

enum { SLOTS = 4, COPY_THREADS = 8 };
static const size_t SLOT_LEAST = 64 << 10, SLOT_MOST = 8 << 20, PAGE = 4096;
static const size_t PART = 2 << 20; /* most bytes of a copy in one slot */
static const size_t COPY_POOL_LEAST =
    1 << 20; /* bytes: the calling thread makes smaller copies itself */

struct stager {
    uint8_t *slot[SLOTS]; /* pinned memory */
    size_t size[SLOTS];   /* bytes of a slot, at most SLOT_MOST */
    cudaEvent_t done[SLOTS];
    int next;
    struct pool *copy_pool; /* NULL: the calling thread copies alone */
};

/* ---- copies on the host ---- */

struct host_copy {
    uint8_t *to;
    const uint8_t *from;
    size_t size;
};

static void copy_part(void *ctx, int thread, int n_threads)
{
    const struct host_copy *c = (const struct host_copy *)ctx;
    size_t part = (c->size / (size_t)n_threads / PAGE + 1) * PAGE, at = part * (size_t)thread;
    if (at < c->size)
        memcpy(c->to + at, c->from + at, c->size - at < part ? c->size - at : part);
}

static void copy_host(struct stager *s, void *to, const void *from, size_t size)
{
    struct host_copy c = { (uint8_t *)to, (const uint8_t *)from, size };
    if (s->copy_pool && size >= COPY_POOL_LEAST)
        pool_run(s->copy_pool, copy_part, &c);
    else
        copy_part(&c, 0, 1);
}

/* ---- slots ---- */

enum pv_status stager_open(struct device_work *w, struct pv_error *err)
{
    struct stager *s = (struct stager *)mem_zalloc(sizeof *s);
    cudaError_t e = cudaSuccess;
    if (!s)
        return fail_nomem(err, sizeof *s);
    w->stager = s;
    for (int i = 0; i < SLOTS && e == cudaSuccess; i++) {
        s->size[i] = w->shape.segment > 0 ? PART : SLOT_LEAST; /* large for towers: pictures */
        e = cudaMallocHost((void **)&s->slot[i], s->size[i]);
        if (e == cudaSuccess)
            e = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
    }
    if (e != cudaSuccess)
        return fail(err, PV_E_NOMEM, "no pinned memory for %s: %s", w->gpu->name,
                    cudaGetErrorString(e));
    if (w->shape.segment > 0 && cpu_count() > 1)
        pool_open(&s->copy_pool, cpu_count() < COPY_THREADS ? cpu_count() : COPY_THREADS,
                  NULL); /* optional: may fail */
    return PV_OK;
}

void stager_close(struct device_work *w)
{
    struct stager *s = w->stager;
    if (!s)
        return;
    for (int i = 0; i < SLOTS; i++) {
        if (s->done[i])
            cudaEventDestroy(s->done[i]);
        cudaFreeHost(s->slot[i]);
    }
    pool_close(&s->copy_pool);
    mem_free(s);
    w->stager = NULL;
}

/* Wait until slot i is free, and enlarge it for n bytes. Returns how many of them fit; if there is
 * no memory for a larger slot, the copy takes more turns. */
static size_t take_slot(struct device_work *w, int i, size_t n)
{
    struct stager *s = w->stager;
    size_t size = s->size[i];
    uint8_t *larger = NULL;
    work_check(w, cudaEventSynchronize(s->done[i]), "waiting for a copy");
    n = n < SLOT_MOST ? n : SLOT_MOST;
    if (n <= size)
        return n;
    while (size < n)
        size *= 2;
    if (cudaMallocHost((void **)&larger, size) != cudaSuccess) {
        cudaGetLastError();
        return s->size[i];
    }
    cudaFreeHost(s->slot[i]);
    s->slot[i] = larger;
    s->size[i] = size;
    return n;
}

void *stager_lend(struct device_work *w, size_t size)
{
    struct stager *s = w->stager;
    return take_slot(w, s->next, size) == size ? s->slot[s->next] : NULL;
}

void stager_put(struct device_work *w, void *dst, const void *src, size_t size)
{
    struct stager *s = w->stager;
    cudaSetDevice(w->gpu->index);
    for (size_t at = 0, n; at < size; at += n) {
        int i = s->next;
        s->next = (s->next + 1) % SLOTS;
        n = take_slot(w, i, size - at < PART ? size - at : PART);
        copy_host(s, s->slot[i], (const uint8_t *)src + at, n);
        work_check(
            w,
            cudaMemcpyAsync((uint8_t *)dst + at, s->slot[i], n, cudaMemcpyHostToDevice, w->stream),
            "a copy to the GPU");
        work_check(w, cudaEventRecord(s->done[i], w->stream), "a copy to the GPU");
    }
}

/* The next part is transferred while this one is copied out of its slot. */
void stager_get(struct device_work *w, void *dst, const void *src, size_t size)
{
    struct stager *s = w->stager;
    size_t asked = 0, done = 0, part[SLOTS];
    int from[SLOTS], ahead = 0;
    cudaSetDevice(w->gpu->index);
    while (done < size && w->error == cudaSuccess) {
        while (asked < size && ahead < SLOTS) {
            int i = s->next;
            size_t n = take_slot(w, i, size - asked < PART ? size - asked : PART);
            s->next = (s->next + 1) % SLOTS;
            work_check(w,
                       cudaMemcpyAsync(s->slot[i], (const uint8_t *)src + asked, n,
                                       cudaMemcpyDeviceToHost, w->stream),
                       "a copy from the GPU");
            work_check(w, cudaEventRecord(s->done[i], w->stream), "a copy from the GPU");
            part[ahead] = n;
            from[ahead++] = i;
            asked += n;
        }
        work_check(w, cudaEventSynchronize(s->done[from[0]]), "waiting for a copy");
        copy_host(s, (uint8_t *)dst + done, s->slot[from[0]], part[0]);
        done += part[0];
        ahead--;
        memmove(from, from + 1, (size_t)ahead * sizeof *from);
        memmove(part, part + 1, (size_t)ahead * sizeof *part);
    }
}
