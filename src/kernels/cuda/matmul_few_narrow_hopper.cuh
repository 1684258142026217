/* The work of a block of matmul_few_narrow_hopper.cu. One thread requests all weights of the tile.
 * With up to eight rows of x, one warp multiplies each step of K by mma; with more, two warpgroups
 * multiply gate and up by wgmma. In both cases the sum of a step is a chain of four products from
 * zero, and the steps are added in order, so the bits are the same. */
#ifndef PV_KERNELS_CUDA_MATMUL_FEW_NARROW_HOPPER_CUH
#define PV_KERNELS_CUDA_MATMUL_FEW_NARROW_HOPPER_CUH

#include "kernels/cuda/matmul_few_hopper.cuh"

enum {
    NARROW_STEPS = 16, /* most steps of TILE_COLS columns */
    NARROW_COLS = 8,   /* rows of x per mma: its columns */
    MMA_ROWS = 16,     /* rows of the tile per mma */
    SUM_PAD = 4,       /* floats after a column of sums, against bank conflicts */
    BUNCH = 4,         /* steps that wgmma works on at a time */
    SUMMED = 1         /* barrier: all sums are stored */
};

struct narrow_args {
    CUtensorMap w[2], map; /* gate, up; map: x, if more than eight rows */
    const uint16_t *x;
    void *y;
    size_t y_stride;
    const float *bias[2];
    struct few_norm norm;
    int n, out, steps;
    int rows;              /* per half of a tile: gate's, then up's */
    int warps;             /* warps that multiply and find scales */
    int flight;            /* steps in flight */
    uint32_t part_inverse; /* inverse() for i / (parts of MMA_ROWS rows of a half) */
    int y_bf16;
};

__host__ __device__ static inline int narrow_step_size(int rows)
{
    return 2 * rows * ROW_BYTES;
}

/* Floats per row of x in the sums of a step, [n][2 rows and SUM_PAD]. The same memory holds x
 * first, so it must be large enough for that too. */
__host__ __device__ static inline int narrow_stride(int rows)
{
    return rows < MMA_ROWS ? TILE_COLS / 2 + SUM_PAD : 2 * rows + SUM_PAD;
}

#ifdef HOPPER_CODE

/* Addresses in shared memory. */
struct narrow_memory {
    unsigned char *w; /* [steps][2 rows][TILE_COLS], swizzled */
    unsigned char *x; /* if more than eight rows: [steps][N][TILE_COLS], swizzled */
    float *sums;      /* [steps][n][narrow_stride], or for all steps [N][SUM_STEP] */
    float *bias;      /* [2 rows] */
    float *scale;     /* of rows of x */
    uint32_t full;    /* barriers of the steps: weights have arrived; */
    uint32_t x_full;  /* x has arrived; */
    uint32_t x_empty; /* x has been used */
};

/* One thread: requests all weights of the tile. */
__device__ static inline void narrow_feed(const narrow_args &a, const narrow_memory &m)
{
    uint32_t to = shared_address(m.w), half = a.rows * ROW_BYTES;
    int row = (int)blockIdx.x * a.rows;
#pragma unroll 1
    for (int step = 0; step < a.steps; step++, to += 2 * half) {
        uint32_t full = m.full + step * 8;
        if (step >= a.flight)
            barrier_wait(full - a.flight * 8, 0);
        barrier_arrive_expect(full, 2 * half);
        load_box3_once(to, &a.w[0], full, 0, row, step);
        load_box3_once(to + half, &a.w[1], full, 0, row, step);
    }
}

__device__ static inline void narrow_take_bias(const narrow_args &a, float *to, int threads)
{
    for (int i = (int)threadIdx.x; i < 2 * a.rows; i += threads) {
        const float *bias = a.bias[i >= a.rows];
        int row = (int)blockIdx.x * a.rows + (i >= a.rows ? i - a.rows : i);
        to[i] = bias && row < a.out ? bias[row] : 0.0f;
    }
}

