/* Answers of a model that is spread over ranks: ids and the bits of all logits equal those of the
 * model in one process, for every preset, with trained models and with random ones of each family
 * that sees. The ranks are processes, as --ranks starts them. */
#include "answers.h"
#include "base/digest.h"

#include <unistd.h>

enum {
    CLIP_FRAMES = TEST_BRIEF ? 1 : 4,
    SIDE = 256,
    LONGEST = 64,
    WANTED = TEST_BRIEF ? 6 : 16,
    THREADS = TEST_BRIEF ? 1 : 2, /* of a rank: those that wait take an emulator's time */
    RANKS = TEST_BRIEF ? 2 : 4,   /* at most */
    N_BRIEF = 8                   /* of presets one in so many */
};

/* ---- what is compared ---- */

struct outcome {
    size_t n;
    int32_t ids[LONGEST];
    uint8_t logits[LONGEST][DIGEST_SIZE];
    int accepted;
};

struct watch {
    struct outcome *to;
    size_t vocab;
};

static void watch_logits(void *user, int token, const float *logits)
{
    struct watch *w = user;
    struct digest d;
    if (token >= LONGEST)
        return;
    digest_init(&d);
    digest_add(&d, logits, w->vocab * sizeof *logits);
    digest_finish(&d, w->to->logits[token]);
}

/* What the sessions of both models are shown. */
struct film {
    struct pv_frame frame[FRAMES];
    uint8_t rgb[FRAMES][SIDE * SIDE * 3];
    size_t n;
    double fps;
    int max_pixels; /* 0: as usual */
};

static bool answer(pv_session *s, const struct film *f, const struct pv_method *m,
                   struct outcome *out)
{
    struct pv_video_params v = pv_video_defaults();
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_error err = { 0 };
    struct pv_stats stats = { .size = sizeof stats };
    struct watch w = { out, (size_t)vocab_of(s) };
    const int32_t *ids;
    enum pv_status st;
    memset(out, 0, sizeof *out);
    pv_session_reset(s);
    v.max_pixels = f->max_pixels ? f->max_pixels : v.max_pixels;
    if (pv_model_has_audio(s->model)) {
        v.samples = noise_sound(3);
        v.n_samples = SAMPLES;
    }
    p.max_new_tokens = WANTED;
    p.ignore_stop = true;
    p.method = m;
    st = pv_add_frames(s, f->frame, f->n, f->fps, &v, &err);
    if (!st)
        st = pv_add_text(s, "user", "Describe this video.", &err);
    s->observer = (struct logits_observer){ watch_logits, &w };
    if (!st)
        st = pv_generate(s, &p, NULL, NULL, &err);
    s->observer = (struct logits_observer){ 0 };
    if (!CHECK_MSG(!st, "%s: %s", m->name, err.text))
        return false;
    ids = pv_session_answer(s, &out->n);
    memcpy(out->ids, ids, out->n * sizeof *ids);
    pv_session_stats(s, &stats);
    out->accepted = (int)stats.accepted;
    return true;
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return a->n == b->n && a->n == WANTED && !memcmp(a->ids, b->ids, a->n * sizeof *a->ids) &&
           !memcmp(a->logits, b->logits, a->n * sizeof *a->logits);
}

/* ---- models ---- */

struct paths {
    const char *target, *head, *draft;
};

/* Closed by close_side, also after a failure. */
struct model_side {
    pv_model *target, *draft;
    pv_session *session;
};

static bool open_side(struct model_side *m, const struct paths *from, pv_ranks *ranks)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    enum pv_status st;
    *m = (struct model_side){ 0 };
    p.threads = THREADS;
    p.path = from->target;
    p.head = from->head;
    p.ranks = ranks;
    st = pv_model_open(&m->target, &p, &err);
    p.path = from->draft;
    p.head = NULL;
    p.shares_with = m->target;
    if (!st)
        st = pv_model_open(&m->draft, &p, &err);
    sp.max_context = CONTEXT;
    sp.chunk = 100;
    sp.draft = m->draft;
    if (!st)
        st = pv_session_open(&m->session, m->target, &sp, &err);
    return CHECK_MSG(!st, "%s: %s", from->target, err.text);
}

static void close_side(struct model_side *m)
{
    pv_session_close(&m->session);
    pv_model_close(&m->draft);
    pv_model_close(&m->target);
}

/* Presets first, first + step, ..., and a model that drafts for itself by a view. Returns how many
 * drafted tokens were accepted. */
