/* Attention of one query to the rows of its window, in plain C. The CPU has no faster kernel for
 * it, because it takes about a thousandth of the time of computing its keys and values. Each sum
 * runs in ascending order. */
#include "kernels/kernels.h"

#include <math.h>

/* Scores are computed twice, for the maximum and for the sums. Nothing is stored per row, so a
 * window may have any length. */
static float score(const struct window_attn_job *j, const float *q, int row, int head)
{
    const float *k = j->k + ((size_t)row * (size_t)j->n_heads + (size_t)head) * (size_t)j->d;
    float sum = 0;
    for (int i = 0; i < j->d; i++)
        sum += q[i] * k[i];
    return sum * j->scale;
}

static void attend(const struct window_attn_job *j, int query, int head)
{
    size_t at = ((size_t)query * (size_t)j->n_heads + (size_t)head) * (size_t)j->d;
    const float *q = j->q + at;
    float *out = j->out + at, most = -INFINITY, sum = 0;
    int row0 = query * j->window;
    for (int t = 0; t < j->window; t++)
        most = fmaxf(most, score(j, q, row0 + t, head));
    for (int i = 0; i < j->d; i++)
        out[i] = 0;
    for (int t = 0; t < j->window; t++) {
        const float *v =
            j->v + ((size_t)(row0 + t) * (size_t)j->n_heads + (size_t)head) * (size_t)j->d;
        float p = expf(score(j, q, row0 + t, head) - most);
        sum += p;
        for (int i = 0; i < j->d; i++)
            out[i] += p * v[i];
    }
    for (int i = 0; i < j->d; i++)
        out[i] /= sum;
}

void window_attention_ref(const struct window_attn_job *job, int begin, int end)
{
    for (int query = begin; query < end; query++)
        for (int head = 0; head < job->n_heads; head++)
            attend(job, query, head);
}
