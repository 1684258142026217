/* The stages of a chat completion. A worker parses its body; it waits, in order of arrival, until
 * the engine has a free slot; a worker decodes its media and submits its requests; then the engine
 * wakes the loop whenever there are new tokens, and the loop sends them. No thread waits for a
 * client or for the engine.
 *
 * A client may disconnect at any time. Then the requests are cancelled, which takes one step of the
 * model, and the object is freed when they have ended. */
#include "chat_call.h"

#include "base/clock.h"
#include "base/mem.h"
#include "unique_id.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { TEXT_LIMIT = 64 << 20, REPLY_LIMIT = 256 << 20 };
static const double keep_alive_s = 5;

#define CHOICE_BUFFERS(c)                                                                          \
    {                                                                                              \
        &(c)->text, &(c)->ids, &(c)->drafted, &(c)->lengths, &(c)->logprobs, &(c)->token_logprobs, \
            &(c)->tops, &(c)->offsets                                                              \
    }

static void pump(struct loop_task *t);
static void submitted(struct loop_task *t);
static void admit(struct server *s);

/* ---- opening and closing ---- */

static void free_chat(struct chat *ch)
{
    struct server *s = ch->s;
    for (int i = 0; i < CHAT_MAX_N; i++) {
        struct choice *c = &ch->choice[i];
        struct buf *all[] = CHOICE_BUFFERS(c);
        pv_request_close(&c->request);
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            buf_clear(all[k]);
    }
    loop_cancel(s->loop, &ch->wake);
    chat_request_clear(&ch->r);
    if (ch->next)
        ch->next->prev = ch->prev;
    *(ch->prev ? &ch->prev->next : &s->chats) = ch->next;
    call_release(ch->call);
    mem_free(ch);
}

static void release_slots(struct chat *ch)
{
    if (!ch->slots)
        return;
    ch->slots = false;
    ch->s->n_running -= ch->r.n;
    admit(ch->s);
}

static void leave_queue(struct chat *ch)
{
    struct server *s = ch->s;
    struct chat *before = NULL, *i;
    for (i = s->waiting; i && i != ch; i = i->next_waiting)
        before = i;
    if (!i)
        return;
    *(before ? &before->next_waiting : &s->waiting) = ch->next_waiting;
    s->last_waiting = s->last_waiting == ch ? before : s->last_waiting;
    s->n_waiting--;
}

/* The client has left. */
static void on_left(struct call *call)
{
    struct chat *ch = call->state;
    atomic_store(&ch->left, true);
    switch (ch->stage) {
    case CHAT_PARSES:
    case CHAT_SUBMITS:
        return; /* the worker comes back */
    case CHAT_WAITS:
        leave_queue(ch);
        free_chat(ch);
        return;
    case CHAT_RUNS:
        for (int i = 0; i < ch->r.n; i++)
            if (ch->choice[i].request)
                pv_request_cancel(ch->choice[i].request);
        return; /* their ends come by pump */
    case CHAT_OVER:
        free_chat(ch);
    }
}

/* ---- replies ---- */

/* The reply is complete, or has become impossible. */
static void finish(struct chat *ch)
{
    ch->stage = CHAT_OVER;
    if (!ch->call->x)
        free_chat(ch);
}

static void start_stream(struct chat *ch)
{
    if (ch->streaming || !ch->call->x)
        return;
    ch->streaming = true;
    call_headers(ch->call);
    exchange_set(ch->call->x, "Cache-Control", "no-cache");
    exchange_set(ch->call->x, "X-Accel-Buffering", "no"); /* nginx: pass it on at once */
    exchange_stream(ch->call->x, 200, "text/event-stream; charset=utf-8");
}

static void send(struct chat *ch, const struct buf *b)
{
    if (!ch->call->x)
        return;
    start_stream(ch);
    ch->wrote = clock_now();
    if (!b->failed)
        exchange_write(ch->call->x, b->data ? b->data : "", b->len);
    else
        exchange_drop(ch->call->x);
}

static void send_error(struct chat *ch)
{
    struct buf b;
    struct call *c = ch->call;
    metrics_failed(&ch->s->metrics);
    if (!ch->streaming) {
        call_fail(c, &ch->error);
        return;
    }
    snprintf(c->line.error, sizeof c->line.error, "%s", ch->error.message);
    buf_init(&b, REPLY_LIMIT);
    buf_puts(&b, "data: ");
    api_error_json(&b, &ch->error);
    buf_puts(&b, "\n\ndata: [DONE]\n\n");
    send(ch, &b);
    buf_clear(&b);
    if (c->x)
        exchange_end(c->x);
}

