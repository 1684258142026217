/* The table of CPU kernels, one thread each, and the contract they keep.
 *
 * Row invariance: the bits of an output row depend on that row's inputs, on the weights and on
 * fixed dimensions (in, out, head_dim, KV_CHUNK), never on the number of rows computed with it, on
 * the requested range [o0, o1), or on the thread. Within one table (one set of CPU flags) a row
 * alone equals the same row among 64, bit for bit; between tables only the error bound of
 * tests/kernels holds. Sums over `in` run in one fixed order per table.
 *
 * kernels_init fills the table with plain C (ref/); then each instruction set that the CPU has, in
 * rising order, replaces the kernels for which it has faster ones. */
#ifndef PV_KERNELS_KERNELS_H
#define PV_KERNELS_KERNELS_H

#include "tensor/device.h"

/* Operations that a product can apply directly to its sums s = x . W^T (+ bias) instead of storing
 * them in y. The bits equal those of separate operations. */
enum fused_kind {
    FUSED_ADD,      /* y += s */
    FUSED_GELU,     /* to = gelu(s), GELU_TANH */
    FUSED_SILU_MUL, /* to = silu(s of `gate`) * s */
};

struct matmul_fused {
    enum fused_kind kind;
    float *y; /* [n, out] */
    size_t y_stride;
    void *to; /* n rows of `out` values in the form of `pack`; MEM_ALIGN-ed */
    const struct matrix *gate;
};

/* Matrix product by a weight matrix W [out, in] of one dtype: y[r][o] = sum_i x[r][i] W[o][i]
 * (+ bias[o]). x is first packed into the kernel's own form (bf16, int8 blocks, tiles, ...), once
 * for all matrices that share it. */
struct matmul_kernel {
    const char *name;
    int in_multiple; /* `in` must be a multiple of it; otherwise matmul_any is used */
    int row_step;    /* pack ranges begin at multiples of this many rows */
    int out_step;    /* run ranges begin at multiples of this many outputs */
    /* Bytes of n packed rows, and of the scratch one thread needs in `run`. */
    size_t (*packed_size)(int n, int in);
    size_t (*scratch_size)(int in);
    /* Pack rows [r0, r1) of the n rows x[r] = x + r * stride (floats); MEM_ALIGN-ed xp. */
    void (*pack)(void *xp, const float *x, size_t stride, int n, int in, int r0, int r1);
    /* Outputs [o0, o1) of rows [0, n): y[r * y_stride + o]. */
    void (*run)(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                int o1, void *scratch);
    /* The same with a fused operation, or NULL. o0 is a multiple of 64, n >= row_step. */
    void (*fused)(const struct matmul_fused *f, const void *xp, int n, const struct matrix *w,
                  int o0, int o1, void *scratch);
    /* For kernels in `matmul_repacked`, else NULL: the size in bytes of the repacked weights that
     * `run` expects at w->repacked, and the function that repacks outputs [o0, o1); MEM_ALIGN-ed.
     */
    bool few_rows; /* meant for few rows: not used for matrices with many_rows */
    size_t (*repacked_size)(const struct matrix *w);
    void (*repack)(void *to, const struct matrix *w, int o0, int o1);
};

struct attn_chunk;

struct kernels {
    const char *name; /* "ref", "avx2", "avx512", "amx", "neon", ...: the highest level in use */
    const struct matmul_kernel *matmul[DTYPE_COUNT];
    /* Used if matmul[t]->in_multiple does not divide `in` (a fixed dimension, so the choice does
     * not depend on rows). */
    const struct matmul_kernel *matmul_any[DTYPE_COUNT];
    /* Used for matrices with repacked weights (matrix.repacked); NULL: not available. Products
     * have the same bits as those of `matmul`. */
    const struct matmul_kernel *matmul_repacked[DTYPE_COUNT];
    /* The same for repacked matrices with many_rows, and any `in`; NULL: matmul_repacked is used.
     */
    const struct matmul_kernel *matmul_many_repacked[DTYPE_COUNT];

