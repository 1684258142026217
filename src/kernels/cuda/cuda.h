/* Shared by the CUDA files: the device, the scratch memory of a session, and the functions of each
 * file. C++ with CUDA types; nothing outside this folder includes it.
 *
 * There are two paths through a layer. FEW rows (a decode or verify step): our own kernels, limited
 * by memory bandwidth, with x in the type `few_x_dtype`. MANY rows (a prompt, a tower): library
 * products with one algorithm for all row counts, with x and intermediate results as BF16. Each
 * path is row-invariant; the two differ in their last bits, so a row that is computed again must
 * take the same path. */
#ifndef PV_KERNELS_CUDA_CUDA_H
#define PV_KERNELS_CUDA_CUDA_H

#include "kernels/cuda/launch.h"

#include <pthread.h>

extern "C" {
#include "base/mem.h"
#include "tensor/device.h"
}

enum {
    FEW_ROWS = 64,  /* rows of one launch; more rows take several launches, with the same bits */
    KV_SPLIT = 512, /* KV positions that one block of decode attention reduces */
    KV_SPLIT_LEAST =
        192,            /* smallest such number, for some head sizes: determines the scratch size */
    KV_ROUND = 768,     /* recorded steps are launched for a multiple of this many positions */
    MAX_RUNS = 64,      /* most runs of a step */
    RUN_PARENTS = 4096, /* most parents of all runs of a step together */
    TABLE_PAD = 2,      /* entries after a page table that kernels may read; they name no page */
    ROW_PAD = 128 /* buffers of the path for many rows are padded to a multiple of this many rows */
};

struct cuda_device {
    struct device dev;
    struct device_ops ops; /* a copy, with the GPU's own name */
    int index, major, minor, n_sm;
    char name[256];
    char identity[768]; /* device.identity */
    size_t memory;
    cudaStream_t upload_stream;
    struct many *many;        /* matmul_library.cu: handle, chosen algorithms */
    uint64_t first_runs;      /* recorder.cu: steps that were not replayed; atomic */
    pthread_mutex_t lock;     /* protects `blocks` */
    struct gpu_block *blocks; /* device_cuda.cu: what was allocated beside weights */
};

/* A run in device memory. `begin` copies it there, so that a recorded step can be replayed with
 * other slots, pages and trees. 32 bytes, so that one memory access fetches it. */
struct alignas(32) staged_run {
    int row0, n, first_slot, pending;
    int has_parents, parents; /* offset of [pending + n] numbers in staged.list */
    int first_page, row_page; /* pages of first_slot and of first_slot + pending */
};

struct staged {
    struct staged_run run[MAX_RUNS];
    /* First the page tables of the runs, device_work.table_size entries each; -1: no page. Their
     * offsets are the same each time a recorded step is replayed. Then the parents of trees; those
     * of a tree that grows over several levels are in the list of level 1 only. */
    int32_t list[];
};

/* Keys and values of one layer and one run: number i of row r of a head in page p is k[p * step +
 * (head * KV_CHUNK + r) * d + i]. */
struct kv_pages {
    uint16_t *k, *v;     /* of the layer in page 0 of the pool */
    int64_t step;        /* numbers from one page to the next */
    const int32_t *page; /* device: the run's table */
};

/* The index of a slot's page in the page table, and its place in the page. */
__host__ __device__ static inline int slot_chunk(int slot)
{
    return (int)((unsigned)slot / KV_CHUNK);
}

__host__ __device__ static inline int slot_row(int slot)
{
    return (int)((unsigned)slot % KV_CHUNK);
}

/* Offset, in numbers, of a slot of a head from kv.k (kv.v), if its page is known. */
__device__ static inline int64_t slot_at(const struct kv_pages &kv, int page, int head, int slot,
                                         int d)
{
    return page * kv.step + (int64_t)(head * KV_CHUNK + slot_row(slot)) * d;
}

/* The page of a row that has a query; that of the first such row is stored in the run. */
__device__ static inline int page_of_row(const struct kv_pages &kv, const struct staged_run &run,
                                         int slot)
{
    int chunk = slot_chunk(slot);
    return chunk == slot_chunk(run.first_slot + run.pending) ? run.row_page : kv.page[chunk];
}

