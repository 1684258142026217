/* Pictures and videos against transformers: tiny random LLaVA-OneVision and Qwen2.5-VL models and
 * what transformers makes of some prompts with them (tests/golden, made by tools/golden). A test
 * per stage, each on the output of the ones before, so that the first that fails names the culprit:
 * patches, tower, rows of the prompt, positions, logits, and the whole through the public API.
 * F32 must agree to 1e-4 of the largest magnitude of a row on every CPU level, ids exactly. */
#include "engine/encoder.h"
#include "engine/media_loader.h"
#include "engine/session.h"
#include "family/families.h"
#include "golden/golden.h"
#include "larger.h"
#include "rig.h"
#include "scratch.h"
#include "video/patches.h"
#include "vision/tower.h"

#include <math.h>

enum { MAX_MEDIA = 4, MAX_ROWS = 320, N_GREEDY = 16, MIN_PIXELS = 784, MAX_PIXELS = 12845056 };

/* Columns of the entry "media". */
enum { IS_VIDEO, SEED, FRAMES, HEIGHT, WIDTH, MILLI_FPS, N_PATCHES, N_TOKENS, N_COLUMNS };

static const double tolerance = 1e-4; /* of the largest magnitude of a row */

static const char *const models[] = { "llava_onevision", "qwen2_5_vl_video" };

enum { LLAVA, QWEN, N_MODELS };

static const struct {
    int model;
    const char *name;
} cases[] = {
    { LLAVA, "video" },    { LLAVA, "resized" }, { LLAVA, "wide" },         { LLAVA, "large" },
    { LLAVA, "pictures" }, { LLAVA, "mixed" },   { LLAVA, "turns" },        { QWEN, "video" },
    { QWEN, "image" },     { QWEN, "resized" },  { QWEN, "resized_video" }, { QWEN, "mixed" },
    { QWEN, "slow" },      { QWEN, "turns" },
};

enum { N_CASES = sizeof cases / sizeof cases[0] };

static const char *const rule_names[] = { [PV_TIME_SECONDS] = "seconds",
                                          [PV_TIME_WHOLE] = "whole",
                                          [PV_TIME_COMPACT] = "compact",
                                          [PV_TIME_SECONDS_COMPACT] = "seconds_compact" };

/* What transformers itself does. */
static const enum pv_time_rule library_rule = PV_TIME_SECONDS_COMPACT;

static const char *hf_path(int m)
{
    static char path[64];
    snprintf(path, sizeof path, "tests/golden/%s", models[m]);
    return path;
}

/* The model as a GGUF file in F32, the tower beside it or in it; converted once. */
static const char *gguf_path_of(int m)
{
    static char path[N_MODELS][96];
    struct pv_error err = { 0 };
    if (path[m][0])
        return path[m];
    snprintf(path[m], sizeof path[m], "%s/%s.gguf", scratch_dir(), models[m]);
    CHECK_MSG(!pv_convert(hf_path(m), path[m], PV_TYPE_F32, &err), "%s", err.text);
    return path[m];
}

/* ---- what is expected ---- */

struct expected {
    struct golden *g;
    int model;
    char name[64];
    int n_media;
    const struct golden_entry *media;
    int n_pictures;
};

/* NULL: there is none, and a failed check if it is `needed`. */
static const struct golden_entry *find(const struct expected *e, bool needed, const char *fmt, ...)
{
    char name[48];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct golden_entry *found = golden_find(e->g, name);
    if (needed && !found) {
        fprintf(stderr, "%s has no entry %s\n", e->name, name);
        exit(1);
    }
    return found;
}

static bool expected_open(struct expected *e, int k)
{
    char path[96];
    *e = (struct expected){ .model = cases[k].model };
    snprintf(e->name, sizeof e->name, "%s %s", models[e->model], cases[k].name);
    snprintf(path, sizeof path, "%s/%s.vec", hf_path(e->model), cases[k].name);
    e->g = golden_open(path);
    if (!CHECK_MSG(e->g, "%s cannot be read", path))
        return false;
    e->media = find(e, true, "media");
    e->n_media = e->media->rows;
    for (int i = 0; i < e->n_media; i++)
        e->n_pictures += !golden_row_i(e->media, i)[IS_VIDEO];
    return CHECK(e->media->cols == N_COLUMNS && e->n_media <= MAX_MEDIA);
}

