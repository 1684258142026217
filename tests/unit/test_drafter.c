/* Drafters that need no model. ngram: what it finds, by script. random and oracle: trees of every
 * shape are well formed, and the rate of errors is kept. */
#include "spec/drafter.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "drafts.h"

#include <math.h>

static const struct sampling greedy = { .top_p = 1 };

/* One round without a target: the answer, then the proposal in `t`. */
static void ask(struct drafter *d, struct tree *t, const int32_t *answer, int n,
                const struct shape *shape, int most)
{
    struct draft_request r = { .answer = answer,
                               .n_answer = n,
                               .position = (uint64_t)n,
                               .how = &greedy,
                               .shape = shape,
                               .tree = t,
                               .most = most };
    struct pv_error err = { 0 };
    tree_begin(t, answer[n - 1]);
    CHECK_MSG(!d->propose(d, &r, &err), "%s", err.text);
}

static void begin_text(struct drafter *d, const int32_t *ids, int n)
{
    struct draft_prompt p = { .n = n, .ids = ids };
    CHECK(!d->begin(d, &p, NULL));
}

/* ---- ngram ---- */

struct ngram_case {
    const char *prompt, *answer; /* letters are tokens, '#' a row of a media item */
    int window, most;
    const char *want;
};

static int letters(int32_t *ids, const char *text)
{
    int n = 0;
    for (; text[n]; n++)
        ids[n] = text[n] == '#' ? -1 - n : text[n];
    return n;
}

TEST(ngram_continues_the_longest_recent_match)
{
    static const struct ngram_case cases[] = {
        { "abcdefg", "bcd", 3, 9, "efg" },      /* the prompt's */
        { "abcdefg", "bcd", 3, 2, "ef" },       /* no deeper than is of use */
        { "abcdefg", "bcd", 3, 0, "" },         /* not at all */
        { "abcdefg", "x", 3, 9, "" },           /* never seen */
        { "abxaby", "ab", 1, 9, "y" },          /* the latest */
        { "qabxzaby", "qab", 1, 9, "x" },       /* the longer match before the later one */
        { "pqabxrqaby", "pqab", 1, 9, "x" },    /* four against three */
        { "opqabxmpqaby", "opqab", 1, 9, "y" }, /* five are as good as four */
        { "", "abcab", 4, 9, "cabc" },          /* the answer's, and on into itself */
        { "", "aa", 5, 9, "aaaaa" },            /* a loop stays one */
        { "abcd", "efgc", 2, 9, "de" },         /* over the border into the answer */
        { "abcd", "bc", 5, 9, "dbcdb" },        /* and round */
        { "ab##cd", "b", 3, 9, "" },            /* nothing follows but a media item */
        { "ab##cabz", "ab", 3, 9, "zab" },      /* not it: the later one is a text */
        { "abx##ab##", "ab", 3, 9, "x" },       /* stops before the media item */
        { "a#bx b#by", "#b", 1, 9, "y" },       /* media match nothing, so the last b counts */
        { "cab#abx", "cab", 1, 9, "x" },        /* the longer match is followed by a media item */
    };
    struct drafter *d = NULL;
    if (!CHECK(!drafter_ngram_open(&d, NULL)))
        return;
    CHECK_STR(d->name, "ngram");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ngram_case *c = &cases[i];
        int32_t prompt[32], answer[32], want[32];
        int n = letters(prompt, c->prompt), m = letters(answer, c->answer);
        struct shape s;
        struct tree t;
        shape_chain(&s, c->window, NULL);
        for (int k = 0; k < m; k++)
            answer[k] = answer[k] < 0 ? 7 : answer[k]; /* an answer has no media */
        begin_text(d, prompt, n);
        ask(d, &t, answer, m, &s, c->most);
        CHECK_MSG(is_chain(&t, want, letters(want, c->want)), "case %d: %d rows, the first %c",
                  (int)i, t.n, t.n > 1 ? (char)t.id[1] : '-');
    }
    d->close(d);
}

