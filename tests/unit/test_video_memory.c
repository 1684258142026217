/* Videos and pictures from memory: the same frames as from files, and the same refusals. */
#include "../scratch.h"
#include "../shots.h"

#include <pthread.h>

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

static enum pv_status open_data(struct decode **out, const void *data, size_t size,
                                const struct video_limits *limits, int threads,
                                struct pv_error *err)
{
    return decode_open(out, &(struct video_source){ .data = data, .size = size }, limits, threads,
                       err);
}

/* Every frame, with its number, time and pixels, is the file's. */
static void check_same(const char *name, const struct shots *want, const struct video_info *info,
                       const uint8_t *data, size_t size, int threads)
{
    struct pv_error err = { 0 };
    struct decode *v = NULL;
    struct shots got;

    if (!CHECK_MSG(!open_data(&v, data, size, &roomy, threads, &err), "%s: %s", name, err.text))
        return;
    CHECK_MSG(decode_info(v)->n_frames == info->n_frames && decode_info(v)->fps == info->fps &&
                  decode_info(v)->duration == info->duration &&
                  decode_info(v)->width == info->width && decode_info(v)->height == info->height &&
                  decode_info(v)->still == info->still && decode_info(v)->cut == info->cut,
              "%s", name);
    CHECK_EQ(read_frames(&got, v, NULL, 0), 0);
    for (int i = 0; i < want->n; i++)
        CHECK_MSG(got.shot[i].index == want->shot[i].index &&
                      got.shot[i].time == want->shot[i].time &&
                      got.shot[i].hash == want->shot[i].hash,
                  "%s: frame %d with %d threads", name, i, threads);
    decode_close(&v);
}

static void check_memory(const char *path)
{
    struct pv_error err = { 0 };
    size_t size = 0;
    uint8_t *data = load(path, &size);
    struct decode *v = NULL;
    struct shots want;

    if (data && CHECK_MSG(!open_path(&v, path, &roomy, 2, &err), "%s", err.text)) {
        CHECK_EQ(read_frames(&want, v, NULL, 0), 0);
        check_same(path, &want, decode_info(v), data, size, 1);
        check_same(path, &want, decode_info(v), data, size, 3);
    }
    decode_close(&v);
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
    struct decode *a = NULL, *b = NULL;
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
    decode_close(&a);
    decode_close(&b);
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
    struct decode *v = NULL;
    struct pv_error err = { 0 };
    enum pv_status s = open_data(&v, data, size, limits, 2, &err);

    CHECK_MSG(s == status && !v && strstr(err.text, "the video in memory: ") == err.text &&
                  strstr(err.text, word),
              "status %d, \"%s\"", s, err.text);
    decode_close(&v);
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
    struct decode *v = NULL;
    int64_t every[40];
    int lost = -1;

    for (int i = 0; i < 40; i++)
        every[i] = i;
    b->same = true;
    if (open_data(&v, b->data, b->size, &roomy, 2, NULL) ||
        decode_read(v, every, 40, compare, b, &lost, NULL) || lost != 0)
        b->same = false;
    decode_close(&v);
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

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
