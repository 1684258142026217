/* The decoder layer, per row x:
 *
 *   a = attn(rope(norm(W_q n + b_q)), rope(norm(W_k n + b_k)), W_v n + b_v),  n = rms(x) w_1
 *   x = x + W_o a
 *   x = x + W_down (silu(W_gate m) * W_up m),                                 m = rms(x) w_2
 *       or, in a sparse layer, x + the weighted sum of this over the experts of m
 *
 * with biases in Qwen2 and norms of q and k in Qwen3; decoder_rows.c has what is added to rows of
 * media after the first layers. The residual stream is f32. Everything goes
 * through the device table; nothing here knows where the numbers live. A device that has blocks
 * gets a layer in two calls, another operation by operation. */
#include "base/pool.h"
#include "lm/decoder_parts.h"

#include <stddef.h>
#include <string.h>

enum { KEY_MAX_SEQS = STEP_MAX_SEQS };

/* Rows that lie side by side travel together. */
static void tap_part(struct pass *p, const struct part *part, int layer, bool post_norm,
                     const float *x)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    x += (size_t)part->row0 * hidden;
    for (int i = 0; i < part->step->n_hidden; i++) {
        const struct hidden_tap *t = &part->step->hidden[i];
        if (t->post_norm != post_norm || (!post_norm && t->layer != layer))
            continue;
        for (int r = 0; r < t->n_rows;) {
            int n = 1;
            while (r + n < t->n_rows && t->rows[r + n] == t->rows[r] + n)
                n++;
            (t->on_device ? p->ops->copy : p->ops->get)(p->st->work, t->out + (size_t)r * hidden,
                                                        x + (size_t)t->rows[r] * hidden,
                                                        sizeof(float) * (size_t)n * hidden);
            r += n;
        }
    }
}

static void tap_hidden(struct pass *p, int layer, bool post_norm, const float *x)
{
    for (int i = 0; i < p->n_parts; i++)
        tap_part(p, &p->part[i], layer, post_norm, x);
}

static float attention_scale(const struct config *c)
{
    return 1.0f / __builtin_sqrtf((float)c->head_dim);
}

/* The jobs of a layer's column taps, of one part. */
static int column_jobs(const struct pass *p, const struct part *part, int layer,
                       struct column_job *jobs)
{
    int n = 0;
    for (int i = 0; i < part->step->n_columns; i++) {
        const struct column_tap *t = &part->step->columns[i];
        if (layer >= t->layer0 && layer < t->layer1)
            jobs[n++] = (struct column_job){ .sums = t->sums,
                                             .q = p->q,
                                             .n_heads = p->dec->c.n_heads,
                                             .scale = attention_scale(&p->dec->c),
                                             .run = &p->runs[part->seq0],
                                             .n_rows = t->n_rows,
                                             .rows = t->rows,
                                             .n_keys = t->n_keys,
                                             .keys = t->keys,
                                             .over_keys = t->over_keys,
                                             .by_group = t->by_group };
    }
    return n;
}

/* q, k and v of the rows `in`; q only from row `from` on. */
static void project_rows(struct pass *p, const struct layer_weights *l, const float *in, int from)
{
    const struct config *c = &p->dec->c;
    struct decoder_state *st = p->st;
    size_t q_stride = (size_t)(c->n_heads * c->head_dim), half = (size_t)c->head_dim / 2;
    size_t kv_stride = (size_t)(c->n_kv_heads * c->head_dim), row = (size_t)from;
    float *q = p->q + row * q_stride;
    struct matmul_job qkv[] = { { &l->q, q, q_stride },
                                { &l->k, st->k, kv_stride },
                                { &l->v, st->v, kv_stride } };
    int n = p->n_rows, some = n - from;
    if (from == 0) {
        p->ops->matmul(st->work, qkv, 3, in, n);
    } else {
        p->ops->matmul(st->work, qkv + 1, 2, in, n);
        if (some > 0)
            p->ops->matmul(st->work, qkv, 1, in + row * (size_t)l->q.in, some);
    }
    if (some > 0)
        p->ops->rope(st->work, q, some, c->n_heads, c->head_dim, l->q_norm, c->rms_eps,
                     p->in.cos + row * half, p->in.sin + row * half);
    p->ops->rope(st->work, st->k, n, c->n_kv_heads, c->head_dim, l->k_norm, c->rms_eps, p->in.cos,
                 p->in.sin);
}

