/* Files that are small and cost much: each is refused, or stopped, before it does. */
#include "../decode.h"
#include "../make_h264.h"
#include "../scratch.h"
#include "../test.h"
#include "base/clock.h"

#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MIB = 1 << 20 };

/* Sanitizers keep what was freed: what a process takes says nothing then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool measures_memory = false;
#else
static const bool measures_memory = true;
#endif

static const struct video_limits usual = { 16 << 20, 64 << 20, 1024, 3600 };

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
    struct decode *v = NULL;
    struct pv_error err = { 0 };
    double t0 = cpu_seconds();
    long before = most_memory();
    enum pv_status s = decode_open(&v, &(struct video_source){ .path = path }, limits, 2, &err);

    CHECK_MSG(s == status && !v, "%s: status %d, \"%s\"", path, s, err.text);
    CHECK_MSG(strstr(err.text, path) == err.text && strstr(err.text, words), "no \"%s\" in \"%s\"",
              words, err.text);
    CHECK_MSG(cpu_seconds() - t0 < 1, "%.2f seconds", cpu_seconds() - t0);
    CHECK_MSG(!measures_memory || most_memory() - before < 100, "%ld MB more",
              most_memory() - before);
    decode_close(&v);
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
    const char *path = scratch_file("a.svg", svg, sizeof svg - 1);
    struct decode *v = NULL;
    struct pv_error err = { 0 };

    refused(path, &usual, PV_E_UNSUPPORTED, "the format svg are not read");
    l.more_formats = "xbm, ass";
    refused(path, &l, PV_E_UNSUPPORTED, "the format svg are not read");
    l.more_formats = "nonesuch";
    CHECK_EQ(decode_open(&v, &(struct video_source){ .path = path }, &l, 1, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "'nonesuch'"), "%s", err.text);
    refused(scratch_file("a.xbm", xbm, sizeof xbm - 1), &usual, PV_E_UNSUPPORTED, "xbm");
    refused(scratch_file("a.ass", ass, sizeof ass - 1), &usual, PV_E_UNSUPPORTED, "ass");
    l.more_formats = "xbm";
    err = (struct pv_error){ 0 };
    CHECK_MSG(!decode_open(
                  &v, &(struct video_source){ .path = scratch_file("a.xbm", xbm, sizeof xbm - 1) },
                  &l, 1, &err),
              "%s", err.text);
    decode_close(&v);
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
    mp4_entry_end(&m, t);
    MP4_TABLE(&m, "stts", 0, 1, 1, 1);
    MP4_TABLE(&m, "stsc", 0, 1, 1, 1, 1);
    MP4_TABLE(&m, "stsz", 0, 8, 1);
    MP4_TABLE(&m, "stco", 0, 1, 40);
    mp4_track_end(&m, t);
    mp4_end(&m, moov);
    refused(scratch_file("a.mov", m.data, m.n), &usual, PV_E_UNSUPPORTED, "codec svq3");
}

TEST(tables_that_claim_millions)
{
    struct mp4 m = { .n = 0 };

    mp4_claim(&m, 3, 60000000);
    refused(scratch_file("claims.mp4", m.data, m.n), &usual, PV_E_LIMIT, "180000000 samples");
}

/* --- decoders that take much memory ----------------------------------------------------------- */

static bool hash_pixels(void *user, int at, int64_t index, double time, const struct image *p)
{
    uint64_t *h = user;

    (void)time;
    *h = (*h ^ (uint64_t)at ^ (uint64_t)index << 20) * 1099511628211u;
    for (size_t i = 0; i < (size_t)p->width * (size_t)p->height * 3; i += 97)
        *h = (*h ^ p->rgb[i]) * 1099511628211u;
    return true;
}

/* All of a film's frames in a process of its own; returns the most memory that it took, in MB. */
struct outcome {
    enum pv_status status;
    struct pv_error err;
    uint64_t hash;
    long memory;
};

