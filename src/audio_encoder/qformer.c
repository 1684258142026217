/* The Q-Former with one query, for each window of frames:
 *
 *   q = LN(query)
 *   a = LN(q + W_o (W_v q + b_v) + b_o)          self-attention over a single key is its value
 *   c = LN(a + W_o attn(W_q a, W_k frames, W_v frames) + b_o)
 *   q = LN(c + W_2 gelu(W_1 c + b_1) + b_2)
 *
 * in each layer, and a projection into the decoder's space. The windows of a chunk are rows that
 * run together. */
#include "audio_encoder/audio_encoder_parts.h"

/* st->query = LN(st->query + st->part) */
static void add_norm(const struct audio_encoder_pass *p, const float *weight, const float *bias)
{
    const struct audio_config *c = &p->h->c;
    struct audio_encoder_state *st = p->st;
    int n = audio_chunk_tokens(c);
    p->ops->add(st->work, st->query, st->part, n, c->q_hidden);
    p->ops->layernorm(st->work, st->query, st->query, weight, bias, n, c->q_hidden, c->q_eps);
}

/* The same query in each row. */
static void begin(const struct audio_encoder_pass *p)
{
    const struct audio_config *c = &p->h->c;
    struct audio_encoder_state *st = p->st;
    int n = audio_chunk_tokens(c);
    for (int i = 0; i < n; i++)
        st->host_rows[i] = 0;
    p->ops->put(st->work, st->rows, st->host_rows, sizeof *st->rows * (size_t)n);
    p->ops->gather(st->work, st->query, p->h->query, st->rows, n, c->q_hidden);
    p->ops->layernorm(st->work, st->query, st->query, p->h->query_norm, p->h->query_bias, n,
                      c->q_hidden, c->q_eps);
}

static void run_layer(const struct audio_encoder_pass *p, const struct query_layer *l,
                      const float *frames)
{
    const struct audio_config *c = &p->h->c;
    struct audio_encoder_state *st = p->st;
    int n = audio_chunk_tokens(c), d = c->q_hidden / c->q_heads;
    const struct window_attn_job job = { .out = st->sum,
                                         .q = st->part,
                                         .k = st->keys,
                                         .v = st->values,
                                         .n = n,
                                         .window = c->window,
                                         .n_heads = c->q_heads,
                                         .d = d,
                                         .scale = 1.0f / __builtin_sqrtf((float)d) };
    audio_encoder_multiply(p, &l->self_v, st->sum, st->query, n);
    audio_encoder_multiply(p, &l->self_o, st->part, st->sum, n);
    add_norm(p, l->self_norm, l->self_norm_bias);

    audio_encoder_multiply(p, &l->k, st->keys, frames, c->positions);
    audio_encoder_multiply(p, &l->v, st->values, frames, c->positions);
    audio_encoder_multiply(p, &l->q, st->part, st->query, n);
    p->ops->attention_windows(st->work, &job);
    audio_encoder_multiply(p, &l->o, st->part, st->sum, n);
    add_norm(p, l->norm, l->norm_bias);

    audio_encoder_multiply(p, &l->up, st->middle, st->query, n);
    p->ops->gelu(st->work, st->middle, n, c->q_ffn, GELU_ERF);
    audio_encoder_multiply(p, &l->down, st->part, st->middle, n);
    add_norm(p, l->ffn_norm, l->ffn_norm_bias);
}

void qformer_run(const struct audio_encoder_pass *p, const float *frames)
{
    begin(p);
    for (int i = 0; i < p->h->c.q_layers; i++)
        run_layer(p, &p->h->query_layer[i], frames);
    audio_encoder_multiply(p, &p->h->proj, p->st->tokens, p->st->query,
                           audio_chunk_tokens(&p->h->c));
}
