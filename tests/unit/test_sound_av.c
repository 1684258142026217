/* Sound of files that FFmpeg's encoders make here: any rate, layout, codec and container, in step
 * with the frames, with gaps, overlaps and offsets; in the sandbox the same to the bit; and what is
 * refused. */
#define _DEFAULT_SOURCE /* usleep */
#include "../decode.h"
#include "../larger.h"
#include "../make_clip.h"
#include "../test.h"
#include "base/clock.h"
#include "video/media_wire.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static const struct video_limits usual = { 16 << 20, 1 << 24, 1000, 100 };

/* Emulators of another machine have no filter of system calls. */
static bool has_sandbox(void)
{
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) < 0 && errno == EFAULT;
}

struct heard {
    enum pv_status status;
    struct pv_error err;
    struct video_info info;
    struct sound sound;
};

static struct heard hear_source(const struct video_source *from, struct video_limits l,
                                const struct video_sandbox *box, double start, double end)
{
    struct heard h = { 0 };
    struct decode *v = NULL;

    l.sandbox = box;
    h.status = decode_open(&v, from, &l, 1, &h.err);
    if (h.status)
        return h;
    h.info = *decode_info(v);
    h.status = decode_read_sound(v, start, end, &h.sound, &h.err);
    decode_close(&v);
    return h;
}

/* What these bytes sound like, checked to be the same in the sandbox. */
static struct heard hear_limited(const uint8_t *data, size_t size, struct video_limits l,
                                 double start, double end)
{
    const struct video_source from = { .data = data, .size = size, .sound_alone = true };
    struct heard a = hear_source(&from, l, NULL, start, end), b;

    if (!has_sandbox())
        return a;
    b = hear_source(&from, l, &(struct video_sandbox){ .mode = PV_SANDBOX_ON }, start, end);
    CHECK_MSG(a.status == b.status && !strcmp(a.err.text, b.err.text), "%d \"%s\", not %d \"%s\"",
              b.status, b.err.text, a.status, a.err.text);
    CHECK(a.sound.n == b.sound.n && a.sound.lost == b.sound.lost &&
          a.sound.start == b.sound.start &&
          (a.sound.n == 0 ||
           !memcmp(a.sound.samples, b.sound.samples, a.sound.n * sizeof *a.sound.samples)));
    CHECK(a.info.has_sound == b.info.has_sound && a.info.n_frames == b.info.n_frames &&
          a.info.duration == b.info.duration);
    sound_clear(&b.sound);
    return a;
}

/* A clip of a tone of `hz` alone, from 0 to `seconds`. */
static struct clip tone_clip(const char *container, const char *codec, int rate, const char *layout,
                             double seconds, double hz)
{
    return (struct clip){ .container = container,
                          .codec = codec,
                          .rate = rate,
                          .layout = layout,
                          .run = { { 0, seconds, hz } } };
}

static struct heard hear(const struct clip *k, double start, double end)
{
    size_t size;
    uint8_t *data = clip_make(k, &size);
    struct heard h = hear_limited(data, size, usual, start, end);

    CHECK_MSG(!h.status, "%s %s: %s", k->container, k->codec, h.err.text);
    free(data);
    return h;
}

/* --- tones ---------------------------------------------------------------------------------- */

/* The tone of `hz` in these seconds of the clip: how high, and how many seconds later than its
 * phase in the file (whose time is `origin` at the clip's 0) says. */
struct tone {
    double high, late, rest; /* rest: of all else, as root of the mean square */
};

static struct tone tone_of(const struct sound *s, double hz, double origin, double from, double to)
{
    const double turn = 6.283185307179586;
    size_t first = (size_t)llround((from - s->start) * SOUND_RATE);
    size_t end = (size_t)llround((to - s->start) * SOUND_RATE);
    double re = 0, im = 0, square = 0, n = (double)(end - first);
    struct tone t = { 0 };

    if (!CHECK_MSG(end <= s->n && first < end, "%zu samples, %zu wanted", s->n, end))
        return t;
    for (size_t i = first; i < end; i++) {
        double angle = turn * hz * (s->start + (double)i / SOUND_RATE + origin);
        re += 2 / n * s->samples[i] * sin(angle);
        im += 2 / n * s->samples[i] * cos(angle);
        square += s->samples[i] * (double)s->samples[i] / n;
    }
    t.high = sqrt(re * re + im * im);
    t.late = -atan2(im, re) / (turn * hz);
    t.rest = sqrt(larger(0, square - t.high * t.high / 2));
    return t;
}

