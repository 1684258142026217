/* The cache on disk changes no answer. A question about a video has the same ids and the same bits
 * of logits without a cache, with an empty one, with one that another engine has filled, with
 * damaged files, and whatever drafts for it; and what is on disk is not computed again. */
#include "make_clip.h"

#include "family/families.h"
#include "headed.h"
#include "warnings.h"

enum { LONG_CONTEXT = 1024 };

static const char clip[] = "tests/data/video/bframes.mp4";

/* ---- one question, by an engine of its own ---- */

struct models {
    struct pair pair;
    const struct family *family;
};

struct question {
    const char *dir; /* NULL: no cache */
    bool kv;
    const char *path; /* NULL: `data` */
    const void *data;
    size_t size;
    const char *text;
    const struct pv_method *method;
    float temperature;
    struct warnings warnings;
};

struct result {
    struct answer answer;
    struct pv_engine_counts counts;
    bool decoded;  /* the video's pixels are there */
    int video_end; /* the row after its last */
    int sound_rows;
    enum pv_status status;
    struct pv_error err;
};

static struct models open_models(const struct family *family)
{
    struct models m = { .family = family };
    struct pv_model_params p = pv_model_defaults();
    p.threads = 2;
    open_headed(&m.pair, tiny_vision(family), EAGLE_HEAD, p);
    return m;
}

/* LLaVA takes frames more than once, so that a short clip fills pages; Qwen takes what there is, as
 * large as that takes. */
static struct pv_video_params frames_of(const struct models *m)
{
    struct pv_video_params v = pv_video_defaults();
    v.frames = m->family == &family_llava_onevision ? 70 : 20;
    v.max_pixels = 64 * 64;
    if (m->family->audio_encoder)
        v.min_pixels = v.max_pixels; /* of a small clip */
    return v;
}

static pv_session *open_for(const struct models *m, struct question *q)
{
    struct pv_session_params p = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    p.max_context = LONG_CONTEXT;
    p.chunk = 100;
    p.kv_type = PV_KV_F32;
    p.draft = m->pair.draft;
    p.cache =
        (struct pv_cache_params){ .dir = q->dir, .kv = q->kv, .warn = warn, .user = &q->warnings };
    CHECK_MSG(pv_session_open(&s, m->pair.target, &p, &err) == PV_OK, "%s", err.text);
    return s;
}

static enum pv_status add_clip(pv_session *s, const struct models *m, const struct question *q,
                               struct pv_error *err)
{
    struct pv_video_params v = frames_of(m);
    enum pv_status st = q->path ? pv_add_video(s, q->path, &v, NULL, err)
                                : pv_add_video_data(s, q->data, q->size, &v, NULL, err);
    return st ? st : pv_add_text(s, "user", q->text, err);
}

static struct result ask(const struct models *m, struct question *q)
{
    static struct result r;
    pv_session *s = open_for(m, q);
    r = (struct result){ .counts = { .size = sizeof r.counts } };
    r.status = add_clip(s, m, q, &r.err);
    if (!r.status)
        r.status = generate(s, q->method, q->temperature, &r.answer, &r.err);
    CHECK_MSG(!r.status, "%s", r.err.text);
    if (s->seq.line.n_media > 0) {
        r.decoded = s->seq.line.media[0].m.rgb != NULL;
        r.sound_rows = media_sound_rows(&s->seq.line.media[0].m);
        const struct media_span *last = &s->seq.line.span[s->seq.line.n_spans - 1];
        r.video_end = last->row0 + last->n;
    }
    pv_engine_stats(s->engine, &r.counts);
    pv_session_close(&s);
    return r;
}

static void check_same(const struct models *m, const struct result *a, const struct result *b,
                       const char *what)
{
    CHECK_MSG(same_answer(&a->answer, &b->answer, pv_model_vocab_size(m->pair.target)),
              "%s: another answer", what);
}

static char dir_path[256];

static const char *fresh_dir(void)
{
    snprintf(dir_path, sizeof dir_path, "%s/cache", scratch_dir());
    scratch_remove(dir_path);
    return dir_path;
}