/* Largest difference of a row, in units of the expected row's largest magnitude. */
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

/* Rows `at` of got [.., cols] against all rows of want. */
static void check_rows(const float *got, const struct golden_entry *at,
                       const struct golden_entry *want, const char *what)
{
    for (int i = 0; i < want->rows; i++) {
        const float *row = got + (size_t)at->i[i] * (size_t)want->cols;
        double d = row_error(row, golden_row(want, i), want->cols);
        CHECK_MSG(d <= tolerance, "%s: row %d of %s differs by %.2g", what, at->i[i], want->name,
                  d);
    }
}

/* ---- pixels ---- */

/* Slopes and noise, as make_vision_golden.py makes them. */
static uint8_t pixel(uint32_t seed, uint32_t t, uint32_t y, uint32_t x, uint32_t c)
{
    uint32_t h = t * 7919 + y * 104729 + x * 1299709 + c * 15485863 + seed * 32452843;
    h = (h ^ (h >> 15)) * 2246822519u;
    h ^= h >> 13;
    return (uint8_t)(((3 * y + 2 * x + 16 * t + 50 * c + 9 * seed) & 127) + (h >> 25));
}

struct film {
    struct pv_frame *frames;
    uint8_t *rgb;
    int n;
    double fps;
};

static void film_close(struct film *f)
{
    free(f->frames);
    free(f->rgb);
}

static struct film film_of(const int32_t *m)
{
    int n = m[FRAMES], h = m[HEIGHT], w = m[WIDTH];
    size_t size = (size_t)h * (size_t)w * 3;
    struct film f = { .frames = calloc((size_t)n, sizeof *f.frames),
                      .rgb = malloc(size * (size_t)n),
                      .n = n,
                      .fps = m[MILLI_FPS] / 1000.0 };
    uint8_t *p = f.rgb;
    for (int t = 0; t < n; t++) {
        f.frames[t] = (struct pv_frame){ .index = t, .width = w, .height = h, .rgb = p };
        f.frames[t].time = f.fps > 0 ? t / f.fps : 0;
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                for (int c = 0; c < 3; c++)
                    *p++ = pixel((uint32_t)m[SEED], (uint32_t)t, (uint32_t)y, (uint32_t)x,
                                 (uint32_t)c);
    }
    return f;
}

static struct pv_video_params video_params(enum pv_time_rule rule)
{
    struct pv_video_params p = pv_video_defaults();
    p.min_pixels = MIN_PIXELS;
    p.max_pixels = MAX_PIXELS;
    p.time_rule = rule;
    return p;
}

/* Medium i of a case as the engine takes it in. */
static bool see(struct loaded_media *s, const struct vision_config *c, const struct expected *e,
                int i, enum pv_time_rule rule)
{
    static const struct pv_limits limits = { .frames = 64,
                                             .frame_pixels = 1 << 20,
                                             .video_seconds = 3600 };
    struct load_bounds b = { .limits = &limits, .max_rows = MAX_ROWS, .max_bytes = 1 << 24 };
    struct film f = film_of(golden_row_i(e->media, i));
    struct pv_video_params p = video_params(rule);
    struct pv_error err = { 0 };
    enum pv_status st = media_load_frames(s, c, f.frames, (size_t)f.n, f.fps, &p, &b, &err);
    if (!st) {
        st = media_load_finish(s, c, e->n_pictures == 1, &err);
        if (st)
            loaded_media_clear(s);
    }
    film_close(&f);
    return CHECK_MSG(!st, "%s: medium %d: %s", e->name, i, err.text);
}

/* ---- patches ---- */

