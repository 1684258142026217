/* The GGUF reader on good and damaged files. */
#include "base/mem.h"
#include "format/gguf.h"
#include "make_file.h"
#include "scratch.h"
#include "test.h"

#include <math.h>

/* Open a copy of exactly `len` bytes, so that a sanitizer sees the first byte past the end. */
static enum pv_status open_copy(const uint8_t *data, size_t len, struct pv_error *err)
{
    uint8_t *copy = malloc(len ? len : 1);
    struct gguf *g = NULL;
    enum pv_status s;

    if (len)
        memcpy(copy, data, len);
    s = gguf_open_memory(&g, copy, len, "test.gguf", err);
    gguf_close(&g);
    free(copy);
    return s;
}

/* The file must be refused with one sentence that names it and contains `word`. */
static void refuse(const struct made *m, const char *word)
{
    struct pv_error err = { 0 };
    enum pv_status s = open_copy(m->data, m->len, &err);

    CHECK_MSG(s != PV_OK && err.code == s, "status %d, expected a failure about %s", s, word);
    CHECK_MSG(!strncmp(err.text, "test.gguf: ", 11) && strstr(err.text, word), "\"%s\" lacks %s",
              err.text, word);
}

static void patch_u32(struct made *m, size_t pos, uint32_t v)
{
    memcpy(m->data + pos, &v, 4);
}

static void patch_u64(struct made *m, size_t pos, uint64_t v)
{
    memcpy(m->data + pos, &v, 8);
}

TEST(opens_a_whole_file)
{
    struct made m = { 0 };
    struct gguf *g = NULL;
    struct pv_error err = { 0 };
    const struct tensor *t;

    make_gguf(&m);
    CHECK_EQ(gguf_open_memory(&g, m.data, m.len, "test.gguf", &err), PV_OK);
    if (!CHECK_MSG(g, "%s", err.text))
        return;
    CHECK_EQ(gguf_n_tensors(g), m.n_tensors);
    CHECK_EQ(gguf_n_values(g), m.n_values);
    CHECK_STR(gguf_path(g), "test.gguf");
    t = gguf_tensor_find(g, "token_embd.weight");
    if (CHECK(t)) {
        CHECK_EQ(t->n_dims, 2);
        CHECK_EQ(t->dim[0], MAKE_VOCAB); /* outermost first */
        CHECK_EQ(t->dim[1], MAKE_HIDDEN);
        CHECK_EQ(t->dtype, DTYPE_Q8_0);
        CHECK_EQ(t->size, MAKE_VOCAB * MAKE_HIDDEN / 32 * 34);
        CHECK(t->data == m.data + m.data_start);
    }
    CHECK(gguf_tensor_find(g, "token_embd") == NULL);
    CHECK(gguf_tensor(g, 0) == t);
    gguf_close(&g);
    CHECK(g == NULL);
    free(m.data);
}

