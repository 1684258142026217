/* The decoder against transformers: tiny random models and what transformers computes with them
 * (tests/golden, made by tools/golden). Weights and KV in F32 must agree to 1e-4 of a row's
 * largest magnitude on every CPU level; the other weight types must choose the same tokens, unless
 * F32 itself nearly could not decide. */
#include "family/families.h"
#include "golden/golden.h"
#include "larger.h"
#include "rig.h"
#include "scratch.h"

#include <math.h>

enum { MAX_PROMPT = 64, N_GREEDY = 48, MAX_LAYERS = 4, CONTEXT = 256 };

static const double tolerance = 1e-4; /* of the largest magnitude of a row */

static const char *const names[] = { "qwen2",       "qwen3",     "qwen2_5_vl",
                                     "qwen3_vl",    "qwen3_moe", "qwen3_moe_normed",
                                     "qwen3_vl_moe" };

/* The rest have experts. What is rounded before a router may choose another expert: then the logits
 * are no longer near those of F32, and only what rounds nothing is compared with them. */
enum { N_DENSE = 4, N_MODELS = sizeof names / sizeof names[0] };

static const char *hf_path(int m)
{
    static char path[64];
    snprintf(path, sizeof path, "tests/golden/%s", names[m]);
    return path;
}

/* The model as a GGUF file of the given type, converted once. */
static const char *gguf_path_of(int m, enum dtype t)
{
    static char path[N_MODELS][DTYPE_COUNT][96];
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    char *p = path[m][t];
    if (p[0])
        return p;
    snprintf(p, sizeof path[m][t], "%s/%s-%s.gguf", scratch_dir(), names[m], dtype_name(t));
    if (model_file_open(&mf, hf_path(m), NULL, 0, families, &err) == PV_OK)
        model_file_write_gguf(mf, p, t, false, NULL, &err);
    CHECK_MSG(!err.code, "%s", err.text);
    model_file_close(&mf);
    return p;
}

/* What golden.vec says of one model. */
struct expected {
    struct golden *g;
    int n; /* tokens of the prompt */
    const int32_t *prompt, *greedy;
    const float *margin;
    int32_t pos[MAX_PROMPT][3];
    int32_t next_pos;
    int n_rows;
    const int *rows;
};

static const struct golden_entry *entry(const struct expected *e, const char *name, int layer)
{
    char full[48];
    snprintf(full, sizeof full, layer < 0 ? "%s" : "%s.%d", name, layer);
    const struct golden_entry *found = golden_find(e->g, full);
    if (!found) {
        fprintf(stderr, "golden.vec has no entry %s\n", full);
        exit(1);
    }
    return found;
}

static bool expected_open(struct expected *e, int m)
{
    char path[96];
    snprintf(path, sizeof path, "%s/golden.vec", hf_path(m));
    *e = (struct expected){ .g = golden_open(path) };
    if (!CHECK_MSG(e->g, "%s cannot be read", path))
        return false;
    const struct golden_entry *pos = entry(e, "positions", -1), *rows = entry(e, "rows", -1);
    e->n = pos->cols;
    e->prompt = entry(e, "prompt", -1)->i;
    e->greedy = entry(e, "greedy", -1)->i;
    e->margin = entry(e, "margin", -1)->f;
    e->n_rows = rows->cols;
    e->rows = rows->i;
    for (int i = 0; i < e->n; i++)
        for (int axis = 0; axis < 3; axis++) {
            e->pos[i][axis] = golden_row_i(pos, axis)[i];
            if (e->pos[i][axis] >= e->next_pos)
                e->next_pos = e->pos[i][axis] + 1;
        }
    return CHECK(e->n <= MAX_PROMPT && entry(e, "greedy", -1)->cols == N_GREEDY);
}

static bool open_rig(struct rig *r, const char *path, int level, enum dtype kv)
{
    struct rig_shape s = {
        .level = level, .threads = 2, .kv = kv, .max_rows = MAX_PROMPT, .context = CONTEXT
    };
    return rig_open(r, path, s);
}

/* Rows [from, from + n) of the prompt with whatever `wanted` asks back; not committed. */
static bool run_prompt(struct rig *r, const struct expected *e, int from, int n,
                       const struct step *wanted)
{
    struct pv_error err = { 0 };
    struct step_seq seq = { .kv = &r->kv, .n = n };
    struct step step = *wanted;
    step.n = n;
    step.ids = e->prompt + from;
    step.pos = e->pos + from;
    step.n_seqs = 1;
    step.seqs = &seq;
    return CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text);
}

