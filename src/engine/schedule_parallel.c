/* The parallel schedule (PEARL; with their views HIPPO and ParallelVLM): the drafter generates
 * tokens on its own thread, ahead of the target, which verifies the tokens drafted before.
 *
 * The drafter's thread appends one token after another to the newest epoch of the ring and knows
 * nothing about rounds; the ring's limit, the window, is how far it may run ahead. The target's
 * thread takes the window that is ready and verifies it; meanwhile the next one is drafted. If all
 * of it and the first token of the next window were right, the rest of that window is pending. If
 * not, a new epoch begins after the last emitted token, and what the drafter was generating is
 * discarded. A draft head is cheap compared with a pass of the target, so then the target waits for
 * a window from it instead of running a single row.
 *
 * The drafter reads the verified answer from the timeline itself, which only grows; an epoch says
 * how far to read. The drafter begins with the prompt's last token, so that it can draft before the
 * first token of the answer is known: the prefill's own logits verify that one. A draft head begins
 * after the prefill, with the first token of the answer. It also reads the target's hidden states
 * (lm/states.h), which grow at the end of each of the target's rounds. */
#include "engine/schedule.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/ring.h"
#include "base/thread.h"
#include "engine/draft_ahead.h"
#include "engine/draft_read.h"
#include "engine/media_rows.h"
#include "engine/thread_groups.h"
#include "spec/method_rules.h"
#include "spec/pearl.h"

#include <stdatomic.h>
#include <string.h>

enum {
    FIRST_WINDOW = 4, /* window until times are known */
    STARTUP_MAX = 16, /* tokens drafted during the target's prefill */
    MAX_WINDOW = 16,  /* largest window chosen by measurement */
    CHOOSE_EVERY = 4  /* rounds between two choices of the window */
};
static const double fade = 0.97;        /* decay of the acceptance statistics per tested token */
static const double first_belief = 0.8; /* assumed acceptance before any test */
static const double belief_weight = 4;

struct parallel {
    struct speculation *sp;
    struct pv_session *s;
    const struct pv_gen_params *p;
    int begin;  /* first token of the drafter's answer: the prompt's last */
    bool waits; /* waits for a window if nothing is pending */
    bool ahead; /* the drafter's tower runs before the view is chosen */

    /* Shared. */
    struct ring *ring;
    pthread_mutex_t lock;
    pthread_cond_t shown_or_over;
    bool shown, over;               /* protected by the lock */
    atomic_bool awake;              /* the drafter has read its prompt */
    atomic_uint_least64_t token_ns; /* time of a drafted token, running mean */
    atomic_uint_least64_t drafted;  /* number of tokens drafted, */
    atomic_uint_least64_t draft_ns; /* and their total time */

    /* Used by the drafter; others read it after its end. */
    pthread_t thread;
    bool joined;   /* it has ended */
    int32_t *text; /* [context]: the answer as the drafter continues it */
    struct trace trace;
    struct draft_reading reading;
    enum pv_status status;
    struct pv_error error;

    /* Used by the target. */
    int32_t pending[TREE_MAX];
    int n_pending;
    int base;  /* length of the timeline when the epoch began */
    int taken; /* tokens of the epoch taken so far */
    bool had_next,
        as_made; /* at the end of the last round, the drafter had a next token; it was right */
    uint64_t learnt_drafted, learnt_ns; /* what `auto` has learnt from already */
    int round_base;                     /* length of the timeline when the last round began */
    int right_rows;                     /* pending tokens that the last pass found right */
    struct pearl books;
    double tried, right;
    double target_s[MAX_WINDOW + 2]; /* time of a pass, by number of rows */
    int window, rounds;
};

static void meet(const struct parallel *pl, enum pv_side side)
{
    if (pl->s->delay.wait)
        pl->s->delay.wait(pl->s->delay.user, side);
}

/* ---- the drafter's thread ---- */

static bool wait_shown(struct parallel *pl)
{
    bool over;
    pthread_mutex_lock(&pl->lock);
    while (!pl->shown && !pl->over)
        pthread_cond_wait(&pl->shown_or_over, &pl->lock);
    over = pl->over;
    pthread_mutex_unlock(&pl->lock);
    return !over;
}

static bool go_on(void *user, int done, int total)
{
    const struct parallel *pl = user;
    (void)done;
    (void)total;
    return !ring_stopped(pl->ring);
}

