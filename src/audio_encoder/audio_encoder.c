/* The audio encoder of Whisper's shape, over the feature frames f of a chunk:
 *
 *   a_t = gelu(W_1 [f_(t-1) f_t f_(t+1)] + b_1)
 *   x_t = gelu(W_2 [a_(2t-1) a_(2t) a_(2t+1)] + b_2) + position_t
 *
 * then layers as a vision tower's (vision/tower_layer.h), all frames attending to all, and a norm.
 * Before the first frame and after the last are zeros. Convolutions are products: the rows under
 * one are gathered side by side, so their weights are kept with the channels last. */
#include "audio_encoder/audio_encoder_parts.h"

#include "base/minmax.h"
#include "tensor/quant.h"
#include "tensor/weights.h"

#include <string.h>

/* ---- weights ---- */

static size_t top_floats(const struct audio_tensors *t)
{
    const struct tensor *all[] = { t->conv1_bias, t->conv2_bias, t->position,
                                   t->norm,       t->norm_bias,  t->query,
                                   t->query_norm, t->query_bias, t->proj_bias };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        n += weights_count(all[i]);
    return n;
}

static size_t query_floats(const struct query_layer_tensors *t)
{
    const struct tensor *all[] = { t->self_v_bias, t->self_o_bias,  t->self_norm, t->self_norm_bias,
                                   t->q_bias,      t->k_bias,       t->v_bias,    t->o_bias,
                                   t->norm,        t->norm_bias,    t->up_bias,   t->down_bias,
                                   t->ffn_norm,    t->ffn_norm_bias };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        n += weights_count(all[i]);
    return n;
}

static size_t small_floats(const struct model_file *mf, const struct audio_config *c)
{
    size_t n = top_floats(model_file_audio_tensors(mf));
    for (int i = 0; i < c->n_layers; i++)
        n += tower_layer_floats(model_file_audio_layer(mf, i));
    for (int i = 0; i < c->q_layers; i++)
        n += query_floats(model_file_query_layer(mf, i));
    return n;
}

/* [out, channels, taps] -> [out, taps * channels], in the tensor's own type. */
static enum pv_status take_conv(struct audio_encoder *h, int i, const struct tensor *t,
                                const struct tensor *bias, float **at, struct pv_error *err)
{
    size_t channels = (size_t)t->dim[1], in = channels * AUDIO_TAPS;
    size_t number = dtype_row_size(t->dtype, 1);
    struct matrix m = { .dtype = t->dtype,
                        .out = (int)t->dim[0],
                        .in = (int)in,
                        .row_size = number * in,
                        .bias = weights_small(h->dev, at, bias),
                        .many_rows = true };
    h->turned[i] = mem_alloc(t->size);
    if (!h->turned[i])
        return fail_nomem(err, t->size);
    for (size_t o = 0; o < (size_t)t->dim[0]; o++)
        for (size_t c = 0; c < channels; c++)
            for (size_t k = 0; k < AUDIO_TAPS; k++)
                memcpy(h->turned[i] + (o * in + k * channels + c) * number,
                       (const uint8_t *)t->data + (o * in + c * AUDIO_TAPS + k) * number, number);
    m.data = h->turned[i];
    return weights_take(h->dev, &h->conv[i], m, err);
}

static enum pv_status take_query_layer(struct audio_encoder *h, struct query_layer *l,
                                       const struct query_layer_tensors *t, float **at,
                                       struct pv_error *err)
{
    int q = h->c.q_hidden, ffn = h->c.q_ffn, hidden = h->c.hidden;
    const struct tower_part parts[] = {
        { &l->self_v, t->self_v, t->self_v_bias, q, q },
        { &l->self_o, t->self_o, t->self_o_bias, q, q },
        { &l->q, t->q, t->q_bias, q, q },
        { &l->k, t->k, t->k_bias, q, hidden },
        { &l->v, t->v, t->v_bias, q, hidden },
        { &l->o, t->o, t->o_bias, q, q },
        { &l->up, t->up, t->up_bias, ffn, q },
        { &l->down, t->down, t->down_bias, q, ffn },
    };
    l->self_norm = weights_small(h->dev, at, t->self_norm);
    l->self_norm_bias = weights_small(h->dev, at, t->self_norm_bias);
    l->norm = weights_small(h->dev, at, t->norm);
    l->norm_bias = weights_small(h->dev, at, t->norm_bias);
    l->ffn_norm = weights_small(h->dev, at, t->ffn_norm);
    l->ffn_norm_bias = weights_small(h->dev, at, t->ffn_norm_bias);
    return tower_take_parts(h->dev, parts, sizeof parts / sizeof *parts, at, err);
}

