/* Requests. The caller's thread reads the prompt into a session of its own; a task of the engine
 * makes the answer and puts events into a list under a lock, from which the caller takes them. */
#include "engine/request.h"

#include "engine/generate.h"
#include "engine/session_task.h"
#include "engine/stop_text.h"
#include "engine/view_map.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sized.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum { MAX_TOP = 20, TEXT_LIMIT = 1 << 20, MESSAGE_LIMIT = 64 << 20 };

struct event_node {
    struct event_node *next;
    struct pv_event event;
    struct pv_logprob top[MAX_TOP];
    char text[]; /* event.text */
};

struct pv_request {
    struct pv_session *s;
    struct task *task;
    struct pv_gen_params gen;
    struct pv_method method; /* gen.method, if there is one */
    struct stop_text stop;
    int top_logprobs;
    struct buf text;
    /* Logits of the tokens that are reported next. */
    const float *logits[TREE_MAX + 1];
    int token;            /* index in the answer of the token reported next */
    bool failed;          /* no memory for an event */
    bool full;            /* the answer ended because the context is full */
    pthread_mutex_t lock; /* protects the list */
    pthread_cond_t more;
    struct event_node *first, *last, *taken;
    struct event_node *end; /* the END event, allocated early so that it cannot fail */
    bool ended;             /* the caller has taken END */
    void (*notify)(void *user);
    void *notify_user;
    struct view_copy view; /* pv_request_view */
};

void pv_request_params_init(struct pv_request_params *p, size_t size)
{
    static const struct pv_request_params usual = { .top_logprobs = -1 };
    sized_init(p, size, &usual, sizeof usual);
}

/* ---- events ---- */

static void push(struct pv_request *r, struct event_node *node)
{
    pthread_mutex_lock(&r->lock);
    *(r->last ? &r->last->next : &r->first) = node;
    r->last = node;
    pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
    if (r->notify)
        r->notify(r->notify_user);
}

static struct event_node *new_event(enum pv_event_kind kind, const char *text, size_t len)
{
    struct event_node *n = mem_zalloc(sizeof *n + len + 1);
    if (!n)
        return NULL;
    n->event = (struct pv_event){
        .kind = kind, .text = n->text, .len = len, .message = "", .token = { .id = -1 }, .stop = -1
    };
    if (len > 0)
        memcpy(n->text, text, len);
    return n;
}

/* A newer progress event replaces one that the caller has not taken yet. */
static bool tell_progress(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    struct pv_request *r = user;
    struct event_node *n;
    bool updated = false;
    pthread_mutex_lock(&r->lock);
    if (r->last && r->last->event.kind == PV_EVENT_PROGRESS) {
        r->last->event.phase = phase;
        r->last->event.done = done;
        r->last->event.total = total;
        updated = true;
    }
    pthread_mutex_unlock(&r->lock);
    n = updated ? NULL : new_event(PV_EVENT_PROGRESS, "", 0);
    if (n) { /* dropped if there is no memory */
        n->event.phase = phase;
        n->event.done = done;
        n->event.total = total;
        push(r, n);
    }
    return true;
}

static void keep_logits(void *user, int token, const float *logits)
{
    struct pv_request *r = user;
    if (token >= r->token && token - r->token <= TREE_MAX)
        r->logits[token % (TREE_MAX + 1)] = logits;
}

/* Add the log-probabilities of the token and of the most likely ones. */
static void add_logprobs(struct pv_request *r, struct event_node *n)
{
    const float *x = r->logits[r->token % (TREE_MAX + 1)];
    int vocab = pv_model_vocab_size(r->s->model), k = r->top_logprobs, held = 0;
    double max = -INFINITY, sum = 0, log_sum;
    for (int i = 0; i < vocab; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < vocab; i++) {
        sum += exp(x[i] - max);
        if (k == 0 || (held == k && !(x[i] > n->top[held - 1].logprob)))
            continue;
        int at = held < k ? held++ : held - 1;
        for (; at > 0 && x[i] > n->top[at - 1].logprob; at--)
            n->top[at] = n->top[at - 1];
        n->top[at] = (struct pv_logprob){ i, x[i] };
    }
    log_sum = max + log(sum);
    for (int i = 0; i < held; i++)
        n->top[i].logprob = (float)(n->top[i].logprob - log_sum);
    n->event.token.logprob = (float)(x[n->event.token.id] - log_sum);
    n->event.token.n_top = held;
    n->event.token.top = n->top;
}

