/* The frames a model would see, without a session: what `prevue frames` shows. */
#include "engine/model.h"
#include "engine/seen.h"

struct pv_video_params pv_video_defaults(void)
{
    return (struct pv_video_params){ 0 };
}

enum pv_status pv_video_frames(const pv_model *model, const char *path,
                               const struct pv_video_params *p, pv_frame_fn fn, void *user,
                               struct pv_video_info *info, struct pv_error *err)
{
    struct pv_limits limits = model_fill_limits(p->limits ? *p->limits
                                                : model   ? model->limits
                                                          : (struct pv_limits){ 0 });
    struct seen_bounds bounds = { .limits = &limits,
                                  .max_rows = CONFIG_MAX_CONTEXT,
                                  .max_bytes = limits.memory_bytes,
                                  .threads = model ? model->threads : 0 };
    struct video_source from = { .path = path };
    const struct vision_config *c;
    struct seen seen;
    enum pv_status st;
    bool tiles;
    if (!model)
        return seen_walk(path, p, &bounds, fn, user, info, err);
    if (!model->vision)
        return fail(err, PV_E_UNSUPPORTED, "%s has no vision tower: it cannot see",
                    model_file_path(model->file));
    c = vision_config(model->vision);
    st = seen_file(&seen, c, &from, p, &bounds, err);
    if (st)
        return st;
    tiles = seen.source != NULL;
    st = seen_finish(&seen, c, true, err);
    for (int i = 0; i < (tiles ? seen.m.n_views : seen.n_frames) && !st; i++) {
        struct pv_frame f = { .index = seen.index[tiles ? 0 : i],
                              .time = seen.time[tiles ? 0 : i],
                              .width = seen.m.width,
                              .height = seen.m.height,
                              .rgb = media_view(&seen.m, i) };
        if (!fn(user, &f))
            st = fail(err, PV_E_CANCELLED, "%s: stopped after %d frames", path, i + 1);
    }
    if (!st && info)
        *info = seen.info;
    seen_clear(&seen);
    return st;
}
