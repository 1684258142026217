/* Every public function on a thread with the smallest stack that prevue.h allows, on an engine and
 * with methods that use all kinds of threads. A page behind the stack that cannot be written makes
 * one byte too many a crash. */
#define _DEFAULT_SOURCE
#include "prevue/prevue.h"
#include "scratch.h"
#include "test.h"

#include <pthread.h>
#include <sys/mman.h>

static const char nano[] = "models/nano.gguf", draft[] = "models/nano-draft.gguf";
static const char directory[] = "tests/golden/llava_onevision";
static const char *const films[] = {
    "tests/data/video/bframes.mp4",      "tests/data/video/mpeg2.mpg",  "tests/data/video/vp9.webm",
    "tests/data/video/still.png",        "tests/data/video/still.jpg",  "tests/data/video/gray.mkv",
    "tests/data/video/opengop_hevc.mkv", "tests/data/video/theora.ogv", "tests/data/video/anim.gif",
    "tests/data/video/mpeg4.avi"
};

static bool exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static bool take_frame(void *user, const struct pv_frame *f)
{
    int *n = user;
    *n += f->rgb != NULL;
    return true;
}

static void use_videos(pv_session *s, const pv_model *m)
{
    struct pv_video_params vp = pv_video_defaults();
    vp.frames = 2;
    for (size_t i = 0; i < sizeof films / sizeof *films; i++) {
        struct pv_error err = { 0 };
        struct pv_video_info info;
        int n = 0;
        if (!exists(films[i]))
            continue;
        pv_session_reset(s);
        CHECK_MSG(!pv_add_video(s, films[i], &vp, &info, &err), "%s", err.text);
        CHECK_MSG(!pv_video_frames(i % 2 ? m : NULL, films[i], &vp, take_frame, &n, &info, &err),
                  "%s", err.text);
        CHECK(n >= 1);
    }
    pv_session_reset(s);
}

static void use_sound(void)
{
    static const char *const files[] = { "mp4", "mkv", "ts", "flac", "ogg", "mp3", "wav", "aac" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct pv_error err = { 0 };
        char path[64];
        float *samples = NULL;
        size_t n = 0;
        snprintf(path, sizeof path, "tests/fuzz/corpus/video/sound.%s", files[i]);
        CHECK_MSG(!pv_video_sound(path, NULL, &samples, &n, &err), "%s", err.text);
        CHECK_MSG(n > 1000, "%s: %zu samples", path, n);
        pv_free(samples);
    }
}

static void use_answers(pv_session *s)
{
    static const char *const names[] = { "plain", "auto", "specvlm", "parallelvlm", "hippo" };
    struct pv_video_params vp = pv_video_defaults();
    vp.frames = 2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pv_gen_params g = pv_gen_defaults();
        struct pv_method m = { .size = sizeof m };
        struct pv_view_map map;
        struct pv_error err = { 0 };
        char path[300];
        if (pv_method_find(&m, names[i], &err))
            continue;
        g.max_new_tokens = 8;
        g.method = &m;
        pv_session_reset(s);
        CHECK_MSG(!pv_add_video(s, films[0], &vp, NULL, &err), "%s", err.text);
        CHECK_MSG(!pv_add_text(s, "user", "What is shown? \xc3\xa9", &err), "%s", err.text);
        snprintf(path, sizeof path, "%s/prompt.pvin", scratch_dir());
        CHECK_MSG(!pv_prompt_write(s, path, &err), "%s", err.text);
        if (i == 2)
            CHECK_MSG(!pv_session_view(s, &m, &map, &err), "%s", err.text);
        CHECK_MSG(!pv_generate(s, &g, NULL, NULL, &err), "%s: %s", names[i], err.text);
        pv_session_reset(s);
        CHECK_MSG(!pv_prompt_read(s, path, &err), "%s", err.text);
    }
}

