/* Which outputs of a matrix, which heads and which experts a rank has. */
#ifndef PV_DIST_PARTS_OF_RANKS_H
#define PV_DIST_PARTS_OF_RANKS_H

#include "dist/transport.h"
#include "tensor/device.h"

struct part {
    int from, to;
};

/* The outputs, or experts, [from, to) of a rank. */
struct part split_outputs(int out, int n_ranks, int rank);
struct part split_experts(int n_experts, int n_ranks, int rank);

/* The query heads of a rank, and the KV heads that they use. With more ranks than KV heads, several
 * ranks have the same KV head and share the query heads of its group; some may have none. */
struct head_part {
    struct part q, kv;
};
struct head_part split_heads(int n_heads, int n_kv_heads, int n_ranks, int rank);

/* The outputs of a distributed matrix that a rank has. */
struct part split_matrix(const struct spread *s, int out, int n_ranks, int rank);

/* Rank r has [at[r], at[r + 1]). */
struct ranges {
    int at[RANKS_MAX + 1];
};
struct ranges ranges_outputs(int out, int n_ranks);
struct ranges ranges_queries(int n_heads, int n_kv_heads, int head_dim, int n_ranks);

#endif
