/* A growing array of samples, and their places in time. */
#include "audio/sound.h"

#include "base/mem.h"

#include <math.h>

enum { CAP_FIRST = 1 << 14 };

int64_t sound_place(double seconds)
{
    if (!(fabs(seconds) < 1e12))
        return seconds > 0 ? INT64_MAX / 2 : INT64_MIN / 2;
    return llround(seconds * SOUND_RATE);
}

int64_t sound_most(double start, double end, double seconds)
{
    int64_t from = sound_place(start), to = sound_place(end), most = sound_place(seconds);

    to = to < most ? to : most;
    return to > from ? to - from : 0;
}

static enum pv_status make_room(struct sound *s, size_t n, struct pv_error *err)
{
    size_t need = 0, bytes = 0, cap = s->cap ? s->cap : CAP_FIRST;
    float *samples;

    if (!add_size(s->n, n, &need) || !mul_size(need, 2 * sizeof *s->samples, &bytes))
        return fail_nomem(err, SIZE_MAX);
    if (need <= s->cap)
        return PV_OK;
    while (cap < need)
        cap += cap / 2;
    samples = mem_realloc(s->samples, cap * sizeof *samples);
    if (!samples)
        return fail_nomem(err, cap * sizeof *samples);
    s->samples = samples;
    s->cap = cap;
    return PV_OK;
}

enum pv_status sound_append(struct sound *s, const float *samples, size_t n, struct pv_error *err)
{
    enum pv_status st = n > 0 ? make_room(s, n, err) : PV_OK;

    if (st || n == 0)
        return st;
    for (size_t i = 0; i < n; i++)
        s->samples[s->n + i] = samples && isfinite(samples[i]) ? samples[i] : 0;
    s->n += n;
    return PV_OK;
}

void sound_clear(struct sound *s)
{
    mem_free(s->samples);
    *s = (struct sound){ 0 };
}
