/* The rate of every shape is predicted: expected tokens divided by the time to draft and to verify
 * them. Acceptance is counted by depth, because the first drafted token is right more often than
 * the fourth. Measurements decay, so the choice follows the text. Now and then the second-best
 * shape is tried, if it could be better; plain decoding is always among the choices and costs
 * nothing to try.
 *
 * The parallel schedule is predicted by its closed form (pearl.h). How much two sides that run in
 * parallel slow each other down cannot be derived from their times alone, so times of the parallel
 * schedule are kept separately. Before there are any, the prediction from the times of each side
 * alone may be too optimistic; the schedule is then tried for a few rounds in succession, because
 * its first round yields only one token. If it is slower than predicted, it is not tried again for
 * a while, and for twice as long after each further failure, so that trials cost less and less. */
#include "spec/policy.h"

#include "spec/pearl.h"
#include "spec/row_times.h"

#include <string.h>

enum { PROBE_EVERY = 24, MAX_WAIT = 384, MAX_REST = 16384, FIRST_WINDOW = 4, HOPED_WINDOW = 5 };
enum { AFTER_READING = 8 }; /* rounds of a trial for which the prompt was read */
enum { SCALED = 4 };        /* rounds of an answer that scale the times of the one before */
/* Windows where steps are recorded: each is within 2 % of the best of those between them. */
static const bool recorded_window[POLICY_MAX_WINDOW + 1] = {
    [1] = true, [2] = true, [3] = true, [4] = true, [6] = true, [10] = true
};
enum {
    STAY = 4,            /* rounds of the parallel schedule on end */
    PROBE_RARELY = 96,   /* rounds of it between probes of others: to leave it costs most of one */
    FIRST_PATIENCE = 64, /* rounds without it before it is tried again, */
    MAX_PATIENCE = 1024  /* at first and at most */
};

static const double fade = 0.95;     /* of counts, a round */
static const double fade_all = 0.99; /* of those of any depth: entering and leaving has a price */
static const double common_weight = 16; /* of what is known of all depths, in tries */
static const double smooth = 0.1;       /* weight of a new time */
static const double fade_line = 0.98;   /* of the fit of drafting times, a chain */
static const double line_weight = 1;    /* of the line through zero, in squares of windows */
static const double outlier = 3;        /* a longer time counts as so many times the usual */
static const double prior_tries = 2;    /* and their share right, before anything is known */
static const double prior_right = 0.75;
static const double forget = 0.9995;     /* a round, of what differs from the prior, */
static const double other_text = 0.9;    /* and an answer */
static const double rest = 100;          /* plain rounds for each that a trial has lost */
static const double first_trust = 0.3;   /* in the first fitted tree */
static const double hope_again = 0.2;    /* at a probe, of what differs from what is hoped */
static const double tree_hope = 1.3;     /* tokens of a tree over those of its longest chain */
static const double worth_a_probe = 0.9; /* of the best rate */
static const double new_window = 0.97;   /* of its rate: recording its steps takes time */
static const double hopeless = 0.5;      /* of the best rate: a trial that ends at once */
static const double change = 1.05; /* how much better it must be to enter or leave the parallel */

static void forget_some(double *tried, double *right, double kept)
{
    *tried = prior_tries + kept * (*tried - prior_tries);
    *right = prior_tries * prior_right + kept * (*right - prior_tries * prior_right);
}

void policy_open(struct policy *p, int tree_rows)
{
    memset(p, 0, sizeof *p);
    p->tree_rows = tree_rows;
    p->wait = PROBE_EVERY;
    p->scaled = SCALED;
    for (int d = 1; d <= POLICY_MAX_WINDOW; d++) {
        p->tried[d] = prior_tries;
        p->right[d] = prior_tries * prior_right;
    }
    p->all_tried = prior_tries;
    p->all_right = prior_tries * prior_right;
}

void policy_fit(struct policy *p)
{
    p->fitted = true;
}

void policy_record(struct policy *p)
{
    p->recorded = true;
}

void policy_allow_parallel(struct policy *p, int max_window)
{
    p->both.max_window = max_window < TREE_MAX_DEPTH ? max_window : TREE_MAX_DEPTH;
    p->both.patience = FIRST_PATIENCE;
    p->both.slack = 1;
}

