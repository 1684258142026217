/* Files that are small and cost much: each is refused, or stopped, before it does. */
#include "video/video.h"

#include "../make_mp4.h"
#include "../scratch.h"
#include "../test.h"
#include "base/clock.h"

#include <sys/resource.h>

enum { MIB = 1 << 20 };

static const struct video_limits usual = { 16 << 20, 64 << 20, 1024, 3600 };

static const char *write_file(const char *name, const void *data, size_t size)
{
    static char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, size, f) == size);
    if (f)
        fclose(f);
    return path;
}

static long most_memory(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss / 1024;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Refused with a sentence that names the file and has these words, within a second of CPU time and
 * 100 MB. */
static void refused(const char *path, const struct video_limits *limits, enum pv_status status,
                    const char *words)
{
    struct video *v = NULL;
    struct pv_error err = { 0 };
    double t0 = cpu_seconds();
    long before = most_memory();
    enum pv_status s = video_open(&v, &(struct video_source){ .path = path }, limits, 2, &err);

    CHECK_MSG(s == status && !v, "%s: status %d, \"%s\"", path, s, err.text);
    CHECK_MSG(strstr(err.text, path) == err.text && strstr(err.text, words), "no \"%s\" in \"%s\"",
              words, err.text);
    CHECK_MSG(cpu_seconds() - t0 < 1, "%.2f seconds", cpu_seconds() - t0);
    CHECK_MSG(most_memory() - before < 100, "%ld MB more", most_memory() - before);
    video_close(&v);
}

/* A picture of a kind that is not on the list, however little it would cost. */
static const char svg[] =
    "<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"64\" height=\"48\">"
    "<filter id=\"f\"><feGaussianBlur stdDeviation=\"9\"/></filter>"
    "<rect width=\"64\" height=\"48\" fill=\"red\" filter=\"url(#f)\"/></svg>";

TEST(formats_that_are_not_listed)
{
    static const char xbm[] =
        "#define a_width 8\n#define a_height 1\nstatic char a[] = { 0x01 };\n";
    static const char ass[] = "[Script Info]\n; a text\nScriptType: v4.00+\n";
    struct video_limits l = usual;
    const char *path = write_file("a.svg", svg, sizeof svg - 1);
    struct video *v = NULL;
    struct pv_error err = { 0 };

    refused(path, &usual, PV_E_UNSUPPORTED, "the format svg are not read");
    l.more_formats = "xbm, ass";
    refused(path, &l, PV_E_UNSUPPORTED, "the format svg are not read");
    l.more_formats = "nonesuch";
    CHECK_EQ(video_open(&v, &(struct video_source){ .path = path }, &l, 1, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "'nonesuch'"), "%s", err.text);
    refused(write_file("a.xbm", xbm, sizeof xbm - 1), &usual, PV_E_UNSUPPORTED, "xbm");
    refused(write_file("a.ass", ass, sizeof ass - 1), &usual, PV_E_UNSUPPORTED, "ass");
    l.more_formats = "xbm";
    err = (struct pv_error){ 0 };
    CHECK_MSG(
        !video_open(&v, &(struct video_source){ .path = write_file("a.xbm", xbm, sizeof xbm - 1) },
                    &l, 1, &err),
        "%s", err.text);
    video_close(&v);
}

/* A listed container with a codec that is not. */
TEST(codecs_that_are_not_listed)
{
    struct mp4 m = { .n = 0 };
    struct mp4_track t;
    size_t moov;

    mp4_file_head(&m);
    moov = mp4_begin(&m, "moov");
    mp4_movie_head(&m);
    t = mp4_track_begin(&m, "vide", "SVQ3");
    MP4_TABLE(&m, "stts", 0, 1, 1, 1);
    MP4_TABLE(&m, "stsc", 0, 1, 1, 1, 1);
    MP4_TABLE(&m, "stsz", 0, 8, 1);
    MP4_TABLE(&m, "stco", 0, 1, 40);
    mp4_track_end(&m, t);
    mp4_end(&m, moov);
    refused(write_file("a.mov", m.data, m.n), &usual, PV_E_UNSUPPORTED, "codec svq3");
}

TEST(tables_that_claim_millions)
{
    struct mp4 m = { .n = 0 };

    mp4_claim(&m, 3, 60000000);
    refused(write_file("claims.mp4", m.data, m.n), &usual, PV_E_LIMIT, "180000000 samples");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
