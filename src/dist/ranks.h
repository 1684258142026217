/* The ranks of one model: rank 0, which has the engine, and those that follow it. */
#ifndef PV_DIST_RANKS_H
#define PV_DIST_RANKS_H

#include "dist/transport.h"
#include "tensor/device.h"

struct file_map;

/* Carries out what rank 0 says until it says that this is the end. */
enum pv_status ranks_follow(struct transport *t, struct pv_error *err);
/* Rank 0: the others' ranks_follow returns. */
void ranks_end(struct transport *t);

/* Rank 0: the CPU of all ranks as one device, with so many threads on each. While dev->spreads is
 * set, decoders that are opened are spread over the ranks; everything else (towers, drafters) runs
 * on rank 0. Borrows t; one such device at a time. */
enum pv_status device_ranks_open(struct device **out, struct transport *t, int threads,
                                 uint64_t cpu, struct pv_error *err);
/* Matrices lie in this mapping of a file. Ranks that have the same file read their parts there, the
 * others are sent them. */
enum pv_status device_ranks_source(struct device *dev, const char *path, const void *data,
                                   size_t size, struct pv_error *err);

#endif