/* The number of positions for which kernels of recorded steps are launched: rounded up to whole
 * splits; with many positions by at most 1/64, because blocks without work delay the next
 * kernel. */
static inline int round_positions(int n)
{
    int unit = KV_ROUND;
    while (n / unit > 128)
        unit *= 2;
    return (n + unit - 1) / unit * unit;
}

/* Entries of a page table for this many positions. */
static inline int table_size(int positions)
{
    return (positions + KV_CHUNK - 1) / KV_CHUNK + TABLE_PAD;
}

/* matrix.data points to one of these (host memory; planes on the device). */
struct cuda_matrix {
    enum dtype dtype;
    int out, in;
    int whole;  /* outputs of the matrix that this is a part of (gpus.h), or `out`; choices that
                   affect bits are made by it */
    int stride; /* elements of a row in `w`, a multiple of 64; what is beyond `in` is zero */
    void *w;    /* plain types: [out][stride], and rows of zeros up to a multiple of 8; quantised:
                   planes.h */
    void *scale;
    size_t size;
    bool joined; /* w follows that of another matrix, which owns the memory */
};

struct device_work {
    struct cuda_device *gpu;
    struct work_shape shape;
    cudaStream_t stream;
    int n_sm;           /* multiprocessors that long-running kernels may occupy */
    cudaError_t error;  /* the first error; reported by `wait` */
    const char *failed; /* the operation that failed with it */
    int n_runs;         /* of the plan */
    int max_positions;  /* of the KV that kernels must be launched for: recorded steps round up */
    int max_splits;     /* KV splits that kernels must be launched for: recorded steps round up */
    int table_size;     /* of the page table of a run, by max_positions */
    struct staged *staged;  /* device: of the level that runs, */
    uint8_t *staged_levels; /* in here: of all levels of a chain, staged_step bytes apart */
    uint8_t *staged_host;   /* pinned, as staged_levels */
    size_t staged_step;     /* by runs and table_size, so that recorded levels find it */
    int32_t *grown;         /* device: parents of trees that grow (struct grow_job); NULL: none */
    int grown_rows;         /* of each of them, one after another */
    int *not_finite;        /* pinned: set by argmax_rows, read and cleared by wait */
    bool staging;           /* the last copy may still be reading staged_host */
    size_t list_size;       /* most entries of staged.list */
    void *block;            /* device memory that contains the following */
    float *q, *k, *v;       /* [rows, ...] results of the matrices */
    void *q16;              /* [rows, n_heads * d] rotated, BF16 */
    void *att;         /* [rows, n_heads * d]: attention's result, in the type that W_o takes */
    void *xn;          /* [rows, hidden] normalised, in the type that the next matrix takes */
    void *mid;         /* [rows, ffn] between the matrices of the MLP */
    void *mid2;        /* [rows, ffn], many rows only */
    float *gathered;   /* [few, hidden] */
    void *few_scratch; /* matmul_few.cu; zeroed at the beginning */
    size_t few_size;
    void *attn_scratch; /* attention_few.cu; zeroed at the beginning */
    size_t attn_size;
    void *full_scratch; /* attention of segments, columns, argmax, biases */
    size_t full_size;
    void *top_scratch;    /* top.cu, for FEW_ROWS rows */
    void *expert_scratch; /* experts.cu */
    void *weights16;      /* a packed matrix as BF16, while it is multiplied by many rows */
    size_t weights16_size;
    /* Contents of xn after the last block: rows of `normed` times these weights (norm.h); NULL: not
     * that. */
    const float *normed_by, *normed;
    int n_normed;
    struct gpus_work *gpus; /* gpus.h: of a decoder that is spread over several; NULL: it is not */
    struct stager *stager;  /* stager.cu: pinned memory for put and get */
    struct recorder *recorder; /* recorder.cu: recorded steps */
};

/* Layer `kv` with the page table of this run. */
static inline struct kv_pages pages_of(const struct device_work *w, const struct kv_layer *kv,
                                       int run)
{
    struct kv_pages p = { (uint16_t *)kv->k, (uint16_t *)kv->v,
                          (int64_t)(kv->page_size / sizeof(uint16_t)),
                          w->staged->list + (size_t)run * (size_t)w->table_size };
    return p;
}