static void check_rows(const float *got, const struct golden_entry *want, const char *what)
{
    for (int i = 0; i < want->rows; i++) {
        double d = golden_error(got + (size_t)i * want->cols, golden_row(want, i), want->cols);
        CHECK_MSG(d <= tolerance, "%s: row %d of %s differs by %.2g", what, i, want->name, d);
    }
}

/* ---- states and logits ---- */

static void check_states(struct rig *r, const struct expected *e, const char *what)
{
    int layers = r->c->n_layers, hidden = r->c->hidden, n = e->n_rows;
    float *states = malloc(sizeof(float) * (size_t)((layers + 1) * n * hidden));
    float *logits = malloc(sizeof(float) * (size_t)(n * r->c->vocab));
    struct hidden_tap taps[MAX_LAYERS + 1];
    for (int l = 0; l <= layers; l++)
        taps[l] = (struct hidden_tap){ .layer = l,
                                       .post_norm = l == layers,
                                       .n_rows = n,
                                       .rows = e->rows,
                                       .out = states + (size_t)l * n * hidden };
    struct step step = { .n_logits = n,
                         .logit_rows = e->rows,
                         .logits = logits,
                         .n_hidden = layers + 1,
                         .hidden = taps };
    if (run_prompt(r, e, 0, e->n, &step)) {
        for (int l = 0; l < layers; l++)
            check_rows(taps[l].out, entry(e, "hidden", l), what);
        check_rows(taps[layers].out, entry(e, "norm", -1), what);
        check_rows(logits, entry(e, "logits", -1), what);
    }
    /* Without taps most rows are dropped after the last attention: the same bits. */
    float *again = malloc(sizeof(float) * (size_t)(n * r->c->vocab));
    step.n_hidden = 0;
    step.logits = again;
    if (run_prompt(r, e, 0, e->n, &step))
        CHECK(!memcmp(again, logits, sizeof(float) * (size_t)(n * r->c->vocab)));
    free(states);
    free(logits);
    free(again);
}

TEST(states_and_logits_equal_transformers)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct expected e;
        if (!expected_open(&e, m))
            return;
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            struct rig r;
            char what[64];
            snprintf(what, sizeof what, "%s %s", names[m], cpu_levels[level].name);
            if (!cpu_level_here(level) ||
                !open_rig(&r, gguf_path_of(m, DTYPE_F32), level, DTYPE_F32))
                continue;
            check_states(&r, &e, what);
            rig_close(&r);
        }
        golden_close(&e.g);
    }
}

/* The embedding tap is the table's row. */
TEST(tap_of_embeddings)
{
    struct expected e;
    struct rig r;
    int row = 5;
    float *out = NULL;
    if (!expected_open(&e, 1) || !open_rig(&r, hf_path(1), 0, DTYPE_F32))
        return;
    out = malloc(sizeof(float) * (size_t)r.c->hidden);
    struct hidden_tap tap = { .layer = TAP_EMBEDDING, .n_rows = 1, .rows = &row, .out = out };
    struct step step = { .n_hidden = 1, .hidden = &tap };
    if (run_prompt(&r, &e, 0, e.n, &step)) {
        const float *table = model_file_embed(r.mf)->data; /* qwen3 is stored as F32 */
        CHECK(!memcmp(out, table + (size_t)e.prompt[row] * r.c->hidden,
                      sizeof(float) * (size_t)r.c->hidden));
    }
    free(out);
    rig_close(&r);
    golden_close(&e.g);
}

/* ---- columns ---- */

/* Layers [l0, l1), the prompt up to the first query row committed before when `split`. */
static void check_columns(struct rig *r, const struct expected *e, int l0, int l1, bool over_keys,
                          bool split, const char *what)
{
    const struct golden_entry *query = entry(e, "columns.query", -1);
    const struct golden_entry *key = entry(e, "columns.key", -1);
    const struct golden_entry *want = entry(e, over_keys ? "columns.given" : "columns.all", -1);
    float sums[MAX_PROMPT], mean[MAX_PROMPT];
    int rows[MAX_PROMPT], from = split ? query->i[0] : 0;
    struct column_tap tap = { .layer0 = l0,
                              .layer1 = l1,
                              .n_rows = query->cols,
                              .rows = rows,
                              .n_keys = key->cols,
                              .keys = key->i,
                              .over_keys = over_keys,
                              .sums = sums };
    struct step step = { .n_columns = 1, .columns = &tap }, nothing = { 0 };
    for (int i = 0; i < query->cols; i++)
        rows[i] = query->i[i] - from;
    kvcache_truncate(&r->kv, 0);
    if (from && !run_prompt(r, e, 0, from, &nothing))
        return;
    kvcache_advance(&r->kv, from);
    if (!run_prompt(r, e, from, e->n - from, &step))
        return;
    for (int k = 0; k < key->cols; k++) {
        mean[k] = 0;
        for (int l = l0; l < l1; l++)
            mean[k] += golden_row(want, l)[k] / (float)(l1 - l0);
    }
    double d = golden_error(sums, mean, key->cols);
    CHECK_MSG(d <= tolerance, "%s: columns of layers %d to %d%s differ by %.2g", what, l0, l1,
              over_keys ? " over keys" : "", d);
}

