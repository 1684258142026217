/* Trees that grow, without a model: dynamic ones are the likeliest paths, and fitted ones are what
 * of them is worth its price. */
#include "spec/grow.h"

#include "drafts.h"
#include "fake_drafter.h"

static const struct price free_of_charge = { .next = 0.8, .trust = 1 };

static bool same_tree(const struct tree *a, const struct tree *b)
{
    size_t n = (size_t)a->n;
    return a->n == b->n && !memcmp(a->id, b->id, n * sizeof *a->id) &&
           !memcmp(a->parent, b->parent, n * sizeof *a->parent);
}

/* The probability of a row's path, by the drafter's own words. */
static double path_log(const struct invented *d, const struct tree *t, int row, uint64_t *at)
{
    double p[INVENTED_VOCAB], above;
    if (row == 0) {
        *at = d->root;
        return 0;
    }
    above = path_log(d, t, t->parent[row], at);
    invented_say(d, *at, p);
    *at = invented_after(*at, t->id[row]);
    return above + log(p[t->id[row]]);
}

TEST(scores_are_those_of_the_paths)
{
    struct invented d = { .seed = test_seed, .sure = 0.5, .honest = 1 };
    for (int i = 0; i < 50; i++) {
        struct shape s;
        struct tree t;
        float scores[TREE_MAX] = { 0 };
        uint64_t at;
        d.root = (uint64_t)i;
        (i % 2 ? shape_fitted : shape_dynamic)(&s, 30, 5, 4, NULL);
        invented_grow(&d, &s, &free_of_charge, 32, 500, &t, scores);
        CHECK(well_formed(&t, &s, 32, INVENTED_VOCAB));
        for (int r = 1; r < t.n; r++) {
            CHECK(fabs((double)scores[r] - path_log(&d, &t, r, &at)) < 1e-3);
            CHECK(scores[r] <= scores[t.parent[r]]);
        }
    }
}

/* Where nothing costs anything, all that fits is worth while. */
TEST(a_free_fitted_tree_is_the_dynamic_one)
{
    static const int sizes[][3] = { { 30, 3, 8 }, { 64, 31, 16 }, { 12, 4, 2 }, { 5, 3, 1 } };
    struct invented d = { .seed = test_seed, .sure = 0.5, .honest = 1 };
    for (int i = 0; i < 80; i++) {
        const int *x = sizes[i % 4];
        struct shape dynamic, fitted;
        struct tree a, b;
        d.root = (uint64_t)i;
        shape_dynamic(&dynamic, x[0], x[1], x[2], NULL);
        shape_fitted(&fitted, x[0], x[1], x[2], NULL);
        for (int most = 1; most < 40; most += 6) {
            invented_grow(&d, &dynamic, NULL, most, 500, &a, NULL);
            invented_grow(&d, &fitted, &free_of_charge, most, 500, &b, NULL);
            CHECK_MSG(same_tree(&a, &b), "%d rows and %d", a.n, b.n);
        }
    }
}

TEST(dear_rows_leave_the_root_alone)
{
    static const double rows[] = { 1, 1.5, 1e6, INFINITY, NAN };
    struct invented d = { .seed = test_seed, .sure = 1, .honest = 1 };
    struct shape s;
    struct tree t;
    shape_fitted(&s, 32, 15, 4, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct price p = free_of_charge;
        p.row = rows[i];
        d.root = i;
        invented_grow(&d, &s, &p, 32, 500, &t, NULL);
        CHECK_EQ(t.n, 1);
        CHECK_EQ(d.steps, 1);
    }
}

/* A higher price of anything never makes a larger tree, or one that takes more to draft; and
 * whatever the price, what is there is well formed and worth it. */
