/* Reading in parts. The readers run on threads of a pool and lay their pictures into a few slots;
 * the calling thread takes them out in order and hands them on. The last free slot is only for the
 * part whose turn it is: so the one everybody waits for never has to wait itself. */
#include "video/read_parts.h"

#include "base/mem.h"
#include "base/pool.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* --- cutting -------------------------------------------------------------------------------- */

/* Packets to decode for want[i] when the frame before it was read. */
static size_t want_cost(const struct frame_index *ix, const int64_t *want, int i, bool *cut)
{
    size_t packet = frame_index_packet(ix, (size_t)want[i]);
    size_t start = frame_index_start(ix, (size_t)want[i]), before;

    *cut = i == 0;
    if (i > 0) {
        before = frame_index_packet(ix, (size_t)want[i - 1]);
        if (packet == before)
            return 0;
        *cut = start > before;
        start = start > before ? start : before + 1;
    }
    return frame_index_references(ix, start, packet + 1) + frame_index_is_disposable(ix, packet);
}

void parts_cut(struct parts *out, const struct frame_index *index, const int64_t *want, int n)
{
    size_t total = 0, least, cost = 0;
    bool cut;

    *out = (struct parts){ .n = 1, .begin = { 0, n } };
    if (!index->order)
        return;
    for (int i = 0; i < n; i++)
        total += want_cost(index, want, i, &cut);
    least = total / PARTS_MAX + 1;
    least = least > PARTS_LEAST ? least : PARTS_LEAST;
    for (int i = 0; i < n; i++) {
        size_t c = want_cost(index, want, i, &cut);
        if (cut && cost >= least && out->n < PARTS_MAX) {
            out->begin[out->n++] = i;
            cost = 0;
        }
        cost += c;
    }
    out->begin[out->n] = n;
}

uint64_t parts_cost(const struct frame_index *index, const int64_t *want, int n)
{
    uint64_t total = 0;
    bool cut;

    if (!index->order) /* from the beginning, or on from where it is */
        return n > 0 ? (uint64_t)want[n - 1] + 1 : 0;
    for (int i = 0; i < n; i++)
        total += want_cost(index, want, i, &cut);
    return total;
}

static size_t pictures_ahead(size_t picture_size)
{
    size_t ahead = PARTS_BYTES / picture_size;

    return ahead < 2 ? 2 : ahead < PARTS_AHEAD ? ahead : PARTS_AHEAD;
}

uint64_t parts_memory(int width, int height)
{
    size_t size = (size_t)width * (size_t)height * 3;

    return (uint64_t)size * pictures_ahead(size);
}

/* --- reading one after the other ------------------------------------------------------------ */

/* The first of want[] after i that is another frame, or n. */
static int next_other(const struct part_wish *w, int i)
{
    int next = i + 1;

    while (next < w->n && w->want[next] == w->want[i])
        next++;
    return next;
}

/* The picture of want[at] to want[end - 1], all the same frame, to the caller. */
static enum pv_status hand_on(const struct part_wish *w, int at, int end, int64_t index,
                              const uint8_t *rgb, int *lost, struct pv_error *err)
{
    const struct image picture = { w->width, w->height, rgb };

    for (; at < end; at++) {
        *lost += index != w->want[at];
        if (!w->fn(w->user, at, index, w->index->time[index], &picture))
            return fail(err, PV_E_CANCELLED, "%s: reading was stopped", w->path);
    }
    return PV_OK;
}

enum pv_status parts_read_rest(const struct part_source *source, const struct part_wish *w,
                               int from, int *lost, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int at = from, next; at < w->n && !s; at = next) {
        struct part_want want = { .frame = w->want[at], .after = -1, .at = at };
        struct part_frame f;
        next = next_other(w, at);
        if (next < w->n)
            want.after = w->want[next];
        s = source->read(source->user, &want, &f, err);
        if (!s)
            s = hand_on(w, at, next, f.index, f.rgb, lost, err);
    }
    return s;
}

/* --- reading at once ------------------------------------------------------------------------ */

struct slot {
    uint8_t *rgb;
    int at, end; /* at < 0: free */
    int64_t index;
};

struct part_readers {
    const struct parts *parts;
    const struct part_source *source;
    const struct part_wish *wish;
    void *reader[PARTS_READERS];
    int n_readers;