/* Whether the layers of two runs are in the same pool. */
static inline bool same_pool(const struct kv_layer *a, const struct kv_layer *b)
{
    return a->k == b->k && a->v == b->v && a->page_size == b->page_size && a->n_pool == b->n_pool;
}

/* stager.cu: pinned host memory, valid until the next put or get; NULL: too large. */
void *stager_lend(struct device_work *w, size_t size);

/* Remember the first error. */
void work_check(struct device_work *w, cudaError_t e, const char *what);

static inline const struct cuda_matrix *cuda_of(const struct matrix *m)
{
    return (const struct cuda_matrix *)m->data;
}

/* matrix.cu: matrices on the device. */
enum pv_status matrix_take(struct device *dev, struct matrix *m, struct pv_error *err);
enum pv_status matrix_draw(struct device *dev, struct matrix *m, uint64_t seed,
                           struct pv_error *err); /* random weights; m->data is not read */
/* The same for rows [first, first + m->out) of a matrix. */
enum pv_status matrix_draw_rows(struct device *dev, struct matrix *m, uint64_t seed, int first,
                                struct pv_error *err);
void matrix_drop(struct device *dev, struct matrix *m);
void matrix_join(struct device *dev, struct matrix *const *m, int n); /* device_ops.join */
/* The n matrices as one, if matrix_join has put them and their biases next to each other; otherwise
 * returns false. `c` is what all->data points to. */
bool matrix_joined(const struct matrix *const *m, int n, struct matrix *all, struct cuda_matrix *c);
/* [out][stride] BF16 from any type with blocks. */
void matrix_to_bf16(struct device_work *w, void *y, const struct cuda_matrix *m);
/* y [n, in] f32 = rows ids (device) of the matrix. If norm->weight is set, also computes xn and
 * sums like norm_prepare of y; `in` must be a multiple of 8 then. */
struct few_norm;
void matrix_rows(struct device_work *w, float *y, const struct cuda_matrix *m, const int32_t *ids,
                 int n, const struct few_norm *norm);

/* matmul_few.cu. Types of x: BF16 for BF16 and blocks, F32 for F32 and F16 weights. y f32. All jobs
 * share x [n, in] and n is any number. add: y += instead of y =. */
enum dtype few_x_dtype(const struct matrix *m);
size_t few_scratch_size(const struct work_shape *s);
void matmul_few(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const void *x,
                int n, bool add);
/* y [n, gate.out] = silu(gate x) * (up x), as y_dtype (BF16 or F32) */
void matmul_few_gated(struct device_work *w, const struct matrix *gate, const struct matrix *up,
                      void *y, enum dtype y_dtype, const void *x, int n);
/* Norms inside products, see norm.h. In: x is not scaled; squares [n, in / 8] give the scale. Out
 * (one job with add): besides y = x + .., the weighted rows xn [n, out] and sums [n, out / 8] for
 * the next norm, which has these weights. */
struct few_norm {
    const float *squares; /* NULL: x is used as it is */
    const float *scales;  /* [n] 1 / rms of the rows, if already computed; else NULL */
    float eps;
    const float *weight; /* NULL: xn is not computed */
    uint16_t *xn;
    float *sums;
};
/* Whether the products of these matrices support such x and such sums; never depends on rows. */
bool few_takes_norm(const struct device_work *w, const struct matrix *const *m, int n);
void matmul_few_normed(struct device_work *w, const struct matmul_job *jobs, int n_jobs,
                       const void *x, int n, bool add, const struct few_norm *norm);
void matmul_few_gated_normed(struct device_work *w, const struct matrix *gate,
                             const struct matrix *up, void *y, enum dtype y_dtype, const void *x,
                             int n, const struct few_norm *norm);
/* matmul_few_thin.cu: q, k and v of small models from x = xn, followed by the work of rope_kv, with
 * the same bits. False: not supported here, and nothing is done. */
bool qkv_few_thin(struct device_work *w, const struct attn_block *b, const void *x,
                  const struct few_norm *norm);