/* The runs' last rows, `needed` of each (NULL: all). Returns the number of runs that have any. */
static int last_rows(const struct pass *p, const int *needed, struct attn_run *runs)
{
    int n = 0;
    for (int i = 0; i < p->n_seqs; i++) {
        struct attn_run r = p->runs[i];
        int skip = needed ? r.n - needed[i] : 0;
        r.row0 += skip;
        r.first_slot += skip;
        r.n -= skip;
        if (r.n > 0)
            runs[n++] = r;
    }
    return n;
}

static void attention_operations(struct pass *p, int index, const int *needed)
{
    const struct config *c = &p->dec->c;
    const struct layer_weights *l = &p->dec->layer[index];
    struct decoder_state *st = p->st;
    struct attn_run runs[STEP_MAX_SEQS];
    int n_runs = last_rows(p, needed, runs);
    size_t kv_stride = (size_t)(c->n_kv_heads * c->head_dim);
    const float *in = p->dec->n_features > 0 ? st->wide : l->attn_norm ? st->xn : p->x;
    if (in == st->xn)
        p->ops->rmsnorm(st->work, st->xn, p->x, l->attn_norm, p->n_rows, c->hidden, c->rms_eps);
    project_rows(p, l, in, n_runs > 0 ? runs[0].row0 : p->n_rows);
    for (int i = 0; i < p->n_seqs; i++) {
        struct attn_run *r = &p->runs[i];
        p->ops->kv_write(st->work, r->kv, r->first_slot + r->pending,
                         st->k + (size_t)r->row0 * kv_stride, st->v + (size_t)r->row0 * kv_stride,
                         r->n);
    }
    struct attn_job job = { .out = p->att,
                            .q = p->q,
                            .n_heads = c->n_heads,
                            .scale = attention_scale(c),
                            .n_runs = n_runs,
                            .runs = runs };
    if (!p->columns_only && n_runs > 0)
        p->ops->attention(st->work, &job);
}

/* After the last attention only rows that somebody asked for are carried on: most rows of a
 * prefill chunk end here. Not a draft head's without a last norm, whose logits are made of the
 * stream. */
static bool drops_rows(const struct pass *p)
{
    bool streamed = !p->dec->norm && p->n_logits > 0, tapped = false;
    for (int i = 0; i < p->n_parts; i++)
        tapped = tapped || p->part[i].step->n_hidden > 0;
    return !tapped && p->n_logits < p->n_rows && !streamed;
}

/* Of a prompt's rows that are dropped after the last attention, only keys and values are needed
 * there. Find for each run the last rows that contain all the others; false: all are needed. */
static bool needs_last_rows(const struct pass *p, int index, int n_jobs, int *needed)
{
    if (!p->bulk || index != p->dec->c.n_layers - 1 || n_jobs > 0 || !drops_rows(p))
        return false;
    for (int i = 0; i < p->n_seqs; i++) {
        const struct attn_run *r = &p->runs[i];
        needed[i] = 0;
        if (r->parent || r->pending > 0)
            return false;
        for (int k = 0; k < p->n_logits; k++) {
            int row = p->host_in.rows[k] - r->row0;
            if (row >= 0 && row < r->n && r->n - row > needed[i])
                needed[i] = r->n - row;
        }
    }
    return true;
}

static void attention_block(struct pass *p, int index)
{
    struct column_job jobs[LAYER_MAX_COLUMNS];
    int n_jobs = 0, needed[STEP_MAX_SEQS];
    bool some;
    for (int i = 0; i < p->n_parts; i++)
        n_jobs += column_jobs(p, &p->part[i], index, jobs + n_jobs);
    for (int i = 0; i < p->n_seqs; i++)
        p->runs[i].kv = &p->kv[i]->layer[index - p->kv[i]->layer0];
    some = needs_last_rows(p, index, n_jobs, needed);
    if (p->ops->attn) {
        struct attn_block b = { .w = &p->dec->layer[index],
                                .shape = &p->dec->shape,
                                .x = p->x,
                                .wide = p->dec->n_features > 0 ? p->st->wide : NULL,
                                .n = p->n_rows,
                                .cos = p->in.cos,
                                .sin = p->in.sin,
                                .n_runs = p->n_seqs,
                                .runs = p->runs,
                                .n_columns = n_jobs,
                                .columns = jobs,
                                .bulk = p->bulk,
                                .needed = some ? needed : NULL };
        p->ops->attn(p->st->work, &b);
        return;
    }
    attention_operations(p, index, some ? needed : NULL);
    for (int i = 0; i < n_jobs; i++)
        p->ops->attention_columns(p->st->work, &jobs[i]);
}

