/* Videos and pictures. The clips (tools/golden/make_clips.sh) show their frame's number in eight
 * columns, the lowest bit left, the lower half inverted; so that a frame is what it should be can
 * be read off it. */
#include "video/video.h"

#include "../scratch.h"
#include "../test.h"
#include "../tsan_libav.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>

enum { MOST = 64 };

static const struct video_limits roomy = { 1 << 20, 1 << 20, 1000, 100 };

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

static const char *clip(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s%s", name[0] == '/' ? "" : "tests/data/video/", name);
    return path;
}

static int luma(const struct image *p, int x, int y)
{
    const uint8_t *c = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;

    return (c[0] + c[1] + c[2]) / 3;
}

/* quarter: the picture was turned by 90 degrees against the clock. */
static int read_number(const struct image *p, bool quarter)
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

static uint64_t hash_of(const struct image *p)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i++)
        h = (h ^ p->rgb[i]) * 1099511628211u;
    return h;
}

static bool quarter_turn;

static bool take(void *user, int at, int64_t index, double time, const struct image *p)
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

static enum pv_status open_path(struct video **out, const char *path,
                                const struct video_limits *limits, int threads,
                                struct pv_error *err)
{
    return video_open(out, &(struct video_source){ .path = path }, limits, threads, err);
}

static struct video *open_clip(const char *name, int threads)
{
    struct pv_error err = { 0 };
    struct video *v = NULL;

    CHECK_MSG(!open_path(&v, clip(name), &roomy, threads, &err), "%s", err.text);
    return v;
}

/* The frames index[n], or all when index is NULL; returns how many were lost, -1: failed. */
static int read_frames(struct shots *out, struct video *v, const int64_t *index, int n)
{
    int64_t every[MOST];
    struct pv_error err = { 0 };
    int lost = -1;

    *out = (struct shots){ 0 };
    if (!index) {
        n = (int)video_info(v)->n_frames;
        for (int i = 0; i < n && i < MOST; i++)
            every[i] = i;
        index = every;
    }
    CHECK_MSG(!video_read(v, index, n, take, out, &lost, &err), "%s", err.text);
    CHECK_EQ(out->n, n);
    return lost;
}

