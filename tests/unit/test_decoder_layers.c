/* Steps over a part of the layers: a prefill that runs all its chunks through the first layers and
 * then through the rest gives the bits of whole steps, in the cache, the logits and every tap; what
 * a step does not run it does not touch. */
#include "rig.h"
#include "tiny_model.h"

enum {
    LAYERS = 4,
    HIDDEN = 64,
    VOCAB = 96,
    MAX_ROWS = 128,
    N = 300, /* past a chunk of the cache */
    CONTEXT = 512,
    CHUNKS = 3,
    CHUNK = 100,
    KEYS = 60,
    N_TAPS = LAYERS + 2, /* embedding, each layer, after the norm */
    N_COLUMNS = 4,
    FILL = 0x55
};

static const struct tiny_experts experts = { .n = 7, .used = 3, .ffn = 32, .dense = 1 };

static const struct tiny_model models[] = {
    { "qwen2", HIDDEN, LAYERS, 4, 2, 16, 160, VOCAB, DTYPE_Q8_0, true, 1, 0, 0, false, NULL, NULL,
      NULL },
    { "qwen3vl", HIDDEN, LAYERS, 4, 2, 32, 96, VOCAB, DTYPE_F16, false, 2, 0, 0, false, NULL, NULL,
      NULL },
    { "qwen3vlmoe", HIDDEN, LAYERS, 4, 2, 32, 96, VOCAB, DTYPE_Q8_0, false, 3, 0, 0, false, NULL,
      NULL, &experts },
};

enum { N_MODELS = sizeof models / sizeof *models };

static bool open_rig(struct rig *r, int model, int threads, enum dtype kv)
{
    static char paths[N_MODELS][256];
    struct rig_shape s = { .level = cpu_level_best(),
                           .threads = threads,
                           .kv = kv,
                           .max_rows = MAX_ROWS,
                           .context = CONTEXT };
    if (!paths[model][0])
        tiny_model_write(&models[model], models[model].arch, paths[model]);
    return rig_open(r, paths[model], s);
}

/* The prompt: ids and ready embeddings in turn, positions of three axes. */
static int32_t ids[N], pos[N][3];
static float embeds[N * HIDDEN];

static void make_prompt(void)
{
    struct rng r = { test_seed };
    for (int i = 0; i < N; i++) {
        ids[i] = i % 50 >= 30 ? -1 : (int32_t)(rng_next(&r) % VOCAB);
        pos[i][0] = i / 20;
        pos[i][1] = i / 20 + i % 5;
        pos[i][2] = i / 20 + i % 4;
    }
    for (int i = 0; i < N * HIDDEN; i++)
        embeds[i] = rng_normal(&r);
}

/* All that a prefill gives beside the cache. */
struct results {
    float hidden[N_TAPS][N * HIDDEN];
    float sums[CHUNKS][N_COLUMNS][KEYS];
    float logits[CHUNKS][2 * VOCAB];
    int32_t argmax[CHUNKS][2];
};

/* A step over one chunk that asks for everything. */
struct asked {
    int rows[MAX_ROWS], some[CHUNK / 3], last[2], keys[KEYS];
    struct hidden_tap taps[N_TAPS];
    struct column_tap columns[N_COLUMNS];
    struct step_seq seq;
    struct step step;
};

