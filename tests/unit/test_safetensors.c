/* The safetensors reader on good and damaged files and directories. */
#include "base/mem.h"
#include "format/safetensors_hf.h"
#include "make_dir.h"
#include "test.h"

#include <jansson.h>

static enum pv_status open_copy(const uint8_t *data, size_t len, struct pv_error *err)
{
    uint8_t *copy = malloc(len ? len : 1); /* exactly sized, for the sanitizer */
    struct safetensors *st = NULL;
    enum pv_status s;

    if (len)
        memcpy(copy, data, len);
    s = safetensors_open_memory(&st, copy, len, "test.st", err);
    safetensors_close(&st);
    free(copy);
    return s;
}

static void refuse(const char *header, size_t data_len, const char *word)
{
    static const uint8_t zeros[256];
    struct made m = { 0 };
    struct pv_error err = { 0 };
    enum pv_status s;

    make_safetensors(&m, header, zeros, data_len);
    s = open_copy(m.data, m.len, &err);
    CHECK_MSG(s != PV_OK && err.code == s, "%s: %d", header, s);
    CHECK_MSG(!strncmp(err.text, "test.st: ", 9) && strstr(err.text, word), "\"%s\" lacks \"%s\"",
              err.text, word);
    free(m.data);
}

#define ENTRY(dtype, shape, begin, end)                                                            \
    "{\"dtype\": \"" dtype "\", \"shape\": " shape ", \"data_offsets\": [" #begin ", " #end "]}"

TEST(reads_tensors)
{
    static const uint8_t data[64] = { 1, 2, 3 };
    static const char header[] = /* in no order */
        "{\"__metadata__\": {\"format\": \"pt\"}, "
        "\"b\": {\"dtype\": \"F16\", \"shape\": [2, 3], \"data_offsets\": [24, 36]}, "
        "\"a\": {\"dtype\": \"F32\", \"shape\": [2, 3], \"data_offsets\": [0, 24]}, "
        "\"scalar\": {\"dtype\": \"BF16\", \"shape\": [], \"data_offsets\": [36, 38]}, "
        "\"none\": {\"dtype\": \"F32\", \"shape\": [0, 7], \"data_offsets\": [36, 36]}, "
        "\"ids\": {\"dtype\": \"I64\", \"shape\": [2], \"data_offsets\": [38, 54]}, "
        "\"mask\": {\"dtype\": \"BOOL\", \"shape\": [10], \"data_offsets\": [54, 64]}}   ";
    struct made m = { 0 };
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };
    const struct tensor *t;

    make_safetensors(&m, header, data, sizeof data);
    if (!CHECK_MSG(safetensors_open_memory(&st, m.data, m.len, "test.st", &err) == PV_OK, "%s",
                   err.text))
        return;
    CHECK_EQ(safetensors_n_tensors(st), 4); /* I64 and BOOL are left out */
    CHECK(safetensors_find(st, "ids") == NULL && safetensors_find(st, "__metadata__") == NULL);
    t = safetensors_find(st, "a");
    CHECK(t && t->n_dims == 2 && t->dim[0] == 2 && t->dim[1] == 3 && t->dtype == DTYPE_F32);
    CHECK(t && t->size == 24 && *(const uint8_t *)t->data == 1);
    t = safetensors_find(st, "b");
    CHECK(t && t->dtype == DTYPE_F16 && t->data == m.data + m.len - sizeof data + 24);
    t = safetensors_find(st, "scalar");
    CHECK(t && t->n_dims == 1 && t->dim[0] == 1 && t->dtype == DTYPE_BF16);
    t = safetensors_find(st, "none");
    CHECK(t && t->size == 0 && t->dim[0] == 0);
    safetensors_close(&st);
    CHECK(st == NULL);
    free(m.data);
}

TEST(lists_of_integers)
{
    static const uint8_t data[32] = { 5,   0,   0,   0,   0, 0, 0, 0, 255, 255, 255, 255,
                                      255, 255, 255, 255, 7, 0, 0, 0, 254, 255, 255, 255 };
    static const char header[] = "{\"wide\": " ENTRY("I64", "[2]", 0, 16) ", \"narrow\": " ENTRY(
        "I32", "[2]", 16,
        24) ", \"none\": " ENTRY("I64", "[0]", 24,
                                 24) ", \"real\": " ENTRY("F32", "[1]", 24,
                                                          28) ", "
                                                              "\"square\": " ENTRY("I32", "[1, 1]",
                                                                                   28, 32) "}";
    static const struct {
        const char *name;
        int n; /* -1: refused */
        int64_t first, second;
    } cases[] = { { "wide", 2, 5, -1 }, { "narrow", 2, 7, -2 }, { "none", 0, 0, 0 },
                  { "real", -1, 0, 0 }, { "square", -1, 0, 0 }, { "absent", 0, 0, 0 } };
    struct made m = { 0 };
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };

    make_safetensors(&m, header, data, sizeof data);
    CHECK_MSG(safetensors_open_memory(&st, m.data, m.len, "test.st", &err) == PV_OK, "%s",
              err.text);
    for (size_t i = 0; st && i < sizeof cases / sizeof *cases; i++) {
        int64_t *list = NULL;
        int n = -2;
        enum pv_status s = safetensors_ints(st, cases[i].name, &list, &n, &err);
        CHECK_MSG(cases[i].n < 0 ? s == PV_E_FORMAT && strstr(err.text, "I32 or I64")
                                 : s == PV_OK && n == cases[i].n,
                  "%s", cases[i].name);
        CHECK(n < 2 || (list[0] == cases[i].first && list[1] == cases[i].second));
        mem_free(list);
    }
    safetensors_close(&st);
    free(m.data);
}

