/* Encodes units (frames, pairs of frames, whole still pictures) in batches that are large enough
 * for the tower's matrices to be read once for many rows, and small enough to bound memory; sound
 * is encoded a chunk at a time. If sound and pictures alternate in the prompt, rows of both are
 * requested in turns, so a window of each is kept. */
#include "engine/encoder.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "format/family.h"
#include "video/patches.h"
#include "vision/llava.h"

#include <string.h>

struct encoder {
    const struct vision *v; /* borrowed */
    struct vision_state *state;
    int max_patches;                    /* of the state */
    float *patches, *features, *window; /* one batch: tower's input, output, rows of the prompt */
    const float *kept;                  /* the rows, if they stay on the device; else NULL */
    size_t n_patches, n_features, n_window; /* floats they hold */
    uint64_t key;                           /* media item of which the window holds a part, */
    int unit0, n_units;                     /* and which part; n_units 0: nothing */
    const struct audio_encoder *h;          /* borrowed; NULL: no audio encoder */
    struct audio_encoder_state *audio_encoder;
    float *heard; /* rows of one chunk of sound */
    size_t n_heard;
    uint64_t heard_key; /* the media item of `heard`, */
    int chunk;          /* and which chunk; -1: nothing */
    double seconds;
    struct vision_watch watch;
    struct device *group; /* runs the tower on this group's threads; NULL: its own */
};

/* What a batch of this media item needs. */
struct need {
    int units, slices, patches; /* per batch */
    size_t patch_floats, feature_floats, window_floats, heard_floats;
};

/* Whether it is a still picture whose rows are assembled from its views. */
static bool is_stitched(const struct media *m)
{
    return m->family->tower->tiles && !m->video;
}

static struct patch_plan plan_of(const struct vision_config *c)
{
    struct patch_plan p = { .patch = c->patch, .temporal = c->temporal, .merge = c->merge };
    memcpy(p.mean, c->mean, sizeof p.mean);
    memcpy(p.std, c->std, sizeof p.std);
    return p;
}

static struct need need_of(const struct encoder *e, const struct media *m)
{
    const struct vision_config *c = vision_config(e->v);
    struct patch_plan plan = plan_of(c);
    struct need n = { .heard_floats = (size_t)m->sound.chunk_rows * (size_t)vision_row_size(c) };
    if (m->n_units == 0)
        return n;
    int per_unit = m->n_slices / m->n_units, unit_patches = per_unit * m->h * m->w;
    n.units = vision_batch(e->v) / unit_patches;
    if (n.units < 1) /* a single unit may exceed the limit */
        n.units = 1;
    if (n.units > m->n_units)
        n.units = m->n_units;
    n.slices = n.units * per_unit;
    n.patches = n.slices * m->h * m->w;
    if (!vision_cuts_patches(e->v))
        n.patch_floats = (size_t)n.patches * (size_t)patch_row_size(&plan);
    if (!m->video || !vision_keeps_tokens(e->v))
        n.window_floats = (size_t)n.units * (size_t)m->unit_rows * (size_t)vision_row_size(c);
    if (is_stitched(m))
        n.feature_floats = (size_t)n.slices * (size_t)vision_slice_tokens(e->v, m->h, m->w) *
                           (size_t)vision_row_size(c);
    return n;
}

enum pv_status encoder_open(struct encoder **out, const struct vision *v,
                            const struct audio_encoder *h, struct pv_error *err)
{
    struct encoder *e = mem_zalloc(sizeof *e);
    if (!e)
        return fail_nomem(err, sizeof *e);
    e->v = v;
    e->h = h;
    e->chunk = -1;
    *out = e;
    return PV_OK;
}

void encoder_close(struct encoder **e)
{
    if (!*e)
        return;
    vision_state_close(&(*e)->state);
    audio_encoder_state_close(&(*e)->audio_encoder);
    mem_free((*e)->heard);
    mem_free((*e)->patches);
    mem_free((*e)->features);
    mem_free((*e)->window);
    mem_free(*e);
    *e = NULL;
}

size_t encoder_size(const struct encoder *e, const struct media *m)
{
    struct need n = need_of(e, m);
    int patches = n.patches > e->max_patches ? n.patches : e->max_patches;
    return (patches > 0 ? vision_state_size(e->v, patches) : 0) +
           (n.heard_floats > 0 || e->audio_encoder ? audio_encoder_state_size(e->h) : 0) +
           sizeof(float) *
               (max_size(n.patch_floats, e->n_patches) + max_size(n.feature_floats, e->n_features) +
                max_size(n.window_floats, e->n_window) + max_size(n.heard_floats, e->n_heard));
}

