/* Copies between host and device, in order with a work's kernels. The caller may reuse its memory
 * when a call returns, so data for the device is first copied to a pinned slot. There are a few
 * slots, used in turn; a slot is free again when the event after its last copy has occurred.
 * Pinning takes about a millisecond per 3 MB, and most works only move a few numbers, so a slot
 * grows only as its copies need it. One core copies several times slower than the bus, so the work
 * of a vision tower, which waits for pictures, has a few threads for copying.
 *
 * Copies ahead have a stream and slots of their own, because the other slots are only free again
 * when the kernels before their copies have ended. */
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

struct slots {
    uint8_t *slot[SLOTS]; /* pinned memory */
    size_t size[SLOTS];   /* bytes of a slot, at most SLOT_MOST */
    cudaEvent_t done[SLOTS];
    int next;
};

/* Copies ahead, see device_ops.put_ahead. */
struct ahead {
    struct slots slots;
    cudaStream_t stream;
    cudaEvent_t arrived; /* the last copy ahead */
    cudaEvent_t used[2]; /* the operations before the last two copies ahead, */
    int turn;            /* and which is the last */
};

struct stager {
    struct slots slots;
    struct ahead ahead;     /* works of towers only */
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

static cudaError_t slots_open(struct slots *s, size_t size)
{
    cudaError_t e = cudaSuccess;
    for (int i = 0; i < SLOTS && e == cudaSuccess; i++) {
        s->size[i] = size;
        e = cudaMallocHost((void **)&s->slot[i], size);
        if (e == cudaSuccess)
            e = cudaEventCreateWithFlags(&s->done[i], cudaEventDisableTiming);
    }
    return e;
}

static void slots_close(struct slots *s)
{
    for (int i = 0; i < SLOTS; i++) {
        if (s->done[i])
            cudaEventDestroy(s->done[i]);
        cudaFreeHost(s->slot[i]);
    }
}

static cudaError_t ahead_open(struct ahead *a)
{
    cudaEvent_t *events[] = { &a->arrived, &a->used[0], &a->used[1] };
    cudaError_t e = slots_open(&a->slots, PART);
    for (int i = 0; i < 3 && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&a->stream, cudaStreamNonBlocking);
    return e;
}

static void ahead_close(struct ahead *a)
{
    cudaEvent_t events[] = { a->arrived, a->used[0], a->used[1] };
    if (a->stream)
        cudaStreamSynchronize(a->stream);
    slots_close(&a->slots);
    for (int i = 0; i < 3; i++)
        if (events[i])
            cudaEventDestroy(events[i]);
    if (a->stream)
        cudaStreamDestroy(a->stream);
}

enum pv_status stager_open(struct device_work *w, struct pv_error *err)
{
    struct stager *s = (struct stager *)mem_zalloc(sizeof *s);
    bool tower = w->shape.segment > 0;
    cudaError_t e;
    if (!s)
        return fail_nomem(err, sizeof *s);
    w->stager = s;
    e = slots_open(&s->slots, SLOT_LEAST);
    if (e == cudaSuccess && tower)
        e = ahead_open(&s->ahead);
    if (e != cudaSuccess)
        return fail(err, PV_E_NOMEM, "no pinned memory for %s: %s", w->gpu->name,
                    cudaGetErrorString(e));
    if (tower && cpu_count() > 1)
        pool_open(&s->copy_pool, cpu_count() < COPY_THREADS ? cpu_count() : COPY_THREADS,
                  NULL); /* optional: may fail */
    return PV_OK;
}

void stager_close(struct device_work *w)
{
    struct stager *s = w->stager;
    if (!s)
        return;
    ahead_close(&s->ahead);
    slots_close(&s->slots);
    pool_close(&s->copy_pool);
    mem_free(s);
    w->stager = NULL;
}

/* Wait until slot i is free, and enlarge it for n bytes. Returns how many of them fit; if there is
 * no memory for a larger slot, the copy takes more turns. */
static size_t take_slot(struct device_work *w, struct slots *s, int i, size_t n)
{
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
    struct slots *s = &w->stager->slots;
    return take_slot(w, s, s->next, size) == size ? s->slot[s->next] : NULL;
}

static void put_parts(struct device_work *w, struct slots *s, cudaStream_t stream, void *dst,
                      const void *src, size_t size)
{
    for (size_t at = 0, n; at < size; at += n) {
        int i = s->next;
        s->next = (s->next + 1) % SLOTS;
        n = take_slot(w, s, i, size - at < PART ? size - at : PART);
        copy_host(w->stager, s->slot[i], (const uint8_t *)src + at, n);
        work_check(
            w, cudaMemcpyAsync((uint8_t *)dst + at, s->slot[i], n, cudaMemcpyHostToDevice, stream),
            "a copy to the GPU");
        work_check(w, cudaEventRecord(s->done[i], stream), "a copy to the GPU");
    }
}

void stager_put(struct device_work *w, void *dst, const void *src, size_t size)
{
    cudaSetDevice(w->gpu->index);
    put_parts(w, &w->stager->slots, w->stream, dst, src, size);
}

void stager_put_ahead(struct device_work *w, void *dst, const void *src, size_t size)
{
    struct ahead *a = &w->stager->ahead;
    if (!a->stream) {
        stager_put(w, dst, src, size);
        return;
    }
    cudaSetDevice(w->gpu->index);
    work_check(w, cudaEventRecord(a->used[a->turn], w->stream), "a copy to the GPU");
    a->turn ^= 1;
    work_check(w, cudaStreamWaitEvent(a->stream, a->used[a->turn], 0), "a copy to the GPU");
    put_parts(w, &a->slots, a->stream, dst, src, size);
    work_check(w, cudaEventRecord(a->arrived, a->stream), "a copy to the GPU");
    work_check(w, cudaStreamWaitEvent(w->stream, a->arrived, 0), "a copy to the GPU");
}

/* The next part is transferred while this one is copied out of its slot. */
void stager_get(struct device_work *w, void *dst, const void *src, size_t size)
{
    struct slots *s = &w->stager->slots;
    size_t asked = 0, done = 0, part[SLOTS];
    int from[SLOTS], ahead = 0;
    cudaSetDevice(w->gpu->index);
    while (done < size && w->error == cudaSuccess) {
        while (asked < size && ahead < SLOTS) {
            int i = s->next;
            size_t n = take_slot(w, s, i, size - asked < PART ? size - asked : PART);
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
        copy_host(w->stager, (uint8_t *)dst + done, s->slot[from[0]], part[0]);
        done += part[0];
        ahead--;
        memmove(from, from + 1, (size_t)ahead * sizeof *from);
        memmove(part, part + 1, (size_t)ahead * sizeof *part);
    }
}
