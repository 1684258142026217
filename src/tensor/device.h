/* The device boundary: what a decoder or a vision tower needs of the machine it runs on. `lm` and
 * `vision` are written once against this table; the CPU fills it from src/kernels, a GPU fills it
 * again from src/kernels/cuda. Activations are f32, row-major.
 *
 * Memory. Pointers to floats, keys and values, and those called "device" below are device memory;
 * the rest (jobs, runs, bounds, slots) is the host's and read before the call returns. Operations
 * of one work run in order; upload and download of a device wait for nothing and are for weights,
 * put and get of a work are in order with its operations.
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
    DEVICE_MAX_CHAIN = 16, /* plans of a chain */
    DEVICE_MAX_EXPERTS = 1024,
    DEVICE_MAX_USED = 64 /* experts of one row */
};

/* Error text of a step whose numbers are not finite. */
#define DEVICE_NOT_FINITE "a step of the model gave numbers that are not finite"

/* How a device that spreads a decoder over ranks (src/dist) divides the outputs of a matrix: not at
 * all, evenly, by the heads of queries or of keys and values, or one expert's matrix whole to one
 * rank. Other devices do not ask. */
enum spread_kind { SPREAD_NONE, SPREAD_OUTPUTS, SPREAD_QUERIES, SPREAD_KEYS, SPREAD_EXPERT };
struct spread {
    enum spread_kind kind;
    int n_heads, n_kv_heads;
    int expert, n_experts;
};

/* A weight matrix on the device. */
struct matrix {
    enum dtype dtype;
    int out, in;
    const void *data; /* [out] rows of row_size bytes, any alignment; or what `take` made of them */
    size_t row_size;
    const void *own;   /* a repacked copy of the same weights, which kernels use; or NULL */
    const float *bias; /* [out] or NULL */
    /* Only looked up by `embed`, never multiplied. */
    bool lookup;
    /* Always multiplied by many rows, as a vision tower's: its own order may be one that is slow
     * with few. */
    bool many_rows;
    struct spread spread;
};

/* Memory of a pool of KV pages. In a page the layers follow one another, K before V. */
struct kv_shape {
    enum dtype dtype;
    int n_layers, n_heads, n_kv_heads, head_dim, n_pages;
};

/* KV of one layer of one sequence, in pages of KV_CHUNK positions that lie anywhere in a pool. Slot
 * s lies at place s % KV_CHUNK of page page[s / KV_CHUNK]. In a page the layer has K as
 * [n_kv, KV_CHUNK, d] and V as [n_kv, d, KV_CHUNK] (transposed, so that both products of attention
 * read rows; a GPU keeps V as it keeps K). The table may grow between steps, never move: kernels
 * read it while a step runs. */
struct kv_layer {
    enum dtype dtype; /* F16, BF16 or F32 */
    int n_kv, d;
    int cap;             /* slots that `page` has room for, a multiple of KV_CHUNK */
    void *k, *v;         /* of this layer in page 0 of the pool */
    size_t page_size;    /* bytes from one page of the pool to the next */
    int n_pool;          /* pages of the pool */
    const int32_t *page; /* [cap / KV_CHUNK], on the host */
};

/* K or V (`base`: kv->k or kv->v) of one head in the page that slots chunk * KV_CHUNK and up lie
 * in. */
static inline void *kv_page_at(const struct kv_layer *kv, const void *base, int head, int chunk)
{
    size_t head_size = dtype_row_size(kv->dtype, (int64_t)KV_CHUNK * kv->d);
    return (uint8_t *)(uintptr_t)base + (size_t)kv->page[chunk] * kv->page_size +
           (size_t)head * head_size;
}

/* y = x . w^T (+ bias), y [n, out] with rows y_stride floats apart. */
struct matmul_job {
    const struct matrix *w;
    float *y;
    size_t y_stride;
};

/* A run of rows of one step that belong to one sequence. Row i of the run lies in slot
 * first_slot + i of the cache. parent NULL: a chain, row i sees slots 0 .. first_slot + i. With
 * parents (index inside the run, -1: the end of the cache) row i sees slots below first_slot and
 * its ancestors, as if they followed first_slot in path order. The first `pending` rows ran in
 * earlier steps: they are seen, but only the n rows after them have queries. */
