/* prevue serve: the options of the server. What it does is in server/. */
#include "method_args.h"
#include "option_groups.h"
#include "start_ranks.h"
#include "video_args.h"

#include "base/file.h"
#ifndef PV_CORE
#include "server/serve.h"
#endif

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct serve_args {
    const char *name, *host, *key_file, *media_path, *upload_dir, *access_log, *samples;
    struct arg_list domains, origins, names;
    int port, max_requests, max_queue, max_connections, max_tokens;
    uint64_t kv_memory, max_body, max_upload, max_files;
    double drain_seconds, client_seconds;
    bool log_prompts, no_sandbox;
    struct method_args method;
    struct model_args model;
    struct session_args session;
    struct cache_args cache;
    struct limit_args limits;
};

#define AT(field) offsetof(struct serve_args, field)

static const struct option serve_table[] = {
    { "host", 0, NULL, OPTION_STRING, AT(host), 0, 0, "HOST",
      "Address to listen on. Default: 127.0.0.1, this machine only.", NULL },
    { "port", 0, NULL, OPTION_INT, AT(port), 0, 65535, "N",
      "Port to listen on; 0 takes a free one, which is printed. Default: 8080.", NULL },
    { "served-name", 0, "--alias --served-model-name", OPTION_TEXT, AT(name), 0, 0, "NAME",
      "What clients call the model. Default: the name of its file or directory.", NULL },
    { "api-key-file", 0, NULL, OPTION_STRING, AT(key_file), 0, 0, "FILE",
      "Keys of clients, one on each line. Without it no key is needed.", NULL },
    { "cors-origin", 0, NULL, OPTION_LIST, AT(origins), 0, 0, "ORIGIN",
      "Allow pages of this origin (https://example.org, or * for all) to use the server from a "
      "browser; may be given many times. Default: none.",
      NULL },
    { "allow-host", 0, NULL, OPTION_LIST, AT(names), 0, 0, "NAME",
      "Also accept requests with this host name; may be given many times. A server without API "
      "keys that listens on this machine only accepts IP addresses and localhost; a proxy may pass "
      "on another name. Default: none.",
      NULL },
    { "media-path", 0, NULL, OPTION_STRING, AT(media_path), 0, 0, "DIR",
      "Allow file:// URLs of media below this directory. Default: none are allowed.", NULL },
    { "allow-domain", 0, "--allowed-media-domains", OPTION_LIST, AT(domains), 0, 0, "DOMAIN",
      "Allow http(s) URLs of media from this host, on the usual port or, as HOST:PORT, on another "
      "one; may be given many times. Addresses of private networks are refused even then. "
      "Default: none are allowed.",
      NULL },
    { "no-sandbox", 0, NULL, OPTION_FLAG, AT(no_sandbox), 0, 0, NULL,
      "Decode media without a sandbox. By default the process that decodes them cannot open "
      "files or use the network; if it cannot be started, media are refused.",
      NULL },
    { "upload-dir", 0, NULL, OPTION_STRING, AT(upload_dir), 0, 0, "DIR",
      "Where uploaded files are kept, also after the server has ended. Several servers may share "
      "the "
      "directory: each finds the files of the others. Default: a temporary directory.",
      NULL },
    { "samples", 0, NULL, OPTION_STRING, AT(samples), 0, 0, "DIR",
      "A directory with .mp4 clips that the page offers to try. Default: samples/ with the default "
      "model.",
      NULL },
    { "access-log", 0, NULL, OPTION_STRING, AT(access_log), 0, 0, "FILE",
      "Append one line of JSON for each request to this file; \"none\": no log. Default: stderr.",
      NULL },
    { "log-prompts", 0, NULL, OPTION_FLAG, AT(log_prompts), 0, 0, NULL,
      "Also write the text of prompts to the access log.", NULL },
};

