/* Finding a frame: whether the decoder goes on or starts again at a key, where it stops, what to do
 * when a key turns out to be none. Knows the index and the judge; the decoder is behind two
 * functions. */
#ifndef PV_VIDEO_FINDER_H
#define PV_VIDEO_FINDER_H

#include "video/judge.h"

/* A decoder and where its packets come from. */
struct finder_source {
    void *user;
    /* Starts afresh with `packet` as the next one. `surely`: by reading from the beginning, since
     * seeking has led astray. */
    enum pv_status (*start)(void *user, size_t packet, bool surely, struct pv_error *err);
    /* One frame more to the judge, or judge_end. Feeds packets with finder_feed. */
    enum pv_status (*pump)(void *user, struct pv_error *err);
};

struct finder {
    struct frame_index *index; /* borrowed */
    struct finder_source source;
    struct judge judge;
    size_t start;       /* packet the decoder started from */
    size_t next;        /* packet it is fed next */
    size_t drain_after; /* it is fed none after this one */
    bool running, draining;
    bool astray;   /* the packets are not those of the index */
    bool surely;   /* starts are made by reading from the beginning */
    bool no_drain; /* emptying this decoder early loses frames */
    bool plain;    /* no stand-ins are looked for, and the index is not written to */
    int misses;    /* starts that went wrong */
};

void finder_init(struct finder *f, struct frame_index *index, struct finder_source source,
                 void (*drop)(void *frame));

/* To be asked before each packet: its number is f->next, which is advanced when true. False: the
 * decoder is to give what it still has, and then end. */
bool finder_feed(struct finder *f);
/* The packet just fed is not number f->next - 1; the decoder is to end. */
void finder_astray(struct finder *f);

/* Frame `want`, or what stands in for it (another rank): the last good one before it, and only
 * where there is none the first good one after it. *out stays the judge's until the next call.
 * NULL: not one frame decodes; plain: this one does not. `after` is wanted next, -1: none. */
enum pv_status finder_find(struct finder *f, size_t want, int64_t after, const struct judged **out,
                           struct pv_error *err);

/* Lets all frames go; the next call starts afresh. */
void finder_stop(struct finder *f);
/* ... and as with a new decoder. */
void finder_restart(struct finder *f);

#endif
