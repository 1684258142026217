/* Computes one chunk of attention with the kernel that the table has for a KV type and head size: a
 * special one (struct attn_kernel), or the generic one, which is two matrix products with a softmax
 * between. So a new instruction set supports attention as soon as it has matrix products. Used over
 * the cache (attention_cpu.c) and over plain rows (full_attention_cpu.c). */
#ifndef PV_KERNELS_ATTN_CHUNK_H
#define PV_KERNELS_ATTN_CHUNK_H

#include "kernels/kernels.h"

/* The type that kernels read a cache of type t as: t itself, or BF16 for F8 (kv_f8_cpu.c). */
enum dtype kv_read_type(enum dtype t);

struct chunk_kernel {
    const struct kernels *k;
    const struct attn_kernel *fast; /* NULL: the generic one */
    enum dtype t;
    int d;
    int tile; /* most queries per call */
};

/* A partial result: attention of n queries over some positions, as the softmax's max and sum, and
 * out [n, d] = sum p v. */
struct attn_partial {
    float *max, *sum, *out;
};

/* `group`: query heads per KV head, a fixed dimension like d; 0 if there are always many rows, so
 * that attn_kernel.least does not matter. */
struct chunk_kernel chunk_kernel_find(const struct kernels *k, enum dtype t, int d, int group);
bool chunk_trees(const struct chunk_kernel *c);
size_t chunk_packed_size(const struct chunk_kernel *c);  /* of a tile of queries */
size_t chunk_scratch_size(const struct chunk_kernel *c); /* of packing and of running */

void chunk_pack(const struct chunk_kernel *c, void *qp, const float *const *q, int n,
                void *scratch);
/* Query i attends to the first limit[i] positions, 0..positions; if that is 0, its part of p is
 * undefined. Trees are only for kernels that support them (chunk_trees). */
void chunk_run(const struct chunk_kernel *c, struct attn_partial p, const void *qp, int n,
               const struct attn_chunk *chunk, const int *limit, float scale, void *scratch);

/* Merge query j of `from` into query i of `to`: with M = max(m, m') it is (M, l e^(m-M) + l'
 * e^(m'-M), o e^(m-M) + o' e^(m'-M)). The empty result is (-INFINITY, 0, 0). */
void partial_clear(struct attn_partial p, int n, int d);
void partial_join(const struct kernels *k, struct attn_partial to, int i, struct attn_partial from,
                  int j, int d);

#endif