static void check_tone(const char *what, const struct sound *s, double hz, double gain,
                       double origin, double from, double to)
{
    struct tone t = tone_of(s, hz, origin, from, to);

    /* Matroska, for one, rounds times to thousandths. */
    CHECK_MSG(fabs(t.high - 0.25 * gain) < 0.012 * gain && fabs(t.late) < 6e-4 &&
                  t.rest < 0.02 * gain,
              "%s, %g Hz: %g high, not %g; %g s late; %g of the rest", what, hz, t.high,
              0.25 * gain, t.late, t.rest);
}

static void check_silence(const struct sound *s, double from, double to)
{
    size_t first = (size_t)llround((from - s->start) * SOUND_RATE), n = 0;
    size_t end = (size_t)llround((to - s->start) * SOUND_RATE);

    for (size_t i = first; i < end && i < s->n; i++)
        n += s->samples[i] != 0;
    CHECK_MSG(end <= s->n && n == 0, "%zu samples from %g to %g s are not silent", n, from, to);
}

static void check_length(const char *what, const struct sound *s, double seconds, int within)
{
    CHECK_MSG(fabs((double)s->n - seconds * SOUND_RATE) <= within, "%s: %zu samples, not %g", what,
              s->n, seconds * SOUND_RATE);
}

static void check_high(const char *what, const struct sound *s, double hz, double from, double to)
{
    struct tone t = tone_of(s, hz, 0, from, to);

    CHECK_MSG(fabs(t.high - 0.25) < 0.01 && t.rest < 0.02, "%s: %g high, %g of the rest", what,
              t.high, t.rest);
}

/* Both, which are given back; free it. */
static uint8_t *joined(uint8_t *a, size_t n, uint8_t *b, size_t m)
{
    uint8_t *both = malloc(n + m);

    clip_need(both, "memory");
    memcpy(both, a, n);
    memcpy(both + n, b, m);
    free(a);
    free(b);
    return both;
}

/* Samples come through as they are where nothing has to be done to them. */
TEST(samples_to_the_bit)
{
    struct clip k = tone_clip("wav", "pcm_f32le", 16000, "mono", 0.7, 441);
    struct heard h = hear(&k, 0, INFINITY);
    int differ = 0;

    if (!CHECK_EQ(h.sound.n, 11200))
        return;
    for (size_t i = 0; i < h.sound.n; i++)
        differ +=
            h.sound.samples[i] != (float)(0.25 * sin(6.283185307179586 * 441 * (double)i / 16000));
    CHECK_EQ(differ, 0);
    CHECK(h.info.has_sound && h.info.n_frames == 0 && fabs(h.info.duration - 0.7) < 1e-6);
    sound_clear(&h.sound);
}

/* libswresample's matrices for floats: halves of power, LFE left out. */
TEST(rates_and_layouts)
{
    static const int rates[] = { 8000, 11025, 16000, 22050, 32000, 44100, 48000, 96000 };
    static const struct {
        const char *name;
        double gain;
    } layouts[] = { { "mono", 1 }, { "stereo", 1.41421356 }, { "5.1", 3.41421356 } };

    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            struct clip k = tone_clip(l < 2 ? "wav" : "matroska", "pcm_s16le", rates[r],
                                      layouts[l].name, 0.6, 1234);
            struct heard h = hear(&k, 0, INFINITY);
            char what[32];
            snprintf(what, sizeof what, "%d %s", rates[r], layouts[l].name);
            check_length(what, &h.sound, 0.6, 1);
            check_tone(what, &h.sound, 1234, layouts[l].gain, 0, 0.05, 0.55);
            sound_clear(&h.sound);
        }
}

