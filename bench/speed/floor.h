/* The limits of the machine, measured together with our own speed. */
#ifndef PV_BENCH_SPEED_FLOOR_H
#define PV_BENCH_SPEED_FLOOR_H

#include "base/pool.h"
#include "tensor/dtype.h"

/* Bytes a second that all threads of the pool read together from a block far larger than the
 * caches, the best of several passes; 0 when there is no memory for it. *size: the block. */
double floor_read(struct pool *pool, size_t *size);

/* Products by weights of these kinds. A narrower kind may use the instructions of a wider one. */
enum peak_kind { PEAK_F32, PEAK_HALF, PEAK_INT8, PEAK_KINDS };

enum peak_kind peak_kind_of(enum dtype t);
const char *peak_kind_name(enum peak_kind kind);

struct peak_rate {
    const char *instruction;
    double
        rate; /* operations a second of all threads, a multiply and an add being two; 0: unknown */
};

/* For each kind the fastest instruction that the CPU features allow, from registers alone. It is
 * the machine's limit whether our kernels use that instruction or not. */
void floor_peaks(struct pool *pool, uint64_t cpu, struct peak_rate out[PEAK_KINDS]);

/* The same for bf16 tiles, but with random numbers in the registers and for about `seconds`: these
 * take more power than zeros, so the CPU runs them more slowly. 0: the CPU has no tiles. */
double floor_random_tiles(struct pool *pool, uint64_t cpu, double seconds);

#endif
