/* States kept for a head: which rows, in what order, and what is forgotten with the cache. */
#include "lm/states.h"

#include "base/mem.h"
#include "test.h"

enum { HIDDEN = 3, CONTEXT = 32 };

static const struct head_features last_norm = { 0 };

/* Runs the taps of a step: the state of row i is (i, i, i), of a layer (100 + i, ...). */
static void run(struct states *s, const int32_t *ids, int n_line, int from, int n)
{
    struct hidden_tap tap[STATES_MAX_TAPS];
    int n_taps = states_tap(s, ids, n_line, from, n, tap);
    for (int t = 0; t < n_taps; t++)
        for (int r = 0; r < tap[t].n_rows; r++)
            for (int i = 0; i < HIDDEN; i++)
                tap[t].out[r * HIDDEN + i] =
                    (float)(from + tap[t].rows[r] + (tap[t].post_norm ? 0 : 100));
    states_commit(s, ids, n_line, from, n);
}

static bool is(const float *state, int value)
{
    return value < 0 ? state == NULL
                     : state && state[0] == (float)value && state[HIDDEN - 1] == (float)value;
}

TEST(rows_before_tokens_are_kept)
{
    static const int32_t ids[] = { 5, 6, -1, -1, -1, 7, 8 };
    struct states s;
    CHECK_EQ(states_open(&s, CONTEXT, HIDDEN, last_norm, 4, NULL), PV_OK);
    CHECK_EQ(states_need(&s, ids, 7, 2), (size_t)(4 + 2) * HIDDEN);
    CHECK_EQ(states_reserve(&s, ids, 7, 2, NULL), PV_OK);
    run(&s, ids, 7, 0, 4);
    run(&s, ids, 7, 4, 3);
    CHECK_EQ(s.n, 7);
    for (int i = 0; i < 7; i++) {
        CHECK_MSG(is(states_feature(&s, i, 0), i == 1 || i == 2 || i == 3 ? -1 : i), "row %d", i);
        CHECK(states_mid(&s, i) == NULL);
    }
    CHECK(!states_feature(&s, -1, 0) && !states_feature(&s, 7, 0));
    /* A step of decoding: rows 2 and 0 of it, in that order. */
    CHECK_EQ(states_add(&s, 7, (const float[]){ 8, 8, 8, 0, 0, 0, 7, 7, 7 }, 0,
                        (const int[]){ 2, 0 }, 2, NULL),
             PV_OK);
    CHECK(s.n == 9 && is(states_feature(&s, 7, 0), 7) && is(states_feature(&s, 8, 0), 8));
    states_close(&s);
}

TEST(rows_that_do_not_follow_are_not_taken)
{
    static const int32_t ids[] = { 5, 6, 7, 8, 9 };
    struct states s;
    struct hidden_tap tap[STATES_MAX_TAPS];
    CHECK_EQ(states_open(&s, CONTEXT, HIDDEN, last_norm, 4, NULL), PV_OK);
    CHECK_EQ(states_tap(&s, ids, 5, 0, 2, tap), 0); /* no room */
    states_commit(&s, ids, 5, 0, 2);
    CHECK_EQ(s.n, 0);
    CHECK_EQ(states_reserve(&s, ids, 5, 0, NULL), PV_OK);
    CHECK_EQ(states_tap(&s, ids, 5, 2, 2, tap), 0); /* row 0 is not known */
    states_commit(&s, ids, 5, 2, 2);
    CHECK_EQ(states_add(&s, 2, (const float[]){ 1, 1, 1 }, 0, (const int[]){ 0 }, 1, NULL), PV_OK);
    CHECK_EQ(s.n, 0);
    states_close(&s);
}

TEST(what_is_wanted_and_forgotten)
{
    static const int32_t ids[] = { 5, -1, -1, 6, 7 };
    struct states s;
    CHECK_EQ(states_open(&s, CONTEXT, HIDDEN, last_norm, 8, NULL), PV_OK);
    states_want(&s, true, 2);
    CHECK_EQ(states_reserve(&s, ids, 5, 0, NULL), PV_OK);
    run(&s, ids, 5, 0, 5);
    for (int i = 0; i < 5; i++)
        CHECK(is(states_feature(&s, i, 0), i) && is(states_mid(&s, i), ids[i] < 0 ? 100 + i : -1));
    states_want(&s, false, 0); /* less: all of it still serves */
    CHECK_EQ(s.n, 5);
    states_truncate(&s, 2);
    CHECK(s.n == 2 && s.post.n == 2 && s.mid.n == 1 && !states_feature(&s, 2, 0));
    run(&s, ids, 5, 2, 3);
    CHECK(is(states_feature(&s, 4, 0), 4) && is(states_mid(&s, 2), 102));
    states_want(&s, false, 3); /* another layer */
    CHECK(s.n == 0 && s.post.n == 0 && s.mid.n == 0);
    CHECK(states_size(&s) > 0);
    states_close(&s);
}

/* Several layers of each row, of the prompt, of a step of decoding, and in a copy. */
TEST(features_of_several_layers)
{
    static const struct head_features two = { 2, { 3, 0 } };
    static const int32_t ids[] = { 5, -1, 6 };
    static const int all[] = { 0, 1 };
    struct states s, copy;
    struct hidden_tap tap[STATES_MAX_TAPS];
    struct step step = { .n = 2 };
    float out[2][2 * HIDDEN], got[2 * HIDDEN];
    CHECK_EQ(states_open(&s, CONTEXT, HIDDEN, two, 4, NULL), PV_OK);
    CHECK_EQ(states_width(&s), (size_t)2 * HIDDEN);
    CHECK_EQ(states_need(&s, ids, 3, 1), (size_t)(2 + 1) * 2 * HIDDEN);
    CHECK_EQ(states_reserve(&s, ids, 3, 1, NULL), PV_OK);
    CHECK_EQ(states_tap(&s, ids, 3, 0, 3, tap), 2);
    for (int t = 0; t < 2; t++) { /* rows 1 and 2: row 0 comes before no token */
        CHECK(tap[t].n_rows == 2 && tap[t].rows[0] == 1 && tap[t].rows[1] == 2);
        CHECK(!tap[t].post_norm && tap[t].layer == (t ? TAP_EMBEDDING : 2));
        for (int i = 0; i < 2 * HIDDEN; i++)
            tap[t].out[i] = (float)(10 * t + i / HIDDEN);
    }
    states_commit(&s, ids, 3, 0, 3);
    states_ask(&s, &step, 2, all, out[0], 2 * HIDDEN, tap);
    CHECK(step.n_hidden == 2 && !step.states && step.hidden[1].out == out[1]);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 2 * HIDDEN; i++)
            out[k][i] = (float)(100 + 10 * k + i / HIDDEN);
    CHECK_EQ(states_add(&s, 3, out[0], 2 * HIDDEN, (const int[]){ 1 }, 1, NULL), PV_OK);
    CHECK_EQ(states_open(&copy, CONTEXT, HIDDEN, two, 4, NULL), PV_OK);
    CHECK_EQ(states_take(&copy, &s, 4, NULL), PV_OK);
    states_close(&s);
    CHECK(!states_copy(&copy, 0, got));
    CHECK(states_copy(&copy, 2, got) && got[0] == 1 && got[HIDDEN] == 11);
    CHECK(states_copy(&copy, 3, got) && got[0] == 101 && got[2 * HIDDEN - 1] == 111);
    states_close(&copy);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
