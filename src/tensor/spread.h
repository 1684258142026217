/* How outputs and heads are shared out by the ranks of a decoder that is spread (struct spread):
 * contiguous parts in the order of ranks. */
#ifndef PV_TENSOR_SPREAD_H
#define PV_TENSOR_SPREAD_H

/* [from, to) */
struct part {
    int from, to;
};

/* Rank `rank`'s of n things. */
struct part split_evenly(int n, int n_ranks, int rank);
/* The same, cut at multiples of `step` where that leaves each rank two of them, else of `least`. */
struct part split_steps(int n, int step, int least, int n_ranks, int rank);

/* Query heads, and the KV heads that they look at. With more ranks than KV heads several ranks have
 * the same KV head, and share the query heads of its group; some may have none. */
struct head_part {
    struct part q, kv;
};
struct head_part split_heads(int n_heads, int n_kv_heads, int n_ranks, int rank);

#endif
