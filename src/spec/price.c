/* The tree that gives most tokens per second is found from the cost of its rows. Say a token takes
 * s seconds at present. A row that is right with probability p adds p tokens and makes the pass r
 * seconds longer, so it is worthwhile if p > r / s. With better trees s falls and costs rise, and
 * within a few rounds the trees reach the right size: long and narrow if rows are expensive and the
 * drafter is confident, wide if rows cost little.
 *
 * The time of a pass is modelled as a + r * rows, by a linear fit of the measurements with a weak
 * prior. */
#include "spec/price.h"

#include <math.h>

static const double fade = 0.96;        /* of sums, a round */
static const double outlier = 1.5;      /* a longer time counts as so many times the usual */
static const double guess_row = 0.1;    /* of a pass of one row, for each row more */
static const double guess_weight = 16;  /* of that guess, in squared rows, at most; */
static const double guess_share = 0.25; /* and at most so much of the usual rows, squared */
static const double level_row = 0.15;   /* of a step of one row, for each row more */
static const double first_row = 0.05, first_level = 0.05; /* prices before anything is known */
static const double tries = 8, tries_right = 0.8;         /* a prior */
static const double least_trust = 0.05, most_trust = 1.5;
static const double fade_awake = 0.98;   /* of what drafts brought and cost, a round */
static const double fade_asleep = 0.995; /* and a round without them */
static const double patience = 3;        /* tokens that drafts may cost over what they bring */

/* The time of a row more, and of a pass without any. */
static double row_time(const struct price_book *b, double *base)
{
    double x = b->rows / b->n, y = b->time / b->n, guess = guess_row * y / (1 + guess_row * x);
    double var = b->rows2 - b->n * x * x, cov = b->rows_time - b->n * x * y;
    double weight = fmin(guess_weight, guess_share * x * x);
    double slope = (cov + weight * guess) / (var + weight);
    slope = fmin(fmax(slope, 0), y / x);
    *base = y - slope * x;
    return slope;
}

/* A time as it counts; where nothing took any time yet, as it is. */
static double at_most_usual(double s, double usual)
{
    return usual > 0 ? fmin(s, outlier * usual) : s;
}

/* What was usual, after a time so much shorter that it cannot have been: the first passes of a
 * machine are slow. As a share of itself. */
static double still_usual(double s, double usual)
{
    return s > 0 && usual > outlier * s ? outlier * s / usual : 1;
}

static void fade_all(struct price_book *b)
{
    double *const x[] = { &b->n,       &b->rows,   &b->rows2,  &b->time,  &b->rows_time, &b->levels,
                          &b->draft_s, &b->tokens, &b->tested, &b->right, &b->hoped,     &b->come };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        *x[i] *= fade;
}

/* What a tree cost by the prices that it was grown with. */
static double cost_of(const struct tree *t, int levels, const struct price *paid)
{
    double rows = t->n - 1, more = rows > levels ? rows - levels : 0;
    return levels * paid->level + more * paid->level_row + rows * paid->row;
}

void price_learn(struct price_book *b, const struct tree *t, const float *scores,
                 const struct verdict *v, const struct price *paid, double draft_s, double verify_s)
{
    int accepted = v->n - 1, levels = tree_deepest(t);
    if (levels == 0 && draft_s > 0) /* the drafter's step at the root, for nothing */
        levels = 1;
    if (b->n > 0) {
        double base, row = row_time(b, &base), usual = base + row * t->n;
        double share = still_usual(verify_s, usual);
        b->time *= share;
        b->rows_time *= share;
        verify_s = at_most_usual(verify_s, share * usual);
    }
    if (b->levels > 0) {
        double usual = b->draft_s / b->levels * levels, share = still_usual(draft_s, usual);
        b->draft_s *= share;
        draft_s = at_most_usual(draft_s, share * usual);
    }
    fade_all(b);
    b->brought *= paid ? fade_awake : fade_asleep;
    b->cost *= paid ? fade_awake : fade_asleep;
    if (paid) {
        b->brought += accepted;
        b->cost += cost_of(t, levels, paid);
    }
    b->n += 1;
    b->rows += t->n;
    b->rows2 += (double)t->n * t->n;
    b->time += verify_s;
    b->rows_time += t->n * verify_s;
    b->levels += levels;
    b->draft_s += draft_s;
    b->tokens += v->n;
    b->right += accepted;
    b->tested += accepted + !tree_is_leaf(t, v->path[v->n - 1]);
    b->come += accepted;
    for (int i = 1; i < t->n; i++)
        b->hoped += fmin(exp((double)scores[i]), 1); /* 1 too where it is no number */
}

bool price_pays(const struct price_book *b)
{
    return b->cost <= b->brought + patience;
}

struct price price_now(const struct price_book *b)
{
    struct price p = { .row = first_row, .level = first_level };
    double right = tries * tries_right, base;
    p.next = (b->right + right) / (b->tested + tries);
    p.trust = fmin(fmax((b->come + right) / (b->hoped + right), least_trust), most_trust);
    if (b->time + b->draft_s > 0) {
        double token_s = (b->time + b->draft_s) / b->tokens;
        p.row = row_time(b, &base) / token_s;
        if (b->levels > 0)
            p.level = b->draft_s / b->levels / token_s;
    }
    p.level_row = level_row * p.level;
    return p;
}

struct price price_shared(const struct price_book *b, double row_s, double level_s, double tokens_s)
{
    struct price p = price_now(b);
    /* What a second costs is what all answers lose by it. */
    if (row_s * tokens_s > 0)
        p.row = row_s * tokens_s;
    if (level_s * tokens_s > 0)
        p.level = level_s * tokens_s;
    p.level_row = level_row * p.level;
    return p;
}
