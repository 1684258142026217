/* The decoder layer, per row x:
 *
 *   a = attn(rope(norm(W_q n + b_q)), rope(norm(W_k n + b_k)), W_v n + b_v),  n = rms(x) w_1
 *   x = x + W_o a
 *   x = x + W_down (silu(W_gate m) * W_up m),                                 m = rms(x) w_2
 *
 * with biases in Qwen2 and norms of q and k in Qwen3. The residual stream is f32. Everything goes
 * through the device table; nothing here knows where the numbers live. */
#include "lm/decoder.h"

#include "base/mem.h"
#include "lm/positions.h"
#include "tensor/weights.h"

#include <string.h>

enum { STEP_MAX_SEQS = 64 };

struct layer {
    const float *attn_norm, *ffn_norm; /* [hidden] */
    const float *q_norm, *k_norm;      /* [head_dim] or NULL */
    struct matrix q, k, v, o, gate, up, down;
};

struct decoder {
    struct config c;
    struct device *dev;
    struct rope_plan rope;
    struct matrix embed, head;
    const float *norm;
    struct layer *layer;
    float *small; /* norms and biases as f32, on the device */
};

struct decoder_state {
    struct device *dev;
    struct device_work *work;
    int max_rows, max_logits, context;
    enum dtype kv_dtype;
    struct arena arena;
    float *x, *xn, *q, *k, *v, *att, *gate, *up, *tmp; /* [max_rows, ...] */
    float *cos, *sin;                                  /* [max_rows, head_dim / 2] */
    float *logits;                                     /* [max_logits, vocab] */
};

/* ---- opening ---- */

static size_t small_floats(const struct config *c)
{
    size_t qkv = (size_t)(c->n_heads + 2 * c->n_kv_heads) * (size_t)c->head_dim;
    return (size_t)c->hidden +
           (size_t)c->n_layers * (2 * (size_t)c->hidden + qkv + 2 * (size_t)c->head_dim);
}

static struct matrix take_matrix(const struct tensor *t, const float *bias)
{
    return weights_matrix(t, (int)tensor_rows(t), (int)tensor_cols(t), bias);
}

static void take_layer(struct device *dev, struct layer *l, const struct layer_tensors *t,
                       float **at)
{
    l->attn_norm = weights_small(dev, at, t->attn_norm);
    l->ffn_norm = weights_small(dev, at, t->ffn_norm);
    l->q_norm = weights_small(dev, at, t->q_norm);
    l->k_norm = weights_small(dev, at, t->k_norm);
    l->q = take_matrix(t->q, weights_small(dev, at, t->q_bias));
    l->k = take_matrix(t->k, weights_small(dev, at, t->k_bias));
    l->v = take_matrix(t->v, weights_small(dev, at, t->v_bias));
    l->o = take_matrix(t->o, NULL);
    l->gate = take_matrix(t->gate, NULL);
    l->up = take_matrix(t->up, NULL);
    l->down = take_matrix(t->down, NULL);
}

enum pv_status decoder_open(struct decoder **out, const struct model_file *mf, struct device *dev,
                            struct pv_error *err)
{
    const struct config *c = model_file_config(mf);
    size_t layers_size = sizeof(struct layer) * (size_t)c->n_layers;
    size_t small_size = sizeof(float) * small_floats(c);
    struct decoder *dec = mem_zalloc(sizeof *dec);
    float *at;
    if (!dec)
        return fail_nomem(err, sizeof *dec);
    dec->dev = dev;
    dec->layer = mem_zalloc(layers_size);
    dec->small = dev->ops->alloc(dev, small_size);
    if (!dec->layer || !dec->small) {
        decoder_close(&dec);
        return fail_nomem(err, layers_size + small_size);
    }
    dec->c = *c;
    rope_plan_init(&dec->rope, c);
    at = dec->small;
    dec->embed = take_matrix(model_file_embed(mf), NULL);
    dec->head = take_matrix(model_file_head(mf), NULL);
    dec->norm = weights_small(dev, &at, model_file_norm(mf));
    for (int i = 0; i < c->n_layers; i++)
        take_layer(dev, &dec->layer[i], model_file_layer(mf, i), &at);
    *out = dec;
    return PV_OK;
}