static void note_token(struct parallel *pl, double seconds)
{
    uint64_t now = (uint64_t)(1e9 * seconds);
    uint64_t mean = atomic_load_explicit(&pl->token_ns, memory_order_relaxed);
    atomic_store_explicit(&pl->token_ns, mean ? (9 * mean + now) / 10 : now, memory_order_relaxed);
    atomic_fetch_add_explicit(&pl->draft_ns, now, memory_order_relaxed);
    atomic_fetch_add_explicit(&pl->drafted, 1, memory_order_relaxed);
}

/* Draft one token after the drafter's answer of n tokens; *id is -1 if there is none. */
static enum pv_status draft_token(struct parallel *pl, int n, int32_t *id)
{
    const struct pv_session *s = pl->s;
    struct shape one = { .kind = SHAPE_CHAIN, .window = 1 };
    struct tree tree;
    int line = pl->begin + n, left = pl->p->max_new_tokens - (line - s->seq.answer0);
    struct draft_request req = { .answer = pl->text,
                                 .n_answer = n,
                                 .of_prompt = s->seq.answer0 - pl->begin,
                                 .position = (uint64_t)line,
                                 .how = &s->answer.how,
                                 .shape = &one,
                                 .tree = &tree,
                                 .most = 1 };
    double t0 = clock_now();
    enum pv_status st;
    *id = -1;
    if (left < 1 || line >= s->seq.line.context)
        return PV_OK;
    tree_begin(&tree, pl->text[n - 1]);
    st = pl->sp->drafter->propose(pl->sp->drafter, &req, &pl->error);
    if (st || tree.n < 2)
        return st;
    *id = tree.id[1];
    trace_add(&pl->trace, PV_SIDE_DRAFTER, "draft", t0, 1);
    note_token(pl, clock_now() - t0);
    return PV_OK;
}

/* Draft tokens after the verified ones, until a new epoch begins. */
static enum pv_status draft_epoch(struct parallel *pl, enum ring_state *state)
{
    struct ring_start start = ring_start(pl->ring);
    int n = start.position - pl->begin;
    memcpy(pl->text, pl->s->seq.line.ids + pl->begin, (size_t)n * sizeof *pl->text);
    *state = RING_OK;
    while (*state == RING_OK) {
        int32_t id;
        enum pv_status s = draft_token(pl, n, &id);
        if (s)
            return s;
        if (id < 0) {
            *state = ring_rest(pl->ring, start.epoch);
            break;
        }
        meet(pl, PV_SIDE_DRAFTER);
        *state = ring_push(pl->ring, start.epoch, id);
        pl->text[n++] = id;
    }
    return PV_OK;
}

static void *draft_main(void *arg)
{
    struct parallel *pl = arg;
    enum ring_state state = RING_LOST;
    if (!atomic_load(&pl->awake)) {
        double t0 = clock_now();
        if (pl->ahead) {
            meet(pl, PV_SIDE_DRAFTER);
            pl->status = draft_read_ahead(pl->sp, &pl->reading, &pl->error);
            trace_add(&pl->trace, PV_SIDE_DRAFTER, "vision", t0, 0);
            t0 = clock_now();
        }
        if (!pl->status && !wait_shown(pl))
            return NULL;
        if (pl->status) {
            ring_stop(pl->ring);
            return NULL;
        }
        trace_add(&pl->trace, PV_SIDE_DRAFTER, "wait", t0, 0);
        t0 = clock_now();
        meet(pl, PV_SIDE_DRAFTER);
        pl->status = draft_read(pl->sp, &pl->reading, &pl->error);
        trace_add(&pl->trace, PV_SIDE_DRAFTER, "prefill", t0, pl->reading.rows);
        if (!pl->status)
            atomic_store(&pl->awake, true);
    }
    while (!pl->status && state == RING_LOST)
        pl->status = draft_epoch(pl, &state);
    ring_stop(pl->ring);
    return NULL;
}

/* ---- opening and closing ---- */

static void destroy(struct parallel *pl)
{
    ring_close(&pl->ring);
    pthread_mutex_destroy(&pl->lock);
    pthread_cond_destroy(&pl->shown_or_over);
    trace_close(&pl->trace);
    mem_free(pl->text);
    mem_free(pl);
}

static enum pv_status start(struct parallel *pl, struct pv_error *err)
{
    struct pv_session *s = pl->s;
    enum pv_status st = thread_groups_divide(pl->sp, err);
    if (st)
        return st;
    st = ring_open(&pl->ring, pl->sp->method.window ? pl->sp->method.window : STARTUP_MAX,
                   s->seq.line.n, err);
    if (!st && atomic_load(&pl->awake))
        thread_groups_make_room(s);
    if (!st && !thread_start(&pl->thread, draft_main, pl))
        st = fail(err, PV_E_NOMEM, "the drafter's thread could not be started");
    if (st)
        thread_groups_unite(pl->sp);
    return st;
}

