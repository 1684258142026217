/* UTF-8, against every scalar value and against an independent count of well-formed strings. */
#include "base/utf8.h"
#include "test.h"

TEST(every_character_there_and_back)
{
    char s[4];

    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint32_t back = 0;
        int n;
        if (cp == 0xd800)
            cp = 0xe000; /* surrogates are no characters */
        n = utf8_encode(s, cp);
        if (utf8_decode(s, (size_t)n, &back) != n || back != cp) {
            CHECK_MSG(false, "U+%04X", (unsigned)cp);
            break;
        }
        for (int cut = 0; cut < n; cut++)
            if (utf8_decode(s, (size_t)cut, &back) != -1) {
                CHECK_MSG(false, "U+%04X cut at %d", (unsigned)cp, cut);
                return;
            }
    }
}

/* Of all strings of 1, 2 and 3 bytes, exactly those that spell one scalar value decode whole. */
TEST(nothing_else_decodes)
{
    const int expected[] = { 0, 0x80, 0x800 - 0x80, 0x10000 - 0x800 - 0x800 };
    int count[4] = { 0 };

    for (uint32_t i = 0; i < 1u << 24; i++) {
        char s[3] = { (char)(i >> 16), (char)(i >> 8), (char)i };
        uint32_t cp;
        int n = utf8_decode(s, 3, &cp);
        if (n == 1 && !(i & 0xffff))
            count[1]++;
        else if (n == 2 && !(i & 0xff))
            count[2]++;
        else if (n == 3)
            count[3]++;
    }
    for (int n = 1; n <= 3; n++)
        CHECK_EQ(count[n], expected[n]);
}

TEST(bad_sequences)
{
    static const char *const bad[] = {
        "\x80",
        "\xbf",
        "\xc0\x80",
        "\xc1\xbf",
        "\xe0\x80\x80",
        "\xe0\x9f\xbf",
        "\xed\xa0\x80",
        "\xed\xbf\xbf",
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80",
        "\xff",
        "\xc2"
        "A",
        "\xe2\x82"
        "A",
        "\xf0\x9f\x98"
        "A",
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint32_t cp = 77;
        CHECK_MSG(utf8_decode(bad[i], strlen(bad[i]), &cp) == 0 && cp == 77, "case %zu", i);
        CHECK(!utf8_valid(bad[i], strlen(bad[i])));
    }
}

TEST(whole_strings)
{
    CHECK(utf8_valid("", 0));
    CHECK(utf8_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z", 12));
    CHECK(!utf8_valid("abc\xe2\x82", 5)); /* cut off */
    CHECK(utf8_valid("abc\xe2\x82", 3));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
