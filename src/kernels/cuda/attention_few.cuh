/* Arguments of attention_few.cu's launches, the work of one block, and asynchronous copies that
 * bring tiles of K and V to shared memory some stages ahead of the arithmetic. Of an F8 cache
 * (tensor/f8.h) the stages hold codes; the threads turn them into one tile of BF16 when it is their
 * turn, so that the arithmetic is the same for both types. */
#ifndef PV_KERNELS_CUDA_ATTENTION_FEW_CUH
#define PV_KERNELS_CUDA_ATTENTION_FEW_CUH

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/f8.cuh"

enum {
    SPLIT_TILES = KV_SPLIT / KEYS,
    SPLIT_PAGES = KV_SPLIT / KV_CHUNK,
    LOADERS = 128 /* threads of a block that load tiles */
};

static_assert(KV_SPLIT % KV_CHUNK == 0 && KV_CHUNK % KEYS == 0 && SPLIT_PAGES == 2,
              "a split is two pages, and a tile lies in one of them");

/* Arguments of a launch. Each blockIdx.y is a slice of one run; the runs follow each other in the
 * step, lie in one pool and have the same number of rows. */
struct few_args {
    const uint16_t *q; /* from the step's first row on, [rows, n_heads * d] */
    void *out;
    struct kv_pages kv; /* with the page table of the first run */
    int table_size;     /* entries from one run's table to the next */
    float *part;        /* [rows, n_heads, splits, d] */
    float2 *top;        /* [rows, n_heads, splits]: max and sum */
    int *limit;         /* [rows] positions seen, trees only */
    const struct staged *staged;
    int run, row0, rows; /* rows row0 .. of the first run's queries are the first slice */
    int n_heads, n_kv, group, d;
    int splits;  /* splits that part and top have room for */
    float scale; /* of scores, times log2(e) */
    int stages;
    int narrow_blocks, narrow_rows, narrow_tiles; /* rows: (query row, head) pairs per block */
    int wide_rows, wide_tiles;
    bool narrow_tail; /* narrow blocks handle only splits with tree nodes */
    bool direct;      /* one split: no partials */
    bool f32;
};

/* The work of a block. Rows are (query row, head of the group) pairs in that order. */
struct few_block {
    const uint16_t *k, *v;     /* of the KV head in page 0 */
    int64_t page[SPLIT_PAGES]; /* elements from there to the split's pages */
    int kv_head, split;
    int m0, m;               /* first row, number of rows */
    int q0, n_q;             /* the query rows that they belong to */
    int first, pending, end; /* slots: committed; pending rows; end of the run */
    bool tree;
    int n_nodes;
    const int *limits;    /* positions that each query row sees, trees only */
    const uint16_t *path; /* [n_q, n_nodes]: nodes on the path to each query row */
    int shared, steps;    /* tiles shared by all rows; tiles to process in all */
};

/* The run of the block's slice, and its page table. */
__device__ static inline const struct staged_run *own_run(const struct few_args &a)
{
    return &a.staged->run[a.run + (int)blockIdx.y];
}

__device__ static inline const int32_t *own_table(const struct few_args &a)
{
    return a.kv.page + (int)blockIdx.y * a.table_size;
}

/* Row where the slice begins in q and out (own_row), and in part, top and limit (own_part). */
__device__ static inline int own_row(const struct few_args &a)
{
    return own_run(a)->row0 + a.row0;
}

__device__ static inline int own_part(const struct few_args &a)
{
    return (int)blockIdx.y * a.rows;
}

/* Slot of a position as query row `pass` sees it (pass < 0: as all rows see it); -1 if it is not
 * visible. */
__device__ static inline int slot_of(const struct few_block &b, int position, int pass)
{
    if (pass < 0 || position < b.first)
        return position < b.end ? position : -1;
    if (position >= b.limits[pass])
        return -1;
    return b.first + b.path[pass * b.n_nodes + position - b.first];
}