static long read_apart(struct outcome *out, const char *path, const struct video_limits *l,
                       int threads)
{
    int end[2], lost, wait_status = 0;
    struct decode *v = NULL;
    int64_t index[256];
    pid_t child;

    *out = (struct outcome){ .status = PV_E_DEVICE };
    if (!CHECK(!pipe(end)))
        return -1;
    child = fork();
    if (child == 0) {
        struct outcome o = { 0 };
        o.status = decode_open(&v, &(struct video_source){ .path = path }, l, threads, &o.err);
        for (int i = 0; i < 256; i++)
            index[i] = i;
        if (!o.status)
            o.status = decode_read(v, index, (int)decode_info(v)->n_frames, hash_pixels, &o.hash,
                                   &lost, &o.err);
        decode_close(&v);
        o.memory = most_memory();
        _exit(write(end[1], &o, sizeof o) != sizeof o);
    }
    close(end[1]);
    CHECK(read(end[0], out, sizeof *out) == sizeof *out);
    close(end[0]);
    CHECK(waitpid(child, &wait_status, 0) == child && wait_status == 0);
    return out->memory;
}

/* Frames of 6 MB of which a decoder keeps sixteen. */
TEST(decoders_that_keep_many_frames)
{
    enum { SIDE = 128, FRAMES = 80, GROUP = 20 };
    struct video_limits l = usual;
    struct outcome all, tight, none;
    size_t size;
    uint8_t *film = h264_film(SIDE, 16, FRAMES, GROUP, &size);
    const char *path = scratch_file("refs.mp4", film, size);
    long most, less;

    most = read_apart(&all, path, &l, 4);
    CHECK_MSG(!all.status, "%s", all.err.text);
    l.memory = 250 * MIB; /* room for one reader */
    less = read_apart(&tight, path, &l, 4);
    CHECK_MSG(!tight.status, "%s", tight.err.text);
    CHECK(tight.hash == all.hash);
    printf("# four readers take %ld MB, one %ld MB\n", most, less);
    CHECK_MSG(!measures_memory || (less < 350 && most > less + 100), "%ld MB, then %ld MB", most,
              less);
    l.memory = 80 * MIB;
    less = read_apart(&none, path, &l, 4);
    CHECK_MSG(none.status == PV_E_LIMIT && strstr(none.err.text, path) == none.err.text &&
                  strstr(none.err.text, "at most 83886080 are allowed"),
              "status %d, \"%s\"", none.status, none.err.text);
    CHECK_MSG(!measures_memory || less < 180, "%ld MB", less);
    if (!measures_memory)
        printf("# memory was not measured: this is a sanitizer's build\n");
    free(film);
}

/* --- small frames on a large canvas ------------------------------------------------------------
 */

/* n pictures of one pixel, each drawn on a canvas of side x side. */
static const char *write_gif(const char *name, unsigned side, int n)
{
    static const uint8_t frame[] = { 0x21, 0xf9, 4, 0, 4, 0, 0, 0, 0x2c, 0, 0, 0,
                                     0,    1,    0, 1, 0, 0, 2, 2, 0x44, 1, 0 };
    const uint8_t head[] = { 'G',
                             'I',
                             'F',
                             '8',
                             '9',
                             'a',
                             (uint8_t)side,
                             (uint8_t)(side >> 8),
                             (uint8_t)side,
                             (uint8_t)(side >> 8),
                             0x80,
                             0,
                             0,
                             0,
                             0,
                             0,
                             255,
                             255,
                             255 };
    size_t size = sizeof head + (size_t)n * sizeof frame + 1;
    uint8_t *data = malloc(size);
    const char *path;

    memcpy(data, head, sizeof head);
    for (int i = 0; i < n; i++)
        memcpy(data + sizeof head + (size_t)i * sizeof frame, frame, sizeof frame);
    data[size - 1] = 0x3b;
    path = scratch_file(name, data, size);
    free(data);
    return path;
}

static bool ignore(void *user, int at, int64_t index, double time, const struct image *p)
{
    (void)user, (void)at, (void)index, (void)time, (void)p;
    return true;
}

struct patience {
    double until; /* asked after this, and at least `least` times, it says no, */
    double said;  /* at this time */
    int least, asked;
};

/* Once the video is open, which may take long on a busy machine. */
static void lose_patience(struct patience *p, double seconds, int least)
{
    *p = (struct patience){ .until = clock_now() + seconds, .least = least };
}

static bool is_patient(void *user)
{
    struct patience *p = user;

    p->asked++;
    if (clock_now() < p->until || p->asked < p->least)
        return true;
    p->said = clock_now();
    return false;
}

/* Reads the last frame; returns the status, and the seconds that it took. */
static enum pv_status read_last(const char *path, const struct video_limits *l, double *seconds,
                                struct pv_error *err)
{
    struct decode *v = NULL;
    enum pv_status s = decode_open(&v, &(struct video_source){ .path = path }, l, 2, err);
    double t0 = clock_now();
    int64_t last;
    int lost;