void decoder_close(struct decoder **dec)
{
    if (!*dec)
        return;
    if ((*dec)->small)
        (*dec)->dev->ops->free((*dec)->dev, (*dec)->small);
    mem_free((*dec)->layer);
    mem_free(*dec);
    *dec = NULL;
}

const struct config *decoder_config(const struct decoder *dec)
{
    return &dec->c;
}

struct device *decoder_device(const struct decoder *dec)
{
    return dec->dev;
}

/* ---- state ---- */

static struct work_shape work_shape_of(const struct config *c, int max_rows, int max_logits,
                                       int context, enum dtype kv_dtype)
{
    int q = c->n_heads * c->head_dim, in = c->hidden > c->ffn ? c->hidden : c->ffn;
    return (struct work_shape){ .rows = max_rows > max_logits ? max_rows : max_logits,
                                .in = in > q ? in : q,
                                .n_heads = c->n_heads,
                                .n_kv_heads = c->n_kv_heads,
                                .head_dim = c->head_dim,
                                .context = context,
                                .kv_dtype = kv_dtype };
}

/* Carve the activations from the arena; with st NULL only count their bytes. */
static size_t carve(struct decoder_state *st, const struct config *c, int max_rows, int max_logits)
{
    size_t rows = (size_t)max_rows, q = (size_t)c->n_heads * (size_t)c->head_dim;
    size_t kv = (size_t)c->n_kv_heads * (size_t)c->head_dim, half = (size_t)c->head_dim / 2;
    struct decoder_state dummy = { 0 };
    struct decoder_state *s = st ? st : &dummy;
    struct {
        float **field;
        size_t floats;
    } parts[] = {
        { &s->x, rows * (size_t)c->hidden },
        { &s->xn, rows * (size_t)c->hidden },
        { &s->q, rows * q },
        { &s->k, rows * kv },
        { &s->v, rows * kv },
        { &s->att, rows * q },
        { &s->gate, rows * (size_t)c->ffn },
        { &s->up, rows * (size_t)c->ffn },
        { &s->tmp, rows * (size_t)c->hidden },
        { &s->cos, rows * half },
        { &s->sin, rows * half },
        { &s->logits, (size_t)max_logits * c->vocab },
    };
    size_t total = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        total += arena_cost(sizeof(float) * parts[i].floats);
        if (st)
            *parts[i].field = arena_push(&st->arena, sizeof(float) * parts[i].floats);
    }
    return total;
}

size_t decoder_state_size(const struct decoder *dec, int max_rows, int max_logits, int context,
                          enum dtype kv_dtype)
{
    struct work_shape shape = work_shape_of(&dec->c, max_rows, max_logits, context, kv_dtype);
    return carve(NULL, &dec->c, max_rows, max_logits) + dec->dev->ops->work_size(dec->dev, &shape);
}

enum pv_status decoder_state_open(struct decoder_state **out, const struct decoder *dec,
                                  int max_rows, int max_logits, int context, enum dtype kv_dtype,
                                  struct pv_error *err)
{
    struct device *dev = dec->dev;
    struct work_shape shape = work_shape_of(&dec->c, max_rows, max_logits, context, kv_dtype);
    size_t size = carve(NULL, &dec->c, max_rows, max_logits);
    struct decoder_state *st = mem_zalloc(sizeof *st);
    enum pv_status s;
    if (!st)
        return fail_nomem(err, sizeof *st);
    *st = (struct decoder_state){ .dev = dev,
                                  .max_rows = max_rows,
                                  .max_logits = max_logits,
                                  .context = context,
                                  .kv_dtype = kv_dtype };
    if (!arena_open(&st->arena, size)) {
        decoder_state_close(&st);
        return fail_nomem(err, size);
    }
    s = dev->ops->work_open(dev, &st->work, &shape, err);
    if (s) {
        decoder_state_close(&st);
        return s;
    }
    carve(st, &dec->c, max_rows, max_logits);
    *out = st;
    return PV_OK;
}

