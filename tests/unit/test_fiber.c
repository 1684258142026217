/* Fibers: they interleave as they are resumed, keep their locals, call deeply, and end. */
#include "base/fiber.h"

#include "base/mem.h"
#include "base/rng.h"
#include "test.h"

#include <pthread.h>

struct counter {
    struct fiber *fiber;
    int from, steps;
    int *out, *n;
    bool ended;
};

/* Something on the stack in each frame, changed between yields. */
static int descend(struct counter *c, int depth)
{
    int local[16];
    for (int i = 0; i < 16; i++)
        local[i] = depth * i;
    if (depth > 0 && descend(c, depth - 1) != depth - 1)
        return -1;
    if (depth % 8 == 0)
        fiber_yield(c->fiber);
    for (int i = 0; i < 16; i++)
        if (local[i] != depth * i)
            return -1;
    return depth;
}

static void count(void *arg)
{
    struct counter *c = arg;
    for (int i = 0; i < c->steps; i++) {
        c->out[(*c->n)++] = c->from + i;
        fiber_yield(c->fiber);
    }
    c->from = descend(c, 100);
    c->ended = true;
}

TEST(fibers_take_turns)
{
    int out[64], n = 0;
    struct counter a = { NULL, 0, 10, out, &n, false }, b = { NULL, 100, 5, out, &n, false };
    a.fiber = fiber_open(count, &a);
    b.fiber = fiber_open(count, &b);
    for (int i = 0; i < 5; i++) {
        fiber_resume(a.fiber);
        fiber_resume(b.fiber);
    }
    for (int i = 0; i < 5; i++)
        CHECK(out[2 * i] == i && out[2 * i + 1] == 100 + i);
    while (!a.ended)
        fiber_resume(a.fiber);
    while (!b.ended)
        fiber_resume(b.fiber);
    CHECK_EQ(a.from, 100);
    CHECK_EQ(b.from, 100);
    CHECK_EQ(n, 15);
    fiber_close(&a.fiber);
    fiber_close(&b.fiber);
    CHECK(a.fiber == NULL);
}

TEST(many_fibers_leak_nothing)
{
    size_t before = mem_bytes();
    struct rng r = { test_seed };
    int out[64], n = 0;
    for (int round = 0; round < 2000; round++) {
        struct counter c = { NULL, 0, (int)(rng_next(&r) % 4), out, &n, false };
        n = 0;
        c.fiber = fiber_open(count, &c);
        if (!CHECK(c.fiber != NULL))
            return;
        while (round % 10 && !c.ended)
            fiber_resume(c.fiber);
        fiber_close(&c.fiber);
    }
    CHECK_EQ(mem_bytes(), before);
}

/* Each thread has fibers of its own. */
static void *run_thread(void *arg)
{
    int out[64], n = 0, *good = arg;
    for (int round = 0; round < 50; round++) {
        struct counter c = { NULL, 0, 3, out, &n, false };
        n = 0;
        c.fiber = fiber_open(count, &c);
        while (!c.ended)
            fiber_resume(c.fiber);
        fiber_close(&c.fiber);
        *good += c.from == 100 && n == 3;
    }
    return NULL;
}

TEST(threads_do_not_mix)
{
    pthread_t thread[4];
    int good[4] = { 0 };
    for (int i = 0; i < 4; i++)
        pthread_create(&thread[i], NULL, run_thread, &good[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        CHECK_EQ(good[i], 50);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
