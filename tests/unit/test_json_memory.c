/* Memory for bodies: each failing allocation ends the reading and leaves nothing behind. */
#include "json_memory.h"
#include "test.h"

#include <string.h>

enum { BODIES = 64 << 20 };

static const char small[] = "{\"a\":[1,2.5,null,{\"b\":[\"text\",\"\\u00e4\"]}],\"long\":"
                            "\"0123456789012345678901234567890123456789012345678901234567890123\"}";

static json_t *parse(const char *text, enum json_refusal *refusal)
{
    json_error_t why;
    return json_memory_parse(text, strlen(text), &why, refusal);
}

/* A text of n times the same value. */
static char *repeat(const char *value, size_t n)
{
    size_t len = strlen(value);
    char *text = mem_alloc(n * (len + 1) + 3), *at = text;
    *at++ = '[';
    for (size_t i = 0; i < n; i++) {
        memcpy(at, value, len);
        at += len;
        *at++ = ',';
    }
    at[-1] = ']';
    *at = 0;
    return text;
}

TEST(values_are_read_and_freed)
{
    size_t before = mem_bytes();
    enum json_refusal refusal;
    json_t *root = parse(small, &refusal);
    if (!CHECK(root != NULL))
        return;
    CHECK_EQ(json_array_size(json_object_get(root, "a")), 4);
    CHECK_EQ(json_string_length(json_object_get(root, "long")), 64);
    json_string_set_nocheck(json_object_get(root, "long"), "");
    json_memory_free(root);
    CHECK_EQ(mem_bytes(), before);
    CHECK(!parse("[1,2", &refusal));
    CHECK_EQ(refusal, JSON_FITS);
    CHECK_EQ(mem_bytes(), before);
}

/* Without memory jansson 2.14 would lose the end of a string, and read on behind it. */
TEST(every_allocation_may_fail)
{
    size_t before = mem_bytes();
    enum json_refusal refusal = JSON_NO_MEMORY;
    uint64_t k = 0;
    while (refusal != JSON_FITS && k < 1000) {
        json_t *root;
        mem_fail_at(++k);
        root = parse(small, &refusal);
        mem_fail_at(0);
        CHECK(!root == (refusal == JSON_NO_MEMORY));
        json_memory_free(root);
        CHECK_MSG(mem_bytes() == before, "allocation %d leaves something", (int)k);
    }
    CHECK(k > 20 && k < 1000);
}

TEST(values_of_a_body_are_bounded)
{
    static const char *const values[] = { "{}", "[]", "\"\"", "0", "null", "{\"\":{}}" };
    size_t before = mem_bytes();
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        enum json_refusal refusal;
        char *text = repeat(values[i], 4 << 20);
        size_t most = JSON_TIMES * strlen(text) + JSON_EXTRA;
        json_t *root;
        mem_peak_reset();
        most += mem_bytes();
        root = parse(text, &refusal);
        CHECK_MSG(mem_peak() <= most, "%s took %zu of %zu bytes", values[i], mem_peak(), most);
        CHECK_MSG(root || refusal == JSON_TOO_LARGE, "%s: refusal %d", values[i], (int)refusal);
        json_memory_free(root);
        mem_free(text);
        CHECK_EQ(mem_bytes(), before);
    }
}

/* The block in which a string is collected is doubled, and twice as long as the string then. */
TEST(one_long_string_fits)
{
    for (int bits = 20; bits < 26; bits++) {
        enum json_refusal refusal;
        size_t n = ((size_t)1 << bits) + 100;
        char *text = mem_alloc(n + 1);
        json_t *root;
        memset(text, 'x', n);
        text[0] = text[n - 1] = '"';
        text[n] = 0;
        root = parse(text, &refusal);
        if (CHECK_MSG(root, "a string of %zu bytes: refusal %d", n, (int)refusal))
            CHECK_EQ(json_string_length(root), n - 2);
        json_memory_free(root);
        mem_free(text);
    }
}

TEST(all_bodies_are_bounded_together)
{
    enum { MOST = 200 };
    json_t *kept[MOST];
    enum json_refusal refusal = JSON_FITS;
    char *text = repeat("{}", 40000); /* about 10 MB */
    int n = 0;
    while (n < MOST && refusal == JSON_FITS) {
        kept[n] = parse(text, &refusal);
        n += kept[n] != NULL;
    }
    CHECK_EQ(refusal, JSON_BUSY);
    CHECK(n > 3);
    while (n > 0)
        json_memory_free(kept[--n]);
    json_memory_free(parse(text, &refusal));
    CHECK_EQ(refusal, JSON_FITS);
    mem_free(text);
}

int main(int argc, char **argv)
{
    json_memory_open(BODIES);
    return test_main(argc, argv);
}