void decoder_state_close(struct decoder_state **st)
{
    if (!*st)
        return;
    (*st)->dev->ops->work_close((*st)->dev, &(*st)->work);
    arena_close(&(*st)->arena);
    mem_free(*st);
    *st = NULL;
}

struct device_work *decoder_state_work(struct decoder_state *st)
{
    return st->work;
}

/* ---- checks ---- */

static enum pv_status check_seq(const struct step *step, int index, const struct decoder_state *st,
                                struct pv_error *err)
{
    const struct step_seq *q = &step->seqs[index];
    int cap = q->kv->cap < st->context ? q->kv->cap : st->context;
    if (q->n < 1)
        return fail(err, PV_E_ARG, "sequence %d of a step has %d rows", index, q->n);
    if (q->pending < 0)
        return fail(err, PV_E_ARG, "sequence %d of a step has %d pending rows", index, q->pending);
    if (q->n > cap - q->kv->len || q->pending > cap - q->kv->len - q->n)
        return fail(err, PV_E_LIMIT, "%lld rows after %d do not fit a context of %d tokens",
                    (long long)q->n + q->pending, q->kv->len, cap);
    if (q->kv->layer[0].dtype != st->kv_dtype)
        return fail(err, PV_E_ARG, "a KV cache of %s in a state made for %s",
                    dtype_name(q->kv->layer[0].dtype), dtype_name(st->kv_dtype));
    for (int i = 0; i < index; i++)
        if (step->seqs[i].kv == q->kv)
            return fail(err, PV_E_ARG, "sequences %d and %d of a step share a KV cache", i, index);
    for (int i = 0; q->parent && i < q->pending + q->n; i++)
        if (q->parent[i] < -1 || q->parent[i] >= i)
            return fail(err, PV_E_ARG, "row %d of a tree names row %d as its parent", i,
                        q->parent[i]);
    return PV_OK;
}

static enum pv_status check_columns(const struct column_tap *t, const struct step *step,
                                    int n_layers, struct pv_error *err)
{
    if (t->layer0 < 0 || t->layer0 >= t->layer1 || t->layer1 > n_layers)
        return fail(err, PV_E_ARG, "attention of layers %d to %d of %d was asked for", t->layer0,
                    t->layer1, n_layers);
    if (step->seqs[0].parent || step->seqs[0].pending > 0)
        return fail(err, PV_E_ARG, "attention of the rows of a tree was asked for");
    for (int i = 0; i < t->n_rows; i++)
        if (t->rows[i] < (i ? t->rows[i - 1] + 1 : 0) || t->rows[i] >= step->seqs[0].n)
            return fail(err, PV_E_ARG, "attention of row %d of %d was asked for, or out of order",
                        t->rows[i], step->seqs[0].n);
    for (int i = 0; i < t->n_keys; i++)
        if (t->keys[i] < (i ? t->keys[i - 1] + 1 : 0))
            return fail(err, PV_E_ARG, "attention to slot %d was asked for, or out of order",
                        t->keys[i]);
    return PV_OK;
}

static enum pv_status check_taps(const struct decoder *dec, const struct step *step,
                                 struct pv_error *err)
{
    for (int i = 0; i < step->n_hidden; i++) {
        const struct hidden_tap *t = &step->hidden[i];
        if (!t->post_norm && (t->layer < TAP_EMBEDDING || t->layer >= dec->c.n_layers))
            return fail(err, PV_E_ARG, "states after layer %d of %d were asked for", t->layer,
                        dec->c.n_layers);
        for (int r = 0; r < t->n_rows; r++)
            if (t->rows[r] < 0 || t->rows[r] >= step->n)
                return fail(err, PV_E_ARG, "states of row %d of %d were asked for", t->rows[r],
                            step->n);
    }
    for (int i = 0; i < step->n_columns; i++) {
        enum pv_status s = check_columns(&step->columns[i], step, dec->c.n_layers, err);
        if (s)
            return s;
    }
    return PV_OK;
}

static bool runs_all_layers(const struct step *step)
{
    return step->layer0 == 0 && step->layer1 == 0;
}

