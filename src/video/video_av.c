/* A video, wherever it is decoded: in this process (video_local_av.h) or in a helper
 * (media_proxy_av.h). */
#include "video/media_proxy_av.h"
#include "video/video_local_av.h"

#include "base/mem.h"

#include <math.h>

struct video {
    struct local_video *here; /* one of the two */
    struct media_proxy *there;
    uint64_t memory; /* bytes that its sound may take; 0: any number */
};

enum pv_status video_open(struct video **out, const struct video_source *from,
                          const struct video_limits *limits, int threads, struct pv_error *err)
{
    struct video *v = mem_zalloc(sizeof *v);
    struct pv_error why = { 0 };
    bool here = !limits->sandbox;
    enum pv_status s = PV_OK;

    if (!v)
        return fail_nomem(err, sizeof *v);
    v->memory = limits->memory;
    if (!here) {
        s = media_proxy_open(&v->there, from, limits, threads, &here, &why);
        here = here && limits->sandbox->optional;
        if (here && limits->sandbox->unsandboxed)
            limits->sandbox->unsandboxed(limits->sandbox->user, why.text);
    }
    if (here)
        s = local_video_open(&v->here, from, limits, threads, err);
    else if (s)
        fail(err, s, "%s", why.text);
    if (s)
        video_close(&v);
    else
        *out = v;
    return s;
}

void video_close(struct video **v)
{
    if (!*v)
        return;
    local_video_close(&(*v)->here);
    media_proxy_close(&(*v)->there);
    mem_free(*v);
    *v = NULL;
}

const struct video_info *video_info(const struct video *v)
{
    return v->here ? local_video_info(v->here) : media_proxy_info(v->there);
}

double video_time(const struct video *v, int64_t index)
{
    return v->here ? local_video_time(v->here, index) : (double)NAN;
}

enum pv_status video_read(struct video *v, const int64_t *index, int n, video_frame_fn fn,
                          void *user, int *lost, struct pv_error *err)
{
    return v->here ? local_video_read(v->here, index, n, fn, user, lost, err)
                   : media_proxy_read(v->there, index, n, fn, user, lost, err);
}

struct sound_keeper {
    struct sound sound;
    uint64_t memory; /* 0: any number of bytes */
};

static enum pv_status keep_sound(void *user, const float *samples, size_t n, struct pv_error *err)
{
    struct sound_keeper *k = user;

    if (k->memory && n > k->memory / sizeof *samples - k->sound.n)
        return fail(err, PV_E_LIMIT,
                    "its sound takes more than the %llu bytes of memory that are allowed",
                    (unsigned long long)k->memory);
    return sound_append(&k->sound, samples, n, err);
}

enum pv_status video_read_sound(struct video *v, double start, double end, struct sound *out,
                                struct pv_error *err)
{
    struct sound_keeper k = { .sound = { .start = start }, .memory = v->memory };
    const struct sound_wish wish = { .start = start, .end = end, .fn = keep_sound, .user = &k };
    enum pv_status s;

    s = v->here ? local_video_sound(v->here, wish, &k.sound.lost, err)
                : media_proxy_sound(v->there, &wish, &k.sound.lost, err);
    if (s)
        sound_clear(&k.sound);
    else
        *out = k.sound;
    return s;
}
