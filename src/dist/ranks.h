/* The ranks of one model: rank 0, which has the engine, and the others, which execute its
 * commands. */
#ifndef PV_DIST_RANKS_H
#define PV_DIST_RANKS_H

#include "dist/transport.h"
#include "tensor/device.h"

struct file_map;

/* Execute the commands of rank 0 until COMMAND_END. */
enum pv_status ranks_follow(struct transport *t, struct pv_error *err);
/* Rank 0: make ranks_follow of the others return. */
void ranks_end(struct transport *t);

/* Rank 0: open the CPUs of all ranks as one device, with `threads` threads on each. While
 * dev->spreads is set, decoders that are opened are distributed over the ranks; everything else
 * (towers, drafters) runs on rank 0. Borrows t; one such device at a time. */
enum pv_status device_ranks_open(struct device **out, struct transport *t, int threads,
                                 uint64_t cpu, struct pv_error *err);
/* Announce a mapped file that contains matrices. Ranks that have the same file read their parts
 * from it; the others receive theirs from rank 0. */
enum pv_status device_ranks_source(struct device *dev, const char *path, const void *data,
                                   size_t size, struct pv_error *err);

#endif
