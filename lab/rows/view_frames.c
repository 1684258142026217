/* Views that drop what resembles an earlier frame, by the cosine of features at the same place.
 * The two methods of the literature are here as SpecVLM ran them as its baselines, which is neither
 * what their papers say nor at the nominal budget, and once more at exactly the budget:
 *
 *   fastvid         The int(F r) frames most similar to the one before are dropped, the others are
 *                   whole (64 frames at 0.9: 7 stay, 10.9 %). At ratio 1 the first frame stays.
 *   fastvid-exact   Frames in the same order, most novel first, until the budget is used up; the
 *                   last one is thinned evenly. With a budget of whole frames it is fastvid.
 *   dycoke          Frames in groups of four: the first is whole, of the others the int(T q) tokens
 *                   stay, q = 0.75 (1 - r), that are least similar to frames 1, 1 and 3 of the
 *                   group. Frames after the last whole group are dropped. (30.4 % stay at 0.9.)
 *   dycoke-exact    The budget is shared among the groups by their number of frames, the last group
 *                   may be short; in a group of k frames the first gets 1 / (1 + (k - 1) q) of it,
 *                   never more than the frame has, and the others equal parts of the rest: the
 *                   proportions of dycoke. The first frame, which has nothing to be like, is
 * thinned evenly; the others keep their least similar tokens, as in dycoke. */
#include "lab_views.h"

enum { GROUP = DYCOKE_GROUP };

/* Frames 1 to F - 1, those most like the frame before first. */
static void rank_frames(struct ranked *r, const struct view_input *in)
{
    for (int f = 1; f < in->n_frames; f++) {
        double sum = 0;
        for (int t = 0; t < in->frame_tokens; t++)
            sum += view_likeness(in, f, f - 1, t);
        r[f - 1] = (struct ranked){ sum / in->frame_tokens, f };
    }
    rank_falling(r, in->n_frames - 1);
}

/* `budget` tokens, frame by frame in the order opposite to the one they are dropped in; the first
 * frame of all is never dropped, so it leads. */
static enum pv_status keep_novel_frames(const struct view_input *in, int budget,
                                        struct view_choice *out, struct pv_error *err)
{
    int t = in->frame_tokens;
    struct marks k;
    enum pv_status s = marks_open(&k, view_tokens(in), in->n_frames, err);
    if (s)
        return s;
    rank_frames(k.rank, in);
    for (int i = in->n_frames - 1; i >= 0 && budget > 0; i--) {
        int frame = i == in->n_frames - 1 ? 0 : k.rank[i].index;
        int count = budget < t ? budget : t;
        marks_spread(&k, frame * t, t, count);
        budget -= count;
    }
    marks_collect(&k, view_tokens(in), out);
    marks_close(&k);
    return PV_OK;
}

enum pv_status view_fastvid(const struct view_input *in, struct view_choice *out,
                            struct pv_error *err)
{
    int dropped = view_floor(in->n_frames * in->ratio);
    if (dropped > in->n_frames - 1)
        dropped = in->n_frames - 1; /* there are no more pairs */
    return keep_novel_frames(in, (in->n_frames - dropped) * in->frame_tokens, out, err);
}

enum pv_status view_fastvid_exact(const struct view_input *in, struct view_choice *out,
                                  struct pv_error *err)
{
    return keep_novel_frames(in, view_budget(view_tokens(in), in->ratio), out, err);
}

static double later_share(const struct view_input *in)
{
    return 0.75 * (1 - in->ratio);
}

enum pv_status view_dycoke(const struct view_input *in, struct view_choice *out,
                           struct pv_error *err)
{
    int each = view_floor(in->frame_tokens * later_share(in));
    struct marks k;
    enum pv_status s;
    if (in->ratio == 0) /* nothing is to be pruned, whatever the formula says */
        return view_full(in, out, err);
    s = marks_open(&k, view_tokens(in), in->frame_tokens, err);
    if (s)
        return s;
    for (int f = 0; f + GROUP <= in->n_frames; f += GROUP)
        marks_group(&k, in, f, GROUP, in->frame_tokens, (GROUP - 1) * each);
    marks_collect(&k, view_tokens(in), out);
    marks_close(&k);
    return PV_OK;
}

/* Tokens of the first of n frames that have `budget` together. As a later frame never gets more
 * than 0.75 of the first's share, what this leaves always fits into the others. */
static int first_share(const struct view_input *in, int n, int budget)
{
    int first = view_floor(budget / (1 + (n - 1) * later_share(in)));
    return first < in->frame_tokens ? first : in->frame_tokens;
}

enum pv_status view_dycoke_exact(const struct view_input *in, struct view_choice *out,
                                 struct pv_error *err)
{
    int budget = view_budget(view_tokens(in), in->ratio);
    struct marks k;
    enum pv_status s = marks_open(&k, view_tokens(in), in->frame_tokens, err);
    if (s)
        return s;
    for (int f = 0; f < in->n_frames; f += GROUP) {
        int n = in->n_frames - f < GROUP ? in->n_frames - f : GROUP;
        int tokens = share_between(budget, f, f + n, in->n_frames);
        int first = first_share(in, n, tokens);
        marks_group(&k, in, f, n, first, tokens - first);
    }
    marks_collect(&k, view_tokens(in), out);
    marks_close(&k);
    return PV_OK;
}