/* The place of a lane's output. A warp has 16 rows of a half for one row of x: lanes below 16 have
 * gate, the others up. */
struct narrow_place {
    int col, in_tile, row;
    bool there;
};

__device__ static inline narrow_place narrow_part(const narrow_args &a, int i)
{
    int parts = (a.rows + MMA_ROWS - 1) / MMA_ROWS;
    struct narrow_place p;
    p.col = divide(i, a.part_inverse);
    p.in_tile = (i - p.col * parts) * MMA_ROWS + (int)(threadIdx.x % 16);
    p.row = (int)blockIdx.x * a.rows + p.in_tile;
    p.there = p.in_tile < a.rows;
    return p;
}

/* Finish and store an output; v is the lane's sum. Called by a whole warp. */
__device__ static inline void narrow_store(const narrow_args &a, const narrow_place &p, float v,
                                           float scale, float bias, int m0)
{
    size_t to = (size_t)(m0 + p.col) * a.y_stride + (size_t)p.row;
    v = fmaf(v, scale, bias);
    v = opened(v, __shfl_xor_sync(0xffffffffu, v, 16));
    uint32_t bits = two_bf16(v, 0);
    if (threadIdx.x % 32 >= 16 || !p.there || p.row >= a.out)
        return;
    if (a.y_bf16)
        ((uint16_t *)a.y)[to] = (uint16_t)bits;
    else
        ((float *)a.y)[to] = v;
}

/* ---- up to eight rows ---- */

/* Load the step's columns of x as mma operands (the lane's column is row lane / 4 of x). All blocks
 * need the same lines of L2 at once, so it uses few requests, and goes through the memory of the
 * step's sums. Columns after the last row are copies of it, whose results are ignored. */
__device__ static inline void narrow_take_x(uint32_t (&b)[8], const narrow_args &a, float *sums,
                                            const uint16_t *x)
{
    int lane = (int)(threadIdx.x % 32), row = lane / 8, piece = lane % 8, from = lane % 8;
    unsigned char *at = (unsigned char *)sums;
    uint4 v[2] = {};
    load_if(v[0], (const uint4 *)x, row < a.n);
    load_if(v[1], (const uint4 *)(x + a.steps * TILE_COLS * 4), row + 4 < a.n);
    if (row < a.n)
        *(uint4 *)(at + row * ROW_BYTES + (piece ^ row) * 16) = v[0];
    if (row + 4 < a.n)
        *(uint4 *)(at + (row + 4) * ROW_BYTES + (piece ^ (row + 4)) * 16) = v[1];
    __syncwarp();
    from = from < a.n ? from : a.n - 1;
    load_matrix4(b, at + from * ROW_BYTES + ((lane / 8) ^ from) * 16);
    load_matrix4(b + 4, at + from * ROW_BYTES + ((lane / 8 + 4) ^ from) * 16);
}

/* Multiply the warp's step for all rows of the tile; the sums go to shared memory. */
__device__ static inline void narrow_multiply(const narrow_args &a, const unsigned char *w,
                                              float *sums, const uint32_t (&b)[8])
{
    unsigned lane = threadIdx.x % 32, piece = lane / 16 ^ lane % 8;
    int stride = narrow_stride(a.rows), col = (int)(lane % 4 * 2), tiles = a.rows / 8;
    int d1 = piece & 2 ? -32 : 32, d2 = piece & 4 ? -64 : 64; /* to the pieces 2 and 4 further */
    w += lane % 16 * ROW_BYTES + piece * 16;
    sums += col * stride + (int)(lane / 4);
#pragma unroll 1
    do {
        uint32_t f[4][4];
        float c[4];
        load_matrix4(f[0], w);
        load_matrix4(f[1], w + d1);
        load_matrix4(f[2], w + d2);
        load_matrix4(f[3], w + d1 + d2);
        mma_bf16_first(c, f[0], b);
        mma_bf16(c, f[1], b + 2);
        mma_bf16(c, f[2], b + 4);
        mma_bf16(c, f[3], b + 6);
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (col + e < a.n) {
                sums[e * stride] = c[e];
                sums[e * stride + 8] = c[2 + e];
            }
        w += MMA_ROWS * ROW_BYTES;
        sums += MMA_ROWS;
    } while (--tiles > 0);
}

