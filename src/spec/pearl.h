/* Bookkeeping of the parallel schedule (PEARL; HIPPO and ParallelVLM decode the same way): the
 * length of the prefix, how much of it is verified, what each side runs, and to what lengths caches
 * are truncated.
 *
 * In a round, the target runs the tokens of the prefix that it has not run yet, while the drafter
 * proposes tokens after the prefix. The target's rows then give, in order, its own tokens at the
 * places of the pending tokens and of the first new one. Acceptance is exact: a drafted token is
 * right if it equals the target's. Nothing here runs a model or a thread. */
#ifndef PV_SPEC_PEARL_H
#define PV_SPEC_PEARL_H

#include <stdbool.h>
#include <stdint.h>

enum { PEARL_MAX = 32 }; /* tokens drafted in one round */

enum pearl_mode {
    PEARL_PRE, /* nothing is pending: the first new token is tested while the others are drafted */
    PEARL_POST /* all tested tokens were right: pending ones are tested while more are drafted */
};

struct pearl_counts {
    int64_t rounds;
    int64_t passes;     /* rounds in which the target had rows to run */
    int64_t rows;       /* rows that the target ran, including a prompt run in a round */
    int64_t proposed;   /* tokens drafted */
    int64_t accepted;   /* drafted tokens that were right */
    int64_t own;        /* tokens of the target itself: one per rejection, and one per round that
                           had no drafted token to test at its end */
    int64_t rejections; /* each ends a run */
    /* Accepted tokens of all runs that ended. run_sum / rejections is PEARL's "mean accepted
     * tokens", the run length that HIPPO prints as MAT and ParallelVLM as M. nano-PEARL, and
     * ParallelVLM for serial methods, also count the token that replaces the rejected one. */
    int64_t run_sum;
    int run_max; /* the longest run, ended or not */
};

/* Lengths and positions count tokens from the start of the prompt. */
struct pearl {
    enum pearl_mode mode;
    int prefix;     /* verified tokens followed by pending ones */
    int pending;    /* how many tokens at the end of the prefix are not verified yet */
    int target_len; /* tokens of the prefix in the target's cache */
    int draft_len;  /* tokens of the prefix in the drafter's cache */
    int run;        /* accepted tokens since the last rejection */
    struct pearl_counts counts;
};

/* The result of a round: `accepted` drafted tokens, which follow the tokens verified before, and
 * then, if `own`, one token of the target. Caches that are longer than these lengths must be
 * truncated to them. */
struct pearl_round {
    int accepted;
    bool own;
    int verified; /* accepted + own */
    int target_len, draft_len;
};

/* Begin with a verified prefix of which the caches hold the first target_len and draft_len tokens.
 * If the target has run all of it (target_len == prefix, so its last logits exist), the first round
 * tests without a pass. */
void pearl_begin(struct pearl *p, int prefix, int target_len, int draft_len);
/* Tokens [target_len, prefix) that the target runs this round: one in PRE after the first round,
 * pending + 1 in POST. */
int pearl_rows(const struct pearl *p);
/* How many tokens a round with `drafted` new tokens tests: the pending ones and the first new
 * one. */
int pearl_tested(const struct pearl *p, int drafted);
/* End a round in which `drafted` tokens were proposed (0 to PEARL_MAX; fewer than planned if the
 * drafter was stopped) and the first `right` of the tested tokens were right. If none was drafted
 * and all were right, the target's last token is the next one. */
struct pearl_round pearl_end(struct pearl *p, int drafted, int right);

/* The target waits: after a round that left nothing pending, `drafted` tokens are proposed before
 * it runs again, and all of them are pending then. For drafters that are cheap compared with a
 * pass. */
void pearl_wait(struct pearl *p, int drafted);

/* Expected tokens per second if each token is right with probability a, the window is g, a drafted
 * token takes draft_token_s and a pass of the target target_pass_s, both while the other side runs
 * too: (1 - a^g) / ((1 - a)(1 + a - a^g)) tokens per round of max(g draft_token_s, target_pass_s).
 * g = 0: plain decoding. */
double pearl_rate(double a, int g, double draft_token_s, double target_pass_s);
/* The window 1..max with the best rate, the shortest of equals; a pass is assumed to have g rows.
 * target_s [max + 1]: seconds of a pass by number of rows, 0: unknown. Returns 0 if none is
 * known. */
int pearl_window(double a, double draft_token_s, const double *target_s, int max);
/* The same if the target waits (pearl_wait) for g tokens after each rejection, and then runs g + 1
 * rows: (S(g + 1) + c S(g)) / (g draft_token_s + T(g + 1) + c max(g draft_token_s, T(g))), where
 * S(n) = 1 + a + ... + a^(n - 1), T(n) is the time of a pass of n rows, and c = a^(g + 1) / (1 -
 * a^g) is the expected number of rounds without a wait per round with one. */
double pearl_waiting_rate(double a, int g, double draft_token_s, double waited_pass_s,
                          double target_pass_s);
int pearl_waiting_window(double a, double draft_token_s, const double *target_s, int max);

#endif
