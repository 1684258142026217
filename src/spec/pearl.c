/* The two-state machine of PEARL with windows of any length. With V verified tokens, k pending ones
 * and the target's cache at V - 1 (it has always run all but the last verified token), the target
 * runs k + 1 rows: they judge the k pending tokens and the first new one. If all are right the new
 * tokens join the prefix, all but the first of them pending. At the first that is wrong, n tokens
 * in, the target's own token takes its place: V + n + 1 tokens stand, V + n of them are good in
 * either cache. In PRE k is 0, so both modes are one rule; a window of one token leaves nothing
 * pending and yet POST, as in the reference. There is no bonus token: the last row is spent on the
 * first token of the next window, unless none was drafted. */
#include "spec/pearl.h"

#include "base/minmax.h"
#include "spec/row_times.h"

#include <assert.h>

void pearl_begin(struct pearl *p, int prefix, int target_len, int draft_len)
{
    assert(prefix > 0 && target_len >= 0 && target_len <= prefix);
    assert(draft_len >= 0 && draft_len <= prefix);
    *p = (struct pearl){
        .mode = PEARL_PRE, .prefix = prefix, .target_len = target_len, .draft_len = draft_len
    };
}

int pearl_rows(const struct pearl *p)
{
    return p->prefix - p->target_len;
}

int pearl_tested(const struct pearl *p, int drafted)
{
    return p->pending + (drafted > 0);
}

static void count_round(struct pearl *p, int drafted, const struct pearl_round *r, bool rejected)
{
    struct pearl_counts *c = &p->counts;
    c->rounds++;
    c->passes += pearl_rows(p) > 0;
    c->rows += pearl_rows(p);
    c->proposed += drafted;
    c->accepted += r->accepted;
    c->own += r->own;
    p->run += r->accepted;
    if (p->run > c->run_max)
        c->run_max = p->run;
    if (!rejected)
        return;
    c->rejections++;
    c->run_sum += p->run;
    p->run = 0;
}

struct pearl_round pearl_end(struct pearl *p, int drafted, int right)
{
    int verified = p->prefix - p->pending, tested = pearl_tested(p, drafted);
    /* The drafter runs all of its tokens but the last; without one it need not have run at all. */
    int draft_len = drafted > 0 ? p->prefix + drafted - 1 : p->draft_len;
    bool rejected = right < tested;
    struct pearl_round r = { .accepted = right, .own = rejected || drafted == 0 };

    assert(drafted >= 0 && drafted <= PEARL_MAX && right >= 0 && right <= tested);
    r.verified = r.accepted + r.own;
    count_round(p, drafted, &r, rejected);
    p->target_len = p->prefix;
    p->draft_len = draft_len;
    if (rejected) {
        p->mode = PEARL_PRE;
        p->target_len = min_int(p->target_len, verified + right);
        p->draft_len = min_int(p->draft_len, verified + right);
        p->prefix = verified + right + 1;
        p->pending = 0;
    } else {
        p->mode = drafted > 0 ? PEARL_POST : PEARL_PRE;
        p->prefix += drafted > 0 ? drafted : 1;
        p->pending = drafted > 0 ? drafted - 1 : 0;
    }
    r.target_len = p->target_len;
    r.draft_len = p->draft_len;
    return r;
}

void pearl_wait(struct pearl *p, int drafted)
{
    assert(p->pending == 0 && drafted >= 0 && drafted <= PEARL_MAX);
    p->counts.proposed += drafted;
    p->pending = drafted;
    p->prefix += drafted;
    if (drafted == 0)
        return;
    p->mode = PEARL_POST;
    p->draft_len = p->prefix - 1;
}

/* A round in POST brings 1 + a + ... + a^(g-1) tokens, one in PRE brings 1; PRE leads to POST with
 * probability a, POST to PRE with 1 - a^g. The sum, not its closed form: a may be 1. */
double pearl_rate(double a, int g, double draft_token_s, double target_pass_s)
{
    double sum = 0, power = 1, draft_s = g * draft_token_s;
    if (g == 0)
        return 1 / target_pass_s;
    for (int i = 0; i < g; i++) {
        sum += power;
        power *= a;
    }
    return sum / (1 + a - power) / (draft_s > target_pass_s ? draft_s : target_pass_s);
}

/* Of an endless run of right tokens no round waits. */
double pearl_waiting_rate(double a, int g, double draft_token_s, double waited_pass_s,
                          double target_pass_s)
{
    double sum = 0, power = 1, draft_s = g * draft_token_s, on = 0;
    double on_s = draft_s > target_pass_s ? draft_s : target_pass_s;
    for (int i = 0; i < g; i++) {
        sum += power;
        power *= a;
    }
    if (power >= 1)
        return g / on_s;
    on = a * power / (1 - power);
    return (sum + power + on * sum) / (draft_s + waited_pass_s + on * on_s);
}

static int best_window(double a, double draft_token_s, const double *target_s, int max, bool waits)
{
    double best = 0;
    int window = 0;
    for (int g = 1; g <= max; g++) {
        double pass_s = row_times_at(target_s, max, g), more_s = pass_s, rate;
        if (pass_s == 0)
            return 0;
        if (waits && g < max)
            more_s = row_times_at(target_s, max, g + 1);
        rate = waits ? pearl_waiting_rate(a, g, draft_token_s, more_s, pass_s)
                     : pearl_rate(a, g, draft_token_s, pass_s);
        if (rate > best) {
            best = rate;
            window = g;
        }
    }
    return window;
}

int pearl_window(double a, double draft_token_s, const double *target_s, int max)
{
    return best_window(a, draft_token_s, target_s, max, false);
}

int pearl_waiting_window(double a, double draft_token_s, const double *target_s, int max)
{
    return best_window(a, draft_token_s, target_s, max, true);
}