TEST(attention_columns_equal_transformers)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct expected e;
        if (!expected_open(&e, m))
            return;
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            struct rig r;
            char what[64];
            snprintf(what, sizeof what, "%s %s", names[m], cpu_levels[level].name);
            if (!cpu_level_here(level) ||
                !open_rig(&r, gguf_path_of(m, DTYPE_F32), level, DTYPE_F32))
                continue;
            for (int over_keys = 0; over_keys < 2; over_keys++) {
                for (int l = 0; l < r.c->n_layers; l++)
                    check_columns(&r, &e, l, l + 1, over_keys, l % 2, what);
                check_columns(&r, &e, 0, r.c->n_layers, over_keys, true, what);
            }
            rig_close(&r);
        }
        golden_close(&e.g);
    }
}

/* ---- greedy answers ---- */

/* Greedy continuation token by token. Where `follow` is given its tokens are fed instead of our
 * own, and `logits` [N_GREEDY, vocab] gets all rows. */
static bool greedy(struct rig *r, const struct expected *e, const int32_t *follow, int32_t *ids,
                   float *logits)
{
    int32_t best = 0, pos[1][3], at = e->next_pos;
    int last = e->n - 1, zero = 0, vocab = r->c->vocab;
    struct pv_error err = { 0 };
    struct step first = { .n_logits = 1, .logit_rows = &last, .argmax = &best, .logits = logits };
    kvcache_truncate(&r->kv, 0);
    if (!run_prompt(r, e, 0, e->n, &first))
        return false;
    kvcache_advance(&r->kv, e->n);
    for (int i = 0;; i++) {
        ids[i] = best;
        if (i == N_GREEDY - 1)
            return true;
        int32_t fed = follow ? follow[i] : best;
        struct step_seq seq = { .kv = &r->kv, .n = 1 };
        pos[0][0] = pos[0][1] = pos[0][2] = at++;
        struct step step = { .n = 1,
                             .ids = &fed,
                             .pos = (const int32_t(*)[3])pos,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_logits = 1,
                             .logit_rows = &zero,
                             .argmax = &best,
                             .logits = logits ? logits + (size_t)(i + 1) * vocab : NULL };
        if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text))
            return false;
        kvcache_advance(&r->kv, 1);
    }
}

TEST(greedy_ids_equal_transformers)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct expected e;
        if (!expected_open(&e, m))
            return;
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            struct rig r;
            int32_t ids[N_GREEDY];
            if (!cpu_level_here(level) ||
                !open_rig(&r, gguf_path_of(m, DTYPE_F32), level, DTYPE_F32))
                continue;
            if (greedy(&r, &e, NULL, ids, NULL))
                CHECK_MSG(!memcmp(ids, e.greedy, sizeof ids), "%s %s: other ids", names[m],
                          cpu_levels[level].name);
            rig_close(&r);
        }
        golden_close(&e.g);
    }
}

/* ---- chunks ---- */

