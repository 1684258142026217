/* The tokenizer against ids written by the reference library (tools/golden/tokenizer_golden.py),
 * and what a reference cannot show: long inputs, bad input, threads, failing allocations. */
#include "text/tokenizer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "format/vocab_hf.h"
#include "test.h"

#include <pthread.h>
#include <time.h>

static const char golden_dir[] = "tests/golden/tokenizer";

enum { MAX_IDS = 4096, MAX_BYTES = 8192, LINE_SIZE = 1 << 16 };

struct fixture {
    struct vocab *v;
    struct tokenizer *t;
    struct pv_error err;
};

static bool fixture_open(struct fixture *f)
{
    *f = (struct fixture){ 0 };
    return CHECK_MSG(!vocab_hf_open(&f->v, golden_dir, &f->err) && f->v &&
                         !tokenizer_open(&f->t, f->v, &f->err),
                     "%s", f->err.text);
}

static void fixture_close(struct fixture *f)
{
    tokenizer_close(&f->t);
    vocab_hf_close(&f->v);
}

static size_t hex_decode(const char *hex, char *out, size_t cap)
{
    size_t n = 0;
    unsigned byte;
    while (n < cap && sscanf(hex + 2 * n, "%2x", &byte) == 1)
        out[n++] = (char)byte;
    return n;
}

static size_t ids_parse(const char *s, int32_t *ids, size_t cap)
{
    size_t n = 0;
    char *end;
    for (long id = strtol(s, &end, 10); end != s && n < cap; id = strtol(s, &end, 10)) {
        ids[n++] = (int32_t)id;
        s = end;
    }
    return n;
}

static bool same_ids(const int32_t *a, size_t na, const int32_t *b, size_t nb)
{
    return na == nb && (na == 0 || memcmp(a, b, na * sizeof *a) == 0);
}

static size_t ids_bytes(const struct tokenizer *t, const int32_t *ids, size_t n, char *out,
                        size_t cap)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const char *s = tokenizer_bytes(t, ids[i], &len);
        if (s && total + len <= cap)
            memcpy(out + total, s, len);
        total += len;
    }
    return total;
}

/* One case of cases.vec. */
struct golden_case {
    char text[MAX_BYTES], nfc[MAX_BYTES];
    size_t len, nfc_len;
    int32_t ids[MAX_IDS], plain[MAX_IDS];
    size_t n_ids, n_plain;
    bool filled;
};

static void case_check(const struct fixture *f, struct golden_case *c, int number)
{
    int32_t got[MAX_IDS];
    char bytes[MAX_BYTES];
    size_t n = 0, len;
    bool added = false;

    if (!c->filled)
        return;
    CHECK_EQ(tokenizer_encode(f->t, c->text, c->len, true, got, MAX_IDS, &n, NULL), PV_OK);
    CHECK_MSG(same_ids(got, n, c->ids, c->n_ids), "case %d: other ids for %.*s", number,
              (int)c->len, c->text);
    for (size_t i = 0; i < n; i++)
        added |= tokenizer_kind(f->t, got[i]) != TOKEN_NORMAL;
    len = ids_bytes(f->t, got, n, bytes, sizeof bytes);
    /* The text is normalised between added tokens only, so `nfc` is given for texts without. */
    if (!added)
        CHECK_MSG(len == c->nfc_len && memcmp(bytes, c->nfc, len) == 0,
                  "case %d: other bytes come back for %.*s", number, (int)c->len, c->text);
    CHECK_EQ(tokenizer_encode(f->t, c->text, c->len, false, got, MAX_IDS, &n, NULL), PV_OK);
    CHECK_MSG(same_ids(got, n, c->plain, c->n_plain),
              "case %d: other ids without control tokens for %.*s", number, (int)c->len, c->text);
}

static void case_line(struct golden_case *c, const char *line)
{
    if (strncmp(line, "text", 4) == 0) {
        c->len = c->nfc_len = hex_decode(line + 5, c->text, MAX_BYTES);
        memcpy(c->nfc, c->text, c->len);
        c->filled = true;
    } else if (strncmp(line, "nfc ", 4) == 0) {
        c->nfc_len = hex_decode(line + 4, c->nfc, MAX_BYTES);
    } else if (strncmp(line, "ids", 3) == 0) {
        c->n_ids = c->n_plain = ids_parse(line + 3, c->ids, MAX_IDS);
        memcpy(c->plain, c->ids, sizeof c->ids);
    } else if (strncmp(line, "plain", 5) == 0) {
        c->n_plain = ids_parse(line + 5, c->plain, MAX_IDS);
    } else {
        CHECK_MSG(false, "cases.vec has an unknown line %.20s", line);
    }
}

static int golden_run(const struct fixture *f)
{
    struct golden_case *c = calloc(1, sizeof *c);
    char *line = malloc(LINE_SIZE);
    FILE *in = fopen("tests/golden/tokenizer/cases.vec", "r");
    int n = 0;

    while (CHECK(in && c && line) && fgets(line, LINE_SIZE, in)) {
        if (strncmp(line, "text", 4) == 0)
            case_check(f, c, n++);
        case_line(c, line);
    }
    case_check(f, c, n);
    if (in)
        fclose(in);
    free(line);
    free(c);
    return n;
}

