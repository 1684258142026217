/* Checks the sample tables of an MP4 or QuickTime file before FFmpeg reads it. A header of a few
 * bytes can claim millions of samples, and FFmpeg allocates an entry for each. */
#ifndef PV_VIDEO_BOXES_H
#define PV_VIDEO_BOXES_H

#include "base/status.h"

enum {
    BOXES_ENTRIES_MAX = 1 << 25, /* samples of all tracks together */
    BOXES_ENTRY_SIZE = 32,       /* upper bound of FFmpeg's bytes per sample */
    BOXES_FREE = 1 << 16         /* missing samples that are tolerated: the file may be truncated */
};

struct boxes_source {
    const char *path; /* for errors */
    int64_t size;
    void *user;
    /* Reads up to n bytes from offset `at`; returns how many. */
    size_t (*read)(void *user, int64_t at, uint8_t *to, size_t n);
};

/* PV_E_LIMIT if the tables claim more samples than the file can hold, or if their entries need more
 * than `memory` bytes (0: no limit). Malformed boxes are not reported: FFmpeg refuses them. */
enum pv_status boxes_check(const struct boxes_source *s, uint64_t memory, struct pv_error *err);

#endif