/* A comment in the stream: clients and proxies see that somebody is there. */
static void keep_alive(struct chat *ch)
{
    static const char *const phases[] = { "video", "prefill", "draft_prefill" };
    struct buf b;
    buf_init(&b, 4096);
    if (ch->r.progress && ch->has_progress)
        buf_printf(&b, ": {\"phase\":\"%s\",\"done\":%lld,\"total\":%lld}\n\n",
                   phases[ch->progress.phase], (long long)ch->progress.done,
                   (long long)ch->progress.total);
    else
        buf_puts(&b, ": keep-alive\n\n");
    ch->has_progress = false;
    send(ch, &b);
    buf_clear(&b);
}

void chat_tick(struct server *s, double now)
{
    for (struct chat *ch = s->chats, *next; ch; ch = next) {
        next = ch->next;
        if (ch->call->x && ch->r.stream && ch->stage > CHAT_PARSES && ch->stage < CHAT_OVER &&
            now - ch->wrote > keep_alive_s)
            keep_alive(ch);
    }
}

/* ---- events ---- */

static void note_tokens(struct chat *ch, double now)
{
    struct metrics *m = &ch->s->metrics;
    if (ch->first_token == 0) {
        ch->first_token = now;
        metrics_first_token(m, now - ch->begun);
        ch->call->line.first_token_s = now - ch->begun;
    } else {
        metrics_interval(m, now - ch->last_token);
    }
    ch->last_token = now;
}

static void note_end(struct chat *ch, struct choice *c, const struct pv_event *e)
{
    c->ended = true;
    c->finish = e->finish;
    c->status = e->status;
    c->stats = (struct pv_stats){ .size = sizeof c->stats };
    pv_request_stats(c->request, &c->stats);
    metrics_answer(&ch->s->metrics, &c->stats, e->finish);
    if (e->finish == PV_FINISH_ERROR)
        api_fail_status(&ch->error, e->status, NULL, e->message);
    if (e->finish == PV_FINISH_CANCELLED && ch->call->x)
        api_fail(&ch->error, 503, NULL, "the server is shutting down");
}

/* All events there are of one answer; whether there were any that count. */
static bool take_events(struct chat *ch, struct choice *c)
{
    struct pv_event e;
    bool any = false;
    while (!c->ended && c->request && pv_request_next(c->request, &e, 0)) {
        if (e.kind == PV_EVENT_PROGRESS) {
            ch->progress = e;
            ch->has_progress = true;
            continue;
        }
        any = true;
        if (e.kind == PV_EVENT_TEXT)
            chat_note_token(ch, c, &e);
        else
            note_end(ch, c, &e);
    }
    return any;
}

static void send_whole(struct chat *ch)
{
    struct buf b;
    buf_init(&b, REPLY_LIMIT);
    chat_reply_whole(ch, &b);
    call_json(ch->call, 200, &b);
    buf_clear(&b);
}

static void end_stream(struct chat *ch)
{
    struct buf b;
    buf_init(&b, REPLY_LIMIT);
    if (ch->r.include_usage)
        chat_reply_usage(ch, &b);
    buf_puts(&b, "data: [DONE]\n\n");
    send(ch, &b);
    buf_clear(&b);
    if (ch->call->x)
        exchange_end(ch->call->x);
}

static void note_line(struct chat *ch)
{
    struct log_line *l = &ch->call->line;
    const struct choice *c = &ch->choice[0];
    l->finish = chat_finish_name(c->finish);
    l->method = pv_method_name(0);
    for (int i = 0; pv_method_name(i); i++)
        if (!strcmp(pv_method_name(i), ch->r.method.name))
            l->method = pv_method_name(i);
    l->prompt_tokens = c->stats.prompt_tokens;
    l->completion_tokens = 0;
    for (int i = 0; i < ch->r.n; i++)
        l->completion_tokens += ch->choice[i].tokens;
}

/* All answers have ended. */
static void end(struct chat *ch)
{
    note_line(ch);
    release_slots(ch);
    if (!ch->call->x) {
        free_chat(ch);
        return;
    }
    if (ch->error.status)
        send_error(ch);
    else if (ch->r.stream)
        end_stream(ch);
    else
        send_whole(ch);
    finish(ch);
}

static void pump(struct loop_task *t)
{
    struct chat *ch = (struct chat *)((char *)t - offsetof(struct chat, wake));
    bool all = true;
    if (ch->stage != CHAT_RUNS)
        return; /* it is not attached yet; `submitted` looks */
    for (int i = 0; i < ch->r.n; i++) {
        struct choice *c = &ch->choice[i];
        int64_t before = c->tokens;
        bool any = take_events(ch, c);
        if (c->tokens > before)
            note_tokens(ch, clock_now());
        all = all && (c->ended || !c->request);
        if (any && ch->r.stream && ch->call->x && !ch->error.status) {
            struct buf b;
            buf_init(&b, REPLY_LIMIT);
            chat_reply_chunk(ch, i, c->ended, &b);
            send(ch, &b);
            buf_clear(&b);
        }
    }
    if (ch->has_progress && ch->r.stream && ch->r.progress && ch->call->x &&
        clock_now() - ch->wrote > 0.1)
        keep_alive(ch);
    if (all)
        end(ch);
}

/* ---- stages ---- */