static void swap(float **a, float **b)
{
    float *t = *a;
    *a = *b;
    *b = t;
}

static void drop_rows(struct pass *p)
{
    int q = p->dec->c.n_heads * p->dec->c.head_dim;
    if (!drops_rows(p))
        return;
    p->dropped = true;
    p->n = p->n_logits;
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
    if (l->experts) {
        p->ops->experts(st->work, p->tmp, l->experts, st->xn, p->n);
    } else {
        p->ops->matmul(st->work, gate_up, 2, st->xn, p->n);
        p->ops->silu_mul(st->work, st->gate, st->up, p->n, c->ffn);
        p->ops->matmul(st->work, &down, 1, st->gate, p->n);
    }
    p->ops->add(st->work, p->x, p->tmp, p->n, c->hidden);
}

static void finish_block(struct pass *p, int index)
{
    bool drops = p->dropped && index == p->dec->c.n_layers - 1;
    struct finish_block b = { .w = &p->dec->layer[index],
                              .shape = &p->dec->shape,
                              .x = p->x,
                              .n = p->n_rows,
                              .rows = drops ? p->in.rows : NULL,
                              .n_rows = p->n,
                              .bulk = p->bulk,
                              .next_norm = index + 1 < p->layer1 && !pass_deepens(p, index)
                                               ? p->dec->layer[index + 1].attn_norm
                                               : NULL };
    if (p->ops->finish)
        p->ops->finish(p->st->work, &b);
    else
        finish_operations(p, index);
}

/* Tokens of one part's logits. */
static void choose_tokens(struct pass *p, const struct part *part)
{
    const struct step_choice *c = part->step->choice;
    struct decoder_state *st = p->st;
    int n = part->n_logits, vocab = p->dec->c.vocab;
    size_t at = (size_t)part->logit0;
    const float *logits = st->logits + at * (size_t)vocab;
    if (part->step->tree)
        tree_choose(p, part);
    if (c && c->k > 0)
        p->ops->top(st->work, st->top + at * DEVICE_MAX_TOP, st->mass + at, logits, n, vocab, c->k,
                    c->t);
    if (c && c->k > 0 && p->dec->names)
        p->ops->name_ids(st->work, &st->top[at * DEVICE_MAX_TOP].id, n * c->k,
                         (int)(sizeof *st->top / sizeof(int32_t)), p->dec->names);
    if (c && c->drawn)
        p->ops->draw_token(st->work, (p->n_levels > 1 ? chain_chosen(p) : st->drawn) + at, logits,
                           n, vocab, p->in.position + at, c->seed, c->t);
}

static void get_choice(const struct pass *p, const struct part *part)
{
    const struct step_choice *c = part->step->choice;
    struct decoder_state *st = p->st;
    size_t n = (size_t)part->step->n_logits, at = (size_t)part->logit0;
    if (c && c->k > 0) {
        p->ops->get(st->work, c->top, st->top + at * DEVICE_MAX_TOP,
                    sizeof *c->top * n * (size_t)c->k);
        p->ops->get(st->work, c->mass, st->mass + at, sizeof *c->mass * n);
    }
    if (c && c->drawn)
        p->ops->get(st->work, c->drawn, st->drawn + at, sizeof *c->drawn * n);
}

/* What logits are made of, and states are: after the last norm, where EAGLE-3 has its states before
 * it. */
static const float *final_rows(struct pass *p)
{
    const struct config *c = &p->dec->c;
    struct decoder_state *st = p->st;
    bool before = p->dec->n_features > 0, norm = p->dec->norm && !before;
    const float *rows = norm ? st->xn : p->x;
    if (norm)
        p->ops->rmsnorm(st->work, st->xn, p->x, p->dec->norm, p->n, c->hidden, c->rms_eps);
    tap_hidden(p, 0, true, rows);
    if (p->n_logits == 0)
        return NULL;
    if (!p->dropped) {
        float *to = tree_states_place(p) ? tree_states_place(p) : p->tmp;
        p->ops->gather(st->work, to, rows, p->in.rows, p->n_logits, c->hidden);
        rows = to;
    }
    if (!before)
        return rows;
    p->ops->rmsnorm(st->work, st->xn, rows, p->dec->norm, p->n_logits, c->hidden, c->rms_eps);
    return st->xn;
}

