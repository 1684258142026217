/* Chat templates: turns messages into token ids.
 *
 * A model file stores its template as a Jinja program. We do not execute it. We recognise it, by
 * what it contains, as one of the forms that the supported families use, and refuse all others. */
#ifndef PV_TEXT_CHAT_H
#define PV_TEXT_CHAT_H

#include "text/prompt.h"

enum chat_kind {
    CHAT_NONE,   /* no template and no role tokens: text is used as it is */
    CHAT_CHATML, /* <|im_start|>ROLE\nTEXT<|im_end|>\n: Qwen2, 2.5, 3, their VL models */
    CHAT_LLAVA   /* <|im_start|>ROLE <image>\nTEXT<|im_end|>: LLaVA-OneVision as on the hub */
};

enum chat_thinking {
    CHAT_THINK_NEVER,  /* the template has no <think> blocks */
    CHAT_THINK_SWITCH, /* Qwen3: on unless switched off by an empty <think> block */
    CHAT_THINK_ALWAYS  /* the answer begins inside a <think> block */
};

enum { CHAT_MAX_SYSTEM = 1024 };

struct chat {
    const struct tokenizer *t; /* borrowed */
    enum chat_kind kind;
    enum chat_thinking thinking;
    bool strip_thinking;          /* earlier answers are repeated without their <think> blocks */
    bool text_lined;              /* a newline before a message's text */
    bool media_lined;             /* a newline after each media item without tokens around it */
    bool images_first;            /* a message's images precede its videos; else in given order */
    bool turn_lined;              /* a newline after <|im_end|> */
    int32_t im_start, im_end;     /* -1 in CHAT_NONE */
    char system[CHAT_MAX_SYSTEM]; /* default system message, "" for none */
};

/* Recognise the template of a vocabulary. PV_E_UNSUPPORTED if it is none of the known forms. */
enum pv_status chat_init(struct chat *c, const struct tokenizer *t, const struct vocab *v,
                         struct pv_error *err);

/* A video or a picture in a message. */
struct chat_media {
    bool video;
    int32_t
        row_id; /* inserted n_rows times; negative: the caller's code for rows without a token */
    int n_rows;
    int run_rows;                /* consecutive rows of a run; 0: one run of all rows */
    int32_t before, after;       /* tokens before and after each run, -1: none */
    const char *const *captions; /* text before each run; NULL: none */
    const char *note;            /* text after the media item, on a line of its own; NULL: none */
};

/* Append one message, role "system", "user" or "assistant": media, in the order and with the
 * newlines of the template, then the text. `first`: it begins the prompt, so the default system
 * message is put before it unless its role is "system". The prompt is unchanged on failure, here
 * and below. Spellings of control tokens in the text stay plain text. */
enum pv_status chat_add_media(const struct chat *c, struct prompt *p, bool first, const char *role,
                              const struct chat_media *media, int n_media, const char *text,
                              size_t len, struct pv_error *err);

/* A part of a message: a media item, or text. */
struct chat_part {
    const struct chat_media *media; /* NULL: text */
    const char *text;
    size_t len;
};

/* The same for a message of several parts, with media between texts. The parts keep their order
 * unless the template sorts them. A video with text inside, like Qwen3-VL's timestamps, is one part
 * with captions. If the template says so, the <think> block of an earlier answer is omitted. */
enum pv_status chat_add_parts(const struct chat *c, struct prompt *p, bool first, const char *role,
                              const struct chat_part *parts, int n_parts, struct pv_error *err);

/* Append the tokens that start an answer. `think` is used with CHAT_THINK_SWITCH only. */
enum pv_status chat_ask(const struct chat *c, struct prompt *p, bool think, struct pv_error *err);
/* Append the tokens that follow an answer of the model. */
enum pv_status chat_end(const struct chat *c, struct prompt *p, struct pv_error *err);

#endif
