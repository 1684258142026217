/* Any bytes as a video or sound in memory: opened with tight limits, some frames and some sound
 * read. What comes out must agree with what the file was said to have, within the limits, in order,
 * and must be the same whether one thread reads or several. The memory of the process must not grow
 * by more than the limit on it explains. */
#include "decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Sanitizers multiply what is allocated; a file that gets past a limit asks for far more. */
enum { MOST_PIXELS = 1 << 16, MOST_FRAMES = 6, MOST_MB = 128, MOST_GROWTH_MB = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct watch {
    const struct video_info *info;
    const int64_t *index;
    int n, lost;
    uint64_t hash; /* of all that was given */
};

static bool frame_check(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct watch *w = user;
    if (at != w->n++ || index < 0 || index >= w->info->n_frames || !isfinite(time) || time < 0 ||
        p->width != w->info->width || p->height != w->info->height)
        abort();
    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i++)
        w->hash =
            (w->hash ^ p->rgb[i]) * 1099511628211u; /* a sanitizer sees what was not written */
    w->hash = (w->hash ^ (uint64_t)index) * 1099511628211u;
    w->lost += index != w->index[at];
    return true;
}

/* All of the sound, and a part of it. */
static uint64_t sound_check(struct decode *v, bool *limited)
{
    const double part[][2] = { { 0, INFINITY }, { 0.4, 1.1 } };
    uint64_t hash = 14695981039346656037u;

    for (int i = 0; i < 2; i++) {
        struct sound sound = { 0 };
        struct pv_error err = { 0 };
        enum pv_status s = decode_read_sound(v, part[i][0], part[i][1], &sound, &err);
        if (s ? !err.text[0] || sound.samples : sound.n > (size_t)(i ? 11200 : 60 * SOUND_RATE))
            abort();
        for (size_t k = 0; k < sound.n; k++) {
            uint32_t bits;
            if (!isfinite(sound.samples[k]))
                abort();
            memcpy(&bits, &sound.samples[k], sizeof bits);
            hash = (hash ^ bits) * 1099511628211u;
        }
        sound_clear(&sound);
        *limited |= s == PV_E_LIMIT;
        hash ^= s;
    }
    return hash;
}

/* *limited: a limit ended it, which depends on the time it takes. */
static uint64_t video_check(struct decode *v, bool *limited)
{
    const struct video_info *info = decode_info(v);
    int64_t n = info->n_frames,
            index[MOST_FRAMES] = { 0, n / 5, n / 3, n / 2, n - 1 - n / 4, n - 1 };
    struct watch w = { info, index, 0, 0, 14695981039346656037u };
    struct pv_error err = { 0 };
    int lost = -1;
    enum pv_status s;

    if (n == 0 && info->has_sound)
        return sound_check(v, limited);
    if (n < 1 || info->width < 1 || info->height < 1 ||
        (int64_t)info->width * info->height > MOST_PIXELS || !(info->fps >= 0) ||
        !isfinite(info->fps) || !(info->duration >= 0) || (info->still && n != 1))
        abort();
    for (int64_t i = 1; i < n; i++)
        if (!(decode_time(v, i) > decode_time(v, i - 1)))
            abort();
    s = decode_read(v, index, MOST_FRAMES, frame_check, &w, &lost, &err);
    if (s ? !err.text[0] : (lost != w.lost || w.n != MOST_FRAMES))
        abort();
    *limited |= s == PV_E_LIMIT;
    return w.hash ^ s ^ sound_check(v, limited);
}

static void check(const uint8_t *data, size_t size)
{
    const struct video_source from = { .data = data, .size = size, .sound_alone = true };
    const struct video_limits limits = { .file_bytes = 1 << 20,
                                         .pixels = MOST_PIXELS,
                                         .frames = MOST_FRAMES,
                                         .seconds = 60,
                                         .memory = MOST_MB << 20,
                                         .cpu_seconds = 2 };
    struct pv_error err = { 0 };
    struct decode *v = NULL;
    bool limited = false;
    uint64_t alone, together;

    if (decode_open(&v, &from, &limits, 1, &err)) {
        if (!err.text[0] || v)
            abort(); /* a failure must say why */
        return;
    }
    alone = video_check(v, &limited);
    decode_close(&v);
    if (decode_open(&v, &from, &limits, 3, &err)) {
        if (err.code != PV_E_LIMIT) /* its time may be up sooner */
            abort();
        return;
    }
    together = video_check(v, &limited);
    if (together != alone && !limited)
        abort();
    decode_close(&v);
}

static long peak_mb(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss / 1024;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    long before = peak_mb();
    check(data, size);
    if (peak_mb() > before + MOST_GROWTH_MB)
        abort();
    return 0;
}