static void ask(struct asked *a, struct rig *r, struct results *out, int chunk)
{
    /* All layers; only the first two; only the last; over the given keys alone. */
    static const int layers[N_COLUMNS][2] = { { 0, 4 }, { 0, 2 }, { 3, 4 }, { 1, 4 } };
    int from = chunk * CHUNK;
    for (int i = 0; i < MAX_ROWS; i++)
        a->rows[i] = i;
    for (int i = 0; i < CHUNK / 3; i++)
        a->some[i] = 3 * i + 1;
    for (int i = 0; i < KEYS; i++)
        a->keys[i] = 4 * i + 3;
    a->last[0] = CHUNK - 1;
    a->last[1] = 5;
    for (int i = 0; i < N_TAPS; i++)
        a->taps[i] = (struct hidden_tap){ .layer = i == N_TAPS - 1 ? 0 : i - 1,
                                          .post_norm = i == N_TAPS - 1,
                                          .n_rows = CHUNK,
                                          .rows = a->rows,
                                          .out = out->hidden[i] + (size_t)from * HIDDEN };
    for (int i = 0; i < N_COLUMNS; i++)
        a->columns[i] = (struct column_tap){ .layer0 = layers[i][0],
                                             .layer1 = layers[i][1],
                                             .n_rows = CHUNK / 3,
                                             .rows = a->some,
                                             .n_keys = KEYS,
                                             .keys = a->keys,
                                             .over_keys = i == 3,
                                             .sums = out->sums[chunk][i] };
    a->seq = (struct step_seq){ .kv = &r->kv, .n = CHUNK };
    a->step = (struct step){ .n = CHUNK,
                             .ids = ids + from,
                             .embeds = embeds + (size_t)from * HIDDEN,
                             .pos = (const int32_t(*)[3])(pos + from),
                             .n_seqs = 1,
                             .seqs = &a->seq,
                             .n_logits = 2,
                             .logit_rows = a->last,
                             .logits = out->logits[chunk],
                             .argmax = out->argmax[chunk],
                             .n_hidden = N_TAPS,
                             .hidden = a->taps,
                             .n_columns = N_COLUMNS,
                             .columns = a->columns };
}

static bool run(struct rig *r, const struct step *step)
{
    struct pv_error err = { 0 };
    uint64_t before = mem_count();
    bool ok = CHECK_MSG(decoder_step(r->dec, r->st, step, &err) == PV_OK, "%s", err.text);
    CHECK_EQ(mem_count(), before);
    return ok;
}

static void prefill_whole(struct rig *r, struct results *out)
{
    static struct asked a;
    for (int c = 0; c < CHUNKS; c++) {
        ask(&a, r, out, c);
        run(r, &a.step);
        kvcache_advance(&r->kv, CHUNK);
    }
}

/* All chunks through the layers [from, to); the cache then has all of them. */
static void prefill_part(struct rig *r, struct results *out, float *residual, int from, int to)
{
    static struct asked a;
    kvcache_truncate(&r->kv, 0);
    for (int c = 0; c < CHUNKS; c++) {
        ask(&a, r, out, c);
        a.step.layer0 = from;
        a.step.layer1 = to;
        a.step.residual = residual + (size_t)c * CHUNK * HIDDEN;
        if (to < LAYERS)
            a.step.n_logits = 0;
        if (from > 0) {
            a.step.ids = NULL;
            a.step.embeds = NULL;
        }
        run(r, &a.step);
        kvcache_advance(&r->kv, CHUNK);
    }
}

static const char *cache_bytes(const struct rig *r)
{
    return kvpool_memory(r->kv.pool, 0);
}

/* Whether a layer has the same bytes in the caches a and b, of `size` bytes. */
static bool same_layer(const char *a, const char *b, size_t size, int layer)
{
    size_t page = size / (CONTEXT / KV_CHUNK), part = page / LAYERS;
    for (size_t at = part * (size_t)layer; at < size; at += page)
        if (memcmp(a + at, b + at, part) != 0)
            return false;
    return true;
}

static void check_same(const struct rig *a, const struct rig *b, const struct results *x,
                       const struct results *y, const char *how)
{
    for (int i = 0; i < N_TAPS; i++)
        CHECK_MSG(!memcmp(x->hidden[i], y->hidden[i], sizeof x->hidden[i]), "%s: tap %d", how, i);
    CHECK_MSG(!memcmp(x->sums, y->sums, sizeof x->sums), "%s: column sums", how);
    CHECK_MSG(!memcmp(x->logits, y->logits, sizeof x->logits), "%s: logits", how);
    CHECK_MSG(!memcmp(x->argmax, y->argmax, sizeof x->argmax), "%s: argmax", how);
    CHECK_MSG(a->kv.len == N && b->kv.len == N, "%s: lengths", how);
    CHECK_MSG(!memcmp(cache_bytes(a), cache_bytes(b), kvpool_size(a->kv.pool)), "%s: the cache",
              how);
}

static struct results whole, parts;
static float residual[N * HIDDEN];

