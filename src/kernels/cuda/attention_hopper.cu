/* Attention of the rows of prompts over the KV cache on Hopper GPUs: both products use wgmma, and
 * TMA loads their operands. The idea is that of FlashAttention-3 (Shah et al. 2024).
 *
 * A piece of work is one head with a tile of 64 rows for each of some warpgroups. Persistent blocks
 * take pieces, those with the longest rows first, and all heads of one KV head before the next, so
 * that shared keys and values stay in L2. One thread keeps a ring of key and value blocks full. A
 * warpgroup goes through the blocks: while the tensor cores compute S = Q K^T of the next block and
 * O += P V of this one, it turns S into P.
 *
 * Row invariance: tiles and blocks begin at multiples of their size in the sequence, and blocks are
 * processed in ascending order from slot 0 to the end of the tile. So the arithmetic of a row
 * depends only on its position, not on where its chunk of the prompt begins or ends.
 *
 * A block of keys may lie in two pages of the cache. Then it is fetched in several boxes of 16, 32,
 * 64 and 128 rows; every part of a block is a sum of these. */
#include "kernels/cuda/cuda.h"

#include "kernels/cuda/hopper.h"

#include <math.h>

enum {
    GROUP_ROWS = 64, /* rows of a warpgroup: wgmma's M */
    PARTS = 4,       /* sizes of boxes for parts of a block ... */
    PART_ROWS = 16,  /* ... and the rows of the smallest */
    TICKETS = 256
};

struct hopper_run {
    int row0, n, first_slot;
    int tile0, n_tiles; /* first tile and number of tiles, counted from position 0 */
    int begin;          /* index of its first piece */
};

/* TMA maps of K or V in all pages: for boxes of a whole block, and of PART_ROWS << i rows of a
 * tile. */
struct hopper_maps {
    CUtensorMap whole, part[PARTS];
};

/* Runs of one launch have their pages in the same pool. */
struct hopper_args {
    CUtensorMap q;
    struct hopper_maps k, v;
    struct hopper_run run[MAX_RUNS];
    const int32_t *pages; /* page tables of the runs, table_size entries each */
    int table_size;
    int n_runs, n_pieces;
    int n_heads, group; /* group: query heads per KV head */
    float scale;        /* of scores, times log2(e) */
    int ticket;         /* index of this launch's counter */
    int out_f32;
    void *out;
};

/* Counters of the pieces taken so far by a launch; set back to 0 at its end. */
[[maybe_unused]] static __device__ unsigned hopper_tickets[TICKETS];

/* One kernel instance: sizes, and offsets in shared memory. */
template <int HEAD, int BLOCK, int GROUPS, int STAGES> struct hopper_shape {
    static constexpr int d = HEAD, block = BLOCK, groups = GROUPS, stages = STAGES;
    static constexpr int rows = GROUPS * GROUP_ROWS;
    static constexpr int threads = (GROUPS + 1) * 128;
    static constexpr int q_size = rows * HEAD * 2, block_size = BLOCK * HEAD * 2;
    static constexpr int k_at = q_size, v_at = k_at + STAGES * block_size;
    static constexpr int bars_at = v_at + STAGES * block_size;
    static constexpr int piece_at = bars_at + (2 + 4 * STAGES) * 8;
    static constexpr int size = piece_at + 16 + 1024; /* + 1024: the base is rounded up */
    /* Registers of a producer thread and of a consumer thread; 65536 in all. */
    static constexpr int few = GROUPS == 2 ? 24 : 32, most = GROUPS == 2 ? 240 : 160;
    static constexpr bool in_one_page = KV_CHUNK % BLOCK == 0;
    static_assert(BLOCK % PART_ROWS == 0 && BLOCK < PART_ROWS << PARTS,
                  "a block is a sum of parts");
};

#ifdef HOPPER_CODE

/* Barriers, 8 bytes each. From K_FULL on there is one per stage of each kind. */
enum { Q_FULL, Q_EMPTY, K_FULL };

template <class T> struct bar_at {
    static constexpr int k_full = K_FULL * 8, k_empty = k_full + T::stages * 8;
    static constexpr int v_full = k_empty + T::stages * 8, v_empty = v_full + T::stages * 8;
};

