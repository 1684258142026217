/* Products of few rows with small BF16 matrices, where latency matters more than bandwidth. A block
 * has eight rows of the matrix; each warp takes every WARPS-th group of 32 columns. All weights of
 * a block are loaded into registers before the preceding kernel has ended. The rows of x are the
 * rows of mma; K is permuted so that a thread's share of both operands is 16 contiguous bytes. The
 * warps' results are added in order, so the bits of an output depend only on the matrix's shape.
 *
 * q, k and v of models without q and k norms continue with RoPE in the same kernel: a block has an
 * octet of the first half of a head and the matching one of the second (together the rows of mma,
 * with x as its columns), and rotates and stores the results.
 *
 * Everything that earlier kernels wrote is requested at once, right after dep_wait; what is needed
 * only at the end goes to shared memory. A block needs registers and little shared memory, so it
 * fits on a multiprocessor together with a block of matmul_few_hopper.cu or
 * matmul_few_narrow_hopper.cu, which need the opposite. (On Hopper, long matrices use
 * thin_far_kernel.)
 *
 * Tried on an H200 without effect: one warp executing everything once without x before the
 * preceding kernel has ended, to bring the code into the instruction cache. */
#include "kernels/cuda/matmul_few_thin.cuh"

namespace {

/* Rows of x that a block takes, `rows` at a time: the y dimension of the grid divides them. */
__device__ inline int first_row(int rows)
{
    return (int)blockIdx.y * rows;
}

__device__ inline int row_stride(int rows)
{
    return (int)gridDim.y * rows;
}

template <int U, int ROWS>
__global__ void __launch_bounds__(U > 8 ? ROOMY : THREADS, U > 8                 ? 1
                                                           : U > 4 || ROWS == 16 ? 2
                                                                                 : 3)
    thin_kernel(const __grid_constant__ thin_args a)
{
    __shared__ struct thin_shared<ROWS, 1> shared;
    const thin_job &j = a.job[job_at(a, (int)blockIdx.x)];
    int out0 = ((int)blockIdx.x - j.octet0) * OCTET, turn = 0;
    int r = (int)(threadIdx.x / OCTET), out = out0 + (int)(threadIdx.x % OCTET);
    float old = 0;
    struct thin_hand<U, ROWS, 1> h = {};
    dep_launch();
    struct thin_end e = end_of(a, j, out);
    load_octet<U>(h.w[0], j.w + (size_t)(out0 + lane_id() / 4) * j.stride, a.in / UNIT);
    dep_wait();
#pragma unroll 1
    for (int m0 = first_row(ROWS); m0 < a.n; m0 += row_stride(ROWS), turn ^= ROWS == 16) {
        ask_rows(h, a, m0);
        load_if(old, j.y + (size_t)(m0 + r) * j.y_stride + out, a.add && r < ROWS && m0 + r < a.n);
        if (m0 == first_row(ROWS))
            put_end(shared, e);
        take_rows(shared, h, a, m0, turn);
        if (r < ROWS)
            finish(a, j, shared, turn, old, m0 + r, out);
    }
}

/* The same for a long matrix and up to eight rows on Hopper. Loading so many weights into registers
 * would delay the loads of the preceding kernel's blocks on the same multiprocessor. TMA loads them
 * to shared memory instead. */
template <int U>
__global__ void __launch_bounds__(THREADS, 2) thin_far_kernel(const __grid_constant__ thin_args a)
{
#ifdef HOPPER_CODE
    __shared__ struct thin_shared<8, 1> shared;
    SHARED_MEMORY(unsigned char, memory);
    const thin_job &j = a.job[job_at(a, (int)blockIdx.x)];
    int out0 = ((int)blockIdx.x - j.octet0) * OCTET, size = a.in * 2, pitch = size + FAR_PAD;
    int r = (int)(threadIdx.x / OCTET), out = out0 + (int)(threadIdx.x % OCTET);
    float old = 0;
    struct thin_hand<U, 8, 1, true> h = {};
    h.far = memory + lane_id() / 4 * pitch + (warp_id() * UNIT + lane_id() % 4 * 8) * 2;
    h.bar = shared_address(memory + OCTET * pitch);
    dep_launch();
    struct thin_end e = end_of(a, j, out);
    if (threadIdx.x == 0) {
        barrier_init(h.bar, 1);
        barrier_init_done();
        barrier_arrive_expect(h.bar, OCTET * size);
#pragma unroll 1
        for (int i = 0; i < OCTET; i++)
            load_bytes_once(shared_address(memory + i * pitch), j.w + (size_t)(out0 + i) * j.stride,
                            size, h.bar);
    }
    __syncthreads();
    dep_wait();
    ask_rows(h, a, 0);
    load_if(old, j.y + (size_t)r * j.y_stride + out, a.add && r < a.n);
    put_end(shared, e);
    take_rows(shared, h, a, 0, 0);
    if (r < 8)
        finish(a, j, shared, 0, old, r, out);
#endif
}

/* ---- q, k and v ---- */

/* Where q, k and v go. */
struct thin_heads {
    const float *cos, *sin; /* [n, d / 2] */
    uint16_t *q16;
    struct kv_pages kv[THIN_RUNS];
    const struct staged *staged;
    int n_runs, n_heads, n_kv, d;
};

/* Destination of a head's element `at`; its partner goes half a head further. */
__device__ inline uint16_t *head_to(const thin_heads &h, int row, int head, int at)
{
    const struct staged_run *run = h.staged->run;
    int i = 0;
    if (head < h.n_heads)
        return h.q16 + ((size_t)row * h.n_heads + head) * h.d + at;
    while (i + 1 < h.n_runs && row >= run[i].row0 + run[i].n)
        i++;
    bool key = head < h.n_heads + h.n_kv;
    int slot = run[i].first_slot + run[i].pending + row - run[i].row0;
    head -= key ? h.n_heads : h.n_heads + h.n_kv;
    return (key ? h.kv[i].k : h.kv[i].v) +
           slot_at(h.kv[i], page_of_row(h.kv[i], run[i], slot), head, slot, h.d) + at;
}

/* Find the destinations of rows from m0 on. */
template <int ROWS>
__device__ inline void take_places(uint16_t **to, const thin_args &a, const thin_heads &h, int head,
                                   int octet, int m0)
{
    int row = m0 + (int)threadIdx.x;
    if (threadIdx.x < ROWS && row < a.n)
        to[threadIdx.x] = head_to(h, row, head, octet);
}

/* Start copies of their cosines and sines, an octet of each, to shared memory. */
template <int ROWS>
__device__ inline void ask_angles(float (*angle)[2][OCTET], const thin_args &a, const thin_heads &h,
                                  int octet, int m0)
{
    int i = (int)(threadIdx.x / 4), at = (int)(threadIdx.x % 2 * 4);
    bool sine = threadIdx.x & 2;
    if (i < ROWS && m0 + i < a.n)
        copy_async16(&angle[i][sine][at],
                     (sine ? h.sin : h.cos) + (size_t)(m0 + i) * (h.d / 2) + octet + at, 16);
    copy_async_commit();
}

template <int U, int ROWS>
__global__ void __launch_bounds__(U > 4 ? ROOMY : THREADS, U > 4        ? 1
                                                           : ROWS == 16 ? 2
                                                                        : 3)
    thin_heads_kernel(const __grid_constant__ thin_args a, const __grid_constant__ thin_heads h)
{
    __shared__ struct thin_shared<ROWS, 2> shared;
    int each = h.d / (2 * OCTET), head = (int)blockIdx.x / each, half = h.d / 2, turn = 0;
    int of = head < h.n_heads ? 0 : head < h.n_heads + h.n_kv ? 1 : 2, thread = (int)threadIdx.x;
    int first = of == 0 ? 0 : of == 1 ? h.n_heads : h.n_heads + h.n_kv;
    const thin_job &j = a.job[of];
    int out0 = (head - first) * h.d, octet = (int)blockIdx.x % each * OCTET;
    int r = (int)(threadIdx.x / OCTET), at = octet + (int)(threadIdx.x % OCTET);
    struct thin_hand<U, ROWS, 2> hand = {};
    const uint16_t *w = j.w + (size_t)(out0 + octet + lane_id() / 4) * j.stride;
    dep_launch();
    float end = j.bias && thread < 2 * OCTET ? j.bias[out0 + thread / OCTET * half + at] : 0.0f;
#pragma unroll
    for (int o = 0; o < 2; o++)
        load_octet<U>(hand.w[o], w + (size_t)(o * half) * j.stride, a.in / UNIT);
    dep_wait();
#pragma unroll 1
    for (int m0 = first_row(ROWS); m0 < a.n; m0 += row_stride(ROWS), turn ^= ROWS == 16) {
        ask_rows(hand, a, m0);
        ask_angles<ROWS>(shared.angle[turn], a, h, octet, of < 2 ? m0 : a.n);
        take_places<ROWS>(shared.to[turn], a, h, head, octet, m0);
        if (m0 == first_row(ROWS) && thread < 2 * OCTET)
            shared.bias[thread / OCTET][thread % OCTET] = end;
        take_rows(shared, hand, a, m0, turn);
        if (r >= ROWS || m0 + r >= a.n)
            continue;
        float u = add_warps(shared, turn, thread), scale = shared.scale[turn][r];
        float v = add_warps(shared, turn, ROWS * OCTET + thread);
        float bias = shared.bias[0][thread % OCTET], bias2 = shared.bias[1][thread % OCTET];
        u = a.norm.squares ? fmaf(u, scale, bias) : u + bias;
        v = a.norm.squares ? fmaf(v, scale, bias2) : v + bias2;
        if (of < 2) {
            float c = shared.angle[turn][r][0][thread % OCTET];
            float s = shared.angle[turn][r][1][thread % OCTET];
            float turned = fmaf(u, c, -(v * s));
            v = fmaf(v, c, u * s);
            u = turned;
        }
        uint32_t low = bf16_bits(u), high = bf16_bits(v);
        uint16_t *to = shared.to[turn][r] + thread % OCTET;
        to[0] = (uint16_t)low;
        to[half] = (uint16_t)high;
    }
}

/* Whether this kernel supports the call; must not depend on the rows of x. */
bool suits(const struct few_call *c)
{
    if (c->gated || c->y_bf16 || c->n_jobs > DEVICE_MAX_JOBS || (uintptr_t)c->x % 16)
        return false;
    for (int i = 0; i < c->n_jobs; i++)
        if (!few_is_thin(c->w[i]) || cuda_of(c->w[i])->in != c->in)
            return false;
    return true;
}

/* The grid for `blocks` blocks, of which a multiprocessor runs `each` at a time. With more than 16
 * rows, further blocks take some of them, as far as all blocks run at once: each takes 16 rows
 * after another, and mostly waits. */
dim3 thin_grid(const struct device_work *w, int n, int blocks, int each)
{
    int most = w->gpu->n_sm * each / blocks, y = least((n + 15) / 16, most > 1 ? most : 1);
    return dim3((unsigned)blocks, (unsigned)y);
}

template <int U> cudaError_t thin_launch(struct device_work *w, const thin_args &a, int octets)
{
    static struct by_gpu allowed[2];
    void (*kernel)(const thin_args) = a.n <= 8 ? thin_kernel<U, 8> : thin_kernel<U, 16>;
    cudaError_t e = allow_smem(&allowed[a.n <= 8], w->gpu->index, kernel, 0, true);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, thin_grid(w, a.n, octets, U > 8 ? 1 : 2), dim3(THREADS), 0, w->stream, a);
}

