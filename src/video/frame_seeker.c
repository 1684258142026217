/* Finding frames with as little decoding as is safe. The decoder goes on from where it is unless a
 * key lies between; it is emptied right after the wanted frame's packet when the next frame is
 * reached from elsewhere, so that nothing is decoded in vain. A frame that does not come out well
 * is tried once from an earlier key: containers also call frames keys that are none; and as long as
 * no good frame lies before it, from ever earlier keys, for one to stand in.
 *
 * Disposable packets (frame_index.h) of frames that nobody wants are passed over. What stands in
 * for a lost frame may be one of those: so when a frame is lost, it is looked for again, and all
 * frames after it, with all packets. */
#include "video/frame_seeker.h"

enum {
    SKIP_MAX = 4,   /* a key this few packets ahead is walked to, not jumped to */
    MISSES_MAX = 16 /* the step back has then grown past any file's keys */
};

void frame_seeker_init(struct frame_seeker *f, struct frame_index *index,
                       struct frame_seeker_source source, void (*drop)(void *frame))
{
    *f = (struct frame_seeker){ .index = index, .source = source };
    f->frame_filter = (struct frame_filter){ .index = index, .drop = drop };
}

void frame_seeker_stop(struct frame_seeker *f)
{
    f->running = false;
    frame_filter_clear(&f->frame_filter);
}

void frame_seeker_restart(struct frame_seeker *f)
{
    frame_seeker_stop(f);
    f->no_drain = f->whole = false;
}

void frame_seeker_list(struct frame_seeker *f, const int64_t *list, int n)
{
    f->list = list;
    f->n_list = n;
    f->listed_at = f->next;
}

static bool is_wanted(const struct frame_seeker *f, size_t rank)
{
    int lo = 0, hi = f->n_list;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (f->list[mid] < (int64_t)rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return rank == f->frame_filter.want || (lo < f->n_list && f->list[lo] == (int64_t)rank);
}

enum feed frame_seeker_feed(struct frame_seeker *f)
{
    size_t packet = f->next;

    if (f->draining || f->next > f->drain_after ||
        (f->index->order && f->next >= f->index->n_packets)) {
        f->draining = true;
        return FEED_DRAIN;
    }
    f->next++;
    if (f->whole || !frame_index_is_disposable(f->index, packet) ||
        is_wanted(f, f->index->packet[packet].rank))
        return FEED_DECODE;
    f->passed = true;
    return FEED_PASS;
}

void frame_seeker_astray(struct frame_seeker *f)
{
    f->astray = f->draining = true;
}

static enum pv_status start_at(struct frame_seeker *f, size_t packet, size_t want,
                               struct pv_error *err)
{
    enum pv_status s;

    frame_seeker_stop(f);
    s = f->source.start(f->source.user, packet, f->surely, err);
    if (s)
        return s;
    frame_filter_start(&f->frame_filter, packet, want);
    f->start = f->next = f->listed_at = packet;
    f->draining = f->astray = f->passed = false;
    f->running = true;
    return PV_OK;
}

/* Can the decoder go on to frame `want`, and is that no detour? */
static bool is_ahead(const struct frame_seeker *f, size_t want)
{
    size_t packet = frame_index_packet(f->index, want);

    if (!f->running || want < f->frame_filter.want)
        return false;
    if (packet < f->listed_at && f->passed && frame_index_is_disposable(f->index, packet))
        return false;
    if ((int64_t)want <= f->frame_filter.last || !f->index->order)
        return true;
    if (f->draining || f->frame_filter.ended)
        return f->next == f->index->n_packets || packet < f->next;
    return frame_index_start(f->index, want) <= f->next + SKIP_MAX;
}

/* The last packet to feed for frame `want` when `after` is wanted next. */
static size_t last_packet(const struct frame_seeker *f, size_t want, int64_t after)
{
    size_t packet;

    if (!f->index->order || f->no_drain)
        return SIZE_MAX;
    packet = frame_index_packet(f->index, want);
    if (after < 0 || frame_index_start(f->index, (size_t)after) > packet + SKIP_MAX)
        return packet;
    return SIZE_MAX;
}

/* Whether a start at an earlier key may help; if so the later ones are not used again. Steps grow,
 * so that a file whose keys are none (gradual refresh) does not cost a try for each. */
static bool step_back(struct frame_seeker *f, size_t want)
{
    size_t to;

    if (!f->index->order || f->start == 0 || frame_index_start(f->index, want) != f->start)
        return false;
    to = frame_index_step_back(f->index, f->start, 1 << f->misses);
    if (f->misses < MISSES_MAX)
        f->misses++;
    for (size_t i = to + 1; i <= f->start; i++)
        f->index->packet[i].flags |= PACKET_UNSAFE;
    return true;
}

/* Decodes until the frame filter has decided on `want`, or the packets go astray. */
static enum pv_status decide(struct frame_seeker *f, size_t want, enum verdict *verdict,
                             const struct judged **out, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    if (is_ahead(f, want))
        frame_filter_want(&f->frame_filter, want);
    else
        s = start_at(f, frame_index_start(f->index, want), want, err);
    *verdict = VERDICT_WAIT;
    while (!s && !f->astray && *verdict == VERDICT_WAIT) {
        *verdict = frame_filter_decide(&f->frame_filter, out);
        if (*verdict == VERDICT_WAIT)
            s = f->source.pump(f->source.user, err);
    }
    return s;
}

/* What stands in for a lost frame. `beyond`: where there is nothing before it, what comes after. */
static enum pv_status find_stand_in(struct frame_seeker *f, bool beyond, const struct judged **out,
                                    struct pv_error *err)
{
    const struct frame_filter *j = &f->frame_filter;
    enum pv_status s = PV_OK;

    f->drain_after = SIZE_MAX;
    *out = frame_filter_stand_in(j);
    while (!s && !*out && !j->ended && (beyond || (j->n > 0 && j->queue[0].rank < j->want))) {
        s = f->source.pump(f->source.user, err);
        *out = frame_filter_stand_in(j);
    }
    if (!s && *out && (*out)->rank > j->want && !beyond)
        *out = NULL;
    return s;
}

/* Decoders drop frames at times when they are emptied (FFmpeg's for H.264, after a recovery
 * point), and there may be a stand-in further on. */
static bool is_drained_early(const struct frame_seeker *f)
{
    return f->draining && f->index->order && f->next < f->index->n_packets;
}

enum pv_status frame_seeker_find(struct frame_seeker *f, size_t want, int64_t after,
                                 const struct judged **out, struct pv_error *err)
{
    bool again = false, to_end = false;
    enum verdict verdict;
    enum pv_status s;

    for (;;) {
        f->drain_after = to_end ? SIZE_MAX : last_packet(f, want, after);
        s = decide(f, want, &verdict, out, err);
        if (!s && verdict == VERDICT_GOOD)
            f->no_drain = f->no_drain || to_end;
        if (s || verdict == VERDICT_GOOD)
            return s;
        if (f->astray && !f->surely) {
            f->surely = true;
        } else if (!to_end && is_drained_early(f)) {
            to_end = true;
        } else if (f->passed) {
            f->whole = true;
        } else if (f->plain) {
            *out = NULL;
            frame_seeker_stop(f);
            return PV_OK;
        } else {
            f->whole = true;
            s = find_stand_in(f, false, out, err);
            if (!s && !((!again || !*out) && step_back(f, want)))
                return *out ? PV_OK : find_stand_in(f, true, out, err);
            if (s)
                return s;
            again = true;
        }
        f->running = false;
    }
}
