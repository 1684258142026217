/* The sparse drafter: with all entries kept it is the target; with few, it is the target on a cache
 * put together here by hand; whatever of its proposals is accepted. */
#include "base/rng.h"
#include "drafts.h"
#include "lm/decoder.h"
#include "rig.h"
#include "tiny_model.h"

static const struct sampling greedy = { .top_p = 1 };
static bool at_once; /* chains in one step, as on a GPU */

enum { PROMPT = 290, TEXT_FROM = 270, CONTEXT = 512, MAX_ROWS = 64, WINDOW = 6, ANSWER = 60 };
enum { POOL_PAGES = 3 * CONTEXT / KV_CHUNK };

static const struct tiny_model model = { .arch = "qwen2",
                                         .hidden = 64,
                                         .n_layers = 3,
                                         .n_heads = 4,
                                         .n_kv = 2,
                                         .head_dim = 16,
                                         .ffn = 128,
                                         .vocab = 96,
                                         .type = DTYPE_F32,
                                         .seed = 11 };

/* A target with a prompt of which rows [4, TEXT_FROM) count as video, and what it says. */
struct scene {
    struct rig rig;
    struct device_ops ops;
    struct kvpool *pool;
    struct lone_stepper steps;
    int32_t ids[PROMPT + ANSWER]; /* prompt, then answer */
    int n_answer;
    int score_rows[PROMPT], n_scores;
    float scores[3 * 2 * PROMPT]; /* [layers, KV heads, n_scores] */
    struct drafter *d;
    struct tree tree;
    float logits[96], q[WINDOW * 96];
    struct candidate candidates[96];
};

static const char *model_path(void)
{
    static char path[256];
    return path[0] ? path : tiny_model_write(&model, "sparse", path);
}

/* The last rows of the prompt, with the attention of each layer tapped in the same step. */
static bool feed_text(struct scene *s)
{
    struct column_tap taps[3];
    struct step_seq seq = { .kv = &s->rig.kv, .n = PROMPT - TEXT_FROM };
    struct step step = { .n = seq.n,
                         .ids = s->ids + TEXT_FROM,
                         .pos = (const int32_t(*)[3])s->rig.pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_columns = 3,
                         .columns = taps };
    for (int i = 0; i < seq.n; i++)
        for (int a = 0; a < 3; a++)
            s->rig.pos[i][a] = TEXT_FROM + i;
    for (int l = 0; l < 3; l++)
        taps[l] = (struct column_tap){ .layer0 = l,
                                       .layer1 = l + 1,
                                       .n_rows = seq.n,
                                       .rows = s->rig.rows,
                                       .n_keys = s->n_scores,
                                       .keys = s->score_rows,
                                       .by_group = true,
                                       .sums = s->scores + 2 * l * s->n_scores };
    if (!CHECK(!decoder_step(s->rig.dec, s->rig.st, &step, NULL)))
        return false;
    kvcache_advance(&s->rig.kv, seq.n);
    return true;
}

static struct draft_prompt prompt_of(struct scene *s)
{
    return (struct draft_prompt){ .n = PROMPT,
                                  .ids = s->ids,
                                  .next = PROMPT,
                                  .target = &s->rig.kv,
                                  .scores = s->scores,
                                  .n_scores = s->n_scores,
                                  .n_groups = 2,
                                  .score_rows = s->score_rows };
}

static bool scene_open(struct scene *s, enum dtype kv, int keep)
{
    struct rig_shape shape = {
        .level = cpu_level_best(), .threads = 2, .kv = kv, .max_rows = MAX_ROWS, .context = CONTEXT
    };
    struct rng r = { test_seed + 5 };
    struct draft_prompt p;
    memset(s, 0, sizeof *s);
    for (int i = 0; i < PROMPT; i++)
        s->ids[i] = (int32_t)(rng_next(&r) % 96);
    for (int i = 4; i < TEXT_FROM; i++)
        s->score_rows[s->n_scores++] = i;
    if (!rig_open(&s->rig, model_path(), shape) ||
        !rig_feed(&s->rig, s->ids, TEXT_FROM, MAX_ROWS, NULL) || !feed_text(s))
        return false;
    if (at_once)
        rig_chains(&s->rig, &s->ops);
    if (!CHECK(!kvpool_open(&s->pool, s->rig.dev, s->rig.c, kv, POOL_PAGES, NULL)))
        return false;
    lone_stepper_init(&s->steps, s->rig.dec, s->rig.st, s->pool);
    if (!CHECK(!drafter_sparse_open(&s->d, &s->steps.base, CONTEXT, keep, NULL)))
        return false;
    p = prompt_of(s);
    s->n_answer = 1;
    s->ids[PROMPT] = 17; /* the first root */
    return CHECK(!s->d->begin(s->d, &p, NULL));
}

