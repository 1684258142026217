/* The lossless contract at the decoder: the bits of a row depend on that row and what it sees,
 * never on the rows, tree nodes, sequences or threads beside it. Everything here is memcmp.
 *
 * Truth is plain decoding: one token at a time, one thread. Against it stand chains of 2 to 64
 * rows, trees, prefill in one go and steps of two sequences, on every CPU level of this machine,
 * at context lengths around the borders of attention's chunks (256) and segments (1024). Slots
 * that are not committed are filled with large numbers first. */
#include "rig.h"
#include "small_models.h"

enum { CONTEXT = 1280, STREAM = 1110, MAX_ROWS = 64 };

static const int lengths[] = { 0, 1, 250, 255, 256, 257, 1020, 1030 };
static const int row_counts[] = { 1, 2, 3, 5, 8, 26, 64 };

enum {
    N_LENGTHS = sizeof lengths / sizeof lengths[0],
    N_ROW_COUNTS = sizeof row_counts / sizeof row_counts[0]
};

static const enum dtype kv_types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };

static char paths[N_SMALL_MODELS][256];

static const char *model_path(int m)
{
    char name[16];
    if (!paths[m][0]) {
        snprintf(name, sizeof name, "m%d", m);
        tiny_model_write(small_model(m), name, paths[m]);
    }
    return paths[m];
}

static int32_t *make_stream(int vocab, uint64_t seed)
{
    struct rng r = { seed };
    int32_t *ids = malloc(sizeof *ids * STREAM);
    for (int i = 0; i < STREAM; i++)
        ids[i] = (int32_t)(rng_next(&r) % (uint64_t)vocab);
    return ids;
}

/* Plain decoding of one stream of tokens: logits and KV of every row. */
struct truth {
    struct rig rig;
    struct kvcache rubbish; /* for slots that are not committed */
    int32_t *ids;
    float *logits; /* [STREAM, vocab] */
};

/* Whether a row of the stream is looked at by a test: rows at and after the lengths. */
static bool is_looked_at(int row)
{
    for (int i = 0; i < N_LENGTHS; i++)
        if (row >= lengths[i] && row < lengths[i] + MAX_ROWS)
            return true;
    return row >= 700 && row < 710;
}

/* Rows nobody looks at may be fed in chunks, which is faster; not when `every` row is. */
static bool truth_feed(struct truth *t, bool every)
{
    bool ok = true;
    for (int at = 0, n; at < STREAM && ok; at += n) {
        for (n = 1; !every && !is_looked_at(at) && n < MAX_ROWS && at + n < STREAM; n++)
            if (is_looked_at(at + n))
                break;
        ok = rig_feed(&t->rig, t->ids + at, n, n, t->logits + (size_t)at * t->rig.c->vocab);
    }
    return ok;
}

static bool truth_open(struct truth *t, int m, int level, enum dtype kv, bool every)
{
    struct rig_shape s = {
        .level = level, .threads = 1, .kv = kv, .max_rows = MAX_ROWS, .context = CONTEXT
    };
    *t = (struct truth){ 0 };
    if (!rig_open(&t->rig, model_path(m), s))
        return false;
    if (!CHECK(!kvcache_open(&t->rubbish, t->rig.dev, t->rig.c, kv, CONTEXT, NULL)))
        return false;
    kv_poison(&t->rubbish, 0, CONTEXT);
    t->ids = make_stream(t->rig.c->vocab, test_seed + (uint64_t)m);
    t->logits = malloc(sizeof(float) * STREAM * (size_t)t->rig.c->vocab);
    return truth_feed(t, every);
}

static void truth_close(struct truth *t)
{
    if (t->rubbish.pool)
        kvcache_close(&t->rubbish);
    rig_close(&t->rig);
    free(t->ids);
    free(t->logits);
}

static const float *truth_row(const struct truth *t, int row)
{
    return t->logits + (size_t)row * (size_t)t->rig.c->vocab;
}

static bool same_floats(const float *a, const float *b, int n)
{
    return memcmp(a, b, sizeof(float) * (size_t)n) == 0;
}

/* Make the rig's cache hold the first `len` slots of the truth, and rubbish behind them. */
static void recall(struct rig *r, const struct truth *t, int len)
{
    int end = (len + 2 * MAX_ROWS + KV_CHUNK) / KV_CHUNK * KV_CHUNK;
    kv_range(&r->kv, &t->rig.kv, 0, len, true);
    kv_range(&r->kv, &t->rubbish, len, end < CONTEXT ? end : CONTEXT, true);
    r->kv.len = len;
}

