/* Turns pictures in memory into a media item. It is planned and its size bounded before anything is
 * allocated. Pictures are resized as they arrive, so at most one frame is held at its original
 * size. */
#include "engine/media_loader_parts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "format/family.h"

#include <math.h>
#include <string.h>

/* Time between two calls of the progress callback while a picture is resized. */
#define ASK_SECONDS 0.02

static bool keeps_source(const struct media *m)
{
    return m->family->tower->tiles && !m->video;
}

/* The same for sound, with or without pictures. */
static enum pv_status check_sound(const struct media *m, uint64_t bytes,
                                  const struct load_bounds *b, struct pv_error *err)
{
    if (m->n_rows > b->max_rows)
        return fail(err, PV_E_LIMIT,
                    "%d tokens of pictures and %d of sound, and the context has room for %d: take "
                    "fewer frames, a shorter part, no sound or a larger context",
                    media_picture_rows(m), media_sound_rows(m), b->max_rows);
    if (bytes > b->max_bytes)
        return fail(err, PV_E_LIMIT, "pictures and sound need %llu bytes, %llu are left",
                    (unsigned long long)bytes, (unsigned long long)b->max_bytes);
    return PV_OK;
}

static enum pv_status check_bounds(const struct media *m, int n_frames, const struct load_bounds *b,
                                   struct pv_error *err)
{
    uint64_t bytes = media_size(m) + media_sound_size(m);
    if (m->sound.n_chunks > 0)
        return check_sound(m, bytes, b, err);
    if (keeps_source(m))
        bytes += (uint64_t)m->source_height * (uint64_t)m->source_width * 3;
    if (m->n_rows > b->max_rows)
        return fail(err, PV_E_LIMIT,
                    "%d frame%s of %d x %d pixels %s %d tokens, and the context has room for %d: "
                    "take fewer frames or a larger context",
                    n_frames, n_frames == 1 ? "" : "s", m->width, m->height,
                    n_frames == 1 ? "is" : "are", m->n_rows, b->max_rows);
    if (bytes > b->max_bytes)
        return fail(err, PV_E_LIMIT, "%d frames of %d x %d pixels need %llu bytes, %llu are left",
                    n_frames, m->width, m->height, (unsigned long long)bytes,
                    (unsigned long long)b->max_bytes);
    return PV_OK;
}

enum pv_status media_fits(const struct loaded_media *s, const struct load_bounds *b,
                          struct pv_error *err)
{
    return check_bounds(&s->m, s->n_frames, b, err);
}

/* Plan everything except the pixels and their frame numbers and times. */
static enum pv_status plan(struct loaded_media *s, const struct vision_config *c,
                           const struct pv_video_params *p, const struct arrival_shape *shape,
                           const struct load_bounds *b, struct pv_error *err)
{
    enum pv_status st;
    int still = shape->width > 0;
    *s = (struct loaded_media){ .params = *p,
                                .n_frames = shape->n_frames > 0 ? shape->n_frames : still };
    /* A still picture that may be cut into tiles is planned as one of several, which needs less
     * memory; media_load_finish makes the final plan. */
    st = shape->width > 0 ? media_plan(&s->m, c, p, shape->height, shape->width, shape->n_frames,
                                       shape->sample_fps, false, err)
                          : media_plan_sound(&s->m, c, p, shape->n_chunks, err);
    if (!st && shape->width > 0)
        st = media_add_sound(&s->m, c, shape->n_chunks, err);
    return st ? st : check_bounds(&s->m, s->n_frames, b, err);
}

enum pv_status arrival_open(struct arrival *a, const struct vision_config *c,
                            const struct pv_video_params *p, const struct arrival_shape *shape,
                            const struct load_bounds *b, struct pv_error *err)
{
    int n, height = shape->height, width = shape->width;
    struct loaded_media *s = &a->s;
    enum pv_status st;
    *a = (struct arrival){ 0 };
    st = plan(s, c, p, shape, b, err);
    if (st)
        return st;
    n = a->n_frames = s->n_frames;
    if (n == 0)
        return media_reserve(&s->m, err);
    s->index = mem_zalloc((size_t)n * sizeof *s->index);
    s->time = mem_zalloc((size_t)n * sizeof *s->time);
    if (!s->index || !s->time)
        return fail_nomem(err, (size_t)n * (sizeof *s->index + sizeof *s->time));
    if (keeps_source(&s->m)) {
        size_t size = (size_t)height * (size_t)width * 3;
        s->source = mem_alloc(size);
        return s->source ? PV_OK : fail_nomem(err, size);
    }
    st = media_reserve(&s->m, err);
    if (!st)
        st = resizer_open(&a->resizer, s->m.resize, height, width, s->m.height, s->m.width, err);
    return st;
}