/* The view has been chosen: let the drafter read its prompt. Called once. */
static void show(struct parallel *pl)
{
    thread_groups_make_room(pl->s);
    pthread_mutex_lock(&pl->lock);
    pl->shown = true;
    pthread_cond_signal(&pl->shown_or_over);
    pthread_mutex_unlock(&pl->lock);
}

static enum pv_status see_and_show(struct speculation *sp, struct pv_error *err)
{
    enum pv_status s = draft_see(sp, err);
    if (!s)
        show(sp->state);
    return s;
}

static enum pv_status prefill_done(struct speculation *sp, struct pv_error *err)
{
    return sp->phase == DRAFT_NO_VIEW ? see_and_show(sp, err) : PV_OK;
}

/* Whether the drafter must wait for the prefill: its view needs a signal from it, or the drafter
 * uses the target's rows of media. */
static bool needs_prefill(const struct speculation *sp)
{
    return sp->signal.kind != SIGNAL_NONE || view_wants_features(sp->view) ||
           sp->media == DRAFT_MEDIA_TARGET || sp->media == DRAFT_MEDIA_ADAPTED;
}

static struct parallel *new_parallel(struct speculation *sp, bool read)
{
    struct pv_session *s = sp->s;
    struct parallel *pl = mem_zalloc(sizeof *pl);
    if (!pl)
        return NULL;
    pl->text = mem_alloc((size_t)s->seq.line.context * sizeof *pl->text);
    if (!pl->text) {
        mem_free(pl);
        return NULL;
    }
    pl->sp = sp;
    pl->s = s;
    pl->p = sp->p;
    pl->begin = read ? s->seq.answer0 : s->seq.answer0 - 1; /* from the drafter's point of view */
    pl->waits = sp->kind->cheap;
    pl->base = pl->round_base = s->seq.line.n;
    pl->reading = (struct draft_reading){
        .n = pl->begin, .next = s->seq.line.next - 1, .go_on = go_on, .user = pl
    };
    pl->window = sp->method.window ? sp->method.window : FIRST_WINDOW;
    pthread_mutex_init(&pl->lock, NULL);
    pthread_cond_init(&pl->shown_or_over, NULL);
    atomic_init(&pl->awake, read);
    trace_begin(&pl->trace, sp->p->trace, s->answer.trace.t0);
    /* Called before the prefill, whose logits test the first token without a separate pass. */
    pearl_begin(&pl->books, s->seq.line.n, read ? s->seq.line.n - 1 : s->seq.line.n, pl->begin);
    return pl;
}

static enum pv_status close_parallel(struct speculation *sp, struct pv_error *err);

/* Divide the threads and start the drafter's. Before the prefill, it waits until the view is
 * chosen, or reads the prompt at the same time. */
static enum pv_status open_parallel(struct speculation *sp, struct pv_error *err)
{
    bool read = sp->phase == DRAFT_AWAKE;
    struct parallel *pl = new_parallel(sp, read);
    enum pv_status s;
    if (!pl)
        return fail_nomem(err, sizeof *pl + (size_t)sp->s->seq.line.context * sizeof *pl->text);
    pl->ahead = !read && needs_prefill(sp) && draft_ahead_possible(sp);
    if (pl->ahead)
        drafting_make_ahead(&sp->s->draft, &sp->s->seq.line);
    s = start(pl, err);
    if (s) {
        destroy(pl);
        return s;
    }
    sp->state = pl;
    if (!read && !needs_prefill(sp))
        s = see_and_show(sp, err);
    if (s)
        close_parallel(sp, NULL);
    return s;
}

static void note(struct parallel *pl)
{
    struct pv_session *s = pl->s;
    const struct pearl_counts *c = &pl->books.counts;
    /* The last round is not counted yet, because no round came after it. */
    int emitted = s->seq.line.n - pl->round_base;
    int last = pl->right_rows < emitted ? pl->right_rows : emitted;
    int run = pl->books.run + last;
    s->answer.stats.draft_s += 1e-9 * (double)atomic_load(&pl->draft_ns);
    s->answer.stats.draft_prefill_s += pl->reading.prefill_s;
    s->answer.stats.vision_s += pl->reading.tower_s;
    s->answer.stats.vision_s += session_take_tower(s); /* time for rows computed for the drafter */
    s->answer.stats.wasted += (int64_t)atomic_load(&pl->drafted) - c->accepted - last;
    s->answer.stats.runs += c->rejections;
    s->answer.stats.run_tokens += c->run_sum;
    run = c->run_max > run ? c->run_max : run;
    if (run > s->answer.stats.longest_run)
        s->answer.stats.longest_run = run;
    s->answer.stats.window = pl->window;
    trace_append(&s->answer.trace, &pl->trace);
}

