/* What the server is and how it does: models, health, metrics and the page. */
#include "page.h"
#include "server.h"

#include <string.h>

enum { TEXT_LIMIT = 4 << 20 };

static void add_model(struct buf *b, const struct server *s)
{
    buf_puts(b, "{\"id\":");
    buf_json(b, s->name, strlen(s->name));
    buf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"prevue\"",
               (long long)s->started);
    if (s->state == SERVER_READY || s->state == SERVER_DRAINING)
        buf_printf(b,
                   ",\"max_model_len\":%d,\"prevue\":{\"version\":\"%s\",\"vision\":%s,"
                   "\"draft_model\":%s,\"draft_head\":%s,\"method\":\"%s\"}",
                   s->context, pv_version(), pv_model_has_vision(s->model) ? "true" : "false",
                   s->draft ? "true" : "false", pv_model_has_head(s->model) ? "true" : "false",
                   s->c->method.name);
    buf_puts(b, "}");
}

void route_models(struct call *c)
{
    struct buf b;
    buf_init(&b, TEXT_LIMIT);
    buf_puts(&b, "{\"object\":\"list\",\"data\":[");
    add_model(&b, c->s);
    buf_puts(&b, "]}");
    call_json(c, 200, &b);
    buf_clear(&b);
}

void route_model(struct call *c)
{
    struct buf b;
    if (strcmp(c->arg, c->s->name) != 0) {
        struct api_error e = { .code = "model_not_found" };
        api_fail(&e, 404, "model", "there is no model \"%s\" here", c->arg);
        call_fail(c, &e);
        return;
    }
    buf_init(&b, TEXT_LIMIT);
    add_model(&b, c->s);
    call_json(c, 200, &b);
    buf_clear(&b);
}

void route_health(struct call *c)
{
    static const char *const names[] = { "loading", "ready", "draining", "failed" };
    struct buf b;
    buf_init(&b, TEXT_LIMIT);
    buf_printf(&b, "{\"status\":\"%s\"}", names[c->s->state]);
    call_json(c, c->s->state == SERVER_READY ? 200 : 503, &b);
    buf_clear(&b);
}

void route_metrics(struct call *c)
{
    struct buf b;
    buf_init(&b, TEXT_LIMIT);
    metrics_write(&b, c->s);
    call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
    buf_clear(&b);
}

/* The page asks nobody but this server. */
void route_page(struct call *c)
{
    struct buf b = { .data = (char *)page_html, .len = page_html_size };
    exchange_set(c->x, "Content-Security-Policy",
                 "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                 "img-src 'self' data: blob:; media-src 'self' blob:; connect-src 'self'; "
                 "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    call_reply(c, 200, "text/html; charset=utf-8", &b);
}
