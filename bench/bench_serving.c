/* bench_serving: many requests on one engine at a time.
 *
 *   bench_serving MODEL [--draft MODEL] [--head HEAD] [--video FILE]... [--context N] [--new N]
 *                 [--requests 1,2,4,8,16] [--methods ar,auto] [--threads N] [--chunk N]
 *                 [--device cuda] [--dummy-weights] [--beside N]
 *
 * Every request has a prompt of its own: random token ids, or a question about one of the videos.
 * Prompts are read once before the clock starts and found again in the engine's KV pages, so that
 * what is timed is decoding: from the moment when all requests have their first token until the
 * first of them ends. Prints one line for each number of requests and method:
 *
 *   requests,method,tokens_s,times_one,rows_a_step,tokens_a_request
 *
 * With --beside N it times something else: the interval between two tokens of one request, alone
 * and while a prompt of N tokens is read beside it, and the time to that prompt's first token,
 * alone and beside the other:
 *
 *   prompt,interval_ms,beside_ms,largest_ms,first_token_ms,beside_ms
 */
#include "prevue/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_REQUESTS = 64, MAX_VIDEOS = 64, MAX_LIST = 16, QUESTION_SIZE = 64 };

struct options {
    const char *model, *draft, *head, *device;
    const char *video[MAX_VIDEOS];
    int n_videos, context, n_new, threads, chunk, beside;
    bool dummy;
    int requests[MAX_LIST], n_requests;
    char *method[MAX_LIST];
    int n_methods;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop_if(enum pv_status s, const struct pv_error *err)
{
    if (!s)
        return;
    fprintf(stderr, "bench_serving: %s\n", err->text);
    exit(1);
}

/* Words between commas; the list is cut up. */
static int split(char *list, char **out)
{
    int n = 0;
    while (list && *list && n < MAX_LIST) {
        char *comma = strchr(list, ',');
        out[n++] = list;
        if (comma)
            *comma++ = 0;
        list = comma;
    }
    return n;
}

static void parse(struct options *o, int argc, char **argv)
{
    static char usual_requests[] = "1,2,4,8,16", usual_methods[] = "ar";
    char *words[MAX_LIST], *requests = usual_requests, *methods = usual_methods;
    *o = (struct options){ .context = 2048, .n_new = 64 };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        bool more = i + 1 < argc;
        if (!strcmp(a, "--dummy-weights"))
            o->dummy = true;
        else if (a[0] != '-')
            o->model = a;
        else if (!more)
            o->model = NULL, i = argc;
        else if (!strcmp(a, "--draft"))
            o->draft = argv[++i];
        else if (!strcmp(a, "--head"))
            o->head = argv[++i];
        else if (!strcmp(a, "--device"))
            o->device = argv[++i];
        else if (!strcmp(a, "--video") && o->n_videos < MAX_VIDEOS)
            o->video[o->n_videos++] = argv[++i];
        else if (!strcmp(a, "--context"))
            o->context = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(a, "--new"))
            o->n_new = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(a, "--threads"))
            o->threads = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(a, "--chunk"))
            o->chunk = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(a, "--beside"))
            o->beside = (int)strtol(argv[++i], NULL, 10);
        else if (!strcmp(a, "--requests"))
            requests = argv[++i];
        else if (!strcmp(a, "--methods"))
            methods = argv[++i];
        else
            o->model = NULL, i = argc;
    }
    if (!o->model || o->n_new < 2 || o->context < 1) {
        fprintf(stderr, "usage: see the head of bench/bench_serving.c\n");
        exit(2);
    }
    o->n_requests = split(requests, words);
    for (int i = 0; i < o->n_requests; i++) {
        o->requests[i] = (int)strtol(words[i], NULL, 10);
        if (o->requests[i] < 1 || o->requests[i] > MAX_REQUESTS) {
            fprintf(stderr, "bench_serving: 1 to %d requests are possible\n", MAX_REQUESTS);
            exit(2);
        }
    }
    o->n_methods = split(methods, o->method);
}

