/* y = x . w^T for up to 64 rows of x, limited by the memory bandwidth of the weights. Shared by the
 * plan (matmul_few.cu) and the kernels (matmul_few_kernel.cuh, instantiated in one file per type).
 *
 * A warp multiplies `units` of 16 MT rows of w, the M side of mma, by all rows of x, the N side in
 * NT tiles of 8. It goes through K slot by slot (planes.h). The warps of a block are WM x WK: WM
 * units, and WK warps per unit, which take its slots in turn and are summed in order at the end. If
 * there are few rows and K is long, `splits` blocks share the K of the same rows; the last block to
 * arrive adds up their results in order. WK and splits depend only on the matrix's shape and type,
 * and fix every bit of the result; the rest (MT, NT, WM, depth) is chosen for speed. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_H
#define PV_KERNELS_CUDA_MATMUL_FEW_H

#include "kernels/cuda/norm.h"
#include "kernels/cuda/planes.h"

__host__ __device__ constexpr int least(int a, int b)
{
    return a < b ? a : b;
}

enum { FEW_COUNTERS = 4096 /* ints at the beginning of the scratch: zero between launches */ };

/* One matrix; for a gated product two of the same shape, whose octets alternate in a unit: gate,
 * up, gate, ... */
struct few_job {
    const uint8_t *w[2], *scale[2]; /* of octets with even and odd index */
    const float *bias[2];           /* NULL: none */
    const float *gate;              /* [n, out], y = silu(gate) * (w x); NULL: none */
    void *y;
    size_t y_stride;
    size_t partial; /* floats from params.partial: [tile][split][n][rows of a tile] */
    int counter;    /* the counter of its first tile */
    int out, octets;
    int first_block, tiles, log_wk, splits;
};

struct few_params {
    struct few_job job[DEVICE_MAX_JOBS];
    int n_jobs;
    int n, in, slots;
    int warps;          /* of a block */
    int depth;          /* stages in shared memory */
    int stage_size;     /* bytes: weights of all warps, then x */
    int x_at;           /* bytes */
    int tile_step;      /* a block takes every tile_step-th tile */
    uint32_t row_units; /* 16-byte units of a row of a plain matrix */
    const void *x;
    bool aligned; /* rows of x begin at 16 bytes */
    bool add, gated, y_bf16;
    int *counter; /* zero before and after a launch */
    float *partial;
    const float *scale; /* [n], factors of the rows of x; NULL: none */
};

/* 16-byte units of a row of x in a slot. */
__host__ __device__ static constexpr int few_x_units(enum dtype t)
{
    return t == DTYPE_F16 ? 16 : slot_elements(t) / 8;
}

__host__ __device__ static constexpr int few_octet_size(enum dtype t)
{
    return t == DTYPE_F16 || t == DTYPE_BF16 ? 1024 : OCTET_SLOT;
}

/* Bytes in shared memory of what a warp fetches for a slot. */
__host__ __device__ static constexpr int few_warp_size(enum dtype t, int mt)
{
    return 2 * mt * (few_octet_size(t) + slot_scales(t));
}

/* Most warps of a block that registers allow. */
__host__ __device__ static constexpr int few_max_warps(enum dtype t, int nt)
{
    return t == DTYPE_F16 || t == DTYPE_BF16 ? (nt > 4 ? 12 : 16) : nt > 4 ? 8 : nt > 2 ? 12 : 16;
}

/* Floats per column of a unit's sums in shared memory, chosen against bank conflicts. */
__host__ __device__ static constexpr int few_sum_stride(int mt)
{
    return 16 * mt + 4;
}

static inline int few_tiles_n(int n)
{
    int t = (n + 7) / 8;
    return t <= 4 ? t : t <= 6 ? 6 : 8;
}

/* matmul_few_<type>.cu: launch the kernel for mt (1, 2) and nt (1, 2, 3, 4, 6, 8). */
cudaError_t few_run_bf16(const struct few_params *p, int mt, int nt, int blocks, size_t smem,
                         cudaStream_t stream);
cudaError_t few_run_f16(const struct few_params *p, int mt, int nt, int blocks, size_t smem,
                        cudaStream_t stream);
cudaError_t few_run_q8_0(const struct few_params *p, int mt, int nt, int blocks, size_t smem,
                         cudaStream_t stream);
cudaError_t few_run_q4_0(const struct few_params *p, int mt, int nt, int blocks, size_t smem,
                         cudaStream_t stream);
cudaError_t few_run_q4_k(const struct few_params *p, int mt, int nt, int blocks, size_t smem,
                         cudaStream_t stream);

/* matmul_few_hopper.cu. A call as in the interface: jobs that share x, or gate and up with one y.
 * The functions return false if they do not support this GPU or these matrices, which never depends
 * on n. */
struct few_call {
    const struct matrix *w[DEVICE_MAX_JOBS];
    void *y[DEVICE_MAX_JOBS];
    size_t y_stride[DEVICE_MAX_JOBS];
    int n_jobs, in, n;
    const void *x;
    bool add, gated, y_bf16;
    struct few_norm norm; /* on Hopper GPUs only */
};
/* The call's norm, with pointers to rows from `at` on. */
static inline struct few_norm few_norm_from(const struct few_call *c, size_t at)
{
    struct few_norm n = c->norm;
    if (n.squares)
        n.squares += at * (size_t)(c->in / NORM_OCTET);
    if (n.weight) {
        size_t out = (size_t)cuda_of(c->w[0])->out;
        n.xn += at * out;
        n.sums += at * (out / NORM_OCTET);
    }
    return n;
}

/* matmul_few_thin.cu: small matrices; preferred over the other kernels. */
bool few_is_thin(const struct matrix *m);
bool few_thin(struct device_work *w, const struct few_call *c);
bool few_hopper_ready(const struct device_work *w);
bool few_hopper(struct device_work *w, const struct few_call *c);
/* matmul_few_narrow_hopper.cu: gate and up with few columns; preferred over the other kernels. */
bool few_narrow(struct device_work *w, const struct few_call *c);
/* matmul_few_packed_hopper.cu: the same for types with blocks. */
bool few_packed_hopper(struct device_work *w, const struct few_call *c);
/* q, k and v of a single row from x = xn, followed by the work of rope_kv, with the same bits.
 * False: not supported here, and nothing is done. */
bool qkv_few_packed(struct device_work *w, const struct attn_block *b, const void *x,
                    const struct few_norm *norm);

#endif
