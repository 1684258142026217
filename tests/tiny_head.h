/* Random draft heads as GGUF files in the scratch directory, of any kind a head can be. */
#ifndef PV_TESTS_TINY_HEAD_H
#define PV_TESTS_TINY_HEAD_H

#include "tiny_model.h"

struct tiny_head {
    int hidden, n_heads, n_kv, head_dim, ffn;
    int type; /* enum dtype, of the matrices */
    uint64_t seed;
    bool no_input_norm, qkv_bias, qk_norm, no_fc_bias, norms;
    const char *positions, *visual; /* NULL: the key is not there */
    int visual_layer;
    float theta; /* 0: the key is not there */
    bool copies; /* the output is the state that comes in: the last token is likely again */
    /* EAGLE-3; `copies`: of the last of the features. */
    bool eagle3, norm_residual;
    int n_features, features[8]; /* 0: the key is not there, and the FC is for three */
    int draft_vocab, vocab;      /* of `vocab` tokens; 0: no LM head */
    int32_t wrong_id;            /* > 0: in the place of the last draft token's */
    /* What to do differently. */
    const char *drop;    /* leave this tensor or key out */
    const char *reshape; /* give this tensor one row (or element) more */
    const char *extra;   /* one more tensor */
};

static inline struct tiny_head tiny_head(int hidden, uint64_t seed)
{
    return (struct tiny_head){ .hidden = hidden,
                               .n_heads = 2,
                               .n_kv = 1,
                               .head_dim = 16,
                               .ffn = 64,
                               .type = DTYPE_F32,
                               .seed = seed };
}

/* Columns of the FC. */
static inline int tiny_head_fc(const struct tiny_head *h)
{
    return h->hidden * (!h->eagle3 ? 2 : h->n_features > 0 ? h->n_features : 3);
}

static inline void tiny_list_head(struct tiny_list *l, const struct tiny_head *h)
{
    static const char *const norms[] = { "embed_norm.weight", "hidden_norm.weight",
                                         "output_norm.weight" };
    static const char *const thirds[] = { "attn_q.bias", "attn_k.bias", "attn_v.bias" };
    enum dtype t = (enum dtype)h->type;
    int q = h->n_heads * h->head_dim, kv = h->n_kv * h->head_dim, d = h->hidden;
    float in = 1.0f / sqrtf((float)d), out = h->copies ? 0 : 1;
    int wide = h->eagle3 ? 2 * d : d;
    l->n = 0;
    tiny_add(l, "", "fc.weight", t, d, tiny_head_fc(h), 0, out * in);
    if (!h->no_fc_bias)
        tiny_add(l, "", "fc.bias", DTYPE_F32, 0, d, 0, out * 0.2f);
    for (int i = h->eagle3; i < 3 && (h->norms || h->eagle3); i++)
        tiny_add(l, "", norms[i], DTYPE_F32, 0, d, 1, 0.2f);
    if (h->draft_vocab > 0)
        tiny_add(l, "", "output.weight", t, h->draft_vocab, d, 0, 3 * in);
    if (!h->no_input_norm)
        tiny_add(l, "blk.0.", "attn_norm.weight", DTYPE_F32, 0, d, 1, 0.2f);
    tiny_add(l, "blk.0.", "attn_q.weight", t, q, wide, 0, 1.5f * in);
    tiny_add(l, "blk.0.", "attn_k.weight", t, kv, wide, 0, 1.5f * in);
    tiny_add(l, "blk.0.", "attn_v.weight", t, kv, wide, 0, in);
    for (int i = 0; i < 3 && h->qkv_bias; i++)
        tiny_add(l, "blk.0.", thirds[i], DTYPE_F32, 0, i ? kv : q, 0, 0.3f);
    if (h->qk_norm) {
        tiny_add(l, "blk.0.", "attn_q_norm.weight", DTYPE_F32, 0, h->head_dim, 1, 0.2f);
        tiny_add(l, "blk.0.", "attn_k_norm.weight", DTYPE_F32, 0, h->head_dim, 1, 0.2f);
    }
    tiny_add(l, "blk.0.", "attn_output.weight", t, d, q, 0, out / sqrtf((float)q));
    tiny_add(l, "blk.0.", "ffn_norm.weight", DTYPE_F32, 0, d, 1, 0.2f);
    tiny_add(l, "blk.0.", "ffn_gate.weight", t, h->ffn, d, 0, in);
    tiny_add(l, "blk.0.", "ffn_up.weight", t, h->ffn, d, 0, in);
    tiny_add(l, "blk.0.", "ffn_down.weight", t, d, h->ffn, 0, out / sqrtf((float)h->ffn));
    if (h->extra)
        tiny_add(l, "", h->extra, DTYPE_F32, 0, 8, 0, 1);
}

