/* The books of the parallel schedule: the worked trace of the papers, scripted rounds, a model of
 * both sides with real tokens that must tell the true text whatever the drafter does, and the
 * closed form against the machine itself. */
#include "base/rng.h"
#include "spec/pearl.h"
#include "spec/row_times.h"
#include "test.h"

#include <math.h>

/* One round: what happened, and how the books must stand after it. */
struct script {
    int drafted, right;         /* in */
    int rows, tested, verified; /* of the round */
    enum pearl_mode mode;       /* after it */
    int prefix, pending, target_len, draft_len, run;
};

static void play(struct pearl *p, const struct script *s, int n)
{
    for (int i = 0; i < n; i++, s++) {
        struct pearl_round r;
        CHECK_MSG(pearl_rows(p) == s->rows, "round %d: %d rows", i + 1, pearl_rows(p));
        CHECK_MSG(pearl_tested(p, s->drafted) == s->tested, "round %d: %d tested", i + 1,
                  pearl_tested(p, s->drafted));
        r = pearl_end(p, s->drafted, s->right);
        CHECK_MSG(r.verified == s->verified && r.accepted == s->right &&
                      r.verified == r.accepted + r.own,
                  "round %d: %d verified, %d accepted", i + 1, r.verified, r.accepted);
        CHECK_MSG(p->mode == s->mode, "round %d: mode %d", i + 1, (int)p->mode);
        CHECK_MSG(p->prefix == s->prefix && p->pending == s->pending,
                  "round %d: prefix %d, %d pend", i + 1, p->prefix, p->pending);
        CHECK_MSG(p->target_len == s->target_len && p->draft_len == s->draft_len,
                  "round %d: caches of %d and %d", i + 1, p->target_len, p->draft_len);
        CHECK_EQ(r.target_len, p->target_len);
        CHECK_EQ(r.draft_len, p->draft_len);
        CHECK_MSG(p->run == s->run, "round %d: a run of %d", i + 1, p->run);
    }
}

/* g = 3, a prompt of 10; the longest run has 5 tokens, as in ParallelVLM's figure. */
TEST(worked_trace)
{
    static const struct script rounds[] = {
        { 3, 1, 10, 1, 1, PEARL_POST, 13, 2, 10, 12, 1 },
        { 3, 3, 3, 3, 3, PEARL_POST, 16, 2, 13, 15, 4 },
        { 3, 1, 3, 3, 2, PEARL_PRE, 16, 0, 15, 15, 0 },
        { 3, 0, 1, 1, 1, PEARL_PRE, 17, 0, 16, 16, 0 },
    };
    struct pearl p;
    pearl_begin(&p, 10, 0, 0);
    CHECK_EQ(p.mode, PEARL_PRE);
    play(&p, rounds, 3);
    CHECK(p.counts.run_sum == 5 && p.counts.rejections == 1);
    play(&p, rounds + 3, 1);
    CHECK_EQ(p.counts.rounds, 4);
    CHECK_EQ(p.counts.passes, 4);
    CHECK_EQ(p.counts.rows, 10 + 3 + 3 + 1);
    CHECK_EQ(p.counts.proposed, 12);
    CHECK_EQ(p.counts.accepted, 5);
    CHECK_EQ(p.counts.own, 2);
    CHECK_EQ(p.counts.rejections, 2);
    CHECK_EQ(p.counts.run_sum, 5); /* runs of 5 and of 0 */
    CHECK_EQ(p.counts.run_max, 5);
}

