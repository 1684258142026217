/* The work of a block of matmul_few_thin.cu: the warps' units of a matrix times rows of x, the sums
 * over the warps, and the final operations. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_THIN_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_THIN_CUH

#include "kernels/cuda/hopper.h"
#include "kernels/cuda/matmul_few.h"
#include "kernels/cuda/norm.h"

namespace {

enum {
    WARPS = 8,
    THREADS = WARPS * 32,
    ROOMY = 352,      /* launch bound, above THREADS: leaves registers to other kernels */
    UNIT = 32,        /* columns that a warp takes at a time */
    MOST_UNITS = 19,  /* most units of a warp */
    SHORT = 2048,     /* small: rows of at most so many elements ... */
    SHORT_OUT = 2112, /* ... and at most so many rows; */
    LONG = 4096,      /* or of more than so many elements ... */
    LONG_OUT = 1056,  /* ... and at most so many. Between: k, v of large models, run with q */
    THIN_RUNS = 4,    /* most runs whose keys and values are stored */
    FAR_PAD = 64      /* bytes between rows in shared memory, against bank conflicts */
};

struct thin_job {
    const uint16_t *w;
    const float *bias;
    float *y;
    size_t y_stride;
    int octet0, stride; /* octet0: its first octet in the launch */
};

struct thin_args {
    struct thin_job job[DEVICE_MAX_JOBS];
    const uint16_t *x;
    struct few_norm norm;
    int n_jobs, n, in, out; /* out: of the only job, if a norm follows */
    bool add;
};

/* The warps' sums [octet][row][number] and the rows' scales; double buffers for more than eight
 * rows. Also what is needed only at the end, to save registers. */
template <int ROWS, int O> struct thin_shared {
    float sums[ROWS / 8][WARPS][O * ROWS * OCTET];
    float scale[ROWS / 8][ROWS];
    float bias[O][OCTET], weight[OCTET];
    uint16_t *to[ROWS / 8][ROWS]; /* destinations of q, k and v; angle: cosines and sines */
    alignas(16) float angle[ROWS / 8][ROWS][2][OCTET];
};

/* A thread's registers: its weights, x of some units, and squares of its warp's rows. All start as
 * zero; what does not exist stays zero, or becomes a number of the same row. */
template <int U, int ROWS, int O, bool FAR = false> struct thin_hand {
    static constexpr int AT_ONCE = least(U, ROWS == 8 ? 15
                                            : O == 2  ? 3
                                                      : 5); /* units of x in flight */
    static constexpr int QUADS = U <= 4 ? 1 : U <= 8 && ROWS == 8 ? 2 : 0; /* of squares, early */
    uint4 w[O][FAR ? 1 : U], x[ROWS / 8][AT_ONCE];
    const unsigned char *far; /* weights in shared memory instead; bar: their barrier */
    uint32_t bar;
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

/* Load this warp's units of an octet of rows; `row` is the lane's row. */
template <int U> __device__ inline void load_octet(uint4 (&w)[U], const uint16_t *row, int units)
{
#pragma unroll
    for (int u = 0; u < U; u++)
        if (warp_id() + WARPS * u < units)
            w[u] = load_stream(row + lane_id() % 4 * 8 + (warp_id() + WARPS * u) * UNIT);
}

/* Request x of unit u for rows from m0 on; x points to the lane's place in the first of them. */
template <int U, int ROWS, int O, bool FAR>
__device__ inline void ask_unit(struct thin_hand<U, ROWS, O, FAR> &h, const thin_args &a,
                                const uint16_t *x, int m0, int u)
{
#pragma unroll
    for (int t = 0; t < ROWS / 8; t++)
        load_if(h.x[t][u % h.AT_ONCE],
                (const uint4 *)(x + (int64_t)(t * 8) * a.in + WARPS * u * UNIT),
                m0 + lane_id() / 4 + t * 8 < a.n && warp_id() + WARPS * u < a.in / UNIT);
}

/* c += the product of a unit, with separate sums for its halves. One octet: x is the row operand of
 * mma (its second eight rows are zero), and lane / 4 is the row in c. Two octets: the weights are
 * the row operand, and each eight rows of x have their own c. */
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

/* The thread's weights of unit u. */
template <int U, int ROWS, int O, bool FAR>
__device__ inline uint4 unit_of(const struct thin_hand<U, ROWS, O, FAR> &h, int octet, int u,
                                const thin_args &a)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (!FAR)
        return h.w[octet][FAR ? 0 : u];
    if (WARPS * UNIT * (u + 1) <= LONG || warp_id() + WARPS * u < a.in / UNIT)
        v = *(const uint4 *)(h.far + WARPS * u * UNIT * 2);
    return v;
}

