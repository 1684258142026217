/* WAV files, byte for byte. */
#include "base/wav.h"

#include "scratch.h"
#include "test.h"

TEST(bytes_of_a_file)
{
    static const uint8_t header[] = "RIFF\x3e\0\0\0WAVEfmt \x12\0\0\0\3\0\1\0\x80\x3e\0\0"
                                    "\0\xfa\0\0\4\0\x20\0\0\0fact\4\0\0\0\3\0\0\0data\x0c\0\0\0";
    static const float some[] = { 0.5f, -1, 1e-40f };
    struct pv_error err = { 0 };
    uint8_t got[128];
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/a.wav", scratch_dir());
    CHECK_MSG(!wav_write(path, 16000, some, 3, &err), "%s", err.text);
    f = fopen(path, "rb");
    if (!CHECK(f))
        return;
    CHECK_EQ(fread(got, 1, sizeof got, f), 70);
    fclose(f);
    CHECK(!memcmp(got, header, 58) && !memcmp(got + 58, some, 12));
    CHECK(!wav_write(path, 16000, NULL, 0, NULL));
}

TEST(failures)
{
    struct pv_error err = { 0 };

    CHECK_EQ(wav_write("/nonexistent/a.wav", 16000, NULL, 0, &err), PV_E_IO);
    CHECK_MSG(strstr(err.text, "/nonexistent/a.wav"), "%s", err.text);
    err = (struct pv_error){ 0 };
    CHECK_EQ(wav_write("a.wav", 16000, NULL, 1u << 30, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, "a.wav: a WAV file cannot hold 1073741824 samples"), "%s", err.text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
