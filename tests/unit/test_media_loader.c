/* Sessions that see, through the public header: what was seen once is not looked at again, nothing
 * depends on chunks or threads, memory is bounded, and what cannot be seen is refused with the
 * session left as it was. */
#include "base/mem.h"
#include "base/rng.h"
#include "engine/model.h"
#include "make_file.h"
#include "prevue/prevue.h"
#include "test.h"

#include <string.h>

enum { MAX_FRAMES = 800, HEIGHT = 40, WIDTH = 56, N_NEW = 8 };

static const char *const families[] = { "tests/golden/llava_onevision",
                                        "tests/golden/qwen2_5_vl_video" };
enum { N_FAMILIES = 2 };

/* ---- models, sessions, pictures ---- */

static pv_model *open_model(const char *path, int threads, struct pv_limits limits)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.threads = threads;
    p.limits = limits;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

static pv_session *open_session(pv_model *m, int context, int chunk)
{
    struct pv_session_params p = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    p.max_context = context;
    p.chunk = chunk;
    p.kv_type = PV_KV_F32;
    CHECK_MSG(pv_session_open(&s, m, &p, &err) == PV_OK, "%s", err.text);
    return s;
}

/* n frames of noise; the same for the same seed. */
static const struct pv_frame *noise(int n, uint64_t seed)
{
    static struct pv_frame frames[MAX_FRAMES];
    static uint8_t rgb[MAX_FRAMES][HEIGHT * WIDTH * 3];
    struct rng r = { seed };
    for (int f = 0; f < n; f++) {
        for (size_t i = 0; i < sizeof rgb[f]; i++)
            rgb[f][i] = (uint8_t)rng_next(&r);
        frames[f] = (struct pv_frame){
            .index = f, .time = f, .width = WIDTH, .height = HEIGHT, .rgb = rgb[f]
        };
    }
    return frames;
}

/* Few pixels for Qwen, whose least would make 128 rows of a frame. */
static struct pv_video_params small_frames(void)
{
    struct pv_video_params p = pv_video_defaults();
    p.max_pixels = 56 * 56;
    return p;
}

static enum pv_status add_video(pv_session *s, int n, uint64_t seed, struct pv_error *err)
{
    struct pv_video_params p = small_frames();
    return pv_add_frames(s, noise(n, seed), (size_t)n, 2, &p, err);
}

static enum pv_status add_picture(pv_session *s, uint64_t seed, struct pv_error *err)
{
    struct pv_video_params p = small_frames();
    return pv_add_frames(s, noise(1, seed), 1, 0, &p, err);
}

struct answer {
    int32_t ids[N_NEW];
    struct pv_stats stats;
};

static struct answer ask(pv_session *s, const char *text)
{
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_error err = { 0 };
    struct answer a = { 0 };
    const int32_t *ids;
    size_t n = 0;
    p.max_new_tokens = N_NEW;
    p.ignore_stop = true;
    CHECK_MSG(pv_add_text(s, "user", text, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_generate(s, &p, NULL, NULL, &err) == PV_OK, "%s", err.text);
    ids = pv_session_answer(s, &n);
    if (CHECK_EQ(n, (size_t)N_NEW))
        memcpy(a.ids, ids, sizeof a.ids);
    a.stats.size = sizeof a.stats;
    pv_session_stats(s, &a.stats);
    return a;
}

static bool same_ids(const struct answer *a, const struct answer *b)
{
    return !memcmp(a->ids, b->ids, sizeof a->ids);
}

/* ---- what was seen once ---- */

TEST(a_second_question_does_not_look_again)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 2, (struct pv_limits){ 0 });
        pv_session *s = open_session(m, 1024, 0);
        struct answer first, second;
        CHECK_EQ(add_video(s, 6, 1, NULL), PV_OK);
        first = ask(s, "what");
        CHECK(first.stats.reused_tokens == 0 && first.stats.vision_s > 0);
        CHECK(first.stats.video_tokens > 6 && first.stats.frames == 6);
        second = ask(s, "and then");
        /* All but the last token of the answer, which had not gone through the model; nothing of
         * it where rows of a prompt have other bits than those of an answer. */
        CHECK_EQ(second.stats.reused_tokens,
                 first.stats.prompt_tokens + (decoder_ways_differ(m->dec) ? 0 : N_NEW - 1));
        CHECK(second.stats.vision_s == 0 && second.stats.frames == 0);
        CHECK_EQ(second.stats.video_tokens, first.stats.video_tokens);
        pv_session_close(&s);
        pv_model_close(&m);
    }
}