/* Provides rows of a picture until the callback cancels. */
struct asked_rows {
    const struct arrival *a;
    const uint8_t *rgb;
    size_t row_len;
    double asked; /* time of the last call */
};

static const uint8_t *asked_row(void *user, int y)
{
    struct asked_rows *r = user;
    double now = r->a->go_on ? clock_now() : 0;
    if (r->a->go_on && now - r->asked >= ASK_SECONDS) {
        r->asked = now;
        if (!r->a->go_on(r->a->user))
            return NULL;
    }
    return r->rgb + (size_t)y * r->row_len;
}

bool arrival_put(struct arrival *a, int at, int64_t index, double time, const uint8_t *rgb)
{
    struct loaded_media *s = &a->s;
    struct asked_rows rows = { .a = a,
                               .rgb = rgb,
                               .row_len = (size_t)s->m.source_width * 3,
                               .asked = a->go_on ? clock_now() : 0 };
    s->index[at] = index;
    s->time[at] = time;
    if (!s->source)
        return resizer_run_rows(a->resizer, media_view(&s->m, at), asked_row, &rows);
    memcpy(s->source, rgb, (size_t)s->m.source_height * (size_t)s->m.source_width * 3);
    return true;
}

void arrival_finish(struct arrival *a, struct loaded_media *out)
{
    if (!a->s.source) {
        media_pad(&a->s.m, a->n_frames);
        media_seal(&a->s.m);
    }
    *out = a->s;
    a->s = (struct loaded_media){ 0 };
}

void arrival_close(struct arrival *a)
{
    resizer_close(&a->resizer);
    loaded_media_clear(&a->s);
}

size_t loaded_media_size(const struct loaded_media *s)
{
    size_t source = (size_t)s->m.source_height * (size_t)s->m.source_width * 3;
    return (s->m.rgb ? media_size(&s->m) : 0) + (s->m.sound.mel ? media_sound_size(&s->m) : 0) +
           (s->source ? source : 0);
}

void loaded_media_clear(struct loaded_media *s)
{
    media_clear(&s->m);
    mem_free(s->index);
    mem_free(s->time);
    mem_free(s->source);
    *s = (struct loaded_media){ 0 };
}

enum pv_status media_load_finish(struct media *out, const struct loaded_media *s,
                                 const struct vision_config *c, bool alone, struct pv_error *err)
{
    struct image picture = { .width = s->m.source_width,
                             .height = s->m.source_height,
                             .rgb = s->source };
    struct media m;
    enum pv_status st;
    if (!s->source) {
        *out = media_copy(&s->m);
        return PV_OK;
    }
    st = media_plan(&m, c, &s->params, picture.height, picture.width, 0, 0, alone, err);
    if (st)
        return st;
    st = media_reserve(&m, err);
    if (!st)
        st = m.tiling.rows > 0 ? tiles_make(m.rgb, &m.tiling, &picture, c->image, err)
                               : square_make(m.rgb, &picture, c->image, c->mean, err);
    if (st) {
        media_clear(&m);
        return st;
    }
    media_seal(&m);
    *out = m;
    return PV_OK;
}

