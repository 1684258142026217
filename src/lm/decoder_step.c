/* The decoder layer, per row x:
 *
 *   a = attn(rope(norm(W_q n + b_q)), rope(norm(W_k n + b_k)), W_v n + b_v),  n = rms(x) w_1
 *   x = x + W_o a
 *   x = x + W_down (silu(W_gate m) * W_up m),                                 m = rms(x) w_2
 *
 * with biases in Qwen2 and norms of q and k in Qwen3. The residual stream is f32. Everything goes
 * through the device table; nothing here knows where the numbers live. A device that has blocks
 * gets a layer in two calls, another operation by operation. */
#include "lm/decoder_parts.h"

#include <string.h>

enum { KEY_MAX_SEQS = 4 };

struct pass {
    const struct decoder *dec;
    struct decoder_state *st;
    const struct step *step;
    const struct device_ops *ops;
    struct step_inputs in; /* on the device */
    struct attn_run runs[STEP_MAX_SEQS];
    int layer0, layer1;       /* those that run */
    int n;                    /* rows still carried: all, or the wanted ones after the last
                                 attention */
    bool dropped;             /* only the rows that logits are wanted of */
    float *x, *tmp, *q, *att; /* of the state, in the places they have now */
};

/* What the rows of a run have in common. */
static int row_kind(const struct pass *p, int i)
{
    int32_t id = p->step->ids[i];
    return id >= 0 ? 0 : p->dec->is_head && id == STEP_PAIRED ? STEP_PAIRED : STEP_READY;
}

static void put_rows(struct pass *p, float *to, const float *from, int i, int n)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    p->ops->put(p->st->work, to, from + (size_t)i * hidden, sizeof(float) * (size_t)n * hidden);
}

/* The features of a head's rows go in before anything runs: a plan that is played again finds them.
 */
static void put_features(struct pass *p)
{
    float *to = p->st->xn;
    if (!p->dec->is_head)
        return;
    if (!p->dec->hidden_norm)
        to = p->st->pair + (size_t)p->st->max_rows * (size_t)p->dec->c.hidden;
    put_rows(p, to, p->step->features, 0, p->step->n);
}

/* A head's rows [i, i + n), their embeddings beside their features: x = W_fc (e, h). */
static void pair_rows(struct pass *p, int i, int n, bool ready)
{
    const struct decoder *dec = p->dec;
    struct decoder_state *st = p->st;
    int hidden = dec->c.hidden;
    size_t at = (size_t)i * (size_t)hidden;
    float *x = p->x + at, *first = st->pair + at;
    float *second = first + (size_t)st->max_rows * (size_t)hidden;
    float *to = dec->embed_norm ? x : first;
    struct matmul_job job = { &dec->fc, x, (size_t)hidden };
    if (ready)
        put_rows(p, to, p->step->embeds, i, n);
    else
        p->ops->embed(st->work, to, &dec->embed, p->in.ids + i, n);
    if (dec->embed_norm)
        p->ops->rmsnorm(st->work, first, x, dec->embed_norm, n, hidden, dec->c.rms_eps);
    if (dec->hidden_norm)
        p->ops->rmsnorm(st->work, second, st->xn + at, dec->hidden_norm, n, hidden, dec->c.rms_eps);
    p->ops->gather(st->work, st->wide + 2 * at, st->pair, st->order + 2 * i, 2 * n, hidden);
    p->ops->matmul(st->work, &job, 1, st->wide + 2 * at, n);
}