TEST(golden)
{
    struct fixture f;
    if (!fixture_open(&f))
        return;
    CHECK(golden_run(&f) > 1000);
    fixture_close(&f);
}

TEST(count_beyond_the_room)
{
    struct fixture f;
    int32_t all[64], some[4] = { -7, -7, -7, -7 };
    const char text[] = "The video shows a person walking.";
    size_t n = 0, m = 0;

    if (!fixture_open(&f))
        return;
    CHECK_EQ(tokenizer_encode(f.t, text, strlen(text), true, all, 64, &n, NULL), PV_OK);
    CHECK_EQ(tokenizer_encode(f.t, text, strlen(text), true, some, 3, &m, NULL), PV_OK);
    CHECK(n > 4);
    CHECK_EQ(m, n);
    CHECK(memcmp(all, some, 3 * sizeof *some) == 0);
    CHECK_EQ(some[3], -7);
    m = 0;
    CHECK_EQ(tokenizer_encode(f.t, text, strlen(text), true, NULL, 0, &m, NULL), PV_OK);
    CHECK_EQ(m, n);
    CHECK_EQ(tokenizer_encode(f.t, "", 0, true, NULL, 0, &m, NULL), PV_OK);
    CHECK_EQ(m, 0);
    fixture_close(&f);
}

TEST(not_utf8)
{
    static const struct {
        const char *text;
        size_t len;
        const char *offset;
    } bad[] = { { "ab\xff", 3, "offset 2" },
                { "\xc0\x80", 2, "offset 0" },
                { "x\xed\xa0\x80", 4, "offset 1" },
                { "\xf4\x90\x80\x80", 4, "offset 0" },
                { "abc\xe4\xbd", 5, "offset 3" } };
    struct fixture f;

    if (!fixture_open(&f))
        return;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct pv_error err = { 0 };
        int32_t ids[16];
        size_t n = 99;
        CHECK_EQ(tokenizer_encode(f.t, bad[i].text, bad[i].len, true, ids, 16, &n, &err), PV_E_ARG);
        CHECK_MSG(strstr(err.text, bad[i].offset), "%s", err.text);
        CHECK_EQ(n, 99);
    }
    fixture_close(&f);
}

TEST(find_and_kinds)
{
    struct fixture f;
    size_t len = 0;
    int32_t id;

    if (!fixture_open(&f))
        return;
    id = tokenizer_find(f.t, "<|im_end|>", 10);
    CHECK_EQ(tokenizer_kind(f.t, id), TOKEN_CONTROL);
    CHECK(memcmp(tokenizer_bytes(f.t, id, &len), "<|im_end|>", 10) == 0 && len == 10);
    id = tokenizer_find(f.t, "<think>", 7);
    CHECK_EQ(tokenizer_kind(f.t, id), TOKEN_ADDED);
    CHECK_EQ(tokenizer_find(f.t, "<|im_end|", 9), -1);
    CHECK_EQ(tokenizer_find(f.t, "", 0), -1);
    id = tokenizer_find(f.t, "\xc4\xa0the", 5); /* " the" in byte characters */
    CHECK_EQ(tokenizer_kind(f.t, id), TOKEN_NORMAL);
    CHECK(memcmp(tokenizer_bytes(f.t, id, &len), " the", 4) == 0 && len == 4);
    CHECK(!tokenizer_bytes(f.t, -1, &len));
    CHECK(!tokenizer_bytes(f.t, f.v->n_tokens, &len));
    CHECK_EQ(tokenizer_kind(f.t, f.v->n_tokens), TOKEN_UNUSED);
    fixture_close(&f);
}

/* n copies of `unit`, then `tail`. */
static char *repeat(const char *unit, size_t n, const char *tail, size_t *len)
{
    size_t u = strlen(unit);
    char *s = malloc(n * u + strlen(tail) + 1);
    for (size_t i = 0; i < n; i++)
        memcpy(s + i * u, unit, u);
    memcpy(s + n * u, tail, strlen(tail) + 1);
    *len = n * u + strlen(tail);
    return s;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A quadratic step anywhere would take minutes on a megabyte. */
TEST(long_runs)
{
    static const struct {
        const char *unit, *tail;
    } runs[] = { { "a", "" },
                 { " ", "" },
                 { " ", "x" },
                 { "\n", "" },
                 { "\r\n", "x" },
                 { " \n", "" },
                 { "!", "" },
                 { "1", "" },
                 { "'s", "" },
                 { "\t ", "\n" },
                 { "\xe4\xbd\xa0", "" },
                 { "\xcc\x81", "" },
                 { "\xcc\x81\xcc\x96", "" },
                 { "a\xcc\x81", "" },
                 { "<", "" },
                 { "<|im_start|", ">" },
                 { "<think>", "" } };
    struct fixture f;

    if (!fixture_open(&f))
        return;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        size_t len, n = 0, total = 0;
        char *text = repeat(runs[i].unit, (1 << 20) / strlen(runs[i].unit), runs[i].tail, &len);
        int32_t *ids = malloc((len + 1) * sizeof *ids);
        double begin = seconds();
        CHECK_EQ(tokenizer_encode(f.t, text, len, true, ids, len + 1, &n, NULL), PV_OK);
        for (size_t k = 0; k < n && k <= len; k++) {
            size_t bytes = 0;
            tokenizer_bytes(f.t, ids[k], &bytes);
            total += bytes;
        }
        CHECK_MSG(total > 0 && total <= len, "run %zu: %zu bytes from %zu", i, total, len);
        CHECK_MSG(seconds() - begin < 20, "run %zu took %.1f s", i, seconds() - begin);
        free(ids);
        free(text);
    }
    fixture_close(&f);
}

