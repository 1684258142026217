/* Draft heads against a plain implementation in PyTorch (tools/golden/head_golden.py): outputs and
 * logits of every row, with and without the rows of a video, and the trees they grow with their
 * scores. Three heads: as EAGLE's, as MSD's, and one with all that is optional. */
#include "family/families.h"
#include "spec/drafter_head.h"
#include "spec/grow.h"

#include "drafts.h"
#include "golden/golden.h"
#include "larger.h"
#include "lm/states.h"
#include "rig.h"
#include "scratch.h"

#include <math.h>

enum { N_PROMPT = 40, N_ANSWER = 4, N_ALL = N_PROMPT + N_ANSWER, MAX_ROWS = 64, CONTEXT = 256 };

static const double tolerance = 1e-4; /* of the largest magnitude of a row */
static const double score_tolerance = 1e-3;

static const struct {
    const char *name, *target;
} heads[] = { { "head_eagle", "qwen2" },
              { "head_msd", "qwen2" },
              { "head_layer", "qwen2_5_vl" },
              { "head_eagle3", "qwen2_5_vl" } };

enum { N_HEADS = sizeof heads / sizeof *heads };

static const struct sampling greedy = { .top_p = 1 };

/* A target that has read the prompt and the answer, its states, and a head beside it. */
struct scene {
    struct golden *g;
    struct rig target;
    struct head_file *hf;
    struct decoder *dec;
    struct decoder_state *st;
    struct kvpool *pool;
    struct lone_stepper steps;
    struct states states;
    int32_t ids[N_ALL], pos[N_ALL][3];
    const float *video; /* [rows, hidden] */
    int first;          /* row of the video */
};

static const struct golden_entry *entry(const struct scene *s, const char *name)
{
    const struct golden_entry *e = golden_find(s->g, name);
    if (!e) {
        fprintf(stderr, "head.vec has no entry %s\n", name);
        exit(1);
    }
    return e;
}

/* Everything in F32, since some kernels round rows to what the weights are stored in. */
static const char *f32_target(int h)
{
    static char path[N_HEADS][96];
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    char dir[64];
    if (path[h][0])
        return path[h];
    snprintf(dir, sizeof dir, "tests/golden/%s", heads[h].target);
    snprintf(path[h], sizeof path[h], "%s/target%d.gguf", scratch_dir(), h);
    if (model_file_open(&mf, dir, NULL, 0, families, &err) == PV_OK)
        model_file_write_gguf(mf, path[h], DTYPE_F32, false, NULL, &err);
    CHECK_MSG(!err.code, "%s", err.text);
    model_file_close(&mf);
    return path[h];
}

static const char *head_dir(int h)
{
    static char path[96];
    snprintf(path, sizeof path, "tests/golden/%s", heads[h].name);
    return path;
}

static const char *f32_head(int h)
{
    static char path[N_HEADS][96];
    struct head_file *hf = NULL;
    struct pv_error err = { 0 };
    if (path[h][0])
        return path[h];
    snprintf(path[h], sizeof path[h], "%s/%s.gguf", scratch_dir(), heads[h].name);
    if (head_file_open(&hf, head_dir(h), 0, &err) == PV_OK)
        head_file_write_gguf(hf, path[h], DTYPE_F32, NULL, &err);
    CHECK_MSG(!err.code, "%s", err.text);
    head_file_close(&hf);
    return path[h];
}

static double row_error(const float *got, const float *want, int n)
{
    double most = 0, size = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        most = d > most || d != d ? d : most;
        size = larger(size, fabs((double)want[i]));
    }
    return most / size;
}

static void close_scene(struct scene *s)
{
    decoder_state_close(&s->st);
    kvpool_close(&s->pool);
    decoder_close(&s->dec);
    head_file_close(&s->hf);
    states_close(&s->states);
    rig_close(&s->target);
    golden_close(&s->g);
}

