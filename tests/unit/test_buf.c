/* The bounded buffer. */
#include "base/buf.h"
#include "base/mem.h"
#include "test.h"

TEST(adds_and_terminates)
{
    struct buf b;

    buf_init(&b, 1000);
    CHECK(buf_puts(&b, "ab") && buf_add(&b, "c\0d", 3) && buf_printf(&b, "%d-%s", 42, "x"));
    CHECK_EQ(b.len, 9);
    CHECK(!memcmp(b.data, "abc\0d42-x", 10)); /* with the NUL */
    CHECK(buf_add(&b, NULL, 0));
    CHECK_EQ(b.len, 9);
    buf_reset(&b);
    CHECK_EQ(b.len, 0);
    CHECK_STR(b.data, "");
    CHECK(buf_puts(&b, "again"));
    CHECK_STR(b.data, "again");
    buf_clear(&b);
    CHECK(b.data == NULL && b.len == 0 && b.limit == 1000);
    CHECK(buf_puts(&b, "once more"));
    buf_clear(&b);
}

TEST(the_limit_holds_and_failure_sticks)
{
    struct buf b;

    buf_init(&b, 5);
    CHECK(buf_puts(&b, "12345"));
    CHECK(!buf_puts(&b, "6"));
    CHECK(b.failed && !buf_add(&b, "", 0) && !buf_printf(&b, "x"));
    CHECK_STR(b.data, "12345");
    buf_reset(&b);
    CHECK(!b.failed && buf_printf(&b, "%s", "54321"));
    CHECK_STR(b.data, "54321");
    CHECK(!buf_add(&b, "x", SIZE_MAX)); /* no overflow of the length */
    buf_clear(&b);
}

TEST(grows_byte_by_byte)
{
    struct buf b;
    uint64_t before;

    buf_init(&b, 100000);
    before = mem_count();
    for (int i = 0; i < 100000; i++)
        buf_add(&b, "z", 1);
    CHECK(!b.failed && b.len == 100000 && strlen(b.data) == 100000);
    CHECK_MSG(mem_count() - before < 20, "%d allocations", (int)(mem_count() - before));
    buf_clear(&b);
}

TEST(json_strings)
{
    struct buf b;
    const char text[] = "a\"b\\c\n\t\x01\x7f\xc3\xa9\xff\xe2\x82";

    buf_init(&b, 1000);
    CHECK(buf_json(&b, text, sizeof text - 1));
    CHECK_STR(b.data, "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"
                      "\xef\xbf\xbd\"");
    buf_reset(&b);
    CHECK(buf_json(&b, "", 0));
    CHECK_STR(b.data, "\"\"");
    buf_reset(&b);
    CHECK(buf_json_visible(&b, "a\xc2\x9b\xe2\x80\xae\xe2\x80\x8b\xf3\xa0\x81\x81\xc3\xa9", 15));
    CHECK_STR(b.data, "\"a\\u009b\\u202e\\u200b\\udb40\\udc41\xc3\xa9\"");
    buf_reset(&b);
    CHECK(buf_json(&b, "\0\b\v\f\r", 5));
    CHECK_STR(b.data, "\"\\u0000\\b\\u000b\\f\\r\"");
    buf_clear(&b);
    buf_init(&b, 3);
    CHECK(!buf_json(&b, "abc", 3)); /* the quotes count */
    buf_clear(&b);
}

TEST(out_of_memory)
{
    struct buf b;

    buf_init(&b, 1000);
    mem_fail_at(1);
    CHECK(!buf_puts(&b, "x"));
    mem_fail_at(0);
    CHECK(b.failed && b.data == NULL);
    buf_reset(&b);
    CHECK(buf_puts(&b, "x"));
    buf_clear(&b);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
