/* mel_cli: samples in, log-mel features out, for tools/golden/mel_check.py.
 *
 * Usage: mel_cli [THREADS [REPEATS]]. Input: 32-bit floats, at most 480,000; output: [128][3000] of
 * them. With REPEATS it is done so often, and the fastest is told on stderr, in seconds. */
#include "audio/mel.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    int repeats = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1;
    float *samples = mem_zalloc(MEL_SAMPLES_PER_CHUNK * sizeof *samples);
    float *out = mem_zalloc((size_t)MEL_BINS * MEL_FRAMES * sizeof *out);
    struct pv_error err = { 0 };
    struct pool *pool = NULL;
    struct mel *m = NULL;
    double best = 1e9;
    size_t n;

    if (!samples || !out || pool_open(&pool, threads, &err) || mel_open(&m, pool, &err)) {
        fprintf(stderr, "mel_cli: %s\n", err.text);
        return 1;
    }
    n = fread(samples, sizeof *samples, MEL_SAMPLES_PER_CHUNK, stdin);
    for (int i = 0; i < repeats; i++) {
        double began = clock_now(), took;
        mel_chunk(m, samples, n, out);
        took = clock_now() - began;
        best = took < best ? took : best;
    }
    if (repeats > 1)
        fprintf(stderr, "%.6f\n", best);
    fwrite(out, sizeof *out, (size_t)MEL_BINS * MEL_FRAMES, stdout);
    mel_close(&m);
    pool_close(&pool);
    mem_free(samples);
    mem_free(out);
    return 0;
}