static int read_clip(struct shots *out, const char *name)
{
    struct video *v = open_clip(name, 2);
    int lost = v ? read_frames(out, v, NULL, 0) : -1;

    video_close(&v);
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

static void check_film(const struct film *f, int threads)
{
    struct video *v = open_clip(f->name, threads);
    const struct video_info *info;
    struct shots all, some;

    if (!v)
        return;
    quarter_turn = f->quarter;
    info = video_info(v);
    CHECK_MSG(info->n_frames == f->n && info->width == f->width && info->height == f->height &&
                  !info->still,
              "%s: %lld frames of %d x %d", f->name, (long long)info->n_frames, info->width,
              info->height);
    if (!f->other_times)
        CHECK_MSG(fabs(info->fps - 25) < 1e-9 && fabs(info->duration - f->n / 25.0) < 1e-9,
                  "%s: %g fps, %g s", f->name, info->fps, info->duration);
    CHECK_EQ(read_frames(&all, v, NULL, 0), 0);
    for (int i = 0; i < all.n; i++) {
        CHECK_MSG(all.shot[i].index == i && all.shot[i].number == f->first + i,
                  "%s: frame %d is %lld and shows %d", f->name, i, (long long)all.shot[i].index,
                  all.shot[i].number);
        CHECK_EQ(all.shot[i].time, video_time(v, i));
        if (!f->other_times)
            CHECK_MSG(fabs(all.shot[i].time - i / 25.0) < 0.002, "%s: frame %d at %g", f->name, i,
                      all.shot[i].time);
    }
    /* Any set in any call gives the same pictures as all in a row. */
    for (int step = 1; step < f->n && step < 17; step += 1 + step / 2)
        for (int first = f->n - 1; first >= 0; first -= 5) {
            int64_t index[MOST];
            int n = 0;
            for (int i = first; i < f->n && n < MOST - 1; i += step) {
                index[n++] = i;
                if (i % 7 == 0)
                    index[n++] = i; /* twice */
            }
            CHECK_EQ(read_frames(&some, v, index, n), 0);
            for (int i = 0; i < some.n; i++)
                CHECK_MSG(some.shot[i].index == index[i] &&
                              some.shot[i].hash == all.shot[index[i]].hash,
                          "%s: frame %lld (%d from %d) differs and shows %d", f->name,
                          (long long)index[i], step, first, some.shot[i].number);
        }
    quarter_turn = false;
    video_close(&v);
    CHECK(v == NULL);
}

TEST(films)
{
    for (size_t i = 0; i < sizeof films / sizeof *films; i++)
        check_film(&films[i], 2);
}

/* The same packets in five containers give the same pictures. */
TEST(containers)
{
    struct shots a, b;

    CHECK_EQ(read_clip(&a, films[0].name), 0);
    for (int f = 1; f < 5; f++) {
        CHECK_EQ(read_clip(&b, films[f].name), 0);
        for (int i = 0; i < a.n; i++)
            CHECK_MSG(a.shot[i].hash == b.shot[i].hash, "%s: frame %d", films[f].name, i);
    }
}

TEST(threads)
{
    static const int counts[] = { 1, 3, 0, 99 };

    for (int t = 0; t < 4; t++) {
        check_film(&films[0], counts[t]);
        check_film(&films[5], counts[t]);
        check_film(&films[6], counts[t]);
    }
}

TEST(variable_rate)
{
    struct video *v = open_clip("vfr.mkv", 1);

    if (!v)
        return;
    for (int i = 0; i < 40; i++)
        CHECK_MSG(fabs(video_time(v, i) - (i + 3 * ((i + 4) / 5)) / 25.0) < 0.002, "frame %d at %g",
                  i, video_time(v, i));
    CHECK(fabs(video_info(v)->duration - video_time(v, 39) - 0.04) < 0.002 ||
          fabs(video_info(v)->fps * video_info(v)->duration - 40) < 0.5);
    video_close(&v);
}

/* A film whose frames change their size keeps the first one's. */
TEST(changing_size)
{
    struct shots s;

    CHECK_EQ(read_clip(&s, "two_sizes.h264"), 0);
    CHECK_EQ(s.n, 16);
    CHECK_EQ(s.width, 64);
    CHECK_EQ(s.height, 48);
    for (int i = 0; i < s.n; i++)
        CHECK_EQ(s.shot[i].number, i % 8);
}

TEST(pictures)
{
    static const char *const names[] = { "still.png", "pal8.png", "rgba.png", "still.jpg" };

    for (int i = 0; i < 4; i++) {
        struct video *v = open_clip(names[i], 0);
        const int64_t twice[] = { 0, 0 };
        struct shots s;
        if (!v)
            continue;
        CHECK(video_info(v)->still);
        CHECK_EQ(video_info(v)->n_frames, 1);
        CHECK_EQ(video_info(v)->fps, 0.0);
        CHECK_EQ(video_info(v)->duration, 0.0);
        CHECK_EQ(read_frames(&s, v, twice, 2), 0);
        CHECK_EQ(s.shot[1].number, 5);
        CHECK_EQ(s.shot[0].hash, s.shot[1].hash);
        video_close(&v);
    }
}

/* The still JPEG with a marker segment put in after its first two bytes, and a second one behind.
 */
static const char *jpeg_with(const char *segment, size_t len, bool twice)
{
    static uint8_t data[1 << 13], out[1 << 14];
    static char path[256];
    FILE *f = fopen(clip("still.jpg"), "rb");
    size_t n = f ? fread(data, 1, sizeof data, f) : 0, size = len + n;

    if (f)
        fclose(f);
    CHECK(n > 2 && n < sizeof data);
    memcpy(out, data, 2);
    memcpy(out + 2, segment, len);
    memcpy(out + 2 + len, data + 2, n - 2);
    if (twice) {
        memcpy(out + size, data, n);
        size += n;
    }
    snprintf(path, sizeof path, "%s/segment.jpg", scratch_dir());
    f = fopen(path, "wb");
    CHECK(f && fwrite(out, 1, size, f) == size);
    if (f)
        fclose(f);
    return path;
}

/* A camera held upright writes lying pictures and says so. */
TEST(camera_orientation)
{
    static const char exif[] = "\xff\xe1\0\x22"
                               "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x08\0\0\0\0\0\0";
    struct shots s;

    quarter_turn = true;
    CHECK_EQ(read_clip(&s, jpeg_with(exif, sizeof exif, false)), 0);
    quarter_turn = false;
    CHECK_EQ(s.width, 48);
    CHECK_EQ(s.height, 64);
    CHECK_EQ(s.shot[0].number, 5);
}

/* A photograph with a second picture behind it is one picture; two JPEGs are a film. */
TEST(pictures_in_a_picture)
{
    static const char mpf[] = "\xff\xe2\0\x08MPF\0\0";
    struct video *v = open_clip(jpeg_with(mpf, sizeof mpf, true), 1);

    if (v)
        CHECK(video_info(v)->still && video_info(v)->n_frames == 1);
    video_close(&v);
    v = open_clip(jpeg_with("", 0, true), 1);
    if (v)
        CHECK(!video_info(v)->still && video_info(v)->n_frames == 2);
    video_close(&v);
}

/* Colours by matrix and range. */

static bool check_bars(void *user, int at, int64_t index, double time, const struct image *p)
{
    static const int colour[4][3] = {
        { 200, 30, 40 }, { 20, 180, 60 }, { 30, 60, 190 }, { 128, 128, 128 }
    };

    (void)at;
    (void)index;
    (void)time;
    for (int bar = 0; bar < 4; bar++) {
        const uint8_t *c = p->rgb + ((size_t)8 * (size_t)p->width + (size_t)bar * 16 + 8) * 3;
        for (int k = 0; k < 3; k++)
            CHECK_MSG(abs(c[k] - colour[bar][k]) <= 3, "%s: bar %d is %d %d %d", (char *)user, bar,
                      c[0], c[1], c[2]);
    }
    return true;
}

TEST(colours)
{
    static const char *const names[] = {
        "bars_601.mp4",      "bars_709.mp4",      "bars_2020.mp4",
        "bars_601_full.mp4", "bars_709_full.mp4", "bars_none.mp4"
    };

    for (int i = 0; i < 6; i++) {
        struct video *v = open_clip(names[i], 0);
        const int64_t both[] = { 0, 1 };
        int lost = -1;
        if (!v)
            continue;
        CHECK(!video_read(v, both, 2, check_bars, (void *)names[i], &lost, NULL));
        CHECK_EQ(lost, 0);
        video_close(&v);
    }
}

/* --- damaged and other files ------------------------------------------------------------------ */

/* A copy of a clip with bytes [at, at + n) set to `fill`, or cut off there (n < 0). */
static const char *damaged_copy_with(const char *name, long at, long n, uint8_t fill)
{
    static char path[256];
    static uint8_t data[1 << 16];
    FILE *f = fopen(clip(name), "rb");
    size_t size = f ? fread(data, 1, sizeof data, f) : 0;

    if (f)
        fclose(f);
    CHECK(size > (size_t)at && at + n <= (long)size && size < sizeof data);
    if (n < 0)
        size = (size_t)at;
    for (long i = 0; i < n; i++)
        data[at + i] = fill;
    snprintf(path, sizeof path, "%s/damaged", scratch_dir());
    f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, size, f) == size);
    if (f)
        fclose(f);
    return path;
}

