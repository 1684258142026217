/* Views led by the attention that the text of the prompt pays to each video token.
 *
 *   attention   The tokens with the highest scores.
 *   specvlm     SpecVLM's two stages. I: the fewest tokens, highest scores first, that hold the
 *               share lambda of all attention, but not more than the budget. II: what is left of
 *               the budget, spread evenly over the other tokens in their order. The paper's
 * interval would exceed the budget; its code, and this, keep exactly the budget. */
#include "spec/view_parts.h"

#include <math.h>

static void rank_tokens(struct ranked *r, const struct view_input *in)
{
    for (int j = 0; j < view_tokens(in); j++)
        r[j] = (struct ranked){ in->scores[j], j };
    rank_falling(r, view_tokens(in));
}

static double attention_of(const struct ranked *r)
{
    return isfinite(r->score) ? r->score : 0;
}

/* The least c such that the first c of m hold `lambda` of the sum. Both sums run in the same order,
 * in double, so that lambda = 1 is reached. */
static int count_top(const struct ranked *r, int m, double lambda)
{
    double total = 0, sum = 0;
    int c = 0;
    for (int i = 0; i < m; i++)
        total += attention_of(&r[i]);
    while (c < m && sum < lambda * total)
        sum += attention_of(&r[c++]);
    return c;
}

/* `count` of the tokens that are not kept yet, evenly in their order. */
static void spread_over_rest(struct marks *k, int m, int n_rest, int count)
{
    int i_rest = 0, done = 0;
    for (int j = 0; j < m && done < count; j++) {
        if (k->kept[j])
            continue;
        if (i_rest == spread_point(done, count, n_rest)) {
            k->kept[j] = true;
            done++;
        }
        i_rest++;
    }
}

/* Stage I as far as `lambda` goes, or the whole budget by score when that is negative. */
static enum pv_status keep_attended(const struct view_input *in, double lambda,
                                    struct view_choice *out, struct pv_error *err)
{
    int m = view_tokens(in), budget = view_budget(m, in->ratio), top = budget;
    struct marks k;
    enum pv_status s = marks_open(&k, m, m, err);
    if (s)
        return s;
    rank_tokens(k.rank, in);
    if (lambda >= 0) {
        top = count_top(k.rank, m, lambda);
        top = top < budget ? top : budget;
        out->stage1 = top;
    }
    for (int i = 0; i < top; i++)
        k.kept[k.rank[i].index] = true;
    spread_over_rest(&k, m, m - top, budget - top);
    marks_collect(&k, m, out);
    marks_close(&k);
    return PV_OK;
}

enum pv_status view_attention(const struct view_input *in, struct view_choice *out,
                              struct pv_error *err)
{
    return keep_attended(in, -1, out, err);
}

enum pv_status view_specvlm(const struct view_input *in, struct view_choice *out,
                            struct pv_error *err)
{
    return keep_attended(in, in->lambda, out, err);
}