void policy_resume(struct policy *p, const struct policy *before)
{
    struct policy open = *p;
    if (before->verify_s[1] == 0 || before->token_s == 0 || before->tree_rows != p->tree_rows ||
        before->fitted != p->fitted || before->recorded != p->recorded)
        return;
    *p = *before;
    p->both.max_window = open.both.max_window;
    p->both.on = false;
    p->both.run = p->both.stay = 0;
    p->trial = false;
    p->trials = 0;
    p->trial_s = p->read_s = 0;
    p->scaled = 0;
    /* A single slow pass would keep its number of rows from being used ever again. */
    for (int i = 2; i <= TREE_MAX; i++)
        if (!(p->measured >> (i - 1) & 1))
            p->verify_s[i] = 0;
    p->measured = 0;
    for (int d = 1; d <= POLICY_MAX_WINDOW; d++)
        forget_some(&p->tried[d], &p->right[d], other_text);
    forget_some(&p->all_tried, &p->all_right, other_text);
}

static void scale_times(struct policy *p, double factor)
{
    for (int i = 0; i <= TREE_MAX; i++) {
        p->verify_s[i] *= factor;
        p->both.target_s[i] *= factor;
    }
    p->token_s *= factor;
    p->chains.s *= factor;
    p->chains.ws *= factor;
    p->tree_s *= factor;
    p->tree_verify_s *= factor;
    p->both.token_s *= factor;
}

static void blend_in(double *x, double now)
{
    if (now == 0)
        return;
    if (*x == 0)
        *x = now;
    else
        *x += smooth * ((now > outlier * *x ? outlier * *x : now) - *x);
}

static double verify_time(const struct policy *p, int rows)
{
    return row_times_at(p->verify_s, TREE_MAX, rows);
}

/* How likely a token of this depth is right after right ones. Where windows are few, what is known
 * of all depths helps out with those that seldom come. */
static double right_at(const struct policy *p, int depth)
{
    double weight = p->recorded ? common_weight : 0;
    return (p->right[depth] + weight * p->all_right / p->all_tried) / (p->tried[depth] + weight);
}

/* Tokens of a round with a chain of this window: the target's own, and each drafted one with the
 * probability that all up to it are right. */
static double chain_tokens(const struct policy *p, int window)
{
    double sum = 1, all = 1;
    for (int d = 1; d <= window; d++) {
        all *= right_at(p, d);
        sum += all;
    }
    return sum;
}

/* Seconds to draft a chain. On a GPU a chain is one step with a cost of its own beside that of its
 * tokens, so this is a line by window. While windows differ little, it goes through zero. */
static double chain_time(const struct policy *p, int window)
{
    double n = p->chains.n, w, s, through_zero, slope;
    if (n == 0)
        return window * p->token_s;
    w = p->chains.w / n;
    s = p->chains.s / n;
    through_zero = s / w;
    slope = (p->chains.ws - n * w * s + line_weight * through_zero) /
            (p->chains.ww - n * w * w + line_weight);
    slope = slope < 0 ? 0 : slope < through_zero ? slope : through_zero;
    return s + slope * (window - w);
}

static double hoped_of_tree(const struct policy *p)
{
    return chain_tokens(p, HOPED_WINDOW) * tree_hope;
}

/* The first of something that is only hoped for. */
static double trust_some(double measured, double hoped)
{
    return first_trust * measured + (1 - first_trust) * hoped;
}

/* What is known of the two sides at once, and before that of each alone. */
static const double *parallel_times(const struct policy *p, double *token_s)
{
    bool known = p->both.token_s > 0 && row_times_at(p->both.target_s, p->both.max_window, 1) > 0;
    *token_s = known ? p->both.token_s : p->token_s;
    return known ? p->both.target_s : p->verify_s;
}

static double parallel_rate(const struct policy *p, int window)
{
    double token_s;
    const double *target_s = parallel_times(p, &token_s);
    return pearl_rate(p->all_right / p->all_tried, window, token_s,
                      row_times_at(target_s, p->both.max_window, window)) /
           p->both.slack;
}

