/* The step's contract beside the numbers: it allocates nothing, stays inside what
 * decoder_state_size says, gives what was asked for and only that, and refuses bad input with one
 * sentence and nothing changed. (The numbers: test_golden.c; their bits: test_lossless.c.) */
#include "rig.h"
#include "tiny_model.h"

#include <malloc.h>

enum { CONTEXT = 512, MAX_ROWS = 40 };

static const struct tiny_model model = { .arch = "qwen2",
                                         .hidden = 64,
                                         .n_layers = 2,
                                         .n_heads = 4,
                                         .n_kv = 2,
                                         .head_dim = 16,
                                         .ffn = 160,
                                         .vocab = 96,
                                         .type = DTYPE_Q8_0,
                                         .untied = true };

static const char *model_path(void)
{
    static char path[256];
    return path[0] ? path : tiny_model_write(&model, "model", path);
}

static bool open_rig(struct rig *r, int threads, enum dtype kv)
{
    struct rig_shape s = { .level = cpu_level_best(),
                           .threads = threads,
                           .kv = kv,
                           .max_rows = MAX_ROWS,
                           .context = CONTEXT };
    return rig_open(r, model_path(), s);
}

static void random_ids(int32_t *ids, int n, uint64_t seed)
{
    struct rng r = { seed };
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_next(&r) % (uint64_t)model.vocab);
}

/* A step that asks for everything, over the first n of `ids`, after what the cache holds. */
struct whole {
    int32_t ids[MAX_ROWS], argmax[MAX_ROWS];
    int32_t pos[MAX_ROWS][3];
    int rows[MAX_ROWS], keys[4];
    float logits[MAX_ROWS * 96], hidden[3][MAX_ROWS * 64], sums[4];
    struct hidden_tap taps[3];
    struct column_tap columns;
    struct step_seq seq;
    struct step step;
};

static void whole_init(struct whole *w, struct rig *r, int n)
{
    memset(w, 0, sizeof *w);
    random_ids(w->ids, MAX_ROWS, 3);
    for (int i = 0; i < MAX_ROWS; i++) {
        w->rows[i] = i;
        for (int k = 0; k < 3; k++)
            w->pos[i][k] = r->kv.len + i;
    }
    for (int i = 0; i < 4; i++)
        w->keys[i] = i;
    for (int i = 0; i < 3; i++)
        w->taps[i] = (struct hidden_tap){
            .layer = i - 1, .post_norm = i == 2, .n_rows = n, .rows = w->rows, .out = w->hidden[i]
        };
    w->columns = (struct column_tap){ .layer0 = 0,
                                      .layer1 = 2,
                                      .n_rows = n,
                                      .rows = w->rows,
                                      .n_keys = 4,
                                      .keys = w->keys,
                                      .sums = w->sums };
    w->seq = (struct step_seq){ .kv = &r->kv, .n = n };
    w->step = (struct step){ .n = n,
                             .ids = w->ids,
                             .pos = (const int32_t(*)[3])w->pos,
                             .n_seqs = 1,
                             .seqs = &w->seq,
                             .n_logits = n,
                             .logit_rows = w->rows,
                             .logits = w->logits,
                             .argmax = w->argmax,
                             .n_hidden = 3,
                             .hidden = w->taps,
                             .n_columns = 1,
                             .columns = &w->columns };
}

/* ---- memory ---- */

TEST(step_allocates_nothing)
{
    static const int parent[] = { -1, -1, 0, 0, 1, 4, 4, 2 };
    static struct whole w;
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int k = 0; k < 3 && cpu_level_here(level); k++) {
            struct rig_shape s = { .level = level,
                                   .threads = 3,
                                   .kv = (enum dtype[]){ DTYPE_F32, DTYPE_F16, DTYPE_BF16 }[k],
                                   .max_rows = MAX_ROWS,
                                   .context = CONTEXT };
            struct rig r;
            if (!rig_open(&r, model_path(), s))
                return;
            whole_init(&w, &r, MAX_ROWS);
            uint64_t before = mem_count();
            CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
            kvcache_advance(&r.kv, MAX_ROWS);
            rig_run(&r, w.ids, 1, NULL, w.logits);
            rig_run(&r, w.ids, 8, parent, w.logits);
            kvcache_gather(&r.kv, decoder_state_work(r.st), (const int[]){ 1, 4, 6 }, 3);
            CHECK_EQ(mem_count(), before);
            rig_close(&r);
        }
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif
#ifdef SANITIZED
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

static size_t heap_bytes(void)
{
#ifdef SANITIZED
    return __sanitizer_get_current_allocated_bytes();
#else
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#endif
}

