/* From exchanges to calls: which route, whether the key is right, whether the server can take it,
 * and where the body goes. Everything is refused as early as possible. */
#include "host_rules.h"
#include "json_memory.h"
#include "server.h"
#include "unique_id.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MAX_REPLY = 256 << 20 };

const struct route routes[] = {
    { "POST", "/v1/chat/completions", BODY_JSON, false, false, route_chat },
    { "POST", "/v1/completions", BODY_JSON, false, false, route_completions },
    { "GET", "/v1/models", BODY_NONE, false, true, route_models },
    { "GET", "/v1/models/*", BODY_NONE, false, true, route_model },
    { "POST", "/v1/files", BODY_UPLOAD, false, true, route_upload },
    { "GET", "/v1/files", BODY_NONE, false, true, route_files },
    { "GET", "/v1/files/*", BODY_NONE, false, true, route_file },
    { "DELETE", "/v1/files/*", BODY_NONE, false, true, route_file_delete },
    { "GET", "/v1/files/*/content", BODY_NONE, false, true, route_file_content },
    { "GET", "/v1/files/*/frames", BODY_NONE, false, false, route_file_frames },
    { "GET", "/v1/files/*/sound", BODY_NONE, false, false, route_file_sound },
    { "POST", "/tokenize", BODY_JSON, false, false, route_tokenize },
    { "POST", "/detokenize", BODY_JSON, false, false, route_detokenize },
    { "GET", "/health", BODY_NONE, true, true, route_health },
    { "GET", "/metrics", BODY_NONE, false, true, route_metrics },
    { "GET", "/", BODY_NONE, true, true, route_page },
    { "GET", "/page/*", BODY_NONE, true, true, route_page },
};
const int n_routes = sizeof routes / sizeof *routes;

/* ---- replies ---- */

static const char *allowed_origin(const struct call *c)
{
    const char *origin = exchange_header(c->x, "Origin");
    for (int i = 0; origin && i < c->s->c->n_origins; i++) {
        const char *o = c->s->c->origins[i];
        if (!strcmp(o, "*") || !strcasecmp(o, origin))
            return o;
    }
    return NULL;
}

void call_headers(struct call *c)
{
    const char *origin = allowed_origin(c);
    exchange_set(c->x, "X-Request-Id", c->id);
    exchange_set(c->x, "X-Content-Type-Options", "nosniff");
    if (origin) {
        exchange_set(c->x, "Access-Control-Allow-Origin", origin);
        exchange_set(c->x, "Vary", "Origin");
    }
}

void call_reply(struct call *c, int status, const char *type, const struct buf *body)
{
    if (!c->x)
        return;
    call_headers(c);
    if (body->failed) {
        static const char sentence[] = "{\"error\":{\"message\":\"the reply is too long\",\"type\":"
                                       "\"server_error\",\"param\":null,\"code\":500}}";
        exchange_reply(c->x, 500, "application/json", sentence, sizeof sentence - 1);
        return;
    }
    exchange_reply(c->x, status, type, body->data ? body->data : "", body->len);
}

void call_json(struct call *c, int status, const struct buf *body)
{
    call_reply(c, status, "application/json", body);
}

void call_fail(struct call *c, const struct api_error *e)
{
    struct buf b;
    if (!c->x)
        return;
    upload_abandon(&c->upload); /* who reads the reply finds nothing of it any more */
    snprintf(c->line.error, sizeof c->line.error, "%s", e->message);
    buf_init(&b, MAX_REPLY);
    api_error_json(&b, e);
    if (e->status == 503 || e->status == 429)
        exchange_set(c->x, "Retry-After", "2");
    if (e->status == 401)
        exchange_set(c->x, "WWW-Authenticate", "Bearer");
    call_json(c, e->status, &b);
    buf_clear(&b);
}

/* ---- finding the route ---- */

/* `*` stands for the characters up to the next slash. */
static bool path_matches(const char *pattern, const char *path, char arg[CALL_ARG_SIZE])
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : 0, n;
    if (!star)
        return strcmp(pattern, path) == 0;
    if (strncmp(pattern, path, head) != 0)
        return false;
    n = strcspn(path + head, "/");
    if (n == 0 || n >= CALL_ARG_SIZE || strcmp(star + 1, path + head + n) != 0)
        return false;
    memcpy(arg, path + head, n);
    arg[n] = 0;
    return true;
}