TEST(higher_prices_never_make_more_rows)
{
    static const double levels[] = { 0, 0.02, 0.1, 0.4, 0.9, 2 };
    static const double trusts[] = { 0.3, 0.7, 1, 1.5 };
    struct invented d = { .seed = test_seed, .sure = 0.6, .honest = 1 };
    struct shape s;
    int sizes = 0;
    shape_fitted(&s, 32, 15, 4, NULL);
    for (int i = 0; i < 40; i++) {
        int least[6] = { 0 }; /* rows at the price before, by level */
        d.root = (uint64_t)i;
        for (int k = 0; k < 24; k++) {
            int before = 0;
            for (int l = 0; l < 6; l++) {
                struct price p = { .row = 0.002 * pow(1.4, k),
                                   .level = levels[l],
                                   .level_row = 0.15 * levels[l],
                                   .next = 0.8,
                                   .trust = trusts[i % 4] };
                float scores[TREE_MAX] = { 0 };
                struct tree t;
                invented_grow(&d, &s, &p, 32, 500, &t, scores);
                CHECK(well_formed(&t, &s, 32, INVENTED_VOCAB));
                CHECK_MSG(k == 0 || t.n <= least[l], "%d rows, and %d before", t.n, least[l]);
                CHECK_MSG(l == 0 || t.n <= before, "%d rows, and %d before", t.n, before);
                for (int r = 1; r < t.n; r++)
                    CHECK(fmin(exp((double)scores[r]) * p.trust, 1) > p.row);
                least[l] = before = t.n;
                sizes += t.n > 1 && t.n < 32;
            }
        }
    }
    CHECK_MSG(sizes > 1000, "only %d trees of a middle size", sizes);
}

/* A dear step ends the tree where one level is worth it, and its rows are not the reason. */
TEST(dear_steps_make_flat_trees)
{
    struct invented d = { .seed = test_seed, .sure = 0.5, .honest = 1, .root = 5 };
    struct price p = free_of_charge;
    struct shape s;
    struct tree t;
    shape_fitted(&s, 32, 15, 4, NULL);
    p.level = 5;
    p.level_row = 0.75;
    invented_grow(&d, &s, &p, 32, 500, &t, NULL);
    CHECK(d.steps == 1 && t.n == 5 && tree_deepest(&t) == 1);
    p.level = p.level_row = 0;
    invented_grow(&d, &s, &p, 32, 500, &t, NULL);
    CHECK(d.steps > 3 && tree_deepest(&t) > 3);
}

/* Little room behind the cache, or few tokens that can be used. */
TEST(room_and_most_are_kept)
{
    struct invented d = { .seed = test_seed, .sure = 0.9, .honest = 1 };
    struct shape s;
    struct tree t;
    shape_fitted(&s, 64, 31, 16, NULL);
    for (int i = 0; i < 20; i++)
        for (int room = 0; room < 70; room += room < 5 ? 1 : 13)
            for (int most = 1; most <= 32; most += most < 4 ? 1 : 9) {
                d.root = (uint64_t)i;
                invented_grow(&d, &s, &free_of_charge, most, room, &t, NULL);
                CHECK(well_formed(&t, &s, most, INVENTED_VOCAB));
                CHECK(d.rows - 1 <= room && d.steps <= most && t.n > 1);
            }
}

/* A broken drafter may propose anything, but a tree. */
TEST(logits_that_are_no_numbers)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    struct invented d = { .seed = test_seed, .sure = 0.5, .honest = 1 };
    static const struct sampling cold = { .temperature = 1e-42f, .top_p = 1, .seed = 1 };
    static const struct sampling greedy = { .top_p = 1 };
    for (int k = 0; k < 8; k++) {
        struct shape s;
        struct tree t;
        struct draft_request r = { .how = k % 2 ? &cold : &greedy,
                                   .shape = &s,
                                   .tree = &t,
                                   .most = 8,
                                   .price = &free_of_charge };
        static struct grow_pool pool;
        struct grower w = { .r = &r,
                            .pool = &pool,
                            .vocab = INVENTED_VOCAB,
                            .room = 99,
                            .logits = d.logits,
                            .stride = INVENTED_VOCAB,
                            .scratch = d.scratch,
                            .run = invented_run,
                            .user = &d };
        shape_fitted(&s, 32, 7, 4, NULL);
        invented_logits(&d, 0, 0);
        for (int i = 0; i < INVENTED_VOCAB && k < 6; i += k / 2 + 1)
            d.logits[i] = bad[k % 3];
        tree_begin(&t, 0);
        CHECK_EQ(grow_tree(&w, NULL), PV_OK);
        CHECK(well_formed(&t, &s, 8, INVENTED_VOCAB));
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