TEST(reads_every_kind)
{
    struct made m = { 0 };
    struct gguf *g = NULL;
    struct pv_error err = { 0 };
    const int8_t i8 = -3;
    const uint16_t u16 = 40000;
    const int64_t i64 = -5000000000;
    const uint64_t u64 = UINT64_MAX;
    const double f64 = 0.1;
    const uint8_t yes = 1;
    const int32_t ints[] = { 1, -2, 3 };
    int64_t n = 0;
    double d = 0;
    struct str str;
    int32_t got[3];
    static const char *const words[] = { "x", "", "yz" };
    struct str *list = NULL;
    int count = 0;

    make_begin(&m);
    make_kv(&m, "a.i8", GGUF_I8, &i8, 1);
    make_kv(&m, "a.u16", GGUF_U16, &u16, 2);
    make_kv(&m, "a.i64", GGUF_I64, &i64, 8);
    make_kv(&m, "a.u64", GGUF_U64, &u64, 8);
    make_kv(&m, "a.f64", GGUF_F64, &f64, 8);
    make_kv(&m, "a.bool", GGUF_BOOL, &yes, 1);
    make_kv_i32s(&m, "a.ints", ints, 3);
    make_kv_strings(&m, "a.words", words, 3);
    make_kv_string(&m, "a.text", "hello");
    make_end(&m);
    if (!CHECK_EQ(gguf_open_memory(&g, m.data, m.len, "test.gguf", &err), PV_OK))
        return;
    CHECK_EQ(gguf_int(g, "a.i8", -10, 10, &n, NULL), PV_OK);
    CHECK_EQ(n, -3);
    CHECK_EQ(gguf_int(g, "a.u16", 0, 65535, &n, NULL), PV_OK);
    CHECK_EQ(n, 40000);
    CHECK_EQ(gguf_int(g, "a.i64", INT64_MIN, 0, &n, NULL), PV_OK);
    CHECK_EQ(n, -5000000000);
    CHECK_EQ(gguf_int(g, "a.u64", 0, INT64_MAX, &n, NULL), PV_E_FORMAT); /* beyond int64 */
    CHECK_EQ(gguf_int(g, "a.i8", 0, 10, &n, NULL), PV_E_FORMAT);
    CHECK_EQ(gguf_int(g, "a.text", 0, 10, &n, NULL), PV_E_FORMAT);
    CHECK_EQ(gguf_int(g, "a.none", 0, 10, &n, &err), PV_E_FORMAT);
    CHECK(strstr(err.text, "a.none is missing"));
    CHECK_EQ(n, -5000000000); /* outputs are untouched on failure */
    CHECK_EQ(gguf_float(g, "a.f64", &d, NULL), PV_OK);
    CHECK_EQ(d, 0.1);
    CHECK_EQ(gguf_float(g, "a.i8", &d, NULL), PV_E_FORMAT);
    CHECK_EQ(gguf_string(g, "a.text", &str, NULL), PV_OK);
    CHECK(str.len == 5 && !memcmp(str.s, "hello", 5));
    CHECK_EQ(gguf_ints(g, "a.ints", got, 3, NULL), PV_OK);
    CHECK(got[0] == 1 && got[1] == -2 && got[2] == 3);
    CHECK_EQ(gguf_ints(g, "a.ints", got, 2, NULL), PV_E_FORMAT);
    CHECK_EQ(gguf_ints(g, "a.words", got, 3, NULL), PV_E_FORMAT);
    CHECK_EQ(gguf_strings(g, "a.words", 2, &list, &count, NULL), PV_E_FORMAT); /* over the cap */
    CHECK_EQ(gguf_strings(g, "a.words", 3, &list, &count, NULL), PV_OK);
    CHECK_EQ(count, 3);
    CHECK(list && list[1].len == 0 && list[2].len == 2 && !memcmp(list[2].s, "yz", 2));
    mem_free(list);
    gguf_close(&g);
    free(m.data);
}

TEST(version_2_is_read_others_are_not)
{
    struct made m = { 0 };
    struct pv_error err = { 0 };

    make_gguf(&m);
    patch_u32(&m, 4, 2);
    CHECK_EQ(open_copy(m.data, m.len, &err), PV_OK);
    patch_u32(&m, 4, 1);
    refuse(&m, "version 1");
    patch_u32(&m, 4, 4);
    refuse(&m, "version 4");
    patch_u32(&m, 4, 3u << 24);
    refuse(&m, "big-endian");
    patch_u32(&m, 4, 3);
    m.data[0] = 'X';
    refuse(&m, "not a GGUF file");
    free(m.data);
}

TEST(cut_off_at_every_byte)
{
    struct made m = { 0 };

    make_gguf(&m);
    for (size_t len = 0; len < m.len; len++) {
        struct pv_error err = { 0 };
        enum pv_status s;
        if (len > m.data_start + 64 && len < m.len - 64)
            continue; /* inside the data one place is like another */
        s = open_copy(m.data, len, &err);
        if (len <= m.len - MAKE_ALIGN) /* the last bytes are padding, which may be missing */
            CHECK_MSG(s == PV_E_FORMAT && err.text[0], "%zu of %zu bytes: %d %s", len, m.len, s,
                      err.text);
    }
    free(m.data);
}