/* Blocks of 2 MiB and more are rounded up to huge pages, one for the activations and one for the
 * device's scratch; two small structs and malloc's own words come on top. */
TEST(state_takes_what_its_size_says)
{
    enum { ROUNDING = 2 * (2 << 20) + 4096 };
    static const struct {
        int rows, logits, context;
    } cases[] = { { 1, 1, 64 }, { 16, 16, 256 }, { 512, 1, 4096 }, { 64, 64, 100000 } };
    for (int i = 0; i < 4; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct decoder_state *st = NULL;
            struct rig r;
            size_t size, before, taken;
            if (!open_rig(&r, threads, DTYPE_BF16))
                return;
            size = decoder_state_size(r.dec, cases[i].rows, cases[i].logits, cases[i].context,
                                      DTYPE_BF16);
            before = heap_bytes();
            CHECK_EQ(decoder_state_open(&st, r.dec, cases[i].rows, cases[i].logits,
                                        cases[i].context, DTYPE_BF16, NULL),
                     PV_OK);
            taken = heap_bytes() - before;
            CHECK_MSG(taken <= size + ROUNDING, "%zu bytes were taken, %zu said", taken, size);
            CHECK_MSG(taken >= size, "%zu bytes were taken, %zu said", taken, size);
            decoder_state_close(&st);
            CHECK(st == NULL);
            rig_close(&r);
        }
}

/* Scratch is bounded by the rows of a step; the context adds only attention's partial sums. */
TEST(state_size_is_bounded_by_the_chunk)
{
    struct rig r;
    if (!open_rig(&r, 2, DTYPE_F16))
        return;
    size_t small = decoder_state_size(r.dec, 512, 1, 1024, DTYPE_F16);
    size_t large = decoder_state_size(r.dec, 512, 1, 32768, DTYPE_F16);
    size_t rows = decoder_state_size(r.dec, 1024, 1, 1024, DTYPE_F16);
    CHECK_MSG(large - small < kvcache_size(r.c, DTYPE_F16, 32768),
              "%zu bytes more for a longer context", large - small);
    CHECK(rows > small && rows < 3 * small);
    rig_close(&r);
}

/* ---- what was asked for ---- */

TEST(rows_of_logits_in_any_order)
{
    static const int wanted[] = { 7, 0, 3, 39, 3 };
    static struct whole w;
    struct rig r;
    float some[5 * 96];
    int32_t best[5];
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    whole_init(&w, &r, MAX_ROWS);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    struct step step = w.step;
    step.n_hidden = 0;
    step.n_columns = 0;
    step.n_logits = 5;
    step.logit_rows = wanted;
    step.logits = some;
    step.argmax = best;
    for (int tapped = 0; tapped < 2; tapped++) { /* with and without rows dropped */
        memset(some, 0, sizeof some);
        step.n_hidden = tapped;
        step.hidden = w.taps;
        CHECK_EQ(decoder_step(r.dec, r.st, &step, NULL), PV_OK);
        for (int i = 0; i < 5; i++) {
            const float *row = w.logits + wanted[i] * 96;
            int top = 0;
            for (int k = 1; k < 96; k++)
                top = row[k] > row[top] ? k : top;
            CHECK(!memcmp(some + i * 96, row, sizeof(float) * 96));
            CHECK_EQ(best[i], top);
            CHECK_EQ(w.argmax[wanted[i]], top);
        }
    }
    /* One of several wanted alone; logits without argmax and the reverse. */
    step.n_logits = 1;
    step.argmax = NULL;
    CHECK_EQ(decoder_step(r.dec, r.st, &step, NULL), PV_OK);
    CHECK(!memcmp(some, w.logits + 7 * 96, sizeof(float) * 96));
    best[0] = -1;
    step.logits = NULL;
    step.argmax = best;
    CHECK_EQ(decoder_step(r.dec, r.st, &step, NULL), PV_OK);
    CHECK_EQ(best[0], w.argmax[7]);
    rig_close(&r);
}

/* A step for the cache alone writes the same keys and values, and no other slot. */
TEST(step_without_results_fills_the_cache)
{
    static struct whole w;
    struct rig a, b;
    if (!open_rig(&a, 1, DTYPE_F16) || !open_rig(&b, 1, DTYPE_F16))
        return;
    whole_init(&w, &a, 20);
    CHECK_EQ(decoder_step(a.dec, a.st, &w.step, NULL), PV_OK);
    kv_poison(&a.kv, 20, CONTEXT);
    kv_poison(&b.kv, 0, CONTEXT);
    CHECK(rig_run(&b, w.ids, 20, NULL, NULL));
    CHECK_EQ(b.kv.len, 0); /* nothing is committed */
    CHECK_EQ(kv_first_difference(&a.kv, &b.kv, 0, CONTEXT), -1);
    rig_close(&a);
    rig_close(&b);
}

