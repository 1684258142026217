/* Which outputs of a matrix, which heads and which experts a rank of a transport has. */
#ifndef PV_DIST_PARTS_OF_RANKS_H
#define PV_DIST_PARTS_OF_RANKS_H

#include "dist/transport.h"
#include "tensor/device.h"
#include "tensor/spread.h"

/* Ranks that have parts: all, or where rank 0 only leads (transport.apart) all others. */
int rank_workers(const struct transport *t);

/* The outputs, or experts, [from, to) of a rank. */
struct part split_outputs(int out, const struct transport *t, int rank);
struct part split_experts(int n_experts, const struct transport *t, int rank);
/* The query heads of a rank, and the KV heads that they use. */
struct head_part rank_heads(int n_heads, int n_kv_heads, const struct transport *t, int rank);

/* The outputs of a distributed matrix that a rank has. */
struct part split_matrix(const struct spread *s, int out, const struct transport *t, int rank);

/* Rank r has [at[r], at[r + 1]). */
struct ranges {
    int at[RANKS_MAX + 1];
};
struct ranges ranges_outputs(int out, const struct transport *t);
struct ranges ranges_queries(int n_heads, int n_kv_heads, int head_dim, const struct transport *t);

#endif
