#include "tensor/spread.h"

#include <stdint.h>

struct part split_evenly(int n, int n_ranks, int rank)
{
    return (struct part){ (int)((int64_t)n * rank / n_ranks),
                          (int)((int64_t)n * (rank + 1) / n_ranks) };
}

struct part split_steps(int n, int step, int least, int n_ranks, int rank)
{
    struct part p;
    if (n < 2 * step * n_ranks)
        step = least;
    p = split_evenly((n + step - 1) / step, n_ranks, rank);
    p.from = p.from * step < n ? p.from * step : n;
    p.to = p.to * step < n ? p.to * step : n;
    return p;
}

struct head_part split_heads(int n_heads, int n_kv_heads, int n_ranks, int rank)
{
    int group = n_heads / n_kv_heads;
    struct head_part h;
    if (n_ranks <= n_kv_heads) {
        h.kv = split_evenly(n_kv_heads, n_ranks, rank);
        h.q = (struct part){ h.kv.from * group, h.kv.to * group };
    } else {
        int head = rank * n_kv_heads / n_ranks; /* the ranks of a KV head: [first, end) */
        int first = (head * n_ranks + n_kv_heads - 1) / n_kv_heads;
        int end = ((head + 1) * n_ranks + n_kv_heads - 1) / n_kv_heads;
        struct part in_group = split_evenly(group, end - first, rank - first);
        h.kv = (struct part){ head, head + 1 };
        h.q = (struct part){ head * group + in_group.from, head * group + in_group.to };
    }
    return h;
}
