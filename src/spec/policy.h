/* The method `auto`: which shape the next round has, learnt from the rounds before. It only looks
 * at times and counts, so it can change speed and nothing else. */
#ifndef PV_SPEC_POLICY_H
#define PV_SPEC_POLICY_H

#include "spec/tree.h"

enum { POLICY_MAX_WINDOW = 10 };

enum policy_kind { POLICY_PLAIN, POLICY_CHAIN, POLICY_TREE };

struct policy_choice {
    enum policy_kind kind;
    int window; /* chain */
};

struct policy {
    int rounds;
    int since_look;                      /* rounds since another shape than the best was tried */
    double verify_s[TREE_MAX + 1];       /* by rows; 0: not measured */
    double token_s;                      /* to draft one token of a chain; 0: not measured */
    double tree_s, tree_tokens;          /* to draft a tree; tokens a tree brought */
    double tried[POLICY_MAX_WINDOW + 1]; /* tokens of each depth that were tested, */
    double right[POLICY_MAX_WINDOW + 1]; /* and of these accepted; both fade */
    int tree_rows;
};

/* tree_rows: of the shape that POLICY_TREE stands for; 0: there is none. */
void policy_open(struct policy *p, int tree_rows);
struct policy_choice policy_next(struct policy *p);
/* What came of it: rows verified, tokens accepted, seconds. For a chain `proposed` tokens. */
void policy_learn(struct policy *p, struct policy_choice c, int rows, int proposed, int accepted,
                  double draft_s, double verify_s);
/* Tokens a second that a choice promises, by what is known. */
double policy_rate(const struct policy *p, struct policy_choice c);

#endif
