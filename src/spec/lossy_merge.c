/* DyCoke's merging in time: of the later frames of a group the tokens that are least like those of
 * an earlier one at the same place stay. */
#include "spec/lossy.h"
#include "spec/view_parts.h"

/* The tokens of a frame that are least like those of `other`. */
static void mark_novel(struct marks *k, const struct view_input *in, int frame, int other,
                       int count)
{
    for (int t = 0; t < in->frame_tokens; t++)
        k->rank[t] = (struct ranked){ -view_likeness(in, frame, other, t), t };
    rank_falling(k->rank, in->frame_tokens);
    for (int i = 0; i < count; i++)
        k->kept[frame * in->frame_tokens + k->rank[i].index] = true;
}

void marks_group(struct marks *k, const struct view_input *in, int frame, int n, int first,
                 int rest)
{
    marks_spread(k, frame * in->frame_tokens, in->frame_tokens, first);
    for (int j = 1; j < n; j++)
        mark_novel(k, in, frame + j, j == 3 ? frame + 2 : frame,
                   share_between(rest, j - 1, j, n - 1));
}

enum pv_status lossy_merge_time(const struct view_input *in, double keep, double most, int *kept,
                                int *n, struct pv_error *err)
{
    int groups = (in->n_frames + DYCOKE_GROUP - 1) / DYCOKE_GROUP, later = in->n_frames - groups,
        each;
    double pruned = later > 0 ? (1 - keep) * in->n_frames / later : 0; /* of a later frame */
    struct view_choice out = { .kept = kept };
    struct marks k;
    enum pv_status s = marks_open(&k, view_tokens(in), in->frame_tokens, err);
    if (s)
        return s;
    pruned = pruned < most ? pruned : most;
    each = view_floor(in->frame_tokens * (1 - pruned) + 0.5);
    for (int f = 0; f < in->n_frames; f += DYCOKE_GROUP) {
        int frames = in->n_frames - f < DYCOKE_GROUP ? in->n_frames - f : DYCOKE_GROUP;
        marks_group(&k, in, f, frames, in->frame_tokens, (frames - 1) * each);
    }
    marks_collect(&k, view_tokens(in), &out);
    marks_close(&k);
    *n = out.n;
    return PV_OK;
}