static int compare(struct model_side *one, struct model_side *many, const struct film *f, int ranks,
                   int first, int step)
{
    static struct outcome a, b;
    struct pv_method self = method(PV_DRAFT_SELF, "specvlm", PV_SHAPE_TREE);
    int accepted = 0;
    for (int i = first; pv_method_name(i); i += step) {
        struct pv_method m = { .size = sizeof m };
        bool headed;
        CHECK(!pv_method_find(&m, pv_method_name(i), NULL));
        headed = m.drafter == PV_DRAFT_HEAD;
        if (headed && !pv_model_has_head(one->target))
            continue;
        if (answer(one->session, f, &m, &a) && answer(many->session, f, &m, &b))
            CHECK_MSG(same(&a, &b), "%s with %d ranks: another answer", m.name, ranks);
        accepted += b.accepted;
    }
    if (answer(one->session, f, &self, &a) && answer(many->session, f, &self, &b))
        CHECK_MSG(same(&a, &b), "self with %d ranks: another answer", ranks);
    return accepted;
}

/* The rest of the test is rank 0's; the others end here. */
static pv_ranks *start(int n)
{
    struct pv_error err = { 0 };
    pv_ranks *r = NULL;
    if (!CHECK_MSG(!pv_ranks_start(&r, n, &err), "%s", err.text))
        return NULL;
    if (pv_ranks_rank(r) > 0)
        _exit(pv_ranks_follow(r, NULL) != PV_OK);
    return r;
}

/* ---- nano ---- */

static bool keep_frame(void *user, const struct pv_frame *f)
{
    struct film *c = user;
    if (c->n == CLIP_FRAMES || f->width != SIDE || f->height != SIDE)
        return false;
    memcpy(c->rgb[c->n], f->rgb, sizeof c->rgb[c->n]);
    c->frame[c->n] = *f;
    c->frame[c->n].rgb = c->rgb[c->n];
    c->n++;
    return true;
}

TEST(answers_of_nano_do_not_depend_on_ranks)
{
    static const struct paths nano = { "models/nano.gguf", "models/nano-head.gguf",
                                       "models/nano-draft.gguf" };
    static struct film f;
    for (int n = 2; n <= RANKS; n++) {
        pv_ranks *ranks = start(n);
        struct model_side one = { 0 }, many = { 0 };
        struct pv_video_params v = pv_video_defaults();
        struct pv_error err = { 0 };
        int accepted = 0;
        f = (struct film){ .fps = 2 };
        v.max_frames = CLIP_FRAMES;
        if (ranks && open_side(&one, &nano, NULL) && open_side(&many, &nano, ranks) &&
            CHECK_MSG(!pv_video_frames(one.target, "samples/16-frames.mp4", &v, keep_frame, &f,
                                       NULL, &err),
                      "%s", err.text)) {
            accepted = TEST_BRIEF ? compare(&one, &many, &f, n, 1, N_BRIEF)
                                  : compare(&one, &many, &f, n, n == 2 ? 0 : n - 1, n == 2 ? 1 : 4);
            CHECK_MSG(accepted > (TEST_BRIEF ? 0 : 10), "only %d drafted tokens were accepted",
                      accepted);
        }
        close_side(&many);
        close_side(&one);
        pv_ranks_close(&ranks);
    }
}

/* ---- every family that sees ---- */

static void compare_family(const struct family *family, int n)
{
    struct tiny_vision target = tiny_vision(family), draft = target;
    char paths[2][256];
    struct paths from = { paths[0], NULL, paths[1] };
    struct model_side one = { 0 }, many = { 0 };
    static struct film f;
    pv_ranks *ranks = start(n);
    draft.noise = 0.1f;
    tiny_vision_gguf(&target, "ranks-target", paths[0]);
    tiny_vision_gguf(&draft, "ranks-draft", paths[1]);
    f = (struct film){ .n = FRAMES, .fps = 2, .max_pixels = 56 * 56 };
    {
        static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
        noise_frames(f.frame, rgb, 7);
    }
    if (ranks && open_side(&one, &from, NULL) && open_side(&many, &from, ranks))
        compare(&one, &many, &f, n, n % 3, TEST_BRIEF ? N_BRIEF : 3);
    close_side(&many);
    close_side(&one);
    pv_ranks_close(&ranks);
}

TEST(answers_of_every_family_do_not_depend_on_ranks)
{
    static const struct family *const all[] = { &family_llava_onevision, &family_qwen2_vl,
                                                &family_qwen2_5_vl, &family_qwen3_vl,
                                                &family_salmonn2_plus };
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        compare_family(all[i], 2 + i % 3);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