/* A position in a ring of stages, and the parity of the phase of its barriers. */
struct ring {
    int stage, parity;
};

template <class T> __device__ __forceinline__ void ring_next(struct ring &r)
{
    r.stage = r.stage + 1 == T::stages ? 0 : r.stage + 1;
    r.parity ^= r.stage == 0;
}

struct piece {
    int run, head, kv_head;
    int position; /* of its first row */
};

template <class T> __device__ static inline struct piece piece_of(const hopper_args &a, int i)
{
    struct piece p;
    int r = 0, whole;
    while (r + 1 < a.n_runs && i >= a.run[r + 1].begin)
        r++;
    i -= a.run[r].begin;
    whole = a.run[r].n_tiles * a.group;
    p.run = r;
    p.kv_head = i / whole;
    i -= p.kv_head * whole;
    p.head = p.kv_head * a.group + i % a.group;
    p.position = (a.run[r].tile0 + a.run[r].n_tiles - 1 - i / a.group) * T::rows;
    return p;
}

/* A block's first piece has the block's number; later pieces are taken from the counter. */
__device__ static inline int next_piece(const hopper_args &a)
{
    unsigned *t = &hopper_tickets[a.ticket];
    int n = (int)atomicAdd(t, 1u);
    if (n == a.n_pieces - 1)
        atomicExch(t, 0u);
    return n + (int)gridDim.x;
}

/* Load a block that lies in two pages, tile by tile, always with the largest box that fits into the
 * rest of the page. */
template <class T>
__device__ static inline void load_parts(uint32_t to, const struct hopper_maps &maps, uint32_t bar,
                                         const int32_t *table, int slot, int kv_head)
{
    int rows;
#pragma unroll 1
    for (int end = slot + T::block; slot < end; slot += rows) {
        int left = min(KV_CHUNK - slot_row(slot), end - slot), i = PARTS - 1;
        int row = kv_head * KV_CHUNK + slot_row(slot), page = table[slot_chunk(slot)];
        while (PART_ROWS << i > left)
            i--;
#pragma unroll
        for (int tile = 0; tile < T::d / TILE_COLS; tile++)
            load_box4(to + tile * T::block * TILE_COLS * 2, &maps.part[i], bar, 0, row, tile, page);
        rows = PART_ROWS << i;
        to += rows * TILE_COLS * 2;
    }
}

/* Load a block of keys or values into the next stage of its ring. There are no pages after the
 * run's last one; the block's rows from there on are zero. */
template <class T>
__device__ static inline void load_block(uint32_t to, const struct hopper_maps &maps, uint32_t full,
                                         uint32_t empty, struct ring &r, const int32_t *table,
                                         int slot, int kv_head)
{
    barrier_wait(empty + r.stage * 8, r.parity ^ 1);
    full += r.stage * 8;
    to += r.stage * T::block_size;
    barrier_arrive_expect(full, T::block_size);
    if (T::in_one_page || slot_row(slot) + T::block <= KV_CHUNK)
        load_box4(to, &maps.whole, full, 0, kv_head * KV_CHUNK + slot_row(slot), 0,
                  table[slot_chunk(slot)]);
    else
        load_parts<T>(to, maps, full, table, slot, kv_head);
    ring_next<T>(r);
}

/* The producer thread: takes pieces and loads their queries, keys and values to shared memory, in
 * the order in which they are used. */
