/* Which frames of a video a model sees: the rules of the model families. */
#ifndef PV_VIDEO_CHOOSE_H
#define PV_VIDEO_CHOOSE_H

#include "base/status.h"

enum choose_rule {
    CHOOSE_LINSPACE, /* floor of N numbers evenly from the first to the last (LLaVA-NeXT) */
    CHOOSE_ARANGE,   /* int(k * total / N) (Hugging Face) */
    CHOOSE_QWEN,     /* an even number, rounded evenly from the first to the last (qwen-vl-utils) */
    CHOOSE_QWEN3,    /* any number, likewise, in double (Qwen3-VL's processor) */
    CHOOSE_ONCE      /* as linspace, the number rounded, but no frame twice (video-SALMONN2+) */
};

struct choose_params {
    enum choose_rule rule;
    int frames;                 /* 0: by fps */
    double fps;                 /* wanted frames a second; only when frames is 0 */
    int min_frames, max_frames; /* bounds of the number that fps gives; 0: none */
    double start, end;          /* seconds; end 0: the end of the video */
};

struct choice {
    int n;
    int64_t *index;    /* [n], ascending, may repeat; owned: choice_clear */
    double sample_fps; /* frames a second of what was chosen; 0 for a still picture */
};

/* total frames at fps a second (0: a still picture, whose one frame is chosen whatever the
 * parameters). `limit`: most frames there may be. */
enum pv_status choose_frames(struct choice *out, const struct choose_params *p, int64_t total,
                             double fps, int limit, struct pv_error *err);
void choice_clear(struct choice *c);

#endif
