/* Content is a string or an array of parts. A media item comes as vLLM's video_url, image_url and
 * audio_url, as llama.cpp's input_video, or as OpenAI's input_audio and file; whether it is a
 * video, a picture or sound its bytes say, so a video in an image_url is no mistake. */
#include "chat_parts.h"

#include "base/mem.h"
#include "data_url.h"

#include <string.h>

static const struct {
    const char *theirs, *ours;
} roles[] = {
    { "system", "system" },
    { "developer", "system" },
    { "user", "user" },
    { "assistant", "assistant" },
};

/* Types of parts that hold a media item: the member with its source, and how that is spelled there.
 */
static const struct media_form {
    const char *type, *member;
    bool video, sound;
} forms[] = {
    { "video_url", "video_url", true, false },
    { "image_url", "image_url", false, false },
    { "audio_url", "audio_url", false, true },
    { "input_video", "input_video", true, false },
    { "input_image", "image_url", false, false },
    { "input_audio", "input_audio", false, true },
    { "file", "file", true, false },
};

bool chat_frames_read(struct pv_video_params *out, const json_t *o, const struct chat_rules *rules,
                      struct api_error *e)
{
    int most = rules->limits->frames;
    bool hear = !out->no_audio;
    bool ok = field_int(o, "num_frames", 1, most, &out->frames, e) &&
              field_number(o, "fps", 0.001, 1000, &out->fps, e) &&
              field_int(o, "min_frames", 1, most, &out->min_frames, e) &&
              field_int(o, "max_frames", 1, most, &out->max_frames, e) &&
              field_int64(o, "min_pixels", 1, rules->limits->frame_pixels, &out->min_pixels, e) &&
              field_int64(o, "max_pixels", 1, rules->limits->frame_pixels, &out->max_pixels, e) &&
              field_number(o, "start", 0, 1e6, &out->start, e) &&
              field_number(o, "end", 0, 1e6, &out->end, e) &&
              field_bool(o, "use_audio_in_video", &hear, e);
    out->no_audio = !hear;
    if (ok && out->frames && out->fps > 0) {
        if (field_find(o, "num_frames") && field_find(o, "fps"))
            return api_fail(e, 400, "fps", "give \"num_frames\" or \"fps\", not both");
        if (field_find(o, "fps")) /* the nearer one counts */
            out->frames = 0;
        else
            out->fps = 0;
    }
    return ok;
}

/* A media item in the request itself is decoded by now: its text, which may be long, is not kept.
 */
static bool read_text_source(struct media_part *m, const json_t *text, bool bare,
                             const struct chat_rules *rules, struct api_error *e)
{
    const char *s = json_string_value(text);
    bool ok = bare && !data_url_is(s)
                  ? media_part_base64(m, s, json_string_length(text), &rules->media, e)
                  : media_part_read(m, s, &rules->media, e);
    if (m->data)
        json_string_set_nocheck((json_t *)text, "");
    return ok;
}

static bool read_source(struct media_part *m, const json_t *from, const struct chat_rules *rules,
                        struct api_error *e)
{
    static const char *const names[] = { "url", "file_id", "data" };
    if (json_is_string(from))
        return read_text_source(m, from, false, rules, e);
    if (!json_is_object(from))
        return api_fail(e, 400, "content", "a media part must be an object with \"url\"");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = field_find(from, names[i]);
        if (v && !json_is_string(v))
            return api_fail(e, 400, names[i], "\"%s\" must be a string", names[i]);
        if (v)
            return read_text_source(m, v, !strcmp(names[i], "data"), rules, e);
    }
    return api_fail(e, 400, "content",
                    "a media part has neither \"url\" nor \"file_id\" nor \"data\"");
}

static bool read_media(struct chat_request *r, const json_t *part, const struct media_form *form,
                       const struct chat_rules *rules, struct api_error *e)
{
    const json_t *from = field_find(part, form->member);
    struct chat_media *m;
    if (!from)
        return api_fail(e, 400, form->member, "a part of type \"%s\" has no \"%s\"", form->type,
                        form->member);
    if (form->sound && !rules->hears)
        return api_fail(e, 400, "content",
                        "a part of type \"%s\", but the model has no audio encoder: it cannot hear",
                        form->type);
    if (r->n_media == CHAT_MAX_MEDIA)
        return api_fail(e, 400, "messages", "more than %d videos and pictures", CHAT_MAX_MEDIA);
    m = &r->media[r->n_media++];
    m->source.fd = -1;
    m->params = r->video;
    r->n_videos += form->video;
    r->n_sounds += form->sound;
    if (!read_source(&m->source, from, rules, e))
        return false;
    if (json_is_object(from) && !chat_frames_read(&m->params, from, rules, e))
        return false;
    r->parts[r->n_parts++] = (struct pv_part){ .video = &m->params };
    return true;
}

