/* What the tables of an MP4 or QuickTime file claim, before anybody believes them. A header of a
 * few bytes can claim millions of samples, for each of which FFmpeg keeps an entry in memory. */
#ifndef PV_VIDEO_BOXES_H
#define PV_VIDEO_BOXES_H

#include "base/status.h"

enum {
    BOXES_ENTRIES_MAX = 1 << 25, /* samples of all tracks together */
    BOXES_ENTRY_SIZE = 32,       /* bytes that FFmpeg keeps for one, or a little more */
    BOXES_FREE = 1 << 16         /* samples that a file may claim and not hold: it may be cut */
};

struct boxes_source {
    const char *path; /* for errors */
    int64_t size;
    void *user;
    /* Up to n bytes from `at` on; returns how many. */
    size_t (*read)(void *user, int64_t at, uint8_t *to, size_t n);
};

/* PV_E_LIMIT when there are more than the file can hold, or more than `memory` bytes are needed for
 * them (0: any). Whatever is no box at all is left to FFmpeg to refuse. */
enum pv_status boxes_check(const struct boxes_source *s, uint64_t memory, struct pv_error *err);

#endif