/* Every byte of the header with some of its bits turned: whatever comes of it, no crash. */
TEST(any_damaged_byte_is_survived)
{
    struct made m = { 0 };
    int refused = 0;

    make_gguf(&m);
    for (size_t i = 0; i < m.data_start; i++) {
        for (int bit = 0; bit < 8; bit += 7) {
            struct pv_error err = { 0 };
            m.data[i] ^= (uint8_t)(1 << bit);
            if (open_copy(m.data, m.len, &err)) {
                refused++;
                CHECK(err.text[0]);
            }
            m.data[i] ^= (uint8_t)(1 << bit);
        }
    }
    CHECK(refused > 1000);
    free(m.data);
}

TEST(huge_counts)
{
    static const uint64_t huge[] = { 100000, 1u << 31, UINT64_MAX / 8, UINT64_MAX };
    struct made m = { 0 };

    make_gguf(&m);
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        struct made n = m;
        n.data = malloc(m.len);
        memcpy(n.data, m.data, m.len);
        patch_u64(&n, 8, huge[i]);
        refuse(&n, "tensors in a file");
        patch_u64(&n, 8, m.n_tensors);
        patch_u64(&n, 16, huge[i]);
        refuse(&n, "metadata entries in a file");
        patch_u64(&n, 16, m.n_values);
        /* the length of a key, of a string, and of arrays of strings and numbers */
        patch_u64(&n, make_find(&m, "general.architecture")->entry, huge[i]);
        refuse(&n, "a metadata key of");
        memcpy(n.data, m.data, m.len);
        patch_u64(&n, make_find(&m, "general.author")->value + 4, huge[i]);
        refuse(&n, "a metadata string of");
        memcpy(n.data, m.data, m.len);
        patch_u64(&n, make_find(&m, "tokenizer.ggml.tokens")->value + 8, huge[i]);
        refuse(&n, "tokenizer.ggml.tokens has");
        memcpy(n.data, m.data, m.len);
        patch_u64(&n, make_find(&m, "tokenizer.ggml.token_type")->value + 8, huge[i]);
        refuse(&n, "tokenizer.ggml.token_type has");
        memcpy(n.data, m.data, m.len);
        patch_u64(&n, make_find(&m, "token_embd.weight")->entry, huge[i]);
        refuse(&n, "a tensor name of");
        free(n.data);
    }
    free(m.data);
}

TEST(bad_entries)
{
    struct made m = { 0 };
    size_t kind;

    make_gguf(&m);
    kind = make_find(&m, "general.author")->value;
    patch_u32(&m, kind, 13);
    refuse(&m, "unknown kind 13");
    patch_u32(&m, kind, 8);
    kind = make_find(&m, "tokenizer.ggml.merges")->value;
    patch_u32(&m, kind + 4, 9);
    refuse(&m, "array of kind 9");
    patch_u32(&m, kind + 4, 77);
    refuse(&m, "array of kind 77");
    patch_u32(&m, kind + 4, 8);
    m.data[make_find(&m, "general.author")->entry + 8] = 27; /* an escape sequence in a key */
    refuse(&m, "plain ASCII");
    free(m.data);

    m = (struct made){ .twice = "general.author" };
    make_gguf(&m);
    refuse(&m, "general.author is there twice");
    free(m.data);

    m = (struct made){ .twice = "blk.1.ffn_up.weight" };
    make_gguf(&m);
    refuse(&m, "blk.1.ffn_up.weight is there twice");
    free(m.data);
}

TEST(bad_booleans)
{
    const uint8_t two = 2;
    const uint8_t list[] = { 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 3 };
    struct made m = { 0 };

    make_begin(&m);
    make_kv(&m, "a.flag", GGUF_BOOL, &two, 1);
    make_end(&m);
    refuse(&m, "boolean of value 2");
    free(m.data);
    m = (struct made){ 0 };
    make_begin(&m);
    make_kv(&m, "a.flags", GGUF_ARRAY, list, sizeof list);
    make_end(&m);
    refuse(&m, "boolean of value 3");
    free(m.data);
}

