/* Starting and stopping. The HTTP side opens first, so that /health tells of loading; models open
 * on a thread of their own. A first SIGTERM or SIGINT drains: running answers finish, new ones are
 * refused. A second one, or --drain-seconds, ends them. */
#include "serve.h"
#include "host_rules.h"
#include "json_memory.h"
#include "remote_rules.h"

#include "base/clock.h"
#include "server.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    LIGHT_WORKERS = 2,
    HEAVY_WORKERS = 2,
    RUNNING_TIMES = 2, /* requests submitted for each that the engine runs at a time */
    STREAM_BYTES = 1 << 20,
    BODY_RATE = 8 << 10,
    OTHER_DESCRIPTORS = 512,
    USUAL_REQUESTS = 16,
    USUAL_CONTEXT = 32768
};

void serve_config_init(struct serve_config *c)
{
    *c = (struct serve_config){
        .model = pv_model_defaults(),
        .draft = pv_model_defaults(),
        .engine = pv_engine_defaults(),
        .host = "127.0.0.1",
        .port = 8080,
        .max_queue = 4096,
        .max_connections = 4096,
        .max_body = (uint64_t)64 << 20,
        .max_upload = (uint64_t)512 << 20,
        .max_files = (uint64_t)16 << 30,
        .drain_seconds = 30,
        .client_seconds = 30,
        .sandbox = PV_SANDBOX_ON,
    };
    c->method.size = sizeof c->method;
    pv_method_find(&c->method, "ar", NULL);
}

bool serve_domain_is_valid(const char *domain)
{
    struct remote_domain parsed;
    return remote_domain_parse(&parsed, domain);
}

/* ---- limits ---- */

/* What media of clients may be: the library's limits for strangers, where the options say nothing
 * else. The one place that decides it. */
static struct pv_limits media_limits(const struct serve_config *c)
{
    const struct pv_limits *given = &c->media;
    struct pv_limits l;
    pv_limits_server(&l);
    l.video_bytes = given->video_bytes ? given->video_bytes : l.video_bytes;
    l.frame_pixels = given->frame_pixels ? given->frame_pixels : l.frame_pixels;
    l.frames = given->frames ? given->frames : l.frames;
    l.video_seconds = given->video_seconds > 0 ? given->video_seconds : l.video_seconds;
    l.decoded_pixels = given->decoded_pixels ? given->decoded_pixels : l.decoded_pixels;
    l.decode_seconds = given->decode_seconds > 0 ? given->decode_seconds : l.decode_seconds;
    return l;
}

/* Raises the limit of descriptors to what connections, files and the library need. Returns for how
 * many connections it suffices: at least half of the descriptors stay for the rest. */
static int raise_descriptors(int connections)
{
    struct rlimit r;
    rlim_t want = (rlim_t)connections + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
        return connections;
    r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &r);
    if (r.rlim_cur >= want)
        return connections;
    return (int)(r.rlim_cur < 2 * OTHER_DESCRIPTORS ? r.rlim_cur / 2
                                                    : r.rlim_cur - OTHER_DESCRIPTORS);
}

/* ---- loading ---- */

struct loading {
    struct work work;
    struct server *s;
    struct pv_error err;
};

static bool is_wanted(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    (void)phase, (void)done, (void)total;
    return !atomic_load(&((struct server *)user)->closing);
}

static void load(struct work *w)
{
    struct loading *l = (struct loading *)w;
    struct server *s = l->s;
    const struct serve_config *c = s->c;
    struct pv_engine_params p = c->engine;
    struct pv_model_params model = c->model, draft = c->draft;
    model.progress = draft.progress = is_wanted;
    model.progress_user = draft.progress_user = s;
    if (pv_model_open(&s->model, &model, &l->err))
        return;
    draft.shares_with = s->model;
    if (draft.path && pv_model_open(&s->draft, &draft, &l->err))
        return;
    p.draft = s->draft;
    if (!p.max_context)
        p.max_context = pv_model_max_context(s->model) < USUAL_CONTEXT
                            ? pv_model_max_context(s->model)
                            : USUAL_CONTEXT;
    s->context = p.max_context;
    pv_engine_open(&s->engine, s->model, &p, &l->err);
}

static void loaded(struct loop_task *t)
{
    struct loading *l = (struct loading *)((char *)t - offsetof(struct loading, work.done));
    struct server *s = l->s;
    if (l->err.code) {
        s->state = SERVER_FAILED;
        return;
    }
    s->loaded = true;
    if (s->state != SERVER_LOADING)
        return; /* a signal came first */
    s->state = SERVER_READY;
    printf(strchr(s->c->host, ':') ? "prevue: serving %s at http://[%s]:%d\n"
                                   : "prevue: serving %s at http://%s:%d\n",
           s->name, s->c->host, http_port(s->http));
    fflush(stdout);
}

/* ---- signals ---- */

static atomic_int signals; /* written by their handler, on any thread */

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void catch_signals(void)
{
    struct sigaction a = { .sa_handler = on_signal };
    sigemptyset(&a.sa_mask);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGINT, &a, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its upload */
}

/* ---- running ---- */

/* A process that has a part of a model has ended: so does the server. Answers that run end with the
 * same error, and get a moment for that. */
