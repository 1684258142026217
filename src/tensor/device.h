/* The device interface: a table of all operations that decoders, vision towers and audio encoders
 * need. `lm`, `vision` and `hearing` use only this table; src/kernels implements it for CPUs and
 * src/kernels/cuda for NVIDIA GPUs. Activations are f32, row-major.
 *
 * Memory. Pointers to floats, keys and values, and those called "device" below are device memory;
 * everything else (jobs, runs, bounds, slots) is host memory and read before the call returns.
 *
 * A "work" (struct device_work) is the scratch memory and the queue of one session on a device. The
 * operations of one work run in order, including put and get. upload and download of a device are
 * not ordered with any work; they are for weights.
 *
 * Row invariance (kernels/kernels.h) is part of the contract of every operation here. */
#ifndef PV_TENSOR_DEVICE_H
#define PV_TENSOR_DEVICE_H

#include "base/status.h"
#include "tensor/tensor.h"

enum {
    KV_CHUNK = 256,      /* positions; attention reduces the KV in chunks fixed by position */
    DEVICE_MAX_JOBS = 4, /* matrices that share one input */
    DEVICE_MAX_HEAD_DIM = 256,
    DEVICE_MAX_TOP = 64,   /* most likely tokens of a row */
    DEVICE_MAX_CHAIN = 16, /* plans of a chain (struct work_plan) */
    DEVICE_MAX_LEVEL = 16, /* rows of a level of a tree that `grow` chooses, and tokens per row */
    DEVICE_MAX_EXPERTS = 1024,
    DEVICE_MAX_USED = 64 /* experts that one row uses */
};

/* The text of PV_E_NOT_FINITE. */
#define DEVICE_NOT_FINITE "a step of the model gave numbers that are not finite"

/* How a device that distributes a decoder over ranks (src/dist) or GPUs divides the outputs of a
 * matrix: not at all, evenly, by query heads, by KV heads, or each expert's matrix as a whole to
 * one rank. Other devices ignore it. */
enum spread_kind { SPREAD_NONE, SPREAD_OUTPUTS, SPREAD_QUERIES, SPREAD_KEYS, SPREAD_EXPERT };
struct spread {
    enum spread_kind kind;
    int n_heads, n_kv_heads;
    int expert, n_experts;
    bool looked_up; /* rows of it too, by `embed` */
};

/* A weight matrix on the device. */
struct matrix {
    enum dtype dtype;
    int out, in;
    const void *data; /* [out] rows of row_size bytes, any alignment; after `take`, device's form */
    size_t row_size;
    const void *repacked; /* a copy in the order that kernels use (CPUs); or NULL */
    void *handle;         /* private data of `take` of a device with parts; or NULL */
    int number;           /* under which ranks know it, from 1; 0: none */
    const float *bias;    /* [out] or NULL */
    /* Used by `embed` only, never multiplied. */
    bool lookup;
    /* Always multiplied with many rows, as in a vision tower: the repacked layout may be one that
     * is slow with few rows. */
    bool many_rows;
    struct spread spread;
};

/* Memory of a pool of KV pages. In a page the layers follow one another, K before V. */
struct kv_shape {
    enum dtype dtype;
    int n_layers, n_heads, n_kv_heads, head_dim, n_pages;
};

/* Keys and values of one layer of one sequence, in pages of KV_CHUNK positions anywhere in a pool.
 * Slot s is at index s % KV_CHUNK of page page[s / KV_CHUNK]. In a page, the layer stores K as
 * [n_kv, KV_CHUNK, d] and V as [n_kv, d, KV_CHUNK] (transposed, so that both products of attention
 * read rows; a GPU stores V like K). With F8, the exponents of a head's rows, [KV_CHUNK] bytes,
 * follow its K or V. The page table may grow between steps but must not move: kernels read it while
 * a step runs. */
