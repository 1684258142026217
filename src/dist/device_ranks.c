/* The device of rank 0 that distributes decoders over ranks: memory, works and the command queue.
 *
 * Operations on distributed objects become commands in a queue. When a result is needed, or an
 * operation is called that runs on rank 0 only, the queue is sent to the other ranks in one message
 * and every rank executes it. So a step of a decoder is one message and the gathers of its layers.
 * The decoder does not know about this: it calls two blocks of a device per layer. */
#include "dist/device_ranks.h"

#include "base/build_id.h"

#include <string.h>

enum { QUEUE_CAP = 1 << 18 };

/* ---- the queue ---- */

void queue_flush(struct rank_device *d)
{
    struct batch_head head = { .size = d->queue.size };
    size_t at = sizeof head;
    if (d->queue.size <= sizeof head)
        return;
    memcpy(d->queue.data, &head, sizeof head);
    rank_bcast(&d->k, d->queue.data, BATCH_FIRST);
    if (d->queue.size > BATCH_FIRST)
        rank_bcast(&d->k, d->queue.data + BATCH_FIRST, d->queue.size - BATCH_FIRST);
    while (at < d->queue.size && !d->k.status) {
        const struct command *c = (const struct command *)(d->queue.data + at);
        struct pv_error err = { 0 };
        enum pv_status s = rank_run(&d->k, c, &err);
        if (s && !d->k.status) {
            d->k.status = s;
            d->k.err = err;
        }
        at += (size_t)c->size;
    }
    d->queue.size = sizeof head;
    if (d->k.dev)
        d->dev.copies = d->k.dev->copies;
}

void *queue_push(struct rank_device *d, enum command_kind kind, int id, int work, size_t size)
{
    struct command *c;
    size = (size + COMMAND_ALIGN - 1) / COMMAND_ALIGN * COMMAND_ALIGN;
    if (d->queue.size + size > d->queue.cap)
        queue_flush(d);
    if (d->k.status)
        return NULL;
    d->k.status = batch_reserve(&d->queue, d->queue.size + size, &d->k.err);
    if (d->k.status)
        return NULL;
    c = (struct command *)(d->queue.data + d->queue.size);
    memset(c, 0, size);
    *c = (struct command){ .kind = kind, .size = (int32_t)size, .id = id, .work = work };
    d->queue.size += size;
    return c;
}

static enum pv_status failure(const struct rank_device *d, struct pv_error *err)
{
    return d->k.status ? fail(err, d->k.status, "%s", d->k.err.text) : PV_OK;
}

