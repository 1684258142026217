/* Towers over many frames of random pixels, and the time from pixels to the first token of a
 * LLaVA-OneVision model: tower, pooling, prefill of what they gave and of the question. */
#include "family/families.h"
#include "gpu_rig.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "vision/llava.h"

enum { TOWER_REPEAT = 3, QUESTION = 32 };

/* A tower and the frames it is given. */
struct tower_bench {
    const struct rig_model *m;
    struct vision *v;
    struct vision_state *state;
    const struct vision_config *c;
    int h, w;          /* patches of a slice */
    int side;          /* pixels of a frame */
    int slices, total; /* per call; in all */
    int frames;        /* in all */
    int tokens, kept;  /* per slice, before and after pooling */
    float *patches;    /* of one call: the same pixels for all */
    uint8_t *pixels;   /* frames of one call, if the device cuts patches */
    float *features;   /* of one call */
};

static size_t patch_floats(const struct vision_config *c)
{
    return (size_t)(3 * c->temporal * c->patch * c->patch);
}

static void tower_bench_close(struct tower_bench *e)
{
    vision_state_close(&e->state);
    vision_close(&e->v);
    mem_free(e->patches);
    mem_free(e->pixels);
    mem_free(e->features);
}

static enum pv_status tower_bench_open(struct tower_bench *e, const struct rig_model *m,
                                       const struct plan *p, struct pv_error *err)
{
    const struct vision_config *c = model_file_vision(m->mf);
    bool any = !c->family->tower->fixed;
    int side = any ? p->size / (c->patch * c->merge) * c->merge : vision_side(c), batch;
    struct rng rng = { 1 };
    size_t n, out;
    enum pv_status s;
    *e = (struct tower_bench){ .m = m, .c = c, .h = side, .w = side };
    s = vision_open(&e->v, m->mf, m->dev, err);
    if (s)
        return s;
    batch = p->batch ? p->batch : vision_batch(e->v) / (side * side) * c->temporal;
    batch = batch < p->frames ? batch : p->frames;
    e->slices = batch / c->temporal > 0 ? batch / c->temporal : 1;
    e->total = (p->frames + c->temporal - 1) / c->temporal;
    e->frames = e->total * c->temporal;
    e->tokens = vision_slice_tokens(e->v, side, side);
    e->kept = any ? e->tokens : llava_frame_tokens(c);
    n = (size_t)e->slices * (size_t)(side * side) * patch_floats(c);
    out = (size_t)e->slices * (size_t)e->tokens * (size_t)vision_row_size(c);
    e->features = mem_alloc(sizeof(float) * out);
    if (vision_cuts_patches(e->v) && vision_keeps_tokens(e->v)) {
        e->side = any ? side * c->patch : c->image;
        n = (size_t)e->slices * (size_t)c->temporal * (size_t)e->side * (size_t)e->side * 3;
        e->pixels = mem_alloc(n);
    } else {
        e->patches = mem_alloc(sizeof(float) * n);
    }
    s = (e->patches || e->pixels) && e->features
            ? vision_state_open(&e->state, e->v, e->slices * side * side, err)
            : fail_nomem(err, sizeof(float) * (n + out));
    for (size_t i = 0; i < n && !s; i++) {
        float x = rng_float(&rng);
        if (e->pixels)
            e->pixels[i] = (uint8_t)(127.5f * (1 + x));
        else
            e->patches[i] = x;
    }
    if (s)
        tower_bench_close(e);
    return s;
}

/* Pairs of rows of a slice that attend to each other. */
static double pairs_seen(const struct tower_bench *e, bool full)
{
    const struct vision_config *c = e->c;
    int side = full ? 0 : c->window / c->patch;
    double pairs = 0;
    if (full)
        return (double)(e->h * e->w) * (e->h * e->w);
    for (int y = 0; y < e->h; y += side)
        for (int x = 0; x < e->w; x += side) {
            double rows =
                (double)(e->h - y < side ? e->h - y : side) * (e->w - x < side ? e->w - x : side);
            pairs += rows * rows;
        }
    return pairs;
}

/* Operations of all calls together. */
static double tower_bench_operations(const struct tower_bench *e)
{
    const struct vision_config *c = e->c;
    bool llava = c->family->tower->fixed;
    double hidden = c->hidden, rows = (double)e->h * e->w, ops = 0;
    double wide = hidden * c->merge * c->merge, middle = llava ? c->out : wide;
    double mats = c->family->tower->gated ? 3 : 2, mergers = 1 + c->n_deepstack;
    for (int i = 0; i < c->n_layers; i++)
        ops += 2 * rows * hidden * (4 * hidden + mats * c->ffn) +
               4 * hidden * pairs_seen(e, llava || c->full[i]);
    ops += 2 * rows * hidden * (double)patch_floats(c);
    ops += 2 * mergers * e->tokens * middle * (wide + c->out);
    return ops * e->total;
}

/* Encode all frames, call by call, as the engine does: data stays on the device if possible. The
 * tokens are stored one after the other at `there`, unless it is NULL. */