struct kv_layer {
    enum dtype dtype; /* F16, BF16, F32 or F8 */
    int n_kv, d;
    int cap;             /* capacity of `page` in slots, a multiple of KV_CHUNK */
    void *k, *v;         /* this layer's K and V in page 0 of the pool */
    size_t page_size;    /* bytes from one page of the pool to the next */
    int n_pool;          /* pages of the pool */
    const int32_t *page; /* [cap / KV_CHUNK], on the host */
};

/* Bytes of K, and of V, of one head in a page. */
static inline size_t kv_head_size(enum dtype t, int d)
{
    return dtype_row_size(t, (int64_t)KV_CHUNK * d) + (t == DTYPE_F8 ? KV_CHUNK : 0);
}

/* Bytes of a page with all its layers. */
static inline size_t kv_page_size(enum dtype t, int n_layers, int n_kv, int d)
{
    return 2 * (size_t)n_layers * (size_t)n_kv * kv_head_size(t, d);
}

/* K or V (`base`: kv->k or kv->v) of one head in the page that holds slot chunk * KV_CHUNK. */
static inline void *kv_page_at(const struct kv_layer *kv, const void *base, int head, int chunk)
{
    return (uint8_t *)(uintptr_t)base + (size_t)kv->page[chunk] * kv->page_size +
           (size_t)head * kv_head_size(kv->dtype, kv->d);
}

/* F8 only: the exponents of that head's rows. */
static inline uint8_t *kv_exponents_at(const struct kv_layer *kv, const void *base, int head,
                                       int chunk)
{
    return (uint8_t *)kv_page_at(kv, base, head, chunk) +
           dtype_row_size(kv->dtype, (int64_t)KV_CHUNK * kv->d);
}

/* y = x . w^T (+ bias), y [n, out] with rows y_stride floats apart. */
struct matmul_job {
    const struct matrix *w;
    float *y;
    size_t y_stride;
};

/* A run: consecutive rows of a step that belong to one sequence. The keys and values of row i of
 * the run are in slot first_slot + i. If parent is NULL, the run is a chain, and row i attends to
 * slots 0 .. first_slot + i. Otherwise it is a tree: row i attends to the slots below first_slot
 * and to its ancestors, as if these followed in path order (a parent is an index inside the run,
 * -1: the last slot below first_slot). The first `pending` rows were computed in earlier steps:
 * others attend to them, but only the n rows after them have queries. */
struct attn_run {
    int row0, n; /* first row and number of the queries */
    int first_slot;
    const int *parent; /* [pending + n] */
    const struct kv_layer *kv;
    int pending;
};

struct attn_job {
    float *out;     /* [n, n_heads * d] */
    const float *q; /* [n, n_heads * d], rotated */
    int n_heads;
    float scale;
    int n_runs;
    const struct attn_run *runs;
    /* Query heads per KV head of the whole model, if this rank has only some of them: kernels are
     * chosen by it. 0: all heads are here. */
    int group;
};

/* Column sums of attention: for each of n_keys slots, the sum over query rows and heads of the
 * attention probability is added to `sums`. The softmax is over all slots that the row attends to,
 * or (over_keys) over those of them that are in `keys`. Chains only. */
struct column_job {
    float *sums; /* [n_keys] */
    const float *q;
    int n_heads;
    float scale;
    const struct attn_run *run;
    int n_rows;
    const int *rows; /* rows of the run, ascending */
    int n_keys;
    const int *keys; /* slots, ascending */
    bool over_keys;
    bool by_group; /* sums [n_kv, n_keys]: separately for the heads that share a KV head. Not with
                      blocks that are spread over ranks */
};

/* Attention without a cache: all rows [bounds[i], bounds[i + 1]) attend to each other. */
struct full_attn_job {
    float *out;             /* [n, n_heads * d]; may be q */
    const float *q, *k, *v; /* [n, n_heads * d] */
    int n_heads, d;
    float scale;
    enum dtype dtype; /* keys and values are rounded to this precision at most: F32, BF16 or F16 */
    int n_segments;
    const int *bounds; /* [n_segments + 1], rows, ascending */
};