static void embed_rows(struct pass *p)
{
    const struct step *step = p->step;
    size_t hidden = (size_t)p->dec->c.hidden;
    for (int i = 0; i < step->n;) {
        int n = 1, kind = row_kind(p, i);
        while (i + n < step->n && row_kind(p, i + n) == kind)
            n++;
        float *x = p->x + (size_t)i * hidden;
        if (kind == STEP_READY && step->embeds_there)
            p->ops->copy(p->st->work, x, step->embeds + (size_t)i * hidden,
                         sizeof(float) * (size_t)n * hidden);
        else if (kind == STEP_READY)
            put_rows(p, x, step->embeds, i, n);
        else if (p->dec->is_head)
            pair_rows(p, i, n, kind == STEP_PAIRED);
        else
            p->ops->embed(p->st->work, x, &p->dec->embed, p->in.ids + i, n);
        i += n;
    }
}

/* Rows that lie side by side travel together. */
static void tap_hidden(struct pass *p, int layer, bool post_norm, const float *x)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    for (int i = 0; i < p->step->n_hidden; i++) {
        const struct hidden_tap *t = &p->step->hidden[i];
        if (t->post_norm != post_norm || (!post_norm && t->layer != layer))
            continue;
        for (int r = 0; r < t->n_rows;) {
            int n = 1;
            while (r + n < t->n_rows && t->rows[r + n] == t->rows[r] + n)
                n++;
            p->ops->get(p->st->work, t->out + (size_t)r * hidden, x + (size_t)t->rows[r] * hidden,
                        sizeof(float) * (size_t)n * hidden);
            r += n;
        }
    }
}

static float attention_scale(const struct config *c)
{
    return 1.0f / __builtin_sqrtf((float)c->head_dim);
}

/* The jobs of a layer's column taps. */
static int column_jobs(const struct pass *p, int layer, struct column_job *jobs)
{
    int n = 0;
    for (int i = 0; i < p->step->n_columns; i++) {
        const struct column_tap *t = &p->step->columns[i];
        if (layer >= t->layer0 && layer < t->layer1)
            jobs[n++] = (struct column_job){ .sums = t->sums,
                                             .q = p->q,
                                             .n_heads = p->dec->c.n_heads,
                                             .scale = attention_scale(&p->dec->c),
                                             .run = &p->runs[0],
                                             .n_rows = t->n_rows,
                                             .rows = t->rows,
                                             .n_keys = t->n_keys,
                                             .keys = t->keys,
                                             .over_keys = t->over_keys };
    }
    return n;
}

static void attention_operations(struct pass *p, int index)
{
    const struct config *c = &p->dec->c;
    const struct layer_weights *l = &p->dec->layer[index];
    struct decoder_state *st = p->st;
    int n = p->step->n, hd = c->head_dim;
    size_t kv_stride = (size_t)(c->n_kv_heads * hd);
    struct matmul_job qkv[] = { { &l->q, p->q, (size_t)(c->n_heads * hd) },
                                { &l->k, st->k, kv_stride },
                                { &l->v, st->v, kv_stride } };
    if (l->attn_norm)
        p->ops->rmsnorm(st->work, st->xn, p->x, l->attn_norm, n, c->hidden, c->rms_eps);
    p->ops->matmul(st->work, qkv, 3, l->attn_norm ? st->xn : p->x, n);
    p->ops->rope(st->work, p->q, n, c->n_heads, hd, l->q_norm, c->rms_eps, p->in.cos, p->in.sin);
    p->ops->rope(st->work, st->k, n, c->n_kv_heads, hd, l->k_norm, c->rms_eps, p->in.cos,
                 p->in.sin);
    for (int i = 0; i < p->step->n_seqs; i++) {
        struct attn_run *r = &p->runs[i];
        p->ops->kv_write(st->work, r->kv, r->first_slot + r->pending,
                         st->k + (size_t)r->row0 * kv_stride, st->v + (size_t)r->row0 * kv_stride,
                         r->n);
    }
    struct attn_job job = { .out = p->att,
                            .q = p->q,
                            .n_heads = c->n_heads,
                            .scale = attention_scale(c),
                            .n_runs = p->step->n_seqs,
                            .runs = p->runs };
    p->ops->attention(st->work, &job);
}

