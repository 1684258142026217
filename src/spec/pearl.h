/* Bookkeeping of the parallel schedule (PEARL; HIPPO and ParallelVLM decode the same way): how long
 * the prefix is, how much of it is verified, what each side runs, and where caches are truncated.
 *
 * A round: the target runs the prefix tokens it has not run yet, the drafter meanwhile makes tokens
 * behind the prefix. Then the target's rows say, in order, what should stand in place of the
 * pending tokens and of the first new one. Acceptance is exact: at each place the target has one
 * token, and a drafted one is right or wrong. Nothing here runs a model or a thread. */
#ifndef PV_SPEC_PEARL_H
#define PV_SPEC_PEARL_H

#include <stdbool.h>
#include <stdint.h>

enum { PEARL_MAX = 32 }; /* tokens drafted in one round */

enum pearl_mode {
    PEARL_PRE, /* nothing is pending: the first token drafted is tested while the rest is made */
    PEARL_POST /* all that was tested is right: what is pending is tested while more is made */
};

struct pearl_counts {
    int64_t rounds;
    int64_t passes;     /* rounds in which the target had rows to run */
    int64_t rows;       /* that it ran; a prompt that it runs in a round counts */
    int64_t proposed;   /* tokens drafted */
    int64_t accepted;   /* of these, verified */
    int64_t own;        /* tokens of the target: one for each rejection, and one for each round that
                           had no drafted token to test at its end */
    int64_t rejections; /* each ends a run */
    int64_t run_sum;    /* accepted tokens of all runs that ended */
    int run_max;        /* the longest run, ended or not */
};

/* Lengths and positions count tokens from the start of the prompt. */
struct pearl {
    enum pearl_mode mode;
    int prefix;     /* verified tokens, then pending ones */
    int pending;    /* the last tokens of the prefix, not verified yet */
    int target_len; /* tokens of the prefix in the target's cache */
    int draft_len;  /* and in the drafter's */
    int run;        /* accepted tokens since the last rejection */
    struct pearl_counts counts;
};

/* What came of a round: `accepted` drafted tokens, which follow the tokens verified before, and
 * then, with `own`, the target's token after them. Both caches are to be cut to these lengths, if
 * they are longer. */
struct pearl_round {
    int accepted;
    bool own;
    int verified; /* accepted + own */
    int target_len, draft_len;
};

/* A verified prefix, of which the caches hold the first target_len and draft_len tokens. Where the
 * target has run all of it (target_len == prefix: its last logits are there), the first round tests
 * without a pass. */
void pearl_begin(struct pearl *p, int prefix, int target_len, int draft_len);
/* Tokens [target_len, prefix) that the target runs this round: one in PRE after the first round,
 * pending + 1 in POST. */
int pearl_rows(const struct pearl *p);
/* How many tokens a round with so many drafted ones tests: the pending ones and the first new one.
 */
int pearl_tested(const struct pearl *p, int drafted);
/* The end of a round in which `drafted` tokens were made (0 to PEARL_MAX; as many as there are, if
 * the drafter was stopped) and the target agreed with the first `right` of the tested ones. With
 * none drafted and all right, the target's last token is simply the next one. */
struct pearl_round pearl_end(struct pearl *p, int drafted, int right);

/* The target waits: after a round that left nothing pending, `drafted` tokens are made before it
 * runs again, and all of them are pending then. For drafters that are cheap beside a pass. */
void pearl_wait(struct pearl *p, int drafted);

/* Mean number of accepted tokens between two rejections, the token that replaces the rejected one
 * not counted: PEARL's "mean accepted tokens", and the run length that HIPPO prints as MAT and
 * ParallelVLM as M. nano-PEARL counts the replacing token too, and so does M in ParallelVLM's rows
 * of serial methods: add 1 to compare with those. Before the first rejection, the run so far. */
double pearl_mean_run(const struct pearl *p);

/* Tokens a second when each token is right with probability a, the window is g, a drafted token
 * takes draft_token_s and a target's pass target_pass_s, both while the other side runs too:
 * (1 - a^g) / ((1 - a)(1 + a - a^g)) tokens a round of max(g draft_token_s, target_pass_s). With
 * g = 0: plain decoding. */
double pearl_rate(double a, int g, double draft_token_s, double target_pass_s);
/* The window 1..max with the best rate; the shortest of equals. target_s [max + 1]: seconds of a
 * pass by its rows, 0: not known; 0 is returned when none is. A pass counts with g rows. */
int pearl_window(double a, double draft_token_s, const double *target_s, int max);
/* The same when the target waits (pearl_wait) for g tokens after each rejection, and runs g + 1
 * rows then: (S(g + 1) + c S(g)) / (g draft_token_s + T(g + 1) + c max(g draft_token_s, T(g))),
 * S(n) = 1 + a + ... + a^(n - 1), and c = a^(g + 1) / (1 - a^g) rounds that go on for each that
 * waits. */
double pearl_waiting_rate(double a, int g, double draft_token_s, double waited_pass_s,
                          double target_pass_s);
int pearl_waiting_window(double a, double draft_token_s, const double *target_s, int max);

#endif
