/* Opening towers and their state, and the checks before an encoding; what a tower computes is in
 * tower.c and places.c. */
#include "vision/tower.h"

#include "base/minmax.h"
#include "tensor/quant.h"
#include "tensor/weights.h"
#include "vision/llava.h"

/* ---- weights ---- */

static size_t merger_floats(const struct vision_merger *m)
{
    return weights_count(m->norm) + weights_count(m->norm_bias) + weights_count(m->mm0_bias) +
           weights_count(m->mm2_bias);
}

static size_t small_floats(const struct model_file *mf)
{
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    size_t n =
        weights_count(t->patch_bias) + weights_count(t->position) + merger_floats(&t->merger);
    for (int i = 0; i < model_file_vision(mf)->n_deepstack; i++)
        n += merger_floats(&t->deepstack[i]);
    for (int i = 0; i < model_file_vision(mf)->n_layers; i++)
        n += tower_layer_floats(model_file_vision_layer(mf, i));
    return n;
}

static enum pv_status take_merger(struct vision *v, struct merger *m, const struct vision_merger *t,
                                  float **at, struct pv_error *err)
{
    int middle = (int)t->mm0->dim[0], wide = v->c.hidden * v->c.merge * v->c.merge;
    const struct tower_part parts[] = {
        { &m->mm0, t->mm0, t->mm0_bias, middle, wide },
        { &m->mm2, t->mm2, t->mm2_bias, v->c.out, middle },
    };
    m->norm = weights_small(v->dev, at, t->norm);
    m->norm_bias = weights_small(v->dev, at, t->norm_bias);
    m->norm_dim = (int)weights_count(t->norm);
    return tower_take_parts(v->dev, parts, sizeof parts / sizeof *parts, at, err);
}

static enum pv_status take_weights(struct vision *v, const struct model_file *mf,
                                   struct pv_error *err)
{
    const struct vision_config *c = &v->c;
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    const struct tower_part patch = { &v->patch, t->patch[0], t->patch_bias, c->hidden,
                                      tower_patch_size(c) };
    float *at = v->small;
    enum pv_status s = PV_OK;
    for (int i = 0; i < c->n_layers && !s; i++)
        s = tower_take_layer(v->dev, &v->layer[i], model_file_vision_layer(mf, i), c->hidden,
                             c->ffn, &at, err);
    if (s)
        return s;
    v->position = weights_small(v->dev, &at, t->position);
    if (t->newline)
        row_to_f32(v->newline, t->newline->data, t->newline->dtype, c->out);
    if (c->family->tower->rope)
        places_frequencies(v);
    s = take_merger(v, &v->merger, &t->merger, &at, err);
    for (int i = 0; i < c->n_deepstack && !s; i++)
        s = take_merger(v, &v->deepstack[i], &t->deepstack[i], &at, err);
    if (s)
        return s;
    if (t->patch[1])
        return patch_matrix_join(v, t->patch, weights_small(v->dev, &at, t->patch_bias), err);
    return tower_take_parts(v->dev, &patch, 1, &at, err);
}

static void drop_weights(struct vision *v)
{
    weights_drop(v->dev, &v->patch);
    weights_drop(v->dev, &v->merger.mm0);
    weights_drop(v->dev, &v->merger.mm2);
    for (int i = 0; i < v->c.n_deepstack; i++) {
        weights_drop(v->dev, &v->deepstack[i].mm0);
        weights_drop(v->dev, &v->deepstack[i].mm2);
    }
    for (int i = 0; v->layer && i < v->c.n_layers; i++)
        tower_drop_layer(v->dev, &v->layer[i]);
}

