/* Lossless under load (episodes.h) on trained models: nano with its drafter and its draft head,
 * whose proposals are mostly right, so that speculation truly runs. */
#include "episodes.h"

#include <unistd.h>

enum {
    CLIP_FRAMES = 4,
    SIDE = 256,
    NANO_CONTEXT = 512,
    NANO_EPISODES = 24,
    RANKS = 3,
    RANK_EPISODES = 4
};

struct clip {
    struct pv_frame frame[CLIP_FRAMES];
    uint8_t rgb[CLIP_FRAMES][SIDE * SIDE * 3];
    size_t n;
};

static bool keep_frame(void *user, const struct pv_frame *f)
{
    struct clip *c = user;
    if (c->n == CLIP_FRAMES || f->width != SIDE || f->height != SIDE)
        return false;
    memcpy(c->rgb[c->n], f->rgb, sizeof c->rgb[c->n]);
    c->frame[c->n] = *f;
    c->frame[c->n].rgb = c->rgb[c->n];
    c->n++;
    return true;
}

static bool clip_read(struct clip *c, const pv_model *model, const char *path)
{
    struct pv_video_params v = pv_video_defaults();
    struct pv_error err = { 0 };
    v.max_frames = CLIP_FRAMES;
    c->n = 0;
    return CHECK_MSG(!pv_video_frames(model, path, &v, keep_frame, c, NULL, &err), "%s", err.text);
}

static pv_model *open_file(const char *path, const char *head, pv_model *shares_with,
                           pv_ranks *ranks)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.head = head;
    p.threads = 1;
    p.shares_with = shares_with;
    p.ranks = ranks;
    CHECK_MSG(pv_model_open(&m, &p, &err) == PV_OK, "%s", err.text);
    return m;
}

/* Two videos, one of them with two questions, and a question without any. */
static bool nano_prompts(struct world *w)
{
    static struct clip clip[2];
    static struct pv_part parts[4][2];
    static const char *const words[4] = { "Describe this video.", "What happens first?",
                                          "Describe this video.", "What is a video?" };
    if (!clip_read(&clip[0], w->target, "samples/16-frames.mp4") ||
        !clip_read(&clip[1], w->target, "samples/32-frames.mp4"))
        return false;
    w->n_prompts = 4;
    for (int i = 0; i < 4; i++) {
        const struct clip *c = &clip[i == 2];
        bool sees = i < 3;
        parts[i][0] = (struct pv_part){ .frames = c->frame, .n_frames = c->n, .fps = 2 };
        parts[i][sees] = (struct pv_part){ .text = words[i] };
        w->prompt[i] =
            (struct world_prompt){ .message = { { "user", parts[i], 1 + sees } }, .n = 1 };
    }
    return true;
}

static void run_nano(pv_ranks *ranks, uint64_t seed, int episodes)
{
    static struct world w;
    struct tally t;
    w = (struct world){ .head = true,
                        .context = NANO_CONTEXT,
                        .n_new = N_NEW,
                        .max_jobs = MAX_JOBS,
                        .kv = PV_KV_AUTO };
    w.target = open_file("models/nano.gguf", "models/nano-head.gguf", NULL, ranks);
    w.draft = w.target ? open_file("models/nano-draft.gguf", NULL, w.target, NULL) : NULL;
    if (!w.draft || !nano_prompts(&w)) {
        world_close(&w);
        return;
    }
    t = run_world(&w, seed, episodes);
    CHECK_MSG(t.accepted > 20 * episodes, "only %lld drafted tokens were accepted",
              (long long)t.accepted);
}

TEST(requests_of_nano_do_not_see_each_other)
{
    run_nano(NULL, 5000, test_brief() ? NANO_EPISODES / 3 : NANO_EPISODES);
}

/* The same with the model spread over three processes. */
TEST(requests_on_ranks_do_not_see_each_other)
{
    pv_ranks *ranks = NULL;
    if (!CHECK_EQ(pv_ranks_start(&ranks, RANKS, NULL), PV_OK))
        return;
    if (pv_ranks_rank(ranks) > 0)
        _exit(pv_ranks_follow(ranks, NULL) != PV_OK);
    run_nano(ranks, 7000, RANK_EPISODES);
    pv_ranks_close(&ranks);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
