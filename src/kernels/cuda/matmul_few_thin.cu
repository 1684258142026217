/* Products of few rows with small BF16 matrices, where the way to the first number counts more than
 * the bytes: a block has eight rows of the matrix, each warp every WARPS-th 32 columns of them, and
 * all of its weights come straight to registers before the kernel in front has ended. mma with the
 * rows of x as its rows; K is permuted so that a thread's share of both is 16 bytes in a row. Warps
 * are added up in order: the bits of an output depend on the matrix's shape alone.
 *
 * q, k and v of models without norms in their heads go on at once: a block has an octet of the
 * first half of a head and its partner of the second (together the rows of mma, and x its columns),
 * and rotates and stores what the matrices gave.
 *
 * All that the kernels in front left is asked for at once, right behind the wait, and what only the
 * end needs lies in shared memory. A block wants registers and little shared memory, so it finds
 * room beside one of matmul_few_hopper.cu or matmul_few_narrow_hopper.cu, which want the opposite.
 *
 * Tried and of no use on an H200: one warp going through all of it once without x before the kernel
 * in front has ended, to have the code in the cache. */
#include "kernels/cuda/matmul_few.h"

#include "kernels/cuda/norm.h"

namespace {

enum {
    WARPS = 8,
    THREADS = WARPS * 32,
    ROOMY = 352,      /* threads that there would be registers for, so that others find some */
    UNIT = 32,        /* columns of a warp at a time */
    MOST_UNITS = 19,  /* of a warp */
    SHORT = 2048,     /* rows of a matrix so long, ... */
    SHORT_OUT = 2112, /* ... and so many; */
    LONG = 4096,      /* or longer, ... */
    LONG_OUT = 1056,  /* ... and fewer: between them are k and v of large models, beside a q */
    THIN_RUNS = 4     /* whose keys and values are stored at once */
};

struct thin_job {
    const uint16_t *w;
    const float *bias;
    float *y;
    size_t y_stride;
    int octet0, stride; /* the first octet of the launch that is its own */
};

struct thin_args {
    struct thin_job job[DEVICE_MAX_JOBS];
    const uint16_t *x;
    struct few_norm norm;
    int n_jobs, n, in, out; /* out: of the only job, where there is a norm to leave */
    bool add;
};

/* What becomes of q, k and v. */
struct thin_heads {
    const float *cos, *sin; /* [n, d / 2] */
    uint16_t *q16;
    uint16_t *keys[THIN_RUNS], *values[THIN_RUNS];
    int cap[THIN_RUNS];
    const struct staged *staged;
    int n_runs, n_heads, n_kv, d;
};

__host__ __device__ constexpr int least(int a, int b)
{
    return a < b ? a : b;
}

/* Sums of the warps [octet][row][number] and the rows' scales; of more than eight rows by turns.
 * And what is needed only at the end, out of the registers. */
template <int ROWS, int O> struct thin_shared {
    float sums[ROWS / 8][WARPS][O * ROWS * OCTET];
    float scale[ROWS / 8][ROWS];
    float bias[O][OCTET], weight[OCTET];
    uint16_t *to[ROWS / 8][ROWS]; /* of q, k and v; and their cosines and sines */
    alignas(16) float angle[ROWS / 8][ROWS][2][OCTET];
};

/* What a thread has in registers: its weights, the x of some units and squares of its warp's rows.
 * All zero at first: what is not there stays so, or becomes a number of the same row. */
template <int U, int ROWS, int O> struct thin_hand {
    static constexpr int AT_ONCE = least(U, ROWS == 8 ? 16
                                            : O == 2  ? 3
                                                      : 5); /* units of x on the way */
    static constexpr int QUADS = U <= 4 ? 1 : U <= 8 && ROWS == 8 ? 2 : 0; /* of squares, early */
    uint4 w[O][U], x[ROWS / 8][AT_ONCE];
    float4 squares[ROWS / 8][QUADS ? QUADS : 1];
};

__device__ inline int job_at(const thin_args &a, int octet)
{
    int j = 0;
    while (j + 1 < a.n_jobs && octet >= a.job[j + 1].octet0)
        j++;
    return j;
}

__device__ inline int warp_id()
{
    return (int)(threadIdx.x / 32);
}

__device__ inline int lane_id()
{
    return (int)(threadIdx.x % 32);
}

/* This warp's units of an octet of rows; `row` is the lane's. */
template <int U> __device__ inline void load_octet(uint4 (&w)[U], const uint16_t *row, int units)
{
#pragma unroll
    for (int u = 0; u < U; u++)
        if (warp_id() + WARPS * u < units)
            w[u] = load_stream(row + lane_id() % 4 * 8 + (warp_id() + WARPS * u) * UNIT);
}

/* x of unit u, of rows from m0 on; x: of the lane, in the first of them. */
template <int U, int ROWS, int O>
__device__ inline void ask_unit(struct thin_hand<U, ROWS, O> &h, const thin_args &a,
                                const uint16_t *x, int m0, int u)
{
#pragma unroll
    for (int t = 0; t < ROWS / 8; t++)
        load_if(h.x[t][u % h.AT_ONCE],
                (const uint4 *)(x + (int64_t)(t * 8) * a.in + WARPS * u * UNIT),
                m0 + lane_id() / 4 + t * 8 < a.n && warp_id() + WARPS * u < a.in / UNIT);
}

/* c += a unit's product, its halves apart. One octet: x as the rows of mma (without the second
 * eight of them: zeros), lane / 4 in c. Two: the weights, and a c for each eight rows of x. */
template <int ROWS, int C>
__device__ inline void multiply(float (&c)[2][C][4], const uint4 &w, const uint4 &v,
                                const uint4 (&x)[ROWS / 8], bool two)
{
    if (two) {
        const uint32_t a0[4] = { w.x, v.x, w.y, v.y }, a1[4] = { w.z, v.z, w.w, v.w };
#pragma unroll
        for (int t = 0; t < C; t++) {
            const uint32_t b0[2] = { x[t].x, x[t].y }, b1[2] = { x[t].z, x[t].w };
            mma_bf16(c[0][t], a0, b0);
            mma_bf16(c[1][t], a1, b1);
        }
    } else {
        const uint4 y = ROWS == 16 ? x[ROWS / 8 - 1] : make_uint4(0, 0, 0, 0);
        const uint32_t a0[4] = { x[0].x, y.x, x[0].y, y.y }, a1[4] = { x[0].z, y.z, x[0].w, y.w };
        const uint32_t b0[2] = { w.x, w.y }, b1[2] = { w.z, w.w };
        mma_bf16(c[0][0], a0, b0);
        mma_bf16(c[1][0], a1, b1);
    }
}

/* The warp's units of rows m0 .. m0 + ROWS - 1, to shared memory. */
template <int U, int ROWS, int O>
__device__ inline void take_units(float *sums, struct thin_hand<U, ROWS, O> &h, const thin_args &a,
                                  const uint16_t *x, int m0)
{
    constexpr int C = O == 2 ? ROWS / 8 : 1;
    int g = lane_id() / 4, t2 = lane_id() % 4 * 2;
    float c[2][C][4] = {};
#pragma unroll
    for (int u = 0; u < U; u++) {
        uint4 part[ROWS / 8];
#pragma unroll
        for (int t = 0; t < ROWS / 8; t++)
            part[t] = h.x[t][u % h.AT_ONCE];
        multiply<ROWS, C>(c, h.w[0][u], h.w[O - 1][u], part, O == 2);
        if (u + h.AT_ONCE < U)
            ask_unit(h, a, x, m0, u + h.AT_ONCE);
    }
#pragma unroll
    for (int t = 0; t < C; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[0][t][i] += c[1][t][i];
        if (O == 2) {
            float *to = sums + (t * 8 + t2) * OCTET + g;
            to[0] = c[0][t][0];
            to[OCTET] = c[0][t][1];
            to[ROWS * OCTET] = c[0][t][2];
            to[(ROWS + 1) * OCTET] = c[0][t][3];
        } else {
            *(float2 *)(sums + g * OCTET + t2) = make_float2(c[0][t][0], c[0][t][1]);
            if (ROWS == 16)
                *(float2 *)(sums + (8 + g) * OCTET + t2) = make_float2(c[0][t][2], c[0][t][3]);
        }
    }
}

/* Squares of the warp's rows: m0 + warp, and eight on. */
template <int U, int ROWS, int O>
__device__ inline void ask_squares(struct thin_hand<U, ROWS, O> &h, const thin_args &a, int m0)
{
    int octets = a.in / OCTET, lane = lane_id();
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++) {
        int row = m0 + warp_id() + i * 8;
        const float4 *from = (const float4 *)(a.norm.squares + (int64_t)row * octets);
#pragma unroll
        for (int q = 0; q < h.QUADS; q++)
            load_if(h.squares[i][q], from + lane + q * 32,
                    a.norm.squares && row < a.n && (lane + q * 32) * 4 < octets);
    }
}

