/* Writing a model as GGUF, so that both we and llama.cpp load it. From a GGUF file all metadata
 * and all tensors are kept, only the types change; from a directory the keys are made from the
 * configuration and the vocabulary, and the decoder's tensors are renamed. Values pass through
 * f32 in chunks, except where the type stays: those bytes are copied. */
#include "base/mem.h"
#include "base/utf8.h"
#include "format/gguf_write.h"
#include "format/model_file_parts.h"
#include "format/roles.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <string.h>

enum {
    CHUNK = 1 << 16, /* elements decoded at a time; a multiple of every block */
    QUANTIZATION_VERSION = 2,
    PAD_TEXT = 16 /* room for "[PAD4194304]" */
};

/* One conversion. */
struct job {
    const struct model_file *mf;
    struct gguf_writer *w;
    enum dtype type;
    float *values;  /* [CHUNK] */
    uint8_t *bytes; /* CHUNK elements in the new type */
};

/* llama.cpp's numbers of file types, informative only. */
static uint32_t file_type(enum dtype t)
{
    switch (t) {
    case DTYPE_F32:
        return 0;
    case DTYPE_F16:
        return 1;
    case DTYPE_Q4_0:
        return 2;
    case DTYPE_Q8_0:
        return 7;
    default:
        return 32; /* BF16 */
    }
}

/* The type a tensor gets: norms and other vectors stay exact, rows that are not whole blocks
 * cannot be quantised. */
static enum dtype new_type(const struct tensor *t, enum dtype type)
{
    static const char norm[] = "norm.weight";
    size_t len = strlen(t->name), norm_len = sizeof norm - 1;

    if (t->n_dims < 2 || (len >= norm_len && !strcmp(t->name + len - norm_len, norm)))
        return DTYPE_F32;
    return tensor_cols(t) % dtype_block(type) ? DTYPE_F16 : type;
}

/* A key under the architecture's name. */
struct key {
    char text[96];
};

static struct key arch_key(const char *arch, const char *name)
{
    struct key k;
    snprintf(k.text, sizeof k.text, "%s.%s", arch, name);
    return k;
}

static const char *gguf_arch(const struct config *c)
{
    if (c->arch == ARCH_QWEN2)
        return c->mrope == MROPE_NONE ? "qwen2" : "qwen2vl";
    return c->mrope == MROPE_NONE ? "qwen3" : "qwen3vl";
}

static void write_general(struct job *j)
{
    const char *arch = gguf_arch(&j->mf->config), *path = j->mf->path;
    size_t end = strlen(path), begin;

    while (end > 0 && path[end - 1] == '/')
        end--;
    begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    gguf_writer_string(j->w, "general.architecture", arch, strlen(arch));
    gguf_writer_string(j->w, "general.type", "model", 5);
    if (end > begin && path[begin] != '.' && utf8_valid(path + begin, end - begin))
        gguf_writer_string(j->w, "general.name", path + begin, end - begin);
    gguf_writer_u32(j->w, "general.file_type", file_type(j->type));
    gguf_writer_u32(j->w, "general.quantization_version", QUANTIZATION_VERSION);
}

static void write_config(struct job *j)
{
    const struct config *c = &j->mf->config;
    const char *arch = gguf_arch(c);
    const int32_t sections[4] = { c->mrope_section[0], c->mrope_section[1], c->mrope_section[2] };
    const struct {
        const char *name;
        int value;
    } counts[] = {
        { "block_count", c->n_layers },
        { "context_length", c->max_context },
        { "embedding_length", c->hidden },
        { "feed_forward_length", c->ffn },
        { "attention.head_count", c->n_heads },
        { "attention.head_count_kv", c->n_kv_heads },
        { "attention.key_length", c->head_dim },
        { "attention.value_length", c->head_dim },
        { "vocab_size", c->vocab },
    };

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        gguf_writer_u32(j->w, arch_key(arch, counts[i].name).text, (uint32_t)counts[i].value);
    gguf_writer_f32(j->w, arch_key(arch, "attention.layer_norm_rms_epsilon").text, c->rms_eps);
    gguf_writer_f32(j->w, arch_key(arch, "rope.freq_base").text, c->rope_theta);
    if (c->mrope != MROPE_NONE)
        gguf_writer_i32s(j->w, arch_key(arch, "rope.dimension_sections").text, sections, 4);
}

/* The special ids. The second stop token goes where llama.cpp looks for the end of a turn, so
 * that a file read back stops where the directory did. */