/* Attention of one query per window of keys: query i attends to rows [i * window, (i + 1) * window)
 * of k and v. Nothing is rounded. */
struct window_attn_job {
    float *out;         /* [n, n_heads * d]; not q */
    const float *q;     /* [n, n_heads * d] */
    const float *k, *v; /* [n * window, n_heads * d] */
    int n, window, n_heads, d;
    float scale;
};

struct top_entry {
    float logit;
    int32_t id; /* -1: no more entries */
};

enum gelu_kind { GELU_TANH, GELU_ERF, GELU_QUICK /* x / (1 + exp(-1.702 x)) */, GELU_COUNT };

/* The experts of a decoder's sparse layer (doc/experts.md). The router computes logits l = W_router
 * x for a row x. The row uses the experts with the `used` largest logits, the lower index first
 * among equals (NaN counts as the smallest). The weight of an expert is its probability in
 * softmax(l) over all n experts, divided by the sum over the used experts if `normed`. */
struct expert_weights {
    int n, used; /* at most DEVICE_MAX_EXPERTS, DEVICE_MAX_USED */
    bool normed;
    struct matrix router;                  /* [n, hidden], F32 */
    const struct matrix *gate, *up, *down; /* [n] of [ffn, hidden], [ffn, hidden], [hidden, ffn] */
    void *handle;                          /* private data of take_experts */
    int number;                            /* under which ranks know them, from 1; 0: none */
    /* If `share` is not NULL, this rank has only the experts [own0, own1). Their results, one row
     * of `hidden` floats per (row, expert), are in `rows` from first[expert] on; `share` fills in
     * the results of the other ranks before the results of a row are summed. */
    int own0, own1;
    void (*share)(void *ctx, float *rows, const int *first /* [n + 1] */);
    void *share_ctx;
};

/* ---- blocks: several operations in one call, for devices that fuse them ---- */

/* The weights of a decoder's layer. */
struct layer_weights {
    const float *attn_norm, *ffn_norm; /* [hidden] */
    const float *q_norm, *k_norm;      /* [head_dim] or NULL */
    struct matrix q, k, v, o, gate, up, down;
    const struct expert_weights *experts; /* instead of gate, up and down; NULL: a dense layer */
    void *handle;                         /* private data of take_layer */
};

/* Sizes of a decoder that its layers share. */
struct layer_shape {
    int hidden, ffn, n_heads, n_kv_heads, head_dim;
    float eps;
};

/* The first half of a layer: norm, q k v, rope, keys and values into the cache, attention. The
 * result stays in the work for the finish_block that follows. `columns`: column sums to compute
 * with this block's queries (their field q is ignored); their runs are among `runs`, their sums are
 * in host memory. `bulk`: rows of a prompt, see struct step (lm/decoder.h). */
struct attn_block {
    const struct layer_weights *w;
    const struct layer_shape *shape;
    const float *x; /* [n, hidden] */
    /* Not NULL: [n, 2 hidden], the input of q, k and v instead of norm(x); not with bulk. */
    const float *wide;
    int n;
    const float *cos, *sin; /* [n, head_dim / 2] */
    int n_runs;
    const struct attn_run *runs;
    int n_columns;
    const struct column_job *columns;
    bool bulk;
    /* Not NULL: [n_runs], attention is needed for only so many of the last rows of each run, and
     * the others' result is undefined; keys and values are needed of all. Only with bulk, runs that
     * are chains, and without columns. */
    const int *needed;
};

/* The second half of a layer: x += W_o attention; x += W_down (silu(W_gate m) * W_up m) with m =
 * norm(x), or the sum of the experts' results for m. If `rows` (device) is given, only these rows
 * are computed, and x is [n_rows, hidden] afterwards, in that order. */
