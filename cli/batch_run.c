/* A worker takes the next clip, submits all its questions at once (the engine prefills the video
 * once for all of them), and appends one line when the last is answered. A clip that cannot be read
 * or answered gives a line with an error. */
#include "batch_run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "clips.h"
#include "command.h"
#include "jsonl.h"
#include "progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const double LOOK = 0.1; /* seconds between looks at interrupts */

struct work {
    const struct batch_run *b;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t change;
    int next, running;
    struct batch_counts counts;
};

/* One question about a clip. */
struct question {
    const char *text;
    pv_request *request;
    struct buf answer;
    struct pv_event last;
    bool told, ended; /* its first word has come, its end */
    int64_t tokens, frames, lost;
};

static bool go_on(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    (void)user, (void)phase, (void)done, (void)total;
    return !interrupted();
}

static const char *finish_name(enum pv_finish f)
{
    return f == PV_FINISH_LENGTH ? "length" : "stop";
}

static bool is_picture(const char *path)
{
    static const char *const endings[] = {
        ".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"
    };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (path_ends(path, endings[i]))
            return true;
    return false;
}

/* ---- one clip ---- */

static enum pv_status submit(const struct batch_run *b, const char *path, struct question *q,
                             struct pv_error *err)
{
    struct pv_video_params video = *b->video;
    struct pv_part system = { .text = b->system };
    struct pv_part parts[] = { { .path = path, .video = &video }, { .text = q->text } };
    struct pv_message messages[2], *m = messages;
    struct pv_chat_options chat = pv_chat_defaults();
    struct pv_request_params p = pv_request_defaults();
    if (b->system)
        *m++ = (struct pv_message){ .role = "system", .parts = &system, .n_parts = 1 };
    *m++ = (struct pv_message){ .role = "user", .parts = parts, .n_parts = 2 };
    video.progress = go_on;
    chat.no_thinking = b->no_thinking;
    p.messages = messages;
    p.n_messages = (size_t)(m - messages);
    p.chat = &chat;
    p.gen = b->gen;
    return pv_request_submit(&q->request, b->engine, &p, err);
}

/* Takes an event; false: none came for a while. */
static bool take_event(struct question *q, struct pv_event *e)
{
    if (!pv_request_next(q->request, e, LOOK)) {
        if (interrupted())
            pv_request_cancel(q->request);
        return false;
    }
    if (e->kind == PV_EVENT_TEXT)
        buf_add(&q->answer, e->text, e->len);
    q->ended = e->kind == PV_EVENT_END;
    q->told = q->told || q->ended || e->kind == PV_EVENT_TEXT;
    return true;
}

/* Gathers the text until the request has ended. */
static enum pv_status collect(struct question *q, struct pv_error *err)
{
    struct pv_stats stats = { .size = sizeof stats };
    while (!q->ended)
        take_event(q, &q->last);
    if (q->last.status)
        return fail(err, q->last.status, "%s", q->last.message);
    pv_request_stats(q->request, &stats);
    q->tokens = stats.tokens;
    q->frames = stats.frames;
    q->lost = stats.lost_frames;
    return q->answer.failed ? fail(err, PV_E_NOMEM, "out of memory for the answer") : PV_OK;
}

/* The first question reads the video; the others begin when it has, and find what it has read. */
static enum pv_status ask_all(const struct batch_run *b, const char *path, struct question *q,
                              int n, struct pv_error *err)
{
    enum pv_status s = submit(b, path, &q[0], err);
    while (!s && n > 1 && !q[0].told)
        take_event(&q[0], &q[0].last);
    for (int i = 1; i < n && !s; i++)
        s = submit(b, path, &q[i], err);
    for (int i = 0; i < n && !s; i++)
        s = collect(&q[i], err);
    for (int i = 0; i < n; i++)
        pv_request_close(&q[i].request);
    return s;
}

static void add_string(struct buf *out, const char *name, const char *text, size_t len)
{
    buf_printf(out, ",\"%s\":", name);
    buf_json(out, text, len);
}

static void add_answers(struct buf *out, const struct question *q, int n)
{
    buf_printf(out, ",\"frames\":%lld", (long long)q->frames);
    if (q->lost > 0)
        buf_printf(out, ",\"lost_frames\":%lld", (long long)q->lost);
    buf_puts(out, ",\"answers\":[");
    for (int i = 0; i < n; i++) {
        buf_puts(out, i ? ",{\"question\":" : "{\"question\":");
        buf_json(out, q[i].text, strlen(q[i].text));
        add_string(out, "text", q[i].answer.data ? q[i].answer.data : "", q[i].answer.len);
        buf_printf(out, ",\"tokens\":%lld,\"finish\":\"%s\"}", (long long)q[i].tokens,
                   finish_name(q[i].last.finish));
    }
    buf_puts(out, "]");
}

/* The questions of a line, in fresh memory (mem_free); NULL: out of memory. */
static struct question *list_questions(const struct batch_run *b, const struct jsonl_line *l,
                                       int *n)
{
    const char *at = l->questions.data;
    struct question *q;
    *n = l->n_questions > 0 ? l->n_questions : 1;
    q = mem_zalloc((size_t)*n * sizeof *q);
    for (int i = 0; q && i < *n; i++) {
        buf_init(&q[i].answer, MAX_TEXT);
        if (l->n_questions > 0) {
            q[i].text = at;
            at += strlen(at) + 1;
        } else if (l->prompt.len > 0) {
            q[i].text = l->prompt.data;
        } else if (b->prompt) {
            q[i].text = b->prompt;
        } else {
            q[i].text =
                is_picture(l->video.data) ? "Describe this picture." : "Describe this video.";
        }
    }
    return q;
}

