/* Pictures from a file, or from a file's bytes in memory: opens it, checks its limits, chooses and
 * decodes frames, and passes them on one by one. */
#include "engine/media_loader_parts.h"

#ifdef PV_CORE

static enum pv_status no_video(const char *path, struct pv_error *err)
{
    return fail(err, PV_E_UNSUPPORTED,
                "%s: this build (make CORE=1) cannot decode videos: write a .pvin file with "
                "'prevue prepare' of a full build",
                path);
}

enum pv_status media_load_file(struct loaded_media *out, const struct vision_config *c,
                               const struct video_source *from, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err)
{
    (void)out, (void)c, (void)p, (void)b;
    return no_video(video_source_name(from), err);
}

enum pv_status media_walk_file(const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, pv_frame_fn fn, void *user,
                               struct pv_video_info *info, struct pv_error *err)
{
    (void)p, (void)b, (void)fn, (void)user, (void)info;
    return no_video(path, err);
}

enum pv_status media_hear_file(struct sound *out, const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err)
{
    (void)out, (void)p, (void)b;
    return no_video(path, err);
}

#else

#include <math.h>

/* A file with its frames chosen. */
struct chosen_frames {
    struct video *v;
    const struct pv_video_params *p;
    struct video_sandbox box;
    int done, n; /* progress in frames; n 0: not known yet */
    struct choice choice;
    bool still;
    struct sound sound; /* n 0: none, or not wanted */
    struct pv_video_info info;
};

static void chosen_frames_close(struct chosen_frames *l)
{
    sound_clear(&l->sound);
    choice_clear(&l->choice);
    video_close(&l->v);
}

/* Report the progress of loading. Returns false if the caller cancels it. */
static bool report_progress(void *user)
{
    const struct chosen_frames *l = user;
    return !l->p->progress || l->p->progress(l->p->progress_user, PV_PHASE_VIDEO, l->done, l->n);
}

/* Open the file and check its limits. */
static enum pv_status open_file(struct chosen_frames *l, const struct video_source *from,
                                const struct pv_video_params *p, const struct load_bounds *b,
                                struct pv_error *err)
{
    struct video_limits limits = { .file_bytes = b->limits->video_bytes,
                                   .pixels = b->limits->frame_pixels,
                                   .frames = b->limits->frames,
                                   .seconds = b->limits->video_seconds,
                                   .memory = b->decode_bytes,
                                   .decoded_pixels = b->limits->decoded_pixels,
                                   .cpu_seconds = b->limits->decode_seconds,
                                   .more_formats = p->allow_formats,
                                   .go_on = p->progress ? report_progress : NULL,
                                   .user = l,
                                   .sandbox = &l->box };
    *l = (struct chosen_frames){ .p = p,
                                 .box = { .helper = p->media_helper,
                                          .mode = p->sandbox,
                                          .unsandboxed = p->unsandboxed,
                                          .user = p->unsandboxed_user } };
    return video_open(&l->v, from, &limits, b->threads, err);
}

static enum pv_status chosen_frames_open(struct chosen_frames *l, const struct vision_config *c,
                                         const struct video_source *from,
                                         const struct pv_video_params *p,
                                         const struct load_bounds *b, struct pv_error *err)
{
    struct video_source source = *from;
    const struct video_info *info;
    struct choose_params how;
    bool one; /* a single frame, shown all the time */
    enum pv_status s = frame_policy_choose(&how, c, p, err);
    source.sound_alone = media_hears(c, p);
    *l = (struct chosen_frames){ 0 };
    if (!s)
        s = open_file(l, &source, p, b, err);
    if (s)
        return s;
    info = video_info(l->v);
    one = info->still || info->n_frames == 1;
    l->still = one && !(media_hears(c, p) && info->has_sound); /* else a video with sound */
    if (info->n_frames > 0)
        s = choose_frames(&l->choice, &how, info->n_frames, one ? 0 : info->fps, b->limits->frames,
                          err);
    l->info = (struct pv_video_info){ .width = info->width,
                                      .height = info->height,
                                      .total_frames = info->n_frames,
                                      .fps = l->still ? 0 : info->fps,
                                      .duration = info->duration,
                                      .frames = l->choice.n,
                                      .cut = info->cut,
                                      .sample_fps = l->choice.sample_fps };
    l->n = l->choice.n;
    return s;
}

struct keeper {
    struct arrival *a;
    struct chosen_frames *l;
};

