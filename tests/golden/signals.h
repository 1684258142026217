/* Sounds by formula, the same as in tools/golden/mel_golden.py: only features are stored. */
#ifndef PV_TESTS_GOLDEN_SIGNALS_H
#define PV_TESTS_GOLDEN_SIGNALS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum signal_kind {
    SIGNAL_NOISE,  /* -0.5 .. 0.5 */
    SIGNAL_TONE,   /* 440 Hz, 0.8 high */
    SIGNAL_SWEEP,  /* from 100 Hz on, 1000 Hz higher after each second */
    SIGNAL_CLICKS, /* one every 1000 samples, each fainter, over a tone that can hardly be heard */
    SIGNAL_SILENCE,
    SIGNAL_KINDS
};

static inline float signal_noise(uint32_t i)
{
    uint32_t x = i * 2654435761u;
    x = (x ^ (x >> 15)) * 0x2C1B3C6Du;
    x ^= x >> 12;
    return (float)(x >> 8) / 16777216.0f - 0.5f;
}

static inline float signal_at(enum signal_kind kind, uint32_t i)
{
    const double turn = 6.283185307179586, t = i / 16000.0;

    switch (kind) {
    case SIGNAL_NOISE:
        return signal_noise(i);
    case SIGNAL_TONE:
        return (float)(0.8 * sin(turn * 440 * t));
    case SIGNAL_SWEEP:
        return (float)(0.5 * sin(turn * (100 * t + 500 * t * t)));
    case SIGNAL_CLICKS:
        return (float)(i % 1000 == 0 ? 1.0 / (1 + i / 1000) : 1e-5 * sin(turn * 3000 * t));
    default:
        return 0;
    }
}

static inline void signal_fill(float *out, enum signal_kind kind, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = signal_at(kind, (uint32_t)i);
}

#endif
