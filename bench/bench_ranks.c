/* bench_ranks: one model over several processes of this machine.
 *
 *   bench_ranks MODEL [--ranks 1,2,4] [--threads N] [--context N] [--new N] [--rounds N]
 *
 * Measures plain decoding after a prompt of random ids, for each number of ranks: the median step
 * of the rounds, the bytes that rank 0 sent and received per token, and the time that the same
 * messages take without any computation between them. The floor of a step on N ranks is the step of
 * one rank divided by N: every matrix is divided evenly, and every rank has its own threads.
 *
 *   ranks,threads,step_ms,floor_ms,over_floor,messages,sent,received,messages_ms */
#include "dist/transport.h"
#include "prevue/prevue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LIST = 16, MAX_ROUNDS = 32, PROBES = 20 };

struct options {
    const char *model;
    int ranks[MAX_LIST], n_ranks, threads, context, n_new, rounds;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop_if(enum pv_status s, const struct pv_error *err)
{
    if (s) {
        fprintf(stderr, "bench_ranks: %s\n", err->text);
        exit(1);
    }
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The time of one token's messages alone: the same number of gathers, with the same number of
 * bytes. */
static double time_messages(int ranks, uint64_t messages, uint64_t bytes)
{
    struct transport *t = NULL;
    struct pv_error err = { 0 };
    size_t at[RANKS_MAX + 1] = { 0 }, part;
    uint8_t *all;
    double begin, seconds;
    if (ranks == 1 || messages == 0)
        return 0;
    part = (size_t)(bytes / messages / (uint64_t)(ranks - 1));
    stop_if(transport_fork(&t, ranks, &err), &err);
    all = calloc(part * (size_t)ranks + 1, 1);
    for (int r = 0; r < ranks; r++)
        at[r + 1] = at[r] + part;
    begin = now();
    for (uint64_t i = 0; i < PROBES * messages; i++)
        stop_if(transport_gather(t, all, at, RANKS_ALL, &err), &err);
    seconds = (now() - begin) / PROBES;
    free(all);
    if (t->rank > 0)
        _exit(0);
    transport_close(&t);
    return seconds;
}

struct measured {
    double step, messages, sent, received;
};

static double run_round(pv_session *s, const struct options *o, int round)
{
    struct pv_error err = { 0 };
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_stats stats = { .size = sizeof stats };
    struct pv_method plain = { .size = sizeof plain };
    int32_t *ids = malloc(sizeof *ids * (size_t)o->context);
    stop_if(pv_method_find(&plain, "ar", &err), &err);
    for (int i = 0; i < o->context; i++)
        ids[i] = (i * 7 + round) % 90;
    pv_session_reset(s);
    stop_if(pv_add_ids(s, ids, (size_t)o->context, &err), &err);
    p.max_new_tokens = o->n_new;
    p.ignore_stop = true;
    p.method = &plain;
    stop_if(pv_generate(s, &p, NULL, NULL, &err), &err);
    pv_session_stats(s, &stats);
    free(ids);
    return stats.decode_s / (double)(stats.tokens - 1);
}

static struct measured measure(const struct options *o, int ranks)
{
    struct pv_error err = { 0 };
    struct pv_model_params mp = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    pv_ranks *r = NULL;
    pv_model *m = NULL;
    pv_session *s = NULL;
    double step[MAX_ROUNDS];
    uint64_t messages = 0, sent = 0, received = 0, all = 0;
    struct measured out;
    if (ranks > 1) {
        stop_if(pv_ranks_start(&r, ranks, &err), &err);
        if (pv_ranks_rank(r) > 0)
            _exit(pv_ranks_follow(r, NULL) != PV_OK);
    }
    mp.path = o->model;
    mp.threads = o->threads;
    mp.ranks = r;
    stop_if(pv_model_open(&m, &mp, &err), &err);
    sp.max_context = o->context + o->n_new + 1;
    stop_if(pv_session_open(&s, m, &sp, &err), &err);
    (void)run_round(s, o, 0);
    for (int i = 0; i < o->rounds; i++) {
        /* Run the same prompt twice: the messages of the second answer are those of decoding only.
         */
        uint64_t before[3], after[3];
        step[i] = run_round(s, o, 1);
        if (!r)
            continue;
        pv_ranks_traffic(r, &before[0], &before[1], &before[2]);
        (void)run_round(s, o, 1);
        pv_ranks_traffic(r, &after[0], &after[1], &after[2]);
        messages += after[0] - before[0];
        sent += after[1] - before[1];
        received += after[2] - before[2];
        all += (uint64_t)o->n_new;
    }
    qsort(step, (size_t)o->rounds, sizeof *step, compare_doubles);
    out = (struct measured){ .step = step[o->rounds / 2] };
    if (all > 0) {
        out.messages = (double)messages / (double)all;
        out.sent = (double)sent / (double)all;
        out.received = (double)received / (double)all;
    }
    pv_session_close(&s);
    pv_model_close(&m);
    pv_ranks_close(&r);
    return out;
}

static int number(const char *text)
{
    return (int)strtol(text ? text : "", NULL, 10);
}

static void parse_ranks(struct options *o, char *text)
{
    o->n_ranks = 0;
    for (char *p = text; p && *p && o->n_ranks < MAX_LIST; p += strcspn(p, ","), p += *p == ',')
        o->ranks[o->n_ranks++] = number(p);
}

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){
        .ranks = { 1, 2, 4 }, .n_ranks = 3, .threads = 1, .context = 256, .n_new = 32, .rounds = 5
    };
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            o->model = argv[i];
            continue;
        }
        if (i + 1 == argc)
            return false;
        if (!strcmp(argv[i], "--ranks"))
            parse_ranks(o, argv[++i]);
        else if (!strcmp(argv[i], "--threads"))
            o->threads = number(argv[++i]);
        else if (!strcmp(argv[i], "--context"))
            o->context = number(argv[++i]);
        else if (!strcmp(argv[i], "--new"))
            o->n_new = number(argv[++i]);
        else if (!strcmp(argv[i], "--rounds"))
            o->rounds = number(argv[++i]);
        else
            return false;
    }
    return o->model && o->context > 0 && o->n_new > 1 && o->rounds > 0 && o->rounds <= MAX_ROUNDS;
}

int main(int argc, char **argv)
{
    struct options o;
    double one = 0;
    if (!parse(&o, argc, argv)) {
        fprintf(stderr, "usage: bench_ranks MODEL [--ranks 1,2,4] [--threads N] [--context N] "
                        "[--new N] [--rounds N]\n");
        return 2;
    }
    printf("ranks,threads,step_ms,floor_ms,over_floor,messages,sent,received,messages_ms\n");
    for (int i = 0; i < o.n_ranks; i++) {
        struct measured m = measure(&o, o.ranks[i]);
        double floor_s;
        one = one > 0 ? one : m.step * (double)o.ranks[i];
        floor_s = one / (double)o.ranks[i];
        printf("%d,%d,%.3f,%.3f,%.2f,%.0f,%.0f,%.0f,%.3f\n", o.ranks[i], o.threads, 1e3 * m.step,
               1e3 * floor_s, m.step / floor_s, m.messages, m.sent, m.received,
               1e3 * time_messages(o.ranks[i], (uint64_t)m.messages, (uint64_t)m.sent));
        fflush(stdout);
    }
    return 0;
}