TEST(the_same_video_after_a_reset_is_recognised)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 2, (struct pv_limits){ 0 });
        pv_session *s = open_session(m, 1024, 0);
        struct answer first, again, other;
        CHECK_EQ(add_video(s, 6, 1, NULL), PV_OK);
        first = ask(s, "what");
        pv_session_reset(s);
        CHECK_EQ(add_video(s, 6, 1, NULL), PV_OK);
        again = ask(s, "what");
        CHECK(same_ids(&first, &again));
        CHECK_EQ(again.stats.reused_tokens, again.stats.prompt_tokens - 1);
        CHECK(again.stats.vision_s == 0);
        pv_session_reset(s);
        CHECK_EQ(add_video(s, 6, 2, NULL), PV_OK); /* as long, but another */
        other = ask(s, "what");
        CHECK_MSG(other.stats.reused_tokens + other.stats.video_tokens <
                          other.stats.prompt_tokens &&
                      other.stats.vision_s > 0,
                  "%s: %lld of %lld rows used again", families[f],
                  (long long)other.stats.reused_tokens, (long long)other.stats.prompt_tokens);
        pv_session_close(&s);
        s = open_session(m, 1024, 0);
        CHECK_EQ(add_video(s, 6, 2, NULL), PV_OK);
        again = ask(s, "what");
        CHECK(same_ids(&other, &again));
        pv_session_close(&s);
        pv_model_close(&m);
    }
}

TEST(chunks_and_threads_change_nothing)
{
    static const int chunks[] = { 512, 1, 7, 64 }, threads[] = { 2, 1, 3, 5 };
    for (int f = 0; f < N_FAMILIES; f++) {
        struct answer first = { 0 };
        for (int i = 0; i < 4; i++) {
            pv_model *m = open_model(families[f], threads[i], (struct pv_limits){ 0 });
            pv_session *s = open_session(m, 1024, chunks[i]);
            struct answer a;
            CHECK_EQ(add_video(s, 5, 3, NULL), PV_OK);
            CHECK_EQ(add_picture(s, 4, NULL), PV_OK);
            a = ask(s, "what");
            if (i == 0)
                first = a;
            CHECK_MSG(same_ids(&first, &a), "%s, chunk %d", families[f], chunks[i]);
            CHECK_EQ(a.stats.video_tokens, first.stats.video_tokens);
            pv_session_close(&s);
            pv_model_close(&m);
        }
    }
}

TEST(pictures_and_videos_of_one_message_all_count)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 2, (struct pv_limits){ 0 });
        int64_t rows[3];
        for (int k = 0; k < 3; k++) {
            pv_session *s = open_session(m, 2048, 0);
            struct answer a;
            if (k != 1)
                CHECK_EQ(add_video(s, 4, 1, NULL), PV_OK);
            if (k != 0)
                CHECK_EQ(add_video(s, 8, 2, NULL), PV_OK);
            a = ask(s, "what");
            rows[k] = a.stats.video_tokens;
            pv_session_close(&s);
        }
        CHECK_EQ(rows[2], rows[0] + rows[1]);
        pv_model_close(&m);
    }
}

/* ---- bounds ---- */

static enum pv_status try_video(struct pv_limits limits, int context, int n, struct pv_error *err)
{
    pv_model *m = open_model(families[0], 1, limits);
    pv_session *s = open_session(m, context, 0);
    enum pv_status st = add_video(s, n, 1, err);
    struct answer a;
    if (st) { /* the session goes on without it */
        a = ask(s, "hi");
        CHECK_EQ(a.stats.video_tokens, 0);
    }
    pv_session_close(&s);
    pv_model_close(&m);
    return st;
}