static bool tell_token(void *user, const struct answer_token *t)
{
    struct pv_request *r = user;
    struct event_node *n = NULL;
    buf_reset(&r->text);
    if (stop_text_push(&r->stop, t->text, t->len, t->id < 0, &r->text))
        n = new_event(PV_EVENT_TEXT, r->text.data, r->text.len);
    if (!n) {
        r->failed = true;
        return false;
    }
    n->event.token = (struct pv_token){ .id = t->id, .drafted = t->drafted };
    if (t->id >= 0 && r->top_logprobs >= 0)
        add_logprobs(r, n);
    r->token += t->id >= 0;
    push(r, n);
    return r->stop.found < 0;
}

static enum pv_finish finish_of(const struct pv_request *r, enum pv_status st)
{
    if (r->stop.found >= 0)
        return PV_FINISH_STOP_STRING;
    if (st == PV_E_CANCELLED && !r->failed)
        return PV_FINISH_CANCELLED;
    if (st)
        return PV_FINISH_ERROR;
    return r->full || r->token >= r->gen.max_new_tokens ? PV_FINISH_LENGTH : PV_FINISH_STOP;
}

/* ---- the task ---- */

static enum pv_status run_request(void *arg, struct pv_error *err)
{
    struct pv_request *r = arg;
    struct pv_session *s = r->s;
    int room = s->seq.line.context - s->seq.line.n; /* includes what the template adds */
    enum pv_status st;
    if (r->gen.max_new_tokens > room && room > 0)
        r->gen.max_new_tokens = room;
    if (r->top_logprobs >= 0)
        s->observer = (struct logits_observer){ keep_logits, r };
    else if (r->gen.on_logits)
        s->observer = (struct logits_observer){ r->gen.on_logits, r->gen.logits_user };
    st = generate_answer(s, &r->gen, tell_token, r, err);
    if (st == PV_E_CANCELLED && r->stop.found >= 0) {
        *err = (struct pv_error){ 0 };
        return PV_OK;
    }
    if (r->failed)
        return fail(err, PV_E_NOMEM, "out of memory for an event of the request");
    r->full = st == PV_E_LIMIT && r->token > 0 && s->seq.line.n >= s->seq.line.context;
    if (r->full) {
        *err = (struct pv_error){ 0 };
        return PV_OK;
    }
    return st;
}

/* The end is reported when the pages have been returned and nothing of the request runs any more.
 */
static void end_request(void *arg, enum pv_status st, const struct pv_error *err)
{
    struct pv_request *r = arg;
    struct event_node *n = r->end;
    memcpy(n->text, err->text, sizeof err->text);
    n->event.finish = finish_of(r, st);
    n->event.status = st;
    n->event.message = n->text;
    n->event.stop = r->stop.found;
    r->end = NULL;
    push(r, n);
}

/* ---- the prompt ---- */

static enum pv_status add_part(struct pv_session *s, const struct pv_part *part,
                               struct pv_error *err)
{
    struct pv_video_params usual = pv_video_defaults();
    const struct pv_video_params *p = part->video ? part->video : &usual;
    if (part->path)
        return pv_add_video(s, part->path, p, NULL, err);
    if (part->data || part->data_size > 0)
        return pv_add_video_data(s, part->data, part->data_size, p, NULL, err);
    if (part->frames)
        return pv_add_frames(s, part->frames, part->n_frames, part->fps, p, err);
    return fail(err, PV_E_ARG, "a part of a message has neither text nor a video or picture");
}

