/* A model that hears against PyTorch (tests/golden/salmonn2_plus, made by
 * tools/golden/sound_golden.py): frames of the encoder and tokens of the Q-Former on every CPU
 * level, the order of sound and pictures in a prompt, positions in both ways, and whole answers. */
#include "audio_encoder/audio_encoder_parts.h"
#include "engine/session.h"
#include "golden/golden.h"
#include "rig.h"
#include "scratch.h"

enum { AUDIO_PAD = 154, MAX_ROWS = 128, N_GREEDY = 12 };

static const double tolerance = 1e-4; /* of the largest magnitude of a row */
static const char dir[] = "tests/golden/salmonn2_plus";

static struct golden *expected(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/sound.vec", dir);
    struct golden *g = golden_open(path);
    if (!g) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    return g;
}

/* An entry that must be there. */
static const struct golden_entry *entry(const struct golden *g, const char *a, const char *b)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%s", a, b);
    const struct golden_entry *e = golden_find(g, name);
    if (!e) {
        fprintf(stderr, "sound.vec has no entry %s\n", name);
        exit(1);
    }
    return e;
}

/* The model in F32, as `convert` makes it. */
static const char *model_path(void)
{
    static char path[256];
    const struct pv_convert_params p = pv_convert_defaults();
    struct pv_error err = { 0 };
    if (!path[0]) {
        snprintf(path, sizeof path, "%s/hears.gguf", scratch_dir());
        CHECK_MSG(!pv_convert(dir, path, &p, &err), "%s", err.text);
    }
    return path;
}

/* As in sound_golden.py. */
static uint32_t hashed(int a, int b, int c, int d)
{
    uint32_t h = 7919u * (uint32_t)a + 104729u * (uint32_t)b + 1299709u * (uint32_t)c +
                 15485863u * (uint32_t)d;
    h = (h ^ (h >> 15)) * 2246822519u;
    return h ^ (h >> 13);
}

static void make_features(float *mel, const struct audio_config *c, int chunk)
{
    int frames = audio_chunk_frames(c);
    for (int i = 0; i < c->mel; i++)
        for (int t = 0; t < frames; t++)
            mel[i * frames + t] = (float)(hashed(i, t, chunk, 0) % 2001) / 1000 - 1;
}

/* ---- the encoder ---- */

static void check_chunk(const struct audio_encoder *h, struct audio_encoder_state *st,
                        const struct golden *g, int chunk, const char *level)
{
    const struct audio_config *c = audio_encoder_config(h);
    const struct golden_entry *picked = golden_find(g, "picked");
    const struct golden_entry *frames = entry(g, "frames", chunk ? "1" : "0");
    const struct golden_entry *tokens = entry(g, "tokens", chunk ? "1" : "0");
    int n = audio_chunk_tokens(c);
    float *mel = malloc(sizeof *mel * (size_t)(c->mel * audio_chunk_frames(c)));
    float *out = malloc(sizeof *out * (size_t)(n * h->out));
    struct pv_error err = { 0 };
    make_features(mel, c, chunk);
    if (CHECK_MSG(!audio_encoder_encode(h, st, mel, out, &err), "%s", err.text) &&
        CHECK_EQ(tokens->rows, n) && CHECK_EQ(tokens->cols, h->out)) {
        for (int i = 0; i < picked->cols; i++) {
            double d = golden_error(st->first + (1 + picked->i[i]) * c->hidden,
                                    golden_row(frames, i), c->hidden);
            CHECK_MSG(d <= tolerance, "%s: frame %d of chunk %d differs by %.2g", level,
                      (int)picked->i[i], chunk, d);
        }
        for (int i = 0; i < n; i++) {
            double d = golden_error(out + i * h->out, golden_row(tokens, i), h->out);
            CHECK_MSG(d <= tolerance, "%s: token %d of chunk %d differs by %.2g", level, i, chunk,
                      d);
        }
    }
    free(mel);
    free(out);
}

static void check_level(const char *path, int level, int threads)
{
    struct golden *g = expected();
    struct model_file *mf = NULL;
    struct device *dev = NULL;
    struct audio_encoder *h = NULL;
    struct audio_encoder_state *st = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = model_file_open(&mf, path, NULL, 0, families, &err);
    if (!s)
        s = device_cpu_open(&dev, threads, cpu_levels[level].flags, &err);
    if (!s)
        s = audio_encoder_open(&h, mf, dev, &err);
    if (!s)
        s = audio_encoder_state_open(&st, h, &err);
    if (CHECK_MSG(!s, "%s", err.text))
        for (int chunk = 0; chunk < 2; chunk++)
            check_chunk(h, st, g, chunk, cpu_levels[level].name);
    audio_encoder_state_close(&st);
    audio_encoder_close(&h);
    device_close(&dev);
    model_file_close(&mf);
    golden_close(&g);
}

TEST(tokens_of_sound_equal_pytorch)
{
    for (int i = 0; i < N_CPU_LEVELS; i++)
        if (cpu_level_here(i))
            check_level(model_path(), i, 1 + i % 3);
}

/* ---- prompts ---- */

enum { STEPS, HEIGHT, WIDTH, MILLI_FPS, CHUNKS };

