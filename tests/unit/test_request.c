/* Requests: their events and ends, cancelling, what is refused, that nobody waits for ever, and
 * that nothing is left of them. */
#include "answers.h"
#include "engine/request.h"
#include "family/families.h"

#include <math.h>
#include <stdatomic.h>

struct scene {
    struct pair p;
    pv_engine *e;
};

static bool scene_open(struct scene *s, int max_requests, int64_t kv_tokens)
{
    struct pv_engine_params p = pv_engine_defaults();
    struct pv_error err = { 0 };
    s->p = open_unlike(&family_llava_onevision, 1);
    p.max_context = CONTEXT;
    p.kv_tokens = kv_tokens;
    p.max_requests = max_requests;
    p.kv_type = PV_KV_F32;
    p.draft = s->p.draft;
    p.chunk = 64;
    return CHECK_MSG(pv_engine_open(&s->e, s->p.target, &p, &err) == PV_OK, "%s", err.text);
}

static void scene_close(struct scene *s)
{
    pv_engine_close(&s->e);
    close_pair(&s->p);
}

/* A request of n tokens that are all the same, and an answer of `length`. */
static struct pv_request_params plain(struct pv_gen_params *g, int32_t *ids, int n, int32_t id,
                                      int length)
{
    struct pv_request_params p = pv_request_defaults();
    *g = pv_gen_defaults();
    for (int i = 0; i < n; i++)
        ids[i] = id;
    p.ids = ids;
    p.n_ids = (size_t)n;
    g->max_new_tokens = length;
    g->ignore_stop = true;
    p.gen = g;
    return p;
}

static struct pv_event end_of(pv_request *r, int *tokens)
{
    struct pv_event e = { 0 };
    *tokens = 0;
    while (pv_request_next(r, &e, -1))
        *tokens += e.kind == PV_EVENT_TEXT && e.token.id >= 0;
    return e;
}

TEST(an_answer_ends_by_length_and_tells_its_tokens)
{
    struct scene s;
    int32_t ids[20];
    struct pv_gen_params g;
    struct pv_request_params p = plain(&g, ids, 20, 7, 12);
    struct pv_part text = { .text = "ab" };
    struct pv_message message = { "user", &text, 1 };
    struct pv_error err = { 0 };
    struct pv_event e;
    pv_request *r = NULL;
    int tokens;
    if (!scene_open(&s, 4, 0))
        return;
    CHECK_MSG(pv_request_submit(&r, s.e, &p, &err) == PV_OK, "%s", err.text);
    e = end_of(r, &tokens);
    CHECK(e.kind == PV_EVENT_END && e.finish == PV_FINISH_LENGTH && e.status == PV_OK);
    CHECK(tokens == 12 && e.stop == -1 && e.message[0] == 0);
    CHECK(!pv_request_next(r, &e, 0.01)); /* the end is told once */
    CHECK_EQ(pv_request_wait(r, NULL), PV_OK);
    pv_request_close(&r);
    p = plain(&g, ids, 20, 7, 1 << 20); /* more than the context holds */
    CHECK(!pv_request_submit(&r, s.e, &p, NULL));
    e = end_of(r, &tokens);
    CHECK(e.finish == PV_FINISH_LENGTH && tokens == CONTEXT - 20);
    pv_request_close(&r);
    p.n_ids = 0; /* messages, to which the template adds before the answer */
    p.messages = &message;
    p.n_messages = 1;
    CHECK(!pv_request_submit(&r, s.e, &p, NULL));
    e = end_of(r, &tokens);
    CHECK(e.finish == PV_FINISH_LENGTH && e.status == PV_OK && e.message[0] == 0);
    CHECK(tokens > CONTEXT / 2);
    pv_request_close(&r);
    scene_close(&s);
}