static void *encode_thread(void *arg)
{
    return (void *)(uintptr_t)golden_run(arg);
}

TEST(threads)
{
    struct fixture f;
    pthread_t threads[4];

    if (!fixture_open(&f))
        return;
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, encode_thread, &f), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    fixture_close(&f);
}

TEST(every_allocation_may_fail)
{
    const char text[] = "a<think>caf\x65\xcc\x81 o\xcc\x82\xcc\xa3 it's   42\n";
    struct fixture f;
    int32_t ids[64];
    int failures = 0;
    size_t n = 0;

    if (!fixture_open(&f))
        return;
    for (uint64_t k = 1; k < 1000; k++) {
        struct tokenizer *t = NULL;
        struct pv_error err = { 0 };
        enum pv_status s;
        mem_fail_at(k);
        s = tokenizer_open(&t, f.v, &err);
        if (s == PV_OK)
            s = tokenizer_encode(t, text, strlen(text), true, ids, 64, &n, &err);
        mem_fail_at(0);
        tokenizer_close(&t);
        if (s == PV_OK)
            break;
        failures++;
        CHECK_MSG(s == PV_E_NOMEM, "allocation %d: %s", (int)k, err.text);
    }
    CHECK(failures > 5 && failures < 999);
    fixture_close(&f);
}

/* --- vocabularies as GGUF files may have them ------------------------------------------------ */

static const struct str tiny_tokens[] = {
    { "a", 1 },   { "b", 1 },        { "ab", 2 }, { "", 0 },
    { "<x>", 3 }, { "\xff\xfe", 2 }, { "a", 1 },  { NULL, 0 }
};
static const uint8_t tiny_kinds[] = { TOKEN_NORMAL,  TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL,
                                      TOKEN_CONTROL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_UNUSED };

static struct vocab tiny_vocab(struct str *merges, int n_merges)
{
    return (struct vocab){ .n_tokens = 8,
                           .token = (struct str *)(uintptr_t)tiny_tokens,
                           .kind = (uint8_t *)(uintptr_t)tiny_kinds,
                           .n_merges = n_merges,
                           .merge = merges,
                           .pre = "qwen2",
                           .chat_template = "" };
}

TEST(small_vocabulary)
{
    struct str merges[] = { { "a b", 3 } };
    struct vocab v = tiny_vocab(merges, 1);
    struct tokenizer *t = NULL;
    struct pv_error err = { 0 };
    int32_t ids[8];
    size_t n = 0, len = 9;

    if (!CHECK_EQ(tokenizer_open(&t, &v, NULL), PV_OK))
        return;
    CHECK_EQ(tokenizer_encode(t, "aab<x>b", 7, true, ids, 8, &n, NULL), PV_OK);
    CHECK(n == 4 && ids[0] == 0 && ids[1] == 2 && ids[2] == 4 && ids[3] == 1);
    CHECK_EQ(tokenizer_encode(t, "ac", 2, true, ids, 8, &n, &err), PV_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "0x63"), "%s", err.text);
    CHECK(memcmp(tokenizer_bytes(t, 5, &len), "\xff\xfe", 2) == 0 && len == 2);
    CHECK(tokenizer_bytes(t, 7, &len) && len == 0);
    tokenizer_close(&t);
    CHECK(!t);
}

TEST(bad_merges)
{
    static const struct {
        struct str merge;
        const char *text;
    } bad[] = { { { "ab", 2 }, "two tokens" },  { { " b", 2 }, "two tokens" },
                { { "a ", 2 }, "two tokens" },  { { "a b b", 5 }, "two tokens" },
                { { "", 0 }, "two tokens" },    { { "c b", 3 }, "left half" },
                { { "a c", 3 }, "right half" }, { { "b a", 3 }, "result" } };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct str merge = bad[i].merge;
        struct vocab v = tiny_vocab(&merge, 1);
        struct tokenizer *t = NULL;
        struct pv_error err = { 0 };
        CHECK_EQ(tokenizer_open(&t, &v, &err), PV_E_FORMAT);
        CHECK_MSG(strstr(err.text, bad[i].text), "%s", err.text);
        CHECK(!t);
    }
}

TEST(unknown_split_rule)
{
    struct vocab v = tiny_vocab(NULL, 0);
    struct tokenizer *t = NULL;
    struct pv_error err = { 0 };

    v.pre = "llama-bpe";
    CHECK_EQ(tokenizer_open(&t, &v, &err), PV_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "llama-bpe"), "%s", err.text);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