/* Where the states of the rows that logits are wanted of lie in the end. A plan that is played
 * again has moved nothing of `p`. */
static const float *state_rows(const struct pass *p)
{
    if (!drops_rows(p))
        return p->st->tmp;
    if (p->dec->n_features == 0)
        return p->st->xn;
    return p->ops->attn ? p->st->x : p->st->tmp; /* see drop_rows */
}

/* Whether somebody asks for what logits are made of. */
static bool wants_states(const struct pass *p)
{
    bool wants = false;
    for (int i = 0; i < p->n_parts; i++) {
        const struct step *step = p->part[i].step;
        wants = wants || step->states || (step->tree && p->dec->is_draft_head);
        for (int k = 0; k < step->n_hidden; k++)
            wants = wants || step->hidden[k].post_norm;
    }
    return wants;
}

/* False: no logits are wanted. */
static bool make_logits(struct pass *p)
{
    const struct decoder *dec = p->dec;
    struct decoder_state *st = p->st;
    struct matmul_job lm_head = { &dec->lm_head, st->logits, (size_t)dec->c.vocab };
    const float *rows;
    if (p->ops->logits && dec->norm && dec->n_features == 0 && p->n_logits > 0 &&
        !wants_states(p)) {
        struct logits_job job = { .w = &dec->lm_head,
                                  .y = st->logits,
                                  .x = p->x,
                                  .rows = p->dropped ? NULL : p->in.rows,
                                  .n = p->n_logits,
                                  .norm = dec->norm,
                                  .eps = dec->c.rms_eps };
        p->ops->logits(st->work, &job);
        return true;
    }
    rows = final_rows(p);
    if (rows)
        tree_keep_states(p, state_rows(p));
    if (rows)
        p->ops->matmul(st->work, &lm_head, 1, rows, p->n_logits);
    return rows != NULL;
}

static void head_block(struct pass *p)
{
    const struct config *c = &p->dec->c;
    struct decoder_state *st = p->st;
    int32_t *to = p->n_levels > 1 ? chain_chosen(p) : st->best;
    bool best = false;
    if (!make_logits(p))
        return;
    for (int i = 0; i < p->n_parts; i++)
        best = best || (p->part[i].step->argmax && p->part[i].step->n_logits > 0);
    if (best)
        p->ops->argmax(st->work, to, st->logits, p->n_logits, c->vocab);
    if (best && p->dec->names)
        p->ops->name_ids(st->work, to, p->n_logits, 1, p->dec->names);
    for (int i = 0; i < p->n_parts; i++)
        if (p->part[i].step->n_logits > 0)
            choose_tokens(p, &p->part[i]);
}

static void run_layers(struct pass *p)
{
    int n_layers = p->dec->c.n_layers;
    pass_put_media(p);
    if (p->layer0 == 0) {
        draft_head_take_features(p);
        if (p->dec->n_features > 0)
            draft_head_fuse_features(p);
        pass_embed_rows(p);
        if (p->dec->n_features > 0)
            draft_head_widen_rows(p);
        tap_hidden(p, TAP_EMBEDDING, false, p->x);
    }
    for (int l = p->layer0; l < p->layer1; l++) {
        attention_block(p, l);
        if (p->columns_only)
            return;
        if (l == n_layers - 1)
            drop_rows(p);
        if (p->n == 0)
            break;
        finish_block(p, l);
        pass_add_deepstack(p, l);
        tap_hidden(p, l, false, p->x);
    }
    if (p->layer1 == n_layers && p->n > 0)
        head_block(p);
}

static size_t count_sums(const struct pass *p, const struct column_tap *t)
{
    return (size_t)t->n_keys * (t->by_group ? (size_t)p->dec->c.n_kv_heads : 1);
}

/* A tap may span the layers of several steps: the one that runs its first layer clears it, the one
 * that runs its last takes the mean. */
static void clear_columns(const struct pass *p, const struct step *step)
{
    for (int i = 0; i < step->n_columns; i++) {
        const struct column_tap *t = &step->columns[i];
        if (t->layer0 >= p->layer0 && t->layer0 < p->layer1)
            memset(t->sums, 0, sizeof(float) * count_sums(p, t));
    }
}