static enum pv_status add_message(struct pv_session *s, const struct pv_message *m,
                                  struct pv_error *err)
{
    struct buf text;
    enum pv_status st = PV_OK;
    buf_init(&text, MESSAGE_LIMIT);
    if (!m->role)
        return fail(err, PV_E_ARG, "a message has no role");
    for (size_t i = 0; i < m->n_parts && !st; i++) {
        if (m->parts[i].text)
            buf_puts(&text, m->parts[i].text);
        else
            st = add_part(s, &m->parts[i], err);
    }
    if (!st && text.failed)
        st = fail(err, PV_E_LIMIT, "a message of more than %d bytes", MESSAGE_LIMIT);
    if (!st)
        st = pv_add_text(s, m->role, text.data ? text.data : "", err);
    buf_clear(&text);
    return st;
}

static enum pv_status check(const struct pv_request_params *p, struct pv_error *err)
{
    if ((p->n_messages > 0) == (p->n_ids > 0))
        return fail(err, PV_E_ARG, "a request needs messages or token ids, and not both");
    if (p->top_logprobs < -1 || p->top_logprobs > MAX_TOP)
        return fail(err, PV_E_ARG,
                    "log-probabilities of %d tokens were asked for, 0 to %d are possible",
                    p->top_logprobs, MAX_TOP);
    return PV_OK;
}

static enum pv_status fill(struct pv_request *r, const struct pv_request_params *p,
                           struct pv_error *err)
{
    enum pv_status s = generate_read(&r->gen, &r->method, p->gen, err);
    if (!s && r->gen.max_new_tokens < 1)
        s = fail(err, PV_E_ARG, "%d new tokens were asked for, at least 1 is possible",
                 r->gen.max_new_tokens);
    if (!s)
        s = stop_text_open(&r->stop, p->stop, p->n_stop, err);
    r->top_logprobs = p->top_logprobs;
    r->notify = p->notify;
    r->notify_user = p->notify_user;
    r->gen.progress = tell_progress;
    r->gen.progress_user = r;
    if (!s && p->chat)
        s = pv_session_chat(r->s, p->chat, err);
    for (size_t i = 0; i < p->n_messages && !s; i++)
        s = add_message(r->s, &p->messages[i], err);
    if (!s && p->n_ids > 0)
        s = pv_add_ids(r->s, p->ids, p->n_ids, err);
    if (!s && r->s->seq.line.n >= r->s->seq.line.context)
        s = fail(err, PV_E_LIMIT, "a prompt of %d tokens leaves no room in a context of %d",
                 r->s->seq.line.n, r->s->seq.line.context);
    return s;
}

static enum pv_status submit(struct pv_request *r, struct pv_error *err)
{
    struct session_call call = { .run = run_request, .ended = end_request, .arg = r };
    struct pv_error none = { .text = { 0 } };
    r->end = new_event(PV_EVENT_END, none.text, sizeof none.text);
    if (!r->end)
        return fail_nomem(err, sizeof *r->end + sizeof none.text);
    r->end->event.len = 0;
    return session_submit(r->s, &r->task, &call, err);
}

