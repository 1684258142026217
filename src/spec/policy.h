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
    int rows;        /* rows that the target ran */
    int drafted;     /* tokens that the drafter proposed */
    int tested;      /* tokens that the target accepted or rejected */
    int accepted;    /* how many of these it accepted */
    double draft_s;  /* time of drafting, without a token that was not finished */
    double target_s; /* time of the target's pass */
    double wall_s;   /* time of the whole round */
};

struct policy {
    int rounds;
    int since_probe;                     /* rounds since a shape other than the best was tried */
    int wait;                            /* rounds between trials; grows while they lose */
    bool trial;                          /* the last choice is a trial of drafting */
    int plain_rounds;                    /* since the drafter last ran */
    bool rough;                          /* token_s was measured after plain rounds only */
    int trials;                          /* rounds of the present trial */
    double trial_s;                      /* seconds that it has lost so far */
    double read_s;                       /* and those of the drafter's prefill for it */
    int scaled;                          /* rounds by which earlier times were scaled */
    double verify_s[TREE_MAX + 1];       /* seconds of a pass by rows; 0: not measured */
    uint64_t measured;                   /* bit rows - 1: measured in this answer */
    double token_s;                      /* seconds per drafted token of a chain; 0: not measured */
    double tree_s, tree_tokens;          /* seconds to draft a tree; tokens that a tree yields */
    double tree_verify_s;                /* seconds to verify a fitted tree of any size */
    double tried[POLICY_MAX_WINDOW + 1]; /* tested tokens by depth; decays */
    double right[POLICY_MAX_WINDOW + 1]; /* accepted tokens by depth; decays */
    double all_tried, all_right;         /* the same for all depths together */
    int tree_rows;
    bool fitted;   /* trees are fitted ones, which include chains */
    bool recorded; /* the device records steps: use few windows, so that each occurs often */
    struct {
        double n, w, ww, s, ws; /* decaying sums: chains, windows, their squares, seconds, ... */
    } chains;                   /* a linear fit of the time to draft a chain by its window */
    struct {
        int max_window;                /* 0: no parallel schedule */
        double target_s[TREE_MAX + 1]; /* like verify_s, while both sides run */
        double token_s;                /* like token_s above, while both sides run */
        double slack;                  /* time of a round divided by that of its longer side */
        int run;                       /* accepted tokens since the last rejection */
        int stay;                      /* rounds before this schedule may be left */
        int away;                      /* rounds since it was left */
        int patience;                  /* rounds after which it is measured again */
        bool on;                       /* the last choice was parallel */
    } both;
};

/* tree_rows: rows of the shape that POLICY_TREE means; 0: there are no trees. */
void policy_open(struct policy *p, int tree_rows);
/* Begin with what an earlier answer on this machine has learnt, if its choices were the same. How
 * long passes take depends on the context: the first times measured scale those of before. Call it
 * after the functions below. */
void policy_resume(struct policy *p, const struct policy *before);
/* POLICY_TREE means fitted trees (price.h) from now on. They are tried first and replace chains: a
 * fitted tree becomes a chain if nothing larger is worth its cost. */
void policy_fit(struct policy *p);
/* Steps of a new shape are slow, as on a GPU that records them: use only a few window sizes. */
void policy_record(struct policy *p);
/* Permit POLICY_PARALLEL, with windows up to max_window (at most TREE_MAX_DEPTH; 0: forbid it). */
void policy_allow_parallel(struct policy *p, int max_window);
/* Whether drafting is expected to be faster than plain decoding; false if nothing is known. */
bool policy_drafts(const struct policy *p);
/* Report that the drafter had to read the prompt for the choice just made. */
void policy_read_prompt(struct policy *p, double seconds);
/* Choose the next round. POLICY_PARALLEL is chosen for several rounds in succession. If another
 * kind follows it, the caller may first verify pending tokens in a round of its own; it reports
 * that round to policy_learn as this choice with nothing proposed. */
struct policy_choice policy_next(struct policy *p);
/* Report the result of a choice: rows verified, tokens accepted, seconds (0: not measured).
 * `proposed`: tokens of a chain, or of the longest path of a fitted tree. */
void policy_learn(struct policy *p, struct policy_choice c, int rows, int proposed, int accepted,
                  double draft_s, double verify_s);
/* Report the result of a choice of POLICY_PARALLEL. */
void policy_learn_parallel(struct policy *p, const struct policy_round *r);
/* Expected tokens per second of a choice, from the measurements so far. */
double policy_rate(const struct policy *p, struct policy_choice c);

#endif
