/* A video is decoded once, however many answers, questions and turns it is in; the answers are
 * those that they would have had otherwise. */
#include "answers.h"
#include "base/mem.h"
#include "engine/media_open.h"
#include "make_file.h"
#include "scratch.h"

enum { LENGTH = 6, MAX_TURNS = 4 };

static const char clip[] = "tests/data/video/bframes.mp4";

struct scene {
    struct pair p;
    pv_engine *e;
};

static bool scene_open(struct scene *s, int64_t media_bytes)
{
    struct pv_engine_params p = pv_engine_defaults();
    struct pv_error err = { 0 };
    s->p = open_unlike(&family_llava_onevision, 1);
    p.max_context = CONTEXT;
    p.max_requests = 8;
    p.kv_tokens = 8 * CONTEXT;
    p.kv_type = PV_KV_F32;
    p.media_bytes = media_bytes;
    return CHECK_MSG(pv_engine_open(&s->e, s->p.target, &p, &err) == PV_OK, "%s", err.text);
}

static void scene_close(struct scene *s)
{
    pv_engine_close(&s->e);
    close_pair(&s->p);
}

static struct pv_engine_counts counts_of(const struct scene *s)
{
    struct pv_engine_counts c = { .size = sizeof c };
    pv_engine_stats(s->e, &c);
    return c;
}

static struct pv_video_params four_frames(void)
{
    struct pv_video_params v = pv_video_defaults();
    v.frames = 4;
    return v;
}

/* What it answers to messages. */
struct reply {
    int n;
    int32_t ids[LENGTH];
};

static pv_request *submit(const struct scene *s, const struct pv_message *messages, int n,
                          uint64_t seed)
{
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params g = pv_gen_defaults();
    struct pv_error err = { 0 };
    pv_request *r = NULL;
    g.max_new_tokens = LENGTH;
    g.ignore_stop = true;
    g.temperature = 1;
    g.seed = seed;
    p.gen = &g;
    p.messages = messages;
    p.n_messages = (size_t)n;
    CHECK_MSG(pv_request_submit(&r, s->e, &p, &err) == PV_OK, "%s", err.text);
    return r;
}

static struct reply finish(pv_request *r)
{
    struct reply out = { 0 };
    struct pv_event e;
    while (r && pv_request_next(r, &e, -1))
        if (e.kind == PV_EVENT_TEXT && e.token.id >= 0 && out.n < LENGTH)
            out.ids[out.n++] = e.token.id;
    pv_request_close(&r);
    return out;
}

static void check_same(const struct reply *a, const struct reply *b, int i)
{
    CHECK_MSG(a->n == LENGTH && a->n == b->n && !memcmp(a->ids, b->ids, sizeof a->ids),
              "answer %d is another one", i);
}

/* Eight answers to one question, as for `n` of a chat completion. */
static void eight_answers(const struct scene *s, struct reply out[8])
{
    const struct pv_video_params v = four_frames();
    const struct pv_part parts[] = { { .path = clip, .video = &v }, { .text = "what is it" } };
    const struct pv_message message = { "user", parts, 2 };
    pv_request *r[8];
    for (int i = 0; i < 8; i++)
        r[i] = submit(s, &message, 1, (uint64_t)i);
    for (int i = 0; i < 8; i++)
        out[i] = finish(r[i]);
}

/* Five questions about one clip, as for a line of `prevue batch`. */
static void five_questions(const struct scene *s, struct reply out[5])
{
    static const char *const text[] = { "one", "two", "three", "four", "five" };
    for (int i = 0; i < 5; i++) {
        const struct pv_video_params v = four_frames();
        const struct pv_part parts[] = { { .path = clip, .video = &v }, { .text = text[i] } };
        const struct pv_message message = { "user", parts, 2 };
        out[i] = finish(submit(s, &message, 1, 0));
    }
}

/* Four turns of a client that sends the video again with each, as bytes. */
static void four_turns(const struct scene *s, struct reply out[MAX_TURNS])
{
    const struct pv_video_params v = four_frames();
    size_t size = 0;
    uint8_t *data = make_load(clip, &size);
    const struct pv_part first[] = { { .data = data, .data_size = size, .video = &v },
                                     { .text = "what is it" } };
    const struct pv_part again = { .text = "and now" }, said = { .text = "a dog" };
    struct pv_message messages[2 * MAX_TURNS] = { { "user", first, 2 } };
    for (int turn = 0; turn < MAX_TURNS; turn++) {
        messages[2 * turn + 1] = (struct pv_message){ "assistant", &said, 1 };
        if (turn > 0)
            messages[2 * turn] = (struct pv_message){ "user", &again, 1 };
        out[turn] = finish(submit(s, messages, 2 * turn + 1, 0));
    }
    free(data);
}

