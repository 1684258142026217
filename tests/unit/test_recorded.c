/* `auto` on a device that says that it records steps, as a GPU does: it chooses among chains, and
 * for a head a tree of fixed shape, and the answers stay those of plain decoding. The device is the
 * CPU with one word changed. */
#include "headed.h"

static struct device_ops table;

/* Both models share the device. */
static bool open_recorded(struct pair *both)
{
    struct pv_model_params p = pv_model_defaults();
    p.threads = 2;
    if (!open_headed(both, tiny_vision(&family_llava_onevision), EAGLE_HEAD, p))
        return false;
    table = *both->target->dev->ops;
    table.chains = true;
    both->target->dev->ops = &table;
    return CHECK(both->draft->dev == both->target->dev);
}

/* What the choices were, by kind. */
static void count_choice(void *user, struct policy_choice *c)
{
    ((int *)user)[c->kind]++;
}

static void check_auto(enum pv_drafter drafter, float temperature)
{
    static struct answer plain, got;
    int kinds[4] = { 0 };
    struct pv_method m = { .size = sizeof m };
    struct pair both;
    pv_session *a, *b;
    if (!open_recorded(&both)) {
        close_pair(&both);
        return;
    }
    CHECK(!pv_method_find(&m, "auto", NULL));
    m.drafter = drafter;
    m.view = "full";
    a = open_session(&both);
    b = open_session(&both);
    b->changer = (struct choice_changer){ count_choice, kinds };
    for (int i = 0; i < 3; i++) {
        plain = run(a, NULL, temperature);
        got = run(b, &m, temperature);
        CHECK_MSG(same_answer(&plain, &got, vocab_of(a)), "drafter %d, answer %d", (int)drafter, i);
        CHECK(same_cache(a, b));
    }
    CHECK_MSG(kinds[POLICY_CHAIN] > 0, "no chain was chosen");
    CHECK(drafter == PV_DRAFT_HEAD || kinds[POLICY_TREE] == 0);
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&both);
}

TEST(auto_with_a_draft_model_chooses_chains)
{
    check_auto(PV_DRAFT_MODEL, 0);
    check_auto(PV_DRAFT_MODEL, 0.8f);
}

TEST(auto_with_a_head_chooses_too)
{
    check_auto(PV_DRAFT_HEAD, 0);
    check_auto(PV_DRAFT_HEAD, 0.8f);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
