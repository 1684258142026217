/* Untrusted text, made safe for a terminal; and that every recorded error is. */
#include "base/buf.h"
#include "base/escape.h"
#include "base/status.h"
#include "test.h"

static const struct {
    const char *raw, *shown;
} cases[] = {
    { "", "" },
    { "plain, \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\x9e \\ \"",
      "plain, \xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\x9e \\ \"" },
    { "\x1b[2Jred\a", "\\x1b[2Jred\\x07" },
    { "a\nb\tc\rd\x7f", "a\\x0ab\\x09c\\x0dd\\x7f" },
    { "csi \xc2\x9b"
      "31m",
      "csi \\u009b31m" }, /* C1, as UTF-8 ... */
    { "csi \x9b"
      "31m\xff",
      "csi \\x9b31m\\xff" },              /* ... and as a byte */
    { "cut \xe2\x82", "cut \\xe2\\x82" }, /* half a character */
    { "\xe2\x80\xae"
      "gpj.exe\xe2\x81\xa6",
      "\\u202egpj.exe\\u2066" }, /* from right to left */
    { "\xe2\x80\xa8|\xe2\x80\xa7", "\\u2028|\xe2\x80\xa7" },
};

TEST(shows_what_would_act)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[128];
        struct buf b;
        CHECK_EQ(escape_text(out, sizeof out, cases[i].raw), strlen(cases[i].shown));
        CHECK_STR(out, cases[i].shown);
        buf_init(&b, 1000);
        CHECK(buf_shown(&b, cases[i].raw));
        CHECK_STR(b.data, cases[i].shown);
        buf_clear(&b);
    }
}

TEST(whole_characters_or_none)
{
    const char *raw = "a\x1b\xe2\x82\xac\xe2\x80\xae";
    const char *whole[] = { "", "a", "a\\x1b", "a\\x1b\xe2\x82\xac", "a\\x1b\xe2\x82\xac\\u202e" };
    for (size_t cap = 1; cap < 20; cap++) {
        char out[20];
        size_t n, k = 0;
        memset(out, '#', sizeof out);
        n = escape_text(out, cap, raw);
        for (size_t i = 0; i < 5; i++)
            k = strlen(whole[i]) < cap ? i : k;
        CHECK_EQ(n, strlen(whole[k]));
        CHECK_STR(out, whole[k]);
        CHECK(out[cap] == '#');
    }
}

TEST(errors_hold_no_control_characters)
{
    struct pv_error err = { 0 };
    fail(&err, PV_E_IO, "%s: is \"%s\"", "a\nb", "\x1b]0;title\a");
    CHECK_STR(err.text, "a\\x0ab: is \"\\x1b]0;title\\x07\"");
    fail(&err, PV_E_IO, "another");
    CHECK(!strstr(err.text, "another")); /* the first one stays */
}

TEST(long_errors_end_at_a_character)
{
    char name[2 * sizeof((struct pv_error *)0)->text];
    for (size_t shift = 0; shift < 3; shift++) {
        struct pv_error err = { 0 };
        size_t len;
        memset(name, 'x', sizeof name);
        for (size_t i = shift; i + 4 <= sizeof name; i += 3)
            memcpy(name + i, "\xe2\x82\xac", 4);
        fail(&err, PV_E_IO, "%s", name);
        len = strlen(err.text);
        CHECK_MSG(len > sizeof err.text - 4 && !memcmp(err.text + len - 3, "\xe2\x82\xac", 3),
                  "%zu bytes end in \"%s\"", len, err.text + len - 6);
    }
}

TEST(errors_are_given_a_name_once)
{
    struct pv_error err = { 0 };
    fail_names(&err, "film.mp4");
    CHECK_STR(err.text, "");
    fail(&err, PV_E_LIMIT, "too long");
    fail_names(&err, "a\x1b.mp4");
    CHECK_STR(err.text, "a\\x1b.mp4: too long");
    fail_names(&err, "a\x1b.mp4");
    CHECK_STR(err.text, "a\\x1b.mp4: too long");
    CHECK_EQ(err.code, PV_E_LIMIT);
    fail_names(NULL, "x");
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