TEST(chunked_prefill_gives_the_same_bits)
{
    static const int chunks[] = { 1, 7, 16 };
    for (int m = 0; m < N_MODELS; m++) {
        struct expected e;
        if (!expected_open(&e, m))
            return;
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            struct rig whole, part;
            const char *path = gguf_path_of(m, DTYPE_F32);
            if (!cpu_level_here(level) || !open_rig(&whole, path, level, DTYPE_F32) ||
                !open_rig(&part, path, level, DTYPE_F32))
                continue;
            size_t size = sizeof(float) * (size_t)e.n * (size_t)whole.c->vocab;
            float *a = malloc(size), *b = malloc(size);
            struct step step = { .n_logits = e.n, .logit_rows = whole.rows, .logits = a };
            run_prompt(&whole, &e, 0, e.n, &step);
            for (int i = 0; i < 3; i++) {
                kvcache_truncate(&part.kv, 0);
                memset(b, 0, size);
                for (int at = 0; at < e.n; at += chunks[i]) {
                    step.n_logits = e.n - at < chunks[i] ? e.n - at : chunks[i];
                    step.logits = b + (size_t)at * (size_t)whole.c->vocab;
                    run_prompt(&part, &e, at, step.n_logits, &step);
                    kvcache_advance(&part.kv, step.n_logits);
                }
                CHECK_MSG(!memcmp(a, b, size), "%s %s: chunks of %d give other logits", names[m],
                          cpu_levels[level].name, chunks[i]);
                CHECK_EQ(kv_first_difference(&whole.kv, &part.kv, 0, e.n), -1);
            }
            free(a);
            free(b);
            rig_close(&whole);
            rig_close(&part);
        }
        golden_close(&e.g);
    }
}

/* ---- other weight types ---- */

static bool prompt_logits(const char *path, int level, const struct expected *e, float **out,
                          int *vocab)
{
    struct rig r;
    bool ok;
    if (!open_rig(&r, path, level, DTYPE_F32))
        return false;
    *vocab = r.c->vocab;
    *out = malloc(sizeof(float) * (size_t)e->n * (size_t)*vocab);
    struct step step = { .n_logits = e->n, .logit_rows = r.rows, .logits = *out };
    ok = run_prompt(&r, e, 0, e->n, &step);
    rig_close(&r);
    return ok;
}

/* The directory and the F32 file hold the same numbers. Where the directory stores 16 bits the
 * kernels of that type may sum in another order or round the activations (bf16): only the plain
 * level must then give the same bits. The type it is stored in must, everywhere. */
TEST(converted_file_gives_the_same_bits)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct expected e;
        struct model_file *mf = NULL;
        if (!expected_open(&e, m) ||
            !CHECK(!model_file_open(&mf, hf_path(m), NULL, 0, families, NULL)))
            return;
        enum dtype stored = model_file_layer(mf, 0)->q->dtype;
        model_file_close(&mf);
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            float *hf = NULL, *same = NULL, *f32 = NULL;
            int vocab = 0;
            if (!cpu_level_here(level) || !prompt_logits(hf_path(m), level, &e, &hf, &vocab) ||
                !prompt_logits(gguf_path_of(m, stored), level, &e, &same, &vocab) ||
                !prompt_logits(gguf_path_of(m, DTYPE_F32), level, &e, &f32, &vocab))
                continue;
            size_t size = sizeof(float) * (size_t)e.n * (size_t)vocab;
            CHECK_MSG(!memcmp(hf, same, size), "%s %s: %s GGUF gives other logits", names[m],
                      cpu_levels[level].name, dtype_name(stored));
            if (level == 0 || stored == DTYPE_F32)
                CHECK_MSG(!memcmp(hf, f32, size), "%s %s: F32 GGUF gives other logits", names[m],
                          cpu_levels[level].name);
            free(hf);
            free(same);
            free(f32);
        }
        golden_close(&e.g);
    }
}

/* A file against the F32 file of the very weights it holds: what is left is the rounding of
 * activations to bf16 or int8 beside such weights, and none at the plain level. */
TEST(every_type_equals_its_own_weights_in_f32)
{
    static const enum dtype types[] = { DTYPE_BF16, DTYPE_F16,  DTYPE_Q8_0,
                                        DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_1 };
    static const double bounds[] = { 0.03, 1e-4, 0.08, 0.08, 0.08, 0.08 };
    enum { N_TYPES = sizeof types / sizeof *types };
    for (int k = 0; k < N_TYPES * N_MODELS; k++) {
        enum dtype t = types[k % N_TYPES];
        int m = k / N_TYPES;
        char path[128];
        struct expected e;
        struct model_file *mf = NULL;
        snprintf(path, sizeof path, "%s/%s-%s-f32.gguf", scratch_dir(), names[m], dtype_name(t));
        if (!expected_open(&e, m) ||
            !CHECK(!model_file_open(&mf, gguf_path_of(m, t), NULL, 0, families, NULL) &&
                   !model_file_write_gguf(mf, path, DTYPE_F32, false, NULL, NULL)))
            return;
        model_file_close(&mf);
        for (int level = 0; level < N_CPU_LEVELS; level++) {
            float *a = NULL, *b = NULL;
            int vocab = 0;
            double most = 0, bound = level == 0 ? tolerance : bounds[k % N_TYPES];
            if (level > 0 && m >= N_DENSE && t != DTYPE_F16)
                continue;
            if (!cpu_level_here(level) || !prompt_logits(path, level, &e, &a, &vocab) ||
                !prompt_logits(gguf_path_of(m, t), level, &e, &b, &vocab))
                continue;
            for (int i = 0; i < e.n; i++)
                most =
                    larger(most, golden_error(b + (size_t)i * vocab, a + (size_t)i * vocab, vocab));
            CHECK_MSG(most <= bound, "%s %s %s: logits differ by %.2g from those of F32", names[m],
                      dtype_name(t), cpu_levels[level].name, most);
            free(a);
            free(b);
        }
        golden_close(&e.g);
    }
}