/* The text up to a stop string, whatever the method. */
TEST(a_stop_string_ends_it)
{
    static const char *const methods[] = { "ar", "sd" };
    struct scene s;
    int32_t ids[20];
    char text[2][512] = { { 0 } };
    if (!scene_open(&s, 4, 0))
        return;
    for (int stops = 0; stops < 2; stops++)
        for (int k = 0; k < 2; k++) {
            struct pv_gen_params g;
            struct pv_request_params p = plain(&g, ids, 20, 9, 40);
            struct pv_method m = { .size = sizeof m };
            struct pv_event e = { 0 };
            char stop[4] = { 0 }, got[512] = { 0 };
            const char *list = stop;
            pv_request *r = NULL;
            CHECK(!pv_method_find(&m, methods[k], NULL));
            g.method = &m;
            memcpy(stop, text[0] + 10, 3);
            if (stops) {
                p.stop = &list;
                p.n_stop = 1;
            }
            if (stops && !stop[0])
                break;
            CHECK(!pv_request_submit(&r, s.e, &p, NULL));
            while (pv_request_next(r, &e, -1))
                if (e.kind == PV_EVENT_TEXT && strlen(got) + e.len < sizeof got)
                    memcpy(got + strlen(got), e.text, e.len);
            if (stops) {
                size_t at = (size_t)(strstr(text[0], stop) - text[0]);
                CHECK(e.finish == PV_FINISH_STOP_STRING && e.stop == 0 && e.status == PV_OK);
                CHECK_MSG(strlen(got) == at && !memcmp(got, text[0], at), "\"%s\" of \"%s\"", got,
                          text[0]);
            } else {
                memcpy(text[k], got, sizeof got);
                CHECK(!strcmp(text[0], text[k]) && strlen(got) > 13);
            }
            pv_request_close(&r);
        }
    scene_close(&s);
}

TEST(log_probabilities_are_those_of_the_model)
{
    struct scene s;
    int32_t ids[20];
    struct pv_gen_params g;
    struct pv_request_params p = plain(&g, ids, 20, 5, 10);
    struct pv_method m = { .size = sizeof m };
    struct pv_event e;
    pv_request *r = NULL;
    int n = 0;
    if (!scene_open(&s, 4, 0))
        return;
    CHECK(!pv_method_find(&m, "sd", NULL));
    g.method = &m;
    p.top_logprobs = 5;
    CHECK(!pv_request_submit(&r, s.e, &p, NULL));
    while (pv_request_next(r, &e, -1)) {
        double sum = 0;
        if (e.kind != PV_EVENT_TEXT || e.token.id < 0)
            continue;
        n++;
        CHECK(e.token.n_top == 5 && e.token.top[0].id == e.token.id); /* greedy */
        CHECK(e.token.logprob == e.token.top[0].logprob && e.token.logprob < 0);
        for (int i = 0; i < 5; i++) {
            sum += exp(e.token.top[i].logprob);
            CHECK(i == 0 || e.token.top[i].logprob <= e.token.top[i - 1].logprob);
        }
        CHECK(sum > 0 && sum <= 1.0001);
    }
    CHECK_EQ(n, 10);
    pv_request_close(&r);
    scene_close(&s);
}

TEST(what_cannot_be_is_refused_at_once)
{
    struct scene s;
    static int32_t ids[CONTEXT + 1];
    struct pv_gen_params g;
    struct pv_request_params p = plain(&g, ids, CONTEXT + 1, 3, 1), none = pv_request_defaults();
    struct pv_error err = { 0 };
    pv_request *r = NULL;
    struct pv_engine_params ep = pv_engine_defaults();
    pv_engine *e = NULL;
    if (!scene_open(&s, 4, 0))
        return;
    CHECK_EQ(pv_request_submit(&r, s.e, &p, &err), PV_E_LIMIT);
    CHECK_STR(err.text, "769 tokens after 0 do not fit a context of 768 tokens");
    CHECK_EQ(pv_request_submit(&r, s.e, &none, NULL), PV_E_ARG);
    p = plain(&g, ids, 4, 3, 0);
    CHECK_EQ(pv_request_submit(&r, s.e, &p, NULL), PV_E_ARG);
    p = plain(&g, ids, 4, 3, 1);
    p.top_logprobs = 21;
    CHECK_EQ(pv_request_submit(&r, s.e, &p, NULL), PV_E_ARG);
    p = plain(&g, ids, 4, 3, 1);
    p.size = sizeof p + 8;
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_request_submit(&r, s.e, &p, &err), PV_E_ARG);
    CHECK(strstr(err.text, "this library knows"));
    p = plain(&g, ids, 4, 1 << 20, 1); /* no such token */
    CHECK_EQ(pv_request_submit(&r, s.e, &p, NULL), PV_E_ARG);
    CHECK(r == NULL);
    ep.max_context = 512;
    ep.kv_tokens = 256;
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_engine_open(&e, s.p.target, &ep, &err), PV_E_LIMIT);
    CHECK_STR(err.text, "a KV cache of 256 tokens was asked for: it must hold at least one context "
                        "of 512");
    scene_close(&s);
}