struct finish_block {
    const struct layer_weights *w;
    const struct layer_shape *shape;
    float *x;
    int n;
    const int32_t *rows; /* NULL: all n */
    int n_rows;
    bool bulk;
    /* The attn_norm of the next operation if that is an attn_block on this x, so that the norm can
     * be fused; else NULL. */
    const float *next_norm;
};

/* y [n, w.out] = w . rmsnorm(x[rows]), y's rows w.out floats apart. */
struct logits_job {
    const struct matrix *w;
    float *y;
    const float *x;      /* [.., w.in] */
    const int32_t *rows; /* [n], device; NULL: the first n */
    int n;
    const float *norm; /* [w.in] */
    float eps;
};

/* The weights of a vision tower's layer. */
struct tower_layer {
    const float *norm1, *norm1_bias, *norm2, *norm2_bias; /* [hidden]; no bias: RMSNorm */
    struct matrix q, k, v, o;
    struct matrix gate, up, down; /* gate.data NULL: the MLP is up, GELU, down */
};

/* A tower's layer over x [n, hidden]; each segment attends to itself only. */
struct tower_block {
    const struct tower_layer *w;
    float *x;
    int n, hidden, ffn, n_heads, head_dim;
    const float *cos, *sin; /* [n, head_dim / 2], NULL: no rope */
    float eps;
    enum gelu_kind gelu; /* of an MLP without a gate */
    int n_segments;
    const int *bounds; /* [n_segments + 1] */
};

/* The first half of a tower's layer, for n rows: q, k, v = W norm(x), then rope of q and k. */
struct tower_qkv {
    const struct tower_layer *w;
    const float *x;         /* [n, hidden] */
    float *to[3];           /* q, k, v: [n, hidden] */
    const float *cos, *sin; /* [n, head_dim / 2]; NULL: no rope */
    int n, hidden, n_heads, head_dim;
    float eps;
};

/* The second half of a tower's layer, for n rows: x += W_o a; x += MLP(norm(x)). */
struct tower_tail {
    const struct tower_layer *w;
    float *x;       /* [n, hidden] */
    const float *a; /* [n, hidden]: the result of attention */
    int n, hidden;
    float eps;
    enum gelu_kind gelu; /* of an MLP without a gate */
    void *room;          /* scratch for rows in a kernel's own layout, MEM_ALIGN-ed */
    size_t room_size;
};

/* Cut patches [from, from + n) out of frames, like patches_make (video/patches.h): rows of 3 *
 * temporal * patch * patch floats. A slice is `temporal` frames and has (height / patch) * (width /
 * patch) patches. */
struct patch_job {
    float *out;            /* [n, row]; device */
    const uint8_t *frames; /* [.., height, width, 3]; device */
    const float *table;    /* [3, 256] of patches_table; device */
    int height, width, patch, temporal, merge;
    int from, n;
};

/* Scale rows of x to length 1. The first n_units of `rows` are stored as rows to[i] of `units`; the
 * next n_sums are added to `sum`, one after the other. Rows that are zero or not finite are
 * skipped. */
struct unit_job {
    const float *x; /* [.., width] */
    int width, n_units, n_sums;
    const int32_t *rows; /* [n_units + n_sums] */
    const int32_t *to;   /* [n_units], all different */
    uint16_t *units;     /* [.., width], IEEE half */
    double *sum;         /* [width] */
    double *scale;       /* [n_units + n_sums]: scratch */
};

/* Choose the rows of a tree's next level, after those of its last level ran. The rows of the tree
 * are numbered in the order in which they run, from 0, the root. Candidate i is the token top[i], a
 * child of row i / k; the score of its path is
 *
 *   score[i / k] + min(top[i].logit - mass[i / k], 0), for the root's children without score[0]
 *
 * The next rows are the n_next candidates with the highest scores among the children of rows [row0,
 * row0 + n), or those that `next` names. Of equal ones the first is better. They become rows row0 +
 * n, .. in ascending order of their candidates. Candidates without a token are never chosen; rows
 * that are left over get token 0, the root as their parent, and a score of -infinity. All pointers
 * are device memory. */
