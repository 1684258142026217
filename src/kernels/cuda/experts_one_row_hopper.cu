/* The experts of a lone row with BF16 weights on Hopper GPUs, in two launches after the router.
 *
 * A lone row needs no sorting, but memory must never be idle. Each block finds out by itself which
 * experts the row uses. The first kernel computes gate and up: one block per multiprocessor; each
 * half of its warps takes 8 outputs of an expert at a time. The second kernel computes down: a
 * block has 16 outputs of all experts, with one warp per expert, adds them up by their weights, and
 * prepares x for the next norm.
 *
 * The second kernel can start once all blocks of the first have called dep_launch, which they do
 * after their dep_wait, i.e. after the router has ended. So the second kernel may read the logits
 * and fetch weights of the chosen experts while the first still runs; a block of each fits on one
 * multiprocessor.
 *
 * Each sum over K has the order of experts.cu: slot by slot in ONE_ROW_WK chains, which are added
 * from first to last.
 *
 * Tried on an H200, and slower: TMA in the first kernel, with 512 bytes of a row at a time (35 us
 * instead of 19). */
#include "kernels/cuda/experts_parts.cuh"
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/matmul_few_kernel.cuh"

namespace {

enum {
    ONE_ROW_WARPS = 8,
    ONE_ROW_THREADS = ONE_ROW_WARPS * 32,
    ONE_ROW_LOG_WK = 2,
    ONE_ROW_WK = 1 << ONE_ROW_LOG_WK,
    ONE_ROW_EXPERTS = 256,        /* most experts of a layer */
    ONE_ROW_USED = ONE_ROW_WARPS, /* most experts of a row */
    SLOT = slot_elements(DTYPE_BF16),
    SLOT_SIZE = few_warp_size(DTYPE_BF16, 1),
    CHUNK = ONE_ROW_WK * SLOT, /* elements of K */
    MID_OUTS = 8,
    MID_UNITS = ONE_ROW_WARPS / ONE_ROW_WK, /* units of MID_OUTS outputs at a time */
    MID_DEPTH = 4,                          /* slots in a warp's ring */
    SUM_OUTS = 16,
    SUM_ROOMY = 384, /* launch bound: leaves registers to the first kernel */
    SUM_DEPTH = 2    /* chunks in a warp's ring */
};

struct one_row_args {
    const float *logits;
    const struct expert_plane *gate, *up, *down; /* [n] */
    const uint16_t *x;
    uint16_t *mid;
    float *y;
    int n, used, hidden, ffn;
    uint32_t wide_units, mid_units; /* 16-byte units per row of gate and up; of down */
    bool normed, add;
    struct few_norm norm;
};

/* The choice of experts, made by a block with one thread per expert. */
struct one_row_choice {
    alignas(16) uint32_t key[ONE_ROW_EXPERTS];
    float logits[ONE_ROW_EXPERTS];
    uint32_t mask[ONE_ROW_WARPS]; /* bit mask of the chosen experts */
    int chosen[ONE_ROW_USED];     /* the same experts, the best first */
};

__device__ inline void take_logits(struct one_row_choice &s, const one_row_args &a)
{
    int e = (int)threadIdx.x;
    float v = e < a.n ? __ldcg(a.logits + e) : 0;
    s.logits[e] = v;
    s.key[e] = e < a.n ? logit_key(v) : 0;
}

/* Number of keys in [from, to) that are larger than `than`. */
__device__ inline int count_larger(const uint32_t *key, int from, int to, uint32_t than)
{
    int n = 0;
#pragma unroll 4
    for (int i = from; i < to; i += 4) {
        uint4 k = *(const uint4 *)(key + i);
        n += (k.x > than) + (k.y > than) + (k.z > than) + (k.w > than);
    }
    return n;
}

/* Called by the whole block after take_logits. Each thread counts the experts that come before its
 * own: those with a larger logit, and those with an equal logit and a lower index. */
__device__ inline void choose_one_row(struct one_row_choice &s, const one_row_args &a)
{
    int e = (int)threadIdx.x, lane = e % 32, first = e - lane, rank = a.used;
    uint32_t mask;
    __syncthreads();
    if (first < a.n) {
        uint32_t mine = s.key[e];
        rank = count_larger(s.key, 0, first, mine - 1) + count_larger(s.key, first + 32, a.n, mine);
        for (int i = 0; i < 32; i++) {
            uint32_t key = __shfl_sync(0xffffffffu, mine, i);
            rank += key > mine || (key == mine && i < lane);
        }
    }
    mask = __ballot_sync(0xffffffffu, e < a.n && rank < a.used);
    if (e < a.n && rank < a.used)
        s.chosen[rank] = e;
    if (lane == 0)
        s.mask[e / 32] = mask;
    __syncthreads();
}

/* The k-th chosen expert in the order of indices. */
__device__ inline int expert_at(const struct one_row_choice &s, int k)
{
    int i = 0;
    while (i + 1 < ONE_ROW_WARPS && k >= __popc(s.mask[i]))
        k -= __popc(s.mask[i++]);
    uint32_t mask = s.mask[i];
    for (; k > 0; k--)
        mask &= mask - 1;
    return i * 32 + __ffs((int)mask) - 1;
}

/* acc += half a slot of 16 weight rows (the lane's 16 bytes of rows lane / 4 and lane / 4 + 8)
 * times the same elements of the lone row, which are repeated in each column of mma. */
__device__ inline void multiply_half(float acc[4], const uint4 w[2], const uint8_t *x, int half,
                                     int lane)
{
    uint4 b = *(const uint4 *)(x + half * SLOT + lane % 4 * 16);
    const uint32_t b0[2] = { b.x, b.y }, b1[2] = { b.z, b.w };
    const uint32_t a0[4] = { w[0].x, w[1].x, w[0].y, w[1].y };
    const uint32_t a1[4] = { w[0].z, w[1].z, w[0].w, w[1].w };
    mma_bf16(acc, a0, b0);
    mma_bf16(acc, a1, b1);
}

/* The same for a whole slot in shared memory. */
__device__ inline void one_row_slot(float acc[4], const uint8_t *w, const uint8_t *x, int lane)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 a[1][2];
        few_plain_load<1>(a, w, half, lane);
        multiply_half(acc, a[0], x, half, lane);
    }
}

