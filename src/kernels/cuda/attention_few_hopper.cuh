/* Arguments of attention_few_hopper.cu's launches, the work of one thread block, and the ring of
 * blocks of keys and values in shared memory, which TMA fills. */
#ifndef PV_KERNELS_CUDA_ATTENTION_FEW_HOPPER_CUH
#define PV_KERNELS_CUDA_ATTENTION_FEW_HOPPER_CUH

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"

enum {
    PAIRS = 64,                /* pairs of a warpgroup: wgmma's M */
    MOST_GROUPS = 3,           /* most warpgroups of a thread block that compute */
    SPLIT_ROWS = 2 * FEW_ROWS, /* most rows per launch */
    JOIN_WARPS = 8,            /* warps of a joining block: warp s % 8 takes split s */
    SPLIT_64 = KV_SPLIT_LEAST, /* positions of a partial result, for heads of 64 ... */
    SPLIT_128 = 768,           /* ... and of 128: 25k positions with 4 KV heads fill 132 SMs */
    QUERY_BARRIER = 1,         /* and the following, one per warpgroup */
    SMEM_MOST = 227 * 1024
};

/* A slice: some of the query rows of a run, from row row0 on. */
struct split_slice {
    int row; /* row of the step where its q and out begin */
    uint16_t row0, run, rows;
    uint16_t part; /* first row in part, top and limit */
};

/* Number of tiles of pairs for so many rows. */
__host__ __device__ static inline int slice_tiles(int rows, int group)
{
    return (rows * group + PAIRS - 1) / PAIRS;
}

/* Arguments of a launch. Each blockIdx.y is a slice; all lie in one pool. */
struct split_args {
    CUtensorMap k_map, v_map; /* of all pages of the pool: [page][KV head, row][element] */
    struct kv_pages kv;       /* with the page table of run 0 */
    int table_size;           /* entries from one run's table to the next */
    const uint16_t *q;        /* from the step's first row on */
    void *out;
    float *part; /* [rows, n_heads, splits, d] */
    float2 *top; /* [rows, n_heads, splits]: max and sum */
    int *limit;  /* [rows] positions seen, trees only */
    const struct staged *staged;
    int slice0; /* the slice of blockIdx.y == 0 */
    int n_heads, n_kv, group;
    int splits;    /* splits that part and top have room for */
    float scale;   /* of scores, times log2(e) */
    int n_sets;    /* sets of tiles, one per thread block, of the largest slice */
    int tree_rows; /* rows of the largest slice of a tree */
    int n_parts;   /* rows of trees: parts of eight pairs */
    int direct;    /* one split: no partial results */
    /* The kernel for the rows of trees starts as soon as all blocks of the one before it run and
     * have waited for earlier kernels, and uses the multiprocessors that it leaves idle at its end.
     * It does not wait itself, so it must read q, k and v from L2, where earlier kernels have left
     * them: by TMA or cp.async.cg, not by ordinary loads. */
    int ahead;  /* this kernel precedes it; */
    int beside; /* this kernel is it */
    int f32;
    struct split_slice slice[SPLIT_ROWS];
    uint8_t slice_of[SPLIT_ROWS]; /* slice of each row of part */
};

/* One kernel instance: sizes, and offsets in shared memory. */
template <int HEAD, int BLOCK, int SPLIT, int GROUPS, int STAGES, int BLOCKS> struct split_shape {
    static constexpr int d = HEAD, block = BLOCK, split = SPLIT, groups = GROUPS, stages = STAGES;
    static constexpr int blocks = BLOCKS; /* per multiprocessor, limited by registers */
    static constexpr int threads = (GROUPS + 1) * 128;
    static constexpr int q_size = PAIRS * HEAD * 2, block_size = BLOCK * HEAD * 2;
    static constexpr int k_at = GROUPS * q_size, v_at = k_at + STAGES * block_size;
    static constexpr int bars_at = v_at + STAGES * block_size;
    static constexpr int size = bars_at + 3 * STAGES * 8;
    /* Registers of a loading and of a computing thread, out of those that the launch gives to all.
     */
    static constexpr int even = 65536 / (threads * BLOCKS) / 8 * 8, few = 40;
    static constexpr int room = (even * (GROUPS + 1) - few) / GROUPS / 8 * 8;
    static constexpr int most = room < 240 ? room : 240;
    /* Blocks in flight: enough to keep the memory busy. */
    static constexpr int enough = (96 << 10) / (2 * block_size);
    static constexpr int flight = enough < STAGES ? enough : STAGES;
    static_assert(SPLIT % BLOCK == 0 && STAGES >= 3, "a ring of whole blocks");
    static_assert(KV_CHUNK % BLOCK == 0, "a block of keys lies in one page");
};

/* Pages that a split touches. */
template <class T> struct split_pages {
    static constexpr int n = T::split / KV_CHUNK + (T::split % KV_CHUNK ? 2 : 0);
    static_assert(n - 1 <= TABLE_PAD, "those of the last split are in the table");
    int page[n];
};

#ifdef HOPPER_CODE

/* The work of a thread block. Slots and positions are those of the cache; query rows are counted in
 * the slice. */
