/* Reductions over a row: norms and argmax. One pass over memory, 16 bytes per access where
 * addresses allow. The order of a sum depends only on the row's length: element 4 (t + T j) + e
 * belongs to thread t of the T threads that share a row, and a thread adds its elements in
 * ascending order; threads are then added in pairs, warps from first to last. */
#include "kernels/cuda/element.h"
#include "kernels/cuda/norm.h"

namespace {

enum {
    THREADS = ELEMENT_THREADS,
    WARPS = THREADS / 32,
    ARGMAX_PART = 8192 /* elements per block */
};

/* ---- norms ---- */

/* Load four elements of a row from i on; zero after its end. */
template <class T> __device__ inline float4 load4(const T *row, int i, int dim, bool vec)
{
    float v[4] = { 0, 0, 0, 0 };
    if (vec && i < dim)
        load_vec<4>(v, row + i);
    else
        for (int e = 0; e < 4; e++)
            v[e] = i + e < dim ? to_float(row[i + e]) : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

template <class T> __device__ inline void store4(T *row, int i, int dim, bool vec, float4 f)
{
    float v[4] = { f.x, f.y, f.z, f.w };
    if (vec && i < dim)
        store_vec<4>(row + i, v);
    else
        for (int e = 0; e < 4 && i + e < dim; e++)
            from_float(row + i + e, v[e]);
}

/* The sum over the T threads of a row, returned to all of them. Two arrays are used in turn, so
 * that one barrier is enough. */
template <int T> __device__ inline float row_sum(float v, float (*shared)[WARPS], int *turn)
{
    v = warp_sum(v);
    if (T == 32)
        return v;
    float *s = shared[*turn];
    *turn ^= 1;
    if (threadIdx.x % 32 == 0)
        s[threadIdx.x / 32] = v;
    __syncthreads();
    v = s[0];
#pragma unroll
    for (int i = 1; i < WARPS; i++)
        v += s[i];
    return v;
}

__device__ inline float squares(float sum, float4 f, float mean, int i, int dim, bool vec)
{
    float v[4] = { f.x - mean, f.y - mean, f.z - mean, f.w - mean };
#pragma unroll
    for (int e = 0; e < 4; e++)
        sum += (vec ? i : i + e) < dim ? v[e] * v[e] : 0.0f;
    return sum;
}

__device__ inline float4 normed(float4 x, float mean, float scale, float4 w, float4 b)
{
    return make_float4((x.x - mean) * scale * w.x + b.x, (x.y - mean) * scale * w.y + b.y,
                       (x.z - mean) * scale * w.z + b.z, (x.w - mean) * scale * w.w + b.w);
}

__device__ inline float4 scaled(float4 x, float scale, float4 w)
{
    return make_float4(w.x * (x.x * scale), w.y * (x.y * scale), w.z * (x.z * scale),
                       w.w * (x.w * scale));
}

struct norm_job {
    const float *x, *weight, *bias;
    const int32_t *rows; /* rows of x; NULL: the first n */
    int n, dim;
    float eps;
    bool vec; /* accesses of four elements are aligned */
};

/* Blocks per multiprocessor, which limits registers: norms of towers need many bytes in flight. */
constexpr int norm_blocks(int pieces, bool ln)
{
    return pieces == 9 || pieces == 10 ? (ln ? 3 : 4) : pieces > 6 ? 2 : 3;
}

/* T threads per row, each with NV groups of four elements in registers. Weights are loaded before
 * the row has been written. LayerNorm (LN) computes the mean first, then the squares of the
 * differences. For aligned rows only. */
template <int T, int NV, bool LN, class Y>
__global__ void __launch_bounds__(THREADS, norm_blocks(NV, LN)) norm_kernel(Y *y, struct norm_job j)
{
    __shared__ float shared[2][WARPS];
    constexpr bool KEEP = NV <= 8 && !LN;
    const int t = (int)threadIdx.x % T, first = 4 * t, rows = THREADS / T;
    int turn = 0;
    float4 x[NV], wt[KEEP ? NV : 1];

    dep_launch();
    if (KEEP)
#pragma unroll
        for (int i = 0; i < NV; i++)
            wt[KEEP ? i : 0] = load4(j.weight, first + 4 * T * i, j.dim, true);
    dep_wait();
    for (int r = (int)blockIdx.x * rows + (int)threadIdx.x / T; r < j.n; r += gridDim.x * rows) {
        const float *row = j.x + (size_t)(j.rows ? j.rows[r] : r) * j.dim;
        Y *out = y + (size_t)r * j.dim;
        float sum = 0, mean = 0;
#pragma unroll
        for (int i = 0; i < NV; i++)
            x[i] = load4(row, first + 4 * T * i, j.dim, true);
        if (LN) {
#pragma unroll
            for (int i = 0; i < NV; i++)
                sum = sum + x[i].x + x[i].y + x[i].z + x[i].w;
            mean = row_sum<T>(sum, shared, &turn) / (float)j.dim;
            sum = 0;
        }
#pragma unroll
        for (int i = 0; i < NV; i++)
            sum = squares(sum, x[i], mean, first + 4 * T * i, j.dim, true);
        float scale = 1.0f / sqrtf(row_sum<T>(sum, shared, &turn) / (float)j.dim + j.eps);
#pragma unroll
        for (int i = 0; i < NV; i++) {
            int e = first + 4 * T * i;
            float4 w4 = KEEP ? wt[KEEP ? i : 0] : load4(j.weight, e, j.dim, true);
            float4 f = LN ? normed(x[i], mean, scale, w4, load4(j.bias, e, j.dim, true))
                          : scaled(x[i], scale, w4);
            store4(out, e, j.dim, true, f);
        }
    }
}

/* The same for rows that do not fit in registers or whose length is not a multiple of four: they
 * are read two or three times. */
template <class Y>
__global__ void __launch_bounds__(THREADS) norm_long_kernel(Y *y, struct norm_job j)
{
    __shared__ float shared[2][WARPS];
    const int first = 4 * (int)threadIdx.x, step = 4 * THREADS;
    int turn = 0;

    dep_launch();
    dep_wait();
    for (int r = (int)blockIdx.x; r < j.n; r += gridDim.x) {
        const float *row = j.x + (size_t)(j.rows ? j.rows[r] : r) * j.dim;
        Y *out = y + (size_t)r * j.dim;
        float sum = 0, mean = 0;
        if (j.bias) {
            for (int i = first; i < j.dim; i += step) {
                float4 f = load4(row, i, j.dim, j.vec);
                sum = sum + f.x + f.y + f.z + f.w;
            }
            mean = row_sum<THREADS>(sum, shared, &turn) / (float)j.dim;
            sum = 0;
        }
        for (int i = first; i < j.dim; i += step)
            sum = squares(sum, load4(row, i, j.dim, j.vec), mean, i, j.dim, j.vec);
        float scale = 1.0f / sqrtf(row_sum<THREADS>(sum, shared, &turn) / (float)j.dim + j.eps);
        for (int i = first; i < j.dim; i += step) {
            float4 f = load4(row, i, j.dim, j.vec), w4 = load4(j.weight, i, j.dim, j.vec);
            f = j.bias ? normed(f, mean, scale, w4, load4(j.bias, i, j.dim, j.vec))
                       : scaled(f, scale, w4);
            store4(out, i, j.dim, j.vec, f);
        }
    }
}

template <int T, int NV, class Y>
void norm_launch(struct device_work *w, Y *y, const struct norm_job *j)
{
    work_check(w,
               launch(j->bias ? norm_kernel<T, NV, true, Y> : norm_kernel<T, NV, false, Y>,
                      grid_for(w, (size_t)j->n * T), dim3(THREADS), 0, w->stream, y, *j),
               "norm");
}

template <class Y> void norm_any(struct device_work *w, Y *y, const struct norm_job *j)
{
    if (j->dim > 8192 || !j->vec)
        work_check(w,
                   launch(norm_long_kernel<Y>, grid_for(w, (size_t)j->n * THREADS), dim3(THREADS),
                          0, w->stream, y, *j),
                   "norm");
    else if (j->dim <= 512)
        norm_launch<32, 4>(w, y, j);
    else if (j->dim <= 1024)
        norm_launch<32, 8>(w, y, j);
    else if (j->dim <= 1152) /* exact for the widths of towers */
        norm_launch<32, 9>(w, y, j);
    else if (j->dim <= 1280)
        norm_launch<32, 10>(w, y, j);
    else if (j->dim <= 1536)
        norm_launch<32, 12>(w, y, j);
    else if (j->dim <= 4096)
        norm_launch<THREADS, 4>(w, y, j);
    else if (j->dim <= 6144)
        norm_launch<THREADS, 6>(w, y, j);
    else
        norm_launch<THREADS, 8>(w, y, j);
}

/* One thread per element; a row is whole warps. */
__global__ void __launch_bounds__(THREADS)
    norm_prepare_kernel(uint16_t *xn, float *sums, const float *x, const float *weight, int dim,
                        size_t size)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    dep_launch();
    dep_wait();
    if (i >= size)
        return;
    float v = x[i], s = octet_squares(v, 1);
    xn[i] = (uint16_t)bf16_bits(v * weight[i % (size_t)dim]);
    if (i % NORM_OCTET == 0)
        sums[i / NORM_OCTET] = s;
}

/* ---- argmax ---- */

/* A key that is larger for larger x and, among equal x, for lower indices; NaN is below all. */
__device__ inline uint64_t rank_of(float x, int i)
{
    uint32_t u = __float_as_uint(x + 0.0f); /* turns -0 into 0 */
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)(x == x ? u : 0) << 32 | (uint32_t) ~(uint32_t)i;
}

