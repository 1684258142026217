/* The ring between two threads: order, limits, epochs, resting, stopping, sleeping; and the whole
 * parallel schedule through it, with models that exist only here. */
#include "base/mem.h"
#include "base/ring.h"
#include "base/rng.h"
#include "spec/pearl.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

static void pause_us(int us)
{
    struct timespec ts = { us / 1000000, us % 1000000 * 1000L };
    nanosleep(&ts, NULL);
}

static struct ring *open_ring(int limit, int position)
{
    struct ring *r = NULL;
    struct pv_error err = { 0 };
    CHECK_MSG(ring_open(&r, limit, position, &err) == PV_OK, "%s", err.text);
    return r;
}

TEST(one_thread_in_order)
{
    struct ring *r = open_ring(4, 17);
    int32_t ids[8];
    CHECK_EQ(ring_start(r).position, 17);
    for (int round = 0; round < 2000; round++) { /* more than once around */
        uint32_t epoch = ring_start(r).epoch;
        for (int i = 0; i < 4; i++)
            CHECK_EQ(ring_push(r, epoch, 10 * round + i), RING_OK);
        CHECK_EQ(ring_take(r, ids, 3, 3), 3);
        CHECK_EQ(ids[0], 10 * round);
        CHECK_EQ(ids[2], 10 * round + 2);
        CHECK_EQ(ring_take(r, ids, 0, 8), 1);
        CHECK_EQ(ids[0], 10 * round + 3);
        CHECK_EQ(ring_take(r, ids, 0, 8), 0);
    }
    ring_close(&r);
    CHECK(!r);
    ring_close(&r);
}

TEST(lost_tokens_are_not_handed_out)
{
    struct ring *r = open_ring(2, 5);
    struct ring_start old = ring_start(r), now;
    int32_t id;
    CHECK_EQ(ring_push(r, old.epoch, 1), RING_OK);
    CHECK_EQ(ring_push(r, old.epoch, 2), RING_OK);
    CHECK(!ring_lost(r, old.epoch));
    ring_restart(r, 6);
    CHECK(ring_lost(r, old.epoch));
    CHECK_EQ(ring_push(r, old.epoch, 3), RING_LOST);
    CHECK_EQ(ring_rest(r, old.epoch), RING_LOST);
    CHECK_EQ(ring_take(r, &id, 0, 1), 0);
    now = ring_start(r);
    CHECK_EQ(now.position, 6);
    CHECK(now.epoch != old.epoch);
    CHECK_EQ(ring_push(r, now.epoch, 4), RING_OK); /* there is room again */
    CHECK_EQ(ring_push(r, now.epoch, 5), RING_OK);
    CHECK_EQ(ring_take(r, &id, 1, 1), 1);
    CHECK_EQ(id, 4);
    ring_stop(r);
    CHECK(ring_stopped(r) && ring_lost(r, now.epoch));
    CHECK_EQ(ring_push(r, now.epoch, 6), RING_STOPPED);
    CHECK_EQ(ring_rest(r, now.epoch), RING_STOPPED);
    CHECK_EQ(ring_take(r, &id, 1, 1), 1); /* what was made in time is there */
    CHECK_EQ(id, 5);
    CHECK_EQ(ring_take(r, &id, 1, 1), 0);
    ring_close(&r);
}

TEST(opening_fails_cleanly)
{
    const int bad[] = { -1, 0, RING_MAX + 1 };
    struct pv_error err = { 0 };
    struct ring *r = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct pv_error){ 0 };
        CHECK_EQ(ring_open(&r, bad[i], 0, &err), PV_E_ARG);
        CHECK(!r && err.text[0]);
    }
    mem_fail_at(1);
    err = (struct pv_error){ 0 };
    CHECK_EQ(ring_open(&r, 4, 0, &err), PV_E_NOMEM);
    mem_fail_at(0);
    CHECK(!r && err.text[0]);
}

/* ---- two threads ---- */

/* Makes `n` tokens and rests; counts how its waits end. */
struct maker {
    struct ring *ring;
    int n;
    int made, lost, stopped;
    double cpu_s; /* that the thread used */
};

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *make_tokens(void *arg)
{
    struct maker *m = arg;
    double t0 = thread_seconds();
    while (m->stopped == 0) {
        struct ring_start at = ring_start(m->ring);
        enum ring_state st = RING_OK;
        for (int i = 0; i < m->n && st == RING_OK; i++) {
            st = ring_push(m->ring, at.epoch, at.position + i);
            m->made += st == RING_OK;
        }
        if (st == RING_OK)
            st = ring_rest(m->ring, at.epoch);
        m->lost += st == RING_LOST;
        m->stopped += st == RING_STOPPED;
    }
    m->cpu_s = thread_seconds() - t0;
    return NULL;
}