enum pv_status vision_open(struct vision **out, const struct model_file *mf, struct device *dev,
                           struct pv_error *err)
{
    const struct vision_config *c = model_file_vision(mf);
    size_t layers_size = sizeof(struct tower_layer) * (size_t)c->n_layers;
    struct vision *v;
    void *small = NULL;
    enum pv_status s;
    if (!c->family)
        return fail(err, PV_E_UNSUPPORTED, "%s has no vision tower", model_file_path(mf));
    v = mem_zalloc(sizeof *v);
    if (!v)
        return fail_nomem(err, sizeof *v);
    v->c = *c;
    v->dev = dev;
    v->attn = tower_attention_dtype(model_file_vision_layer(mf, 0)->k);
    v->layer = mem_zalloc(layers_size);
    v->newline = mem_zalloc(sizeof(float) * (size_t)c->out);
    s = v->layer && v->newline ? device_alloc(dev, &small, sizeof(float) * small_floats(mf), err)
                               : fail_nomem(err, layers_size);
    v->small = small;
    if (!s)
        s = take_weights(v, mf, err);
    if (s) {
        vision_close(&v);
        return s;
    }
    *out = v;
    return PV_OK;
}

void vision_close(struct vision **v)
{
    struct device *dev;
    if (!*v)
        return;
    dev = (*v)->dev;
    drop_weights(*v);
    if ((*v)->small)
        dev->ops->free(dev, (*v)->small);
    mem_free((*v)->joined);
    mem_free((*v)->newline);
    mem_free((*v)->layer);
    mem_free(*v);
    *v = NULL;
}

const struct vision_config *vision_config(const struct vision *v)
{
    return &v->c;
}

struct device *vision_device(const struct vision *v)
{
    return v->dev;
}

int vision_slice_tokens(const struct vision *v, int h, int w)
{
    return h * w / (v->c.merge * v->c.merge);
}

/* The tower works in chunks of about so many rows on a CPU, so more at a time would only take more
 * memory (and was 20 % slower, four frames of SigLIP against one). A device with a block for the
 * layer takes all rows at once: 43 frames of SigLIP, which was 2.5 % faster than 33. */
int vision_batch(const struct vision *v)
{
    return v->dev->ops->tower ? 41 * TOWER_CHUNK : TOWER_CHUNK;
}

/* ---- state ---- */

/* Rows of the longest segment, and the most rows attended together: all of a frame, or as many
 * frames as fill a chunk. A slice of any size can be as long as the call. */
static int longest_segment(const struct vision_config *c, int max_patches)
{
    int frame = vision_side(c) * vision_side(c);
    return c->family->tower->fixed && frame < max_patches ? frame : max_patches;
}

/* Rows of q, and of k and v where the device has no block for the layer; with one, rows are put in
 * window order by way of q. */
static int attention_rows(const struct vision *v, int max_patches)
{
    const struct vision_config *c = &v->c;
    if (v->dev->ops->tower)
        return c->family->tower->windows ? max_patches : 0;
    int most = max_int(longest_segment(c, max_patches), TOWER_CHUNK);
    return most < max_patches ? most : max_patches;
}

static struct work_shape work_shape_of(const struct vision *v, int max_patches)
{
    const struct vision_config *c = &v->c;
    int in =
        max_int(max_int(tower_patch_size(c), c->ffn), max_int(v->merger.mm0.in, v->merger.mm2.in));
    return (struct work_shape){ .rows = v->dev->ops->tower && max_patches > TOWER_CHUNK
                                            ? max_patches
                                            : TOWER_CHUNK,
                                .in = in,
                                .hidden = c->hidden,
                                .ffn = c->ffn,
                                .out = max_int(v->merger.mm0.out, v->merger.mm2.out),
                                .n_heads = c->n_heads,
                                .n_kv_heads = c->n_heads,
                                .head_dim = c->head_dim,
                                .kv_dtype = v->attn,
                                .segment = longest_segment(c, max_patches) };
}

/* Whether whole frames of tokens lie on the device: to be pooled, to be handed on, or because the
 * parts of a row are made one after the other. */
