/* Gate and up of small models on Hopper GPUs. There are few columns (K), so all weights of a
 * block's tile are in shared memory before the preceding kernel has ended, and only the latency
 * from x to y matters.
 *
 * K is cut into steps of 64 columns. With up to eight rows of x, each step has a warp: it loads x
 * into registers and stores the sums of its step, for all rows of the tile, in shared memory, where
 * the steps are added in the order of K. The sum of a step is a chain of four mma starting from
 * zero. More rows use wgmma, also in chains of four from zero, which gives the same bits (measured,
 * and checked by every test of rows). So the bits of an output depend only on its row of x.
 *
 * The kernel uses few registers and not all of the shared memory, so that the blocks of the kernels
 * before and after it fit on the same multiprocessor. All blocks need the same few lines of x at
 * once: a warp loads them with one or two requests instead of number by number. At most
 * NARROW_FLIGHT bytes of weights are in flight at a time, because the preceding kernels are still
 * reading.
 *
 * Tried on an H200 without effect: running everything once without x while the weights arrive, to
 * bring the code into the instruction cache. */
#include "kernels/cuda/matmul_few.h"

#include "kernels/cuda/matmul_few_narrow_hopper.cuh"

enum {
    NARROW_BLOCKS = 132,      /* at most one wave on an H200 */
    USUAL_STEPS = 14,         /* 896 columns */
    NARROW_FLIGHT = 30 << 10, /* bytes of weights in flight */
    NARROW_SMEM = 227 << 10
};

/* STEPS: number of steps if known at compile time, else 0 (a.steps counts). The launch bounds limit
 * the kernel to 40 registers per thread. */
template <int STEPS>
__global__ void __launch_bounds__(768, 2)
    narrow_one_row_kernel(const __grid_constant__ narrow_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(memory);
    struct narrow_memory m = {};
    m.w = memory;
    m.sums = (float *)(memory + a.steps * narrow_step_size(a.rows));
    m.bias = m.sums + a.steps * a.n * narrow_stride(a.rows);
    m.scale = m.bias + 2 * a.rows;
    m.full = shared_address(m.scale + NARROW_COLS);
    dep_launch();
    if (threadIdx.x % 32 == 0 && (int)(threadIdx.x / 32) < a.steps)
        barrier_init(m.full + threadIdx.x / 32 * 8, 1);
    barrier_init_done();
    __syncthreads();
    if ((int)threadIdx.x < a.warps * 32) {
        narrow_take_bias(a, m.bias, a.warps * 32);
        narrow_one_row<STEPS>(a, m);
    } else if ((int)threadIdx.x == a.warps * 32) {
        narrow_feed(a, m);
    }
#endif
}

template <int N>
__global__ void __launch_bounds__(threads(N), 1)
    narrow_many_kernel(const __grid_constant__ narrow_args a)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(memory);
    struct narrow_memory m = {};
    m.w = memory;
    m.x = m.w + a.steps * narrow_step_size(a.rows); /* wgmma may read beyond the weights, into x */
    m.sums = (float *)(m.x + a.steps * N * ROW_BYTES);
    m.bias = m.sums + N * SUM_STEP;
    m.scale = m.bias + 2 * a.rows;
    m.full = shared_address(m.scale + FEW_ROWS);
    m.x_full = m.full + a.steps * 8;
    m.x_empty = m.x_full + a.steps * 8;
    dep_launch();
#pragma unroll 1
    for (int i = (int)(threadIdx.x / 32); i < a.steps * 3; i += threads(N) / 32)
        if (threadIdx.x % 32 == 0)
            barrier_init(m.full + i * 8, i < 2 * a.steps ? 1 : CONSUMERS / 32);
    barrier_init_done();
    __syncthreads();
    if (threadIdx.x < CONSUMERS) {
        narrow_take_bias(a, m.bias, CONSUMERS);
        narrow_many<N>(a, m);
    } else if (threadIdx.x == CONSUMERS) {
        narrow_feed(a, m);
    } else if (threadIdx.x == CONSUMERS + 32) {
        narrow_feed_x<N>(a, m);
    } else if (threadIdx.x >= CONSUMERS + PRODUCERS) {
        narrow_scales<N>(a, m);
    }
#endif
}

/* ---- host ---- */

/* Bytes of shared memory of narrow_one_row_kernel, and (many_size) of narrow_many_kernel. */
static int one_row_size(const narrow_args &a, int n)
{
    return a.steps * (narrow_step_size(a.rows) + n * narrow_stride(a.rows) * 4 + 8) +
           (2 * a.rows + NARROW_COLS) * 4;
}

static int many_size(const narrow_args &a, int columns)
{
    return a.steps * (narrow_step_size(a.rows) + columns * ROW_BYTES + 3 * 8) +
           (columns * SUM_STEP + 2 * a.rows + FEW_ROWS) * 4;
}