/* Load positions from `begin` on as query row `pass` (or all rows) sees them. For rows of a tree,
 * whose slots may lie in any page, and for rows whose size is not a multiple of 16 bytes. */
template <int D, bool EXACT>
__device__ static void load_slowly(uint16_t *to, const struct few_args &a,
                                   const struct few_block &b, int begin, int pass)
{
    int d = a.d;
    for (int i = (int)threadIdx.x; i < KEYS * (D / 8); i += LOADERS) {
        int r = i / (D / 8), c = i % (D / 8) * 8, slot = slot_of(b, begin + r, pass);
        int64_t from = slot < 0 ? 0 : slot_at(a.kv, own_table(a)[slot_chunk(slot)], 0, slot, d) + c;
        uint16_t *at = to + piece_at<D>(r, c / 8);
        if (EXACT || d % 8 == 0) {
            int bytes = slot >= 0 && (EXACT || c < d) ? 16 : 0;
            copy_async16(at, b.k + from, bytes);
            copy_async16(at + KEYS * D, b.v + from, bytes);
        }
        for (int j = 0; j < 8 && !EXACT && d % 8 != 0; j++) {
            bool there = slot >= 0 && c + j < d;
            at[j] = there ? b.k[from + j] : (uint16_t)0;
            at[KEYS * D + j] = there ? b.v[from + j] : (uint16_t)0;
        }
    }
}

/* Copy positions from `begin` on to shared memory: K, then V. A thread copies the same 16-byte
 * piece of every STEP-th row; STEP is a multiple of 8, so the swizzled places lie at a fixed
 * distance. */
template <int D, bool EXACT>
__device__ static inline void load_tile(uint16_t *to, const struct few_block &b, int d, int begin)
{
    constexpr int PIECES = D / 8, ROWS = LOADERS / PIECES, STEP = ROWS < 8 ? 8 : ROWS;
    static_assert(KEYS % STEP == 0 && STEP % 8 == 0, "rows of a thread at a fixed distance");
    int c = (int)threadIdx.x % PIECES, inside = EXACT || c * 8 < d ? 16 : 0, in = slot_row(begin);
    int64_t page = slot_chunk(begin) % SPLIT_PAGES ? b.page[1] : b.page[0];
    d = EXACT ? D : d;
#pragma unroll
    for (int r = 0; r < STEP; r += ROWS) {
        int row = r + (int)threadIdx.x / PIECES, left = b.end - begin - row;
        uint16_t *at = to + piece_at<D>(row, c);
        const uint16_t *k = b.k + page + (in + row) * d + c * 8;
        const uint16_t *v = b.v + page + (in + row) * d + c * 8;
#pragma unroll
        for (int i = 0; i < KEYS; i += STEP) {
            int bytes = i < left ? inside : 0;
            copy_async16(at + i * D, k + i * d, bytes);
            copy_async16(at + (KEYS + i) * D, v + i * d, bytes);
        }
    }
}

/* A stage of codes, in bytes: K [KEYS, D], V [KEYS, D], and the exponents of either [KEYS]. */
template <int D> struct f8_stage {
    static constexpr int values = KEYS * D, exponents = 2 * KEYS * D, size = exponents + 2 * KEYS;
};

/* Load piece c of 16 codes of row r of a stage, K's pieces before V's: that of `slot` in a page
 * (elements from page 0 to it); slot -1: zeros. */
template <int D>
__device__ static inline void load_codes(uint8_t *to, const struct few_block &b, int64_t page,
                                         int slot, int r, int d, int c)
{
    const uint8_t *from = (const uint8_t *)(c < D / 16 ? b.k : b.v) + 2 * page;
    int piece = c % (D / 16) * 16, at = slot < 0 ? 0 : slot_row(slot) * d + piece;
    uint8_t *out = to + (c < D / 16 ? 0 : f8_stage<D>::values) + r * D + piece;
    if (d % 16 == 0) {
        copy_async16(out, from + at, slot >= 0 && piece < d ? 16 : 0);
        return;
    }
    for (int i = 0; i < 16; i++)
        out[i] = slot >= 0 && piece + i < d ? from[at + i] : (uint8_t)0;
}