TEST(what_exceeds_a_limit_is_refused_before_it_is_stored)
{
    struct pv_error err = { 0 };
    CHECK_EQ(try_video((struct pv_limits){ 0 }, 1024, 8, &err), PV_OK);
    CHECK_EQ(try_video((struct pv_limits){ 0 }, 64, 32, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "context has room for 64"), "%s", err.text);
    CHECK_EQ(try_video((struct pv_limits){ .frames = 7 }, 1024, 8, NULL), PV_E_LIMIT);
    CHECK_EQ(try_video((struct pv_limits){ .frame_pixels = WIDTH * HEIGHT - 1 }, 1024, 8, NULL),
             PV_E_LIMIT);
}

TEST(memory_of_a_video_is_its_pixels_and_no_more)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 1, (struct pv_limits){ 0 });
        size_t peak[2], pixels[2];
        for (int k = 0; k < 2; k++) {
            int n = k ? MAX_FRAMES : MAX_FRAMES / 2; /* both more than one batch of the tower */
            pv_session *s = open_session(m, 8192, 32);
            size_t before = mem_bytes(), held;
            mem_peak_reset();
            CHECK_EQ(add_video(s, n, 5, NULL), PV_OK);
            held = mem_bytes() - before;
            ask(s, "what");
            peak[k] = mem_peak() - before;
            pixels[k] = held;
            pv_session_close(&s);
        }
        /* Twice the frames: more pixels, but no more of anything else except ids. */
        CHECK_MSG(peak[1] - peak[0] <= pixels[1] - pixels[0] + 16384,
                  "%s: %zu and %zu bytes, pixels %zu and %zu", families[f], peak[0], peak[1],
                  pixels[0], pixels[1]);
        pv_model_close(&m);
    }
}

/* ---- a file's bytes in memory ---- */

static const char *const media_files[] = { "tests/data/video/bframes.mp4",
                                           "tests/data/video/still.jpg" };

/* A server's limits go along with each video; memory is that of all pictures of a message. */
TEST(limits_of_a_server)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ 0 });
    pv_session *s = open_session(m, 4096, 0);
    struct pv_video_params p = pv_video_defaults();
    struct pv_limits l;
    struct pv_error err = { 0 };
    int n = 0;
    pv_limits_server(&l);
    CHECK(l.memory_bytes == (uint64_t)1 << 30 && l.video_bytes == (uint64_t)512 << 20);
    CHECK(l.frame_pixels == 4096 * 4096 && l.video_seconds == 3600 && l.frames == 512);
    CHECK(l.decoded_pixels > 0 && l.decode_seconds > 0 && l.context_tokens > 0);
    p.limits = &l;
    p.frames = 4;
    CHECK_EQ(pv_add_video(s, "samples/16-frames.mp4", &p, NULL, NULL), PV_OK);
    l.decoded_pixels = 1000;
    CHECK_EQ(pv_add_video(s, "samples/16-frames.mp4", &p, NULL, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "have to be decoded"), "%s", err.text);
    pv_limits_server(&l);
    l.memory_bytes = 4 << 20;
    err = (struct pv_error){ 0 };
    while (n < 1000 && !pv_add_video(s, "samples/16-frames.mp4", &p, NULL, &err))
        n++;
    CHECK_MSG(n > 0 && n < 1000 && err.code == PV_E_LIMIT, "%d videos, %s", n, err.text);
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(videos_in_memory_are_seen_as_those_in_files)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 2, (struct pv_limits){ 0 });
        for (int i = 0; i < 2; i++) {
            pv_session *a = open_session(m, 1024, 0), *b = open_session(m, 1024, 0);
            struct pv_video_params p = small_frames();
            struct pv_video_info want = { 0 }, got = { 0 };
            struct pv_error err = { 0 };
            struct answer x, y;
            size_t size = 0;
            uint8_t *data = make_load(media_files[i], &size);
            CHECK_MSG(!pv_add_video(a, media_files[i], &p, &want, &err), "%s", err.text);
            CHECK_MSG(!pv_add_video_data(b, data, size, &p, &got, &err), "%s", err.text);
            free(data); /* it was borrowed during the call only */
            CHECK(got.width == want.width && got.height == want.height && got.fps == want.fps &&
                  got.total_frames == want.total_frames && got.frames == want.frames &&
                  got.duration == want.duration && got.sample_fps == want.sample_fps);
            x = ask(a, "what");
            y = ask(b, "what");
            CHECK(same_ids(&x, &y) && x.stats.video_tokens == y.stats.video_tokens);
            pv_session_close(&a);
            pv_session_close(&b);
        }
        pv_model_close(&m);
    }
}