static const char *damaged_copy(const char *name, long at, long n)
{
    return damaged_copy_with(name, at, n, 0);
}

/* Every frame said to be frame k is frame k, at its time. */
static int check_damaged(const char *path, const struct shots *clean)
{
    struct video *v = open_clip(path, 2);
    struct shots s;
    int lost, seen = 0;

    if (!v)
        return -1;
    lost = read_frames(&s, v, NULL, 0);
    for (int i = 0; i < s.n; i++) {
        bool known = false;
        seen += s.shot[i].index != i;
        for (int k = 0; k < clean->n; k++)
            known = known || (fabs(clean->shot[k].time - s.shot[i].time) < 1e-6 &&
                              clean->shot[k].hash == s.shot[i].hash);
        CHECK_MSG(known, "frame %d (given: %lld, at %g) shows %d", i, (long long)s.shot[i].index,
                  s.shot[i].time, s.shot[i].number);
    }
    CHECK_EQ(lost, seen);
    video_close(&v);
    return lost;
}

TEST(damage)
{
    struct shots clean, s;
    int lost;

    /* In a group of 12, packet 17's P-frame: it, and what is decoded after it. */
    CHECK_EQ(read_clip(&clean, "bframes.mp4"), 0);
    CHECK_EQ(check_damaged(damaged_copy("bframes.mp4", 2478, 77), &clean), 7);
    CHECK_EQ(read_clip(&s, damaged_copy("bframes.mp4", 2478, 77)), 7);
    for (int i = 17; i < 24; i++)
        CHECK_EQ(s.shot[i].index, 16); /* the last good one before */
    /* The key of the group: all of it, and perhaps what is shown just before. */
    lost = check_damaged(damaged_copy("bframes.mp4", 1755, 440), &clean);
    CHECK_MSG(lost >= 12 && lost <= 15, "%d lost", lost);
    /* The first group: there is none before. */
    CHECK_EQ(read_clip(&s, damaged_copy("bframes.mp4", 44, 1100)), 12);
    CHECK_EQ(s.shot[0].index, 12);
    CHECK_EQ(s.shot[0].number, 12);

    CHECK_EQ(read_clip(&clean, "bframes.mkv"), 0);
    CHECK_EQ(check_damaged(damaged_copy("bframes.mkv", 3015 + 8, 68), &clean), 7);
}

