/* The method `auto`: chooses the shape of the next round from the measured times and acceptance of
 * earlier rounds. It can change speed and nothing else. */
#ifndef PV_SPEC_POLICY_H
#define PV_SPEC_POLICY_H

#include "spec/tree.h"

enum { POLICY_MAX_WINDOW = 10 };

enum policy_kind { POLICY_PLAIN, POLICY_CHAIN, POLICY_TREE, POLICY_PARALLEL };

struct policy_choice {
    enum policy_kind kind;
    int window; /* chain, parallel */
};

/* A round of the parallel schedule. */
struct policy_round {
    int rows;        /* the target ran */
    int drafted;     /* tokens the drafter made */
    int tested;      /* tokens that the target's rows verified or rejected */
    int accepted;    /* of these */
    double draft_s;  /* in which it made them, without a token that it did not finish */
    double target_s; /* of the target's pass */
    double wall_s;   /* of the whole round */
};

struct policy {
    int rounds;
    int since_probe;                     /* rounds since another shape than the best was tried */
    double verify_s[TREE_MAX + 1];       /* by rows; 0: not measured */
    double token_s;                      /* to draft one token of a chain; 0: not measured */
    double tree_s, tree_tokens;          /* to draft a tree; tokens a tree brought */
    double tree_verify_s;                /* fitted trees: to verify one, whatever its rows */
    double tried[POLICY_MAX_WINDOW + 1]; /* tokens of each depth that were tested, */
    double right[POLICY_MAX_WINDOW + 1]; /* and of these accepted; both decay */
    double all_tried, all_right;         /* the same of any depth */
    int tree_rows;
    bool fitted;   /* trees are fitted ones, and chains are among these */
    bool recorded; /* steps are recorded: few windows, so that each comes often */
    struct {
        int max_window;                /* 0: there is no parallel schedule */
        double target_s[TREE_MAX + 1]; /* as verify_s, while both sides run */
        double token_s;                /* as above, while both sides run */
        double slack;                  /* a round's time over that of its longer side */
        int run;                       /* accepted tokens since the last rejection */
        int stay;                      /* rounds before it may be left */
        int away;                      /* rounds since it was left */
        int patience;                  /* rounds away after which what was measured is doubted */
        bool on;                       /* the last choice was parallel */
    } both;
};

/* tree_rows: of the shape that POLICY_TREE stands for; 0: there is none. */
void policy_open(struct policy *p, int tree_rows);
/* POLICY_TREE stands for fitted trees (price.h). They are tried first, and in the place of chains,
 * which they are where nothing else pays. */
void policy_fit(struct policy *p);
/* Steps of a shape are slow until they have come a few times, as on a GPU that records them: chains
 * have one of a few windows. */
void policy_record(struct policy *p);
/* Offer POLICY_PARALLEL too, with windows up to max_window (at most TREE_MAX_DEPTH; 0: no more). */
void policy_allow_parallel(struct policy *p, int max_window);
/* POLICY_PARALLEL comes for several rounds on end. A choice of another kind after it: the round may
 * first verify what is pending, and be told to policy_learn as that choice with nothing proposed.
 */
struct policy_choice policy_next(struct policy *p);
/* What came of it: rows verified, tokens accepted, seconds (0: not measured). For a chain
 * `proposed` tokens, for a fitted tree those of its longest path. */
void policy_learn(struct policy *p, struct policy_choice c, int rows, int proposed, int accepted,
                  double draft_s, double verify_s);
/* What came of a choice of POLICY_PARALLEL. */
void policy_learn_parallel(struct policy *p, const struct policy_round *r);
/* Tokens a second that a choice promises, by what is known. */
double policy_rate(const struct policy *p, struct policy_choice c);

#endif