    pthread_mutex_t lock; /* guards all below, save what is atomic */
    pthread_cond_t freed; /* a slot is free, or `stop` has moved */
    pthread_cond_t filled;
    struct slot slot[PARTS_AHEAD];
    int n_slots, n_free;
    size_t picture_size;
    int next_part;         /* nobody has taken it yet */
    int handed;            /* want[0] to want[handed - 1] have been handed on */
    atomic_int stop;       /* nothing is read from want[stop] on ... */
    enum pv_status status; /* ... because of this; PV_OK: it did not come out well */
    struct pv_error error;
};

/* Reading ends before want[at]; what ends it earlier counts more. */
static void readers_stop(struct part_readers *c, int at, enum pv_status status,
                         const struct pv_error *error)
{
    pthread_mutex_lock(&c->lock);
    if (at < atomic_load(&c->stop)) {
        atomic_store(&c->stop, at);
        c->status = status;
        if (error)
            c->error = *error;
    }
    pthread_cond_broadcast(&c->freed);
    pthread_cond_broadcast(&c->filled);
    pthread_mutex_unlock(&c->lock);
}

/* A free slot for want[at], a picture of `part`; NULL when reading ends before it. */
static struct slot *slot_take(struct part_readers *c, int at, int part)
{
    struct slot *slot = NULL;

    pthread_mutex_lock(&c->lock);
    while (atomic_load(&c->stop) > at &&
           (c->n_free == 0 || (c->n_free == 1 && c->handed < c->parts->begin[part])))
        pthread_cond_wait(&c->freed, &c->lock);
    if (atomic_load(&c->stop) > at) {
        for (slot = c->slot; slot->at >= 0; slot++)
            assert(slot < c->slot + c->n_slots);
        slot->at = INT_MAX; /* taken, not filled */
        c->n_free--;
    }
    pthread_mutex_unlock(&c->lock);
    return slot;
}

static void slot_fill(struct part_readers *c, struct slot *slot, int at, int end, int64_t index,
                      const uint8_t *rgb)
{
    memcpy(slot->rgb, rgb, c->picture_size);
    pthread_mutex_lock(&c->lock);
    slot->at = at;
    slot->end = end;
    slot->index = index;
    pthread_cond_signal(&c->filled);
    pthread_mutex_unlock(&c->lock);
}

/* Reads a part; false: an end has come. */
static bool part_read(struct part_readers *c, void *reader, int part)
{
    const struct part_wish *w = c->wish;
    int at = c->parts->begin[part], end = c->parts->begin[part + 1];
    struct pv_error error = { 0 };
    enum pv_status s = c->source->restart(reader, &error);

    for (int next; at < end && !s; at = next) {
        struct part_want want = { w->want[at], -1, true, at, &c->stop };
        struct part_frame f = { -1, NULL };
        struct slot *slot;
        next = next_other(w, at);
        if (next < end)
            want.after = w->want[next];
        s = c->source->read(reader, &want, &f, &error);
        if (s || f.index < 0)
            break;
        slot = slot_take(c, at, part);
        if (!slot)
            return false;
        slot_fill(c, slot, at, next, f.index, f.rgb);
    }
    if (at < end)
        readers_stop(c, at, s, &error);
    return at >= end;
}

/* The part to read next, or -1. */
static int part_take(struct part_readers *c)
{
    int part = -1;

    pthread_mutex_lock(&c->lock);
    if (c->next_part < c->parts->n && c->parts->begin[c->next_part] < atomic_load(&c->stop))
        part = c->next_part++;
    pthread_mutex_unlock(&c->lock);
    return part;
}

/* Until one comes, or it is time to ask whether to go on. */
static void wait_for_picture(struct part_readers *c)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += USAGE_ASK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&c->filled, &c->lock, &until);
}

/* Hands the pictures on as they come. */
static void deliver(struct part_readers *c, int *lost, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    pthread_mutex_lock(&c->lock);
    while (!s && c->handed < c->wish->n && c->handed < atomic_load(&c->stop)) {
        struct slot *slot = c->slot;
        while (slot < c->slot + c->n_slots && slot->at != c->handed)
            slot++;
        if (slot == c->slot + c->n_slots) {
            wait_for_picture(c);
            if (c->wish->usage && !usage_go_on(c->wish->usage))
                s = fail(err, PV_E_CANCELLED, "%s: reading was stopped", c->wish->path);
            continue;
        }
        pthread_mutex_unlock(&c->lock);
        s = hand_on(c->wish, slot->at, slot->end, slot->index, slot->rgb, lost, err);
        pthread_mutex_lock(&c->lock);
        c->handed = slot->end;
        slot->at = -1;
        c->n_free++;
        pthread_cond_broadcast(&c->freed);
    }
    pthread_mutex_unlock(&c->lock);
    if (s)
        readers_stop(c, -1, s, err);
}