/* Every codec and container at its own time: delays of encoders are taken back. */
TEST(codecs_and_containers)
{
    static const struct {
        const char *container, *codec;
        int rate;
        const char *layout;
        double film;
        double late; /* samples of the encoder's delay, where the file does not tell of it */
    } kinds[] = {
        { "mp4", "aac", 44100, "stereo", 1 },       { "mov", "alac", 48000, "stereo", 1 },
        { "matroska", "aac", 48000, "mono", 1 },    { "matroska", "flac", 44100, "stereo", 1 },
        { "webm", "libopus", 48000, "stereo", 0 },  { "webm", "libvorbis", 44100, "stereo", 0 },
        { "mpegts", "ac3", 48000, "stereo", 1 },    { "mpegts", "aac", 44100, "mono", 1 },
        { "mpeg", "mp2", 44100, "stereo", 0, 481 }, { "avi", "libmp3lame", 44100, "stereo", 1 },
        { "avi", "pcm_s16le", 22050, "mono", 1 },   { "flv", "aac", 44100, "stereo", 0, 1024 },
        { "matroska", "eac3", 48000, "stereo", 1 }, { "ipod", "aac", 44100, "stereo", 0 },
        { "mp3", "libmp3lame", 44100, "mono", 0 },  { "flac", "flac", 48000, "mono", 0 },
        { "ogg", "libopus", 48000, "mono", 0 },     { "ogg", "libvorbis", 44100, "mono", 0 },
        { "ogg", "flac", 44100, "mono", 0 },        { "adts", "aac", 44100, "mono", 0, 1024 },
        { "wav", "pcm_alaw", 8000, "mono", 0 },     { "wav", "pcm_u8", 16000, "mono", 0 },
        { "wav", "pcm_s32le", 48000, "mono", 0 },   { "aiff", "pcm_s16be", 44100, "mono", 0 },
        { "wav", "pcm_f64le", 44100, "mono", 0 },   { "wav", "adpcm_ms", 22050, "mono", 0 },
        { "3gp", "aac", 16000, "mono", 1 },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct clip k = { .container = kinds[i].container,
                          .codec = kinds[i].codec,
                          .rate = kinds[i].rate,
                          .layout = kinds[i].layout,
                          .run = { { 0, 1.2, 40 } },
                          .film_seconds = kinds[i].film };
        char what[64];
        struct heard h;
        if (!clip_can(k.codec)) {
            printf("# left out: this FFmpeg cannot encode %s\n", k.codec);
            continue;
        }
        snprintf(what, sizeof what, "%s in %s", k.codec, k.container);
        h = hear(&k, 0, INFINITY);
        check_length(what, &h.sound, 1.2, 3300); /* encoders fill their last frames */
        check_tone(what, &h.sound, 40, k.layout[0] == 's' ? 1.41421356 : 1, -kinds[i].late / k.rate,
                   0.2, 1.1);
        CHECK_MSG((h.info.n_frames > 0) == (k.film_seconds > 0) && h.info.has_sound, "%s", what);
        sound_clear(&h.sound);
    }
}

/* --- in step with the film ------------------------------------------------------------------ */

struct flash {
    double time; /* of the first white frame; -1: none */
};

static bool find_flash(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct flash *f = user;

    (void)at;
    (void)index;
    if (f->time < 0 && p->rgb[0] > 128)
        f->time = time;
    return true;
}

/* A tone that begins with the first white frame, in files whose tracks begin at various times. */
TEST(flash_and_tone_come_together)
{
    static const struct {
        const char *container, *codec;
        double film, sound;
    } kinds[] = { { "mp4", "aac", 0, 0.4 },          { "mov", "pcm_s16le", 0, 0 },
                  { "matroska", "flac", 1.6, 0 },    { "matroska", "pcm_s16le", 0, 1.2 },
                  { "mpegts", "mp2", 0.8, 0.2 },     { "mp4", "alac", 1.2, 0.6 },
                  { "matroska", "pcm_s16le", 2, 1 }, { "mpegts", "ac3", 0, 0.6 } };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double begin = kinds[i].film + 1.6;
        struct clip k = { .container = kinds[i].container,
                          .codec = kinds[i].codec,
                          .rate = 48000,
                          .layout = "mono",
                          .run = { { kinds[i].sound, begin + 1 - kinds[i].sound, 800, begin } },
                          .film = kinds[i].film,
                          .film_seconds = 3,
                          .flash = begin };
        struct flash f = { -1 };
        struct pv_error err = { 0 };
        struct decode *v = NULL;
        struct sound s = { 0 };
        int64_t index[60];
        size_t size, first = 0;
        uint8_t *data = clip_make(&k, &size);
        int lost;
        for (int n = 0; n < 60; n++)
            index[n] = n;
        if (!CHECK_MSG(!decode_open(&v, &(struct video_source){ .data = data, .size = size },
                                    &usual, 1, &err) &&
                           !decode_read(v, index, 60, find_flash, &f, &lost, &err) &&
                           !decode_read_sound(v, 0, INFINITY, &s, &err),
                       "%s: %s", k.container, err.text))
            return;
        while (first < s.n && fabsf(s.samples[first]) < 0.02f)
            first++;
        CHECK_MSG(fabs(f.time - 1.6) < 1e-3 && fabs((double)first / SOUND_RATE - f.time) < 0.012,
                  "%s with %s: the flash is at %g s, the tone at %g s", k.container, k.codec,
                  f.time, (double)first / SOUND_RATE);
        sound_clear(&s);
        decode_close(&v);
        free(data);
    }
}

