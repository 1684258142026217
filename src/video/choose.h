/* Which frames of a video are sampled for a model: the rules of the model families. */
#ifndef PV_VIDEO_CHOOSE_H
#define PV_VIDEO_CHOOSE_H

#include "base/status.h"

enum choose_rule {
    CHOOSE_LINSPACE, /* N evenly spaced numbers from first to last, rounded down (LLaVA-NeXT) */
    CHOOSE_ARANGE,   /* int(k * total / N) (Hugging Face) */
    CHOOSE_QWEN,     /* evenly spaced, rounded to nearest; N is even (qwen-vl-utils) */
    CHOOSE_QWEN3,    /* the same with any N, in double precision (Qwen3-VL's processor) */
    CHOOSE_ONCE      /* as linspace with N rounded, but no frame twice (video-SALMONN2+) */
};

struct choose_params {
    enum choose_rule rule;
    int frames;                 /* N; 0: computed from fps */
    double fps;                 /* sampled frames per second, if frames is 0 */
    int min_frames, max_frames; /* bounds of the number computed from fps; 0: none */
    double start, end;          /* seconds; end 0: the end of the video */
};

struct choice {
    int n;
    int64_t *index;    /* [n], ascending, may repeat; owned: choice_clear */
    double sample_fps; /* sampled frames per second; 0 for a still picture */
};

/* Choose from a video of `total` frames at `fps` frames per second. fps 0: a still picture, whose
 * only frame is chosen whatever the parameters say. PV_E_LIMIT beyond `limit` frames. */
enum pv_status choose_frames(struct choice *out, const struct choose_params *p, int64_t total,
                             double fps, int limit, struct pv_error *err);
void choice_clear(struct choice *c);

#endif
