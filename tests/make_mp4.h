/* MP4 files made by hand, whose tables claim what the test wants. */
#ifndef PV_TESTS_MAKE_MP4_H
#define PV_TESTS_MAKE_MP4_H

#include <stdint.h>
#include <string.h>

struct mp4 {
    uint8_t data[1 << 15];
    size_t n;
};

static inline void mp4_bytes(struct mp4 *m, const void *p, size_t n)
{
    if (m->n + n <= sizeof m->data)
        memcpy(m->data + m->n, p, n);
    m->n += n;
}

static inline void mp4_zeros(struct mp4 *m, size_t n)
{
    while (n-- > 0)
        mp4_bytes(m, "", 1);
}

static inline void mp4_u32(struct mp4 *m, uint32_t v)
{
    mp4_bytes(
        m, (uint8_t[]){ (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v }, 4);
}

static inline void mp4_u16(struct mp4 *m, unsigned v)
{
    mp4_bytes(m, (uint8_t[]){ (uint8_t)(v >> 8), (uint8_t)v }, 2);
}

/* Opens a box; what is given back goes to mp4_end. */
static inline size_t mp4_begin(struct mp4 *m, const char *type)
{
    size_t at = m->n;
    mp4_u32(m, 0);
    mp4_bytes(m, type, 4);
    return at;
}

static inline void mp4_end(struct mp4 *m, size_t at)
{
    size_t end = m->n;
    m->n = at;
    mp4_u32(m, (uint32_t)(end - at));
    m->n = end;
}

/* A box of numbers alone. */
static inline void mp4_table(struct mp4 *m, const char *type, const uint32_t *v, size_t n)
{
    size_t box = mp4_begin(m, type);
    for (size_t i = 0; i < n; i++)
        mp4_u32(m, v[i]);
    mp4_end(m, box);
}

#define MP4_TABLE(m, type, ...)                                                                    \
    mp4_table(m, type, (const uint32_t[]){ __VA_ARGS__ },                                          \
              sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static inline void mp4_file_head(struct mp4 *m)
{
    size_t box = mp4_begin(m, "ftyp");
    mp4_bytes(m, "isom", 4);
    mp4_u32(m, 512);
    mp4_bytes(m, "isommp41", 8);
    mp4_end(m, box);
}

static inline void mp4_movie_head(struct mp4 *m)
{
    size_t box = mp4_begin(m, "mvhd");
    mp4_zeros(m, 12);
    mp4_u32(m, 1000); /* units a second */
    mp4_u32(m, 1000);
    mp4_zeros(m, 80);
    mp4_end(m, box);
}

/* The boxes of a track that are open. */
struct mp4_track {
    size_t trak, mdia, minf, stbl, stsd, entry;
};

/* What a track has before its tables of samples: they follow after the codec's own boxes and
 * mp4_entry_end. */
static inline struct mp4_track mp4_track_begin(struct mp4 *m, const char *handler,
                                               const char *codec)
{
    struct mp4_track t;
    size_t box;
    t.trak = mp4_begin(m, "trak");
    box = mp4_begin(m, "tkhd");
    mp4_zeros(m, 84);
    mp4_end(m, box);
    t.mdia = mp4_begin(m, "mdia");
    MP4_TABLE(m, "mdhd", 0, 0, 0, 25, 0, 0);
    box = mp4_begin(m, "hdlr");
    mp4_zeros(m, 8);
    mp4_bytes(m, handler, 4);
    mp4_zeros(m, 13);
    mp4_end(m, box);
    t.minf = mp4_begin(m, "minf");
    t.stbl = mp4_begin(m, "stbl");
    t.stsd = mp4_begin(m, "stsd");
    mp4_u32(m, 0);
    mp4_u32(m, 1);
    t.entry = mp4_begin(m, codec);
    mp4_zeros(m, 6);
    mp4_u16(m, 1);
    mp4_zeros(m, 16);
    mp4_u16(m, 64);
    mp4_u16(m, 48);
    mp4_zeros(m, 46);
    mp4_u16(m, 24);
    mp4_u16(m, 0xffff);
    return t;
}

static inline void mp4_entry_end(struct mp4 *m, struct mp4_track t)
{
    mp4_end(m, t.entry);
    mp4_end(m, t.stsd);
}

static inline void mp4_track_end(struct mp4 *m, struct mp4_track t)
{
    mp4_end(m, t.stbl);
    mp4_end(m, t.minf);
    mp4_end(m, t.mdia);
    mp4_end(m, t.trak);
}

/* A film whose tracks claim `samples` each, all of one size, in one chunk. */
static inline void mp4_claim(struct mp4 *m, int tracks, uint32_t samples)
{
    size_t moov;
    mp4_file_head(m);
    moov = mp4_begin(m, "moov");
    mp4_movie_head(m);
    for (int i = 0; i < tracks; i++) {
        struct mp4_track t = mp4_track_begin(m, "vide", "mp4v");
        mp4_entry_end(m, t);
        MP4_TABLE(m, "stts", 0, 1, samples, 1);
        MP4_TABLE(m, "stsc", 0, 1, 1, samples, 1);
        MP4_TABLE(m, "stsz", 0, 1, samples);
        MP4_TABLE(m, "stco", 0, 1, 40);
        mp4_track_end(m, t);
    }
    mp4_end(m, moov);
}

#endif