static bool sum_frame(void *user, int at, int64_t index, double time, const struct image *p)
{
    uint64_t *sum = user;

    (void)at;
    *sum = *sum * 31 + (uint64_t)index + (uint64_t)(time * 1000) + p->rgb[0];
    return true;
}

/* Frames and sound of one open video in any order, here and in the sandbox. */
TEST(frames_and_sound_in_turns)
{
    struct clip k = { .container = "mp4",
                      .codec = "aac",
                      .rate = 44100,
                      .layout = "mono",
                      .run = { { 0, 6, 600 } },
                      .film_seconds = 6,
                      .flash = 3 };
    const int64_t index[] = { 3, 40, 100, 140 };
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    struct sound first = { 0 };
    uint64_t frames = 0;

    for (int there = 0; there < 2 && (!there || has_sandbox()); there++) {
        const struct video_sandbox box = { .mode = PV_SANDBOX_ON };
        struct video_limits l = usual;
        struct pv_error err = { 0 };
        struct decode *v = NULL;
        l.sandbox = there ? &box : NULL;
        if (!CHECK_MSG(
                !decode_open(&v, &(struct video_source){ .data = data, .size = size }, &l, 2, &err),
                "%s", err.text))
            break;
        for (int turn = 0; turn < 3; turn++) {
            struct sound s = { 0 };
            uint64_t sum = 0;
            int lost;
            CHECK_MSG(!decode_read_sound(v, 0.5, INFINITY, &s, &err), "%s", err.text);
            CHECK_MSG(!decode_read(v, index, 4, sum_frame, &sum, &lost, &err), "%s", err.text);
            if (!first.samples) {
                first = s;
                frames = sum;
                check_tone("in turns", &s, 600, 1, 0, 1, 5.5);
                continue;
            }
            CHECK(sum == frames && s.n == first.n && first.n > 80000 &&
                  !memcmp(s.samples, first.samples, s.n * sizeof *s.samples));
            sound_clear(&s);
        }
        decode_close(&v);
    }
    sound_clear(&first);
    free(data);
}

TEST(late_and_early_sound)
{
    struct clip k = { .container = "matroska",
                      .codec = "pcm_s16le",
                      .rate = 44100,
                      .layout = "mono",
                      .run = { { 2.5, 1, 500 } },
                      .film = 2,
                      .film_seconds = 2 };
    struct heard h = hear(&k, 0, INFINITY);

    check_length("late", &h.sound, 1.5, 2);
    check_silence(&h.sound, 0, 0.499);
    check_tone("late", &h.sound, 500, 1, 2, 0.51, 1.49);
    sound_clear(&h.sound);
    k.run[0] = (struct clip_run){ 1.25, 2, 500 }; /* three quarters of a second before the film */
    h = hear(&k, 0, INFINITY);
    check_length("early", &h.sound, 1.25, 2);
    check_tone("early", &h.sound, 500, 1, 2, 0, 1.2);
    sound_clear(&h.sound);
    k.run[0] = (struct clip_run){ 0.25, 1, 500 }; /* all of it */
    h = hear(&k, 0, INFINITY);
    CHECK_EQ(h.sound.n, 0);
    sound_clear(&h.sound);
}

