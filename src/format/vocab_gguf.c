/* The tokenizer's data in a GGUF file: the keys tokenizer.ggml.*, as byte-level BPE ("gpt2").
 * Token and merge strings stay in the mapping. Every string must be UTF-8; ids without a token
 * ("[PADn]") become TOKEN_UNUSED whatever kind the file gives them, since converters disagree. */
#include "format/vocab_gguf.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "format/config.h"

#include <stdio.h>
#include <string.h>

/* Token kinds in the file. */
enum { KIND_NORMAL = 1, KIND_UNKNOWN, KIND_CONTROL, KIND_USER_DEFINED, KIND_UNUSED, KIND_BYTE };

static bool is_padding(const struct str *token, int id)
{
    char pad[32];
    int n = snprintf(pad, sizeof pad, "[PAD%d]", id);

    return token->len == (uint32_t)n && !memcmp(token->s, pad, (size_t)n);
}

static bool kind_from_file(int32_t kind, uint8_t *out)
{
    switch (kind) {
    case KIND_NORMAL:
    case KIND_BYTE:
        *out = TOKEN_NORMAL;
        return true;
    case KIND_UNKNOWN:
    case KIND_CONTROL:
        *out = TOKEN_CONTROL;
        return true;
    case KIND_USER_DEFINED:
        *out = TOKEN_ADDED;
        return true;
    case KIND_UNUSED:
        *out = TOKEN_UNUSED;
        return true;
    default:
        return false;
    }
}

static enum pv_status check_strings(const struct gguf *g, const char *key, const struct str *list,
                                    int n, struct pv_error *err)
{
    for (int i = 0; i < n; i++)
        if (!utf8_valid(list[i].s, list[i].len))
            return fail(err, PV_E_FORMAT, "%s: string %d of %s is not UTF-8", gguf_path(g), i, key);
    return PV_OK;
}

static enum pv_status read_kinds(struct vocab *v, const struct gguf *g, struct pv_error *err)
{
    static const char key[] = "tokenizer.ggml.token_type";
    int32_t *kinds = NULL;
    size_t size = (size_t)v->n_tokens * sizeof *kinds;
    enum pv_status s = PV_OK;

    v->kind = mem_zalloc((size_t)v->n_tokens); /* all normal where the file is silent */
    kinds = mem_alloc(size);
    if (!v->kind || !kinds)
        s = fail_nomem(err, size);
    else if (gguf_find(g, key))
        s = gguf_ints(g, key, kinds, v->n_tokens, err);
    else
        for (int i = 0; i < v->n_tokens; i++)
            kinds[i] = KIND_NORMAL;
    for (int i = 0; i < v->n_tokens && !s; i++) {
        if (!kind_from_file(kinds[i], &v->kind[i]))
            s = fail(err, PV_E_FORMAT, "%s: token %d has the unknown kind %d in %s", gguf_path(g),
                     i, (int)kinds[i], key);
        else if (v->token[i].len == 0 || is_padding(&v->token[i], i))
            v->kind[i] = TOKEN_UNUSED;
    }
    mem_free(kinds);
    return s;
}

/* A special token's id; -1 where the file names none. */
static enum pv_status read_id(int32_t *out, const struct vocab *v, const struct gguf *g,
                              const char *key, struct pv_error *err)
{
    int64_t id = -1;
    enum pv_status s = PV_OK;

    if (gguf_find(g, key))
        s = gguf_int(g, key, 0, v->n_tokens - 1, &id, err);
    *out = (int32_t)id;
    return s;
}

/* A string as a copy with NUL, `missing` where the key is not there. */
static enum pv_status read_text(const char **out, const struct gguf *g, const char *key,
                                const char *missing, struct pv_error *err)
{
    struct str str = { missing, (uint32_t)strlen(missing) };
    enum pv_status s = gguf_find(g, key) ? gguf_string(g, key, &str, err) : PV_OK;

    if (s)
        return s;
    if (!utf8_valid(str.s, str.len) || memchr(str.s, 0, str.len))
        return fail(err, PV_E_FORMAT, "%s: %s is not UTF-8 text", gguf_path(g), key);
    *out = mem_strndup(str.s, str.len);
    return *out ? PV_OK : fail_nomem(err, str.len);
}

static enum pv_status read_vocab(struct vocab *v, const struct gguf *g, struct pv_error *err)
{
    enum pv_status s;

    s = gguf_strings(g, "tokenizer.ggml.tokens", CONFIG_MAX_VOCAB, &v->token, &v->n_tokens, err);
    if (!s && v->n_tokens == 0)
        s = fail(err, PV_E_FORMAT, "%s: tokenizer.ggml.tokens is empty", gguf_path(g));
    if (!s)
        s = check_strings(g, "tokenizer.ggml.tokens", v->token, v->n_tokens, err);
    if (!s)
        s = read_kinds(v, g, err);
    if (!s)
        s = gguf_strings(g, "tokenizer.ggml.merges", VOCAB_GGUF_MAX_MERGES, &v->merge, &v->n_merges,
                         err);
    if (!s)
        s = check_strings(g, "tokenizer.ggml.merges", v->merge, v->n_merges, err);
    if (!s)
        s = read_id(&v->eos, v, g, "tokenizer.ggml.eos_token_id", err);
    if (!s)
        s = read_id(&v->bos, v, g, "tokenizer.ggml.bos_token_id", err);
    if (!s)
        s = read_id(&v->pad, v, g, "tokenizer.ggml.padding_token_id", err);
    if (!s)
        s = read_text(&v->pre, g, "tokenizer.ggml.pre", "default", err);
    if (!s)
        s = read_text(&v->chat_template, g, "tokenizer.chat_template", "", err);
    return s;
}

enum pv_status vocab_gguf_open(struct vocab **out, const struct gguf *g, const char **why,
                               struct pv_error *err)
{
    struct str model = { "", 0 };
    struct vocab *v = NULL;
    enum pv_status s = PV_OK;

    *why = NULL;
    if (gguf_find(g, "tokenizer.ggml.model"))
        s = gguf_string(g, "tokenizer.ggml.model", &model, err);
    if (s)
        return s;
    if (model.len == 4 && !memcmp(model.s, "gpt2", 4)) {
        v = mem_zalloc(sizeof *v);
        s = v ? read_vocab(v, g, err) : fail_nomem(err, sizeof *v);
    } else if (model.len == 0 || (model.len == 4 && !memcmp(model.s, "none", 4))) {
        *why = "the file has no tokenizer";
    } else {
        *why = "the file's tokenizer is not byte-level BPE (\"gpt2\")";
    }
    if (s)
        vocab_gguf_close(&v);
    else
        *out = v;
    return s;
}

void vocab_gguf_close(struct vocab **v)
{
    struct vocab *old = *v;

    *v = NULL;
    if (!old)
        return;
    mem_free(old->token);
    mem_free(old->kind);
    mem_free(old->merge);
    mem_free((void *)(uintptr_t)old->pre);
    mem_free((void *)(uintptr_t)old->chat_template);
    mem_free(old);
}