TEST(damaged_headers)
{
    refuse("", 0, "header of 0 bytes");
    refuse("x", 0, "header of 1 bytes");
    refuse(" {}", 0, "does not begin with");
    refuse("{\"a\": ", 0, "not valid JSON");
    refuse("{\"a\": NaN}", 0, "not valid JSON");
    refuse("{\"a\xff\": 1}", 0, "not valid JSON"); /* not UTF-8 */
    refuse("{\"a\": 5}", 0, "entry of a is not an object");
    refuse("{\"a\": " ENTRY("F32", "[1]", 0, 4) ", \"a\": " ENTRY("F32", "[1]", 4, 8) "}", 8,
           "not valid JSON: duplicate");
    refuse("{\"\": " ENTRY("F32", "[1]", 0, 4) "}", 4, "tensor name");
    refuse("{\"a\\u001b\": " ENTRY("F32", "[1]", 0, 4) "}", 4, "control characters");
    refuse("{\"a\\u0000\": " ENTRY("F32", "[1]", 0, 4) "}", 4, "not valid JSON");
}

TEST(damaged_entries)
{
    refuse("{\"a\": {}}", 0, "has no dtype");
    refuse("{\"a\": " ENTRY("F33", "[1]", 0, 4) "}", 4, "dtype that is not known");
    refuse("{\"a\": " ENTRY("F32", "7", 0, 4) "}", 4, "shape of a");
    refuse("{\"a\": " ENTRY("F32", "[-1]", 0, 4) "}", 4, "not a whole number");
    refuse("{\"a\": " ENTRY("F32", "[1.0]", 0, 4) "}", 4, "not a whole number");
    refuse("{\"a\": " ENTRY("F32", "[\"1\"]", 0, 4) "}", 4, "not a whole number");
    refuse("{\"a\": " ENTRY("F32", "[99999999999999999999]", 0, 4) "}", 4,
           "an element that is not a whole number");
    refuse("{\"a\": " ENTRY("F32", "[4294967296, 4294967296]", 0, 4) "}", 4, "larger than any");
    refuse("{\"a\": " ENTRY("F32", "[4611686018427387904]", 0, 0) "}", 0, "not what its shape");
    refuse("{\"a\": " ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "at most 8");
    refuse("{\"a\": " ENTRY("F32", "[1]", 4, 0) "}", 4, "two rising numbers");
    refuse("{\"a\": " ENTRY("F32", "[1]", -4, 0) "}", 4, "two rising numbers");
    refuse("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0]}}", 4, "two rising");
    refuse("{\"a\": " ENTRY("F32", "[2]", 0, 4) "}", 4, "not what its shape");
    refuse("{\"a\": " ENTRY("F4", "[3]", 0, 1) "}", 1, "not what its shape"); /* 12 bits */
}

TEST(damaged_layouts)
{
    refuse("{\"a\": " ENTRY("F32", "[1]", 0, 4) "}", 3,
           "truncated: it announces 4 bytes of tensors, and 3 are there");
    refuse("{\"a\": " ENTRY("F32", "[1]", 0, 4) "}", 5, "4 bytes, the data 5");
    refuse("{\"a\": " ENTRY("F32", "[1]", 4, 8) "}", 8, "where 0 of 8"); /* a hole in front */
    refuse("{\"a\": " ENTRY("F32", "[2]", 0, 8) ", \"b\": " ENTRY("F32", "[1]", 4, 8) "}", 8,
           "the tensor b is at 4"); /* an overlap */
    refuse("{\"a\": " ENTRY("F32", "[1]", 0, 4) ", \"b\": " ENTRY("F32", "[1]", 8, 12) "}", 12,
           "the tensor b is at 8"); /* a hole between */
    refuse("{\"a\": " ENTRY("F32", "[1]", 0, 4) ", \"b\": " ENTRY("F32", "[1]", 0, 4) "}", 4,
           "is at 0 to 4");
    refuse("{}", 1, "0 bytes, the data 1");
}