/* Does something to all entries whose name begins so; returns how many there are. */
static int change_files(const char *begin, bool remove_them)
{
    DIR *d = opendir(dir_path);
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        char path[600];
        size_t size;
        uint8_t *data;
        if (strncmp(e->d_name, begin, strlen(begin)) != 0 || e->d_name[0] == '.')
            continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", dir_path, e->d_name);
        if (remove_them) {
            unlink(path);
            continue;
        }
        data = make_load(path, &size);
        data[size / 2] ^= 4;
        make_write(path, data, size);
        free(data);
    }
    if (d)
        closedir(d);
    return n;
}

/* ---- what must hold for all families ---- */

/* A clip with sound, for models that hear. */
static const char *clip_with_sound(void)
{
    static char path[300];
    const struct clip k = { .container = "matroska",
                            .codec = "pcm_s16le",
                            .rate = 16000,
                            .layout = "mono",
                            .run = { { 0, 2.5, 440, 0 } },
                            .film_seconds = 2 };
    size_t size;
    uint8_t *data = clip_make(&k, &size);
    snprintf(path, sizeof path, "%s/heard.mkv", scratch_dir());
    make_write(path, data, size);
    free(data);
    return path;
}

static void check_family(const struct family *family)
{
    struct models m = open_models(family);
    struct question q = { .path = family->audio_encoder ? clip_with_sound() : clip,
                          .text = "what is the dog" };
    struct result ref = ask(&m, &q), r;
    CHECK_EQ(ref.sound_rows > 0, family->audio_encoder != NULL);
    CHECK(ref.decoded && ref.video_end > 2 * KV_CHUNK && ref.video_end % KV_CHUNK != 0);

    q.dir = fresh_dir();
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "an empty cache");
    CHECK(r.decoded && r.counts.disk_files == 0 && r.counts.disk_rows == 0);
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "a full cache");
    CHECK(!r.decoded && r.counts.disk_files == 1 && r.counts.disk_rows > 0);
    CHECK(r.answer.stats.vision_s == 0 && r.answer.stats.reused_tokens == 0);
    CHECK_EQ(r.answer.stats.frames, ref.answer.stats.frames);

    q.kv = true;
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "no pages yet");
    CHECK(!r.decoded && r.counts.disk_pages == 0);
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "pages");
    CHECK(!r.decoded && r.counts.disk_pages == ref.video_end / KV_CHUNK + 1);
    CHECK(r.counts.disk_rows == 0 && r.answer.stats.reused_tokens >= ref.video_end);
    CHECK(r.answer.stats.vision_s == 0);
    q.text = "the cat";
    r = ask(&m, &q);
    CHECK(r.answer.stats.reused_tokens >= ref.video_end && r.counts.disk_rows == 0);
    q.dir = NULL;
    q.kv = false;
    ref = ask(&m, &q);
    check_same(&m, &ref, &r, "another question");
    CHECK_EQ(q.warnings.n, 0);
    close_pair(&m.pair);
}

TEST(answers_of_llava_do_not_depend_on_the_cache)
{
    check_family(&family_llava_onevision);
}

TEST(answers_of_qwen_do_not_depend_on_the_cache)
{
    check_family(&family_qwen2_5_vl);
}

TEST(answers_of_qwen2_do_not_depend_on_the_cache)
{
    check_family(&family_qwen2_vl);
}

TEST(answers_of_qwen3_do_not_depend_on_the_cache)
{
    check_family(&family_qwen3_vl);
}

TEST(salmonn_hears_the_same_from_disk)
{
    check_family(&family_salmonn2_plus);
}

TEST(damaged_files_are_told_and_replaced)
{
    static const char *const kinds[] = { "media-", "rows-", "page-", "" };
    struct models m = open_models(&family_llava_onevision);
    struct question q = { .path = clip, .text = "what is the dog" };
    struct result ref = ask(&m, &q), r;
    q.dir = fresh_dir();
    q.kv = true;
    r = ask(&m, &q);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int n = change_files(kinds[k], false);
        CHECK(n > 0);
        q.warnings.n = 0;
        r = ask(&m, &q);
        check_same(&m, &ref, &r, kinds[k]);
        /* Rows of a video whose pages are whole are not read. */
        CHECK_MSG(!strcmp(kinds[k], "rows-") || q.warnings.n > 0, "%s", kinds[k]);
        CHECK_EQ(q.warnings.n, r.counts.disk_damaged);
        CHECK(q.warnings.n == 0 || strstr(q.warnings.last, "checksum"));
        if (k == 1) /* so that they are */
            change_files("page-", true);
        for (int i = 0; i < 10 && (i < 2 || q.warnings.n > 0); i++) {
            q.warnings.n = 0;
            r = ask(&m, &q);
            check_same(&m, &ref, &r, kinds[k]);
        }
        CHECK(q.warnings.n == 0 && r.counts.disk_pages > 0 && r.counts.disk_files == 1);
    }
    close_pair(&m.pair);
}

