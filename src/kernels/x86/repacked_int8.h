/* Repacked weights of Q8_0, Q4_0, Q5_0 and IQ4_NL; they are repacked when a model is opened. 16
 * outputs are stored together, so that a vector has the same values of all of them, and a row of x
 * needs neither sums across lanes nor gathered scales. Products have the bits of those of
 * int8_avx512.h.
 *
 * Values 4 k to 4 k + 3 of a block, of 16 outputs, are one line of 64 bytes; all lines with the
 * same k follow each other, in planes: [planes][outputs / 16][blocks][16 outputs][4 values], then
 * the scales [outputs / 16][blocks][16] (f16). So a product reads several long streams, which the
 * hardware prefetches better than a single one.
 *
 *   Q8_0  8 planes
 *   Q4_0, IQ4_NL  4 planes, values 16 to 31 in the upper halves of the bytes
 *   Q5_0  the same, and one of the fifth bits: eight masks of 64 bits in a line */
#ifndef PV_KERNELS_X86_REPACKED_INT8_H
#define PV_KERNELS_X86_REPACKED_INT8_H

#include "kernels/x86/int8_avx512.h"

/* matmul_repacked_avx512.c */
extern const struct matmul_kernel matmul_repacked_vnni;
size_t repacked_size(const struct matrix *w);
void repack(void *to, const struct matrix *w, int o0, int o1);
void repacked_dots(float *y, size_t y_stride, const void *xp, int n, const struct matrix *w, int o0,
                   int o1);

enum { LINE = 64 };

INLINE int repacked_planes(enum dtype t)
{
    return t == DTYPE_Q8_0 ? 8 : t == DTYPE_Q5_0 ? 5 : 4;
}

/* Bytes from plane to plane: not a multiple of a page, because lines of all planes would then fall
 * into the same few cache sets, and all planes would reach a new page at once. */
static inline size_t repacked_plane(const struct matrix *w)
{
    size_t groups = ((size_t)w->out + GROUP - 1) / GROUP;
    return (groups * blocks_of(w->in) * LINE + 4095) / 4096 * 4096 + 9 * (size_t)LINE;
}

/* A group of 16 outputs. */
struct repacked_group {
    const uint8_t *q; /* line 0 of its first block; blocks are LINE bytes apart */
    size_t plane;     /* bytes from line to line of a block */
    const uint8_t *scale;
};

INLINE struct repacked_group repacked_group(const struct matrix *w, int o, enum dtype t)
{
    size_t at = (size_t)(o / GROUP) * blocks_of(w->in) * LINE, plane = repacked_plane(w);
    const uint8_t *repacked = w->repacked;
    return (struct repacked_group){ repacked + at, plane,
                                    repacked + (size_t)repacked_planes(t) * plane + at / 2 };
}

/* Scales of block i of a group. */
INLINE __m512 repacked_scales(const struct repacked_group *g, size_t i)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(g->scale + i * LINE / 2)));
}

/* Prefetch the lines of block i, which may belong to a later group. */
INLINE void repacked_fetch(const struct repacked_group *g, size_t i, enum dtype t)
{
    for (size_t k = 0; k < (size_t)repacked_planes(t); k++)
        _mm_prefetch((const char *)g->q + i * LINE + k * g->plane, _MM_HINT_T0);
}

/* A block as bytes: values 4 k to 4 k + 3 of the outputs in q[k]. Q8_0 signed, IQ4_NL levels
 * shifted by 128, others as they are stored, without the type's zero. */
INLINE void repacked_load(__m512i q[8], const struct repacked_group *g, size_t i, enum dtype t)
{
    const __m512i low = _mm512_set1_epi8(15), five = _mm512_set1_epi8(16);
    const uint8_t *p = g->q + i * LINE;
    if (t == DTYPE_Q8_0) {
        for (size_t k = 0; k < 8; k++)
            q[k] = _mm512_load_si512(p + k * g->plane);
        return;
    }
    for (size_t k = 0; k < 4; k++) {
        __m512i v = _mm512_load_si512(p + k * g->plane);
        q[k] = _mm512_and_si512(v, low);
        q[4 + k] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
    }
    if (t == DTYPE_IQ4_NL) {
        const __m512i levels = _mm512_broadcast_i32x4(unsigned_levels());
        for (size_t k = 0; k < 8; k++)
            q[k] = _mm512_shuffle_epi8(levels, q[k]);
    }
    if (t == DTYPE_Q5_0)
        for (size_t k = 0; k < 8; k++)
            q[k] = _mm512_mask_add_epi8(q[k], load_le64(p + 4 * g->plane + 8 * k), q[k], five);
}

#endif