static void scene_close(struct scene *s)
{
    if (s->d)
        s->d->close(s->d);
    kvpool_close(&s->pool);
    rig_close(&s->rig);
}

static struct draft_request request_of(struct scene *s, const struct sampling *how,
                                       const struct shape *shape)
{
    tree_begin(&s->tree, s->ids[PROMPT + s->n_answer - 1]);
    return (struct draft_request){ .answer = s->ids + PROMPT,
                                   .n_answer = s->n_answer,
                                   .position = (uint64_t)(PROMPT + s->n_answer),
                                   .how = how,
                                   .shape = shape,
                                   .tree = &s->tree,
                                   .most = 32,
                                   .target = &s->rig.kv };
}

/* The target keeps the root and the first `accepted` proposals, and goes on with `next`. */
static bool verdict(struct scene *s, int accepted, int32_t next)
{
    int from = PROMPT + s->n_answer - 1;
    for (int i = 0; i < accepted; i++)
        s->ids[from + 1 + i] = s->tree.id[1 + i];
    s->ids[from + 1 + accepted] = next;
    s->n_answer += accepted + 1;
    return rig_feed(&s->rig, s->ids + from, accepted + 1, MAX_ROWS, NULL);
}

/* What plain decoding on `kv` says after the root, WINDOW tokens; the cache is left as it was. */
static void plain_tokens(struct scene *s, struct kvcache *kv, const struct sampling *how,
                         int32_t *out)
{
    int32_t id = s->ids[PROMPT + s->n_answer - 1];
    int len = kv->len, row = 0;
    for (int i = 0; i < WINDOW; i++) {
        int32_t at = PROMPT + s->n_answer - 1 + i, pos[1][3] = { { at, at, at } };
        struct step_seq seq = { .kv = kv, .n = 1 };
        struct step step = { .n = 1,
                             .ids = &id,
                             .pos = (const int32_t(*)[3])pos,
                             .n_seqs = 1,
                             .seqs = &seq,
                             .n_logits = 1,
                             .logit_rows = &row,
                             .logits = s->logits };
        CHECK(!decoder_step(s->rig.dec, s->rig.st, &step, NULL));
        kvcache_advance(kv, 1);
        id = out[i] =
            sample_token(s->logits, 96, how, (uint64_t)(PROMPT + s->n_answer + i), s->candidates);
    }
    kvcache_truncate(kv, len);
}

/* Entries by falling score, lower row first, looked at one by one. */
static bool is_kept(const struct scene *s, int layer, int head, int row, int k)
{
    const float *score = s->scores + (2 * layer + head) * s->n_scores;
    int i = row - 4, before = 0;
    if (row < 4 || row >= TEXT_FROM)
        return true;
    for (int j = 0; j < s->n_scores; j++)
        before += score[j] > score[i] || (score[j] == score[i] && j < i);
    return before < k;
}

/* The cache that the drafter should have: kept entries, then the verified answer, copied here
 * element by element. */
static void sparse_by_hand(struct scene *s, struct kvcache *kv, int k)
{
    int n = 0;
    for (int l = 0; l < 3; l++) {
        const struct kv_layer *x = &kv->layer[l], *y = &s->rig.kv.layer[l];
        size_t size = dtype_row_size(x->dtype, 1);
        for (int h = 0; h < x->n_kv; h++) {
            n = 0;
            for (int row = 0; row < PROMPT + s->n_answer - 1; row++) {
                if (!is_kept(s, l, h, row, k))
                    continue;
                for (int i = 0; i < x->d; i++) {
                    memcpy(kv_key_at(x, h, n) + (size_t)i * size,
                           kv_key_at(y, h, row) + (size_t)i * size, size);
                    memcpy(kv_value_at(x, h, n, i), kv_value_at(y, h, row, i), size);
                }
                n++;
            }
        }
    }
    kv->len = n;
}