static enum pv_status check_layers(const struct step *step, int n_layers, struct pv_error *err)
{
    int from = step->layer0, to = step->layer1;
    if (runs_all_layers(step))
        return PV_OK;
    if (from < 0 || from >= to || to > n_layers)
        return fail(err, PV_E_ARG, "a step over layers %d to %d of %d", from, to, n_layers);
    if (!step->residual && (from > 0 || to < n_layers))
        return fail(err, PV_E_ARG, "a step over layers %d to %d of %d without a residual stream",
                    from, to, n_layers);
    if (step->n_logits > 0 && to < n_layers)
        return fail(err, PV_E_ARG, "logits of a step that ends with layer %d of %d", to, n_layers);
    return PV_OK;
}

static enum pv_status check_step(const struct decoder *dec, const struct decoder_state *st,
                                 const struct step *step, struct pv_error *err)
{
    enum pv_status of_layers;
    int n = 0;
    if (step->n < 1 || step->n > st->max_rows || step->n_seqs < 1 || step->n_seqs > STEP_MAX_SEQS ||
        step->n_logits < 0 || step->n_logits > st->max_logits)
        return fail(err, PV_E_LIMIT,
                    "a step of %d rows, %d sequences and %d logit rows; %d, %d "
                    "and %d are possible",
                    step->n, step->n_seqs, step->n_logits, st->max_rows, STEP_MAX_SEQS,
                    st->max_logits);
    for (int i = 0; i < step->n_seqs; i++) {
        enum pv_status s = check_seq(step, i, st, err);
        if (s)
            return s;
        n += step->seqs[i].n;
    }
    if (n != step->n)
        return fail(err, PV_E_ARG, "a step of %d rows whose sequences have %d", step->n, n);
    for (int i = 0; step->layer0 == 0 && i < step->n; i++)
        if (step->ids[i] >= dec->c.vocab || (step->ids[i] < 0 && !step->embeds))
            return fail(err, PV_E_ARG, "token id %d is not in the vocabulary of %d",
                        (int)step->ids[i], dec->c.vocab);
    of_layers = check_layers(step, dec->c.n_layers, err);
    if (of_layers)
        return of_layers;
    /* Rows may not be asked for twice over: the scratch holds one state of each. */
    if (step->n_logits > step->n)
        return fail(err, PV_E_ARG, "logits of %d rows of %d", step->n_logits, step->n);
    for (int i = 0; i < step->n_logits; i++)
        if (step->logit_rows[i] < 0 || step->logit_rows[i] >= step->n)
            return fail(err, PV_E_ARG, "logits of row %d of %d", step->logit_rows[i], step->n);
    return check_taps(dec, step, err);
}

/* ---- the step ---- */

struct pass {
    const struct decoder *dec;
    struct decoder_state *st;
    const struct step *step;
    const struct device_ops *ops;
    struct attn_run runs[STEP_MAX_SEQS];
    int layer0, layer1; /* those that run */
    int n;              /* rows still carried: all, or the wanted ones after the last attention */
    const int *carried; /* which rows those are; NULL: all */
};

static void embed_rows(struct pass *p)
{
    const struct step *step = p->step;
    int hidden = p->dec->c.hidden;
    for (int i = 0; i < step->n;) {
        int n = 1;
        bool ready = step->ids[i] < 0;
        while (i + n < step->n && (step->ids[i + n] < 0) == ready)
            n++;
        float *x = p->st->x + (size_t)i * hidden;
        if (ready)
            p->dec->dev->ops->upload(p->dec->dev, x, step->embeds + (size_t)i * hidden,
                                     sizeof(float) * (size_t)n * (size_t)hidden);
        else
            p->ops->embed(p->st->work, x, &p->dec->embed, step->ids + i, n);
        i += n;
    }
}

static void tap_hidden(struct pass *p, int layer, bool post_norm, const float *x)
{
    for (int i = 0; i < p->step->n_hidden; i++) {
        const struct hidden_tap *t = &p->step->hidden[i];
        if (t->post_norm == post_norm && (post_norm || t->layer == layer))
            p->ops->gather(p->st->work, t->out, x, t->rows, t->n_rows, p->dec->c.hidden);
    }
}

