/* The index of a film's frames. Packets come in decoding order, a few places away from the order
 * they are shown in, so insertion sorts them in linear time, and a packet that would have to move
 * far is a sign that the times are not to be trusted. */
#include "video/frame_index.h"

#include "base/mem.h"

/* Room for one more element of `size` bytes in an array of `n`; doubles. */
static enum pv_status make_room(void **array, size_t *cap, size_t n, size_t size,
                                struct pv_error *err)
{
    size_t want = *cap ? *cap * 2 : 256, bytes = 0;
    void *p;

    if (n < *cap)
        return PV_OK;
    if (n >= INDEX_PACKETS_MAX)
        return fail(err, PV_E_LIMIT, "the video has more than %d frames", (int)INDEX_PACKETS_MAX);
    if (!mul_size(want, size, &bytes))
        return fail_nomem(err, SIZE_MAX);
    p = mem_realloc(*array, bytes);
    if (!p)
        return fail_nomem(err, bytes);
    *array = p;
    *cap = want;
    return PV_OK;
}

enum pv_status frame_index_add(struct frame_index *ix, const struct index_packet *p,
                               struct pv_error *err)
{
    void *array = ix->packet;
    enum pv_status s = make_room(&array, &ix->packet_cap, ix->n_packets, sizeof *p, err);

    ix->packet = array;
    if (!s)
        ix->packet[ix->n_packets++] = *p;
    return s;
}

enum pv_status frame_index_count(struct frame_index *ix, double time, struct pv_error *err)
{
    void *array = ix->time;
    enum pv_status s = make_room(&array, &ix->time_cap, ix->n_frames, sizeof time, err);

    ix->time = array;
    if (!s)
        ix->time[ix->n_frames++] = time;
    return s;
}

/* Packets by time into order[]; false when the times do not make an order. */
static bool sort_packets(const struct frame_index *ix, uint32_t *order, size_t *n_shown)
{
    size_t n = 0;

    for (size_t i = 0; i < ix->n_packets; i++) {
        const struct index_packet *p = ix->packet + i;
        size_t at = n;
        if (p->flags & PACKET_HIDDEN)
            continue;
        if (p->pts == INDEX_NO_PTS)
            return false;
        for (; at > 0 && ix->packet[order[at - 1]].pts >= p->pts; at--) {
            if (ix->packet[order[at - 1]].pts == p->pts || n - at == INDEX_REORDER_MAX)
                return false;
            order[at] = order[at - 1];
        }
        order[at] = (uint32_t)i;
        n++;
    }
    *n_shown = n;
    return n > 0;
}

/* How many frames are shown before time `pts`. */
static uint32_t count_before(const struct frame_index *ix, const uint32_t *order, size_t n,
                             int64_t pts)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (ix->packet[order[mid]].pts < pts)
            lo = mid + 1;
        else
            hi = mid;
    }
    return (uint32_t)lo;
}

/* Numbers the packets; false when one is shown further from its place in decoding than any codec
 * reorders. */
static bool rank_packets(struct frame_index *ix, const uint32_t *order, size_t n)
{
    uint32_t shown = 0, top = 0;

    for (size_t r = 0; r < n; r++)
        ix->packet[order[r]].rank = (uint32_t)r;
    for (size_t i = 0; i < ix->n_packets; i++) {
        struct index_packet *p = ix->packet + i;
        if (p->flags & PACKET_HIDDEN) {
            /* One without a time is never a start. */
            p->rank = p->pts == INDEX_NO_PTS ? (uint32_t)n : count_before(ix, order, n, p->pts);
        } else {
            if (p->rank > shown + INDEX_REORDER_MAX || shown > p->rank + INDEX_REORDER_MAX)
                return false;
            top = p->rank > top ? p->rank : top;
            shown++;
        }
        p->top = top;
    }
    return true;
}

enum pv_status frame_index_sort(struct frame_index *ix, double unit, bool *sorted,
                                struct pv_error *err)
{
    size_t n = 0, order_size = sizeof *ix->order * ix->n_packets;
    uint32_t *order = mem_alloc(order_size ? order_size : 1);
    double *time;

    if (!order)
        return fail_nomem(err, order_size);
    if (!sort_packets(ix, order, &n) || !rank_packets(ix, order, n)) {
        mem_free(order);
        *sorted = false;
        return PV_OK;
    }
    time = mem_alloc(sizeof *time * n);
    if (!time) {
        mem_free(order);
        return fail_nomem(err, sizeof *time * n);
    }
    for (size_t r = 0; r < n; r++) /* unsigned: the times of a damaged file can be anything */
        time[r] =
            (double)((uint64_t)ix->packet[order[r]].pts - (uint64_t)ix->packet[order[0]].pts) *
            unit;
    ix->order = order;
    ix->time = time;
    ix->n_frames = n;
    *sorted = true;
    return PV_OK;
}

size_t frame_index_start(const struct frame_index *ix, size_t rank)
{
    size_t i;

    if (!ix->order)
        return 0;
    /* A key shown before the frame is also decoded before it. */
    for (i = ix->order[rank]; i > 0; i--) {
        const struct index_packet *p = ix->packet + i;
        if ((p->flags & (PACKET_KEY | PACKET_UNSAFE | PACKET_BROKEN)) == PACKET_KEY &&
            p->rank <= rank)
            break;
    }
    return i;
}

size_t frame_index_step_back(const struct frame_index *ix, size_t start, int back)
{
    while (start > 0 && back > 0) {
        start--;
        if ((ix->packet[start].flags & (PACKET_KEY | PACKET_BROKEN)) == PACKET_KEY)
            back--;
    }
    return start;
}

size_t frame_index_references(const struct frame_index *ix, size_t begin, size_t end)
{
    size_t n = 0;

    for (size_t i = begin; i < end; i++)
        n += !frame_index_is_disposable(ix, i);
    return n;
}

int frame_index_delay(const struct frame_index *ix)
{
    uint32_t shown = 0, delay = 0;

    for (size_t i = 0; i < ix->n_packets && ix->order; i++) {
        const struct index_packet *p = ix->packet + i;
        if (p->flags & PACKET_HIDDEN)
            continue;
        if (shown > p->rank && shown - p->rank > delay)
            delay = shown - p->rank;
        shown++;
    }
    return delay < 16 ? (int)delay : 16;
}

void frame_index_drop_packets(struct frame_index *ix)
{
    mem_free(ix->packet);
    ix->packet = NULL;
    ix->n_packets = ix->packet_cap = 0;
}

void frame_index_clear(struct frame_index *ix)
{
    mem_free(ix->packet);
    mem_free(ix->order);
    mem_free(ix->time);
    *ix = (struct frame_index){ 0 };
}