TEST(ngram_trees_hold_several_continuations)
{
    int32_t prompt[64], answer[8];
    int n = letters(prompt, "abcdX abcdX abpqY zzbrsZ abcefW "), m = letters(answer, "ab");
    struct drafter *d = NULL;
    struct shape s;
    struct tree t;
    if (!CHECK(!drafter_ngram_open(&d, NULL)))
        return;
    begin_text(d, prompt, n);
    shape_static25(&s); /* four below the root */
    ask(d, &t, answer, m, &s, 32);
    CHECK(well_formed(&t, &s, 32, 128));
    /* Matches of " ab", the latest first, then those of "ab" (which bring nothing new), then of
     * "b"; two share their c. */
    static const char want[] = "cefW pqY zdX arsZ a";
    for (int i = 1; i < t.n && CHECK_EQ(t.n, 20); i++)
        CHECK_MSG(t.id[i] == want[i - 1] && t.parent[i] == (i == 6 || i == 15 ? 0
                                                            : i == 11         ? 1
                                                                              : i - 1),
                  "row %d is '%c' below %d", i, (char)t.id[i], t.parent[i]);
    ask(d, &t, answer, m, &s, 2);
    CHECK(well_formed(&t, &s, 2, 128));
    CHECK_EQ(t.n, 8);                 /* ce, pq, cd, rs: c is shared */
    shape_dynamic(&s, 4, 6, 3, NULL); /* three rows for the first continuation, none for more */
    ask(d, &t, answer, m, &s, 32);
    CHECK(is_chain(&t, (const int32_t[]){ 'c', 'e', 'f' }, 3));
    d->close(d);
}

/* Tokens that are taken back leave nothing behind; a new prompt forgets the old one. */
TEST(ngram_knows_only_what_it_is_told)
{
    int32_t prompt[8], answer[8];
    int n = letters(prompt, "abc");
    struct drafter *d = NULL;
    struct shape s;
    struct tree t;
    if (!CHECK(!drafter_ngram_open(&d, NULL)))
        return;
    shape_chain(&s, 1, NULL);
    begin_text(d, prompt, n);
    ask(d, &t, answer, letters(answer, "xyx"), &s, 9);
    CHECK(is_chain(&t, (const int32_t[]){ 'y' }, 1));
    ask(d, &t, answer, letters(answer, "x"), &s, 9);
    CHECK_EQ(t.n, 1);
    ask(d, &t, answer, letters(answer, "b"), &s, 9);
    CHECK(is_chain(&t, (const int32_t[]){ 'c' }, 1));
    begin_text(d, prompt, 0);
    ask(d, &t, answer, letters(answer, "b"), &s, 9);
    CHECK_EQ(t.n, 1);
    d->close(d);
}

/* A long prompt of text whose last token is common: far less than a step of any model. */
TEST(ngram_is_fast_in_long_prompts)
{
    enum { LONG = 25000, ROUNDS = 50 };
    int32_t *ids = malloc(sizeof *ids * LONG), answer[] = { 5, 6, 7 };
    struct rng r = { test_seed };
    struct drafter *d = NULL;
    struct shape s;
    struct tree t;
    double best = 1;
    if (!CHECK(!drafter_ngram_open(&d, NULL)))
        return;
    for (int i = 0; i < LONG; i++)
        ids[i] = rng_next(&r) % 20 == 0 ? 7 : 10 + (int32_t)(rng_next(&r) % 30000);
    shape_static25(&s);
    begin_text(d, ids, LONG);
    for (int i = 0; i < ROUNDS; i++) {
        double t0 = clock_now();
        ask(d, &t, answer, 3, &s, 32);
        double took = clock_now() - t0;
        best = took < best ? took : best;
    }
    printf("  ngram: %.1f us a round\n", best * 1e6);
    CHECK(t.n > 10);
    CHECK_MSG(best < 2e-3, "%.0f us", best * 1e6); /* far off, for slow machines and sanitizers */
    d->close(d);
    free(ids);
}

/* ---- random and oracle ---- */

enum { VOCAB = 50 };

static void random_answer(int32_t *ids, int n)
{
    struct rng r = { 77 };
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_next(&r) % VOCAB);
}

TEST(random_fills_every_shape)
{
    struct drafter *d = NULL;
    int32_t answer[40];
    random_answer(answer, 40);
    if (!CHECK(!drafter_random_open(&d, VOCAB, test_seed, NULL)))
        return;
    CHECK_STR(d->name, "random");
    begin_text(d, NULL, 0);
    for (int i = 0; i < N_SHAPES; i++)
        for (int n = 1; n <= 40; n++)
            for (int most = 0; most <= 32; most += most < 6 ? 1 : 13) {
                struct shape s;
                struct tree t, again;
                make_shape(&s, i);
                ask(d, &t, answer, n, &s, most);
                ask(d, &again, answer, n, &s, most);
                CHECK(well_formed(&t, &s, most, VOCAB));
                CHECK(t.n == again.n && !memcmp(t.id, again.id, sizeof t.id[0] * (size_t)t.n));
                if (most >= shape_depth(&s))
                    CHECK_EQ(t.n, shape_rows(&s));
                for (int k = 1; s.kind == SHAPE_STATIC && most >= 5 && k < t.n; k++)
                    CHECK_EQ(t.parent[k], s.parent[k]);
            }
    d->close(d);
}