double policy_rate(const struct policy *p, struct policy_choice c)
{
    switch (c.kind) {
    case POLICY_CHAIN:
        return chain_tokens(p, c.window) / (chain_time(p, c.window) + verify_time(p, c.window + 1));
    case POLICY_TREE: {
        double tokens = p->tree_tokens > 0 ? p->tree_tokens : hoped_of_tree(p);
        double draft = p->tree_s > 0 ? p->tree_s : 10 * p->token_s;
        double verify =
            p->fitted && p->tree_verify_s > 0 ? p->tree_verify_s : verify_time(p, p->tree_rows);
        return tokens / (draft + verify);
    }
    case POLICY_PARALLEL:
        return p->both.max_window > 0 ? parallel_rate(p, c.window) : 0;
    default:
        return 1 / verify_time(p, 1);
    }
}

/* The best choice without the parallel ones; with `skip` not NULL, the best of another kind or
 * window than that. */
static struct policy_choice best_of(const struct policy *p, const struct policy_choice *skip)
{
    struct policy_choice best = { POLICY_PLAIN, 0 };
    double rate = skip && skip->kind == POLICY_PLAIN ? 0 : policy_rate(p, best);
    for (int w = 1; w <= POLICY_MAX_WINDOW + 1; w++) {
        bool tree = w > POLICY_MAX_WINDOW;
        struct policy_choice c = { tree ? POLICY_TREE : POLICY_CHAIN, tree ? 0 : w };
        double r;
        if ((tree ? p->tree_rows == 0 : p->fitted || (p->recorded && !recorded_window[w])) ||
            (skip && skip->kind == c.kind && skip->window == c.window))
            continue;
        r = policy_rate(p, c);
        if (p->recorded && !tree && p->verify_s[w + 1] == 0)
            r *= new_window;
        if (r > rate) {
            rate = r;
            best = c;
        }
    }
    return best;
}

bool policy_drafts(const struct policy *p)
{
    return p->verify_s[1] > 0 && p->token_s > 0 && best_of(p, NULL).kind != POLICY_PLAIN;
}

void policy_read_prompt(struct policy *p, double seconds)
{
    if (p->trial)
        p->read_s = seconds;
}

static struct policy_choice best_parallel(const struct policy *p)
{
    double token_s;
    const double *target_s = parallel_times(p, &token_s);
    int window = pearl_window(p->all_right / p->all_tried, token_s, target_s, p->both.max_window);
    return (struct policy_choice){ POLICY_PARALLEL, window > 0 ? window : 1 };
}

static void lose_patience(struct policy *p, int times)
{
    p->both.patience *= times;
    if (p->both.patience > MAX_PATIENCE)
        p->both.patience = MAX_PATIENCE;
}

/* Long ago it was not worth while: it may be now. */
static void doubt_parallel(struct policy *p)
{
    if (p->both.on || p->both.token_s == 0 || ++p->both.away < p->both.patience)
        return;
    memset(p->both.target_s, 0, sizeof p->both.target_s);
    p->both.token_s = 0;
    p->both.slack = 1;
    p->both.away = 0;
    lose_patience(p, 2);
}

/* Whether the parallel schedule is entered or gone on with, when `serial` is the best without. */
static bool goes_parallel(struct policy *p, struct policy_choice serial)
{
    double alone = policy_rate(p, serial), both;
    if (p->both.max_window == 0)
        return false;
    doubt_parallel(p);
    both = policy_rate(p, best_parallel(p));
    if (!p->both.on) {
        if (both < change * alone)
            return false;
        p->both.run = p->both.away = p->since_probe = 0;
        p->both.stay = STAY - 1;
        return true;
    }
    if (p->both.stay > 0 && both > hopeless * alone) {
        p->both.stay--;
        return true;
    }
    if (p->both.stay > 0) { /* such a machine is not soon asked again */
        p->both.stay = 0;
        lose_patience(p, 4);
        return false;
    }
    if (++p->since_probe >= PROBE_RARELY)
        p->both.patience = FIRST_PATIENCE; /* it has proved itself */
    return change * both > alone && (p->since_probe < PROBE_RARELY || alone < worth_a_probe * both);
}

