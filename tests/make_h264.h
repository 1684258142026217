/* H.264 written by hand: grey pictures of any size, with as many reference frames as asked for. A
 * picture that repeats the last one is a few bytes, whatever its size. */
#ifndef PV_TESTS_MAKE_H264_H
#define PV_TESTS_MAKE_H264_H

#include "make_mp4.h"

#include <stdlib.h>

struct bits {
    uint8_t *data;
    size_t n, cap; /* bits, bytes */
};

static inline void bits_put(struct bits *b, uint32_t v, int n)
{
    while (n-- > 0) {
        if (b->n / 8 >= b->cap) {
            b->cap = b->cap ? 2 * b->cap : 256;
            b->data = realloc(b->data, b->cap);
        }
        if (b->n % 8 == 0)
            b->data[b->n / 8] = 0;
        b->data[b->n / 8] |= (uint8_t)((v >> n & 1) << (7 - b->n % 8));
        b->n++;
    }
}

/* Exp-Golomb. */
static inline void bits_ue(struct bits *b, uint32_t v)
{
    int len = 0;
    while ((v + 1) >> (len + 1))
        len++;
    bits_put(b, 0, len);
    bits_put(b, v + 1, len + 1);
}

/* The end of a unit, and the bytes that keep start codes out. */
static inline void bits_finish(struct bits *b)
{
    uint8_t *out = malloc(b->cap * 2 + 16);
    size_t n = 0, len;
    int zeros = 0;
    bits_put(b, 1, 1);
    while (b->n % 8)
        bits_put(b, 0, 1);
    len = b->n / 8;
    for (size_t i = 0; i < len; i++) {
        if (zeros >= 2 && b->data[i] <= 3) {
            out[n++] = 3;
            zeros = 0;
        }
        zeros = b->data[i] ? 0 : zeros + 1;
        out[n++] = b->data[i];
    }
    free(b->data);
    *b = (struct bits){ out, n * 8, n };
}

static inline struct bits h264_sps(int mbs, int refs)
{
    struct bits b = { 0 };
    bits_put(&b, 0x67, 8);
    bits_put(&b, 66, 8); /* baseline */
    bits_put(&b, 0, 8);
    bits_put(&b, 51, 8);
    bits_ue(&b, 0);
    bits_ue(&b, 4); /* frame_num of 8 bits */
    bits_ue(&b, 2); /* shown as they come */
    bits_ue(&b, (uint32_t)refs);
    bits_put(&b, 0, 1);
    bits_ue(&b, (uint32_t)mbs - 1);
    bits_ue(&b, (uint32_t)mbs - 1);
    bits_put(&b, 1, 1);
    bits_put(&b, 1, 1);
    bits_put(&b, 0, 2); /* no cropping, no VUI */
    bits_finish(&b);
    return b;
}

static inline struct bits h264_pps(void)
{
    struct bits b = { 0 };
    bits_put(&b, 0x68, 8);
    bits_ue(&b, 0);
    bits_ue(&b, 0);
    bits_put(&b, 0, 2); /* CAVLC */
    bits_ue(&b, 0);
    bits_ue(&b, 0);
    bits_ue(&b, 0);
    bits_put(&b, 0, 3);
    bits_ue(&b, 0);
    bits_ue(&b, 0);
    bits_ue(&b, 0);
    bits_put(&b, 1, 1); /* filters are told of by the slice */
    bits_put(&b, 0, 2);
    bits_finish(&b);
    return b;
}