static bool ranks_failed(struct server *s, struct pv_error *err)
{
    const pv_ranks *ranks[] = { s->c->model.ranks, s->c->draft.path ? s->c->draft.ranks : NULL };
    for (int i = 0; i < 2 && !err->code; i++)
        if (ranks[i])
            (void)pv_ranks_check(ranks[i], err);
    return err->code != PV_OK;
}

static void run(struct server *s, struct pv_error *err)
{
    double drain_until = 0, ticked = 0, wait = 0, failed_until = 0;
    bool cancelled = false;
    while (s->state != SERVER_FAILED) {
        double now = clock_now();
        loop_run(s->loop, wait < 0.25 ? wait : 0.25); /* a signal may come between */
        if (now - ticked > 0.5) {
            ticked = now;
            chat_tick(s, now);
            if (!failed_until && s->loaded && ranks_failed(s, err)) {
                failed_until = now + 3;
                http_quiesce(s->http);
            }
        }
        wait = http_run(s->http);
        if (failed_until && (!s->chats || now > failed_until))
            return;
        if (signals && !drain_until) {
            s->state = SERVER_DRAINING;
            drain_until = now + s->c->drain_seconds;
            http_quiesce(s->http);
            fprintf(stderr, "prevue: draining: %d requests are left\n",
                    s->n_running + s->n_waiting);
        }
        if (drain_until && !s->chats && (cancelled || !(s->calls || http_expects(s->http))))
            return;
        if (drain_until && !cancelled && (signals > 1 || now > drain_until)) {
            cancelled = true;
            chat_cancel_all(s);
        }
        if (cancelled && now > drain_until + 5)
            return;
    }
}

/* Sends what is left of replies, a moment at most. */
static void flush_replies(struct server *s)
{
    double until = clock_now() + 2;
    while (s->calls > 0 && clock_now() < until)
        loop_run(s->loop, http_run(s->http) < 0.01 ? 0 : 0.01);
}

static void name_model(struct server *s)
{
    const char *path = s->c->model.path;
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    if (end - begin > 5 && !strncmp(path + end - 5, ".gguf", 5))
        end -= 5;
    snprintf(s->name, sizeof s->name, "%.*s", (int)(end - begin), path + begin);
    if (s->c->name)
        snprintf(s->name, sizeof s->name, "%s", s->c->name);
}

static enum pv_status open_server(struct server *s, struct pv_error *err)
{
    const struct serve_config *c = s->c;
    struct http_params p = { .host = c->host,
                             .port = c->port,
                             .max_connections = raise_descriptors(c->max_connections),
                             .head_seconds = c->client_seconds,
                             .stall_seconds = c->client_seconds,
                             .body_rate = BODY_RATE,
                             .stream_bytes = STREAM_BYTES,
                             .handler = route_handler,
                             .user = s };
    enum pv_status st = PV_OK;
    if (c->key_file)
        st = api_keys_open(&s->keys, c->key_file, err);
    if (!st)
        st = access_log_open(&s->log, c->access_log, err);
    if (!st)
        st = upload_store_open(&s->files, c->upload_dir, c->max_upload, c->max_files, err);
    if (!st && c->samples)
        upload_store_samples(s->files, c->samples);
    if (!st)
        st = loop_open(&s->loop, err);
    if (!st)
        st = workers_open(&s->light, s->loop, LIGHT_WORKERS, err);
    if (!st)
        st = workers_open(&s->heavy, s->loop, HEAVY_WORKERS, err);
    if (!st)
        st = http_open(&s->http, s->loop, &p, err);
    return st;
}

static void close_server(struct server *s)
{
    atomic_store(&s->closing, true);
    http_close(&s->http);
    workers_close(&s->light);
    workers_close(&s->heavy);
    /* Answers whose clients are gone by now end here. */
    while (s->chats && s->engine) {
        chat_cancel_all(s);
        loop_run(s->loop, 0.05);
    }
    if (s->loop)
        loop_run(s->loop, 0);
    pv_engine_close(&s->engine);
    pv_model_close(&s->draft);
    pv_model_close(&s->model);
    upload_store_close(&s->files);
    access_log_close(&s->log);
    api_keys_close(&s->keys);
    loop_close(&s->loop);
}

static void warn_of_strangers(const struct serve_config *c)
{
    if (!host_is_loopback(c->host) && !c->key_file)
        fprintf(stderr,
                "prevue: warning: listening on %s without --api-key-file: everybody who "
                "reaches this machine can use the model\n",
                c->host);
}

int serve_run(const struct serve_config *c)
{
    struct server s = { .c = c, .started = (int64_t)time(NULL) };
    struct loading l = { .s = &s, .work = { .run = load, .done = { .run = loaded } } };
    struct pv_error err = { 0 };
    int requests = c->engine.max_requests ? c->engine.max_requests : USUAL_REQUESTS;
    s.limits = media_limits(c);
    s.max_running = RUNNING_TIMES * requests;
    name_model(&s);
    catch_signals();
    json_memory_open(SERVER_BODIES * c->max_body);
    if (open_server(&s, &err) == PV_OK) {
        warn_of_strangers(c);
        workers_add(s.heavy, &l.work);
        run(&s, &err);
        flush_replies(&s);
        if (s.state == SERVER_FAILED) /* else the model may still be loading */
            err = l.err;
    }
    close_server(&s);
    if (err.code)
        fprintf(stderr, "prevue: %s\n", err.text);
    return err.code ? 1 : 0;
}