static void tap_columns(struct pass *p, int layer)
{
    for (int i = 0; i < p->step->n_columns; i++) {
        const struct column_tap *t = &p->step->columns[i];
        if (layer < t->layer0 || layer >= t->layer1)
            continue;
        struct column_job job = { .sums = t->sums,
                                  .q = p->st->q,
                                  .n_heads = p->dec->c.n_heads,
                                  .scale = 1.0f / __builtin_sqrtf((float)p->dec->c.head_dim),
                                  .run = &p->runs[0],
                                  .n_rows = t->n_rows,
                                  .rows = t->rows,
                                  .n_keys = t->n_keys,
                                  .keys = t->keys,
                                  .over_keys = t->over_keys };
        p->ops->attention_columns(p->st->work, &job);
    }
}

static void attention_block(struct pass *p, int index)
{
    const struct config *c = &p->dec->c;
    const struct layer *l = &p->dec->layer[index];
    struct decoder_state *st = p->st;
    int n = p->step->n, hd = c->head_dim;
    size_t kv_stride = (size_t)(c->n_kv_heads * hd);
    struct matmul_job qkv[] = { { &l->q, st->q, (size_t)(c->n_heads * hd) },
                                { &l->k, st->k, kv_stride },
                                { &l->v, st->v, kv_stride } };
    p->ops->rmsnorm(st->work, st->xn, st->x, l->attn_norm, n, c->hidden, c->rms_eps);
    p->ops->matmul(st->work, qkv, 3, st->xn, n);
    p->ops->rope(st->work, st->q, n, c->n_heads, hd, l->q_norm, c->rms_eps, st->cos, st->sin);
    p->ops->rope(st->work, st->k, n, c->n_kv_heads, hd, l->k_norm, c->rms_eps, st->cos, st->sin);
    for (int i = 0; i < p->step->n_seqs; i++) {
        struct attn_run *r = &p->runs[i];
        r->kv = &p->step->seqs[i].kv->layer[index];
        p->ops->kv_write(st->work, r->kv, r->first_slot + r->pending,
                         st->k + (size_t)r->row0 * kv_stride, st->v + (size_t)r->row0 * kv_stride,
                         r->n);
    }
    struct attn_job job = { .out = st->att,
                            .q = st->q,
                            .n_heads = c->n_heads,
                            .scale = 1.0f / __builtin_sqrtf((float)hd),
                            .n_runs = p->step->n_seqs,
                            .runs = p->runs };
    p->ops->attention(st->work, &job);
    tap_columns(p, index);
}

/* After the last attention only rows that somebody asked for are carried on: most rows of a
 * prefill chunk end here. */
static void drop_rows(struct pass *p)
{
    struct decoder_state *st = p->st;
    int q = p->dec->c.n_heads * p->dec->c.head_dim;
    if (p->step->n_hidden > 0 || p->step->n_logits >= p->step->n)
        return;
    p->carried = p->step->logit_rows;
    p->n = p->step->n_logits;
    p->ops->gather(st->work, st->q, st->att, p->carried, p->n, q);
    p->ops->gather(st->work, st->tmp, st->x, p->carried, p->n, p->dec->c.hidden);
    float *swap = st->att;
    st->att = st->q;
    st->q = swap;
    swap = st->x;
    st->x = st->tmp;
    st->tmp = swap;
}

static void ffn_block(struct pass *p, int index)
{
    const struct config *c = &p->dec->c;
    const struct layer *l = &p->dec->layer[index];
    struct decoder_state *st = p->st;
    struct matmul_job out = { &l->o, st->tmp, (size_t)c->hidden };
    struct matmul_job down = { &l->down, st->tmp, (size_t)c->hidden };
    struct matmul_job gate_up[] = { { &l->gate, st->gate, (size_t)c->ffn },
                                    { &l->up, st->up, (size_t)c->ffn } };
    p->ops->matmul(st->work, &out, 1, st->att, p->n);
    p->ops->add(st->work, st->x, st->tmp, p->n, c->hidden);
    p->ops->rmsnorm(st->work, st->xn, st->x, l->ffn_norm, p->n, c->hidden, c->rms_eps);
    p->ops->matmul(st->work, gate_up, 2, st->xn, p->n);
    p->ops->silu_mul(st->work, st->gate, st->up, p->n, c->ffn);
    p->ops->matmul(st->work, &down, 1, st->gate, p->n);
    p->ops->add(st->work, st->x, st->tmp, p->n, c->hidden);
}