/* Addresses of a warp's 16 weight rows, in the form of few_pull: two octets, of one matrix or two.
 */
struct one_row_aim {
    few_job j;
    few_aim<DTYPE_BF16, 1> aim;
};

__device__ inline void take_one_row_aim(struct one_row_aim &f, const uint8_t *w0, const uint8_t *w1,
                                        int out, uint32_t row_units, int unit, int lane)
{
    few_params p = {};
    p.gated = w0 != w1;
    p.row_units = row_units;
    f.j.w[0] = w0;
    f.j.w[1] = w1;
    f.j.out = out;
    f.j.octets = out / 8;
    few_take_aim(&f.aim, p, f.j, unit, lane);
}

struct mid_shared {
    struct one_row_choice choice;
    const uint8_t *w[2][ONE_ROW_EXPERTS];
    float sums[2][ONE_ROW_WARPS][16], scale; /* double buffer */
};

/* Set the addresses of unit `unit` (counted over all chosen experts): 8 rows of gate and 8 of up.
 */
__device__ inline void aim_mid(struct one_row_aim &f, const one_row_args &a,
                               const struct mid_shared &s, int unit, int lane)
{
    int octets = a.ffn / MID_OUTS, e = expert_at(s.choice, min(unit / octets, a.used - 1));
    take_one_row_aim(f, s.w[0][e], s.w[1][e], a.ffn, a.wide_units, unit % octets, lane);
}

/* An output of gate (r < 8) or up: the sum of its chains. */
__device__ inline float chains(const float (*sums)[16], int r)
{
    float v = sums[0][r];
    for (int i = 1; i < ONE_ROW_WK; i++)
        v += sums[i][r];
    return v;
}

/* Compute and store the outputs of a unit. Called by the warps that share it. */
__device__ inline void put_mid(const one_row_args &a, struct mid_shared &s, const float acc[4],
                               int turn, int unit)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, group = warp / ONE_ROW_WK;
    const float(*sums)[16] = s.sums[turn] + group * ONE_ROW_WK;
    if (lane % 4 == 0) {
        s.sums[turn][warp][lane / 4] = acc[0];
        s.sums[turn][warp][lane / 4 + 8] = acc[2];
    }
    named_sync(1 + group, ONE_ROW_WK * 32);
    if (warp % ONE_ROW_WK == 0 && lane < MID_OUTS) {
        float gate = chains(sums, lane), up = chains(sums, lane + 8);
        if (a.norm.squares) {
            gate *= s.scale;
            up *= s.scale;
        }
        a.mid[(size_t)unit * MID_OUTS + (size_t)lane] = (uint16_t)bf16_bits(few_silu(gate) * up);
    }
}