/* ---- cancelling ---- */

struct canceller {
    pv_request *r;
    int64_t at, cancelled, last;
};

static void cancel_at(void *user, int64_t iteration)
{
    struct canceller *c = user;
    c->last = iteration;
    if (iteration == c->at && c->r) {
        pv_request_cancel(c->r);
        c->cancelled = iteration;
    }
}

TEST(cancelling_takes_effect_within_a_step)
{
    struct scene s;
    int32_t ids[200];
    if (!scene_open(&s, 4, 0))
        return;
    for (int at = 2; at < 40; at += 3) {
        struct pv_gen_params g;
        struct pv_request_params p = plain(&g, ids, 200, 3 + at, 300);
        struct pv_engine_counts c = { .size = sizeof c };
        struct canceller who = { NULL, 0, 0, 0 };
        struct pv_event e;
        int tokens;
        who.at = scheduler_counts(s.e->scheduler).iterations + at;
        CHECK(!pv_request_submit(&who.r, s.e, &p, NULL));
        scheduler_watch(s.e->scheduler, cancel_at, &who);
        e = end_of(who.r, &tokens);
        scheduler_watch(s.e->scheduler, NULL, NULL);
        if (who.cancelled == 0) { /* it was too fast to be watched from the beginning */
            pv_request_close(&who.r);
            continue;
        }
        CHECK(e.finish == PV_FINISH_CANCELLED && e.status == PV_E_CANCELLED && e.message[0]);
        CHECK_MSG(who.last - who.cancelled <= 1, "%lld iterations later",
                  (long long)(who.last - who.cancelled));
        pv_engine_stats(s.e, &c);
        CHECK_EQ(c.pages_used, 0);
        pv_request_close(&who.r);
    }
    scene_close(&s);
}

/* Cancels a request in the middle of a layer of the vision tower, and counts the layers after it.
 */
static struct {
    const struct device_ops *ops;
    pv_request *_Atomic r;
    atomic_int layers, at, after;
} in_tower;

static void attend_and_cancel(struct device_work *w, const struct full_attn_job *job)
{
    int layer = atomic_fetch_add(&in_tower.layers, 1);
    if (layer >= atomic_load(&in_tower.at)) {
        while (!atomic_load(&in_tower.r)) /* until the caller has been told which request it is */
            continue;
        if (layer == atomic_load(&in_tower.at))
            pv_request_cancel(atomic_load(&in_tower.r));
        else
            atomic_fetch_add(&in_tower.after, 1);
    }
    in_tower.ops->attention_full(w, job);
}

TEST(cancelling_stops_a_tower_between_layers)
{
    enum { SIDE = 64 };
    static uint8_t rgb[SIDE * SIDE * 3];
    const struct pv_frame frames[] = { { .width = SIDE, .height = SIDE, .rgb = rgb },
                                       { .width = SIDE, .height = SIDE, .rgb = rgb } };
    const struct pv_part parts[] = { { .frames = frames, .n_frames = 2, .fps = 2 },
                                     { .text = "hi" } };
    const struct pv_message message = { .role = "user", .parts = parts, .n_parts = 2 };
    struct pv_engine_params ep = pv_engine_defaults();
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct device_ops watched = *p.target->dev->ops;
    pv_engine *e = NULL;

    in_tower.ops = p.target->dev->ops;
    watched.attention_full = attend_and_cancel;
    p.target->dev->ops = &watched; /* while no engine runs */
    ep.max_context = CONTEXT;
    ep.vision_bytes = -1; /* the tower runs every time */
    CHECK_EQ(pv_engine_open(&e, p.target, &ep, NULL), PV_OK);
    for (int at = 0; at < model_file_vision(p.target->file)->n_layers - 1 && e; at++) {
        struct pv_request_params rp = pv_request_defaults();
        struct pv_error err = { 0 };
        pv_request *r = NULL;
        struct pv_event end;
        int tokens;
        rp.messages = &message;
        rp.n_messages = 1;
        atomic_store(&in_tower.r, NULL);
        atomic_store(&in_tower.layers, 0);
        atomic_store(&in_tower.after, 0);
        atomic_store(&in_tower.at, at);
        rgb[0]++; /* another picture: nothing of it is known */
        if (!CHECK_MSG(!pv_request_submit(&r, e, &rp, &err), "%s", err.text))
            break;
        atomic_store(&in_tower.r, r);
        end = end_of(r, &tokens);
        CHECK_EQ(end.finish, PV_FINISH_CANCELLED);
        CHECK_MSG(atomic_load(&in_tower.layers) > at, "%d layers ran",
                  atomic_load(&in_tower.layers));
        CHECK_EQ(atomic_load(&in_tower.after), 0);
        pv_request_close(&r);
    }
    pv_engine_close(&e);
    p.target->dev->ops = in_tower.ops;
    close_pair(&p);
}