cudaError_t far_launch(struct device_work *w, const thin_args &a, int octets)
{
    static struct by_gpu allowed;
    int size = OCTET * (a.in * 2 + FAR_PAD) + 16;
    cudaError_t e =
        allow_smem(&allowed, w->gpu->index, thin_far_kernel<MOST_UNITS>, (size_t)size, true);
    if (e != cudaSuccess)
        return e;
    return launch(thin_far_kernel<MOST_UNITS>, dim3((unsigned)octets), dim3(THREADS), (size_t)size,
                  w->stream, a);
}

} // namespace

bool few_is_thin(const struct matrix *m)
{
    const struct cuda_matrix *c = cuda_of(m);
    if (c->dtype != DTYPE_BF16 || c->in % (2 * UNIT) != 0 || c->whole % OCTET != 0)
        return false;
    return (c->in <= SHORT && c->whole <= SHORT_OUT) ||
           (c->in > LONG && c->in <= WARPS * MOST_UNITS * UNIT && c->whole <= LONG_OUT);
}

static int fill_thin(thin_args *a, const struct few_call *c)
{
    int octets = 0;
    for (int i = 0; i < c->n_jobs; i++) {
        const struct cuda_matrix *m = cuda_of(c->w[i]);
        a->job[i] = thin_job{ (const uint16_t *)m->w, c->w[i]->bias, (float *)c->y[i],
                              c->y_stride[i],         octets,        m->stride };
        octets += m->out / OCTET;
    }
    a->x = (const uint16_t *)c->x;
    a->norm = c->norm;
    a->n_jobs = c->n_jobs;
    a->n = c->n;
    a->in = c->in;
    a->out = cuda_of(c->w[0])->out;
    a->add = c->add;
    return octets;
}

