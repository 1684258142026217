/* Lane i takes word i of every block. What a lane does with a word maps different states, and
 * different words, to different states, so a changed word stays visible to the end; the lanes do
 * not wait for each other. BLAKE2b then joins them. */
#include "base/checksum.h"

#include "base/load.h"

static const uint64_t factor = 0x9fb21c651e98df25; /* odd */

void checksum_init(struct checksum *c)
{
    for (int i = 0; i < CHECKSUM_LANES; i++)
        c->lane[i] = (uint64_t)i;
    digest_init(&c->rest);
}

void checksum_add(struct checksum *c, const void *data, size_t size)
{
    const uint8_t *p = data;
    const uint64_t bytes = size;
    uint64_t lane[CHECKSUM_LANES];
    memcpy(lane, c->lane, sizeof lane);
    for (; size >= CHECKSUM_BLOCK; p += CHECKSUM_BLOCK, size -= CHECKSUM_BLOCK)
        for (int i = 0; i < CHECKSUM_LANES; i++) {
            lane[i] = (lane[i] ^ load_le64(p + 8 * i)) * factor;
            lane[i] ^= lane[i] >> 32;
        }
    memcpy(c->lane, lane, sizeof lane);
    digest_add(&c->rest, &bytes, sizeof bytes);
    digest_add(&c->rest, p, size);
}

void checksum_finish(struct checksum *c, uint8_t out[DIGEST_SIZE])
{
    digest_add(&c->rest, c->lane, sizeof c->lane);
    digest_finish(&c->rest, out);
}