/* The target runs all rows, and what a head may want of them is kept. */
static bool read_prompt(struct scene *s)
{
    size_t hidden = (size_t)s->target.c->hidden;
    float *embeds = calloc(MAX_ROWS, sizeof(float) * hidden);
    struct hidden_tap tap[STATES_MAX_TAPS];
    struct step_seq seq = { .kv = &s->target.kv, .n = N_ALL };
    struct step step = { .n = N_ALL,
                         .ids = s->ids,
                         .embeds = embeds,
                         .pos = (const int32_t(*)[3])s->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .hidden = tap };
    struct pv_error err = { 0 };
    struct head_features features =
        head_features_of(head_file_config(s->hf), s->target.c->n_layers);
    enum pv_status st = states_open(&s->states, CONTEXT, (int)hidden, features, MAX_ROWS, &err);
    states_want(&s->states, drafter_head_wants_all(head_file_config(s->hf), true),
                drafter_head_wants_layer(head_file_config(s->hf), true));
    if (!st)
        st = states_reserve(&s->states, s->ids, N_ALL, 0, &err);
    for (int i = 0; i < N_ALL; i++)
        if (s->ids[i] < 0)
            memcpy(embeds + (size_t)i * hidden, s->video + (size_t)(i - s->first) * hidden,
                   sizeof(float) * hidden);
    step.n_hidden = states_tap(&s->states, s->ids, N_ALL, 0, N_ALL, tap);
    if (!st)
        st = decoder_step(s->target.dec, s->target.st, &step, &err);
    states_commit(&s->states, s->ids, N_ALL, 0, N_ALL);
    kvcache_advance(&s->target.kv, N_ALL);
    free(embeds);
    return CHECK_MSG(st == PV_OK, "%s", err.text) && CHECK_EQ(s->states.n, N_ALL);
}

static bool open_scene(struct scene *s, int h, const char *path, int level)
{
    struct rig_shape shape = {
        .level = level, .threads = 2, .kv = DTYPE_F32, .max_rows = MAX_ROWS, .context = CONTEXT
    };
    char name[96];
    struct config c;
    struct pv_error err = { 0 };
    enum pv_status st;
    *s = (struct scene){ 0 };
    snprintf(name, sizeof name, "tests/golden/%s/head.vec", heads[h].name);
    s->g = golden_open(name);
    if (!CHECK(s->g) || !rig_open(&s->target, f32_target(h), shape))
        return false;
    memcpy(s->ids, entry(s, "prompt")->i, sizeof(int32_t) * N_PROMPT);
    memcpy(s->ids + N_PROMPT, entry(s, "answer")->i, sizeof(int32_t) * N_ANSWER);
    for (int i = 0; i < N_ALL; i++)
        for (int a = 0; a < 3; a++)
            s->pos[i][a] = golden_row_i(entry(s, "positions"), a)[i];
    s->video = entry(s, "video")->f;
    while (s->ids[s->first] >= 0)
        s->first++;
    st = head_file_open(&s->hf, path, 0, &err);
    if (!st)
        st = head_file_fit(s->hf, s->target.c, "target", &c, &err);
    if (!st)
        st = decoder_open_head(&s->dec, s->hf, &c, s->target.dec, &err);
    if (!st)
        st =
            kvpool_open(&s->pool, s->target.dev, &c, DTYPE_F32, 2 * (CONTEXT / KV_CHUNK + 1), &err);
    if (!st)
        st = decoder_state_open(&s->st, s->dec, MAX_ROWS, GROW_LEVEL, CONTEXT, DTYPE_F32, &err);
    if (!st)
        lone_stepper_init(&s->steps, s->dec, s->st, s->pool);
    return CHECK_MSG(st == PV_OK, "%s", err.text) && read_prompt(s);
}

/* ---- rows ---- */

static bool is_eagle3(const struct scene *s)
{
    return head_file_config(s->hf)->layout == HEAD_LAYOUT_EAGLE3;
}