static void check_split(int model, int threads, enum dtype kv, const int *cuts, int n)
{
    struct rig a, b;
    char how[96];
    if (!open_rig(&a, model, threads, kv) || !open_rig(&b, model, threads, kv))
        return;
    snprintf(how, sizeof how, "%s, %s, %d threads, cut after %d%s", models[model].arch,
             dtype_name(kv), threads, cuts[1], n > 2 ? " and more" : "");
    kv_poison(&a.kv, 0, CONTEXT);
    kv_poison(&b.kv, 0, CONTEXT);
    memset(&parts, FILL, sizeof parts);
    prefill_whole(&a, &whole);
    for (int i = 0; i < n; i++)
        prefill_part(&b, &parts, residual, cuts[i], cuts[i + 1]);
    check_same(&a, &b, &whole, &parts, how);
    rig_close(&a);
    rig_close(&b);
}

TEST(parts_have_the_bits_of_the_whole)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    make_prompt();
    for (int m = 0; m < N_MODELS; m++)
        for (int cut = 1; cut < LAYERS; cut++)
            check_split(m, 1 + cut % 2, types[cut - 1], (const int[]){ 0, cut, LAYERS }, 2);
}

TEST(any_number_of_parts)
{
    make_prompt();
    for (int m = 0; m < N_MODELS; m++) {
        check_split(m, 2, DTYPE_F16, (const int[]){ 0, 1, 3, 4 }, 3);
        check_split(m, 2, DTYPE_BF16, (const int[]){ 0, 1, 2, 3, 4 }, 4);
        check_split(m, 2, DTYPE_F32, (const int[]){ 0, 4 }, 1); /* said, not left out */
    }
}

/* After the first part: other layers' slots and other layers' taps are as they were, and what the
 * first layers gave is there already. */
TEST(what_does_not_run_is_not_touched)
{
    enum { CUT = 2 };
    struct rig a, b;
    make_prompt();
    if (!open_rig(&a, 0, 2, DTYPE_F16) || !open_rig(&b, 0, 2, DTYPE_F16))
        return;
    kv_poison(&a.kv, 0, CONTEXT);
    kv_poison(&b.kv, 0, CONTEXT);
    size_t size = kvpool_size(b.kv.pool);
    char *before = malloc(size);
    memcpy(before, cache_bytes(&b), size);
    prefill_whole(&a, &whole);
    memset(&parts, FILL, sizeof parts);
    prefill_part(&b, &parts, residual, 0, CUT);
    for (int l = 0; l < LAYERS; l++)
        CHECK(same_layer(cache_bytes(&b), l < CUT ? cache_bytes(&a) : before, size, l));
    const unsigned char *untouched = (const unsigned char *)parts.hidden[CUT + 1];
    for (size_t i = 0; i < sizeof parts.hidden[0] * (N_TAPS - CUT - 1); i++)
        if (!CHECK(untouched[i] == FILL))
            break;
    for (int i = 0; i <= CUT; i++)
        CHECK(!memcmp(parts.hidden[i], whole.hidden[i], sizeof whole.hidden[i]));
    CHECK(!memcmp(residual, whole.hidden[CUT], sizeof residual)); /* the stream after layer CUT */
    for (int c = 0; c < CHUNKS; c++) {
        CHECK(!memcmp(parts.sums[c][1], whole.sums[c][1], sizeof whole.sums[c][1]));
        CHECK_EQ(((unsigned char *)parts.sums[c][2])[0], FILL);
    }
    memcpy(before, cache_bytes(&b), size);
    prefill_part(&b, &parts, residual, CUT, LAYERS);
    for (int l = 0; l < CUT; l++)
        CHECK(same_layer(cache_bytes(&b), before, size, l));
    check_same(&a, &b, &whole, &parts, "second half");
    free(before);
    rig_close(&a);
    rig_close(&b);
}

static bool feed(struct rig *r, int from, int n, int layer0, int layer1, float *logits)
{
    static const int last = 0;
    int row = n - 1;
    struct step_seq seq = { .kv = &r->kv, .n = n };
    struct step step = { .n = n,
                         .ids = ids + from,
                         .embeds = embeds + (size_t)from * HIDDEN,
                         .pos = (const int32_t(*)[3])(pos + from),
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = logits ? 1 : 0,
                         .logit_rows = logits ? &row : &last,
                         .logits = logits,
                         .layer0 = layer0,
                         .layer1 = layer1,
                         .residual = residual + (size_t)from * HIDDEN };
    bool ok = run(r, &step);
    kvcache_advance(&r->kv, n);
    return ok;
}

