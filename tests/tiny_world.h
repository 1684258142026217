/* The world of episodes.h with tiny random models of a family: a target, a drafter that resembles
 * it, a draft head, and prompts with videos and pictures of noise. */
#ifndef PV_TESTS_TINY_WORLD_H
#define PV_TESTS_TINY_WORLD_H

#include "episodes.h"
#include "family/families.h"
#include "headed.h"

/* Prompts 0 and 4 begin alike, and so do 1 and 2, which begin with words; 3 is a picture and 5
 * another video. */
static inline void tiny_prompts(struct world *w)
{
    static struct pv_frame frames[2][FRAMES];
    static uint8_t rgb[2][FRAMES][HEIGHT * WIDTH * 3];
    static struct pv_video_params v;
    static struct pv_part parts[MAX_PROMPTS][2];
    static const struct pv_part answer = { .text = "the dog" };
    const struct pv_part video = { .frames = frames[0], .n_frames = FRAMES, .fps = 2, .video = &v };
    const struct pv_part other = { .frames = frames[1], .n_frames = FRAMES, .fps = 2, .video = &v };
    const struct pv_part picture = { .frames = frames[0], .n_frames = 1, .video = &v };
    const struct pv_part usual = { .text = "what is the dog" };
    const struct pv_part filled[MAX_PROMPTS][2] = { { video, usual },
                                                    { { .text = "what is the" } },
                                                    { video, usual },
                                                    { picture, { .text = "the cat" } },
                                                    { video,
                                                      { .text = "what is the dog and the cat" } },
                                                    { other, usual } };
    for (int i = 0; i < 2; i++)
        noise_frames(frames[i], rgb[i], 7 + (uint64_t)i);
    v = pv_video_defaults();
    v.max_pixels = 56 * 56;
    memcpy(parts, filled, sizeof parts);
    w->n_prompts = MAX_PROMPTS;
    for (int i = 0; i < MAX_PROMPTS; i++)
        w->prompt[i] = (struct world_prompt){ .message = { { "user", parts[i], 2 } }, .n = 1 };
    w->prompt[1].message[0].n_parts = 1;
    w->prompt[2] = (struct world_prompt){ .message = { w->prompt[1].message[0],
                                                       { "assistant", &answer, 1 },
                                                       { "user", parts[2], 2 } },
                                          .n = 3 };
}

/* A GPU has weights and cache in BF16, and heads as large as its fastest kernels want them. */
static inline struct tiny_vision tiny_gpu_vision(const struct family *family)
{
    struct tiny_vision v = tiny_vision(family);
    v.text.type = DTYPE_BF16;
    v.text.head_dim = 64;
    return v;
}

/* On a CPU of this level, or a device. */
static inline bool tiny_world_open(struct world *w, const struct family *family,
                                   enum test_head head, const char *device, int level)
{
    struct pv_model_params p = pv_model_defaults();
    struct pair pair;
    bool open;
    p.threads = 1;
    p.device = device;
    p.cpu_mask = cpu_levels[level].flags;
    open = open_headed(&pair, device ? tiny_gpu_vision(family) : tiny_vision(family), head, p);
    *w = (struct world){ .target = pair.target,
                         .draft = pair.draft,
                         .head = head != NO_HEAD,
                         .context = CONTEXT,
                         .n_new = N_NEW,
                         .max_jobs = MAX_JOBS,
                         .kv = device ? PV_KV_BF16 : PV_KV_F32,
                         .disk = true };
    tiny_prompts(w);
    if (!open)
        world_close(w);
    return open;
}

#endif
