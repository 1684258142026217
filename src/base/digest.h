/* BLAKE2b with 32 bytes of output (RFC 7693). Identifies contents (rows and pages of a KV cache,
 * media) in caches, so that nobody can construct different contents with the same digest. */
#ifndef PV_BASE_DIGEST_H
#define PV_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { DIGEST_SIZE = 32, DIGEST_BLOCK = 128 };

struct digest {
    uint64_t state[8];
    uint64_t size; /* bytes processed so far */
    size_t held;   /* bytes in `block` */
    uint8_t block[DIGEST_BLOCK];
};

void digest_init(struct digest *d);
void digest_add(struct digest *d, const void *data, size_t size);
void digest_finish(struct digest *d, uint8_t out[DIGEST_SIZE]);

#endif
