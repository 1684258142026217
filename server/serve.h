/* `prevue serve`: serves a model over HTTP with OpenAI's chat completions protocol. This header is
 * the server's interface to the command line. */
#ifndef PV_SERVER_SERVE_H
#define PV_SERVER_SERVE_H

#include "prevue/prevue.h"

/* Strings are borrowed. */
struct serve_config {
    const char *name;             /* of the model, for clients; NULL: from its path */
    struct pv_model_params model; /* with its draft head */
    struct pv_model_params draft; /* path NULL: no draft model; `shares_with` is filled in */
    struct pv_engine_params engine;
    struct pv_method method; /* of requests that do not ask for another */
    const char *host;
    int port;
    const char *key_file;       /* NULL: no API keys */
    const char *media_path;     /* directory for file:// URLs; NULL: they are refused */
    const char *upload_dir;     /* NULL: a temporary one */
    const char *samples;        /* a directory with sample clips; NULL: none */
    const char *access_log;     /* NULL: stderr; "none": nowhere */
    const char *const *domains; /* from which media may be fetched (serve_domain_is_valid) */
    int n_domains;
    const char *const *origins; /* other sites whose pages may use the server (CORS); "*": all */
    int n_origins;
    const char *const *names; /* accepted in the Host header, besides addresses and localhost */
    int n_names;
    int max_queue;       /* requests that may wait for the engine */
    int max_connections; /* of clients */
    int max_tokens;      /* of one answer; 0: limited by the context only */
    uint64_t max_body;   /* bytes of a request's JSON */
    uint64_t max_upload; /* bytes of an uploaded file */
    uint64_t max_files;  /* bytes of all uploaded files together */
    double drain_seconds;
    double client_seconds;   /* for sending a head, and without receiving part of a reply */
    struct pv_limits media;  /* for videos and pictures; 0: those of pv_limits_server */
    enum pv_sandbox sandbox; /* where media are decoded */
    bool log_prompts;
};

/* Set the defaults of everything except the models. */
void serve_config_init(struct serve_config *c);
/* Whether `domains` can have this: HOST or HOST:PORT, with a dot before it for the hosts below. */
bool serve_domain_is_valid(const char *domain);
/* Serve until a signal ends it. Prints errors; returns an exit status. */
int serve_run(const struct serve_config *c);
/* The libraries of the server with their versions, comma-separated. */
void serve_libraries(char *out, size_t size);

#endif