static enum pv_status take_weights(struct audio_encoder *h, const struct model_file *mf,
                                   struct pv_error *err)
{
    const struct audio_tensors *t = model_file_audio_tensors(mf);
    const struct tower_part proj = { &h->proj, t->proj, t->proj_bias, h->out, h->c.q_hidden };
    float *at = h->small;
    enum pv_status s = take_conv(h, 0, t->conv1, t->conv1_bias, &at, err);
    if (!s)
        s = take_conv(h, 1, t->conv2, t->conv2_bias, &at, err);
    h->position = weights_small(h->dev, &at, t->position);
    h->norm = weights_small(h->dev, &at, t->norm);
    h->norm_bias = weights_small(h->dev, &at, t->norm_bias);
    h->query = weights_small(h->dev, &at, t->query);
    h->query_norm = weights_small(h->dev, &at, t->query_norm);
    h->query_bias = weights_small(h->dev, &at, t->query_bias);
    if (!s)
        s = tower_take_parts(h->dev, &proj, 1, &at, err);
    for (int i = 0; i < h->c.n_layers && !s; i++)
        s = tower_take_layer(h->dev, &h->layer[i], model_file_audio_layer(mf, i), h->c.hidden,
                             h->c.ffn, &at, err);
    for (int i = 0; i < h->c.q_layers && !s; i++)
        s = take_query_layer(h, &h->query_layer[i], model_file_query_layer(mf, i), &at, err);
    return s;
}

enum pv_status audio_encoder_open(struct audio_encoder **out, const struct model_file *mf,
                                  struct device *dev, struct pv_error *err)
{
    const struct audio_config *c = &model_file_vision(mf)->audio;
    struct audio_encoder *h;
    void *small = NULL;
    enum pv_status s;
    if (!c->hidden)
        return fail(err, PV_E_UNSUPPORTED, "%s has no audio encoder", model_file_path(mf));
    h = mem_zalloc(sizeof *h);
    if (!h)
        return fail_nomem(err, sizeof *h);
    h->c = *c;
    h->out = model_file_vision(mf)->out;
    h->dev = dev;
    h->attn = tower_attention_dtype(model_file_audio_layer(mf, 0)->k);
    h->layer = mem_zalloc(sizeof *h->layer * (size_t)c->n_layers);
    h->query_layer = mem_zalloc(sizeof *h->query_layer * (size_t)c->q_layers);
    s = h->layer && h->query_layer
            ? device_alloc(dev, &small, sizeof(float) * small_floats(mf, c), err)
            : fail_nomem(err, sizeof *h->layer * (size_t)c->n_layers);
    h->small = small;
    if (!s)
        s = take_weights(h, mf, err);
    if (s) {
        audio_encoder_close(&h);
        return s;
    }
    *out = h;
    return PV_OK;
}

static void drop_query_layer(struct device *dev, struct query_layer *l)
{
    struct matrix *own[] = { &l->self_v, &l->self_o, &l->q, &l->k, &l->v, &l->o, &l->up, &l->down };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        weights_drop(dev, own[i]);
}

void audio_encoder_close(struct audio_encoder **h)
{
    struct audio_encoder *old = *h;
    *h = NULL;
    if (!old)
        return;
    weights_drop(old->dev, &old->conv[0]);
    weights_drop(old->dev, &old->conv[1]);
    weights_drop(old->dev, &old->proj);
    for (int i = 0; old->layer && i < old->c.n_layers; i++)
        tower_drop_layer(old->dev, &old->layer[i]);
    for (int i = 0; old->query_layer && i < old->c.q_layers; i++)
        drop_query_layer(old->dev, &old->query_layer[i]);
    if (old->small)
        old->dev->ops->free(old->dev, old->small);
    mem_free(old->turned[0]);
    mem_free(old->turned[1]);
    mem_free(old->layer);
    mem_free(old->query_layer);
    mem_free(old);
}

const struct audio_config *audio_encoder_config(const struct audio_encoder *h)
{
    return &h->c;
}

/* ---- state ---- */

static struct work_shape work_shape_of(const struct audio_encoder *h)
{
    const struct audio_config *c = &h->c;
    int in = max_int(AUDIO_TAPS * max_int(c->mel, c->hidden), max_int(c->ffn, c->q_ffn));
    return (struct work_shape){ .rows = h->dev->ops->tower ? max_int(c->positions, TOWER_CHUNK)
                                                           : TOWER_CHUNK,
                                .in = max_int(in, c->q_hidden),
                                .hidden = c->hidden,
                                .ffn = c->ffn,
                                .out = max_int(max_int(c->q_ffn, c->q_hidden), h->out),
                                .n_heads = c->n_heads,
                                .n_kv_heads = c->n_heads,
                                .head_dim = c->head_dim,
                                .kv_dtype = h->attn,
                                .segment = c->positions };
}