/* Picture number `at` since the last key; 0 is one. */
static inline struct bits h264_picture(int mbs, int at, int key)
{
    struct bits b = { 0 };
    bits_put(&b, at ? 0x61 : 0x65, 8);
    bits_ue(&b, 0);
    bits_ue(&b, at ? 5 : 7);
    bits_ue(&b, 0);
    bits_put(&b, (uint32_t)at & 0xff, 8);
    if (at == 0) {
        bits_ue(&b, (uint32_t)key & 1);
    } else {
        bits_put(&b, 0, 2); /* references as they are */
    }
    bits_put(&b, 0, at ? 1 : 2); /* marked as usual */
    bits_ue(&b, 0);
    bits_ue(&b, 1); /* no filter */
    if (at) {
        bits_ue(&b, (uint32_t)(mbs * mbs)); /* all as before */
    } else {
        for (int i = 0; i < mbs * mbs; i++)
            bits_put(&b, 0x27, 8); /* 16 x 16, from the mean of its neighbours, nothing added */
    }
    bits_finish(&b);
    return b;
}

static inline void mp4_unit(struct mp4 *m, const struct bits *b)
{
    mp4_u16(m, (unsigned)(b->n / 8));
    mp4_bytes(m, b->data, b->n / 8);
}

/* A film of n pictures of mbs * 16 pixels along a side, a key every `group`, into malloc'd memory.
 */
static inline uint8_t *h264_film(int mbs, int refs, int n, int group, size_t *size)
{
    struct mp4 m = { .n = 0 };
    struct mp4_track t;
    struct bits sps = h264_sps(mbs, refs), pps = h264_pps(),
                *unit = calloc((size_t)n, sizeof *unit);
    size_t moov, box, stco, at;
    uint8_t *out;
    mp4_file_head(&m);
    moov = mp4_begin(&m, "moov");
    mp4_movie_head(&m);
    t = mp4_track_begin(&m, "vide", "avc1");
    box = mp4_begin(&m, "avcC");
    mp4_bytes(&m, (uint8_t[]){ 1, 66, 0, 51, 0xff, 0xe1 }, 6);
    mp4_unit(&m, &sps);
    mp4_bytes(&m, "\1", 1);
    mp4_unit(&m, &pps);
    mp4_end(&m, box);
    mp4_entry_end(&m, t);
    MP4_TABLE(&m, "stts", 0, 1, (uint32_t)n, 1);
    MP4_TABLE(&m, "stsc", 0, 1, 1, (uint32_t)n, 1);
    box = mp4_begin(&m, "stss");
    mp4_u32(&m, 0);
    mp4_u32(&m, (uint32_t)((n + group - 1) / group));
    for (int i = 0; i < n; i += group)
        mp4_u32(&m, (uint32_t)i + 1);
    mp4_end(&m, box);
    box = mp4_begin(&m, "stsz");
    mp4_u32(&m, 0);
    mp4_u32(&m, 0);
    mp4_u32(&m, (uint32_t)n);
    at = 8;
    for (int i = 0; i < n; i++) {
        unit[i] = h264_picture(mbs, i % group, i / group);
        mp4_u32(&m, (uint32_t)(unit[i].n / 8 + 4));
        at += unit[i].n / 8 + 4;
    }
    mp4_end(&m, box);
    stco = mp4_begin(&m, "stco");
    mp4_u32(&m, 0);
    mp4_u32(&m, 1);
    mp4_u32(&m, 0);
    mp4_end(&m, stco);
    mp4_track_end(&m, t);
    mp4_end(&m, moov);
    *size = m.n + at;
    box = m.n;
    m.n = stco + 16;
    mp4_u32(&m, (uint32_t)box + 8);
    m.n = box;
    box = mp4_begin(&m, "mdat");
    m.n = box;
    mp4_u32(&m, (uint32_t)at);
    m.n = box + 8;
    out = malloc(*size);
    memcpy(out, m.data, m.n);
    at = m.n;
    for (int i = 0; i < n; i++) {
        size_t len = unit[i].n / 8;
        const uint8_t head[4] = { (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                                  (uint8_t)len };
        memcpy(out + at, head, 4);
        memcpy(out + at + 4, unit[i].data, len);
        at += 4 + len;
        free(unit[i].data);
    }
    free(unit);
    free(sps.data);
    free(pps.data);
    return out;
}

#endif