TEST(truncation)
{
    static const char *const names[] = { "bframes.mkv", "opengop_hevc.mkv", "vp9.webm" };

    for (int i = 0; i < 3; i++) {
        struct shots clean;
        CHECK_EQ(read_clip(&clean, names[i]), 0);
        for (long at = 4200; at > 2000; at -= 307)
            CHECK(check_damaged(damaged_copy(names[i], at, -1), &clean) >= 0);
    }
}

/* --- several readers at once ------------------------------------------------------------------ */

static unsigned dice(unsigned n)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 32) % n;
}

/* Some frames in order, dense or sparse, a few of them twice. */
static int choose_some(int64_t *index, int64_t n_frames)
{
    unsigned step = 1 + dice(9);
    int n = 0;

    for (int64_t i = dice((unsigned)n_frames); i < n_frames && n < MOST; i += dice(step + 1))
        index[n++] = i;
    return n;
}

/* Whatever is asked for, one after the other on one handle, comes out the same with any number of
 * threads. */
static void check_threads(const char *path, const char *name)
{
    static const int counts[] = { 1, 2, 3, 8 };
    struct video *v[4] = { NULL };

    for (int t = 0; t < 4; t++) {
        struct pv_error err = { 0 };
        enum pv_status s = open_path(&v[t], clip(path), &roomy, counts[t], &err);
        CHECK_MSG((v[0] == NULL) == (s != PV_OK), "%s: %s", name, err.text);
    }
    for (int set = 0; set < 5 && v[0]; set++) {
        int64_t index[MOST];
        int64_t n_frames = video_info(v[0])->n_frames;
        int n = choose_some(index, n_frames), lost[4];
        struct shots s[4];
        if (set == 0)
            for (n = 0; n < n_frames && n < MOST; n++)
                index[n] = n;
        for (int t = 0; t < 4; t++) {
            lost[t] = read_frames(&s[t], v[t], index, n);
            CHECK_MSG(lost[t] == lost[0], "%s: %d lost with %d threads, %d with one", name, lost[t],
                      counts[t], lost[0]);
            for (int i = 0; i < s[t].n; i++)
                CHECK_MSG(s[t].shot[i].index == s[0].shot[i].index &&
                              s[t].shot[i].hash == s[0].shot[i].hash &&
                              s[t].shot[i].time == s[0].shot[i].time,
                          "%s: frame %lld is %lld with %d threads, %lld with one", name,
                          (long long)index[i], (long long)s[t].shot[i].index, counts[t],
                          (long long)s[0].shot[i].index);
        }
    }
    for (int t = 0; t < 4; t++)
        video_close(&v[t]);
}

TEST(any_number_of_threads)
{
    for (size_t i = 0; i < sizeof films / sizeof *films; i++)
        check_threads(films[i].name, films[i].name);
    check_threads("two_sizes.h264", "two_sizes.h264");
    check_threads("still.png", "still.png");
}

TEST(any_number_of_threads_and_damage)
{
    static const struct {
        const char *name;
        long from, to;
    } at[] = { { "bframes.mp4", 44, 4100 },   { "bframes.ts", 700, 15000 },
               { "opengop.mp4", 44, 4000 },   { "opengop_hevc.mkv", 1500, 4500 },
               { "refresh.mkv", 1500, 6000 }, { "mpeg2.mpg", 100, 8000 },
               { "mpeg4.avi", 6000, 9000 },   { "vp9.webm", 600, 4000 },
               { "theora.ogv", 5000, 7000 } };

    check_threads(damaged_copy_with("bframes.mp4", 3000, 60, 0xff), "bframes.mp4 at 3000");
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int k = 0; k < 6; k++) {
            long from = at[i].from + (long)dice((unsigned)(at[i].to - at[i].from));
            char name[64];
            snprintf(name, sizeof name, "%s at %ld", at[i].name, from);
            check_threads(damaged_copy_with(at[i].name, from, 60, k % 2 ? 0xff : 0x5a), name);
        }
}

