/* What a launch of attention_few_hopper.cu and each of its thread blocks do, and how keys and
 * values come to shared memory: a ring of blocks, filled by the copy engine, or by hand where rows
 * of a tree see each their own. */
#ifndef PV_KERNELS_CUDA_ATTENTION_FEW_HOPPER_H
#define PV_KERNELS_CUDA_ATTENTION_FEW_HOPPER_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"

enum {
    PAIRS = 64,                /* of a warpgroup: wgmma's M */
    MOST_GROUPS = 3,           /* warpgroups of a thread block */
    JOIN_WARPS = 8,            /* of a block that joins a row's partials: split s is warp s % 8's */
    SPLIT_64 = KV_SPLIT_LEAST, /* positions of a partial result, for heads of 64, ... */
    SPLIT_128 = 768,           /* ... and of 128: with 25k, one to each of 132 multiprocessors */
    TAIL_SETS = 8, /* thread blocks that a tree's rows are dealt to, at least, if there are rows */
    GATHER_BARRIER = 1,
    QUERY_BARRIER = 2, /* and the following */
    SMEM_MOST = 227 * 1024
};

struct split_args {
    CUtensorMap k_map, v_map;
    const uint16_t *q, *k, *v; /* q: of the slice's first row */
    void *out;
    float *part; /* [rows, n_heads, splits, d] */
    float2 *top; /* [rows, n_heads, splits]: max and sum */
    int *limit;  /* [rows] positions seen, trees only */
    const struct staged *staged;
    int run, row0, rows; /* rows row0 .. of the run's queries are this slice */
    int n_heads, n_kv, group, cap;
    int splits;                            /* room for them in part and top */
    float scale;                           /* of exponents of 2 */
    int n_tiles, n_sets;                   /* of pairs; sets of tiles, each a thread block's */
    int tail_blocks, tail_sets, tail_rows; /* trees; tail_rows: query rows of a warpgroup */
    int direct;                            /* one split: no partials */
    int f32;
};

/* One instance: sizes, and where things lie in shared memory. */
template <int HEAD, int BLOCK, int SPLIT, int GROUPS, int STAGES, int BLOCKS> struct split_shape {
    static constexpr int d = HEAD, block = BLOCK, split = SPLIT, groups = GROUPS, stages = STAGES;
    static constexpr int blocks = BLOCKS; /* of a multiprocessor, as far as registers go */
    static constexpr int threads = (GROUPS + 1) * 128;
    static constexpr int q_size = PAIRS * HEAD * 2, block_size = BLOCK * HEAD * 2;
    static constexpr int k_at = GROUPS * q_size, v_at = k_at + STAGES * block_size;
    static constexpr int bars_at = v_at + STAGES * block_size;
    static constexpr int tree_at = bars_at + 3 * STAGES * 8;
    /* registers of a loading and of a computing thread, out of what the launch gives to all */
    static constexpr int even = 65536 / (threads * BLOCKS) / 8 * 8, few = 40;
    static constexpr int room = (even * (GROUPS + 1) - few) / GROUPS / 8 * 8;
    static constexpr int most = room < 240 ? room : 240;
    /* blocks on their way at a time: enough to keep the memory busy */
    static constexpr int enough = (96 << 10) / (2 * block_size);
    static constexpr int flight = enough < STAGES ? enough : STAGES;
    /* gathered blocks on their way while one more is begun: warpgroups hold one and wait for one */
    static constexpr int ahead = STAGES > 3 ? 2 : 1;
    static_assert(SPLIT % BLOCK == 0 && STAGES >= 3, "a ring of whole blocks");
};

#ifdef HOPPER_CODE

/* What a thread block does. Slots, positions: of the cache; query rows: of the slice. */
struct split_job {
    int kv_head, split;
    int first;         /* slot where the run begins */
    int low, high;     /* positions that its rows see: least and most */
    int q0, n_q;       /* its query rows */
    int n_groups;      /* warpgroups with pairs */
    int m0, m;         /* this warpgroup's pairs */
    int shared, steps; /* key blocks for all rows; in all */
    bool tail;
    int n_nodes;
    const int *limits;    /* tail: positions that each query row sees */
    const uint16_t *path; /* [n_q, n_nodes]: nodes on the way to each query row */
};

/* A block of the ring: which barriers' phase. */
struct ring {
    int stage, parity;
};

template <class T> __device__ __forceinline__ void ring_next(struct ring &r)
{
    r.stage = r.stage + 1 == T::stages ? 0 : r.stage + 1;
    r.parity ^= r.stage == 0;
}

