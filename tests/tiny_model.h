/* Random tiny decoders as GGUF files in the scratch directory, of any shape, weight type and
 * vocabulary, written by the library's own writer (its reader is proven elsewhere).
 *
 * Weights are scaled so that attention is neither flat nor one-hot and logits spread over a few
 * units: then a wrong bit anywhere reaches the logits. */
#ifndef PV_TESTS_TINY_MODEL_H
#define PV_TESTS_TINY_MODEL_H

#include "base/rng.h"
#include "format/gguf_write.h"
#include "scratch.h"
#include "tensor/half.h"
#include "tensor/quant.h"

#include <math.h>

/* Weight types that give every matrix of a layer another one, as real files do: K-quants, and what
 * stands for them where rows are no multiple of 256. */
enum { TINY_MIXED_K = DTYPE_COUNT, TINY_MIXED_32 };

enum {
    TINY_N_BYTES = 256,
    TINY_ENDOFTEXT = 260, /* after the bytes and four merges */
    TINY_IM_START,
    TINY_IM_END,
    TINY_N_TOKENS,
    /* Only in models that see (tiny_vision.h), after the others. */
    TINY_IMAGE = TINY_N_TOKENS, /* LLaVA-OneVision's */
    TINY_VIDEO,
    TINY_VISION_START = TINY_N_TOKENS, /* Qwen2.5-VL's */
    TINY_VISION_END,
    TINY_IMAGE_PAD,
    TINY_VIDEO_PAD,
    TINY_AUDIO_PAD, /* of models that hear */
    TINY_MAX_TOKENS
};

/* A mixture of experts; the architecture is then "qwen3moe" or "qwen3vlmoe". */
struct tiny_experts {
    int n, used, ffn;
    int dense;       /* this layer has none, -1: all have */
    bool not_normed; /* expert_weights_norm false; else the key is not written */
};

struct tiny_model {
    const char *arch; /* "qwen2", "qwen3", ... */
    int hidden, n_layers, n_heads, n_kv, head_dim, ffn, vocab;
    int type; /* enum dtype, TINY_MIXED_K or TINY_MIXED_32 */
    bool untied;
    uint64_t seed;
    int eos;         /* stop token; 0: none named */
    int max_context; /* 0: 4096 */
    bool tokenizer;  /* 256 bytes, four merges, three control tokens; vocab >= TINY_N_TOKENS */
    const char *chat_template;
    const char *const *extra; /* control tokens after the others, NULL at the end; or NULL */
    const struct tiny_experts *experts; /* NULL: all layers are dense */
    int n_deepstack;
};

struct tiny_tensor {
    char name[64];
    enum dtype dtype;
    int rows, cols; /* rows 0: a vector around `mean` */
    float mean, std;
};

struct tiny_list {
    struct tiny_tensor item[384];
    int n;
};

static inline void tiny_add(struct tiny_list *l, const char *prefix, const char *name,
                            enum dtype dtype, int rows, int cols, float mean, float std)
{
    struct tiny_tensor *t = &l->item[l->n++];
    *t = (struct tiny_tensor){
        .dtype = dtype, .rows = rows, .cols = cols, .mean = mean, .std = std
    };
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
}

static inline enum dtype tiny_type(const struct tiny_model *m, enum dtype mixed)
{
    if (m->type == TINY_MIXED_32)
        return mixed == DTYPE_Q4_K   ? DTYPE_IQ4_NL
               : mixed == DTYPE_Q5_K ? DTYPE_Q5_1
               : mixed == DTYPE_Q6_K ? DTYPE_Q4_1
                                     : mixed;
    return m->type == TINY_MIXED_K ? mixed : (enum dtype)m->type;
}