static const struct option bound_table[] = {
    { "max-requests", 0, "-np --parallel --max-num-seqs", OPTION_INT, AT(max_requests), 1, 64, "N",
      "Requests that the engine runs at the same time; others wait. Default: 16.", NULL },
    { "max-queue", 0, NULL, OPTION_INT, AT(max_queue), 1, 1 << 20, "N",
      "Requests that may wait; more are refused with status 503. Default: 4096.", NULL },
    { "max-connections", 0, NULL, OPTION_INT, AT(max_connections), 1, 1 << 20, "N",
      "Connections of clients. Default: 4096.", NULL },
    { "max-tokens", 'n', "--predict --n-predict", OPTION_INT, AT(max_tokens), 1, 1 << 24, "N",
      "Tokens of one answer, at most. Default: what the context has room for.", NULL },
    { "kv-memory", 0, NULL, OPTION_BYTES, AT(kv_memory), 0, 0, "BYTES",
      "Memory for the keys and values of all requests together; K, M, G and T may follow. Default: "
      "one context.",
      NULL },
    { "max-body", 0, NULL, OPTION_BYTES, AT(max_body), 0, 0, "BYTES",
      "Size of a request without uploads; media in data: URLs are part of it. Default: 64M.",
      NULL },
    { "max-upload", 0, NULL, OPTION_BYTES, AT(max_upload), 0, 0, "BYTES",
      "Size of one uploaded file. Default: 512M.", NULL },
    { "max-files", 0, NULL, OPTION_BYTES, AT(max_files), 0, 0, "BYTES",
      "Size of all uploaded files together. Default: 16G.", NULL },
    { "client-timeout", 0, NULL, OPTION_NUMBER, AT(client_seconds), 0.1, 1e6, "S",
      "Disconnect a client that takes longer than this to send the headers of a request, or that "
      "reads nothing of a reply for as long. Default: 30.",
      NULL },
    { "drain-seconds", 0, NULL, OPTION_NUMBER, AT(drain_seconds), 0, 1e6, "S",
      "Seconds that running answers have to finish after SIGTERM; a second signal ends them. "
      "Default: "
      "30.",
      NULL },
};

static const struct option_group serve_groups[] = {
    { "server", serve_table, sizeof serve_table / sizeof *serve_table, 0, SHORT_ALL },
    { "bounds", bound_table, sizeof bound_table / sizeof *bound_table, 0, SHORT_ALL },
    RUN_GROUPS(struct serve_args),
    { "media", limit_table, N_LIMIT_OPTIONS, AT(limits), SHORT_NONE },
};

const struct option_set serve_options = {
    .command = "serve",
    .usage = "[-m MODEL] [-d DRAFT | --head HEAD] [--port N] [OPTIONS]",
    .about =
        "Serves a model over HTTP: OpenAI's chat completions with videos and pictures, file "
        "uploads, metrics for Prometheus, and a web page at /. Many requests share the model; "
        "the text of an answer does not depend on the others, nor on how tokens are drafted. "
        "It uses plain HTTP: put a reverse proxy with TLS in front of it before you expose it to "
        "others. SIGTERM lets running answers finish. Limits on media (--limit-...) are stricter "
        "here than elsewhere unless they are given: 512 MiB and an hour a video, 4096 x 4096 "
        "pixels, 512 frames, 300 seconds to decode it. doc/serving.md has the protocol.",
    .groups = serve_groups,
    .n_groups = sizeof serve_groups / sizeof *serve_groups,
    .examples = "  prevue serve\n"
                "  prevue serve -m qwen2.5-vl-7b -d qwen2.5-vl-3b --port 9000 --cache-dir cache\n"
                "  prevue serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt\n",
};

#ifdef PV_CORE

int cmd_serve(int argc, char **argv)
{
    struct serve_args a = { .method = METHOD_DEFAULTS };
    int r = options_parse(&serve_options, &a, argc, argv, NULL);
    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    return report("this build has no server: it was made with CORE=1, without the libraries for "
                  "HTTP and JSON");
}

#else

/* The samples beside the default model's directory, "models". */
static const char *find_samples(const struct serve_args *a, const struct pv_model_params *mp)
{
    static const char dir[] = "models/";
    static char path[4096];
    const char *name = strrchr(mp->path, '/'), *models;
    if (a->samples || a->model.model || !name)
        return a->samples;
    models = name + 2 - sizeof dir;
    if (models < mp->path || strncmp(models, dir, sizeof dir - 1) != 0)
        return NULL;
    snprintf(path, sizeof path, "%.*ssamples", (int)(models - mp->path), mp->path);
    return file_is_dir(path) ? path : NULL;
}