/* All patches of a medium [n_slices * h * w, row_size]; the caller frees. */
static float *patches_of(const struct vision_config *c, const struct media *m)
{
    struct patch_plan plan = { .patch = c->patch, .temporal = c->temporal, .merge = c->merge };
    memcpy(plan.mean, c->mean, sizeof plan.mean);
    memcpy(plan.std, c->std, sizeof plan.std);
    size_t slice = (size_t)m->h * (size_t)m->w * (size_t)patch_row_size(&plan);
    float *out = malloc(sizeof(float) * slice * (size_t)m->n_slices);
    for (int s = 0; s < m->n_slices; s++) {
        const uint8_t *frames[2] = { media_view(m, s * c->temporal),
                                     media_view(m, s * c->temporal + c->temporal - 1) };
        patches_make(out + slice * (size_t)s, &plan, frames, m->height, m->width);
    }
    return out;
}

static void check_patches(const struct vision_config *c, const struct expected *e, int i)
{
    struct loaded_media s = { 0 };
    const int32_t *row = golden_row_i(e->media, i);
    const struct golden_entry *mix = find(e, true, "mix.%d", i);
    const struct golden_entry *want = find(e, false, "patches.%d", i);
    int size = 3 * c->temporal * c->patch * c->patch;
    if (!see(&s, c, e, i, library_rule))
        return;
    int n = s.m.n_slices * s.m.h * s.m.w;
    CHECK_EQ(s.m.n_rows, row[N_TOKENS]);
    if (CHECK_EQ(n, row[N_PATCHES])) {
        float *patches = patches_of(c, &s.m), *mixed = malloc(sizeof(float) * (size_t)n);
        for (int r = 0; r < n; r++) {
            double sum = 0;
            for (int k = 0; k < size; k++)
                sum += (double)patches[(size_t)r * (size_t)size + (size_t)k] *
                       (float)(k * 37 % 101 - 50) / 50;
            mixed[r] = (float)sum;
        }
        double d = row_error(mixed, mix->f, n);
        CHECK_MSG(d <= tolerance, "%s: patches of medium %d differ by %.2g", e->name, i, d);
        if (want)
            check_rows(patches, find(e, true, "patch_rows.%d", i), want, e->name);
        free(mixed);
        free(patches);
    }
    loaded_media_clear(&s);
}

TEST(patches_equal_transformers)
{
    for (int k = 0; k < N_CASES; k++) {
        struct expected e;
        struct model_file *mf = NULL;
        struct pv_error err = { 0 };
        if (!expected_open(&e, k) ||
            !CHECK_MSG(!model_file_open(&mf, hf_path(e.model), NULL, 0, families, &err), "%s",
                       err.text))
            return;
        for (int i = 0; i < e.n_media; i++)
            check_patches(model_file_vision(mf), &e, i);
        model_file_close(&mf);
        golden_close(&e.g);
    }
}

/* ---- tower and rows ---- */

/* A decoder and a tower over one file. */
struct bench {
    struct rig r;
    struct vision *v;
    struct encoder *enc;
};

static void bench_close(struct bench *b)
{
    encoder_close(&b->enc);
    vision_close(&b->v);
    rig_close(&b->r);
}

static bool bench_open(struct bench *b, const char *path, int level)
{
    struct rig_shape shape = {
        .level = level, .threads = 2, .kv = DTYPE_F32, .max_rows = MAX_ROWS, .context = MAX_ROWS
    };
    struct pv_error err = { 0 };
    *b = (struct bench){ 0 };
    if (!rig_open(&b->r, path, shape))
        return false;
    if (CHECK_MSG(!vision_open(&b->v, b->r.mf, b->r.dev, &err) &&
                      !encoder_open(&b->enc, b->v, &err),
                  "%s", err.text))
        return true;
    bench_close(b);
    return false;
}

/* The states after the last layer, which the call of vision_encode has left in its scratch, in the
 * order of the patches; the caller frees. */
