/* Attention of many rows on tensor cores: rows of a prompt over the KV cache, and segments of a
 * vision tower, whose rows attend to each other. A thread block has a tile of query rows of one
 * head and goes over the keys, 64 at a time. Asynchronous copies bring keys and values to shared
 * memory; scores, the running maximum, the running sum and the result stay in registers (the idea
 * is that of FlashAttention-2, Dao 2023).
 *
 * The bits of a row depend only on the row and its keys. Keys are taken in blocks that begin at
 * multiples of 64 slots of the cache (or rows of the segment). If a block is masked for a row, the
 * row multiplies its result by one and adds zeros, so it does not matter which rows share its tile.
 * On GPUs with Hopper's own instructions, attention_hopper.cu is tried first.
 *
 * Of an F8 cache (tensor/f8.h) the copies bring codes, which the threads turn into a tile of BF16
 * before the arithmetic; meanwhile the codes of the next step arrive. */
#include "kernels/cuda/f8.cuh"
#include "kernels/cuda/work.h"

#include <math.h>

namespace {

enum { KEYS = 64 }; /* keys per step; changing it changes the bits of results */

/* A tile of WARPS * MT * 16 rows of heads of up to D, with STAGES buffers for keys and values. */
template <int D_, int MT_, int WARPS_, int STAGES_, int BLOCKS_, bool KEEP_Q_, bool WHOLE_ = true,
          bool F8_ = false>
struct tile {
    static constexpr int D = D_, MT = MT_, WARPS = WARPS_, STAGES = STAGES_;
    static constexpr int BLOCKS = BLOCKS_; /* blocks per multiprocessor, limited by registers */
    static constexpr int ROWS = WARPS * MT * 16, THREADS = WARPS * 32;
    static constexpr int PIECES = D / 8; /* 16-byte pieces of a row */
    /* Stride of rows in shared memory, in elements: an odd number of pieces, so that eight rows of
     * a matrix lie in different banks. */
    static constexpr int ROW = (PIECES | 1) * 8;
    static constexpr bool KEEP_Q = KEEP_Q_; /* Q stays in registers */
    static constexpr bool WHOLE = WHOLE_;   /* rows in global memory are whole pieces too */
    static constexpr bool F8 = F8_;         /* the cache's type; with one stage */
    /* F8, in bytes: codes of K and of V [KEYS, D], and their exponents [KEYS]. */
    static constexpr int CODES = F8 ? KEYS * D : 0, EXPONENTS = F8 ? KEYS : 0;
    static constexpr size_t TILES = 2 * (size_t)ROW * (ROWS + 2 * STAGES * KEYS);
    static constexpr size_t SMEM = TILES + 2 * (size_t)(CODES + EXPONENTS);
};

struct flash_job {
    const uint16_t *q, *k, *v; /* k, v: for segments */
    struct kv_pages kv;        /* for prompts */
    void *out;
    size_t q_stride, kv_stride, out_stride; /* elements */
    int n_heads, group, d;                  /* group: heads that share a KV head */
    float scale;                            /* of scores, times log2(e) */
    bool out_f32;
    const struct staged *staged; /* for prompts */
    int run, skip;               /* skip: the first rows of the run that are not needed */
    const int *bounds;           /* of segments; NULL: all have `each` rows */
    int each, tiles;             /* tiles: of the longest segment */
};

/* The work of a block. Row i of the tile sees keys below limit + i * grows, at most n_keys. */
struct span {
    int row0, rows, n_keys, limit, grows, head;
    const uint16_t *k, *v; /* of the segment's first key, or of the head in page 0 */
};

template <bool F8>
__device__ inline struct span span_of_run(const struct flash_job &j, int tile_rows)
{
    const struct staged_run *r = &j.staged->run[j.run];
    struct span s;
    int first = j.skip + (int)(gridDim.x - 1 - blockIdx.x) * tile_rows; /* the longest rows first */
    int left = r->n - first;
    s.head = (int)blockIdx.y;
    s.row0 = r->row0 + first;
    s.rows = left < tile_rows ? left : tile_rows;
    s.limit = r->first_slot + first + 1;
    s.grows = 1;
    s.n_keys = r->first_slot + first + s.rows;
    int64_t head = (F8 ? f8_head_size(j.d) / 2 : (int64_t)KV_CHUNK * j.d) * (s.head / j.group);
    s.k = j.kv.k + head;
    s.v = j.kv.v + head;
    return s;
}

__device__ inline struct span span_of_segment(const struct flash_job &j, int tile_rows)
{
    struct span s;
    int place = (int)blockIdx.x / j.n_heads, segment = place / j.tiles;
    int first = (place - segment * j.tiles) * tile_rows;
    int begin = j.bounds ? j.bounds[segment] : segment * j.each;
    int left = (j.bounds ? j.bounds[segment + 1] - begin : j.each) - first;
    s.head = (int)blockIdx.x % j.n_heads;
    s.row0 = begin + first;
    s.rows = left < tile_rows ? left : tile_rows;
    s.limit = s.n_keys = left + first;
    s.grows = 0;
    s.k = j.k + (size_t)begin * j.kv_stride + (size_t)s.head * j.d;
    s.v = j.v + (size_t)begin * j.kv_stride + (size_t)s.head * j.d;
    return s;
}

/* Elements from span.k (span.v) to the keys of a step. A step's keys never cross a page. */
template <bool SEGMENTS> __device__ inline int64_t keys_at(const struct flash_job &j, int step)
{
    static_assert(KV_CHUNK % KEYS == 0, "a step's keys lie in one page");
    if (SEGMENTS)
        return (int64_t)step * KEYS * (int64_t)j.kv_stride;
    return slot_at(j.kv, j.kv.page[slot_chunk(step * KEYS)], 0, step * KEYS, j.d);
}

/* Copy ROWS rows of d elements to shared memory; rows from `valid` on and columns from d on are
 * zero. */
template <class T, int ROWS>
__device__ inline void load_rows(uint16_t *shared, const uint16_t *from, size_t stride, int valid,
                                 const struct flash_job &j)
{
    if constexpr (T::WHOLE) {
        constexpr int STEP = T::THREADS / T::PIECES; /* rows at a time; surplus threads are idle */
        const int r0 = (int)threadIdx.x / T::PIECES, c = (int)threadIdx.x % T::PIECES * 8;
        const uint16_t *p = from + r0 * stride + c;
        const int left = c < j.d ? valid - r0 : 0;
        if (T::THREADS % T::PIECES && r0 >= STEP)
            return;
#pragma unroll
        for (int i = 0; i < (ROWS + STEP - 1) / STEP; i++) {
            if (ROWS % STEP == 0 || i * STEP + r0 < ROWS)
                copy_async16(shared + (r0 + i * STEP) * T::ROW + c, p, i * STEP < left ? 16 : 0);
            p += STEP * stride;
        }
    } else {
        for (int p = (int)threadIdx.x; p < ROWS * T::D / 2; p += T::THREADS) {
            int r = p / (T::D / 2), c = p % (T::D / 2) * 2;
            *(uint32_t *)(shared + r * T::ROW + c) =
                r < valid && c < j.d ? *(const uint32_t *)(from + r * stride + c) : 0;
        }
    }
}

/* F8: copy the codes and exponents of the keys from slot `slot` on, and of their values, to shared
 * memory; codes from `valid` on and columns from d on are zero. */
template <class T>
__device__ inline void load_codes(uint8_t *shared, const struct flash_job &j, const struct span &sp,
                                  int slot, int valid)
{
    constexpr int PIECES = T::D / 16;
    int64_t page = 2 * j.kv.page[slot_chunk(slot)] * j.kv.step;
    for (int i = (int)threadIdx.x; i < 2 * KEYS * PIECES; i += T::THREADS) {
        int r = i / PIECES % KEYS, c = i % PIECES * 16; /* K's rows, then V's */
        const uint8_t *from = (const uint8_t *)(i < KEYS * PIECES ? sp.k : sp.v) + page;
        uint8_t *to = shared + i * 16;
        from += (slot_row(slot) + r) * j.d + c;
        if (j.d % 16 == 0)
            copy_async16(to, r < valid && c < j.d ? from : (const uint8_t *)sp.k,
                         r < valid && c < j.d ? 16 : 0);
        for (int b = 0; b < 16 && j.d % 16 != 0; b++)
            to[b] = r < valid && c + b < j.d ? from[b] : (uint8_t)0;
    }
    for (int i = (int)threadIdx.x; i < 2 * KEYS / 16; i += T::THREADS) {
        const uint8_t *from = (const uint8_t *)(i < KEYS / 16 ? sp.k : sp.v) + page;
        copy_async16(shared + 2 * T::CODES + i * 16,
                     from + KV_CHUNK * j.d + slot_row(slot) + i % (KEYS / 16) * 16, 16);
    }
}

/* F8: turn the codes into a tile of keys and one of values. */
template <class T>
__device__ inline void unpack_codes(uint16_t *ks, uint16_t *vs, const uint8_t *shared)
{
    constexpr int PIECES = T::D / 16;
    for (int i = (int)threadIdx.x; i < 2 * KEYS * PIECES; i += T::THREADS) {
        int r = i / PIECES, c = i % PIECES * 16;
        uint4 x = *(const uint4 *)(shared + i * 16);
        uint32_t factors = f8_factors(shared[2 * T::CODES + r]);
        uint16_t *to = (r < KEYS ? ks : vs) + r % KEYS * T::ROW + c;
        *(uint4 *)to = f8_read8(x.x, x.y, factors);
        *(uint4 *)(to + 8) = f8_read8(x.z, x.w, factors);
    }
}

/* Load columns 16 kk .. 16 kk + 15 of the warp's rows of Q as mma operands. */
template <class T>
__device__ inline void load_q(uint32_t a[T::MT][4], const uint16_t *qs, int kk, int lane)
{
#pragma unroll
    for (int m = 0; m < T::MT; m++)
        load_matrix4(a[m], qs + (m * 16 + lane % 16) * T::ROW + kk * 16 + lane / 16 * 8);
}

/* s [rows, KEYS] = q k^T */
template <class T>
__device__ inline void scores(float s[T::MT][KEYS / 8][4], const uint32_t (*q)[T::MT][4],
                              const uint16_t *qs, const uint16_t *ks, int lane)
{
    const uint16_t *kb = ks + (lane % 8 + lane / 16 * 8) * T::ROW + lane / 8 % 2 * 8;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = 0;
#pragma unroll
    for (int kk = 0; kk < T::D / 16; kk++) {
        uint32_t a[T::MT][4];
        if (!T::KEEP_Q)
            load_q<T>(a, qs, kk, lane);
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t b[4];
            load_matrix4(b, kb + n * 16 * T::ROW + kk * 16);
#pragma unroll
            for (int m = 0; m < T::MT; m++) {
                mma_bf16(s[m][2 * n], T::KEEP_Q ? q[T::KEEP_Q ? kk : 0][m] : a[m], b);
                mma_bf16(s[m][2 * n + 1], T::KEEP_Q ? q[T::KEEP_Q ? kk : 0][m] : a[m], b + 2);
            }
        }
    }
}