TEST(gaps_and_overlaps)
{
    struct clip k = { .container = "matroska",
                      .codec = "pcm_s16le",
                      .rate = 48000,
                      .layout = "mono",
                      .run = { { 0, 1, 500 }, { 1.5, 0.5, 900 }, { 2.03, 0.5, 500 } } };
    struct heard h = hear(&k, 0, INFINITY);

    check_length("gaps", &h.sound, 2.5, 16);
    check_tone("before the gap", &h.sound, 500, 1, 0, 0.01, 0.99);
    check_silence(&h.sound, 1.001, 1.499);
    check_tone("after the gap", &h.sound, 900, 1, 0, 1.51, 1.98);
    /* 30 ms are no gap: times of containers are not better than that. */
    check_tone("later", &h.sound, 500, 1, 0.03, 2.01, 2.48);
    sound_clear(&h.sound);
}

/* Two transport streams one after the other, the second beginning before the first has ended. */
TEST(overlaps)
{
    struct clip k = { .container = "mpegts",
                      .codec = "mp2",
                      .rate = 48000,
                      .layout = "mono",
                      .run = { { 1, 1, 500 } } };
    size_t n, m;
    uint8_t *a = clip_make(&k, &n), *b, *both;
    struct heard h;

    k.run[0] = (struct clip_run){ 1.7, 1.3, 900 }; /* its first 0.3 s are not heard */
    b = clip_make(&k, &m);
    both = joined(a, n, b, m);
    h = hear_limited(both, n + m, usual, 0, INFINITY);
    CHECK_MSG(!h.status, "%s", h.err.text);
    check_length("overlap", &h.sound, 2, 800);
    check_high("before the overlap", &h.sound, 500, 0.05, 0.95);
    check_high("after the overlap", &h.sound, 900, 1.05, 1.95);
    sound_clear(&h.sound);
    free(both);
}

TEST(ranges)
{
    struct clip k = { .container = "matroska",
                      .codec = "aac",
                      .rate = 44100,
                      .layout = "mono",
                      .run = { { 0, 4, 600 } },
                      .film_seconds = 3 };
    static const double ranges[][2] = { { 0, 0.5 }, { 0.3, 0.9 }, { 2.25, 3.5 }, { 3, 3.25 } };
    struct heard h;

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        double start = ranges[i][0], end = ranges[i][1];
        h = hear(&k, start, end);
        CHECK_EQ(h.sound.n, (size_t)llround((end - start) * SOUND_RATE));
        CHECK_EQ(h.sound.start, start);
        check_tone("range", &h.sound, 600, 1, 0, start + 0.02, end - 0.02);
        sound_clear(&h.sound);
    }
    h = hear(&k, 3.5, INFINITY);
    check_length("to the end", &h.sound, 0.5, 1100);
    sound_clear(&h.sound);
    h = hear(&k, 7, INFINITY);
    CHECK_EQ(h.sound.n, 0);
    sound_clear(&h.sound);
    k.run[0].seconds = 1;
    k.run[1] = (struct clip_run){ 3, 1, 600 };
    h = hear(&k, 0.5, 2); /* ends in a gap */
    CHECK_EQ(h.sound.n, 24000);
    sound_clear(&h.sound);
}

TEST(ranges_that_are_none)
{
    static const double ranges[][2] = { { -1, 2 }, { 2, 2 }, { 3, 2 }, { NAN, 2 }, { 0, NAN } };
    struct clip k = tone_clip("wav", "pcm_s16le", 16000, "mono", 1, 600);
    size_t size;
    uint8_t *data = clip_make(&k, &size);

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct heard h = hear_limited(data, size, usual, ranges[i][0], ranges[i][1]);
        CHECK_MSG(h.status == PV_E_ARG && strstr(h.err.text, "is asked for"), "%d %s", h.status,
                  h.err.text);
    }
    free(data);
}

/* --- files without sound, and of sound alone ------------------------------------------------- */

