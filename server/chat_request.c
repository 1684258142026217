/* The fields of a request, each with its bounds. Unknown fields are ignored, as clients expect;
 * fields that would change the answer and are not implemented are refused, never ignored. */
#include "chat_request.h"

#include "base/buf.h"
#include "base/mem.h"
#include "chat_parts.h"

#include <string.h>

enum { MAX_LOGGED = 4096 };

/* ---- what is not there ---- */

/* A number that must have its neutral value; 0 where that is 0. */
static const struct {
    const char *name;
    double neutral;
} neutral[] = {
    { "frequency_penalty", 0 },
    { "presence_penalty", 0 },
    { "repetition_penalty", 1 },
    { "best_of", 1 },
};

static bool check_numbers(const json_t *o, struct api_error *e)
{
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
        const json_t *v = field_find(o, neutral[i].name);
        if (v && !(json_is_number(v) && json_number_value(v) == neutral[i].neutral))
            return api_fail(e, 501, neutral[i].name, "\"%s\" is not supported", neutral[i].name);
    }
    return true;
}

static bool is_empty(const json_t *v)
{
    return json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static bool check_absent(const json_t *o, struct api_error *e)
{
    static const char *const names[] = {
        "tools",   "functions",     "logit_bias",        "audio",
        "suffix",  "echo",          "guided_json",       "guided_regex",
        "grammar", "guided_choice", "structured_outputs"
    };
    const json_t *format = field_find(o, "response_format");
    const json_t *type = json_is_object(format) ? field_find(format, "type") : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = field_find(o, names[i]);
        if (v && !is_empty(v))
            return api_fail(e, 501, names[i], "\"%s\" is not supported", names[i]);
    }
    if (format && !(json_is_string(type) && !strcmp(json_string_value(type), "text")))
        return api_fail(e, 501, "response_format",
                        "\"response_format\" other than {\"type\":\"text\"} is not supported");
    return check_numbers(o, e);
}

/* ---- sampling ---- */

static bool read_sampling(struct chat_request *r, const json_t *o, const struct chat_rules *rules,
                          struct api_error *e)
{
    double temperature = 0, top_p = 1, min_p = 0;
    int tokens = rules->max_tokens;
    int64_t seed = 0;
    bool ok = field_int(o, "max_tokens", 1, 1 << 24, &tokens, e) &&
              field_int(o, "max_completion_tokens", 1, 1 << 24, &tokens, e) &&
              field_number(o, "temperature", 0, 100, &temperature, e) &&
              field_number(o, "top_p", 0, 1, &top_p, e) &&
              field_number(o, "min_p", 0, 1, &min_p, e) &&
              field_int(o, "top_k", -1, 1 << 30, &r->gen.top_k, e) &&
              field_int64(o, "seed", INT64_MIN, INT64_MAX, &seed, e) &&
              field_bool(o, "ignore_eos", &r->gen.ignore_stop, e) &&
              field_int(o, "n", 1, CHAT_MAX_N, &r->n, e);
    if (!ok)
        return false;
    r->gen.max_new_tokens = tokens < rules->max_tokens ? tokens : rules->max_tokens;
    r->gen.temperature = (float)temperature;
    r->gen.top_p = (float)top_p;
    r->gen.min_p = (float)min_p;
    r->gen.top_k = r->gen.top_k > 0 ? r->gen.top_k : 0;
    r->gen.seed = (uint64_t)seed;
    r->seeded = field_find(o, "seed") != NULL;
    return true;
}

static bool read_stop(struct chat_request *r, const json_t *o, struct api_error *e)
{
    const json_t *v = field_find(o, "stop"), *s;
    size_t i;
    if (!v)
        return true;
    if (json_is_string(v)) {
        r->stop[r->n_stop++] = json_string_value(v);
    } else if (json_is_array(v) && json_array_size(v) <= CHAT_MAX_STOP) {
        json_array_foreach((json_t *)v, i, s)
        {
            if (!json_is_string(s))
                return api_fail(e, 400, "stop", "\"stop\" must hold strings only");
            r->stop[r->n_stop++] = json_string_value(s);
        }
    } else {
        return api_fail(e, 400, "stop", "\"stop\" must be a string or an array of at most %d",
                        CHAT_MAX_STOP);
    }
    for (int k = 0; k < r->n_stop; k++)
        if (!r->stop[k][0])
            return api_fail(e, 400, "stop", "a stop string is empty");
    return true;
}