/* The members of the clip's line, behind its number: an error comes first. False: interrupted. */
static bool answer_clip(const struct batch_run *b, int i, struct buf *out, int64_t *tokens,
                        bool *failed)
{
    struct pv_error err = { 0 };
    struct jsonl_line l;
    struct question *q = NULL;
    const char *wrong;
    char *path = NULL;
    int n = 0;
    jsonl_init(&l);
    wrong = jsonl_read(b->list->text.data + b->list->at[i], (size_t)b->list->len[i], &l);
    if (!wrong && l.video.len == 0)
        wrong = "\"video\" is empty";
    if (!wrong) {
        path = clips_place(b->list->path, l.video.data);
        q = list_questions(b, &l, &n);
        wrong = path && q ? NULL : "out of memory";
    }
    if (wrong)
        fail(&err, PV_E_FORMAT, "%s: line %d: %s", b->list->path, b->list->number[i], wrong);
    else if (ask_all(b, path, q, n, &err) && err.code != PV_E_CANCELLED)
        fail_names(&err, path);
    *failed = err.code != PV_OK;
    if (*failed)
        add_string(out, "error", err.text, strlen(err.text));
    if (l.id.len > 0)
        add_string(out, "id", l.id.data, l.id.len);
    if (l.video.len > 0)
        add_string(out, "video", l.video.data, l.video.len);
    if (!*failed && b->gen->method && b->gen->method->lossy)
        add_string(out, "lossy", b->gen->method->lossy, strlen(b->gen->method->lossy));
    if (!*failed)
        add_answers(out, q, n);
    for (int k = 0; k < n && q; k++) {
        *tokens += q[k].tokens;
        buf_clear(&q[k].answer);
    }
    mem_free(q);
    mem_free(path);
    jsonl_clear(&l);
    return err.code != PV_E_CANCELLED;
}

/* ---- all of them ---- */

/* The next clip; -1: there is none. */
static int take_clip(struct work *w)
{
    int i;
    pthread_mutex_lock(&w->lock);
    while (w->next < w->b->list->n && w->b->skip[w->next])
        w->next++;
    i = w->next < w->b->list->n && !interrupted() && !w->b->out->failed ? w->next++ : -1;
    pthread_mutex_unlock(&w->lock);
    return i;
}

static void count_clip(struct work *w, bool failed, int64_t tokens)
{
    pthread_mutex_lock(&w->lock);
    w->counts.answered += !failed;
    w->counts.failed += failed;
    w->counts.tokens += tokens;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
}

static void *work(void *arg)
{
    struct work *w = arg;
    for (int i = take_clip(w); i >= 0; i = take_clip(w)) {
        struct buf line;
        int64_t tokens = 0;
        bool failed;
        buf_init(&line, MAX_TEXT);
        if (answer_clip(w->b, i, &line, &tokens, &failed) &&
            batch_output_add(w->b->out, w->b->list, i, &line))
            count_clip(w, failed, tokens);
        buf_clear(&line);
    }
    pthread_mutex_lock(&w->lock);
    w->running--;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void show(struct progress *p, const struct batch_counts *c, double seconds)
{
    int done = c->answered + c->failed;
    char left[64] = "";
    if (done > 0) {
        double s = seconds / done * (c->wanted - done);
        if (s < 100)
            snprintf(left, sizeof left, ", %.0f s left", s);
        else
            snprintf(left, sizeof left, ", %.0f min left", s / 60);
    }
    progress_say(p, "%d of %d clips, %d failed, %.2f clips/s%s", done, c->wanted, c->failed,
                 seconds > 0 ? done / seconds : 0, left);
}

/* Until all workers have ended. */
static void watch(struct work *w, double begin)
{
    struct progress progress;
    progress_init(&progress);
    pthread_mutex_lock(&w->lock);
    while (w->running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&w->change, &w->lock, &until);
        show(&progress, &w->counts, clock_now() - begin);
    }
    pthread_mutex_unlock(&w->lock);
    progress_clear(&progress);
}

void batch_answer_all(const struct batch_run *b, struct batch_counts *counts)
{
    struct work w = { .b = b };
    pthread_t *thread = mem_alloc((size_t)b->jobs * sizeof *thread);
    double begin = clock_now();
    int n = 0;
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.change, NULL);
    for (int i = 0; i < b->list->n; i++)
        w.counts.wanted += !b->skip[i];
    w.running = b->jobs;
    while (thread && n < b->jobs && thread_start(&thread[n], work, &w))
        n++;
    pthread_mutex_lock(&w.lock);
    w.running -= b->jobs - n;
    pthread_mutex_unlock(&w.lock);
    if (n == 0)
        report("no thread could be started");
    watch(&w, begin);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    mem_free(thread);
    *counts = w.counts;
    counts->seconds = clock_now() - begin;
    pthread_cond_destroy(&w.change);
    pthread_mutex_destroy(&w.lock);
}
