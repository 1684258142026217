/* One chunk of attention, by whichever kernel the table has for a KV type and head size: its own
 * (struct attn_kernel), or the generic one, which is two matrix products with a softmax between. So
 * a new instruction set has attention as soon as it has products. Used over the cache
 * (attention_cpu.c) and over plain rows (full_attention_cpu.c). */
#ifndef PV_KERNELS_ATTN_CHUNK_H
#define PV_KERNELS_ATTN_CHUNK_H

#include "kernels/kernels.h"

struct chunk_kernel {
    const struct kernels *k;
    const struct attn_kernel *own; /* NULL: the generic one */
    enum dtype t;
    int d;
    int tile; /* queries of one call, at most */
};

/* What attention of n queries over some positions is kept as: softmax's max and sum, and out [n, d]
 * = sum p v. */
struct attn_partial {
    float *max, *sum, *out;
};

/* `group`: heads that share a KV head, a fixed number like d; 0: rows are always many. */
struct chunk_kernel chunk_kernel_find(const struct kernels *k, enum dtype t, int d, int group);
bool chunk_trees(const struct chunk_kernel *c);
size_t chunk_packed_size(const struct chunk_kernel *c);  /* of a tile of queries */
size_t chunk_scratch_size(const struct chunk_kernel *c); /* of packing and of running */

void chunk_pack(const struct chunk_kernel *c, void *qp, const float *const *q, int n,
                void *scratch);
/* limit[i] in 0..positions: what query i sees; 0: its part of p is garbage. Chunks with a tree are
 * for kernels of the table that take them (chunk_trees). */
void chunk_run(const struct chunk_kernel *c, struct attn_partial p, const void *qp, int n,
               const struct attn_chunk *chunk, const int *limit, float scale, void *scratch);

/* Query i of `to` becomes its join with query j of `from`: with M = max(m, m') it is
 * (M, l e^(m-M) + l' e^(m'-M), o e^(m-M) + o' e^(m'-M)). The empty one is (-INFINITY, 0, 0). */
void partial_clear(struct attn_partial p, int n, int d);
void partial_join(const struct kernels *k, struct attn_partial to, int i, struct attn_partial from,
                  int j, int d);

#endif