static const struct route *find_route(struct call *c, bool *path_known)
{
    const char *method = strcmp(c->x->method, "HEAD") ? c->x->method : "GET";
    *path_known = false;
    for (int i = 0; i < n_routes; i++) {
        if (!path_matches(routes[i].path, c->x->path, c->arg))
            continue;
        *path_known = true;
        if (!strcmp(routes[i].method, method))
            return &routes[i];
    }
    return NULL;
}

/* ---- whether it is taken ---- */

static bool check_key(struct call *c, struct api_error *e)
{
    const char *bearer = exchange_header(c->x, "Authorization");
    const char *key = exchange_header(c->x, "X-Api-Key");
    if (bearer && !strncasecmp(bearer, "Bearer ", 7))
        key = bearer + 7;
    if (api_keys_allow(&c->s->keys, key))
        return true;
    e->code = "invalid_api_key";
    return api_fail(e, 401, NULL,
                    "%s: send one as \"Authorization: Bearer KEY\" or \"X-Api-Key: KEY\"",
                    key ? "this API key is not known" : "an API key is missing");
}

/* A browser sends simple POST requests for pages of any origin without asking first, and tells so
 * in Sec-Fetch-Site, or over plain HTTP to other machines in Origin alone. The page could not read
 * the reply, but the request would have been done. */
static bool check_site(const struct call *c, struct api_error *e)
{
    const char *site = exchange_header(c->x, "Sec-Fetch-Site");
    const char *origin = exchange_header(c->x, "Origin"), *host = exchange_header(c->x, "Host");
    bool other = site ? strcasecmp(site, "same-origin") && strcasecmp(site, "none")
                      : origin && !host_is_origin(host, origin);
    if (!other || !strcmp(c->route->method, "GET") || allowed_origin(c))
        return true;
    return api_fail(e, 403, NULL,
                    "pages of other origins may not use this server: --cors-origin allows them");
}

/* Keys keep pages from elsewhere out by themselves, and who listens on other addresses has clients
 * that know it by names of their own. */
static bool check_host(const struct call *c, struct api_error *e)
{
    const struct serve_config *conf = c->s->c;
    const char *host = exchange_header(c->x, "Host");
    if (conf->key_file || !host_is_loopback(conf->host) ||
        host_is_known(host, conf->names, conf->n_names))
        return true;
    return api_fail(e, 403, NULL, "this server is not known as %.200s: --allow-host allows a name",
                    host);
}

/* While it drains the server listens no more, so a connection without a request so far is older
 * than that: its client could not know, and is served. */
static bool check_state(const struct call *c, struct api_error *e)
{
    bool taken = c->route->body == BODY_NONE || c->x->first;
    switch (c->s->state) {
    case SERVER_READY:
        return true;
    case SERVER_LOADING:
        return c->route->early || api_fail(e, 503, NULL, "the model is being loaded");
    case SERVER_DRAINING:
        return (taken && (c->s->loaded || c->route->early)) ||
               api_fail(e, 503, NULL, "the server is shutting down: it takes no new requests");
    case SERVER_FAILED:
        break;
    }
    return c->route->open || api_fail(e, 503, NULL, "the model could not be loaded");
}

/* Bodies in memory are bounded together. Those of a known length have their room from the
 * beginning, so that some are taken whole where there is none for all. */
static bool count_body(struct call *c, uint64_t bytes, struct api_error *e)
{
    if (c->s->body_bytes + bytes > SERVER_BODIES * c->s->c->max_body)
        return api_fail(e, 503, NULL, "the server holds too many long requests: try again soon");
    c->s->body_bytes += bytes;
    c->counted += bytes;
    return true;
}

static bool check_body(struct call *c, struct api_error *e)
{
    const struct serve_config *conf = c->s->c;
    struct exchange *x = c->x;
    if (c->route->body == BODY_NONE)
        return true;
    if (c->route->body == BODY_UPLOAD) {
        x->body_limit = conf->max_upload + (1 << 16); /* what surrounds the file */
        c->upload = upload_begin(c->s->files, exchange_header(x, "Content-Type"), e);
        return c->upload != NULL;
    }
    x->body_limit = conf->max_body;
    return x->declared <= 0 || (uint64_t)x->declared > conf->max_body ||
           count_body(c, (uint64_t)x->declared, e);
}

