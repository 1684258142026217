/* The state that the parts of the server share; and a call, which is an exchange that is handled by
 * a route. */
#ifndef PV_SERVER_SERVER_H
#define PV_SERVER_SERVER_H

#include "access_log.h"
#include "api_error.h"
#include "api_keys.h"
#include "http.h"
#include "serve.h"
#include "serve_metrics.h"
#include "upload_store.h"
#include "workers.h"

#include <stdatomic.h>

enum server_state { SERVER_LOADING, SERVER_READY, SERVER_DRAINING, SERVER_FAILED };
enum { CALL_ID_SIZE = 40, CALL_ARG_SIZE = 72 };
enum { SERVER_BODIES = 4 }; /* bodies of the greatest size that may be in memory at a time */

struct chat;

struct server {
    const struct serve_config *c;
    char name[128];  /* of the model */
    int64_t started; /* seconds since 1970 */
    enum server_state state;
    bool loaded;         /* the model is loaded (a server may be told to drain before that) */
    atomic_bool closing; /* it needs no model any more */
    struct loop *loop;
    struct http *http;
    struct workers *light, *heavy; /* for short work, and for decoding media */
    pv_model *model, *draft;
    pv_engine *engine;
    int context;             /* most tokens of a prompt and its answer */
    struct pv_limits limits; /* for media from clients */
    struct api_keys keys;
    struct metrics metrics;
    struct access_log log;
    struct upload_store *files;
    uint64_t body_bytes; /* of all bodies in memory */
    int calls;           /* number of open calls */
    /* Chat completions: the queue of those that wait for the engine, and the list of all. */
    struct chat *waiting, *last_waiting, *chats;
    int n_waiting, n_running, max_running;
};

/* What a route does with the body. */
enum body_kind { BODY_NONE, BODY_JSON, BODY_UPLOAD };

struct call;
struct route {
    const char *method, *path; /* a "*" matches one part of the path, which becomes call.arg */
    enum body_kind body;
    bool open;                   /* needs no API key */
    bool early;                  /* works before the model is loaded */
    void (*run)(struct call *c); /* called when the body is complete */
};

/* Lives until its exchange has ended and `pending` is false. */
struct call {
    struct server *s;
    struct exchange *x; /* NULL: has ended */
    const struct route *route;
    char id[CALL_ID_SIZE];
    char arg[CALL_ARG_SIZE];
    struct buf body;       /* BODY_JSON */
    uint64_t counted;      /* its share of s->body_bytes */
    struct upload *upload; /* BODY_UPLOAD */
    struct log_line line;
    /* Set by a route that replies later: called if the client disconnects before. */
    void (*left)(struct call *c);
    void *state;
    bool pending; /* a route still uses it; call_release ends that and may free it */
};

extern const struct route routes[];
extern const int n_routes;

/* Turns exchanges into calls. */
extern const struct http_handler route_handler;

/* Replies with the headers that all replies have. */
void call_reply(struct call *c, int status, const char *type, const struct buf *body);
void call_json(struct call *c, int status, const struct buf *body);
void call_fail(struct call *c, const struct api_error *e);
/* The uploaded file that the path names. If there is none, replies with an error and returns
 * false. */
bool call_file(struct call *c, struct stored_file *f);
/* Read a number from the query string; *out does not change if it is not given. */
bool call_query_number(const struct call *c, const char *name, double min, double max, double *out,
                       struct api_error *e);
void call_headers(struct call *c); /* the common headers, for other kinds of replies */
/* Free the body, which is not needed any more. */
void call_drop_body(struct call *c);
/* End `pending`. */
void call_release(struct call *c);

/* The handlers of the routes. */
void route_chat(struct call *c);
void route_completions(struct call *c);
void route_models(struct call *c);
void route_model(struct call *c);
void route_health(struct call *c);
void route_metrics(struct call *c);
void route_tokenize(struct call *c);
void route_detokenize(struct call *c);
void route_upload(struct call *c);
void route_files(struct call *c);
void route_file(struct call *c);
void route_file_delete(struct call *c);
void route_file_content(struct call *c);
void route_file_frames(struct call *c);
void route_file_sound(struct call *c);
void route_page(struct call *c);

/* Chat completions (chat_call.c). */
void chat_tick(struct server *s, double now); /* about every second: keep-alives */
void chat_cancel_all(struct server *s);

#endif
