/* `prevue serve`: models behind HTTP, in the protocol of OpenAI's chat completions. This header is
 * what the command line sees. */
#ifndef PV_SERVER_SERVE_H
#define PV_SERVER_SERVE_H

#include "prevue/prevue.h"

/* Strings are borrowed. */
struct serve_config {
    const char *name;             /* of the model, for clients; NULL: from its path */
    struct pv_model_params model; /* with its head */
    struct pv_model_params draft; /* path NULL: no draft model; `shares_with` is filled in */
    struct pv_engine_params engine;
    struct pv_method method; /* of requests that do not ask for another */
    const char *host;
    int port;
    const char *key_file;       /* NULL: no keys */
    const char *media_path;     /* for file:// URLs; NULL: none are allowed */
    const char *upload_dir;     /* NULL: a temporary one */
    const char *samples;        /* a directory with clips to try; NULL: none */
    const char *access_log;     /* NULL: stderr; "none": nowhere */
    const char *const *domains; /* that media may come from */
    int n_domains;
    const char *const *origins; /* of pages of others that may ask (CORS); "*": all */
    int n_origins;
    const char *const
        *names; /* that requests may give as their host, beside addresses and localhost */
    int n_names;
    int max_queue;       /* requests that wait for the engine */
    int max_connections; /* of clients */
    int max_tokens;      /* of one answer; 0: what the context has room for */
    uint64_t max_body;   /* bytes of a request's JSON */
    uint64_t max_upload; /* bytes of an uploaded file, */
    uint64_t max_files;  /* and of all together */
    double drain_seconds;
    double client_seconds;   /* to send a head, or without taking anything of a reply */
    struct pv_limits media;  /* of videos and pictures; 0: those of pv_limits_server */
    enum pv_sandbox sandbox; /* where media are decoded */
    bool log_prompts;
};

/* The defaults of all that is not a model's. */
void serve_config_init(struct serve_config *c);
/* Serves until a signal ends it. Returns an exit status; what was wrong has been printed. */
int serve_run(const struct serve_config *c);
/* The libraries of the server with their versions, separated by commas. */
void serve_libraries(char *out, size_t size);

#endif
