/* Chat templates, natively: messages to token ids.
 *
 * The stored template is a Jinja program. It is not run: it is recognised, by what it contains, as
 * one of the forms the model families use, and refused when it is none of them. */
#ifndef PV_TEXT_CHAT_H
#define PV_TEXT_CHAT_H

#include "text/prompt.h"

enum chat_kind {
    CHAT_NONE,   /* no template and no role marks: text is used as it is */
    CHAT_CHATML, /* <|im_start|>ROLE\nTEXT<|im_end|>\n: Qwen2, 2.5, 3, their VL models */
    CHAT_LLAVA   /* <|im_start|>ROLE <image>\nTEXT<|im_end|>: LLaVA-OneVision as on the hub */
};

enum chat_thinking {
    CHAT_THINK_NEVER,  /* the template knows no thinking */
    CHAT_THINK_SWITCH, /* Qwen3: on unless switched off by an empty <think> block */
    CHAT_THINK_ALWAYS  /* the answer begins inside a <think> block */
};

enum { CHAT_MAX_SYSTEM = 1024 };

struct chat {
    const struct tokenizer *t; /* borrowed */
    enum chat_kind kind;
    enum chat_thinking thinking;
    bool strip_thinking;          /* earlier answers are shown without their thoughts */
    bool text_lined;              /* a newline before a message's text */
    bool media_lined;             /* a newline after each media item that has no marks around it */
    bool images_first;            /* of a message's media; else they stand as given */
    bool turn_lined;              /* a newline after <|im_end|> */
    int32_t im_start, im_end;     /* -1 in CHAT_NONE */
    char system[CHAT_MAX_SYSTEM]; /* default system message, "" for none */
};

/* Recognise the template of a vocabulary. PV_E_UNSUPPORTED when it is not one of ours. */
enum pv_status chat_init(struct chat *c, const struct tokenizer *t, const struct vocab *v,
                         struct pv_error *err);

/* Append one message, role "system", "user" or "assistant". `first`: the prompt begins with it, so
 * the default system message goes before it unless it is one itself. The prompt is unchanged on
 * failure, here and below. Nothing in the text is taken for a role mark. */
enum pv_status chat_add(const struct chat *c, struct prompt *p, bool first, const char *role,
                        const char *text, size_t len, struct pv_error *err);

/* A video or a picture in a message. */
struct chat_media {
    bool video;
    int32_t row_id; /* put n_rows times; negative: the caller's mark of a row with no token */
    int n_rows;
    int run_rows;                /* rows that follow one another; 0: all of them */
    int32_t before, after;       /* tokens put around each run, -1 for none */
    const char *const *captions; /* text before each run; NULL: none */
    const char *note;            /* text after the media item, on a line of its own; NULL: none */
};

/* chat_add with media before the text, in the order and with the newlines of the template; the
 * marks around the rows are the caller's. */
enum pv_status chat_add_media(const struct chat *c, struct prompt *p, bool first, const char *role,
                              const struct chat_media *media, int n_media, const char *text,
                              size_t len, struct pv_error *err);

/* A part of a message: a media item, or text. */
struct chat_part {
    const struct chat_media *media; /* NULL: text */
    const char *text;
    size_t len;
};

/* chat_add of parts, media anywhere between texts. They stand as given, or as the template sorts
 * them. A video with text inside, as Qwen3-VL's with its seconds, is one part with captions. Of an
 * earlier answer only what follows its thoughts is written, where the template says so. */
enum pv_status chat_add_parts(const struct chat *c, struct prompt *p, bool first, const char *role,
                              const struct chat_part *parts, int n_parts, struct pv_error *err);

/* Append what comes before an answer. `think` matters for CHAT_THINK_SWITCH. */
enum pv_status chat_ask(const struct chat *c, struct prompt *p, bool think, struct pv_error *err);
/* Append what comes after an answer that the model has given. */
enum pv_status chat_end(const struct chat *c, struct prompt *p, struct pv_error *err);

/* chat_add in three steps, for messages that have more in them than text: between these two,
 * prompt_token and prompt_text. The caller rewinds on failure. */
enum pv_status chat_open_turn(const struct chat *c, struct prompt *p, bool first, const char *role,
                              struct pv_error *err);
enum pv_status chat_close_turn(const struct chat *c, struct prompt *p, struct pv_error *err);

#endif