static bool keeps_tokens(const struct vision *v)
{
    return v->c.family->tower->tiles || v->dev->ops->tower || v->c.n_deepstack > 0;
}

/* Rows of taps: of a line or a pooled frame of tiles, or of a chunk of patches. */
static size_t tap_rows(const struct vision *v)
{
    const struct vision_config *c = &v->c;
    size_t pooled = (size_t)vision_pooled_side(c) * (size_t)vision_pooled_side(c);
    if (c->family->tower->tiles)
        return max_size(pooled, (size_t)tower_widest(c));
    return c->positions ? (size_t)tower_chunk(v) : 0;
}

/* Rows of pooled frames that have newlines among them. */
static size_t lined_rows(const struct vision *v, int max_patches)
{
    const struct vision_config *c = &v->c;
    size_t frame = (size_t)vision_side(c) * (size_t)vision_side(c);
    if (!c->family->tower->tiles || (c->newline != NEWLINE_LINE && c->newline != NEWLINE_FRAME))
        return 0;
    return max_size((size_t)max_patches / frame, 1) * (size_t)llava_frame_tokens(c);
}

/* Bytes of the frames of a call: of pictures of one size some pixels are in no patch. Rounded up
 * such that a second buffer of this size begins at an address as good as the first. */
static size_t pixel_bytes(const struct vision *v, int max_patches)
{
    const struct vision_config *c = &v->c;
    size_t side = (size_t)vision_side(c), image = (size_t)c->image;
    size_t size = (size_t)max_patches * (size_t)tower_patch_size(c);
    if (!v->dev->ops->patches)
        return 0;
    if (c->family->tower->fixed)
        size = max_size((size_t)max_patches / (side * side), 1) * (size_t)c->temporal * image *
               image * 3;
    return (size + 255) / 256 * 256;
}

static size_t carve_device(struct vision_state *st, struct arena *a, const struct vision *v,
                           int max_patches)
{
    const struct vision_config *c = &v->c;
    const struct family_tower *t = c->family->tower;
    bool block = v->dev->ops->tower != NULL;
    int unit = c->merge * c->merge, middle = v->merger.mm0.out / unit;
    int token = (c->out + unit - 1) / unit;
    size_t f = sizeof(float), rows = (size_t)max_patches * f, hidden = (size_t)c->hidden;
    size_t attended = (size_t)attention_rows(v, max_patches) * f,
           chunk = (size_t)tower_chunk(v) * f;
    size_t half = t->rope ? (size_t)c->head_dim / 2 : 0;
    size_t up = (size_t)max_int(max_int(block ? 0 : c->ffn, tower_patch_size(c)), middle);
    size_t wide = t->tiles ? (size_t)tower_widest(c) * (size_t)c->out * f : 0;
    size_t frame = t->tiles ? (size_t)vision_side(c) * (size_t)vision_side(c) : 1;
    size_t frames = t->tiles ? max_size((size_t)max_patches / frame, 1) : 0;
    size_t pooled = (size_t)vision_pooled_side(c) * (size_t)vision_pooled_side(c);
    size_t kept = t->tiles ? frames * frame : (size_t)max_patches / (size_t)unit, total = 0;
    size_t lined = lined_rows(v, max_patches), pixels = pixel_bytes(v, max_patches);
    st->pixels = tower_reserve(a, &total, pixels);
    st->next_pixels = tower_reserve(a, &total, v->dev->ops->put_ahead ? pixels : 0);
    st->table = tower_reserve(a, &total, v->dev->ops->patches ? 3 * 256 * f : 0);
    st->x = tower_reserve(a, &total, rows * hidden);
    st->q = tower_reserve(a, &total, attended * hidden);
    st->k = tower_reserve(a, &total, block ? 0 : attended * hidden);
    st->v = tower_reserve(a, &total, block ? 0 : attended * hidden);
    st->cos = tower_reserve(a, &total, rows * half);
    st->sin = tower_reserve(a, &total, rows * half);
    st->xn = tower_reserve(a, &total, chunk * hidden);
    st->gate = tower_reserve(a, &total, t->gated && !block ? chunk * (size_t)c->ffn : 0);
    st->up = tower_reserve(a, &total, chunk * up);
    st->tmp = tower_reserve(a, &total, chunk * (size_t)max_int(c->hidden, token));
    st->near = tower_reserve(a, &total, 2 * wide);
    st->mixed = tower_reserve(a, &total, wide);
    st->tokens =
        tower_reserve(a, &total, keeps_tokens(v) ? kept * (size_t)vision_row_size(c) * f : 0);
    st->pooled = tower_reserve(a, &total, (frames * pooled + (lined > 0)) * (size_t)c->out * f);
    st->lined = tower_reserve(a, &total, lined * (size_t)c->out * f);
    st->lines = tower_reserve(a, &total, lined * sizeof *st->lines);
    st->taps = tower_reserve(a, &total, tap_rows(v) * sizeof *st->taps);
    st->weights = tower_reserve(a, &total, tap_rows(v) * sizeof *st->weights);
    st->units = tower_reserve(
        a, &total, t->windows ? (size_t)max_patches / (size_t)unit * sizeof *st->units : 0);
    return total;
}