static pv_model *open_model(const struct options *o, const char *path, const char *head,
                            pv_model *beside)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_model_test test = { .dummy_weights = o->dummy };
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.head = head;
    p.threads = o->threads;
    p.beside = beside;
    p.device = o->device;
    p.test = &test;
    stop_if(pv_model_open(&m, &p, &err), &err);
    return m;
}

/* Prompt i of n tokens or about a video, which no other begins like for long. */
static pv_request *submit(const struct options *o, pv_engine *e, int vocab, int i, int n,
                          const struct pv_method *m, int n_new)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_error err = { 0 };
    char question[QUESTION_SIZE];
    struct pv_part parts[2] = { { .path = o->n_videos ? o->video[i % o->n_videos] : NULL },
                                { .text = question } };
    struct pv_message message = { "user", parts, 2 };
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
    pv_request *r = NULL;
    snprintf(question, sizeof question, "Question %d: describe this video.", i + 1);
    g.max_new_tokens = n_new;
    g.ignore_stop = true;
    g.method = m;
    p.gen = &g;
    if (o->n_videos > 0) {
        p.messages = &message;
        p.n_messages = 1;
    } else {
        for (int k = 0; k < n; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            ids[k] = (int32_t)((x >> 33) % (uint64_t)vocab);
        }
        p.ids = ids;
        p.n_ids = (size_t)n;
    }
    stop_if(pv_request_submit(&r, e, &p, &err), &err);
    free(ids);
    return r;
}

static void finish(pv_request **r)
{
    struct pv_error err = { 0 };
    stop_if(pv_request_wait(*r, &err), &err);
    pv_request_close(r);
}

struct figures {
    double tokens_s, rows_a_step;
    double tokens_a_request;
};