/* All rows of the head in one step, each made from what the fixture says, not by the drafter; of
 * EAGLE-3, whose fixture has few rows of states, from the target's. */
static int make_rows(struct scene *s, bool full, int32_t *ids, int32_t (*pos)[3], float *embeds,
                     float *features)
{
    const struct head_config *h = head_file_config(s->hf);
    size_t hidden = (size_t)s->target.c->hidden;
    int n = 0;
    for (int i = 1; i < N_ALL; i++) {
        float *embed = embeds + (size_t)n * hidden;
        if (s->ids[i] < 0 && !full)
            continue;
        ids[n] = s->ids[i] >= 0                ? s->ids[i]
                 : h->visual == HEAD_VISUAL_FC ? STEP_PAIRED
                                               : STEP_READY;
        if (s->ids[i] < 0)
            memcpy(embed,
                   h->visual == HEAD_VISUAL_LAYER ? states_mid(&s->states, i)
                                                  : s->video + (size_t)(i - s->first) * hidden,
                   sizeof(float) * hidden);
        if (is_eagle3(s))
            CHECK(states_copy(&s->states, i - 1, features + (size_t)n * states_width(&s->states)));
        else
            memcpy(features + (size_t)n * hidden, golden_row(entry(s, "states"), i - 1),
                   sizeof(float) * hidden);
        for (int a = 0; a < 3; a++)
            pos[n][a] = h->positions == HEAD_POS_INDEX ? i : s->pos[i][a];
        n++;
    }
    return n;
}

static void check_rows(struct scene *s, bool full, const char *what)
{
    size_t hidden = (size_t)s->target.c->hidden, vocab = (size_t)decoder_config(s->dec)->vocab;
    const char *word = full ? "full" : "text";
    char name[32];
    int32_t ids[N_ALL], pos[N_ALL][3];
    int all[N_ALL], n;
    float *embeds = calloc(N_ALL, sizeof(float) * hidden);
    float *features = calloc(N_ALL, sizeof(float) * decoder_feature_width(s->dec));
    float *states = calloc(N_ALL, sizeof(float) * hidden),
          *last = calloc(1, sizeof(float) * hidden);
    float *logits = calloc(N_ALL, sizeof(float) * vocab);
    struct decoder_state *st = NULL;
    struct kvcache kv = { 0 };
    struct step_seq seq = { .kv = &kv };
    struct step step = { .ids = ids,
                         .embeds = embeds,
                         .features = features,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .logit_rows = all,
                         .logits = logits,
                         .states = states };
    struct pv_error err = { 0 };
    enum pv_status status =
        decoder_state_open(&st, s->dec, MAX_ROWS, MAX_ROWS, CONTEXT, DTYPE_F32, &err);
    if (!status)
        status = kvcache_open(&kv, decoder_device(s->dec), decoder_config(s->dec), DTYPE_F32,
                              CONTEXT, &err);
    n = make_rows(s, full, ids, pos, embeds, features);
    step.n = step.n_logits = seq.n = n;
    for (int i = 0; i < n; i++)
        all[i] = i;
    if (!status)
        status = decoder_step(s->dec, st, &step, &err);
    CHECK_MSG(status == PV_OK, "%s", err.text);
    snprintf(name, sizeof name, "%s.states", word);
    for (int i = 0; i < n && CHECK_EQ(entry(s, name)->rows, n); i++)
        CHECK_MSG(row_error(states + (size_t)i * hidden, golden_row(entry(s, name), i),
                            (int)hidden) < tolerance,
                  "%s, %s: state of row %d", what, word, i);
    snprintf(name, sizeof name, "%s.logits", word);
    for (int i = 0; i < N_ANSWER; i++)
        CHECK_MSG(row_error(logits + (size_t)(n - N_ANSWER + i) * vocab,
                            golden_row(entry(s, name), i), (int)vocab) < tolerance,
                  "%s, %s: logits %d", what, word, i);
    /* The last row alone has the same bits. */
    step.n_logits = 1;
    step.logit_rows = &all[n - 1];
    step.states = last;
    CHECK(status || (decoder_step(s->dec, st, &step, &err) == PV_OK &&
                     memcmp(last, states + (size_t)(n - 1) * hidden, sizeof(float) * hidden) == 0));
    decoder_state_close(&st);
    kvcache_close(&kv);
    free(embeds);
    free(features);
    free(states);
    free(last);
    free(logits);
}