TEST(bad_tensors)
{
    struct made m = { 0 };
    size_t dims, pos;

    make_gguf(&m);
    dims = make_find(&m, "blk.0.attn_q.weight")->value;
    for (uint32_t n = 0; n <= 9; n += n == 0 ? 5 : 1) {
        patch_u32(&m, dims, n);
        refuse(&m, "dimensions");
    }
    patch_u32(&m, dims, 2);
    patch_u64(&m, dims + 4, 0);
    refuse(&m, "dimension of 0");
    patch_u64(&m, dims + 4, UINT64_MAX);
    refuse(&m, "dimension of 18446744073709551615");
    patch_u64(&m, dims + 4, 1);
    refuse(&m, "not a multiple of the 32 of q8_0");
    patch_u64(&m, dims + 4, UINT64_C(1) << 40);
    refuse(&m, "larger than the file");
    patch_u64(&m, dims + 12, UINT64_C(1) << 40); /* the product overflows */
    refuse(&m, "larger than the file");
    patch_u64(&m, dims + 4, MAKE_HIDDEN);
    patch_u64(&m, dims + 12, INT64_MAX);
    refuse(&m, "larger than the file");
    patch_u64(&m, dims + 12, MAKE_HEADS * MAKE_HEAD_DIM);
    pos = dims + 20;
    patch_u32(&m, pos, 23);
    refuse(&m, "blk.0.attn_q.weight has type IQ4_XS (23)");
    patch_u32(&m, pos, 999);
    refuse(&m, "type unknown (999)");
    patch_u32(&m, pos, 8);
    patch_u64(&m, pos + 4, 32);
    refuse(&m, "overlap");
    patch_u64(&m, pos + 4, 33);
    refuse(&m, "not a multiple of 32");
    patch_u64(&m, pos + 4, UINT64_MAX - 31);
    refuse(&m, "does not fit");
    patch_u64(&m, pos + 4, m.len);
    m.data[pos + 4] &= 0xe0;
    refuse(&m, "does not fit");
    free(m.data);
}

TEST(bad_alignment)
{
    static const uint32_t bad[] = { 0, 3, 48, 1u << 30, UINT32_MAX };
    struct made m = { 0 };
    size_t pos;

    make_gguf(&m);
    pos = make_find(&m, "general.alignment")->value;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        patch_u32(&m, pos + 4, bad[i]);
        refuse(&m, "general.alignment");
    }
    patch_u32(&m, pos, GGUF_F32);
    refuse(&m, "general.alignment");
    free(m.data);
}

TEST(type_numbers_and_names)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype back = DTYPE_COUNT;
        CHECK(gguf_type_to_dtype(gguf_type_of((enum dtype)i), &back) && (int)back == i);
    }
    CHECK_STR(gguf_type_name(12), "Q4_K");
    CHECK_STR(gguf_type_name(30), "BF16");
    CHECK_STR(gguf_type_name(39), "MXFP4");
    CHECK_EQ(gguf_type_of(DTYPE_Q6_K), 14);
    CHECK_EQ(gguf_type_of(DTYPE_Q4_1), 3);
    CHECK_EQ(gguf_type_of(DTYPE_Q5_1), 7);
    CHECK_EQ(gguf_type_of(DTYPE_IQ4_NL), 20);
}

/* Three parts beside one another; each has some of the tensors. */
static void write_part(const char *path, int no, int count, const char *tensor, bool alias)
{
    const uint16_t no16 = (uint16_t)no, count16 = (uint16_t)count;
    const int32_t total = count;
    struct made m = { 0 };

    make_begin(&m);
    make_kv(&m, "split.no", GGUF_U16, &no16, 2);
    make_kv(&m, "split.count", GGUF_U16, &count16, 2);
    make_kv(&m, "split.tensors.count", GGUF_I32, &total, 4);
    if (no == 0)
        make_kv_string(&m, "general.name", "split");
    make_tensor(&m, alias ? "part0" : tensor, 0, 8);
    make_end(&m);
    make_write(path, m.data, m.len);
    free(m.data);
}

