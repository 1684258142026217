/* What the server is and how it does: models, health and metrics. */
#include "chat_request.h"
#include "server.h"

#include <string.h>

enum { TEXT_LIMIT = 4 << 20 };

/* The methods that a request may name, with what each of them does here. */
static void add_methods(struct buf *b, const struct server *s)
{
    const struct chat_rules rules = { .method = &s->c->method,
                                      .has_draft = s->draft != NULL,
                                      .has_head = pv_model_has_head(s->model) };
    const char *name, *comma = "";
    buf_puts(b, ",\"methods\":[");
    for (int i = 0; (name = pv_method_name(i)); i++) {
        struct pv_method m = *rules.method;
        struct api_error e = { 0 };
        if (!chat_method_find(&m, name, &rules, &e))
            continue;
        buf_printf(b,
                   "%s{\"name\":\"%s\",\"drafter\":\"%s\",\"view_name\":\"%s\","
                   "\"reads_prompt\":%s,\"parallel\":%s}",
                   comma, name, pv_drafter_find(m.drafter)->name, m.view ? m.view : "none",
                   pv_drafter_find(m.drafter)->reads_prompt ? "true" : "false",
                   m.schedule == PV_SCHEDULE_PARALLEL ? "true" : "false");
        comma = ",";
    }
    buf_puts(b, "]");
}

static void add_model(struct buf *b, const struct server *s)
{
    buf_puts(b, "{\"id\":");
    buf_json(b, s->name, strlen(s->name));
    buf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"prevue\"",
               (long long)s->started);
    if (s->loaded) {
        buf_printf(b,
                   ",\"max_model_len\":%d,\"prevue\":{\"version\":\"%s\",\"vision\":%s,"
                   "\"audio\":%s,\"draft_model\":%s,\"draft_head\":%s,\"method\":\"%s\"",
                   s->context, pv_version(), pv_model_has_vision(s->model) ? "true" : "false",
                   pv_model_has_audio(s->model) ? "true" : "false", s->draft ? "true" : "false",
                   pv_model_has_head(s->model) ? "true" : "false", s->c->method.name);
        add_methods(b, s);
        buf_puts(b, "}");
    }
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
        api_fail(&e, 404, "model", "unknown model \"%s\"", c->arg);
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
