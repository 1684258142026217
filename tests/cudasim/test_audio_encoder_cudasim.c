/* An audio encoder on the CUDA device, by the simulator of CUDA: tokens near those of PyTorch
 * (tests/golden/salmonn2_plus), and the same bits when a chunk comes again after another. */
#include "audio_encoder/audio_encoder.h"
#include "cudasim/gpu.h"
#include "family/families.h"
#include "golden/golden.h"
#include "test.h"

#include <math.h>

enum { MAX_TOKENS = 8, MAX_OUT = 64 };

/* As in sound_golden.py. */
static void make_features(float *mel, const struct audio_config *c, int chunk)
{
    int frames = audio_chunk_frames(c);
    for (int i = 0; i < c->mel; i++)
        for (int t = 0; t < frames; t++) {
            uint32_t h = 7919u * (uint32_t)i + 104729u * (uint32_t)t + 1299709u * (uint32_t)chunk;
            h = (h ^ (h >> 15)) * 2246822519u;
            h = h ^ (h >> 13);
            mel[i * frames + t] = (float)(h % 2001) / 1000 - 1;
        }
}

static void check_chunks(const struct audio_encoder *h, struct audio_encoder_state *st,
                         const struct golden *g)
{
    static float out[3][MAX_TOKENS * MAX_OUT];
    const struct audio_config *c = audio_encoder_config(h);
    float *mel = malloc(sizeof *mel * (size_t)(c->mel * audio_chunk_frames(c)));
    struct pv_error err = { 0 };
    for (int i = 0; i < 3; i++) {
        make_features(mel, c, i % 2);
        CHECK_MSG(!audio_encoder_encode(h, st, mel, out[i], &err), "%s", err.text);
    }
    for (int chunk = 0; chunk < 2; chunk++) {
        const struct golden_entry *want = golden_find(g, chunk ? "tokens.1" : "tokens.0");
        for (int i = 0; i < want->rows; i++) {
            double d = golden_error(out[chunk] + i * want->cols, golden_row(want, i), want->cols);
            CHECK_MSG(d <= 0.03, "token %d of chunk %d differs by %.2g", i, chunk, d);
        }
        CHECK(want->rows * want->cols <= MAX_TOKENS * MAX_OUT);
    }
    CHECK(!memcmp(out[0], out[2], sizeof out[0]));
    free(mel);
}

TEST(tokens_of_sound_are_near_those_of_pytorch)
{
    struct golden *g = golden_open("tests/golden/salmonn2_plus/sound.vec");
    struct model_file *mf = NULL;
    struct device *dev = NULL;
    struct audio_encoder *h = NULL;
    struct audio_encoder_state *st = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = model_file_open(&mf, "tests/golden/salmonn2_plus", NULL, 0, families, &err);
    if (!s)
        s = device_cuda_open(&dev, 0, &err);
    if (!s)
        s = audio_encoder_open(&h, mf, dev, &err);
    if (!s)
        s = audio_encoder_state_open(&st, h, &err);
    if (CHECK_MSG(!s, "%s", err.text) && CHECK(g))
        check_chunks(h, st, g);
    audio_encoder_state_close(&st);
    audio_encoder_close(&h);
    device_close(&dev);
    model_file_close(&mf);
    golden_close(&g);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