static bool add_text(struct chat_request *r, const json_t *v, struct api_error *e)
{
    if (!json_is_string(v))
        return api_fail(e, 400, "content", "\"text\" must be a string");
    r->parts[r->n_parts++] = (struct pv_part){ .text = json_string_value(v) };
    return true;
}

static bool read_part(struct chat_request *r, const json_t *part, const struct chat_rules *rules,
                      struct api_error *e)
{
    const char *type = "text";
    if (r->n_parts == CHAT_MAX_PARTS)
        return api_fail(e, 400, "messages", "more than %d parts", CHAT_MAX_PARTS);
    if (json_is_string(part))
        return add_text(r, part, e);
    if (!json_is_object(part))
        return api_fail(e, 400, "content", "a part of a message must be an object");
    if (!field_string(part, "type", &type, e))
        return false;
    if (!strcmp(type, "text") || !strcmp(type, "input_text"))
        return add_text(r, field_find(part, "text"), e);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (!strcmp(type, forms[i].type))
            return read_media(r, part, &forms[i], rules, e);
    return api_fail(e, 501, "content",
                    "parts of type \"%.40s\" are not supported: use text, video_url, image_url, "
                    "audio_url, input_video, input_audio or file",
                    type);
}

static bool read_role(const json_t *message, const char **out, struct api_error *e)
{
    const char *role = NULL;
    if (!field_string(message, "role", &role, e))
        return false;
    if (!role)
        return api_fail(e, 400, "role", "a message has no \"role\"");
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(role, roles[i].theirs) != 0)
            continue;
        *out = roles[i].ours;
        return true;
    }
    if (!strcmp(role, "tool") || !strcmp(role, "function"))
        return api_fail(e, 501, "role",
                        "messages of role \"%s\" are not supported: there are no "
                        "tools",
                        role);
    return api_fail(e, 400, "role", "unknown role \"%.40s\" (use system, user or assistant)", role);
}

static bool read_message(struct chat_request *r, const json_t *message,
                         const struct chat_rules *rules, struct api_error *e)
{
    struct pv_message *m = &r->messages[r->n_messages];
    const json_t *content, *part;
    int first = r->n_parts;
    size_t i;
    if (!json_is_object(message))
        return api_fail(e, 400, "messages", "a message must be an object");
    if (!read_role(message, &m->role, e))
        return false;
    content = field_find(message, "content");
    if (field_find(message, "tool_calls"))
        return api_fail(e, 501, "tool_calls", "tool calls are not supported");
    if (content && !json_is_array(content) && !json_is_string(content))
        return api_fail(e, 400, "content", "\"content\" must be a string or an array of parts");
    if (!content && strcmp(m->role, "assistant") != 0)
        return api_fail(e, 400, "content", "a message of role \"%s\" has no \"content\"", m->role);
    if (json_is_string(content) && !read_part(r, content, rules, e))
        return false;
    if (json_is_array(content)) {
        json_array_foreach((json_t *)content, i, part)
        {
            if (!read_part(r, part, rules, e))
                return false;
        }
    }
    m->parts = r->parts + first;
    m->n_parts = (size_t)(r->n_parts - first);
    r->n_messages++;
    return true;
}

/* Parts of all messages, at most. */
static size_t count_parts(const json_t *messages)
{
    const json_t *m;
    size_t i, n = 1;
    json_array_foreach((json_t *)messages, i, m)
    {
        const json_t *content = json_object_get(m, "content");
        n += json_is_array(content) ? json_array_size(content) : 1;
    }
    return n < CHAT_MAX_PARTS ? n : CHAT_MAX_PARTS;
}

bool chat_parts_read(struct chat_request *r, const json_t *messages, const struct chat_rules *rules,
                     struct api_error *e)
{
    const json_t *m;
    size_t i, n;
    if (!messages || !json_is_array(messages) || json_array_size(messages) == 0)
        return api_fail(e, 400, "messages",
                        "\"messages\" must be an array with at least one "
                        "message");
    n = json_array_size(messages);
    if (n > CHAT_MAX_MESSAGES)
        return api_fail(e, 400, "messages", "%zu messages, at most %d are possible", n,
                        CHAT_MAX_MESSAGES);
    r->messages = mem_zalloc(n * sizeof *r->messages);
    r->parts = mem_zalloc(count_parts(messages) * sizeof *r->parts);
    r->media = mem_zalloc(CHAT_MAX_MEDIA * sizeof *r->media);
    if (!r->messages || !r->parts || !r->media)
        return api_fail(e, 503, NULL, "out of memory for the messages");
    json_array_foreach((json_t *)messages, i, m)
    {
        if (!read_message(r, m, rules, e))
            return false;
    }
    return true;
}
