/* bench_serving: many requests on one engine at the same time.
 *
 *   bench_serving MODEL [--draft MODEL] [--head HEAD] [--video FILE]... [--context N] [--new N]
 *                 [--requests 1,2,4,8,16] [--methods ar,auto] [--warm N] [--rounds N]
 *                 [--threads N] [--cpu-time] [--chunk N] [--device cuda] [--dummy-weights]
 *                 [--beside N]
 *
 * N clients send requests at the same time, in waves. Each has its own prompt (random token ids, or
 * a question about one of the videos) and repeats it in every wave, so target and drafter find it
 * in their caches. Only decoding is timed: in each wave from the moment when all clients have
 * --warm tokens (default 1) until the first of them has its complete answer; waves continue until
 * there are --new tokens per client. Answers about videos end at their stop token.
 *
 * A method is a preset, or PRESET/DRAFTER or PRESET/DRAFTER/SHAPE (sd/cascade,
 * specvlm/model/fitted). For each number of requests all methods run in turn, --rounds times. A
 * method's line has its median round, its slowest and its fastest, and the median of its speed
 * relative to the first method in the same round: a machine that is slow for a while is slow for
 * both.
 *
 *   requests,method,tokens_s,times_one,rows_a_step,tokens_a_step,slowest,fastest,over_first
 *
 * With --cpu-time, seconds are processor time of the engine's thread. With --threads 1 that is all
 * of its work, and other programs on a busy machine do not affect it.
 *
 * With --beside N it measures something else: the interval between two tokens of one request, alone
 * and while a prompt of N tokens is prefilled, and the time to that prompt's first token, alone and
 * while the other request runs:
 *
 *   prompt,interval_ms,beside_ms,largest_ms,first_token_ms,beside_ms */
#include "prevue/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_REQUESTS = 64, MAX_VIDEOS = 64, MAX_LIST = 32, QUESTION_SIZE = 64, MAX_ROUNDS = 64 };
enum { MAX_ANSWER = 1024, MAX_CONTEXT = 16384 }; /* for requests about a video */

struct options {
    const char *model, *draft, *head, *device;
    const char *video[MAX_VIDEOS];
    int n_videos, context, n_new, threads, chunk, beside, warm, rounds;
    bool dummy, cpu_time;
    int requests[MAX_LIST], n_requests;
    char *method_name[MAX_LIST];
    struct pv_method method[MAX_LIST];
    int n_methods;
};

static double read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static void stop_if(enum pv_status s, const struct pv_error *err)
{
    if (!s)
        return;
    fprintf(stderr, "bench_serving: %s\n", err->text);
    exit(1);
}

/* Split a list at `mark`; modifies the list. */
static int split(char *list, char mark, char **out, int most)
{
    int n = 0;
    while (list && *list && n < most) {
        char *end = strchr(list, mark);
        out[n++] = list;
        if (end)
            *end++ = 0;
        list = end;
    }
    return n;
}

static void refuse(const char *what)
{
    fprintf(stderr, "bench_serving: %s; usage: see the head of bench/bench_serving.c\n", what);
    exit(2);
}

/* Handle an option with a value. Returns false if the name is unknown. */
static bool take_option(struct options *o, const char *name, char *value, char **requests,
                        char **methods)
{
    const struct {
        const char *name;
        const char **text;
        int *number;
        char **list;
    } known[] = {
        { .name = "--draft", .text = &o->draft },
        { .name = "--head", .text = &o->head },
        { .name = "--device", .text = &o->device },
        { .name = "--context", .number = &o->context },
        { .name = "--new", .number = &o->n_new },
        { .name = "--warm", .number = &o->warm },
        { .name = "--rounds", .number = &o->rounds },
        { .name = "--threads", .number = &o->threads },
        { .name = "--chunk", .number = &o->chunk },
        { .name = "--beside", .number = &o->beside },
        { .name = "--requests", .list = requests },
        { .name = "--methods", .list = methods },
    };
    if (!strcmp(name, "--video") && o->n_videos < MAX_VIDEOS) {
        o->video[o->n_videos++] = value;
        return true;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name))
            continue;
        if (known[i].text)
            *known[i].text = value;
        if (known[i].number)
            *known[i].number = (int)strtol(value, NULL, 10);
        if (known[i].list)
            *known[i].list = value;
        return true;
    }
    return false;
}