/* What the target keeps of its rows is what the reference has. */
static void check_states(const struct scene *s, const char *what)
{
    const struct golden_entry *e = entry(s, "states");
    size_t hidden = (size_t)s->target.c->hidden;
    for (int i = 0; i < e->rows; i++) {
        int row = is_eagle3(s) ? entry(s, "state.rows")->i[i] : i;
        if (row + 1 < N_ALL && s->ids[row + 1] < 0)
            continue;
        for (int k = 0; k < s->states.post.n_features; k++)
            CHECK_MSG(row_error(states_feature(&s->states, row, k),
                                golden_row(e, i) + (size_t)k * hidden, (int)hidden) < tolerance,
                      "%s: feature %d of the target's row %d", what, k, row);
    }
}

/* EAGLE-3 goes on from states of its own: two rows more, one by one and both in one step. */
static void check_further(struct scene *s, const char *what)
{
    size_t hidden = (size_t)s->target.c->hidden, vocab = (size_t)decoder_config(s->dec)->vocab;
    const struct golden_entry *want = entry(s, "further.logits");
    int32_t ids[N_ALL], pos[N_ALL][3];
    float *embeds = calloc(N_ALL, sizeof(float) * hidden);
    float *features = calloc(N_ALL, sizeof(float) * decoder_feature_width(s->dec));
    float *logits = calloc(1, sizeof(float) * vocab), *state = calloc(1, sizeof(float) * hidden);
    struct kvcache kv = { 0 };
    struct pv_error err = { 0 };
    int n = make_rows(s, false, ids, pos, embeds, features), last = n - 1;
    struct step_seq seq = { .kv = &kv, .n = n };
    struct step step = { .n = n,
                         .ids = ids,
                         .embeds = embeds,
                         .features = features,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = logits,
                         .states = state };
    enum pv_status st =
        kvcache_open(&kv, decoder_device(s->dec), decoder_config(s->dec), DTYPE_F32, CONTEXT, &err);
    for (int i = 0; i < 3 && !st; i++) {
        st = decoder_step(s->dec, s->st, &step, &err);
        CHECK_MSG(row_error(logits, golden_row(want, i), (int)vocab) < tolerance,
                  "%s: logits of step %d", what, i);
        kvcache_advance(&kv, step.n);
        if (i == 2)
            break;
        ids[0] = entry(s, "further.ids")->i[i];
        for (int a = 0; a < 3; a++)
            pos[0][a] = pos[last][a] + 1;
        memcpy(features, state, sizeof(float) * hidden);
        step.own_features = true;
        step.n = seq.n = 1;
        last = 0;
    }
    CHECK_MSG(st == PV_OK, "%s", err.text);
    kvcache_close(&kv);
    free(embeds);
    free(features);
    free(logits);
    free(state);
}