template <class T>
__device__ static inline void produce(const hopper_args &a, uint32_t base, int *piece_number)
{
    uint32_t bars = base + T::bars_at;
    uint32_t k_full = bars + bar_at<T>::k_full, k_empty = bars + bar_at<T>::k_empty;
    uint32_t v_full = bars + bar_at<T>::v_full, v_empty = bars + bar_at<T>::v_empty;
    struct ring k_ring = { 0, 0 }, v_ring = { 0, 0 };
    int i = (int)blockIdx.x;

    for (int turn = 0; i < a.n_pieces; turn++) {
        struct piece p = piece_of<T>(a, i);
        const hopper_run &run = a.run[p.run];
        const int32_t *table = a.pages + p.run * a.table_size;
        int end = p.position + T::rows;
        load_block<T>(base + T::k_at, a.k, k_full, k_empty, k_ring, table, 0, p.kv_head);

        barrier_wait(bars + Q_EMPTY * 8, (turn & 1) ^ 1);
        *piece_number = i;
        barrier_arrive_expect(bars + Q_FULL * 8, T::q_size);
        load_box3(base, &a.q, bars + Q_FULL * 8, 0, run.row0 + p.position - run.first_slot,
                  p.head * (T::d / TILE_COLS));
        i = next_piece(a);

        for (int slot = 0; slot < end; slot += T::block) {
            if (slot + T::block < end)
                load_block<T>(base + T::k_at, a.k, k_full, k_empty, k_ring, table, slot + T::block,
                              p.kv_head);
            load_block<T>(base + T::v_at, a.v, v_full, v_empty, v_ring, table, slot, p.kv_head);
        }
        if (i >= a.n_pieces) {
            barrier_wait(bars + Q_EMPTY * 8, turn & 1);
            *piece_number = -1;
            barrier_arrive(bars + Q_FULL * 8);
        }
    }
}

/* State of a consumer thread while it goes through the blocks of a piece: its part of S [64, block]
 * and O [64, d], as wgmma distributes them over the threads (of the warp's 16 rows, rows lane / 4
 * and lane / 4 + 8; columns 8 i + lane % 4 * 2 and the next), and P as operand of the next product.
 */
template <class T> struct walk {
    float s[T::block / 2], o[T::d / 2];
    uint32_t p[T::block / 4];
    float m[2], l[2]; /* of the two rows: maximum; sum over this thread's columns */
    float shrink[2];  /* factor for O after the maximum has grown */
    float scale;
    uint64_t q, k, v; /* descriptors; k and v: of the first stage */
    uint32_t bars;
    struct ring k_ring, v_ring;
    int group, lane;
};

/* Set columns after the row's position to -inf. `reach`: the row's position minus the column of the
 * thread's first number; the thread's second row is 8 positions further. */
template <int N> __device__ __forceinline__ void mask(float (&s)[N], int reach)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i / 4 * 8 + i % 2 > reach + (i / 2 % 2) * 8)
            s[i] = -INFINITY;
}

/* Turn S into P, not yet divided by the row's sum. `shrink` is exactly 1 if the maximum has not
 * grown. */
template <class T> __device__ __forceinline__ void softmax(struct walk<T> &w)
{
    float top[2][2], sum[2][2], minus[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        top[i / 2][i % 2] = w.s[i];
#pragma unroll
    for (int i = 4; i < T::block / 2; i++)
        top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], w.s[i]);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float t = fmaxf(top[r][0], top[r][1]);
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 1));
        t = fmaxf(t, __shfl_xor_sync(0xffffffffu, t, 2));
        t = fmaxf(t, w.m[r]);
        w.shrink[r] = exp2_fast((w.m[r] - t) * w.scale);
        w.m[r] = t;
        minus[r] = -t * w.scale;
        sum[r][0] = sum[r][1] = 0;
    }
#pragma unroll
    for (int i = 0; i < T::block / 2; i++) {
        float x = fmaf(w.s[i], w.scale, minus[i / 2 % 2]);
        w.s[i] = exp2_fast(x);
        sum[i / 2 % 2][i % 2] += w.s[i];
    }
#pragma unroll
    for (int r = 0; r < 2; r++)
        w.l[r] = fmaf(w.l[r], w.shrink[r], sum[r][0] + sum[r][1]);
}

/* Rescale O if a maximum has grown, and convert P to BF16 for the tensor cores. */
template <class T> __device__ __forceinline__ void prepare_o(struct walk<T> &w)
{
    if (__any_sync(0xffffffffu, w.shrink[0] != 1 || w.shrink[1] != 1)) {
#pragma unroll
        for (int i = 0; i < T::d / 2; i++)
            w.o[i] *= w.shrink[i / 2 % 2];
    }
#pragma unroll
    for (int i = 0; i < T::block / 4; i++)
        w.p[i] = pack_bf16(w.s[2 * i], w.s[2 * i + 1]);
}

