/* Messages between ranks: what arrives, what is counted, and that the end of a rank is noticed by
 * all others, as threads and as processes. */
#include "dist/ranks.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LONG = 3 << 20 /* more than a socket holds */ };

struct side {
    struct transport *t;
    bool good;
};

static uint8_t byte_of(int rank, size_t i)
{
    return (uint8_t)(31 * (size_t)rank + i * 7 + i / 251);
}

static bool all_of(const uint8_t *p, int rank, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte_of(rank, i))
            return false;
    return true;
}

/* Parts of 0, 1, .. bytes or long ones, to all or to rank `to`. */
static bool gather_once(struct transport *t, size_t unit, int to)
{
    size_t at[RANKS_MAX + 1] = { 0 };
    for (int r = 0; r < t->n; r++)
        at[r + 1] = at[r] + unit * (size_t)r + (unit > 1);
    uint8_t *all = calloc(at[t->n] + 1, 1);
    for (size_t i = at[t->rank]; i < at[t->rank + 1]; i++)
        all[i] = byte_of(t->rank, i - at[t->rank]);
    bool good = transport_gather(t, all, at, to, NULL) == PV_OK;
    for (int r = 0; r < t->n && (to == RANKS_ALL || to == t->rank); r++)
        good = good && all_of(all + at[r], r, at[r + 1] - at[r]);
    free(all);
    return good;
}

static void *talk(void *arg)
{
    struct side *s = arg;
    struct transport *t = s->t;
    uint8_t *data = malloc(LONG);
    int next = (t->rank + 1) % t->n, before = (t->rank + t->n - 1) % t->n;
    s->good = true;
    for (size_t i = 0; i < LONG; i++)
        data[i] = t->rank == 0 ? byte_of(9, i) : 0;
    s->good = s->good && transport_bcast(t, data, LONG, NULL) == PV_OK && all_of(data, 9, LONG);
    s->good = s->good && gather_once(t, 1, RANKS_ALL) && gather_once(t, LONG / 2, RANKS_ALL) &&
              gather_once(t, 1, 0) && gather_once(t, LONG / 2, 2);
    /* Round the ranks, as column sums go. */
    if (t->rank > 0)
        s->good = s->good && transport_recv(t, before, data, 100, NULL) == PV_OK;
    s->good = s->good && transport_send(t, next, data, 100, NULL) == PV_OK;
    if (t->rank == 0)
        s->good = s->good && transport_recv(t, before, data, 100, NULL) == PV_OK;
    s->good = s->good && all_of(data, 9, 100);
    free(data);
    return NULL;
}

TEST(messages_arrive)
{
    struct transport *t[RANKS];
    struct side side[RANKS];
    pthread_t thread[RANKS];
    if (!CHECK_EQ(transport_threads(t, RANKS, NULL), PV_OK))
        return;
    for (int r = 0; r < RANKS; r++) {
        side[r] = (struct side){ .t = t[r] };
        CHECK(pthread_create(&thread[r], NULL, talk, &side[r]) == 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        CHECK(side[r].good);
    }
    CHECK_EQ(t[0]->counts.calls, 7);
    CHECK_EQ(t[1]->counts.calls, 7);
    for (int r = 0; r < RANKS; r++)
        transport_close(&t[r]);
}

TEST(numbers_of_ranks_have_bounds)
{
    struct transport *t[RANKS_MAX + 1];
    struct pv_error err = { 0 };
    CHECK_EQ(transport_threads(t, 0, &err), PV_E_ARG);
    CHECK_EQ(transport_threads(t, RANKS_MAX + 1, NULL), PV_E_ARG);
    CHECK_EQ(transport_fork(t, -1, NULL), PV_E_ARG);
    CHECK(strstr(err.text, "0 ranks asked for: 1 to 64 are possible"));
}

/* ---- the end of a rank ---- */

static void *follow(void *arg)
{
    struct side *s = arg;
    struct pv_error err = { 0 };
    s->good = ranks_follow(s->t, &err) == PV_E_IO && strstr(err.text, "has ended");
    transport_close(&s->t);
    return NULL;
}

TEST(those_that_follow_end_with_rank_0)
{
    struct transport *t[RANKS];
    struct side side[RANKS];
    pthread_t thread[RANKS];
    if (!CHECK_EQ(transport_threads(t, RANKS, NULL), PV_OK))
        return;
    for (int r = 1; r < RANKS; r++) {
        side[r] = (struct side){ .t = t[r] };
        CHECK(pthread_create(&thread[r], NULL, follow, &side[r]) == 0);
    }
    transport_close(&t[0]); /* and no word of an end */
    for (int r = 1; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
        CHECK(side[r].good);
    }
}

/* Rank 2 is killed while it waits; rank 0 learns by what. */
TEST(a_process_that_is_killed)
{
    struct transport *t = NULL;
    struct pv_error err = { 0 };
    uint8_t all[RANKS] = { 0 };
    size_t at[RANKS + 1];
    pid_t parent = getpid();
    for (int r = 0; r <= RANKS; r++)
        at[r] = (size_t)r;
    if (!CHECK_EQ(transport_fork(&t, RANKS, &err), PV_OK))
        return;
    if (getpid() != parent) {
        if (t->rank == 2)
            raise(SIGKILL);
        _exit(transport_gather(t, all, at, RANKS_ALL, NULL) == PV_E_IO ? 0 : 9);
    }
    CHECK_EQ(transport_gather(t, all, at, RANKS_ALL, &err), PV_E_IO);
    CHECK_MSG(!strcmp(err.text, "rank 2 of 4 was killed by signal 9"), "%s", err.text);
    CHECK_EQ(transport_bcast(t, all, 1, NULL), PV_E_IO);
    CHECK(t->broken);
    transport_close(&t);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
