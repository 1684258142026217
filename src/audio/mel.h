/* Log-mel features of Whisper large-v3: what its encoder takes in place of samples.
 *
 * Sound is cut into chunks of 30 seconds, the last one padded with silence. A chunk becomes 3000
 * frames of 128 bands: a power spectrum of 400 samples every 160 (periodic Hann window, centred,
 * reflected at both ends of the padded chunk), summed by 128 triangular filters of equal area on
 * the Slaney mel scale from 0 to 8000 Hz, log10 of at least 1e-10, no more than 8 below the largest
 * value of the chunk, and (x + 4) / 4 of that.
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
    MEL_TOKENS = 60          /* that a language model gets for a chunk: one for each half second */
};

/* Chunks of a sound of n samples, and the tokens they become, padding included; 0 for no sound. */
static inline size_t mel_chunks(size_t n)
{
    return n / MEL_SAMPLES_PER_CHUNK + (n % MEL_SAMPLES_PER_CHUNK != 0);
}

static inline size_t mel_tokens(size_t n)
{
    return mel_chunks(n) * MEL_TOKENS;
}

struct mel;

/* Tables, and memory for the pool's threads. `pool` is borrowed; NULL: the caller's thread alone.
 */
enum pv_status mel_open(struct mel **out, struct pool *pool, struct pv_error *err);
void mel_close(struct mel **m);

/* out[MEL_BINS][MEL_FRAMES] of the first n <= MEL_SAMPLES_PER_CHUNK samples, all finite; silence
 * follows them. Allocates nothing. One caller at a time. */
void mel_chunk(struct mel *m, const float *samples, size_t n, float *out);

#endif