struct grow_job {
    const struct top_entry *top; /* [rows, k] */
    const float *mass;           /* [rows] */
    int k, row0, n, n_next;      /* k, n and n_next at most DEVICE_MAX_LEVEL */
    bool named;
    int32_t *next;  /* [n_next]; in, if `named`: candidates. Out: their tokens */
    int32_t *id;    /* [rows], out: the same tokens by row */
    float *score;   /* [rows] */
    int32_t *above; /* [rows], out: the parents' rows */
    int run;        /* the tree's run of the plan: its parents are set too */
};

/* blend of gelu(x), GELU_ERF, for frames one after another that are blended alike: for frame f, row
 * i, y[f * n + i] = sum over j of weights[i][j] * gelu(x[f * from + rows[i][j]]), in that order. */
struct gelu_blend_job {
    float *y;       /* [frames * n, dim] */
    const float *x; /* [frames * from, dim] */
    const int (*rows)[4];
    const float (*weights)[4]; /* [n], device */
    int frames, n, from, dim;
};

/* Announces what a work is about to do: the runs of the attn_blocks that follow, and a key. `kv` of
 * a run may be that of any layer, since all layers share one page table. Two plans with equal keys
 * are followed by the same calls with the same arguments, except for the contents of device memory
 * and for first_slot, page tables and parents of the runs. So a device may record the first (as a
 * CUDA graph) and replay it. key NULL: recording is not worth it.
 *
 * Plans may form a chain: `n_levels` plans, with the same number of runs each, that follow one
 * another without a wait; `level` counts from 0. Then `runs` holds the runs of all levels, level by
 * level, and every plan gets the same array: the device may copy all of it at level 0. The runs of
 * level 0 are chains. If those of the levels after it are trees, they have the same number of rows
 * each, the last level's pending and n add up to all rows of the tree, and the contents of `parent`
 * do not matter, because `grow` sets them. */
struct work_plan {
    int n_runs;
    const struct attn_run *runs;
    int level, n_levels; /* n_levels 0 or 1: not part of a chain */
    const void *key;
    size_t key_size;
    bool bulk; /* rows of a prompt, see struct step */
};

struct device;
struct device_work; /* scratch of one session on a device */

/* Priority of a work if several compete for a device. */
enum work_priority {
    WORK_NORMAL,
    WORK_URGENT, /* small steps that depend on each other: latency matters */
    WORK_BULKY   /* long steps that must leave part of the device free for others */
};

/* Sizes that determine the scratch memory of a work. */
struct work_shape {
    int rows; /* most rows of a step */
    int in;   /* longest input row of a matmul */
    int n_heads, n_kv_heads, head_dim;
    int context; /* most slots of a sequence */
    enum dtype kv_dtype;
    int segment;     /* rows of the longest segment of attention_full; 0: not used */
    int hidden, ffn; /* of blocks; 0: blocks are not used */
    int out;         /* most outputs of a matmul outside blocks; 0: unknown */
    int n_experts, n_used, expert_ffn; /* of `experts`; 0: not used */
    enum work_priority priority;
    bool spread; /* some matrix is distributed over ranks (struct spread) */
};

