/* The families' defaults. LLaVA-OneVision: 32 frames evenly spaced, each squeezed to the tower's
 * square. Qwen2.5-VL, as qwen-vl-utils does it: 2 frames a second, 4 to 768 of them, each with an
 * area between bounds that shrink as the frames become many. */
#include "engine/frame_policy.h"

#include <math.h>

static const int64_t MAX_PIXELS = INT64_C(1) << 40; /* beyond any sense, and far from overflow */

enum {
    LLAVA_FRAMES = 32,
    QWEN_FPS = 2,
    QWEN_MIN_FRAMES = 4,
    QWEN_MAX_FRAMES = 768,
    /* Areas in merged tokens, that is in (patch * merge) squared pixels. */
    QWEN_MIN_TOKENS = 128,
    QWEN_MAX_TOKENS = 768,
    QWEN_BUDGET_TOKENS = 115200 /* of a whole video: nine tenths of 128000 */
};

enum pv_status frame_policy_check(const struct pv_video_params *p, struct pv_error *err)
{
    if (p->frames < 0 || p->min_frames < 0 || p->max_frames < 0)
        return fail(err, PV_E_ARG, "a number of frames is negative");
    if (!isfinite(p->fps) || p->fps < 0)
        return fail(err, PV_E_ARG, "%g frames a second were asked for", p->fps);
    if (p->frames > 0 && p->fps > 0)
        return fail(err, PV_E_ARG, "a number of frames and frames a second were both asked for");
    if (p->min_frames > 0 && p->max_frames > 0 && p->min_frames > p->max_frames)
        return fail(err, PV_E_ARG, "at least %d and at most %d frames were asked for",
                    p->min_frames, p->max_frames);
    if (!isfinite(p->start) || !isfinite(p->end) || p->start < 0 || p->end < 0)
        return fail(err, PV_E_ARG, "the seconds %g to %g were asked for", p->start, p->end);
    if (p->min_pixels < 0 || p->max_pixels < 0 || p->min_pixels > MAX_PIXELS ||
        p->max_pixels > MAX_PIXELS || (p->max_pixels > 0 && p->min_pixels > p->max_pixels))
        return fail(err, PV_E_ARG, "frames of %lld to %lld pixels were asked for",
                    (long long)p->min_pixels, (long long)p->max_pixels);
    if ((unsigned)p->rule > PV_FRAMES_QWEN)
        return fail(err, PV_E_ARG, "frame rule %d is unknown", (int)p->rule);
    if ((unsigned)p->time_rule > PV_TIME_SECONDS_COMPACT)
        return fail(err, PV_E_ARG, "time rule %d is unknown", (int)p->time_rule);
    return PV_OK;
}

/* The usual number, within the caller's bounds. */
static int llava_frames(const struct pv_video_params *p)
{
    if (p->max_frames > 0 && p->max_frames < LLAVA_FRAMES)
        return p->max_frames;
    return p->min_frames > LLAVA_FRAMES ? p->min_frames : LLAVA_FRAMES;
}

enum pv_status frame_policy_choose(struct choose_params *out, const struct vision_config *c,
                                   const struct pv_video_params *p, struct pv_error *err)
{
    static const enum choose_rule rules[] = { [PV_FRAMES_LINSPACE] = CHOOSE_LINSPACE,
                                              [PV_FRAMES_ARANGE] = CHOOSE_ARANGE,
                                              [PV_FRAMES_QWEN] = CHOOSE_QWEN };
    bool qwen = c && c->kind == VISION_QWEN2_5;
    struct choose_params r = { .frames = p->frames,
                               .fps = p->fps,
                               .min_frames = p->min_frames,
                               .max_frames = p->max_frames,
                               .start = p->start,
                               .end = p->end };
    enum pv_status s = frame_policy_check(p, err);
    if (s)
        return s;
    if (p->rule == PV_FRAMES_AUTO)
        r.rule = qwen ? CHOOSE_QWEN : CHOOSE_LINSPACE;
    else
        r.rule = rules[p->rule];
    if (r.frames == 0 && r.fps == 0) {
        if (qwen)
            r.fps = QWEN_FPS;
        else
            r.frames = llava_frames(p);
    }
    if (r.frames == 0 && qwen) {
        if (r.min_frames == 0)
            r.min_frames =
                r.max_frames > 0 && r.max_frames < QWEN_MIN_FRAMES ? r.max_frames : QWEN_MIN_FRAMES;
        if (r.max_frames == 0)
            r.max_frames = r.min_frames > QWEN_MAX_FRAMES ? r.min_frames : QWEN_MAX_FRAMES;
    }
    *out = r;
    return PV_OK;
}

/* Bounds of a frame's area among n frames. */
static void qwen_video_area(const struct pv_video_params *p, int factor, int n, int64_t *min,
                            int64_t *max)
{
    int64_t unit = (int64_t)factor * factor;
    double share = (double)QWEN_BUDGET_TOKENS * (double)unit / n * 2;
    int64_t least = p->min_pixels ? p->min_pixels : QWEN_MIN_TOKENS * unit;
    int64_t most = QWEN_MAX_TOKENS * unit;
    if (share < (double)most)
        most = (int64_t)share;
    if (most < (int64_t)(1.05 * (double)least))
        most = (int64_t)(1.05 * (double)least);
    if (p->max_pixels && p->max_pixels < most)
        most = p->max_pixels;
    /* A caller who asks for less than the family's least means it. */
    *min = least < most ? least : most;
    *max = most;
}

enum pv_status frame_policy_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err)
{
    struct frame_size r = { .height = height, .width = width, .kind = RESIZE_PILLOW };
    int64_t min, max;
    enum pv_status s = PV_OK;
    int factor;
    if (!c || (c->kind == VISION_LLAVA && n_frames == 0)) {
        *out = r;
        return PV_OK;
    }
    if (c->kind == VISION_LLAVA) {
        r.height = r.width = c->image;
        *out = r;
        return PV_OK;
    }
    factor = c->patch * c->merge;
    if (n_frames > 0) {
        qwen_video_area(p, factor, n_frames, &min, &max);
        r.kind = RESIZE_FLOAT;
    } else {
        max = p->max_pixels ? p->max_pixels : c->max_pixels;
        min = p->min_pixels ? p->min_pixels : c->min_pixels;
        min = min < max ? min : max;
    }
    s = smart_resize(&r.height, &r.width, height, width, factor, min, max, err);
    if (!s)
        *out = r;
    return s;
}