/* Multiply the warp's units by rows m0 .. m0 + ROWS - 1; the sums go to shared memory. */
template <int U, int ROWS, int O, bool FAR>
__device__ inline void take_units(float *sums, struct thin_hand<U, ROWS, O, FAR> &h,
                                  const thin_args &a, const uint16_t *x, int m0)
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
        multiply<ROWS, C>(c, unit_of(h, 0, u, a), unit_of(h, O - 1, u, a), part, O == 2);
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

/* Request the squares of the warp's rows, m0 + warp and eight further. */
template <int U, int ROWS, int O, bool FAR>
__device__ inline void ask_squares(struct thin_hand<U, ROWS, O, FAR> &h, const thin_args &a, int m0)
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

/* Compute their 1 / rms, in the order of norm_take. */
template <int U, int ROWS, int O, bool FAR>
__device__ inline void take_scales(float *scale, const struct thin_hand<U, ROWS, O, FAR> &h,
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

/* Address of the lane's x of the first unit, in its first row from m0 on. */
__device__ inline const uint16_t *x_at(const thin_args &a, int m0)
{
    return a.x + (size_t)(m0 + lane_id() / 4) * a.in + warp_id() * UNIT + lane_id() % 4 * 8;
}

/* Request what earlier kernels wrote for rows from m0 on. */
template <int U, int ROWS, int O, bool FAR>
__device__ inline void ask_rows(struct thin_hand<U, ROWS, O, FAR> &h, const thin_args &a, int m0)
{
    const uint16_t *x = x_at(a, m0);
#pragma unroll
    for (int u = 0; u < h.AT_ONCE; u++)
        ask_unit(h, a, x, m0, u);
    ask_squares(h, a, m0);
}

/* Multiply these rows by O octets; sums and the rows' scales go to shared memory, for all threads.
 */
template <int U, int ROWS, int O, bool FAR>
__device__ inline void take_rows(struct thin_shared<ROWS, O> &shared,
                                 struct thin_hand<U, ROWS, O, FAR> &h, const thin_args &a, int m0,
                                 int turn)
{
    if constexpr (FAR)
        barrier_wait(h.bar, 0);
    take_units(shared.sums[turn][warp_id()], h, a, x_at(a, m0), m0);
    if (a.norm.squares)
        take_scales(shared.scale[turn], h, a, m0);
    if (O == 2)
        copy_async_wait<0>();
    __syncthreads();
}

/* Add up the warps' sums of an output, in order. */
template <int ROWS, int O>
__device__ inline float add_warps(const struct thin_shared<ROWS, O> &shared, int turn, int i)
{
    float v = shared.sums[turn][0][i];
#pragma unroll
    for (int w = 1; w < WARPS; w++)
        v += shared.sums[turn][w][i];
    return v;
}

/* What an output needs at the end. It is requested before the weights, so that it does not wait for
 * them, and put into shared memory after x has been requested, so that waiting for it does not
 * delay x. */
struct thin_end {
    float bias, weight;
};

__device__ inline struct thin_end end_of(const thin_args &a, const thin_job &j, int out)
{
    struct thin_end e = {};
    if (threadIdx.x < OCTET && j.bias)
        e.bias = j.bias[out];
    if (threadIdx.x < OCTET && a.norm.weight)
        e.weight = a.norm.weight[out];
    return e;
}

template <int ROWS>
__device__ inline void put_end(struct thin_shared<ROWS, 1> &shared, const struct thin_end &e)
{
    if (threadIdx.x < OCTET) {
        shared.bias[0][threadIdx.x] = e.bias;
        shared.weight[threadIdx.x] = e.weight;
    }
}

/* Finish the thread's output: row `row`, output `out`. Called by a whole warp. */
template <int ROWS>
__device__ inline void finish(const thin_args &a, const thin_job &j,
                              const struct thin_shared<ROWS, 1> &shared, int turn, float old,
                              int row, int out)
{
    int in_octet = (int)(threadIdx.x % OCTET);
    bool there = row < a.n;
    float v = add_warps(shared, turn, (int)threadIdx.x), bias = shared.bias[0][in_octet];
    v = a.norm.squares ? fmaf(v, shared.scale[turn][threadIdx.x / OCTET], bias) : v + bias;
    if (a.add)
        v += old;
    if (there)
        j.y[(size_t)row * j.y_stride + out] = v;
    if (a.norm.weight) {
        float s = octet_squares(v, 1);
        uint32_t bits = bf16_bits(v * shared.weight[in_octet]);
        if (there)
            a.norm.xn[(size_t)row * a.out + out] = (uint16_t)bits;
        if (there && in_octet == 0)
            a.norm.sums[(size_t)row * (a.out / OCTET) + out / OCTET] = s;
    }
}

} // namespace

#endif