/* Their 1 / rms, in the order that norm_take has. */
template <int U, int ROWS, int O>
__device__ inline void take_scales(float *scale, const struct thin_hand<U, ROWS, O> &h,
                                   const thin_args &a, int m0)
{
    int octets = a.in / OCTET, lane = lane_id();
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++) {
        int row = m0 + warp_id() + i * 8;
        float sum = 0;
        if (row >= a.n)
            return;
#pragma unroll
        for (int q = 0; q < h.QUADS; q++) {
            float4 v = h.squares[i][q];
            sum = sum + v.x + v.y + v.z + v.w;
        }
#pragma unroll 1
        for (int k = (lane + h.QUADS * 32) * 4; k < octets; k += 128) {
            float4 v = __ldcg((const float4 *)(a.norm.squares + (int64_t)row * octets + k));
            sum = sum + v.x + v.y + v.z + v.w;
        }
        sum = norm_end(sum, a.in, a.norm.eps);
        if (lane == 0)
            scale[warp_id() + i * 8] = sum;
    }
}

/* Rows from m0 on times O octets, and the rows' scales, to shared memory: for all. */
template <int U, int ROWS, int O>
__device__ inline void take_rows(struct thin_shared<ROWS, O> &shared,
                                 struct thin_hand<U, ROWS, O> &h, const thin_args &a, int m0,
                                 int turn)
{
    const uint16_t *x = a.x + (int64_t)(m0 + lane_id() / 4) * a.in + warp_id() * UNIT;
    x += lane_id() % 4 * 8;
#pragma unroll
    for (int u = 0; u < h.AT_ONCE; u++)
        ask_unit(h, a, x, m0, u);
    ask_squares(h, a, m0);
    take_units(shared.sums[turn][warp_id()], h, a, x, m0);
    if (a.norm.squares)
        take_scales(shared.scale[turn], h, a, m0);
    if (O == 2)
        copy_async_wait<0>();
    __syncthreads();
}