/* The ids that a request with one video answers. */
static enum pv_status request(pv_engine *e, struct pv_part video, int32_t ids[N_NEW],
                              struct pv_error *err)
{
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_part parts[2] = { video, { .text = "what" } };
    struct pv_message message = { "user", parts, 2 };
    pv_request *r = NULL;
    struct pv_event event;
    enum pv_status st;
    int n = 0;
    p.messages = &message;
    p.n_messages = 1;
    g.max_new_tokens = N_NEW;
    g.ignore_stop = true;
    p.gen = &g;
    st = pv_request_submit(&r, e, &p, err);
    while (!st && pv_request_next(r, &event, -1))
        if (event.kind == PV_EVENT_TEXT && event.token.id >= 0 && n < N_NEW)
            ids[n++] = event.token.id;
    CHECK(st || n == N_NEW);
    pv_request_close(&r);
    return st;
}

TEST(requests_take_videos_in_memory)
{
    pv_model *m = open_model(families[0], 2, (struct pv_limits){ 0 });
    struct pv_engine_params ep = pv_engine_defaults();
    struct pv_video_params p = small_frames();
    struct pv_error err = { 0 };
    pv_engine *e = NULL;
    int32_t want[N_NEW], got[N_NEW];
    size_t size = 0;
    uint8_t *data = make_load(media_files[0], &size);
    ep.max_context = 1024;
    CHECK(!pv_engine_open(&e, m, &ep, NULL));
    CHECK(!request(e, (struct pv_part){ .path = media_files[0], .video = &p }, want, &err));
    CHECK_MSG(
        !request(e, (struct pv_part){ .data = data, .data_size = size, .video = &p }, got, &err),
        "%s", err.text);
    CHECK(!memcmp(want, got, sizeof got));
    CHECK_EQ(request(e, (struct pv_part){ .data = data, .video = &p }, got, &err), PV_E_FORMAT);
    CHECK_MSG(!strcmp(err.text, "the video in memory: is empty"), "%s", err.text);
    CHECK_EQ(request(e, (struct pv_part){ .data_size = 9, .video = &p }, got, NULL), PV_E_ARG);
    CHECK_EQ(request(e, (struct pv_part){ .video = &p }, got, NULL), PV_E_ARG);
    free(data);
    pv_engine_close(&e);
    pv_model_close(&m);
}

TEST(memory_without_a_video_is_refused)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ .video_bytes = 5000 });
    pv_session *s = open_session(m, 1024, 0);
    struct pv_video_params p = small_frames();
    struct pv_video_info info = { .frames = -7 };
    struct pv_error err = { 0 };
    size_t size = 0;
    uint8_t *data = make_load(media_files[0], &size);
    struct answer a, b;
    a = ask(s, "what");
    pv_session_reset(s);
    CHECK_EQ(pv_add_video_data(s, NULL, 0, &p, &info, NULL), PV_E_FORMAT);
    CHECK_EQ(pv_add_video_data(s, NULL, 1, &p, &info, NULL), PV_E_ARG);
    CHECK_EQ(pv_add_video_data(s, "no video", 8, &p, &info, NULL), PV_E_FORMAT);
    CHECK_EQ(pv_add_video_data(s, data, 3000, &p, &info, NULL), PV_E_FORMAT);
    CHECK_EQ(pv_add_video_data(s, NULL, SIZE_MAX, &p, &info, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "at most 5000 are allowed"), "%s", err.text);
    CHECK_EQ(info.frames, -7);
    b = ask(s, "what"); /* nothing was added */
    CHECK(same_ids(&a, &b) && b.stats.video_tokens == 0);
    free(data);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* ---- refusals ---- */