/* End the drafter's thread. Returns its error, if any; being stopped is not an error. */
static enum pv_status stop_drafter(struct parallel *pl, struct pv_error *err)
{
    ring_stop(pl->ring);
    pthread_mutex_lock(&pl->lock);
    pl->over = true;
    pthread_cond_signal(&pl->shown_or_over);
    pthread_mutex_unlock(&pl->lock);
    if (!pl->joined)
        pthread_join(pl->thread, NULL);
    pl->joined = true;
    if (pl->status == PV_OK || pl->status == PV_E_CANCELLED)
        return PV_OK;
    return fail(err, PV_E_DRAFTER, "%s", pl->error.text);
}

/* A drafter that began before the prefill leaves the phase DRAFT_HAS_VIEW: it treats the prompt's
 * last token as part of the answer. For serial rounds it reads the prompt again, and finds most of
 * it in its cache. */
static enum pv_status close_parallel(struct speculation *sp, struct pv_error *err)
{
    struct parallel *pl = sp->state;
    enum pv_status s = stop_drafter(pl, err);
    thread_groups_unite(sp);
    note(pl);
    if (s)
        sp->phase = DRAFT_FAILED;
    destroy(pl);
    sp->state = NULL;
    return s;
}

/* ---- rounds ---- */

static double believed(const struct parallel *pl)
{
    return (pl->right + belief_weight * first_belief) / (pl->tried + belief_weight);
}

/* Choose the window for which the formula predicts the best speed. */
static void choose_window(struct parallel *pl)
{
    double token_s = 1e-9 * (double)atomic_load_explicit(&pl->token_ns, memory_order_relaxed);
    int best;
    if (pl->sp->method.automatic)
        pl->window = pl->sp->choice.window;
    if (pl->sp->method.automatic || pl->sp->method.window || pl->rounds++ % CHOOSE_EVERY != 0 ||
        !(token_s > 0))
        return;
    best = pl->waits ? pearl_waiting_window(believed(pl), token_s, pl->target_s, MAX_WINDOW)
                     : pearl_window(believed(pl), token_s, pl->target_s, MAX_WINDOW);
    if (best > 0)
        pl->window = best;
}

/* Discard everything drafted: the drafter continues after what has been emitted. */
static void begin_again(struct parallel *pl)
{
    pl->base = pl->s->seq.line.n;
    pl->taken = 0;
    ring_restart(pl->ring, pl->base);
}

/* Take the drafter's next token, if there is one; there is none while it still reads its prompt. */
static int take_next(struct parallel *pl, int32_t *made)
{
    const struct pv_session *s = pl->s;
    if (!atomic_load(&pl->awake) || pl->base + pl->taken != s->seq.line.n - 1)
        return 0;
    return ring_take(pl->ring, made, 1, 1);
}

/* Whether the last token emitted is the one that the drafter made. */
static bool is_right(const struct parallel *pl, int32_t made)
{
    const struct pv_session *s = pl->s;
    if (method_test(&pl->sp->method).simulate > 0)
        return round_simulated(pl->sp, (uint64_t)s->seq.line.n - 1, 0);
    return made == s->seq.line.ids[s->seq.line.n - 1];
}

/* Wait until a window after the last emitted token has been drafted. */
static void wait_window(struct parallel *pl)
{
    const struct pv_session *s = pl->s;
    int room = s->seq.line.context - s->seq.kv.len - 1, n = pl->window < room ? pl->window : room;
    pl->n_pending = n > 0 ? ring_take(pl->ring, pl->pending, n, n) : 0;
    pl->taken += pl->n_pending;
    pearl_wait(&pl->books, pl->n_pending);
}

/* Find the pending tokens to verify after the last emitted token: none, unless that token is the
 * one that the drafter proposed next. This also completes the round before, whose last row decided
 * that token. */
