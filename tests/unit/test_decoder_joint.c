/* Steps that run together: prompt chunks, single tokens, chains and trees of several sequences in
 * one pass, on pages of one pool. Each has the bits that it has alone: logits, choices, states,
 * taps, and keys and values. */
#include "rig.h"
#include "tiny_model.h"

#include "base/rng.h"

enum {
    LAYERS = 3,
    HIDDEN = 64,
    VOCAB = 96,
    SEQS = 6,
    MAX_ROWS = 160,
    CONTEXT = 768,
    POOL_PAGES = SEQS * CONTEXT / KV_CHUNK + 2,
    PART_ROWS = 20,
    TOP = 4
};

static const struct tiny_experts experts = { .n = 7, .used = 3, .ffn = 32, .dense = 1 };

static const struct tiny_model models[] = {
    { "qwen2", HIDDEN, LAYERS, 4, 2, 16, 160, VOCAB, DTYPE_Q8_0, true, 1, 0, 0, false, NULL, NULL,
      NULL },
    { "qwen3vl", HIDDEN, LAYERS, 4, 2, 32, 96, VOCAB, DTYPE_F16, false, 2, 0, 0, false, NULL, NULL,
      NULL },
    { "qwen3vlmoe", HIDDEN, LAYERS, 4, 2, 32, 96, VOCAB, DTYPE_Q8_0, false, 3, 0, 0, false, NULL,
      NULL, &experts },
    { "qwen3vl", HIDDEN, LAYERS, 4, 2, 32, 96, VOCAB, DTYPE_BF16, false, 4, 0, 0, false, NULL, NULL,
      NULL, 2 },
};

enum { N_MODELS = sizeof models / sizeof *models };

/* One step, and room for all that it can bring. */
struct part {
    struct step step;
    struct step_seq seq;
    int32_t ids[PART_ROWS], pos[PART_ROWS][3];
    int parent[PART_ROWS], rows[PART_ROWS], tapped[PART_ROWS], keys[8];
    float embeds[PART_ROWS * 3 * HIDDEN]; /* wide enough for the last model */
    struct hidden_tap hidden[2];
    struct column_tap columns;
    struct step_choice choice;
    struct {
        float logits[PART_ROWS * VOCAB], states[PART_ROWS * HIDDEN];
        float hidden[2][PART_ROWS * HIDDEN], sums[8], mass[PART_ROWS];
        int32_t argmax[PART_ROWS];
        struct top_entry top[PART_ROWS * TOP];
    } got;
};

static int below(struct rng *r, int n)
{
    return (int)(rng_next(r) % (uint64_t)n);
}

/* Rows at random: some of them embeddings, in a chain or a tree, with anything asked for. */
static void draw_rows(struct part *p, struct rng *r, int len)
{
    int n = 1 + (below(r, 3) ? below(r, 4) : below(r, PART_ROWS));
    bool tree = n > 1 && below(r, 3) == 0, media = !tree && below(r, 4) == 0;
    for (int i = 0; i < n; i++) {
        p->ids[i] = media && i % 3 ? -1 : below(r, VOCAB);
        p->parent[i] = tree && i > 0 ? below(r, i) : i - 1;
        for (int a = 0; a < 3; a++)
            p->pos[i][a] = len + row_depth(p->parent, i);
        p->rows[i] = i;
    }
    for (int i = 0; i < PART_ROWS * 3 * HIDDEN; i++)
        p->embeds[i] = rng_normal(r);
    p->seq = (struct step_seq){ .n = n, .parent = tree ? p->parent : NULL };
    p->step = (struct step){ .n = n,
                             .ids = p->ids,
                             .embeds = p->embeds,
                             .pos = (const int32_t(*)[3])p->pos,
                             .n_seqs = 1,
                             .seqs = &p->seq,
                             .bulk = !tree && below(r, 2) };
}