/* A long start-up buffer, a drafter that was stopped early or made nothing, windows of one. */
TEST(windows_of_any_length)
{
    static const struct script rounds[] = {
        { 12, 1, 0, 1, 1, PEARL_POST, 112, 11, 100, 111, 1 }, /* the prefill's logits: no pass */
        { 5, 12, 12, 12, 12, PEARL_POST, 117, 4, 112, 116, 13 },
        { 2, 5, 5, 5, 5, PEARL_POST, 119, 1, 117, 118, 18 }, /* stopped after two */
        { 0, 1, 2, 1, 2, PEARL_PRE, 120, 0, 119, 118, 19 },  /* nothing new: pending, then own */
        { 0, 0, 1, 0, 1, PEARL_PRE, 121, 0, 120, 118, 19 },  /* plain decoding */
        { 1, 1, 1, 1, 1, PEARL_POST, 122, 0, 121, 121, 20 }, /* a window of one */
        { 1, 1, 1, 1, 1, PEARL_POST, 123, 0, 122, 122, 21 },
        { 1, 0, 1, 1, 1, PEARL_PRE, 124, 0, 123, 123, 0 },
        { 4, 1, 1, 1, 1, PEARL_POST, 128, 3, 124, 127, 1 },
        { 0, 2, 4, 3, 3, PEARL_PRE, 128, 0, 127, 127, 0 }, /* the last pending one is wrong */
        { 32, 1, 1, 1, 1, PEARL_POST, 160, 31, 128, 159, 1 },
        { 32, 0, 32, 32, 1, PEARL_PRE, 130, 0, 129, 129, 0 }, /* the first pending one is wrong */
    };
    struct pearl p;
    pearl_begin(&p, 100, 100, 90);
    play(&p, rounds, sizeof rounds / sizeof *rounds);
    CHECK_EQ(p.counts.rounds, 12);
    CHECK_EQ(p.counts.passes, 11);
    CHECK_EQ(p.counts.own, 5);
    CHECK_EQ(p.counts.rejections, 3);
    CHECK_EQ(p.counts.accepted, 25);
    CHECK_EQ(p.counts.run_sum, 25); /* 21, 3 and 1 */
    CHECK_EQ(p.counts.run_max, 21);
}

/* ---- both sides with tokens ---- */

enum { PROMPT = 7, TEXT = 400, ROOM = PROMPT + TEXT + 2 * PEARL_MAX };

/* The token that the target has at each place, and what either side believes. */
struct sides {
    struct rng rng;
    int32_t truth[ROOM], prefix[ROOM], target_kv[ROOM], draft_kv[ROOM];
    int n_target, n_draft; /* tokens in the caches */
};

static double uniform(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}

/* Tokens after the prefix: true with probability a, as long as all before them are. */
static void draft(struct sides *s, int prefix, int n, double a, int32_t *out)
{
    bool good = !memcmp(s->prefix, s->truth, (size_t)prefix * sizeof *s->truth);
    for (int i = 0; i < n; i++) {
        good = good && uniform(&s->rng) < a;
        out[i] = s->truth[prefix + i] + (good ? 0 : 1);
    }
}

/* The tokens of one round into caches and prefix, as the books say. */
static void run_round(struct sides *s, struct pearl *p, int drafted, double a)
{
    int32_t made[PEARL_MAX + 1];
    int before = p->prefix, known = before - p->pending, right = 0, tested;
    struct pearl_round r;
    draft(s, before, drafted, a, made);
    CHECK_EQ(s->n_target, p->target_len);
    for (int i = 0; i < pearl_rows(p); i++)
        s->target_kv[s->n_target + i] = s->prefix[s->n_target + i];
    for (int i = s->n_draft; i < before + drafted - 1 && drafted > 0; i++)
        s->draft_kv[i] = i < before ? s->prefix[i] : made[i - before];
    tested = pearl_tested(p, drafted);
    while (right < tested &&
           (known + right < before ? s->prefix[known + right] : made[0]) == s->truth[known + right])
        right++;
    r = pearl_end(p, drafted, right);
    memcpy(s->prefix + before, made, (size_t)drafted * sizeof *made);
    if (r.own)
        s->prefix[known + r.accepted] = s->truth[known + r.accepted];
    s->n_target = r.target_len;
    s->n_draft = r.draft_len;
    CHECK_EQ(p->prefix - p->pending, known + r.verified);
}

static void check_sides(const struct sides *s, const struct pearl *p)
{
    int known = p->prefix - p->pending;
    CHECK(p->pending >= 0 && p->pending < PEARL_MAX && known > PROMPT);
    CHECK(p->mode == PEARL_POST || p->pending == 0);
    CHECK_EQ(p->target_len, known - 1); /* all but the last verified token */
    CHECK(p->draft_len <= p->prefix);
    CHECK(!memcmp(s->prefix, s->truth, (size_t)known * sizeof *s->truth));
    CHECK(!memcmp(s->target_kv, s->prefix, (size_t)p->target_len * sizeof *s->truth));
    CHECK(!memcmp(s->draft_kv, s->prefix, (size_t)p->draft_len * sizeof *s->truth));
}