/* PRESET, PRESET/DRAFTER or PRESET/DRAFTER/SHAPE. */
static void find_method(struct pv_method *m, const char *name)
{
    static const char *const shapes[] = { "chain", "tree", "dynamic", "fitted" };
    struct pv_error err = { 0 };
    char text[QUESTION_SIZE], *part[3];
    int n, drafter = 0, shape = 0;
    snprintf(text, sizeof text, "%s", name);
    m->size = sizeof *m;
    n = split(text, '/', part, 3);
    stop_if(pv_method_find(m, n > 0 ? part[0] : "", &err), &err);
    if (n > 1) {
        while (pv_drafter_find(drafter) && strcmp(pv_drafter_find(drafter)->name, part[1]))
            drafter++;
        m->drafter = (enum pv_drafter)drafter;
    }
    if (n > 2) {
        while (shape < 4 && strcmp(shapes[shape], part[2]))
            shape++;
        m->shape = (enum pv_shape)shape;
    }
    stop_if(pv_method_check(m, &err), &err);
}

static void parse(struct options *o, int argc, char **argv)
{
    static char usual_requests[] = "1,2,4,8,16", usual_methods[] = "ar";
    char *words[MAX_LIST], *requests = usual_requests, *methods = usual_methods;
    *o = (struct options){ .context = 2048, .n_new = 64, .warm = 1, .rounds = 1 };
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--dummy-weights"))
            o->dummy = true;
        else if (!strcmp(argv[i], "--cpu-time"))
            o->cpu_time = true;
        else if (argv[i][0] != '-')
            o->model = argv[i];
        else if (i + 1 < argc && take_option(o, argv[i], argv[i + 1], &requests, &methods))
            i++;
        else
            refuse(argv[i]);
    }
    if (!o->model || o->n_new < 2 || o->context < 1 || o->warm < 1 || o->rounds < 1 ||
        o->rounds > MAX_ROUNDS || (o->cpu_time && o->threads != 1))
        refuse("no model, or a number out of range");
    o->n_requests = split(requests, ',', words, MAX_LIST);
    for (int i = 0; i < o->n_requests; i++) {
        o->requests[i] = (int)strtol(words[i], NULL, 10);
        if (o->requests[i] < 1 || o->requests[i] > MAX_REQUESTS)
            refuse("a number of requests out of range");
    }
    o->n_methods = split(methods, ',', o->method_name, MAX_LIST);
    for (int i = 0; i < o->n_methods; i++)
        find_method(&o->method[i], o->method_name[i]);
}

static pv_model *open_model(const struct options *o, const char *path, const char *head,
                            pv_model *shares_with)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_model_test test = { .dummy_weights = o->dummy };
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.head = head;
    p.threads = o->threads;
    p.shares_with = shares_with;
    p.device = o->device;
    p.test = &test;
    stop_if(pv_model_open(&m, &p, &err), &err);
    return m;
}

/* Random ids of prompt i; no two prompts begin alike. The caller frees them. */
static int32_t *draw_ids(int vocab, int i, int n)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    uint64_t x = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
    for (int k = 0; ids && k < n; k++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[k] = (int32_t)((x >> 33) % (uint64_t)vocab);
    }
    return ids;
}