/* The same weights with the normed feature as the residual. */
TEST(eagle3_with_a_normed_residual)
{
    int h = N_HEADS - 1;
    int32_t ids[N_ALL], pos[N_ALL][3];
    struct scene s;
    struct head_config *c;
    struct pv_error err = { 0 };
    if (!open_scene(&s, h, f32_head(h), cpu_level_best()))
        return;
    size_t hidden = (size_t)s.target.c->hidden, vocab = (size_t)decoder_config(s.dec)->vocab;
    struct config fit = *decoder_config(s.dec);
    float *embeds = calloc(N_ALL, sizeof(float) * hidden);
    float *features = calloc(N_ALL, sizeof(float) * decoder_feature_width(s.dec));
    float *logits = calloc(1, sizeof(float) * vocab);
    struct kvcache kv = { 0 };
    int n = make_rows(&s, false, ids, pos, embeds, features), last = n - 1;
    struct step_seq seq = { .kv = &kv, .n = n };
    struct step step = { .n = n,
                         .ids = ids,
                         .embeds = embeds,
                         .features = features,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .logits = logits };
    c = (struct head_config *)(uintptr_t)head_file_config(s.hf);
    c->norm_residual = true;
    decoder_close(&s.dec);
    CHECK_MSG(decoder_open_head(&s.dec, s.hf, &fit, s.target.dec, &err) == PV_OK &&
                  kvcache_open(&kv, decoder_device(s.dec), &fit, DTYPE_F32, CONTEXT, &err) ==
                      PV_OK &&
                  decoder_step(s.dec, s.st, &step, &err) == PV_OK,
              "%s", err.text);
    CHECK(row_error(logits, golden_row(entry(&s, "residual.logits"), 0), (int)vocab) < tolerance);
    kvcache_close(&kv);
    free(embeds);
    free(features);
    free(logits);
    close_scene(&s);
}

TEST(rows_are_those_of_the_reference)
{
    for (int level = 0; level < N_CPU_LEVELS; level++)
        for (int h = 0; h < N_HEADS && cpu_level_here(level); h++) {
            struct scene s;
            char what[64];
            snprintf(what, sizeof what, "%s %s", cpu_levels[level].name, heads[h].name);
            if (open_scene(&s, h, f32_head(h), level)) {
                check_states(&s, what);
                check_rows(&s, false, what);
                check_rows(&s, true, what);
                if (is_eagle3(&s))
                    check_further(&s, what);
            }
            close_scene(&s);
        }
}

/* ---- trees ---- */

static enum pv_status embed_video(void *user, int from, int n, float *out, struct pv_error *err)
{
    const struct scene *s = user;
    size_t hidden = (size_t)s->target.c->hidden;
    (void)err;
    memcpy(out, s->video + (size_t)(from - s->first) * hidden, sizeof(float) * (size_t)n * hidden);
    return PV_OK;
}

static struct drafter *open_drafter(struct scene *s, int chunk)
{
    struct drafter *d = NULL;
    struct pv_error err = { 0 };
    CHECK_MSG(drafter_head_open(&d, &s->steps.base, head_file_config(s->hf), chunk, CONTEXT,
                                &err) == PV_OK,
              "%s", err.text);
    return d;
}

static bool begin(struct drafter *d, struct scene *s, bool full)
{
    bool visible[N_PROMPT];
    struct draft_prompt p = { .n = N_PROMPT,
                              .ids = s->ids,
                              .pos = (const int32_t(*)[3])s->pos,
                              .next = s->pos[N_PROMPT][0],
                              .visible = visible,
                              .original = true,
                              .embed = embed_video,
                              .user = s,
                              .states = &s->states };
    struct pv_error err = { 0 };
    for (int i = 0; i < N_PROMPT; i++)
        visible[i] = full || s->ids[i] >= 0;
    return CHECK_MSG(d->begin(d, &p, &err) == PV_OK, "%s", err.text);
}

static bool propose(struct drafter *d, const struct scene *s, int n_answer,
                    const struct shape *shape, struct tree *t, float *scores)
{
    struct draft_request r = { .answer = s->ids + N_PROMPT,
                               .n_answer = n_answer,
                               .position = (uint64_t)(N_PROMPT + n_answer),
                               .how = &greedy,
                               .shape = shape,
                               .tree = t,
                               .most = 32,
                               .scores = scores };
    struct pv_error err = { 0 };
    tree_begin(t, s->ids[N_PROMPT + n_answer - 1]);
    return CHECK_MSG(d->propose(d, &r, &err) == PV_OK, "%s", err.text);
}

