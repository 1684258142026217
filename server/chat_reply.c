/* What the client is sent: OpenAI's objects of chat and of completions, whole or in pieces. The
 * objects are written as text, because they are many and simple. */
#include "chat_call.h"

#include <string.h>

const char *chat_finish_name(enum pv_finish f)
{
    switch (f) {
    case PV_FINISH_STOP:
    case PV_FINISH_STOP_STRING:
        return "stop";
    case PV_FINISH_LENGTH:
        return "length";
    case PV_FINISH_CANCELLED:
        return "cancelled";
    case PV_FINISH_ERROR:
    case PV_FINISH_NONE:
        break;
    }
    return "error";
}

/* ---- log-probabilities ---- */

/* "token":"...","logprob":-0.1,"bytes":[..] */
static void add_token(struct buf *b, const pv_model *model, int32_t id, float logprob)
{
    size_t len = 0;
    const char *bytes = pv_token_bytes(model, id, &len);
    len = bytes ? len : 0;
    buf_puts(b, "{\"token\":");
    buf_json(b, bytes ? bytes : "", len);
    buf_printf(b, ",\"logprob\":%.6g,\"bytes\":[", (double)logprob);
    for (size_t i = 0; i < len; i++)
        buf_printf(b, i ? ",%u" : "%u", (unsigned)(unsigned char)bytes[i]);
    buf_puts(b, "]");
}

/* Of /v1/completions: four lists side by side, of which these are the entries. */
static void add_old_logprob(struct chat *ch, struct choice *c, const struct pv_token *t)
{
    const char *comma = c->logprobs.len ? "," : "";
    size_t len = 0;
    const char *bytes = pv_token_bytes(ch->s->model, t->id, &len);
    buf_puts(&c->logprobs, comma);
    buf_json(&c->logprobs, bytes ? bytes : "", bytes ? len : 0);
    buf_printf(&c->token_logprobs, "%s%.6g", comma, (double)t->logprob);
    buf_printf(&c->offsets, "%s%lld", comma, (long long)c->offset);
    buf_printf(&c->tops, "%s{", comma);
    for (int i = 0; i < t->n_top; i++) {
        const char *top = pv_token_bytes(ch->s->model, t->top[i].id, &len);
        buf_puts(&c->tops, i ? "," : "");
        buf_json(&c->tops, top ? top : "", top ? len : 0);
        buf_printf(&c->tops, ":%.6g", (double)t->top[i].logprob);
    }
    buf_puts(&c->tops, "}");
    c->offset += bytes ? (int64_t)len : 0;
}