static void attention_block(struct pass *p, int index)
{
    struct column_job jobs[LAYER_MAX_COLUMNS];
    int n_jobs = column_jobs(p, index, jobs);
    for (int i = 0; i < p->step->n_seqs; i++)
        p->runs[i].kv = &p->step->seqs[i].kv->layer[index];
    if (p->ops->attn) {
        struct attn_block b = { .w = &p->dec->layer[index],
                                .shape = &p->dec->shape,
                                .x = p->x,
                                .n = p->step->n,
                                .cos = p->in.cos,
                                .sin = p->in.sin,
                                .n_runs = p->step->n_seqs,
                                .runs = p->runs,
                                .n_columns = n_jobs,
                                .columns = jobs,
                                .bulk = p->step->bulk };
        p->ops->attn(p->st->work, &b);
        return;
    }
    attention_operations(p, index);
    for (int i = 0; i < n_jobs; i++)
        p->ops->attention_columns(p->st->work, &jobs[i]);
}

static void swap(float **a, float **b)
{
    float *t = *a;
    *a = *b;
    *b = t;
}

/* After the last attention only rows that somebody asked for are carried on: most rows of a
 * prefill chunk end here. Not a head's without a last norm, whose logits are made of the stream. */
static bool drops_rows(const struct pass *p)
{
    const struct step *step = p->step;
    bool streamed = !p->dec->norm && step->n_logits > 0;
    return step->n_hidden == 0 && step->n_logits < step->n && !streamed;
}

static void drop_rows(struct pass *p)
{
    int q = p->dec->c.n_heads * p->dec->c.head_dim;
    if (!drops_rows(p))
        return;
    p->dropped = true;
    p->n = p->step->n_logits;
    if (p->ops->attn || p->n == 0)
        return;
    p->ops->gather(p->st->work, p->q, p->att, p->in.rows, p->n, q);
    p->ops->gather(p->st->work, p->tmp, p->x, p->in.rows, p->n, p->dec->c.hidden);
    swap(&p->att, &p->q);
    swap(&p->x, &p->tmp);
}

static void finish_operations(struct pass *p, int index)
{
    const struct config *c = &p->dec->c;
    const struct layer_weights *l = &p->dec->layer[index];
    struct decoder_state *st = p->st;
    struct matmul_job out = { &l->o, p->tmp, (size_t)c->hidden };
    struct matmul_job down = { &l->down, p->tmp, (size_t)c->hidden };
    struct matmul_job gate_up[] = { { &l->gate, st->gate, (size_t)c->ffn },
                                    { &l->up, st->up, (size_t)c->ffn } };
    p->ops->matmul(st->work, &out, 1, p->att, p->n);
    p->ops->add(st->work, p->x, p->tmp, p->n, c->hidden);
    p->ops->rmsnorm(st->work, st->xn, p->x, l->ffn_norm, p->n, c->hidden, c->rms_eps);
    p->ops->matmul(st->work, gate_up, 2, st->xn, p->n);
    p->ops->silu_mul(st->work, st->gate, st->up, p->n, c->ffn);
    p->ops->matmul(st->work, &down, 1, st->gate, p->n);
    p->ops->add(st->work, p->x, p->tmp, p->n, c->hidden);
}

static void finish_block(struct pass *p, int index)
{
    bool drops = p->dropped && index == p->dec->c.n_layers - 1;
    struct finish_block b = { .w = &p->dec->layer[index],
                              .shape = &p->dec->shape,
                              .x = p->x,
                              .n = p->step->n,
                              .rows = drops ? p->in.rows : NULL,
                              .n_rows = p->n,
                              .bulk = p->step->bulk,
                              .next_norm = index + 1 < p->layer1
                                               ? p->dec->layer[index + 1].attn_norm
                                               : NULL };
    if (p->ops->finish)
        p->ops->finish(p->st->work, &b);
    else
        finish_operations(p, index);
}

