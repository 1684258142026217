/* Views that look at nothing but the number of tokens: all, none, a draw, every so many, a run at
 * one place, whole frames. They are the baselines the others have to beat. */
#include "base/rng.h"
#include "spec/view_parts.h"

static void keep_run(struct view_choice *out, int from, int n)
{
    for (int i = 0; i < n; i++)
        out->kept[i] = from + i;
    out->n = n;
}

/* All tokens, whatever the ratio. */
enum pv_status view_full(const struct view_input *in, struct view_choice *out, struct pv_error *err)
{
    (void)err;
    keep_run(out, 0, view_tokens(in));
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

enum pv_status view_window_front(const struct view_input *in, struct view_choice *out,
                                 struct pv_error *err)
{
    (void)err;
    keep_run(out, 0, view_budget(view_tokens(in), in->ratio));
    return PV_OK;
}

enum pv_status view_window_middle(const struct view_input *in, struct view_choice *out,
                                  struct pv_error *err)
{
    int m = view_tokens(in), budget = view_budget(m, in->ratio);
    (void)err;
    keep_run(out, (m - budget) / 2, budget);
    return PV_OK;
}

enum pv_status view_window_back(const struct view_input *in, struct view_choice *out,
                                struct pv_error *err)
{
    int m = view_tokens(in), budget = view_budget(m, in->ratio);
    (void)err;
    keep_run(out, m - budget, budget);
    return PV_OK;
}

/* max(1, F (1 - r)) whole frames, spread evenly. As published one frame always stays, and the
 * count follows the frames, not the budget of tokens: 6 of 64 at 0.9. */
enum pv_status view_frame(const struct view_input *in, struct view_choice *out,
                          struct pv_error *err)
{
    int n = view_floor(in->n_frames * (1 - in->ratio)), t = in->frame_tokens;
    (void)err;
    if (n < 1)
        n = 1;
    out->n = 0;
    for (int i = 0; i < n; i++) {
        int from = spread_point(i, n, in->n_frames) * t;
        for (int j = 0; j < t; j++)
            out->kept[out->n++] = from + j;
    }
    return PV_OK;
}