TEST(media_without_meaning_are_refused)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ 0 });
    pv_session *s = open_session(m, 1024, 0);
    struct pv_video_params p = small_frames();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_error err = { 0 };
    struct pv_frame f[2];
    CHECK_EQ(pv_add_frames(s, noise(2, 1), 0, 2, &p, NULL), PV_E_LIMIT);
    CHECK_EQ(pv_add_frames(s, noise(2, 1), 2, 0, &p, NULL), PV_E_ARG);
    CHECK_EQ(pv_add_frames(s, noise(2, 1), 2, -1, &p, NULL), PV_E_ARG);
    CHECK_EQ(pv_add_frames(s, noise(2, 1), 2, 1e-12, &p, NULL), PV_E_LIMIT); /* 63,000 years */
    memcpy(f, noise(2, 1), sizeof f);
    f[1].width--;
    CHECK_EQ(pv_add_frames(s, f, 2, 2, &p, NULL), PV_E_ARG);
    f[1].width = 0;
    CHECK_EQ(pv_add_frames(s, f, 2, 2, &p, NULL), PV_E_LIMIT);
    f[1] = f[0];
    f[1].rgb = NULL;
    CHECK_EQ(pv_add_frames(s, f, 2, 2, &p, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "frame 1 has no pixels"), "%s", err.text);
    p.fps = -1;
    CHECK_EQ(pv_add_frames(s, noise(2, 1), 2, 2, &p, NULL), PV_E_ARG);
    CHECK_EQ(add_video(s, 2, 1, NULL), PV_OK);
    CHECK_EQ(pv_add_text(s, "assistant", "no", NULL), PV_E_ARG);
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, NULL), PV_E_ARG); /* no text yet */
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(no_parameters_are_the_defaults)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ 0 });
    pv_session *s = open_session(m, 1024, 0);
    struct pv_error err = { 0 };
    CHECK_MSG(!pv_add_frames(s, noise(1, 1), 1, 0, NULL, &err), "%s", err.text);
    CHECK_EQ(pv_add_video(s, "no/such/file.mp4", NULL, NULL, NULL), PV_E_IO);
    CHECK_EQ(pv_video_frames(m, "no/such/file.mp4", NULL, NULL, NULL, NULL, NULL), PV_E_IO);
    pv_session_close(&s);
    pv_model_close(&m);
}

TEST(a_message_that_does_not_fit_leaves_its_media_waiting)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ 0 });
    pv_session *s = open_session(m, 128, 0), *fresh = open_session(m, 128, 0);
    char long_text[2048];
    struct answer a, b;
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    CHECK_EQ(add_video(s, 3, 1, NULL), PV_OK);
    CHECK_EQ(pv_add_text(s, "user", long_text, NULL), PV_E_LIMIT);
    CHECK_EQ(pv_add_text(s, "user", long_text, NULL), PV_E_LIMIT);
    a = ask(s, "what");
    CHECK_EQ(add_video(fresh, 3, 1, NULL), PV_OK);
    b = ask(fresh, "what");
    CHECK(same_ids(&a, &b) && a.stats.video_tokens == b.stats.video_tokens);
    pv_session_close(&s);
    pv_session_close(&fresh);
    pv_model_close(&m);
}

static bool stop_at_once(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    int *calls = user;
    (void)phase;
    CHECK(done > 0 && done <= total);
    return ++*calls < 2;
}

