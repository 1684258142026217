/* Views that keep a run of tokens at one place, or whole frames. */
#include "lab_views.h"

static void keep_run(struct view_choice *out, int from, int n)
{
    for (int i = 0; i < n; i++)
        out->kept[i] = from + i;
    out->n = n;
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