/* A model that shares the threads of another is opened and closed while that one answers: repacking
 * its weights and steps take turns. */
TEST(a_model_is_opened_beside_a_running_one)
{
    struct scene s;
    int32_t ids[64];
    if (!scene_open(&s, 4, 0))
        return;
    for (int i = 0; i < 3; i++) {
        struct pv_model_params mp = pv_model_defaults();
        struct pv_gen_params g;
        struct pv_request_params p = plain(&g, ids, 64, 5, 100);
        struct pv_error err = { 0 };
        pv_model *second = NULL;
        pv_request *r = NULL;
        struct pv_event e;
        int tokens;
        mp.path = model_file_path(s.p.draft->file);
        mp.shares_with = s.p.target;
        CHECK(!pv_request_submit(&r, s.e, &p, NULL));
        CHECK_MSG(!pv_model_open(&second, &mp, &err), "%s", err.text);
        pv_model_close(&second);
        e = end_of(r, &tokens);
        CHECK(e.finish == PV_FINISH_LENGTH && tokens == 100);
        pv_request_close(&r);
    }
    scene_close(&s);
}

static void count_calls(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
}

/* One thread can serve many requests: whoever is told finds something without waiting. */
TEST(whoever_is_told_finds_an_event)
{
    struct scene s;
    struct pv_gen_params g;
    struct pv_request_params p;
    int32_t ids[8];
    struct pv_event e = { 0 };
    pv_request *r = NULL;
    atomic_int calls;
    int events = 0;
    atomic_init(&calls, 0);
    if (!scene_open(&s, 2, 0))
        return;
    p = plain(&g, ids, 8, 3, 12);
    p.notify = count_calls;
    p.notify_user = &calls;
    if (!CHECK(pv_request_submit(&r, s.e, &p, NULL) == PV_OK))
        return;
    pv_request_wait(r, NULL);
    while (pv_request_next(r, &e, 0))
        events++;
    CHECK_EQ(e.kind, PV_EVENT_END);
    CHECK(events >= 13);
    CHECK_EQ(atomic_load(&calls), events);
    pv_request_close(&r);
    scene_close(&s);
}