struct readers_run {
    struct part_readers *readers;
    int *lost;
    struct pv_error *err;
};

static void readers_work(void *ctx, int thread, int n_threads)
{
    struct readers_run *run = ctx;
    struct part_readers *c = run->readers;
    int part;

    (void)n_threads;
    if (thread == 0) {
        deliver(c, run->lost, run->err);
        return;
    }
    do {
        part = part_take(c);
    } while (part >= 0 && part_read(c, c->reader[thread - 1], part));
}

static void readers_close(struct part_readers *c)
{
    for (int i = 0; i < c->n_slots; i++)
        mem_free(c->slot[i].rgb);
    pthread_cond_destroy(&c->filled);
    pthread_cond_destroy(&c->freed);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* NULL when there is no memory for two pictures, or no second reader. */
static struct part_readers *readers_open(const struct parts *parts,
                                         const struct part_source *source,
                                         const struct part_wish *w, int readers)
{
    struct part_readers *c = mem_zalloc(sizeof *c);
    pthread_condattr_t monotonic;
    size_t ahead;

    if (!c)
        return NULL;
    c->parts = parts;
    c->source = source;
    c->wish = w;
    atomic_init(&c->stop, w->n);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->freed, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->filled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    c->picture_size = (size_t)w->width * (size_t)w->height * 3;
    ahead = pictures_ahead(c->picture_size);
    ahead = ahead < (size_t)w->n ? ahead : (size_t)w->n;
    while (c->n_slots < (int)ahead) {
        uint8_t *rgb = mem_alloc(c->picture_size);
        if (!rgb)
            break;
        c->slot[c->n_slots++] = (struct slot){ .rgb = rgb, .at = -1 };
    }
    c->n_free = c->n_slots;
    c->reader[c->n_readers++] = source->user;
    for (int k = 1; k < readers; k++) {
        void *twin = source->twin(source->user, k);
        if (twin)
            c->reader[c->n_readers++] = twin;
    }
    if (c->n_slots >= 2 && c->n_readers >= 2)
        return c;
    readers_close(c);
    return NULL;
}

/* The parts one after the other, as the readers would read them. *end: from where on they did not
 * come out well. */
static enum pv_status read_alone(const struct parts *parts, const struct part_source *source,
                                 const struct part_wish *w, int *end, int *lost,
                                 struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int part = 0; part < parts->n && !s; part++) {
        int stop = parts->begin[part + 1];
        s = source->restart(source->user, err);
        for (int at = parts->begin[part], next; at < stop && !s; at = next) {
            struct part_want want = { .frame = w->want[at], .after = -1, .plain = true, .at = at };
            struct part_frame f = { -1, NULL };
            next = next_other(w, at);
            if (next < stop)
                want.after = w->want[next];
            s = source->read(source->user, &want, &f, err);
            *end = at;
            if (!s && f.index < 0)
                return PV_OK;
            if (!s)
                s = hand_on(w, at, next, f.index, f.rgb, lost, err);
        }
    }
    *end = w->n;
    return s;
}

enum pv_status parts_read(const struct parts *parts, const struct part_source *source,
                          const struct part_wish *w, int *lost, struct pv_error *err)
{
    int readers = w->threads < parts->n ? w->threads : parts->n, end = 0;
    struct part_readers *c = NULL;
    struct pool *pool = NULL;
    enum pv_status s;

    readers = readers < PARTS_READERS ? readers : PARTS_READERS;
    if (readers > 1)
        c = readers_open(parts, source, w, readers);
    if (c && !pool_open(&pool, c->n_readers + 1, NULL)) {
        struct readers_run run = { c, lost, err };
        pool_run(pool, readers_work, &run);
        pool_close(&pool);
        s = c->status;
        end = atomic_load(&c->stop);
        if (s && err && s != PV_E_CANCELLED)
            *err = c->error;
    } else {
        s = read_alone(parts, source, w, &end, lost, err);
    }
    if (c)
        readers_close(c);
    if (!s && end < w->n) {
        s = source->restart(source->user, err);
        if (!s)
            s = parts_read_rest(source, w, end, lost, err);
    }
    return s;
}