static pthread_t start(struct maker *m, struct ring *r, int n)
{
    pthread_t t;
    *m = (struct maker){ .ring = r, .n = n };
    CHECK_EQ(pthread_create(&t, NULL, make_tokens, m), 0);
    return t;
}

/* A maker that rests ends the taker's wait; a restart sends it to work again. */
TEST(resting)
{
    struct ring *r = open_ring(8, 100);
    struct maker m;
    pthread_t t = start(&m, r, 3);
    int32_t ids[8];
    for (int i = 0; i < 300; i++) {
        CHECK_EQ(ring_take(r, ids, 5, 8), 3);
        CHECK(ids[0] == 100 + i && ids[2] == 102 + i);
        CHECK_EQ(ring_take(r, ids, 5, 8), 0);
        ring_restart(r, 101 + i);
    }
    CHECK_EQ(ring_take(r, ids, 3, 3), 3);
    ring_stop(r);
    pthread_join(t, NULL);
    CHECK_EQ(m.lost, 300);
    CHECK_EQ(m.stopped, 1);
    ring_close(&r);
}

/* Both sides are woken by every reason there is, though they have gone to sleep. */
TEST(sleepers_wake)
{
    struct ring *r = open_ring(1, 0);
    struct maker m;
    pthread_t t = start(&m, r, RING_MAX);
    int32_t ids[8];
    for (int i = 0; i < 5; i++) {
        pause_us(10000); /* the maker sleeps: the ring is full */
        CHECK_EQ(ring_take(r, ids, 1, 1), 1);
        CHECK_EQ(ids[0], i);
    }
    pause_us(10000);
    ring_limit(r, 4);
    CHECK_EQ(ring_take(r, ids, 4, 4), 4);
    CHECK_EQ(ids[3], 8);
    pause_us(10000);
    ring_restart(r, 500);
    CHECK_EQ(ring_take(r, ids, 4, 4), 4);
    CHECK_EQ(ids[0], 500);
    pause_us(10000);
    ring_stop(r);
    pthread_join(t, NULL);
    CHECK_EQ(m.lost, 1);
    CHECK_EQ(m.stopped, 1);
    ring_close(&r);
}

/* Who waits does not use the processor. */
TEST(waiting_costs_nothing)
{
    struct ring *r = open_ring(2, 0);
    struct maker m;
    pthread_t t = start(&m, r, 10);
    pause_us(300000);
    ring_stop(r);
    pthread_join(t, NULL);
    CHECK_EQ(m.made, 2);
    CHECK_MSG(m.cpu_s < 0.1, "%.3f s of processor time in 0.3 s of waiting", m.cpu_s);
    ring_close(&r);
}

static void *stop_later(void *arg)
{
    pause_us(20000);
    ring_stop(arg);
    return NULL;
}

TEST(a_third_thread_stops_the_taker)
{
    struct ring *r = open_ring(4, 0);
    pthread_t t;
    int32_t id;
    CHECK_EQ(pthread_create(&t, NULL, stop_later, r), 0);
    CHECK_EQ(ring_take(r, &id, 1, 1), 0);
    pthread_join(t, NULL);
    CHECK(ring_stopped(r));
    ring_close(&r);
}

/* ---- the parallel schedule ---- */

enum { PROMPT = 5, ROOM = 4096 };

/* `text` only grows and is written by the target's thread alone, without atomics: the ring must
 * order what the drafter reads of it. */
struct play {
    struct ring *ring;
    int32_t text[ROOM]; /* verified tokens */
    uint64_t seed;
    double right;            /* probability that a drafted token is */
    int draft_us, target_us; /* most time of a token, of a pass */
    int rest_after;          /* tokens of an epoch; 0: no end */
    bool bad_text, bad_order;
};

static int32_t truth(int position)
{
    return (int32_t)(rng_bits(7, (uint64_t)position, 0) & 0xffff);
}

