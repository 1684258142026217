/* A decoder that is spread over ranks gives the bits of one that is not: logits, states, column
 * sums and everything that follows from the cache, for every weight type, with 1, 2, 3, 4 and 8
 * ranks. Everything here is memcmp. */
#include "rank_program.h"
#include "ranked.h"
#include "small_models.h"

static const enum dtype kv_types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
static const int rank_counts[5] = { 1, 2, 3, 4, 8 };

static const char *model_path(int m)
{
    static char paths[N_SMALL_MODELS][256];
    char name[16];
    if (!paths[m][0]) {
        snprintf(name, sizeof name, "m%d", m);
        tiny_model_write(small_model(m), name, paths[m]);
    }
    return paths[m];
}

static void compare(int m, int level, enum dtype kv, int n_ranks, bool apart)
{
    struct rig_shape s = {
        .level = level, .threads = 1, .kv = kv, .max_rows = MAX_ROWS, .context = CONTEXT
    };
    struct rng rng = { test_seed + (uint64_t)m };
    struct rig plain;
    struct ranked spread;
    int32_t ids[PROMPT];
    if (!rig_open(&plain, model_path(m), s))
        return;
    struct sheet want = sheet_open(plain.c), got = sheet_open(plain.c);
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (int32_t)(rng_next(&rng) % (uint64_t)plain.c->vocab);
    if (ranked_open(&spread, n_ranks, apart, model_path(m), s) &&
        run_program(&plain, &want, ids, PROMPT) && run_program(&spread.rig, &got, ids, PROMPT)) {
        char what[96];
        snprintf(what, sizeof what, "%s model %d, kv %s, %d ranks%s", cpu_levels[level].name, m,
                 dtype_name(kv), n_ranks, apart ? ", the first without parts" : "");
        sheet_compare(&want, &got, what);
    }
    ranked_close(&spread);
    rig_close(&plain);
    free(want.at);
    free(got.at);
}

TEST(spread_decoders_give_the_same_bits)
{
    int best = cpu_level_best();
    for (int m = 0; m < N_SMALL_MODELS; m++)
        for (int i = TEST_BRIEF ? m % 5 : 0; i < 5; i += TEST_BRIEF ? 5 : 1)
            compare(m, best, i == 0 ? DTYPE_F8 : kv_types[(m + i) % 3], rank_counts[i], false);
}

TEST(spread_decoders_give_the_same_bits_at_every_level)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int m = level % 3; m < N_SMALL_MODELS && cpu_level_here(level);
             m += TEST_BRIEF ? 9 : 3)
            compare(m, level, kv_types[(m + level) % 3], 2 + (m + level) % 3, false);
}

/* As a draft model's: rank 0 leads the others. */
TEST(a_leader_without_parts_gives_the_same_bits)
{
    int best = cpu_level_best();
    for (int m = 0; m < N_SMALL_MODELS; m += TEST_BRIEF ? 3 : 1)
        compare(m, best, kv_types[m % 3], 2 + m % 3, true);
}

/* Every rank finds that out, and ends; rank 0 tells. */
TEST(features_that_a_cpu_lacks)
{
    struct ranked r;
    struct device *dev = NULL;
    struct pv_error err = { 0 };
    if (!ranked_start(&r, 3, false))
        return;
    CHECK_EQ(device_ranks_open(&dev, r.t[0], 1, UINT64_MAX, &err), PV_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "the CPU of rank 0 lacks features"), "%s", err.text);
    CHECK(dev == NULL);
    ranked_stop(&r);
    for (int i = 1; i < r.n; i++)
        CHECK_EQ(r.status[i], PV_E_UNSUPPORTED);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