static void write_split(char *first, size_t cap, int count, int wrong, bool alias)
{
    for (int i = count - 1; i >= 0; i--) {
        char name[16];
        snprintf(first, cap, "%s/s-%05d-of-%05d.gguf", scratch_dir(), i + 1, count);
        snprintf(name, sizeof name, "part%d", i);
        write_part(first, i == wrong ? i + 1 : i, count, name, alias);
    }
}

TEST(split_files)
{
    char path[256];
    struct gguf *g = NULL;
    struct pv_error err = { 0 };

    write_split(path, sizeof path, 3, -1, false);
    if (CHECK_MSG(gguf_open(&g, path, UINT64_MAX, &err) == PV_OK, "%s", err.text)) {
        CHECK_EQ(gguf_n_tensors(g), 3);
        CHECK(gguf_tensor_find(g, "part2") == gguf_tensor(g, 2));
        CHECK(gguf_find(g, "general.name"));
    }
    gguf_close(&g);
    write_split(path, sizeof path, 3, 2, false);
    CHECK_EQ(gguf_open(&g, path, UINT64_MAX, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "part 4 of 3"), "%s", err.text);
    err = (struct pv_error){ 0 };
    write_split(path, sizeof path, 3, -1, true);
    CHECK_EQ(gguf_open(&g, path, UINT64_MAX, &err), PV_E_FORMAT);
    CHECK_MSG(strstr(err.text, "part0 is there twice"), "%s", err.text);
    err = (struct pv_error){ 0 };
    write_split(path, sizeof path, 3, -1, false);
    path[strlen(path) - strlen("1-of-00003.gguf")] = '2';
    CHECK_EQ(gguf_open(&g, path, UINT64_MAX, &err), PV_E_ARG);
    CHECK_MSG(strstr(err.text, "part 2 of 3"), "%s", err.text);
    unlink(path);
    path[strlen(path) - strlen("2-of-00003.gguf")] = '1';
    err = (struct pv_error){ 0 };
    CHECK_EQ(gguf_open(&g, path, UINT64_MAX, &err), PV_E_IO);
    CHECK_MSG(strstr(err.text, "00002-of-00003"), "%s", err.text);
    CHECK(g == NULL);
}

TEST(file_limit)
{
    char path[256];
    struct made m = { 0 };
    struct gguf *g = NULL;
    struct pv_error err = { 0 };

    make_gguf(&m);
    snprintf(path, sizeof path, "%s/limit.gguf", scratch_dir());
    make_write(path, m.data, m.len);
    CHECK_EQ(gguf_open(&g, path, m.len - 1, &err), PV_E_LIMIT);
    CHECK(strstr(err.text, path));
    CHECK_EQ(gguf_open(&g, path, m.len, NULL), PV_OK);
    gguf_close(&g);
    free(m.data);
}

/* Allocation k fails, for every k until none is left to fail. */
TEST(out_of_memory_anywhere)
{
    char path[256];
    struct gguf *g = NULL;
    enum pv_status s = PV_E_NOMEM;
    int k;

    write_split(path, sizeof path, 2, -1, false);
    for (k = 1; s && k < 1000; k++) {
        struct pv_error err = { 0 };
        mem_fail_at((uint64_t)k);
        s = gguf_open(&g, path, UINT64_MAX, &err);
        mem_fail_at(0);
        if (s) {
            CHECK_MSG(s == PV_E_NOMEM && err.text[0], "%d %s", s, err.text);
            CHECK(g == NULL);
        }
    }
    CHECK_EQ(s, PV_OK);
    CHECK(k > 5);
    gguf_close(&g);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
