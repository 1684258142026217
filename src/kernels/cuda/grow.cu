/* Draft trees that grow on the GPU: chooses which of the candidates run in the next level, so that
 * the host need not be asked between levels. One thread per candidate. A candidate's rank is the
 * number of better ones, and its row the number of chosen ones before it. Scores are computed as in
 * spec/grow.c, which draws the same tree from the same logits. */
#include "kernels/cuda/cuda.h"

enum { CANDIDATES = DEVICE_MAX_LEVEL * DEVICE_MAX_LEVEL };

struct grow_args {
    struct grow_job job;
    int32_t *parents; /* of the tree's rows without the root; -1: the root */
};

/* Row i of the next level is the candidate of this number; -1: it is left over. */
__device__ static void set_row(const struct grow_args &a, int i, int candidate, float score)
{
    const struct grow_job &j = a.job;
    int row = j.row0 + j.n + i, above = candidate < 0 ? 0 : candidate / j.k;
    int32_t id = candidate < 0 ? -1 : j.top[candidate].id;
    j.next[i] = j.id[row] = id < 0 ? 0 : id;
    j.score[row] = score;
    j.above[row] = above;
    a.parents[row - 1] = above - 1;
}

__global__ static void grow_kernel(const struct grow_args a)
{
    __shared__ float scores[CANDIDATES];
    __shared__ bool chosen[CANDIDATES];
    const struct grow_job &j = a.job;
    int me = (int)threadIdx.x, n = j.n * j.k, better = 0, before = 0;
    float score = -INFINITY;
    bool real = false;
    dep_launch();
    dep_wait();
    if (j.named) {
        if (me < j.n_next)
            set_row(a, me, j.next[me], 0);
        return;
    }
    if (me < n) {
        int row = j.row0 + me / j.k;
        struct top_entry e = j.top[j.row0 * j.k + me];
        real = e.id >= 0;
        score =
            (row > 0 ? j.score[row] : 0) + (float)fmin((double)e.logit - (double)j.mass[row], 0.0);
    }
    scores[me] = score;
    chosen[me] = real;
    __syncthreads();
    for (int i = 0; i < n; i++)
        better += chosen[i] && (scores[i] > score || (scores[i] == score && i < me));
    __syncthreads();
    chosen[me] = real && better < j.n_next;
    __syncthreads();
    for (int i = 0; i < n; i++)
        before += chosen[i] && i < me;
    if (chosen[me])
        set_row(a, before, j.row0 * j.k + me, score);
    /* The last thread counts all: it is not below any other. */
    for (int i = before + chosen[me]; me == CANDIDATES - 1 && i < j.n_next; i++)
        set_row(a, i, -1, -INFINITY);
}

void grow_rows(struct device_work *w, const struct grow_job *job)
{
    struct grow_args a = { *job, w->grown + job->run * w->grown_rows };
    if (!w->grown || job->row0 + job->n + job->n_next - 1 > w->grown_rows ||
        job->n * job->k > CANDIDATES || job->n_next > DEVICE_MAX_LEVEL) {
        work_check(w, cudaErrorInvalidValue, "a tree that does not fit its plan");
        return;
    }
    work_check(w, launch(grow_kernel, dim3(1), dim3(CANDIDATES), 0, w->stream, a),
               "the next level of a tree");
}
