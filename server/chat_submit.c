/* From a request that was read to requests of the engine. Runs on a worker, because decoding takes
 * as long as a video is long. */
#include "chat_call.h"

#include "base/mem.h"
#include "remote.h"

#include <string.h>
#include <sys/random.h>

/* Decoding stops when nobody waits for it. */
static bool go_on(void *user, enum pv_phase phase, int64_t done, int64_t total)
{
    struct chat *ch = user;
    (void)phase;
    (void)done;
    (void)total;
    return !atomic_load(&ch->left);
}

static bool fetch_media(struct chat *ch)
{
    for (int i = 0; i < ch->r.n_media; i++)
        if (!remote_fetch(&ch->r.media[i].source, &ch->rules.media, &ch->left, &ch->error))
            return false;
    return true;
}

/* Parts without text are media, in order. */
static void place_media(struct chat *ch)
{
    int k = 0;
    for (int i = 0; i < ch->r.n_parts; i++) {
        struct pv_part *p = &ch->r.parts[i];
        struct chat_media *m = p->text ? NULL : &ch->r.media[k++];
        if (!m)
            continue;
        p->path = m->source.path;
        p->data = m->source.path ? NULL : m->source.data;
        p->data_size = m->source.path ? 0 : m->source.size;
        m->params.progress = go_on;
        m->params.progress_user = ch;
    }
}

static bool tokenize_prompt(struct chat *ch)
{
    struct chat_request *r = &ch->r;
    struct pv_error err = { 0 };
    size_t cap = strlen(r->prompt) + 16, n = 0;
    r->ids = mem_alloc(cap * sizeof *r->ids);
    if (!r->ids)
        return api_fail(&ch->error, 503, NULL, "out of memory for the prompt");
    if (pv_tokenize(ch->s->model, r->prompt, strlen(r->prompt), true, r->ids, cap, &n, &err))
        return api_fail_status(&ch->error, err.code, "prompt", err.text);
    r->n_ids = n < cap ? n : cap;
    return true;
}

static void notify(void *user)
{
    struct chat *ch = user;
    loop_post(ch->s->loop, &ch->wake);
}

static bool submit_one(struct chat *ch, int i)
{
    struct chat_request *r = &ch->r;
    struct pv_request_params p = pv_request_defaults();
    struct pv_gen_params gen = r->gen;
    struct pv_error err = { 0 };
    gen.method = &r->method;
    gen.trace = r->trace;
    gen.seed = r->gen.seed + (uint64_t)i;
    p.messages = r->messages;
    p.n_messages = (size_t)r->n_messages;
    p.chat = r->options.no_thinking ? &r->options : NULL;
    p.ids = r->ids;
    p.n_ids = r->n_ids;
    p.gen = &gen;
    p.stop = r->stop;
    p.n_stop = (size_t)r->n_stop;
    p.top_logprobs = r->top_logprobs;
    p.notify = notify;
    p.notify_user = ch;
    if (pv_request_submit(&ch->choice[i].request, ch->s->engine, &p, &err) == PV_OK)
        return true;
    for (int k = 0; k < r->n_media; k++)
        media_part_hide(&r->media[k].source, err.text, sizeof err.text);
    if (err.code == PV_E_IO && r->n_media > 0) /* a file that is gone, or is no video */
        return api_fail(&ch->error, 400, "messages", "%s", err.text);
    return api_fail_status(&ch->error, err.code, r->n_media ? "messages" : NULL, err.text);
}

void chat_submit(struct chat *ch)
{
    struct chat_request *r = &ch->r;
    bool ok = fetch_media(ch);
    if (ok && r->prompt)
        ok = tokenize_prompt(ch);
    if (ok)
        place_media(ch);
    if (!r->seeded)
        (void)!getrandom(&r->gen.seed, sizeof r->gen.seed, 0);
    for (int i = 0; i < r->n && ok && !atomic_load(&ch->left); i++)
        ok = submit_one(ch, i);
    /* A file stays open: with a cache on disk the engine may decode it later. */
    for (int i = 0; i < r->n_media; i++)
        if (!r->media[i].source.path)
            media_part_clear(&r->media[i].source);
    chat_request_forget(r);
}