static float *tower_states(const struct vision *v, const struct vision_state *st, int n)
{
    const struct vision_config *c = vision_config(v);
    int unit = c->merge * c->merge;
    size_t hidden = (size_t)c->hidden;
    float *out = malloc(sizeof(float) * (size_t)n * hidden);
    for (int i = 0; i < n; i++) {
        int from = c->family == &family_qwen2_5_vl ? st->inverse[i / unit] * unit + i % unit : i;
        memcpy(out + (size_t)i * hidden, st->x + (size_t)from * hidden, sizeof(float) * hidden);
    }
    return out;
}

static void check_tower(const struct bench *b, const struct media *m, const struct expected *e,
                        int i, const char *what)
{
    const struct vision_config *c = vision_config(b->v);
    int n = m->n_slices * m->h * m->w;
    int tokens = m->n_slices * vision_slice_tokens(b->v, m->h, m->w);
    float *patches = patches_of(c, m);
    float *out = malloc(sizeof(float) * (size_t)tokens * (size_t)c->out);
    struct vision_state *st = NULL;
    struct pv_error err = { 0 };
    if (CHECK_MSG(!vision_state_open(&st, b->v, n, &err) &&
                      !vision_encode(b->v, st, patches, m->n_slices, m->h, m->w, out, &err),
                  "%s", err.text)) {
        float *states = tower_states(b->v, st, n);
        check_rows(states, find(e, true, "tower_rows.%d", i), find(e, true, "tower.%d", i), what);
        free(states);
    }
    vision_state_close(&st);
    free(out);
    free(patches);
}

/* All rows of a medium [n_rows, hidden]; NULL and a failed check: none. */
static float *rows_of(const struct bench *b, const struct media *m, int key)
{
    float *out = malloc(sizeof(float) * (size_t)m->n_rows * (size_t)vision_config(b->v)->out);
    struct pv_error err = { 0 };
    if (CHECK_MSG(!encoder_reserve(b->enc, m, &err) &&
                      !encoder_rows(b->enc, m, key, 0, m->n_rows, out, &err),
                  "%s", err.text))
        return out;
    free(out);
    return NULL;
}

/* Every case on every level, weights in F32. */
static void run_everywhere(void (*check)(struct bench *, const struct expected *, const char *))
{
    for (int k = 0; k < N_CASES * N_CPU_LEVELS; k++) {
        struct expected e;
        struct bench b;
        char what[96];
        int level = k / N_CASES;
        if (!cpu_level_here(level) || !expected_open(&e, k % N_CASES))
            continue;
        snprintf(what, sizeof what, "%s %s", e.name, cpu_levels[level].name);
        if (bench_open(&b, gguf_path_of(e.model), level)) {
            check(&b, &e, what);
            bench_close(&b);
        }
        golden_close(&e.g);
    }
}

static void check_encoding(struct bench *b, const struct expected *e, const char *what)
{
    for (int i = 0; i < e->n_media; i++) {
        struct loaded_media s = { 0 };
        float *rows;
        if (!see(&s, vision_config(b->v), e, i, library_rule))
            continue;
        check_tower(b, &s.m, e, i, what);
        rows = rows_of(b, &s.m, i + 1);
        if (rows)
            check_rows(rows, find(e, true, "token_rows.%d", i), find(e, true, "tokens.%d", i),
                       what);
        free(rows);
        loaded_media_clear(&s);
    }
}

TEST(tower_and_tokens_equal_transformers)
{
    run_everywhere(check_encoding);
}

/* ---- positions ---- */

/* The medium that row i of a prompt begins, if it is the first row of one: the next of its kind.
 * `next`: per kind, where to look for it. -1: a token. */
static int medium_at(const struct expected *e, const struct vision_config *c, int32_t id,
                     int next[2])
{
    bool video = id == c->video_token;
    if (id != c->image_token && id != c->video_token)
        return -1;
    for (int i = next[video]; i < e->n_media; i++)
        if (golden_row_i(e->media, i)[IS_VIDEO] == video) {
            next[video] = i + 1;
            return i;
        }
    return -1;
}

/* The prompt `prefix` laid out: ids with the media's rows as -1 - medium, and their positions. */
struct layout {
    int n;
    int32_t ids[MAX_ROWS], pos[MAX_ROWS][3];
    int first[MAX_MEDIA]; /* row of each medium */
};

