/* Views that look at nothing but the number of tokens: all, none, a draw, every so many. They are
 * the baselines the others have to beat. */
#include "base/rng.h"
#include "spec/view_parts.h"

/* All tokens, whatever the ratio. */
enum pv_status view_full(const struct view_input *in, struct view_choice *out, struct pv_error *err)
{
    (void)err;
    out->n = view_tokens(in);
    for (int i = 0; i < out->n; i++)
        out->kept[i] = i;
    return PV_OK;
}

/* The drafter is blind, whatever the ratio. */
enum pv_status view_none(const struct view_input *in, struct view_choice *out, struct pv_error *err)
{
    (void)in;
    (void)err;
    out->n = 0;
    return PV_OK;
}

/* Selection sampling: token i is taken with probability (still wanted) / (still there), which
 * makes every set of the budget's size equally likely, in order and without scratch. A draw is
 * below 1, also times an integer in double, so when all that is left is wanted, all of it is taken.
 */
enum pv_status view_random(const struct view_input *in, struct view_choice *out,
                           struct pv_error *err)
{
    enum { SETS = 0x76696577 }; /* a position no token has: noise apart from that of sampling */
    int m = view_tokens(in), budget = view_budget(m, in->ratio);
    (void)err;
    out->n = 0;
    for (int i = 0; i < m; i++) {
        int wanted = budget - out->n, left = m - i;
        if (rng_uniform(in->seed, SETS, (uint64_t)i) * left < wanted)
            out->kept[out->n++] = i;
    }
    return PV_OK;
}

enum pv_status view_uniform(const struct view_input *in, struct view_choice *out,
                            struct pv_error *err)
{
    int m = view_tokens(in);
    (void)err;
    out->n = view_budget(m, in->ratio);
    for (int i = 0; i < out->n; i++)
        out->kept[i] = spread_point(i, out->n, m);
    return PV_OK;
}
