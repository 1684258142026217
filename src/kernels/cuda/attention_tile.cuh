/* Attention of 16 rows over a tile of keys on the tensor cores; shared by attention_few.cu and
 * columns.cu. A tile is stored in shared memory as rows of D elements (heads are padded with zeros
 * to D). The 16-byte pieces of a row are permuted so that the same piece of 8 rows is in different
 * banks. */
#ifndef PV_KERNELS_CUDA_ATTENTION_TILE_CUH
#define PV_KERNELS_CUDA_ATTENTION_TILE_CUH

#include "kernels/cuda/cuda.h"

#include <math.h>

enum { KEYS = 64 }; /* positions of a tile */

/* Index of piece c (8 elements) of row r. */
template <int D> __device__ static inline int piece_at(int r, int c)
{
    return r * D + (c ^ (r & 7)) * 8;
}

/* Load queries as the left operand, 16 columns at a time: `lo` is row lane / 4, `hi` row lane / 4 +
 * 8; NULL: zeros. EXACT: d equals D. */
template <int D, bool EXACT>
__device__ static inline void load_queries(uint32_t q[D / 16][4], const uint16_t *lo,
                                           const uint16_t *hi, int d)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint16_t *from = h ? hi : lo;
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
#pragma unroll
            for (int side = 0; side < 2; side++) {
                int c = i * 16 + side * 8 + (int)threadIdx.x % 4 * 2;
                q[i][side * 2 + h] = from && (EXACT || c < d) ? *(const uint32_t *)(from + c) : 0;
            }
        }
    }
}

/* Scores of 16 rows and 16 N keys from row `key` of the tile on. s[i] has keys 8 i and following:
 * [0] and [1] of row lane / 4, [2] and [3] of row lane / 4 + 8. */
template <int D, int N>
__device__ static inline void tile_scores(float s[2 * N][4], const uint32_t q[D / 16][4],
                                          const uint16_t *k, int key)
{
    int lane = (int)threadIdx.x % 32, row = key + lane % 8 + lane / 16 * 8, side = lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            uint32_t b[4];
            load_matrix4(b, k + piece_at<D>(row + j * 16, i * 2 + side));
            mma_bf16(s[2 * j], q[i], b);
            mma_bf16(s[2 * j + 1], q[i], b + 2);
        }
    }
}

/* A thread's state of its rows lane / 4 and lane / 4 + 8 of 16. */
struct tile_rows {
    int limit[2]; /* number of positions seen */
    float max[2];
    float sum[4]; /* as mma gives it: only [0] and [2] are used */
};

/* Turn the scores of a tile into probabilities relative to the rows' maximum so far, as the left
 * operand. Earlier sums must be multiplied by `factor`. */
__device__ static inline void probabilities(uint32_t p[KEYS / 16][4], float factor[2],
                                            float s[KEYS / 8][4], struct tile_rows *r,
                                            const int seen[2], float scale)
{
    int lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
    float base[2];
    if (seen[0] < KEYS || seen[1] < KEYS) {
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i * 8 + col + j % 2 >= seen[j / 2])
                    s[i][j] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
        for (int i = 1; i < KEYS / 8; i++)
            top = fmaxf(top, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(top, r->max[h]);
        factor[h] = top == r->max[h] ? 1.0f : exp2_fast((r->max[h] - top) * scale);
        base[h] = top == -INFINITY ? 0.0f : top * scale;
        r->max[h] = top;
    }
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            p[i / 2][i % 2 * 2 + h] = pack_bf16(exp2_fast(fmaf(s[i][2 * h], scale, -base[h])),
                                                exp2_fast(fmaf(s[i][2 * h + 1], scale, -base[h])));
    }
}

/* out [16, 8 N] += p v for the columns from `column` on; also adds up the sums. */
template <int D, int N>
__device__ static inline void add_values(float out[N][4], struct tile_rows *r,
                                         const float factor[2], const uint32_t p[KEYS / 16][4],
                                         const uint16_t *v, int column)
{
    const uint32_t ones[2] = { 0x3f803f80u, 0x3f803f80u };
    int lane = (int)threadIdx.x % 32, row = lane % 16, piece = column / 8 + lane / 16;
    if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            r->sum[j] *= factor[j / 2];
#pragma unroll
            for (int i = 0; i < N; i++)
                out[i][j] *= factor[j / 2];
        }
    }
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
        mma_bf16(r->sum, p[i], ones);
#pragma unroll
        for (int j = 0; j < N / 2; j++) {
            uint32_t b[4];
            load_matrix4_trans(b, v + piece_at<D>(row + i * 16, piece + j * 2));
            mma_bf16(out[2 * j], p[i], b);
            mma_bf16(out[2 * j + 1], p[i], b + 2);
        }
    }
}

#endif