bool few_thin(struct device_work *w, const struct few_call *c)
{
    thin_args a = {};
    int octets, units = (c->in / UNIT + WARPS - 1) / WARPS;
    if (!suits(c))
        return false;
    octets = fill_thin(&a, c);
    work_check(w,
               units <= 4                       ? thin_launch<4>(w, a, octets)
               : units <= 8                     ? thin_launch<8>(w, a, octets)
               : a.n <= 8 && w->gpu->major == 9 ? far_launch(w, a, octets)
                                                : thin_launch<MOST_UNITS>(w, a, octets),
               "a product of few rows");
    return true;
}

template <int U>
static cudaError_t heads_launch(struct device_work *w, const thin_args &a, const thin_heads &h)
{
    static struct by_gpu allowed[2];
    int blocks = (h.n_heads + 2 * h.n_kv) * (h.d / (2 * OCTET));
    void (*kernel)(const thin_args, const thin_heads) =
        a.n <= 8 ? thin_heads_kernel<U, 8> : thin_heads_kernel<U, 16>;
    cudaError_t e = allow_smem(&allowed[a.n <= 8], w->gpu->index, kernel, 0, true);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, thin_grid(w, a.n, blocks, U > 4 ? 1 : 2), dim3(THREADS), 0, w->stream, a,
                  h);
}

