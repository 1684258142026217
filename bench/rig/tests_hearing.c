/* The audio encoder and its Q-Former over chunks of random features, one after another as the
 * engine encodes them. A chunk is 30 s of sound in models of Whisper's shape. */
#include "gpu_rig.h"

#include "audio_encoder/audio_encoder.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

enum { AUDIO_ENCODER_WARM = 2 };

struct hearing_bench {
    struct audio_encoder *h;
    struct audio_encoder_state *state;
    float *mel, *tokens;
};

static void hearing_bench_close(struct hearing_bench *b)
{
    audio_encoder_state_close(&b->state);
    audio_encoder_close(&b->h);
    mem_free(b->mel);
    mem_free(b->tokens);
}

static enum pv_status hearing_bench_open(struct hearing_bench *b, const struct rig_model *m,
                                         struct pv_error *err)
{
    const struct audio_config *c = &model_file_vision(m->mf)->audio;
    size_t n = (size_t)c->mel * (size_t)audio_chunk_frames(c);
    size_t out = (size_t)audio_chunk_tokens(c) * (size_t)model_file_vision(m->mf)->out;
    struct rng rng = { 1 };
    enum pv_status s = audio_encoder_open(&b->h, m->mf, m->dev, err);
    if (s)
        return s;
    b->mel = mem_alloc(sizeof(float) * n);
    b->tokens = mem_alloc(sizeof(float) * out);
    s = b->mel && b->tokens ? audio_encoder_state_open(&b->state, b->h, err)
                            : fail_nomem(err, sizeof(float) * (n + out));
    for (size_t i = 0; i < n && !s; i++)
        b->mel[i] = rng_float(&rng);
    return s;
}

/* Operations of one chunk: two for each weight of a matrix and row it multiplies, and 4 * hidden
 * for each pair of frames of which one attends to the other. */
static double chunk_operations(const struct audio_config *c, int out)
{
    double frames = c->positions, h = c->hidden, q = c->q_hidden, tokens = audio_chunk_tokens(c);
    double conv = 2 * AUDIO_TAPS * h * (audio_chunk_frames(c) * (double)c->mel + frames * h);
    double layer = 2 * frames * h * (4 * h + 2.0 * c->ffn) + 4 * h * frames * frames;
    double query = 4 * frames * h * q + 4 * q * frames + 2 * tokens * q * (4 * q + 2.0 * c->q_ffn);
    return conv + c->n_layers * layer + c->q_layers * query + 2 * tokens * q * out;
}

enum pv_status test_audio_encoder(struct rig *r, const struct rig_model *m, const struct plan *p,
                                  struct pv_error *err)
{
    const struct audio_config *c = &model_file_vision(m->mf)->audio;
    struct timings t = { .n = 0 };
    struct hearing_bench b = { 0 };
    char note[96];
    enum pv_status s = hearing_bench_open(&b, m, err);
    for (int i = 0; i < AUDIO_ENCODER_WARM + p->repeat && !s; i++) {
        double start = clock_now();
        s = audio_encoder_encode(b.h, b.state, b.mel, b.tokens, err);
        if (i >= AUDIO_ENCODER_WARM)
            timings_add(&t, clock_now() - start);
    }
    if (!s) {
        snprintf(note, sizeof note, "a chunk of %d s: %d frames; %d tokens",
                 c->positions / AUDIO_FRAMES_PER_SECOND, c->positions, audio_chunk_tokens(c));
        results_row(r->results, &(struct result){ .model = m->shape,
                                                  .type = m->type,
                                                  .test = "hearing",
                                                  .rows = c->positions,
                                                  .samples = t.n,
                                                  .ms = 1e3 * timings_at(&t, 0.5),
                                                  .best_ms = 1e3 * timings_at(&t, 0),
                                                  .tokens = audio_chunk_tokens(c),
                                                  .operations = chunk_operations(
                                                      c, model_file_vision(m->mf)->out),
                                                  .memory = rig_used(r),
                                                  .note = note });
    }
    hearing_bench_close(&b);
    return s;
}
