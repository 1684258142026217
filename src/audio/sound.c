/* A growing array of samples. */
#include "audio/sound.h"

#include "base/mem.h"

#include <math.h>

enum { CAP_FIRST = 1 << 14 };

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