static void average_columns(const struct pass *p, const struct step *step)
{
    for (int i = 0; i < step->n_columns; i++) {
        const struct column_tap *t = &step->columns[i];
        if (t->layer1 <= p->layer0 || t->layer1 > p->layer1)
            continue;
        int heads = p->dec->c.n_heads / (t->by_group ? p->dec->c.n_kv_heads : 1);
        float share = 1.0f / (float)((t->layer1 - t->layer0) * heads);
        for (size_t k = 0; k < count_sums(p, t); k++)
            t->sums[k] *= share;
    }
}

/* The rope tables of the rows of a step. */
struct table_job {
    const struct rope_plan *plan;
    float *cos, *sin;
    const int32_t (*pos)[3];
    int n;
};

static void table_part(void *ctx, int thread, int n_threads)
{
    const struct table_job *t = ctx;
    int from = (int)((int64_t)t->n * thread / n_threads);
    int to = (int)((int64_t)t->n * (thread + 1) / n_threads);
    size_t at = (size_t)from * (size_t)t->plan->half;
    rope_tables(t->plan, t->cos + at, t->sin + at, t->pos + from, to - from);
}

/* A GPU would wait for one thread: 8192 rows take 5 to 8 ms. */
static void make_tables(const struct decoder_state *st, struct table_job job)
{
    if (st->tables && job.n >= TABLE_ROWS)
        pool_run(st->tables, table_part, &job);
    else
        table_part(&job, 0, 1);
}

/* The same, unless they were made ahead. */
static void take_tables(const struct decoder_state *st, const struct table_job *job)
{
    size_t size = sizeof(float) * (size_t)job->n * (size_t)job->plan->half;
    if (job->n > st->n_next || memcmp(job->pos, st->next_pos, sizeof *job->pos * (size_t)job->n)) {
        make_tables(st, *job);
        return;
    }
    memcpy(job->cos, st->next_cos, size);
    memcpy(job->sin, st->next_sin, size);
}

/* Make the tables of the rows that come next, while the device runs this step. */
static void make_next_tables(const struct pass *p)
{
    const struct step *step = p->part[0].step;
    struct decoder_state *st = p->st;
    int n = step->n_next < st->max_rows ? step->n_next : st->max_rows;
    if (!st->next_pos || n < TABLE_ROWS || p->n_parts > 1)
        return;
    memcpy(st->next_pos, step->next_pos, sizeof *st->next_pos * (size_t)n);
    st->n_next = n;
    make_tables(st, (struct table_job){ &p->dec->rope, st->next_cos, st->next_sin,
                                        (const int32_t(*)[3])st->next_pos, n });
}

static void put_inputs(struct pass *p)
{
    struct decoder_state *st = p->st;
    int half = p->dec->c.head_dim / 2;
    struct step_inputs host = step_inputs_at(st->host_inputs, half, p->n_rows, p->n_logits);
    size_t chain = chain_fill_inputs(p);
    p->host_in = host;
    p->in = step_inputs_at(st->inputs, half, p->n_rows, p->n_logits);
    for (int k = 0; k < p->n_parts; k++) {
        const struct part *part = &p->part[k];
        const struct step *step = part->step;
        size_t table = (size_t)part->row0 * (size_t)half;
        if (step_reads_ids(p->dec, step))
            memcpy(host.ids + part->row0, step->ids, sizeof *host.ids * (size_t)step->n);
        for (int i = 0; step_reads_ids(p->dec, step) && i < step->n; i++)
            p->media = p->media || step->ids[i] < 0;
        for (int i = 0; i < step->n_logits; i++)
            host.rows[part->logit0 + i] = part->row0 + step->logit_rows[i];
        if (step->choice && step->choice->drawn && step->n_logits > 0)
            memcpy(host.position + part->logit0, step->choice->position,
                   sizeof *host.position * (size_t)step->n_logits);
        take_tables(st, &(struct table_job){ &p->dec->rope, host.cos + table, host.sin + table,
                                             step->pos, step->n });
    }
    p->ops->put(st->work, st->inputs - chain, st->host_inputs - chain, chain + host.size);
}

/* What of a step changes its calls and their arguments; without padding, so that it can be compared
 * as bytes. Of a sequence it is the pool that its pages are in, not the pages: other sequences of
 * the pool have the same key. */