/* Tokens of all requests while all of them decode. */
static struct figures run(const struct options *o, pv_engine *e, int vocab, int n,
                          const struct pv_method *m)
{
    pv_request *r[MAX_REQUESTS];
    struct pv_engine_counts before = { .size = sizeof before }, after = before;
    struct figures f = { 0 };
    int64_t tokens = 0;
    int started = 0;
    bool first[MAX_REQUESTS] = { false }, ended = false;
    double t0 = 0;
    for (int i = 0; i < n; i++)
        r[i] = submit(o, e, vocab, i, o->context, m, o->n_new);
    while (!ended)
        for (int i = 0; i < n && !ended; i++) {
            struct pv_event ev;
            while (!ended && pv_request_next(r[i], &ev, started < n || n > 1 ? 0.0005 : 1)) {
                if (ev.kind == PV_EVENT_TEXT && ev.token.id >= 0) {
                    tokens += t0 > 0;
                    started += !first[i];
                    first[i] = true;
                }
                if (started == n && t0 == 0) {
                    t0 = now();
                    pv_engine_stats(e, &before);
                }
                ended = ev.kind == PV_EVENT_END;
            }
        }
    f.tokens_s = (double)tokens / (now() - t0);
    pv_engine_stats(e, &after);
    f.rows_a_step = after.steps > before.steps
                        ? (double)(after.rows - before.rows) / (double)(after.steps - before.steps)
                        : 0;
    f.tokens_a_request = (double)tokens / n;
    for (int i = 0; i < n; i++) {
        pv_request_cancel(r[i]);
        pv_request_close(&r[i]);
    }
    return f;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Waits for tokens of r until `until` of them came, or `other` has ended; their intervals. */
static int intervals(pv_request *r, pv_request *other, int until, double *out)
{
    struct pv_event ev;
    double last = now();
    int n = 0;
    while (n < until && pv_request_next(r, &ev, 10) && ev.kind != PV_EVENT_END) {
        if (ev.kind != PV_EVENT_TEXT)
            continue;
        out[n++] = now() - last;
        last = now();
        if (other && pv_request_next(other, &ev, 0) && ev.kind == PV_EVENT_END)
            break;
    }
    return n;
}

static double first_token(pv_request *r)
{
    double t0 = now();
    finish(&r);
    return now() - t0;
}

static void run_beside(const struct options *o, pv_engine *e, int vocab)
{
    enum { ALONE = 48, MOST = 4096 };
    static double alone[ALONE], beside[MOST];
    pv_request *a, *b;
    double t0, usual, with, largest, prompt, prompt_beside;
    int n;
    first_token(submit(o, e, vocab, 100, o->beside, NULL, 1)); /* the machine warms up */
    prompt = first_token(submit(o, e, vocab, 101, o->beside, NULL, 1));
    a = submit(o, e, vocab, 0, o->context, NULL, MOST);
    intervals(a, NULL, 8, alone);
    intervals(a, NULL, ALONE, alone);
    t0 = now();
    b = submit(o, e, vocab, 102, o->beside, NULL, 1);
    n = intervals(a, b, MOST, beside);
    prompt_beside = now() - t0;
    pv_request_close(&a);
    pv_request_close(&b);
    qsort(alone, ALONE, sizeof *alone, compare);
    qsort(beside, (size_t)n, sizeof *beside, compare);
    usual = alone[ALONE / 2];
    with = n > 0 ? beside[n / 2] : 0;
    largest = n > 0 ? beside[n - 1] : 0;
    printf("prompt,interval_ms,beside_ms,largest_ms,first_token_ms,beside_ms\n");
    printf("%d,%.2f,%.2f,%.2f,%.1f,%.1f\n", o->beside, 1e3 * usual, 1e3 * with, 1e3 * largest,
           1e3 * prompt, 1e3 * prompt_beside);
}

int main(int argc, char **argv)
{
    struct options o;
    struct pv_engine_params ep = pv_engine_defaults();
    struct pv_error err = { 0 };
    pv_engine *e = NULL;
    pv_model *model, *draft = NULL;
    int most = 1, slots;
    double one[MAX_LIST] = { 0 };
    parse(&o, argc, argv);
    model = open_model(&o, o.model, o.head, NULL);
    if (o.draft)
        draft = open_model(&o, o.draft, NULL, model);
    for (int i = 0; i < o.n_requests; i++)
        most = o.requests[i] > most ? o.requests[i] : most;
    slots = o.n_videos ? 16384 : o.context + o.n_new + 64;
    slots = o.beside > slots ? o.beside + 64 : slots;
    slots = o.beside && o.context + 4160 > slots ? o.context + 4160 : slots;
    most = o.beside && most < 3 ? 3 : most;
    ep.max_context = slots;
    ep.kv_tokens = (int64_t)most * (slots + 256);
    ep.max_requests = most;
    ep.chunk = o.chunk;
    ep.draft = draft;
    ep.speculate = true;
    stop_if(pv_engine_open(&e, model, &ep, &err), &err);
    for (int i = 0; i < most; i++) {
        pv_request *r = submit(&o, e, pv_model_vocab_size(model), i, o.context, NULL, 1);
        finish(&r);
    }
    if (o.beside)
        run_beside(&o, e, pv_model_vocab_size(model));
    else
        printf("requests,method,tokens_s,times_one,rows_a_step,tokens_a_request\n");
    for (int k = 0; k < o.n_requests && !o.beside; k++)
        for (int j = 0; j < o.n_methods; j++) {
            struct pv_method m = { .size = sizeof m };
            struct figures f;
            stop_if(pv_method_find(&m, o.method[j], &err), &err);
            f = run(&o, e, pv_model_vocab_size(model), o.requests[k], &m);
            one[j] = k == 0 ? f.tokens_s / o.requests[0] : one[j];
            printf("%d,%s,%.2f,%.2f,%.1f,%.0f\n", o.requests[k], o.method[j], f.tokens_s,
                   f.tokens_s / one[j], f.rows_a_step, f.tokens_a_request);
            fflush(stdout);
        }
    pv_engine_close(&e);
    pv_model_close(&draft);
    pv_model_close(&model);
    return 0;
}