/* Answers the question of a browser whether a page of another origin may ask. */
static void reply_preflight(struct call *c)
{
    call_headers(c);
    if (allowed_origin(c)) {
        exchange_set(c->x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
        exchange_set(c->x, "Access-Control-Allow-Headers",
                     "Authorization, Content-Type, X-Api-Key, X-Prevue-Video");
        exchange_set(c->x, "Access-Control-Max-Age", "600");
    }
    exchange_reply(c->x, 204, "text/plain", "", 0);
}

static void begin(void *user, struct exchange *x)
{
    struct server *s = user;
    struct call *c = mem_zalloc(sizeof *c);
    struct api_error e = { 0 };
    bool path_known;
    x->user = c;
    if (!c) {
        exchange_drop(x);
        return;
    }
    *c = (struct call){ .s = s,
                        .x = x,
                        .line = { .prompt_tokens = -1, .first_token_s = -1, .queue_s = -1 } };
    buf_init(&c->body, s->c->max_body);
    make_id(c->id, sizeof c->id, "req-");
    s->calls++;
    if (x->fault) {
        exchange_set(x, "Connection", "close");
        api_fail(&e, 400, NULL, "%s", x->fault);
        call_fail(c, &e);
        return;
    }
    if (!strcmp(x->method, "OPTIONS")) {
        reply_preflight(c);
        return;
    }
    c->route = find_route(c, &path_known);
    if (!c->route)
        api_fail(&e, path_known ? 405 : 404, NULL, "there is no %.15s %.200s here", x->method,
                 x->path);
    if (!e.status && check_host(c, &e) && check_site(c, &e) && !c->route->open)
        check_key(c, &e);
    if (!e.status && check_state(c, &e))
        check_body(c, &e);
    if (e.status)
        call_fail(c, &e);
}

/* ---- the body ---- */

static void take_body(void *user, struct exchange *x, const char *data, size_t size)
{
    struct call *c = x->user;
    struct api_error e = { 0 };
    (void)user;
    if (c->route->body == BODY_UPLOAD) {
        if (!upload_add(c->upload, data, size, &e))
            call_fail(c, &e);
        return;
    }
    if (x->declared < 0 && !count_body(c, size, &e)) {
        call_fail(c, &e);
    } else if (!buf_add(&c->body, data, size)) {
        api_fail(&e, 503, NULL, "out of memory for a request");
        call_fail(c, &e);
    }
}

static void complete(void *user, struct exchange *x)
{
    struct call *c = x->user;
    (void)user;
    c->route->run(c);
}

static void too_long(void *user, struct exchange *x)
{
    struct call *c = x->user;
    struct api_error e = { 0 };
    (void)user;
    if (x->body_limit == 0)
        api_fail(&e, 400, NULL, "%s %s takes no body", x->method, x->path);
    else
        api_fail(&e, 413, NULL, "the request is longer than %llu bytes",
                 (unsigned long long)x->body_limit);
    call_fail(c, &e);
}

/* ---- the end ---- */

void call_drop_body(struct call *c)
{
    buf_clear(&c->body);
    c->s->body_bytes -= c->counted;
    json_memory_trim(c->counted);
    c->counted = 0;
}

static void free_call(struct call *c)
{
    call_drop_body(c);
    upload_abandon(&c->upload);
    mem_free(c->line.prompt);
    c->s->calls--;
    mem_free(c);
}

static void gone(void *user, struct exchange *x, bool sent)
{
    struct server *s = user;
    struct call *c = x->user;
    if (!c)
        return;
    metrics_request(&s->metrics, x->path, x->status, clock_now() - x->begun);
    if (c->pending && !c->line.finish && !c->line.error[0] && !sent)
        c->line.finish = "cancelled";
    access_log_write(&s->log, x, c->id, &c->line, sent);
    c->x = NULL;
    if (c->pending)
        c->left(c);
    else
        free_call(c);
}

void call_release(struct call *c)
{
    c->pending = false;
    if (!c->x)
        free_call(c);
}

const struct http_handler route_handler = { begin, take_body, complete, too_long, gone };