static void choose_tokens(struct pass *p, const struct step_choice *c)
{
    struct decoder_state *st = p->st;
    int n = p->step->n_logits, vocab = p->dec->c.vocab;
    if (c->k > 0)
        p->ops->top(st->work, st->top, st->mass, st->logits, n, vocab, c->k, c->t);
    if (c->drawn)
        p->ops->draw_token(st->work, st->drawn, st->logits, n, vocab, p->in.position, c->seed,
                           c->t);
}

static void get_choice(const struct pass *p, const struct step_choice *c)
{
    struct decoder_state *st = p->st;
    size_t n = (size_t)p->step->n_logits;
    if (c->k > 0) {
        p->ops->get(st->work, c->top, st->top, sizeof *c->top * n * (size_t)c->k);
        p->ops->get(st->work, c->mass, st->mass, sizeof *c->mass * n);
    }
    if (c->drawn)
        p->ops->get(st->work, c->drawn, st->drawn, sizeof *c->drawn * n);
}

static void head_block(struct pass *p)
{
    const struct config *c = &p->dec->c;
    const struct step *step = p->step;
    struct decoder_state *st = p->st;
    const float *rows = p->dec->norm ? st->xn : p->x;
    if (p->dec->norm)
        p->ops->rmsnorm(st->work, st->xn, p->x, p->dec->norm, p->n, c->hidden, c->rms_eps);
    tap_hidden(p, 0, true, rows);
    if (step->n_logits == 0)
        return;
    if (!p->dropped) {
        p->ops->gather(st->work, p->tmp, rows, p->in.rows, step->n_logits, c->hidden);
        rows = p->tmp;
    }
    struct matmul_job head = { &p->dec->head, st->logits, (size_t)c->vocab };
    p->ops->matmul(st->work, &head, 1, rows, step->n_logits);
    if (step->argmax)
        p->ops->argmax(st->work, st->best, st->logits, step->n_logits, c->vocab);
    if (step->choice)
        choose_tokens(p, step->choice);
}