struct device_ops {
    const char *name;
    void *(*alloc)(struct device *dev, size_t size); /* zeroed, NULL when out of memory */
    void (*free)(struct device *dev, void *p);
    void (*upload)(struct device *dev, void *dst, const void *src, size_t size);
    void (*download)(struct device *dev, void *dst, const void *src, size_t size);
    /* Free and total memory in bytes; both 0: unknown. */
    void (*room)(struct device *dev, size_t *left, size_t *all);
    /* Convert a matrix whose data is on the host or in a mapped file to the device's form. The CPU
     * keeps using the data in place, so it must outlive the matrix. */
    enum pv_status (*take)(struct device *dev, struct matrix *m, struct pv_error *err);
    void (*drop)(struct device *dev, struct matrix *m);
    /* Store matrices [n] that always multiply the same rows one after another, so that the device
     * can multiply them at once. Results do not change. NULL: not needed. */
    void (*join)(struct device *dev, struct matrix *const *m, int n);
    /* Prepare a layer's experts after `take` of their matrices, and undo that (a zeroed struct is
     * accepted). NULL: not needed. */
    enum pv_status (*take_experts)(struct device *dev, struct expert_weights *e,
                                   struct pv_error *err);
    void (*drop_experts)(struct device *dev, struct expert_weights *e);
    /* Prepare a layer after `take` of all its weights, experts included, and undo that. NULL: not
     * needed. */
    enum pv_status (*take_layer)(struct device *dev, struct layer_weights *l,
                                 const struct layer_shape *shape, struct pv_error *err);
    void (*drop_layer)(struct device *dev, struct layer_weights *l);
    /* Memory for the keys and values of a distributed decoder, zeroed, released by `free`: for the
     * *n_kv KV heads of this rank. NULL: the device does not distribute decoders. */
    enum pv_status (*alloc_kv)(struct device *dev, const struct kv_shape *shape, void **out,
                               int *n_kv, struct pv_error *err);
    /* Like take, but with random weights instead of the data, to time models without their weights.
     * NULL: not supported. */
    enum pv_status (*draw)(struct device *dev, struct matrix *m, uint64_t seed,
                           struct pv_error *err);
    void (*close)(struct device **dev);

    size_t (*work_size)(struct device *dev, const struct work_shape *s);
    enum pv_status (*work_open)(struct device *dev, struct device_work **out,
                                const struct work_shape *s, struct pv_error *err);
    void (*work_close)(struct device *dev, struct device_work **work);
    /* Run this work on the threads of `group`, another device of the same kind with no more threads
     * than the work's own, so that two works can run at the same time. NULL: on its own device
     * again. Does not change results. */
    void (*work_on)(struct device_work *w, struct device *group);

    void (*put)(struct device_work *w, void *dst, const void *src, size_t size);
    /* The same, but it waits only for operations before the last put_ahead, so that data for the
     * next call arrives while this call's operations run: `dst` alternates between two buffers, and
     * an operation that reads one of them is called before the next put_ahead. NULL: not
     * supported. */
    void (*put_ahead)(struct device_work *w, void *dst, const void *src, size_t size);
    void (*copy)(struct device_work *w, void *dst, const void *src, size_t size); /* both device */
    /* Waits for all earlier operations of the work. */
    void (*get)(struct device_work *w, void *dst, const void *src, size_t size);
    /* The operations of a plan are called between begin and end. False: the device has recorded
     * them before and replays them; the caller skips them and calls end. With a key, get must not
     * be called in between. */
    bool (*begin)(struct device_work *w, const struct work_plan *plan);
    void (*end)(struct device_work *w);
    /* Called after end. True: the caller must make the same calls once more, and end; they are
     * recorded, not executed. NULL: never needed. */
    bool (*again)(struct device_work *w);
    /* How many plans with a key, of all works of the device, ran for the first time so far; these
     * take longer than repetitions. NULL: there is no such difference. */
    uint64_t (*first_runs)(struct device *dev);
    /* Waits until everything queued on the work is done; reports a failure once.
     * PV_E_NOT_FINITE: a NaN or an infinity was found. CPUs check rows of rmsnorm and silu_mul,
     * inner rows of experts, logits of routers, keys, values and logits of `argmax`; GPUs check
     * only logits of `argmax`. */
    enum pv_status (*wait)(struct device_work *w, struct pv_error *err);

    /* Chains of plans (struct work_plan) save time on this device: reading a result back and
     * starting the next plan are slow. */
    bool chains;

    /* `bulk` rows are computed by other algorithms whose last bits differ (struct step,
     * lm/decoder.h). */
    bool ways_differ;