static size_t carve_host(struct vision_state *st, struct arena *a, const struct vision *v,
                         int max_patches)
{
    const struct vision_config *c = &v->c;
    const struct family_tower *t = c->family->tower;
    size_t frame = t->fixed ? (size_t)vision_side(c) * (size_t)vision_side(c) : 1;
    size_t unit = (size_t)(c->merge * c->merge); /* the smallest slice and window of any size */
    size_t units = (size_t)max_patches / unit, ordered = t->windows ? units : 0;
    size_t slices = t->fixed ? (size_t)max_patches / frame : units;
    size_t half = t->rope ? (size_t)c->head_dim / 2 : 0, f = sizeof(float);
    size_t chunk = (size_t)tower_chunk(v), total = 0;
    st->slices = tower_reserve(a, &total, (slices + 1) * sizeof(int));
    st->windows = tower_reserve(a, &total, t->windows ? (units + 1) * sizeof(int) : 0);
    st->order = tower_reserve(a, &total, ordered * sizeof(int));
    st->inverse = tower_reserve(a, &total, ordered * sizeof(int));
    st->segments = tower_reserve(a, &total, (TOWER_CHUNK + 1) * sizeof(int));
    st->host_cos = tower_reserve(a, &total, chunk * half * f);
    st->host_sin = tower_reserve(a, &total, chunk * half * f);
    st->host_lines = tower_reserve(a, &total, lined_rows(v, max_patches) * sizeof *st->host_lines);
    st->host_taps = tower_reserve(a, &total, tap_rows(v) * sizeof *st->host_taps);
    st->host_weights = tower_reserve(a, &total, tap_rows(v) * sizeof *st->host_weights);
    return total;
}

size_t vision_state_size(const struct vision *v, int max_patches)
{
    struct work_shape shape = work_shape_of(v, max_patches);
    struct vision_state none;
    return carve_device(&none, NULL, v, max_patches) + carve_host(&none, NULL, v, max_patches) +
           v->dev->ops->work_size(v->dev, &shape);
}

static enum pv_status state_fill(struct vision_state *st, const struct vision *v,
                                 struct pv_error *err)
{
    struct device *dev = v->dev;
    struct work_shape shape = work_shape_of(v, st->max_patches);
    struct arena on_device;
    size_t device_size = carve_device(st, NULL, v, st->max_patches);
    size_t host_size = carve_host(st, NULL, v, st->max_patches);
    void *block = NULL;
    enum pv_status s =
        tower_memory_open(dev, &block, device_size, &on_device, &st->arena, host_size, err);
    st->block = block;
    if (s)
        return s;
    carve_device(st, &on_device, v, st->max_patches);
    carve_host(st, &st->arena, v, st->max_patches);
    return dev->ops->work_open(dev, &st->work, &shape, err);
}