/* Fewer tokens than a node should have children. */
TEST(random_lives_with_a_small_vocabulary)
{
    for (int vocab = 1; vocab < 5; vocab++) {
        struct drafter *d = NULL;
        int32_t answer[] = { 0 };
        if (!CHECK(!drafter_random_open(&d, vocab, 3, NULL)))
            return;
        for (int i = 0; i < N_SHAPES; i++) {
            struct shape s;
            struct tree t;
            make_shape(&s, i);
            ask(d, &t, answer, 1, &s, 32);
            CHECK(well_formed(&t, &s, 32, vocab));
            CHECK(t.n > 1);
        }
        d->close(d);
    }
}

/* How deep the tree agrees with the answer after n tokens; by first children only, since no other
 * child may agree. */
static int agreed(const struct tree *t, const int32_t *answer, int n, int total)
{
    int row = 0, depth = 0;
    while (n + depth < total) {
        int child = tree_child(t, row, answer[n + depth]);
        if (child < 0)
            break;
        for (int i = row + 1; i < child; i++)
            CHECK(t->parent[i] != row);
        row = child;
        depth++;
    }
    return depth;
}

TEST(oracle_errs_as_often_as_told)
{
    enum { TOTAL = 4000 };
    static int32_t answer[TOTAL];
    static const double rates[] = { 0, 0.1, 0.5, 1 };
    random_answer(answer, TOTAL);
    for (int i = 0; i < N_SHAPES; i++)
        for (int e = 0; e < 4; e++) {
            struct drafter *d = NULL;
            struct shape s;
            struct tree t;
            int right = 0, asked = 0;
            make_shape(&s, i);
            if (!CHECK(!drafter_oracle_open(&d, answer, TOTAL, VOCAB, rates[e], 5, NULL)))
                return;
            for (int n = 1; n < TOTAL - 32; n++) {
                int deepest = shape_depth(&s), depth;
                ask(d, &t, answer, n, &s, 32);
                depth = agreed(&t, answer, n, TOTAL);
                if (!well_formed(&t, &s, 32, VOCAB) || (rates[e] == 0 && depth != deepest) ||
                    (rates[e] == 1 && depth != 0)) {
                    CHECK_MSG(false, "shape %d at %d: %d tokens agree", i, n, depth);
                    break;
                }
                right += depth > 0;
                asked++;
            }
            CHECK_MSG(fabs(1 - rates[e] - (double)right / asked) < 0.03, "%d of %d at %.1f", right,
                      asked, rates[e]);
            d->close(d);
        }
}

TEST(oracle_goes_on_after_its_answer)
{
    static const int32_t answer[] = { 1, 2, 3 };
    struct drafter *d = NULL;
    struct shape s;
    struct tree t;
    shape_chain(&s, 5, NULL);
    if (!CHECK(!drafter_oracle_open(&d, answer, 3, VOCAB, 0, 5, NULL)))
        return;
    CHECK_STR(d->name, "oracle");
    ask(d, &t, answer, 2, &s, 32);
    CHECK(t.n == 6 && t.id[1] == 3);
    ask(d, &t, answer, 3, &s, 32);
    CHECK_EQ(t.n, 6);
    d->close(d);
}

/* ---- memory ---- */

static enum pv_status open_kind(struct drafter **d, int kind, struct pv_error *err)
{
    static const int32_t answer[] = { 1, 2 };
    if (kind == 0)
        return drafter_ngram_open(d, err);
    if (kind == 1)
        return drafter_random_open(d, VOCAB, 1, err);
    return drafter_oracle_open(d, answer, 2, VOCAB, 0, 1, err);
}

/* Every allocation of opening, beginning and proposing failed in turn. */
TEST(drafters_survive_lack_of_memory)
{
    int32_t ids[] = { 1, 2, 1 };
    struct draft_prompt p = { .n = 3, .ids = ids };
    struct shape shape;
    struct tree tree;
    shape_chain(&shape, 3, NULL);
    for (int kind = 0; kind < 3; kind++) {
        enum pv_status st = PV_E_NOMEM;
        for (uint64_t k = 1; st && CHECK(k < 100); k++) {
            struct drafter *d = NULL;
            struct pv_error err = { 0 };
            struct draft_request q = { .answer = ids,
                                       .n_answer = 3,
                                       .how = &greedy,
                                       .shape = &shape,
                                       .tree = &tree,
                                       .most = 3 };
            tree_begin(&tree, 1);
            mem_fail_at(k);
            st = open_kind(&d, kind, &err);
            CHECK((st != PV_OK) == (d == NULL));
            if (!st)
                st = d->begin(d, &p, &err);
            if (!st)
                st = d->propose(d, &q, &err);
            mem_fail_at(0);
            CHECK(!st || (st == PV_E_NOMEM && err.text[0]));
            if (d)
                d->close(d);
        }
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
