/* A decoder that is spread over ranks gives the bits of one that is not: logits, states, column
 * sums and everything that follows from the cache, for every weight type, with 1, 2, 3, 4 and 8
 * ranks. Everything here is memcmp. */
#include "ranked.h"
#include "small_models.h"

enum { CONTEXT = 768, MAX_ROWS = 64, PROMPT = 270, KEYS = 40, LAYERS_MOST = 2 };

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

/* ---- what both decoders do ---- */

/* Numbers one after the other. */
struct sheet {
    float *at;
    size_t n, cap;
};

static float *sheet_take(struct sheet *s, size_t n)
{
    float *p = s->at + s->n;
    CHECK(s->n + n <= s->cap);
    s->n += n;
    return p;
}

static const int tree[] = { -1, -1, -1, 0, 0, 1, 3, 3, 5, 6, 6 };
enum { TREE = sizeof tree / sizeof tree[0] };

/* A tree, one path of which is accepted; then three single tokens. */
static bool run_tree(struct rig *r, struct sheet *out, const int32_t *ids)
{
    static const int path[] = { 0, 3, 6, 10 };
    size_t vocab = (size_t)r->c->vocab;
    if (!rig_run(r, ids, TREE, tree, sheet_take(out, TREE * vocab)))
        return false;
    kvcache_gather(&r->kv, decoder_state_work(r->st), path, 4);
    for (int i = 0; i < 3; i++) {
        if (!rig_run(r, ids + i, 1, NULL, sheet_take(out, vocab)))
            return false;
        kvcache_advance(&r->kv, 1);
    }
    return true;
}

/* Taps of everything, logits of two rows. */
static bool run_taps(struct rig *r, struct sheet *out, const int32_t *ids, int n, bool halves)
{
    int layers = r->c->n_layers, hidden = r->c->hidden, rows[MAX_ROWS], keys[KEYS];
    int wanted[] = { n - 1, 2 };
    struct pv_error err = { 0 };
    struct hidden_tap taps[LAYERS_MOST + 2];
    float *residual = sheet_take(out, (size_t)n * (size_t)hidden);
    int32_t best[2];
    for (int i = 0; i < n; i++) {
        rows[i] = i;
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = r->kv.len + i;
    }
    for (int i = 0; i < KEYS; i++)
        keys[i] = 5 * i + 2;
    for (int i = 0; i < layers + 2; i++)
        taps[i] = (struct hidden_tap){ .layer = i - 1,
                                       .post_norm = i == layers + 1,
                                       .n_rows = n,
                                       .rows = rows,
                                       .out = sheet_take(out, (size_t)n * (size_t)hidden) };
    struct column_tap columns[] = { { .layer0 = 0, .layer1 = layers },
                                    { .layer0 = layers - 1, .layer1 = layers, .over_keys = true } };
    for (int i = 0; i < 2; i++) {
        columns[i].n_rows = n;
        columns[i].rows = rows;
        columns[i].n_keys = KEYS;
        columns[i].keys = keys;
        columns[i].sums = sheet_take(out, KEYS);
    }
    struct step_seq seq = { .kv = &r->kv, .n = n };
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 2,
                         .logit_rows = wanted,
                         .logits = sheet_take(out, 2 * (size_t)r->c->vocab),
                         .argmax = best,
                         .residual = residual,
                         .n_hidden = layers + 2,
                         .hidden = taps,
                         .n_columns = 2,
                         .columns = columns };
    if (halves && layers > 1) {
        struct step first = step;
        first.n_logits = 0;
        first.layer1 = 1;
        step.layer0 = 1;
        step.layer1 = layers;
        if (!CHECK_MSG(!decoder_step(r->dec, r->st, &first, &err), "%s", err.text))
            return false;
    }
    if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
        return false;
    for (int i = 0; i < 2; i++)
        *sheet_take(out, 1) = (float)best[i];
    return true;
}

/* Only the last row of a step goes on after the last attention. */
static bool run_last_row(struct rig *r, struct sheet *out, const int32_t *ids, int n)
{
    int last = n - 1;
    struct pv_error err = { 0 };
    struct top_entry top[4];
    float mass;
    struct step_choice choice = { .k = 4, .t = 0.7f, .top = top, .mass = &mass };
    struct step_seq seq = { .kv = &r->kv, .n = n };
    for (int i = 0; i < n; i++)
        r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = r->kv.len + i;
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = sheet_take(out, (size_t)r->c->vocab),
                         .choice = &choice };
    if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
        return false;
    for (int i = 0; i < 4; i++)
        *sheet_take(out, 1) = (float)top[i].id;
    *sheet_take(out, 1) = mass;
    return true;
}

static bool run_program(struct rig *r, struct sheet *out, const int32_t *ids)
{
    return rig_feed(r, ids, PROMPT, 50, sheet_take(out, PROMPT * (size_t)r->c->vocab)) &&
           run_tree(r, out, ids) && run_taps(r, out, ids + 7, 30, false) &&
           run_taps(r, out, ids + 9, 30, true) && run_last_row(r, out, ids + 30, 40);
}

static struct sheet sheet_open(const struct config *c)
{
    size_t cap = 1000 * (size_t)c->vocab + 1000 * (size_t)c->hidden;
    return (struct sheet){ .at = calloc(cap, sizeof(float)), .cap = cap };
}

static void compare(int m, int level, enum dtype kv, int n_ranks, int threads)
{
    struct rig_shape s = {
        .level = level, .threads = threads, .kv = kv, .max_rows = MAX_ROWS, .context = CONTEXT
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
    if (ranked_open(&spread, n_ranks, model_path(m), s) && run_program(&plain, &want, ids) &&
        run_program(&spread.rig, &got, ids)) {
        size_t at = 0;
        while (at < want.n && !memcmp(&want.at[at], &got.at[at], sizeof(float)))
            at++;
        CHECK_MSG(want.n == got.n && at == want.n,
                  "%s model %d, kv %s, %d ranks: number %zu of %zu is %g, not %g",
                  cpu_levels[level].name, m, dtype_name(kv), n_ranks, at, want.n,
                  (double)got.at[at], (double)want.at[at]);
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
            compare(m, best, kv_types[(m + i) % 3], rank_counts[i], 1);
}

TEST(spread_decoders_give_the_same_bits_at_every_level)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int m = level % 3; m < N_SMALL_MODELS && cpu_level_here(level);
             m += TEST_BRIEF ? 9 : 3)
            compare(m, level, kv_types[(m + level) % 3], 2 + (m + level) % 3, 1);
}

/* Every rank finds that out, and ends; rank 0 tells. */
TEST(features_that_a_cpu_lacks)
{
    struct ranked r;
    struct device *dev = NULL;
    struct pv_error err = { 0 };
    if (!ranked_start(&r, 3))
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