/* Whether rows len .. len + n - 1 in one step give the truth's bits. */
static void check_chain(struct rig *r, const struct truth *t, int len, int n, float *logits,
                        const char *what)
{
    int vocab = r->c->vocab, slot;
    recall(r, t, len);
    if (!rig_run(r, t->ids + len, n, NULL, logits))
        return;
    for (int i = 0; i < n; i++)
        if (!CHECK_MSG(same_floats(logits + (size_t)i * vocab, truth_row(t, len + i), vocab),
                       "%s: row %d of %d after %d slots has other logits", what, i, n, len))
            break;
    slot = kv_first_difference(&r->kv, &t->rig.kv, 0, len + n);
    CHECK_MSG(slot < 0, "%s: %d rows after %d slots: slot %d differs", what, n, len, slot);
}

static void chains_of(int m, int level, enum dtype kv, int most_threads)
{
    struct truth t;
    char what[96];
    float *logits = malloc(sizeof(float) * MAX_ROWS * (size_t)small_model(m)->vocab);
    if (!truth_open(&t, m, level, kv, false))
        goto done;
    for (int threads = 1; threads <= most_threads; threads++) {
        struct rig_shape s = {
            .level = level, .threads = threads, .kv = kv, .max_rows = MAX_ROWS, .context = CONTEXT
        };
        struct rig r;
        if (!rig_open(&r, model_path(m), s))
            break;
        snprintf(what, sizeof what, "%s model %d kv %s, %d threads", cpu_levels[level].name, m,
                 dtype_name(kv), threads);
        /* Every pair on one thread; on more a third of them. */
        for (int i = 0; i < N_LENGTHS; i++)
            for (int j = 0; j < N_ROW_COUNTS; j++)
                if (threads == 1 || (i + j) % 3 == threads % 3)
                    check_chain(&r, &t, lengths[i], row_counts[j], logits, what);
        rig_close(&r);
    }
done:
    truth_close(&t);
    free(logits);
}

TEST(chain_rows_equal_plain_decoding)
{
    for (int level = 1; level < N_CPU_LEVELS; level++)
        for (int m = 0; m < N_SMALL_MODELS && cpu_level_here(level); m++)
            for (int k = 0; k < 3; k++)
                /* Every KV type with one model, with the others one that changes by level. */
                if (m == 0 || k == (m + level) % 3)
                    chains_of(m, level, kv_types[k], 3);
}

TEST(chain_rows_equal_plain_decoding_ref)
{
    for (int k = 0; k < 3; k++)
        chains_of(0, 0, kv_types[k], 2);
}

/* A lossy cache does not make speculation lossy: what is stored is a function of the row alone. */
TEST(chain_rows_equal_plain_decoding_with_fp8)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level))
            chains_of(level % N_SMALL_MODELS, level, DTYPE_F8, 3);
}

/* ---- prefill ---- */

TEST(prefill_in_any_chunks_equals_plain_decoding)
{
    static const int chunks[] = { 7, 300, STREAM };
    for (int level = 1; level < N_CPU_LEVELS; level++)
        for (int m = level % 2; m < N_SMALL_MODELS && cpu_level_here(level); m += 4) {
            struct truth t;
            if (!truth_open(&t, m, level, kv_types[level % 3], true))
                return;
            float *logits = malloc(sizeof(float) * STREAM * (size_t)t.rig.c->vocab);
            for (int i = 0; i < 3; i++) {
                struct rig_shape s = { .level = level,
                                       .threads = 2,
                                       .kv = kv_types[level % 3],
                                       .max_rows = chunks[i],
                                       .context = CONTEXT };
                struct rig r;
                if (!rig_open(&r, model_path(m), s))
                    break;
                kv_poison(&r.kv, 0, CONTEXT);
                rig_feed(&r, t.ids, STREAM, chunks[i], logits);
                CHECK_MSG(same_floats(logits, t.logits, STREAM * r.c->vocab),
                          "%s model %d: prefill by %d rows gives other logits",
                          cpu_levels[level].name, m, chunks[i]);
                CHECK_EQ(kv_first_difference(&r.kv, &t.rig.kv, 0, STREAM), -1);
                rig_close(&r);
            }
            free(logits);
            truth_close(&t);
        }
}