__device__ inline uint64_t warp_most(uint64_t v)
{
#pragma unroll
    for (int i = 16; i; i >>= 1) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, (unsigned long long)v, i);
        v = other > v ? other : v;
    }
    return v;
}

__device__ inline bool not_finite(float x)
{
    return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u;
}

/* best[row][part]; blockIdx.x is the part, blockIdx.y the row. ids: written directly if there is
 * one part. *bad is set if a number is not finite. */
__global__ void __launch_bounds__(THREADS)
    argmax_part_kernel(uint64_t *best, int32_t *ids, int *bad, const float *x, int dim, bool vec)
{
    __shared__ uint64_t shared[WARPS];
    const float *row = x + (size_t)blockIdx.y * dim;
    const int begin = (int)blockIdx.x * ARGMAX_PART;
    const int end = dim - begin < ARGMAX_PART ? dim : begin + ARGMAX_PART;
    uint64_t most = 0;
    bool wrong = false;

    dep_launch();
    dep_wait();
#pragma unroll 4
    for (int i = begin + 4 * (int)threadIdx.x; i < end; i += 4 * THREADS) {
        float v[4];
        if (vec)
            load_vec<4>(v, row + i);
        else
            for (int e = 0; e < 4; e++)
                v[e] = i + e < end ? row[i + e] : 0.0f;
        for (int e = 0; e < 4; e++) {
            uint64_t r = vec || i + e < end ? rank_of(v[e], i + e) : 0;
            most = r > most ? r : most;
            wrong = wrong || not_finite(v[e]);
        }
    }
    if (wrong)
        *bad = 1;
    most = warp_most(most);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < WARPS; i++)
            most = shared[i] > most ? shared[i] : most;
        if (ids)
            ids[blockIdx.y] = (int32_t) ~(uint32_t)most;
        else
            best[(size_t)blockIdx.y * gridDim.x + blockIdx.x] = most;
    }
}

