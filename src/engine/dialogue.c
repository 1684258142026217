/* Joins tokenizer, chat template and detokenizer for a session. */
#include "engine/dialogue.h"

#include "base/mem.h"

#ifdef PV_CORE

enum pv_status dialogue_open(struct dialogue **out, const struct pv_model *m, size_t max_ids,
                             struct pv_error *err)
{
    (void)m;
    (void)max_ids;
    (void)err;
    *out = NULL;
    return PV_OK;
}

void dialogue_close(struct dialogue **d)
{
    *d = NULL;
}

static enum pv_status no_words(struct pv_error *err)
{
    return fail(err, PV_E_UNSUPPORTED,
                "this build (make CORE=1) has no tokenizer: prompts must be token ids");
}

enum pv_status dialogue_add(struct dialogue *d, bool first, const char *role,
                            const struct chat_media *media, int n_media, const char *utf8,
                            struct id_span *out, struct pv_error *err)
{
    (void)d;
    (void)first;
    (void)role;
    (void)media;
    (void)n_media;
    (void)utf8;
    (void)out;
    return no_words(err);
}

enum pv_status dialogue_set_options(struct dialogue *d, const struct pv_chat_options *o,
                                    struct pv_error *err)
{
    (void)d;
    return o->no_thinking ? no_words(err) : PV_OK;
}

enum pv_status dialogue_ask(struct dialogue *d, struct id_span *out, struct pv_error *err)
{
    (void)d;
    (void)out;
    return no_words(err);
}

enum pv_status dialogue_end(struct dialogue *d, struct id_span *out, struct pv_error *err)
{
    (void)d;
    (void)out;
    return no_words(err);
}

const char *dialogue_text(struct dialogue *d, int32_t id, bool last, size_t *len)
{
    (void)d;
    (void)id;
    (void)last;
    *len = 0;
    return "";
}

#else

#include "text/detok.h"

#include <string.h>

enum { TEXT_LIMIT = 1 << 20 }; /* bytes one token may complete */

struct dialogue {
    const struct tokenizer *t;
    struct chat chat;
    enum pv_status chat_status; /* why the template cannot be used; reported when it is needed */
    struct pv_error chat_error;
    bool no_thinking;
    struct prompt prompt;
    struct detok detok;
    struct buf text;
};

enum pv_status dialogue_open(struct dialogue **out, const struct pv_model *m, size_t max_ids,
                             struct pv_error *err)
{
    struct dialogue *d;
    *out = NULL;
    if (!m->tokenizer)
        return PV_OK;
    d = mem_zalloc(sizeof *d);
    if (!d)
        return fail_nomem(err, sizeof *d);
    d->t = m->tokenizer;
    d->chat_status = chat_init(&d->chat, d->t, model_file_vocab(m->file), &d->chat_error);
    if (d->chat_status == PV_E_NOMEM) { /* not the template's fault */
        fail(err, PV_E_NOMEM, "%s", d->chat_error.text);
        mem_free(d);
        return PV_E_NOMEM;
    }
    prompt_init(&d->prompt, d->t, max_ids);
    detok_init(&d->detok, d->t);
    buf_init(&d->text, TEXT_LIMIT);
    *out = d;
    return PV_OK;
}

void dialogue_close(struct dialogue **d)
{
    if (!*d)
        return;
    prompt_clear(&(*d)->prompt);
    buf_clear(&(*d)->text);
    mem_free(*d);
    *d = NULL;
}

static enum pv_status ready(struct dialogue *d, struct pv_error *err)
{
    if (!d)
        return fail(err, PV_E_UNSUPPORTED, "the model has no tokenizer: prompts must be token ids");
    if (d->chat_status)
        return fail(err, d->chat_status, "%s", d->chat_error.text);
    prompt_rewind(&d->prompt, 0);
    return PV_OK;
}

/* Finish what chat_* wrote and return it. */
static enum pv_status finish(struct dialogue *d, enum pv_status s, struct id_span *out,
                             struct pv_error *err)
{
    if (!s)
        s = prompt_flush(&d->prompt, err);
    if (!s)
        *out = (struct id_span){ d->prompt.ids, d->prompt.n };
    return s;
}

enum pv_status dialogue_add(struct dialogue *d, bool first, const char *role,
                            const struct chat_media *media, int n_media, const char *utf8,
                            struct id_span *out, struct pv_error *err)
{
    enum pv_status s = ready(d, err);
    if (s)
        return s;
    s = chat_add_media(&d->chat, &d->prompt, first, role, media, n_media, utf8, strlen(utf8), err);
    return finish(d, s, out, err);
}

enum pv_status dialogue_set_options(struct dialogue *d, const struct pv_chat_options *o,
                                    struct pv_error *err)
{
    enum pv_status s = o->no_thinking ? ready(d, err) : PV_OK;
    if (s)
        return s;
    if (o->no_thinking && d->chat.thinking == CHAT_THINK_ALWAYS)
        return fail(err, PV_E_UNSUPPORTED,
                    "the model's chat template begins every answer with thinking and has no switch "
                    "for it");
    if (d)
        d->no_thinking = o->no_thinking;
    return PV_OK;
}

enum pv_status dialogue_ask(struct dialogue *d, struct id_span *out, struct pv_error *err)
{
    enum pv_status s = ready(d, err);
    if (s)
        return s;
    return finish(d, chat_ask(&d->chat, &d->prompt, !d->no_thinking, err), out, err);
}

enum pv_status dialogue_end(struct dialogue *d, struct id_span *out, struct pv_error *err)
{
    enum pv_status s = ready(d, err);
    if (s)
        return s;
    return finish(d, chat_end(&d->chat, &d->prompt, err), out, err);
}

const char *dialogue_text(struct dialogue *d, int32_t id, bool last, size_t *len)
{
    *len = 0;
    if (!d)
        return "";
    buf_reset(&d->text);
    if (!(last ? detok_flush(&d->detok, &d->text) : detok_push(&d->detok, id, &d->text)))
        return NULL;
    *len = d->text.len;
    return d->text.len ? d->text.data : "";
}

#endif