/* ---- trees ---- */

/* The static 25-node tree: four children of the root with ever less below them. */
static const int static_tree[] = { -1, -1, -1, -1, 0, 0, 0,  1,  1,  2,  2,  3, 4,
                                   4,  4,  5,  5,  7, 7, 12, 12, 12, 13, 17, 19 };

struct tree {
    int n;
    int parent[MAX_ROWS];
    int32_t ids[MAX_ROWS];
};

static void tree_random(struct tree *t, struct rng *r, int n, int vocab, bool deep)
{
    t->n = n;
    for (int i = 0; i < n; i++) {
        /* Deep: nearly a chain, so that paths cross the border of a chunk. */
        int back = deep ? 1 + (int)(rng_next(r) % 3) : 1 + (int)(rng_next(r) % (uint64_t)(i + 1));
        t->parent[i] = i - back < -1 ? -1 : i - back;
        t->ids[i] = (int32_t)(rng_next(r) % (uint64_t)vocab);
    }
}

/* Rows on the path to a node, itself last. Returns how many. */
static int tree_path(const struct tree *t, int node, int path[MAX_ROWS])
{
    int n = row_depth(t->parent, node) + 1;
    for (int i = n - 1; i >= 0; i--, node = t->parent[node])
        path[i] = node;
    return n;
}

/* Plain decoding of the path to a node in `plain`, whose cache holds the path `held` of n_held
 * nodes behind `len` already; the last logits go to `out`. */
static bool decode_path(struct rig *plain, int len, const struct tree *t, const int *path, int n,
                        const int *held, int n_held, float *out)
{
    int same = 0;
    while (same < n - 1 && same < n_held && path[same] == held[same])
        same++;
    kvcache_truncate(&plain->kv, len + same);
    for (int i = same; i < n; i++) {
        if (!rig_run(plain, &t->ids[path[i]], 1, NULL, out))
            return false;
        kvcache_advance(&plain->kv, 1);
    }
    return true;
}

/* Nodes in the order of a walk that goes down first, so that paths share their beginnings. */
static int tree_walk(const struct tree *t, int node, int *order, int n)
{
    if (node >= 0)
        order[n++] = node;
    for (int i = node + 1; i < t->n; i++)
        if (t->parent[i] == node)
            n = tree_walk(t, i, order, n);
    return n;
}

/* The same tree grown: steps of 1, 2, 3 and so on of its rows, after those that are pending. Every
 * row has the bits that it has when all run at once. */
static void check_grown(struct rig *r, const struct truth *truth, int len, const struct tree *t,
                        const float *whole, const char *what)
{
    int vocab = r->c->vocab;
    float *logits = malloc(sizeof(float) * MAX_ROWS * (size_t)vocab);
    recall(r, truth, len);
    for (int at = 0, n = 1; at < t->n; at += n++) {
        struct pv_error err = { 0 };
        n = n < t->n - at ? n : t->n - at;
        struct step_seq seq = { .kv = &r->kv, .n = n, .parent = t->parent, .pending = at };
        struct step step = { .n = n,
                             .ids = t->ids + at,
                             .pos = (const int32_t(*)[3])r->pos,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_logits = n,
                             .logit_rows = r->rows,
                             .logits = logits };
        for (int i = 0; i < n; i++)
            r->pos[i][0] = r->pos[i][1] = r->pos[i][2] = len + row_depth(t->parent, at + i);
        if (!CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text) ||
            !CHECK_MSG(same_floats(logits, whole + (size_t)at * vocab, n * vocab),
                       "%s: rows %d to %d of a grown tree after %d slots have other logits", what,
                       at, at + n - 1, len))
            break;
    }
    free(logits);
}

/* All nodes of a tree against plain decoding of their paths; then the path to one leaf is
 * accepted and the cache must be that of a fresh run, and decode on like it. */