/* Start S = Q K^T for the warpgroup's rows and the next block of keys. */
template <class T> __device__ __forceinline__ void begin_s(struct walk<T> &w)
{
    uint64_t k = w.k + (uint32_t)(w.k_ring.stage * (T::block_size / 16));
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < T::d / 16; c++)
        wgmma_shared<T::block>(w.s, w.q + (c / 4 * T::rows * 128 + c % 4 * 32) / 16,
                               k + (c / 4 * T::block * 128 + c % 4 * 32) / 16, c > 0);
    wgmma_commit();
}

/* Start O += P V for the next block of values. */
template <class T> __device__ __forceinline__ void begin_o(struct walk<T> &w)
{
    uint64_t v = w.v + (uint32_t)(w.v_ring.stage * (T::block_size / 16));
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < T::block / 16; c++)
        wgmma_registers<T::d>(w.o, w.p + 4 * c, v + c * (16 * 128 / 16));
    wgmma_commit();
}

template <class T> __device__ __forceinline__ void wait_k(const struct walk<T> &w)
{
    barrier_wait(w.bars + bar_at<T>::k_full + w.k_ring.stage * 8, w.k_ring.parity);
}

template <class T> __device__ __forceinline__ void wait_v(const struct walk<T> &w)
{
    barrier_wait(w.bars + bar_at<T>::v_full + w.v_ring.stage * 8, w.v_ring.parity);
}

/* This warp's products that read the stage have ended; each warp arrives at the barrier for itself.
 */
template <class T> __device__ __forceinline__ void end_k(struct walk<T> &w)
{
    if (w.lane == 0)
        barrier_arrive(w.bars + bar_at<T>::k_empty + w.k_ring.stage * 8);
    ring_next<T>(w.k_ring);
}

template <class T> __device__ __forceinline__ void end_v(struct walk<T> &w)
{
    if (w.lane == 0)
        barrier_arrive(w.bars + bar_at<T>::v_empty + w.v_ring.stage * 8);
    ring_next<T>(w.v_ring);
}

/* The first block: S and P. */
template <class T> __device__ __forceinline__ void first_step(struct walk<T> &w, int reach)
{
    wait_k(w);
    begin_s(w);
    wgmma_wait<0>();
    pin(w.s);
    end_k(w);
    mask(w.s, reach);
    softmax(w);
    prepare_o(w);
}

/* A later block: its S, overlapped with O += P V of the block before. */
template <class T, bool MASK> __device__ __forceinline__ void step(struct walk<T> &w, int reach)
{
    wait_k(w);
    begin_s(w);
    wait_v(w);
    begin_o(w);
    wgmma_wait<1>();
    pin(w.s);
    end_k(w);
    if (MASK)
        mask(w.s, reach);
    softmax(w);
    hold(w.l[0] + w.l[1]);
    wgmma_wait<0>();
    pin(w.o);
    end_v(w);
    prepare_o(w);
}

/* The last block: O += P V. */
template <class T> __device__ __forceinline__ void last_step(struct walk<T> &w)
{
    wait_v(w);
    begin_o(w);
    wgmma_wait<0>();
    pin(w.o);
    end_v(w);
}

/* Store O / sum of the thread's two rows, unless they are outside the run. */
template <class T>
__device__ static inline void store_rows(struct walk<T> &w, const hopper_args &a, struct piece p,
                                         int row)
{
    const hopper_run &run = a.run[p.run];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = w.l[r];
        l += __shfl_xor_sync(0xffffffffu, l, 1);
        l += __shfl_xor_sync(0xffffffffu, l, 2);
        l = 1 / l;
        int i = p.position + row + 8 * r - run.first_slot;
        if (i < 0 || i >= run.n)
            continue;
        size_t at = ((size_t)(run.row0 + i) * a.n_heads + p.head) * T::d + w.lane % 4 * 2;
#pragma unroll
        for (int c = 0; c < T::d / 8; c++) {
            float x = w.o[4 * c + 2 * r] * l, y = w.o[4 * c + 2 * r + 1] * l;
            if (a.out_f32)
                *(float2 *)((float *)a.out + at + 8 * c) = make_float2(x, y);
            else
                *(uint32_t *)((uint16_t *)a.out + at + 8 * c) = pack_bf16(x, y);
        }
    }
}