/* Load positions from `begin` on, all of them in one page. Exponents after the last row are those
 * of an earlier use of the page, or zero. */
template <int D>
__device__ static inline void load_f8(uint8_t *to, const struct few_args &a,
                                      const struct few_block &b, int begin)
{
    constexpr int PIECES = 2 * (D / 16), EXPONENTS = KEYS / 16;
    int64_t page = slot_chunk(begin) % SPLIT_PAGES ? b.page[1] : b.page[0];
    int i = (int)threadIdx.x;
    if (i < 2 * EXPONENTS) {
        const uint8_t *from = (const uint8_t *)(i < EXPONENTS ? b.k : b.v) + 2 * page;
        copy_async16(to + f8_stage<D>::exponents + i * 16,
                     from + KV_CHUNK * a.d + slot_row(begin) + i % EXPONENTS * 16, 16);
    }
    for (; i < KEYS * PIECES; i += LOADERS) {
        int r = i / PIECES;
        load_codes<D>(to, b, page, begin + r < b.end ? begin + r : -1, r, a.d, i % PIECES);
    }
}

/* The same as query row `pass` of a tree sees the positions: their slots may lie in any page. */
template <int D>
__device__ static void load_f8_path(uint8_t *to, const struct few_args &a,
                                    const struct few_block &b, int begin, int pass)
{
    constexpr int PIECES = 2 * (D / 16);
    for (int i = (int)threadIdx.x; i < KEYS * (PIECES + 2); i += LOADERS) {
        int r = i / (PIECES + 2), c = i % (PIECES + 2), slot = slot_of(b, begin + r, pass);
        int64_t page = slot < 0 ? 0 : own_table(a)[slot_chunk(slot)] * a.kv.step;
        if (c < PIECES) {
            load_codes<D>(to, b, page, slot, r, a.d, c);
            continue;
        }
        const uint8_t *from = (const uint8_t *)(c == PIECES ? b.k : b.v) + 2 * page;
        to[f8_stage<D>::exponents + (c - PIECES) * KEYS + r] =
            slot < 0 ? (uint8_t)0 : from[KV_CHUNK * a.d + slot_row(slot)];
    }
}

/* Turn a stage of codes into a tile of BF16. */
template <int D> __device__ static inline void unpack_f8(uint16_t *tile, const uint8_t *stage)
{
    constexpr int PIECES = D / 16;
    for (int i = (int)threadIdx.x; i < 2 * KEYS * PIECES; i += (int)blockDim.x) {
        int r = i / PIECES, c = i % PIECES; /* K's rows, then V's */
        uint4 x = *(const uint4 *)(stage + r * D + c * 16);
        uint32_t factors = f8_factors(stage[f8_stage<D>::exponents + r]);
        uint16_t *to = tile + r / KEYS * KEYS * D;
        *(uint4 *)(to + piece_at<D>(r % KEYS, 2 * c)) = f8_read8(x.x, x.y, factors);
        *(uint4 *)(to + piece_at<D>(r % KEYS, 2 * c + 1)) = f8_read8(x.z, x.w, factors);
    }
}

/* Step j of the block: returns the tile's first position, and the query row it is for (-1: all). */
__device__ static inline int step_begin(const struct few_block &b, int j, int *pass)
{
    int tile = j;
    *pass = -1;
    if (j >= b.shared) {
        tile = b.shared + (j - b.shared) / b.n_q;
        *pass = (j - b.shared) % b.n_q;
    }
    return b.split * KV_SPLIT + tile * KEYS;
}

/* The pipeline of tiles through shared memory. */
struct few_pipe {
    uint16_t *tiles; /* [stages]; F8: one, and after it the stages of codes */
    int stages;
    int next, load, use; /* next step to load; stages to load and to use next */
};