bool qkv_few_thin(struct device_work *w, const struct attn_block *b, const void *x,
                  const struct few_norm *norm)
{
    const struct layer_weights *l = b->w;
    const struct layer_shape *s = b->shape;
    struct few_call c = {};
    thin_args a = {};
    thin_heads h = {};
    if (l->q_norm || l->k_norm || b->n_runs > THIN_RUNS || s->head_dim % (2 * OCTET) != 0 ||
        l->q.in > WARPS * 8 * UNIT || (uintptr_t)b->cos % 16 || (uintptr_t)b->sin % 16)
        return false;
    c.w[0] = &l->q, c.w[1] = &l->k, c.w[2] = &l->v;
    c.n_jobs = 3;
    c.in = l->q.in;
    c.n = b->n;
    c.x = x;
    c.norm = *norm;
    if (!suits(&c))
        return false;
    fill_thin(&a, &c);
    for (int i = 0; i < b->n_runs; i++) {
        const struct kv_layer *kv = b->runs[i].kv;
        if (kv->dtype != DTYPE_BF16)
            return false;
        h.kv[i] = pages_of(w, kv, i);
    }
    h.cos = b->cos;
    h.sin = b->sin;
    h.q16 = (uint16_t *)w->q16;
    h.staged = w->staged;
    h.n_runs = b->n_runs;
    h.n_heads = s->n_heads;
    h.n_kv = s->n_kv_heads;
    h.d = s->head_dim;
    work_check(w, a.in <= WARPS * 4 * UNIT ? heads_launch<4>(w, a, h) : heads_launch<8>(w, a, h),
               "q, k and v");
    return true;
}