enum pv_status vision_state_open(struct vision_state **out, const struct vision *v, int max_patches,
                                 struct pv_error *err)
{
    struct vision_state *st;
    enum pv_status s;
    if (max_patches < 1)
        return fail(err, PV_E_ARG, "a vision tower's state for %d patches", max_patches);
    st = mem_zalloc(sizeof *st);
    if (!st)
        return fail_nomem(err, sizeof *st);
    st->dev = v->dev;
    st->max_patches = max_patches;
    s = state_fill(st, v, err);
    if (s) {
        vision_state_close(&st);
        return s;
    }
    *out = st;
    return PV_OK;
}

void vision_state_close(struct vision_state **st)
{
    struct device *dev;
    if (!*st)
        return;
    dev = (*st)->dev;
    dev->ops->work_close(dev, &(*st)->work);
    tower_memory_close(dev, (*st)->block, &(*st)->arena);
    mem_free(*st);
    *st = NULL;
}

void vision_state_work_on(struct vision_state *st, struct device *group)
{
    st->dev->ops->work_on(st->work, group);
}

/* ---- encoding ---- */

static enum pv_status check_call(const struct vision *v, const struct vision_state *st,
                                 int n_slices, int h, int w, struct pv_error *err)
{
    const struct vision_config *c = &v->c;
    int side = vision_side(c);
    if (n_slices < 1 || h < 1 || w < 1)
        return fail(err, PV_E_ARG, "%d slices of %d x %d patches", n_slices, h, w);
    if (c->family->tower->fixed && (h != side || w != side))
        return fail(err, PV_E_ARG, "%d x %d patches for a tower that takes %d x %d", h, w, side,
                    side);
    if (h % c->merge || w % c->merge)
        return fail(err, PV_E_ARG, "%d x %d patches for a tower that merges %d x %d", h, w,
                    c->merge, c->merge);
    /* By division: the product of three ints need not fit. */
    if (n_slices > st->max_patches / h / w)
        return fail(err, PV_E_LIMIT, "%d slices of %d x %d patches in a state made for %d patches",
                    n_slices, h, w, st->max_patches);
    return PV_OK;
}

static void run_tower(struct tower_pass *p)
{
    struct vision_state *st = p->st;
    bool ordered = st->order != NULL;
    float *came = ordered ? st->q : st->x; /* rows as they came */
    places_plan(p);
    if (st->cos)
        places_rope(p);
    tower_embed(p, came);
    places_learned(p, came);
    if (ordered)
        places_order(p, st->x, came);
    tower_layers(p);
    if (p->stopped)
        return;
    if (ordered)
        places_restore(p, came, st->x);
    if (p->out || !p->v->c.family->tower->tiles)
        tower_project(p, &p->v->merger, came, 0);
    else
        llava_project_pooled(p, came);
}

static enum pv_status encode(const struct vision *v, struct vision_state *st, const float *patches,
                             const struct vision_frames *frames, int n_slices, int h, int w,
                             float *out, struct pv_error *err)
{
    size_t row = (size_t)vision_row_size(&v->c);
    enum pv_status s = check_call(v, st, n_slices, h, w, err);
    if (s)
        return s;
    struct tower_pass p = { .v = v,
                            .st = st,
                            .ops = v->dev->ops,
                            .patches = patches,
                            .frames = frames,
                            .out = out,
                            .n_slices = n_slices,
                            .h = h,
                            .w = w,
                            .n = n_slices * h * w };
    run_tower(&p);
    if (p.stopped) {
        p.ops->wait(st->work, NULL);
        return fail(err, PV_E_CANCELLED, "the vision tower was stopped");
    }
    if (out && row > (size_t)v->c.out) /* they were made part by part */
        p.ops->get(st->work, out, st->tokens,
                   sizeof(float) * row * (size_t)(p.n / (v->c.merge * v->c.merge)));
    return PV_OK;
}

