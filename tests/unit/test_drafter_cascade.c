/* Tests of the drafter cascade: with every shape it can propose, in both schedules, the ids, logits
 * and cache are those of plain decoding; both of its parts work; and it is refused where it has no
 * probabilities. */
#include "answers.h"
#include "family/families.h"
#include "lab_rows.h"

static struct pv_method cascade(const char *view, enum pv_shape shape)
{
    return (struct pv_method){ .size = sizeof(struct pv_method),
                               .name = "cascade",
                               .drafter = PV_DRAFT_CASCADE,
                               .view = view,
                               .shape = shape,
                               .ratio = 0.5 };
}

static void check_same(struct pair *p, const struct pv_method *m, float temperature)
{
    pv_session *plain = open_session(p), *tried = open_session(p);
    struct answer ref = run(plain, NULL, temperature), a = run(tried, m, temperature);
    CHECK_MSG(same_answer(&ref, &a, vocab_of(tried)), "view %s shape %d schedule %d", m->view,
              (int)m->shape, (int)m->schedule);
    CHECK(same_cache(plain, tried));
    pv_session_close(&tried);
    pv_session_close(&plain);
}

TEST(the_text_is_that_of_plain_decoding)
{
    static const char *const views[] = { "full", "text", "specvlm", "holistic" };
    struct pair p = open_unlike(&family_llava_onevision, 2);
    for (int i = 0; i < 4; i++)
        for (int shape = PV_SHAPE_CHAIN; shape <= PV_SHAPE_DYNAMIC; shape++) {
            struct pv_method m = cascade(views[i], (enum pv_shape)shape);
            check_same(&p, &m, i % 2 ? 0.7f : 0);
            m.schedule = PV_SCHEDULE_PARALLEL;
            if (shape == PV_SHAPE_CHAIN)
                check_same(&p, &m, i % 2 ? 0.7f : 0);
        }
    close_pair(&p);
}

TEST(the_model_drafts_what_ngrams_do_not)
{
    struct pair p = open_pair("tests/golden/llava_onevision", 1);
    pv_session *s = open_session(&p);
    struct pv_method m = cascade("full", PV_SHAPE_CHAIN);
    struct answer both = run(s, &m, 0), one;
    m.drafter = PV_DRAFT_NGRAM;
    one = run(s, &m, 0);
    CHECK_EQ(one.stats.draft_rows, 0);
    CHECK(both.stats.draft_rows > 0 && both.stats.accepted > one.stats.accepted);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(it_has_no_probabilities)
{
    struct pv_method m = cascade("full", PV_SHAPE_FITTED);
    CHECK_EQ(pv_method_check(&m, NULL), PV_E_ARG);
    m = cascade("full", PV_SHAPE_CHAIN);
    m.accept = PV_ACCEPT_REJECTION;
    CHECK_EQ(pv_method_check(&m, NULL), PV_E_ARG);
    m.shape = PV_SHAPE_TREE;
    CHECK_EQ(pv_method_check(&m, NULL), PV_OK);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    return test_main(argc, argv);
}
