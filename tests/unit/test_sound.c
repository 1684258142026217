/* Samples in memory, and the WAV file of them. */
#include "audio/sound.h"

#include "scratch.h"
#include "test.h"

#include <math.h>

TEST(samples_are_added)
{
    static const float some[] = { 0.5f, (float)NAN, -2, -(float)INFINITY, 1e-40f };
    struct sound s = { .start = 3 };

    CHECK(!sound_append(&s, NULL, 0, NULL) && s.n == 0 && !s.samples);
    for (int i = 0; i < 10000; i++) {
        CHECK(!sound_append(&s, some, 5, NULL));
        CHECK(!sound_append(&s, NULL, 2, NULL));
    }
    if (!CHECK_EQ(s.n, 70000))
        return;
    for (size_t i = 0; i < s.n; i++) {
        static const float want[] = { 0.5f, 0, -2, 0, 1e-40f, 0, 0 };
        if (!CHECK_MSG(!memcmp(&s.samples[i], &want[i % 7], sizeof *want), "sample %zu is %g", i,
                       s.samples[i]))
            break;
    }
    CHECK(s.start == 3 && s.cap >= s.n && s.cap < 3 * s.n);
    sound_clear(&s);
    CHECK(!s.samples && s.n == 0);
}

TEST(memory_that_fails)
{
    struct sound s = { 0 };
    struct pv_error err = { 0 };

    CHECK(!sound_append(&s, NULL, 100, NULL));
    mem_fail_at(1);
    CHECK_EQ(sound_append(&s, NULL, 1 << 20, &err), PV_E_NOMEM);
    CHECK(s.n == 100 && s.samples && err.text[0]);
    mem_fail_at(0);
    CHECK_EQ(sound_append(&s, NULL, SIZE_MAX, NULL), PV_E_NOMEM);
    CHECK_EQ(sound_append(&s, NULL, SIZE_MAX / 4, NULL), PV_E_NOMEM);
    CHECK_EQ(s.n, 100);
    sound_clear(&s);
}

TEST(wav_files)
{
    static const uint8_t header[] = "RIFF\x3e\0\0\0WAVEfmt \x12\0\0\0\3\0\1\0\x80\x3e\0\0"
                                    "\0\xfa\0\0\4\0\x20\0\0\0fact\4\0\0\0\3\0\0\0data\x0c\0\0\0";
    static const float some[] = { 0.5f, -1, 1e-40f };
    uint8_t got[128];
    struct sound s = { 0 };
    struct pv_error err = { 0 };
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/a.wav", scratch_dir());
    CHECK(!sound_append(&s, some, 3, NULL));
    CHECK_MSG(!sound_write_wav(&s, path, &err), "%s", err.text);
    f = fopen(path, "rb");
    if (!CHECK(f))
        return;
    CHECK_EQ(fread(got, 1, sizeof got, f), 70);
    fclose(f);
    CHECK(!memcmp(got, header, 58) && !memcmp(got + 58, some, 12));
    sound_clear(&s);
    CHECK_EQ(sound_write_wav(&s, "/nonexistent/a.wav", &err), PV_E_IO);
    CHECK_MSG(strstr(err.text, "/nonexistent/a.wav"), "%s", err.text);
    s.n = SIZE_MAX / 8; /* nothing is read of it */
    err = (struct pv_error){ 0 };
    CHECK_EQ(sound_write_wav(&s, path, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "cannot hold"), "%s", err.text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