static bool lay_out(struct layout *l, const struct expected *e, const struct vision_config *c,
                    const struct loaded_media *s, const char *prefix)
{
    const struct golden_entry *prompt = find(e, true, "%sprompt", prefix);
    int next[2] = { 0, 0 };
    int32_t at = 0;
    l->n = 0;
    if (!CHECK(prompt->cols <= MAX_ROWS))
        return false;
    while (l->n < prompt->cols) {
        int32_t id = prompt->i[l->n];
        int i = medium_at(e, c, id, next);
        if (i < 0) {
            l->ids[l->n] = id;
            l->pos[l->n][0] = l->pos[l->n][1] = l->pos[l->n][2] = at++;
            l->n++;
            continue;
        }
        l->first[i] = l->n;
        if (!CHECK(l->n + s[i].m.n_rows <= prompt->cols))
            return false;
        at = media_positions(&s[i].m, at, 0, s[i].m.n_rows, l->pos + l->n);
        for (int r = 0; r < s[i].m.n_rows; r++, l->n++) {
            CHECK_EQ(prompt->i[l->n], id);
            l->ids[l->n] = -1 - i;
        }
    }
    return true;
}

/* Whether pos [n] is what the prompt `prefix` has by a rule: 0, 1, 2, ... without one. */
static void check_positions(const int32_t (*pos)[3], int n, const struct expected *e,
                            const char *prefix, enum pv_time_rule rule)
{
    const struct golden_entry *want =
        find(e, e->model == QWEN, "%spos.%s", prefix, rule_names[rule]);
    int wrong = -1;
    CHECK(!want || want->cols == n);
    for (int i = n - 1; i >= 0; i--)
        for (int axis = 0; axis < 3; axis++)
            if (pos[i][axis] != (want ? golden_row_i(want, axis)[i] : i))
                wrong = i;
    CHECK_MSG(wrong < 0, "%s: row %d of %sprompt is elsewhere by the rule \"%s\"", e->name, wrong,
              prefix, rule_names[rule]);
}

static bool see_all(struct loaded_media *s, const struct vision_config *c, const struct expected *e,
                    enum pv_time_rule rule)
{
    memset(s, 0, sizeof *s * MAX_MEDIA);
    for (int i = 0; i < e->n_media; i++)
        if (!see(&s[i], c, e, i, rule))
            return false;
    return true;
}

static void clear_all(struct loaded_media *s)
{
    for (int i = 0; i < MAX_MEDIA; i++)
        loaded_media_clear(&s[i]);
}

TEST(positions_equal_transformers)
{
    static struct layout l;
    for (int k = 0; k < N_CASES; k++) {
        struct expected e;
        struct model_file *mf = NULL;
        if (!expected_open(&e, k) ||
            !CHECK(!model_file_open(&mf, hf_path(e.model), NULL, 0, families, NULL)))
            return;
        const struct vision_config *c = model_file_vision(mf);
        for (int rule = PV_TIME_SECONDS; rule <= PV_TIME_SECONDS_COMPACT; rule++) {
            struct loaded_media s[MAX_MEDIA];
            if (see_all(s, c, &e, (enum pv_time_rule)rule)) {
                if (lay_out(&l, &e, c, s, ""))
                    check_positions((const int32_t(*)[3])l.pos, l.n, &e, "",
                                    (enum pv_time_rule)rule);
                if (find(&e, false, "turn2.prompt") && lay_out(&l, &e, c, s, "turn2."))
                    check_positions((const int32_t(*)[3])l.pos, l.n, &e, "turn2.",
                                    (enum pv_time_rule)rule);
            }
            clear_all(s);
        }
        model_file_close(&mf);
        golden_close(&e.g);
    }
}

/* ---- logits ---- */