    /* NULL if the device has only the single operations below. A work with blocks keeps q, k, v and
     * the inner rows of an MLP in its own memory. */
    void (*attn)(struct device_work *w, const struct attn_block *b);
    void (*finish)(struct device_work *w, const struct finish_block *b);
    void (*tower)(struct device_work *w, const struct tower_block *b);
    /* If NULL, or if they return false (and do nothing), the caller uses the single operations
     * below, which give the same bits. */
    bool (*tower_qkv)(struct device_work *w, const struct tower_qkv *t);
    bool (*tower_tail)(struct device_work *w, const struct tower_tail *t);
    /* Logits of rows of the residual stream. If NULL, the caller uses gather, rmsnorm and matmul,
     * which give the same bits. */
    void (*logits)(struct device_work *w, const struct logits_job *job);

    /* NULL: the host must cut patches. */
    void (*patches)(struct device_work *w, const struct patch_job *job);

    /* ids: device. next_norm: as in struct finish_block. */
    void (*embed)(struct device_work *w, float *y, const struct matrix *table, const int32_t *ids,
                  int n, const float *next_norm);
    void (*rmsnorm)(struct device_work *w, float *y, const float *x, const float *weight, int n,
                    int dim, float eps);
    /* Jobs share x [n, in]. */
    void (*matmul)(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                   int n);
    /* Per head: optional rmsnorm by weight [d] (NULL: none), then rope by cos/sin [n, d/2]. */
    void (*rope)(struct device_work *w, float *x, int n, int n_heads, int d, const float *weight,
                 float eps, const float *cos, const float *sin);
    /* k, v [n, n_kv * d] into slots first_slot .. first_slot + n - 1. */
    void (*kv_write)(struct device_work *w, const struct kv_layer *kv, int first_slot,
                     const float *k, const float *v, int n);
    /* Copy slot from[i] to slot to[i]; from ascending, to[i] <= from[i]. */
    void (*kv_move)(struct device_work *w, const struct kv_layer *kv, const int *to,
                    const int *from, int n);
    /* Copy slot from_slots[i] of one layer to slot to_slots[i] of another with the same type and
     * heads; the layers share no memory. */
    void (*kv_copy)(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
                    const int *to_slots, const int *from_slots, int n);
    void (*attention)(struct device_work *w, const struct attn_job *job);
    void (*attention_columns)(struct device_work *w, const struct column_job *job);
    /* Heads of any even size; work_shape.segment bounds the segments. */
    void (*attention_full)(struct device_work *w, const struct full_attn_job *job);
    void (*attention_windows)(struct device_work *w, const struct window_attn_job *job);
    void (*silu_mul)(struct device_work *w, float *g, const float *u, int n, int dim);
    /* y [n, hidden] = sum over a row's experts, in ascending order of their indices, of weight *
     * W_down (silu(W_gate x) * W_up x); y is not x. The rows of one expert are computed together,
     * and only experts that some row uses are read. NULL: not supported. */
    void (*experts)(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                    int n);
    /* y = (x - mean) / sqrt(variance + eps) * weight + bias; y may be x. */
    void (*layernorm)(struct device_work *w, float *y, const float *x, const float *weight,
                      const float *bias, int n, int dim, float eps);
    void (*gelu)(struct device_work *w, float *x, int n, int dim, enum gelu_kind kind);
    /* y[i] = sum over j of weights[i][j] * x[rows[i][j]], in that order. rows, weights: device */
    void (*blend)(struct device_work *w, float *y, const float *x, const int (*rows)[4],
                  const float (*weights)[4], int n, int dim);
    /* NULL: the caller uses gelu and blend. */
    void (*gelu_blend)(struct device_work *w, const struct gelu_blend_job *job);
    void (*add)(struct device_work *w, float *y, const float *x, int n, int dim);
    /* rows: device */
    void (*gather)(struct device_work *w, float *y, const float *x, const int32_t *rows, int n,
                   int dim);
    /* ids: device */
    void (*argmax)(struct device_work *w, int32_t *ids, const float *x, int n, int dim);
    /* The k (at most DEVICE_MAX_TOP) largest numbers of each row, NaN excluded, largest first, the
     * lower id first among equals; and mass = log sum exp(x / t) of each row. All device. */
    void (*top)(struct device_work *w, struct top_entry *out, float *mass, const float *x, int n,
                int dim, int k, float t);
    /* ids[i * step] = names[ids[i * step]] for i < n; negative ids stay. All device. */
    void (*name_ids)(struct device_work *w, int32_t *ids, int n, int step, const int32_t *names);
    /* NULL: trees must be grown by the host, level by level. */
    void (*grow)(struct device_work *w, const struct grow_job *job);
    /* ids[i] = the token that sample_token (lm/sampling.h) draws, without filters, at position[i]
     * (device). */
    void (*draw_token)(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
                       const uint64_t *position, uint64_t seed, float t);