/* Greedy ids of a weight and KV type against F32's, at the best level.
 *
 * Both are run over F32's own answer, so that every step compares like with like. The error of the
 * logits is measured on the steps that agree; a step may disagree only where F32's own margin
 * between its two best is below three times the largest error measured there (two logits err, and
 * a disagreement is no average case), and the error itself must be what the type's rounding can
 * explain. */
static void compare_type(int m, enum dtype weights, enum dtype kv, double most_error)
{
    struct expected e;
    struct rig r;
    int32_t own[N_GREEDY], plain[N_GREEDY], ids[N_GREEDY];
    float *want = NULL, *got = NULL;
    double worst = 0, worst_share = 0;
    int differ = 0, first = -1, vocab, best = cpu_level_best();
    if (!expected_open(&e, m))
        return;
    if (!open_rig(&r, gguf_path_of(m, DTYPE_F32), best, DTYPE_F32))
        goto done;
    vocab = r.c->vocab;
    want = malloc(sizeof(float) * N_GREEDY * (size_t)vocab);
    got = malloc(sizeof(float) * N_GREEDY * (size_t)vocab);
    greedy(&r, &e, NULL, plain, want);
    rig_close(&r);
    if (!open_rig(&r, gguf_path_of(m, weights), best, kv))
        goto done;
    greedy(&r, &e, NULL, own, NULL);
    greedy(&r, &e, plain, ids, got);
    rig_close(&r);
    for (int i = 0; i < N_GREEDY; i++) {
        const float *a = want + (size_t)i * vocab, *b = got + (size_t)i * vocab;
        worst_share = larger(worst_share, golden_error(b, a, vocab));
        for (int k = 0; k < vocab && ids[i] == plain[i]; k++)
            worst = larger(worst, fabs((double)a[k] - b[k]));
    }
    CHECK_MSG(worst_share <= most_error, "%s %s: logits differ by %.3g of their size", names[m],
              dtype_name(weights), worst_share);
    for (int i = 0; i < N_GREEDY; i++) {
        if (ids[i] == plain[i])
            continue;
        first = first < 0 ? i : first;
        differ++;
        CHECK_MSG(e.margin[i] <= 3 * worst,
                  "%s %s: token %d is %d, not %d, though F32 prefers it by %.3g (errors of %.3g)",
                  names[m], dtype_name(weights), i, (int)ids[i], (int)plain[i], (double)e.margin[i],
                  worst);
    }
    /* Run freely, the first difference is where the run over F32's answer first disagrees. */
    for (int i = 0; i < (first < 0 ? N_GREEDY : first + 1); i++)
        CHECK_EQ(own[i], ids[i]);
    printf("  %s weights %s, kv %s: logits within %.3g (%.2g of their size), ", names[m],
           dtype_name(weights), dtype_name(kv), worst, worst_share);
    if (differ)
        printf("%d of %d ids differ, first %d at a margin of %.3g\n", differ, N_GREEDY, first,
               (double)e.margin[first]);
    else
        printf("all %d ids equal\n", N_GREEDY);
done:
    free(want);
    free(got);
    golden_close(&e.g);
}

TEST(other_types_choose_the_same_ids_or_near_ties)
{
    for (int m = 0; m < N_MODELS; m++) {
        compare_type(m, DTYPE_F16, DTYPE_F32, 0.01);
        if (m >= N_DENSE)
            continue;
        compare_type(m, DTYPE_F32, DTYPE_F16, 0.01);
        compare_type(m, DTYPE_F32, DTYPE_BF16, 0.04);
        compare_type(m, DTYPE_BF16, DTYPE_F32, 0.04);
        compare_type(m, DTYPE_Q8_0, DTYPE_F32, 0.12);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