/* An answer with windows of g (0: any length, also none), right with probability a. */
static void answer(struct sides *s, int g, double a, uint64_t seed)
{
    struct pearl p;
    int last = PROMPT, most = 0;
    memset(s, 0, sizeof *s);
    s->rng.state = seed;
    for (int i = 0; i < ROOM; i++)
        s->truth[i] = (int32_t)(rng_next(&s->rng) % 1000) * 2;
    memcpy(s->prefix, s->truth, PROMPT * sizeof *s->truth);
    pearl_begin(&p, PROMPT, 0, 0);
    while (p.prefix - p.pending < PROMPT + TEXT) {
        int drafted = g > 0 ? g : (int)(rng_next(&s->rng) % (PEARL_MAX + 1)), known;
        run_round(s, &p, drafted, a);
        check_sides(s, &p);
        known = p.prefix - p.pending;
        CHECK(known > last); /* every round tells at least one token */
        most = known - last > most ? known - last : most;
        last = known;
    }
    CHECK_EQ(p.counts.accepted + p.counts.own, last - PROMPT);
    CHECK_EQ(p.counts.run_sum + p.run, p.counts.accepted);
    CHECK(p.counts.rows >= last - 1 && p.counts.passes == p.counts.rounds);
    CHECK(p.counts.own >= p.counts.rejections && most <= PEARL_MAX);
    CHECK(g == 0 || p.counts.own == p.counts.rejections);
}

TEST(tells_the_true_text)
{
    static const double rights[] = { 0, 0.3, 0.8, 0.97, 1 };
    static struct sides s;
    for (size_t k = 0; k < sizeof rights / sizeof *rights; k++)
        for (int g = 0; g <= 12; g++)
            for (uint64_t seed = 0; seed < 3; seed++)
                answer(&s, g, rights[k], test_seed + 100 * seed + (uint64_t)g);
}

/* ---- the closed form ---- */

/* Mean tokens a round of the machine itself, and its standard error from means of batches. */
static double tokens_a_round(double a, int g, struct rng *r, double *error)
{
    enum { BATCHES = 100, ROUNDS = 400 };
    double sum = 0, squares = 0;
    struct pearl p;
    pearl_begin(&p, 1, 0, 0);
    for (int b = 0; b < BATCHES; b++) {
        double tokens = 0;
        for (int i = 0; i < ROUNDS; i++) {
            int right = 0, tested = pearl_tested(&p, g);
            while (right < tested && uniform(r) < a)
                right++;
            tokens += pearl_end(&p, g, right).verified;
        }
        tokens /= ROUNDS;
        sum += tokens;
        squares += tokens * tokens;
    }
    sum /= BATCHES;
    *error = sqrt((squares / BATCHES - sum * sum) / (BATCHES - 1));
    return sum;
}

TEST(closed_form_is_what_the_machine_does)
{
    static const double rights[] = { 0.05, 0.3, 0.6, 0.8, 0.9, 0.97 };
    struct rng r = { test_seed };
    for (size_t k = 0; k < sizeof rights / sizeof *rights; k++)
        for (int g = 1; g <= 12; g++) {
            double error, is = tokens_a_round(rights[k], g, &r, &error);
            double says = pearl_rate(rights[k], g, 0, 1);
            CHECK_MSG(fabs(is - says) <= 5 * error + 1e-9, "a %.2f, g %d: %.4f, said %.4f +- %.4f",
                      rights[k], g, is, says, error);
            CHECK_MSG(error < 0.02 * is + 1e-9, "an error of %.4f proves nothing", error);
        }
}

TEST(rate_by_hand)
{
    CHECK(fabs(pearl_rate(0.8, 3, 0.5, 1) - (1 - 0.512) / (0.2 * (1.8 - 0.512)) / 1.5) < 1e-12);
    CHECK(fabs(pearl_rate(0.8, 3, 0.1, 2) - (1 - 0.512) / (0.2 * (1.8 - 0.512)) / 2) < 1e-12);
    CHECK_EQ(pearl_rate(1, 5, 0.1, 1), 5.0); /* the limit, where the formula is 0 / 0 */
    CHECK_EQ(pearl_rate(0, 5, 0.1, 1), 1.0);
    CHECK_EQ(pearl_rate(0.9, 0, 0.1, 4), 0.25); /* plain decoding */
}