/* The warps' sums of a number, in order. */
template <int ROWS, int O>
__device__ inline float add_warps(const struct thin_shared<ROWS, O> &shared, int turn, int i)
{
    float v = shared.sums[turn][0][i];
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        v += shared.sums[turn][w][i];
    return v;
}

/* v: of row `row` and output `out`. All of a warp call. */
__device__ inline void finish(const thin_args &a, const thin_job &j, float v, float scale,
                              float bias, float weight, float old, int row, int out)
{
    bool there = row < a.n;
    v = a.norm.squares ? fmaf(v, scale, bias) : v + bias;
    if (a.add)
        v += old;
    if (there)
        j.y[(size_t)row * j.y_stride + out] = v;
    if (a.norm.weight) {
        float s = octet_squares(v, 1);
        uint32_t bits = bf16_bits(v * weight);
        if (there)
            a.norm.xn[(size_t)row * a.out + out] = (uint16_t)bits;
        if (there && threadIdx.x % OCTET == 0)
            a.norm.sums[(size_t)row * (a.out / OCTET) + out / OCTET] = s;
    }
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
    load_octet<U>(h.w[0], j.w + (size_t)(out0 + lane_id() / 4) * j.stride, a.in / UNIT);
    if (threadIdx.x < OCTET) {
        shared.bias[0][threadIdx.x] = j.bias ? j.bias[out] : 0.0f;
        shared.weight[threadIdx.x] = a.norm.weight ? a.norm.weight[out] : 0.0f;
    }
    dep_wait();
#pragma unroll 1
    for (int m0 = 0; m0 < a.n; m0 += ROWS, turn ^= ROWS == 16) {
        load_if(old, j.y + (size_t)(m0 + r) * j.y_stride + out, a.add && r < ROWS && m0 + r < a.n);
        take_rows(shared, h, a, m0, turn);
        if (r < ROWS)
            finish(a, j, add_warps(shared, turn, (int)threadIdx.x), shared.scale[turn][r],
                   shared.bias[0][threadIdx.x % OCTET], shared.weight[threadIdx.x % OCTET], old,
                   m0 + r, out);
    }
}

/* ---- q, k and v ---- */

/* A head's numbers `at` and its partner half a head on, where they go. */
__device__ inline uint16_t *head_to(const thin_heads &h, int row, int head, int at)
{
    const struct staged_run *run = h.staged->run;
    int i = 0;
    if (head < h.n_heads)
        return h.q16 + ((size_t)row * h.n_heads + head) * h.d + at;
    while (i + 1 < h.n_runs && row >= run[i].row0 + run[i].n)
        i++;
    bool key = head < h.n_heads + h.n_kv;
    size_t slot = (size_t)(run[i].first_slot + run[i].pending + row - run[i].row0);
    head -= key ? h.n_heads : h.n_heads + h.n_kv;
    return (key ? h.keys[i] : h.values[i]) + ((size_t)head * h.cap[i] + slot) * h.d + at;
}

