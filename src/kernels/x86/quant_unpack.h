/* Unpacks blocks of quantised weights to panels: a template, compiled once per instruction set. A
 * panel holds VEC outputs side by side: lane o of a vector of quants is four consecutive bytes of
 * output o, so that one vector of sums serves VEC outputs, and scales are vectors too. Quants are
 * unsigned; the packed x corrects for their offset (matmul_quant.h).
 *
 * All rows of a tile are read at the same time, one block each, at any alignment. Rows after the
 * last output repeat it. */
#ifndef PV_KERNELS_X86_QUANT_UNPACK_H
#define PV_KERNELS_X86_QUANT_UNPACK_H

#include "kernels/x86/vec_x86.h"
#include "tensor/quant.h"

enum { BLOCK = 32, GROUPS = 8, PANEL_BLOCKS = 8 }; /* elements; groups of 4; blocks of a panel */
enum { REPACKED_AHEAD = 1024 };                    /* prefetch distance in bytes of a plane */

struct panel_block {
    ivec q[GROUPS];
#ifndef __AVX512F__
    ivec q_odd[GROUPS]; /* Q8_0: elements 1, 3 of four as int16, and 0, 2 in q */
#endif
    vec scale;
    vec other; /* Q4_K, Q5_K, Q4_1, Q5_1: min to subtract; Q6_K: scale of the second 16 */
};

/* Bytes of a block in the file. */
INLINE int block_bytes(enum dtype type)
{
    switch (type) {
    case DTYPE_Q8_0:
        return 34;
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        return 18;
    case DTYPE_Q5_0:
        return 22;
    case DTYPE_Q4_1:
        return 20;
    case DTYPE_Q5_1:
        return 24;
    case DTYPE_Q4_K:
        return 144;
    case DTYPE_Q5_K:
        return 176;
    default:
        return 210; /* Q6_K */
    }
}

struct tile_rows {
    const uint8_t *row[VEC];
    ivec at; /* row[o] - row[0] */
    const uint8_t
        *repacked; /* the rows repacked by quant_repack (matmul_quant.h); NULL: as in file */
    size_t plane;  /* bytes between planes of that order */
};

enum { REPACKED_LINES_MAX = 54 };

/* A repacked block of VEC outputs has so many lines of VEC dwords, */
INLINE size_t repacked_lines(enum dtype type)
{
    switch (type) {
    case DTYPE_Q4_K:
        return 36;
    case DTYPE_Q5_K:
        return 44;
    case DTYPE_Q6_K:
        return 54; /* the last one is empty */
    case DTYPE_Q4_1:
        return 5;
    default:
        return 6; /* Q5_1 */
    }
}

/* which are distributed over so many planes in turn: as many streams for the hardware to prefetch.
 */
INLINE size_t repacked_planes(enum dtype type)
{
    switch (type) {
    case DTYPE_Q4_K:
        return 12;
    case DTYPE_Q5_K:
        return 11;
    case DTYPE_Q6_K:
        return 9;
    case DTYPE_Q4_1:
        return 5;
    default:
        return 6;
    }
}

/* Load four bytes from byte `at` on of block `unit` of each row; for repacked weights `at` is a
 * multiple of 4. `type` and `at` are compile-time constants. */
INLINE ivec tile_dword(const struct tile_rows *t, enum dtype type, size_t unit, size_t at)
{
    size_t line = at / 4, planes = repacked_planes(type);
    if (!t->repacked)
        return ivec_gather(t->row[0] + unit * (size_t)block_bytes(type) + at, t->at);
    const uint8_t *p = t->repacked + line % planes * t->plane;
    p += (unit * (repacked_lines(type) / planes) + line / planes) * VEC * 4;
    _mm_prefetch((const char *)p + REPACKED_AHEAD, _MM_HINT_T0);
    return ivec_load(p);
}

/* The same for sixteen bytes. */
INLINE void tile_dwords(ivec q[4], const struct tile_rows *t, enum dtype type, size_t unit,
                        size_t at)
{
    if (t->repacked)
        for (size_t i = 0; i < 4; i++)
            q[i] = tile_dword(t, type, unit, at + 4 * i);
    else
        ivec_transpose(q, t->row, unit * (size_t)block_bytes(type) + at);
}

typedef void unpack_fn(struct panel_block *p, const struct tile_rows *t, size_t block, int n);

/* Unpack 32 quants of four bits from byte `at` of block `unit` on. */
INLINE void unpack_nibbles(struct panel_block *p, const struct tile_rows *t, enum dtype type,
                           size_t unit, size_t at)
{
    const ivec low = ivec_set(0x0f0f0f0f);
    ivec q[4];
    tile_dwords(q, t, type, unit, at);
    for (int g = 0; g < 4; g++) {
        p->q[g] = ivec_and(q[g], low);
        p->q[4 + g] = ivec_and(ivec_shr(q[g], 4), low);
    }
}