static void check_tree(const struct scene *s, bool full, int n_answer, const struct tree *t,
                       const float *scores, const char *what)
{
    const struct golden_entry *e[3];
    const char *const names[] = { "ids", "parents", "scores" };
    for (int k = 0; k < 3; k++) {
        char name[32];
        snprintf(name, sizeof name, "%s.%d.%s", full ? "full" : "text", n_answer, names[k]);
        e[k] = entry(s, name);
    }
    if (!CHECK_MSG(t->n == e[0]->cols + 1, "%s: %d rows", what, t->n))
        return;
    for (int i = 1; i < t->n; i++) {
        CHECK_MSG(t->id[i] == e[0]->i[i - 1] && t->parent[i] == e[1]->i[i - 1],
                  "%s, %s after %d: row %d is %d below %d", what, full ? "full" : "text", n_answer,
                  i, (int)t->id[i], t->parent[i]);
        CHECK_MSG(fabs((double)scores[i] - e[2]->f[i - 1]) < score_tolerance, "%s: score of row %d",
                  what, i);
    }
}

static void check_trees(struct scene *s, const char *what)
{
    const int32_t *sizes = entry(s, "shape")->i;
    struct shape shape;
    shape_dynamic(&shape, sizes[0], sizes[1], sizes[2], NULL);
    for (int full = 0; full < 2; full++)
        for (int chunk = 7; chunk < 64; chunk += 50) {
            struct drafter *d = open_drafter(s, chunk);
            struct tree t;
            float scores[TREE_MAX];
            if (begin(d, s, full))
                for (int n = 1; n <= N_ANSWER; n += N_ANSWER - 1)
                    if (propose(d, s, n, &shape, &t, scores))
                        check_tree(s, full, n, &t, scores, what);
            d->close(d);
        }
}

TEST(trees_are_those_of_the_reference)
{
    int level = cpu_level_best();
    for (int h = 0; h < N_HEADS; h++) {
        struct scene s;
        if (open_scene(&s, h, f32_head(h), level))
            check_trees(&s, heads[h].name);
        close_scene(&s);
    }
}

/* Straight from the directories, in the types they are stored in: with plain kernels, which keep
 * the rows as they are. */
TEST(directories_grow_the_same_trees)
{
    for (int h = 0; h < N_HEADS; h++) {
        struct scene s;
        if (open_scene(&s, h, head_dir(h), 0))
            check_trees(&s, heads[h].name);
        close_scene(&s);
    }
}

/* ---- rounds ---- */

/* One token behind an answer of n tokens. */
static int32_t next_of(struct drafter *d, const struct scene *s, int n)
{
    struct shape one;
    struct tree t;
    shape_chain(&one, 1, NULL);
    return propose(d, s, n, &one, &t, NULL) && CHECK_EQ(t.n, 2) ? t.id[1] : -1;
}

/* The target has not run the last tokens of what a head continues: token by token it makes the
 * chain that it makes at once, and a tree behind those tokens goes on from there; when the target
 * has, the rows are those of its states. */
