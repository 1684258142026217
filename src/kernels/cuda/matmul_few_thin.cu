/* Products of few rows with small BF16 matrices, where the way to the first number
 * counts more than the bytes: a block has eight rows of the matrix, each warp every WARPS-th 32
 * columns of them, and all of its weights come straight to registers before the kernel in front has
 * ended. mma with the rows of x as its rows; K is permuted so that a thread's share of both is 16
 * bytes in a row. Warps are added up in order: the bits of an output depend on the matrix's shape
 * alone.
 *
 * q, k and v of models without norms in their heads go on at once: a block has an octet of the
 * first half of a head and its partner of the second, and rotates and stores what the matrices
 * gave.
 *
 * A block wants registers and next to no shared memory, so it finds room beside one of
 * matmul_few_hopper.cu, which wants the opposite. */
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
    M = 16,           /* rows of x at a time */
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

template <int O> struct thin_shared {
    float sums[2][WARPS][O * M * OCTET]; /* by turns */
    float scale[2][M];
};

__device__ inline int job_at(const thin_args &a, int octet)
{
    int j = 0;
    while (j + 1 < a.n_jobs && octet >= a.job[j + 1].octet0)
        j++;
    return j;
}

/* c += x rows m0 .. m0 + 15 (with ROWS 8: .. + 7, the others count as zero) times O octets, over
 * this warp's units, the x of some under way at a time. */
template <int U, int ROWS, int O>
__device__ inline void multiply(float (&c)[O][4], const thin_args &a, const uint4 (&w)[O][U],
                                int m0)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, units = a.in / UNIT;
    constexpr int BATCH = ROWS == 8 ? U : 5;
    int row = m0 + lane / 4;
    const uint16_t *x = a.x + (size_t)row * a.in + lane % 4 * 8;
    float d[O][4] = {};
    const uint4 zero = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u0 = 0; u0 < U; u0 += BATCH) {
        uint4 lo[BATCH], hi[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH && u0 + i < U; i++) {
            int unit = warp + WARPS * (u0 + i);
            lo[i] = hi[i] = zero;
            if (unit < units && row < a.n)
                lo[i] = __ldcg((const uint4 *)(x + unit * UNIT));
            if (ROWS == 16 && unit < units && row + 8 < a.n)
                hi[i] = __ldcg((const uint4 *)(x + (size_t)8 * a.in + unit * UNIT));
        }
#pragma unroll
        for (int i = 0; i < BATCH && u0 + i < U; i++) {
            const uint32_t a0[4] = { lo[i].x, hi[i].x, lo[i].y, hi[i].y };
            const uint32_t a1[4] = { lo[i].z, hi[i].z, lo[i].w, hi[i].w };
            if (warp + WARPS * (u0 + i) >= units)
                continue;
#pragma unroll
            for (int o = 0; o < O; o++) {
                const uint4 v = w[o][u0 + i];
                const uint32_t b0[2] = { v.x, v.y }, b1[2] = { v.z, v.w };
                mma_bf16(c[o], a0, b0);
                mma_bf16(d[o], a1, b1);
            }
        }
    }
#pragma unroll
    for (int o = 0; o < O; o++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            c[o][i] += d[o][i];
}

/* This warp's units of an octet of rows; `row` is the lane's. */
template <int U> __device__ inline void load_octet(uint4 (&w)[U], const uint16_t *row, int units)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < U; u++) {
        w[u] = make_uint4(0, 0, 0, 0);
        if (warp + WARPS * u < units)
            w[u] = load_stream(row + lane % 4 * 8 + (warp + WARPS * u) * UNIT);
    }
}

/* Rows m0 .. m0 + 15 times O octets, and the rows' scales, to shared memory: for all. */
template <int U, int ROWS, int O>
__device__ inline void take_rows(struct thin_shared<O> &shared, const thin_args &a,
                                 const uint4 (&w)[O][U], int m0, int turn)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float c[O][4] = {}, sum[M / WARPS] = {};
    if (a.norm.squares)
#pragma unroll
        for (int i = 0; i < M / WARPS; i++)
            if (m0 + warp + i * WARPS < a.n)
                sum[i] = norm_take(
                    a.norm.squares + (size_t)(m0 + warp + i * WARPS) * (a.in / OCTET), a.in);
    multiply<U, ROWS, O>(c, a, w, m0);
    if (a.norm.squares)
#pragma unroll
        for (int i = 0; i < M / WARPS; i++) {
            float s = norm_end(sum[i], a.in, a.norm.eps);
            if (lane == 0)
                shared.scale[turn][warp + i * WARPS] = s;
        }
#pragma unroll
    for (int o = 0; o < O; o++) {
        float *mine = &shared.sums[turn][warp][o * M * OCTET + lane / 4 * OCTET + lane % 4 * 2];
        *(float2 *)mine = make_float2(c[o][0], c[o][1]);
        *(float2 *)(mine + 8 * OCTET) = make_float2(c[o][2], c[o][3]);
    }
    __syncthreads();
}

/* The warps' sums of a number, in order. */
template <int O>
__device__ inline float add_warps(const struct thin_shared<O> &shared, int turn, int i)
{
    float v = shared.sums[turn][0][i];
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        v += shared.sums[turn][w][i];
    return v;
}

/* What a thread needs at the end for its number of a tile [M][OCTET], asked for early. */
struct thin_end {
    float bias, weight, old;
};

