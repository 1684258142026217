/* Collecting a vocabulary. Ids come in any order and may leave holes, so the table grows to the
 * largest id seen and what was never named stays TOKEN_UNUSED. Strings are copied into blocks that
 * never move. */
#include "format/vocab_build_hf.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "format/config.h"

#include <string.h>

enum {
    BLOCK_SIZE = 1 << 20,
    MAX_MERGES = 1 << 24,
    MAX_TOKEN = 1 << 16,    /* bytes of a spelling */
    MAX_TEMPLATE = 1 << 20, /* bytes; the longest in circulation have some 20 kB */
};

struct text_block {
    struct text_block *next;
    size_t used, cap;
    char text[];
};

enum pv_status vocab_build_open(struct vocab_build **out, struct pv_error *err)
{
    struct vocab_build *b = mem_zalloc(sizeof *b);

    if (!b)
        return fail_nomem(err, sizeof *b);
    b->v = (struct vocab){ .eos = -1, .bos = -1, .pad = -1, .pre = "qwen2", .chat_template = "" };
    *out = b;
    return PV_OK;
}

void vocab_build_close(struct vocab_build **pb)
{
    struct vocab_build *b = *pb;

    if (!b)
        return;
    while (b->blocks) {
        struct text_block *next = b->blocks->next;
        mem_free(b->blocks);
        b->blocks = next;
    }
    mem_free(b->v.token);
    mem_free(b->v.kind);
    mem_free(b->v.merge);
    mem_free(b->template);
    mem_free(b);
    *pb = NULL;
}

char *vocab_build_room(struct vocab_build *b, size_t len, struct pv_error *err)
{
    struct text_block *block = b->blocks;

    if (!block || block->cap - block->used < len) {
        size_t cap = len > BLOCK_SIZE ? len : BLOCK_SIZE, size = SIZE_MAX;
        block = add_size(sizeof *block, cap, &size) ? mem_alloc(size) : NULL;
        if (!block) {
            fail_nomem(err, size);
            return NULL;
        }
        *block = (struct text_block){ .next = b->blocks, .cap = cap };
        b->blocks = block;
    }
    block->used += len;
    return block->text + block->used - len;
}

/* Room for ids below n; the new ones are unused. */
static enum pv_status tokens_reserve(struct vocab_build *b, int n, struct pv_error *err)
{
    int cap = b->token_cap > INT32_MAX / 2 ? n : b->token_cap * 2;
    struct str *token;
    uint8_t *kind;

    if (n <= b->token_cap)
        return PV_OK;
    cap = cap < n ? n : cap;
    token = mem_realloc(b->v.token, (size_t)cap * sizeof *token);
    if (!token)
        return fail_nomem(err, (size_t)cap * sizeof *token);
    b->v.token = token;
    kind = mem_realloc(b->v.kind, (size_t)cap);
    if (!kind)
        return fail_nomem(err, (size_t)cap);
    b->v.kind = kind;
    for (int i = b->token_cap; i < cap; i++) {
        token[i] = (struct str){ "", 0 };
        kind[i] = TOKEN_UNUSED;
    }
    b->token_cap = cap;
    return PV_OK;
}

enum pv_status vocab_build_token(struct vocab_build *b, long long id, const char *s, size_t len,
                                 enum token_kind kind, const char *where, struct pv_error *err)
{
    enum pv_status st;

    if (id < 0 || id >= CONFIG_MAX_VOCAB)
        return fail(err, PV_E_FORMAT, "%s: token id %lld is not in 0..%d", where, id,
                    CONFIG_MAX_VOCAB - 1);
    if (len > MAX_TOKEN)
        return fail(err, PV_E_LIMIT, "%s: token %lld has %zu bytes, the limit is %d", where, id,
                    len, MAX_TOKEN);
    st = tokens_reserve(b, (int)id + 1, err);
    if (st)
        return st;
    if (b->v.kind[id] != TOKEN_UNUSED) {
        const struct str *old = &b->v.token[id];
        if (kind == TOKEN_NORMAL || old->len != len || memcmp(old->s, s, len) != 0)
            return fail(err, PV_E_FORMAT, "%s: id %lld is given to two tokens", where, id);
    } else {
        char *copy = vocab_build_room(b, len, err);
        if (!copy)
            return PV_E_NOMEM;
        memcpy(copy, s, len);
        b->v.token[id] = (struct str){ copy, (uint32_t)len };
    }
    b->v.kind[id] = (uint8_t)kind;
    if (id >= b->v.n_tokens)
        b->v.n_tokens = (int)id + 1;
    return PV_OK;
}

enum pv_status vocab_build_merge(struct vocab_build *b, struct str s, const char *where,
                                 struct pv_error *err)
{
    const char *space = s.len ? memchr(s.s, ' ', s.len) : NULL;

    if (!space || space == s.s || space == s.s + s.len - 1 ||
        memchr(space + 1, ' ', (size_t)(s.s + s.len - space - 1)))
        return fail(err, PV_E_FORMAT, "%s: merge %d is not two tokens with a space between", where,
                    b->v.n_merges);
    if (b->v.n_merges == MAX_MERGES)
        return fail(err, PV_E_LIMIT, "%s: more than %d merges", where, MAX_MERGES);
    if (b->v.n_merges == b->merge_cap) {
        int cap = b->merge_cap ? b->merge_cap * 2 : 1024;
        struct str *grown = mem_realloc(b->v.merge, (size_t)cap * sizeof *grown);
        if (!grown)
            return fail_nomem(err, (size_t)cap * sizeof *grown);
        b->v.merge = grown;
        b->merge_cap = cap;
    }
    b->v.merge[b->v.n_merges++] = s;
    return PV_OK;
}

enum pv_status vocab_build_template(struct vocab_build *b, const char *s, size_t len,
                                    const char *where, struct pv_error *err)
{
    char *copy;

    if (len == 0)
        return PV_OK;
    if (len > MAX_TEMPLATE)
        return fail(err, PV_E_LIMIT, "%s: a chat template of %zu bytes, the limit is %d", where,
                    len, MAX_TEMPLATE);
    if (!utf8_valid(s, len) || memchr(s, 0, len))
        return fail(err, PV_E_FORMAT, "%s: the chat template is not UTF-8 text", where);
    copy = mem_strndup(s, len);
    if (!copy)
        return fail_nomem(err, len);
    mem_free(b->template);
    b->template = copy;
    b->v.chat_template = copy;
    return PV_OK;
}

int32_t vocab_build_find(const struct vocab_build *b, const char *s, size_t len)
{
    int32_t found = -1;

    for (int i = 0; i < b->v.n_tokens; i++) {
        const struct str *t = &b->v.token[i];
        if (b->v.kind[i] == TOKEN_UNUSED || t->len != len || memcmp(t->s, s, len) != 0)
            continue;
        if (b->v.kind[i] != TOKEN_NORMAL)
            return i;
        if (found < 0)
            found = i;
    }
    return found;
}