static void use_engine(pv_model *m)
{
    struct pv_engine_params ep = pv_engine_defaults();
    struct pv_request_params rp = pv_request_defaults();
    const struct pv_part parts[] = { { .path = films[0] }, { .text = "What is shown?" } };
    const struct pv_message message = { .role = "user", .parts = parts, .n_parts = 2 };
    struct pv_error err = { 0 };
    pv_engine *e = NULL;
    pv_request *r = NULL;
    struct pv_event event;

    ep.max_context = 4096;
    rp.messages = &message;
    rp.n_messages = 1;
    if (!CHECK_MSG(!pv_engine_open(&e, m, &ep, &err), "%s", err.text))
        return;
    CHECK_MSG(!pv_request_submit(&r, e, &rp, &err), "%s", err.text);
    while (r && pv_request_next(r, &event, -1))
        continue;
    CHECK_MSG(r && !pv_request_wait(r, &err), "%s", err.text);
    pv_request_close(&r);
    pv_engine_close(&e);
}

static void use_models(pv_model *m)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_convert_params cp = pv_convert_defaults();
    struct pv_error err = { 0 };
    char path[300], *text = NULL;
    pv_model *other = NULL;

    CHECK_MSG(!pv_model_describe(m, 0, true, true, &text, &err), "%s", err.text);
    pv_free(text);
    snprintf(path, sizeof path, "%s/converted.gguf", scratch_dir());
    cp.type = PV_TYPE_Q8_0;
    CHECK_MSG(!pv_convert(directory, path, &cp, &err), "%s", err.text);
    mp.path = path;
    mp.threads = 1;
    CHECK_MSG(!pv_model_open(&other, &mp, &err), "%s", err.text);
    pv_model_close(&other);
    mp.path = directory;
    CHECK_MSG(!pv_model_open(&other, &mp, &err), "%s", err.text);
    pv_model_close(&other);
}

/* A directory whose config.json is nothing but brackets, as deep as the JSON library reads. */
static void use_deep_json(void)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_error err = { 0 };
    char dir[200], path[300];
    pv_model *m = NULL;
    FILE *f;

    snprintf(dir, sizeof dir, "%s/deep", scratch_dir());
    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK(mkdir(dir, 0777) == 0);
    f = fopen(path, "wb");
    if (!CHECK(f))
        return;
    fputs("{\"a\":", f);
    for (int i = 0; i < 2000; i++)
        fputs("[", f);
    for (int i = 0; i < 2000; i++)
        fputs("]", f);
    fputs("}", f);
    fclose(f);
    mp.path = dir;
    CHECK(pv_model_open(&m, &mp, &err) != PV_OK && err.text[0]);
}

static void *use_all(void *arg)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_model *m = NULL, *d = NULL;
    pv_session *s = NULL;

    mp.path = nano;
    mp.threads = 2;
    CHECK_MSG(!pv_model_open(&m, &mp, &err), "%s", err.text);
    mp.path = draft;
    mp.shares_with = m;
    CHECK_MSG(!pv_model_open(&d, &mp, &err), "%s", err.text);
    sp.max_context = 2048;
    sp.draft = d;
    if (m && d && CHECK_MSG(!pv_session_open(&s, m, &sp, &err), "%s", err.text)) {
        use_videos(s, m);
        use_sound();
        use_answers(s);
        use_engine(m);
        use_models(m);
        use_deep_json();
    }
    pv_session_close(&s);
    pv_model_close(&d);
    pv_model_close(&m);
    return arg;
}

TEST(the_smallest_stack_suffices)
{
    const size_t page = 65536, size = PV_THREAD_STACK; /* a page of any machine */
    uint8_t *memory =
        mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t thread;
    size_t unused = 0;

    if (!CHECK(memory != MAP_FAILED && !mprotect(memory, page, PROT_NONE)))
        return;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("the sanitizers' frames are larger");
    return;
#endif
    memset(memory + page, 0xa5, size);
    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstack(&attr, memory + page, size), 0);
    if (CHECK_EQ(pthread_create(&thread, &attr, use_all, NULL), 0))
        CHECK_EQ(pthread_join(thread, NULL), 0);
    while (unused < size && memory[page + unused] == 0xa5)
        unused++;
    printf("  %zu of %zu KiB used\n", (size - unused) / 1024, size / 1024);
    CHECK_MSG(unused >= size / 4, "%zu of %zu bytes used: too little to spare", size - unused,
              size);
    pthread_attr_destroy(&attr);
    munmap(memory, page + size);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
