/* Tells accidental damage of large contents at the speed of memory. Not a digest: whoever wants to
 * can make two contents with one checksum (base/digest.h). A change of any one 8-byte word is
 * always found. */
#ifndef PV_BASE_CHECKSUM_H
#define PV_BASE_CHECKSUM_H

#include "base/digest.h"

enum { CHECKSUM_LANES = 8, CHECKSUM_BLOCK = 8 * CHECKSUM_LANES };

struct checksum {
    uint64_t lane[CHECKSUM_LANES];
    struct digest rest; /* of lengths, and of bytes that fill no block */
};

void checksum_init(struct checksum *c);
/* The same bytes cut into other calls have another checksum. */
void checksum_add(struct checksum *c, const void *data, size_t size);
void checksum_finish(struct checksum *c, uint8_t out[DIGEST_SIZE]);

#endif
