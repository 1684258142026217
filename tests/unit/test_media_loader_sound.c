/* Sound on its way into a prompt: beside frames in memory, in files with a film and in files
 * without, in part, left out, for models that hear and for others; what drafters get of it; and
 * what is refused. */
#include "make_clip.h"

#include "answers.h"
#include "engine/media_loader_parts.h"

enum { CHUNK_ROWS = TINY_EAR_POSITIONS / 25, CHUNK = 16000 /* samples: one second */ };

static pv_model *open_family(const struct family *family)
{
    struct tiny_vision m = tiny_vision(family);
    char path[256];
    return open_model(tiny_vision_gguf(&m, family->name, path), 2, NULL);
}

/* ---- beside frames ---- */

static const struct media *first_media(const pv_session *s)
{
    return &s->seq.line.media[0].m;
}

/* The answer about noise with so many samples of sound. */
static struct answer ask_noise(pv_session *s, const float *samples, size_t n, bool no_audio)
{
    static struct answer a;
    struct pv_frame frames[FRAMES];
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    struct pv_video_params v = pv_video_defaults();
    struct pv_error err = { 0 };
    noise_frames(frames, rgb, 7);
    v.max_pixels = 56 * 56;
    v.samples = samples;
    v.n_samples = n;
    v.no_audio = no_audio;
    pv_session_reset(s);
    CHECK_MSG(!pv_add_frames(s, frames, FRAMES, 2, &v, &err) &&
                  !pv_add_text(s, "user", "what is the dog", &err) &&
                  !generate(s, NULL, 0, &a, &err),
              "%s", err.text);
    return a;
}

TEST(frames_have_sound_beside_them)
{
    struct pair p = { .target = open_family(&family_salmonn2_plus) };
    pv_session *s = open_session(&p);
    const float *samples = noise_sound(7);
    struct answer with = ask_noise(s, samples, CHUNK + 1, false), without;
    const struct media *m = first_media(s);
    int pictures = media_picture_rows(m);
    CHECK_EQ(media_sound_rows(m), 2 * CHUNK_ROWS);
    CHECK_EQ(pictures, m->n_units * m->unit_rows);
    CHECK_EQ(with.stats.video_tokens, pictures + 2 * CHUNK_ROWS);
    /* three pairs of frames of a second each: two rows of sound after each but the last */
    CHECK_EQ(media_row(m, m->unit_rows, NULL), pictures);
    CHECK_EQ(media_row(m, 2 * m->unit_rows + 2, NULL), pictures + 2);
    CHECK_EQ(media_row(m, 3 * m->unit_rows + 3, NULL), 3 * m->unit_rows - 1);
    without = ask_noise(s, samples, CHUNK + 1, true);
    CHECK_EQ(without.stats.video_tokens, pictures);
    CHECK(!same_answer(&with, &without, vocab_of(s)));
    without = ask_noise(s, NULL, 0, false);
    CHECK_EQ(without.stats.video_tokens, pictures);
    with = ask_noise(s, samples, 1, false);
    CHECK_EQ(with.stats.video_tokens, pictures + CHUNK_ROWS);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(models_that_do_not_hear_leave_sound_out)
{
    struct pair p = { .target = open_family(&family_qwen2_5_vl) };
    pv_session *s = open_session(&p);
    struct answer with = ask_noise(s, noise_sound(7), CHUNK, false);
    struct answer without = ask_noise(s, NULL, 0, false);
    CHECK(!pv_model_has_audio(p.target) && same_answer(&with, &without, vocab_of(s)));
    pv_session_close(&s);
    close_pair(&p);
}

TEST(sound_that_cannot_be_is_refused)
{
    struct pair p = { .target = open_family(&family_salmonn2_plus) };
    pv_session *s = open_session(&p);
    struct pv_frame frames[FRAMES];
    static uint8_t rgb[FRAMES][HEIGHT * WIDTH * 3];
    static float samples[CHUNK];
    struct pv_video_params v = pv_video_defaults();
    struct pv_limits limits = { .video_seconds = 3 };
    struct pv_error err = { 0 };
    noise_frames(frames, rgb, 7);
    v.samples = samples;
    v.n_samples = CHUNK;
    v.max_pixels = 56 * 56;
    samples[77] = INFINITY;
    CHECK_EQ(pv_add_frames(s, frames, FRAMES, 2, &v, &err), PV_E_ARG);
    CHECK(strstr(err.text, "sample 77"));
    samples[77] = 0;
    v.time_rule = PV_TIME_SECONDS; /* of another family */
    CHECK_EQ(pv_add_frames(s, frames, FRAMES, 2, &v, NULL), PV_E_ARG);
    v.time_rule = PV_TIME_TRAINING;
    CHECK_EQ(pv_add_frames(s, frames, FRAMES, 2, &v, &err), PV_OK);
    v.limits = &limits;
    v.n_samples = (size_t)4 * CHUNK;
    v.samples = calloc(v.n_samples, sizeof *v.samples);
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_add_frames(s, frames, FRAMES, 2, &v, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "4.0 seconds of sound"), "%s", err.text);
    free((void *)(uintptr_t)v.samples);
    pv_session_close(&s);
    close_pair(&p);
}

/* ---- files ---- */

struct told_file {
    enum pv_status status;
    struct pv_error err;
    int pictures, sound; /* rows */
    int64_t frames;      /* of the film */
    struct answer answer;
};