static void check_tree(struct rig *r, struct rig *plain, const struct truth *truth, int len,
                       const struct tree *t, const char *what)
{
    int vocab = r->c->vocab, order[MAX_ROWS], path[MAX_ROWS] = { 0 }, held[MAX_ROWS], n = 0, slot;
    float *logits = malloc(sizeof(float) * MAX_ROWS * (size_t)vocab);
    float *one = malloc(sizeof(float) * (size_t)vocab);
    recall(r, truth, len);
    recall(plain, truth, len);
    tree_walk(t, -1, order, 0);
    if (!rig_run(r, t->ids, t->n, t->parent, logits))
        goto done;
    check_grown(r, truth, len, t, logits, what);
    for (int i = 0; i < t->n; i++) {
        int n_held = n;
        memcpy(held, path, sizeof held);
        n = tree_path(t, order[i], path);
        if (!decode_path(plain, len, t, path, n, held, n_held, one) ||
            !CHECK_MSG(same_floats(logits + (size_t)order[i] * vocab, one, vocab),
                       "%s: node %d of %d after %d slots has other logits than its path", what,
                       order[i], t->n, len))
            goto done;
    }
    /* The path of the last node walked is still in `plain`. */
    kvcache_gather(&r->kv, decoder_state_work(r->st), path, n);
    CHECK_EQ(r->kv.len, len + n);
    slot = kv_first_difference(&r->kv, &plain->kv, 0, len + n);
    CHECK_MSG(slot < 0, "%s: after accepting a path of %d behind %d slot %d differs", what, n, len,
              slot);
    kv_poison(&r->kv, len + n, len + n + KV_CHUNK);
    if (rig_run(r, t->ids, 1, NULL, logits) && rig_run(plain, t->ids, 1, NULL, one))
        CHECK_MSG(same_floats(logits, one, vocab), "%s: decoding after a tree differs", what);
done:
    free(logits);
    free(one);
}

static void trees_of(int m, int level, enum dtype kv, int threads)
{
    static const int at[] = { 0, 1, 240, 256, 1010 };
    struct rig_shape s = {
        .level = level, .threads = threads, .kv = kv, .max_rows = MAX_ROWS, .context = CONTEXT
    };
    struct rng rng = { test_seed * 77 + (uint64_t)m };
    struct truth t;
    struct rig r = { 0 }, plain = { 0 };
    struct tree tree;
    char what[96];
    snprintf(what, sizeof what, "%s model %d kv %s, %d threads", cpu_levels[level].name, m,
             dtype_name(kv), threads);
    if (!truth_open(&t, m, level, kv, false) || !rig_open(&r, model_path(m), s))
        goto done;
    s.threads = 1;
    if (!rig_open(&plain, model_path(m), s))
        goto done;
    for (int i = 0; i < (int)(sizeof at / sizeof *at); i++) {
        tree_random(&tree, &rng, 25, r.c->vocab, false);
        memcpy(tree.parent, static_tree, sizeof static_tree);
        check_tree(&r, &plain, &t, at[i], &tree, what);
        tree_random(&tree, &rng, 2 + (int)(rng_next(&rng) % 30), r.c->vocab, false);
        check_tree(&r, &plain, &t, at[i], &tree, what);
        tree_random(&tree, &rng, 40, r.c->vocab, true);
        check_tree(&r, &plain, &t, at[i], &tree, what);
    }
done:
    rig_close(&plain);
    rig_close(&r);
    truth_close(&t);
}

TEST(tree_nodes_equal_plain_decoding_of_their_paths)
{
    for (int level = 1; level < N_CPU_LEVELS; level++)
        for (int m = 0; m < N_SMALL_MODELS && cpu_level_here(level); m++)
            trees_of(m, level, kv_types[(m + level) % 3], 1 + (m + level) % 3);
}

TEST(tree_nodes_equal_plain_decoding_of_their_paths_with_fp8)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level))
            trees_of((level + 1) % N_SMALL_MODELS, level, DTYPE_F8, 1 + level % 3);
}

TEST(tree_nodes_equal_plain_decoding_of_their_paths_ref)
{
    trees_of(0, 0, DTYPE_F32, 2);
}

/* A chain given as a tree is the chain. */
TEST(tree_that_is_a_chain)
{
    int level = cpu_level_best(), parent[MAX_ROWS];
    struct rig_shape s = {
        .level = level, .threads = 2, .kv = DTYPE_BF16, .max_rows = MAX_ROWS, .context = CONTEXT
    };
    struct truth t;
    struct rig r = { 0 };
    float *logits = malloc(sizeof(float) * MAX_ROWS * (size_t)small_model(3)->vocab);
    for (int i = 0; i < MAX_ROWS; i++)
        parent[i] = i - 1;
    if (truth_open(&t, 3, level, DTYPE_BF16, false) && rig_open(&r, model_path(3), s))
        for (int i = 0; i < N_LENGTHS; i++) {
            recall(&r, &t, lengths[i]);
            if (rig_run(&r, t.ids + lengths[i], 26, parent, logits))
                CHECK(same_floats(logits, truth_row(&t, lengths[i]), 26 * r.c->vocab));
        }
    rig_close(&r);
    truth_close(&t);
    free(logits);
}