static pv_request *submit(pv_engine *e, int vocab, int i, int n, int n_new)
{
    int32_t *ids = draw_ids(vocab, i, n);
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_error err = { 0 };
    pv_request *r = NULL;
    g.max_new_tokens = n_new;
    g.ignore_stop = true;
    p.gen = &g;
    p.ids = ids;
    p.n_ids = (size_t)n;
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

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- concurrent requests ---- */

struct figures {
    double tokens_s, rows_a_step, tokens_a_step;
};

/* The median of n ratios. */
static double median_over(const struct figures *x, const struct figures *first, int n)
{
    double ratio[MAX_ROUNDS];
    for (int i = 0; i < n; i++)
        ratio[i] = x[i].tokens_s / first[i].tokens_s;
    qsort(ratio, (size_t)n, sizeof *ratio, compare);
    return ratio[n / 2];
}

/* A client, with its own thread: its requests belong to one conversation, so that a drafter's
 * caches last from one to the next. */
struct client {
    struct load *load;
    pv_session *session;
    pthread_t thread;
    char path[256];  /* file of its prepared prompt */
    atomic_int came; /* tokens of this answer so far */
};

struct load {
    const struct options *o;
    pv_engine *e;
    const struct pv_method *method;
    struct client client[MAX_REQUESTS];
    int n, vocab;
    /* Counted by the engine's thread while answers are generated. */
    bool running;                   /* the clock runs, since `last` */
    double last;                    /* time of the last token */
    struct pv_engine_counts counts; /* at that time */
    int64_t tokens, steps, rows;
    double seconds;
    atomic_bool ended;      /* the wave: one of the clients has its answer */
    atomic_bool over;       /* enough tokens were counted */
    pthread_barrier_t gate; /* where clients wait for each other */
};

/* Called on the engine's thread. */
static double load_clock(const struct load *l)
{
    return read_clock(l->o->cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}

static bool all_warm(const struct load *l)
{
    for (int i = 0; i < l->n; i++)
        if (atomic_load(&l->client[i].came) < l->o->warm)
            return false;
    return true;
}

static bool count_token(void *user, const char *text, size_t len)
{
    struct client *c = user;
    struct load *l = c->load;
    struct pv_engine_counts counts = { .size = sizeof counts };
    double t = load_clock(l);
    (void)text, (void)len;
    if (atomic_load(&l->over) || atomic_load(&l->ended))
        return false;
    pv_engine_stats(l->e, &counts);
    if (l->running) {
        l->tokens++;
        l->seconds += t - l->last;
        l->steps += counts.steps - l->counts.steps;
        l->rows += counts.rows - l->counts.rows;
    }
    l->last = t;
    l->counts = counts;
    atomic_fetch_add(&c->came, 1);
    l->running = all_warm(l);
    atomic_store(&l->over, l->tokens >= (int64_t)l->o->n_new * l->n);
    return true;
}

static void *ask(void *arg)
{
    struct client *c = arg;
    struct load *l = c->load;
    bool sees = l->o->n_videos > 0;
    struct pv_gen_params p = pv_gen_defaults();
    p.max_new_tokens = sees ? MAX_ANSWER : l->o->n_new + l->o->warm;
    p.ignore_stop = !sees;
    p.method = l->method;
    for (;;) {
        struct pv_error err = { 0 };
        enum pv_status st;
        atomic_store(&c->came, 0);
        pv_session_reset(c->session);
        stop_if(pv_prompt_read(c->session, c->path, &err), &err);
        if (c == l->client) {
            l->running = false;
            atomic_store(&l->ended, false);
        }
        pthread_barrier_wait(&l->gate); /* wait until all clients are ready */
        if (atomic_load(&l->over))
            return NULL;
        st = pv_generate(c->session, &p, count_token, c, &err);
        stop_if(st == PV_E_CANCELLED ? PV_OK : st, &err);
        atomic_store(&l->ended, true);
        pthread_barrier_wait(&l->gate); /* wait until all answers have ended */
    }
}

/* Prepare the prompt of client i once, so that repeating the request takes no time. */
static void client_open(struct load *l, int i)
{
    struct client *c = &l->client[i];
    const struct options *o = l->o;
    struct pv_video_params v = pv_video_defaults();
    struct pv_error err = { 0 };
    const char *dir = getenv("TMPDIR");
    int file, n;
    c->load = l;
    n = snprintf(c->path, sizeof c->path, "%s/serving-XXXXXX", dir && *dir ? dir : "/tmp");
    if (n >= (int)sizeof c->path)
        refuse("the name of the directory in TMPDIR is too long");
    file = mkstemp(c->path);
    if (file < 0 || close(file) != 0)
        refuse("no temporary file could be written (TMPDIR names another directory than /tmp)");
    stop_if(pv_engine_session(&c->session, l->e, &err), &err);
    if (o->n_videos > 0) {
        char question[QUESTION_SIZE];
        snprintf(question, sizeof question, "Question %d: describe this video.", i + 1);
        stop_if(pv_add_video(c->session, o->video[i % o->n_videos], &v, NULL, &err), &err);
        stop_if(pv_add_text(c->session, "user", question, &err), &err);
    } else {
        int32_t *ids = draw_ids(l->vocab, i, o->context);
        stop_if(pv_add_ids(c->session, ids, (size_t)o->context, &err), &err);
        free(ids);
    }
    stop_if(pv_prompt_write(c->session, c->path, &err), &err);
}

static void client_close(struct client *c)
{
    pv_session_close(&c->session);
    unlink(c->path);
}

static struct figures run(struct load *l, const struct pv_method *m)
{
    l->method = m;
    l->running = false;
    l->tokens = l->steps = l->rows = 0;
    l->seconds = 0;
    atomic_store(&l->over, false);
    pthread_barrier_init(&l->gate, NULL, (unsigned)l->n);
    for (int i = 0; i < l->n; i++) {
        atomic_store(&l->client[i].came, 0);
        if (pthread_create(&l->client[i].thread, NULL, ask, &l->client[i]) != 0)
            refuse("a thread could not be started");
    }
    for (int i = 0; i < l->n; i++)
        pthread_join(l->client[i].thread, NULL);
    pthread_barrier_destroy(&l->gate);
    return (struct figures){ .tokens_s = (double)l->tokens / l->seconds,
                             .rows_a_step = (double)l->rows / (double)l->steps,
                             .tokens_a_step = (double)l->tokens / (double)l->steps };
}

/* Run all methods in turn, --rounds times. one[]: tokens per second of a single request. */
static void run_load(struct load *l, double *one)
{
    static struct figures all[MAX_LIST][MAX_ROUNDS];
    double over[MAX_LIST];
    const struct options *o = l->o;
    for (int round = 0; round < o->rounds; round++)
        for (int j = 0; j < o->n_methods; j++)
            all[j][round] = run(l, &o->method[j]);
    for (int j = 0; j < o->n_methods; j++)
        over[j] = median_over(all[j], all[0], o->rounds);
    for (int j = 0; j < o->n_methods; j++) {
        const struct figures *low = all[j], *f = all[j] + o->rounds / 2;
        qsort(all[j], (size_t)o->rounds, sizeof all[j][0], compare); /* by tokens_s, its first */
        one[j] = one[j] > 0 ? one[j] : f->tokens_s / l->n;
        printf("%d,%s,%.2f,%.2f,%.1f,%.1f,%.2f,%.2f,%.3f\n", l->n, o->method_name[j], f->tokens_s,
               f->tokens_s / one[j], f->rows_a_step, f->tokens_a_step, low->tokens_s,
               low[o->rounds - 1].tokens_s, over[j]);
        fflush(stdout);
    }
}

static void run_loads(const struct options *o, pv_engine *e, int vocab, int most)
{
    static struct load l;
    double one[MAX_LIST] = { 0 };
    l.o = o;
    l.e = e;
    l.vocab = vocab;
    atomic_init(&l.over, false);
    atomic_init(&l.ended, false);
    for (int i = 0; i < most; i++)
        client_open(&l, i);
    printf("requests,method,tokens_s,times_one,rows_a_step,tokens_a_step,slowest,fastest,over_"
           "first\n");
    for (int k = 0; k < o->n_requests; k++) {
        l.n = o->requests[k];
        run_load(&l, one);
    }
    for (int i = 0; i < most; i++)
        client_close(&l.client[i]);
}

/* ---- a prompt beside a request ---- */

/* Wait for tokens of r until `until` of them have arrived or `other` has ended. Stores their
 * intervals. */
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
    first_token(submit(e, vocab, 100, o->beside, 1)); /* warm-up */
    prompt = first_token(submit(e, vocab, 101, o->beside, 1));
    a = submit(e, vocab, 0, o->context, MOST);
    intervals(a, NULL, 8, alone);
    intervals(a, NULL, ALONE, alone);
    t0 = now();
    b = submit(e, vocab, 102, o->beside, 1);
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
    parse(&o, argc, argv);
    model = open_model(&o, o.model, o.head, NULL);
    if (o.draft)
        draft = open_model(&o, o.draft, NULL, model);
    for (int i = 0; i < o.n_requests; i++)
        most = o.requests[i] > most ? o.requests[i] : most;
    slots = o.n_videos ? MAX_CONTEXT : o.context + o.n_new + o.warm + 64;
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
    if (o.beside)
        run_beside(&o, e, pv_model_vocab_size(model));
    else
        run_loads(&o, e, pv_model_vocab_size(model), most);
    pv_engine_close(&e);
    pv_model_close(&draft);
    pv_model_close(&model);
    return 0;
}
