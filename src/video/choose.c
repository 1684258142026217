/* Frame choice. Five rules give the positions; all share the part of the video they look at (from
 * `start` to `end`) and, when no number of frames is given, a number by frames a second.
 *
 * The rules follow their references to the last bit of arithmetic, since a position that rounds the
 * other way is another frame: numpy's linspace and arange in double, torch's linspace in float. */
#include "video/choose.h"

#include "base/mem.h"

#include <math.h>

/* The frames [first, last] that may be chosen, and how many they are. */
struct range {
    int64_t first, last;
    double count;
};

static enum pv_status range_find(struct range *r, const struct choose_params *p, int64_t total,
                                 double fps, struct pv_error *err)
{
    double length = (double)total / fps;
    int64_t first = 0, last = total - 1;

    if (!(p->start >= 0) || !(p->end >= 0))
        return fail(err, PV_E_ARG, "start %g and end %g must be seconds, 0 or more", p->start,
                    p->end);
    if (p->end > 0 && p->end <= p->start)
        return fail(err, PV_E_ARG, "the end at %g s is not after the start at %g s", p->end,
                    p->start);
    if (p->start >= length)
        return fail(err, PV_E_ARG, "the start at %g s lies beyond the end of the video at %g s",
                    p->start, length);
    if (p->start > 0)
        first = (int64_t)ceil(p->start * fps);
    if (p->end > 0 && p->end < length)
        last = (int64_t)floor(p->end * fps);
    if (last > total - 1)
        last = total - 1;
    if ((p->start > 0 || p->end > 0) && first >= last)
        return fail(err, PV_E_ARG,
                    "between %g s and %g s the video, %g frames a second, has fewer than 2 frames",
                    p->start, p->end > 0 ? p->end : length, fps);
    *r = (struct range){ first, last, (double)(last - first + 1) };
    return PV_OK;
}

/* How many frames: fps of them a second within the bounds. Qwen's number is even, its bounds too.
 */
static double count_by_fps(const struct choose_params *p, const struct range *r, double fps)
{
    bool even = p->rule == CHOOSE_QWEN, once = p->rule == CHOOSE_ONCE;
    double n = once ? nearbyint(r->count / fps / (1 / p->fps)) : r->count / fps * p->fps;
    double lo = p->min_frames, hi = p->max_frames ? p->max_frames : once ? n : r->count;

    if (even) {
        lo = 2 * ceil(lo / 2);
        hi = 2 * floor(hi / 2);
    }
    n = fmin(fmax(n, lo), hi);
    n = once ? n : fmin(n, r->count);
    n = even ? 2 * floor(n / 2) : floor(n);
    return even ? n : fmax(n, 1);
}

static enum pv_status count_find(int *out, const struct choose_params *p, const struct range *r,
                                 double fps, int limit, struct pv_error *err)
{
    double n;

    if (p->frames < 0 || p->min_frames < 0 || p->max_frames < 0)
        return fail(err, PV_E_ARG, "a number of frames is negative: %d, at least %d, at most %d",
                    p->frames, p->min_frames, p->max_frames);
    if (p->frames) {
        n = p->frames;
        if (p->rule == CHOOSE_QWEN)
            n = 2 * nearbyint(n / 2);
    } else {
        if (!(p->fps > 0) || !isfinite(p->fps))
            return fail(err, PV_E_ARG, "%g is not a number of frames a second", p->fps);
        if (p->max_frames && p->min_frames > p->max_frames)
            return fail(err, PV_E_ARG, "at least %d frames and at most %d are asked for",
                        p->min_frames, p->max_frames);
        n = count_by_fps(p, r, fps);
    }
    if (p->rule == CHOOSE_QWEN && !(n >= 2 && n <= r->count))
        return fail(err, PV_E_ARG,
                    "%.0f frames of %.0f were to be taken: Qwen's rule takes 2 or more "
                    "and none twice",
                    n, r->count);
    if (n > limit)
        return fail(err, PV_E_LIMIT, "%.0f frames are asked for, at most %d are allowed", n, limit);
    *out = (int)n;
    return PV_OK;
}

/* numpy.linspace(first, last, n) in double; the last value is `last` itself. */
static double linspace_at(const struct range *r, int n, int k)
{
    double step;

    if (n == 1)
        return (double)r->first;
    if (k == n - 1)
        return (double)r->last;
    step = (double)(r->last - r->first) / (n - 1);
    return k * step + (double)r->first;
}

/* numpy.arange(0, count, count / n), rounded down. */
static int64_t position_arange(const struct range *r, int n, int k)
{
    return r->first + (int64_t)(k * (r->count / n));
}

/* torch.linspace(first, last, n) in float, from both ends inwards, rounded half to even. */
static int64_t position_qwen(const struct range *r, int n, int k)
{
    float first = (float)r->first, last = (float)r->last;
    float step = (last - first) / (float)(n - 1);
    float x = k < n / 2 ? first + step * (float)k : last - step * (float)(n - 1 - k);

    return (int64_t)nearbyintf(x);
}

static int64_t position(enum choose_rule rule, const struct range *r, int n, int k)
{
    bool down = rule == CHOOSE_LINSPACE || rule == CHOOSE_ONCE;
    int64_t at = down                    ? (int64_t)floor(linspace_at(r, n, k))
                 : rule == CHOOSE_ARANGE ? position_arange(r, n, k)
                 : rule == CHOOSE_QWEN   ? position_qwen(r, n, k)
                                         : (int64_t)nearbyint(linspace_at(r, n, k));

    return at < r->first ? r->first : at > r->last ? r->last : at;
}

/* Of ascending numbers, each once; how many they are. */
static int drop_repeated(int64_t *index, int n)
{
    int kept = 0;

    for (int k = 0; k < n; k++)
        if (kept == 0 || index[k] != index[kept - 1])
            index[kept++] = index[k];
    return kept;
}

enum pv_status choose_frames(struct choice *out, const struct choose_params *p, int64_t total,
                             double fps, int limit, struct pv_error *err)
{
    struct range r = { 0, 0, 1 };
    int64_t *index;
    enum pv_status s;
    int n = 1;

    if (total < 1 || !(fps >= 0) || !isfinite(fps))
        return fail(err, PV_E_ARG, "%lld frames at %g a second are no video", (long long)total,
                    fps);
    if (limit < 1)
        return fail(err, PV_E_LIMIT, "1 frame is asked for, at most %d are allowed", limit);
    if (fps > 0) {
        s = range_find(&r, p, total, fps, err);
        if (!s)
            s = count_find(&n, p, &r, fps, limit, err);
        if (s)
            return s;
    }
    index = mem_alloc(sizeof *index * (size_t)n);
    if (!index)
        return fail_nomem(err, sizeof *index * (size_t)n);
    for (int k = 0; k < n; k++)
        index[k] = fps > 0 ? position(p->rule, &r, n, k) : 0;
    if (p->rule == CHOOSE_ONCE)
        n = drop_repeated(index, n);
    *out = (struct choice){ .n = n, .index = index, .sample_fps = n / r.count * fps };
    return PV_OK;
}

void choice_clear(struct choice *c)
{
    mem_free(c->index);
    *c = (struct choice){ 0 };
}