/* The parts need not have the same chunks; a prefill given up half way leaves nothing behind; and
 * decoding goes on from the result as from any other. */
TEST(parts_have_chunks_of_their_own)
{
    static float x[3][VOCAB], y[3][VOCAB];
    struct rig a, b;
    make_prompt();
    if (!open_rig(&a, 1, 1, DTYPE_BF16) || !open_rig(&b, 1, 2, DTYPE_BF16))
        return;
    for (int from = 0; from < 290; from += 58)
        feed(&a, from, 58, 0, 0, x[0]);
    feed(&b, 40, 128, 0, 3, NULL); /* something else, given up */
    kvcache_truncate(&b.kv, 0);
    feed(&b, 0, 7, 0, 0, NULL); /* the prefill need not start at 0 */
    for (int from = 7, n; from < 290; from += n) {
        n = 290 - from < 97 ? 290 - from : 97;
        feed(&b, from, n, 0, 3, NULL);
    }
    kvcache_truncate(&b.kv, 7);
    for (int from = 7, n; from < 290; from += n) {
        n = 290 - from < 31 ? 290 - from : 31;
        feed(&b, from, n, 3, LAYERS, from + n == 290 ? y[0] : NULL);
    }
    for (int i = 1; i < 3; i++) {
        feed(&a, 290 + i, 1, 0, 0, x[i]);
        feed(&b, 290 + i, 1, 0, 0, y[i]);
    }
    CHECK(!memcmp(x, y, sizeof x));
    CHECK_EQ(kv_first_difference(&a.kv, &b.kv, 0, 292), -1);
    rig_close(&a);
    rig_close(&b);
}

/* A tree in two parts is the same tree. */
TEST(trees_have_parts_too)
{
    static const int parent[] = { -1, -1, 0, 0, 1, 4, 4, 2 };
    static float x[8 * VOCAB], y[8 * VOCAB];
    struct rig r;
    make_prompt();
    if (!open_rig(&r, 0, 2, DTYPE_F16))
        return;
    feed(&r, 0, 30, 0, 0, NULL);
    rig_run(&r, ids, 8, parent, x);
    struct step_seq seq = { .kv = &r.kv, .n = 8, .parent = parent };
    struct step step = { .n = 8,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])r.pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .layer1 = 1,
                         .residual = residual };
    kv_poison(&r.kv, 30, CONTEXT);
    run(&r, &step);
    step.layer0 = 1;
    step.layer1 = LAYERS;
    step.n_logits = 8;
    step.logit_rows = r.rows;
    step.logits = y;
    run(&r, &step);
    CHECK(!memcmp(x, y, sizeof x));
    rig_close(&r);
}

/* One chunk through layers [from, to), with a cache of its own and what the tap asks for. */
static void run_group(struct rig *r, struct kvcache *kv, int from, int to, bool only,
                      const struct column_tap *tap, float *logits)
{
    int last = CHUNK - 1;
    struct step_seq seq = { .kv = kv, .n = CHUNK };
    struct step step = { .n = CHUNK,
                         .ids = ids,
                         .embeds = embeds,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_columns = tap != NULL,
                         .columns = tap,
                         .layer0 = from,
                         .layer1 = to,
                         .residual = residual,
                         .columns_only = only,
                         .n_logits = logits != NULL,
                         .logit_rows = &last,
                         .logits = logits };
    run(r, &step);
    kvcache_advance(kv, CHUNK);
}

/* Caches of groups of layers, and the attention of a layer that does not run, are those of whole
 * steps. */