/* Unpack 32 fifth bits from byte `at` of block `unit` on, then 32 quants of four bits. */
INLINE void unpack_fifth(struct panel_block *p, const struct tile_rows *t, enum dtype type,
                         size_t unit, size_t at)
{
    ivec high = tile_dword(t, type, unit, at);
    unpack_nibbles(p, t, type, unit, at + 4);
    for (int g = 0; g < 8; g++)
        p->q[g] = ivec_or(p->q[g], ivec_spread(ivec_shr(high, 4 * g)));
}

#ifndef __AVX512F__ /* AVX-512: matmul_int8_avx512.c has Q8_0, Q4_0, Q5_0 and IQ4_NL */

/* Unpack up to PANEL_BLOCKS blocks of 32 from block number `block` on. */
static void unpack_q8_0(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    for (int b = 0; b < n; b++, p++) {
        size_t at = (block + (size_t)b) * 34;
        ivec q[8];
        p->scale = ivec_half(ivec_gather(t->row[0] + at, t->at));
        ivec_transpose(q, t->row, at + 2);
        ivec_transpose(q + 4, t->row, at + 18);
        for (int g = 0; g < GROUPS; g++) {
            p->q[g] = ivec_even(q[g]);
            p->q_odd[g] = ivec_odd(q[g]);
        }
    }
}

static void unpack_q4_0(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    for (int b = 0; b < n; b++, p++) {
        size_t at = (block + (size_t)b) * 18;
        p->scale = ivec_half(ivec_gather(t->row[0] + at, t->at));
        unpack_nibbles(p, t, DTYPE_Q4_0, block + (size_t)b, 2);
    }
}

static void unpack_q5_0(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    for (int b = 0; b < n; b++, p++) {
        size_t at = (block + (size_t)b) * 22;
        p->scale = ivec_half(ivec_gather(t->row[0] + at, t->at));
        unpack_fifth(p, t, DTYPE_Q5_0, block + (size_t)b, 2);
    }
}

/* Stored as signed numbers, because the levels have more bits than the quants of the other types.
 */
static void unpack_iq4_nl(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    const ivec low = ivec_set(0x0f0f0f0f);
    const __m128i levels = _mm_loadu_si128((const __m128i *)iq4_nl_levels);
    const ivec table = _mm256_broadcastsi128_si256(levels);
    for (int b = 0; b < n; b++, p++) {
        size_t at = (block + (size_t)b) * 18;
        ivec q[4];
        p->scale = ivec_half(ivec_gather(t->row[0] + at, t->at));
        ivec_transpose(q, t->row, at + 2);
        for (int g = 0; g < 4; g++) {
            ivec lo = _mm256_shuffle_epi8(table, ivec_and(q[g], low));
            ivec hi = _mm256_shuffle_epi8(table, ivec_and(ivec_shr(q[g], 4), low));
            p->q[g] = ivec_even(lo);
            p->q_odd[g] = ivec_odd(lo);
            p->q[4 + g] = ivec_even(hi);
            p->q_odd[4 + g] = ivec_odd(hi);
        }
    }
}

#endif

/* Load d and -m of a block of Q4_1 or Q5_1. */
INLINE void unpack_min(struct panel_block *p, const struct tile_rows *t, enum dtype type,
                       size_t unit)
{
    ivec head = tile_dword(t, type, unit, 0);
    p->scale = ivec_half(head);
    p->other = vec_sub(vec_zero(), ivec_half(ivec_shr(head, 16)));
}

static void unpack_q4_1(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    for (int b = 0; b < n; b++, p++) {
        unpack_min(p, t, DTYPE_Q4_1, block + (size_t)b);
        unpack_nibbles(p, t, DTYPE_Q4_1, block + (size_t)b, 4);
    }
}

static void unpack_q5_1(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    for (int b = 0; b < n; b++, p++) {
        unpack_min(p, t, DTYPE_Q5_1, block + (size_t)b);
        unpack_fifth(p, t, DTYPE_Q5_1, block + (size_t)b, 4);
    }
}

/* Unpack the eight 6-bit scales and mins of Q4_K and Q5_K, times d and dmin. */
INLINE void unpack_k_scales(struct panel_block *p, const struct tile_rows *t, enum dtype type,
                            size_t unit)
{
    ivec head = tile_dword(t, type, unit, 0);
    ivec s0 = tile_dword(t, type, unit, 4), s1 = tile_dword(t, type, unit, 8);
    ivec s2 = tile_dword(t, type, unit, 12);
    vec d = ivec_half(head), dmin = ivec_half(ivec_shr(head, 16));
    const ivec six = ivec_set(63), four = ivec_set(15), top = ivec_set(0x30);

    for (int j = 0; j < 4; j++) {
        ivec a = ivec_shr(s0, 8 * j), b = ivec_shr(s1, 8 * j), c = ivec_shr(s2, 8 * j);
        p[j].scale = vec_mul(d, ivec_float(ivec_and(a, six)));
        p[j].other = vec_mul(dmin, ivec_float(ivec_and(b, six)));
        a = ivec_or(ivec_and(c, four), ivec_and(ivec_shr(a, 2), top));
        b = ivec_or(ivec_and(ivec_shr(c, 4), four), ivec_and(ivec_shr(b, 2), top));
        p[4 + j].scale = vec_mul(d, ivec_float(a));
        p[4 + j].other = vec_mul(dmin, ivec_float(b));
    }
}