TEST(tokens_that_the_target_has_not_run)
{
    for (int h = 0; h < N_HEADS; h++) {
        struct scene s;
        struct shape shapes[2];
        struct tree chain, t, want;
        struct drafter *d, *fresh;
        int32_t answer[N_ANSWER];
        if (!open_scene(&s, h, f32_head(h), cpu_level_best()))
            return;
        d = open_drafter(&s, 16);
        fresh = open_drafter(&s, 5);
        shape_chain(&shapes[0], N_ANSWER - 1, NULL);
        shape_dynamic(&shapes[1], 12, 3, 4, NULL);
        memcpy(answer, s.ids + N_PROMPT, sizeof answer);
        begin(d, &s, h > 0);
        begin(fresh, &s, h > 0);
        s.states.n = N_PROMPT;
        propose(fresh, &s, 1, &shapes[0], &chain, NULL);
        CHECK_EQ(chain.n, N_ANSWER);
        for (int n = 1; n < chain.n; n++) {
            CHECK_MSG(next_of(d, &s, n) == chain.id[n], "%s: token %d", heads[h].name, n);
            s.ids[N_PROMPT + n] = chain.id[n];
        }
        propose(d, &s, N_ANSWER, &shapes[1], &t, NULL);
        CHECK(well_formed(&t, &shapes[1], 32, s.target.c->vocab) && t.n == 12);
        CHECK_EQ(t.id[1], next_of(d, &s, N_ANSWER));
        /* It has run half of them, then all, and others than were drafted. */
        memcpy(s.ids + N_PROMPT, answer, sizeof answer);
        next_of(d, &s, N_ANSWER);
        s.states.n = N_PROMPT + N_ANSWER / 2;
        next_of(d, &s, N_ANSWER);
        s.states.n = N_ALL;
        propose(d, &s, N_ANSWER, &shapes[1], &t, NULL);
        propose(fresh, &s, N_ANSWER, &shapes[1], &want, NULL);
        CHECK(t.n == want.n && memcmp(t.id, want.id, sizeof(int32_t) * (size_t)t.n) == 0);
        d->close(d);
        fresh->close(fresh);
        close_scene(&s);
    }
}

/* Whatever was drafted before, a round's tree is that of a drafter that knows only the answer. */
TEST(rounds_leave_nothing_behind)
{
    struct scene s;
    struct shape shapes[N_SHAPES];
    struct drafter *used, *fresh;
    if (!open_scene(&s, 1, f32_head(1), cpu_level_best()))
        return;
    used = open_drafter(&s, 16);
    fresh = open_drafter(&s, 5);
    for (int i = 0; i < N_SHAPES; i++)
        make_shape(&shapes[i], i);
    begin(used, &s, false);
    for (int i = 0; i < N_SHAPES; i++)
        for (int n = N_ANSWER; n >= 1; n--) {
            struct tree a, b;
            begin(fresh, &s, true); /* other rows, which must go */
            begin(fresh, &s, false);
            propose(used, &s, n, &shapes[i], &a, NULL);
            propose(fresh, &s, n, &shapes[i], &b, NULL);
            CHECK(well_formed(&a, &shapes[i], 32, s.target.c->vocab));
            CHECK_MSG(a.n == b.n && memcmp(a.id, b.id, sizeof(int32_t) * (size_t)a.n) == 0 &&
                          memcmp(a.parent, b.parent, sizeof(int) * (size_t)a.n) == 0,
                      "shape %d after %d tokens: another tree", i, n);
        }
    used->close(used);
    fresh->close(fresh);
    close_scene(&s);
}

/* Under rejection the distributions that tokens are drawn from lie on the draft vocabulary alone.
 */