static enum pv_status encode_all(struct tower_bench *e, float *there, struct pv_error *err)
{
    const struct device_ops *ops = e->m->dev->ops;
    struct device_work *work = vision_state_work(e->state);
    size_t slice = (size_t)e->kept * (size_t)vision_row_size(e->c);
    enum pv_status s = PV_OK, waited;
    for (int at = 0; at < e->total && !s; at += e->slices) {
        int n = e->total - at < e->slices ? e->total - at : e->slices;
        const float *tokens = e->features;
        struct vision_frames frames = { e->pixels, e->side, e->side };
        if (e->pixels)
            s = vision_encode_frames(e->v, e->state, &frames, n, NULL, &tokens, err);
        else if (vision_keeps_tokens(e->v))
            s = vision_encode_video(e->v, e->state, e->patches, n, e->h, e->w, &tokens, err);
        else
            s = vision_encode(e->v, e->state, e->patches, n, e->h, e->w, e->features, err);
        if (!s && there)
            ops->copy(work, there + (size_t)at * slice, tokens, sizeof *there * (size_t)n * slice);
    }
    waited = ops->wait(work, err);
    return s ? s : waited;
}

enum pv_status test_tower(struct rig *r, const struct rig_model *m, const struct plan *p,
                          struct pv_error *err)
{
    struct timings t = { .n = 0 };
    char note[64];
    struct tower_bench e;
    enum pv_status s = tower_bench_open(&e, m, p, err);
    if (s)
        return s;
    for (int i = 0; i <= TOWER_REPEAT && !s; i++) {
        double start = clock_now();
        s = encode_all(&e, NULL, err);
        if (i > 0)
            timings_add(&t, clock_now() - start);
    }
    snprintf(note, sizeof note, "%d frames of %d x %d patches; %d a call", e.frames, e.h, e.w,
             e.slices * e.c->temporal);
    if (!s)
        results_row(r->results, &(struct result){ .model = m->shape,
                                                  .type = m->type,
                                                  .test = "tower",
                                                  .context = 0,
                                                  .rows = e.frames,
                                                  .samples = t.n,
                                                  .ms = 1e3 * timings_at(&t, 0.5),
                                                  .best_ms = 1e3 * timings_at(&t, 0),
                                                  .tokens = e.total * e.kept,
                                                  .operations = tower_bench_operations(&e),
                                                  .memory = rig_used(r),
                                                  .note = note });
    tower_bench_close(&e);
    return s;
}

/* ---- the first token ---- */

struct first_token {
    struct tower_bench *e;
    struct lane *l;
    float *embeds; /* of all frames, on the device */
    int n, chunk;  /* tokens of frames; rows of a step */
    double tower_s, prefill_s;
};

static enum pv_status first_once(struct first_token *f, struct pv_error *err)
{
    struct tower_bench *e = f->e;
    size_t hidden = (size_t)e->c->out;
    double start = clock_now();
    enum pv_status s = encode_all(e, f->embeds, err);
    f->tower_s = clock_now() - start;
    lane_at(f->l, 0);
    for (int at = 0; at < f->n && !s;) {
        int some = f->n - at < f->chunk ? f->n - at : f->chunk;
        int left = f->n + QUESTION - at - some, next = left < f->chunk ? left : f->chunk;
        struct lane_rows rows = { .n = some,
                                  .next = next,
                                  .embeds = f->embeds + (size_t)at * hidden,
                                  .embeds_there = true,
                                  .bulk = true };
        s = lane_step(f->l, &rows, err);
        if (!s)
            kvcache_advance(&f->l->kv, some);
        at += some;
    }
    struct lane_rows question = { .n = QUESTION, .wanted = 1, .bulk = true };
    if (!s)
        s = lane_step(f->l, &question, err);
    f->prefill_s = clock_now() - start - f->tower_s;
    return s;
}

enum pv_status test_first_token(struct rig *r, const struct rig_model *m, const struct plan *p,
                                struct pv_error *err)
{
    struct timings t = { .n = 0 };
    struct tower_bench e;
    struct lane l;
    void *embeds = NULL;
    bool opened;
    char note[96];
    enum pv_status s = tower_bench_open(&e, m, p, err);
    struct first_token f = { .e = &e, .l = &l, .chunk = p->chunk };
    if (s)
        return s;
    f.n = e.total * e.kept;
    s = device_alloc(m->dev, &embeds, sizeof(float) * (size_t)f.n * (size_t)e.c->out, err);
    f.embeds = embeds;
    if (!s)
        s = lane_open(&l, m, f.n + QUESTION, p->chunk, 1, err);
    opened = !s;
    for (int i = 0; i <= TOWER_REPEAT && !s; i++) {
        s = first_once(&f, err);
        if (i > 0)
            timings_add(&t, f.tower_s + f.prefill_s);
    }
    if (!s) {
        snprintf(note, sizeof note, "%d frames: tower and pooling %.1f ms; prefill %.1f ms",
                 e.frames, 1e3 * f.tower_s, 1e3 * f.prefill_s);
        results_row(r->results,
                    &(struct result){ .model = m->shape,
                                      .type = m->type,
                                      .test = "first token",
                                      .context = f.n,
                                      .rows = e.frames,
                                      .samples = t.n,
                                      .ms = 1e3 * timings_at(&t, 0.5),
                                      .best_ms = 1e3 * timings_at(&t, 0),
                                      .operations = tower_bench_operations(&e) +
                                                    rig_operations(m, 0, f.n + QUESTION, 1),
                                      .memory = rig_used(r),
                                      .note = note });
    }
    if (opened)
        lane_close(&l);
    if (embeds)
        m->dev->ops->free(m->dev, embeds);
    tower_bench_close(&e);
    return s;
}