struct policy_choice policy_next(struct policy *p)
{
    struct policy_choice best, other;
    bool was_on = p->both.on, rests;
    double least;
    p->rounds++;
    for (int d = 1; d <= POLICY_MAX_WINDOW; d++) /* what was long ago may have changed */
        forget_some(&p->tried[d], &p->right[d], forget);
    forget_some(&p->all_tried, &p->all_right, forget);
    if (p->verify_s[1] == 0)
        return (struct policy_choice){ POLICY_PLAIN, 0 };
    if (p->token_s == 0)
        return p->fitted ? (struct policy_choice){ POLICY_TREE, 0 }
                         : (struct policy_choice){ POLICY_CHAIN, FIRST_WINDOW };
    best = best_of(p, NULL);
    p->both.on = goes_parallel(p, best);
    if (p->both.on)
        return best_parallel(p);
    if (was_on)
        p->since_probe = 0;
    rests = best.kind == POLICY_PLAIN;
    if (++p->since_probe < (rests ? p->wait : PROBE_EVERY))
        return best;
    p->since_probe = 0;
    if (!rests)
        p->wait = PROBE_EVERY;                           /* drafting has proved itself */
    if (best.kind == POLICY_CHAIN && p->tree_tokens > 0) /* trees may have become worth while */
        p->tree_tokens += hope_again * (hoped_of_tree(p) - p->tree_tokens);
    other = best_of(p, &best);
    if (best.kind == POLICY_CHAIN && p->tree_rows > 0 && p->tree_s == 0)
        other = (struct policy_choice){ POLICY_TREE, 0 }; /* never tried: its times are guesses */
    p->trial = rests && other.kind != POLICY_PLAIN;
    least = other.kind == POLICY_TREE && p->tree_s == 0 ? hopeless : worth_a_probe;
    return p->trial || policy_rate(p, other) > least * policy_rate(p, best) ? other : best;
}

/* The drafter was tried while plain decoding seemed best. If that gained time, it is tried again at
 * once; also if it did not, but had to read the prompt, because a few rounds more cost little then.
 * Otherwise it rests for twice as many rounds as before, and so long that what it lost, with all
 * that it had to read, is a small share of them. */
static void judge_trial(struct policy *p, int rows, int accepted, double draft_s, double verify_s)
{
    double plain = verify_time(p, 1), usual = verify_time(p, rows), lost;
    int longer = p->wait * 2 < MAX_WAIT ? p->wait * 2 : MAX_WAIT;
    p->trial = false;
    p->trial_s += draft_s + (verify_s > 0 ? verify_s : usual) - (accepted + 1) * plain;
    p->trials++;
    if (p->trial_s < 0 || (p->read_s > 0 && p->trials < AFTER_READING)) {
        if (p->trial_s < 0)
            p->wait = p->wait / 2 > PROBE_EVERY ? p->wait / 2 : PROBE_EVERY;
        p->since_probe = p->wait;
        return;
    }
    lost = rest * (p->trial_s + p->read_s) / plain;
    p->trial_s = p->read_s = 0;
    p->trials = 0;
    p->wait = lost < longer ? longer : lost < MAX_REST ? (int)lost : MAX_REST;
    p->since_probe = 0;
}

/* More rows take no less time than fewer: a new time corrects others that contradict it. */
static void learn_pass(struct policy *p, int rows, double seconds)
{
    double now;
    blend_in(&p->verify_s[rows], seconds);
    p->measured |= (uint64_t)(seconds > 0) << (rows - 1);
    now = p->verify_s[rows];
    for (int i = 1; i <= TREE_MAX && now > 0; i++)
        if (p->verify_s[i] > 0 && (i < rows ? p->verify_s[i] > now : p->verify_s[i] < now))
            p->verify_s[i] = now;
}

/* The times of an earlier answer become those of this one: by the mean of its first rounds. */
static void scale_by(struct policy *p, int rows, double verify_s)
{
    double usual = verify_time(p, rows);
    if (p->scaled == SCALED || verify_s == 0 || usual == 0)
        return;
    if (p->scaled > 0 && verify_s > outlier * usual)
        verify_s = outlier * usual;
    p->scaled++;
    scale_times(p, 1 + (verify_s / usual - 1) / p->scaled);
}

/* Seconds of drafting. After plain rounds (`late`) the drafter also reads what they added, so a
 * longer time says nothing about the rounds that follow. */
static void learn_drafting(double *x, double seconds, bool late)
{
    if (!late || *x == 0 || seconds < *x)
        blend_in(x, seconds);
}

