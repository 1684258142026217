/* A small Hugging Face directory: config.json and safetensors with all tensors of the decoder of
 * make_file.h, whole or with one thing wrong. */
#ifndef PV_TESTS_MAKE_DIR_H
#define PV_TESTS_MAKE_DIR_H

#include "make_file.h"
#include "scratch.h"

struct made_dir {
    char path[200];
    /* What to do differently. */
    const char *prefix;  /* of the decoder's tensors, "model." when NULL */
    const char *drop;    /* leave this tensor out (its name without prefix) */
    const char *reshape; /* give this tensor one row (or element) more */
    const char *config;  /* config.json, the usual one when NULL */
    float first;         /* where not 0: the first value of the embedding table */
    int ffn;             /* MAKE_FFN when 0 */
    bool qwen3, head, extra, sharded;
};

static inline const char *make_config_json(bool qwen3)
{
    return qwen3 ? "{\"model_type\": \"qwen3\", \"hidden_size\": 32, \"num_hidden_layers\": 2,"
                   " \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16,"
                   " \"intermediate_size\": 64, \"vocab_size\": 12,"
                   " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-06,"
                   " \"rope_theta\": 10000.0, \"tie_word_embeddings\": false,"
                   " \"eos_token_id\": 8}"
                 : "{\"model_type\": \"qwen2\", \"hidden_size\": 32, \"num_hidden_layers\": 2,"
                   " \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
                   " \"intermediate_size\": 64, \"vocab_size\": 12,"
                   " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-06,"
                   " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true,"
                   " \"eos_token_id\": 8, \"hidden_act\": \"silu\"}";
}

/* One safetensors file: the header as given, then `len` bytes of data. */
static inline void make_safetensors(struct made *m, const char *header, const void *data,
                                    size_t len)
{
    make_string(m, header); /* a length of 8 bytes and the text: the very same layout */
    make_bytes(m, data, len);
}

/* A file being put together: entries of the header and the data they speak of. */
struct made_shard {
    struct made header, data, index;
    const char *file;
};

static inline void make_text(struct made *m, const char *s)
{
    make_bytes(m, s, strlen(s));
}

static inline void make_entry(struct made_dir *d, struct made_shard *sh, const char *prefix,
                              const char *name, int rows, int cols)
{
    char text[400];
    size_t begin = sh->data.len;
    int extra = d->reshape && !strcmp(d->reshape, name);

    if (d->drop && !strcmp(d->drop, name))
        return;
    cols += rows ? 0 : extra;
    rows += rows ? extra : 0;
    for (int i = 0; i < (rows ? rows : 1) * cols; i++) {
        bool first = i == 0 && d->first != 0 && !strcmp(name, "embed_tokens.weight");
        make_f32(&sh->data, first ? d->first : (float)((i * 7 + (int)begin) % 41 - 20) * 0.037f);
    }
    snprintf(text, sizeof text, "%s\"%s%s\": {\"dtype\": \"F32\", \"shape\": [",
             sh->header.len > 1 ? ", " : "", prefix, name);
    make_text(&sh->header, text);
    snprintf(text, sizeof text, rows ? "%d, %d" : "%d", rows ? rows : cols, cols);
    make_text(&sh->header, text);
    snprintf(text, sizeof text, "], \"data_offsets\": [%zu, %zu]}", begin, sh->data.len);
    make_text(&sh->header, text);
    snprintf(text, sizeof text, "%s\"%s%s\": \"%s\"", sh->index.len ? ", " : "", prefix, name,
             sh->file);
    make_text(&sh->index, text);
}