/* Stopped at any picture, several threads stop; and the video can be read again. */
TEST(stopping)
{
    struct video *v = open_clip("bframes.mp4", 4);
    struct shots all, s;
    int64_t every[40];
    int lost = -7;

    if (!v)
        return;
    for (int i = 0; i < 40; i++)
        every[i] = i;
    read_frames(&all, v, NULL, 0);
    for (int stop = 1; stop <= 40; stop++) {
        struct pv_error err = { 0 };
        s = (struct shots){ .stop_at = stop };
        CHECK_EQ(video_read(v, every, 40, take, &s, &lost, &err), PV_E_CANCELLED);
        CHECK_EQ(lost, -7);
        CHECK_EQ(s.n, stop);
        CHECK(strstr(err.text, "stopped"));
    }
    CHECK_EQ(read_frames(&s, v, NULL, 0), 0);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(s.shot[i].hash, all.shot[i].hash);
    video_close(&v);
}

static void check_refusal(const char *path, const struct video_limits *limits,
                          enum pv_status status, const char *word)
{
    struct video *v = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = open_path(&v, path, limits, 2, &err);

    CHECK_MSG(s == status && v == NULL, "%s: status %d, \"%s\"", path, s, err.text);
    CHECK_MSG(strstr(err.text, path) && strstr(err.text, word), "no \"%s\" in \"%s\"", word,
              err.text);
    video_close(&v);
}

TEST(no_videos)
{
    static const char noise[4096] = { 5, 6, 7, 1, 2, 3 };
    static const char hls[] = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nbframes.ts\n"
                              "#EXT-X-ENDLIST\n";
    static const char concat[] = "ffconcat version 1.0\nfile bframes.mp4\n";
    static const char sdp[] = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\n"
                              "m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n";

    check_refusal("/nonexistent/x.mp4", &roomy, PV_E_IO, "No such file");
    check_refusal(scratch_dir(), &roomy, PV_E_IO, "regular");
    check_refusal("/dev/zero", &roomy, PV_E_IO, "regular");
    check_refusal(scratch_file("empty.mp4", "", 0), &roomy, PV_E_FORMAT, "empty");
    check_refusal(scratch_file("text.mp4", "hello\n", 6), &roomy, PV_E_FORMAT, "neither");
    check_refusal(scratch_file("noise.mp4", noise, sizeof noise), &roomy, PV_E_FORMAT, "");
    check_refusal(scratch_file("a.m3u8", hls, sizeof hls - 1), &roomy, PV_E_FORMAT, "playlist");
    check_refusal(scratch_file("a.txt", concat, sizeof concat - 1), &roomy, PV_E_FORMAT,
                  "playlist");
    check_refusal(scratch_file("a.sdp", sdp, sizeof sdp - 1), &roomy, PV_E_FORMAT, "");
    check_refusal(damaged_copy("bframes.mp4", 3000, -1), &roomy, PV_E_FORMAT, "header");
    check_refusal(damaged_copy("still.png", 60, -1), &roomy, PV_E_FORMAT, "decodes");
}

TEST(codec_without_decoder)
{
    static char data[1 << 16];
    FILE *f = fopen(clip("bframes.mkv"), "rb");
    size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    const char *path;

    if (f)
        fclose(f);
    for (size_t i = 0; i + 15 < n; i++)
        if (!memcmp(data + i, "V_MPEG4/ISO/AVC", 15))
            memcpy(data + i, "V_NONE/PREVUE/X", 15);
    path = scratch_file("unknown.mkv", data, n);
    check_refusal(path, &roomy, PV_E_UNSUPPORTED, "no decoder");
}

