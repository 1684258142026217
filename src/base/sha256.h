/* SHA-256 (FIPS 180-4). Names contents (pages of a KV cache, media) so that nobody can make two
 * different ones with the same name. */
#ifndef PV_BASE_SHA256_H
#define PV_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 };

struct sha256 {
    uint32_t state[8];
    uint64_t size; /* bytes so far */
    uint8_t block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *data, size_t size);
void sha256_finish(struct sha256 *h, uint8_t out[SHA256_SIZE]);

#endif