enum pv_status queue_settle(struct rank_device *d, struct pv_error *err)
{
    enum pv_status s;
    pthread_mutex_lock(&d->lock);
    queue_flush(d);
    s = failure(d, err);
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* Wait until all ranks have executed all commands; a rank that could not has ended. The caller
 * holds the lock. */
static enum pv_status meet(struct rank_device *d, int work, struct pv_error *err)
{
    (void)queue_push(d, COMMAND_SYNC, 0, work, sizeof(struct command));
    queue_flush(d);
    if (d->k.status)
        return failure(d, err);
    return d->k.report ? fail(err, d->k.report, "%s", d->k.report_err.text) : PV_OK;
}

/* ---- memory ---- */

static void *ranks_alloc(struct device *dev, size_t size)
{
    struct device *inner = device_of(dev)->k.dev;
    return inner->ops->alloc(inner, size);
}

static void ranks_copy(struct device *dev, void *dst, const void *src, size_t size)
{
    (void)dev;
    memcpy(dst, src, size);
}

static void ranks_room(struct device *dev, size_t *left, size_t *all)
{
    struct device *inner = device_of(dev)->k.dev;
    inner->ops->room(inner, left, all);
}

struct rank_pool *pool_find(const struct rank_device *d, const void *p, int *id)
{
    for (int i = 0; i < d->k.pools.n; i++) {
        struct rank_pool *pool = d->k.pools.at[i];
        if (pool && (const uint8_t *)p >= pool->mem &&
            (const uint8_t *)p < pool->mem + pool->size) {
            *id = i;
            return pool;
        }
    }
    return NULL;
}

static int free_id(const struct table *t)
{
    int id = 0;
    while (table_find(t, id))
        id++;
    return id;
}

static enum pv_status ranks_alloc_kv(struct device *dev, const struct kv_shape *shape, void **out,
                                     int *n_kv, struct pv_error *err)
{
    struct rank_device *d = device_of(dev);
    struct command_kv *c;
    enum pv_status s;
    int id;
    pthread_mutex_lock(&d->lock);
    queue_flush(d);
    id = free_id(&d->k.pools);
    c = queue_push(d, COMMAND_KV_OPEN, id, -1, sizeof *c);
    if (c)
        c->shape = *shape;
    s = meet(d, -1, err);
    if (!s) {
        const struct rank_pool *p = table_find(&d->k.pools, id);
        *out = p->mem;
        *n_kv = p->n_kv;
    }
    pthread_mutex_unlock(&d->lock);
    return s;
}

static void ranks_free(struct device *dev, void *p)
{
    struct rank_device *d = device_of(dev);
    int id;
    pthread_mutex_lock(&d->lock);
    queue_flush(d);
    if (p && pool_find(d, p, &id)) {
        if (queue_push(d, COMMAND_KV_CLOSE, id, -1, sizeof(struct command)))
            queue_flush(d);
        p = NULL; /* after a failure rank_close frees it */
    }
    pthread_mutex_unlock(&d->lock);
    if (p)
        d->k.dev->ops->free(d->k.dev, p);
}

/* ---- sessions ---- */

static size_t runs_size(const struct work_shape *s)
{
    return sizeof(struct command_runs) + RANK_RUNS * sizeof(struct wire_run) +
           sizeof(int32_t) * rank_work_numbers(s) + COMMAND_ALIGN;
}

static bool of_decoder(const struct work_shape *s)
{
    return s->context > 0;
}

static size_t ranks_work_size(struct device *dev, const struct work_shape *s)
{
    struct rank_device *d = device_of(dev);
    size_t size = d->k.dev->ops->work_size(d->k.dev, s);
    return of_decoder(s) ? size + rank_work_size(&d->k, s) + runs_size(s) : size;
}

/* Room in the queue for the longest commands of its steps, so that steps allocate nothing. */
static enum pv_status open_spread(struct rank_device *d, struct device_work *w,
                                  const struct work_shape *s, struct pv_error *err)
{
    enum { MOST_COLUMNS = 8 };
    struct command_work *c;
    size_t columns = MOST_COLUMNS * sizeof(int32_t) * (size_t)(s->context + s->rows);
    enum pv_status st;
    w->runs_cap = runs_size(s);
    w->runs = mem_zalloc(w->runs_cap);
    if (!w->runs)
        return fail_nomem(err, w->runs_cap);
    pthread_mutex_lock(&d->lock);
    queue_flush(d);
    st = batch_reserve(&d->queue, QUEUE_CAP + w->runs_cap + columns, err);
    w->id = free_id(&d->k.works);
    c = st ? NULL : queue_push(d, COMMAND_WORK_OPEN, w->id, -1, sizeof *c);
    if (c)
        c->shape = *s;
    if (!st)
        st = meet(d, -1, err);
    if (!st) {
        w->w = table_find(&d->k.works, w->id);
        w->inner = w->w->inner;
    } else {
        w->id = -1;
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

static void ranks_work_close(struct device *dev, struct device_work **work)
{
    struct rank_device *d = device_of(dev);
    struct device_work *w = *work;
    if (!w)
        return;
    (void)queue_settle(d, NULL);
    if (w->id >= 0) {
        pthread_mutex_lock(&d->lock);
        (void)queue_push(d, COMMAND_WORK_CLOSE, w->id, -1, sizeof(struct command));
        queue_flush(d);
        pthread_mutex_unlock(&d->lock);
    } else if (w->w) {
        rank_work_close(&w->w);
    } else if (w->inner) {
        d->k.dev->ops->work_close(d->k.dev, &w->inner);
    }
    mem_free(w->runs);
    mem_free(w);
    *work = NULL;
}

static enum pv_status ranks_work_open(struct device *dev, struct device_work **out,
                                      const struct work_shape *s, struct pv_error *err)
{
    struct rank_device *d = device_of(dev);
    struct device_work *w = mem_zalloc(sizeof *w);
    enum pv_status st;
    if (!w)
        return fail_nomem(err, sizeof *w);
    w->d = d;
    w->id = -1;
    if (of_decoder(s) && s->spread) {
        st = open_spread(d, w, s, err);
    } else if (of_decoder(s)) {
        st = rank_work_open(&w->w, &d->k, s, err);
        w->inner = st ? NULL : w->w->inner;
    } else {
        st = d->k.dev->ops->work_open(d->k.dev, &w->inner, s, err);
    }
    if (st)
        ranks_work_close(dev, &w);
    else
        *out = w;
    return st;
}

static void ranks_work_on(struct device_work *w, struct device *group)
{
    work_settle(w);
    w->d->k.dev->ops->work_on(w->inner, group);
}

static bool ranks_begin(struct device_work *w, const struct work_plan *plan)
{
    (void)w, (void)plan;
    return true;
}

static void ranks_end_plan(struct device_work *w)
{
    (void)w;
}

static enum pv_status ranks_wait(struct device_work *w, struct pv_error *err)
{
    struct rank_device *d = w->d;
    enum pv_status s;
    if (!w->dirty) {
        s = w->id >= 0 ? queue_settle(d, err) : PV_OK;
        return s ? s : d->k.dev->ops->wait(w->inner, err);
    }
    pthread_mutex_lock(&d->lock);
    s = meet(d, w->id, err);
    pthread_mutex_unlock(&d->lock);
    w->dirty = false;
    return s;
}

/* ---- the device ---- */

static void ranks_close(struct device **dev)
{
    struct rank_device *d = device_of(*dev);
    pthread_mutex_lock(&d->lock);
    (void)queue_push(d, COMMAND_CLOSE, 0, -1, sizeof(struct command));
    queue_flush(d);
    pthread_mutex_unlock(&d->lock);
    if (d->k.status)
        d->k.t->broken = true;
    rank_close(&d->k);
    pthread_mutex_destroy(&d->lock);
    mem_free(d->queue.data);
    mem_free(d);
    *dev = NULL;
}

enum pv_status device_ranks_open(struct device **out, struct transport *t, int threads,
                                 uint64_t cpu, struct pv_error *err)
{
    struct rank_device *d = mem_zalloc(sizeof *d);
    struct device *dev;
    struct command_open *c;
    enum pv_status s;
    if (!d)
        return fail_nomem(err, sizeof *d);
    pthread_mutex_init(&d->lock, NULL);
    d->k.t = t;
    s = batch_reserve(&d->queue, QUEUE_CAP, err);
    d->queue.size = sizeof(struct batch_head);
    c = s ? NULL : queue_push(d, COMMAND_OPEN, 0, -1, sizeof *c);
    if (c) {
        c->threads = threads;
        c->cpu = cpu;
        strncpy(c->build, build_id(), sizeof c->build - 1);
    }
    d->dev.ops = &d->table;
    d->table = (struct device_ops){ .name = "ranks",
                                    .alloc = ranks_alloc,
                                    .free = ranks_free,
                                    .upload = ranks_copy,
                                    .download = ranks_copy,
                                    .room = ranks_room,
                                    .alloc_kv = ranks_alloc_kv,
                                    .close = ranks_close,
                                    .work_size = ranks_work_size,
                                    .work_open = ranks_work_open,
                                    .work_close = ranks_work_close,
                                    .work_on = ranks_work_on,
                                    .begin = ranks_begin,
                                    .end = ranks_end_plan,
                                    .wait = ranks_wait };
    if (!s)
        s = meet(d, -1, err);
    dev = &d->dev;
    if (s) {
        ranks_close(&dev);
        return s;
    }
    fill_local_ops(&d->table, d->k.dev->ops);
    fill_weight_ops(&d->table);
    fill_step_ops(&d->table);
    *out = dev;
    return PV_OK;
}
