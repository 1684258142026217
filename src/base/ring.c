/* A bounded ring between two threads. `made` is written by the producer only, `taken` by the
 * consumer only; a slot belongs to the producer until `made` passes it and again after `taken`
 * does. Every slot carries the epoch of its token, so that a token pushed in the very moment of a
 * restart is recognised later: tokens of older epochs always precede newer ones, and the consumer
 * skips them; the producer's limit does not count them. Epoch and position travel in one word, so
 * that they are always read together.
 *
 * Sleeping works as in pool.c: a thread that goes to sleep raises `sleepers` under the lock and
 * then checks once more; a thread that changes something writes it and then checks `sleepers`. All
 * of this is sequentially consistent, so one of the two sees the other and no wake-up is lost. */
#include "base/ring.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    SLOTS = 2 * RING_MAX, /* tokens of an old epoch and of a new one; a power of two */
    LOOKS = 64            /* before sleeping: others run in between */
};

struct slot {
    uint32_t epoch;
    int32_t id;
};

struct ring {
    _Alignas(64) _Atomic uint32_t made; /* tokens so far, as is `taken`; both wrap around */
    _Atomic uint64_t rest;              /* 1 + the epoch in which the maker rested last */
    uint32_t epoch, first;              /* the maker's: its epoch, and `made` when that began */
    _Alignas(64) _Atomic uint32_t taken;
    _Atomic uint64_t start; /* epoch << 32 | position */
    _Atomic uint32_t limit;
    atomic_bool stop;
    _Alignas(64) atomic_int sleepers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct slot slot[SLOTS];
};

/* ---- waiting ---- */

/* What one side waits for. */
struct wish {
    bool (*granted)(struct ring *r, const struct wish *w);
    uint32_t epoch; /* the maker's */
    uint32_t n;     /* tokens; the taker's */
};

static void wait_for(struct ring *r, const struct wish *w)
{
    for (int i = 0; i < LOOKS; i++) {
        if (w->granted(r, w))
            return;
        sched_yield();
    }
    pthread_mutex_lock(&r->lock);
    atomic_fetch_add(&r->sleepers, 1);
    while (!w->granted(r, w))
        pthread_cond_wait(&r->wake, &r->lock);
    atomic_fetch_sub(&r->sleepers, 1);
    pthread_mutex_unlock(&r->lock);
}

/* After every change that the other side may be waiting for. */
static void wake_others(struct ring *r)
{
    if (atomic_load(&r->sleepers) == 0)
        return;
    pthread_mutex_lock(&r->lock);
    pthread_cond_broadcast(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

/* ---- both ---- */

static uint64_t start_word(uint32_t epoch, int position)
{
    return (uint64_t)epoch << 32 | (uint32_t)position;
}

enum pv_status ring_open(struct ring **out, int limit, int position, struct pv_error *err)
{
    struct ring *r;
    if (limit < 1 || limit > RING_MAX)
        return fail(err, PV_E_ARG, "a ring of %d tokens asked for: 1 to %d are possible", limit,
                    RING_MAX);
    r = mem_zalloc(sizeof *r);
    if (!r)
        return fail_nomem(err, sizeof *r);
    atomic_init(&r->start, start_word(0, position));
    atomic_init(&r->limit, (uint32_t)limit);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    *out = r;
    return PV_OK;
}

void ring_close(struct ring **ring)
{
    struct ring *r = *ring;
    if (!r)
        return;
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->wake);
    mem_free(r);
    *ring = NULL;
}

void ring_stop(struct ring *r)
{
    atomic_store(&r->stop, true);
    wake_others(r);
}

bool ring_stopped(const struct ring *r)
{
    return atomic_load(&r->stop);
}

/* ---- the maker ---- */

struct ring_start ring_start(const struct ring *r)
{
    uint64_t word = atomic_load(&r->start);
    return (struct ring_start){ (uint32_t)(word >> 32), (int32_t)(uint32_t)word };
}

bool ring_lost(const struct ring *r, uint32_t epoch)
{
    return ring_start(r).epoch != epoch || ring_stopped(r);
}

static bool has_room(struct ring *r, const struct wish *w)
{
    uint32_t made = atomic_load_explicit(&r->made, memory_order_relaxed);
    uint32_t lie = made - atomic_load(&r->taken), own = made - r->first;
    return ring_lost(r, w->epoch) ||
           ((own < lie ? own : lie) < atomic_load(&r->limit) && lie < SLOTS);
}

static bool has_ended(struct ring *r, const struct wish *w)
{
    return ring_lost(r, w->epoch);
}

static enum ring_state why_lost(const struct ring *r)
{
    return ring_stopped(r) ? RING_STOPPED : RING_LOST;
}

enum ring_state ring_push(struct ring *r, uint32_t epoch, int32_t id)
{
    uint32_t made = atomic_load_explicit(&r->made, memory_order_relaxed);
    if (epoch != r->epoch) {
        r->epoch = epoch;
        r->first = made;
    }
    wait_for(r, &(struct wish){ .granted = has_room, .epoch = epoch });
    if (ring_lost(r, epoch))
        return why_lost(r);
    r->slot[made % SLOTS] = (struct slot){ epoch, id };
    atomic_store(&r->made, made + 1);
    wake_others(r);
    return RING_OK;
}

enum ring_state ring_rest(struct ring *r, uint32_t epoch)
{
    atomic_store(&r->rest, (uint64_t)epoch + 1);
    wake_others(r);
    wait_for(r, &(struct wish){ .granted = has_ended, .epoch = epoch });
    return why_lost(r);
}

/* ---- the taker ---- */

/* Tokens of the epoch that lie in the ring. Those of older ones give up their places. */
static uint32_t fresh(struct ring *r)
{
    uint32_t made = atomic_load(&r->made), epoch = ring_start(r).epoch;
    uint32_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed), at = taken;
    while (at != made && r->slot[at % SLOTS].epoch != epoch)
        at++;
    if (at != taken)
        atomic_store(&r->taken, at);
    return made - at;
}

/* The maker rests after its last token: who sees it rest sees that token too. */
static bool has_enough(struct ring *r, const struct wish *w)
{
    bool over = atomic_load(&r->rest) == (uint64_t)ring_start(r).epoch + 1 || ring_stopped(r);
    return fresh(r) >= w->n || over;
}

int ring_take(struct ring *r, int32_t *ids, int least, int most)
{
    uint32_t at, n;
    assert(least >= 0 && least <= most && (uint32_t)least <= atomic_load(&r->limit));
    wait_for(r, &(struct wish){ .granted = has_enough, .n = (uint32_t)least });
    n = fresh(r);
    n = n < (uint32_t)most ? n : (uint32_t)most;
    at = atomic_load_explicit(&r->taken, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = r->slot[(at + i) % SLOTS].id;
    atomic_store(&r->taken, at + n);
    wake_others(r);
    return (int)n;
}

void ring_restart(struct ring *r, int position)
{
    atomic_store(&r->start, start_word(ring_start(r).epoch + 1, position));
    fresh(r);
    wake_others(r);
}

void ring_limit(struct ring *r, int limit)
{
    assert(limit >= 1 && limit <= RING_MAX);
    atomic_store(&r->limit, (uint32_t)limit);
    wake_others(r);
}