TEST(limits)
{
    struct video_limits l = roomy;
    struct video *v = NULL;
    struct pv_error err = { 0 };
    struct shots s = { 0 };
    const int64_t index[] = { 0, 1, 2, 3, 2, -1, 40 };
    int lost = -7;

    l.file_bytes = 1000;
    check_refusal(clip("bframes.mp4"), &l, PV_E_LIMIT, "1000");
    l = roomy;
    l.pixels = 64 * 48 - 1;
    check_refusal(clip("bframes.mp4"), &l, PV_E_LIMIT, "64 x 48");
    check_refusal(clip("bframes.ts"), &l, PV_E_LIMIT, "64 x 48");
    check_refusal(clip("still.png"), &l, PV_E_LIMIT, "3072");
    check_refusal(clip("still.jpg"), &l, PV_E_LIMIT, "3071");
    check_refusal(clip("gray.mkv"), &l, PV_E_LIMIT, "3071");
    l.pixels = 10;
    for (size_t i = 0; i < sizeof films / sizeof *films; i++)
        check_refusal(clip(films[i].name), &l, PV_E_LIMIT, "at most 10 are");
    l = roomy;
    l.seconds = 1.2;
    check_refusal(clip("bframes.mp4"), &l, PV_E_LIMIT, "1.2");
    check_refusal(clip("mpeg2.mpg"), &l, PV_E_LIMIT, "1.2");
    l = roomy;
    l.frames = 3;
    if (!CHECK(!open_path(&v, clip("bframes.mp4"), &l, 2, &err)))
        return;
    CHECK_EQ(video_read(v, index, 4, take, &s, &lost, &err), PV_E_LIMIT);
    CHECK_EQ(s.n, 0);
    CHECK_EQ(video_read(v, index + 3, 2, take, &s, &lost, NULL), PV_E_ARG);
    CHECK_EQ(video_read(v, index + 5, 1, take, &s, &lost, NULL), PV_E_ARG);
    CHECK_EQ(video_read(v, index + 6, 1, take, &s, &lost, NULL), PV_E_ARG);
    s.stop_at = 2;
    CHECK_EQ(video_read(v, index, 3, take, &s, &lost, NULL), PV_E_CANCELLED);
    CHECK_EQ(lost, -7);
    CHECK_EQ(s.n, 2);
    s = (struct shots){ 0 };
    CHECK_EQ(video_read(v, index, 3, take, &s, &lost, NULL), PV_OK); /* and it goes on */
    CHECK_EQ(lost, 0);
    CHECK_EQ(s.shot[2].number, 2);
    video_close(&v);
}

/* --- from memory ------------------------------------------------------------------------------ */

/* A file's bytes, in a block of just their size, so that a sanitizer sees a read past the end. */
static uint8_t *load(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long n = f && !fseek(f, 0, SEEK_END) ? ftell(f) : -1;
    uint8_t *data = n > 0 ? malloc((size_t)n) : NULL;

    if (data) {
        rewind(f);
        *size = fread(data, 1, (size_t)n, f);
    }
    if (f)
        fclose(f);
    CHECK_MSG(data && *size == (size_t)n, "%s", path);
    return data;
}

static enum pv_status open_data(struct video **out, const void *data, size_t size,
                                const struct video_limits *limits, int threads,
                                struct pv_error *err)
{
    return video_open(out, &(struct video_source){ .data = data, .size = size }, limits, threads,
                      err);
}

/* Every frame, with its number, time and pixels, is the file's. */
static void check_same(const char *name, const struct shots *want, const struct video_info *info,
                       const uint8_t *data, size_t size, int threads)
{
    struct pv_error err = { 0 };
    struct video *v = NULL;
    struct shots got;

    if (!CHECK_MSG(!open_data(&v, data, size, &roomy, threads, &err), "%s: %s", name, err.text))
        return;
    CHECK_MSG(video_info(v)->n_frames == info->n_frames && video_info(v)->fps == info->fps &&
                  video_info(v)->duration == info->duration &&
                  video_info(v)->width == info->width && video_info(v)->height == info->height &&
                  video_info(v)->still == info->still && video_info(v)->cut == info->cut,
              "%s", name);
    CHECK_EQ(read_frames(&got, v, NULL, 0), 0);
    for (int i = 0; i < want->n; i++)
        CHECK_MSG(got.shot[i].index == want->shot[i].index &&
                      got.shot[i].time == want->shot[i].time &&
                      got.shot[i].hash == want->shot[i].hash,
                  "%s: frame %d with %d threads", name, i, threads);
    video_close(&v);
}

static void check_memory(const char *path)
{
    struct pv_error err = { 0 };
    size_t size = 0;
    uint8_t *data = load(path, &size);
    struct video *v = NULL;
    struct shots want;

    if (data && CHECK_MSG(!open_path(&v, path, &roomy, 2, &err), "%s", err.text)) {
        CHECK_EQ(read_frames(&want, v, NULL, 0), 0);
        check_same(path, &want, video_info(v), data, size, 1);
        check_same(path, &want, video_info(v), data, size, 3);
    }
    video_close(&v);
    free(data);
}

