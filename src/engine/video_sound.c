/* The sound of a file, without a session: what `prevue frames --wav` writes. */
#include "base/sized.h"
#include "engine/media_loader.h"
#include "engine/model.h"

enum pv_status pv_video_sound(const char *path, const struct pv_video_params *params,
                              float **samples, size_t *n, struct pv_error *err)
{
    struct pv_video_params p = pv_video_defaults();
    enum pv_status s = params ? sized_read(&p, sizeof p, params, "a video", err) : PV_OK;
    const struct pv_limits limits =
        model_fill_limits(p.limits ? *p.limits : (struct pv_limits){ 0 });
    const struct load_bounds bounds = { .limits = &limits,
                                        .decode_bytes = limits.memory_bytes,
                                        .threads = 1 };
    struct sound sound = { 0 };

    if (!s)
        s = media_hear_file(&sound, path, &p, &bounds, err);
    if (s)
        return s;
    *samples = sound.samples;
    *n = sound.n;
    return PV_OK;
}