/* Make *p a block of at least n floats; its contents are lost when it grows. */
static enum pv_status grow(float **p, size_t *have, size_t n, struct pv_error *err)
{
    size_t size;
    if (n <= *have)
        return PV_OK;
    if (!mul_size(n, sizeof(float), &size))
        return fail_nomem(err, SIZE_MAX);
    mem_free(*p);
    *have = 0;
    *p = mem_zalloc(size);
    if (!*p)
        return fail_nomem(err, size);
    *have = n;
    return PV_OK;
}

void encoder_work_on(struct encoder *e, struct device *group)
{
    e->group = group;
    if (e->state)
        vision_state_work_on(e->state, group);
    if (e->audio_encoder)
        audio_encoder_state_work_on(e->audio_encoder, group);
}

/* Make room for chunks of sound. */
static enum pv_status reserve_audio_encoder(struct encoder *e, size_t floats, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    if (floats == 0)
        return PV_OK;
    if (!e->audio_encoder) {
        s = audio_encoder_state_open(&e->audio_encoder, e->h, err);
        if (!s)
            audio_encoder_state_work_on(e->audio_encoder, e->group);
    }
    return s ? s : grow(&e->heard, &e->n_heard, floats, err);
}

enum pv_status encoder_reserve(struct encoder *e, const struct media *m, struct pv_error *err)
{
    struct need n = need_of(e, m);
    enum pv_status s = PV_OK;
    if (n.window_floats > e->n_window)
        e->n_units = 0; /* the window is about to move */
    if (n.patches > e->max_patches) {
        vision_state_close(&e->state);
        e->max_patches = 0;
        s = vision_state_open(&e->state, e->v, n.patches, err);
        if (!s)
            e->max_patches = n.patches;
        if (!s)
            vision_state_work_on(e->state, e->group);
    }
    if (!s)
        s = grow(&e->patches, &e->n_patches, n.patch_floats, err);
    if (!s)
        s = grow(&e->features, &e->n_features, n.feature_floats, err);
    if (!s)
        s = grow(&e->window, &e->n_window, n.window_floats, err);
    return s ? s : reserve_audio_encoder(e, n.heard_floats, err);
}

static void cut_patches(struct encoder *e, const struct media *m, int slice0, int n)
{
    const struct vision_config *c = vision_config(e->v);
    struct patch_plan plan = plan_of(c);
    size_t slice_floats = (size_t)m->h * (size_t)m->w * (size_t)patch_row_size(&plan);
    for (int i = 0; i < n; i++) {
        const uint8_t *frames[2];
        for (int t = 0; t < c->temporal; t++)
            frames[t] = media_view(m, (slice0 + i) * c->temporal + t);
        patches_make(e->patches + (size_t)i * slice_floats, &plan, frames, m->height, m->width);
    }
}

/* A still picture that was not cut into tiles: its one view, and a newline. */
static void plain_picture(struct encoder *e, const struct media *m)
{
    size_t row = (size_t)vision_row_size(vision_config(e->v)), n = (size_t)(m->unit_rows - 1) * row;
    memcpy(e->window, e->features, n * sizeof(float));
    memcpy(e->window + n, llava_newline(e->v), row * sizeof(float));
}

/* Run the tower over n slices. Its tokens stay on the device, or go to the buffer from which the
 * window is filled. */
static enum pv_status run_tower(struct encoder *e, const struct media *m, int slice0, int n,
                                struct pv_error *err)
{
    bool stays = m->video && vision_keeps_tokens(e->v);
    float *out = stays ? NULL : is_stitched(m) ? e->features : e->window;
    struct vision_frames frames = { .rgb = media_view(m, slice0 * vision_config(e->v)->temporal),
                                    .height = m->height,
                                    .width = m->width };
    if (vision_cuts_patches(e->v))
        return vision_encode_frames(e->v, e->state, &frames, n, out, &e->kept, err);
    cut_patches(e, m, slice0, n);
    if (stays)
        return vision_encode_video(e->v, e->state, e->patches, n, m->h, m->w, &e->kept, err);
    return vision_encode(e->v, e->state, e->patches, n, m->h, m->w, out, err);
}

/* Fill the window with units from unit0 on. */
static enum pv_status encode(struct encoder *e, const struct media *m, uint64_t key, int unit0,
                             struct pv_error *err)
{
    struct need n = need_of(e, m);
    int units = m->n_units - unit0 < n.units ? m->n_units - unit0 : n.units;
    int per_unit = m->n_slices / m->n_units;
    double t0 = clock_now();
    enum pv_status s;
    e->n_units = 0;
    e->kept = NULL;
    vision_state_watch(e->state, e->watch);
    s = run_tower(e, m, unit0 * per_unit, units * per_unit, err);
    if (s)
        return s;
    if (is_stitched(m) && m->tiling.rows > 0)
        llava_stitch(e->v, e->state, e->features, &m->tiling, m->source_height, m->source_width,
                     e->window);
    else if (is_stitched(m))
        plain_picture(e, m);
    e->key = key;
    e->unit0 = unit0;
    e->n_units = units;
    e->seconds += clock_now() - t0;
    return PV_OK;
}