static void draw_wishes(struct part *p, struct rng *r, int len)
{
    int n = p->step.n;
    p->step.n_logits = below(r, n + 1);
    p->step.logit_rows = p->rows + below(r, n - p->step.n_logits + 1);
    p->step.logits = below(r, 2) ? p->got.logits : NULL;
    p->step.argmax = below(r, 2) ? p->got.argmax : NULL;
    p->step.states = below(r, 2) ? p->got.states : NULL;
    p->choice = (struct step_choice){ .k = 1 + below(r, TOP),
                                      .t = 0.5f + (float)below(r, 3),
                                      .top = p->got.top,
                                      .mass = p->got.mass };
    p->step.choice = below(r, 3) ? NULL : &p->choice;
    p->hidden[0] = (struct hidden_tap){
        .layer = below(r, LAYERS + 1) - 1, .n_rows = n, .rows = p->rows, .out = p->got.hidden[0]
    };
    p->hidden[1] = (struct hidden_tap){
        .post_norm = true, .n_rows = 1, .rows = p->rows + n - 1, .out = p->got.hidden[1]
    };
    p->step.n_hidden = below(r, 4) ? 0 : 2;
    p->step.hidden = p->hidden;
    for (int i = 0; i < 8; i++)
        p->keys[i] = i * (len + 1) / 8;
    p->columns = (struct column_tap){ .layer1 = LAYERS,
                                      .n_rows = n,
                                      .rows = p->rows,
                                      .n_keys = len < 8 ? 1 : 8,
                                      .keys = p->keys,
                                      .over_keys = below(r, 2),
                                      .sums = p->got.sums };
    p->step.n_columns = p->seq.parent || below(r, 4) ? 0 : 1;
    p->step.columns = &p->columns;
}

struct scene {
    struct rig rig;
    struct kvpool *pool;
    struct kvcache joint[SEQS], alone[SEQS];
};

static bool scene_open(struct scene *s, int model, int level, enum dtype kv, struct rng *r)
{
    char path[256];
    struct rig_shape shape = { level, 1 + below(r, 2), kv, MAX_ROWS, CONTEXT, false };
    tiny_model_write(&models[model], models[model].arch, path);
    if (!rig_open(&s->rig, path, shape) ||
        !CHECK(!kvpool_open(&s->pool, s->rig.dev, s->rig.c, kv, POOL_PAGES, NULL)))
        return false;
    for (int i = 0; i < SEQS; i++)
        if (!CHECK(!kvcache_attach(&s->joint[i], s->pool, CONTEXT, NULL) &&
                   !kvcache_open(&s->alone[i], s->rig.dev, s->rig.c, kv, CONTEXT, NULL)))
            return false;
    return true;
}

static void scene_close(struct scene *s)
{
    for (int i = 0; i < SEQS; i++) {
        kvcache_close(&s->joint[i]);
        kvcache_close(&s->alone[i]);
    }
    kvpool_close(&s->pool);
    rig_close(&s->rig);
}

/* Commit a prefix of a chain, or a path of a tree. */
static void commit(struct scene *s, int i, const struct part *p, int n)
{
    struct kvcache *both[2] = { &s->joint[i], &s->alone[i] };
    int path[PART_ROWS], len = 0;
    for (int row = n - 1; row >= 0; row = p->parent[row])
        path[len++] = row;
    for (int k = 0; k < len / 2; k++) {
        int kept = path[k];
        path[k] = path[len - 1 - k];
        path[len - 1 - k] = kept;
    }
    for (int k = 0; k < 2; k++)
        kvcache_gather(both[k], decoder_state_work(s->rig.st), path, len);
}