enum pv_status pv_request_submit(pv_request **out, pv_engine *engine,
                                 const struct pv_request_params *params, struct pv_error *err)
{
    struct pv_request_params own = pv_request_defaults(), *p = &own;
    struct pv_request *r;
    enum pv_status s = sized_read(p, sizeof *p, params, "a request", err);
    if (!s)
        s = check(p, err);
    if (s)
        return s;
    r = mem_zalloc(sizeof *r);
    if (!r)
        return fail_nomem(err, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    buf_init(&r->text, TEXT_LIMIT);
    r->stop.found = -1;
    s = pv_engine_session(&r->s, engine, err);
    if (!s)
        s = fill(r, p, err);
    if (!s)
        s = submit(r, err);
    if (s) {
        pv_request_close(&r);
        return s;
    }
    *out = r;
    return PV_OK;
}

/* ---- the caller ---- */

static struct timespec after(double seconds)
{
    struct timespec t;
    double whole;
    clock_gettime(CLOCK_REALTIME, &t);
    seconds = modf(seconds < 1e9 ? seconds : 1e9, &whole);
    t.tv_sec += (time_t)whole;
    t.tv_nsec += (long)(1e9 * seconds);
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

bool pv_request_next(pv_request *r, struct pv_event *out, double seconds)
{
    struct timespec until = after(seconds > 0 ? seconds : 0);
    struct event_node *n;
    int rc = 0;
    pthread_mutex_lock(&r->lock);
    while (!r->first && !r->ended && rc != ETIMEDOUT)
        rc = seconds < 0 ? pthread_cond_wait(&r->more, &r->lock)
                         : pthread_cond_timedwait(&r->more, &r->lock, &until);
    n = r->first;
    if (n) {
        mem_free(r->taken);
        r->taken = n;
        r->first = n->next;
        r->last = r->first ? r->last : NULL;
        r->ended = n->event.kind == PV_EVENT_END;
        *out = n->event;
    }
    pthread_mutex_unlock(&r->lock);
    return n != NULL;
}

void pv_request_cancel(pv_request *r)
{
    task_cancel(r->task);
}

enum pv_status pv_request_wait(pv_request *r, struct pv_error *err)
{
    return task_wait(r->task, err);
}

struct pv_session *request_session(const struct pv_request *r)
{
    return r->s;
}

struct task *request_task(const struct pv_request *r)
{
    return r->task;
}

void pv_request_stats(const pv_request *r, struct pv_stats *out)
{
    pv_session_stats(r->s, out);
}

const struct pv_span *pv_request_spans(const pv_request *r, size_t *n)
{
    return pv_session_spans(r->s, n);
}

enum pv_status pv_request_view(pv_request *r, struct pv_view_map *out, struct pv_error *err)
{
    return view_of_answer(r->s, &r->view, out, err);
}

void pv_request_close(pv_request **request)
{
    struct pv_request *r = *request;
    if (!r)
        return;
    if (r->task)
        task_cancel(r->task);
    task_close(&r->task);
    pv_session_close(&r->s);
    while (r->first) {
        struct event_node *n = r->first;
        r->first = n->next;
        mem_free(n);
    }
    mem_free(r->taken);
    mem_free(r->end);
    stop_text_close(&r->stop);
    buf_clear(&r->text);
    view_copy_clear(&r->view);
    pthread_cond_destroy(&r->more);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
    *request = NULL;
}

void pv_engine_stats(pv_engine *e, struct pv_engine_counts *out)
{
    struct scheduler_counts c = scheduler_counts(e->scheduler);
    struct kvpool_counts k = kvpool_counts(e->pool);
    struct disk_cache_counts d = { .damaged = 0 };
    if (e->disk.cache)
        d = disk_cache_counts(e->disk.cache);
    struct pv_engine_counts all = { .size = out->size,
                                    .running = c.running,
                                    .queued = c.queued,
                                    .steps = c.steps,
                                    .rows = c.rows,
                                    .draft_steps = c.draft_steps,
                                    .preemptions = c.preemptions,
                                    .pages = k.pages,
                                    .pages_used = k.used,
                                    .pages_cached = k.cached,
                                    .page_hits = k.hits,
                                    .pages_evicted = k.evicted,
                                    .disk_files = d.found[DISK_MEDIA],
                                    .disk_rows = d.found[DISK_ROWS],
                                    .disk_pages = d.found[DISK_PAGE],
                                    .disk_damaged = d.damaged,
                                    .media_decoded = atomic_load(&e->decoded),
                                    .media_found = atomic_load(&e->media_hits) };
    sized_write(out, &all, sizeof all);
}