static cudaError_t launch_narrow(struct device_work *w, void (*kernel)(const narrow_args),
                                 struct by_gpu *allowed, const narrow_args &a, int threads,
                                 int size)
{
    cudaError_t e = allow_smem(allowed, w->gpu->index, kernel, (size_t)size, true);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, dim3((unsigned)((a.out + a.rows - 1) / a.rows)), dim3((unsigned)threads),
                  (size_t)size, w->stream, a);
}

static cudaError_t launch_one_row(struct device_work *w, narrow_args &a)
{
    static struct by_gpu allowed[2];
    bool usual = a.steps == USUAL_STEPS;
    a.warps = a.steps + 1 > NARROW_COLS ? a.steps + 1 : (int)NARROW_COLS;
    return launch_narrow(w, usual ? narrow_one_row_kernel<USUAL_STEPS> : narrow_one_row_kernel<0>,
                         &allowed[usual], a, (a.warps + 1) * 32, one_row_size(a, a.n));
}

static cudaError_t launch_many(struct device_work *w, narrow_args &a, encode_fn encode)
{
    static struct by_gpu allowed[2];
    int in = a.steps * TILE_COLS, columns = a.n <= 16 ? 16 : 32;
    if (!encode_map(encode, &a.map, a.x, a.n, a.steps, 0, (size_t)in * 2, 0, columns, 1))
        return cudaErrorInvalidValue;
    return columns == 16 ? launch_narrow(w, narrow_many_kernel<16>, &allowed[0], a, threads(16),
                                         many_size(a, 16))
                         : launch_narrow(w, narrow_many_kernel<32>, &allowed[1], a, threads(32),
                                         many_size(a, 32));
}

/* Rows of the matrices per block. */
static int narrow_rows(int out)
{
    return ((out + NARROW_BLOCKS - 1) / NARROW_BLOCKS + 7) / 8 * 8;
}

/* Whether these kernels support the call, and how it is divided; must not depend on n. */
static bool plan_narrow(const struct device_work *w, const struct few_call *c, narrow_args *a)
{
    const struct cuda_matrix *gate = cuda_of(c->w[0]), *up = cuda_of(c->w[1]);
    if (w->gpu->major != 9 || !c->gated || c->add || c->norm.weight || c->in % TILE_COLS != 0 ||
        c->in > NARROW_STEPS * TILE_COLS || (uintptr_t)c->x % 16)
        return false;
    if (gate->dtype != DTYPE_BF16 || up->dtype != DTYPE_BF16 || gate->in != c->in ||
        up->in != c->in || gate->out != up->out)
        return false;
    a->out = gate->out;
    a->steps = c->in / TILE_COLS;
    a->rows = narrow_rows(gate->whole);
    if (a->rows > GROUP || one_row_size(*a, NARROW_COLS) > NARROW_SMEM ||
        many_size(*a, 32) > NARROW_SMEM)
        return false;
    a->rows = narrow_rows(a->out);
    return true;
}

bool few_narrow(struct device_work *w, const struct few_call *c)
{
    encode_fn encode = find_encode_once();
    narrow_args a = {};
    bool mapped = true;
    if (!encode || !plan_narrow(w, c, &a))
        return false;
    for (int i = 0; i < 2; i++) {
        const struct cuda_matrix *m = cuda_of(c->w[i]);
        mapped = mapped && encode_map(encode, &a.w[i], m->w, m->out, m->stride / TILE_COLS, 0,
                                      (size_t)m->stride * 2, 0, a.rows, 1);
        a.bias[i] = c->w[i]->bias;
    }
    a.y_stride = c->y_stride[0];
    a.flight = NARROW_FLIGHT / narrow_step_size(a.rows);
    a.flight = a.flight > 1 ? a.flight : 1;
    a.part_inverse = inverse((uint32_t)((a.rows + MMA_ROWS - 1) / MMA_ROWS));
    a.y_bf16 = c->y_bf16;
    for (int at = 0; at < c->n; at += FEW_ROWS) {
        a.n = c->n - at < FEW_ROWS ? c->n - at : (int)FEW_ROWS;
        a.x = (const uint16_t *)c->x + (size_t)at * (size_t)c->in;
        a.y = (uint8_t *)c->y[0] + (size_t)at * a.y_stride * (c->y_bf16 ? 2 : 4);
        a.norm = few_norm_from(c, (size_t)at);
        work_check(w,
                   !mapped              ? cudaErrorInvalidValue
                   : a.n <= NARROW_COLS ? launch_one_row(w, a)
                                        : launch_many(w, a, encode),
                   "gate and up of few rows");
    }
    return true;
}