/* Several rounds, with all, some or none of a proposal accepted. */
static void check_rounds(enum dtype t, int keep, const struct sampling *how)
{
    static struct scene s;
    struct rng r = { test_seed };
    struct kvcache kv = { 0 };
    struct shape shape;
    int text = PROMPT - (TEXT_FROM - 4);
    shape_chain(&shape, WINDOW, NULL);
    if (!scene_open(&s, t, keep) ||
        !CHECK(!kvcache_open(&kv, s.rig.dev, s.rig.c, t, CONTEXT, NULL)))
        return;
    for (int round = 0; round < 7; round++) {
        struct draft_request q = request_of(&s, how, &shape);
        int32_t want[WINDOW];
        int before = s.rig.kv.len, accepted = round % (WINDOW + 1);
        CHECK(!s.d->propose(s.d, &q, NULL));
        CHECK_EQ(s.rig.kv.len, before);
        if (keep >= PROMPT) {
            plain_tokens(&s, &s.rig.kv, how, want);
        } else {
            sparse_by_hand(&s, &kv, keep > text ? keep - text : 0);
            CHECK_EQ(kv.len, (keep > text ? keep : text) + s.n_answer - 1);
            plain_tokens(&s, &kv, how, want);
        }
        CHECK_MSG(is_chain(&s.tree, want, WINDOW), "keep %d, round %d", keep, round);
        if (!verdict(&s, accepted, (int32_t)(rng_next(&r) % 96)))
            break;
    }
    kvcache_close(&kv);
    scene_close(&s);
}

TEST(sparse_with_all_entries_is_the_target)
{
    struct sampling warm = { .temperature = 0.8f, .top_p = 0.95f, .seed = 4 };
    check_rounds(DTYPE_F32, PROMPT, &greedy);
    check_rounds(DTYPE_F16, 4096, &greedy);
    check_rounds(DTYPE_BF16, PROMPT, &warm);
}

TEST(sparse_reads_the_best_entries_of_each_layer)
{
    struct sampling warm = { .temperature = 0.8f, .top_p = 1, .seed = 4 };
    check_rounds(DTYPE_F32, 100, &greedy);
    check_rounds(DTYPE_F16, 25, &greedy);
    check_rounds(DTYPE_F32, PROMPT - 1, &warm);
    check_rounds(DTYPE_F32, 5, &greedy); /* all of the text, and no video */
}

TEST(sparse_runs_chains_in_one_step)
{
    struct sampling warm = { .temperature = 0.8f, .top_p = 1, .seed = 4 };
    struct sampling filtered = { .temperature = 0.8f, .top_p = 0.9f, .seed = 4 };
    at_once = true;
    check_rounds(DTYPE_F32, PROMPT, &greedy);
    check_rounds(DTYPE_F16, 100, &warm);
    check_rounds(DTYPE_F32, 100, &filtered);
    at_once = false;
}

/* Equal scores: the first rows; no numbers: the last choice. */
TEST(sparse_orders_equal_scores)
{
    static struct scene s;
    struct kvcache kv = { 0 };
    struct shape shape;
    int text = PROMPT - (TEXT_FROM - 4);
    shape_chain(&shape, WINDOW, NULL);
    if (!scene_open(&s, DTYPE_F32, text + 40) ||
        !CHECK(!kvcache_open(&kv, s.rig.dev, s.rig.c, DTYPE_F32, CONTEXT, NULL)))
        return;
    for (int round = 0; round < 3; round++) {
        struct draft_prompt p = prompt_of(&s);
        struct draft_request q = request_of(&s, &greedy, &shape);
        int32_t want[WINDOW];
        for (int i = 0; i < 6 * s.n_scores; i++)
            s.scores[i] = round == 0 ? 0.5f : i % 7 < 3 ? -INFINITY : (float)(i % 5);
        sparse_by_hand(&s, &kv, 40);
        for (int i = 0; i < 6 * s.n_scores; i++)
            if (round == 2 && s.scores[i] == -INFINITY)
                s.scores[i] = NAN;
        CHECK(!s.d->begin(s.d, &p, NULL));
        CHECK(!s.d->propose(s.d, &q, NULL));
        plain_tokens(&s, &kv, &greedy, want);
        CHECK_MSG(is_chain(&s.tree, want, WINDOW), "round %d", round);
    }
    kvcache_close(&kv);
    scene_close(&s);
}