struct attn_run {
    int row0, n; /* of the queries */
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
    /* Heads per KV head that a kernel is chosen for, where only some of these are here; 0: all are.
     */
    int group;
};

/* Column sums: for each of n_keys slots, sum over the query rows and heads of the attention
 * probability, softmax over all slots the row sees, or over the given keys it sees. Added to
 * sums. Chains only. */
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
};

/* Attention without a cache: rows [bounds[i], bounds[i + 1]) see each other, all of them. */
struct full_attn_job {
    float *out;             /* [n, n_heads * d]; may be q */
    const float *q, *k, *v; /* [n, n_heads * d] */
    int n_heads, d;
    float scale;
    enum dtype dtype; /* keys and values are rounded to it, or less: F32, BF16 or F16 */
    int n_segments;
    const int *bounds; /* [n_segments + 1], rows, ascending */
};

/* Attention of one query for each window of so many keys: query i sees rows [i * window, (i + 1) *
 * window) of k and v. Nothing is rounded. */
struct window_attn_job {
    float *out;         /* [n, n_heads * d]; not q */
    const float *q;     /* [n, n_heads * d] */
    const float *k, *v; /* [n * window, n_heads * d] */
    int n, window, n_heads, d;
    float scale;
};

struct top_entry {
    float logit;
    int32_t id; /* -1: there are no more */
};

enum gelu_kind { GELU_TANH, GELU_ERF, GELU_QUICK /* x / (1 + exp(-1.702 x)) */, GELU_COUNT };

/* The experts of a decoder's sparse layer (doc/experts.md). Of a row x, l = W_router x. Its experts
 * are those of its `used` largest logits l, the lower index first among equals (NaN: the smallest).
 * The weight of one is its share of softmax(l) over all n experts, divided by the sum of the used
 * ones' if `normed`. */
struct expert_weights {
    int n, used; /* at most DEVICE_MAX_EXPERTS, DEVICE_MAX_USED */
    bool normed;
    struct matrix router;                  /* [n, hidden], F32 */
    const struct matrix *gate, *up, *down; /* [n] of [ffn, hidden], [ffn, hidden], [hidden, ffn] */
    void *own;                             /* what take_experts made */
    /* share not NULL: the experts [own0, own1) alone are here. Their results, one row of `hidden`
     * floats for each (row, expert), lie in `rows` at first[expert] and after; `share` adds those
     * of the others, before a row's are summed. */
    int own0, own1;
    void (*share)(void *ctx, float *rows, const int *first /* [n + 1] */);
    void *share_ctx;
};

/* ---- blocks: several operations at once, for devices that fuse them ---- */

/* The weights of a decoder's layer. */
struct layer_weights {
    const float *attn_norm, *ffn_norm; /* [hidden] */
    const float *q_norm, *k_norm;      /* [head_dim] or NULL */
    struct matrix q, k, v, o, gate, up, down;
    const struct expert_weights *experts; /* instead of gate, up and down; NULL: a dense layer */
    void *own;                            /* what take_layer made */
};

/* Sizes of a decoder that its layers share. */
struct layer_shape {
    int hidden, ffn, n_heads, n_kv_heads, head_dim;
    float eps;
};

/* Norm, q k v, rope, keys and values into the cache, attention; the result stays in the work for
 * the finish_block that follows. `columns`: jobs whose q is the block's (the field is not read),
 * whose run is one of `runs`, sums on the host. `bulk`: rows of a prompt, see struct step
 * (lm/decoder.h). */
struct attn_block {
    const struct layer_weights *w;
    const struct layer_shape *shape;
    const float *x; /* [n, hidden] */
    const float
        *wide; /* not NULL: [n, 2 hidden], what q, k and v are made of instead; not in bulk */
    int n;
    const float *cos, *sin; /* [n, head_dim / 2] */
    int n_runs;
    const struct attn_run *runs;
    int n_columns;
    const struct column_job *columns;
    bool bulk;
};

/* x += W_o attention; x += W_down (silu(W_gate m) * W_up m), or what its experts make of m. With
 * `rows` (device) only these go on: x [n_rows, hidden] afterwards, in that order. */
struct finish_block {
    const struct layer_weights *w;
    const struct layer_shape *shape;
    float *x;
    int n;
    const int32_t *rows; /* NULL: all n */
    int n_rows;
    bool bulk;
    /* The attn_norm of the attn_block that comes next, with this x as it is left; NULL: another
     * operation does. */
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
    struct matrix gate, up, down; /* gate.data NULL: up, gelu (tanh), down */
};

