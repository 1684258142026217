/* Models with towers and what transformers makes of pictures and videos with them (made by
 * tools/golden/make_vision_golden.py): the list of them, their pixels, their expected numbers, and
 * what the tests of them share. */
#ifndef PV_TESTS_GOLDEN_VISION_CASES_H
#define PV_TESTS_GOLDEN_VISION_CASES_H

#include "engine/media_loader.h"
#include "family/families.h"
#include "golden/golden.h"
#include "scratch.h"
#include "test.h"

#include <math.h>
#include <stdarg.h>

enum { MAX_MEDIA = 4, MAX_ROWS = 320, N_GREEDY = 16 };

/* Columns of the entry "media". */
enum { IS_VIDEO, SEED, FRAMES, HEIGHT, WIDTH, MILLI_FPS, N_PATCHES, N_TOKENS, N_COLUMNS };

static const double tolerance = 1e-4; /* of the largest magnitude of a row */

static const struct golden_model {
    const char *name;
    int64_t min_pixels, max_pixels; /* asked for; 0: as its files have it */
    enum { COUNTED, BY_CLOCK, BLOCKS } positions;
} models[] = {
    { "llava_onevision", 784, 12845056, COUNTED },
    { "qwen2_5_vl_video", 784, 12845056, BY_CLOCK },
    { "qwen2_vl_video", 784, 12845056, BY_CLOCK },
    { "qwen3_vl_video", 0, 0, BLOCKS },
};

enum { LLAVA, QWEN25, QWEN2, QWEN3, N_MODELS };

static const struct {
    int model;
    const char *name;
} cases[] = {
    { LLAVA, "video" },         { LLAVA, "resized" },        { LLAVA, "wide" },
    { LLAVA, "large" },         { LLAVA, "pictures" },       { LLAVA, "mixed" },
    { LLAVA, "turns" },         { QWEN25, "video" },         { QWEN25, "image" },
    { QWEN25, "resized" },      { QWEN25, "resized_video" }, { QWEN25, "mixed" },
    { QWEN25, "slow" },         { QWEN25, "turns" },         { QWEN2, "video" },
    { QWEN2, "image" },         { QWEN2, "resized" },        { QWEN2, "resized_video" },
    { QWEN2, "mixed" },         { QWEN2, "slow" },           { QWEN2, "turns" },
    { QWEN3, "video" },         { QWEN3, "image" },          { QWEN3, "resized" },
    { QWEN3, "resized_video" }, { QWEN3, "budget" },         { QWEN3, "mixed" },
    { QWEN3, "turns" },
};

enum { N_CASES = sizeof cases / sizeof cases[0] };

static const char *const rule_names[] = { [PV_TIME_SECONDS] = "seconds",
                                          [PV_TIME_WHOLE] = "whole",
                                          [PV_TIME_COMPACT] = "compact",
                                          [PV_TIME_SECONDS_COMPACT] = "seconds_compact" };

/* What transformers itself does. */
static const enum pv_time_rule library_rule = PV_TIME_SECONDS_COMPACT;

static inline const char *hf_path(int m)
{
    static char path[64];
    snprintf(path, sizeof path, "tests/golden/%s", models[m].name);
    return path;
}