static size_t carve_device(struct audio_encoder_state *st, struct arena *a,
                           const struct audio_encoder *h)
{
    const struct audio_config *c = &h->c;
    bool block = h->dev->ops->tower != NULL;
    size_t f = sizeof(float), frames = (size_t)audio_chunk_frames(c), mel = (size_t)c->mel;
    size_t hidden = (size_t)c->hidden, rows = (size_t)c->positions, q = (size_t)c->q_hidden;
    size_t tokens = (size_t)audio_chunk_tokens(c), chunk = TOWER_CHUNK, total = 0;
    size_t widest = (size_t)max_int(c->mel, c->hidden), attended = block ? 0 : f * rows * hidden;
    st->features = tower_reserve(a, &total, f * (1 + frames) * mel);
    st->first = tower_reserve(a, &total, f * (1 + frames) * hidden);
    st->wide = tower_reserve(a, &total, f * chunk * AUDIO_TAPS * widest);
    st->x = tower_reserve(a, &total, f * rows * hidden);
    st->q = tower_reserve(a, &total, attended);
    st->k = tower_reserve(a, &total, attended);
    st->v = tower_reserve(a, &total, attended);
    st->xn = tower_reserve(a, &total, block ? 0 : f * chunk * hidden);
    st->tmp = tower_reserve(a, &total, block ? 0 : f * chunk * hidden);
    st->up = tower_reserve(a, &total, block ? 0 : f * chunk * (size_t)c->ffn);
    st->keys = tower_reserve(a, &total, f * rows * q);
    st->values = tower_reserve(a, &total, f * rows * q);
    st->query = tower_reserve(a, &total, f * tokens * q);
    st->part = tower_reserve(a, &total, f * tokens * q);
    st->sum = tower_reserve(a, &total, f * tokens * q);
    st->middle = tower_reserve(a, &total, f * tokens * (size_t)c->q_ffn);
    st->tokens = tower_reserve(a, &total, f * tokens * (size_t)h->out);
    st->rows = tower_reserve(a, &total, sizeof *st->rows * AUDIO_TAPS * chunk);
    return total;
}

static size_t carve_host(struct audio_encoder_state *st, struct arena *a,
                         const struct audio_encoder *h)
{
    size_t frames = (size_t)audio_chunk_frames(&h->c), total = 0;
    st->host_rows = tower_reserve(a, &total, sizeof *st->host_rows * AUDIO_TAPS * TOWER_CHUNK);
    st->turned = tower_reserve(a, &total, sizeof(float) * frames * (size_t)h->c.mel);
    st->segments = tower_reserve(a, &total, sizeof(int) * (TOWER_CHUNK + 1));
    return total;
}

size_t audio_encoder_state_size(const struct audio_encoder *h)
{
    struct work_shape shape = work_shape_of(h);
    struct audio_encoder_state none;
    return carve_device(&none, NULL, h) + carve_host(&none, NULL, h) +
           h->dev->ops->work_size(h->dev, &shape);
}

static enum pv_status state_fill(struct audio_encoder_state *st, const struct audio_encoder *h,
                                 struct pv_error *err)
{
    struct work_shape shape = work_shape_of(h);
    size_t device_size = carve_device(st, NULL, h), host_size = carve_host(st, NULL, h);
    struct arena on_device;
    void *block = NULL;
    enum pv_status s =
        tower_memory_open(h->dev, &block, device_size, &on_device, &st->arena, host_size, err);
    st->block = block;
    if (s)
        return s;
    carve_device(st, &on_device, h); /* zeroed, as the rows before the first frames must be */
    carve_host(st, &st->arena, h);
    return h->dev->ops->work_open(h->dev, &st->work, &shape, err);
}

enum pv_status audio_encoder_state_open(struct audio_encoder_state **out,
                                        const struct audio_encoder *h, struct pv_error *err)
{
    struct audio_encoder_state *st = mem_zalloc(sizeof *st);
    enum pv_status s;
    if (!st)
        return fail_nomem(err, sizeof *st);
    st->dev = h->dev;
    s = state_fill(st, h, err);
    if (s) {
        audio_encoder_state_close(&st);
        return s;
    }
    *out = st;
    return PV_OK;
}

void audio_encoder_state_close(struct audio_encoder_state **st)
{
    struct audio_encoder_state *old = *st;
    *st = NULL;
    if (!old)
        return;
    old->dev->ops->work_close(old->dev, &old->work);
    tower_memory_close(old->dev, old->block, &old->arena);
    mem_free(old);
}

void audio_encoder_state_watch(struct audio_encoder_state *st, struct vision_watch watch)
{
    st->watch = watch;
}

void audio_encoder_state_work_on(struct audio_encoder_state *st, struct device *group)
{
    st->dev->ops->work_on(st->work, group);
}

/* ---- encoding ---- */

