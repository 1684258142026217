/* Rows of media that the tower has made, kept in memory for whoever shows the model the same media
 * item again, and for prompts that take turns. Bounded: the media item that was used longest ago
 * goes first. One caller at a time. */
#ifndef PV_ENGINE_VISION_CACHE_H
#define PV_ENGINE_VISION_CACHE_H

#include "base/digest.h"

#include <stdbool.h>
#include <stdint.h>

struct vision_cache;

/* hidden: floats of a row; limit: bytes of all rows, 0: nothing is kept. NULL: no memory. */
struct vision_cache *vision_cache_open(size_t hidden, uint64_t limit);
void vision_cache_close(struct vision_cache **c);

/* Rows [row, row + n) of the media item with this digest; NULL: not all of them are kept. Valid
 * until the next call. */
const float *vision_cache_find(struct vision_cache *c, const uint8_t digest[DIGEST_SIZE], int row,
                               int n);
/* Where rows [row, row + n) of a media item of n_rows are to be written; they count as kept from
 * now on. NULL: no room, which is no failure. */
float *vision_cache_keep(struct vision_cache *c, const uint8_t digest[DIGEST_SIZE], int n_rows,
                         int row, int n);

struct vision_cache_counts {
    int64_t hits, misses; /* calls of vision_cache_find */
    int media;
    uint64_t bytes;
};
struct vision_cache_counts vision_cache_counts(const struct vision_cache *c);

#endif