/* A tower's layer over x [n, hidden], whose segments attend to themselves. */
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

/* What follows attention in a tower's layer: x += W_o a, and x += MLP(norm(x)), over n rows. */
struct tower_tail {
    const struct tower_layer *w;
    float *x;       /* [n, hidden] */
    const float *a; /* [n, hidden]: what attention gave */
    int n, hidden;
    float eps;
    enum gelu_kind gelu; /* of an MLP without a gate */
    void *room;          /* for rows of `hidden` values in a kernel's own layout, MEM_ALIGN-ed */
    size_t room_size;
};

/* Patches [from, from + n) of the frames, as patches_make (video/patches.h) cuts them: rows of 3 *
 * temporal * patch * patch floats. A slice is `temporal` frames, and has (height / patch) * (width
 * / patch) patches. */
struct patch_job {
    float *out;            /* [n, row]; device, as */
    const uint8_t *frames; /* [.., height, width, 3] */
    const float *table;    /* [3, 256]: of patches_table */
    int height, width, patch, temporal, merge;
    int from, n;
};

/* Rows of x at length 1: the first n_units of the rows named become rows to[i] of `units`, the
 * n_sums after them are added to `sum` one after the other. Rows without a direction change
 * nothing. */
struct unit_job {
    const float *x; /* [.., width] */
    int width, n_units, n_sums;
    const int32_t *rows; /* [n_units + n_sums] */
    const int32_t *to;   /* [n_units], all different */
    uint16_t *units;     /* [.., width], IEEE half */
    double *sum;         /* [width] */
    double *scale;       /* [n_units + n_sums]: scratch */
};

/* What a work is about to do: the runs of the attn_blocks that follow, and a key. `kv` of a run may
 * be that of any layer: they share one page table. Two plans with equal keys are followed by the
 * same calls with the same arguments, save for what lies in device memory and for first_slot, the
 * page tables and the parents of runs: the first may be recorded and played again. key NULL: not
 * worth it.
 *
 * Plans may form a chain: `n_levels` plans of as many runs each that follow one another without a
 * wait, `level` from 0 on. Then `runs` are those of all levels, one level after the other, none of
 * them a tree, and the same array is given to each: the device may copy all of it at level 0. */
struct work_plan {
    int n_runs;
    const struct attn_run *runs;
    int level, n_levels; /* 0 and 0, or 1: a plan of its own */
    const void *key;
    size_t key_size;
    bool bulk; /* rows of a prompt, see struct step */
};

struct device;
struct device_work; /* scratch of one session on a device */

/* Which work goes first where several compete for a device. */
enum work_priority {
    WORK_NORMAL,
    WORK_URGENT, /* small steps of which each waits for the one before it */
    WORK_BULKY   /* long steps that leave part of the device free for others */
};

/* Sizes that bound the scratch of a session. */
struct work_shape {
    int rows; /* of one step */
    int in;   /* longest matmul row */
    int n_heads, n_kv_heads, head_dim;
    int context; /* slots of a sequence */
    enum dtype kv_dtype;
    int segment;     /* rows of the longest segment of attention_full; 0: not used */
    int hidden, ffn; /* of blocks; 0: none will come */
    int out;         /* most outputs of a matmul outside blocks; 0: not known */
    int n_experts, n_used, expert_ffn; /* of `experts`; 0: it is not used */
    enum work_priority priority;
    bool spread; /* some matrix is (struct spread) */
};