/* With a pass of one second whatever its rows, and drafting that takes `draft_s` of it. */
static double waiting_rate(double a, int g, double draft_s, struct rng *r)
{
    enum { ROUNDS = 200000 };
    struct pearl p;
    double seconds = 0;
    pearl_begin(&p, 1, 0, 0);
    for (int i = 0; i < ROUNDS; i++) {
        bool waits = p.pending == 0 && p.mode == PEARL_PRE;
        int right = 0, drafted;
        if (waits)
            pearl_wait(&p, g);
        seconds += 1 + (waits ? g * draft_s : 0);
        while (right < p.pending && uniform(r) < a)
            right++;
        drafted = right == p.pending ? g : 0;
        right += drafted > 0 && uniform(r) < a;
        if (drafted > 0 && right <= p.pending) /* the first one is wrong: nobody waits for more */
            drafted = 1;
        pearl_end(&p, drafted, right);
    }
    CHECK_EQ(p.prefix - p.pending, 1 + p.counts.accepted + p.counts.own);
    return (double)(p.counts.accepted + p.counts.own) / seconds;
}

TEST(waiting_is_what_its_closed_form_says)
{
    static const double rights[] = { 0.3, 0.6, 0.8, 0.9 };
    double flat[13] = { 0 };
    struct rng r = { test_seed };
    flat[1] = flat[12] = 1;
    for (size_t k = 0; k < sizeof rights / sizeof *rights; k++)
        for (int g = 2; g <= 8; g += 2) {
            double is = waiting_rate(rights[k], g, 0.05, &r);
            double says = pearl_waiting_rate(rights[k], g, 0.05, 1, 1);
            CHECK_MSG(fabs(is / says - 1) < 0.02, "a %.2f, g %d: %.4f, said %.4f", rights[k], g, is,
                      says);
        }
    CHECK_EQ(pearl_waiting_rate(1, 5, 0.1, 1, 1), 5.0);
    CHECK_EQ(pearl_waiting_rate(0, 1, 1, 1, 1), 0.5);
    CHECK_EQ(pearl_waiting_window(0.9, 0.25, (double[13]){ 0 }, 12), 0);
    CHECK_EQ(pearl_waiting_window(1, 0.01, flat, 12), 12);
    CHECK_EQ(pearl_waiting_window(0.1, 0.2, flat, 12), 1);
}

TEST(window_is_the_best_one)
{
    double flat[13] = { 0 }, steep[13] = { 0 }, none[13] = { 0 };
    flat[1] = flat[12] = 1;
    steep[1] = 1;
    steep[5] = 5; /* a row more costs a whole pass more */
    CHECK_EQ(pearl_window(0.9, 0.25, none, 12), 0);
    CHECK_EQ(pearl_window(0.9, 1.0 / 3, flat, 12), 3);
    CHECK_EQ(pearl_window(0.97, 1.0 / 9, flat, 12), 9); /* ParallelVLM: g = T_p / T_q */
    CHECK_EQ(pearl_window(0.97, 1.0 / 9, flat, 6), 6);
    CHECK_EQ(pearl_window(0.9, 0.1, steep, 12), 1);
    CHECK_EQ(pearl_window(0, 0.1, flat, 12), 1); /* equal rates: the shortest */
    for (int i = 1; i <= 9; i++) {
        double a = i / 10.0, best = 0;
        int g = pearl_window(a, 0.2, flat, 12);
        for (int w = 1; w <= 12; w++)
            best = fmax(best, pearl_rate(a, w, 0.2, 1));
        CHECK_EQ(pearl_rate(a, g, 0.2, 1), best);
    }
}

TEST(times_between_and_beyond)
{
    double t[9] = { 0 };
    CHECK_EQ(row_times_at(t, 8, 3), 0.0);
    t[4] = 2.8;
    CHECK(fabs(row_times_at(t, 8, 8) - 3.6) < 1e-12); /* one known: a guess that grows */
    CHECK(row_times_at(t, 8, 1) < 2.8 && row_times_at(t, 8, 1) > 0);
    t[1] = 1;
    CHECK(fabs(row_times_at(t, 8, 2) - 1.6) < 1e-12);
    CHECK(fabs(row_times_at(t, 8, 6) - 4.0) < 1e-12); /* on the line from one row */
    t[4] = 0.7;
    CHECK_EQ(row_times_at(t, 8, 8), 0.7); /* more rows are never cheaper */
    t[8] = 5;
    CHECK_EQ(row_times_at(t, 8, 8), 5.0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