/* Step j: the block's first position; pass: the query row of the job it counts for, -1: all. */
template <class T>
__device__ __forceinline__ int step_begin(const struct split_job &b, int j, int *pass)
{
    int block = j;
    *pass = -1;
    if (j >= b.shared) {
        block = b.shared + (j - b.shared) / b.n_q;
        *pass = (j - b.shared) % b.n_q;
    }
    return b.split * T::split + block * T::block;
}

/* ---- what a thread block does ---- */

/* The ways to the job's query rows through the tree. All threads; `memory` has limits, parents,
 * paths. */
__device__ static inline void find_paths(struct split_job *b, const split_args &a,
                                         unsigned char *memory)
{
    const struct staged_run *run = &a.staged->run[a.run];
    int *limits = (int *)memory;
    int16_t *parent = (int16_t *)(limits + b->n_q);
    uint16_t *path = (uint16_t *)(parent + b->n_nodes);
    for (int i = (int)threadIdx.x; i < b->n_nodes; i += (int)blockDim.x)
        parent[i] = (int16_t)a.staged->parent[run->parents + i];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < b->n_q; i += (int)blockDim.x) {
        int node = run->pending + a.row0 + b->q0 + i, depth = 0;
        for (int p = node; p >= 0; p = parent[p])
            depth++;
        limits[i] = b->first + depth;
        for (int p = node; p >= 0; p = parent[p])
            path[i * b->n_nodes + --depth] = (uint16_t)p;
    }
    __syncthreads();
    b->high = 0;
    for (int i = 0; i < b->n_q; i++)
        b->high = max(b->high, limits[i]);
    b->limits = limits;
    b->path = path;
}

/* Steps of the split up to the most that a row sees. False: none. */
template <class T> __device__ static inline bool job_steps(struct split_job *b)
{
    int begin = b->split * T::split, blocks = (b->high - begin + T::block - 1) / T::block;
    blocks = max(0, min(blocks, T::split / T::block));
    b->shared = b->tail ? max(0, min(blocks, (b->first - begin) / T::block)) : blocks;
    b->steps = b->shared + (blocks - b->shared) * b->n_q;
    return blocks > 0;
}

/* Some query rows of a tree and a split that reaches into it. */
template <class T>
__device__ static inline bool tail_find(struct split_job *b, const split_args &a, int group,
                                        unsigned char *memory)
{
    const struct staged_run *run = &a.staged->run[a.run];
    int i = (int)blockIdx.x, mine, end;
    b->tail = true;
    b->first = run->first_slot;
    b->n_nodes = run->pending + run->n;
    b->q0 = i % a.tail_sets * (a.tail_rows * T::groups);
    i /= a.tail_sets;
    b->kv_head = i % a.n_kv;
    b->split = b->first / T::split + i / a.n_kv;
    if (b->split * T::split >= b->first + b->n_nodes)
        return false;
    end = min(a.rows, b->q0 + a.tail_rows * T::groups);
    b->n_q = end - b->q0;
    b->n_groups = (b->n_q + a.tail_rows - 1) / a.tail_rows;
    mine = b->q0 + group * a.tail_rows;
    b->m0 = mine * a.group;
    b->m = max(0, min(a.tail_rows, end - mine)) * a.group;
    find_paths(b, a, memory);
    b->low = b->first;
    return job_steps<T>(b);
}

/* Some tiles of pairs and a split that all rows see alike: up to their own positions. */
template <class T>
__device__ static inline bool job_find(struct split_job *b, const split_args &a, int group)
{
    const struct staged_run *run = &a.staged->run[a.run];
    int i = (int)blockIdx.x - a.tail_blocks, set = i % a.n_sets, tile, tiles, end;
    i /= a.n_sets;
    tile = set * a.n_tiles / a.n_sets;
    tiles = (set + 1) * a.n_tiles / a.n_sets - tile;
    end = min(a.rows * a.group, (tile + tiles) * PAIRS);
    b->tail = false;
    b->kv_head = i % a.n_kv;
    b->split = i / a.n_kv;
    b->first = run->first_slot;
    b->n_groups = tiles;
    b->m0 = (tile + group) * PAIRS;
    b->m = max(0, min((int)PAIRS, end - b->m0));
    b->q0 = tile * PAIRS / a.group;
    b->n_q = (end - 1) / a.group + 1 - b->q0;
    b->low = b->first + run->pending + a.row0 + b->q0 + 1;
    b->high = b->low + b->n_q - 1;
    if (run->has_parents)
        b->low = b->high = (b->split + 1) * T::split <= b->first ? b->first : 0;
    return job_steps<T>(b);
}

