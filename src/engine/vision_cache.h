/* A cache in memory of the rows that the tower computed for media, for requests with the same media
 * item and for prompts that are prefilled alternately. Its size is limited; the least recently used
 * media item is dropped first. One caller at a time. */
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
/* Where to write rows [row, row + n) of a media item of n_rows rows; they count as cached from now
 * on. NULL: no memory, which is no failure. */
float *vision_cache_keep(struct vision_cache *c, const uint8_t digest[DIGEST_SIZE], int n_rows,
                         int row, int n);

struct vision_cache_counts {
    int64_t hits, misses; /* calls of vision_cache_find */
    int media;
    uint64_t bytes;
};
struct vision_cache_counts vision_cache_counts(const struct vision_cache *c);

#endif
