/* Tests of the rules for methods: every rule refuses what it names, for each drafter by its
 * properties, and defaults depend on nothing but the method and the setting. */
#include "lab_rows.h"
#include "spec/drafter_kind.h"
#include "spec/method_rules.h"
#include "test.h"

#include <string.h>

static const struct method_setting setting = { .has_draft = true,
                                               .lambda = 0.25,
                                               .positions = PV_POS_COMPACT };

static void refuse(const struct pv_method *m, const char *words)
{
    struct pv_error err = { 0 };
    CHECK_EQ(pv_method_check(m, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, words) != NULL, "'%s'", err.text);
}

TEST(every_drafter_has_a_row)
{
    for (int i = 0; i < PV_DRAFT_COUNT; i++) {
        const struct drafter_kind *kind = drafter_find((enum pv_drafter)i);
        struct pv_method m = { .size = sizeof m };
        if (!CHECK(kind != NULL))
            return;
        CHECK(pv_drafter_find(i) == &kind->info);
        CHECK_EQ(pv_method_find(&m, kind->info.preset, NULL), PV_OK);
        CHECK(!kind->info.view || pv_view_find(kind->info.view));
        CHECK((kind->open == NULL) == (i == PV_DRAFT_NONE));
        CHECK(!kind->info.needs_head || kind->states);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(kind->info.name, pv_drafter_find(k)->name) != 0);
    }
    CHECK(!pv_drafter_find(-1) && !pv_drafter_find(PV_DRAFT_COUNT));
}

TEST(presets_keep_the_rules)
{
    struct pv_method m = { .size = sizeof m };
    for (int i = 0; pv_method_name(i); i++) {
        struct pv_error err = { 0 };
        CHECK_EQ(pv_method_find(&m, pv_method_name(i), &err), PV_OK);
        CHECK_MSG(pv_method_check(&m, &err) == PV_OK, "%s: %s", m.name, err.text);
        method_fill(&m, &setting);
        CHECK_MSG(pv_method_check(&m, &err) == PV_OK, "%s: %s", m.name, err.text);
    }
}

TEST(unknown_choices)
{
    struct pv_method m = { .size = sizeof m, .drafter = PV_DRAFT_COUNT };
    refuse(&m, "unknown drafter");
    m = (struct pv_method){ .size = sizeof m, .shape = (enum pv_shape)7 };
    refuse(&m, "unknown shape 7");
    m = (struct pv_method){ .size = sizeof m, .accept = (enum pv_accept)7 };
    refuse(&m, "unknown rule of acceptance 7");
    m = (struct pv_method){ .size = sizeof m, .schedule = (enum pv_schedule)7 };
    refuse(&m, "unknown schedule 7");
    m = (struct pv_method){ .size = sizeof m, .view = "no-such" };
    refuse(&m, "unknown view 'no-such'");
}

TEST(the_parallel_schedule)
{
    for (int i = PV_DRAFT_NONE + 1; i < PV_DRAFT_COUNT; i++) {
        struct pv_method m = { .size = sizeof m,
                               .drafter = (enum pv_drafter)i,
                               .schedule = PV_SCHEDULE_PARALLEL };
        if (pv_drafter_find(i)->reads_kv_cache) {
            refuse(&m, "reads the model's KV cache");
            continue;
        }
        CHECK_EQ(pv_method_check(&m, NULL), PV_OK);
        m.accept = PV_ACCEPT_REJECTION;
        refuse(&m, "needs probabilities");
        m.shape = PV_SHAPE_TREE;
        refuse(&m, "works with chains only; shape is tree");
        m.automatic = true;
        refuse(&m, "automatic");
    }
}

TEST(shapes_and_acceptance)
{
    for (int i = PV_DRAFT_NONE + 1; i < PV_DRAFT_COUNT; i++) {
        const struct drafter_kind *kind = drafter_find((enum pv_drafter)i);
        struct pv_method m = { .size = sizeof m,
                               .drafter = (enum pv_drafter)i,
                               .accept = PV_ACCEPT_REJECTION };
        if (kind->info.probabilities)
            CHECK_EQ(pv_method_check(&m, NULL), PV_OK);
        else
            refuse(&m, "rejection needs probabilities");
        m.shape = PV_SHAPE_TREE;
        CHECK_EQ(pv_method_check(&m, NULL), PV_OK);
        m.shape = PV_SHAPE_FITTED;
        refuse(&m, kind->fits_trees ? "exact acceptance only" : "(model, self");
        m.accept = PV_ACCEPT_EXACT;
        CHECK_EQ(pv_method_check(&m, NULL), kind->fits_trees ? PV_OK : PV_E_ARG);
    }
}

TEST(defaults)
{
    struct method_setting headed = setting;
    struct pv_method m = { .size = sizeof m, .drafter = PV_DRAFT_MODEL };
    method_fill(&m, &setting);
    CHECK(m.window == 5 && m.total == 30 && m.depth == 3 && m.width == 8 && m.keep == 1024);
    CHECK(m.lambda == 0.25 && m.positions == PV_POS_COMPACT && !strcmp(m.view, "full"));
    m = (struct pv_method){
        .size = sizeof m, .drafter = PV_DRAFT_HEAD, .shape = PV_SHAPE_FITTED, .window = 3
    };
    method_fill(&m, &setting);
    CHECK(m.window == 3 && m.total == 32 && m.depth == 15 && m.width == 4);
    CHECK_EQ(m.positions, PV_POS_ORIGINAL);
    m = (struct pv_method){ .size = sizeof m,
                            .drafter = PV_DRAFT_MODEL,
                            .schedule = PV_SCHEDULE_PARALLEL };
    method_fill(&m, &setting);
    CHECK_EQ(m.window, 0); /* measured */
    headed.has_draft = false;
    headed.has_head = true;
    m = (struct pv_method){ .size = sizeof m, .drafter = PV_DRAFT_MODEL, .automatic = true };
    method_fill(&m, &headed);
    CHECK(m.drafter == PV_DRAFT_HEAD && m.shape == PV_SHAPE_FITTED && !m.automatic);
    CHECK(!strcmp(m.view, "text"));
    headed.has_draft = true;
    m = (struct pv_method){ .drafter = PV_DRAFT_MODEL, .automatic = true };
    method_fill(&m, &headed);
    CHECK(m.drafter == PV_DRAFT_MODEL && m.automatic);
    headed.crowded = true;
    method_fill(&m, &headed);
    CHECK(m.drafter == PV_DRAFT_HEAD && m.shape == PV_SHAPE_FITTED && !m.automatic);
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return 1;
    return test_main(argc, argv);
}