/* A consumer warpgroup: processes pieces, each from its first block to its last. */
template <class T>
__device__ static inline void consume(const hopper_args &a, uint32_t base, const int *piece_number)
{
    struct walk<T> w;
    int thread = (int)threadIdx.x % 128;
    w.group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0);
    w.lane = thread % 32;
    w.bars = base + T::bars_at;
    w.q = tile_descriptor(base + w.group * GROUP_ROWS * 128, 16);
    w.k = tile_descriptor(base + T::k_at, 16);
    w.v = tile_descriptor(base + T::v_at, T::block * 128);
    w.k_ring = w.v_ring = { 0, 0 };
    w.scale = a.scale;

    for (int turn = 0;; turn++) {
        barrier_wait(w.bars + Q_FULL * 8, turn & 1);
        /* Lane 0 reads the number, because lane 0 also arrives at the barrier that allows
         * overwriting it. So the two barriers alone order the reads and writes. */
        int i = w.lane == 0 ? *(volatile const int *)piece_number : 0;
        i = __shfl_sync(0xffffffffu, i, 0);
        if (i < 0)
            break;
        struct piece p = piece_of<T>(a, i);
        int row = w.group * GROUP_ROWS + thread / 32 * 16 + w.lane / 4;
        int n_blocks = (p.position + T::rows + T::block - 1) / T::block;
        int n_whole = (p.position + w.group * GROUP_ROWS + 1) / T::block; /* visible to all rows */
        int reach = p.position + row - w.lane % 4 * 2;

#pragma unroll
        for (int c = 0; c < T::d / 2; c++)
            w.o[c] = 0;
        w.m[0] = w.m[1] = -INFINITY;
        w.l[0] = w.l[1] = 0;
        first_step(w, reach);
        int j = 1;
        for (; j < n_whole; j++)
            step<T, false>(w, 0);
        for (; j < n_blocks; j++)
            step<T, true>(w, reach - j * T::block);
        if (w.lane == 0)
            barrier_arrive(w.bars + Q_EMPTY * 8);
        last_step(w);
        store_rows(w, a, p, row);
    }
}

#endif

template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_hopper_kernel(const __grid_constant__ hopper_args a)
{
#ifdef HOPPER_CODE
    SHARED_MEMORY(unsigned char, memory);
    uint32_t base = (shared_address(memory) + 1023u) & ~1023u;
    int *piece_number = (int *)(memory + (base - shared_address(memory)) + T::piece_at);
    uint32_t bars = base + T::bars_at;

    dep_launch();
    if (threadIdx.x == 0) {
        barrier_init(bars + Q_FULL * 8, 1);
        barrier_init(bars + Q_EMPTY * 8, 4 * T::groups);
        for (int s = 0; s < T::stages; s++) {
            barrier_init(bars + bar_at<T>::k_full + s * 8, 1);
            barrier_init(bars + bar_at<T>::v_full + s * 8, 1);
            barrier_init(bars + bar_at<T>::k_empty + s * 8, 4 * T::groups);
            barrier_init(bars + bar_at<T>::v_empty + s * 8, 4 * T::groups);
        }
        barrier_init_done();
    }
    __syncthreads();
    dep_wait();
    if (threadIdx.x < 128) {
        registers_lower<T::few>();
        if (threadIdx.x == 0) {
            global_written();
            produce<T>(a, base, piece_number);
        }
    } else {
        registers_raise<T::most>();
        consume<T>(a, base, piece_number);
    }
#endif
}

/* ---- host ---- */

/* Whether this build has the real kernel for this GPU. Builds for other targets have an empty
 * kernel, which is recognised by its few registers. */