/* Process all units of the warp; the stream of weights continues from one unit to the next. */
__device__ inline void take_mid(const one_row_args &a, struct mid_shared &s, uint8_t *ring,
                                const uint8_t *x)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, wk = warp % ONE_ROW_WK;
    int step = (int)gridDim.x * MID_UNITS, unit = (int)blockIdx.x * MID_UNITS + warp / ONE_ROW_WK;
    int units = a.ffn / MID_OUTS * a.used, slots = a.hidden / CHUNK, turn = 0;
    int total = unit < units ? (units - unit + step - 1) / step * slots : 0;
    int slot = 0, pull_slot = 0, pull_unit = unit;
    float acc[4] = {};
    struct one_row_aim f = {};
    aim_mid(f, a, s, pull_unit, lane);
#pragma unroll 1
    for (int i = 1 - MID_DEPTH; i < total; i++) {
        if (i + MID_DEPTH - 1 < total) {
            few_pull(f.aim, f.j, ring + (i + MID_DEPTH - 1) % MID_DEPTH * SLOT_SIZE,
                     pull_slot * ONE_ROW_WK + wk, lane);
            if (++pull_slot == slots) {
                pull_slot = 0;
                pull_unit += step;
                aim_mid(f, a, s, pull_unit, lane);
            }
        }
        copy_async_commit(); /* even if empty, so that groups can be counted */
        if (i < 0)
            continue;
        copy_async_wait<MID_DEPTH - 1>();
        __syncwarp();
        one_row_slot(acc, ring + i % MID_DEPTH * SLOT_SIZE, x + (slot * ONE_ROW_WK + wk) * SLOT * 2,
                     lane);
        __syncwarp(); /* all lanes have read the slot */
        if (++slot == slots) {
            put_mid(a, s, acc, turn, unit);
            acc[0] = acc[1] = acc[2] = acc[3] = 0;
            slot = 0;
            unit += step;
            turn ^= 1;
        }
    }
}

/* silu(gate x) * (up x) of all chosen experts. */
__global__ void __launch_bounds__(ONE_ROW_THREADS, 1)
    one_row_mid_kernel(const __grid_constant__ one_row_args a)
{
    SHARED_MEMORY(uint8_t, memory);
    __shared__ struct mid_shared s;
    int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    uint8_t *x = memory + ONE_ROW_WARPS * MID_DEPTH * SLOT_SIZE;
    for (int e = t; e < a.n; e += ONE_ROW_THREADS) {
        s.w[0][e] = a.gate[e].w;
        s.w[1][e] = a.up[e].w;
    }
    dep_wait();
    dep_launch(); /* not earlier: see the head of the file */
    take_logits(s.choice, a);
    for (int i = t; i < a.hidden / 8; i += ONE_ROW_THREADS)
        ((uint4 *)x)[i] = __ldcg((const uint4 *)a.x + i);
    if (warp == ONE_ROW_WARPS - 1 && a.norm.squares) {
        float scale = norm_end(norm_take(a.norm.squares, a.hidden), a.hidden, a.norm.eps);
        if (lane == 0)
            s.scale = scale;
    }
    choose_one_row(s.choice, a);
    take_mid(a, s, memory + warp * MID_DEPTH * SLOT_SIZE, x);
}

struct sum_shared {
    struct one_row_choice choice;
    const uint8_t *w[ONE_ROW_EXPERTS];
    int expert[ONE_ROW_USED];
    float weight[ONE_ROW_USED], sums[ONE_ROW_USED][SUM_OUTS];
};

/* Start the copy of a chunk of the warp's weight rows into its ring. */
__device__ inline void ask_sum(const struct one_row_aim &f, uint8_t *ring, int chunk, int chunks,
                               int lane)
{
    if (chunk < chunks)
#pragma unroll
        for (int i = 0; i < ONE_ROW_WK; i++)
            few_pull(f.aim, f.j, ring + (chunk % SUM_DEPTH * ONE_ROW_WK + i) * SLOT_SIZE,
                     chunk * ONE_ROW_WK + i, lane);
    copy_async_commit(); /* even if empty, so that groups can be counted */
}

