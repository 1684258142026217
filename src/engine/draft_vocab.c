/* Chooses the tokens that a drafter scores, by counting them in a text. The text is processed in
 * pieces of whole lines, so that memory does not grow with the file. */
#include "base/file.h"
#include "base/mem.h"
#include "engine/model.h"
#include "format/vocab.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 };
static const uint64_t most_text = (uint64_t)1 << 30;

struct counted {
    int32_t id;
    uint64_t n;
};

/* Bytes of the next piece: whole lines, or a part of a longer line that ends at a character
 * boundary. */
static size_t piece_at(const char *text, size_t left)
{
    size_t n = left < PIECE ? left : PIECE, end = n;
    if (n == left)
        return n;
    while (end > 0 && text[end - 1] != '\n')
        end--;
    if (end > 0)
        return end;
    while (n > 1 && ((uint8_t)text[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static enum pv_status count_text(const struct pv_model *m, const char *path, struct counted *all,
                                 int vocab, struct pv_error *err)
{
    struct file_map map = { 0 };
    int32_t *ids = mem_alloc(PIECE * sizeof *ids); /* a token has at least one byte */
    enum pv_status s = ids ? PV_OK : fail_nomem(err, PIECE * sizeof *ids);
    if (s)
        return s;
    s = file_map_open(&map, path, most_text, err);
    for (size_t at = 0, n; !s && at < map.size; at += n) {
        size_t tokens = 0;
        n = piece_at((const char *)map.data + at, map.size - at);
        s = pv_tokenize(m, (const char *)map.data + at, n, false, ids, PIECE, &tokens, err);
        if (s)
            fail_names(err, path);
        for (size_t i = 0; i < tokens && i < PIECE && !s; i++)
            if (ids[i] < vocab)
                all[ids[i]].n++;
    }
    if (map.data)
        file_map_close(&map);
    mem_free(ids);
    return s;
}

/* More frequent tokens first; among equals the lower id. */
static int by_count(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Adds the tokens that end an answer, which occur in no text. */
static void count_controls(const struct vocab *v, struct counted *all, int vocab)
{
    for (int i = 0; v && i < v->n_tokens && i < vocab; i++)
        if (v->kind[i] == TOKEN_CONTROL)
            all[i].n = UINT64_MAX;
}

enum pv_status model_draft_vocab(const struct pv_model *m, int n, const char *text, int32_t **ids,
                                 struct pv_error *err)
{
    int vocab = pv_model_vocab_size(m);
    size_t size = (size_t)vocab * sizeof(struct counted);
    struct counted *all;
    int32_t *out;
    enum pv_status s = PV_OK;
    if (n < 1 || n > vocab)
        return fail(err, PV_E_ARG, "a draft vocabulary of %d of %d tokens", n, vocab);
    all = mem_zalloc(size);
    out = mem_alloc((size_t)n * sizeof *out);
    if (!all || !out)
        s = fail_nomem(err, size + (size_t)n * sizeof *out);
    for (int i = 0; i < vocab && !s; i++)
        all[i].id = i;
    if (!s && text)
        s = count_text(m, text, all, vocab, err);
    if (!s) {
        count_controls(model_file_vocab(m->file), all, vocab);
        qsort(all, (size_t)vocab, sizeof *all, by_count);
        for (int i = 0; i < n; i++)
            out[i] = all[i].id;
        qsort(out, (size_t)n, sizeof *out, by_id);
        *ids = out;
        out = NULL;
    }
    mem_free(out);
    mem_free(all);
    return s;
}