    if (!CHECK_MSG(!s, "%s", err->text))
        return s;
    last = decode_info(v)->n_frames - 1;
    CHECK_EQ(last, 2999);
    if (l->go_on == is_patient)
        lose_patience(l->user, 0.4, 5);
    s = decode_read(v, &last, 1, ignore, NULL, &lost, err);
    *seconds = clock_now() - t0;
    decode_close(&v);
    return s;
}

TEST(budget_of_decoded_pixels)
{
    struct video_limits l = usual;
    struct pv_error err = { 0 };
    const char *path = write_gif("canvas.gif", 2047, 3000);
    double seconds = 0;

    l.decoded_pixels = 1 << 30;
    CHECK_EQ(read_last(path, &l, &seconds, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, path) == err.text &&
                  strstr(err.text, "3000 frames of 2047 x 2047 pixels have to be decoded"),
              "%s", err.text);
    CHECK_MSG(seconds < 0.1, "%g seconds", seconds);
}

TEST(budget_of_cpu_time)
{
    struct video_limits l = usual;
    struct pv_error err = { 0 };
    const char *path = write_gif("canvas.gif", 2047, 3000);
    double seconds = 0;

    l.cpu_seconds = 0.3;
    CHECK_EQ(read_last(path, &l, &seconds, &err), PV_E_LIMIT);
    CHECK_MSG(strstr(err.text, path) == err.text && strstr(err.text, "0.3 seconds of CPU"), "%s",
              err.text);
}

/* Within 100 ms, between frames that nobody wanted. Three tries: others may have the machine. */
TEST(cancelling_between_wanted_frames)
{
    const char *path = write_gif("canvas.gif", 2047, 3000);
    double late = 1, seconds;

    for (int i = 0; i < 3 && late > 0.1; i++) {
        struct patience p = { .until = INFINITY };
        struct video_limits l = usual;
        struct pv_error err = { 0 };
        l.go_on = is_patient;
        l.user = &p;
        CHECK_EQ(read_last(path, &l, &seconds, &err), PV_E_CANCELLED);
        CHECK_MSG(strstr(err.text, path) == err.text && strstr(err.text, "stopped"), "%s",
                  err.text);
        late = clock_now() - p.said;
    }
    CHECK_MSG(late <= 0.1, "%g seconds after it was told to stop", late);
}

/* Several readers, all of which are between wanted frames. */
TEST(cancelling_several_readers)
{
    struct patience p = { .until = INFINITY };
    struct video_limits l = usual;
    struct pv_error err = { 0 };
    size_t size;
    uint8_t *film = h264_film(128, 1, 1200, 200, &size);
    const struct video_source from = { .data = film, .size = size };
    const int64_t index[] = { 198, 398, 598, 798, 998, 1198 };
    struct decode *v = NULL;
    int lost;

    l.go_on = is_patient;
    l.user = &p;
    if (CHECK_MSG(!decode_open(&v, &from, &l, 2, &err), "%s", err.text)) {
        lose_patience(&p, 0.3, 3);
        CHECK_EQ(decode_read(v, index, 6, ignore, NULL, &lost, &err), PV_E_CANCELLED);
        CHECK_MSG(clock_now() - p.said < 0.3, "%g seconds late", clock_now() - p.said);
        p.until = clock_now() + 1000; /* and it can be read again */
        CHECK_MSG(!decode_read(v, index, 1, ignore, NULL, &lost, NULL), "%s", err.text);
    }
    decode_close(&v);
    free(film);
}

TEST(cancelling_while_it_is_opened)
{
    static const char *const names[] = { "bframes.mp4", "bframes.ts", "mpeg2.mpg",
                                         "still.png",   "anim.gif",   "vp9.webm" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct patience p = { .until = 0 };
        struct video_limits l = usual;
        struct pv_error err = { 0 };
        struct decode *v = NULL;
        char path[256];
        l.go_on = is_patient;
        l.user = &p;
        snprintf(path, sizeof path, "tests/data/video/%s", names[i]);
        CHECK_EQ(decode_open(&v, &(struct video_source){ .path = path }, &l, 2, &err),
                 PV_E_CANCELLED);
        CHECK_MSG(!v && strstr(err.text, "stopped"), "%s", err.text);
    }
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