TEST(from_memory)
{
    static const char *const others[] = { "still.png", "pal8.png", "rgba.png", "still.jpg",
                                          "two_sizes.h264" };
    static const char *const samples[] = { "samples/16-frames.mp4", "samples/32-frames.mp4",
                                           "samples/64-frames.mp4" };

    for (size_t i = 0; i < sizeof films / sizeof *films; i++)
        check_memory(clip(films[i].name));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check_memory(clip(others[i]));
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        check_memory(samples[i]);
}

/* The same end, and the same sentence, as for a file with these bytes. */
static void check_as_file(const char *name, const uint8_t *bytes, size_t size)
{
    static const char called[] = "the video in memory: ";
    struct pv_error from_file = { 0 }, from_memory = { 0 };
    const char *path = scratch_file("part", (const char *)bytes, size);
    uint8_t *data = malloc(size ? size : 1);
    struct video *a = NULL, *b = NULL;
    enum pv_status want = open_path(&a, path, &roomy, 2, &from_file), got;

    memcpy(data, bytes, size);
    got = open_data(&b, data, size, &roomy, 2, &from_memory);
    CHECK_MSG(got == want, "%s, %zu bytes: status %d, \"%s\", of the file %d, \"%s\"", name, size,
              got, from_memory.text, want, from_file.text);
    if (got)
        CHECK_MSG(!strncmp(from_memory.text, called, strlen(called)) &&
                      !strcmp(from_memory.text + strlen(called), from_file.text + strlen(path) + 2),
                  "\"%s\", of the file \"%s\"", from_memory.text, from_file.text);
    else if (a) {
        struct shots x, y;
        CHECK_EQ(read_frames(&x, a, NULL, 0), read_frames(&y, b, NULL, 0));
        for (int i = 0; i < x.n; i++)
            CHECK(x.shot[i].index == y.shot[i].index && x.shot[i].hash == y.shot[i].hash);
    }
    video_close(&a);
    video_close(&b);
    free(data);
}

TEST(truncated_memory)
{
    static const char *const names[] = { "bframes.mp4", "bframes.mkv", "bframes.ts", "vp9.webm",
                                         "anim.gif",    "still.png",   "still.jpg" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = 0;
        uint8_t *data = load(clip(names[i]), &size);
        for (size_t n = 0; data && n < size; n += n < 64 ? 7 : 1 + size / 17)
            check_as_file(names[i], data, n);
        free(data);
    }
}

static void check_data_refusal(const void *data, size_t size, const struct video_limits *limits,
                               enum pv_status status, const char *word)
{
    struct video *v = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = open_data(&v, data, size, limits, 2, &err);

    CHECK_MSG(s == status && !v && strstr(err.text, "the video in memory: ") == err.text &&
                  strstr(err.text, word),
              "status %d, \"%s\"", s, err.text);
    video_close(&v);
}

/* Larger than FFmpeg opens at all: the reason is the size, not that nothing decodes. */
TEST(pictures_beyond_every_bound)
{
    static const uint8_t png[] = { 0x89, 'P', 'N', 'G',  '\r', '\n', 0x1a, '\n', 0,    0, 0,    13,
                                   'I',  'H', 'D', 'R',  0,    0,    0x4e, 32,   0,    0, 0x4e, 32,
                                   8,    2,   0,   0,    0,    0xc4, 0x0f, 0xbe, 0x78, 0, 0,    0,
                                   12,   'I', 'D', 'A',  'T',  0x78, 0x9c, 0x63, 0,    0, 0,    2,
                                   0,    1,   0,   0,    0,    0,    0,    0,    0,    0, 0,    'I',
                                   'E',  'N', 'D', 0xae, 0x42, 0x60, 0x82 };
    check_data_refusal(png, sizeof png, &roomy, PV_E_LIMIT, "400000000 pixels");
}