/* Bytes of the pipeline. */
template <int D, bool F8> __host__ __device__ static inline size_t pipe_size(int stages)
{
    size_t tile = 2 * KEYS * D * sizeof(uint16_t);
    return F8 ? tile + (size_t)stages * f8_stage<D>::size : (size_t)stages * tile;
}

/* F8: a stage of codes. */
template <int D> __device__ static inline uint8_t *stage_at(const struct few_pipe *p, int stage)
{
    return (uint8_t *)(p->tiles + 2 * KEYS * D) + stage * f8_stage<D>::size;
}

/* Start loading the next tile. TREE: some tiles are for one query row only. */
template <int D, bool EXACT, bool F8, bool TREE>
__device__ static inline void load_next(struct few_pipe *p, const struct few_args &a,
                                        const struct few_block &b)
{
    uint16_t *to = p->tiles + p->load * (2 * KEYS * D);
    int pass = -1, begin = b.split * KV_SPLIT + p->next * KEYS;
    if (TREE)
        begin = step_begin(b, p->next, &pass);
    if (p->next < b.steps && threadIdx.x < LOADERS) {
        if (F8 && TREE && pass >= 0)
            load_f8_path<D>(stage_at<D>(p, p->load), a, b, begin, pass);
        else if (F8)
            load_f8<D>(stage_at<D>(p, p->load), a, b, begin);
        else if ((TREE && pass >= 0) || (!EXACT && a.d % 8 != 0))
            load_slowly<D, EXACT>(to, a, b, begin, pass);
        else
            load_tile<D, EXACT>(to, b, a.d, begin);
    }
    copy_async_commit();
    p->next++;
    p->load = p->load + 1 < p->stages ? p->load + 1 : 0;
}

/* Start loading the first tiles: those below first_slot at once, the others after dep_wait. */
template <int D, bool EXACT, bool F8, bool TREE>
__device__ static inline void pipe_open(struct few_pipe *p, uint16_t *tiles,
                                        const struct few_args &a, const struct few_block &b)
{
    bool waited = false;
    p->tiles = tiles;
    p->stages = a.stages;
    p->next = p->load = p->use = 0;
    for (int j = 0; j < a.stages - 1; j++) {
        int pass, begin = step_begin(b, j, &pass);
        if (!waited && (pass >= 0 || begin + KEYS > b.first)) {
            dep_wait();
            waited = true;
        }
        load_next<D, EXACT, F8, TREE>(p, a, b);
    }
    if (!waited)
        dep_wait();
}

/* Wait until all but the latest `open` tiles have arrived. */
__device__ static inline void pipe_wait(int open)
{
    if (open == 1)
        copy_async_wait<1>();
    else if (open == 4)
        copy_async_wait<4>();
    else
        copy_async_wait<0>();
}

/* F8: turn the stage to be used into a tile, on behalf of all threads. */
template <int D> __device__ static inline const uint16_t *pipe_unpack(const struct few_pipe *p)
{
    unpack_f8<D>(p->tiles, stage_at<D>(p, p->use));
    __syncthreads();
    return p->tiles;
}

/* Wait for the next tile, on behalf of all threads, and start loading another in place of the
 * previous one, which is no longer used. */
template <int D, bool EXACT, bool F8, bool TREE>
__device__ static inline const uint16_t *pipe_next(struct few_pipe *p, const struct few_args &a,
                                                   const struct few_block &b)
{
    const uint16_t *tile = p->tiles + p->use * (2 * KEYS * D);
    if (D > 128 && p->stages == 1) {
        __syncthreads();
        load_next<D, EXACT, F8, TREE>(p, a, b);
        copy_async_wait<0>();
        __syncthreads();
        return F8 ? pipe_unpack<D>(p) : tile;
    }
    pipe_wait(p->stages - 2);
    __syncthreads();
    load_next<D, EXACT, F8, TREE>(p, a, b);
    if (F8)
        tile = pipe_unpack<D>(p);
    p->use = p->use + 1 < p->stages ? p->use + 1 : 0;
    return tile;
}

#endif