static inline void tiny_layer(struct tiny_list *l, const struct tiny_model *m, int index)
{
    char p[24];
    int q = m->n_heads * m->head_dim, kv = m->n_kv * m->head_dim, h = m->hidden;
    float in = 1.0f / sqrtf((float)h), back = 1.0f / sqrtf((float)(2 * m->n_layers));
    snprintf(p, sizeof p, "blk.%d.", index);
    tiny_add(l, p, "attn_norm.weight", DTYPE_F32, 0, h, 1, 0.2f);
    tiny_add(l, p, "attn_q.weight", tiny_type(m, DTYPE_Q4_K), q, h, 0, 1.5f * in);
    tiny_add(l, p, "attn_k.weight", tiny_type(m, DTYPE_Q5_K), kv, h, 0, 1.5f * in);
    tiny_add(l, p, "attn_v.weight", tiny_type(m, DTYPE_Q6_K), kv, h, 0, in);
    if (strncmp(m->arch, "qwen2", 5) == 0) {
        tiny_add(l, p, "attn_q.bias", DTYPE_F32, 0, q, 0, 0.3f);
        tiny_add(l, p, "attn_k.bias", DTYPE_F32, 0, kv, 0, 0.3f);
        tiny_add(l, p, "attn_v.bias", DTYPE_F32, 0, kv, 0, 0.3f);
    } else {
        tiny_add(l, p, "attn_q_norm.weight", DTYPE_F32, 0, m->head_dim, 1, 0.2f);
        tiny_add(l, p, "attn_k_norm.weight", DTYPE_F32, 0, m->head_dim, 1, 0.2f);
    }
    tiny_add(l, p, "attn_output.weight", tiny_type(m, DTYPE_Q5_0), h, q, 0,
             2 * back / sqrtf((float)q));
    tiny_add(l, p, "ffn_norm.weight", DTYPE_F32, 0, h, 1, 0.2f);
    if (m->experts && m->experts->dense != index) {
        const struct tiny_experts *e = m->experts;
        tiny_add(l, p, "ffn_gate_inp.weight", DTYPE_F32, e->n, h, 0, 2 * in);
        tiny_add(l, p, "ffn_gate_exps.weight", tiny_type(m, DTYPE_Q4_K), e->n * e->ffn, h, 0, in);
        tiny_add(l, p, "ffn_up_exps.weight", tiny_type(m, DTYPE_Q5_K), e->n * e->ffn, h, 0, in);
        tiny_add(l, p, "ffn_down_exps.weight", tiny_type(m, DTYPE_Q6_K), e->n * h, e->ffn, 0,
                 2 * back / sqrtf((float)e->ffn));
        return;
    }
    tiny_add(l, p, "ffn_gate.weight", tiny_type(m, DTYPE_Q4_K), m->ffn, h, 0, in);
    tiny_add(l, p, "ffn_up.weight", tiny_type(m, DTYPE_Q5_K), m->ffn, h, 0, in);
    tiny_add(l, p, "ffn_down.weight", tiny_type(m, DTYPE_Q6_K), h, m->ffn, 0,
             2 * back / sqrtf((float)m->ffn));
}

static inline void tiny_put_scale(uint8_t *p, float d)
{
    uint16_t h = f16_from_f32(d);
    memcpy(p, &h, sizeof h);
}

/* One row of a K-quant, Q5_0 or IQ4_NL, which the library does not encode: random blocks whose
 * scales give elements about the wanted deviation. */
static inline void tiny_random_blocks(struct rng *r, uint8_t *row, enum dtype t, int cols,
                                      float std)
{
    int size = dtype_block_size(t);
    for (int b = 0; b < cols / dtype_block(t); b++) {
        uint8_t *p = row + (size_t)b * (size_t)size;
        float vary = 0.75f + 0.25f * rng_float(r);
        for (int i = 0; i < size; i++)
            p[i] = (uint8_t)(rng_next(r) >> 32);
        if (t == DTYPE_Q6_K) {
            tiny_put_scale(p + 208, vary * std / 1350); /* d * int8 * [-32, 31] */
        } else if (t == DTYPE_Q5_0) {
            tiny_put_scale(p, vary * std / 9); /* d * [-16, 15] */
        } else if (t == DTYPE_IQ4_NL) {
            tiny_put_scale(p, vary * std / 70); /* d * [-127, 113] */
        } else {
            float top = t == DTYPE_Q4_K ? 15 : 31; /* d * [0, 63] * [0, top] - dmin * [0, 63] */
            tiny_put_scale(p, vary * std / (63 * top * 0.3f));
            tiny_put_scale(p + 2, vary * std / (63 * 0.6f));
        }
    }
}

static inline enum pv_status tiny_put_tensor(struct gguf_writer *w, const struct tiny_tensor *t,
                                             struct rng *r, struct pv_error *err)
{
    size_t size = dtype_row_size(t->dtype, t->cols);
    uint8_t *row = malloc(size);
    float *x = malloc(sizeof *x * (size_t)t->cols);
    enum pv_status s = PV_OK;
    for (int i = 0; i < (t->rows ? t->rows : 1) && !s; i++) {
        for (int j = 0; j < t->cols; j++)
            x[j] = t->mean + t->std * rng_normal(r);
        if (row_can_encode(t->dtype))
            row_from_f32(row, x, t->dtype, t->cols);
        else
            tiny_random_blocks(r, row, t->dtype, t->cols, t->std);
        s = gguf_writer_data(w, row, size, err);
    }
    free(row);
    free(x);
    return s;
}