static void check_prompt(struct bench *b, const struct expected *e, const char *prefix,
                         enum pv_time_rule rule, const char *what)
{
    static struct layout l;
    const struct golden_entry *rows = find(e, true, "%slogit_rows", prefix);
    const struct golden_entry *want = find(e, true, "%slogits", prefix);
    const struct vision_config *c = vision_config(b->v);
    size_t hidden = (size_t)c->out, vocab = (size_t)b->r.c->vocab;
    float *embeds = calloc(MAX_ROWS * hidden, sizeof(float));
    float *logits = malloc(sizeof(float) * vocab * (size_t)rows->cols);
    struct loaded_media s[MAX_MEDIA];
    struct pv_error err = { 0 };
    if (!see_all(s, c, e, rule) || !lay_out(&l, e, c, s, prefix) || !CHECK_EQ(want->cols, vocab))
        goto done;
    for (int i = 0; i < e->n_media; i++) {
        float *mine = rows_of(b, &s[i].m, i + 1);
        if (!mine)
            goto done;
        memcpy(embeds + (size_t)l.first[i] * hidden, mine,
               sizeof(float) * (size_t)s[i].m.n_rows * hidden);
        free(mine);
    }
    struct step_seq seq = { .kv = &b->r.kv, .n = l.n };
    struct step step = { .n = l.n,
                         .ids = l.ids,
                         .embeds = embeds,
                         .pos = (const int32_t(*)[3])l.pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = rows->cols,
                         .logit_rows = rows->i,
                         .logits = logits };
    if (CHECK_MSG(!decoder_step(b->r.dec, b->r.st, &step, &err), "%s", err.text))
        for (int i = 0; i < rows->cols; i++) {
            double d = row_error(logits + (size_t)i * vocab, golden_row(want, i), want->cols);
            CHECK_MSG(d <= tolerance, "%s: logits of row %d of %sprompt differ by %.2g", what,
                      rows->i[i], prefix, d);
        }
done:
    clear_all(s);
    free(embeds);
    free(logits);
}

static void check_logits(struct bench *b, const struct expected *e, const char *what)
{
    check_prompt(b, e, "", library_rule, what);
    if (find(e, false, "seconds.prompt"))
        check_prompt(b, e, "seconds.", PV_TIME_SECONDS, what);
    if (find(e, false, "turn2.prompt"))
        check_prompt(b, e, "turn2.", library_rule, what);
}

TEST(logits_equal_transformers)
{
    run_everywhere(check_logits);
}

/* ---- the public API ---- */

/* The timeline's rows up to the answer must be the prompt `prefix`, at its positions. */
static void check_timeline(const struct pv_session *s, const struct vision_config *c,
                           const struct expected *e, const char *prefix, enum pv_time_rule rule,
                           bool again)
{
    const struct golden_entry *prompt = find(e, true, "%sprompt", prefix);
    int wrong = -1, n = s->seq.answer0;
    if (!CHECK_MSG(n == prompt->cols, "%s: %sprompt has %d rows, not %d", e->name, prefix, n,
                   prompt->cols))
        return;
    for (int i = n - 1; i >= 0; i--) {
        int32_t id = prompt->i[i];
        bool medium = id == c->image_token || id == c->video_token;
        if (medium ? s->seq.line.ids[i] >= 0 : s->seq.line.ids[i] != id)
            wrong = i;
    }
    CHECK_MSG(wrong < 0, "%s: row %d of %sprompt is another token", e->name, wrong, prefix);
    check_positions((const int32_t(*)[3])s->seq.line.pos, n, e, again ? "" : prefix, rule);
}

static void check_answer(const struct pv_session *s, const struct expected *e, const char *prefix,
                         const char *what)
{
    const struct golden_entry *want = find(e, true, "%sgreedy", prefix);
    size_t n = 0;
    const int32_t *ids = pv_session_answer(s, &n);
    if (!CHECK_EQ(n, N_GREEDY) || !CHECK_EQ(want->cols, N_GREEDY))
        return;
    for (int i = 0; i < N_GREEDY; i++)
        if (!CHECK_MSG(ids[i] == want->i[i], "%s: token %d of %sgreedy is %d, not %d", what, i,
                       prefix, (int)ids[i], (int)want->i[i]))
            return; /* what follows a wrong token means nothing */
}