TEST(answers_questions_and_turns_decode_a_video_once)
{
    static const struct {
        const char *what;
        void (*ask)(const struct scene *s, struct reply *out);
        int n;
    } cases[] = { { "answers", eight_answers, 8 },
                  { "questions", five_questions, 5 },
                  { "turns", four_turns, MAX_TURNS } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply shared[8], alone[8];
        struct scene with, without;
        struct pv_engine_counts c;
        if (!scene_open(&with, 0) || !scene_open(&without, -1))
            return;
        cases[i].ask(&with, shared);
        cases[i].ask(&without, alone);
        c = counts_of(&with);
        CHECK_MSG(c.media_decoded == 1 && c.media_found == cases[i].n - 1,
                  "%s: decoded %d times, found %d times", cases[i].what, (int)c.media_decoded,
                  (int)c.media_found);
        c = counts_of(&without);
        CHECK_EQ(c.media_decoded, cases[i].n);
        CHECK_EQ(c.media_found, 0);
        for (int k = 0; k < cases[i].n; k++)
            check_same(&shared[k], &alone[k], k);
        scene_close(&with);
        scene_close(&without);
    }
}

static void ask_about(const struct scene *s, const char *path, const struct pv_video_params *v)
{
    const struct pv_part parts[] = { { .path = path, .video = v }, { .text = "what is it" } };
    const struct pv_message message = { "user", parts, 2 };
    finish(submit(s, &message, 1, 0));
}

TEST(other_frames_and_other_bytes_are_decoded_again)
{
    struct pv_video_params v = four_frames();
    struct scene s;
    char path[300];
    size_t size = 0;
    uint8_t *data = make_load(clip, &size);
    if (!scene_open(&s, 0))
        return;
    snprintf(path, sizeof path, "%s/clip.mp4", scratch_dir());
    make_write(path, data, size);
    ask_about(&s, path, &v);
    ask_about(&s, clip, &v); /* the same bytes under another name */
    CHECK_EQ(counts_of(&s).media_decoded, 1);
    v.frames = 3;
    ask_about(&s, path, &v);
    CHECK_EQ(counts_of(&s).media_decoded, 2);
    free(data);
    data = make_load("tests/data/video/vfr.mkv", &size);
    make_write(path, data, size);
    ask_about(&s, path, &v); /* other bytes under the same name */
    CHECK_EQ(counts_of(&s).media_decoded, 3);
    CHECK_EQ(counts_of(&s).media_found, 1);
    free(data);
    scene_close(&s);
}

/* ---- the cache ---- */

static struct pv_media *item_of(int side)
{
    struct pv_media *m = NULL;
    struct loaded_media l = { .m = { .n_views = 1, .height = side, .width = side } };
    CHECK_EQ(media_reserve(&l.m, NULL), PV_OK);
    CHECK_EQ(shared_media_open(&m, &l, NULL), PV_OK);
    return m;
}

TEST(what_was_used_last_is_kept_within_the_limit)
{
    enum { SIDE = 64, LIMIT = 5 * SIDE * SIDE * 3 / 2 }; /* room for two, not for three */
    size_t before = mem_bytes();
    struct media_cache *c = media_cache_open(LIMIT);
    struct pv_media *m, *found, *held = NULL;
    uint8_t key[4][DIGEST_SIZE] = { { 0 }, { 1 }, { 2 }, { 3 } };
    for (int i = 0; i < 2; i++) {
        m = item_of(SIDE);
        media_cache_keep(c, key[i], m);
        shared_media_close(&m);
    }
    held = media_cache_find(c, key[0]); /* used later than 1 */
    CHECK(held && !media_cache_find(c, key[2]));
    m = item_of(SIDE);
    media_cache_keep(c, key[2], m);
    media_cache_keep(c, key[2], m); /* once is enough */
    shared_media_close(&m);
    CHECK(!media_cache_find(c, key[1]));
    found = media_cache_find(c, key[2]);
    CHECK(found != NULL);
    shared_media_close(&found);
    m = item_of(2 * SIDE); /* larger than the limit */
    media_cache_keep(c, key[3], m);
    shared_media_close(&m);
    CHECK(!media_cache_find(c, key[3]));
    media_cache_close(&c);
    CHECK_EQ(atomic_load(&held->refs), 1);
    memset(held->l.m.rgb, 1, media_size(&held->l.m)); /* it is still there */
    shared_media_close(&held);
    CHECK_EQ(mem_bytes(), before);
}

TEST(copies_share_pixels_until_the_last_is_gone)
{
    struct media a = { .n_views = 2, .height = 4, .width = 4 }, b;
    CHECK_EQ(media_reserve(&a, NULL), PV_OK);
    b = media_copy(&a);
    CHECK(b.rgb == a.rgb && b.store == a.store);
    media_clear(&a);
    CHECK(!a.rgb && media_is_loaded(&b));
    memset(b.rgb, 7, media_size(&b));
    CHECK_EQ(*media_view(&b, 1), 7);
    media_clear(&b);
    CHECK(!b.store);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
