/* BLAKE2b as RFC 7693 writes it: 12 rounds over blocks of 128 bytes, little-endian words, no key.
 * The last block waits until it is known to be the last. */
#include "base/digest.h"

#include <string.h>

static const uint64_t start[8] = { 0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                   0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                   0x1f83d9abfb41bd6b, 0x5be0cd19137e2179 };

/* Which word of the block goes where in each of ten rounds; then the first two come again. */
static const uint8_t order[10][16] = {
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
    { 14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3 },
    { 11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4 },
    { 7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8 },
    { 9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13 },
    { 2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9 },
    { 12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11 },
    { 13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10 },
    { 6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5 },
    { 10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0 },
};

static uint64_t rotate(uint64_t x, int n)
{
    return x >> n | x << (64 - n);
}

static uint64_t load_word(const uint8_t *p)
{
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = rotate(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotate(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate(v[b] ^ v[c], 63);
}

static void compress(struct digest *d, const uint8_t *block, size_t n, uint64_t last)
{
    uint64_t v[16], m[16];
    d->size += n;
    memcpy(v, d->state, sizeof d->state);
    memcpy(v + 8, start, sizeof start);
    v[12] ^= d->size;
    v[14] ^= last;
    for (int i = 0; i < 16; i++)
        m[i] = load_word(block + 8 * i);
    for (int r = 0; r < 12; r++) {
        const uint8_t *s = order[r % 10];
        for (int i = 0; i < 4; i++)
            mix(v, i, 4 + i, 8 + i, 12 + i, m[s[2 * i]], m[s[2 * i + 1]]);
        for (int i = 0; i < 4; i++)
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[s[8 + 2 * i]],
                m[s[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; i++)
        d->state[i] ^= v[i] ^ v[i + 8];
}

void digest_init(struct digest *d)
{
    *d = (struct digest){ .held = 0 };
    memcpy(d->state, start, sizeof start);
    d->state[0] ^= 0x01010000 ^ DIGEST_SIZE;
}

void digest_add(struct digest *d, const void *data, size_t size)
{
    const uint8_t *p = data;
    while (size > 0) {
        size_t some = DIGEST_BLOCK - d->held < size ? DIGEST_BLOCK - d->held : size;
        if (d->held == DIGEST_BLOCK) {
            compress(d, d->block, DIGEST_BLOCK, 0);
            d->held = 0;
            continue;
        }
        if (d->held == 0 && size > DIGEST_BLOCK) {
            compress(d, p, DIGEST_BLOCK, 0);
        } else {
            memcpy(d->block + d->held, p, some);
            d->held += some;
        }
        p += some;
        size -= some;
    }
}

void digest_finish(struct digest *d, uint8_t out[DIGEST_SIZE])
{
    memset(d->block + d->held, 0, DIGEST_BLOCK - d->held);
    compress(d, d->block, d->held, ~(uint64_t)0);
    for (int i = 0; i < DIGEST_SIZE; i++)
        out[i] = (uint8_t)(d->state[i / 8] >> 8 * (i % 8));
}