static void unpack_q4_K(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    const ivec low = ivec_set(0x0f0f0f0f);
    size_t unit = block / 8;

    (void)n;
    unpack_k_scales(p, t, DTYPE_Q4_K, unit);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++, p += 2) {
        ivec q[8];
        tile_dwords(q, t, DTYPE_Q4_K, unit, 16 + 32 * (size_t)pair);
        tile_dwords(q + 4, t, DTYPE_Q4_K, unit, 32 + 32 * (size_t)pair);
        for (int g = 0; g < GROUPS; g++) {
            p[0].q[g] = ivec_and(q[g], low);
            p[1].q[g] = ivec_and(ivec_shr(q[g], 4), low);
        }
    }
}

static void unpack_q5_K(struct panel_block *p, const struct tile_rows *t, size_t block, int n)
{
    const ivec low = ivec_set(0x0f0f0f0f), fifth = ivec_set(0x10101010);
    size_t unit = block / 8;
    ivec high[8];

    (void)n;
    unpack_k_scales(p, t, DTYPE_Q5_K, unit);
    tile_dwords(high, t, DTYPE_Q5_K, unit, 16);
    tile_dwords(high + 4, t, DTYPE_Q5_K, unit, 32);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; pair++, p += 2) {
        ivec q[8];
        tile_dwords(q, t, DTYPE_Q5_K, unit, 48 + 32 * (size_t)pair);
        tile_dwords(q + 4, t, DTYPE_Q5_K, unit, 64 + 32 * (size_t)pair);
        for (int g = 0; g < GROUPS; g++) {
            ivec a = ivec_and(ivec_shl(high[g], 4), fifth);
            ivec b = ivec_and(ivec_shl(high[g], 3), fifth);
            p[0].q[g] = ivec_or(ivec_and(q[g], low), a);
            p[1].q[g] = ivec_or(ivec_and(ivec_shr(q[g], 4), low), b);
            high[g] = ivec_shr(high[g], 2); /* the next pair's bits */
        }
    }
}

INLINE ivec bytes_less(ivec v, int n)
{
    return n ? ivec_sub_bytes(v, ivec_set(n * 0x01010101)) : v;
}

/* Unpack Q6_K, with `zero` subtracted from the quants. */
INLINE void unpack_q6_K_less(struct panel_block *p, const struct tile_rows *t, size_t block,
                             int zero)
{
    const ivec low = ivec_set(0x0f0f0f0f), top = ivec_set(0x30303030);
    const enum dtype type = DTYPE_Q6_K;
    size_t unit = block / 8;
    /* d is at the end of the block: read the two bytes before it as well, not two bytes after it.
     */
    vec d = t->repacked ? ivec_half(tile_dword(t, type, unit, 208))
                        : ivec_half(ivec_shr(tile_dword(t, type, unit, 206), 16));

#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        ivec s = tile_dword(t, type, unit, 192 + 4 * j);
        p[2 * j].scale = vec_mul(d, ivec_float(ivec_sar(ivec_shl(s, 24), 24)));
        p[2 * j].other = vec_mul(d, ivec_float(ivec_sar(ivec_shl(s, 16), 24)));
        p[2 * j + 1].scale = vec_mul(d, ivec_float(ivec_sar(ivec_shl(s, 8), 24)));
        p[2 * j + 1].other = vec_mul(d, ivec_float(ivec_sar(s, 24)));
    }
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; half++, p += 4)
#pragma GCC unroll 2
        for (size_t part = 0; part < 2; part++) { /* 16 of the 32 bytes */
            size_t ql = 64 * half + 16 * part, qh = 128 + 32 * half + 16 * part;
            ivec a[4], b[4], h[4];
            tile_dwords(a, t, type, unit, ql);
            tile_dwords(b, t, type, unit, ql + 32);
            tile_dwords(h, t, type, unit, qh);
            for (int i = 0; i < 4; i++) {
                int g = 4 * (int)part + i;
                ivec h0 = ivec_and(ivec_shl(h[i], 4), top), h1 = ivec_and(ivec_shl(h[i], 2), top);
                ivec h2 = ivec_and(h[i], top), h3 = ivec_and(ivec_shr(h[i], 2), top);
                p[0].q[g] = bytes_less(ivec_or(ivec_and(a[i], low), h0), zero);
                p[1].q[g] = bytes_less(ivec_or(ivec_and(b[i], low), h1), zero);
                p[2].q[g] = bytes_less(ivec_or(ivec_and(ivec_shr(a[i], 4), low), h2), zero);
                p[3].q[g] = bytes_less(ivec_or(ivec_and(ivec_shr(b[i], 4), low), h3), zero);
            }
        }
}

#endif