void audio_encoder_multiply(const struct audio_encoder_pass *p, const struct matrix *w, float *y,
                            const float *x, int n)
{
    for (int at = 0; at < n; at += TOWER_CHUNK) {
        struct matmul_job job = { w, y + (size_t)at * (size_t)w->out, (size_t)w->out };
        p->ops->matmul(p->st->work, &job, 1, x + (size_t)at * (size_t)w->in,
                       min_int(TOWER_CHUNK, n - at));
    }
}

/* y [n, out] = gelu of convolution i over x [1 + n_x, dim], whose row 0 is zero. */
static void convolve(const struct audio_encoder_pass *p, int i, float *y, int n, const float *x,
                     int n_x, int dim, int stride)
{
    struct audio_encoder_state *st = p->st;
    const struct matrix *w = &p->h->conv[i];
    for (int at = 0; at < n; at += TOWER_CHUNK) {
        int m = min_int(TOWER_CHUNK, n - at);
        float *to = y + (size_t)at * (size_t)w->out;
        for (int r = 0; r < m * AUDIO_TAPS; r++) {
            int frame = (at + r / AUDIO_TAPS) * stride + r % AUDIO_TAPS - 1;
            st->host_rows[r] = frame < 0 || frame >= n_x ? 0 : frame + 1;
        }
        p->ops->put(st->work, st->rows, st->host_rows, sizeof *st->rows * (size_t)(m * AUDIO_TAPS));
        p->ops->gather(st->work, st->wide, x, st->rows, m * AUDIO_TAPS, dim);
        audio_encoder_multiply(p, w, to, st->wide, m);
        p->ops->gelu(st->work, to, m, w->out, GELU_ERF);
    }
}

static void embed(const struct audio_encoder_pass *p, const float *mel)
{
    const struct audio_config *c = &p->h->c;
    struct audio_encoder_state *st = p->st;
    int frames = audio_chunk_frames(c);
    for (int t = 0; t < frames; t++)
        for (int i = 0; i < c->mel; i++)
            st->turned[(size_t)t * (size_t)c->mel + (size_t)i] =
                mel[(size_t)i * (size_t)frames + (size_t)t];
    p->ops->put(st->work, st->features + c->mel, st->turned,
                sizeof(float) * (size_t)frames * (size_t)c->mel);
    convolve(p, 0, st->first + c->hidden, frames, st->features, frames, c->mel, 1);
    convolve(p, 1, st->x, c->positions, st->first, frames, c->hidden, AUDIO_STRIDE);
    p->ops->add(st->work, st->x, p->h->position, c->positions, c->hidden);
}

static struct layer_room layer_room(const struct audio_encoder_pass *p)
{
    const struct audio_config *c = &p->h->c;
    const struct audio_encoder_state *st = p->st;
    return (struct layer_room){ .ops = p->ops,
                                .work = st->work,
                                .hidden = c->hidden,
                                .ffn = c->ffn,
                                .n_heads = c->n_heads,
                                .head_dim = c->head_dim,
                                .eps = c->eps,
                                .gelu = GELU_ERF,
                                .attn = p->h->attn,
                                .x = st->x,
                                .q = st->q,
                                .k = st->k,
                                .v = st->v,
                                .xn = st->xn,
                                .tmp = st->tmp,
                                .up = st->up,
                                .segments = st->segments };
}

/* False: the watch stopped it. */
static bool run_layers(const struct audio_encoder_pass *p)
{
    const struct audio_config *c = &p->h->c;
    const struct layer_room room = layer_room(p);
    const struct vision_watch *watch = &p->st->watch;
    const int bounds[2] = { 0, c->positions };
    for (int i = 0; i < c->n_layers; i++) {
        if (watch->go_on && !watch->go_on(watch->user))
            return false;
        tower_layer_run(&room, &p->h->layer[i], bounds, 1);
    }
    return true;
}

enum pv_status audio_encoder_encode(const struct audio_encoder *h, struct audio_encoder_state *st,
                                    const float *mel, float *out, struct pv_error *err)
{
    const struct audio_encoder_pass p = { .h = h, .st = st, .ops = h->dev->ops };
    const struct audio_config *c = &h->c;
    enum pv_status s = PV_OK;
    mem_guard_begin();
    embed(&p, mel);
    if (run_layers(&p)) {
        /* The first convolution's rows are not needed any more. */
        p.ops->layernorm(st->work, st->first + c->hidden, st->x, h->norm, h->norm_bias,
                         c->positions, c->hidden, c->eps);
        qformer_run(&p, st->first + c->hidden);
        p.ops->get(st->work, out, st->tokens,
                   sizeof(float) * (size_t)audio_chunk_tokens(c) * (size_t)h->out);
        s = p.ops->wait(st->work, err);
    } else {
        p.ops->wait(st->work, NULL);
        s = fail(err, PV_E_CANCELLED, "the audio encoder was stopped");
    }
    mem_guard_end();
    return s;
}
