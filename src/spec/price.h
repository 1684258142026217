/* Costs of drafted tokens, for the shape `fitted`: a tree grows only while the expected gain of a
 * token exceeds its cost. Learnt from the times and counts of earlier rounds, so it can change
 * speed and nothing else. */
#ifndef PV_SPEC_PRICE_H
#define PV_SPEC_PRICE_H

#include "spec/tree.h"
#include "spec/verify.h"

/* Costs in units of the time that one token of the answer takes at present. */
struct price {
    double row;       /* one more row in the model's pass */
    double level;     /* one step of the drafter */
    double level_row; /* one more row in that step */
    double next;      /* probability that the token after an accepted one is accepted too */
    double trust;     /* measured acceptance divided by the drafter's own probabilities */
};

/* Statistics are kept separately for answers whose acceptance rates differ: sampled or greedy, with
 * media in the prompt or without. */
enum { PRICE_BOOKS = 4 };
static inline int price_book_of(bool drawn, bool media)
{
    return (drawn ? 1 : 0) + (media ? 2 : 0);
}

/* Exponentially decaying sums over rounds. */
struct price_book {
    double n, rows, rows2, time,
        rows_time; /* of the model's passes: a linear fit of time by rows */
    double levels, draft_s;
    double tokens;
    double tested, right; /* tokens after an accepted one: tested, and accepted */
    double hoped, come;   /* accepted tokens: predicted by the drafter, and actual */
    double brought, cost; /* accepted tokens, and the cost of everything drafted for them */
};

/* Add a round: the tree, the drafter's log-probability of the path to each row, the verdict, the
 * prices with which it was drafted, and the seconds of both sides. A round without the drafter has
 * only the root, no prices (NULL) and draft_s 0. */
void price_learn(struct price_book *b, const struct tree *t, const float *scores,
                 const struct verdict *v, const struct price *paid, double draft_s,
                 double verify_s);
/* Whether drafting is worth its time: false while the drafts of the last rounds cost more than they
 * gained. Rounds without the drafter make that fade, so that it is tried again. */
bool price_pays(const struct price_book *b);
struct price price_now(const struct price_book *b);
/* The same if steps are shared with other answers: a row makes a pass row_s seconds longer for all
 * of them, this answer's share of a drafter's step is level_s seconds, and all answers together get
 * tokens_s tokens per second. Unknown values (0) are taken from price_now. */
struct price price_shared(const struct price_book *b, double row_s, double level_s,
                          double tokens_s);

#endif
