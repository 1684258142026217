/* Random numbers as a pure function of (seed, position, index). There is no state, so the token
 * that is sampled at a position does not depend on who samples it, or how often. */
#ifndef PV_BASE_RNG_H
#define PV_BASE_RNG_H

#include <stdint.h>

/* 64 well-mixed bits of (seed, position, index). */
uint64_t rng_bits(uint64_t seed, uint64_t position, uint64_t index);
/* Uniform in (0, 1), never 0 or 1. */
double rng_uniform(uint64_t seed, uint64_t position, uint64_t index);

/* A small sequential generator (tests, benchmarks). */
struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *r);
float rng_float(struct rng *r);  /* uniform in [-1, 1) */
float rng_normal(struct rng *r); /* mean 0, variance 1 */

#endif