/* One warp per row. */
__global__ void argmax_join_kernel(int32_t *ids, const uint64_t *best, int parts)
{
    uint64_t most = 0;

    dep_launch();
    dep_wait();
    for (int i = (int)threadIdx.x; i < parts; i += 32) {
        uint64_t r = best[(size_t)blockIdx.x * parts + i];
        most = r > most ? r : most;
    }
    most = warp_most(most);
    if (threadIdx.x == 0)
        ids[blockIdx.x] = (int32_t) ~(uint32_t)most;
}

} // namespace

static void norm_typed(struct device_work *w, void *y, enum dtype y_dtype, struct norm_job j)
{
    j.vec = j.dim % 4 == 0 && aligned(j.x) && aligned(y) && aligned(j.weight) &&
            (!j.bias || aligned(j.bias));
    if (j.n <= 0)
        return;
    if (y_dtype == DTYPE_BF16)
        norm_any(w, (bf16 *)y, &j);
    else if (y_dtype == DTYPE_F32)
        norm_any(w, (float *)y, &j);
    else
        unknown_type(w, "norm");
}

void norm_rows(struct device_work *w, void *y, enum dtype y_dtype, const float *x,
               const float *weight, const float *bias, int n, int dim, float eps)
{
    norm_typed(w, y, y_dtype, norm_job{ x, weight, bias, NULL, n, dim, eps, false });
}

void norm_some_rows(struct device_work *w, void *y, enum dtype y_dtype, const float *x,
                    const int32_t *rows, const float *weight, int n, int dim, float eps)
{
    norm_typed(w, y, y_dtype, norm_job{ x, weight, NULL, rows, n, dim, eps, false });
}

/* The results of the parts go to full_scratch, where no operation keeps anything. */
void argmax_rows(struct device_work *w, int32_t *ids, const float *x, int n, int dim)
{
    uint64_t *best = (uint64_t *)w->full_scratch;
    int parts = (dim + ARGMAX_PART - 1) / ARGMAX_PART;
    size_t room = w->full_size / (sizeof *best * (size_t)parts);
    int most = room < 65535 ? (int)room : 65535;
    bool vec = aligned(x) && dim % 4 == 0;

    if (n > 0 && most == 0)
        work_check(w, cudaErrorMemoryAllocation, "argmax");
    for (int r = 0; r < n && most > 0; r += most) {
        int rows = n - r < most ? n - r : most;
        work_check(w,
                   launch(argmax_part_kernel, dim3((unsigned)parts, (unsigned)rows), dim3(THREADS),
                          0, w->stream, best, parts == 1 ? ids + r : (int32_t *)NULL, w->not_finite,
                          x + (size_t)r * dim, dim, vec),
                   "argmax");
        if (parts == 1)
            continue;
        work_check(w,
                   launch(argmax_join_kernel, dim3((unsigned)rows), dim3(32), 0, w->stream, ids + r,
                          best, parts),
                   "argmax");
    }
}

void norm_prepare(struct device_work *w, uint16_t *xn, float *sums, const float *x,
                  const float *weight, int n, int dim)
{
    size_t size = (size_t)n * (size_t)dim;
    work_check(w,
               launch(norm_prepare_kernel, dim3((unsigned)((size + THREADS - 1) / THREADS)),
                      dim3(THREADS), 0, w->stream, xn, sums, x, weight, dim, size),
               "norm");
}