static bool ask(struct pv_session *s, const struct expected *e, const char *question)
{
    const struct golden_entry *bytes = find(e, true, "%s", question);
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_error err = { 0 };
    char text[256] = "";
    for (int i = 0; i < bytes->cols && i < 255; i++)
        text[i] = (char)bytes->i[i];
    p.max_new_tokens = N_GREEDY;
    return CHECK_MSG(!pv_add_text(s, "user", text, &err) && !pv_generate(s, &p, NULL, NULL, &err),
                     "%s: %s", e->name, err.text);
}

static bool add_media(struct pv_session *s, const struct expected *e, enum pv_time_rule rule)
{
    struct pv_video_params p = video_params(rule);
    for (int i = 0; i < e->n_media; i++) {
        struct film f = film_of(golden_row_i(e->media, i));
        struct pv_error err = { 0 };
        enum pv_status st = pv_add_frames(s, f.frames, (size_t)f.n, f.fps, &p, &err);
        film_close(&f);
        if (!CHECK_MSG(!st, "%s: %s", e->name, err.text))
            return false;
    }
    return true;
}

/* A second question: nothing of the first is run or encoded again. */
static void check_second(struct pv_session *s, const struct vision_config *c,
                         const struct expected *e, const char *what)
{
    struct pv_stats stats = { .size = sizeof stats };
    int before = s->seq.line.n;
    if (!ask(s, e, "question2"))
        return;
    pv_session_stats(s, &stats);
    check_timeline(s, c, e, "turn2.", library_rule, false);
    check_answer(s, e, "turn2.", what);
    CHECK(stats.reused_tokens >= find(e, true, "prompt")->cols + N_GREEDY - 1 &&
          stats.reused_tokens < before + 1);
    CHECK_EQ(stats.vision_s, 0);
}

static void check_session(pv_model *m, const struct expected *e, int chunk, const char *what)
{
    const struct vision_config *c = model_file_vision(m->file);
    struct pv_session_params p = pv_session_defaults();
    struct pv_session *s = NULL;
    struct pv_error err = { 0 };
    p.kv_type = PV_KV_F32;
    p.max_context = MAX_ROWS;
    p.chunk = chunk;
    if (!CHECK_MSG(!pv_session_open(&s, m, &p, &err), "%s", err.text))
        return;
    if (add_media(s, e, library_rule) && ask(s, e, "question")) {
        check_timeline(s, c, e, "", library_rule, false);
        check_answer(s, e, "", what);
        if (find(e, false, "turn2.prompt"))
            check_second(s, c, e, what);
    }
    /* By another rule the same pixels are another medium. */
    pv_session_reset(s);
    if (find(e, false, "seconds.prompt") && add_media(s, e, PV_TIME_AUTO) &&
        ask(s, e, "question")) {
        check_timeline(s, c, e, "seconds.", PV_TIME_SECONDS, true);
        check_answer(s, e, "seconds.", what);
    }
    pv_session_close(&s);
}

static void check_model(const char *path, int model, uint64_t mask, int chunk, const char *how)
{
    struct pv_model_params p = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL;
    p.path = path;
    p.threads = 2;
    p.cpu_mask = mask;
    if (!CHECK_MSG(!pv_model_open(&m, &p, &err), "%s", err.text))
        return;
    CHECK(pv_model_has_vision(m));
    for (int k = 0; k < N_CASES; k++) {
        struct expected e;
        char what[96];
        if (cases[k].model != model || !expected_open(&e, k))
            continue;
        snprintf(what, sizeof what, "%s %s", e.name, how);
        check_session(m, &e, chunk, what);
        golden_close(&e.g);
    }
    pv_model_close(&m);
}

TEST(answers_equal_transformers)
{
    for (int m = 0; m < N_MODELS; m++) {
        check_model(gguf_path_of(m), m, UINT64_MAX, 0, "F32");
        check_model(gguf_path_of(m), m, UINT64_MAX, 7, "F32 in steps of 7 rows");
        /* Stored in 16 bits: the plain level rounds no activations. */
        check_model(hf_path(m), m, 0, 0, "as stored");
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
