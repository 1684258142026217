/* Log-mel features against transformers' (tests/golden/mel), against the formula, and by
 * themselves: any number of threads, short sound, silence, failing memory. */
#include "golden/golden.h"
#include "golden/signals.h"
#include "test.h"

#include "audio/mel.h"

enum { CELLS = MEL_BINS * MEL_FRAMES };

static float *features(enum signal_kind kind, size_t n, int threads)
{
    float *samples = malloc((n ? n : 1) * sizeof *samples), *out = malloc(CELLS * sizeof *out);
    struct pool *pool = NULL;
    struct mel *m = NULL;

    if (!CHECK(samples && out))
        exit(1);
    for (int i = 0; i < CELLS; i++)
        out[i] = NAN;
    signal_fill(samples, kind, n);
    if (threads > 1)
        CHECK(!pool_open(&pool, threads, NULL));
    if (CHECK(!mel_open(&m, pool, NULL))) {
        mem_guard_begin();
        mel_chunk(m, samples, n, out);
        mem_guard_end();
    }
    mel_close(&m);
    pool_close(&pool);
    free(samples);
    return out;
}

TEST(features_are_those_of_transformers)
{
    struct golden *g = golden_open("tests/golden/mel/mel.vec");
    const struct golden_entry *sounds, *frames;

    if (!CHECK(g))
        return;
    sounds = golden_find(g, "sounds");
    frames = golden_find(g, "frames");
    for (int k = 0; CHECK(sounds && frames) && k < sounds->rows; k++) {
        const int32_t *sound = golden_row_i(sounds, k), *frame = golden_row_i(frames, k);
        float *got = features((enum signal_kind)sound[0], (size_t)sound[1], 1);
        double most = 0, most_mean = 0;
        const struct golden_entry *want, *means;
        char name[32];
        snprintf(name, sizeof name, "features.%d", k);
        want = golden_find(g, name);
        snprintf(name, sizeof name, "means.%d", k);
        means = golden_find(g, name);
        for (int b = 0; CHECK(want && means) && b < MEL_BINS; b++) {
            double sum = 0;
            for (int i = 0; i < frames->cols; i++)
                most = larger(
                    most, fabs((double)got[b * MEL_FRAMES + frame[i]] - golden_row(want, i)[b]));
            for (int i = 0; i < MEL_FRAMES; i++)
                sum += got[b * MEL_FRAMES + i];
            most_mean = larger(most_mean, fabs(sum / MEL_FRAMES - means->f[b]));
        }
        CHECK_MSG(most < 2e-5 && most_mean < 2e-5, "sound %d: differs by %g, means by %g", k, most,
                  most_mean);
        free(got);
    }
    golden_close(&g);
}

/* The power of one band of one frame, by definition. */
static double band_power(const float *padded, int frame, int k)
{
    const double turn = 6.283185307179586;
    double re = 0, im = 0;

    for (int i = 0; i < 400; i++) {
        double x = padded[frame * 160 + i] * (0.5 - 0.5 * cos(turn * i / 400));
        re += x * cos(turn * k * i / 400);
        im -= x * sin(turn * k * i / 400);
    }
    return re * re + im * im;
}

/* Band 0 has its triangle's foot at 0 Hz and lets through one frequency, 40 Hz. */
TEST(lowest_band_by_definition)
{
    enum { N = 4000 };
    const double step = 24.54; /* between the lowest bands, roughly: the filter's width is two */
    static float padded[N + 400];
    float *got = features(SIGNAL_NOISE, N, 1);
    double ratio = 0;

    for (int i = 0; i < N + 200; i++) {
        int at = i - 200;
        padded[i] = at < 0   ? signal_at(SIGNAL_NOISE, (uint32_t)-at)
                    : at < N ? signal_at(SIGNAL_NOISE, (uint32_t)at)
                             : 0;
    }
    for (int frame = 0; frame < 24; frame++) {
        double power = pow(10, got[frame] * 4.0 - 4), want = band_power(padded, frame, 1);
        if (frame == 0)
            ratio = power / want;
        CHECK_MSG(fabs(power / want / ratio - 1) < 1e-5, "frame %d: %g of %g", frame, power, want);
    }
    CHECK(ratio > 0.1 / step && ratio < 1 / step);
    free(got);
}

TEST(bits_do_not_depend_on_threads)
{
    static const struct {
        enum signal_kind kind;
        size_t n;
    } sounds[] = { { SIGNAL_NOISE, MEL_SAMPLES_PER_CHUNK },
                   { SIGNAL_SWEEP, 100001 },
                   { SIGNAL_CLICKS, 479801 } };
    static const int threads[] = { 2, 3, 7 };

    for (size_t s = 0; s < sizeof sounds / sizeof *sounds; s++) {
        float *one = features(sounds[s].kind, sounds[s].n, 1);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            float *many = features(sounds[s].kind, sounds[s].n, threads[t]);
            CHECK_MSG(!memcmp(one, many, CELLS * sizeof *one), "sound %zu, %d threads", s,
                      threads[t]);
            free(many);
        }
        free(one);
    }
}

/* Padding given as samples and padding that is only meant are the same; frames of padding are not
 * computed in the second case. */
TEST(padding_is_silence)
{
    static const size_t sizes[] = { 0, 1, 159, 200, 201, 4000, 479799, 479801, 479999 };
    float *samples = calloc(MEL_SAMPLES_PER_CHUNK, sizeof *samples);
    float *a = malloc(CELLS * sizeof *a), *b = malloc(CELLS * sizeof *b);
    struct mel *m = NULL;

    if (!CHECK(samples && a && b && !mel_open(&m, NULL, NULL)))
        exit(1);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        signal_fill(samples, SIGNAL_NOISE, sizes[s]);
        mel_chunk(m, samples, sizes[s], a);
        mel_chunk(m, samples, MEL_SAMPLES_PER_CHUNK, b);
        CHECK_MSG(!memcmp(a, b, CELLS * sizeof *a), "%zu samples", sizes[s]);
    }
    mel_chunk(m, NULL, 0, a);
    for (int i = 0; i < CELLS; i++)
        if (!CHECK_EQ(a[i], -1.5f))
            break;
    mel_close(&m);
    free(samples);
    free(a);
    free(b);
}

TEST(chunks_and_tokens)
{
    CHECK_EQ(mel_chunks(0), 0);
    CHECK_EQ(mel_chunks(1), 1);
    CHECK_EQ(mel_chunks(480000), 1);
    CHECK_EQ(mel_chunks(480001), 2);
    CHECK_EQ(mel_tokens(0), 0);
    CHECK_EQ(mel_tokens(100), 60);
    CHECK_EQ(mel_tokens(960001), 180);
    CHECK(mel_chunks(SIZE_MAX) > SIZE_MAX / 480000);
}

TEST(memory_that_fails)
{
    struct mel *m = NULL;

    for (uint64_t k = 1; k <= 3; k++) {
        struct pv_error err = { 0 };
        mem_fail_at(k);
        CHECK_EQ(mel_open(&m, NULL, &err), PV_E_NOMEM);
        CHECK(!m && err.text[0]);
    }
    mem_fail_at(0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