static void add_logprob(struct chat *ch, struct choice *c, const struct pv_token *t)
{
    struct buf *b = &c->logprobs;
    buf_puts(b, b->len ? "," : "");
    add_token(b, ch->s->model, t->id, t->logprob);
    buf_puts(b, ",\"top_logprobs\":[");
    for (int i = 0; i < t->n_top; i++) {
        buf_puts(b, i ? "," : "");
        add_token(b, ch->s->model, t->top[i].id, t->top[i].logprob);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

void chat_note_token(struct chat *ch, struct choice *c, const struct pv_event *e)
{
    buf_add(&c->text, e->text, e->len);
    if (e->token.id < 0)
        return;
    c->tokens++;
    buf_printf(&c->ids, c->ids.len ? ",%d" : "%d", (int)e->token.id);
    buf_puts(&c->drafted, e->token.drafted ? "1" : "0");
    buf_printf(&c->lengths, c->lengths.len ? ",%zu" : "%zu", e->len);
    if (ch->r.top_logprobs >= 0 && ch->r.chat)
        add_logprob(ch, c, &e->token);
    else if (ch->r.top_logprobs >= 0)
        add_old_logprob(ch, c, &e->token);
}

/* ---- parts of the objects ---- */

static const char *text_of(const struct buf *b)
{
    return b->data ? b->data : "";
}

static void add_head(const struct chat *ch, const char *object, struct buf *b)
{
    buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", ch->id, object,
               (long long)ch->created);
    buf_json(b, ch->s->name, strlen(ch->s->name));
}

/* What the usage calls tokens of media. */
static const char *media_word(const struct chat_request *r)
{
    return r->n_videos ? "video" : r->n_sounds == r->n_media ? "audio" : "image";
}

static void add_usage(const struct chat *ch, struct buf *b)
{
    const struct pv_stats *s = &ch->choice[0].stats;
    long long prompt = s->prompt_tokens, answers = 0;
    for (int i = 0; i < ch->r.n; i++)
        answers += ch->choice[i].tokens;
    buf_printf(
        b,
        ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%lld",
        prompt, answers, prompt + answers, (long long)s->reused_tokens);
    if (ch->r.n_media > 0)
        buf_printf(b, ",\"multimodal_tokens\":{\"%s\":%lld}", media_word(&ch->r),
                   (long long)s->video_tokens);
    buf_puts(b, "}}");
}

static void add_logprobs(const struct chat *ch, const struct choice *c, struct buf *b)
{
    if (ch->r.top_logprobs < 0)
        buf_puts(b, ",\"logprobs\":null");
    else if (ch->r.chat)
        buf_printf(b, ",\"logprobs\":{\"content\":[%s]}", text_of(&c->logprobs));
    else
        buf_printf(b,
                   ",\"logprobs\":{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":[%s],"
                   "\"text_offset\":[%s]}",
                   text_of(&c->logprobs), text_of(&c->token_logprobs), text_of(&c->tops),
                   text_of(&c->offsets));
}

static void add_finish(const struct choice *c, bool ended, struct buf *b)
{
    if (ended)
        buf_printf(b, ",\"finish_reason\":\"%s\"", chat_finish_name(c->finish));
    else
        buf_puts(b, ",\"finish_reason\":null");
}

/* The ids of the tokens told here, which of them a drafter had proposed, and how much of the text
 * came with each. */
static void add_ids(const struct choice *c, struct buf *b)
{
    buf_printf(b, ",\"prevue\":{\"ids\":[%s],\"drafted\":\"%s\",\"lengths\":[%s]", text_of(&c->ids),
               text_of(&c->drafted), text_of(&c->lengths));
}

/* ---- objects ---- */

static void add_choice(struct chat *ch, int i, struct buf *b)
{
    struct choice *c = &ch->choice[i];
    buf_printf(b, "%s{\"index\":%d,", i ? "," : "", i);
    buf_puts(b, ch->r.chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    buf_json(b, text_of(&c->text), c->text.len);
    buf_puts(b, ch->r.chat ? "}" : "");
    add_logprobs(ch, c, b);
    add_finish(c, true, b);
    add_ids(c, b);
    chat_details(ch, c, b);
    buf_puts(b, "}}");
}

void chat_reply_whole(struct chat *ch, struct buf *b)
{
    add_head(ch, ch->r.chat ? "chat.completion" : "text_completion", b);
    buf_puts(b, ",\"choices\":[");
    for (int i = 0; i < ch->r.n; i++)
        add_choice(ch, i, b);
    buf_puts(b, "]");
    add_usage(ch, b);
    buf_puts(b, "}");
}

static const char *chunk_object(const struct chat *ch)
{
    return ch->r.chat ? "chat.completion.chunk" : "text_completion";
}

void chat_reply_chunk(struct chat *ch, int i, bool ended, struct buf *b)
{
    struct choice *c = &ch->choice[i];
    buf_puts(b, "data: ");
    add_head(ch, chunk_object(ch), b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,", i);
    if (ch->r.chat)
        buf_printf(b, "\"delta\":{%s\"content\":", c->role_sent ? "" : "\"role\":\"assistant\",");
    else
        buf_puts(b, "\"text\":");
    buf_json(b, text_of(&c->text), c->text.len);
    buf_puts(b, ch->r.chat ? "}" : "");
    add_logprobs(ch, c, b);
    add_finish(c, ended, b);
    add_ids(c, b);
    if (ended)
        chat_details(ch, c, b);
    buf_puts(b, "}}]");
    if (ch->r.include_usage)
        buf_puts(b, ",\"usage\":null");
    buf_puts(b, "}\n\n");
    c->role_sent = true;
    buf_reset(&c->text);
    buf_reset(&c->ids);
    buf_reset(&c->drafted);
    buf_reset(&c->lengths);
    buf_reset(&c->logprobs);
    buf_reset(&c->token_logprobs);
    buf_reset(&c->tops);
    buf_reset(&c->offsets);
}

void chat_reply_usage(struct chat *ch, struct buf *b)
{
    buf_puts(b, "data: ");
    add_head(ch, chunk_object(ch), b);
    buf_puts(b, ",\"choices\":[]");
    add_usage(ch, b);
    buf_puts(b, "}\n\n");
}