TEST(rows_that_are_gone_are_made_again)
{
    struct models m = open_models(&family_qwen2_5_vl);
    struct question q = { .path = clip, .text = "what is the dog", .dir = fresh_dir() };
    struct result ref = ask(&m, &q), r;
    pv_session *s;
    struct answer a;
    struct pv_method sd = { .size = sizeof sd };
    CHECK(change_files("rows-", true) > 1);
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "no rows");
    CHECK(r.decoded);
    CHECK(!pv_method_find(&sd, "sd", NULL));
    for (int drafts = 0; drafts < 2; drafts++) { /* they go when the video has been added */
        s = open_for(&m, &q);
        CHECK(!add_clip(s, &m, &q, NULL) && !s->seq.line.media[0].m.rgb);
        change_files("rows-", true);
        CHECK(!generate(s, drafts ? &sd : NULL, 0, &a, NULL) && s->seq.line.media[0].m.rgb);
        CHECK(same_answer(&a, &ref.answer, pv_model_vocab_size(m.pair.target)));
        pv_session_close(&s);
    }
    close_pair(&m.pair);
}

/* Drafters with a tower of their own need pixels, heads need states of rows that ran, and views
 * need scores: the rules are those of pages in memory. */
TEST(whoever_drafts)
{
    static const char *const names[] = { "sd",      "sd-tree", "specvlm", "std",   "ngram",
                                         "sparrow", "auto",    "pearl",   "hippo", "msd" };
    for (int f = 0; f < TINY_KINDS; f++) {
        struct models m = open_models(tiny_kinds[f].family);
        struct question q = { .path = clip, .text = "what is the dog", .temperature = 0.7f };
        struct result ref = ask(&m, &q), r;
        q.dir = fresh_dir();
        q.kv = true;
        ask(&m, &q);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            struct pv_method method = { .size = sizeof method };
            CHECK(!pv_method_find(&method, names[i], NULL));
            q.method = &method;
            r = ask(&m, &q);
            check_same(&m, &ref, &r, names[i]);
            CHECK_MSG(r.counts.disk_files == 1, "%s", names[i]);
            CHECK_MSG((r.counts.disk_pages > 0) == !pv_drafter_find(method.drafter)->needs_head,
                      "%s: %lld pages", names[i], (long long)r.counts.disk_pages);
        }
        CHECK_EQ(q.warnings.n, 0);
        close_pair(&m.pair);
    }
}

TEST(other_frames_other_weights_and_other_cpus_find_nothing)
{
    struct models m = open_models(&family_llava_onevision), other;
    struct question q = { .path = clip, .text = "what is the dog", .dir = fresh_dir(), .kv = true };
    struct tiny_vision v = tiny_vision(&family_llava_onevision);
    struct pv_model_params p = pv_model_defaults();
    struct result r;
    char path[256];
    ask(&m, &q);
    v.noise = 0.01f;
    tiny_vision_gguf(&v, "other", path);
    p.path = path;
    other = (struct models){ .family = &family_llava_onevision };
    CHECK(!pv_model_open(&other.pair.target, &p, NULL));
    r = ask(&other, &q);
    CHECK(r.counts.disk_files == 0 && r.counts.disk_rows == 0 && r.counts.disk_pages == 0);
    pv_model_close(&other.pair.target);
    if (cpu_flags() != 0) {
        v.noise = 0;
        tiny_vision_gguf(&v, "again", path); /* the same weights in another file */
        CHECK(!pv_model_open(&other.pair.target, &p, NULL));
        r = ask(&other, &q);
        CHECK(r.counts.disk_files == 1 && r.counts.disk_pages > 0);
        pv_model_close(&other.pair.target);
        p.cpu_mask = 0;
        CHECK(!pv_model_open(&other.pair.target, &p, NULL));
        r = ask(&other, &q);
        CHECK(r.counts.disk_files == 0 && r.counts.disk_rows == 0 && r.counts.disk_pages == 0);
        pv_model_close(&other.pair.target);
    }
    close_pair(&m.pair);
}