/* Bytes spelled as byte-level BPE spells them, in the order of the bytes themselves: id = byte. */
static inline void tiny_byte_text(char out[4], int byte)
{
    bool plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    int code = byte, moved = 0;
    if (!plain) {
        for (int b = 0; b < byte; b++)
            moved += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae);
        code = 0x100 + moved;
    }
    out[0] = (char)(code < 0x80 ? code : 0xc0 | code >> 6);
    out[1] = (char)(code < 0x80 ? 0 : 0x80 | (code & 0x3f));
    out[2] = 0;
}

static const char *const tiny_merges[] = { "t h", "th e", "i n", "\xc4\xa0 the" };

/* All tokens, as byte-level BPE spells them; how many there are. */
static inline int tiny_tokens(const struct tiny_model *m, const char *token[TINY_MAX_TOKENS])
{
    static const char *const after[] = { "th",          "the",           "in",
                                         "\xc4\xa0the", "<|endoftext|>", "<|im_start|>",
                                         "<|im_end|>" };
    static char text[TINY_N_BYTES][4];
    int n = 0;
    for (; n < TINY_N_BYTES; n++) {
        tiny_byte_text(text[n], n);
        token[n] = text[n];
    }
    for (; n < TINY_N_TOKENS; n++)
        token[n] = after[n - TINY_N_BYTES];
    for (int i = 0; m->extra && m->extra[i]; i++)
        token[n++] = m->extra[i];
    return n;
}

static inline void tiny_put_tokenizer(struct gguf_writer *w, const struct tiny_model *m)
{
    const char *text[TINY_MAX_TOKENS];
    struct str tokens[TINY_MAX_TOKENS], merge[4];
    int32_t kinds[TINY_MAX_TOKENS];
    int n = tiny_tokens(m, text);
    for (int i = 0; i < n; i++) {
        tokens[i] = (struct str){ text[i], (uint32_t)strlen(text[i]) };
        kinds[i] = i < TINY_ENDOFTEXT ? 1 : 3;
    }
    for (int i = 0; i < 4; i++)
        merge[i] = (struct str){ tiny_merges[i], (uint32_t)strlen(tiny_merges[i]) };
    gguf_writer_string(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_writer_string(w, "tokenizer.ggml.pre", "qwen2", 5);
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, (size_t)n);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", kinds, (size_t)n);
    gguf_writer_strings(w, "tokenizer.ggml.merges", merge, 4);
    if (m->chat_template)
        gguf_writer_string(w, "tokenizer.chat_template", m->chat_template,
                           strlen(m->chat_template));
}

static inline void tiny_put_experts(struct gguf_writer *w, const struct tiny_model *m)
{
    const struct tiny_experts *e = m->experts;
    char key[96];
    snprintf(key, sizeof key, "%s.expert_count", m->arch);
    gguf_writer_u32(w, key, (uint32_t)e->n);
    snprintf(key, sizeof key, "%s.expert_used_count", m->arch);
    gguf_writer_u32(w, key, (uint32_t)e->used);
    snprintf(key, sizeof key, "%s.expert_feed_forward_length", m->arch);
    gguf_writer_u32(w, key, (uint32_t)e->ffn);
    snprintf(key, sizeof key, "%s.expert_weights_norm", m->arch);
    if (e->not_normed)
        gguf_writer_bool(w, key, false);
}

static inline void tiny_put_config(struct gguf_writer *w, const struct tiny_model *m)
{
    const struct {
        const char *name;
        int value;
    } list[] = {
        { "block_count", m->n_layers },
        { "context_length", m->max_context ? m->max_context : 4096 },
        { "embedding_length", m->hidden },
        { "feed_forward_length", m->ffn },
        { "attention.head_count", m->n_heads },
        { "attention.head_count_kv", m->n_kv },
        { "attention.key_length", m->head_dim },
        { "attention.value_length", m->head_dim },
    };
    const int32_t sections[4] = { m->head_dim / 2 - 2 * (m->head_dim / 6), m->head_dim / 6,
                                  m->head_dim / 6, 0 };
    char key[96];
    gguf_writer_string(w, "general.architecture", m->arch, strlen(m->arch));
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        snprintf(key, sizeof key, "%s.%s", m->arch, list[i].name);
        gguf_writer_u32(w, key, (uint32_t)list[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->arch);
    gguf_writer_f32(w, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.freq_base", m->arch);
    gguf_writer_f32(w, key, 10000);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", m->arch);
    if (strstr(m->arch, "vl"))
        gguf_writer_i32s(w, key, sections, 4);
    if (m->experts)
        tiny_put_experts(w, m);
    snprintf(key, sizeof key, "%s.n_deepstack_layers", m->arch);
    if (m->n_deepstack)
        gguf_writer_u32(w, key, (uint32_t)m->n_deepstack);
    if (m->eos)
        gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)m->eos);
    if (m->tokenizer)
        tiny_put_tokenizer(w, m);
}