/* A worker has submitted the requests, or could not. */
static void submitted(struct loop_task *t)
{
    struct chat *ch = (struct chat *)((char *)t - offsetof(struct chat, work.done));
    bool any = false;
    ch->stage = CHAT_RUNS;
    ch->submitted = clock_now();
    call_drop_body(ch->call);
    for (int i = 0; i < ch->r.n; i++) {
        any = any || ch->choice[i].request;
        if (ch->choice[i].request && (ch->error.status || !ch->call->x))
            pv_request_cancel(ch->choice[i].request);
    }
    if (any) {
        pump(&ch->wake);
        return;
    }
    release_slots(ch);
    if (ch->call->x)
        send_error(ch);
    finish(ch);
}

static void run_submit(struct work *w)
{
    chat_submit((struct chat *)((char *)w - offsetof(struct chat, work)));
}

/* As many as the engine takes at once, and as many again, so that it never waits for us. */
static void admit(struct server *s)
{
    while (s->waiting && s->n_running < s->max_running) {
        struct chat *ch = s->waiting;
        leave_queue(ch);
        ch->slots = true;
        s->n_running += ch->r.n;
        ch->stage = CHAT_SUBMITS;
        ch->call->line.queue_s = clock_now() - ch->begun;
        metrics_queue(&s->metrics, clock_now() - ch->begun);
        ch->work.run = run_submit;
        ch->work.done.run = submitted;
        workers_add(ch->r.n_media ? s->heavy : s->light, &ch->work);
    }
}

/* A worker has read the body, which is still counted: the text and media in it are in memory. */
static void parsed(struct loop_task *t)
{
    struct chat *ch = (struct chat *)((char *)t - offsetof(struct chat, work.done));
    struct server *s = ch->s;
    ch->stage = CHAT_WAITS;
    if (!ch->call->x) {
        free_chat(ch);
        return;
    }
    if (!ch->error.status && s->n_waiting >= s->c->max_queue)
        api_fail(&ch->error, 503, NULL, "%d requests wait already: try again soon", s->n_waiting);
    if (ch->error.status) {
        send_error(ch);
        finish(ch);
        return;
    }
    if (s->c->log_prompts)
        ch->call->line.prompt = chat_request_text(&ch->r);
    ch->next_waiting = NULL;
    *(s->last_waiting ? &s->last_waiting->next_waiting : &s->waiting) = ch;
    s->last_waiting = ch;
    s->n_waiting++;
    admit(s);
}

static void run_parse(struct work *w)
{
    struct chat *ch = (struct chat *)((char *)w - offsetof(struct chat, work));
    chat_request_read(&ch->r, &ch->call->body, ch->r.chat, &ch->rules, &ch->error);
}

static void start(struct call *call, bool chat)
{
    struct server *s = call->s;
    struct chat *ch = mem_zalloc(sizeof *ch);
    struct api_error e = { 0 };
    if (!ch) {
        api_fail(&e, 503, NULL, "out of memory for a request");
        call_fail(call, &e);
        return;
    }
    ch->s = s;
    ch->call = call;
    ch->begun = ch->wrote = clock_now();
    ch->created = (int64_t)time(NULL);
    make_id(ch->id, sizeof ch->id, chat ? "chatcmpl-" : "cmpl-");
    atomic_init(&ch->left, false);
    ch->rules = (struct chat_rules){
        .media = { .media_path = s->c->media_path,
                   .domains = s->c->domains,
                   .n_domains = s->c->n_domains,
                   .limit = s->limits.video_bytes,
                   .files = s->files },
        .model = s->name,
        .method = &s->c->method,
        .limits = &s->limits,
        .sandbox = s->c->sandbox,
        .max_tokens = s->c->max_tokens ? s->c->max_tokens : s->context,
        .has_draft = s->draft != NULL,
        .has_head = pv_model_has_head(s->model),
        .hears = pv_model_has_audio(s->model),
    };
    for (int i = 0; i < CHAT_MAX_N; i++) {
        struct buf *all[] = CHOICE_BUFFERS(&ch->choice[i]);
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            buf_init(all[k], TEXT_LIMIT);
    }
    ch->r.chat = chat;
    ch->wake.run = pump;
    ch->work.run = run_parse;
    ch->work.done.run = parsed;
    ch->next = s->chats;
    if (s->chats)
        s->chats->prev = ch;
    s->chats = ch;
    call->pending = true;
    call->left = on_left;
    call->state = ch;
    workers_add(s->light, &ch->work);
}

void route_chat(struct call *c)
{
    start(c, true);
}

void route_completions(struct call *c)
{
    start(c, false);
}

void chat_cancel_all(struct server *s)
{
    for (struct chat *ch = s->chats; ch; ch = ch->next)
        for (int i = 0; i < CHAT_MAX_N; i++)
            if (ch->stage == CHAT_RUNS && ch->choice[i].request)
                pv_request_cancel(ch->choice[i].request);
}