/* ---- keys and values to shared memory: the last warpgroup ---- */

template <class T> struct split_pipe {
    uint32_t base, k_full, v_full, empty;
    struct ring ring;
};

/* A key block as query row `pass` sees it; nothing where it sees none. */
template <class T>
__device__ static inline void gather(const split_args &a, const struct split_job &b, uint32_t to_k,
                                     uint32_t to_v, int begin, int pass)
{
    constexpr int PIECES = T::d / 8;
    size_t head = (size_t)b.kv_head * a.cap * T::d;
    const uint16_t *path = b.path + pass * b.n_nodes;
    int limit = b.limits[pass];
#pragma unroll 4
    for (int i = (int)threadIdx.x % 128; i < T::block * PIECES; i += 128) {
        int r = i / PIECES, c = i % PIECES, position = begin + r, slot = 0;
        bool there = position < limit;
        if (there)
            slot = position < b.first ? position : b.first + path[position - b.first];
        size_t from = head + (size_t)slot * T::d + c * 8;
        uint32_t at = (c / 8 * T::block + r) * 128 + ((c % 8) ^ (r & 7)) * 16;
        copy_async16_to(to_k + at, a.k + from, there ? 16 : 0);
        copy_async16_to(to_v + at, a.v + from, there ? 16 : 0);
    }
}

/* Blocks of the steps after the shared ones. */
template <class T>
__device__ static inline void produce_tail(const split_args &a, const struct split_job &b,
                                           struct split_pipe<T> &p)
{
    struct ring done = p.ring;
    for (int j = b.shared; j < b.steps + T::ahead; j++) {
        if (j < b.steps) {
            int pass, begin = step_begin<T>(b, j, &pass);
            uint32_t at = p.base + p.ring.stage * T::block_size;
            barrier_wait(p.empty + p.ring.stage * 8, p.ring.parity ^ 1);
            gather<T>(a, b, at + T::k_at, at + T::v_at, begin, pass);
            ring_next<T>(p.ring);
        }
        copy_async_commit();
        if (j - T::ahead < b.shared)
            continue;
        copy_async_wait<T::ahead>();
        shared_written();
        named_sync(GATHER_BARRIER, 128);
        if (threadIdx.x % 128 == 0) {
            barrier_arrive(p.k_full + done.stage * 8);
            barrier_arrive(p.v_full + done.stage * 8);
        }
        ring_next<T>(done);
    }
}

/* Key blocks that all rows share: those written by earlier steps before the kernel in front has
 * ended; EARLY: all, what this step writes is brought by others. Gives the place of the ring behind
 * them. */
template <class T, bool EARLY>
__device__ static inline struct split_pipe<T> produce_shared(const split_args &a,
                                                             const struct split_job &b,
                                                             uint32_t base) {
    struct split_pipe<T> p;
    struct ring landed;
    bool waited = false;
    p.base = base;
    p.k_full = base + T::bars_at;
    p.v_full = p.k_full + T::stages * 8;
    p.empty = p.v_full + T::stages * 8;
    p.ring = landed = { 0, 0 };
#pragma unroll 1
    for (int j = 0; j < b.shared; j++) {
        int begin = b.split * T::split + j * T::block;
        uint32_t at = base + p.ring.stage * T::block_size, bar = p.ring.stage * 8;
        if (!EARLY && !waited && begin + T::block > b.first) {
            dep_wait();
            waited = true;
        }
        barrier_wait(p.empty + bar, p.ring.parity ^ 1);
        if (j >= T::flight) { /* what other kernels ask for would queue behind more */
            barrier_wait(p.v_full + landed.stage * 8, landed.parity);
            ring_next<T>(landed);
        }
        if (threadIdx.x % 128 == 0) {
            barrier_arrive_expect(p.k_full + bar, T::block_size);
            load_box4_once(at + T::k_at, &a.k_map, p.k_full + bar, 0, begin, 0, b.kv_head);
            barrier_arrive_expect(p.v_full + bar, T::block_size);
            load_box4_once(at + T::v_at, &a.v_map, p.v_full + bar, 0, begin, 0, b.kv_head);
        }
        ring_next<T>(p.ring);
    }
    if (!waited)
        dep_wait();
    return p;
}

template <class T>
__device__ static inline void produce(const split_args &a, const struct split_job &b, uint32_t base)
{
    struct split_pipe<T> p = produce_shared<T, false>(a, b, base);
    if (b.steps > b.shared)
        produce_tail<T>(a, b, p);
}

#endif /* target */

#endif