TEST(ready_embeddings_are_the_tables_rows)
{
    static struct whole w;
    static float embeds[MAX_ROWS * 64], logits[MAX_ROWS * 96];
    int32_t ids[MAX_ROWS];
    struct rig r;
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    whole_init(&w, &r, MAX_ROWS);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    memcpy(ids, w.ids, sizeof ids);
    for (int i = 0; i < MAX_ROWS; i++) /* runs of either kind, at the ends too */
        if (i % 7 < 3) {
            memcpy(embeds + i * 64, w.hidden[0] + i * 64, sizeof(float) * 64);
            ids[i] = -1 - i;
        }
    struct step step = w.step;
    step.ids = ids;
    step.embeds = embeds;
    step.logits = logits;
    CHECK_EQ(decoder_step(r.dec, r.st, &step, NULL), PV_OK);
    CHECK(!memcmp(logits, w.logits, sizeof logits));
    rig_close(&r);
}

/* Several column taps of one step: each as if it were alone, and the mean of the layers. */
TEST(columns_of_layers_apart)
{
    static struct whole w;
    float alone[2][4], together[3][4];
    struct column_tap taps[3];
    struct rig r;
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    whole_init(&w, &r, MAX_ROWS);
    for (int l = 0; l < 2; l++) {
        w.columns.layer0 = l;
        w.columns.layer1 = l + 1;
        w.columns.sums = alone[l];
        CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    }
    for (int i = 0; i < 3; i++) {
        taps[i] = w.columns;
        taps[i].layer0 = i == 1;
        taps[i].layer1 = i ? 2 : 1;
        taps[i].sums = together[i];
    }
    taps[2].layer0 = 0;
    w.step.n_columns = 3;
    w.step.columns = taps;
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    CHECK(!memcmp(alone, together, sizeof alone));
    CHECK(memcmp(alone[0], alone[1], sizeof alone[0]) != 0);
    for (int i = 0; i < 4; i++) {
        float mean = (alone[0][i] + alone[1][i]) / 2, d = together[2][i] - mean;
        CHECK((d < 0 ? -d : d) <= 1e-5f * mean);
    }
    rig_close(&r);
}

/* Two states on one decoder do not touch each other. */
TEST(states_are_apart)
{
    static struct whole w, other;
    struct decoder_state *st = NULL;
    struct rig r;
    static float logits[MAX_ROWS * 96];
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    CHECK_EQ(decoder_state_open(&st, r.dec, MAX_ROWS, MAX_ROWS, CONTEXT, DTYPE_F32, NULL), PV_OK);
    whole_init(&w, &r, MAX_ROWS);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    memcpy(logits, w.logits, sizeof logits);
    whole_init(&other, &r, 11);
    random_ids(other.ids, MAX_ROWS, 9);
    CHECK_EQ(decoder_step(r.dec, st, &other.step, NULL), PV_OK);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    CHECK(!memcmp(logits, w.logits, sizeof logits));
    CHECK_EQ(decoder_step(r.dec, st, &w.step, NULL), PV_OK);
    CHECK(!memcmp(logits, w.logits, sizeof logits));
    decoder_state_close(&st);
    rig_close(&r);
}

/* ---- refusals ---- */

/* The step must be refused with this code and word, and leave cache and outputs alone. */
static void refuse(struct rig *r, struct whole *w, enum pv_status code, const char *word)
{
    static struct whole before;
    struct pv_error err = { 0 };
    uint8_t *kv = malloc(kvpool_size(r->kv.pool));
    int len = r->kv.len;
    memcpy(kv, kvpool_memory(r->kv.pool, 0), kvpool_size(r->kv.pool));
    memset(w->logits, 0x55, sizeof w->logits);
    memset(w->hidden, 0x55, sizeof w->hidden);
    memset(w->sums, 0x55, sizeof w->sums);
    memset(w->argmax, 0x55, sizeof w->argmax);
    before = *w;
    enum pv_status s = decoder_step(r->dec, r->st, &w->step, &err);
    CHECK_MSG(s == code && err.code == code, "%s, not %s, for \"%s\"", pv_status_name(s),
              pv_status_name(code), word);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
    CHECK(!memcmp(&before, w, sizeof before));
    CHECK(len == r->kv.len && !memcmp(kv, kvpool_memory(r->kv.pool, 0), kvpool_size(r->kv.pool)));
    free(kv);
}