static inline void tiny_put_eagle3(struct gguf_writer *w, const struct tiny_head *h)
{
    static int32_t ids[1 << 16];
    for (int i = 0; i < h->draft_vocab; i++) /* not in order */
        ids[h->draft_vocab - 1 - i] = (int32_t)((int64_t)i * h->vocab / h->draft_vocab);
    if (h->wrong_id > 0)
        ids[h->draft_vocab - 1] = h->wrong_id;
    gguf_writer_string(w, "prevue-head.layout", "eagle3", 6);
    if (h->n_features > 0)
        gguf_writer_i32s(w, "prevue-head.feature_layers", h->features, (size_t)h->n_features);
    if (h->norm_residual)
        gguf_writer_bool(w, "prevue-head.norm_residual", true);
    if (h->draft_vocab > 0 && (!h->drop || strcmp(h->drop, "prevue-head.draft_ids") != 0))
        gguf_writer_i32s(w, "prevue-head.draft_ids", ids, (size_t)h->draft_vocab);
}

static inline void tiny_put_head_config(struct gguf_writer *w, const struct tiny_head *h)
{
    const struct {
        const char *key;
        int value;
    } counts[] = {
        { "prevue-head.embedding_length", h->hidden },
        { "prevue-head.feed_forward_length", h->ffn },
        { "prevue-head.attention.head_count", h->n_heads },
        { "prevue-head.attention.head_count_kv", h->n_kv },
        { "prevue-head.attention.key_length", h->head_dim },
    };
    gguf_writer_string(w, "general.architecture", "prevue-head", 11);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (!h->drop || strcmp(h->drop, counts[i].key) != 0)
            gguf_writer_u32(w, counts[i].key, (uint32_t)counts[i].value);
    gguf_writer_f32(w, "prevue-head.attention.layer_norm_rms_epsilon", 1e-6f);
    if (h->theta > 0)
        gguf_writer_f32(w, "prevue-head.rope.freq_base", h->theta);
    if (h->positions)
        gguf_writer_string(w, "prevue-head.rope_positions", h->positions, strlen(h->positions));
    if (h->visual)
        gguf_writer_string(w, "prevue-head.visual_rows", h->visual, strlen(h->visual));
    if (h->visual_layer)
        gguf_writer_u32(w, "prevue-head.visual_layer", (uint32_t)h->visual_layer);
    if (h->eagle3)
        tiny_put_eagle3(w, h);
}

/* FC = (0, 1): the last of its rows of d. */
static inline enum pv_status tiny_put_copy(struct gguf_writer *w, int d, int cols,
                                           struct pv_error *err)
{
    float *row = calloc((size_t)cols, sizeof *row);
    enum pv_status s = PV_OK;
    for (int i = 0; i < d && !s; i++) {
        row[cols - d + i] = 1;
        s = gguf_writer_data(w, row, sizeof *row * (size_t)cols, err);
        row[cols - d + i] = 0;
    }
    free(row);
    return s;
}

static inline void tiny_head_keys(struct gguf_writer *w, const void *head)
{
    tiny_put_head_config(w, head);
}

static inline enum pv_status tiny_head_values(struct gguf_writer *w, const void *head, int i,
                                              const struct tiny_tensor *t, struct rng *r,
                                              struct pv_error *err)
{
    const struct tiny_head *h = head;
    return i == 0 && h->copies ? tiny_put_copy(w, h->hidden, tiny_head_fc(h), err)
                               : tiny_put_tensor(w, t, r, err);
}

/* Write the head, as tiny_write does. A copying head is of F32. */
static inline const char *tiny_head_write(const struct tiny_head *h, const char *name,
                                          char path[256])
{
    static struct tiny_list l;
    const struct tiny_file f = { h, h->seed, &l, tiny_head_keys, NULL, tiny_head_values };
    tiny_list_head(&l, h);
    tiny_spoil(&l, h->reshape, h->drop);
    return tiny_write(&f, name, path);
}

#endif
