/* A video that is decoded in this process, or by the helper where limits->sandbox is given, so that
 * tests can compare the two. The functions behave as their namesakes in video/video.h. */
#ifndef PV_TESTS_DECODE_H
#define PV_TESTS_DECODE_H

#include "audio/sound.h"
#include "base/mem.h"
#include "video/video_local_av.h"

struct decode {
    struct local_video *here; /* one of the two */
    struct video *there;
    uint64_t memory; /* bytes that its sound may take; 0: any number */
};

struct decoded_sound {
    struct sound sound;
    uint64_t memory;
};

static inline void decode_close(struct decode **d)
{
    if (!*d)
        return;
    local_video_close(&(*d)->here);
    video_close(&(*d)->there);
    mem_free(*d);
    *d = NULL;
}

static inline enum pv_status decode_open(struct decode **out, const struct video_source *from,
                                         const struct video_limits *limits, int threads,
                                         struct pv_error *err)
{
    struct decode *d = mem_zalloc(sizeof *d);
    enum pv_status s;

    if (!d)
        return PV_E_NOMEM;
    d->memory = limits->memory;
    s = limits->sandbox ? video_open(&d->there, from, limits, threads, err)
                        : local_video_open(&d->here, from, limits, threads, err);
    if (s)
        decode_close(&d);
    else
        *out = d;
    return s;
}

static inline const struct video_info *decode_info(const struct decode *d)
{
    return d->here ? local_video_info(d->here) : video_info(d->there);
}

/* Only for videos that are decoded here. */
static inline double decode_time(const struct decode *d, int64_t index)
{
    return local_video_time(d->here, index);
}

static inline enum pv_status decode_read(struct decode *d, const int64_t *index, int n,
                                         video_frame_fn fn, void *user, int *lost,
                                         struct pv_error *err)
{
    return d->here ? local_video_read(d->here, index, n, fn, user, lost, err)
                   : video_read(d->there, index, n, fn, user, lost, err);
}

static inline enum pv_status keep_decoded_sound(void *user, const float *samples, size_t n,
                                                struct pv_error *err)
{
    struct decoded_sound *k = user;

    if (k->memory && n > k->memory / sizeof *samples - k->sound.n)
        return fail(err, PV_E_LIMIT, "its sound takes more than the %llu bytes of memory",
                    (unsigned long long)k->memory);
    return sound_append(&k->sound, samples, n, err);
}

static inline enum pv_status decode_read_sound(struct decode *d, double start, double end,
                                               struct sound *out, struct pv_error *err)
{
    struct decoded_sound k = { .sound = { .start = start }, .memory = d->memory };
    const struct sound_wish wish = {
        .start = start, .end = end, .fn = keep_decoded_sound, .user = &k
    };
    enum pv_status s;

    if (d->there)
        return video_read_sound(d->there, start, end, out, err);
    s = local_video_sound(d->here, wish, &k.sound.lost, err);
    if (s)
        sound_clear(&k.sound);
    else
        *out = k.sound;
    return s;
}

#endif