    /* y = w * x * rsqrt(mean(x^2) + eps); y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps);
    /* y = (x - mean) / sqrt(variance + eps) * w + b; y may be x. */
    void (*layernorm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    /* Rotate-half of one head vector in place: pairs (j, j + d/2), cos/sin [d/2]. */
    void (*rope)(float *x, const float *cos, const float *sin, int d);
    /* g = silu(g) * u, elementwise. */
    void (*silu_mul)(float *g, const float *u, size_t n);
    /* x = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) or x/2 (1 + erf(x / sqrt 2)). */
    void (*gelu[GELU_COUNT])(float *x, size_t n);
    void (*add)(float *y, const float *x, size_t n); /* y += x */
    void (*to_f16)(uint16_t *y, const float *x, size_t n);
    void (*to_bf16)(uint16_t *y, const float *x, size_t n);
    /* y[i] = codes[i] * factors[i], see tensor/f8.h. */
    void (*f8_to_bf16)(uint16_t *y, const uint8_t *codes, const float *factors, int n);
    /* One row of scores s[n] -> p[i] = exp(scale * (s[i] - max)) for i < limit, 0 for the rest up
     * to n (n a multiple of 64, 1 <= limit <= n). Returns the sum of p, *max = scale * the
     * largest score. p may be s. exp(0) is exactly 1. */
    float (*softmax)(float *p, const float *s, int n, int limit, float scale, float *max);
    /* acc = acc * a + x * b, elementwise: merges two chunks of attention. */
    void (*scale_add)(float *acc, float a, const float *x, float b, int n);
    /* Index of the largest number, the lowest index among equals; NaN is ignored. */
    int (*argmax)(const float *x, int n);

    /* The experts of a row, ascending, and their weights, from the router's logits [n] (see struct
     * expert_weights). Sums run in ascending order. */
    void (*route)(int *expert, float *weight, const float *logits, int n, int used, bool normed);

    /* Optional whole-chunk attention (NULL: the generic one of attention_cpu.c is used). */
    const struct attn_kernel *attn[DTYPE_COUNT];
    /* The same for keys and values that are stored as the sum of two bf16 numbers, which is exact
     * within 2^-17 and thus finer than F16: k [KV_CHUNK, 2, d], vt [d, 2, KV_CHUNK]. Optional. */
    const struct attn_kernel *attn_pair;
};

/* One head of n <= KV_CHUNK rows of keys and values, `stride` floats apart. */
struct attn_rows {
    const float *k, *v;
    size_t stride;
    int n, d;
};

/* One head of plain rows: n_q queries that each attend to all of n rows of keys and values. Rows of
 * all of them are `stride` floats apart. */
struct attn_head {
    float *out; /* may be q */
    const float *q, *k, *v;
    size_t stride;
    int n_q, n, d;
    float scale;
};

/* Attention of a tile of queries that share a KV head over one chunk of KV_CHUNK positions:
 * partial[q] = (max, sum, out[head_dim]) as `softmax` defines max and sum, out = sum p v. */
struct attn_kernel {
    int max_queries; /* of one tile */
    int d_multiple;  /* head_dim must be a multiple of it; otherwise the generic kernel is used */
    int least;  /* with fewer queries per KV head and row than this, the generic one is used too */
    bool trees; /* supports attn_chunk.tree */
    size_t (*packed_size)(int n, int d);
    size_t (*scratch_size)(int n, int d);
    /* Pack n <= max_queries queries, q[i] = rows of d floats. */
    void (*pack)(void *qp, const float *const *q, int n, int d);
    /* Optional: round rows and store them as a chunk with heads of d >= x->d values; the rest of
     * the heads, and positions up to the next multiple of 64, are zero. MEM_ALIGN-ed. */
    void (*lay)(void *k, void *vt, const struct attn_rows *x, int d);
    /* limit[i] in 0..KV_CHUNK positions visible to query i (0: its max, sum and out are left
     * untouched or garbage, the caller ignores them). */
    void (*run)(float *max, float *sum, float *out, const void *qp, int n, int d,
                const struct attn_chunk *chunk, const int *limit, float scale, void *scratch);
    /* Optional: the head's queries over all its rows, with the bits of pack, lay and run over
     * chunks of KV_CHUNK rows whose results are joined in order. `head_size`: of its scratch;
     * grows with n_q. */
    size_t (*head_size)(int n_q, int d);
    void (*head)(const struct attn_head *h, void *scratch);
};

enum { ATTN_NODES = 64, ATTN_TREE_QUERIES = 64 };

/* The tree rows after the positions of a chunk that all queries share: query i attends to
 * node[t][i] as if it were at position shared + t, with the same bits. The queries of one set are
 * on one path, that of query tip[set]. */
struct attn_tree {
    int shared;
    int n_nodes;                          /* at most ATTN_NODES */
    const void *k;                        /* [ATTN_NODES, d], the first n_nodes are valid */
    const void *vt;                       /* [d, ATTN_NODES]; values of missing nodes are finite */
    const int (*node)[ATTN_TREE_QUERIES]; /* 0 beyond a query's limit, and for missing queries */
    int n_sets;
    const int *set; /* [queries] */
    const int *tip; /* [n_sets] */
};

/* K [positions, d], V^T [d, KV_CHUNK]; `positions`, a multiple of 64, can be read. The kernel may
 * sum over all of them, so the number must depend only on what a row attends to, not on other
 * rows. */
struct attn_chunk {
    const void *k, *vt;
    int positions;
    const void *next_k, *next_vt; /* of the next chunk, for prefetching; NULL: unknown */
    const struct attn_tree *tree; /* or NULL; only for kernels with `trees` */
};

void kernels_init(struct kernels *k, uint64_t cpu); /* cpu: flags of base/cpu.h, masked */
void kernels_init_x86(struct kernels *k, uint64_t cpu);
void kernels_init_arm(struct kernels *k, uint64_t cpu);

/* x86/: one function per instruction set; each replaces the kernels for which it has faster
 * ones. */
void kernels_init_avx2(struct kernels *k);
void kernels_init_avx512(struct kernels *k);
void kernels_init_vnni(struct kernels *k);
void kernels_init_avx512bf16(struct kernels *k);
void kernels_init_amx(struct kernels *k);

/* The kernel for a matrix of this dtype and row length. */
const struct matmul_kernel *kernels_matmul(const struct kernels *k, enum dtype t, int in);
const struct matmul_kernel *kernels_matmul_for(const struct kernels *k, const struct matrix *w);
/* The kernel for repacked weights that suits a matrix, whether it is repacked or not; or NULL. */
const struct matmul_kernel *kernels_repacked_for(const struct kernels *k, const struct matrix *w);

/* ref/: plain C. matmul_ref[t] works for every dtype and any `in`. */
extern const struct matmul_kernel matmul_ref[DTYPE_COUNT];
void kernels_init_ref(struct kernels *k);
/* ref/window_attention_ref.c: queries [begin, end) of struct device_ops.attention_windows. */
void window_attention_ref(const struct window_attn_job *job, int begin, int end);
/* ref/experts_ref.c: `route` in plain C, and the whole operation (struct device_ops.experts), one
 * row and one expert at a time. */
void route_ref(int *expert, float *weight, const float *logits, int n, int used, bool normed);
void experts_ref(float *y, const struct expert_weights *e, const float *x, int n);

#endif