    /* Signals of views (spec/view.h), bit for bit as in tensor/cosine.h. All pointers are device
     * memory.
     *
     * out[i] = cosine of rows i and i + apart of the n rows of x, i < n - apart. */
    void (*cosines_apart)(struct device_work *w, double *out, const float *x, size_t stride, int n,
                          int width, int apart);
    /* Group g consists of the rows rows[bounds[g]] .. rows[bounds[g + 1] - 1] of x, 1 to GROUP_MOST
     * of them; groups do not overlap. out[r] = variance of the cosines of row r with all rows of
     * its group. */
    void (*cosine_spread)(struct device_work *w, double *out, const float *x, size_t stride,
                          int width, const int32_t *rows, const int32_t *bounds, int n_groups);
    void (*unit_rows)(struct device_work *w, const struct unit_job *job);
    /* out[i] = unit_dot of row i of units [n, width] and sum [width]. */
    void (*unit_dots)(struct device_work *w, double *out, const uint16_t *units, const double *sum,
                      int n, int width);
};

struct device {
    const struct device_ops *ops;
    void *impl;
    /* Further facts on which the bits of results depend, for example a GPU's driver; NULL: none, or
     * only the CPU. */
    const char *identity;
    /* The first calls of its kernels are much slower than later ones, so some are made in advance
     * while weights are read. */
    bool slow_start;
    bool draws;     /* matrices get random weights instead of the file's */
    bool spreads;   /* decoders are distributed over ranks (struct spread) */
    bool repacks;   /* `take` may make a repacked copy of a matrix if kernels are faster with it */
    size_t copies;  /* bytes of these copies, and of those that would be made if `repacks` */
    uint64_t drawn; /* number of random matrices so far */
    uint64_t taken; /* bytes of all matrices so far */
    /* Asked while weights are taken, on the thread that takes them; false stops with
     * PV_E_CANCELLED. NULL: nobody. */
    bool (*go_on)(void *user);
    void *user;
};

/* What `take` returns when it was stopped. */
enum pv_status device_stopped(struct pv_error *err);

/* The CPU: a thread pool and a table of kernels (kernels/device_cpu.c). */
enum pv_status device_cpu_open(struct device **out, int threads, uint64_t cpu_flags,
                               struct pv_error *err);
/* An NVIDIA GPU (kernels/cuda), or PV_E_UNSUPPORTED in a build without. */
enum pv_status device_cuda_open(struct device **out, int index, struct pv_error *err);
/* Several GPUs as one, each named by its number and perhaps several times. While dev->spreads is
 * set, decoders that are opened are spread over them; everything else runs on the first. */
enum pv_status device_cuda_open_several(struct device **out, const int *index, int n,
                                        struct pv_error *err);
void device_close(struct device **dev);

/* ops->alloc with an error message if memory runs out. */
enum pv_status device_alloc(struct device *dev, void **out, size_t size, struct pv_error *err);

#endif