bool vision_keeps_tokens(const struct vision *v)
{
    return keeps_tokens(v);
}

bool vision_cuts_patches(const struct vision *v)
{
    return v->dev->ops->patches != NULL;
}

/* To the host, or with out NULL to the end: tokens that stay on the device. */
static enum pv_status encode_to(const struct vision *v, struct vision_state *st,
                                const float *patches, const struct vision_frames *frames,
                                int n_slices, int h, int w, float *out, const float **tokens,
                                struct pv_error *err)
{
    bool pooled = !out && v->c.family->tower->tiles;
    enum pv_status s;
    mem_guard_begin();
    s = encode(v, st, patches, frames, n_slices, h, w, out, err);
    if (!s && out)
        s = v->dev->ops->wait(st->work, err);
    mem_guard_end();
    if (!s && !out)
        *tokens = st->lined ? st->lined : pooled ? st->pooled : st->tokens;
    return s;
}

enum pv_status vision_encode(const struct vision *v, struct vision_state *st, const float *patches,
                             int n_slices, int h, int w, float *out, struct pv_error *err)
{
    return encode_to(v, st, patches, NULL, n_slices, h, w, out, NULL, err);
}

enum pv_status vision_encode_video(const struct vision *v, struct vision_state *st,
                                   const float *patches, int n_slices, int h, int w,
                                   const float **tokens, struct pv_error *err)
{
    return encode_to(v, st, patches, NULL, n_slices, h, w, NULL, tokens, err);
}

enum pv_status vision_encode_frames(const struct vision *v, struct vision_state *st,
                                    const struct vision_frames *frames, int n_slices, float *out,
                                    const float **tokens, struct pv_error *err)
{
    int h = frames->height / v->c.patch, w = frames->width / v->c.patch;
    size_t bytes = (size_t)n_slices * (size_t)v->c.temporal * (size_t)frames->height *
                   (size_t)frames->width * 3;
    if (bytes > pixel_bytes(v, st->max_patches))
        return fail(err, PV_E_LIMIT, "%d slices of %d x %d pixels in a state made for %d patches",
                    n_slices, frames->width, frames->height, st->max_patches);
    return encode_to(v, st, NULL, frames, n_slices, h, w, out, tokens, err);
}

void vision_state_watch(struct vision_state *st, struct vision_watch watch)
{
    st->watch = watch;
}

struct device_work *vision_state_work(struct vision_state *st)
{
    return st->work;
}

enum { REHEARSED_SIDE = 16 }; /* patches, of towers that take any size */

enum pv_status vision_rehearse(const struct vision *v, int patches, struct pv_error *err)
{
    const struct vision_config *c = &v->c;
    bool fixed = c->family->tower->fixed;
    int side = fixed ? vision_side(c) : REHEARSED_SIDE, area = side * side;
    int n = (patches + area - 1) / area, pixels = fixed ? c->image : side * c->patch;
    size_t size = (size_t)n * (size_t)c->temporal * (size_t)pixels * (size_t)pixels * 3;
    struct vision_frames frames = { .height = pixels, .width = pixels };
    struct vision_state *st = NULL;
    const float *tokens;
    uint8_t *rgb;
    enum pv_status s;
    if (!vision_cuts_patches(v) || !vision_keeps_tokens(v))
        return PV_OK;
    rgb = mem_zalloc(size);
    frames.rgb = rgb;
    s = rgb ? vision_state_open(&st, v, n * area, err) : fail_nomem(err, size);
    if (!s)
        s = vision_encode_frames(v, st, &frames, n, NULL, &tokens, err);
    if (!s)
        s = v->dev->ops->wait(st->work, err);
    vision_state_close(&st);
    mem_free(rgb);
    return s;
}