static bool keep(void *user, int at, int64_t index, double time, const struct image *picture)
{
    struct keeper *k = user;
    if (!arrival_put(k->a, at, index, time, picture->rgb))
        return false;
    k->l->done = at + 1;
    return report_progress(k->l);
}

static enum pv_status hear_part(struct chosen_frames *l, struct sound *out, struct pv_error *err)
{
    return video_read_sound(l->v, l->p->start, l->p->end > 0 ? l->p->end : INFINITY, out, err);
}

/* Read the sound of the part from which frames are taken, if it is wanted. */
static enum pv_status read_sound(struct chosen_frames *l, int *n_chunks,
                                 const struct vision_config *c, const char *name,
                                 const struct load_bounds *b, struct pv_error *err)
{
    const struct video_info *info = video_info(l->v);
    enum pv_status s = PV_OK;
    if (media_hears(c, l->p) && info->has_sound)
        s = hear_part(l, &l->sound, err);
    if (!s && l->sound.n > 0)
        s = sound_chunks(n_chunks, c, l->sound.n, b, err);
    if (!s && info->n_frames == 0 && l->sound.n == 0)
        s = fail(err, PV_E_FORMAT, "%s: there is neither a picture nor a sound in it", name);
    return s;
}

enum pv_status media_load_file(struct loaded_media *out, const struct vision_config *c,
                               const struct video_source *from, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err)
{
    struct arrival a = { 0 };
    struct arrival_shape shape = { 0 };
    struct chosen_frames l;
    enum pv_status s = chosen_frames_open(&l, c, from, p, b, err);
    if (!s && b->decoded)
        atomic_fetch_add(b->decoded, 1);
    if (!s)
        s = read_sound(&l, &shape.n_chunks, c, video_source_name(from), b, err);
    if (!s) {
        shape.height = l.info.height;
        shape.width = l.info.width;
        shape.n_frames = l.still ? 0 : l.choice.n;
        shape.sample_fps = l.choice.sample_fps;
        s = arrival_open(&a, c, p, &shape, b, err);
    }
    if (!s && shape.n_chunks > 0)
        s = sound_features(&a.s.m, c, l.sound.samples, l.sound.n, err);
    sound_clear(&l.sound);
    if (!s && l.choice.n > 0) {
        struct keeper k = { .a = &a, .l = &l };
        a.go_on = p->progress ? report_progress : NULL;
        a.user = &l;
        s = video_read(l.v, l.choice.index, l.choice.n, keep, &k, &l.info.lost, err);
    }
    if (!s) {
        a.s.info = l.info;
        arrival_finish(&a, out);
    }
    arrival_close(&a);
    chosen_frames_close(&l);
    return s;
}

struct walker {
    struct chosen_frames *l;
    pv_frame_fn fn;
    void *user;
};

static bool walk(void *user, int at, int64_t index, double time, const struct image *picture)
{
    struct walker *w = user;
    struct pv_frame f = { .index = index,
                          .time = time,
                          .width = picture->width,
                          .height = picture->height,
                          .rgb = picture->rgb };
    w->l->done = at + 1;
    return report_progress(w->l) && w->fn(w->user, &f);
}

enum pv_status media_walk_file(const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, pv_frame_fn fn, void *user,
                               struct pv_video_info *info, struct pv_error *err)
{
    struct video_source from = { .path = path };
    struct chosen_frames l;
    enum pv_status s = chosen_frames_open(&l, NULL, &from, p, b, err);
    if (!s) {
        struct walker w = { .l = &l, .fn = fn, .user = user };
        s = video_read(l.v, l.choice.index, l.choice.n, walk, &w, &l.info.lost, err);
    }
    if (!s && info)
        *info = l.info;
    chosen_frames_close(&l);
    return s;
}

enum pv_status media_hear_file(struct sound *out, const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err)
{
    const struct video_source from = { .path = path, .sound_alone = true };
    struct chosen_frames l = { 0 };
    enum pv_status s = PV_OK;
    if (!(p->start >= 0) || !(p->end >= 0))
        s = fail(err, PV_E_ARG, "start %g and end %g must be seconds, 0 or more", p->start, p->end);
    else if (p->end > 0 && p->end <= p->start)
        s = fail(err, PV_E_ARG, "the end at %g s is not after the start at %g s", p->end, p->start);
    if (!s)
        s = open_file(&l, &from, p, b, err);
    if (!s)
        s = hear_part(&l, out, err);
    chosen_frames_close(&l);
    return s;
}

#endif
