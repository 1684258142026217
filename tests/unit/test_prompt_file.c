/* Prepared prompts: a session that reads one answers as the session that wrote it, to the bit and
 * whoever drafts; what is cut off or damaged is refused, with the session left as it was. */
#include "answers.h"
#include "base/mem.h"
#include "engine/prompt_file.h"
#include "family/families.h"

enum { HEADER = 68, RECORD = 40 };
static const struct family *const seeing[] = { &family_llava_onevision, &family_qwen2_5_vl,
                                               &family_qwen2_vl, &family_qwen3_vl,
                                               &family_salmonn2_plus };
enum { N_KINDS = sizeof seeing / sizeof *seeing };

static const char *file_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s.pvin", scratch_dir(), name);
    return path;
}

static void write_prompt(const pv_session *s, const char *name)
{
    struct pv_error err = { 0 };
    CHECK_MSG(pv_prompt_write(s, file_path(name), &err) == PV_OK, "%s", err.text);
}

static enum pv_status read_prompt(pv_session *s, const char *name, struct pv_error *err)
{
    return pv_prompt_read(s, file_path(name), err);
}

/* ---- prompts ---- */

enum prompt_kind {
    PROMPT_VIDEO,
    PROMPT_PICTURE, /* alone: LLaVA cuts it */
    PROMPT_SEVERAL, /* a system message; two pictures, and one video twice */
    PROMPT_TEXT,
    PROMPT_IDS,  /* no message: nothing is asked after it */
    PROMPT_LATER /* the second question about a video */
};
enum { N_PROMPTS = PROMPT_LATER + 1 };

static enum pv_status add_several(pv_session *s, struct pv_error *err)
{
    enum pv_status st = pv_add_text(s, "system", "be short", err);
    for (int i = 0; i < 4 && !st; i++)
        st = add_media(s, i == 3 ? 1 : (uint64_t)i + 1, i == 1 || i == 2, err);
    return st ? st : pv_add_text(s, "user", "which of them", err);
}

static enum pv_status add_later(pv_session *s, struct pv_error *err)
{
    static struct answer first;
    enum pv_status st = add_prompt(s, 7, err);
    if (!st)
        st = generate(s, NULL, 0, &first, err);
    return st ? st : pv_add_text(s, "user", "and then", err);
}

static void add_kind(pv_session *s, enum prompt_kind kind)
{
    static const int32_t ids[] = { 5, 9, 2, 40, 7 };
    struct pv_error err = { 0 };
    enum pv_status st = PV_OK;
    switch (kind) {
    case PROMPT_VIDEO:
        st = add_prompt(s, 7, &err);
        break;
    case PROMPT_PICTURE:
        st = add_media(s, 3, true, &err);
        if (!st)
            st = pv_add_text(s, "user", "what is it", &err);
        break;
    case PROMPT_SEVERAL:
        st = add_several(s, &err);
        break;
    case PROMPT_TEXT:
        st = pv_add_text(s, "user", "no video here", &err);
        break;
    case PROMPT_IDS:
        st = pv_add_ids(s, ids, sizeof ids / sizeof *ids, &err);
        break;
    case PROMPT_LATER:
        st = add_later(s, &err);
        break;
    }
    CHECK_MSG(st == PV_OK, "prompt %d: %s", (int)kind, err.text);
}

/* ---- the same answer ---- */