/* Add up an output's sums of all steps in order; they are `size` floats apart. */
template <int STEPS>
__device__ static inline float narrow_add(const float *sums, int size, int steps)
{
    constexpr int most = STEPS ? STEPS : NARROW_STEPS;
    float s[most], v = 0;
#pragma unroll
    for (int i = 0; i < most; i++, sums += size)
        s[i] = STEPS || i < steps ? *sums : 0;
#pragma unroll
    for (int i = 0; i < most; i++)
        v += s[i];
    return v;
}

template <int STEPS>
__device__ static inline void narrow_finish(const narrow_args &a, const narrow_memory &m)
{
    int items = a.n * ((a.rows + MMA_ROWS - 1) / MMA_ROWS), stride = narrow_stride(a.rows);
#pragma unroll 1
    for (int i = (int)(threadIdx.x / 32); i < items; i += a.warps) {
        struct narrow_place p = narrow_part(a, i);
        int at = !p.there ? 0 : threadIdx.x % 32 < 16 ? p.in_tile : a.rows + p.in_tile;
        float v = narrow_add<STEPS>(m.sums + p.col * stride + at, a.n * stride, a.steps);
        narrow_store(a, p, v, m.scale[p.col], m.bias[at], 0);
    }
}

/* This lane's share of a row's sum of squares, in the order of norm_take; 1024 elements fill a
 * warp. */
__device__ static inline float narrow_take_norm(const narrow_args &a, int row)
{
    int lane = (int)(threadIdx.x % 32), octets = a.steps * (TILE_COLS / NORM_OCTET);
    float4 v = make_float4(0, 0, 0, 0);
    load_if(v, (const float4 *)(a.norm.squares + (int64_t)row * octets) + lane, lane * 4 < octets);
    return v.x + v.y + v.z + v.w;
}

template <int STEPS>
__device__ static inline void narrow_one_row(const narrow_args &a, const narrow_memory &m)
{
    int step = (int)(threadIdx.x / 32), lane = (int)(threadIdx.x % 32);
    int mine = a.warps - 1 - step; /* the row whose scale this warp finds */
    const uint16_t *x = a.x + (lane / 8 * a.steps + step) * TILE_COLS + lane % 8 * 8;
    float *sums = m.sums + step * a.n * narrow_stride(a.rows);
    float squares = 0;
    settle(x);
    dep_wait();
    if (mine < a.n && a.norm.squares)
        squares = narrow_take_norm(a, mine);
    if (step < a.steps) {
        uint32_t b[8];
        narrow_take_x(b, a, sums, x);
        barrier_wait(m.full + step * 8, 0);
        narrow_multiply(a, m.w + step * narrow_step_size(a.rows), sums, b);
    }
    if (mine < a.n) {
        float s = a.norm.squares ? norm_end(squares, a.steps * TILE_COLS, a.norm.eps) : 1.0f;
        if (lane == 0)
            m.scale[mine] = s;
    }
    named_sync(SUMMED, a.warps * 32);
    narrow_finish<STEPS>(a, m);
}

/* ---- more rows, N at a time ---- */

/* One thread: requests x, once the preceding kernel has written it. */
template <int N>
__device__ static inline void narrow_feed_x(const narrow_args &a, const narrow_memory &m)
{
    uint32_t to = shared_address(m.x);
    map_prefetch(&a.map);
    dep_wait();
    global_written();
    for (int m0 = 0, parity = 1; m0 < a.n; m0 += N, parity ^= 1)
#pragma unroll 1
        for (int step = 0; step < a.steps; step++) {
            barrier_wait(m.x_empty + step * 8, parity);
            barrier_arrive_expect(m.x_full + step * 8, N * ROW_BYTES);
            load_box3(to + step * N * ROW_BYTES, &a.map, m.x_full + step * 8, 0, m0, step);
        }
}

