/* The sound of a file, without a session: what `prevue frames --wav` writes. */
#include "base/sized.h"
#include "engine/model.h"
#include "video/video.h"

#include <math.h>

#ifdef PV_CORE

enum pv_status pv_video_sound(const char *path, const struct pv_video_params *params,
                              float **samples, size_t *n, struct pv_error *err)
{
    (void)params, (void)samples, (void)n;
    return fail(err, PV_E_UNSUPPORTED, "%s: this build cannot decode sound (CORE)", path);
}

#else

static bool told(void *user)
{
    const struct pv_video_params *p = user;

    return p->progress(p->progress_user, PV_PHASE_VIDEO, 0, 0);
}

static enum pv_status check_part(const struct pv_video_params *p, struct pv_error *err)
{
    if (!(p->start >= 0) || !(p->end >= 0))
        return fail(err, PV_E_ARG, "start %g and end %g must be seconds, 0 or more", p->start,
                    p->end);
    if (p->end > 0 && p->end <= p->start)
        return fail(err, PV_E_ARG, "the end at %g s is not after the start at %g s", p->end,
                    p->start);
    return PV_OK;
}

enum pv_status pv_video_sound(const char *path, const struct pv_video_params *params,
                              float **samples, size_t *n, struct pv_error *err)
{
    struct pv_video_params p = pv_video_defaults();
    enum pv_status st = params ? sized_read(&p, sizeof p, params, "a video", err) : PV_OK;
    const struct pv_limits l = model_fill_limits(p.limits ? *p.limits : (struct pv_limits){ 0 });
    const struct video_sandbox box = { .helper = p.media_helper,
                                       .optional = p.sandbox == PV_SANDBOX_IF_POSSIBLE };
    const struct video_limits limits = { .file_bytes = l.video_bytes,
                                         .pixels = l.frame_pixels,
                                         .frames = l.frames,
                                         .seconds = l.video_seconds,
                                         .memory = l.memory_bytes,
                                         .decoded_pixels = l.decoded_pixels,
                                         .cpu_seconds = l.decode_seconds,
                                         .more_formats = p.allow_formats,
                                         .go_on = p.progress ? told : NULL,
                                         .user = &p,
                                         .sandbox = p.sandbox == PV_SANDBOX_OFF ? NULL : &box };
    const struct video_source from = { .path = path, .sound_alone = true };
    struct sound sound = { 0 };
    struct video *v = NULL;

    if (!st)
        st = check_part(&p, err);
    if (!st)
        st = video_open(&v, &from, &limits, 1, err);
    if (!st)
        st = video_read_sound(v, p.start, p.end > 0 ? p.end : INFINITY, &sound, err);
    video_close(&v);
    if (!st) {
        *samples = sound.samples;
        *n = sound.n;
    }
    return st;
}

#endif
