/* A chat completion in progress: from the body of the HTTP request to the engine and back. */
#ifndef PV_SERVER_CHAT_CALL_H
#define PV_SERVER_CHAT_CALL_H

#include "chat_request.h"
#include "server.h"

#include <stdatomic.h>

/* One of the n answers of a call. */
struct choice {
    pv_request *request;                      /* NULL: not submitted */
    struct buf text;                          /* so far; in a stream: not sent yet */
    struct buf ids;                           /* "1,2,3" */
    struct buf drafted;                       /* "010": for each token, whether it was drafted */
    struct buf lengths;                       /* "3,1,4": bytes of text that came with each token */
    struct buf logprobs;                      /* entries of the list, comma-separated */
    struct buf token_logprobs, tops, offsets; /* the same for /v1/completions */
    int64_t offset;                           /* bytes of the tokens so far */
    int64_t tokens;                           /* number of tokens so far */
    bool ended, role_sent;
    enum pv_finish finish;
    enum pv_status status;
    struct pv_stats stats;
};

enum chat_stage {
    CHAT_PARSES,  /* a worker reads the body */
    CHAT_WAITS,   /* for its turn */
    CHAT_SUBMITS, /* a worker decodes media and submits the requests */
    CHAT_RUNS,
    CHAT_OVER
};

struct chat {
    struct chat *next, *prev;  /* in the list of all */
    struct chat *next_waiting; /* in the queue */
    struct server *s;
    struct call *call;
    struct chat_rules rules;
    struct chat_request r;
    enum chat_stage stage;
    struct work work;
    struct loop_task wake; /* posted when the engine has new events */
    atomic_bool left;      /* the client has disconnected */
    struct api_error error;
    struct choice choice[CHAT_MAX_N];
    char id[CALL_ID_SIZE];
    int64_t created;
    double begun, submitted, first_token, last_token; /* clock_now() */
    double wrote;                                     /* last time data was sent to the client */
    bool slots;                                       /* counted in server.n_running */
    bool streaming;                                   /* the head of the reply is sent */
    struct pv_event progress;                         /* the newest one of kind PROGRESS */
    bool has_progress;
};

/* ---- chat_submit.c: on a worker ---- */

/* Decode media and submit the requests; errors are in ch->error. */
void chat_submit(struct chat *ch);

/* ---- chat_reply.c: the JSON that is sent to the client ---- */

/* Record a token and its text for the next message. */
void chat_note_token(struct chat *ch, struct choice *c, const struct pv_event *e);
/* The complete reply. */
void chat_reply_whole(struct chat *ch, struct buf *b);
/* The next chunk of a stream, for answer i; `end`: its last one. */
void chat_reply_chunk(struct chat *ch, int i, bool end, struct buf *b);
/* The chunk with the usage, which has no choices. */
void chat_reply_usage(struct chat *ch, struct buf *b);
const char *chat_finish_name(enum pv_finish f);

/* ---- chat_details.c: the object "prevue" of a reply ---- */

void chat_details(const struct chat *ch, struct choice *c, struct buf *b);

#endif