/* The model as a GGUF file in F32, the tower beside it or in it; converted once. */
static inline const char *gguf_path_of(int m)
{
    static char path[N_MODELS][96];
    const struct pv_convert_params p = pv_convert_defaults(); /* F32 */
    struct pv_error err = { 0 };
    if (path[m][0])
        return path[m];
    snprintf(path[m], sizeof path[m], "%s/%s.gguf", scratch_dir(), models[m].name);
    CHECK_MSG(!pv_convert(hf_path(m), path[m], &p, &err), "%s", err.text);
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
static inline const struct golden_entry *find(const struct expected *e, bool needed,
                                              const char *fmt, ...)
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

static inline bool expected_open(struct expected *e, int k)
{
    char path[96];
    *e = (struct expected){ .model = cases[k].model };
    snprintf(e->name, sizeof e->name, "%s %s", models[e->model].name, cases[k].name);
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
static inline double row_error(const float *got, const float *want, int n)
{
    double most = 0, size = 0;
    for (int i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        most = d > most || d != d ? d : most;
        size = larger(size, fabs((double)want[i]));
    }
    return most / size;
}

/* Rows `at` of got [.., cols] against all rows of want, each of `parts` vectors. */
static inline void check_rows(const float *got, const struct golden_entry *at,
                              const struct golden_entry *want, int parts, const char *what)
{
    int n = want->cols / parts;
    for (int i = 0; i < want->rows * parts; i++) {
        int row = at->i[i / parts], part = i % parts;
        double d = row_error(got + (size_t)row * (size_t)want->cols + (size_t)part * (size_t)n,
                             golden_row(want, i / parts) + (size_t)part * (size_t)n, n);
        CHECK_MSG(d <= tolerance, "%s: part %d of row %d of %s differs by %.2g", what, part, row,
                  want->name, d);
    }
}

/* ---- pixels ---- */

/* Slopes and noise, as make_vision_golden.py makes them. */
static inline uint8_t pixel(uint32_t seed, uint32_t t, uint32_t y, uint32_t x, uint32_t c)
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

static inline void film_close(struct film *f)
{
    free(f->frames);
    free(f->rgb);
}

static inline struct film film_of(const int32_t *m)
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

static inline struct pv_video_params video_params(int model, enum pv_time_rule rule)
{
    struct pv_video_params p = pv_video_defaults();
    p.min_pixels = models[model].min_pixels;
    p.max_pixels = models[model].max_pixels;
    p.time_rule = rule;
    return p;
}

/* Medium i of a case as the engine takes it in. */
static inline bool see(struct loaded_media *s, const struct vision_config *c,
                       const struct expected *e, int i, enum pv_time_rule rule)
{
    static const struct pv_limits limits = { .frames = 64,
                                             .frame_pixels = 1 << 20,
                                             .video_seconds = 3600 };
    struct load_bounds b = { .limits = &limits, .max_rows = MAX_ROWS, .max_bytes = 1 << 24 };
    struct film f = film_of(golden_row_i(e->media, i));
    struct pv_video_params p = video_params(e->model, rule);
    struct pv_error err = { 0 };
    enum pv_status st = media_load_frames(s, c, f.frames, (size_t)f.n, f.fps, &p, &b, &err);
    if (!st) {
        struct media m;
        st = media_load_finish(&m, s, c, e->n_pictures == 1, &err);
        if (st) {
            loaded_media_clear(s);
        } else {
            media_clear(&s->m);
            s->m = m;
        }
    }
    film_close(&f);
    return CHECK_MSG(!st, "%s: media item %d: %s", e->name, i, err.text);
}

/* ---- positions ---- */

/* Whether pos [n] is what the prompt `prefix` has by a rule: 0, 1, 2, ... without one. */
static inline void check_positions(const int32_t (*pos)[3], int n, const struct expected *e,
                                   const char *prefix, enum pv_time_rule rule)
{
    bool one_rule = models[e->model].positions == BLOCKS;
    const struct golden_entry *want = find(e, models[e->model].positions != COUNTED, "%spos.%s",
                                           prefix, rule_names[one_rule ? library_rule : rule]);
    int wrong = -1;
    CHECK(!want || want->cols == n);
    for (int i = n - 1; i >= 0; i--)
        for (int axis = 0; axis < 3; axis++)
            if (pos[i][axis] != (want ? golden_row_i(want, axis)[i] : i))
                wrong = i;
    CHECK_MSG(wrong < 0, "%s: row %d of %sprompt is elsewhere by the rule \"%s\"", e->name, wrong,
              prefix, rule_names[rule]);
}

#endif
