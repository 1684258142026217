/* Detects accidental damage of large data at the speed of memory. It is not cryptographic: anyone
 * can construct different data with the same checksum (base/digest.h is for that case). A change of
 * any single 8-byte word is always detected. */
#ifndef PV_BASE_CHECKSUM_H
#define PV_BASE_CHECKSUM_H

#include "base/digest.h"

enum { CHECKSUM_LANES = 8, CHECKSUM_BLOCK = 8 * CHECKSUM_LANES };

struct checksum {
    uint64_t lane[CHECKSUM_LANES];
    struct digest rest; /* covers lengths, and bytes at the end that fill no block */
};

void checksum_init(struct checksum *c);
/* The checksum depends on how the bytes are divided into calls. */
void checksum_add(struct checksum *c, const void *data, size_t size);
void checksum_finish(struct checksum *c, uint8_t out[DIGEST_SIZE]);

#endif