TEST(no_sound)
{
    static const char *const files[] = { "tests/data/video/bframes.mp4",
                                         "tests/data/video/still.png",
                                         "tests/data/video/anim.gif" };

    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct heard h =
            hear_source(&(struct video_source){ .path = files[i] }, usual, NULL, 0, INFINITY);
        CHECK_MSG(!h.status && h.sound.n == 0 && !h.sound.samples && !h.info.has_sound, "%s: %s",
                  files[i], h.err.text);
        if (!has_sandbox())
            continue;
        h = hear_source(&(struct video_source){ .path = files[i] }, usual,
                        &(struct video_sandbox){ .mode = PV_SANDBOX_ON }, 0, INFINITY);
        CHECK_MSG(!h.status && h.sound.n == 0 && !h.info.has_sound, "%s: %s", files[i], h.err.text);
    }
}

TEST(sound_alone_only_where_it_is_wanted)
{
    struct clip k = tone_clip("mp4", "aac", 16000, "mono", 0.5, 600);
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    struct decode *v = NULL;
    struct pv_error err = { 0 };

    CHECK_EQ(decode_open(&v, &(struct video_source){ .data = data, .size = size }, &usual, 1, &err),
             PV_E_FORMAT);
    CHECK_STR(err.text, "the video in memory: has no video, only sound");
    free(data);
    k.container = "wav";
    k.codec = "pcm_s16le";
    data = clip_make(&k, &size);
    err = (struct pv_error){ 0 };
    CHECK_EQ(decode_open(&v, &(struct video_source){ .data = data, .size = size }, &usual, 1, &err),
             PV_E_UNSUPPORTED);
    CHECK_STR(err.text,
              "the video in memory: contains only sound (wav), but a video or picture is needed");
    free(data);
}

/* The picture of an album is not a film. */
TEST(covers)
{
    struct clip k = { .container = "mp3",
                      .codec = "libmp3lame",
                      .rate = 44100,
                      .layout = "mono",
                      .run = { { 0, 0.5, 600 } },
                      .cover = true };
    size_t size;
    uint8_t *data;
    struct heard h;

    if (!clip_can(k.codec))
        return;
    data = clip_make(&k, &size);
    h = hear_limited(data, size, usual, 0, INFINITY);
    CHECK_MSG(!h.status && h.info.n_frames == 0 && h.sound.n > 7000, "%s", h.err.text);
    sound_clear(&h.sound);
    free(data);
}

/* --- what is refused ------------------------------------------------------------------------- */

TEST(codecs_that_are_not_read)
{
    struct clip k = { .container = "matroska",
                      .codec = "wmav2",
                      .rate = 44100,
                      .layout = "mono",
                      .run = { { 0, 0.5, 600 } },
                      .film_seconds = 1 };
    struct video_limits l = usual;
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    struct heard h = hear_limited(data, size, l, 0, INFINITY);

    CHECK_EQ(h.status, PV_E_UNSUPPORTED);
    CHECK_STR(h.err.text, "the video in memory: sound of the codec wmav2 is not read unless it is "
                          "allowed by name");
    l.more_formats = "wmav2";
    h = hear_limited(data, size, l, 0, INFINITY);
    CHECK_MSG(!h.status && h.sound.n > 6000, "%s", h.err.text);
    sound_clear(&h.sound);
    free(data);
}

/* A WAV header that claims what the test wants. */
static void wav_header(uint8_t to[44], unsigned channels, uint32_t rate, uint32_t bytes)
{
    const uint32_t width = 2 * channels;
    const uint32_t words[] = { 36 + bytes,       16,   1 | channels << 16, rate, rate * width,
                               width | 16 << 16, bytes };
    static const int at[] = { 4, 16, 20, 24, 28, 32, 40 };

    memcpy(to, "RIFF....WAVEfmt ....................data....", 44);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        memcpy(to + at[i], &words[i], 4);
}