static void spend(struct rng *r, int most_us)
{
    uint64_t dice = rng_next(r);
    if (most_us == 0)
        return;
    if (dice % 4 == 0)
        pause_us((int)(dice / 8 % (uint64_t)most_us));
    else if (dice % 4 == 1)
        sched_yield();
}

static void *draft_side(void *arg)
{
    struct play *p = arg;
    struct rng r = { p->seed * 2 + 1 };
    while (!ring_stopped(p->ring)) {
        struct ring_start at = ring_start(p->ring);
        enum ring_state st = RING_OK;
        bool good = true;
        for (int i = 0; i < at.position; i++)
            p->bad_text = p->bad_text || p->text[i] != truth(i);
        for (int i = at.position; st == RING_OK; i++) {
            if (i >= ROOM - 2 || (p->rest_after > 0 && i >= at.position + p->rest_after)) {
                st = ring_rest(p->ring, at.epoch);
                continue;
            }
            spend(&r, p->draft_us);
            if (ring_lost(p->ring, at.epoch))
                break;
            good = good && (double)(rng_next(&r) >> 11) * 0x1p-53 < p->right;
            /* what follows a wrong token is of no use, even where it is like the text */
            st = ring_push(p->ring, at.epoch, truth(i) | (good ? 0 : 0x10000));
        }
    }
    return NULL;
}

/* A round of the target's side: rows run, tokens taken, the books closed, the text told. */
static void target_round(struct play *p, struct pearl *b, struct rng *r, int32_t *pending,
                         int window)
{
    int32_t made[PEARL_MAX];
    int known = b->prefix - b->pending, n_pending = b->pending, n, right = 0;
    struct pearl_round end;
    spend(r, p->target_us);
    for (int i = 0; i < n_pending && right == i; i++)
        right += pending[i] == truth(known + i);
    /* a wrong pending token decides the round before anything new is looked at */
    n = right == n_pending ? ring_take(p->ring, made, (int)(rng_next(r) % 2), window) : 0;
    if (n > 0 && made[0] == truth(b->prefix))
        right++;
    for (int i = 0; i < n; i++)
        p->bad_order = p->bad_order || (made[i] & 0xffff) != truth(b->prefix + i);
    end = pearl_end(b, n, right);
    for (int i = 0; i < end.verified; i++)
        p->text[known + i] = truth(known + i);
    for (int i = 1; i < n && !end.own; i++)
        pending[i - 1] = made[i];
    if (end.own)
        ring_restart(p->ring, b->prefix);
}

static void play_schedule(struct play *p, int tokens)
{
    struct rng r = { p->seed };
    struct pearl b;
    int32_t pending[PEARL_MAX];
    pthread_t t;
    p->ring = open_ring(PEARL_MAX, PROMPT);
    for (int i = 0; i < PROMPT; i++)
        p->text[i] = truth(i);
    pearl_begin(&b, PROMPT, 0, 0);
    CHECK_EQ(pthread_create(&t, NULL, draft_side, p), 0);
    while (b.prefix - b.pending < PROMPT + tokens) {
        int window = 1 + (int)(rng_next(&r) % 12);
        ring_limit(p->ring, window);
        target_round(p, &b, &r, pending, window);
        if (rng_next(&r) % 50 == 0 && b.pending == 0)
            ring_restart(p->ring, b.prefix); /* a change of mind: all is made again */
    }
    ring_stop(p->ring);
    pthread_join(t, NULL);
    CHECK(!p->bad_text);
    CHECK(!p->bad_order);
    for (int i = 0; i < b.prefix - b.pending; i++)
        if (!CHECK_EQ(p->text[i], truth(i)))
            break;
    CHECK(p->right < 1 || b.counts.rejections == 0);
    CHECK(p->right > 0 || b.counts.accepted == 0);
    CHECK_EQ(b.counts.accepted + b.counts.own, b.prefix - b.pending - PROMPT);
    ring_close(&p->ring);
}

TEST(parallel_schedule_under_stress)
{
    static const double rights[] = { 0, 0.5, 0.9, 1 };
    for (int i = 0; i < 64; i++) {
        static struct play p;
        p = (struct play){ .seed = test_seed + (uint64_t)i,
                           .right = rights[i % 4],
                           .draft_us = i / 4 % 4 * 40,
                           .target_us = i / 16 % 4 * 60,
                           .rest_after = i % 3 == 0 ? 5 : 0 };
        play_schedule(&p, i < 8 ? 2000 : 300);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