/* A lane's share of the last chunk of the warp's rows, which is kept in registers because the ring
 * has no room for it. */
struct last_chunk {
    uint4 v[ONE_ROW_WK][2][2]; /* [slot][half][octet] */
};

__device__ inline void ask_last(struct last_chunk &l, const one_row_args &a, const uint8_t *w,
                                int lane)
{
    const uint8_t *row =
        w + (size_t)(lane / 4) * a.mid_units * 16 + (a.ffn - CHUNK) * 2 + lane % 4 * 16;
#pragma unroll
    for (int i = 0; i < ONE_ROW_WK; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            l.v[i][k / 2][k % 2] = load_stream(row + i * SLOT * 2 + k / 2 * SLOT +
                                               (size_t)(k % 2 * 8) * a.mid_units * 16);
}

/* Compute the warp's outputs of its expert, with the expert's input x, into sums. */
__device__ inline void take_sum(float *sums, const one_row_args &a, const struct one_row_aim &f,
                                const struct last_chunk &l, uint8_t *ring, const uint8_t *x,
                                int lane)
{
    float acc[ONE_ROW_WK][4] = {};
    int last = a.ffn / CHUNK - 1;
#pragma unroll 1
    for (int c = 0; c < last; c++) {
        copy_async_wait<SUM_DEPTH - 1>();
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ONE_ROW_WK; i++)
            one_row_slot(acc[i], ring + (c % SUM_DEPTH * ONE_ROW_WK + i) * SLOT_SIZE,
                         x + (c * ONE_ROW_WK + i) * SLOT * 2, lane);
        __syncwarp(); /* all lanes have read the chunk */
        ask_sum(f, ring, c + SUM_DEPTH, last, lane);
    }
#pragma unroll
    for (int i = 0; i < ONE_ROW_WK; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            multiply_half(acc[i], l.v[i][half], x + (last * ONE_ROW_WK + i) * SLOT * 2, half, lane);
#pragma unroll
    for (int i = 1; i < ONE_ROW_WK; i++) {
        acc[0][0] += acc[i][0];
        acc[0][2] += acc[i][2];
    }
    if (lane % 4 == 0) {
        sums[lane / 4] = acc[0][0];
        sums[lane / 4 + 8] = acc[0][2];
    }
}

/* y += the weighted sum of the experts' down products. */
__global__ void __launch_bounds__(SUM_ROOMY, 1)
    one_row_sum_kernel(const __grid_constant__ one_row_args a)
{
    SHARED_MEMORY(uint8_t, memory);
    __shared__ struct sum_shared s;
    int t = (int)threadIdx.x, warp = t / 32, lane = t % 32;
    int out = (int)blockIdx.x * SUM_OUTS + lane % SUM_OUTS;
    uint8_t *ring = memory + warp * SUM_DEPTH * ONE_ROW_WK * SLOT_SIZE;
    uint8_t *x = memory + ONE_ROW_WARPS * SUM_DEPTH * ONE_ROW_WK * SLOT_SIZE + warp * a.ffn * 2;
    float old = 0, norm_weight = 0;
    struct one_row_aim f = {};
    struct last_chunk l = {};
    dep_launch();
    take_logits(s.choice, a); /* the router has ended: see the head of the file */
    for (int e = t; e < a.n; e += ONE_ROW_THREADS)
        s.w[e] = a.down[e].w;
    choose_one_row(s.choice, a);
    if (warp < a.used) {
        const uint8_t *w = s.w[expert_at(s.choice, warp)];
        take_one_row_aim(f, w, w, a.hidden, a.mid_units, (int)blockIdx.x, lane);
        for (int i = 0; i < SUM_DEPTH; i++)
            ask_sum(f, ring, i, a.ffn / CHUNK - 1, lane);
        ask_last(l, a, w + (size_t)(blockIdx.x * SUM_OUTS) * a.mid_units * 16, lane);
    }
    if (warp == ONE_ROW_WARPS - 1)
        weigh_experts(s.expert, s.weight, s.choice.chosen, s.choice.logits, a.n, a.used, a.normed,
                      lane);
    if (warp == 0 && a.norm.weight)
        norm_weight = a.norm.weight[out];
    dep_wait();
    if (warp == 0 && a.add)
        old = __ldcg(a.y + out);
    if (warp < a.used) {
        const uint4 *from = (const uint4 *)(a.mid + (size_t)warp * (size_t)a.ffn);
        for (int i = lane; i < a.ffn / 8; i += 32)
            ((uint4 *)x)[i] = __ldcg(from + i);
        __syncwarp();
        take_sum(s.sums[warp], a, f, l, ring, x, lane);
    }
    __syncthreads();
    if (warp > 0)
        return;
    float v = 0;
    for (int k = 0; k < a.used; k++)
        v = fmaf(s.weight[k], s.sums[k][lane % SUM_OUTS], v);
    v = a.add ? old + v : v;
    float squares = octet_squares(v, 1);
    if (lane >= SUM_OUTS)
        return;
    a.y[out] = v;
    if (a.norm.weight) {
        a.norm.xn[out] = (uint16_t)bf16_bits(v * norm_weight);
        if (lane % NORM_OCTET == 0)
            a.norm.sums[out / NORM_OCTET] = squares;
    }
}

/* ---- launching ---- */

size_t mid_memory(const one_row_args &a)
{
    return (size_t)(ONE_ROW_WARPS * MID_DEPTH * SLOT_SIZE) + (size_t)a.hidden * 2;
}

size_t sum_memory(const one_row_args &a)
{
    return (size_t)(ONE_ROW_WARPS * SUM_DEPTH * ONE_ROW_WK * SLOT_SIZE) +
           (size_t)(a.used * a.ffn) * 2;
}

bool takes(const struct device_work *w, const struct expert_weights *e, const one_row_args &a)
{
    const struct matrix *m[] = { &e->gate[0], &e->up[0], &e->down[0] };
    for (int i = 0; i < 3; i++)
        if (cuda_of(m[i])->dtype != DTYPE_BF16)
            return false;
    return few_hopper_ready(w) && a.n <= ONE_ROW_EXPERTS && a.used <= ONE_ROW_USED &&
           a.hidden % CHUNK == 0 && a.ffn % CHUNK == 0 && mid_memory(a) <= 200 << 10 &&
           sum_memory(a) <= 200 << 10;
}

} // namespace

