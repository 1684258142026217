/* Attention of one query to the rows of its window (struct window_attn_job). One warp for each
 * query and head walks the window's rows in order and keeps the largest score, the sum and the
 * output so far; element i of a head belongs to lane i % 32. */
#include "kernels/cuda/element.h"

namespace {

enum {
    THREADS = ELEMENT_THREADS,
    WARPS = THREADS / 32,
    LANE_ELEMENTS = DEVICE_MAX_HEAD_DIM / 32 /* most elements per lane */
};

__global__ void __launch_bounds__(THREADS) window_kernel(struct window_attn_job j)
{
    const int lane = (int)threadIdx.x % 32;
    const long long item = (long long)blockIdx.x * WARPS + threadIdx.x / 32;
    const size_t at = (size_t)item * (size_t)j.d, row = (size_t)j.n_heads * (size_t)j.d;
    float q[LANE_ELEMENTS], out[LANE_ELEMENTS], most = -INFINITY, sum = 0;

    dep_launch();
    dep_wait();
    if (item >= (long long)j.n * j.n_heads)
        return;
    const size_t first = (size_t)(item / j.n_heads) * (size_t)j.window * row +
                         (size_t)(item % j.n_heads) * (size_t)j.d;
#pragma unroll
    for (int e = 0; e < LANE_ELEMENTS; e++) {
        int i = lane + 32 * e;
        q[e] = i < j.d ? j.q[at + i] : 0.0f;
        out[e] = 0;
    }
    for (int t = 0; t < j.window; t++) {
        const float *k = j.k + first + (size_t)t * row, *v = j.v + first + (size_t)t * row;
        float score = 0;
#pragma unroll
        for (int e = 0; e < LANE_ELEMENTS; e++)
            score += lane + 32 * e < j.d ? q[e] * k[lane + 32 * e] : 0.0f;
        score = warp_sum(score) * j.scale;
        float larger = fmaxf(most, score), before = expf(most - larger), p = expf(score - larger);
        sum = sum * before + p;
#pragma unroll
        for (int e = 0; e < LANE_ELEMENTS; e++)
            if (lane + 32 * e < j.d)
                out[e] = out[e] * before + p * v[lane + 32 * e];
        most = larger;
    }
#pragma unroll
    for (int e = 0; e < LANE_ELEMENTS; e++)
        if (lane + 32 * e < j.d)
            j.out[at + lane + 32 * e] = out[e] / sum;
}

} // namespace

void attention_windows(struct device_work *w, const struct window_attn_job *job)
{
    size_t items = (size_t)job->n * (size_t)job->n_heads;
    if (items == 0)
        return;
    work_check(w,
               launch(window_kernel, dim3((unsigned)((items + WARPS - 1) / WARPS)), dim3(THREADS),
                      0, w->stream, *job),
               "attention of windows");
}