struct step_key {
    int32_t n, n_seqs, n_logits, argmax, layer0, layer1, k, draws, chain, states;
    uint64_t seed;
    double t;
    int32_t tree_k, tree_picks;
    int32_t level[DEVICE_MAX_CHAIN]; /* rows of a tree's levels; the last is 0 */
    struct {
        const void *pool;
        uint64_t page_size;
        int32_t n_pool, n, pending, tree, own, pad;
    } seq[KEY_MAX_SEQS];
};

/* What of one part changes the calls; false: it is not one of many alike. */
static bool key_part(const struct pass *p, const struct part *part, struct step_key *key)
{
    const struct step *step = part->step;
    const struct step_choice *c = step->choice;
    if (step->bulk || step->n_hidden > 0 || step->n_columns > 0)
        return false;
    key->argmax = key->argmax || step->argmax != NULL;
    if (c && p->n_parts > 1) /* choices differ by part */
        return false;
    if (c) {
        key->k = c->k;
        key->draws = c->drawn != NULL;
        key->seed = key->draws ? c->seed : 0;
        key->t = (double)c->t;
    }
    if (step->tree) {
        key->tree_k = step->tree->k;
        key->tree_picks = step->tree->pick != NULL;
        for (int i = 0; i < step->chain; i++)
            key->level[i] = step->tree->level[i];
    }
    for (int i = 0; i < step->n_seqs; i++) {
        const struct step_seq *q = &step->seqs[i];
        const struct attn_run *run = &p->runs[part->seq0 + i];
        key->seq[part->seq0 + i].pool = q->kv->layer[0].k;
        key->seq[part->seq0 + i].page_size = q->kv->layer[0].page_size;
        key->seq[part->seq0 + i].n_pool = q->kv->layer[0].n_pool;
        key->seq[part->seq0 + i].n = run->n;
        key->seq[part->seq0 + i].pending = run->pending;
        key->seq[part->seq0 + i].tree = run->parent != NULL;
        key->seq[part->seq0 + i].own = step->own_features;
    }
    return true;
}

/* Bytes of the key; 0: the step is not worth one. */
static size_t make_key(const struct pass *p, struct step_key *key)
{
    memset(key, 0, sizeof *key);
    key->n = p->n_rows;
    key->n_seqs = p->n_seqs;
    key->n_logits = p->n_logits;
    key->layer0 = p->layer0;
    key->layer1 = p->layer1;
    key->chain = p->n_levels > 1;
    key->states = wants_states(p);
    for (int i = 0; i < p->n_parts; i++)
        if (!key_part(p, &p->part[i], key))
            return 0;
    if (p->media) /* rows that the host puts in between */
        return 0;
    return offsetof(struct step_key, seq) + (size_t)p->n_seqs * sizeof key->seq[0];
}

/* Logits, best tokens and the residual stream of one part to its caller. */
static void get_outputs(const struct pass *p, const struct part *part)
{
    const struct step *step = part->step;
    struct decoder_state *st = p->st;
    size_t hidden = (size_t)p->dec->c.hidden, vocab = (size_t)p->dec->c.vocab;
    size_t n = (size_t)step->n_logits, at = (size_t)part->logit0;
    if (p->columns_only)
        return;
    if (p->layer1 < p->dec->c.n_layers) {
        (step->residual_there ? p->ops->copy : p->ops->get)(
            st->work, step->residual, p->x + (size_t)part->row0 * hidden,
            sizeof(float) * (size_t)step->n * hidden);
        return;
    }
    if (n == 0)
        return;
    if (step->states)
        p->ops->get(st->work, step->states, state_rows(p) + at * hidden,
                    sizeof(float) * n * hidden);
    if (step->argmax)
        p->ops->get(st->work, step->argmax, st->best + at, sizeof *st->best * n);
    get_choice(p, part);
    if (step->logits)
        p->ops->get(st->work, step->logits, st->logits + at * vocab, sizeof(float) * n * vocab);
}

