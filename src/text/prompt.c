/* Collecting ids and text. Memory for ids never grows past what their limit needs. */
#include "text/prompt.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/nfc.h"

#include <string.h>

void prompt_init(struct prompt *p, const struct tokenizer *t, size_t limit)
{
    *p = (struct prompt){ .t = t, .limit = limit };
    buf_init(&p->text, NFC_MAX_TEXT);
}

void prompt_clear(struct prompt *p)
{
    mem_free(p->ids);
    buf_clear(&p->text);
    prompt_init(p, p->t, p->limit);
}

static enum pv_status reserve(struct prompt *p, size_t more, struct pv_error *err)
{
    size_t need, cap, size;
    int32_t *grown;

    if (!add_size(p->n, more, &need) || need > p->limit)
        return fail(err, PV_E_LIMIT, "the prompt has more than the %zu tokens there is room for",
                    p->limit);
    if (need <= p->cap)
        return PV_OK;
    cap = p->cap > p->limit / 2 ? p->limit : p->cap * 2;
    cap = cap < need ? need : cap;
    if (!mul_size(cap, sizeof *grown, &size))
        return fail_nomem(err, SIZE_MAX);
    grown = mem_realloc(p->ids, size);
    if (!grown)
        return fail_nomem(err, size);
    p->ids = grown;
    p->cap = cap;
    return PV_OK;
}

enum pv_status prompt_text(struct prompt *p, const char *utf8, size_t len, struct pv_error *err)
{
    size_t before = p->text.len, good = utf8_prefix(utf8, len);

    if (good < len)
        return fail(err, PV_E_ARG, "the text is not UTF-8: byte 0x%02x at offset %zu of %zu",
                    (unsigned char)utf8[good], good, len);
    if (buf_add(&p->text, utf8, len))
        return PV_OK;
    p->text.failed = false;
    return before + len > NFC_MAX_TEXT || before + len < before
               ? fail(err, PV_E_LIMIT, "a text of %zu bytes is longer than the limit of %d",
                      before + len, NFC_MAX_TEXT)
               : fail_nomem(err, before + len);
}

enum pv_status prompt_flush(struct prompt *p, struct pv_error *err)
{
    size_t left = p->limit - p->n, n = 0, room;
    enum pv_status s;

    if (p->text.len == 0)
        return PV_OK;
    /* Hardly ever more tokens than bytes; when it happens, once more. */
    s = reserve(p, p->text.len < left ? p->text.len : left, err);
    if (s == PV_OK)
        s = tokenizer_encode(p->t, p->text.data, p->text.len, false, p->ids + p->n, p->cap - p->n,
                             &n, err);
    room = p->cap - p->n;
    if (s == PV_OK)
        s = reserve(p, n, err);
    if (s == PV_OK && n > room)
        s = tokenizer_encode(p->t, p->text.data, p->text.len, false, p->ids + p->n, p->cap - p->n,
                             &n, err);
    if (s)
        return s;
    p->n += n;
    buf_reset(&p->text);
    return PV_OK;
}

enum pv_status prompt_token(struct prompt *p, int32_t id, struct pv_error *err)
{
    enum pv_status s = prompt_flush(p, err);

    if (s == PV_OK)
        s = reserve(p, 1, err);
    if (s == PV_OK)
        p->ids[p->n++] = id;
    return s;
}

void prompt_rewind(struct prompt *p, size_t n)
{
    if (n < p->n)
        p->n = n;
    buf_reset(&p->text);
}
