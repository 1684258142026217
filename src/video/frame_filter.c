/* The frame filter of decoded frames. The state is one number, `bad`: the first damaged packet
 * since the last intact key frame; everything decoded after it may show the damage. A start makes
 * everything bad until a key frame comes out, so pictures shown before the key they were decoded
 * after (open groups of pictures) never pass. */
#include "video/frame_filter.h"

#include <assert.h>

static const size_t NOTHING_BAD = SIZE_MAX;

static void let_go(struct frame_filter *j, struct judged *f)
{
    if (f->frame)
        j->drop(f->frame);
    *f = (struct judged){ 0 };
}

void frame_filter_clear(struct frame_filter *j)
{
    for (int i = 0; i < j->n; i++)
        let_go(j, &j->queue[i]);
    j->n = 0;
    let_go(j, &j->before);
}

void frame_filter_start(struct frame_filter *j, size_t start, size_t want)
{
    frame_filter_clear(j);
    j->bad = start;
    j->last = j->index->order ? (int64_t)j->index->packet[start].rank - 1 : -1;
    j->want = want;
    j->ended = false;
}

/* Have all frames come that were decoded before this one? */
static bool is_settled(const struct frame_filter *j, const struct judged *f)
{
    return j->ended || j->last >= (int64_t)frame_index_top(j->index, f->rank);
}

/* Frames before the wanted one leave the queue when they are settled; the last is kept. */
static void let_early_go(struct frame_filter *j)
{
    int n = 0;

    while (n < j->n && j->queue[n].rank < j->want && is_settled(j, &j->queue[n])) {
        let_go(j, &j->before);
        j->before = j->queue[n++];
    }
    for (int i = n; i < j->n; i++)
        j->queue[i - n] = j->queue[i];
    j->n -= n;
}

static void mark_bad(struct frame_filter *j, size_t packet)
{
    int kept = 0;

    if (packet < j->bad)
        j->bad = packet;
    for (int i = 0; i < j->n; i++) {
        if (frame_index_packet(j->index, j->queue[i].rank) >= packet)
            let_go(j, &j->queue[i]);
        else
            j->queue[kept++] = j->queue[i];
    }
    j->n = kept;
}

/* Frames up to `end` of the packets before `fed` that did not come will not come. */
static void mark_missing(struct frame_filter *j, size_t end, size_t fed)
{
    for (size_t r = (size_t)(j->last + 1); r < end && j->index->order && !j->lenient; r++) {
        size_t packet = j->index->order[r];
        if (packet < fed &&
            !(j->index->packet[packet].flags & (PACKET_OPTIONAL | PACKET_DISPOSABLE)))
            mark_bad(j, packet);
    }
}

void frame_filter_add(struct frame_filter *j, void *frame, size_t rank, bool key, bool damaged)
{
    size_t packet;
    bool alone;

    if (rank >= j->index->n_frames || (int64_t)rank <= j->last) {
        j->drop(frame); /* shown before the key we started from, or twice */
        return;
    }
    mark_missing(j, rank, SIZE_MAX);
    j->last = (int64_t)rank;
    packet = frame_index_packet(j->index, rank);
    alone = damaged && frame_index_is_disposable(j->index, packet);
    if (damaged && !alone)
        mark_bad(j, packet);
    else if (key)
        j->bad = NOTHING_BAD;
    if (!alone && packet < j->bad && j->n < FRAME_FILTER_QUEUE)
        j->queue[j->n++] = (struct judged){ frame, rank };
    else
        j->drop(frame);
    let_early_go(j);
}

void frame_filter_add_hidden(struct frame_filter *j, size_t packet, bool key, bool damaged)
{
    if (damaged)
        mark_bad(j, packet);
    else if (key)
        j->bad = NOTHING_BAD;
}

void frame_filter_add_error(struct frame_filter *j)
{
    size_t first = (size_t)(j->last + 1), packet = SIZE_MAX;

    /* Whose it is, is not known: of all that did not come yet, the first decoded. */
    for (size_t r = first; r < j->index->n_frames && r <= first + INDEX_REORDER_MAX; r++) {
        size_t p = frame_index_packet(j->index, r);
        packet = p < packet ? p : packet;
    }
    mark_bad(j, packet);
}

void frame_filter_end(struct frame_filter *j, size_t fed)
{
    size_t end = (size_t)(j->last + 1) + 2 * INDEX_REORDER_MAX;

    mark_missing(j, end < j->index->n_frames ? end : j->index->n_frames, fed);
    j->ended = true;
    let_early_go(j);
}

void frame_filter_want(struct frame_filter *j, size_t rank)
{
    assert(rank >= j->want);
    j->want = rank;
    let_early_go(j);
}

enum verdict frame_filter_decide(const struct frame_filter *j, const struct judged **out)
{
    for (int i = 0; i < j->n; i++) {
        if (j->queue[i].rank != j->want)
            continue;
        if (!is_settled(j, &j->queue[i]))
            return VERDICT_WAIT;
        *out = &j->queue[i];
        return VERDICT_GOOD;
    }
    return j->ended || j->last >= (int64_t)j->want ? VERDICT_LOST : VERDICT_WAIT;
}

const struct judged *frame_filter_stand_in(const struct frame_filter *j)
{
    if (j->n > 0 && j->queue[0].rank < j->want)
        return NULL; /* its verdict is still out */
    if (j->before.frame)
        return &j->before;
    for (int i = 0; i < j->n; i++)
        if (is_settled(j, &j->queue[i]))
            return &j->queue[i];
    return NULL;
}