/* Where rows from m0 on go; runs are staged before the step. */
template <int ROWS>
__device__ inline void take_places(uint16_t **to, const thin_args &a, const thin_heads &h, int head,
                                   int octet, int m0)
{
    int row = m0 + (int)threadIdx.x;
    if (threadIdx.x < ROWS && row < a.n)
        to[threadIdx.x] = head_to(h, row, head, octet);
}

/* Their cosines and sines, an octet of each, straight to shared memory. */
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
#pragma unroll
    for (int o = 0; o < 2; o++)
        load_octet<U>(hand.w[o], w + (size_t)(o * half) * j.stride, a.in / UNIT);
    if (thread < 2 * OCTET)
        shared.bias[thread / OCTET][thread % OCTET] =
            j.bias ? j.bias[out0 + thread / OCTET * half + at] : 0.0f;
    take_places<ROWS>(shared.to[0], a, h, head, octet, 0);
    dep_wait();
#pragma unroll 1
    for (int m0 = 0; m0 < a.n; m0 += ROWS, turn ^= ROWS == 16) {
        ask_angles<ROWS>(shared.angle[turn], a, h, octet, of < 2 ? m0 : a.n);
        if (m0 > 0)
            take_places<ROWS>(shared.to[turn], a, h, head, octet, m0);
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

/* Whether all of the call is for this kernel: nothing of it depends on the rows of x. */
bool suits(const struct few_call *c)
{
    if (c->gated || c->y_bf16 || c->n_jobs > DEVICE_MAX_JOBS || (uintptr_t)c->x % 16)
        return false;
    for (int i = 0; i < c->n_jobs; i++)
        if (!few_is_thin(c->w[i]) || cuda_of(c->w[i])->in != c->in)
            return false;
    return true;
}

/* A multiprocessor divides L1 and shared memory anew only when it is empty: blocks of these kernels
 * must not keep from it those that want much of the latter. */
template <class... P> cudaError_t leave_shared(void (*kernel)(P...), bool *done)
{
    if (*done)
        return cudaSuccess;
    *done = true;
    return cudaFuncSetAttribute((const void *)kernel,
                                cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}

template <int U> cudaError_t thin_launch(struct device_work *w, const thin_args &a, int octets)
{
    static bool done[2];
    void (*kernel)(const thin_args) = a.n <= 8 ? thin_kernel<U, 8> : thin_kernel<U, 16>;
    cudaError_t e = leave_shared(kernel, &done[a.n <= 8]);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, dim3((unsigned)octets), dim3(THREADS), 0, w->stream, a);
}

} // namespace

bool few_is_thin(const struct matrix *m)
{
    const struct cuda_matrix *c = cuda_of(m);
    if (c->dtype != DTYPE_BF16 || c->in % (2 * UNIT) != 0 || c->out % OCTET != 0)
        return false;
    return (c->in <= SHORT && c->out <= SHORT_OUT) ||
           (c->in > LONG && c->in <= WARPS * MOST_UNITS * UNIT && c->out <= LONG_OUT);
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
               units <= 4    ? thin_launch<4>(w, a, octets)
               : units <= 8  ? thin_launch<8>(w, a, octets)
               : units <= 12 ? thin_launch<12>(w, a, octets)
                             : thin_launch<MOST_UNITS>(w, a, octets),
               "a product of few rows");
    return true;
}

template <int U>
static cudaError_t heads_launch(struct device_work *w, const thin_args &a, const thin_heads &h)
{
    static bool done[2];
    int blocks = (h.n_heads + 2 * h.n_kv) * (h.d / (2 * OCTET));
    void (*kernel)(const thin_args, const thin_heads) =
        a.n <= 8 ? thin_heads_kernel<U, 8> : thin_heads_kernel<U, 16>;
    cudaError_t e = leave_shared(kernel, &done[a.n <= 8]);
    if (e != cudaSuccess)
        return e;
    return launch(kernel, dim3((unsigned)blocks), dim3(THREADS), 0, w->stream, a, h);
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
        h.keys[i] = (uint16_t *)kv->k;
        h.values[i] = (uint16_t *)kv->v;
        h.cap[i] = kv->cap;
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
