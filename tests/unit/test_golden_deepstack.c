/* A tiny Qwen3-VL decoder with rows of media that bring deepstack vectors, against what
 * transformers computes of the same rows (tests/golden/qwen3_vl_deep, made by
 * tools/golden/deepstack_golden.py): the stream after each layer, vectors added, the logits,
 * and the answer. */
#include "family/families.h"
#include "golden/golden.h"
#include "rig.h"
#include "scratch.h"

enum { MAX_PROMPT = 64, MAX_LAYERS = 4, CONTEXT = 256, N_GREEDY = 12 };

static const double tolerance = 1e-4; /* of the largest magnitude of a row */

static const struct golden_entry *entry(const struct golden *g, const char *name)
{
    const struct golden_entry *found = golden_find(g, name);
    if (!found) {
        fprintf(stderr, "golden.vec has no entry %s\n", name);
        exit(1);
    }
    return found;
}

/* The prompt as one step takes it. */
struct scene {
    struct golden *g;
    int n, next; /* rows, and the position after them */
    const int32_t *ids;
    int32_t pos[MAX_PROMPT][3];
    float *wide; /* [n, width], rows of tokens 0 */
};

static bool scene_open(struct scene *s, const struct rig *r)
{
    size_t width = (size_t)config_media_width(r->c);
    const struct golden_entry *pos, *wide;
    *s = (struct scene){ .g = golden_open("tests/golden/qwen3_vl_deep/golden.vec") };
    if (!CHECK_MSG(s->g, "golden.vec cannot be read"))
        return false;
    pos = entry(s->g, "positions");
    wide = entry(s->g, "wide");
    s->n = pos->cols;
    s->ids = entry(s->g, "prompt")->i;
    if (!CHECK_EQ(wide->cols, (int)width) || !CHECK(s->n <= MAX_PROMPT))
        return false;
    s->wide = calloc((size_t)s->n * width, sizeof *s->wide);
    for (int i = 0, row = 0; i < s->n; i++) {
        if (s->ids[i] < 0)
            memcpy(s->wide + (size_t)i * width, golden_row(wide, row++), sizeof(float) * width);
        for (int axis = 0; axis < 3; axis++) {
            s->pos[i][axis] = golden_row_i(pos, axis)[i];
            s->next = s->pos[i][axis] >= s->next ? s->pos[i][axis] + 1 : s->next;
        }
    }
    return true;
}

static void scene_close(struct scene *s)
{
    free(s->wide);
    golden_close(&s->g);
}

static void check_rows(const float *got, const struct golden_entry *want, const char *level)
{
    for (int i = 0; i < want->rows; i++) {
        double d =
            golden_error(got + (size_t)i * (size_t)want->cols, golden_row(want, i), want->cols);
        CHECK_MSG(d <= tolerance, "%s: row %d of %s differs by %.2g", level, i, want->name, d);
    }
}

/* The answer to the prompt of `step`, a token at a time. */
static void check_answer(struct rig *r, struct scene *s, struct step step, struct step_seq *seq)
{
    const struct golden_entry *greedy = entry(s->g, "greedy");
    struct pv_error err = { 0 };
    int32_t next = 0;
    int last = step.n - 1;
    step.n_hidden = 0;
    step.n_logits = 1;
    step.logit_rows = &last;
    step.logits = NULL;
    step.argmax = &next;
    for (int i = 0; i < N_GREEDY; i++) {
        CHECK_MSG(!decoder_step(r->dec, r->st, &step, &err), "%s", err.text);
        CHECK_EQ(next, greedy->i[i]);
        kvcache_advance(&r->kv, seq->n);
        step.n = seq->n = 1;
        step.ids = &greedy->i[i];
        last = 0;
        for (int axis = 0; axis < 3; axis++)
            s->pos[0][axis] = s->next + i;
    }
}

/* The prompt in one step, its states and logits compared; then the answer, a token at a time. */
static void check_level(const char *path, int level)
{
    struct rig_shape shape = {
        .level = level, .threads = 2, .kv = DTYPE_F32, .max_rows = MAX_PROMPT, .context = CONTEXT
    };
    static float states[MAX_LAYERS][MAX_PROMPT * 32], logits[MAX_PROMPT * 160];
    struct hidden_tap taps[MAX_LAYERS];
    struct step_seq seq;
    struct scene s = { 0 };
    struct pv_error err = { 0 };
    struct rig r;
    if (!rig_open(&r, path, shape))
        return;
    if (!CHECK_EQ(r.c->n_deepstack, 2) || !CHECK(r.c->hidden == 32 && r.c->vocab == 160) ||
        !scene_open(&s, &r)) {
        scene_close(&s);
        rig_close(&r);
        return;
    }
    const struct golden_entry *rows = entry(s.g, "rows");
    int wanted[MAX_PROMPT];
    memcpy(wanted, rows->i, sizeof *wanted * (size_t)rows->cols);
    for (int l = 0; l < r.c->n_layers; l++)
        taps[l] = (struct hidden_tap){
            .layer = l, .n_rows = rows->cols, .rows = wanted, .out = states[l]
        };
    seq = (struct step_seq){ .kv = &r.kv, .n = s.n };
    struct step step = { .n = s.n,
                         .ids = s.ids,
                         .embeds = s.wide,
                         .pos = (const int32_t(*)[3])s.pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = rows->cols,
                         .logit_rows = wanted,
                         .logits = logits,
                         .n_hidden = r.c->n_layers,
                         .hidden = taps };
    CHECK_MSG(!decoder_step(r.dec, r.st, &step, &err), "%s", err.text);
    for (int l = 0; l < r.c->n_layers; l++) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%d", l);
        check_rows(states[l], entry(s.g, name), cpu_levels[level].name);
    }
    check_rows(logits, entry(s.g, "logits"), cpu_levels[level].name);
    check_answer(&r, &s, step, &seq);
    scene_close(&s);
    rig_close(&r);
}

/* From the directory, and from a GGUF file made of it, which says how many vectors there are. */
TEST(deepstack_equals_transformers)
{
    static const char dir[] = "tests/golden/qwen3_vl_deep";
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    char path[256];
    snprintf(path, sizeof path, "%s/deep.gguf", scratch_dir());
    if (model_file_open(&mf, dir, NULL, 0, families, &err) == PV_OK)
        model_file_write_gguf(mf, path, DTYPE_F32, false, NULL, &err);
    CHECK_MSG(!err.code, "%s", err.text);
    model_file_close(&mf);
    for (int level = 0; level < N_CPU_LEVELS; level++)
        if (cpu_level_here(level))
            check_level(path, level);
    check_level(dir, 0); /* BF16 weights: the plain kernels do not round the rows */
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