template <class T> static bool kernel_ready(void)
{
    cudaFuncAttributes at;
    if (cudaFuncGetAttributes(&at, (const void *)attention_hopper_kernel<T>) != cudaSuccess ||
        at.numRegs < 64 || set_smem(attention_hopper_kernel<T>, T::size) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return true;
}

template <class T>
static bool fill_maps(struct hopper_maps *m, encode_fn encode, const struct kv_layer *kv,
                      const void *data)
{
    bool done = encode_pages(encode, &m->whole, kv, data, T::block, T::d / TILE_COLS);
    for (int i = 0; i < PARTS && !T::in_one_page; i++)
        done = done && encode_pages(encode, &m->part[i], kv, data, PART_ROWS << i, 1);
    return done;
}

/* Fill in the arguments of a launch for the runs, from `first` on, that lie in one pool. Returns
 * their number, 0 if no TMA map can be made. */
template <class T>
static int fill_args(struct hopper_args *a, encode_fn encode, const struct attn_block *b, int first)
{
    const struct kv_layer *kv = b->runs[first].kv;
    int n = 0;
    a->n_pieces = 0;
    for (; n < MAX_RUNS && first + n < b->n_runs; n++) {
        const struct attn_run *r = &b->runs[first + n];
        struct hopper_run *h = &a->run[n];
        int skip = b->needed ? r->n - b->needed[first + n] : 0;
        if (!same_pool(r->kv, kv))
            break;
        h->row0 = r->row0 + skip;
        h->n = r->n - skip;
        h->first_slot = r->first_slot + skip;
        h->tile0 = h->first_slot / T::rows;
        h->n_tiles = h->n > 0 ? (h->first_slot + h->n - 1) / T::rows + 1 - h->tile0 : 0;
        h->begin = a->n_pieces;
        a->n_pieces += h->n_tiles * a->n_heads;
    }
    a->n_runs = n;
    return fill_maps<T>(&a->k, encode, kv, kv->k) && fill_maps<T>(&a->v, encode, kv, kv->v) ? n : 0;
}

template <class T>
static bool run_hopper(struct device_work *w, const struct attn_block *b, const void *q16,
                       void *out, enum dtype out_dtype)
{
    static struct by_gpu ready;
    static const encode_fn encode = find_encode();
    static unsigned launches;
    int width = b->shape->n_heads * T::d;
    struct hopper_args a = {};

    if (!is_ready(&ready, w->gpu->index, kernel_ready<T>) || !encode)
        return false;
    a.n_heads = b->shape->n_heads;
    a.group = b->shape->n_heads / b->shape->n_kv_heads;
    a.scale = (float)(1.4426950408889634 / sqrt((double)T::d));
    a.out = out;
    a.out_f32 = out_dtype == DTYPE_F32;
    if (!encode_map(encode, &a.q, q16, b->n, width / TILE_COLS, 0, (size_t)width * 2, 0, T::rows,
                    T::d / TILE_COLS))
        return false;
    for (int first = 0; first < b->n_runs;) {
        int n = fill_args<T>(&a, encode, b, first);
        if (n == 0)
            return false;
        a.pages = pages_of(w, b->runs[first].kv, first).page;
        a.table_size = w->table_size;
        a.ticket = (int)(__atomic_fetch_add(&launches, 1u, __ATOMIC_RELAXED) % TICKETS);
        int blocks = a.n_pieces < w->n_sm ? a.n_pieces : w->n_sm;
        if (blocks > 0)
            work_check(w,
                       launch(attention_hopper_kernel<T>, dim3((unsigned)blocks), dim3(T::threads),
                              T::size, w->stream, a),
                       "attention of a prompt");
        first += n;
    }
    return true;
}

bool attention_many_hopper(struct device_work *w, const struct attn_block *b, const void *q16,
                           void *out, enum dtype out_dtype)
{
    int d = b->shape->head_dim;
    if (w->gpu->major != 9 || (d != 64 && d != 128) || b->n <= 0 || (uintptr_t)q16 % 16 ||
        (out_dtype != DTYPE_BF16 && out_dtype != DTYPE_F32))
        return false;
    for (int i = 0; i < b->n_runs; i++) {
        const struct attn_run *r = &b->runs[i];
        if (r->parent || r->pending || r->n <= 0 || r->kv->dtype != DTYPE_BF16 || r->kv->d != d ||
            (uintptr_t)r->kv->k % 16 || (uintptr_t)r->kv->v % 16)
            return false;
    }
    return d == 128 ? run_hopper<hopper_shape<128, 176, 2, 2>>(w, b, q16, out, out_dtype)
                    : run_hopper<hopper_shape<64, 128, 3, 4>>(w, b, q16, out, out_dtype);
}
