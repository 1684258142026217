/* One decoder over several GPUs (doc/ranks.md): each GPU has some outputs of every matrix, some
 * heads of the KV cache, and the whole residual stream.
 *
 * One host thread drives all GPUs. The decoder knows only the first GPU's work, which carries those
 * of the others. Each GPU has a stream; the streams synchronise when parts of rows are sent to all
 * GPUs (an exchange). So a step on all GPUs can be recorded as one graph.
 *
 * No GPU overwrites data that another still reads: before it writes a buffer again, it has
 * synchronised with all others in an exchange of another buffer. Before the first GPU continues
 * alone, it waits for all (gpus_join). */
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

/* matrix.handle of a matrix that is spread over the GPUs. */
struct gpus_matrix {
    struct matrix part[GPUS_MOST];
    bool viewed;            /* part[0] is a view of the whole matrix on the first GPU */
    float *bias[GPUS_MOST]; /* of the GPUs after the first */
    struct cuda_matrix view;
};

/* One GPU's part of a layer. */
struct gpus_layer_part {
    struct layer_weights w;
    struct layer_shape shape; /* n_heads and n_kv_heads: those on this GPU */
    struct expert_weights experts;
    struct cuda_matrix router;
    float *small; /* norms, on the GPUs after the first */
};

/* layer_weights.handle of a layer that is spread over the GPUs. */
struct gpus_layer {
    struct gpus_ranges q, hidden, ffn; /* elements of a row */
    struct part kv[GPUS_MOST];         /* heads */
    struct gpus_layer_part part[GPUS_MOST];
};

/* expert_weights.handle of experts that are spread over the GPUs. */
struct gpus_experts {
    struct matrix *matrix[GPUS_MOST]; /* [3, n] parts */
};

struct gpus_pool {
    struct kv_shape shape;
    uint8_t *mem[GPUS_MOST]; /* mem[0] NULL: the entry is unused */
    int n_kv[GPUS_MOST];
    size_t page_size[GPUS_MOST], size;
};

struct nccl;

struct gpus_device {
    struct device dev; /* its impl is the first GPU's */
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
    float *x, *cos, *sin; /* on the first GPU: the decoder's own buffers */
    int32_t *rows;
    uint8_t *part, *part2; /* its part of rows, compact; part2: of gate and up */
    uint8_t *pairs;        /* experts: [pairs, ffn] */
    float *logits;         /* [FEW_ROWS, outputs]; not on the first GPU */
    uint8_t *stage;        /* all parts one after the other, for NCCL */
    void *block;
    cudaEvent_t ready;
    struct attn_run runs[MAX_RUNS];
    struct kv_layer kv[MAX_RUNS];
};

struct gpus_work {
    struct gpus_device *g;
    int n;
    /* The x that all GPUs have, with its cos and sin; NULL: only the first GPU has it. */
    const float *there;
    int n_there;
    size_t part_size, pairs_size, stage_size;
    struct gpus_rank r[GPUS_MOST];
};

/* Make this the current GPU of CUDA calls. */
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
    void *to[GPUS_MOST];           /* NULL: do not send to this GPU */
    size_t to_stride;              /* elements; a part is stored at its place in the row */
};

/* gpus_exchange.cu: send all parts. A part that is already in place is not copied. */
void gpus_exchange(struct gpus_work *g, const struct exchange *e);
/* Copy bytes of the first GPU to all others. */
void gpus_share(struct gpus_work *g, void *const *to, const void *from, size_t size);
/* gpus_fork: later work of the other GPUs waits for the work already given to the first. gpus_join:
 * the reverse. */
void gpus_fork(struct gpus_work *g);
void gpus_join(struct gpus_work *g);
/* Find out whether each GPU can read the others' memory, or whether NCCL must transfer data. */
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

/* columns.cu: column sums over the heads of all GPUs. q16 of all heads is in `gathered` of each
 * GPU; `index` is the number of the run, whose kv is in gpus_rank.kv. */
void gpus_columns(struct gpus_work *g, const struct gpus_layer *l, const struct column_job *job,
                  int index, int n_heads, int group, int d, float scale);

/* device_gpus.cu: the pool that contains an address of the first GPU, or NULL. */
const struct gpus_pool *gpus_pool_of(const struct gpus_device *g, const void *p);
/* A layer of the pool as GPU r has it. */
struct kv_layer gpus_kv(const struct gpus_pool *p, const struct kv_layer *kv, int r);

#endif