static inline void make_hf_layer(struct made_dir *d, struct made_shard *sh, int layer)
{
    const int q = MAKE_HEADS * MAKE_HEAD_DIM, kv = MAKE_KV_HEADS * MAKE_HEAD_DIM;
    const int ffn = d->ffn ? d->ffn : MAKE_FFN;
    const struct {
        const char *name;
        int rows, cols;
        int only; /* 2 or 3: in that generation alone */
    } list[] = {
        { "input_layernorm.weight", 0, MAKE_HIDDEN, 0 },
        { "self_attn.q_proj.weight", q, MAKE_HIDDEN, 0 },
        { "self_attn.k_proj.weight", kv, MAKE_HIDDEN, 0 },
        { "self_attn.v_proj.weight", kv, MAKE_HIDDEN, 0 },
        { "self_attn.q_proj.bias", 0, q, 2 },
        { "self_attn.k_proj.bias", 0, kv, 2 },
        { "self_attn.v_proj.bias", 0, kv, 2 },
        { "self_attn.q_norm.weight", 0, MAKE_HEAD_DIM, 3 },
        { "self_attn.k_norm.weight", 0, MAKE_HEAD_DIM, 3 },
        { "self_attn.o_proj.weight", MAKE_HIDDEN, q, 0 },
        { "post_attention_layernorm.weight", 0, MAKE_HIDDEN, 0 },
        { "mlp.gate_proj.weight", ffn, MAKE_HIDDEN, 0 },
        { "mlp.up_proj.weight", ffn, MAKE_HIDDEN, 0 },
        { "mlp.down_proj.weight", MAKE_HIDDEN, ffn, 0 },
    };
    char name[120];

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(name, sizeof name, "layers.%d.%s", layer, list[i].name);
        if (!list[i].only || list[i].only == (d->qwen3 ? 3 : 2))
            make_entry(d, sh, d->prefix, name, list[i].rows, list[i].cols);
    }
}

static inline void make_file_in(const struct made_dir *d, const char *name, const void *data,
                                size_t len)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    make_write(path, data, len);
}

static inline void make_shard_write(struct made_dir *d, struct made_shard *sh)
{
    struct made m = { 0 };

    make_bytes(&sh->header, "}", 2); /* with the NUL */
    make_safetensors(&m, (const char *)sh->header.data, sh->data.data, sh->data.len);
    make_file_in(d, sh->file, m.data, m.len);
    free(m.data);
    free(sh->header.data);
    free(sh->data.data);
    sh->header = sh->data = (struct made){ 0 };
    make_bytes(&sh->header, "{", 1);
}

/* Write the directory "NAME" of the scratch directory. */
static inline void make_dir(struct made_dir *d, const char *name)
{
    struct made_shard sh = { .file = d->sharded ? "model-00001-of-00002.safetensors"
                                                : "model.safetensors" };
    struct made index = { 0 };
    const char *config = d->config ? d->config : make_config_json(d->qwen3);

    snprintf(d->path, sizeof d->path, "%s/%s", scratch_dir(), name);
    scratch_remove(d->path);
    mkdir(d->path, 0700);
    d->prefix = d->prefix ? d->prefix : "model.";
    make_file_in(d, "config.json", config, strlen(config));
    make_bytes(&sh.header, "{", 1);
    make_entry(d, &sh, d->prefix, "embed_tokens.weight", MAKE_VOCAB, MAKE_HIDDEN);
    make_entry(d, &sh, d->prefix, "norm.weight", 0, MAKE_HIDDEN);
    make_hf_layer(d, &sh, 0);
    if (d->sharded) {
        make_shard_write(d, &sh);
        sh.file = "model-00002-of-00002.safetensors";
    }
    make_hf_layer(d, &sh, 1);
    if (d->head)
        make_entry(d, &sh, "", "lm_head.weight", MAKE_VOCAB, MAKE_HIDDEN);
    if (d->extra)
        make_entry(d, &sh, "visual.", "patch_embed.weight", MAKE_VOCAB, MAKE_HIDDEN);
    make_shard_write(d, &sh);
    if (d->sharded) {
        make_text(&index, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
        make_bytes(&index, sh.index.data, sh.index.len);
        make_text(&index, "}}");
        make_file_in(d, "model.safetensors.index.json", index.data, index.len);
    }
    free(index.data);
    free(sh.header.data);
    free(sh.index.data);
}

#endif
