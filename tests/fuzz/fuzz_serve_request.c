/* Any bytes as the body of a request to the server, of chat and of completions. What is accepted
 * must keep the bounds that the library is handed. */
#include "chat_request.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct pv_limits limits = { .frames = 64, .frame_pixels = 1 << 16 };
enum { MEDIUM_LIMIT = 1 << 16, TOKEN_LIMIT = 500 };

static void must(bool held)
{
    if (!held)
        abort();
}

static void check_media(const struct chat_request *r)
{
    int media = 0;
    must(r->n_media <= CHAT_MAX_MEDIA && r->n_parts <= CHAT_MAX_PARTS);
    for (int i = 0; i < r->n_parts; i++)
        media += !r->parts[i].text;
    must(media == r->n_media);
    for (int i = 0; i < r->n_media; i++) {
        const struct pv_video_params *p = &r->media[i].params;
        must(r->media[i].source.size <= MEDIUM_LIMIT);
        must(!r->media[i].source.path && !r->media[i].source.url);
        must(p->frames >= 0 && p->frames <= limits.frames && p->fps >= 0 && p->fps <= 1000);
        must(p->max_frames >= 0 && p->max_frames <= limits.frames);
        must(p->max_pixels >= 0 && p->max_pixels <= limits.frame_pixels);
    }
}

static void check_request(const struct chat_request *r)
{
    struct pv_error err = { 0 };
    must(r->n >= 1 && r->n <= CHAT_MAX_N && r->n_stop <= CHAT_MAX_STOP);
    must(r->top_logprobs >= -1 && r->top_logprobs <= CHAT_MAX_TOP);
    must(r->gen.max_new_tokens >= 1 && r->gen.max_new_tokens <= TOKEN_LIMIT);
    must(r->gen.temperature >= 0 && r->gen.top_p >= 0 && r->gen.top_p <= 1 && r->gen.top_k >= 0);
    must(pv_method_check(&r->method, &err) == PV_OK);
    must(r->chat ? r->n_messages > 0 : r->prompt || r->n_ids > 0);
    for (int i = 0; i < r->n_messages; i++) {
        must(r->messages[i].role != NULL);
        must(r->messages[i].n_parts <= (size_t)r->n_parts);
    }
    check_media(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pv_method method = { .size = sizeof method };
    struct chat_rules rules = { .media = { .limit = MEDIUM_LIMIT },
                                .model = "nano",
                                .method = &method,
                                .limits = &limits,
                                .max_tokens = TOKEN_LIMIT,
                                .has_head = size % 2,
                                .hears = size % 3 > 0 };
    pv_method_find(&method, "ar", NULL);
    for (int chat = 0; chat < 2; chat++) {
        struct chat_request r;
        struct api_error e = { 0 };
        struct buf body;
        bool ok;
        buf_init(&body, size);
        buf_add(&body, data, size);
        ok = chat_request_read(&r, &body, chat, &rules, &e);
        must(ok == (e.status == 0));
        if (ok) {
            check_request(&r);
            mem_free(chat_request_text(&r));
        } else {
            must(e.status >= 400 && e.type && memchr(e.message, 0, sizeof e.message));
        }
        chat_request_clear(&r);
    }
    return 0;
}