/* The media item of a case, pixels and features included. */
static bool make_media(struct media *m, const struct vision_config *c, const int32_t *size,
                       enum pv_time_rule rule)
{
    int64_t area = (int64_t)size[HEIGHT] * size[WIDTH];
    struct pv_video_params p = { .min_pixels = area, .max_pixels = area, .time_rule = rule };
    struct pv_error err = { 0 };
    enum pv_status s = size[STEPS]
                           ? media_plan(m, c, &p, size[HEIGHT], size[WIDTH], 2 * size[STEPS],
                                        size[MILLI_FPS] / 1000.0, false, &err)
                           : media_plan_sound(m, c, &p, size[CHUNKS], &err);
    if (!s && size[STEPS])
        s = media_add_sound(m, c, size[CHUNKS], &err);
    if (!s)
        s = media_reserve(m, &err);
    if (!CHECK_MSG(!s, "%s", err.text))
        return false;
    for (int t = 0; t < m->n_views; t++)
        for (int y = 0; y < m->height; y++)
            for (int x = 0; x < m->width * 3; x++)
                media_view(m, t)[y * m->width * 3 + x] =
                    (uint8_t)(hashed(t, y, x / 3, x % 3) >> 24);
    for (int i = 0; i < m->sound.n_chunks; i++)
        make_features(m->sound.mel + (size_t)i * (size_t)m->sound.chunk_size, &c->audio, i);
    media_seal(m);
    return true;
}

/* The prompt with the item's key in place of its pads; each pad must be of the right kind. */
static void fill_prompt(int32_t *ids, const struct golden_entry *want, const struct media *m,
                        int key, const struct vision_config *c, const char *name)
{
    int place = 0;
    for (int i = 0; i < want->cols; i++) {
        bool pad = want->i[i] == c->video_token || want->i[i] == c->audio.token;
        ids[i] = pad ? -key : want->i[i];
        if (!pad)
            continue;
        int row = media_row(m, place, NULL);
        bool sound = row >= media_picture_rows(m);
        CHECK_MSG(sound == (want->i[i] == c->audio.token), "%s: row %d is of the other kind", name,
                  place);
        CHECK_EQ(media_place(m, row), place);
        place++;
    }
    CHECK_EQ(place, m->n_rows);
}

static void check_case(pv_model *model, const struct golden *g, const char *name, const char *rule,
                       enum pv_time_rule time_rule)
{
    const struct vision_config *c = vision_config(model->vision);
    const struct golden_entry *want = entry(g, name, "ids");
    struct pv_session_params sp = pv_session_defaults();
    struct pv_gen_params p = pv_gen_defaults();
    struct pv_session *s = NULL;
    struct media m = { 0 };
    struct pv_error err = { 0 };
    int32_t ids[MAX_ROWS];
    char full[32];
    size_t n = 0;
    sp.max_context = 256;
    if (!make_media(&m, c, entry(g, name, "size")->i, time_rule) ||
        !CHECK_MSG(!pv_session_open(&s, model, &sp, &err), "%s", err.text))
        return;
    fill_prompt(ids, want, &m, 1, c, name);
    CHECK(!timeline_reserve(&s->seq.line, 1, media_stretches(&m), &err));
    CHECK(!encoder_reserve(s->engine->encoder, &m, &err));
    timeline_adopt(&s->seq.line, &m);
    CHECK_MSG(!timeline_append(&s->seq.line, ids, (size_t)want->cols, &err), "%s", err.text);
    snprintf(full, sizeof full, "%s.%s", name, rule);
    const struct golden_entry *pos = entry(g, full, "pos"), *greedy = entry(g, full, "greedy");
    for (int i = 0; i < want->cols; i++)
        for (int k = 0; k < 3; k++)
            CHECK_MSG(s->seq.line.pos[i][k] == golden_row_i(pos, k)[i],
                      "%s: position %d of row %d is %d, not %d", full, k, i,
                      (int)s->seq.line.pos[i][k], (int)golden_row_i(pos, k)[i]);
    p.max_new_tokens = N_GREEDY;
    p.ignore_stop = true;
    CHECK_MSG(!pv_generate(s, &p, NULL, NULL, &err), "%s", err.text);
    const int32_t *got = pv_session_answer(s, &n);
    CHECK_EQ(n, N_GREEDY);
    for (int i = 0; i < (int)n; i++)
        if (!CHECK_MSG(got[i] == greedy->i[i], "%s: token %d is %d, not %d", full, i, (int)got[i],
                       (int)greedy->i[i]))
            break;
    pv_session_close(&s);
}

TEST(prompts_positions_and_answers_equal_pytorch)
{
    static const char *const names[] = { "both", "short", "sound", "silent" };
    struct pv_model_params p = pv_model_defaults();
    struct golden *g = expected();
    pv_model *model = NULL;
    struct pv_error err = { 0 };
    p.path = model_path();
    p.threads = 2;
    if (!CHECK_MSG(!pv_model_open(&model, &p, &err), "%s", err.text))
        return;
    CHECK_EQ(vision_config(model->vision)->audio.token, AUDIO_PAD);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_case(model, g, names[i], "upstream", PV_TIME_AUTO);
        check_case(model, g, names[i], "training", PV_TIME_TRAINING);
    }
    pv_model_close(&model);
    golden_close(&g);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