TEST(rates_and_channels_that_cannot_be)
{
    static const struct {
        unsigned channels;
        uint32_t rate;
        const char *words;
    } bad[] = { { 1, 1, "sound of 1 samples a second, 2000 to 768000 are read" },
                { 1, 1999, "sound of 1999 samples a second" },
                { 1, 2000000000, "sound of 2000000000 samples a second" },
                { 65, 16000, "sound of 65 channels, at most 64 are read" } };
    static uint8_t data[44 + 65 * 2 * 1000];
    struct video_limits l = usual;
    struct heard h;

    l.seconds = 1e6;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wav_header(data, bad[i].channels, bad[i].rate, sizeof data - 44);
        h = hear_limited(data, sizeof data, l, 0, INFINITY);
        CHECK_MSG(h.status == PV_E_UNSUPPORTED && strstr(h.err.text, bad[i].words), "%d \"%s\"",
                  h.status, h.err.text);
    }
    wav_header(data, 64, 16000, sizeof data - 44); /* no layout is known for so many */
    for (size_t i = 44; i < sizeof data; i += 2)
        data[i + 1] = 0x20; /* a quarter */
    h = hear_limited(data, sizeof data, usual, 0, INFINITY);
    CHECK_MSG(!h.status && h.sound.n > 1000 && fabsf(h.sound.samples[500] - 0.25f) < 1e-4f,
              "%d \"%s\"", h.status, h.err.text);
    sound_clear(&h.sound);
}

TEST(numbers_that_are_not_finite)
{
    static float data[44 / 4 + 1000];
    struct heard h;
    int bad = 0;

    wav_header((uint8_t *)data, 2, 16000, 4000);
    ((uint8_t *)data)[20] = 3; /* floats, */
    ((uint8_t *)data)[22] = 1; /* mono, */
    ((uint8_t *)data)[32] = 4; /* of 32 bits */
    ((uint8_t *)data)[34] = 32;
    for (int i = 0; i < 1000; i++)
        data[11 + i] = i % 3 == 0 ? (float)NAN : i % 3 == 1 ? (float)INFINITY : 0.5f;
    h = hear_limited((uint8_t *)data, sizeof data, usual, 0, INFINITY);
    CHECK_MSG(!h.status && h.sound.n == 1000, "%d \"%s\", %zu samples", h.status, h.err.text,
              h.sound.n);
    for (size_t i = 0; i < h.sound.n; i++)
        bad += h.sound.samples[i] != (i % 3 == 2 ? 0.5f : 0);
    CHECK_EQ(bad, 0);
    sound_clear(&h.sound);
}

TEST(budgets)
{
    struct clip k = tone_clip("wav", "pcm_s16le", 16000, "mono", 5, 600);
    struct video_limits l = usual;
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    struct heard h;

    l.seconds = 4;
    h = hear_limited(data, size, l, 0, INFINITY);
    CHECK_MSG(h.status == PV_E_LIMIT && strstr(h.err.text, "at most 4 are allowed"), "%d \"%s\"",
              h.status, h.err.text);
    l.seconds = 100;
    l.file_bytes = 1000;
    h = hear_limited(data, size, l, 0, INFINITY);
    CHECK_MSG(h.status == PV_E_LIMIT && strstr(h.err.text, "at most 1000 are"), "%d \"%s\"",
              h.status, h.err.text);
    l = usual;
    l.memory = 200000; /* in this process: a helper needs more to begin with */
    h = hear_source(&(struct video_source){ .data = data, .size = size, .sound_alone = true }, l,
                    NULL, 0, INFINITY);
    CHECK_MSG(h.status == PV_E_LIMIT &&
                  strstr(h.err.text, "sound takes more than the 200000 bytes of memory"),
              "%d \"%s\"", h.status, h.err.text);
    h = hear_source(&(struct video_source){ .data = data, .size = size, .sound_alone = true }, l,
                    NULL, 1, 4);
    CHECK_MSG(!h.status && h.sound.n == 48000, "%d \"%s\"", h.status, h.err.text);
    sound_clear(&h.sound);
    free(data);
}

/* A header that does not say how long it is, and a time far away: silence is bounded too. */
TEST(gaps_without_end)
{
    struct clip k = { .container = "matroska",
                      .codec = "pcm_s16le",
                      .rate = 16000,
                      .layout = "mono",
                      .run = { { 0, 0.2, 600 }, { 90, 0.2, 600 }, { 40000, 0.2, 600 } } };
    struct video_limits l = usual;
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    struct heard h;

    l.seconds = 1e9;
    l.memory = 32 << 20;
    h = hear_source(&(struct video_source){ .data = data, .size = size, .sound_alone = true }, l,
                    NULL, 0, INFINITY);
    CHECK_MSG(h.status == PV_E_LIMIT && strstr(h.err.text, "bytes of memory"), "%d \"%s\"",
              h.status, h.err.text);
    l.memory = 0;
    h = hear_limited(data, size, l, 89, 91);
    CHECK_MSG(!h.status && h.sound.n == 32000, "%d \"%s\"", h.status, h.err.text);
    check_tone("far away", &h.sound, 600, 1, 0, 90.01, 90.19);
    sound_clear(&h.sound);
    free(data);
}

