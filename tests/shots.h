/* Frames of the test clips. A clip (tools/golden/make_clips.sh) shows its frame's number in eight
 * columns, the lowest bit left, the lower half inverted: so a test can read which frame it is. */
#ifndef PV_TESTS_SHOTS_H
#define PV_TESTS_SHOTS_H

#include "decode.h"
#include "test.h"

enum { MOST = 64 };

static const struct video_limits roomy = {
    .file_bytes = 1 << 20, .pixels = 1 << 20, .frames = 1000, .seconds = 100
};

struct shot {
    int64_t index;
    double time;
    int number; /* -1: it does not read */
    uint64_t hash;
};

struct shots {
    struct shot shot[MOST];
    int n, width, height;
    int stop_at; /* 0: never */
};

static inline const char *clip(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s%s", name[0] == '/' ? "" : "tests/data/video/", name);
    return path;
}

static inline int luma(const struct image *p, int x, int y)
{
    const uint8_t *c = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;

    return (c[0] + c[1] + c[2]) / 3;
}

/* quarter: the picture was turned by 90 degrees against the clock. */
static inline int read_number(const struct image *p, bool quarter)
{
    int w = quarter ? p->height : p->width, h = quarter ? p->width : p->height, number = 0;

    for (int bit = 0; bit < 8; bit++) {
        int x = (2 * bit + 1) * w / 16, upper = h / 4, lower = h - 1 - h / 4;
        int a = quarter ? luma(p, upper, w - 1 - x) : luma(p, x, upper);
        int b = quarter ? luma(p, lower, w - 1 - x) : luma(p, x, lower);
        if ((a > 120) == (b > 120))
            return -1;
        number |= (a > 120) << bit;
    }
    return number;
}

static inline uint64_t hash_of(const struct image *p)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i++)
        h = (h ^ p->rgb[i]) * 1099511628211u;
    return h;
}

static bool quarter_turn;

static inline bool take(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct shots *s = user;

    CHECK_EQ(at, s->n);
    CHECK(s->n == 0 || (p->width == s->width && p->height == s->height));
    s->width = p->width;
    s->height = p->height;
    if (s->n < MOST)
        s->shot[s->n++] = (struct shot){ index, time, read_number(p, quarter_turn), hash_of(p) };
    return s->n != s->stop_at;
}

static inline enum pv_status open_path(struct decode **out, const char *path,
                                       const struct video_limits *limits, int threads,
                                       struct pv_error *err)
{
    return decode_open(out, &(struct video_source){ .path = path }, limits, threads, err);
}

static inline struct decode *open_clip(const char *name, int threads)
{
    struct pv_error err = { 0 };
    struct decode *v = NULL;

    CHECK_MSG(!open_path(&v, clip(name), &roomy, threads, &err), "%s", err.text);
    return v;
}

/* The frames index[n], or all when index is NULL; returns how many were lost, -1: failed. */
static inline int read_frames(struct shots *out, struct decode *v, const int64_t *index, int n)
{
    int64_t every[MOST];
    struct pv_error err = { 0 };
    int lost = -1;

    *out = (struct shots){ 0 };
    if (!index) {
        n = (int)decode_info(v)->n_frames;
        for (int i = 0; i < n && i < MOST; i++)
            every[i] = i;
        index = every;
    }
    CHECK_MSG(!decode_read(v, index, n, take, out, &lost, &err), "%s", err.text);
    CHECK_EQ(out->n, n);
    return lost;
}

static inline int read_clip(struct shots *out, const char *name)
{
    struct decode *v = open_clip(name, 2);
    int lost = v ? read_frames(out, v, NULL, 0) : -1;

    decode_close(&v);
    return lost;
}

/* The films that show 0, 1, 2, ... at 25 frames a second, save where it says otherwise. */
static const struct film {
    const char *name;
    int n, width, height, first;
    bool other_times, quarter;
} films[] = {
    { "bframes.mp4", 40, 64, 48, 0, false, false },
    { "bframes.mkv", 40, 64, 48, 0, false, false },
    { "bframes.ts", 40, 64, 48, 0, false, false },
    { "bframes.mov", 40, 64, 48, 0, false, false },
    { "bframes.flv", 40, 64, 48, 0, false, false },
    { "opengop.mp4", 40, 64, 48, 0, false, false },
    { "opengop_hevc.mkv", 40, 64, 48, 0, false, false },
    { "refresh.mkv", 40, 64, 48, 0, false, false },
    { "leaves.mp4", 40, 64, 48, 0, false, false },
    { "pyramid.ts", 40, 64, 48, 0, false, false },
    { "interlaced.mp4", 40, 64, 48, 0, false, false },
    { "mpeg2.mpg", 40, 64, 48, 0, false, false },
    { "mpeg4.avi", 40, 64, 48, 0, false, false },
    { "flv1.flv", 40, 64, 48, 0, false, false },
    { "vp8.webm", 40, 64, 48, 0, false, false },
    { "vp9.webm", 40, 64, 48, 0, false, false },
    { "theora.ogv", 40, 64, 48, 0, false, false },
    { "anim.gif", 10, 64, 48, 0, false, false },
    { "vfr.mkv", 40, 64, 48, 0, true, false },
    { "rotated.mp4", 40, 48, 64, 0, false, true },
    { "editlist.mp4", 22, 64, 48, 18, false, false },
    { "odd444p10.mkv", 14, 61, 47, 0, false, false },
    { "odd420p12.mkv", 3, 63, 49, 0, false, false },
    { "gray.mkv", 3, 64, 48, 0, false, false },
    { "yuv422.mkv", 6, 64, 48, 0, false, false },
};

static inline unsigned dice(unsigned n)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 32) % n;
}

#endif
