/* The bytes of make_model's files: random numbers that depend on seed, name and index, and GGUF's
 * own structures. */
#ifndef PV_BENCH_GGUF_BYTES_H
#define PV_BENCH_GGUF_BYTES_H

#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* GGUF numbering. */
enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8, GGUF_ARRAY = 9 };
enum { HEADER_KEYS = 16 }; /* offset of the number of keys */
enum { GGUF_ALIGNMENT = 32 };

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t tensor_seed(uint64_t seed, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u ^ mix(seed + 1);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return mix(h);
}

/* Nearly normal: the sum of the four 16-bit parts of one hashed counter, which has variance
 * 4 * 65536^2 / 12 and stays within 3.5 deviations. One multiplication chain per element: half a
 * billion weights take a second or two. */
static inline void fill_normal(float *x, int64_t n, uint64_t seed, int64_t first, float mean,
                               float std)
{
    float scale = std / (65536.0f * sqrtf(4.0f / 12.0f));
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = mix(seed + (uint64_t)(first + i) * 0x9e3779b97f4a7c15u);
        int32_t sum = (int32_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
        x[i] = mean + scale * (float)(sum - 2 * 65535);
    }
}

/* ---- GGUF, little-endian; write errors are checked once, at the end (ferror) ---- */

static inline void put_le(FILE *f, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        putc((int)(v >> (8 * i) & 0xff), f);
}

static inline void put_text(FILE *f, const char *s)
{
    size_t len = strlen(s);
    put_le(f, len, 8);
    fwrite(s, 1, len, f);
}

static uint64_t n_keys; /* keys written so far to this file */

static inline void put_key(FILE *f, const char *prefix, const char *key, uint32_t type)
{
    size_t len = strlen(prefix) + strlen(key);
    n_keys++;
    put_le(f, len, 8);
    fputs(prefix, f);
    fputs(key, f);
    put_le(f, type, 4);
}

static inline void put_u32(FILE *f, const char *prefix, const char *key, uint32_t v)
{
    put_key(f, prefix, key, GGUF_U32);
    put_le(f, v, 4);
}

static inline void put_f32(FILE *f, const char *prefix, const char *key, float v)
{
    put_key(f, prefix, key, GGUF_F32);
    put_le(f, f32_bits(v), 4);
}

static inline void put_string(FILE *f, const char *prefix, const char *key, const char *v)
{
    put_key(f, prefix, key, GGUF_STRING);
    put_text(f, v);
}

static inline void put_array(FILE *f, const char *key, uint32_t type, uint64_t n)
{
    put_key(f, "tokenizer.ggml.", key, GGUF_ARRAY);
    put_le(f, type, 4);
    put_le(f, n, 8);
}

static inline void put_padding(FILE *f, uint64_t at)
{
    while (at++ % GGUF_ALIGNMENT)
        putc(0, f);
}

static inline void put_ints(FILE *f, const char *prefix, const char *key, const int *v, int n)
{
    put_key(f, prefix, key, GGUF_ARRAY);
    put_le(f, GGUF_I32, 4);
    put_le(f, (uint64_t)n, 8);
    for (int i = 0; i < n; i++)
        put_le(f, (uint64_t)v[i], 4);
}

static inline void put_triple(FILE *f, const char *prefix, const char *key, const float v[3])
{
    put_key(f, prefix, key, GGUF_ARRAY);
    put_le(f, GGUF_F32, 4);
    put_le(f, 3, 8);
    for (int i = 0; i < 3; i++)
        put_le(f, f32_bits(v[i]), 4);
}

#endif