TEST(a_file_is_known_by_its_bytes)
{
    struct models m = open_models(&family_llava_onevision);
    struct question q = { .path = clip, .text = "what is the dog", .dir = fresh_dir() };
    struct result ref = ask(&m, &q), r;
    struct pv_method sd = { .size = sizeof sd };
    size_t size;
    uint8_t *data = make_load(clip, &size);
    char path[256];
    pv_session *s;
    struct answer a;
    struct pv_error err = { 0 };
    snprintf(path, sizeof path, "%s/other-name.mp4", scratch_dir());
    make_write(path, data, size);
    q.path = path;
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "under another name");
    CHECK_EQ(r.counts.disk_files, 1);
    q.path = NULL;
    q.data = data;
    q.size = size;
    CHECK(!pv_method_find(&sd, "sd", NULL));
    q.method = &sd; /* the draft model's tower wants pixels: the bytes were copied */
    r = ask(&m, &q);
    check_same(&m, &ref, &r, "in memory");
    CHECK(r.counts.disk_files == 1 && r.decoded);
    /* Pixels are wanted of a file that is another one by now. */
    q.path = path;
    s = open_for(&m, &q);
    CHECK(!add_clip(s, &m, &q, NULL));
    free(data);
    data = make_load("tests/data/video/still.jpg", &size);
    make_write(path, data, size);
    free(data);
    CHECK_EQ(generate(s, &sd, 0, &a, &err), PV_E_IO);
    CHECK_MSG(strstr(err.text, "has changed") && strstr(err.text, path), "%s", err.text);
    CHECK(!generate(s, NULL, 0, &a, NULL)); /* nobody else wants them */
    CHECK(same_answer(&a, &ref.answer, pv_model_vocab_size(m.pair.target)));
    pv_session_close(&s);
    close_pair(&m.pair);
}

TEST(pictures_run_through_the_tower_once)
{
    for (int f = 0; f < TINY_KINDS; f++) {
        struct models m = open_models(tiny_kinds[f].family);
        struct question q = { .path = "tests/data/video/still.jpg", .text = "what is the dog" };
        struct result ref = ask(&m, &q), r;
        q.dir = fresh_dir();
        r = ask(&m, &q);
        check_same(&m, &ref, &r, "an empty cache");
        CHECK(r.answer.stats.vision_s > 0);
        r = ask(&m, &q);
        check_same(&m, &ref, &r, "a full cache");
        CHECK(r.answer.stats.vision_s == 0 && r.counts.disk_rows > 0);
        CHECK_EQ(r.decoded,
                 m.family == &family_llava_onevision); /* its form depends on the prompt */
        close_pair(&m.pair);
    }
}

TEST(a_prompt_is_written_with_pixels_that_were_not_needed)
{
    struct models m = open_models(&family_llava_onevision);
    struct question q = { .path = clip, .text = "what is the dog", .dir = fresh_dir() };
    struct result ref = ask(&m, &q);
    struct pv_error err = { 0 };
    struct answer a;
    char path[256];
    pv_session *s = open_for(&m, &q);
    snprintf(path, sizeof path, "%s/prompt.pvin", scratch_dir());
    CHECK(!add_clip(s, &m, &q, NULL) && !s->seq.line.media[0].m.rgb);
    CHECK_MSG(!pv_prompt_write(s, path, &err), "%s", err.text);
    pv_session_close(&s);
    q.dir = NULL;
    s = open_for(&m, &q);
    CHECK_MSG(!pv_prompt_read(s, path, &err), "%s", err.text);
    CHECK(!generate(s, NULL, 0, &a, NULL));
    CHECK(same_answer(&a, &ref.answer, pv_model_vocab_size(m.pair.target)));
    pv_session_close(&s);
    close_pair(&m.pair);
}

TEST(a_cache_that_cannot_be_is_refused)
{
    struct models m = open_models(&family_llava_onevision);
    struct pv_session_params p = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_session *s = NULL;
    char path[256];
    p.cache.kv = true;
    CHECK_EQ(pv_session_open(&s, m.pair.target, &p, NULL), PV_E_ARG);
    snprintf(path, sizeof path, "%s/no/such/place", scratch_dir());
    p.cache.dir = path;
    CHECK_EQ(pv_session_open(&s, m.pair.target, &p, &err), PV_E_IO);
    CHECK_MSG(!s && strstr(err.text, path), "%s", err.text);
    close_pair(&m.pair);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
