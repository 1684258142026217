/* A file is known by a digest of its bytes and of the settings that determine which frames are used
 * and at what size. */
#include "engine/media_open.h"

#include "base/file.h"
#include "engine/disk_media.h"

#include <string.h>

/* False: decoding will tell what is wrong with it. */
static bool digest_source(const struct video_source *from, const struct pv_limits *l,
                          uint8_t out[DIGEST_SIZE])
{
    struct digest d;
    if (from->path)
        return file_digest(from->path, l->video_bytes, out, NULL) == PV_OK;
    if (!from->data || from->size > l->video_bytes)
        return false;
    digest_init(&d);
    digest_add(&d, from->data, from->size);
    digest_finish(&d, out);
    return true;
}

/* The limits are part of it because a file that exceeds them is refused. */
static void media_name(const uint8_t *contents, const struct pv_video_params *p,
                       const struct pv_limits *l, uint8_t name[DIGEST_SIZE])
{
    const int64_t whole[] = { p->frames,
                              p->min_frames,
                              p->max_frames,
                              p->min_pixels,
                              p->max_pixels,
                              (int64_t)p->rule,
                              (int64_t)p->time_rule,
                              l->frames,
                              l->frame_pixels,
                              (int64_t)l->video_bytes,
                              p->no_audio };
    const double real[] = { p->fps, p->start, p->end, l->video_seconds };
    struct digest k;
    digest_init(&k);
    digest_add(&k, contents, DIGEST_SIZE);
    digest_add(&k, whole, sizeof whole);
    digest_add(&k, real, sizeof real);
    if (p->allow_formats)
        digest_add(&k, p->allow_formats, strlen(p->allow_formats));
    digest_finish(&k, name);
}

/* Parameters of a picture that is completed later, without what the caller owns. */
static enum pv_status share(struct pv_media **out, struct loaded_media *l, struct pv_error *err)
{
    l->params.limits = NULL;
    l->params.samples = NULL;
    l->params.allow_formats = l->params.media_helper = NULL;
    return shared_media_open(out, l, err);
}

static enum pv_status decode(struct pv_media **out, struct pv_engine *e,
                             const struct video_source *from, const struct pv_video_params *p,
                             const struct load_bounds *b, struct pv_error *err)
{
    struct loaded_media l;
    enum pv_status s = media_load_file(&l, vision_config(e->model->vision), from, p, b, err);
    return s ? s : share(out, &l, err);
}

enum pv_status media_open_file(struct pv_media **out, struct pv_engine *e,
                               const struct video_source *from, const struct pv_video_params *p,
                               const struct load_bounds *bounds, struct pv_error *err)
{
    const struct vision_config *c = vision_config(e->model->vision);
    uint8_t contents[DIGEST_SIZE], after[DIGEST_SIZE], name[DIGEST_SIZE];
    struct load_bounds b = *bounds;
    struct loaded_media l;
    enum pv_status s;
    b.decoded = &e->decoded;
    if ((!e->media && !e->disk.cache) || !digest_source(from, b.limits, contents))
        return decode(out, e, from, p, &b, err);
    media_name(contents, p, b.limits, name);
    *out = e->media ? media_cache_find(e->media, name) : NULL;
    if (*out) {
        s = media_fits(&(*out)->l, &b, err);
        if (s)
            shared_media_close(out);
        else
            atomic_fetch_add(&e->media_hits, 1);
        return s;
    }
    if (disk_media_find(&e->disk, &l, name, c, from, p, &b))
        return share(out, &l, err);
    s = decode(out, e, from, p, &b, err);
    /* The file may have been modified while it was decoded. */
    if (s || (from->path &&
              (!digest_source(from, b.limits, after) || memcmp(after, contents, DIGEST_SIZE) != 0)))
        return s;
    if (e->media)
        media_cache_keep(e->media, name, *out);
    disk_media_keep(&e->disk, name, &(*out)->l);
    return PV_OK;
}

enum pv_status media_open_frames(struct pv_media **out, struct pv_engine *e,
                                 const struct pv_frame *frames, size_t n, double fps,
                                 const struct pv_video_params *p, const struct load_bounds *b,
                                 struct pv_error *err)
{
    struct loaded_media l;
    enum pv_status s =
        media_load_frames(&l, vision_config(e->model->vision), frames, n, fps, p, b, err);
    return s ? s : share(out, &l, err);
}

enum pv_status media_open_pixels(struct media *m, struct pv_engine *e, struct pv_error *err)
{
    const struct load_bounds how = { .threads = e->model->threads, .decoded = &e->decoded };
    return media_load_pixels(m, vision_config(e->model->vision), &how, err);
}