/* o [rows, D] += p v */
template <class T>
__device__ inline void values(float o[T::MT][T::D / 8][4], const float p[T::MT][KEYS / 8][4],
                              const uint16_t *vs, int lane)
{
    const uint16_t *vb = vs + lane % 16 * T::ROW + lane / 16 * 8;
#pragma unroll
    for (int kk = 0; kk < KEYS / 16; kk++) {
        uint32_t a[T::MT][4];
#pragma unroll
        for (int m = 0; m < T::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] =
                    pack_bf16(p[m][2 * kk + i / 2][i % 2 * 2], p[m][2 * kk + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < T::D / 16; n++) {
            uint32_t b[4];
            load_matrix4_trans(b, vb + kk * 16 * T::ROW + n * 16);
#pragma unroll
            for (int m = 0; m < T::MT; m++) {
                mma_bf16(o[m][2 * n], a[m], b);
                mma_bf16(o[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* Set the scores of keys that a row does not see to -infinity. */
template <class T>
__device__ inline void mask(float s[T::MT][KEYS / 8][4], const struct span &sp, int key0, int row,
                            int lane)
{
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int limit = sp.limit + (row + m * 16 + h * 8) * sp.grows;
            limit = (limit < sp.n_keys ? limit : sp.n_keys) - key0 - lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (n * 8 + e >= limit)
                        s[m][n][h * 2 + e] = -INFINITY;
        }
}

/* Running maximum and sum of a thread's rows; the sum covers the thread's own columns until the
 * end. */
template <class T> struct running {
    float max[T::MT][2], sum[T::MT][2];
};

/* Turn s into exp2(scale (s - max)). If the maximum has grown, rescale sum and result. */
template <class T>
__device__ inline void softmax(float s[T::MT][KEYS / 8][4], float o[T::MT][T::D / 8][4],
                               struct running<T> *run, float scale)
{
    float factor[T::MT][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float old = run->max[m][h], top = old;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            factor[m][h] = exp2_fast((old - top) * scale);
            grown |= top != old;
            run->max[m][h] = top;
        }
    if (__any_sync(0xffffffffu, grown)) { /* a factor of one changes nothing */
#pragma unroll
        for (int m = 0; m < T::MT; m++) {
            run->sum[m][0] *= factor[m][0];
            run->sum[m][1] *= factor[m][1];
#pragma unroll
            for (int n = 0; n < T::D / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    o[m][n][e] *= factor[m][e / 2];
        }
    }
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float base = run->max[m][h] * scale, sum = 0;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 2 * h; e < 2 * h + 2; e++) {
                    s[m][n][e] = exp2_fast(fmaf(s[m][n][e], scale, -base));
                    sum += s[m][n][e];
                }
            run->sum[m][h] += sum;
        }
}

/* Store the warp's rows, divided by their sums. BF16 rows go through the warp's part of Q's shared
 * memory, so that they are written in 16-byte pieces. A zero is always stored as +0, which is what
 * a masked step leaves. */
template <class T>
__device__ inline void store_rows(float o[T::MT][T::D / 8][4], const struct running<T> &run,
                                  uint16_t *qs, const struct flash_job &j, const struct span &sp,
                                  int warp_row, int lane)
{
    size_t to = (size_t)(sp.row0 + warp_row) * j.out_stride + (size_t)sp.head * j.d;
    int rows = sp.rows - warp_row;
    __syncwarp();
#pragma unroll
    for (int m = 0; m < T::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = run.sum[m][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float inverse = 1.0f / sum;
            int r = m * 16 + h * 8 + lane / 4, c = lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < T::D / 8; n++) {
                float lo = o[m][n][2 * h] * inverse + 0.0f;
                float hi = o[m][n][2 * h + 1] * inverse + 0.0f;
                if (!j.out_f32)
                    *(uint32_t *)(qs + r * T::ROW + n * 8 + c) = pack_bf16(lo, hi);
                else if (r < rows && n * 8 + c < j.d)
                    *(float2 *)((float *)j.out + to + r * j.out_stride + n * 8 + c) =
                        make_float2(lo, hi);
            }
        }
    __syncwarp();
    uint16_t *out = (uint16_t *)j.out + to;
    if (!j.out_f32 && T::WHOLE)
        for (int p = lane; p < T::MT * 16 * T::PIECES; p += 32) {
            int r = p / T::PIECES, c = p % T::PIECES * 8;
            if (r < rows && c < j.d)
                *(uint4 *)(out + r * j.out_stride + c) = *(const uint4 *)(qs + r * T::ROW + c);
        }
    else if (!j.out_f32)
        for (int p = lane; p < T::MT * 16 * T::D; p += 32) {
            int r = p / T::D, c = p % T::D;
            if (r < rows && c < j.d)
                out[r * j.out_stride + c] = qs[r * T::ROW + c];
        }
}

template <class T, bool SEGMENTS>
__global__ void __launch_bounds__(T::THREADS, T::BLOCKS)
    flash_kernel(const __grid_constant__ struct flash_job j)
{
    SHARED_MEMORY(uint16_t, qs);
    uint16_t *ks = qs + T::ROWS * T::ROW, *vs = ks + T::STAGES * KEYS * T::ROW;
    const int lane = (int)threadIdx.x % 32, warp_row = (int)threadIdx.x / 32 * T::MT * 16;
    uint16_t *warp_q = qs + warp_row * T::ROW;
    uint32_t q[T::KEEP_Q ? T::D / 16 : 1][T::MT][4];
    float o[T::MT][T::D / 8][4] = {}, s[T::MT][KEYS / 8][4];
    struct running<T> run;

    dep_launch();
    dep_wait();
    const struct span sp = SEGMENTS ? span_of_segment(j, T::ROWS) : span_of_run<T::F8>(j, T::ROWS);
    if (sp.rows <= 0)
        return;
    const int steps = (sp.n_keys + KEYS - 1) / KEYS;
    const int open = (sp.limit < sp.n_keys ? sp.limit : sp.n_keys) / KEYS; /* steps without mask */
#pragma unroll
    for (int m = 0; m < T::MT; m++) {
        run.max[m][0] = run.max[m][1] = -INFINITY;
        run.sum[m][0] = run.sum[m][1] = 0;
    }
    load_rows<T, T::ROWS>(qs, j.q + (size_t)sp.row0 * j.q_stride + (size_t)sp.head * j.d,
                          j.q_stride, sp.rows, j);
    uint8_t *codes = (uint8_t *)qs + T::TILES;
    int64_t at = keys_at<SEGMENTS>(j, 0); /* offset of this step's keys */
    if (T::F8)
        load_codes<T>(codes, j, sp, 0, sp.n_keys);
    else
        load_rows<T, KEYS>(ks, sp.k + at, j.kv_stride, sp.n_keys, j);
    if (T::STAGES > 1)
        load_rows<T, KEYS>(vs, sp.v + at, j.kv_stride, sp.n_keys, j);
    copy_async_commit();

    for (int i = 0; i < steps; i++) {
        const int64_t next = i + 1 < steps ? keys_at<SEGMENTS>(j, i + 1) : 0;
        const int buffer = T::STAGES > 1 ? i % 2 * KEYS * T::ROW : 0;
        const int left = sp.n_keys - (i + 1) * KEYS; /* keys after this step */
        copy_async_wait<0>();
        __syncthreads(); /* this step's keys have arrived, and the other buffer is free */
        if (T::F8) {
            unpack_codes<T>(ks, vs, codes);
            __syncthreads();
            if (left > 0)
                load_codes<T>(codes, j, sp, (i + 1) * KEYS, left);
        } else if (T::STAGES == 1)
            load_rows<T, KEYS>(vs, sp.v + at, j.kv_stride, left + KEYS, j);
        else if (left > 0) {
            int other = KEYS * T::ROW - buffer;
            load_rows<T, KEYS>(ks + other, sp.k + next, j.kv_stride, left, j);
            load_rows<T, KEYS>(vs + other, sp.v + next, j.kv_stride, left, j);
        }
        at = next;
        copy_async_commit();
        if (T::KEEP_Q && i == 0)
#pragma unroll
            for (int kk = 0; kk < T::D / 16; kk++)
                load_q<T>(q[T::KEEP_Q ? kk : 0], warp_q, kk, lane);
        scores<T>(s, q, warp_q, ks + buffer, lane);
        if (T::STAGES == 1 && !T::F8) {
            copy_async_wait<0>();
            __syncthreads(); /* the values have arrived, and the keys are no longer needed */
            if (left > 0)
                load_rows<T, KEYS>(ks, sp.k + at, j.kv_stride, left, j);
            copy_async_commit();
        }
        if (i >= open)
            mask<T>(s, sp, i * KEYS, warp_row + lane / 4, lane);
        softmax<T>(s, o, &run, j.scale);
        values<T>(o, s, vs + buffer, lane);
    }
    store_rows<T>(o, run, warp_q, j, sp, warp_row, lane);
}

/* ---- launches ---- */

/* What needs this much shared memory, for the message on a GPU that has less: among the tiles that
 * run on GPUs with 99 KB, only those of F8 with heads of 256 need more. */
template <class T> const char *largest_use(void)
{
    return T::F8 && T::D > 128 ? "attention with FP8 keys and values in heads of more than 128, "
                                 "which takes 132 KB of shared memory,"
                               : "attention";
}

template <class T, bool SEGMENTS>
void flash_launch(struct device_work *w, const struct flash_job *j, dim3 grid)
{
    static struct by_gpu allowed;
    static_assert(T::SMEM <= 132 << 10, "see largest_use");
    cudaError_t e = allow_smem(&allowed, w->gpu->index, flash_kernel<T, SEGMENTS>, T::SMEM, false);
    work_check(w, e, largest_use<T>());
    if (e == cudaSuccess)
        work_check(
            w, launch(flash_kernel<T, SEGMENTS>, grid, dim3(T::THREADS), T::SMEM, w->stream, *j),
            "attention");
}

unsigned tiles_of(int rows, int tile_rows)
{
    return (unsigned)((rows + tile_rows - 1) / tile_rows);
}

typedef tile<64, 2, 4, 2, 2, true> tile64;
typedef tile<64, 2, 2, 1, 4, true> tile64_short;
typedef tile<64, 1, 4, 1, 1, false, false> tile64_odd;
typedef tile<80, 2, 4, 2, 2, true> tile80;
typedef tile<80, 2, 2, 1, 4, true> tile80_short;
typedef tile<128, 2, 4, 2, 2, false> tile128;
typedef tile<128, 2, 4, 1, 2, false> tile128_small;
typedef tile<256, 1, 4, 1, 2, false> tile256;
typedef tile<256, 1, 4, 1, 1, false, false> tile256_odd;

typedef tile<64, 2, 4, 1, 2, true, true, true> tile64_f8;
typedef tile<64, 1, 4, 1, 1, false, false, true> tile64_f8_odd;
typedef tile<128, 2, 4, 1, 2, false, true, true> tile128_f8;
typedef tile<256, 1, 4, 1, 1, false, true, true> tile256_f8;
typedef tile<256, 1, 4, 1, 1, false, false, true> tile256_f8_odd;

/* Whether all rows in memory are whole 16-byte pieces: always, except for odd head sizes in tests.
 */
bool whole_pieces(const struct flash_job *j)
{
    uintptr_t p = (uintptr_t)j->q | (uintptr_t)j->k | (uintptr_t)j->v | (uintptr_t)j->out |
                  (uintptr_t)j->kv.k | (uintptr_t)j->kv.v;
    return p % 16 == 0 && j->kv.step % 8 == 0 &&
           (j->q_stride | j->kv_stride | j->out_stride | (size_t)j->d) % 8 == 0;
}

template <class T> void flash_run(struct device_work *w, const struct flash_job *j, int rows)
{
    flash_launch<T, false>(w, j, dim3(tiles_of(rows, T::ROWS), (unsigned)j->n_heads));
}

/* Use two buffers for keys and values if two blocks per multiprocessor still fit. */
void run_any(struct device_work *w, const struct flash_job *j, int rows)
{
    if (!whole_pieces(j))
        j->d <= 64 ? flash_run<tile64_odd>(w, j, rows) : flash_run<tile256_odd>(w, j, rows);
    else if (j->d <= 64)
        flash_run<tile64>(w, j, rows);
    else if (j->d <= 80)
        flash_run<tile80>(w, j, rows);
    else if (j->d <= 128)
        w->gpu->major >= 9 ? flash_run<tile128>(w, j, rows) : flash_run<tile128_small>(w, j, rows);
    else
        flash_run<tile256>(w, j, rows);
}

void run_f8(struct device_work *w, const struct flash_job *j, int rows)
{
    if (!whole_pieces(j))
        j->d <= 64 ? flash_run<tile64_f8_odd>(w, j, rows) : flash_run<tile256_f8_odd>(w, j, rows);
    else if (j->d <= 64)
        flash_run<tile64_f8>(w, j, rows);
    else if (j->d <= 128)
        flash_run<tile128_f8>(w, j, rows);
    else
        flash_run<tile256_f8>(w, j, rows);
}

template <class T>
void flash_segments(struct device_work *w, struct flash_job *j, int n_segments, int longest)
{
    j->tiles = (int)tiles_of(longest, T::ROWS);
    flash_launch<T, true>(w, j, dim3((unsigned)(n_segments * j->tiles * j->n_heads)));
}

void segments_any(struct device_work *w, struct flash_job *j, int n, int longest)
{
    bool is_short = longest <= tile80_short::ROWS;
    if (!whole_pieces(j))
        j->d <= 64 ? flash_segments<tile64_odd>(w, j, n, longest)
                   : flash_segments<tile256_odd>(w, j, n, longest);
    else if (j->d <= 64)
        is_short ? flash_segments<tile64_short>(w, j, n, longest)
                 : flash_segments<tile64>(w, j, n, longest);
    else if (j->d <= 80)
        is_short ? flash_segments<tile80_short>(w, j, n, longest)
                 : flash_segments<tile80>(w, j, n, longest);
    else if (j->d <= 128)
        flash_segments<tile128_small>(w, j, n, longest);
    else
        flash_segments<tile256>(w, j, n, longest);
}

} // namespace

size_t full_scratch_size(const struct work_shape *s)
{
    size_t rows = (size_t)s->rows, heads = (size_t)s->n_heads;
    return ((size_t)16 << 20) + (size_t)s->context * 16 + rows * (heads + 1) * 16;
}

void attention_many(struct device_work *w, const struct attn_block *b, const void *q16, void *out,
                    enum dtype out_dtype)
{
    if (attention_many_hopper(w, b, q16, out, out_dtype))
        return;
    for (int r = 0; r < b->n_runs; r++) {
        const struct kv_layer *kv = b->runs[r].kv;
        int rows = b->needed ? b->needed[r] : b->runs[r].n;
        struct flash_job j = {};
        j.q = (const uint16_t *)q16;
        j.kv = pages_of(w, kv, r);
        j.out = out;
        j.n_heads = b->shape->n_heads;
        j.group = j.n_heads / kv->n_kv;
        j.d = kv->d;
        j.q_stride = j.out_stride = (size_t)j.n_heads * (size_t)j.d;
        j.kv_stride = (size_t)j.d;
        j.scale = 1.44269504f / sqrtf((float)j.d);
        j.out_f32 = out_dtype == DTYPE_F32;
        j.staged = w->staged;
        j.run = r;
        j.skip = b->runs[r].n - rows;
        if (rows > 0)
            (kv->dtype == DTYPE_F8 ? run_f8 : run_any)(w, &j, rows);
    }
}

void attention_segments(struct device_work *w, void *out, size_t out_stride, const void *q,
                        const void *k, const void *v, size_t stride, int n_heads, int d,
                        float scale, int n_segments, const int *bounds)
{
    size_t size = sizeof *bounds * (size_t)(n_segments + 1);
    struct flash_job j = {};
    int longest = 0, shortest = n_segments > 0 ? bounds[1] - bounds[0] : 0;

    for (int i = 0; i < n_segments; i++) {
        int rows = bounds[i + 1] - bounds[i];
        longest = rows > longest ? rows : longest;
        shortest = rows < shortest ? rows : shortest;
    }
    if (longest == 0)
        return;
    if (longest != shortest || bounds[0] != 0) {
        if (size > w->full_size) {
            work_check(w, cudaErrorMemoryAllocation, "bounds of segments");
            return;
        }
        stager_put(w, w->full_scratch, bounds, size);
        j.bounds = (const int *)w->full_scratch;
    }
    j.each = longest;
    j.q = (const uint16_t *)q, j.k = (const uint16_t *)k, j.v = (const uint16_t *)v;
    j.out = out;
    j.q_stride = j.kv_stride = stride;
    j.out_stride = out_stride;
    j.n_heads = n_heads;
    j.d = d;
    j.scale = scale * 1.44269504f;
    segments_any(w, &j, n_segments, longest);
}