/* Sum over all of K, BUNCH steps at a time: chains of four in turn, because a wgmma waits for an
 * earlier one that adds to the same accumulator. After the last step it is repeated, and the result
 * replaced by zero. Adding zero changes nothing, because sums that start from zero are never minus
 * zero. (There are no branches, which are not possible while a wgmma is in flight.) */
template <int N>
__device__ static inline void narrow_walk(float (&sum)[N / 2], const narrow_args &a,
                                          const narrow_memory &m, int parity)
{
    uint32_t w = shared_address(m.w) + (int)threadIdx.x / 128 * (a.rows * ROW_BYTES);
    uint32_t x = shared_address(m.x), size = narrow_step_size(a.rows);
    int lane = (int)(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < N / 2; r++)
        sum[r] = 0;
#pragma unroll 1
    for (int first = 0; first < a.steps; first += BUNCH) {
        float c[BUNCH][N / 2];
        int step[BUNCH];
#pragma unroll
        for (int i = 0; i < BUNCH; i++) {
            step[i] = first + i < a.steps ? first + i : a.steps - 1;
            barrier_wait(m.full + step[i] * 8, 0);
            barrier_wait(m.x_full + step[i] * 8, parity);
        }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++)
#pragma unroll
            for (int i = 0; i < BUNCH; i++)
                wgmma_shared<N>(c[i], tile_descriptor(w + step[i] * size + k * 32, 0),
                                tile_descriptor(x + step[i] * N * ROW_BYTES + k * 32, 0), k > 0);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < BUNCH; i++) {
            uint32_t there = first + i < a.steps ? ~0u : 0;
            pin(c[i]);
#pragma unroll
            for (int r = 0; r < N / 2; r++)
                sum[r] += __uint_as_float(__float_as_uint(c[i][r]) & there);
        }
        if (lane < BUNCH && first + lane < a.steps)
            barrier_arrive(m.x_empty + (first + lane) * 8);
    }
}

template <int N>
__device__ static inline void narrow_many(const narrow_args &a, const narrow_memory &m)
{
    int parts = (a.rows + MMA_ROWS - 1) / MMA_ROWS;
#pragma unroll 1
    for (int m0 = 0, parity = 0; m0 < a.n; m0 += N, parity ^= 1) {
        int items = (a.n - m0 < N ? a.n - m0 : N) * parts;
        float sum[N / 2];
        narrow_walk<N>(sum, a, m, parity);
        if (m0 > 0)
            named_sync(DONE, CONSUMERS);
        else
            named_sync(SCALED, CONSUMERS + scalers(N));
        put_sums<N>(sum, m.sums);
        named_sync(MET, CONSUMERS);
#pragma unroll 1
        for (int i = (int)(threadIdx.x / 32); i < items; i += CONSUMERS / 32) {
            struct narrow_place p = narrow_part(a, i);
            bool up = threadIdx.x % 32 >= 16;
            int at = p.there ? p.in_tile : 0;
            narrow_store(a, p, m.sums[p.col * SUM_STEP + (up ? GROUP : 0) + at],
                         m.scale[m0 + p.col], m.bias[(up ? a.rows : 0) + at], m0);
        }
    }
}

/* The other warps: find the rows' scales. */
template <int N>
__device__ static inline void narrow_scales(const narrow_args &a, const narrow_memory &m)
{
    int warp = ((int)threadIdx.x - CONSUMERS - PRODUCERS) / 32, lane = (int)(threadIdx.x % 32);
    dep_wait();
#pragma unroll 1
    for (int row = warp; row < a.n; row += scalers(N) / 32) {
        float s = 1;
        if (a.norm.squares)
            s = norm_end(narrow_take_norm(a, row), a.steps * TILE_COLS, a.norm.eps);
        if (lane == 0)
            m.scale[row] = s;
    }
    named_arrive(SCALED, CONSUMERS + scalers(N));
}

#endif
#endif