/* ---- several sequences in one step ---- */

/* Rows of A (a tree of `na`) before or after `nb` rows of B in one step; A's rows must have the
 * bits they have without B, B's rows those of the truth. */
static void check_pair(struct rig *a, struct rig *b, const struct truth *t, int len_a, int len_b,
                       const struct tree *tree, int nb, bool a_first)
{
    int n = tree->n + nb, vocab = a->c->vocab, a0 = a_first ? 0 : nb, b0 = a_first ? tree->n : 0;
    int32_t ids[2 * MAX_ROWS], pos[2 * MAX_ROWS][3];
    int rows[2 * MAX_ROWS];
    float *alone = malloc(sizeof(float) * MAX_ROWS * (size_t)vocab);
    float *both = malloc(sizeof(float) * 2 * MAX_ROWS * (size_t)vocab);
    struct step_seq of_a = { .kv = &a->kv, .n = tree->n, .parent = tree->parent };
    struct step_seq of_b = { .kv = &b->kv, .n = nb };
    struct step_seq seqs[2] = { a_first ? of_a : of_b, a_first ? of_b : of_a };
    struct pv_error err = { 0 };
    recall(a, t, len_a);
    recall(b, t, len_b);
    if (!rig_run(a, tree->ids, tree->n, tree->parent, alone))
        goto done;
    recall(a, t, len_a);
    for (int i = 0; i < tree->n; i++) {
        ids[a0 + i] = tree->ids[i];
        for (int k = 0; k < 3; k++)
            pos[a0 + i][k] = len_a + row_depth(tree->parent, i);
    }
    for (int i = 0; i < nb; i++) {
        ids[b0 + i] = t->ids[len_b + i];
        for (int k = 0; k < 3; k++)
            pos[b0 + i][k] = len_b + i;
    }
    for (int i = 0; i < n; i++)
        rows[i] = i;
    struct step step = { .n = n,
                         .ids = ids,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 2,
                         .seqs = seqs,
                         .n_logits = n,
                         .logit_rows = rows,
                         .logits = both };
    if (!CHECK_MSG(!decoder_step(a->dec, a->st, &step, &err), "%s", err.text))
        goto done;
    CHECK_MSG(same_floats(both + (size_t)a0 * vocab, alone, tree->n * vocab),
              "%d rows after %d beside %d after %d: other logits", tree->n, len_a, nb, len_b);
    CHECK_MSG(same_floats(both + (size_t)b0 * vocab, truth_row(t, len_b), nb * vocab),
              "%d rows after %d beside a tree of %d after %d: other logits", nb, len_b, tree->n,
              len_a);
    CHECK_EQ(kv_first_difference(&b->kv, &t->rig.kv, 0, len_b + nb), -1);
done:
    free(alone);
    free(both);
}

TEST(sequences_in_one_step_do_not_mix)
{
    static const int cases[][3] = {
        { 1030, 3, 1 }, { 3, 1030, 8 }, { 256, 256, 30 }, { 0, 700, 2 }
    };
    for (int level = 1; level < N_CPU_LEVELS; level++)
        for (int m = 0; m < N_SMALL_MODELS && cpu_level_here(level); m += 2) {
            struct rig_shape s = { .level = level,
                                   .threads = 1 + level % 3,
                                   .kv = kv_types[(m + level) % 3],
                                   .max_rows = 2 * MAX_ROWS,
                                   .context = CONTEXT };
            struct rng rng = { test_seed + 5 };
            struct truth t;
            struct rig a = { 0 }, b = { 0 };
            struct tree tree;
            if (truth_open(&t, m, level, s.kv, false) && rig_open(&a, model_path(m), s) &&
                rig_open(&b, model_path(m), s))
                for (int i = 0; i < 4; i++)
                    for (int first = 0; first < 2; first++) {
                        tree_random(&tree, &rng, 9, a.c->vocab, i % 2);
                        check_pair(&a, &b, &t, cases[i][0], cases[i][1], &tree, cases[i][2], first);
                    }
            rig_close(&a);
            rig_close(&b);
            truth_close(&t);
        }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