/* reduce_rows.cu: xn and sums of rows that were not computed by a product. */
void norm_prepare(struct device_work *w, uint16_t *xn, float *sums, const float *x,
                  const float *weight, int n, int dim);

/* matmul_many.cu. x [n rounded up to ROW_PAD, in] (few_x_dtype: BF16, or F32 for F32 and F16
 * weights) has rows x_stride elements apart. If `in` is not a multiple of 8, the sum may run up to
 * the next multiple: x must have finite numbers there (x_stride is a multiple of 8), and the matrix
 * has zeros (its stride is a multiple of 64). y, f32 or BF16 [n, out], has rows y_stride apart: y =
 * (or with add, f32 only: y +=) x . w^T + bias. For BF16 the bias is rounded to BF16 too, and up to
 * 7 elements after a row may become zero if y_stride has room. Same bits for any n. */
enum pv_status many_open(struct cuda_device *gpu, struct pv_error *err);
size_t many_version(void); /* version of the library that computes the products */
void many_close(struct cuda_device *gpu);
void matmul_many(struct device_work *w, const struct matrix *m, void *y, enum dtype y_dtype,
                 size_t y_stride, const void *x, size_t x_stride, int n, bool add);
/* The same for y = x . w^T + bias as f32 outside blocks, whose memory it may use. */
void matmul_many_apart(struct device_work *w, const struct matrix *m, float *y, size_t y_stride,
                       const void *x, size_t x_stride, int n);
/* The same with y as BF16 and GELU_TANH of the result in one kernel. False: not supported for this
 * matrix, whatever the number of rows, and nothing is done. */
bool matmul_many_gelu(struct device_work *w, const struct matrix *m, void *y, size_t y_stride,
                      const void *x, size_t x_stride, int n);

/* rope_kv.cu. q, k, v f32, results of the matrices: norms of q and k, rope, q16 as BF16, keys and
 * values into the slots of the staged runs. q NULL: only these. */
void rope_kv(struct device_work *w, const struct attn_block *b, const float *q, const float *k,
             const float *v, void *q16);
void kv_move(struct device_work *w, const struct kv_layer *kv, const int *to, const int *from,
             int n);
void kv_copy(struct device_work *w, const struct kv_layer *to, const struct kv_layer *from,
             const int *to_slots, const int *from_slots, int n);

/* attention_few.cu: split over the KV, chains and trees. out [n, n_heads * d] BF16 or F32. */
size_t attn_few_scratch_size(const struct work_shape *s);
void attention_few(struct device_work *w, const struct attn_block *b, const void *q16, void *out,
                   enum dtype out_dtype);
/* attention_few_hopper.cu: the same for a GPU of compute capability 9.0 and heads of 64 or 128,
 * with other bits. False: not supported, whatever the number of rows. */
bool attention_few_hopper(struct device_work *w, const struct attn_block *b, const void *q16,
                          void *out, enum dtype out_dtype);

/* attention_many.cu: rows of one prompt (chains), and towers. */
void attention_many(struct device_work *w, const struct attn_block *b, const void *q16, void *out,
                    enum dtype out_dtype);
/* q, k, v [n, n_heads * d] BF16, rows `stride` elements apart, out likewise by out_stride; segments
 * as in full_attn_job, bounds on the host. */
size_t full_scratch_size(const struct work_shape *s);
void attention_segments(struct device_work *w, void *out, size_t out_stride, const void *q,
                        const void *k, const void *v, size_t stride, int n_heads, int d,
                        float scale, int n_segments, const int *bounds);
/* attention_hopper.cu: the same for a GPU of compute capability 9.0 and heads of 64 or 128. False:
 * not supported. */
bool attention_many_hopper(struct device_work *w, const struct attn_block *b, const void *q16,
                           void *out, enum dtype out_dtype);

/* columns.cu: job->q is q16 [n, n_heads * d] BF16, job->run the run of this number; sums on the
 * host are added to. */
void attention_columns(struct device_work *w, const struct column_job *job, int run,
                       const void *q16, int n_heads, int d, float scale);

/* elementwise.cu, reduce_rows.cu (norms, argmax) and window_attention.cu. Outputs called `y` with a
 * dtype are BF16 or F32. */
