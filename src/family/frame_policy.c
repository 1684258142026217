/* The caller's parameters, completed from the family's table. */
#include "family/frame_policy.h"

#include "format/family.h"

#include <math.h>

static const int64_t MAX_PIXELS = INT64_C(1) << 40; /* beyond any sense, and far from overflow */

enum { USUAL_FRAMES = 32 }; /* without a model */

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
    if ((unsigned)p->time_rule > PV_TIME_TRAINING)
        return fail(err, PV_E_ARG, "time rule %d is unknown", (int)p->time_rule);
    return PV_OK;
}

/* The usual number, within the caller's bounds. */
static int usual_frames(const struct pv_video_params *p, int usual)
{
    if (p->max_frames > 0 && p->max_frames < usual)
        return p->max_frames;
    return p->min_frames > usual ? p->min_frames : usual;
}

enum pv_status frame_policy_choose(struct choose_params *out, const struct vision_config *c,
                                   const struct pv_video_params *p, struct pv_error *err)
{
    static const enum choose_rule rules[] = { [PV_FRAMES_LINSPACE] = CHOOSE_LINSPACE,
                                              [PV_FRAMES_ARANGE] = CHOOSE_ARANGE,
                                              [PV_FRAMES_QWEN] = CHOOSE_QWEN };
    static const struct family_frames blind = { .rule = CHOOSE_LINSPACE, .frames = USUAL_FRAMES };
    const struct family_frames *f = c ? c->family->frames : &blind;
    struct choose_params r = { .rule = f->rule,
                               .frames = p->frames,
                               .fps = p->fps,
                               .min_frames = p->min_frames,
                               .max_frames = p->max_frames,
                               .start = p->start,
                               .end = p->end };
    enum pv_status s = frame_policy_check(p, err);
    if (s)
        return s;
    if (p->rule != PV_FRAMES_AUTO)
        r.rule = rules[p->rule];
    if (r.frames == 0 && r.fps == 0) {
        r.fps = f->fps;
        r.frames = f->frames ? usual_frames(p, f->frames) : 0;
    }
    if (r.frames == 0 && f->max_frames > 0) {
        if (r.min_frames == 0)
            r.min_frames =
                r.max_frames > 0 && r.max_frames < f->min_frames ? r.max_frames : f->min_frames;
        if (r.max_frames == 0)
            r.max_frames = r.min_frames > f->max_frames ? r.min_frames : f->max_frames;
    }
    *out = r;
    return PV_OK;
}

enum pv_status frame_policy_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err)
{
    if (c)
        return c->family->frames->size(out, c, p, height, width, n_frames, err);
    *out = (struct frame_size){ .height = height, .width = width, .kind = RESIZE_PILLOW };
    return PV_OK;
}