/* v: of row `row` and output `out`. All of a warp call. */
__device__ inline void finish(const thin_args &a, const thin_job &j, const struct thin_end &e,
                              float v, float scale, int row, int out)
{
    bool there = row < a.n;
    v = a.norm.squares ? fmaf(v, scale, e.bias) : v + e.bias;
    if (a.add)
        v += e.old;
    if (there)
        j.y[(size_t)row * j.y_stride + out] = v;
    if (a.norm.weight) {
        float s = octet_squares(v, 1);
        if (there)
            a.norm.xn[(size_t)row * a.out + out] = (uint16_t)bf16_bits(v * e.weight);
        if (there && threadIdx.x % OCTET == 0)
            a.norm.sums[(size_t)row * (a.out / OCTET) + out / OCTET] = s;
    }
}

template <int U, int ROWS>
__global__ void __launch_bounds__(U > 8 ? ROOMY : THREADS, U > 8   ? 1
                                                           : U > 4 ? 2
                                                                   : 3)
    thin_kernel(const __grid_constant__ thin_args a)
{
    __shared__ struct thin_shared<1> shared;
    const thin_job &j = a.job[job_at(a, (int)blockIdx.x)];
    int out0 = ((int)blockIdx.x - j.octet0) * OCTET, turn = 0, thread = (int)threadIdx.x;
    int r = thread / OCTET, out = out0 + thread % OCTET;
    struct thin_end e = {};
    uint4 w[1][U];
    dep_launch();
    load_octet<U>(w[0], j.w + (size_t)(out0 + thread % 32 / 4) * j.stride, a.in / UNIT);
    e.bias = j.bias ? j.bias[out] : 0.0f;
    e.weight = a.norm.weight ? a.norm.weight[out] : 0.0f;
    dep_wait();
    for (int m0 = 0; m0 < a.n; m0 += M, turn ^= 1) {
        if (a.add && r < M && m0 + r < a.n)
            e.old = __ldcg(&j.y[(size_t)(m0 + r) * j.y_stride + out]);
        take_rows<U, ROWS, 1>(shared, a, w, m0, turn);
        if (r < M)
            finish(a, j, e, add_warps<1>(shared, turn, thread), shared.scale[turn][r], m0 + r, out);
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

template <int U, int ROWS>
__global__ void __launch_bounds__(THREADS, U > 4 ? 2 : 3)
    thin_heads_kernel(const __grid_constant__ thin_args a, const __grid_constant__ thin_heads h)
{
    __shared__ struct thin_shared<2> shared;
    int each = h.d / (2 * OCTET), head = (int)blockIdx.x / each, half = h.d / 2, turn = 0;
    int of = head < h.n_heads ? 0 : head < h.n_heads + h.n_kv ? 1 : 2, thread = (int)threadIdx.x;
    int first = of == 0 ? 0 : of == 1 ? h.n_heads : h.n_heads + h.n_kv;
    const thin_job &j = a.job[of];
    int out0 = (head - first) * h.d, octet = (int)blockIdx.x % each * OCTET;
    int r = thread / OCTET, at = octet + thread % OCTET;
    float bias[2], c = 1, s = 0;
    uint4 w[2][U];
    dep_launch();
    for (int o = 0; o < 2; o++)
        load_octet<U>(w[o], j.w + (size_t)(out0 + o * half + octet + thread % 32 / 4) * j.stride,
                      a.in / UNIT);
    bias[0] = j.bias ? j.bias[out0 + at] : 0.0f;
    bias[1] = j.bias ? j.bias[out0 + half + at] : 0.0f;
    uint16_t *to = r < M && r < a.n ? head_to(h, r, head, at) : h.q16; /* staged before the step */
    dep_wait();
    for (int m0 = 0; m0 < a.n; m0 += M, turn ^= 1) {
        int row = m0 + r;
        bool there = r < M && row < a.n;
        if (there && of < 2) {
            c = __ldcg(&h.cos[(size_t)row * half + at]);
            s = __ldcg(&h.sin[(size_t)row * half + at]);
        }
        take_rows<U, ROWS, 2>(shared, a, w, m0, turn);
        if (r >= M)
            continue;
        float u = add_warps<2>(shared, turn, thread), scale = shared.scale[turn][r];
        float v = add_warps<2>(shared, turn, M * OCTET + thread);
        u = a.norm.squares ? fmaf(u, scale, bias[0]) : u + bias[0];
        v = a.norm.squares ? fmaf(v, scale, bias[1]) : v + bias[1];
        if (of < 2) {
            float turned = fmaf(u, c, -(v * s));
            v = fmaf(v, c, u * s);
            u = turned;
        }
        uint32_t low = bf16_bits(u), high = bf16_bits(v);
        if (there) {
            to[0] = (uint16_t)low;
            to[half] = (uint16_t)high;
        }
        if (row + M < a.n)
            to = head_to(h, row + M, head, at);
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

template <int U> cudaError_t thin_launch(struct device_work *w, const thin_args &a, int octets)
{
    return launch(a.n <= 8 ? thin_kernel<U, 8> : thin_kernel<U, 16>, dim3((unsigned)octets),
                  dim3(THREADS), 0, w->stream, a);
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
    int blocks = (h.n_heads + 2 * h.n_kv) * (h.d / (2 * OCTET));
    return launch(a.n <= 8 ? thin_heads_kernel<U, 8> : thin_heads_kernel<U, 16>,
                  dim3((unsigned)blocks), dim3(THREADS), 0, w->stream, a, h);
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
        l->q.in > WARPS * 8 * UNIT)
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
