/* Parts are contiguous and in the order of ranks, so that what is gathered lies in order. Outputs
 * are cut at multiples of OUT_STEP, the most that a kernel computes together, where there are
 * enough of them. */
#include "dist/parts_of_ranks.h"

enum { OUT_STEP = 16 };

static struct part share(int n, int n_ranks, int rank)
{
    return (struct part){ (int)((int64_t)n * rank / n_ranks),
                          (int)((int64_t)n * (rank + 1) / n_ranks) };
}

struct part split_outputs(int out, int n_ranks, int rank)
{
    int step = out >= 2 * OUT_STEP * n_ranks ? OUT_STEP : 1;
    struct part p = share((out + step - 1) / step, n_ranks, rank);
    p.from *= step;
    p.to = p.to * step < out ? p.to * step : out;
    return p;
}

struct part split_experts(int n_experts, int n_ranks, int rank)
{
    return share(n_experts, n_ranks, rank);
}

struct head_part split_heads(int n_heads, int n_kv_heads, int n_ranks, int rank)
{
    int group = n_heads / n_kv_heads;
    struct head_part h;
    if (n_ranks <= n_kv_heads) {
        h.kv = share(n_kv_heads, n_ranks, rank);
        h.q = (struct part){ h.kv.from * group, h.kv.to * group };
    } else {
        int head = rank * n_kv_heads / n_ranks; /* the ranks of a KV head: [first, end) */
        int first = (head * n_ranks + n_kv_heads - 1) / n_kv_heads;
        int end = ((head + 1) * n_ranks + n_kv_heads - 1) / n_kv_heads;
        struct part in_group = share(group, end - first, rank - first);
        h.kv = (struct part){ head, head + 1 };
        h.q = (struct part){ head * group + in_group.from, head * group + in_group.to };
    }
    return h;
}

struct part split_matrix(const struct spread *s, int out, int n_ranks, int rank)
{
    struct head_part h;
    switch (s->kind) {
    case SPREAD_OUTPUTS:
        return split_outputs(out, n_ranks, rank);
    case SPREAD_QUERIES:
        h = split_heads(s->n_heads, s->n_kv_heads, n_ranks, rank);
        return (struct part){ h.q.from * (out / s->n_heads), h.q.to * (out / s->n_heads) };
    case SPREAD_KEYS:
        h = split_heads(s->n_heads, s->n_kv_heads, n_ranks, rank);
        return (struct part){ h.kv.from * (out / s->n_kv_heads), h.kv.to * (out / s->n_kv_heads) };
    case SPREAD_EXPERT: {
        struct part e = split_experts(s->n_experts, n_ranks, rank);
        bool own = s->expert >= e.from && s->expert < e.to;
        return (struct part){ 0, own ? out : 0 };
    }
    default:
        return (struct part){ 0, out };
    }
}

struct ranges ranges_outputs(int out, int n_ranks)
{
    struct ranges g = { { 0 } };
    for (int r = 0; r < n_ranks; r++)
        g.at[r + 1] = split_outputs(out, n_ranks, r).to;
    return g;
}

struct ranges ranges_queries(int n_heads, int n_kv_heads, int head_dim, int n_ranks)
{
    struct ranges g = { { 0 } };
    for (int r = 0; r < n_ranks; r++)
        g.at[r + 1] = split_heads(n_heads, n_kv_heads, n_ranks, r).q.to * head_dim;
    return g;
}