TEST(cut_off_at_every_byte)
{
    static const uint8_t data[28];
    struct made m = { 0 };
    struct pv_error err = { 0 };
    uint64_t huge = UINT64_MAX - 7;

    make_safetensors(
        &m, "{\"a\": " ENTRY("F32", "[2, 3]", 0, 24) ", \"b\": " ENTRY("BF16", "[2]", 24, 28) "}",
        data, sizeof data);
    CHECK_EQ(open_copy(m.data, m.len, &err), PV_OK);
    for (size_t len = 0; len < m.len; len++) {
        err = (struct pv_error){ 0 };
        CHECK_MSG(open_copy(m.data, len, &err) == PV_E_FORMAT && err.text[0], "%zu bytes", len);
    }
    memcpy(m.data, &huge, 8); /* 8 + length overflows */
    CHECK_EQ(open_copy(m.data, m.len, NULL), PV_E_FORMAT);
    free(m.data);
}

static void refuse_dir(const struct made_dir *d, const char *word)
{
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };

    CHECK(safetensors_open(&st, d->path, UINT64_MAX, &err) != PV_OK && st == NULL);
    CHECK_MSG(strstr(err.text, word), "\"%s\" lacks \"%s\"", err.text, word);
}

static void write_index(const struct made_dir *d, const char *text)
{
    make_file_in(d, "model.safetensors.index.json", text, strlen(text));
}

TEST(shards)
{
    struct made_dir d = { .sharded = true, .extra = true };
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };

    make_dir(&d, "shards");
    if (CHECK_MSG(safetensors_open(&st, d.path, UINT64_MAX, &err) == PV_OK, "%s", err.text)) {
        CHECK_EQ(safetensors_n_tensors(st), 2 + 2 * 12 + 1);
        CHECK(safetensors_find(st, "model.layers.0.mlp.up_proj.weight"));
        CHECK(safetensors_find(st, "model.layers.1.mlp.up_proj.weight"));
    }
    safetensors_close(&st);
    /* An index of one tensor: what else the shard holds is left out. */
    write_index(&d,
                "{\"weight_map\": {\"model.norm.weight\": \"model-00001-of-00002.safetensors\"}}");
    CHECK_EQ(safetensors_open(&st, d.path, UINT64_MAX, NULL), PV_OK);
    CHECK(st && safetensors_n_tensors(st) == 1);
    safetensors_close(&st);
}

TEST(damaged_indexes)
{
    struct made_dir d = { .sharded = true };
    static const char *const escapes[] = {
        "../x.safetensors",   "/etc/x.safetensors",  "a/b.safetensors", ".safetensors", "x.bin",
        "a\\\\b.safetensors", "x\\u001b.safetensors"
    };
    char text[300];

    make_dir(&d, "index");
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        snprintf(text, sizeof text, "{\"weight_map\": {\"a\": \"%s\"}}", escapes[i]);
        write_index(&d, text);
        refuse_dir(&d, "plain file name");
    }
    write_index(&d, "{\"weight_map\": {\"a\": 7}}");
    refuse_dir(&d, "plain file name");
    write_index(&d, "{\"weight_map\": {}}");
    refuse_dir(&d, "0 shards");
    write_index(&d, "{\"weight_map\": []}");
    refuse_dir(&d, "weight_map is not an object");
    write_index(&d, "[]");
    refuse_dir(&d, "not a JSON object");
    write_index(&d, "{\"weight_map\": {\"lost\": \"model-00001-of-00002.safetensors\"}}");
    refuse_dir(&d, "is not there: lost");
    write_index(&d, "{\"weight_map\": {\"a\": \"missing.safetensors\"}}");
    refuse_dir(&d, "missing.safetensors");
}

TEST(missing_and_limited_files)
{
    struct made_dir d = { 0 };
    struct safetensors *st = NULL;
    struct pv_error err = { 0 };

    make_dir(&d, "limited");
    CHECK_EQ(safetensors_open(&st, d.path, 100, &err), PV_E_LIMIT);
    snprintf(d.path, sizeof d.path, "%s/nowhere", scratch_dir());
    refuse_dir(&d, "model.safetensors: No such file");
}

TEST(out_of_memory_anywhere)
{
    struct made_dir d = { .sharded = true };
    struct safetensors *st = NULL;
    enum pv_status s = PV_E_NOMEM;
    int k;

    make_dir(&d, "memory");
    json_set_alloc_funcs(mem_alloc, mem_free); /* so that jansson's fail, too */
    for (k = 1; s && k < 10000; k++) {
        struct pv_error err = { 0 };
        mem_fail_at((uint64_t)k);
        s = safetensors_open(&st, d.path, UINT64_MAX, &err);
        mem_fail_at(0);
        if (s && !CHECK_MSG(err.text[0] && st == NULL, "allocation %d", k))
            return;
    }
    CHECK_EQ(s, PV_OK);
    CHECK(k > 100);
    safetensors_close(&st);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