struct device_ops {
    const char *name;
    void *(*alloc)(struct device *dev, size_t size); /* zeroed, NULL when out of memory */
    void (*free)(struct device *dev, void *p);
    void (*upload)(struct device *dev, void *dst, const void *src, size_t size);
    void (*download)(struct device *dev, void *dst, const void *src, size_t size);
    /* Bytes that alloc can still give, and that there are in all; both 0: not known. */
    void (*room)(struct device *dev, size_t *left, size_t *all);
    /* The device's own form of a matrix whose data lies on the host, or in a mapped file. The CPU
     * leaves it there, so it must outlive the matrix. */
    enum pv_status (*take)(struct device *dev, struct matrix *m, struct pv_error *err);
    void (*drop)(struct device *dev, struct matrix *m);
    /* What a device needs of experts whose matrices it has taken, and giving it back, which a
     * zeroed one survives. NULL: nothing. */
    enum pv_status (*take_experts)(struct device *dev, struct expert_weights *e,
                                   struct pv_error *err);
    void (*drop_experts)(struct device *dev, struct expert_weights *e);
    /* What a device needs of a layer when all its weights are there, experts too, and giving it
     * back. NULL: nothing. */
    enum pv_status (*take_layer)(struct device *dev, struct layer_weights *l,
                                 const struct layer_shape *shape, struct pv_error *err);
    void (*drop_layer)(struct device *dev, struct layer_weights *l);
    /* Memory for the keys and values of a decoder that is spread, zeroed, for `free`: of the KV
     * heads that are here, *n_kv of them. NULL: no decoder is. */
    enum pv_status (*alloc_kv)(struct device *dev, const struct kv_shape *shape, void **out,
                               int *n_kv, struct pv_error *err);
    /* Random weights instead of the data, to time models whose weights are not there. NULL: not
     * supported. */
    enum pv_status (*draw)(struct device *dev, struct matrix *m, uint64_t seed,
                           struct pv_error *err);
    void (*close)(struct device **dev);

    size_t (*work_size)(struct device *dev, const struct work_shape *s);
    enum pv_status (*work_open)(struct device *dev, struct device_work **out,
                                const struct work_shape *s, struct pv_error *err);
    void (*work_close)(struct device *dev, struct device_work **work);
    /* From now on, run on the threads of another device of the same kind, which has no more of them
     * than the work's own: two works can then run at the same time. NULL: on its own. Changes no
     * result. */
    void (*work_on)(struct device_work *w, struct device *group);

    void (*put)(struct device_work *w, void *dst, const void *src, size_t size);
    void (*copy)(struct device_work *w, void *dst, const void *src, size_t size); /* both device */
    /* Waits for what was asked of the work before. */
    void (*get)(struct device_work *w, void *dst, const void *src, size_t size);
    /* The operations of a plan come between begin and end. False: they are known, the caller goes
     * on to end. With a key there is no get in between. */
    bool (*begin)(struct device_work *w, const struct work_plan *plan);
    void (*end)(struct device_work *w);
    /* After end. True: the same operations once more, and end; they are recorded, not run. NULL:
     * never. */
    bool (*again)(struct device_work *w);
    /* Plans with a key so far, of all works of the device, that took longer than they will when
     * they come again. NULL: there are none. */
    uint64_t (*first_runs)(struct device *dev);
    /* Waits until everything queued on the work is done; returns a failure once. PV_E_FORMAT with
     * DEVICE_NOT_FINITE: a row of rmsnorm or silu_mul, a key, a value or a logit of
     * `argmax` was NaN or infinite (a CPU); such a logit (a GPU). */
    enum pv_status (*wait)(struct device_work *w, struct pv_error *err);

    /* Chains of plans (struct work_plan) save time: the host is slow to ask what came of one, and
     * to begin the next. */
    bool chains;

    /* Rows that are `bulk` have other last bits than the rest (struct step, lm/decoder.h). */
    bool ways_differ;

    /* NULL where the operations below are all there is. A work with blocks keeps q, k, v and what
     * is between an MLP's matrices to itself. */
    void (*attn)(struct device_work *w, const struct attn_block *b);
    void (*finish)(struct device_work *w, const struct finish_block *b);
    void (*tower)(struct device_work *w, const struct tower_block *b);
    /* NULL, or false and nothing done: the operations below, one by one, give the same bits. */
    bool (*tower_tail)(struct device_work *w, const struct tower_tail *t);
    /* Logits of rows of the residual stream. NULL: gather, rmsnorm and matmul give the same bits.
     */
    void (*logits)(struct device_work *w, const struct logits_job *job);

    /* NULL: the host cuts patches. */
    void (*patches)(struct device_work *w, const struct patch_job *job);

