/* Parts are contiguous and in the order of ranks, so that gathered parts are in order too. Outputs
 * are cut at multiples of OUT_STEP, the most that a kernel computes together, if there are enough
 * of them. */
#include "dist/parts_of_ranks.h"

enum { OUT_STEP = 16 };

int rank_workers(const struct transport *t)
{
    return t->n - t->apart;
}

/* Whether this is rank 0 and it has no part of the distributed weights. */
static bool only_leads(const struct transport *t, int rank)
{
    return t->apart && rank == 0;
}

struct part split_outputs(int out, const struct transport *t, int rank)
{
    if (only_leads(t, rank))
        return (struct part){ 0, 0 };
    return split_steps(out, OUT_STEP, 1, rank_workers(t), rank - t->apart);
}

struct part split_experts(int n_experts, const struct transport *t, int rank)
{
    if (only_leads(t, rank))
        return (struct part){ 0, 0 };
    return split_evenly(n_experts, rank_workers(t), rank - t->apart);
}

struct head_part rank_heads(int n_heads, int n_kv_heads, const struct transport *t, int rank)
{
    if (only_leads(t, rank))
        return (struct head_part){ { 0, 0 }, { 0, 0 } };
    return split_heads(n_heads, n_kv_heads, rank_workers(t), rank - t->apart);
}

struct part split_matrix(const struct spread *s, int out, const struct transport *t, int rank)
{
    struct head_part h;
    switch (s->kind) {
    case SPREAD_OUTPUTS:
        return split_outputs(out, t, rank);
    case SPREAD_QUERIES:
        h = rank_heads(s->n_heads, s->n_kv_heads, t, rank);
        return (struct part){ h.q.from * (out / s->n_heads), h.q.to * (out / s->n_heads) };
    case SPREAD_KEYS:
        h = rank_heads(s->n_heads, s->n_kv_heads, t, rank);
        return (struct part){ h.kv.from * (out / s->n_kv_heads), h.kv.to * (out / s->n_kv_heads) };
    case SPREAD_EXPERT: {
        struct part e = split_experts(s->n_experts, t, rank);
        bool own = s->expert >= e.from && s->expert < e.to;
        return (struct part){ 0, own ? out : 0 };
    }
    default:
        return (struct part){ 0, out };
    }
}

struct ranges ranges_outputs(int out, const struct transport *t)
{
    struct ranges g = { { 0 } };
    for (int r = 0; r < t->n; r++)
        g.at[r + 1] = split_outputs(out, t, r).to;
    return g;
}

struct ranges ranges_queries(int n_heads, int n_kv_heads, int head_dim, const struct transport *t)
{
    struct ranges g = { { 0 } };
    for (int r = 0; r < t->n; r++)
        g.at[r + 1] = rank_heads(n_heads, n_kv_heads, t, r).q.to * head_dim;
    return g;
}
