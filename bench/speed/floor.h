/* What the machine can do at most, measured beside what we do with it. */
#ifndef PV_BENCH_SPEED_FLOOR_H
#define PV_BENCH_SPEED_FLOOR_H

#include "base/pool.h"

/* Bytes a second that all threads of the pool read together from a block far larger than the
 * caches, the best of several passes; 0 when there is no memory for it. *size: the block. */
double floor_read(struct pool *pool, size_t *size);

/* The arithmetic instruction that the matmul kernel of this name spends its time in, and how many
 * operations (a multiply and an add count two) all threads of the pool do with it in a second,
 * from registers alone. The rate is 0 for a name this file does not know. */
const char *floor_instruction(const char *kernel_name);
double floor_peak(struct pool *pool, const char *kernel_name);

#endif
