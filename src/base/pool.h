/* A group of threads that run one function together.
 *
 * pool_run calls fn(ctx, thread, n_threads) once on each thread, the caller being thread 0, and
 * returns when all have returned. Workers spin a little before they sleep, so that the many short
 * regions of a decode step cost about a microsecond each. One caller at a time. */
#ifndef PV_BASE_POOL_H
#define PV_BASE_POOL_H

#include "base/status.h"

struct pool;

typedef void pool_fn(void *ctx, int thread, int n_threads);

enum { POOL_MAX_THREADS = 256 };

enum pv_status pool_open(struct pool **out, int n_threads, struct pv_error *err);
void pool_close(struct pool **pool);
int pool_threads(const struct pool *pool);
void pool_run(struct pool *pool, pool_fn *fn, void *ctx);

/* Inside a region: wait until every thread of the pool has come here. */
void pool_barrier(struct pool *pool);

#endif
