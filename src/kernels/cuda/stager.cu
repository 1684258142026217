/* Copies between host and device in order with a work's kernels. The host's memory is the caller's
 * again when a call returns, so what goes down is first copied to a pinned slot: there are a few,
 * used in turn, each free again when the event behind its last copy has happened. Pinning takes
 * about a millisecond for each 3 MB, and most works only ever move some numbers, so a slot has what
 * its copies have needed so far. One core copies several times slower than the bus takes it away,
 * so a tower's work, which waits for pictures, has some threads for it. */
#include "kernels/cuda/work.h"

extern "C" {
#include "base/cpu.h"
#include "base/pool.h"
}

#include <string.h>

enum { SLOTS = 4, COPY_THREADS = 8 };
static const size_t SLOT_LEAST = 64 << 10, SLOT_MOST = 8 << 20, PAGE = 4096;
static const size_t PART = 2 << 20; /* of a copy, in one slot */
static const size_t COPY_POOL_LEAST =
    1 << 20; /* bytes: smaller copies are not worth waking threads */

struct stager {
    uint8_t *slot[SLOTS]; /* pinned, */
    size_t size[SLOTS];   /* so many bytes, at most SLOT_MOST */
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
        s->size[i] = w->shape.segment > 0 ? PART : SLOT_LEAST; /* pictures are many bytes */
        e = cudaMallocHost((void **)&s->slot[i], s->size[i]);
        if (e == cudaSuccess)
            e = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
    }
    if (e != cudaSuccess)
        return fail(err, PV_E_NOMEM, "no pinned memory for %s: %s", w->gpu->name,
                    cudaGetErrorString(e));
    if (w->shape.segment > 0 && cpu_count() > 1)
        pool_open(&s->copy_pool, cpu_count() < COPY_THREADS ? cpu_count() : COPY_THREADS,
                  NULL); /* or without */
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

/* Slot i, free again, with room for n bytes or fewer: returns for how many. No memory for a larger
 * one is no failure, a copy then takes more turns. */
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

/* The next part travels while this one is copied out of its slot. */
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