static void check_same(pv_session *writer, pv_session *reader, const struct pv_method *m,
                       float temperature, enum prompt_kind kind)
{
    static struct answer a, b;
    struct pv_error err = { 0 };
    CHECK_MSG(generate(writer, m, temperature, &a, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(generate(reader, m, temperature, &b, &err) == PV_OK, "%s", err.text);
    CHECK_EQ(a.n, (size_t)N_NEW);
    CHECK_MSG(same_answer(&a, &b, vocab_of(reader)), "prompt %d: another answer", (int)kind);
    CHECK_EQ(a.stats.prompt_tokens, b.stats.prompt_tokens);
    CHECK_EQ(a.stats.video_tokens, b.stats.video_tokens);
    CHECK_EQ(a.stats.draft_video_tokens, b.stats.draft_video_tokens);
    CHECK_EQ(a.stats.accepted, b.stats.accepted);
    CHECK_EQ(a.stats.frames, b.stats.frames);
}

/* Rows and positions; keys are those of the session. */
static void check_rows(const struct timeline *a, const struct timeline *b)
{
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++)
        same = (a->ids[i] == b->ids[i] || (a->ids[i] < 0 && b->ids[i] < 0)) &&
               !memcmp(a->pos[i], b->pos[i], sizeof a->pos[i]);
    CHECK(same && a->next == b->next && a->n_spans == b->n_spans);
    for (int i = 0; i < a->n_spans && same; i++)
        CHECK(a->span[i].row0 == b->span[i].row0 &&
              media_equal(&a->media[a->span[i].item].m, &b->media[b->span[i].item].m));
}

static void check_round_trip(const struct pair *p, enum prompt_kind kind)
{
    struct pv_method m = method(PV_DRAFT_MODEL, "specvlm", PV_SHAPE_TREE);
    struct pv_error err = { 0 };
    for (int drafted = 0; drafted < 2; drafted++) {
        pv_session *writer = open_session(p), *reader = open_session(p), *again = open_session(p);
        int rows;
        add_kind(writer, kind);
        rows = writer->seq.line.n;
        write_prompt(writer, "a");
        CHECK_EQ(writer->seq.line.n, rows); /* writing asks nothing */
        CHECK_MSG(read_prompt(reader, "a", &err) == PV_OK, "%s", err.text);
        write_prompt(reader, "b");
        CHECK_MSG(read_prompt(again, "b", &err) == PV_OK, "%s", err.text);
        check_rows(&reader->seq.line, &again->seq.line);
        check_same(writer, reader, drafted ? &m : NULL, drafted ? 0.8f : 0, kind);
        CHECK(kind == PROMPT_LATER || same_cache(writer, reader));
        pv_session_close(&writer);
        pv_session_close(&reader);
        pv_session_close(&again);
    }
}

TEST(a_session_that_reads_answers_as_the_one_that_wrote)
{
    for (int f = 0; f < N_KINDS; f++) {
        struct pair p = open_unlike(seeing[f], 2);
        for (int k = 0; k < N_PROMPTS; k++)
            check_round_trip(&p, (enum prompt_kind)k);
        close_pair(&p);
    }
}

/* The rows before an answer are in the file: the timeline of the writer is its beginning. */
TEST(rows_are_those_of_the_writer)
{
    for (int f = 0; f < N_KINDS; f++) {
        struct pair p = open_unlike(seeing[f], 1);
        for (int k = 0; k < N_PROMPTS; k++) {
            pv_session *writer = open_session(&p), *reader = open_session(&p);
            struct timeline cut;
            int asked;
            add_kind(writer, (enum prompt_kind)k);
            write_prompt(writer, "rows");
            CHECK_EQ(read_prompt(reader, "rows", NULL), PV_OK);
            asked = reader->seq.line.n - writer->seq.line.n;
            CHECK_MSG(k == PROMPT_IDS ? asked == 0 : asked > 0, "prompt %d: %d rows asked", k,
                      asked);
            cut = reader->seq.line;
            cut.n -= asked;
            cut.next -= asked;
            check_rows(&cut, &writer->seq.line);
            CHECK_EQ(reader->message0, writer->message0);
            pv_session_close(&writer);
            pv_session_close(&reader);
        }
        close_pair(&p);
    }
}

TEST(a_prompt_read_again_is_recognised)
{
    static struct answer a, b;
    struct pair p = open_unlike(&family_qwen2_5_vl, 1);
    pv_session *s = open_session(&p);
    struct pv_error err = { 0 };
    add_kind(s, PROMPT_VIDEO);
    write_prompt(s, "again");
    CHECK_EQ(generate(s, NULL, 0, &a, &err), PV_OK);
    CHECK_MSG(read_prompt(s, "again", &err) == PV_E_ARG &&
                  strstr(err.text, "cannot follow other messages"),
              "%s", err.text);
    pv_session_reset(s);
    err = (struct pv_error){ 0 };
    CHECK_MSG(read_prompt(s, "again", &err) == PV_OK, "%s", err.text);
    CHECK_EQ(generate(s, NULL, 0, &b, &err), PV_OK);
    CHECK(same_answer(&a, &b, vocab_of(s)));
    CHECK(b.stats.reused_tokens >= b.stats.prompt_tokens - 1 && b.stats.vision_s == 0);
    CHECK_EQ(s->seq.line.n_media, 1);
    pv_session_close(&s);
    close_pair(&p);
}

/* ---- damaged files ---- */

struct bytes {
    uint8_t *data; /* malloc */
    size_t n;
};

static struct bytes load(const char *name)
{
    FILE *f = fopen(file_path(name), "rb");
    struct bytes b = { 0 };
    if (!CHECK(f && !fseek(f, 0, SEEK_END)))
        exit(1);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.n);
    CHECK_EQ(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static void store(const char *name, const struct bytes *b)
{
    FILE *f = fopen(file_path(name), "wb");
    if (!CHECK(f && fwrite(b->data, 1, b->n, f) == b->n && !fclose(f)))
        exit(1);
}

/* Parse n bytes in a block of exactly that size. */
static enum pv_status parse(const pv_session *s, const uint8_t *data, size_t n, bool sealed)
{
    const struct vision_config *c = vision_config(s->model->vision);
    struct prompt_reader r = {
        .name = "file", .model = "model", .c = c, .limits = &s->model->limits, .vocab = vocab_of(s)
    };
    static struct prompt_file f;
    struct pv_error err = { 0 };
    uint8_t *exact = malloc(n ? n : 1);
    enum pv_status st;
    if (n)
        memcpy(exact, data, n);
    if (sealed && n >= HEADER)
        prompt_file_seal(exact, n);
    st = prompt_file_parse(&f, exact, n, &r, &err);
    CHECK_MSG(!st || err.text[0], "a failure that does not say why");
    for (int i = 0; i < f.n_media && !st; i++)
        CHECK(f.pixels[i] + media_size(&f.media[i]) <= exact + n);
    free(exact);
    return st;
}

/* A small file, of a video with one frame, and a session to read it. */
static struct bytes small_file(const struct pair *p, pv_session **s)
{
    static const uint8_t rgb[8 * 8 * 3] = { 1, 2, 3, 250 };
    struct pv_frame frame = { .width = 8, .height = 8, .rgb = rgb };
    struct pv_video_params v = { .size = sizeof v, .max_pixels = 64 };
    struct pv_error err = { 0 };
    struct bytes b;
    *s = open_session(p);
    CHECK_MSG(pv_add_frames(*s, &frame, 1, 2, &v, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(pv_add_text(*s, "user", "hi", &err) == PV_OK, "%s", err.text);
    write_prompt(*s, "small");
    pv_session_reset(*s);
    b = load("small");
    return b;
}

TEST(no_length_but_its_own_is_accepted)
{
    for (int f = 0; f < N_KINDS; f++) {
        struct pair p = open_unlike(seeing[f], 1);
        pv_session *s;
        struct bytes b = small_file(&p, &s);
        CHECK_EQ(parse(s, b.data, b.n, false), PV_OK);
        CHECK_EQ(parse(s, b.data, b.n, true), PV_OK);
        for (size_t n = 0; n < b.n; n++)
            if (!CHECK_MSG(parse(s, b.data, n, false) && parse(s, b.data, n, true),
                           "the first %zu bytes are accepted", n))
                break;
        b.data = realloc(b.data, b.n + 1);
        b.data[b.n] = 0;
        CHECK(parse(s, b.data, b.n + 1, false) && parse(s, b.data, b.n + 1, true));
        free(b.data);
        pv_session_close(&s);
        close_pair(&p);
    }
}

/* The checksum as doc/formats.md has it, from 24 on. */
static uint64_t plain_sum(const uint8_t *p, size_t n, bool words)
{
    uint64_t s = 0xcbf29ce484222325u;
    for (size_t i = 24; i < n; i += words ? 8 : 1) {
        uint64_t next = 0;
        for (size_t k = 0; k < (words ? 8 : 1) && i + k < n; k++)
            next |= (uint64_t)p[i + k] << 8 * k;
        s = (s ^ next) * 0x100000001b3u;
        s ^= words ? s >> 32 : 0;
    }
    return s;
}

static uint64_t number_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

TEST(old_and_new_files_have_their_checksum)
{
    struct pair p = open_unlike(seeing[0], 1);
    pv_session *s;
    struct bytes b = small_file(&p, &s);
    CHECK_EQ(b.data[4], 3);
    CHECK(number_at(b.data + 16) == plain_sum(b.data, b.n, true));
    b.data[4] = 1;
    CHECK(parse(s, b.data, b.n, false) != PV_OK); /* that of the other version */
    CHECK_EQ(parse(s, b.data, b.n, true), PV_OK);
    prompt_file_seal(b.data, b.n);
    CHECK(number_at(b.data + 16) == plain_sum(b.data, b.n, false));
    b.data[4] = 5;
    CHECK(parse(s, b.data, b.n, true) != PV_OK);
    free(b.data);
    pv_session_close(&s);
    close_pair(&p);
}

/* As damage finds it, and with a checksum that holds: then pixels and ids may be others, and all
 * else must be refused or make a prompt that can be answered. */
TEST(every_byte_counts)
{
    static struct answer a;
    for (int f = 0; f < N_KINDS; f++) {
        struct pair p = open_unlike(seeing[f], 1);
        pv_session *s;
        struct bytes b = small_file(&p, &s);
        struct pv_error err;
        size_t head = HEADER + RECORD + 4 * 64;
        int answered = 0;
        for (size_t i = 0; i < b.n; i++) {
            uint8_t was = b.data[i];
            for (int k = 0; k < (i < head ? 8 : 1); k++) {
                b.data[i] = was ^ (uint8_t)(1 << k);
                CHECK_MSG(parse(s, b.data, b.n, false), "bit %d of byte %zu is ignored", k, i);
                parse(s, b.data, b.n, true);
            }
            b.data[i] = was;
        }
        for (size_t i = 24; i < HEADER + RECORD; i++) {
            uint8_t was = b.data[i];
            b.data[i] ^= 1;
            prompt_file_seal(b.data, b.n);
            store("flipped", &b);
            b.data[i] = was;
            pv_session_reset(s);
            err = (struct pv_error){ 0 };
            if (read_prompt(s, "flipped", &err)) {
                CHECK(err.text[0] && s->seq.line.n == 0);
                continue;
            }
            CHECK_MSG(generate(s, NULL, 0, &a, &err) == PV_OK, "%s", err.text);
            answered++;
        }
        CHECK_MSG(answered > 0 && answered < 40, "%d of the files were answered", answered);
        free(b.data);
        pv_session_close(&s);
        close_pair(&p);
    }
}

/* ---- what is refused ---- */

static bool refused(pv_session *s, const char *name, enum pv_status want, const char *words)
{
    struct pv_error err = { 0 };
    enum pv_status st = read_prompt(s, name, &err);
    return CHECK_MSG(st == want && strstr(err.text, words), "%d: %s", (int)st, err.text) &&
           CHECK(s->seq.line.n == 0);
}

TEST(another_model_is_named)
{
    struct pair llava = open_unlike(&family_llava_onevision, 1), qwen;
    pv_session *a = open_session(&llava), *b;
    add_kind(a, PROMPT_VIDEO);
    write_prompt(a, "llava");
    qwen = open_unlike(&family_qwen2_5_vl, 1);
    b = open_session(&qwen);
    refused(b, "llava", PV_E_FORMAT, "made for a model of LLaVA-OneVision");
    refused(b, "llava", PV_E_FORMAT, "is one of Qwen2.5-VL");
    refused(b, "llava", PV_E_FORMAT, "llava.pvin");
    pv_session_close(&a);
    pv_session_close(&b);
    close_pair(&llava);
    close_pair(&qwen);
}

TEST(files_that_are_no_prompts)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *s = open_session(&p);
    struct bytes empty = { (uint8_t *)"", 0 }, other = { (uint8_t *)"GGUF and more", 13 };
    struct pv_error err = { 0 };
    store("empty", &empty);
    store("other", &other);
    refused(s, "empty", PV_E_FORMAT, "not a prepared prompt");
    refused(s, "other", PV_E_FORMAT, "not a prepared prompt");
    refused(s, "missing", PV_E_IO, "missing.pvin");
    CHECK_EQ(pv_prompt_read(s, scratch_dir(), &err), PV_E_IO);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(what_cannot_be_written)
{
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *s = open_session(&p);
    struct pv_error err = { 0 };
    CHECK_EQ(pv_prompt_write(s, file_path("none"), &err), PV_E_ARG);
    CHECK_STR(err.text, "the prompt is empty");
    err = (struct pv_error){ 0 };
    CHECK_EQ(add_media(s, 1, false, &err), PV_OK);
    CHECK_EQ(pv_prompt_write(s, file_path("none"), &err), PV_E_ARG);
    CHECK(strstr(err.text, "without the text"));
    CHECK_EQ(pv_add_text(s, "user", "x", NULL), PV_OK);
    err = (struct pv_error){ 0 };
    CHECK_EQ(pv_prompt_write(s, file_path("no/such/place"), &err), PV_E_IO);
    CHECK(strstr(err.text, "no/such/place"));
    CHECK(access(file_path("none"), F_OK) != 0);
    pv_session_close(&s);
    close_pair(&p);
}

/* ---- limits and memory ---- */

TEST(context_and_memory_are_bounded)
{
    struct pair p = open_unlike(&family_qwen2_5_vl, 1);
    pv_session *s = open_session(&p);
    struct pv_session_params sp = pv_session_defaults();
    uint64_t limit = p.target->limits.memory_bytes;
    int frames = p.target->limits.frames;
    add_kind(s, PROMPT_VIDEO);
    write_prompt(s, "large");
    pv_session_close(&s);
    sp.max_context = 8;
    CHECK_EQ(pv_session_open(&s, p.target, &sp, NULL), PV_OK);
    refused(s, "large", PV_E_LIMIT, "do not fit a context of 8");
    pv_session_close(&s);
    s = open_session(&p);
    p.target->limits.memory_bytes = s->engine->fixed_bytes + 1000;
    refused(s, "large", PV_E_LIMIT, "bytes of memory");
    p.target->limits.memory_bytes = limit;
    p.target->limits.frames = 2;
    refused(s, "large", PV_E_LIMIT, "frames, 1 to 2 are possible");
    p.target->limits.frames = frames;
    CHECK_EQ(read_prompt(s, "large", NULL), PV_OK);
    pv_session_close(&s);
    close_pair(&p);
}

TEST(out_of_memory_leaves_the_session)
{
    static struct answer a, b;
    struct pair p = open_unlike(&family_llava_onevision, 1);
    pv_session *writer = open_session(&p), *s = open_session(&p);
    enum pv_status st = PV_E_NOMEM;
    struct pv_error err = { 0 };
    int k;
    add_kind(writer, PROMPT_SEVERAL);
    for (k = 1; st && k < 1000; k++) {
        err = (struct pv_error){ 0 };
        mem_fail_at((uint64_t)k);
        st = pv_prompt_write(writer, file_path("memory"), &err);
        mem_fail_at(0);
        CHECK(!st || (st == PV_E_NOMEM && err.text[0] && access(file_path("memory"), F_OK) != 0));
    }
    CHECK(!st && k > 3);
    st = PV_E_NOMEM;
    for (k = 1; st && k < 1000; k++) {
        err = (struct pv_error){ 0 };
        mem_fail_at((uint64_t)k);
        st = read_prompt(s, "memory", &err);
        mem_fail_at(0);
        CHECK(!st || (st == PV_E_NOMEM && err.text[0] && s->seq.line.n == 0));
    }
    CHECK(!st && k > 5);
    CHECK_MSG(generate(writer, NULL, 0, &a, &err) == PV_OK, "%s", err.text);
    CHECK_MSG(generate(s, NULL, 0, &b, &err) == PV_OK, "%s", err.text);
    CHECK(same_answer(&a, &b, vocab_of(s)));
    pv_session_close(&writer);
    pv_session_close(&s);
    close_pair(&p);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
