/* One decoder over several GPUs (doc/ranks.md): each has some outputs of every matrix and some
 * heads of the KV cache, and all of the residual stream.
 *
 * One thread of the host drives all of them. The first GPU's work is the one that the decoder
 * knows; it carries those of the others. Every GPU has a stream, and they meet where a part of a
 * row goes to all (exchange). So a step on all GPUs is recorded as one graph.
 *
 * Why nobody overwrites what another still reads: whoever writes a buffer again has met all others
 * since, in an exchange of another buffer. Where the first GPU goes on alone it waits for all
 * (gpus_join). */
#ifndef PV_KERNELS_CUDA_GPUS_H
#define PV_KERNELS_CUDA_GPUS_H

#include "kernels/cuda/experts.h"
#include "kernels/cuda/work.h"

extern "C" {
#include "tensor/spread.h"
}

enum { GPUS_MOST = 16, GPUS_POOLS = 64 };

/* What belongs to GPU r is [at[r], at[r + 1]). */
struct gpus_ranges {
    int at[GPUS_MOST + 1];
};

/* matrix.own of one that is spread. */
struct gpus_matrix {
    struct matrix part[GPUS_MOST];
    bool viewed;            /* part[0] is a view of the whole matrix, which is there too */
    float *bias[GPUS_MOST]; /* of the GPUs behind the first */
    struct cuda_matrix view;
};

/* One GPU's part of a layer. */
struct gpus_layer_part {
    struct layer_weights w;
    struct layer_shape shape; /* n_heads and n_kv_heads: those that are here */
    struct expert_weights experts;
    struct cuda_matrix router;
    float *small; /* norms, on the GPUs behind the first */
};

/* layer_weights.own of one that is spread. */
struct gpus_layer {
    struct gpus_ranges q, hidden, ffn; /* elements of a row */
    struct part kv[GPUS_MOST];         /* heads */
    struct gpus_layer_part part[GPUS_MOST];
};

/* expert_weights.own of those that are spread. */
struct gpus_experts {
    struct matrix *matrix[GPUS_MOST]; /* [3, n] parts */
};

struct gpus_pool {
    struct kv_shape shape;
    uint8_t *mem[GPUS_MOST]; /* mem[0] NULL: free */
    int n_kv[GPUS_MOST];
    size_t page_size[GPUS_MOST], size;
};

struct nccl;

struct gpus_device {
    struct device dev; /* whose impl is the first GPU's */
    struct device_ops ops;
    int n;
    struct device *gpu[GPUS_MOST];
    bool reach;        /* each can read the memory of all others */
    struct nccl *nccl; /* NULL: not used */
    struct gpus_pool pool[GPUS_POOLS];
};

/* One GPU's share of a work. */
struct gpus_rank {
    struct device_work *w;
    float *x, *cos, *sin; /* the first GPU's: the decoder's own */
    int32_t *rows;
    uint8_t *part, *part2; /* its part of rows, compact; of gate and up */
    uint8_t *pairs;        /* experts: [pairs, ffn] */
    float *logits;         /* [FEW_ROWS, outputs]; not the first */
    uint8_t *stage;        /* all parts one behind the other, for NCCL */
    void *block;
    cudaEvent_t ready;
    struct attn_run runs[MAX_RUNS];
    struct kv_layer kv[MAX_RUNS];
};

struct gpus_work {
    struct gpus_device *g;
    int n;
    /* The x that all have, and its cos and sin; NULL: only the first GPU has it. */
    const float *there;
    int n_there;
    size_t part_size, pairs_size, stage_size;
    struct gpus_rank r[GPUS_MOST];
};

/* Calls that follow are for this GPU. */
static inline void on_gpu(const struct gpus_rank *r)
{
    cudaSetDevice(r->w->gpu->index);
}

/* Rows of which each GPU has a part: elements [at[r], at[r + 1]) of `size` bytes each. */
struct exchange {
    const struct gpus_ranges *at;
    int n;       /* rows */
    size_t size; /* of an element */
    const void *from[GPUS_MOST];
    size_t from_stride[GPUS_MOST]; /* elements */
    void *to[GPUS_MOST];           /* NULL: not to this one */
    size_t to_stride;              /* elements; a part lies where its elements do */
};

/* gpus_exchange.cu. A part that lies where it goes is left there. */
void gpus_exchange(struct gpus_work *g, const struct exchange *e);
/* The first GPU's bytes to the same place of all others. */
void gpus_share(struct gpus_work *g, void *const *to, const void *from, size_t size);
/* What the others do from now on comes after what the first GPU was asked for; and the other way
 * round. */
void gpus_fork(struct gpus_work *g);
void gpus_join(struct gpus_work *g);
/* Whether each GPU reads the others' memory, or which library carries it. */
void gpus_connect(struct gpus_device *g);
void gpus_disconnect(struct gpus_device *g);

/* gpus_weights.cu */
enum pv_status gpus_take(struct device *dev, struct matrix *m, struct pv_error *err);
enum pv_status gpus_draw(struct device *dev, struct matrix *m, uint64_t seed, struct pv_error *err);
void gpus_drop(struct device *dev, struct matrix *m);
enum pv_status gpus_take_experts(struct device *dev, struct expert_weights *e,
                                 struct pv_error *err);
void gpus_drop_experts(struct device *dev, struct expert_weights *e);
enum pv_status gpus_take_layer(struct device *dev, struct layer_weights *l,
                               const struct layer_shape *shape, struct pv_error *err);
void gpus_drop_layer(struct device *dev, struct layer_weights *l);
struct gpus_ranges gpus_outputs(int out, int n);

/* gpus_blocks.cu */
void gpus_attn(struct device_work *w, const struct attn_block *b);
void gpus_finish(struct device_work *w, const struct finish_block *b);
void gpus_logits(struct device_work *w, const struct logits_job *job);
void gpus_matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                 int n);

/* columns.cu: column sums over the heads of all GPUs, q16 of all heads being in `gathered` of each;
 * the run of this number, whose kv is in gpus_rank.kv. */
void gpus_columns(struct gpus_work *g, const struct gpus_layer *l, const struct column_job *job,
                  int index, int n_heads, int group, int d, float scale);

/* device_gpus.cu: the pool that an address of the first GPU lies in, or NULL. */
const struct gpus_pool *gpus_pool_of(const struct gpus_device *g, const void *p);
/* A layer of it as GPU r has it. */
struct kv_layer gpus_kv(const struct gpus_pool *p, const struct kv_layer *kv, int r);

#endif