static enum pv_status check_frames(const struct pv_frame *f, size_t n, double fps,
                                   const struct load_bounds *b, struct pv_error *err)
{
    if (n == 0 || n > (size_t)b->limits->frames)
        return fail(err, PV_E_LIMIT, "%zu frames were given, 1 to %d are possible", n,
                    b->limits->frames);
    if (!isfinite(fps) || fps < 0 || (fps == 0 && n > 1))
        return fail(err, PV_E_ARG, "%zu frames at %g a second were given", n, fps);
    if (fps > 0 && (double)n / fps > b->limits->video_seconds)
        return fail(err, PV_E_LIMIT, "%zu frames at %g a second last longer than %g seconds", n,
                    fps, b->limits->video_seconds);
    for (size_t i = 0; i < n; i++) {
        if (!f[i].rgb)
            return fail(err, PV_E_ARG, "frame %zu has no pixels: its rgb is NULL", i);
        if (f[i].width < 1 || f[i].height < 1 ||
            (int64_t)f[i].width * f[i].height > b->limits->frame_pixels)
            return fail(err, PV_E_LIMIT, "frame %zu has %d x %d pixels, 1 to %lld are possible", i,
                        f[i].width, f[i].height, (long long)b->limits->frame_pixels);
        if (f[i].width != f[0].width || f[i].height != f[0].height)
            return fail(err, PV_E_ARG, "frame %zu has %d x %d pixels, the first %d x %d", i,
                        f[i].width, f[i].height, f[0].width, f[0].height);
    }
    return PV_OK;
}

enum pv_status media_load_frames(struct loaded_media *out, const struct vision_config *c,
                                 const struct pv_frame *frames, size_t n, double fps,
                                 const struct pv_video_params *p, const struct load_bounds *b,
                                 struct pv_error *err)
{
    struct arrival a = { 0 };
    struct arrival_shape shape = { .sample_fps = fps };
    bool still = fps == 0, hears = media_hears(c, p) && !still && p->n_samples > 0;
    enum pv_status s = frame_policy_check(p, err);
    if (!s)
        s = check_frames(frames, n, fps, b, err);
    if (!s && hears)
        s = sound_check(p->samples, p->n_samples, err);
    if (!s && hears)
        s = sound_chunks(&shape.n_chunks, c, p->n_samples, b, err);
    if (!s) {
        shape.height = frames[0].height;
        shape.width = frames[0].width;
        shape.n_frames = still ? 0 : (int)n;
        s = arrival_open(&a, c, p, &shape, b, err);
    }
    if (!s && hears)
        s = sound_features(&a.s.m, c, p->samples, p->n_samples, err);
    for (size_t i = 0; i < n && !s; i++)
        arrival_put(&a, (int)i, (int64_t)i, frames[i].time, frames[i].rgb);
    if (!s) {
        a.s.info = (struct pv_video_info){ .width = frames[0].width,
                                           .height = frames[0].height,
                                           .total_frames = (int64_t)n,
                                           .fps = fps,
                                           .duration = still ? 0 : (double)n / fps,
                                           .frames = (int)n,
                                           .sample_fps = fps };
        arrival_finish(&a, out);
    }
    arrival_close(&a);
    return s;
}

/* ---- without pixels ---- */

static struct media_origin *copy_origin(const struct video_source *from,
                                        const struct pv_video_params *p,
                                        const struct pv_limits *limits)
{
    struct media_origin *o = mem_zalloc(sizeof *o);
    if (!o)
        return NULL;
    o->params = *p;
    o->params.progress = NULL;
    o->params.samples = NULL;
    o->limits = *limits;
    o->size = from->path ? 0 : from->size;
    o->path = from->path ? mem_strdup(from->path) : NULL;
    o->data = from->path ? NULL : mem_alloc(from->size);
    o->allow_formats = p->allow_formats ? mem_strdup(p->allow_formats) : NULL;
    o->media_helper = p->media_helper ? mem_strdup(p->media_helper) : NULL;
    if ((!o->path && !o->data) || (p->allow_formats && !o->allow_formats) ||
        (p->media_helper && !o->media_helper)) {
        media_origin_close(o);
        return NULL;
    }
    o->params.allow_formats = o->allow_formats;
    o->params.media_helper = o->media_helper;
    if (o->data)
        memcpy(o->data, from->data, from->size);
    return o;
}