static void head_block(struct pass *p)
{
    const struct config *c = &p->dec->c;
    const struct step *step = p->step;
    struct decoder_state *st = p->st;
    p->ops->rmsnorm(st->work, st->xn, st->x, p->dec->norm, p->n, c->hidden, c->rms_eps);
    tap_hidden(p, 0, true, st->xn);
    if (step->n_logits == 0)
        return;
    const float *rows = st->xn;
    if (!p->carried) {
        p->ops->gather(st->work, st->tmp, st->xn, step->logit_rows, step->n_logits, c->hidden);
        rows = st->tmp;
    }
    struct matmul_job head = { &p->dec->head, st->logits, (size_t)c->vocab };
    p->ops->matmul(st->work, &head, 1, rows, step->n_logits);
    if (step->argmax)
        p->ops->argmax(st->work, step->argmax, st->logits, step->n_logits, c->vocab);
    if (step->logits)
        p->dec->dev->ops->download(p->dec->dev, step->logits, st->logits,
                                   sizeof(float) * (size_t)step->n_logits * (size_t)c->vocab);
}

/* A tap may span the layers of several steps: the one that runs its first layer clears it, the one
 * that runs its last takes the mean. */
static void clear_columns(const struct pass *p)
{
    for (int i = 0; i < p->step->n_columns; i++) {
        const struct column_tap *t = &p->step->columns[i];
        if (t->layer0 >= p->layer0 && t->layer0 < p->layer1)
            memset(t->sums, 0, sizeof(float) * (size_t)t->n_keys);
    }
}

static void average_columns(const struct pass *p)
{
    for (int i = 0; i < p->step->n_columns; i++) {
        const struct column_tap *t = &p->step->columns[i];
        if (t->layer1 <= p->layer0 || t->layer1 > p->layer1)
            continue;
        float share = 1.0f / (float)((t->layer1 - t->layer0) * p->dec->c.n_heads);
        for (int k = 0; k < t->n_keys; k++)
            t->sums[k] *= share;
    }
}

enum pv_status decoder_step(const struct decoder *dec, struct decoder_state *st,
                            const struct step *step, struct pv_error *err)
{
    int n_layers = dec->c.n_layers;
    size_t stream_size = sizeof(float) * (size_t)step->n * (size_t)dec->c.hidden;
    struct pass p = { .dec = dec,
                      .st = st,
                      .step = step,
                      .ops = dec->dev->ops,
                      .layer0 = step->layer0,
                      .layer1 = runs_all_layers(step) ? n_layers : step->layer1,
                      .n = step->n };
    enum pv_status s = check_step(dec, st, step, err);
    int row = 0;
    if (s)
        return s;
    mem_guard_begin();
    for (int i = 0; i < step->n_seqs; i++) {
        const struct step_seq *q = &step->seqs[i];
        p.runs[i] = (struct attn_run){ .row0 = row,
                                       .n = q->n,
                                       .first_slot = q->kv->len,
                                       .parent = q->parent,
                                       .pending = q->pending };
        row += q->n;
    }
    rope_tables(&dec->rope, st->cos, st->sin, step->pos, step->n);
    clear_columns(&p);
    if (p.layer0 == 0) {
        embed_rows(&p);
        tap_hidden(&p, TAP_EMBEDDING, false, st->x);
    } else {
        p.ops->upload(dec->dev, st->x, step->residual, stream_size);
    }
    for (int l = p.layer0; l < p.layer1; l++) {
        attention_block(&p, l);
        if (l == n_layers - 1)
            drop_rows(&p);
        if (p.n == 0)
            break;
        ffn_block(&p, l);
        tap_hidden(&p, l, false, st->x);
    }
    if (p.layer1 < n_layers)
        p.ops->download(dec->dev, step->residual, st->x, stream_size);
    else if (p.n > 0)
        head_block(&p);
    average_columns(&p);
    mem_guard_end();
    return PV_OK;
}