TEST(bad_ids_and_rows_are_refused)
{
    static struct whole w;
    struct rig r;
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    rig_feed(&r, (const int32_t[]){ 1, 2, 3 }, 3, 3, NULL);
    whole_init(&w, &r, 10);
    w.ids[9] = 96;
    refuse(&r, &w, PV_E_ARG, "token id 96 is not in the vocabulary of 96");
    w.ids[9] = -1; /* and no embeddings */
    refuse(&r, &w, PV_E_ARG, "token id -1");
    w.ids[9] = INT32_MAX;
    refuse(&r, &w, PV_E_ARG, "2147483647");

    whole_init(&w, &r, 10);
    w.step.n = w.seq.n = MAX_ROWS + 1;
    refuse(&r, &w, PV_E_LIMIT, "a step of 41 rows");
    w.step.n = 0;
    refuse(&r, &w, PV_E_LIMIT, "a step of 0 rows");
    w.step.n = -5;
    refuse(&r, &w, PV_E_LIMIT, "a step of -5 rows");

    whole_init(&w, &r, 10);
    w.step.n_logits = MAX_ROWS + 1;
    refuse(&r, &w, PV_E_LIMIT, "41 logit rows");
    w.step.n_logits = -1;
    refuse(&r, &w, PV_E_LIMIT, "-1 logit rows");
    w.step.n_logits = 11; /* more than rows: the scratch has one state of each */
    refuse(&r, &w, PV_E_ARG, "logits of 11 rows of 10");
    w.step.n_logits = 10;
    w.rows[9] = 10;
    refuse(&r, &w, PV_E_ARG, "logits of row 10 of 10");
    w.rows[9] = -1;
    refuse(&r, &w, PV_E_ARG, "logits of row -1");

    whole_init(&w, &r, 10);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK); /* itself it was good */
    rig_close(&r);
}

TEST(bad_sequences_are_refused)
{
    static struct whole w;
    struct rig r, other;
    int parent[10] = { -1, 0, 1, 2, 3, 4, 5, 6, 7, 9 };
    if (!open_rig(&r, 2, DTYPE_F32) || !open_rig(&other, 1, DTYPE_F16))
        return;
    whole_init(&w, &r, 10);
    w.step.n_columns = 0; /* not of a tree */
    w.seq.parent = parent;
    refuse(&r, &w, PV_E_ARG, "row 9 of a tree names row 9 as its parent");
    parent[9] = -2;
    refuse(&r, &w, PV_E_ARG, "names row -2");
    parent[9] = 5;
    parent[0] = 0;
    refuse(&r, &w, PV_E_ARG, "row 0 of a tree names row 0");
    w.seq.pending = -1;
    refuse(&r, &w, PV_E_ARG, "-1 pending rows");
    w.seq.parent = NULL;
    w.seq.pending = r.kv.cap - r.kv.len - 9;
    refuse(&r, &w, PV_E_LIMIT, "do not fit");
    w.seq.pending = INT32_MAX;
    refuse(&r, &w, PV_E_LIMIT, "do not fit");

    whole_init(&w, &r, 10);
    w.seq.n = 9;
    refuse(&r, &w, PV_E_ARG, "a step of 10 rows whose sequences have 9");
    w.step.n_seqs = 0;
    refuse(&r, &w, PV_E_LIMIT, "0 sequences");
    w.step.n_seqs = 65;
    refuse(&r, &w, PV_E_LIMIT, "65 sequences");

    whole_init(&w, &r, 10);
    struct step_seq two[2] = { { .kv = &r.kv, .n = 5 }, { .kv = &r.kv, .n = 5 } };
    w.step.n_seqs = 2;
    w.step.seqs = two;
    refuse(&r, &w, PV_E_ARG, "sequences 0 and 1 of a step share a KV cache");
    two[1].kv = &other.kv;
    refuse(&r, &w, PV_E_ARG, "a KV cache of f16 in a state made for f32");
    two[0].n = 11;
    two[1] = (struct step_seq){ .kv = &other.kv, .n = -1 };
    refuse(&r, &w, PV_E_ARG, "sequence 1 of a step has -1 rows");
    two[1].n = 0;
    refuse(&r, &w, PV_E_ARG, "has 0 rows");
    rig_close(&r);
    rig_close(&other);
}