TEST(tokens_outside_the_draft_vocabulary_have_no_probability)
{
    struct sampling drawn = { .temperature = 1, .top_p = 1, .seed = 7 };
    struct scene s;
    struct shape shape;
    struct tree t;
    struct drafter *d;
    const struct golden_entry *ids;
    int vocab, h = N_HEADS - 1;
    float *q;
    struct pv_error err = { 0 };
    if (!open_scene(&s, h, f32_head(h), cpu_level_best()))
        return;
    ids = entry(&s, "draft.ids");
    vocab = s.target.c->vocab;
    q = calloc((size_t)vocab * 8, sizeof *q);
    d = open_drafter(&s, 16);
    shape_chain(&shape, 5, NULL);
    begin(d, &s, false);
    for (uint64_t seed = 1; seed < 20; seed++) {
        struct draft_request r = { .answer = s.ids + N_PROMPT,
                                   .n_answer = 1,
                                   .position = N_PROMPT + 1,
                                   .how = &drawn,
                                   .shape = &shape,
                                   .tree = &t,
                                   .most = 32,
                                   .q = q };
        drawn.seed = seed;
        tree_begin(&t, s.ids[N_PROMPT]);
        CHECK_MSG(d->propose(d, &r, &err) == PV_OK, "%s", err.text);
        CHECK_EQ(t.n, 6);
        for (int i = 0; i < 5; i++) {
            const float *row = q + (size_t)i * (size_t)vocab;
            double inside = 0, all = 0;
            for (int k = 0; k < vocab; k++)
                all += (double)row[k];
            for (int k = 0; k < ids->cols; k++)
                inside += (double)row[ids->i[k]];
            CHECK(fabs(all - 1) < 1e-4 && inside == all);
            CHECK(row[t.id[i + 1]] > 0);
        }
    }
    free(q);
    d->close(d);
    close_scene(&s);
}

/* Another video before the same words: nothing of the old states may be used. */
TEST(the_same_words_after_another_video)
{
    struct scene s;
    struct shape shape;
    struct tree first, again, other;
    float scores[2][TREE_MAX] = { { 0 } };
    struct drafter *d;
    if (!open_scene(&s, 0, f32_head(0), cpu_level_best()))
        return;
    d = open_drafter(&s, 16);
    shape_dynamic(&shape, 20, 3, 4, NULL);
    begin(d, &s, false);
    propose(d, &s, 1, &shape, &first, scores[0]);
    for (int i = s.first; s.ids[i] < 0; i++)
        s.ids[i] = -2; /* another key */
    for (int i = 0; i < s.states.post.n * s.target.c->hidden; i++)
        s.states.post.rows[0][i] = -s.states.post.rows[0][i]; /* and what comes of it */
    begin(d, &s, false);
    propose(d, &s, 1, &shape, &other, scores[1]);
    CHECK(memcmp(scores[0], scores[1], sizeof scores[0]) != 0);
    for (int i = 0; i < s.states.post.n * s.target.c->hidden; i++)
        s.states.post.rows[0][i] = -s.states.post.rows[0][i];
    for (int i = s.first; s.ids[i] < 0; i++)
        s.ids[i] = -1;
    begin(d, &s, false);
    propose(d, &s, 1, &shape, &again, scores[1]);
    CHECK(memcmp(scores[0] + 1, scores[1] + 1, sizeof(float) * (size_t)(first.n - 1)) == 0);
    d->close(d);
    close_scene(&s);
}

/* The cost of a round is rows and the slots they read; without the video's rows no more than the
 * words. */
TEST(cost_without_the_video_does_not_know_it)
{
    struct scene s;
    struct shape shape;
    int64_t slots[2], rows[2];
    if (!open_scene(&s, 0, f32_head(0), cpu_level_best()))
        return;
    shape_dynamic(&shape, 20, 3, 4, NULL);
    for (int full = 0; full < 2; full++) {
        struct drafter *d = open_drafter(&s, 16);
        struct tree t;
        begin(d, &s, full);
        slots[full] = d->slots;
        rows[full] = d->rows;
        propose(d, &s, 1, &shape, &t, NULL);
        slots[full] = d->slots - slots[full];
        rows[full] = d->rows - rows[full];
        d->close(d);
    }
    int words = 0, video = entry(&s, "video")->rows;
    for (int i = 1; i < N_PROMPT; i++)
        words += s.ids[i] >= 0;
    /* The root, then three levels of four nodes. */
    CHECK_EQ(rows[0], 13);
    CHECK_EQ(rows[1], rows[0]);
    CHECK_EQ(slots[0], (words + 1) * 13 + 4 * (1 + 2 + 3));
    CHECK_EQ(slots[1], slots[0] + 13 * video);
    close_scene(&s);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