static void run_layers(struct pass *p)
{
    int n_layers = p->dec->c.n_layers;
    if (p->layer0 == 0) {
        embed_rows(p);
        tap_hidden(p, TAP_EMBEDDING, false, p->x);
    }
    for (int l = p->layer0; l < p->layer1; l++) {
        attention_block(p, l);
        if (l == n_layers - 1)
            drop_rows(p);
        if (p->n == 0)
            break;
        finish_block(p, l);
        tap_hidden(p, l, false, p->x);
    }
    if (p->layer1 == n_layers && p->n > 0)
        head_block(p);
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

static void put_inputs(struct pass *p)
{
    const struct step *step = p->step;
    struct decoder_state *st = p->st;
    int half = p->dec->c.head_dim / 2;
    struct step_inputs host = step_inputs_at(st->host_inputs, half, step->n, step->n_logits);
    p->in = step_inputs_at(st->inputs, half, step->n, step->n_logits);
    if (p->layer0 == 0)
        memcpy(host.ids, step->ids, sizeof *host.ids * (size_t)step->n);
    if (step->n_logits > 0)
        memcpy(host.rows, step->logit_rows, sizeof *host.rows * (size_t)step->n_logits);
    if (step->choice && step->choice->drawn)
        memcpy(host.position, step->choice->position,
               sizeof *host.position * (size_t)step->n_logits);
    rope_tables(&p->dec->rope, host.cos, host.sin, step->pos, step->n);
    p->ops->put(st->work, st->inputs, st->host_inputs, host.size);
}

/* What of a step changes its calls and their arguments; without padding, so that it can be compared
 * as bytes. */
struct step_key {
    int32_t n, n_seqs, n_logits, argmax, layer0, layer1, k, draws;
    uint64_t seed;
    double t;
    struct {
        const void *kv;
        int64_t cap;
        int32_t n, pending, tree, unused;
    } seq[KEY_MAX_SEQS];
};

/* False: the step is not one of many alike. */
static bool make_key(const struct pass *p, struct step_key *key)
{
    const struct step *step = p->step;
    if (step->bulk || step->n_seqs > KEY_MAX_SEQS || step->n_hidden > 0 || step->n_columns > 0)
        return false;
    memset(key, 0, sizeof *key);
    key->n = step->n;
    key->n_seqs = step->n_seqs;
    key->n_logits = step->n_logits;
    key->argmax = step->argmax != NULL;
    if (step->choice) {
        key->k = step->choice->k;
        key->draws = step->choice->drawn != NULL;
        key->seed = key->draws ? step->choice->seed : 0;
        key->t = (double)step->choice->t;
    }
    key->layer0 = p->layer0;
    key->layer1 = p->layer1;
    for (int i = 0; i < step->n_seqs; i++) {
        const struct step_seq *q = &step->seqs[i];
        key->seq[i].kv = q->kv->layer[0].k;
        key->seq[i].cap = q->kv->cap;
        key->seq[i].n = q->n;
        key->seq[i].pending = q->pending;
        key->seq[i].tree = q->parent != NULL;
    }
    for (int i = 0; i < step->n && p->layer0 == 0; i++)
        if (step->ids[i] < 0)
            return false;
    return true;
}

/* Logits, best tokens and the residual stream to the caller. */
static void get_outputs(const struct pass *p, size_t stream_size)
{
    const struct step *step = p->step;
    struct decoder_state *st = p->st;
    if (p->layer1 < p->dec->c.n_layers) {
        p->ops->get(st->work, step->residual, p->x, stream_size);
        return;
    }
    if (step->n_logits > 0 && step->states)
        p->ops->get(st->work, step->states, drops_rows(p) ? st->xn : st->tmp,
                    sizeof(float) * (size_t)step->n_logits * (size_t)p->dec->c.hidden);
    if (step->n_logits > 0 && step->argmax)
        p->ops->get(st->work, step->argmax, st->best, sizeof *st->best * (size_t)step->n_logits);
    if (step->n_logits > 0 && step->choice)
        get_choice(p, step->choice);
    if (step->n_logits > 0 && step->logits)
        p->ops->get(st->work, step->logits, st->logits,
                    sizeof(float) * (size_t)step->n_logits * (size_t)p->dec->c.vocab);
}

enum pv_status decoder_step(const struct decoder *dec, struct decoder_state *st,
                            const struct step *step, struct pv_error *err)
{
    size_t stream_size = sizeof(float) * (size_t)step->n * (size_t)dec->c.hidden;
    struct pass p = { .dec = dec,
                      .st = st,
                      .step = step,
                      .ops = dec->dev->ops,
                      .layer0 = step->layer0,
                      .layer1 = step_runs_all_layers(step) ? dec->c.n_layers : step->layer1,
                      .n = step->n,
                      .x = st->x,
                      .tmp = st->tmp,
                      .q = st->q,
                      .att = st->att };
    struct pass again;
    struct step_key key;
    struct work_plan plan = { .n_runs = step->n_seqs, .runs = p.runs };
    enum pv_status s = step_check(dec, st, step, err);
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
                                       .pending = q->pending,
                                       .kv = &q->kv->layer[0] };
        row += q->n;
    }
    put_inputs(&p);
    clear_columns(&p);
    put_features(&p);
    if (p.layer0 > 0)
        p.ops->put(st->work, st->x, step->residual, stream_size);
    if (make_key(&p, &key)) {
        plan.key = &key;
        plan.key_size = sizeof key;
    }
    again = p;
    if (p.ops->begin(st->work, &plan))
        run_layers(&p);
    p.ops->end(st->work);
    if (p.ops->again && p.ops->again(st->work)) {
        run_layers(&again);
        p.ops->end(st->work);
    }
    get_outputs(&p, stream_size);
    average_columns(&p);
    s = p.ops->wait(st->work, err);
    mem_guard_end();
    return s;
}