/* One iteration: some sequences together, then each of them alone. */
static bool run_both(struct scene *s, struct rng *r)
{
    static struct part part[SEQS], one;
    const struct step *steps[SEQS];
    int who[SEQS], n = 0;
    struct pv_error err = { 0 };
    memset(part, 0, sizeof part);
    for (int i = 0; i < SEQS; i++) {
        struct part *p = &part[n];
        if (below(r, 3) == 0)
            continue;
        if (s->joint[i].len > CONTEXT - PART_ROWS)
            for (int k = 0; k < 2; k++)
                kvcache_truncate(k ? &s->joint[i] : &s->alone[i], below(r, 2) ? 250 : 0);
        draw_rows(p, r, s->joint[i].len);
        if (n > 0 && decoder_ways_differ(s->rig.dec)) { /* all are rows of prompts or none is */
            if (part[0].step.bulk && p->seq.parent)
                continue;
            p->step.bulk = part[0].step.bulk;
        }
        draw_wishes(p, r, s->joint[i].len);
        p->seq.kv = &s->joint[i];
        if (!CHECK(kvcache_reserve(&s->joint[i], decoder_state_work(s->rig.st), p->step.n)))
            return false;
        steps[n] = &p->step;
        who[n++] = i;
    }
    if (n == 0)
        return true;
    if (!CHECK_MSG(!decoder_steps(s->rig.dec, s->rig.st, steps, n, &err), "%s", err.text))
        return false;
    for (int k = 0; k < n; k++) {
        struct kvcache *alone = &s->alone[who[k]], *joint = &s->joint[who[k]];
        int rows = part[k].step.n, len = joint->len;
        one = part[k];
        memset(&one.got, 0, sizeof one.got);
        struct part want = one;
        want.seq.kv = alone;
        want.step.seqs = &want.seq;
        want.step.pos = (const int32_t(*)[3])want.pos;
        /* Its outputs go where those of the joint step went in the other copy. */
        want.step.logits = part[k].step.logits ? want.got.logits : NULL;
        want.step.argmax = part[k].step.argmax ? want.got.argmax : NULL;
        want.step.states = part[k].step.states ? want.got.states : NULL;
        want.choice.top = want.got.top;
        want.choice.mass = want.got.mass;
        want.step.choice = part[k].step.choice ? &want.choice : NULL;
        want.hidden[0].out = want.got.hidden[0];
        want.hidden[1].out = want.got.hidden[1];
        want.step.hidden = want.hidden;
        want.columns.sums = want.got.sums;
        want.step.columns = &want.columns;
        if (!CHECK_MSG(!decoder_step(s->rig.dec, s->rig.st, &want.step, &err), "%s", err.text))
            return false;
        if (!CHECK_MSG(!memcmp(&want.got, &part[k].got, sizeof want.got),
                       "part %d of %d, %d rows after %d", k, n, rows, len) ||
            !CHECK_MSG(kv_range(joint, alone, 0, len + rows, false), "KV of part %d of %d", k, n))
            return false;
        commit(s, who[k], &part[k], 1 + below(r, rows));
    }
    return true;
}

TEST(steps_together_have_the_bits_of_each_alone)
{
    static const enum dtype types[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int m = 0; m < N_MODELS && cpu_level_here(level); m++) {
            struct rng r = { test_seed + (uint64_t)(7 * level + m) };
            struct scene s = { 0 };
            bool good = scene_open(&s, m, level, types[(level + m) % 3], &r);
            for (int i = 0; i < (test_brief() ? 30 : 120) && good; i++)
                good = run_both(&s, &r);
            CHECK_MSG(good, "%s, model %d", cpu_levels[level].name, m);
            scene_close(&s);
        }
}

TEST(what_cannot_run_together_is_refused)
{
    struct rng r = { 5 };
    struct scene s = { 0 };
    static struct part a, b;
    const struct step *both[2] = { &a.step, &b.step };
    struct pv_error err = { 0 };
    if (!scene_open(&s, 0, cpu_level_best(), DTYPE_F16, &r))
        return;
    draw_rows(&a, &r, 0);
    draw_rows(&b, &r, 0);
    a.seq.kv = b.seq.kv = &s.alone[0];
    CHECK_EQ(decoder_steps(s.rig.dec, s.rig.st, both, 2, &err), PV_E_ARG);
    CHECK(strstr(err.text, "share a KV cache") != NULL);
    b.seq.kv = &s.alone[1];
    b.step.layer0 = 1;
    b.step.layer1 = 2;
    b.step.residual = b.embeds;
    CHECK_EQ(decoder_steps(s.rig.dec, s.rig.st, both, 2, NULL), PV_E_ARG);
    CHECK_EQ(decoder_steps(s.rig.dec, s.rig.st, both, 0, NULL), PV_E_LIMIT);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
