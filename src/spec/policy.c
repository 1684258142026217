/* Every shape's rate is predicted: tokens it should bring, over the time to draft and to verify it.
 * Acceptance is counted by depth, because the first drafted token is right more often than the
 * fourth. What was measured fades, so the choice follows the text. Once in a while the next best
 * shape is tried if it could be better; plain decoding is always among the choices, and costs
 * nothing to try. */
#include "spec/policy.h"

#include <string.h>

enum { LOOK_EVERY = 24, FIRST_WINDOW = 4 };

static const double fade = 0.95;     /* of counts, a round */
static const double smooth = 0.25;   /* weight of a new time */
static const double outlier = 3;     /* a longer time counts as so many times the usual */
static const double prior_tries = 2; /* and their share right, before anything is known */
static const double prior_right = 0.75;
static const double forget = 0.997;     /* a round, of what differs from the prior */
static const double tree_hope = 1.3;    /* tokens of a tree over those of its longest chain */
static const double row_cost = 0.1;     /* of a single row's time, for each row more */
static const double worth_a_look = 0.9; /* of the best rate */

void policy_open(struct policy *p, int tree_rows)
{
    memset(p, 0, sizeof *p);
    p->tree_rows = tree_rows;
    for (int d = 1; d <= POLICY_MAX_WINDOW; d++) {
        p->tried[d] = prior_tries;
        p->right[d] = prior_tries * prior_right;
    }
}

static void blend_in(double *x, double now)
{
    if (*x == 0)
        *x = now;
    else
        *x += smooth * ((now > outlier * *x ? outlier * *x : now) - *x);
}

/* Time to verify so many rows: measured, or between or beyond what was. */
static double verify_time(const struct policy *p, int rows)
{
    int below = rows, above = rows;
    if (p->verify_s[rows] > 0)
        return p->verify_s[rows];
    while (below > 0 && p->verify_s[below] == 0)
        below--;
    while (above < TREE_MAX && p->verify_s[above] == 0)
        above++;
    if (below > 0 && p->verify_s[above] > 0) {
        double share = (double)(rows - below) / (above - below);
        return p->verify_s[below] + share * (p->verify_s[above] - p->verify_s[below]);
    }
    if (below > 1 && p->verify_s[1] > 0) {
        double slope = (p->verify_s[below] - p->verify_s[1]) / (below - 1);
        return p->verify_s[below] + (slope > 0 ? slope : 0) * (rows - below);
    }
    if (below > 0)
        return p->verify_s[below] * (1 + row_cost * rows) / (1 + row_cost * below);
    return p->verify_s[above] * (1 + row_cost * rows) / (1 + row_cost * above);
}

/* Tokens of a round with a chain of this window: the target's own, and each drafted one with the
 * probability that all up to it are right. */
static double chain_tokens(const struct policy *p, int window)
{
    double sum = 1, all = 1;
    for (int d = 1; d <= window; d++) {
        all *= p->right[d] / p->tried[d];
        sum += all;
    }
    return sum;
}

double policy_rate(const struct policy *p, struct policy_choice c)
{
    switch (c.kind) {
    case POLICY_CHAIN:
        return chain_tokens(p, c.window) / (c.window * p->token_s + verify_time(p, c.window + 1));
    case POLICY_TREE: {
        double tokens = p->tree_tokens > 0 ? p->tree_tokens : chain_tokens(p, 5) * tree_hope;
        double draft = p->tree_s > 0 ? p->tree_s : 10 * p->token_s;
        return tokens / (draft + verify_time(p, p->tree_rows));
    }
    default:
        return 1 / verify_time(p, 1);
    }
}

/* The best choice; with `skip` not NULL, the best of another kind or window than that. */
static struct policy_choice best_of(const struct policy *p, const struct policy_choice *skip)
{
    struct policy_choice best = { POLICY_PLAIN, 0 };
    double rate = skip && skip->kind == POLICY_PLAIN ? 0 : policy_rate(p, best);
    for (int w = 1; w <= POLICY_MAX_WINDOW + 1; w++) {
        bool tree = w > POLICY_MAX_WINDOW;
        struct policy_choice c = { tree ? POLICY_TREE : POLICY_CHAIN, tree ? 0 : w };
        double r;
        if ((tree && p->tree_rows == 0) ||
            (skip && skip->kind == c.kind && skip->window == c.window))
            continue;
        r = policy_rate(p, c);
        if (r > rate) {
            rate = r;
            best = c;
        }
    }
    return best;
}

struct policy_choice policy_next(struct policy *p)
{
    struct policy_choice best, other;
    p->rounds++;
    for (int d = 1; d <= POLICY_MAX_WINDOW; d++) { /* what was long ago may have changed */
        p->tried[d] = prior_tries + forget * (p->tried[d] - prior_tries);
        p->right[d] =
            prior_tries * prior_right + forget * (p->right[d] - prior_tries * prior_right);
    }
    if (p->verify_s[1] == 0)
        return (struct policy_choice){ POLICY_PLAIN, 0 };
    if (p->token_s == 0)
        return (struct policy_choice){ POLICY_CHAIN, FIRST_WINDOW };
    best = best_of(p, NULL);
    if (++p->since_look < LOOK_EVERY)
        return best;
    p->since_look = 0;
    other = best_of(p, &best);
    return policy_rate(p, other) > worth_a_look * policy_rate(p, best) ? other : best;
}

void policy_learn(struct policy *p, struct policy_choice c, int rows, int proposed, int accepted,
                  double draft_s, double verify_s)
{
    if (rows <= TREE_MAX)
        blend_in(&p->verify_s[rows], verify_s);
    if (c.kind == POLICY_TREE && proposed > 0) {
        blend_in(&p->tree_s, draft_s);
        p->tree_tokens = p->tree_tokens == 0
                             ? accepted + 1
                             : p->tree_tokens + 0.1 * (accepted + 1 - p->tree_tokens);
    }
    if (c.kind != POLICY_CHAIN || proposed == 0)
        return;
    blend_in(&p->token_s, draft_s / proposed);
    for (int d = 1; d <= proposed && d <= accepted + 1 && d <= POLICY_MAX_WINDOW; d++) {
        p->tried[d] = p->tried[d] * fade + 1;
        p->right[d] = p->right[d] * fade + (d <= accepted);
    }
}