TEST(memory_without_a_video)
{
    static const char hls[] = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nbframes.ts\n";
    struct video_limits tight = roomy;
    uint8_t noise[4096];
    size_t size = 0;
    uint8_t *data = load(clip("bframes.mp4"), &size);

    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)dice(256);
    check_data_refusal(NULL, 0, &roomy, PV_E_FORMAT, "is empty");
    check_data_refusal("", 0, &roomy, PV_E_FORMAT, "is empty");
    check_data_refusal(NULL, 5, &roomy, PV_E_ARG, "NULL");
    check_data_refusal("hello\n", 6, &roomy, PV_E_FORMAT, "neither");
    check_data_refusal(noise, sizeof noise, &roomy, PV_E_FORMAT, "");
    check_data_refusal(hls, sizeof hls - 1, &roomy, PV_E_FORMAT, "playlist");
    tight.file_bytes = 1000;
    check_data_refusal(data, size, &tight, PV_E_LIMIT, "at most 1000 are");
    check_data_refusal(NULL, SIZE_MAX, &tight, PV_E_LIMIT, "at most 1000 are"); /* not looked at */
    tight.file_bytes = UINT64_MAX;
    check_data_refusal(data, SIZE_MAX, &tight, PV_E_LIMIT, "bytes");
    tight = roomy;
    tight.pixels = 10;
    check_data_refusal(data, size, &tight, PV_E_LIMIT, "64 x 48");
    tight = roomy;
    tight.seconds = 1.2;
    check_data_refusal(data, size, &tight, PV_E_LIMIT, "1.2");
    free(data);
}

/* Several threads open and read the same bytes, each with a reader of its own. */
struct shared_bytes {
    const uint8_t *data;
    size_t size;
    const struct shots *want;
    int n;
    bool same;
};

/* No CHECK here: its counters belong to the main thread. */
static bool compare(void *user, int at, int64_t index, double time, const struct image *p)
{
    struct shared_bytes *b = user;

    b->n++;
    b->same = b->same && index == at && time == b->want->shot[at].time &&
              hash_of(p) == b->want->shot[at].hash;
    return true;
}

static void *read_shared(void *user)
{
    struct shared_bytes *b = user;
    struct video *v = NULL;
    int64_t every[40];
    int lost = -1;

    for (int i = 0; i < 40; i++)
        every[i] = i;
    b->same = true;
    if (open_data(&v, b->data, b->size, &roomy, 2, NULL) ||
        video_read(v, every, 40, compare, b, &lost, NULL) || lost != 0)
        b->same = false;
    video_close(&v);
    return NULL;
}

TEST(memory_shared_by_threads)
{
    enum { READERS = 4 };
    struct shared_bytes part[READERS];
    pthread_t thread[READERS];
    struct shots want;
    size_t size = 0;
    uint8_t *data = load(clip("bframes.mp4"), &size);

    CHECK_EQ(read_clip(&want, "bframes.mp4"), 0);
    for (int i = 0; i < READERS; i++) {
        part[i] = (struct shared_bytes){ data, size, &want, 0, false };
        CHECK(!pthread_create(&thread[i], NULL, read_shared, &part[i]));
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        CHECK_MSG(part[i].same && part[i].n == 40, "reader %d", i);
    }
    free(data);
}

/* --- memory that runs out --------------------------------------------------------------------- */

/* Each of our own allocations fails once. */
TEST(no_memory)
{
    const int64_t index[] = { 3, 30 };
    int failures = 0;

    for (uint64_t k = 1; k < 100; k++) {
        struct pv_error err = { 0 };
        struct video *v = NULL;
        struct shots s = { 0 };
        int lost;
        enum pv_status status;
        mem_fail_at(k);
        status = open_path(&v, clip("bframes.mp4"), &roomy, 1, &err);
        if (!status)
            status = video_read(v, index, 2, take, &s, &lost, &err);
        mem_fail_at(0);
        CHECK(!status || status == PV_E_NOMEM);
        failures += status == PV_E_NOMEM;
        video_close(&v);
        if (!status)
            break;
    }
    CHECK(failures >= 5);
}

/* ... with several threads: reading goes on without a reader that cannot be had. */
TEST(no_memory_for_some)
{
    int failures = 0;

    for (uint64_t k = 1; k < 80; k++) {
        struct video *v = open_clip("bframes.mp4", 3);
        struct pv_error err = { 0 };
        struct shots s = { 0 };
        const int64_t index[] = { 1, 13, 25, 37 };
        int lost;
        enum pv_status status;
        if (!v)
            return;
        mem_fail_at(k);
        status = video_read(v, index, 4, take, &s, &lost, &err);
        mem_fail_at(0);
        CHECK_MSG(!status || (status == PV_E_NOMEM && err.text[0]), "%d: %s", status, err.text);
        failures += status != PV_OK;
        if (!status)
            CHECK(s.n == 4 && s.shot[3].number == 37 && lost == 0);
        video_close(&v);
    }
    CHECK_EQ(failures, 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
