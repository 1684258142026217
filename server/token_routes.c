/* Text to token ids and back. */
#include "json_fields.h"
#include "server.h"

#include "base/mem.h"

#include <string.h>

enum { TEXT_LIMIT = 256 << 20 };

static void fail_call(struct call *c, json_t *root, const struct api_error *e)
{
    json_memory_free(root);
    call_fail(c, e);
}

/* {"prompt" or "content": "...", "parse_special": false} -> {"count","tokens"} */
void route_tokenize(struct call *c)
{
    struct api_error e = { 0 };
    struct pv_error err = { 0 };
    json_t *root = json_object_parse(&c->body, &e);
    const char *text = NULL;
    bool special = false;
    int32_t *ids = NULL;
    size_t n = 0, cap;
    struct buf b;
    if (root && field_string(root, "prompt", &text, &e) &&
        field_string(root, "content", &text, &e) &&
        field_bool(root, "parse_special", &special, &e) && !text)
        api_fail(&e, 400, "prompt", "there is no \"prompt\" to tokenize");
    cap = text ? strlen(text) + 16 : 0;
    ids = !e.status && text ? mem_alloc(cap * sizeof *ids) : NULL;
    if (!e.status && !ids)
        api_fail(&e, 503, NULL, "out of memory for the tokens");
    if (!e.status && pv_tokenize(c->s->model, text, strlen(text), special, ids, cap, &n, &err))
        api_fail_status(&e, err.code, "prompt", err.text);
    if (e.status) {
        mem_free(ids);
        fail_call(c, root, &e);
        return;
    }
    buf_init(&b, TEXT_LIMIT);
    buf_printf(&b, "{\"count\":%zu,\"max_model_len\":%d,\"tokens\":[", n, c->s->context);
    for (size_t i = 0; i < n && i < cap; i++)
        buf_printf(&b, i ? ",%d" : "%d", (int)ids[i]);
    buf_puts(&b, "]}");
    mem_free(ids);
    json_memory_free(root);
    call_json(c, 200, &b);
    buf_clear(&b);
}

/* {"tokens":[1,2]} -> {"prompt","content"} */
void route_detokenize(struct call *c)
{
    struct api_error e = { 0 };
    json_t *root = json_object_parse(&c->body, &e);
    const json_t *list = root ? field_find(root, "tokens") : NULL, *v;
    struct buf text, b;
    size_t i;
    buf_init(&text, TEXT_LIMIT);
    if (root && !json_is_array(list))
        api_fail(&e, 400, "tokens", "\"tokens\" must be an array of token ids");
    json_array_foreach(e.status ? NULL : (json_t *)list, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        size_t len = 0;
        const char *bytes =
            id >= 0 && id <= INT32_MAX ? pv_token_bytes(c->s->model, (int32_t)id, &len) : NULL;
        if (!bytes) {
            api_fail(&e, 400, "tokens", "entry %zu of \"tokens\" is not a token of this model", i);
            break;
        }
        buf_add(&text, bytes, len);
    }
    if (e.status) {
        buf_clear(&text);
        fail_call(c, root, &e);
        return;
    }
    buf_init(&b, TEXT_LIMIT);
    buf_puts(&b, "{\"prompt\":");
    buf_json(&b, text.data ? text.data : "", text.len);
    buf_puts(&b, ",\"content\":");
    buf_json(&b, text.data ? text.data : "", text.len);
    buf_puts(&b, "}");
    json_memory_free(root);
    buf_clear(&text);
    call_json(c, 200, &b);
    buf_clear(&b);
}