struct split_job {
    int kv_head, split;
    int first;     /* slot where the run begins */
    int page;      /* of that slot */
    int seen;      /* chains: positions that the slice's first row sees */
    int low, high; /* fewest and most positions that its rows see */
    int q0, n_q;   /* its query rows */
    int n_groups;  /* warpgroups with pairs */
    int m0, m;     /* this warpgroup's pairs */
    int steps;     /* blocks of keys */
};

/* A position in the ring: the stage and the parity of its barriers' phase. */
struct ring {
    int stage, parity;
};

template <class T> __device__ __forceinline__ void ring_next(struct ring &r)
{
    r.stage = r.stage + 1 == T::stages ? 0 : r.stage + 1;
    r.parity ^= r.stage == 0;
}

/* ---- the work of a thread block ---- */

__device__ static inline const split_slice &own_slice(const split_args &a)
{
    return a.slice[a.slice0 + (int)blockIdx.y];
}

/* The page table of the slice's run. */
__device__ static inline const int32_t *own_table(const split_args &a)
{
    return a.kv.page + own_slice(a).run * a.table_size;
}

/* Find the steps of the split, up to the last position that a row sees. Returns false if there are
 * none. */
template <class T> __device__ static inline bool job_steps(struct split_job *b)
{
    int begin = b->split * T::split, blocks = (b->high - begin + T::block - 1) / T::block;
    b->steps = max(0, min(blocks, T::split / T::block));
    return b->steps > 0;
}

/* Look up the split's pages; the loading thread does so as soon as the split is known. Table
 * entries after the run's last page are read but not used. */
template <class T>
__device__ static inline void ask_pages(struct split_pages<T> &p, const split_args &a, int split)
{
    const int32_t *page = own_table(a) + slot_chunk(split * T::split);
#pragma unroll
    for (int i = 0; i < p.n; i++)
        p.page[i] = page[i];
}

/* Find the thread block's work: some tiles of pairs, and a split that looks the same to all rows,
 * up to their own positions. For trees, only splits that end before the tree. Returns false if
 * there is no work. */
template <class T>
__device__ static inline bool job_find(struct split_job *b, struct split_pages<T> &pages,
                                       const split_args &a, int group, bool loads)
{
    const split_slice &s = own_slice(a);
    const struct staged_run *run = &a.staged->run[s.run];
    int i = (int)blockIdx.x, set = i % a.n_sets, tile, tiles, end;
    int all = slice_tiles(s.rows, a.group), sets = (all + T::groups - 1) / T::groups;
    i /= a.n_sets;
    tile = set * all / sets;
    tiles = (set + 1) * all / sets - tile;
    end = min(s.rows * a.group, (tile + tiles) * PAIRS);
    b->kv_head = i % a.n_kv;
    b->split = i / a.n_kv;
    if (set >= sets)
        return false;
    if (loads)
        ask_pages<T>(pages, a, b->split);
    b->first = run->first_slot;
    b->page = run->first_page;
    b->n_groups = tiles;
    b->m0 = (tile + group) * PAIRS;
    b->m = max(0, min((int)PAIRS, end - b->m0));
    b->q0 = tile * PAIRS / a.group;
    b->n_q = (end - 1) / a.group + 1 - b->q0;
    b->seen = b->first + run->pending + s.row0 + 1;
    b->low = b->seen + b->q0;
    b->high = b->low + b->n_q - 1;
    if (run->has_parents)
        b->low = b->high = (b->split + 1) * T::split <= b->first ? b->first : 0;
    return job_steps<T>(b);
}

/* ---- keys and values to shared memory: the last warpgroup ---- */

/* One thread: loads the ring. Blocks written by earlier steps are requested before the preceding
 * kernel has ended. EARLY: all blocks are, and other threads add the rows that this step writes. */
template <class T, bool EARLY>
__device__ static inline void produce(const split_args &a, const struct split_job &b,
                                      struct split_pages<T> &pages, uint32_t base)
{
    uint32_t k_full = base + T::bars_at, v_full = k_full + T::stages * 8;
    uint32_t empty = v_full + T::stages * 8;
    struct ring ring = { 0, 0 }, landed = { 0, 0 };
    bool waited = false;
#pragma unroll 1
    for (int j = 0; j < b.steps; j++) {
        int begin = b.split * T::split + j * T::block;
        int row = b.kv_head * KV_CHUNK + slot_row(begin);
        uint32_t at = base + ring.stage * T::block_size, bar = ring.stage * 8;
        if (j > 0 && slot_row(begin) == 0) /* go on to the next page */
#pragma unroll
            for (int i = 0; i + 1 < pages.n; i++)
                pages.page[i] = pages.page[i + 1];
        if (!EARLY && !waited && begin + T::block > b.first) {
            dep_wait();
            global_written();
            waited = true;
        }
        barrier_wait(empty + bar, ring.parity ^ 1);
        if (j >= T::flight) { /* more would delay the requests of other kernels */
            barrier_wait(v_full + landed.stage * 8, landed.parity);
            ring_next<T>(landed);
        }
        barrier_arrive_expect(k_full + bar, T::block_size);
        load_box4_once(at + T::k_at, &a.k_map, k_full + bar, 0, row, 0, pages.page[0]);
        barrier_arrive_expect(v_full + bar, T::block_size);
        load_box4_once(at + T::v_at, &a.v_map, v_full + bar, 0, row, 0, pages.page[0]);
        ring_next<T>(ring);
    }
    if (!waited && !a.beside)
        dep_wait();
}

#endif /* target */

#endif