/* Spans and view of a request that has ended. */
TEST(an_ended_request_tells_what_its_drafter_saw)
{
    struct scene s;
    struct pv_error err = { 0 };
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_method m = { .size = sizeof m };
    struct pv_request_params p = pv_request_defaults();
    struct pv_view_map map = { 0 };
    struct pv_stats stats = { .size = sizeof stats };
    static struct pv_frame frames[FRAMES];
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pv_part parts[2] = { { .frames = frames, .n_frames = FRAMES, .fps = 2 },
                                { .text = "ab" } };
    struct pv_message message = { "user", parts, 2 };
    pv_request *r = NULL;
    size_t n = 0;
    int kept = 0;
    if (!scene_open(&s, 2, 0))
        return;
    noise_frames(frames, rgb, 5);
    CHECK(pv_method_find(&m, "specvlm", &err) == PV_OK);
    g.method = &m;
    g.trace = true;
    g.max_new_tokens = 4;
    g.ignore_stop = true;
    p.messages = &message;
    p.n_messages = 1;
    p.gen = &g;
    if (!CHECK_MSG(pv_request_submit(&r, s.e, &p, &err) == PV_OK, "%s", err.text))
        return;
    CHECK_MSG(pv_request_wait(r, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_request_view(r, &map, &err) == PV_OK, "%s", err.text);
    for (int i = 0; i < map.frames * map.height * map.width; i++)
        kept += map.visible[i];
    pv_request_stats(r, &stats);
    CHECK_EQ(kept, map.kept);
    CHECK(kept > 0 && kept < map.frames * map.height * map.width);
    CHECK(map.scores != NULL);
    CHECK(pv_request_spans(r, &n) != NULL && n > 2);
    CHECK(pv_request_view(r, &map, &err) == PV_OK && map.kept == kept);
    pv_request_close(&r);

    g.method = NULL;
    if (!CHECK(pv_request_submit(&r, s.e, &p, &err) == PV_OK))
        return;
    pv_request_wait(r, NULL);
    CHECK_EQ(pv_request_view(r, &map, NULL), PV_E_ARG);
    pv_request_close(&r);
    scene_close(&s);
}

TEST(queued_requests_can_be_cancelled)
{
    struct scene s;
    int32_t ids[20];
    pv_request *r[6] = { NULL };
    int tokens;
    if (!scene_open(&s, 1, 0))
        return;
    pthread_mutex_lock(s.p.target->step_lock); /* so that the first one keeps the others waiting */
    for (int i = 0; i < 6; i++) {
        struct pv_gen_params g;
        struct pv_request_params p = plain(&g, ids, 20, 3 + i, 200);
        CHECK(!pv_request_submit(&r[i], s.e, &p, NULL));
    }
    for (int i = 5; i >= 1; i--) {
        pv_request_cancel(r[i]);
        CHECK_EQ(end_of(r[i], &tokens).finish, PV_FINISH_CANCELLED);
    }
    pthread_mutex_unlock(s.p.target->step_lock);
    CHECK_EQ(end_of(r[0], &tokens).finish, PV_FINISH_LENGTH);
    for (int i = 0; i < 6; i++)
        pv_request_close(&r[i]);
    scene_close(&s);
}

/* ---- many ---- */

/* The pool holds one long request. All come to their end, none long after younger ones: a request
 * begins in its turn and the oldest keeps its pages. */
TEST(nobody_waits_for_ever)
{
    enum { N = 24, AT_ONCE = 6 };
    struct scene s;
    static int32_t ids[N][400];
    static pv_request *r[N];
    struct pv_engine_counts c = { .size = sizeof c };
    int tokens;
    if (!scene_open(&s, AT_ONCE, 0))
        return;
    for (int i = 0; i < N; i++) {
        struct pv_gen_params g;
        struct pv_request_params p = plain(&g, ids[i], 60 + 14 * i % 300, 3 + i, 60 + 30 * (i % 5));
        CHECK(!pv_request_submit(&r[i], s.e, &p, NULL));
    }
    for (int i = 0; i < N; i++) {
        struct pv_event e = end_of(r[i], &tokens);
        CHECK(e.finish == PV_FINISH_LENGTH && tokens == 60 + 30 * (i % 5));
        for (int k = i + AT_ONCE; k < N; k++) /* it may have begun only after i had ended */
            CHECK(!task_ended(request_task(r[k])) || k - i < 2 * AT_ONCE);
    }
    pv_engine_stats(s.e, &c);
    CHECK_MSG(c.preemptions > 0 && c.pages_used == 0 && c.running == 0 && c.queued == 0,
              "%lld preemptions, %lld pages in use, %d running, %d queued",
              (long long)c.preemptions, (long long)c.pages_used, c.running, c.queued);
    for (int i = 0; i < N; i++)
        pv_request_close(&r[i]);
    scene_close(&s);
}

TEST(ten_thousand_requests_leave_nothing)
{
    struct scene s;
    int32_t ids[8];
    size_t before = 0;
    struct pv_engine_counts c = { .size = sizeof c };
    if (!scene_open(&s, 8, 0))
        return;
    for (int i = 0; i < 10000; i += 8) {
        pv_request *r[8];
        for (int k = 0; k < 8; k++) {
            struct pv_gen_params g;
            struct pv_request_params p = plain(&g, ids, 8, (i + k) % 90, 1 + k % 3);
            struct pv_method m = { .size = sizeof m };
            CHECK(!pv_method_find(&m, k % 2 ? "sd" : "ar", NULL));
            g.method = &m;
            if (!CHECK(!pv_request_submit(&r[k], s.e, &p, NULL)))
                return;
        }
        for (int k = 0; k < 8; k++) {
            if (k < 7)
                CHECK_EQ(pv_request_wait(r[k], NULL), PV_OK);
            pv_request_close(&r[k]); /* the last one is cancelled, or has ended */
        }
        if (i == 80)
            before = mem_bytes();
    }
    CHECK_EQ(mem_bytes(), before);
    pv_engine_stats(s.e, &c);
    CHECK_EQ(c.pages_used, 0);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
