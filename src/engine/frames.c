/* The frames a model would see, without a session: what `prevue frames` shows. */
#include "base/sized.h"
#include "engine/media_loader.h"
#include "engine/model.h"

void pv_video_params_init(struct pv_video_params *p, size_t size)
{
    static const struct pv_video_params usual = { .frames = 0 };
    sized_init(p, size, &usual, sizeof usual);
}

enum pv_status pv_video_frames(const pv_model *model, const char *path,
                               const struct pv_video_params *params, pv_frame_fn fn, void *user,
                               struct pv_video_info *info, struct pv_error *err)
{
    struct pv_video_params own = pv_video_defaults(), *p = &own;
    enum pv_status s = params ? sized_read(p, sizeof *p, params, "a video", err) : PV_OK;
    struct pv_limits limits = model_fill_limits(p->limits ? *p->limits
                                                : model   ? model->limits
                                                          : (struct pv_limits){ 0 });
    struct load_bounds bounds = { .limits = &limits,
                                  .max_rows = CONFIG_MAX_CONTEXT,
                                  .max_bytes = limits.memory_bytes,
                                  .decode_bytes = limits.memory_bytes,
                                  .threads = model ? model->threads : 0 };
    struct video_source from = { .path = path };
    const struct vision_config *c;
    struct loaded_media loaded;
    struct media m = { 0 };
    bool tiles;
    if (s)
        return s;
    p->no_audio = true;
    if (!model)
        return media_walk_file(path, p, &bounds, fn, user, info, err);
    if (!model->vision)
        return fail(err, PV_E_UNSUPPORTED,
                    "%s has no vision tower, so it cannot take videos or pictures",
                    model_file_path(model->file));
    c = vision_config(model->vision);
    s = media_load_file(&loaded, c, &from, p, &bounds, err);
    if (s)
        return s;
    tiles = loaded.source != NULL;
    s = media_load_finish(&m, &loaded, c, true, err);
    for (int i = 0; i < (tiles ? m.n_views : loaded.n_frames) && !s; i++) {
        struct pv_frame f = { .index = loaded.index[tiles ? 0 : i],
                              .time = loaded.time[tiles ? 0 : i],
                              .width = m.width,
                              .height = m.height,
                              .rgb = media_view(&m, i) };
        if (!fn(user, &f))
            s = fail(err, PV_E_CANCELLED, "%s: stopped after %d frames", path, i + 1);
    }
    if (!s && info)
        *info = loaded.info;
    media_clear(&m);
    loaded_media_clear(&loaded);
    return s;
}
