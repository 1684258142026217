/* The metadata of a written model. From a GGUF file all keys are kept but those that speak of the
 * old file and those of the tower, which are written anew; from a directory the keys are made from
 * the configuration and the vocabulary. */
#include "format/model_file_job.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "format/family.h"

#include <stdio.h>
#include <string.h>

enum { QUANTIZATION_VERSION = 2, PAD_TEXT = 16 /* room for "[PAD4194304]" */ };

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
    case DTYPE_Q4_1:
        return 3;
    case DTYPE_Q5_1:
        return 9;
    case DTYPE_Q8_0:
        return 7;
    default:
        return 32; /* BF16 */
    }
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

void write_general(struct write_job *j, const char *arch, const char *type)
{
    const char *path = j->path;
    size_t end = strlen(path), begin;

    while (end > 0 && path[end - 1] == '/')
        end--;
    begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    gguf_writer_string(j->w, "general.architecture", arch, strlen(arch));
    gguf_writer_string(j->w, "general.type", type, strlen(type));
    if (end > begin && path[begin] != '.' && utf8_valid(path + begin, end - begin))
        gguf_writer_string(j->w, "general.name", path + begin, end - begin);
    gguf_writer_u32(j->w, "general.file_type", file_type(j->type));
    gguf_writer_u32(j->w, "general.quantization_version", QUANTIZATION_VERSION);
}

/* llama.cpp takes expert_weights_norm to be true whatever is written. */
static void write_config_experts(struct write_job *j, const char *arch)
{
    const struct config *c = &j->mf->config;

    gguf_writer_u32(j->w, arch_key(arch, "expert_count").text, (uint32_t)c->n_experts);
    gguf_writer_u32(j->w, arch_key(arch, "expert_used_count").text, (uint32_t)c->n_used);
    gguf_writer_u32(j->w, arch_key(arch, "expert_feed_forward_length").text,
                    (uint32_t)c->expert_ffn);
    gguf_writer_bool(j->w, arch_key(arch, "expert_weights_norm").text, c->norm_used);
}

static void write_config(struct write_job *j)
{
    const struct config *c = &j->mf->config;
    const char *arch = c->family->arch;
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
    if (c->n_experts)
        write_config_experts(j, arch);
    if (c->mrope != MROPE_NONE)
        gguf_writer_i32s(j->w, arch_key(arch, "rope.dimension_sections").text, sections, 4);
    if (c->n_deepstack > 0)
        gguf_writer_u32(j->w, arch_key(arch, "n_deepstack_layers").text, (uint32_t)c->n_deepstack);
}

/* The special ids. The second stop token goes where llama.cpp looks for the end of a turn, so
 * that a file read back stops where the directory did. */
static void write_ids(struct write_job *j)
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

static enum pv_status write_vocab(struct write_job *j, struct pv_error *err)
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

enum pv_status write_meta_text(struct write_job *j, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    write_general(j, j->mf->config.family->arch, "model");
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

static bool key_begins(const struct gguf_value *v, const char *prefix)
{
    return v->key.len >= strlen(prefix) && !memcmp(v->key.s, prefix, strlen(prefix));
}

void write_meta_copy(struct write_job *j, const struct gguf *g)
{
    const struct gguf_value *arch = gguf_find(g, "general.architecture");

    if (arch) /* first, whatever the order was */
        gguf_writer_value(j->w, arch);
    gguf_writer_u32(j->w, "general.file_type", file_type(j->type));
    gguf_writer_u32(j->w, "general.quantization_version", QUANTIZATION_VERSION);
    for (int i = 0; i < gguf_n_values(g); i++) {
        const struct gguf_value *v = gguf_value(g, i);
        if (v != arch && !key_begins(v, "split.") && !key_begins(v, "clip.") &&
            !key_is(v, "general.file_type") && !key_is(v, "general.quantization_version") &&
            !key_is(v, "general.alignment"))
            gguf_writer_value(j->w, v);
    }
}