bool experts_one_row(struct device_work *w, const struct one_row_call *c)
{
    static struct by_gpu mid_allowed, sum_allowed;
    const struct expert_weights *e = c->e;
    const struct cuda_matrix *gate = cuda_of(&e->gate[0]), *down = cuda_of(&e->down[0]);
    one_row_args a = {};
    int units, gpu = w->gpu->index;
    cudaError_t s;
    a.logits = c->logits;
    a.gate = c->table->plane;
    a.up = a.gate + e->n;
    a.down = a.up + e->n;
    a.x = c->xn;
    a.mid = c->mid;
    a.y = c->y;
    a.n = e->n;
    a.used = e->used;
    a.hidden = gate->in;
    a.ffn = gate->out;
    a.wide_units = (uint32_t)gate->stride / 8;
    a.mid_units = (uint32_t)down->stride / 8;
    a.normed = e->normed;
    a.add = c->add;
    a.norm = c->norm;
    if (!takes(w, e, a))
        return false;
    units = a.ffn / MID_OUTS * a.used;
    s = allow_smem(&mid_allowed, gpu, one_row_mid_kernel, mid_memory(a), true);
    if (s == cudaSuccess)
        s = allow_smem(&sum_allowed, gpu, one_row_sum_kernel, sum_memory(a), true);
    if (s == cudaSuccess)
        s = launch(one_row_mid_kernel,
                   dim3((unsigned)least((units + MID_UNITS - 1) / MID_UNITS, w->gpu->n_sm)),
                   dim3(ONE_ROW_THREADS), mid_memory(a), w->stream, a);
    if (s == cudaSuccess)
        s = launch(one_row_sum_kernel, dim3((unsigned)(a.hidden / SUM_OUTS)), dim3(ONE_ROW_THREADS),
                   sum_memory(a), w->stream, a);
    work_check(w, s, "the experts of a row");
    return true;
}