static void write_ids(struct job *j)
{
    const struct config *c = &j->mf->config;
    const struct vocab *v = j->mf->vocab;
    int32_t eos = v && v->eos >= 0 ? v->eos : c->n_stop ? c->stop[0] : -1;

    if (eos >= 0)
        gguf_writer_u32(j->w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    for (int i = 0; i < c->n_stop; i++) {
        if (c->stop[i] != eos) {
            gguf_writer_u32(j->w, "tokenizer.ggml.eot_token_id", (uint32_t)c->stop[i]);
            break;
        }
    }
    if (v && v->bos >= 0)
        gguf_writer_u32(j->w, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos);
    if (v && v->pad >= 0)
        gguf_writer_u32(j->w, "tokenizer.ggml.padding_token_id", (uint32_t)v->pad);
    gguf_writer_bool(j->w, "tokenizer.ggml.add_bos_token", false);
}

/* Tokens and kinds of all rows of the embedding table: ids without a spelling are "[PADn]". */
static void fill_tokens(struct str *token, int32_t *kind, char *pad_text, const struct vocab *v,
                        int n)
{
    static const int32_t kinds[] = {
        [TOKEN_NORMAL] = 1, [TOKEN_ADDED] = 4, [TOKEN_CONTROL] = 3, [TOKEN_UNUSED] = 5
    };

    for (int i = 0; i < n; i++) {
        kind[i] = i < v->n_tokens ? kinds[v->kind[i]] : kinds[TOKEN_UNUSED];
        if (i < v->n_tokens && v->token[i].len > 0) {
            token[i] = v->token[i];
        } else {
            char *text = pad_text + (size_t)i * PAD_TEXT;
            token[i].s = text;
            token[i].len = (uint32_t)snprintf(text, PAD_TEXT, "[PAD%d]", i);
            kind[i] = kinds[TOKEN_UNUSED];
        }
    }
}

static enum pv_status write_vocab(struct job *j, struct pv_error *err)
{
    const struct vocab *v = j->mf->vocab;
    size_t n = (size_t)j->mf->config.vocab;
    struct str *token = mem_alloc(n * sizeof *token);
    int32_t *kind = mem_alloc(n * sizeof *kind);
    char *pad_text = mem_alloc(n * PAD_TEXT);
    enum pv_status s = PV_OK;

    if (!token || !kind || !pad_text) {
        s = fail_nomem(err, n * (sizeof *token + sizeof *kind + PAD_TEXT));
        goto done;
    }
    fill_tokens(token, kind, pad_text, v, (int)n);
    gguf_writer_string(j->w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_writer_string(j->w, "tokenizer.ggml.pre", v->pre, strlen(v->pre));
    gguf_writer_strings(j->w, "tokenizer.ggml.tokens", token, n);
    gguf_writer_i32s(j->w, "tokenizer.ggml.token_type", kind, n);
    gguf_writer_strings(j->w, "tokenizer.ggml.merges", v->merge, (size_t)v->n_merges);
    if (v->chat_template[0])
        gguf_writer_string(j->w, "tokenizer.chat_template", v->chat_template,
                           strlen(v->chat_template));

done:
    mem_free(token);
    mem_free(kind);
    mem_free(pad_text);
    return s;
}

static enum pv_status write_meta_hf(struct job *j, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    write_general(j);
    write_config(j);
    if (j->mf->vocab)
        s = write_vocab(j, err);
    else
        gguf_writer_string(j->w, "tokenizer.ggml.model", "none", 4);
    write_ids(j);
    return s;
}

static bool key_is(const struct gguf_value *v, const char *key)
{
    return v->key.len == strlen(key) && !memcmp(v->key.s, key, v->key.len);
}

/* All keys but those that speak of the old file: its type, its alignment, its parts. */
static void write_meta_gguf(struct job *j)
{
    const struct gguf *g = j->mf->gguf;
    const struct gguf_value *arch = gguf_find(g, "general.architecture");

    gguf_writer_value(j->w, arch); /* first, whatever the order was */
    gguf_writer_u32(j->w, "general.file_type", file_type(j->type));
    gguf_writer_u32(j->w, "general.quantization_version", QUANTIZATION_VERSION);
    for (int i = 0; i < gguf_n_values(g); i++) {
        const struct gguf_value *v = gguf_value(g, i);
        bool split = v->key.len > 6 && !memcmp(v->key.s, "split.", 6);
        if (v != arch && !split && !key_is(v, "general.file_type") &&
            !key_is(v, "general.quantization_version") && !key_is(v, "general.alignment"))
            gguf_writer_value(j->w, v);
    }
}

/* One tensor's values in its new type, through f32. */
static enum pv_status write_converted(struct job *j, const struct tensor *t, enum dtype to,
                                      struct pv_error *err)
{
    int64_t n = tensor_rows(t) * tensor_cols(t);
    const uint8_t *src = t->data;
    enum pv_status s = PV_OK;

    for (int64_t i = 0; i < n && !s; i += CHUNK) {
        int64_t part = n - i < CHUNK ? n - i : CHUNK;
        row_to_f32(j->values, src, t->dtype, part);
        row_from_f32(j->bytes, j->values, to, part);
        /* Also where a finite number was too large for the f16 of the new type. */
        if (!row_is_finite(j->bytes, to, part))
            return fail(err, PV_E_FORMAT, "%s: the tensor %s has a number that %s cannot hold",
                        j->mf->path, t->name, dtype_name(to));
        s = gguf_writer_data(j->w, j->bytes, dtype_row_size(to, part), err);
        src += dtype_row_size(t->dtype, part);
    }
    return s;
}

static enum pv_status write_data(struct job *j, const struct tensor *t, struct pv_error *err)
{
    enum dtype to = new_type(t, j->type);

    if (to == t->dtype)
        return gguf_writer_data(j->w, t->data, t->size, err);
    return write_converted(j, t, to, err);
}

static void list_tensor(struct job *j, const char *name, const struct tensor *t)
{
    gguf_writer_tensor(j->w, name, new_type(t, j->type), t->n_dims, t->dim);
}

/* The i-th tensor to be written, with its name, or NULL past the last. The decoder's tensors of
 * a directory: table, norm, head, then the layers. */
static const struct tensor *tensor_at(const struct model_file *mf, int i, char *name, size_t cap)
{
    const struct role *top_role[] = { &role_embed, &role_norm, &role_head };
    const struct tensor *top[] = { mf->embed, mf->norm, mf->head };
    int layer = (i - 3) / ROLE_LAYER_COUNT, role = (i - 3) % ROLE_LAYER_COUNT;
    const struct tensor *t;

    if (i < 3) {
        snprintf(name, cap, "%s", top_role[i]->gguf);
        return top[i];
    }
    snprintf(name, cap, "blk.%d.%s", layer, role_layer[role].gguf);
    memcpy(&t, (const char *)&mf->layer[layer] + role_layer[role].slot, sizeof t);
    return t;
}

static enum pv_status write_tensors_hf(struct job *j, bool data, struct pv_error *err)
{
    const struct model_file *mf = j->mf;
    int n = 3 + mf->config.n_layers * ROLE_LAYER_COUNT;
    char name[GGUF_MAX_NAME + 1];
    enum pv_status s = PV_OK;

    for (int i = 0; i < n && !s; i++) {
        const struct tensor *t = tensor_at(mf, i, name, sizeof name);
        bool skip =
            i == 2 ? mf->config.tied
                   : i > 2 && !role_needed(&role_layer[(i - 3) % ROLE_LAYER_COUNT], &mf->config);
        if (skip)
            continue;
        if (data)
            s = write_data(j, t, err);
        else
            list_tensor(j, name, t);
    }
    return s;
}

static enum pv_status write_tensors_gguf(struct job *j, bool data, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int i = 0; i < gguf_n_tensors(j->mf->gguf) && !s; i++) {
        const struct tensor *t = gguf_tensor(j->mf->gguf, i);
        if (data)
            s = write_data(j, t, err);
        else
            list_tensor(j, t->name, t);
    }
    return s;
}

/* The list of tensors, or their data. */
static enum pv_status write_tensors(struct job *j, bool data, struct pv_error *err)
{
    return j->mf->gguf ? write_tensors_gguf(j, data, err) : write_tensors_hf(j, data, err);
}

enum pv_status model_file_write_gguf(const struct model_file *mf, const char *out_path,
                                     enum dtype type, struct pv_error *err)
{
    struct job j = { .mf = mf, .type = type };
    enum pv_status s;

    if (!row_can_encode(type))
        return fail(err, PV_E_UNSUPPORTED, "%s: files of type %s cannot be written", out_path,
                    dtype_name(type));
    j.values = mem_alloc(CHUNK * sizeof *j.values);
    j.bytes = mem_alloc(CHUNK * sizeof(float)); /* f32 is the largest type */
    if (!j.values || !j.bytes)
        s = fail_nomem(err, CHUNK * (sizeof *j.values + sizeof(float)));
    else
        s = gguf_writer_open(&j.w, out_path, err);
    if (!s && mf->gguf)
        write_meta_gguf(&j);
    else if (!s)
        s = write_meta_hf(&j, err);
    if (!s)
        s = write_tensors(&j, false, err);
    if (!s)
        s = gguf_writer_begin(j.w, err);
    if (!s)
        s = write_tensors(&j, true, err);
    if (!s)
        s = gguf_writer_commit(&j.w, err);
    gguf_writer_abandon(&j.w);
    mem_free(j.values);
    mem_free(j.bytes);
    return s;
}