/* Chat has a switch and a number; completions have a number alone. */
static bool read_logprobs(struct chat_request *r, const json_t *o, struct api_error *e)
{
    bool wanted = false;
    int top = 0;
    if (!r->chat)
        return field_int(o, "logprobs", 0, CHAT_MAX_TOP, &r->top_logprobs, e);
    if (!field_bool(o, "logprobs", &wanted, e) ||
        !field_int(o, "top_logprobs", 0, CHAT_MAX_TOP, &top, e))
        return false;
    if (!wanted && top > 0)
        return api_fail(e, 400, "top_logprobs", "\"top_logprobs\" needs \"logprobs\": true");
    r->top_logprobs = wanted ? top : -1;
    return true;
}

/* ---- how it is answered ---- */

static bool read_stream(struct chat_request *r, const json_t *o, struct api_error *e)
{
    const json_t *options = NULL, *template = NULL;
    bool thinking = true;
    if (!field_bool(o, "stream", &r->stream, e) ||
        !field_object(o, "stream_options", &options, e) ||
        !field_object(o, "chat_template_kwargs", &template, e) ||
        !field_string(o, "user", &r->user, e))
        return false;
    if (options && !field_bool(options, "include_usage", &r->include_usage, e))
        return false;
    if (template && !field_bool(template, "enable_thinking", &thinking, e))
        return false;
    r->options.no_thinking = !thinking;
    return true;
}

bool chat_method_find(struct pv_method *out, const char *name, const struct chat_rules *rules,
                      struct api_error *e)
{
    struct pv_method m = { .size = sizeof m };
    struct pv_error err = { 0 };
    const struct pv_drafter_info *drafter;
    if (!strcmp(name, rules->method->name)) {
        *out = *rules->method; /* as the server has it */
        return true;
    }
    if (pv_method_find(&m, name, &err))
        return api_fail(e, 400, "method", "%s", err.text);
    drafter = pv_drafter_find(m.drafter);
    if (m.automatic && rules->has_head && drafter->as_head) {
        m.drafter = drafter->as_head;
        drafter = pv_drafter_find(m.drafter);
        m.view = drafter->view ? drafter->view : m.view;
    }
    if ((drafter->needs_draft && !rules->has_draft) || (drafter->needs_head && !rules->has_head))
        return api_fail(e, 400, "method",
                        "method \"%s\" needs a draft %s, which this server "
                        "does not have",
                        name, drafter->needs_draft ? "model" : "head");
    *out = m;
    return true;
}

/* Our own: {"prevue":{"method":"specvlm","trace":true}}. */
static bool read_own(struct chat_request *r, const json_t *o, const struct chat_rules *rules,
                     struct api_error *e)
{
    const json_t *own = NULL;
    const char *method = NULL;
    if (!field_object(o, "prevue", &own, e))
        return false;
    if (!own)
        return true;
    return field_string(own, "method", &method, e) &&
           (!method || chat_method_find(&r->method, method, rules, e)) &&
           field_number(own, "ratio", 0, 1, &r->method.ratio, e) &&
           field_bool(own, "trace", &r->trace, e) && field_bool(own, "view", &r->view, e) &&
           field_bool(own, "progress", &r->progress, e);
}

/* vLLM's two places for frame options. */
static bool read_frames(struct chat_request *r, const json_t *o, const struct chat_rules *rules,
                        struct api_error *e)
{
    const json_t *io = NULL, *video = NULL, *processor = NULL;
    if (!field_object(o, "mm_processor_kwargs", &processor, e) ||
        !field_object(o, "media_io_kwargs", &io, e) ||
        (io && !field_object(io, "video", &video, e)))
        return false;
    return (!processor || chat_frames_read(&r->video, processor, rules, e)) &&
           (!video || chat_frames_read(&r->video, video, rules, e));
}