/* Choose the same frames as when the file was decoded. */
static enum pv_status choose_again(struct loaded_media *s, const struct vision_config *c,
                                   const struct pv_video_params *p,
                                   const struct pv_video_info *info, const struct load_bounds *b,
                                   struct pv_error *err)
{
    struct choose_params how;
    struct choice choice = { 0 };
    enum pv_status st = frame_policy_choose(&how, c, p, err);
    if (!st)
        st = choose_frames(&choice, &how, info->total_frames,
                           info->total_frames == 1 ? 0 : info->fps, b->limits->frames, err);
    if (!st && choice.n != s->n_frames)
        st = fail(err, PV_E_FORMAT, "%d frames are chosen of a video that had %d", choice.n,
                  s->n_frames);
    if (st) {
        choice_clear(&choice);
        return st;
    }
    s->index = choice.index;
    return PV_OK;
}

/* Whether there are pictures within the limits, or sound without pictures. */
static bool may_be(const struct pv_video_info *info, int n_chunks, const struct pv_limits *l)
{
    if (n_chunks < 0 || (info->frames == 0 && info->width == 0))
        return n_chunks > 0;
    return info->width >= 1 && info->height >= 1 &&
           (int64_t)info->width * info->height <= l->frame_pixels && info->frames >= 1 &&
           info->frames <= l->frames && isfinite(info->sample_fps) && info->sample_fps >= 0;
}

enum pv_status media_load_known(struct loaded_media *out, const struct vision_config *c,
                                const struct video_source *from, const struct known_media *k,
                                const struct pv_video_params *p, const struct load_bounds *b,
                                struct pv_error *err)
{
    const struct pv_video_info *info = &k->info;
    const struct arrival_shape shape = { .height = info->height,
                                         .width = info->width,
                                         .n_frames = k->still ? 0 : info->frames,
                                         .sample_fps = info->sample_fps,
                                         .n_chunks = k->n_chunks };
    struct media_origin *origin;
    struct loaded_media s;
    enum pv_status st;
    if (!may_be(info, k->n_chunks, b->limits) || (k->n_chunks > 0 && !media_hears(c, p)))
        return fail(err, PV_E_FORMAT, "%s: %d frames of %d x %d pixels cannot be",
                    video_source_name(from), info->frames, info->width, info->height);
    st = plan(&s, c, p, &shape, b, err);
    if (st)
        return st;
    if (info->frames > 0)
        st = choose_again(&s, c, p, info, b, err);
    if (st)
        return st;
    s.info = *info;
    memcpy(s.m.digest, k->digest, sizeof s.m.digest);
    origin = copy_origin(from, p, b->limits);
    st = origin ? media_put_off(&s.m, origin, err) : fail_nomem(err, sizeof *origin + from->size);
    if (st)
        loaded_media_clear(&s);
    else
        *out = s;
    return st;
}

/* Fill the store of a media item that was put off. */
static enum pv_status load_store(struct media *m, const struct vision_config *c,
                                 const struct load_bounds *how, struct pv_error *err)
{
    const struct media_origin *o = m->store->origin;
    struct media_store *store = m->store;
    struct loaded_media again;
    enum pv_status s;
    struct load_bounds b = { .limits = &o->limits,
                             .max_rows = m->n_rows,
                             .max_bytes = media_size(m) + media_sound_size(m),
                             .decode_bytes = o->limits.memory_bytes,
                             .threads = how->threads,
                             .decoded = how->decoded };
    struct video_source from = { .path = o->path, .data = o->data, .size = o->size };
    s = media_load_file(&again, c, &from, &o->params, &b, err);
    if (s)
        return s;
    if (media_equal(&again.m, m)) {
        store->rgb = again.m.store->rgb;
        store->mel = again.m.store->mel;
        again.m.store->rgb = NULL;
        again.m.store->mel = NULL;
    } else {
        s = fail(err, PV_E_IO, "%s: has changed since it was added", video_source_name(&from));
    }
    loaded_media_clear(&again);
    return s;
}

enum pv_status media_load_pixels(struct media *m, const struct vision_config *c,
                                 const struct load_bounds *how, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    if (media_is_loaded(m))
        return PV_OK;
    pthread_mutex_lock(&m->store->lock);
    if (!m->store->rgb && !m->store->mel)
        s = load_store(m, c, how, err);
    m->rgb = m->store->rgb;
    m->sound.mel = m->store->mel;
    pthread_mutex_unlock(&m->store->lock);
    return s;
}
