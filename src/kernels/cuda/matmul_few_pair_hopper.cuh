/* The work of a pair of blocks of matmul_few_hopper.cu, which share the K of a tile. Each computes
 * one of the two chains of sums, and finishes one half of the columns. Sums go through the other
 * block's shared memory: three warpgroups multiply, exchange sums and go on to the next tile, while
 * two warps finish the last one.
 *
 * A block must not end as long as the other one may access its shared memory. It does not, because
 * it waits for whatever the other one does there: for the sums of each of its tiles, and before
 * each tile but the first for the message that the other one has room. After the last tile no
 * message is sent. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_PAIR_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_PAIR_HOPPER_CUH

#include "kernels/cuda/matmul_few_hopper.cuh"

#ifdef HOPPER_CODE

/* Start the products of one step. */
template <int N> __device__ static inline void multiply_one(float (&c)[N / 2], struct operands e)
{
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
        wgmma_shared<N>(c, part_of(e.w, k), part_of(e.x, k), 1);
    wgmma_commit();
}

/* Sum over every other step for the thread's rows of the tile, where up's rows follow gate's; as in
 * walk() otherwise. */
template <int N>
__device__ static inline void walk_part(const stream_args &a, float (&c)[N / 2], struct ring &w,
                                        struct ring &x)
{
    uint32_t mine = (uint32_t)threadIdx.x / 128 * (GROUP * ROW_BYTES);
    struct ring w_done = w, x_done = x;
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        c[r] = 0;
#pragma unroll 1
    for (int i = 0; i < a.steps / 2; i++) {
        struct operands e = take(w, x, mine);
        ring_next(w);
        ring_next(x);
        pin(c);
        multiply_one<N>(c, e);
        wgmma_wait<1>();
        if (i > 0)
            release(w_done, x_done);
    }
    wgmma_wait<0>();
    pin(c);
    release(w_done, x_done);
}

/* Where sums are exchanged: the other block writes to `sums`, as [column / 8][thread]. */
struct exchange {
    float *sums;
    uint32_t full, room; /* barriers: the sums are here; the other block has room for the next */
    uint32_t peer_sums, peer_full, peer_room;
    uint32_t parity;
};

/* Bytes that arrive for a tile. */
template <int N> __device__ static inline int exchange_size(const stream_args &a)
{
    int columns = a.n - (int)blockIdx.x % 2 * (N / 2);
    return a.busy * 16 * min((columns + 7) / 8, N / 16);
}

/* By all threads, before pair_sync. */
template <int N>
__device__ static inline void exchange_open(const stream_args &a, struct exchange &e)
{
    if (threadIdx.x == 0) {
        barrier_init(e.full, 1);
        barrier_init(e.room, scalers(N) / 32);
        barrier_init_done();
        barrier_arrive_expect(e.full, exchange_size<N>(a));
    }
}

/* Send the sums of the other block's columns, and add those that it sends to this block's, which
 * are then the first half of c. Called by all consumers. */
template <int N>
__device__ static inline void swap_sums(const stream_args &a, float (&c)[N / 2],
                                        const struct exchange &e, bool busy)
{
    constexpr int HALF = N / 4; /* registers */
    bool odd = blockIdx.x % 2;
    int here = a.n - (odd ? N / 2 : 0), there = a.n - (odd ? 0 : N / 2);
    const float4 *from = (const float4 *)e.sums + threadIdx.x;
    if (busy) {
#pragma unroll
        for (int r = 0; r < HALF; r++) {
            float lo = c[r], hi = c[HALF + r];
            c[r] = odd ? hi : lo;
            c[HALF + r] = odd ? lo : hi;
        }
        barrier_wait_peer(e.room, e.parity ^ 1);
#pragma unroll
        for (int j = 0; j < HALF / 4; j++) {
            const float *r = c + HALF + 4 * j;
            if (8 * j < there)
                store_peer(e.peer_sums + (uint32_t)(j * a.busy + (int)threadIdx.x) * 16,
                           e.peer_full, make_float4(r[0], r[1], r[2], r[3]));
        }
        barrier_wait_peer(e.full, e.parity);
#pragma unroll
        for (int j = 0; j < HALF / 4; j++)
            if (8 * j < here) {
                float4 v = from[j * a.busy];
                c[4 * j] += v.x, c[4 * j + 1] += v.y, c[4 * j + 2] += v.z, c[4 * j + 3] += v.w;
            }
    }
    named_sync(DONE, consumers(N));
}

/* The columns that a block of a pair finishes. */
struct own_columns {
    int first, n;
};

template <int N> __device__ static inline struct own_columns columns_of(const stream_args &a)
{
    int first = (int)blockIdx.x % 2 * (N / 2);
    return { first, min(a.n - first, N / 2) };
}

/* Finish a tile of a pair, by THREADS threads. */
template <int N, int THREADS>
__device__ static inline void finish_pair(const stream_args &a, const float *sums,
                                          const float *scale, int tile, int thread)
{
    const stream_job &j = a.job[job_of(a, tile)];
    int row0 = (tile - j.tile0) * a.rows;
    struct own_columns own = columns_of<N>(a);
    struct place p = place_of<N>(a, j, row0, own.first, thread);
    struct ending e = ending_of(a, j, p);
    finish<N, THREADS>(a, j, p, e, sums, scale, row0, own.first, own.n, thread);
}

template <int N> __device__ static inline bool last_tile(const stream_args &a, int tile)
{
    return tile + tile_stride<N>() >= a.tiles;
}

/* The work of a pair's consumers. Other threads finish all tiles but the last, while these multiply
 * the next one. */
template <int N>
__device__ static inline void consume_pair(const stream_args &a, struct ring w, struct ring x,
                                           struct exchange e, const float *scale, bool busy)
{
    constexpr int THREADS = consumers(N), FINISHERS = scalers(N);
#pragma unroll 1
    for (int tile = first_tile<N>(); tile < a.tiles; tile += tile_stride<N>()) {
        float c[N / 2];
        if (busy)
            walk_part<N>(a, c, w, x);
        if (tile == first_tile<N>() && a.norm.squares)
            named_sync(SCALED, THREADS + FINISHERS);
        swap_sums<N>(a, c, e, busy);
        e.parity ^= 1;
        if (busy)
            put_sums<N>(c, e.sums);
        if (last_tile<N>(a, tile)) {
            named_sync(LAST, THREADS);
            finish_pair<N, THREADS>(a, e.sums, scale, tile, (int)threadIdx.x);
        } else {
            named_arrive(MET, THREADS + FINISHERS);
        }
    }
}

/* The work of those that find scales, and then finish tiles. When they have, the other block may
 * send the sums of its next tile. */
template <int N>
__device__ static inline void finish_pairs(const stream_args &a, const struct exchange &e,
                                           float *scale)
{
    constexpr int THREADS = consumers(N), FINISHERS = scalers(N);
    int thread = (int)threadIdx.x - THREADS - PRODUCERS;
    if (a.norm.squares) {
        find_scales<N>(a, scale);
        named_sync(SCALED, THREADS + FINISHERS);
    }
#pragma unroll 1
    for (int tile = first_tile<N>(); !last_tile<N>(a, tile); tile += tile_stride<N>()) {
        named_sync(MET, THREADS + FINISHERS);
        finish_pair<N, FINISHERS>(a, e.sums, scale, tile, thread);
        if (thread == 0)
            barrier_arrive_expect(e.full, exchange_size<N>(a));
        __syncwarp();
        if (thread % 32 == 0)
            barrier_arrive_peer(e.peer_room);
    }
}

#endif
#endif