static void take_pending(struct parallel *pl)
{
    struct pv_session *s = pl->s;
    double t0 = clock_now();
    int32_t made = -1;
    int room = s->seq.line.context - s->seq.kv.len - 1, least, most, drafted = take_next(pl, &made);
    bool as_made = drafted == 1 && is_right(pl, made);
    bool startup = pl->books.counts.accepted == 0 && pl->books.counts.own == 0;
    pl->had_next = drafted == 1;
    pl->as_made = as_made;
    pl->n_pending = 0;
    if (!startup) /* at the start there may be more tokens */
        ring_limit(pl->ring, pl->window);
    if (as_made) {
        most = startup ? STARTUP_MAX : pl->window;
        least = pl->window - 1 < room ? pl->window - 1 : room;
        most = most - 1 < room ? most - 1 : room;
        pl->taken++;
        if (least > 0)
            pl->n_pending = ring_take(pl->ring, pl->pending, least, most > least ? most : least);
        pl->taken += pl->n_pending;
        s->answer.stats.startup_tokens += startup ? 1 + pl->n_pending : 0;
    }
    s->answer.stats.proposed += drafted;
    s->answer.stats.accepted += as_made;
    s->answer.stats.rejections += drafted - as_made;
    pearl_end(&pl->books, drafted + pl->n_pending, pl->right_rows + as_made);
    if (!as_made)
        begin_again(pl);
    ring_limit(pl->ring, pl->window);
    if (!as_made && pl->waits)
        wait_window(pl);
    s->answer.stats.wait_s += clock_now() - t0;
    trace_add(&s->answer.trace, PV_SIDE_MODEL, "wait", t0, pl->n_pending);
}

/* Let `auto` learn from the round, and from the drafter's work since it last did. */
static void teach_policy(struct parallel *pl, const struct round *r, bool believed, double t0,
                         double target_s)
{
    uint64_t drafted = atomic_load_explicit(&pl->drafted, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&pl->draft_ns, memory_order_relaxed);
    struct policy_round measured = { .rows = r->tree.n,
                                     .drafted = (int)(drafted - pl->learnt_drafted),
                                     .tested = pl->n_pending + pl->had_next,
                                     .accepted = r->verdict.n - 1 + pl->as_made,
                                     .draft_s = 1e-9 * (double)(ns - pl->learnt_ns),
                                     .target_s = target_s,
                                     .wall_s = clock_now() - t0 };
    pl->learnt_drafted = drafted;
    pl->learnt_ns = ns;
    if (believed)
        policy_learn_parallel(&pl->sp->policy, &measured);
}

static void learn(struct parallel *pl, const struct round *r, double seconds)
{
    int rows = r->tree.n, tested = pl->n_pending, right = r->verdict.n - 1;
    double *known = rows <= MAX_WINDOW + 1 ? &pl->target_s[rows] : NULL;
    if (known)
        *known = *known > 0 ? 0.8 * *known + 0.2 * seconds : seconds;
    pl->right_rows = right;
    for (int i = 0; i < tested && i <= right; i++) {
        pl->tried = pl->tried * fade + 1;
        pl->right = pl->right * fade + (i < right);
    }
}

/* Verify the pending tokens while the drafter makes more. */
static enum pv_status run_round(struct speculation *sp, struct round *r, struct pv_error *err)
{
    struct parallel *pl = sp->state;
    struct pv_session *s = sp->s;
    double t0 = clock_now(), t1;
    uint64_t first_runs = round_first_runs(s);
    enum pv_status st;
    choose_window(pl);
    meet(pl, PV_SIDE_MODEL);
    take_pending(pl);
    pl->round_base = s->seq.line.n;
    pl->right_rows = 0;
    if (ring_stopped(pl->ring)) { /* the drafter has stopped it */
        st = stop_drafter(pl, err);
        return st ? st : fail(err, PV_E_CANCELLED, "the drafter was stopped");
    }
    tree_begin(&r->tree, s->seq.line.ids[s->seq.line.n - 1]);
    for (int i = 0; i < pl->n_pending; i++)
        tree_add(&r->tree, i, pl->pending[i]);
    t1 = clock_now();
    st = round_verify(sp, r, err);
    if (st)
        return st;
    t1 = clock_now() - t1;
    learn(pl, r, t1);
    if (sp->method.automatic)
        teach_policy(pl, r, round_believes(sp, first_runs), t0, t1);
    s->answer.stats.parallel_rounds++;
    return PV_OK;
}

const struct schedule schedule_parallel = { .name = "parallel",
                                            .alone = true,
                                            .open = open_parallel,
                                            .signal_ready = see_and_show,
                                            .prefill_done = prefill_done,
                                            .round = run_round,
                                            .close = close_parallel };