static void set_bounds(const struct serve_args *a, struct serve_config *c)
{
    c->max_queue = a->max_queue ? a->max_queue : c->max_queue;
    c->max_connections = a->max_connections ? a->max_connections : c->max_connections;
    c->max_tokens = a->max_tokens;
    c->max_body = a->max_body ? a->max_body : c->max_body;
    c->max_upload = a->max_upload ? a->max_upload : c->max_upload;
    c->max_files = a->max_files ? a->max_files : c->max_files;
    c->drain_seconds = a->drain_seconds;
    c->client_seconds = a->client_seconds;
    c->engine.max_requests = a->max_requests;
    c->engine.max_context = a->session.context;
    c->engine.chunk = a->session.chunk;
    c->engine.kv_type = (enum pv_kv_type)a->session.kv_type;
    c->engine.kv_bytes = a->kv_memory;
    c->engine.speculate = true;
    c->engine.cache = cache_args_params(&a->cache);
}

static int configure(const struct serve_args *a, struct serve_config *c)
{
    const char *draft;
    int r = model_args_check(&a->model, "serve", &c->model);
    if (r == OPTIONS_RUN)
        r = cache_args_check(&a->cache, "serve");
    if (r == OPTIONS_RUN && a->method.lossy)
        r = options_misuse("serve", "--lossy is not for a server, whose clients could not tell its "
                                    "answers from the model's own");
    if (r == OPTIONS_RUN)
        r = method_args_check(&a->method, &a->session, "serve", &c->model, &c->method, &draft);
    if (r != OPTIONS_RUN)
        return r;
    c->model.limits.memory_bytes = a->session.memory;
    limit_args_set(&a->limits, &c->media);
    /* Requests may ask for any method that the models allow. */
    set_head(&a->method, &c->model, method_args_head(&a->method, &c->model));
    c->draft = c->model;
    c->draft.path = method_args_draft(&a->method, &c->model);
    c->draft.mmproj = a->method.draft_mmproj;
    c->draft.head = NULL;
    c->draft.draft_vocab = a->method.draft_vocab;
    c->draft.draft_text = a->method.draft_text;
    set_draft_vision(&a->method, &c->draft);
    c->draft.device = a->method.draft_device ? a->method.draft_device : c->model.device;
    c->draft.ranks = draft_ranks() ? draft_ranks() : c->model.ranks;
    c->name = a->name;
    c->host = a->host ? a->host : c->host;
    c->port = a->port;
    c->key_file = a->key_file;
    c->media_path = a->media_path;
    c->upload_dir = a->upload_dir;
    c->access_log = a->access_log;
    c->samples = find_samples(a, &c->model);
    c->domains = a->domains.items;
    c->n_domains = a->domains.n;
    c->origins = a->origins.items;
    c->n_origins = a->origins.n;
    c->names = a->names.items;
    c->n_names = a->names.n;
    c->log_prompts = a->log_prompts;
    c->sandbox = a->no_sandbox ? PV_SANDBOX_OFF : PV_SANDBOX_ON;
    set_bounds(a, c);
    return OPTIONS_RUN;
}

int cmd_serve(int argc, char **argv)
{
    struct serve_args a = {
        .port = 8080, .drain_seconds = 30, .client_seconds = 30, .method = METHOD_DEFAULTS
    };
    struct serve_config c;
    int r = options_parse(&serve_options, &a, argc, argv, NULL);
    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (a.media_path && !file_is_dir(a.media_path))
        return options_misuse("serve", "--media-path: there is no directory \"%s\"", a.media_path);
    if (a.samples && !file_is_dir(a.samples))
        return options_misuse("serve", "--samples: there is no directory \"%s\"", a.samples);
    for (int i = 0; i < a.domains.n; i++)
        if (!serve_domain_is_valid(a.domains.items[i]))
            return options_misuse("serve",
                                  "--allow-domain: expected a host, such as example.org, "
                                  "example.org:8080 or .example.org, but found \"%s\"",
                                  a.domains.items[i]);
    serve_config_init(&c);
    r = configure(&a, &c);
    return r == OPTIONS_RUN ? serve_run(&c) : r;
}

#endif
