/* bench_gpu: how fast a GPU runs models of real shapes, compared with the GPU's own limits and, if
 * asked for, with Hugging Face transformers (peer_hf.py).
 *
 * Weights are drawn at random on the device and the KV cache is filled with random numbers, so
 * nothing is downloaded; the speed of the kernels does not depend on the values. Everything goes
 * through decoder_step and vision_encode. */
#include "family/families.h"
#include "rig/gpu_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_INT = 1 << 20, MAX_NAMES = 16, NAMES_SIZE = 512 };

enum part {
    PART_DECODE,
    PART_DRAFTED,
    PART_BATCH,
    PART_PREFILL,
    PART_TOWER,
    PART_AUDIO_ENCODER,
    PART_FIRST,
    PART_SIMULATE,
    PART_SWEEP,
    PARTS
};

static const char *const part_names[PARTS] = { "decode",  "drafted", "batch",    "prefill", "tower",
                                               "hearing", "first",   "simulate", "sweep" };

struct args {
    struct rig rig;
    struct plan plan;
    bool part[PARTS];
    const char *models, *towers, *pairs;
    const char *csv, *peer, *commit;
    const char *head_type; /* NULL: the target's */
    double read_gib;
};

static const char usage[] =
    "usage: bench_gpu [options]\n"
    "  --device NAME        cuda, or cpu to try this program (cuda)\n"
    "  --gpu N              which GPU (0)\n"
    "  --what LIST          of decode,drafted,batch,prefill,tower,hearing,first,simulate,sweep\n"
    "                       (all but drafted, batch, hearing and sweep)\n"
    "  --models LIST        SHAPE:TYPE of make_model, for decode, drafted, batch and prefill\n"
    "  --towers LIST        SHAPE:TYPE, for tower, hearing (of those that hear) and, of\n"
    "                       LLaVA-OneVision, first\n"
    "  --pairs LIST         TARGET/DRAFTER, each SHAPE:TYPE, for simulate and sweep\n"
    "  --contexts LIST      slots filled before a step (256,2560,25088)\n"
    "  --rows LIST          rows of a step (1,6,10,26,64); 26 also as a tree\n"
    "  --batches LIST       SEQUENCESxROWS of a batch's step, ROWS with a t: trees (32x1,16x8t)\n"
    "  --kv TYPE            KV caches of bf16 or fp8 (bf16)\n"
    "  --batch-context N    slots filled of each sequence (4096)\n"
    "  --prefill N          tokens of the prompt (25088)\n"
    "  --chunk N            rows of a step of the prefill (8448)\n"
    "  --frames N           frames for towers (128)\n"
    "  --size N             pixels of a side, for towers that take any size (448)\n"
    "  --batch N            frames of one call of the tower (as many as suit it)\n"
    "  --repeat N           steps that are timed, after three that are not (20)\n"
    "  --rounds N           rounds of each simulated method (32)\n"
    "  --gamma N            tokens drafted at a time by simulated chains (as published)\n"
    "  --by-level N         1: ask the GPU for each level of a draft tree, as for trees that "
    "prices\n"
    "                       shape (0: for the whole tree)\n"
    "  --draft-vocab N      tokens that drafters score: models of drafted, drafters of simulate "
    "(all)\n"
    "  --head-type TYPE     weights of simulated draft heads (the target's)\n"
    "  --methods LIST       of the simulated ones (all)\n"
    "  --bandwidth N        GB/s the device can read, where more than what is measured here\n"
    "  --peak N             TFLOP/s it can compute, BF16 (790)\n"
    "  --read N             GiB that are read to measure (4)\n"
    "  --folder DIR         where hollow models are made (build/hollow)\n"
    "  --make-model PATH    the program that makes them (beside this one)\n"
    "  --csv FILE           append the results to FILE\n"
    "  --peer FILE          a CSV of peer_hf.py, to show beside ours\n"
    "  --commit TEXT        what to call this build there\n"
    "  --quick              q05 and q7 in BF16, 5 repeats\n";

/* ---- arguments ---- */

static bool parse_number(const char *text, int *out)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || end == text || *end || v < 0 || v > LIMIT_INT)
        return false;
    *out = (int)v;
    return true;
}

static bool parse_double(const char *text, double scale, double *out)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v > 0))
        return false;
    *out = scale * v;
    return true;
}

