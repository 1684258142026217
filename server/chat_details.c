/* The object "prevue" at the end of a reply: how the answer was generated and, on request, its
 * timeline (spans) and the video tokens that the drafter got (view). */
#include "chat_call.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base64.h"

#include <string.h>

enum { MAX_SPANS = 4096 };

static double ratio(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : 0;
}

static void add_seconds(const struct chat *ch, const struct pv_stats *s, struct buf *b)
{
    buf_printf(b,
               ",\"seconds\":{\"queue\":%.6f,\"video\":%.6f,\"vision\":%.6f,\"prefill\":%.6f,"
               "\"view\":%.6f,\"draft_prefill\":%.6f,\"decode\":%.6f,\"draft\":%.6f,"
               "\"verify\":%.6f,\"total\":%.6f",
               ch->call->line.queue_s, s->video_s, s->vision_s, s->prefill_s, s->view_s,
               s->draft_prefill_s, s->decode_s, s->draft_s, s->verify_s, clock_now() - ch->begun);
    if (ch->first_token > 0)
        buf_printf(b, ",\"first_token\":%.6f", ch->first_token - ch->begun);
    buf_puts(b, "}");
}

/* [["model","verify",0.01,0.02,25],...]: side, what, begin, end, rows. */
static void add_spans(const struct choice *c, struct buf *b)
{
    size_t n;
    const struct pv_span *s = pv_request_spans(c->request, &n);
    buf_puts(b, ",\"spans\":[");
    for (size_t i = 0; i < n && i < MAX_SPANS; i++)
        buf_printf(b, "%s[\"%s\",\"%s\",%.6f,%.6f,%d]", i ? "," : "",
                   s[i].side == PV_SIDE_MODEL ? "model" : "drafter", s[i].what, s[i].begin,
                   s[i].end, s[i].rows);
    buf_puts(b, "]");
}

/* Which tokens of the first video the drafter saw: one bit for each, the first in the highest bit
 * of the first byte. */
static void add_view(struct choice *c, struct buf *b)
{
    struct pv_view_map map = { 0 };
    size_t n, size;
    uint8_t *bits;
    if (pv_request_view(c->request, &map, NULL)) {
        buf_puts(b, ",\"view\":null");
        return;
    }
    n = (size_t)map.frames * (size_t)map.height * (size_t)map.width;
    size = (n + 7) / 8;
    bits = mem_zalloc(size + 1);
    if (!bits) {
        buf_puts(b, ",\"view\":null");
        return;
    }
    for (size_t i = 0; i < n; i++)
        bits[i / 8] |= (uint8_t)(map.visible[i] ? 0x80 >> i % 8 : 0);
    buf_printf(b, ",\"view\":{\"frames\":%d,\"height\":%d,\"width\":%d,\"kept\":%d,\"seen\":\"",
               map.frames, map.height, map.width, map.kept);
    base64_add(b, bits, size);
    buf_puts(b, "\"}");
    mem_free(bits);
}

void chat_details(const struct chat *ch, struct choice *c, struct buf *b)
{
    const struct pv_stats *s = &c->stats;
    const struct pv_method *m = &ch->r.method;
    buf_printf(b, ",\"method\":\"%s\",\"drafter\":\"%s\",\"view_name\":\"%s\"", m->name,
               pv_drafter_find(m->drafter)->name, m->view ? m->view : "none");
    buf_printf(b,
               ",\"tokens\":%lld,\"passes\":%lld,\"tokens_per_pass\":%.3f,\"rounds\":%lld,"
               "\"proposed\":%lld,\"accepted\":%lld,\"acceptance\":%.4f,\"frames\":%lld,"
               "\"video_tokens\":%lld,\"draft_video_tokens\":%lld",
               (long long)s->tokens, (long long)s->passes, ratio(s->tokens, s->passes),
               (long long)s->rounds, (long long)s->proposed, (long long)s->accepted,
               ratio(s->accepted, s->proposed), (long long)s->frames, (long long)s->video_tokens,
               (long long)s->draft_video_tokens);
    add_seconds(ch, s, b);
    if (ch->r.trace)
        add_spans(c, b);
    if (ch->r.view)
        add_view(c, b);
}
