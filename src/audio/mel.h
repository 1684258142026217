/* Log-mel features of Whisper large-v3, the input of its encoder.
 *
 * Sound is cut into chunks of 30 seconds, the last one padded with silence. A chunk becomes 3000
 * frames of 128 bands: a power spectrum of 400 samples every 160 (periodic Hann window, centred,
 * reflected at both ends of the padded chunk), summed by 128 triangular filters of equal area on
 * the Slaney mel scale from 0 to 8000 Hz. Then x = log10(max(sum, 1e-10)), raised to at least the
 * largest x of the chunk minus 8, and the feature is (x + 4) / 4.
 *
 * Spectra are computed in double precision. The same samples give the same bits whatever the number
 * of threads. */
#ifndef PV_AUDIO_MEL_H
#define PV_AUDIO_MEL_H

#include "base/pool.h"
#include "base/status.h"

enum {
    MEL_SAMPLES_PER_CHUNK = 480000, /* 30 s */
    MEL_FRAMES = 3000,
    MEL_BINS = 128,
    MEL_FRAME_SAMPLES = 160, /* from one frame to the next */
    MEL_TOKENS = 60          /* tokens per chunk for the language model: one per half second */
};

/* Chunks of a sound of n samples, and tokens of these chunks, padding included; 0 if n is 0. */
static inline size_t mel_chunks(size_t n)
{
    return n / MEL_SAMPLES_PER_CHUNK + (n % MEL_SAMPLES_PER_CHUNK != 0);
}

static inline size_t mel_tokens(size_t n)
{
    return mel_chunks(n) * MEL_TOKENS;
}

struct mel;

/* Builds tables, and scratch memory for each thread of `pool`, which is borrowed. NULL: work on the
 * calling thread only. */
enum pv_status mel_open(struct mel **out, struct pool *pool, struct pv_error *err);
void mel_close(struct mel **m);

/* Compute out[MEL_BINS][MEL_FRAMES] from n <= MEL_SAMPLES_PER_CHUNK finite samples, padded with
 * silence. Allocates nothing. One caller at a time. */
void mel_chunk(struct mel *m, const float *samples, size_t n, float *out);

#endif