TEST(groups_of_layers_have_caches_of_their_own)
{
    static float x[VOCAB], y[VOCAB], before[CHUNK * HIDDEN], sums[2][KEYS];
    static int rows[1] = { CHUNK - 1 }, keys[KEYS];
    struct column_tap tap = {
        .layer0 = 2, .layer1 = 3, .n_rows = 1, .rows = rows, .n_keys = KEYS, .keys = keys
    };
    struct kvcache group[2], ahead;
    struct rig r;
    make_prompt();
    if (!open_rig(&r, 0, 2, DTYPE_F16))
        return;
    for (int i = 0; i < KEYS; i++)
        keys[i] = i + 7;
    const struct config *c = decoder_config(r.dec);
    CHECK(!kvcache_open_layers(&group[0], r.kv.dev, c, 0, 2, DTYPE_F16, CHUNK, NULL) &&
          !kvcache_open_layers(&group[1], r.kv.dev, c, 2, LAYERS, DTYPE_F16, CHUNK, NULL) &&
          !kvcache_open_layers(&ahead, r.kv.dev, c, 2, 3, DTYPE_F16, CHUNK, NULL));
    tap.sums = sums[0];
    run_group(&r, &r.kv, 0, LAYERS, false, &tap, x);
    run_group(&r, &group[0], 0, 2, false, NULL, NULL);
    memcpy(before, residual, sizeof before);
    tap.sums = sums[1];
    run_group(&r, &ahead, 2, 3, true, &tap, NULL);
    CHECK(!memcmp(before, residual, sizeof before));
    run_group(&r, &group[1], 2, LAYERS, false, NULL, y);
    CHECK(!memcmp(sums[0], sums[1], sizeof sums[0]));
    CHECK(!memcmp(x, y, sizeof x));
    CHECK_EQ(kvcache_size(c, DTYPE_F16, CHUNK),
             kvpool_size(group[0].pool) + kvpool_size(group[1].pool));
    kvcache_close(&group[0]);
    kvcache_close(&group[1]);
    kvcache_close(&ahead);
    rig_close(&r);
}

static void refuse(struct rig *r, const struct step *step, const char *word)
{
    struct pv_error err = { 0 };
    char *before = malloc(kvpool_size(r->kv.pool));
    memcpy(before, kvpool_memory(r->kv.pool, 0), kvpool_size(r->kv.pool));
    memset(residual, FILL, sizeof residual);
    CHECK_EQ(decoder_step(r->dec, r->st, step, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
    CHECK(!memcmp(before, kvpool_memory(r->kv.pool, 0), kvpool_size(r->kv.pool)));
    for (size_t i = 0; i < sizeof residual; i++)
        if (!CHECK(((unsigned char *)residual)[i] == FILL))
            break;
    free(before);
}

TEST(bad_parts_are_refused)
{
    static const int bad[][2] = { { -1, 2 }, { 2, 2 }, { 3, 1 }, { 0, 5 }, { 4, 5 }, { 2, 0 } };
    static struct asked a;
    struct rig r;
    make_prompt();
    if (!open_rig(&r, 0, 1, DTYPE_F32))
        return;
    ask(&a, &r, &parts, 0);
    a.step.residual = residual;
    for (int i = 0; i < 6; i++) {
        char word[32];
        a.step.layer0 = bad[i][0];
        a.step.layer1 = bad[i][1];
        snprintf(word, sizeof word, "layers %d to %d of 4", bad[i][0], bad[i][1]);
        refuse(&r, &a.step, word);
    }
    a.step.layer0 = 0;
    a.step.layer1 = 3;
    refuse(&r, &a.step, "logits of a step that ends with layer 3 of 4");
    a.step.n_logits = 0;
    a.step.columns_only = true;
    refuse(&r, &a.step, "columns alone of layers 0 to 3");
    a.step.layer1 = 0;
    refuse(&r, &a.step, "columns alone of all layers");
    a.step.layer1 = 3;
    a.step.columns_only = false;
    r.kv.layer0 = 1;
    refuse(&r, &a.step, "layers 0 to 3 with a KV cache of layers 1 to 5");
    r.kv.layer0 = 0;
    a.step.residual = NULL;
    refuse(&r, &a.step, "without a residual");
    a.step.layer0 = 2;
    a.step.layer1 = 4;
    refuse(&r, &a.step, "without a residual");
    a.step.layer0 = 0;
    run(&r, &a.step); /* all of them: it needs none */
    rig_close(&r);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