TEST(full_cache_is_refused)
{
    static struct whole w;
    static int32_t ids[CONTEXT];
    struct rig r;
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    random_ids(ids, CONTEXT, 5);
    rig_feed(&r, ids, CONTEXT - 9, MAX_ROWS, NULL);
    whole_init(&w, &r, 10);
    refuse(&r, &w, PV_E_LIMIT, "10 rows after 503 do not fit a context of 512");
    whole_init(&w, &r, 9);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    kvcache_advance(&r.kv, 9);
    whole_init(&w, &r, 1);
    refuse(&r, &w, PV_E_LIMIT, "1 rows after 512");
    rig_close(&r);
}

/* The cache is rounded up to whole chunks, the state's scratch is not: the smaller one counts. */
TEST(context_of_the_state_counts)
{
    static struct whole w;
    struct rig_shape s = { .level = cpu_level_best(),
                           .threads = 1,
                           .kv = DTYPE_F32,
                           .max_rows = MAX_ROWS,
                           .context = 30 };
    struct rig r;
    if (!rig_open(&r, model_path(), s))
        return;
    CHECK_EQ(r.kv.cap, KV_CHUNK);
    whole_init(&w, &r, 31);
    refuse(&r, &w, PV_E_LIMIT, "31 rows after 0 do not fit a context of 30");
    whole_init(&w, &r, 30);
    CHECK_EQ(decoder_step(r.dec, r.st, &w.step, NULL), PV_OK);
    rig_close(&r);
}

TEST(bad_taps_are_refused)
{
    static const int parent[10] = { -1, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    static struct whole w;
    struct rig r;
    int bad[] = { 0, 10 };
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    whole_init(&w, &r, 10);
    w.taps[1].layer = 2;
    refuse(&r, &w, PV_E_ARG, "states after layer 2 of 2");
    w.taps[1].layer = -2;
    refuse(&r, &w, PV_E_ARG, "states after layer -2");
    w.taps[1] = (struct hidden_tap){ .n_rows = 2, .rows = bad, .out = w.hidden[1] };
    refuse(&r, &w, PV_E_ARG, "states of row 10 of 10");

    whole_init(&w, &r, 10);
    w.columns.layer1 = 3;
    refuse(&r, &w, PV_E_ARG, "attention of layers 0 to 3 of 2");
    w.columns.layer0 = w.columns.layer1 = 1;
    refuse(&r, &w, PV_E_ARG, "attention of layers 1 to 1");
    whole_init(&w, &r, 10);
    w.columns.n_rows = 2;
    w.columns.rows = bad;
    refuse(&r, &w, PV_E_ARG, "attention of row 10 of 10");
    bad[0] = bad[1] = 3;
    refuse(&r, &w, PV_E_ARG, "out of order");
    whole_init(&w, &r, 10);
    w.keys[0] = -1;
    refuse(&r, &w, PV_E_ARG, "attention to slot -1");
    w.keys[0] = 2;
    refuse(&r, &w, PV_E_ARG, "out of order");
    whole_init(&w, &r, 10);
    struct column_tap two[2] = { w.columns, w.columns };
    two[1].layer1 = 3; /* not only the first is looked at */
    w.step.n_columns = 2;
    w.step.columns = two;
    refuse(&r, &w, PV_E_ARG, "attention of layers 0 to 3 of 2");
    whole_init(&w, &r, 10);
    w.seq.parent = parent;
    refuse(&r, &w, PV_E_ARG, "rows of a tree");
    rig_close(&r);
}

/* ---- opening ---- */

/* Every allocation of opening failed in turn: a status, nothing leaked (the sanitizer looks). */
TEST(opening_survives_lack_of_memory)
{
    struct rig r;
    if (!open_rig(&r, 2, DTYPE_F32))
        return;
    for (uint64_t k = 1;; k++) {
        struct decoder *dec = NULL;
        struct decoder_state *st = NULL;
        struct kvcache kv = { 0 };
        struct pv_error err = { 0 };
        mem_fail_at(k);
        enum pv_status s = decoder_open(&dec, r.mf, r.dev, &err);
        if (!s)
            s = decoder_state_open(&st, dec, 8, 8, 64, DTYPE_F32, &err);
        if (!s)
            s = kvcache_open(&kv, r.dev, r.c, DTYPE_F32, 64, &err);
        mem_fail_at(0);
        if (s) {
            CHECK_EQ(s, PV_E_NOMEM);
            CHECK(strstr(err.text, "bytes"));
            CHECK(kv.pool == NULL);
        } else {
            kvcache_close(&kv);
        }
        decoder_state_close(&st);
        decoder_close(&dec);
        if (!s) {
            CHECK(k > 5);
            break;
        }
        if (!CHECK(k < 100))
            break;
    }
    rig_close(&r);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