static bool check_model(const json_t *o, const struct chat_rules *rules, struct api_error *e)
{
    const char *model = NULL;
    if (!field_string(o, "model", &model, e))
        return false;
    if (!model || !*model || !rules->model || !strcmp(model, rules->model))
        return true;
    e->code = "model_not_found";
    return api_fail(e, 404, "model", "unknown model \"%.100s\": this server has \"%s\"", model,
                    rules->model);
}

/* ---- the prompt of /v1/completions ---- */

static bool read_ids(struct chat_request *r, const json_t *list, struct api_error *e)
{
    const json_t *v;
    size_t i, n = json_array_size(list);
    r->ids = mem_alloc((n + 1) * sizeof *r->ids);
    if (!r->ids)
        return api_fail(e, 503, NULL, "out of memory for the prompt");
    json_array_foreach((json_t *)list, i, v)
    {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > INT32_MAX)
            return api_fail(e, 400, "prompt", "the prompt must be a string or token ids");
        r->ids[r->n_ids++] = (int32_t)id;
    }
    return n > 0 || api_fail(e, 400, "prompt", "the prompt is empty");
}

static bool read_prompt(struct chat_request *r, const json_t *o, struct api_error *e)
{
    const json_t *v = field_find(o, "prompt");
    if (json_is_array(v) && json_array_size(v) == 1 && !json_is_integer(json_array_get(v, 0)))
        v = json_array_get(v, 0); /* a batch of one */
    if (json_is_array(v) && json_array_size(v) > 1 && !json_is_integer(json_array_get(v, 0)))
        return api_fail(e, 501, "prompt", "several prompts in one request are not supported");
    if (json_is_array(v))
        return read_ids(r, v, e);
    if (!json_is_string(v) || json_string_length(v) == 0)
        return api_fail(e, 400, "prompt", "the prompt must be a string or token ids");
    r->prompt = json_string_value(v);
    return true;
}

/* ---- all of it ---- */

bool chat_request_read(struct chat_request *r, struct buf *body, bool chat,
                       const struct chat_rules *rules, struct api_error *e)
{
    const json_t *o;
    *r = (struct chat_request){ .chat = chat,
                                .gen = pv_gen_defaults(),
                                .method = *rules->method,
                                .options = pv_chat_defaults(),
                                .video = pv_video_defaults(),
                                .top_logprobs = -1,
                                .n = 1 };
    r->video.limits = rules->limits;
    r->video.sandbox = rules->sandbox;
    o = r->json = json_object_parse(body, e);
    return o && check_model(o, rules, e) && check_absent(o, e) && read_sampling(r, o, rules, e) &&
           read_stop(r, o, e) && read_logprobs(r, o, e) && read_stream(r, o, e) &&
           read_own(r, o, rules, e) && read_frames(r, o, rules, e) &&
           (chat ? chat_parts_read(r, field_find(o, "messages"), rules, e) : read_prompt(r, o, e));
}

void chat_request_forget(struct chat_request *r)
{
    mem_free(r->messages);
    mem_free(r->parts);
    mem_free(r->ids);
    json_memory_free(r->json);
    r->messages = NULL;
    r->parts = NULL;
    r->ids = NULL;
    r->json = NULL;
    r->prompt = r->user = NULL;
    r->n_messages = r->n_parts = r->n_stop = 0;
    r->n_ids = 0;
}

void chat_request_clear(struct chat_request *r)
{
    for (int i = 0; i < r->n_media; i++)
        media_part_clear(&r->media[i].source);
    mem_free(r->media);
    chat_request_forget(r);
    *r = (struct chat_request){ .json = NULL };
}

char *chat_request_text(const struct chat_request *r)
{
    struct buf b;
    buf_init(&b, MAX_LOGGED);
    for (int i = 0; i < r->n_parts && !b.failed; i++)
        buf_printf(&b, "%s%s", i ? " | " : "", r->parts[i].text ? r->parts[i].text : "[media]");
    if (r->prompt)
        buf_puts(&b, r->prompt);
    return b.data; /* what did not fit is left out */
}