/* The same for a chain. Rounds after plain ones count only if they were faster than expected. */
static void learn_chain(struct policy *p, int window, double seconds, bool late)
{
    double usual = chain_time(p, window);
    if (seconds == 0 || (late && (p->chains.n == 0 || seconds >= usual)))
        return;
    if (p->chains.n > 0 && seconds > outlier * usual)
        seconds = outlier * usual;
    p->chains.n = fade_line * p->chains.n + 1;
    p->chains.w = fade_line * p->chains.w + window;
    p->chains.ww = fade_line * p->chains.ww + (double)window * window;
    p->chains.s = fade_line * p->chains.s + seconds;
    p->chains.ws = fade_line * p->chains.ws + window * seconds;
}

/* Tokens tested one after another, the first at depth `first`, and how many of them were right. */
static void count_tests(struct policy *p, int first, int tested, int accepted)
{
    double faded = p->recorded ? fade_all : fade;
    tested = tested < accepted + 1 ? tested : accepted + 1;
    for (int i = 0; i < tested && first + i <= POLICY_MAX_WINDOW; i++) {
        p->tried[first + i] = p->tried[first + i] * faded + 1;
        p->right[first + i] = p->right[first + i] * faded + (i < accepted);
    }
    p->all_tried = p->all_tried * fade_all + tested;
    p->all_right = p->all_right * fade_all + accepted;
}

void policy_learn(struct policy *p, struct policy_choice c, int rows, int proposed, int accepted,
                  double draft_s, double verify_s)
{
    bool fitted = p->fitted && c.kind == POLICY_TREE;
    /* A fitted tree may be the root alone, and the drafter has run nevertheless. */
    bool drafted = proposed > 0 || (fitted && draft_s > 0), late = p->plain_rounds > 0;
    p->plain_rounds = drafted ? 0 : p->plain_rounds + 1;
    if (rows <= TREE_MAX)
        scale_by(p, rows, verify_s);
    if (p->trial)
        judge_trial(p, rows, accepted, draft_s, verify_s);
    if (rows <= TREE_MAX)
        learn_pass(p, rows, verify_s);
    if (c.kind == POLICY_TREE && drafted) {
        /* one bad tree is no reason to give up, and a deep one not to think all dear */
        bool first = p->fitted && p->tree_s == 0 && proposed > HOPED_WINDOW;
        learn_drafting(&p->tree_s,
                       first ? trust_some(draft_s, draft_s / proposed * HOPED_WINDOW) : draft_s,
                       late);
        blend_in(&p->tree_verify_s, verify_s);
        if (p->tree_tokens == 0)
            p->tree_tokens = trust_some(accepted + 1, hoped_of_tree(p));
        else
            p->tree_tokens += 0.05 * (accepted + 1 - p->tree_tokens);
    }
    if (!drafted || (c.kind != POLICY_CHAIN && !fitted))
        return;
    if (p->rough && !late && draft_s > 0)
        p->token_s = 0;
    if (draft_s > 0)
        p->rough = late && (p->token_s == 0 || p->rough);
    if (c.kind == POLICY_CHAIN && proposed > 0)
        learn_chain(p, proposed, draft_s, late);
    learn_drafting(&p->token_s, draft_s / (proposed > 0 ? proposed : 1), late);
    if (proposed > 0)
        count_tests(p, 1, proposed, accepted);
}

void policy_learn_parallel(struct policy *p, const struct policy_round *r)
{
    double longer = r->draft_s > r->target_s ? r->draft_s : r->target_s;
    if (r->rows > 0 && r->rows <= TREE_MAX)
        blend_in(&p->both.target_s[r->rows], r->target_s);
    if (r->drafted > 0)
        blend_in(&p->both.token_s, r->draft_s / r->drafted);
    else if (r->wall_s > p->both.token_s) /* a token takes longer than all that */
        blend_in(&p->both.token_s, r->wall_s);
    if (longer > 0)
        blend_in(&p->both.slack, r->wall_s / longer);
    if (r->tested > 0)
        count_tests(p, p->both.run + 1, r->tested, r->accepted);
    /* a token of the target's own begins a new run of guesses */
    p->both.run = r->accepted < r->tested || r->drafted == 0 ? 0 : p->both.run + r->accepted;
}