/* The parts one after another: where their rows, sequences and logits lie. */
static void list_parts(struct pass *p, const struct step *const *steps, int n_steps)
{
    for (int k = 0; k < n_steps; k++) {
        const struct step *step = steps[k];
        p->part[p->n_parts++] = (struct part){ .step = step,
                                               .row0 = p->n_rows,
                                               .seq0 = p->n_seqs,
                                               .logit0 = p->n_logits,
                                               .n = step->n,
                                               .n_logits = step->n_logits };
        p->bulk = p->bulk || step->bulk;
        p->columns_only = step->columns_only;
        for (int i = 0; i < step->n_seqs; i++) {
            const struct step_seq *q = &step->seqs[i];
            p->kv[p->n_seqs] = q->kv;
            p->runs[p->n_seqs++] = (struct attn_run){ .row0 = p->n_rows,
                                                      .n = q->n,
                                                      .first_slot = q->kv->len,
                                                      .parent = q->parent,
                                                      .pending = q->pending,
                                                      .kv = &q->kv->layer[0] };
            p->n_rows += q->n;
        }
        p->n_logits += step->n_logits;
    }
    p->n = p->n_rows;
    p->n_levels = 1 + steps[0]->chain;
}

/* What the layers start from, beside the inputs. */
static void put_streams(struct pass *p)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    draft_head_put_features(p);
    for (int k = 0; k < p->n_parts; k++) {
        const struct part *part = &p->part[k];
        clear_columns(p, part->step);
        if (p->layer0 > 0)
            (part->step->residual_there ? p->ops->copy : p->ops->put)(
                p->st->work, p->st->x + (size_t)part->row0 * hidden, part->step->residual,
                sizeof(float) * (size_t)part->step->n * hidden);
    }
}

/* Devices look at what they choose themselves; here are logits that others choose by. */
static enum pv_status check_logits(const struct pass *p, const struct step *step,
                                   struct pv_error *err)
{
    size_t n = (size_t)step->n_logits * (size_t)p->dec->c.vocab;
    unsigned bad = 0;
    if (!step->logits || p->layer1 < p->dec->c.n_layers)
        return PV_OK;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, step->logits + i, sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return bad ? fail(err, PV_E_NOT_FINITE, "%s", DEVICE_NOT_FINITE) : PV_OK;
}

/* Everything of one level, or of steps without a chain. */
static void run_level(struct pass *p)
{
    struct device_work *work = p->st->work;
    struct pass again = *p;
    struct step_key key;
    struct work_plan plan = { .bulk = p->bulk && decoder_ways_differ(p->dec),
                              .n_runs = p->n_seqs,
                              .runs = p->n_levels > 1 ? p->st->runs : p->runs,
                              .level = p->level,
                              .n_levels = p->n_levels,
                              .key_size = make_key(p, &key) };
    plan.key = plan.key_size > 0 ? &key : NULL;
    if (p->ops->begin(work, &plan))
        run_layers(p);
    p->ops->end(work);
    if (p->ops->again && p->ops->again(work)) {
        run_layers(&again);
        p->ops->end(work);
    }
}

static void run_levels(struct pass *p)
{
    run_level(p);
    while (p->level + 1 < p->n_levels) {
        chain_next_level(p);
        run_level(p);
    }
}

enum pv_status decoder_steps(const struct decoder *dec, struct decoder_state *st,
                             const struct step *const *steps, int n_steps, struct pv_error *err)
{
    struct pass p;
    enum pv_status s = steps_check(dec, st, steps, n_steps, err);
    if (s)
        return s;
    p = (struct pass){ .dec = dec,
                       .st = st,
                       .ops = dec->dev->ops,
                       .layer0 = steps[0]->layer0,
                       .layer1 =
                           step_runs_all_layers(steps[0]) ? dec->c.n_layers : steps[0]->layer1,
                       .x = st->x,
                       .tmp = st->tmp,
                       .q = st->q,
                       .att = st->att };
    mem_guard_begin();
    list_parts(&p, steps, n_steps);
    chain_list_runs(&p);
    put_inputs(&p);
    put_streams(&p);
    run_levels(&p);
    make_next_tables(&p);
    if (steps[0]->tree)
        tree_get(&p);
    else if (p.n_levels > 1)
        chain_get_tokens(&p);
    for (int k = 0; k < n_steps && p.n_levels == 1; k++) {
        get_outputs(&p, &p.part[k]);
        average_columns(&p, steps[k]);
    }
    s = p.ops->wait(st->work, err);
    for (int k = 0; k < n_steps && !s; k++)
        s = check_logits(&p, steps[k], err);
    mem_guard_end();
    return s;
}

enum pv_status decoder_step(const struct decoder *dec, struct decoder_state *st,
                            const struct step *step, struct pv_error *err)
{
    return decoder_steps(dec, st, &step, 1, err);
}