void norm_rows(struct device_work *w, void *y, enum dtype y_dtype, const float *x,
               const float *weight, const float *bias, int n, int dim, float eps);
/* The same without a bias for the given rows (device) of x. */
void norm_some_rows(struct device_work *w, void *y, enum dtype y_dtype, const float *x,
                    const int32_t *rows, const float *weight, int n, int dim, float eps);
void gated_silu(struct device_work *w, void *g, const void *u, enum dtype dtype, size_t n);
void gelu_rows(struct device_work *w, void *x, enum dtype dtype, size_t n, enum gelu_kind kind);
/* rows of dim elements, y_stride and x_stride elements apart; y beyond dim becomes zero */
void convert_rows(struct device_work *w, void *y, enum dtype y_dtype, size_t y_stride,
                  const void *x, enum dtype x_dtype, size_t x_stride, int n, int dim);
/* q and k [n, n_heads * d] rotated in place (towers), rows `stride` elements apart */
void rope_rows(struct device_work *w, void *x, enum dtype dtype, size_t stride, int n, int n_heads,
               int d, const float *weight, float eps, const float *cos, const float *sin);
void add_rows(struct device_work *w, float *y, const float *x, size_t n);
void gather_rows(struct device_work *w, float *y, const float *x, const int32_t *rows, int n,
                 int dim);
void attention_windows(struct device_work *w, const struct window_attn_job *job);
void blend_rows(struct device_work *w, float *y, const float *x, const int (*rows)[4],
                const float (*weights)[4], int n, int dim);
void gelu_blend(struct device_work *w, const struct gelu_blend_job *job);
void argmax_rows(struct device_work *w, int32_t *ids, const float *x, int n, int dim);

/* top.cu */
size_t top_scratch_size(int rows, int dim);
void top_rows(struct device_work *w, struct top_entry *out, float *mass, const float *x, int n,
              int dim, int k, float t);
void name_ids(struct device_work *w, int32_t *ids, int n, int step, const int32_t *names);
void draw_rows(struct device_work *w, int32_t *ids, const float *x, int n, int dim,
               const uint64_t *position, uint64_t seed, float t);

/* grow.cu */
void grow_rows(struct device_work *w, const struct grow_job *job);

/* patches.cu */
void cut_patches(struct device_work *w, const struct patch_job *job);

/* views.cu */
void cosines_apart(struct device_work *w, double *out, const float *x, size_t stride, int n,
                   int width, int apart);
void cosine_spread(struct device_work *w, double *out, const float *x, size_t stride, int width,
                   const int32_t *rows, const int32_t *bounds, int n_groups);
void unit_rows(struct device_work *w, const struct unit_job *j);
void unit_dots(struct device_work *w, double *out, const uint16_t *units, const double *sum, int n,
               int width);

/* device_cuda.cu: x in the type that the matrices need, in w->xn, or x itself; *stride: elements
 * between rows. */
const void *as_input(struct device_work *w, const struct matrix *m, const float *x, int n,
                     size_t *stride);
void gpu_matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs, const float *x,
                int n);

/* blocks.cu: the layers, composed of the above. */
void block_embed(struct device_work *w, float *y, const struct matrix *table, const int32_t *ids,
                 int n, const float *next_norm);
void block_attn(struct device_work *w, const struct attn_block *b);
/* The same without column sums and the check for errors; the result of attention goes to `to`. */
void block_attention(struct device_work *w, const struct attn_block *b, void *to);
void block_logits(struct device_work *w, const struct logits_job *job);
void block_finish(struct device_work *w, const struct finish_block *b);
/* Keep only some rows: moves their attention results and x to the beginning of the buffers. Numbers
 * of any type are moved as floats. */
void block_keep_rows(struct device_work *w, const struct finish_block *b, void *att);
/* The sums of squares of the octets of the rows in xn (norm.h). */
float *norm_sums(const struct device_work *w);
/* Whether `weight` is applied by the products before and after it, whatever the rows. */
bool norm_inside(const struct device_work *w, const float *weight, const struct layer_shape *s,
                 const struct matrix *const *m, int n);
void block_tower(struct device_work *w, const struct tower_block *b);

#endif