/* Shapes that are no chains, little use for tokens, distributions of drawn tokens. */
TEST(sparse_proposes_chains)
{
    static struct scene s;
    struct sampling warm = { .temperature = 1, .top_p = 0.9f, .seed = 9 };
    if (!scene_open(&s, DTYPE_F32, PROMPT))
        return;
    for (int i = 0; i < N_SHAPES - 1; i++) {
        struct shape shape;
        make_shape(&shape, i);
        struct draft_request q = request_of(&s, &greedy, &shape);
        CHECK(!s.d->propose(s.d, &q, NULL));
        CHECK(well_formed(&s.tree, &shape, 32, 96));
        CHECK_EQ(s.tree.n, shape_depth(&shape) + 1);
        q = request_of(&s, &greedy, &shape);
        q.most = 2;
        CHECK(!s.d->propose(s.d, &q, NULL));
        CHECK_EQ(s.tree.n, 3);
        q = request_of(&s, &greedy, &shape);
        q.most = 0;
        CHECK(!s.d->propose(s.d, &q, NULL));
        CHECK_EQ(s.tree.n, 1);
    }
    struct shape shape;
    shape_chain(&shape, WINDOW, NULL);
    struct draft_request q = request_of(&s, &warm, &shape);
    q.q = s.q;
    CHECK(!s.d->propose(s.d, &q, NULL));
    for (int i = 0; i < WINDOW && CHECK_EQ(s.tree.n, WINDOW + 1); i++) {
        double sum = 0;
        for (int k = 0; k < 96; k++)
            sum += s.q[i * 96 + k];
        CHECK(fabs(sum - 1) < 1e-5 && s.q[i * 96 + s.tree.id[i + 1]] > 0);
    }
    scene_close(&s);
}

/* Drawn tokens are distributed as q says: the first one, over many seeds. */
TEST(sparse_draws_from_its_distribution)
{
    enum { DRAWS = 600 };
    static struct scene s;
    struct sampling warm = { .temperature = 1, .top_k = 5, .top_p = 1 };
    struct shape shape;
    int count[96] = { 0 };
    shape_chain(&shape, 1, NULL);
    if (!scene_open(&s, DTYPE_F32, 60))
        return;
    for (int i = 0; i < DRAWS; i++) {
        warm.seed = (uint64_t)i;
        struct draft_request q = request_of(&s, &warm, &shape);
        q.q = s.q;
        if (!CHECK(!s.d->propose(s.d, &q, NULL) && s.tree.n == 2))
            break;
        count[s.tree.id[1]]++;
    }
    for (int k = 0; k < 96; k++)
        CHECK_MSG(fabs((double)count[k] / DRAWS - s.q[k]) < 0.1, "%d: %d of %d against %.3f", k,
                  count[k], DRAWS, (double)s.q[k]);
    scene_close(&s);
}

TEST(sparse_stops_where_its_cache_ends)
{
    static struct scene s;
    struct drafter *d = NULL;
    struct pv_error err = { 0 };
    struct shape shape;
    shape_chain(&shape, WINDOW, NULL);
    if (!scene_open(&s, DTYPE_F32, PROMPT))
        return;
    struct draft_prompt p = prompt_of(&s);
    CHECK(!drafter_sparse_open(&d, &s.steps.base, PROMPT - 1, PROMPT, NULL));
    CHECK_EQ(d->begin(d, &p, &err), PV_E_LIMIT);
    CHECK_STR(err.text, "290 entries of the prompt do not fit the drafter's 289");
    d->close(d);
    CHECK(!drafter_sparse_open(&d, &s.steps.base, PROMPT + 4, PROMPT, NULL));
    CHECK(!d->begin(d, &p, NULL));
    for (int i = 0; i < 6; i++) {
        struct draft_request q = request_of(&s, &greedy, &shape);
        CHECK(!d->propose(d, &q, NULL));
        CHECK_EQ(s.tree.n, i < 4 ? 5 - i : 1);
        verdict(&s, 0, 3);
    }
    d->close(d);
    p.scores = NULL;
    CHECK_EQ(s.d->begin(s.d, &p, NULL), PV_E_ARG);
    scene_close(&s);
}

/* Every allocation of opening and beginning failed in turn; a round makes none. */
TEST(sparse_survives_lack_of_memory)
{
    static struct scene s;
    struct shape shape;
    enum pv_status st = PV_E_NOMEM;
    shape_chain(&shape, WINDOW, NULL);
    if (!scene_open(&s, DTYPE_F32, 100))
        return;
    struct draft_prompt p = prompt_of(&s);
    for (uint64_t k = 1; st && CHECK(k < 100); k++) {
        struct drafter *d = NULL;
        struct pv_error err = { 0 };
        struct draft_request q = request_of(&s, &greedy, &shape);
        mem_fail_at(k);
        st = drafter_sparse_open(&d, &s.steps.base, CONTEXT, 100, &err);
        CHECK((st != PV_OK) == (d == NULL));
        if (!st)
            st = d->begin(d, &p, &err);
        mem_fail_at(0);
        CHECK(!st || (st == PV_E_NOMEM && err.text[0]));
        uint64_t before = mem_count();
        CHECK(st || !d->propose(d, &q, NULL));
        CHECK_EQ(mem_count(), before);
        if (d)
            d->close(d);
    }
    scene_close(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