/* Get the next item of a comma-separated list. Returns false at its end. */
static bool next_item(const char **list, char *item, size_t size)
{
    size_t len = strcspn(*list, ",");
    if (!**list)
        return false;
    snprintf(item, size, "%.*s", (int)len, *list);
    *list += len + ((*list)[len] == ',');
    return true;
}

static bool parse_list(const char *text, int *v, int *n)
{
    char item[32];
    *n = 0;
    while (next_item(&text, item, sizeof item)) {
        if (*n == RIG_MAX_LIST || !parse_number(item, &v[*n]) || v[*n] < 1)
            return false;
        ++*n;
    }
    return *n > 0;
}

/* SEQUENCESxROWS or SEQUENCESxROWSt. */
static bool parse_batches(const char *text, struct plan *p)
{
    char item[32];
    p->n_batches = 0;
    while (next_item(&text, item, sizeof item)) {
        struct batch_plan *b = &p->batches[p->n_batches];
        size_t len = strlen(item);
        char *x = strchr(item, 'x');
        if (p->n_batches == RIG_MAX_LIST || !x)
            return false;
        *x = '\0';
        b->tree = item[len - 1] == 't';
        if (b->tree)
            item[len - 1] = '\0';
        if (!parse_number(item, &b->sequences) || !parse_number(x + 1, &b->rows) ||
            b->sequences < 1 || b->sequences > RIG_MAX_SEQUENCES || b->rows < 1 ||
            b->sequences * b->rows > RIG_MAX_BATCH)
            return false;
        p->n_batches++;
    }
    return p->n_batches > 0;
}

static bool parse_parts(const char *text, bool *part)
{
    char item[32];
    memset(part, 0, PARTS * sizeof *part);
    while (next_item(&text, item, sizeof item)) {
        bool known = false;
        for (int i = 0; i < PARTS; i++)
            if (!strcmp(item, part_names[i]))
                known = part[i] = true;
        if (!known)
            return false;
    }
    return true;
}

static bool parse_numbers(struct args *a, const char *name, const char *value, bool *known)
{
    struct {
        const char *name;
        int *to;
    } all[] = {
        { "--gpu", &a->rig.index },
        { "--prefill", &a->plan.prefill },
        { "--chunk", &a->plan.chunk },
        { "--frames", &a->plan.frames },
        { "--size", &a->plan.size },
        { "--batch", &a->plan.batch },
        { "--repeat", &a->plan.repeat },
        { "--rounds", &a->plan.rounds },
        { "--gamma", &a->plan.gamma },
        { "--by-level", &a->plan.by_level },
        { "--draft-vocab", &a->rig.draft_vocab },
        { "--batch-context", &a->plan.batch_context },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) {
            *known = true;
            return parse_number(value, all[i].to);
        }
    return true;
}

static bool parse_texts(struct args *a, const char *name, const char *value)
{
    struct {
        const char *name;
        const char **to;
    } all[] = {
        { "--models", &a->models },     { "--towers", &a->towers },
        { "--pairs", &a->pairs },       { "--methods", &a->plan.methods },
        { "--folder", &a->rig.folder }, { "--make-model", &a->rig.program },
        { "--csv", &a->csv },           { "--peer", &a->peer },
        { "--commit", &a->commit },     { "--head-type", &a->head_type },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(name, all[i].name)) {
            *all[i].to = value;
            return true;
        }
    return false;
}

static bool parse_option(struct args *a, const char *name, const char *value)
{
    bool known = false;
    if (!parse_numbers(a, name, value, &known))
        return false;
    if (known || parse_texts(a, name, value))
        return true;
    if (!strcmp(name, "--device")) {
        a->rig.gpu = !strcmp(value, "cuda");
        return a->rig.gpu || !strcmp(value, "cpu");
    }
    if (!strcmp(name, "--kv")) {
        a->rig.kv = !strcmp(value, "fp8") ? DTYPE_F8 : DTYPE_BF16;
        return !strcmp(value, dtype_name(a->rig.kv));
    }
    if (!strcmp(name, "--what"))
        return parse_parts(value, a->part);
    if (!strcmp(name, "--contexts"))
        return parse_list(value, a->plan.contexts.v, &a->plan.contexts.n);
    if (!strcmp(name, "--rows"))
        return parse_list(value, a->plan.rows.v, &a->plan.rows.n);
    if (!strcmp(name, "--batches"))
        return parse_batches(value, &a->plan);
    if (!strcmp(name, "--bandwidth"))
        return parse_double(value, 1e9, &a->rig.bandwidth);
    if (!strcmp(name, "--peak"))
        return parse_double(value, 1e12, &a->rig.peak);
    if (!strcmp(name, "--read"))
        return parse_double(value, 1, &a->read_gib);
    return false;
}