static bool is_patient(void *user)
{
    return --*(int *)user > 0;
}

TEST(cancelling)
{
    struct clip k = tone_clip("wav", "pcm_s16le", 16000, "mono", 60, 600);
    struct video_sandbox box = { .mode = PV_SANDBOX_ON, .test = MEDIA_TEST_STALL };
    struct video_limits l = usual;
    struct pv_error err = { 0 };
    struct decode *v = NULL;
    struct sound s = { 0 };
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    int patience = 1000;

    l.go_on = is_patient;
    l.user = &patience;
    for (int there = 0; there < 2 && (!there || has_sandbox()); there++) {
        l.sandbox = there ? &box : NULL;
        patience = 1000;
        if (!CHECK_MSG(
                !decode_open(
                    &v, &(struct video_source){ .data = data, .size = size, .sound_alone = true },
                    &l, 1, &err),
                "%s", err.text))
            break;
        patience = there ? 5 : 1;
        usleep(30000); /* it is asked again after 20 ms */
        CHECK_EQ(decode_read_sound(v, 0, INFINITY, &s, &err), PV_E_CANCELLED);
        CHECK_MSG(strstr(err.text, "stopped") && !s.samples, "%s", err.text);
        decode_close(&v);
    }
    free(data);
}

/* --- times that cannot be ----------------------------------------------------------------------
 */

/* FLV has no negative times: the samples that start the decoder come out at 2^32 milliseconds. */
TEST(times_far_away)
{
    struct clip k = { .container = "flv",
                      .codec = "aac",
                      .rate = 44100,
                      .layout = "mono",
                      .run = { { 0, 1, 600 } },
                      .below_zero = true };
    struct heard h = hear(&k, 0, INFINITY);

    check_length("far away", &h.sound, 1, 1000);
    check_high("far away", &h.sound, 600, 0.1, 0.9);
    sound_clear(&h.sound);
}

/* --- damage ---------------------------------------------------------------------------------- */

/* Two files one after the other: the rate changes on the way. */
TEST(rates_that_change)
{
    struct clip k = tone_clip("adts", "aac", 44100, "mono", 1, 600);
    size_t n, m;
    uint8_t *a = clip_make(&k, &n), *b, *both;
    struct heard h;

    k.rate = 48000;
    k.layout = "stereo";
    b = clip_make(&k, &m);
    both = joined(a, n, b, m);
    h = hear_limited(both, n + m, usual, 0, INFINITY);
    CHECK_MSG(!h.status, "%s", h.err.text);
    check_length("both", &h.sound, 2, 3300);
    free(both);
    sound_clear(&h.sound);
}

/* Whatever is damaged, this process and the sandbox agree, and nothing crashes. */
TEST(damage)
{
    static const struct {
        const char *container, *codec;
    } kinds[] = { { "mp4", "aac" },       { "matroska", "flac" },  { "mpegts", "ac3" },
                  { "wav", "pcm_s16le" }, { "mp3", "libmp3lame" }, { "webm", "libopus" } };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct clip k = tone_clip(kinds[i].container, kinds[i].codec, 48000, "stereo", 1, 600);
        struct heard h;
        uint8_t *data;
        size_t size;
        if (!clip_can(k.codec))
            continue;
        data = clip_make(&k, &size);
        for (size_t at = 0; at < 20; at++)
            data[size - size / 4 + at] ^= 0x5a;
        h = hear_limited(data, size, usual, 0, INFINITY);
        CHECK_MSG(!h.status && h.sound.n > 8000, "%s: %d \"%s\"", k.codec, h.status, h.err.text);
        sound_clear(&h.sound);
        h = hear_limited(data, size * 2 / 3, usual, 0, INFINITY);
        sound_clear(&h.sound);
        memset(data + size / 8, 0x41, size - size / 8);
        h = hear_limited(data, size, usual, 0, INFINITY);
        sound_clear(&h.sound);
        free(data);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
