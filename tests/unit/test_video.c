/* Videos and pictures from files: frames, damage, limits, and several readers at once. */
#include "../scratch.h"
#include "../shots.h"
#include "base/mem.h"

#include <math.h>

static void check_film(const struct film *f, int threads)
{
    struct decode *v = open_clip(f->name, threads);
    const struct video_info *info;
    struct shots all, some;

    if (!v)
        return;
    quarter_turn = f->quarter;
    info = decode_info(v);
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
        CHECK_EQ(all.shot[i].time, decode_time(v, i));
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
    decode_close(&v);
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
    struct decode *v = open_clip("vfr.mkv", 1);

    if (!v)
        return;
    for (int i = 0; i < 40; i++)
        CHECK_MSG(fabs(decode_time(v, i) - (i + 3 * ((i + 4) / 5)) / 25.0) < 0.002,
                  "frame %d at %g", i, decode_time(v, i));
    CHECK(fabs(decode_info(v)->duration - decode_time(v, 39) - 0.04) < 0.002 ||
          fabs(decode_info(v)->fps * decode_info(v)->duration - 40) < 0.5);
    decode_close(&v);
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
        struct decode *v = open_clip(names[i], 0);
        const int64_t twice[] = { 0, 0 };
        struct shots s;
        if (!v)
            continue;
        CHECK(decode_info(v)->still);
        CHECK_EQ(decode_info(v)->n_frames, 1);
        CHECK_EQ(decode_info(v)->fps, 0.0);
        CHECK_EQ(decode_info(v)->duration, 0.0);
        CHECK_EQ(read_frames(&s, v, twice, 2), 0);
        CHECK_EQ(s.shot[1].number, 5);
        CHECK_EQ(s.shot[0].hash, s.shot[1].hash);
        decode_close(&v);
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
    struct decode *v = open_clip(jpeg_with(mpf, sizeof mpf, true), 1);

    if (v)
        CHECK(decode_info(v)->still && decode_info(v)->n_frames == 1);
    decode_close(&v);
    v = open_clip(jpeg_with("", 0, true), 1);
    if (v)
        CHECK(!decode_info(v)->still && decode_info(v)->n_frames == 2);
    decode_close(&v);
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
        struct decode *v = open_clip(names[i], 0);
        const int64_t both[] = { 0, 1 };
        int lost = -1;
        if (!v)
            continue;
        CHECK(!decode_read(v, both, 2, check_bars, (void *)names[i], &lost, NULL));
        CHECK_EQ(lost, 0);
        decode_close(&v);
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
    struct decode *v = open_clip(path, 2);
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
    decode_close(&v);
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

/* --- frames that are not decoded -------------------------------------------------------------- */

/* Reads one frame; returns the packets that were decoded for it. */
static int decoded_for(const char *name, int64_t index)
{
    struct decode *v = open_clip(name, 1);
    struct shots s;
    int before, n;

    if (!v)
        return -1;
    before = (int)local_video_decoded(v->here);
    CHECK_EQ(read_frames(&s, v, &index, 1), 0);
    CHECK_EQ(s.shot[0].number, (int)index);
    n = (int)local_video_decoded(v->here) - before;
    decode_close(&v);
    return n;
}

/* In H.264, what nobody refers to and nobody wants. In each group of leaves.mp4, of one frame and
 * three that refer to it and to the next one, those three; in pyramid.ts, of one and seven, six. */
TEST(frames_that_nobody_refers_to)
{
    CHECK_EQ(decoded_for("leaves.mp4", 36), 10); /* 0, 4, 8 ... 36 */
    CHECK_EQ(decoded_for("leaves.mp4", 34), 11);
    CHECK_EQ(decoded_for("leaves.mp4", 37), 12); /* behind 39 */
    CHECK_EQ(decoded_for("pyramid.ts", 16), 4);  /* 0, 8, 4, 16 */
    CHECK(decoded_for("bframes.mp4", 11) < 12);
    CHECK(decoded_for("interlaced.mp4", 11) < 12);
    CHECK(decoded_for("opengop.mp4", 22) < 12);
    /* All, where none are known to be of that kind. */
    CHECK_EQ(decoded_for("mpeg4.avi", 11), 11);
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

/* Whatever is asked for of a damaged file, a frame is the same as when all frames are asked for. */
TEST(damage_beside_frames_that_nobody_wants)
{
    static const char *const names[] = { "leaves.mp4", "bframes.mkv", "pyramid.ts",
                                         "interlaced.mp4" };

    for (int k = 0; k < 32; k++) {
        const char *name = names[k % 4];
        long from = 1200 + (long)dice(2400);
        struct decode *v = open_clip(damaged_copy_with(name, from, 8, k & 4 ? 0xff : 0x5a), 1);
        struct shots all, some;
        int64_t index[MOST];
        if (!v)
            continue;
        read_frames(&all, v, NULL, 0);
        decode_close(&v);
        v = open_clip(damaged_copy_with(name, from, 8, k & 4 ? 0xff : 0x5a), 1);
        for (int set = 0; v && set < 4; set++) {
            int n = choose_some(index, decode_info(v)->n_frames);
            read_frames(&some, v, index, n);
            for (int i = 0; i < some.n; i++)
                CHECK_MSG(some.shot[i].index == all.shot[index[i]].index &&
                              some.shot[i].hash == all.shot[index[i]].hash,
                          "%s at %ld: frame %lld is %lld, of all %lld", name, from,
                          (long long)index[i], (long long)some.shot[i].index,
                          (long long)all.shot[index[i]].index);
        }
        decode_close(&v);
    }
}

TEST(av1)
{
    static const struct film film = { "av1.mkv", 40, 64, 48, 0, false, false };
    struct decode *v = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = open_path(&v, clip(film.name), &roomy, 1, &err);

    decode_close(&v);
    if (s == PV_E_UNSUPPORTED && strstr(err.text, "no decoder"))
        printf("# skipped: FFmpeg has no decoder of AV1\n");
    else
        check_film(&film, 2);
}

/* --- several readers at once ------------------------------------------------------------------ */

/* Whatever is asked for, one after the other on one handle, comes out the same with any number of
 * threads. */
static void check_threads(const char *path, const char *name)
{
    static const int counts[] = { 1, 2, 3, 8 };
    struct decode *v[4] = { NULL };

    for (int t = 0; t < 4; t++) {
        struct pv_error err = { 0 };
        enum pv_status s = open_path(&v[t], clip(path), &roomy, counts[t], &err);
        CHECK_MSG((v[0] == NULL) == (s != PV_OK), "%s: %s", name, err.text);
    }
    for (int set = 0; set < 5 && v[0]; set++) {
        int64_t index[MOST];
        int64_t n_frames = decode_info(v[0])->n_frames;
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
        decode_close(&v[t]);
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
    struct decode *v = open_clip("bframes.mp4", 4);
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
        CHECK_EQ(decode_read(v, every, 40, take, &s, &lost, &err), PV_E_CANCELLED);
        CHECK_EQ(lost, -7);
        CHECK_EQ(s.n, stop);
        CHECK(strstr(err.text, "stopped"));
    }
    CHECK_EQ(read_frames(&s, v, NULL, 0), 0);
    for (int i = 0; i < 40; i++)
        CHECK_EQ(s.shot[i].hash, all.shot[i].hash);
    decode_close(&v);
}

static void check_refusal(const char *path, const struct video_limits *limits,
                          enum pv_status status, const char *word)
{
    struct decode *v = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = open_path(&v, path, limits, 2, &err);

    CHECK_MSG(s == status && v == NULL, "%s: status %d, \"%s\"", path, s, err.text);
    CHECK_MSG(strstr(err.text, path) && strstr(err.text, word), "no \"%s\" in \"%s\"", word,
              err.text);
    decode_close(&v);
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
    struct decode *v = NULL;
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
    CHECK_EQ(decode_read(v, index, 4, take, &s, &lost, &err), PV_E_LIMIT);
    CHECK_EQ(s.n, 0);
    CHECK_EQ(decode_read(v, index + 3, 2, take, &s, &lost, NULL), PV_E_ARG);
    CHECK_EQ(decode_read(v, index + 5, 1, take, &s, &lost, NULL), PV_E_ARG);
    CHECK_EQ(decode_read(v, index + 6, 1, take, &s, &lost, NULL), PV_E_ARG);
    s.stop_at = 2;
    CHECK_EQ(decode_read(v, index, 3, take, &s, &lost, NULL), PV_E_CANCELLED);
    CHECK_EQ(lost, -7);
    CHECK_EQ(s.n, 2);
    s = (struct shots){ 0 };
    CHECK_EQ(decode_read(v, index, 3, take, &s, &lost, NULL), PV_OK); /* and it goes on */
    CHECK_EQ(lost, 0);
    CHECK_EQ(s.shot[2].number, 2);
    decode_close(&v);
}

/* --- memory that runs out --------------------------------------------------------------------- */

/* Each of our own allocations fails once. */
TEST(no_memory)
{
    const int64_t index[] = { 3, 30 };
    int failures = 0;

    for (uint64_t k = 1; k < 100; k++) {
        struct pv_error err = { 0 };
        struct decode *v = NULL;
        struct shots s = { 0 };
        int lost;
        enum pv_status status;
        mem_fail_at(k);
        status = open_path(&v, clip("bframes.mp4"), &roomy, 1, &err);
        if (!status)
            status = decode_read(v, index, 2, take, &s, &lost, &err);
        mem_fail_at(0);
        CHECK(!status || status == PV_E_NOMEM);
        failures += status == PV_E_NOMEM;
        decode_close(&v);
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
        struct decode *v = open_clip("bframes.mp4", 3);
        struct pv_error err = { 0 };
        struct shots s = { 0 };
        const int64_t index[] = { 1, 13, 25, 37 };
        int lost;
        enum pv_status status;
        if (!v)
            return;
        mem_fail_at(k);
        status = decode_read(v, index, 4, take, &s, &lost, &err);
        mem_fail_at(0);
        CHECK_MSG(!status || (status == PV_E_NOMEM && err.text[0]), "%d: %s", status, err.text);
        failures += status != PV_OK;
        if (!status)
            CHECK(s.n == 4 && s.shot[3].number == 37 && lost == 0);
        decode_close(&v);
    }
    CHECK_EQ(failures, 0);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