/* Encode a chunk of sound, unless its rows are there already. */
static enum pv_status hear(struct encoder *e, const struct media *m, uint64_t key, int chunk,
                           struct pv_error *err)
{
    double t0 = clock_now();
    enum pv_status s;
    if (key == e->heard_key && chunk == e->chunk)
        return PV_OK;
    e->chunk = -1;
    /* drafting_tower makes no room for videos that the view does not show. */
    s = reserve_audio_encoder(e, need_of(e, m).heard_floats, err);
    if (s)
        return s;
    audio_encoder_state_watch(e->audio_encoder, e->watch);
    s = audio_encoder_encode(e->h, e->audio_encoder,
                             m->sound.mel + (size_t)chunk * (size_t)m->sound.chunk_size, e->heard,
                             err);
    if (s)
        return s;
    e->heard_key = key;
    e->chunk = chunk;
    e->seconds += clock_now() - t0;
    return PV_OK;
}

/* Copy n floats of the window, or of host memory, to the caller. */
static void hand_out(struct encoder *e, float *to, bool on_device, const float *from,
                     bool from_device, size_t n)
{
    const struct device_ops *ops = vision_device(e->v)->ops;
    struct device_work *w = e->state ? vision_state_work(e->state) : NULL;
    if (on_device && !w) { /* a prompt with sound only */
        ops->upload(vision_device(e->v), to, from, n * sizeof *to);
        return;
    }
    size_t size = n * sizeof *to;
    if (on_device && from_device)
        ops->copy(w, to, from, size);
    else if (on_device)
        ops->put(w, to, from, size);
    else if (from_device)
        ops->get(w, to, from, size);
    else
        memcpy(to, from, size);
}

static enum pv_status rows(struct encoder *e, const struct media *m, uint64_t key, int from, int n,
                           float *out, bool on_device, struct pv_error *err)
{
    size_t row = (size_t)vision_row_size(vision_config(e->v));
    int unit_end = m->n_units * m->unit_rows; /* after that comes the newline */
    enum pv_status s;
    double t0;
    for (int done = 0; done < n;) {
        int at = from + done, unit, begin, some;
        if (at >= media_picture_rows(m)) {
            struct media_unit u = media_unit(m, at);
            s = hear(e, m, key, u.number - m->n_units, err);
            if (s)
                return s;
            some = u.first + u.n - at < n - done ? u.first + u.n - at : n - done;
            hand_out(e, out + (size_t)done * row, on_device,
                     e->heard + (size_t)(at - u.first) * row, false, (size_t)some * row);
            done += some;
            continue;
        }
        if (at >= unit_end) {
            hand_out(e, out + (size_t)done * row, on_device, llava_newline(e->v), false, row);
            done++;
            continue;
        }
        unit = at / m->unit_rows;
        if (key != e->key || unit < e->unit0 || unit >= e->unit0 + e->n_units) {
            s = encode(e, m, key, unit, err);
            if (s)
                return s;
        }
        begin = at - e->unit0 * m->unit_rows;
        some = e->n_units * m->unit_rows - begin;
        some = some < n - done ? some : n - done;
        hand_out(e, out + (size_t)done * row, on_device,
                 (e->kept ? e->kept : e->window) + (size_t)begin * row, e->kept != NULL,
                 (size_t)some * row);
        done += some;
    }
    if (!e->state) /* only sound, or only a newline for a drafter that sees no more of a video */
        return PV_OK;
    t0 = clock_now(); /* the tower may still be running */
    s = vision_device(e->v)->ops->wait(vision_state_work(e->state), err);
    e->seconds += clock_now() - t0;
    return s;
}

enum pv_status encoder_rows(struct encoder *e, const struct media *m, uint64_t key, int from, int n,
                            float *out, struct pv_error *err)
{
    return rows(e, m, key, from, n, out, false, err);
}

enum pv_status encoder_rows_on_device(struct encoder *e, const struct media *m, uint64_t key,
                                      int from, int n, float *out, struct pv_error *err)
{
    return rows(e, m, key, from, n, out, true, err);
}

int encoder_window(const struct encoder *e, const struct media *m, uint64_t key, int of, int *row)
{
    if (of >= media_picture_rows(m)) {
        *row = media_picture_rows(m) + e->chunk * m->sound.chunk_rows;
        return key == e->heard_key && e->chunk >= 0 ? m->sound.chunk_rows : 0;
    }
    *row = e->unit0 * m->unit_rows;
    return key == e->key ? e->n_units * m->unit_rows : 0;
}

void encoder_watch(struct encoder *e, struct vision_watch watch)
{
    e->watch = watch;
}

double encoder_take_seconds(struct encoder *e)
{
    double s = e->seconds;
    e->seconds = 0;
    return s;
}