TEST(prefill_can_be_stopped_and_goes_on_later)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ 0 });
    pv_session *s = open_session(m, 1024, 16), *fresh = open_session(m, 1024, 16);
    struct pv_gen_params g = pv_gen_defaults();
    struct answer a, b;
    int calls = 0;
    g.progress = stop_at_once;
    g.progress_user = &calls;
    CHECK_EQ(add_video(s, 8, 1, NULL), PV_OK);
    CHECK_EQ(pv_add_text(s, "user", "what", NULL), PV_OK);
    CHECK_EQ(pv_generate(s, &g, NULL, NULL, NULL), PV_E_CANCELLED);
    CHECK_EQ(calls, 2);
    pv_session_reset(s);
    CHECK_EQ(add_video(s, 8, 1, NULL), PV_OK);
    a = ask(s, "what");
    CHECK_EQ(a.stats.reused_tokens, 32);
    CHECK_EQ(add_video(fresh, 8, 1, NULL), PV_OK);
    b = ask(fresh, "what");
    CHECK(same_ids(&a, &b));
    pv_session_close(&s);
    pv_session_close(&fresh);
    pv_model_close(&m);
}

/* A cancelled question asked again, and the one after it, are as if nothing had happened. */
TEST(a_stopped_question_can_be_asked_again)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 1, (struct pv_limits){ 0 });
        pv_session *s = open_session(m, 1024, 16), *fresh = open_session(m, 1024, 16);
        struct pv_gen_params stop = pv_gen_defaults(), go = pv_gen_defaults();
        struct answer a, b;
        int calls = 0;
        stop.progress = stop_at_once;
        stop.progress_user = &calls;
        go.max_new_tokens = N_NEW;
        go.ignore_stop = true;
        CHECK_EQ(add_video(s, 8, 1, NULL), PV_OK);
        CHECK_EQ(pv_add_text(s, "user", "what", NULL), PV_OK);
        CHECK_EQ(pv_generate(s, &stop, NULL, NULL, NULL), PV_E_CANCELLED);
        CHECK_EQ(pv_generate(s, &go, NULL, NULL, NULL), PV_OK);
        a.stats.size = sizeof a.stats;
        pv_session_stats(s, &a.stats);
        CHECK_EQ(a.stats.frames, 8);
        a = ask(s, "and then");
        CHECK_EQ(add_video(fresh, 8, 1, NULL), PV_OK);
        ask(fresh, "what");
        b = ask(fresh, "and then");
        CHECK(same_ids(&a, &b) && a.stats.prompt_tokens == b.stats.prompt_tokens);
        pv_session_close(&s);
        pv_session_close(&fresh);
        pv_model_close(&m);
    }
}

/* One of several pictures takes less room than one alone, which LLaVA cuts into tiles. */
TEST(many_small_pictures_fit)
{
    pv_model *m = open_model(families[0], 1, (struct pv_limits){ 0 });
    pv_session *s = open_session(m, 512, 0);
    struct answer a;
    for (int i = 0; i < 8; i++)
        CHECK_EQ(add_picture(s, (uint64_t)i, NULL), PV_OK);
    a = ask(s, "what");
    CHECK(a.stats.video_tokens > 8 && a.stats.video_tokens % 8 == 0);
    pv_session_close(&s);
    pv_model_close(&m);
}

/* Everything a question about a video and a picture does, with the k-th allocation failing. */
TEST(lack_of_memory_anywhere_is_a_clean_failure)
{
    for (int f = 0; f < N_FAMILIES; f++) {
        pv_model *m = open_model(families[f], 1, (struct pv_limits){ 0 });
        bool done = false;
        int failures = 0;
        for (uint64_t k = 1; k < 500 && !done; k++) {
            struct pv_gen_params g = pv_gen_defaults();
            pv_session *s = open_session(m, 512, 0);
            enum pv_status st;
            g.max_new_tokens = 1;
            mem_fail_at(k);
            st = add_video(s, 4, 1, NULL);
            if (!st)
                st = add_picture(s, 2, NULL);
            if (!st)
                st = pv_add_text(s, "user", "what", NULL);
            if (!st)
                st = pv_generate(s, &g, NULL, NULL, NULL);
            mem_fail_at(0);
            CHECK_MSG(st == PV_OK || st == PV_E_NOMEM, "%s: status %d", families[f], (int)st);
            done = st == PV_OK;
            failures += !done;
            pv_session_close(&s);
        }
        CHECK(done && failures > 5);
        pv_model_close(&m);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