static struct told_file ask_file(const pv_model *model, const struct clip *k,
                                 struct pv_video_params v)
{
    static struct told_file t;
    struct pair p = { .target = (pv_model *)(uintptr_t)model };
    pv_session *s = open_session(&p);
    struct pv_video_info info = { 0 };
    size_t size;
    uint8_t *data = clip_make(k, &size);
    t = (struct told_file){ 0 };
    v.max_pixels = 32 * 32;
    t.status = pv_add_video_data(s, data, size, &v, &info, &t.err);
    t.frames = info.total_frames;
    if (!t.status)
        t.status = pv_add_text(s, "user", "what is the dog", &t.err);
    if (!t.status)
        t.status = generate(s, NULL, 0, &t.answer, &t.err);
    if (!t.status) {
        t.pictures = media_picture_rows(first_media(s));
        t.sound = media_sound_rows(first_media(s));
    }
    free(data);
    pv_session_close(&s);
    return t;
}

TEST(files_with_sound_with_and_without_a_film)
{
    pv_model *model = open_family(&family_salmonn2_plus), *deaf = open_family(&family_qwen2_5_vl);
    struct clip both = { .container = "matroska",
                         .codec = "pcm_s16le",
                         .rate = 16000,
                         .layout = "mono",
                         .run = { { 0, 2.5, 440, 0 } },
                         .film_seconds = 2 };
    struct clip film = both, sound = both;
    struct pv_video_params v = pv_video_defaults();
    struct told_file t = ask_file(model, &both, v), u;
    film.codec = NULL;
    sound.film_seconds = 0;
    sound.container = "wav";
    CHECK_MSG(!t.status, "%s", t.err.text);
    CHECK_EQ(t.sound, 3 * CHUNK_ROWS);
    CHECK(t.pictures > 0);
    u = ask_file(model, &film, v);
    CHECK_MSG(!u.status, "%s", u.err.text);
    CHECK(u.sound == 0 && u.pictures == t.pictures);
    CHECK(memcmp(u.answer.ids, t.answer.ids, sizeof u.answer.ids) != 0 ||
          memcmp(u.answer.logits, t.answer.logits, sizeof u.answer.logits) != 0);
    u = ask_file(model, &sound, v);
    CHECK_MSG(!u.status, "%s", u.err.text);
    CHECK(u.pictures == 0 && u.sound == 3 * CHUNK_ROWS);
    u = ask_file(deaf, &sound, v);
    CHECK(u.status != PV_OK);
    u = ask_file(deaf, &both, v);
    CHECK_MSG(!u.status && u.sound == 0, "%s", u.err.text);
    v.start = 0.5;
    v.end = 1.5;
    u = ask_file(model, &both, v);
    CHECK_MSG(!u.status, "%s", u.err.text);
    CHECK_EQ(u.sound, CHUNK_ROWS);
    v = pv_video_defaults();
    v.no_audio = true;
    u = ask_file(model, &both, v);
    CHECK_MSG(!u.status && u.sound == 0, "%s", u.err.text);
    u = ask_file(model, &sound, v);
    CHECK(u.status != PV_OK);
    pv_model_close(&model);
    pv_model_close(&deaf);
}

/* Of a film of one frame the sound is heard as of any other; without it, it is a picture. */
TEST(one_frame_with_sound)
{
    pv_model *model = open_family(&family_salmonn2_plus), *deaf = open_family(&family_qwen2_5_vl);
    const struct clip k = { .container = "matroska",
                            .codec = "pcm_s16le",
                            .rate = 16000,
                            .layout = "mono",
                            .run = { { 0, 2.5, 440, 0 } },
                            .film_seconds = 0.05 };
    struct pv_video_params v = pv_video_defaults();
    struct told_file t = ask_file(model, &k, v), u;
    CHECK_MSG(!t.status, "%s", t.err.text);
    CHECK(t.sound == 3 * CHUNK_ROWS && t.pictures > 0 && t.frames == 1);
    v.start = 1.25; /* of the sound: the frame is there all the time */
    v.end = 2.25;
    u = ask_file(model, &k, v);
    CHECK_MSG(!u.status, "%s", u.err.text);
    CHECK(u.sound == CHUNK_ROWS && u.pictures == t.pictures);
    v = pv_video_defaults();
    v.no_audio = true;
    u = ask_file(model, &k, v);
    CHECK_MSG(!u.status && u.sound == 0 && u.pictures > 0, "%s", u.err.text);
    v.no_audio = false;
    u = ask_file(deaf, &k, v);
    CHECK_MSG(!u.status && u.sound == 0 && u.pictures > 0, "%s", u.err.text);
    pv_model_close(&model);
    pv_model_close(&deaf);
}

/* ---- drafters ---- */

/* Rows of the first item's sound that the drafter of the last answer saw. */
static int visible_sound(const pv_session *s)
{
    const struct media *m = first_media(s);
    int n = 0;
    for (int i = media_picture_rows(m); i < m->n_rows; i++)
        n += s->draft.visible[timeline_row(&s->seq.line, 0, i)];
    return n;
}

TEST(views_leave_sound_whole)
{
    struct pair p = open_unlike(&family_salmonn2_plus, 1);
    pv_session *s = open_session(&p);
    for (int v = 0; pv_view_name(v); v++) {
        struct pv_method m = method(PV_DRAFT_MODEL, pv_view_name(v), PV_SHAPE_CHAIN);
        bool text = !strcmp(pv_view_name(v), "text");
        run(s, &m, 0);
        CHECK_MSG(visible_sound(s) == (text ? 0 : media_sound_rows(first_media(s))),
                  "%s: %d of %d rows of sound", pv_view_name(v), visible_sound(s),
                  media_sound_rows(first_media(s)));
    }
    pv_session_close(&s);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
