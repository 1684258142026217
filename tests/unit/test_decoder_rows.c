/* Rows of media with deepstack vectors (tests/deepened.h) on every CPU level, and what a step
 * refuses of them. tests/cudasim has the same on the CUDA device. */
#include "deepened.h"
#include "family/families.h"

TEST(vectors_are_added_after_their_layers)
{
    for (int level = 0; level < N_CPU_LEVELS; level++) {
        struct rig_shape shape = { .level = level, .threads = 1 + level % 2 };
        if (!cpu_level_here(level))
            continue;
        deep_check(DTYPE_F16, 4, 2, false, shape);
        deep_check(DTYPE_Q8_0, 4, 3, true, shape); /* up to the layer before the last */
    }
}

TEST(as_many_vectors_as_there_may_be)
{
    struct rig_shape shape = { .level = cpu_level_best(), .threads = 2 };
    deep_check(DTYPE_BF16, 9, CONFIG_MAX_DEEPSTACK, true, shape);
    deep_check(DTYPE_BF16, 2, 1, false, shape);
}

/* The vectors are a part of the input: without them the stream is another. */
TEST(vectors_matter)
{
    static struct deep_scene s;
    struct rig_shape shape = { .level = cpu_level_best(), .threads = 1 };
    if (!deep_open(&s, DTYPE_F16, 4, 2, false, shape))
        return;
    deep_by_hand(&s);
    for (int i = 0; i < DEEP_ROWS; i++)
        for (int j = DEEP_HIDDEN; j < 3 * DEEP_HIDDEN; j++)
            s.wide[i * 3 * DEEP_HIDDEN + j] = 0;
    deep_run(&s, &s.deep, &s.got, 0, DEEP_ROWS, 0, 0, true, false);
    CHECK(!memcmp(s.want.states[0], s.got.states[0], sizeof(float) * 3 * DEEP_HIDDEN)); /* text */
    CHECK(memcmp(s.want.states[0] + 3 * DEEP_HIDDEN, s.got.states[0] + 3 * DEEP_HIDDEN,
                 sizeof(float) * DEEP_HIDDEN) != 0);
    deep_close(&s);
}

static void refuse(struct deep_scene *s, const struct step *step, const char *word)
{
    struct pv_error err = { 0 };
    CHECK_EQ(decoder_step(s->deep.dec, s->deep.st, step, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
}

/* Below layer K the wide rows are needed, from there on nobody looks at them. */
TEST(a_part_needs_its_vectors)
{
    static struct deep_scene s;
    struct rig_shape shape = { .level = cpu_level_best(), .threads = 1 };
    struct step_seq seq = { .n = DEEP_ROWS };
    if (!deep_open(&s, DTYPE_F16, 4, 2, false, shape))
        return;
    seq.kv = &s.deep.kv;
    struct step step = { .n = DEEP_ROWS,
                         .ids = s.ids,
                         .pos = (const int32_t(*)[3])s.pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .layer0 = 1,
                         .layer1 = 4,
                         .residual = s.residual };
    refuse(&s, &step, "token id -1 is not in the vocabulary");
    step.ids = NULL;
    refuse(&s, &step, "from layer 1 on without ids: 2 layers add to rows of media");
    step.layer0 = 2;
    CHECK(!decoder_step(s.deep.dec, s.deep.st, &step, NULL));
    deep_close(&s);
}

TEST(too_many_vectors_are_refused)
{
    static const struct {
        int layers, k;
        const char *word;
    } bad[] = { { 9, 9, "qwen3vl.n_deepstack_layers is 9, outside 0 to 8" },
                { 2, 2, "the number of deepstack layers is 2, outside 0 to 1" } };
    for (int i = 0; i < 2; i++) {
        struct tiny_model m = { "qwen3vl", 64,    bad[i].layers, 4,    2,    32,
                                96,        96,    DTYPE_F16,     true, 2,    0,
                                0,         false, NULL,          NULL, NULL, bad[i].k };
        struct pv_error err = { 0 };
        struct model_file *mf = NULL;
        char path[256];
        tiny_model_write(&m, "bad", path);
        CHECK_EQ(model_file_open(&mf, path, NULL, 0, families, &err), PV_E_FORMAT);
        CHECK_MSG(strstr(err.text, bad[i].word) && strstr(err.text, "bad.gguf"), "%s", err.text);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