    /* ids: device. next_norm: the attn_norm of the attn_block that comes next, with this y as it is
     * left; NULL: another operation does. */
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
    /* Slot to[i] becomes what slot from[i] was; from ascending, to[i] <= from[i]. */
    void (*kv_move)(struct device_work *w, const struct kv_layer *kv, const int *to,
                    const int *from, int n);
    /* Slot to_slots[i] of one layer becomes slot from_slots[i] of another, of the same type and
     * heads; they share no memory. */
    void (*kv_copy)(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
                    const int *to_slots, const int *from_slots, int n);
    void (*attention)(struct device_work *w, const struct attn_job *job);
    void (*attention_columns)(struct device_work *w, const struct column_job *job);
    /* Heads of any even size; work_shape.segment bounds the segments. */
    void (*attention_full)(struct device_work *w, const struct full_attn_job *job);
    void (*attention_windows)(struct device_work *w, const struct window_attn_job *job);
    void (*silu_mul)(struct device_work *w, float *g, const float *u, int n, int dim);
    /* y [n, hidden] = sum over a row's experts, in ascending order of their indices, of weight *
     * W_down (silu(W_gate x) * W_up x); y is not x. Rows of one expert run together, and only
     * experts that some row uses are read. NULL: the device has no experts. */
    void (*experts)(struct device_work *w, float *y, const struct expert_weights *e, const float *x,
                    int n);
    /* y = (x - mean) / sqrt(variance + eps) * weight + bias; y may be x. */
    void (*layernorm)(struct device_work *w, float *y, const float *x, const float *weight,
                      const float *bias, int n, int dim, float eps);
    void (*gelu)(struct device_work *w, float *x, int n, int dim, enum gelu_kind kind);
    /* y[i] = sum over j of weights[i][j] * x[rows[i][j]], in that order. rows, weights: device */
    void (*blend)(struct device_work *w, float *y, const float *x, const int (*rows)[4],
                  const float (*weights)[4], int n, int dim);
    void (*add)(struct device_work *w, float *y, const float *x, int n, int dim);
    /* rows: device */
    void (*gather)(struct device_work *w, float *y, const float *x, const int32_t *rows, int n,
                   int dim);
    /* ids: device */
    void (*argmax)(struct device_work *w, int32_t *ids, const float *x, int n, int dim);
    /* The k (at most DEVICE_MAX_TOP) largest numbers of each row that is not NaN, largest first,
     * the lower id first among equals; and log sum exp(x / t) of each row. All device. */
    void (*top)(struct device_work *w, struct top_entry *out, float *mass, const float *x, int n,
                int dim, int k, float t);
    /* ids[i * step] becomes names[ids[i * step]], for n of them; negative ones stay. All device. */
    void (*name_ids)(struct device_work *w, int32_t *ids, int n, int step, const int32_t *names);
    /* The token that sample_token (lm/sampling.h) draws without filters at position[i] (device). */
    void (*draw_token)(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
                       const uint64_t *position, uint64_t seed, float t);

    /* Signals of views (spec/view.h), with the bits that tensor/cosine.h gives. All pointers are
     * device memory.
     *
     * out[i] = cosine of rows i and i + apart of the n rows of x, i < n - apart. */
    void (*cosines_apart)(struct device_work *w, double *out, const float *x, size_t stride, int n,
                          int width, int apart);
    /* Group g has the rows rows[bounds[g]] .. rows[bounds[g + 1] - 1] of x, 1 to GROUP_MOST of
     * them, which no other group has: out[r] of each is the variance of its cosines with all of
     * them. */
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
    /* What else the bits of results depend on, for example a GPU's driver; NULL: nothing, or only
     * the CPU. */
    const char *identity;
    /* The first calls of its kernels are much slower than later ones: some are made in advance,
     * while weights are read. */
    bool slow_start;
    bool draws;     /* matrices get random weights instead of the file's */
    bool spreads;   /* decoders that are opened are spread over ranks (struct spread) */
    bool repacks;   /* `take` may make a repacked copy of a matrix, where that is faster */
    size_t own;     /* bytes of these copies, and of those that would be made if `repacks` */
    uint64_t drawn; /* so many */
};

/* The CPU: a thread pool and a table of kernels (kernels/device_cpu.c). */
enum pv_status device_cpu_open(struct device **out, int threads, uint64_t cpu_flags,
                               struct pv_error *err);
/* An NVIDIA GPU (kernels/cuda), or PV_E_UNSUPPORTED in a build without. */
enum pv_status device_cuda_open(struct device **out, int index, struct pv_error *err);
void device_close(struct device **dev);

/* ops->alloc with a sentence when there is no room. */
enum pv_status device_alloc(struct device *dev, void **out, size_t size, struct pv_error *err);

#endif
