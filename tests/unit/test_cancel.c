/* Cancelling where something is waited for: the device, which another holds, and the weights of a
 * model that is opened. */
#include "answers.h"
#include "base/clock.h"
#include "engine/request.h"
#include "family/families.h"

#include <stdatomic.h>

static const double soon = 5; /* seconds: of a machine with other work, too */

struct scene {
    struct pair p;
    pv_engine *e;
};

static bool scene_open(struct scene *s)
{
    struct pv_engine_params p = pv_engine_defaults();
    struct pv_error err = { 0 };
    s->p = open_unlike(&family_llava_onevision, 1);
    p.max_context = CONTEXT;
    p.max_requests = 2;
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

/* The end of a request, or one without a kind if it has not come soon; and its tokens. */
static struct pv_event end_of(pv_request *r, int *tokens)
{
    struct pv_event e = { 0 };
    double until = clock_now() + soon;
    *tokens = 0;
    while (e.kind != PV_EVENT_END && clock_now() < until)
        if (pv_request_next(r, &e, 0.1))
            *tokens += e.kind == PV_EVENT_TEXT && e.token.id >= 0;
    if (e.kind != PV_EVENT_END)
        e = (struct pv_event){ .finish = PV_FINISH_LENGTH };
    return e;
}

static bool was_cancelled(pv_request *r)
{
    int tokens;
    struct pv_event e = end_of(r, &tokens);
    return e.kind == PV_EVENT_END && e.finish == PV_FINISH_CANCELLED &&
           e.status == PV_E_CANCELLED && tokens == 0;
}

static pv_request *ask_ids(struct scene *s, int length)
{
    static const int32_t ids[] = { 7, 7, 9, 7, 11, 7 };
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    pv_request *r = NULL;
    g.max_new_tokens = length;
    g.ignore_stop = true;
    p.ids = ids;
    p.n_ids = sizeof ids / sizeof *ids;
    p.gen = &g;
    CHECK_EQ(pv_request_submit(&r, s->e, &p, NULL), PV_OK);
    return r;
}

static pv_request *ask_frames(struct scene *s)
{
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pv_frame frames[FRAMES];
    struct pv_part parts[2] = { { .frames = frames, .n_frames = FRAMES, .fps = 2 },
                                { .text = "ab" } };
    struct pv_message message = { "user", parts, 2 };
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_error err = { 0 };
    pv_request *r = NULL;
    noise_frames(frames, rgb, 3);
    g.max_new_tokens = 3;
    p.messages = &message;
    p.n_messages = 1;
    p.gen = &g;
    CHECK_MSG(pv_request_submit(&r, s->e, &p, &err) == PV_OK, "%s", err.text);
    return r;
}

/* Steps wait for whoever has the device: those who are cancelled do not, and the others go on. */
TEST(a_request_that_waits_for_a_step)
{
    struct scene s;
    pthread_mutex_t *lock;
    pv_request *a, *b, *queued;
    int tokens;
    if (!scene_open(&s))
        return;
    lock = s.p.target->step_lock;
    pthread_mutex_lock(lock);
    a = ask_ids(&s, 4);
    b = ask_ids(&s, 4);
    queued = ask_ids(&s, 4);
    CHECK(!pv_request_next(a, &(struct pv_event){ 0 }, 0.05)); /* it waits */
    pv_request_cancel(queued);
    CHECK(was_cancelled(queued));
    pv_request_cancel(a);
    CHECK(was_cancelled(a));
    pthread_mutex_unlock(lock);
    CHECK(end_of(b, &tokens).finish == PV_FINISH_LENGTH && tokens == 4);
    pv_request_close(&a);
    pv_request_close(&b);
    pv_request_close(&queued);
    scene_close(&s);
}

/* Holds the scheduler's thread until somebody else has the device. */
struct gate {
    atomic_bool reached, open;
};

static void stop_at(void *user, int64_t iteration)
{
    struct gate *g = user;
    (void)iteration;
    atomic_store(&g->reached, true);
    while (!atomic_load(&g->open))
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

static void wait_for(atomic_bool *what)
{
    while (!atomic_load(what))
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
}

/* A request that waits for the tower keeps nobody else from ending. */
TEST(a_request_that_waits_for_the_tower)
{
    for (int others_first = 0; others_first < 2; others_first++) {
        struct scene s;
        struct gate gate = { false, false };
        pv_request *film, *text;
        if (!scene_open(&s))
            return;
        scheduler_watch(s.e->scheduler, stop_at, &gate);
        film = ask_frames(&s);
        text = ask_ids(&s, 4);
        wait_for(&gate.reached);
        pthread_mutex_lock(s.p.target->step_lock);
        atomic_store(&gate.open, true);
        CHECK(!pv_request_next(text, &(struct pv_event){ 0 }, 0.05));
        if (others_first) {
            pv_request_cancel(text);
            CHECK(was_cancelled(text));
        }
        pv_request_cancel(film);
        CHECK(was_cancelled(film));
        pthread_mutex_unlock(s.p.target->step_lock);
        pv_request_close(&film);
        pv_request_close(&text);
        scene_close(&s);
    }
}

/* ---- opening a model ---- */

struct patience {
    int left, calls;
    int64_t done, total;
    bool falls; /* the numbers did not grow as they should */
};

static bool ask_patience(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    struct patience *p = user;
    p->falls = p->falls || phase != PV_PHASE_OPEN || done < p->done || done > total || total <= 0;
    p->done = done;
    p->total = total;
    p->calls++;
    return p->left-- > 0;
}

static enum pv_status open_with(pv_model **m, const char *path, pv_model *shares_with,
                                struct patience *patience, struct pv_error *err)
{
    struct pv_model_params p = pv_model_defaults();
    p.path = path;
    p.threads = 2;
    p.shares_with = shares_with;
    p.progress = ask_patience;
    p.progress_user = patience;
    return pv_model_open(m, &p, err);
}

/* Stopped at every call in turn: nothing is left of the model, and nothing leaks. */
TEST(a_model_that_is_opened)
{
    static const int types[] = { DTYPE_Q8_0, DTYPE_BF16, TINY_MIXED_K };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct tiny_model t = { .arch = "qwen2",
                                .hidden = 256,
                                .n_layers = 2,
                                .n_heads = 4,
                                .n_kv = 2,
                                .head_dim = 64,
                                .ffn = 512,
                                .vocab = 2048,
                                .untied = true,
                                .type = types[i],
                                .seed = 5 };
        enum pv_status st = PV_E_CANCELLED;
        char path[256];
        int calls = 0;
        tiny_model_write(&t, "opened", path);
        for (; st == PV_E_CANCELLED && calls < 2000; calls++) {
            struct patience patience = { .left = calls };
            struct pv_error err = { 0 };
            pv_model *m = NULL;
            st = open_with(&m, path, NULL, &patience, &err);
            CHECK(!patience.falls);
            if (st)
                CHECK_MSG(st == PV_E_CANCELLED && !m && strstr(err.text, path) &&
                              patience.calls == calls + 1,
                          "call %d: %s", calls, err.text);
            pv_model_close(&m);
        }
        CHECK_MSG(st == PV_OK && calls > 15, "%d calls", calls); /* a matrix each, and more */
    }
}

/* A draft model waits for its target's device. */
TEST(a_model_that_waits_for_the_device)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    struct patience patience = { .left = 3 };
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s", model_file_path(p.draft->file));
    pthread_mutex_lock(p.target->step_lock);
    CHECK_EQ(open_with(&m, path, p.target, &patience, &err), PV_E_CANCELLED);
    pthread_mutex_unlock(p.target->step_lock);
    CHECK_MSG(!m && patience.calls == 4 && strstr(err.text, path), "%s", err.text);
    patience.left = 1000;
    CHECK_MSG(open_with(&m, path, p.target, &patience, &err) == PV_OK, "%s", err.text);
    pv_model_close(&m);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