/* The entry of a tensor of the decoder; those of experts have one matrix for each. */
static inline void tiny_list_tensor(struct gguf_writer *w, const struct tiny_model *m,
                                    const char *name, enum dtype t, int rows, int cols)
{
    int64_t flat[2] = { rows ? rows : cols, cols };
    bool deep = strstr(name, "_exps.") != NULL;
    int64_t each[3] = { deep ? m->experts->n : 0, deep ? rows / m->experts->n : 0, cols };
    gguf_writer_tensor(w, name, t, deep ? 3 : rows ? 2 : 1, deep ? each : flat);
}

/* The decoder's tensors, in the order of the file. */
static inline void tiny_list_model(struct tiny_list *l, const struct tiny_model *m)
{
    l->n = 0;
    tiny_add(l, "", "token_embd.weight", tiny_type(m, DTYPE_Q6_K), m->vocab, m->hidden, 0,
             m->untied ? 1.0f : 0.3f);
    tiny_add(l, "", "output_norm.weight", DTYPE_F32, 0, m->hidden, 1, 0.2f);
    if (m->untied)
        tiny_add(l, "", "output.weight", tiny_type(m, DTYPE_Q4_K), m->vocab, m->hidden, 0, 0.3f);
    for (int i = 0; i < m->n_layers; i++)
        tiny_layer(l, m, i);
}

/* Give the tensor `reshape` one row (or element) more and leave out the tensor `drop`; NULL: none.
 */
static inline void tiny_spoil(struct tiny_list *l, const char *reshape, const char *drop)
{
    for (int i = 0; i < l->n; i++) {
        if (reshape && strcmp(l->item[i].name, reshape) == 0) {
            l->item[i].cols += l->item[i].rows ? 0 : 1;
            l->item[i].rows += l->item[i].rows ? 1 : 0;
        }
        if (drop && strcmp(l->item[i].name, drop) == 0)
            memmove(&l->item[i], &l->item[i + 1], sizeof l->item[0] * (size_t)(--l->n - i));
    }
}

/* A file to write; `made` is the description of a model, a head or an adaptor. */
struct tiny_file {
    const void *made;
    uint64_t seed;
    const struct tiny_list *tensors;
    void (*keys)(struct gguf_writer *w, const void *made);
    /* NULL: entries of one or two dimensions, and random values. */
    void (*entry)(struct gguf_writer *w, const void *made, const struct tiny_tensor *t);
    enum pv_status (*values)(struct gguf_writer *w, const void *made, int i,
                             const struct tiny_tensor *t, struct rng *r, struct pv_error *err);
};

static inline void tiny_put_entry(struct gguf_writer *w, const struct tiny_tensor *t)
{
    int64_t dim[2] = { t->rows ? t->rows : t->cols, t->cols };
    gguf_writer_tensor(w, t->name, t->dtype, t->rows ? 2 : 1, dim);
}

/* Write NAME.gguf of the scratch directory; the path lives in `path`. Ends the program when the
 * file cannot be written: no test has a meaning without it. */
static inline const char *tiny_write(const struct tiny_file *f, const char *name, char path[256])
{
    const struct tiny_list *l = f->tensors;
    struct gguf_writer *w = NULL;
    struct pv_error err = { 0 };
    struct rng r = { f->seed + 1 };
    enum pv_status s;
    snprintf(path, 256, "%s/%s.gguf", scratch_dir(), name);
    s = gguf_writer_open(&w, path, NULL, &err);
    if (!s) {
        f->keys(w, f->made);
        for (int i = 0; i < l->n; i++) {
            if (f->entry)
                f->entry(w, f->made, &l->item[i]);
            else
                tiny_put_entry(w, &l->item[i]);
        }
        s = gguf_writer_begin(w, &err);
    }
    for (int i = 0; i < l->n && !s; i++)
        s = f->values ? f->values(w, f->made, i, &l->item[i], &r, &err)
                      : tiny_put_tensor(w, &l->item[i], &r, &err);
    if (!s)
        s = gguf_writer_commit(&w, &err);
    gguf_writer_abandon(&w);
    if (s) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return path;
}

static inline void tiny_model_keys(struct gguf_writer *w, const void *model)
{
    tiny_put_config(w, model);
}

static inline void tiny_model_entry(struct gguf_writer *w, const void *model,
                                    const struct tiny_tensor *t)
{
    tiny_list_tensor(w, model, t->name, t->dtype, t->rows, t->cols);
}

/* Write the model, as tiny_write does. */
static inline const char *tiny_model_write(const struct tiny_model *m, const char *name,
                                           char path[256])
{
    static struct tiny_list l;
    const struct tiny_file f = { m, m->seed, &l, tiny_model_keys, tiny_model_entry, NULL };
    tiny_list_model(&l, m);
    return tiny_write(&f, name, path);
}

#endif
