/* Chains in one step: what the device feeds to itself is what the host would have fed it, on the
 * CPU (tests/cudasim has the same for CUDA); and what cannot be a chain is refused. */
#include "chained.h"

static const struct sampling greedy = { .top_p = 1 };
static const struct sampling drawn = { .temperature = 0.9f, .top_p = 1, .seed = 5 };

static struct rig_shape one_cpu(void)
{
    return (struct rig_shape){ .level = cpu_level_best(), .threads = 2 };
}

TEST(greedy_chains_are_steps_one_after_another)
{
    chained_check(DTYPE_BF16, greedy, false, one_cpu());
    chained_check(DTYPE_Q8_0, greedy, false, one_cpu());
}

TEST(chains_of_a_draft_vocabulary_have_its_tokens)
{
    chained_check(DTYPE_Q8_0, greedy, true, one_cpu());
}

TEST(drawn_chains_are_steps_one_after_another)
{
    chained_check(DTYPE_BF16, drawn, false, one_cpu());
}

/* The sentence of a refusal; "" when it was none. */
static const char *refusal(struct chained *c, const struct step *a, const struct step *b)
{
    static struct pv_error err;
    const struct step *both[2] = { a, b };
    err = (struct pv_error){ 0 };
    return decoder_steps(c->at_once.dec, c->at_once.st, both, b ? 2 : 1, &err) ? err.text : "";
}

TEST(what_is_no_chain_is_refused)
{
    static const char no_chain[] = "a chain behind a step that is no chain of tokens itself";
    static const char no_token[] =
        "a chain behind a step of which more or less is wanted than a token";
    static const int parents[] = { -1, -1 };
    int32_t ids[2] = { 1, 2 }, out[STEP_MAX_CHAIN + 1], more[STEP_MAX_CHAIN + 1];
    float logits[CHAINED_VOCAB];
    struct chained_step s, t;
    struct chained c;
    int first = 0;
    if (!chained_open(&c, DTYPE_BF16, one_cpu())) {
        chained_close(&c);
        return;
    }
    chained_fill(&s, &greedy, &c.at_once.kv, ids, 2, 3, out);
    CHECK_STR(refusal(&c, &s.step, NULL), "");
    s.step.chain = STEP_MAX_CHAIN + 1;
    CHECK_STR(refusal(&c, &s.step, NULL), "a chain of 16 rows behind a step, 15 are possible");
    s.step.chain = 3;
    s.seq.parent = parents;
    CHECK_STR(refusal(&c, &s.step, NULL), no_chain);
    s.seq.parent = NULL;
    s.step.bulk = true;
    CHECK_STR(refusal(&c, &s.step, NULL), no_chain);
    s.step.bulk = false;
    s.step.logits = logits;
    CHECK_STR(refusal(&c, &s.step, NULL), no_token);
    s.step.logits = NULL;
    s.step.logit_rows = &first;
    CHECK_STR(refusal(&c, &s.step, NULL), no_token);
    s.step.logit_rows = &s.last;
    s.step.argmax = NULL;
    CHECK_STR(refusal(&c, &s.step, NULL), no_token);
    s.step.argmax = out;
    chained_fill(&t, &greedy, &c.other[0], ids, 1, 2, more);
    CHECK_STR(refusal(&c, &s.step, &t.step), "chains of 3 and 2 rows cannot run together");
    kvcache_advance(&c.at_once.kv, CHAINED_CONTEXT - 4);
    CHECK_STR(refusal(&c, &s.step, NULL), "5 rows after 508 do not fit a context of 512 tokens");
    chained_close(&c);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
