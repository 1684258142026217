/* Random numbers from a hash of their coordinates, and a small sequential generator.
 *
 * Each coordinate is multiplied by its own odd constant (so that neighbouring triples never meet in
 * a sum) and enters through one round of a 64-bit finaliser: xor-shift, multiply, twice. One round
 * already flips every output bit with probability near 1/2; the seed goes through three of them,
 * the index through the last two. The text a seed gives depends on these constants: they are part
 * of what the program promises and do not change. */
#include "base/rng.h"

#include <math.h>

/* The finaliser of MurmurHash3 with the multipliers found best by Stafford ("Mix13"). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t rng_bits(uint64_t seed, uint64_t position, uint64_t index)
{
    uint64_t h = mix(seed + 0x9e3779b97f4a7c15u); /* the finaliser keeps 0: never start there */
    h = mix(h ^ (position * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du));
    h = mix(h + index * 0x9e3779b97f4a7c15u);
    return mix(h ^ 0xa0761d6478bd642fu);
}

/* The top 52 bits, centred in their cell: the smallest is 2^-53, the largest 1 - 2^-53, both
 * exact in double, so neither end is ever reached and log() of it is finite. */
double rng_uniform(uint64_t seed, uint64_t position, uint64_t index)
{
    return ((double)(rng_bits(seed, position, index) >> 12) + 0.5) * 0x1p-52;
}

uint64_t rng_next(struct rng *r)
{
    r->state += 0x9e3779b97f4a7c15u;
    return mix(r->state);
}

float rng_float(struct rng *r)
{
    return (float)(rng_next(r) >> 40) * 0x1p-23f - 1.0f;
}

/* Box and Muller; the second value of the pair is thrown away to keep the state one word. */
float rng_normal(struct rng *r)
{
    double u = ((double)(rng_next(r) >> 12) + 0.5) * 0x1p-52;
    double v = (double)(rng_next(r) >> 11) * 0x1p-53;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}