static void quicken(struct args *a)
{
    a->plan.repeat = 5;
    a->plan.rounds = 12;
    a->models = "q05:bf16,q7:bf16";
    a->towers = "ov7:bf16";
    a->pairs = "q7:bf16/q05:bf16";
}

static bool parse_args(struct args *a, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (!strcmp(argv[i], "--quick")) {
            quicken(a);
            i--;
            continue;
        }
        if (i + 1 >= argc || !parse_option(a, argv[i], argv[i + 1])) {
            fprintf(stderr, "bench_gpu: %s%s%s: not an option with a value it can take\n%s",
                    argv[i], i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "", usage);
            return false;
        }
    }
    if (a->plan.repeat < 1 || a->plan.repeat > RIG_MAX_SAMPLES || a->plan.chunk < 1 ||
        a->plan.frames < 1 || a->plan.prefill < 1 || a->plan.rounds < 1) {
        fprintf(stderr, "bench_gpu: a number is too small or too large\n%s", usage);
        return false;
    }
    return true;
}

/* ---- the run ---- */

static void say_model(const struct rig *r, const struct rig_model *m)
{
    printf("# %s:%s opened in %.1f s; %.1f GB of the device in use\n", m->shape, m->type, m->open_s,
           1e-9 * (double)rig_used(r));
    fflush(stdout);
}

static enum pv_status run_models(struct args *a, struct pv_error *err)
{
    const char *list = a->models;
    char name[RIG_NAME];
    enum pv_status s = PV_OK;
    if (!a->part[PART_DECODE] && !a->part[PART_DRAFTED] && !a->part[PART_BATCH] &&
        !a->part[PART_PREFILL])
        return PV_OK;
    results_head(a->rig.results, "Decoding, verification and prefill");
    while (!s && next_item(&list, name, sizeof name)) {
        struct rig_model m;
        s = rig_model_open(&m, &a->rig, name, 0, true, err);
        if (s)
            break;
        say_model(&a->rig, &m);
        if (a->part[PART_DRAFTED])
            s = rig_model_narrow(&m, &a->rig, err);
        if (!s && a->part[PART_DECODE])
            s = test_decode(&a->rig, &m, &a->plan, err);
        if (!s && a->part[PART_DRAFTED])
            s = test_drafted(&a->rig, &m, &a->plan, err);
        if (!s && a->part[PART_BATCH])
            s = test_batch(&a->rig, &m, &a->plan, err);
        if (!s && a->part[PART_PREFILL])
            s = test_prefill(&a->rig, &m, &a->plan, err);
        rig_model_close(&m);
    }
    return s;
}

static enum pv_status run_towers(struct args *a, struct pv_error *err)
{
    const char *list = a->towers;
    char name[RIG_NAME];
    enum pv_status s = PV_OK;
    if (!a->part[PART_TOWER] && !a->part[PART_AUDIO_ENCODER] && !a->part[PART_FIRST])
        return PV_OK;
    results_head(a->rig.results, "Encoders of pictures and sound, and the first token");
    while (!s && next_item(&list, name, sizeof name)) {
        struct rig_model m;
        bool llava;
        s = rig_model_open(&m, &a->rig, name, 0, a->part[PART_FIRST], err);
        if (s)
            break;
        llava = model_file_vision(m.mf)->family && model_file_vision(m.mf)->family->tower->fixed;
        say_model(&a->rig, &m);
        if (a->part[PART_TOWER])
            s = test_tower(&a->rig, &m, &a->plan, err);
        if (!s && a->part[PART_AUDIO_ENCODER] && model_file_vision(m.mf)->audio.hidden)
            s = test_audio_encoder(&a->rig, &m, &a->plan, err);
        if (!s && a->part[PART_FIRST] && llava)
            s = test_first_token(&a->rig, &m, &a->plan, err);
        rig_model_close(&m);
    }
    return s;
}

