/* A client's request, read from JSON into the library's parameters. Reading it has no other effect:
 * nothing is decoded, fetched or submitted. */
#ifndef PV_SERVER_CHAT_REQUEST_H
#define PV_SERVER_CHAT_REQUEST_H

#include "media_part.h"

#include "prevue/prevue.h"

enum {
    CHAT_MAX_MESSAGES = 4096,
    CHAT_MAX_PARTS = 4096,
    CHAT_MAX_MEDIA = 64,
    CHAT_MAX_STOP = 4,
    CHAT_MAX_N = 8,
    CHAT_MAX_TOP = 20
};

/* The server's settings for requests. */
struct chat_rules {
    struct media_rules media;
    const char *model; /* the only accepted name; NULL: any */
    const struct pv_method *method;
    const struct pv_limits *limits; /* of media */
    enum pv_sandbox sandbox;        /* where they are decoded */
    int max_tokens;                 /* of one answer */
    bool has_draft, has_head;
    bool hears; /* the model has an audio encoder */
};

struct chat_media {
    struct media_part source;
    struct pv_video_params params;
};

/* Strings point into `json`. */
struct chat_request {
    void *json; /* json_t of jansson; owned */
    bool chat;  /* false: /v1/completions */
    struct pv_message *messages;
    struct pv_part *parts;
    int n_messages, n_parts;
    struct chat_media *media;
    int n_media, n_videos; /* n_videos: those that may be videos, by the type of their part */
    int n_sounds;          /* those that are sound */
    const char *prompt;    /* completions: text; NULL: `ids` */
    int32_t *ids;
    size_t n_ids;
    struct pv_gen_params gen;
    struct pv_method method;
    struct pv_chat_options options;
    struct pv_video_params video;
    const char *stop[CHAT_MAX_STOP];
    int n_stop;
    int top_logprobs; /* -1: none */
    int n;            /* number of answers */
    bool stream, include_usage;
    bool seeded;                /* `seed` was given */
    bool trace, view, progress; /* "prevue": further information requested */
    const char *user;
};

/* Reads the body, and clears it. False: *e says why. Call chat_request_clear in both cases. */
bool chat_request_read(struct chat_request *r, struct buf *body, bool chat,
                       const struct chat_rules *rules, struct api_error *e);
void chat_request_clear(struct chat_request *r);
/* Free the text of the request, which the engine has read by now. */
void chat_request_forget(struct chat_request *r);
/* A preset by its name, if the server's models can run it. False: *e says why not. */
bool chat_method_find(struct pv_method *out, const char *name, const struct chat_rules *rules,
                      struct api_error *e);
/* The text of all messages, for logs; its length is limited. */
char *chat_request_text(const struct chat_request *r);

#endif