static enum pv_status run_pair(struct args *a, const char *pair, struct pv_error *err)
{
    const char *slash = strchr(pair, '/');
    struct rig_model m[3] = { 0 };
    char target[RIG_NAME], head[2 * RIG_NAME];
    enum pv_status s;
    if (!slash)
        return fail(err, PV_E_ARG, "%s is not TARGET/DRAFTER", pair);
    snprintf(target, sizeof target, "%.*s", (int)(slash - pair), pair);
    snprintf(head, sizeof head, "%s", target);
    if (a->head_type)
        snprintf(head, sizeof head, "%.*s:%s", (int)strcspn(target, ":"), target, a->head_type);
    s = rig_model_open(&m[0], &a->rig, target, 0, true, err);
    if (!s)
        s = rig_model_open(&m[1], &a->rig, slash + 1, 0, true, err);
    if (!s)
        s = rig_model_open(&m[2], &a->rig, head, 1, true, err);
    for (int i = 1; i < 3 && !s; i++)
        s = rig_model_narrow(&m[i], &a->rig, err);
    for (int i = 0; i < 3 && !s; i++)
        say_model(&a->rig, &m[i]);
    if (!s && a->part[PART_SIMULATE])
        s = test_simulate(&a->rig, &m[0], &m[1], &m[2], &a->plan, err);
    if (!s && a->part[PART_SWEEP])
        s = test_sweep(&a->rig, &m[0], &m[1], &a->plan, err);
    for (int i = 2; i >= 0; i--)
        rig_model_close(&m[i]);
    return s;
}

static enum pv_status run_all(struct args *a, struct pv_error *err)
{
    const char *list = a->pairs;
    char pair[2 * RIG_NAME];
    double speed;
    enum pv_status s =
        rig_read_speed(&a->rig, (size_t)(a->read_gib * (double)(1 << 30)), &speed, err);
    if (s)
        return s;
    printf("device   %s\n", a->rig.dev->ops->name);
    printf("read     %.0f GB/s: the best of passes over %.2g GiB, by finding the "
           "largest of f32 "
           "rows and by a product of one row with a BF16 matrix\n",
           1e-9 * speed, a->read_gib);
    a->rig.bandwidth = speed > a->rig.bandwidth ? speed : a->rig.bandwidth;
    printf("floor    the larger of bytes / %.0f GB/s and operations / %.0f "
           "TFLOP/s\n",
           1e-9 * a->rig.bandwidth, 1e-12 * a->rig.peak);
    s = run_models(a, err);
    if (!s)
        s = run_towers(a, err);
    while (!s && (a->part[PART_SIMULATE] || a->part[PART_SWEEP]) &&
           next_item(&list, pair, sizeof pair))
        s = run_pair(a, pair, err);
    return s;
}

/* make_model is in the directory of this program. */
static void find_maker(struct args *a, const char *self)
{
    static char path[1024];
    const char *slash = strrchr(self, '/');
    snprintf(path, sizeof path, "%.*smake_model", slash ? (int)(slash - self) + 1 : 0, self);
    a->rig.program = path;
}

int main(int argc, char **argv)
{
    static struct args a = {
        .rig = { .gpu = true, .folder = "build/hollow", .peak = 790e12, .kv = DTYPE_BF16 },
        .plan = { .contexts = { { 256, 2560, 25088 }, 3 },
                  .rows = { { 1, 6, 10, 26, 64 }, 5 },
                  .repeat = 20,
                  .prefill = 25088,
                  .chunk = 8448,
                  .frames = 128,
                  .size = 448,
                  .rounds = 32,
                  .batches = { { 32, 1, false }, { 16, 8, true } },
                  .n_batches = 2,
                  .batch_context = 4096 },
        .part = { true, false, false, true, true, true, true },
        .models = "q05:bf16,q7:bf16,q7:q8_0,q7:q4_0,q7:q4_K,q32:bf16,q72:q8_0",
        .towers = "ov7:bf16,qwen2.5-vl-7b:bf16",
        .pairs = "q7:bf16/q05:bf16,q72:q8_0/q7:bf16",
        .commit = "unknown",
        .read_gib = 4,
    };
    static struct results results;
    struct pv_error err = { 0 };
    enum pv_status s;
    if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(usage, stdout);
        return 0;
    }
    find_maker(&a, argv[0]);
    if (!parse_args(&a, argc, argv))
        return 2;
    s = rig_open(&a.rig, &err);
    if (!s)
        s = results_open(&results, &a.rig, a.csv, a.peer, a.commit, &err);
    if (!s)
        s = run_all(&a, &err);
    if (s)
        fprintf(stderr, "bench_gpu: %s\n", err.text);
    results_close(&results);
    rig_close(&a.rig);
    return s ? 1 : 0;
}
