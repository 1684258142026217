/* Stop strings: found wherever token borders lie, nothing of them is told, nothing else is lost. */
#include "engine/stop_text.h"

#include "base/rng.h"
#include "test.h"

/* The text told when `text` comes in pieces; *found: which string ended it. */
static char *told(const char *const *stops, size_t n, const char *text, struct rng *r, int *found)
{
    struct stop_text s;
    struct buf out;
    char *copy;
    size_t len = strlen(text);
    buf_init(&out, 1 << 16);
    CHECK(!stop_text_open(&s, stops, n, NULL));
    for (size_t at = 0; at < len && s.found < 0;) {
        size_t some = 1 + rng_next(r) % 5;
        some = some < len - at ? some : len - at;
        CHECK(stop_text_push(&s, text + at, some, false, &out));
        at += some;
    }
    CHECK(stop_text_push(&s, "", 0, true, &out));
    *found = s.found;
    copy = strdup(out.data ? out.data : "");
    copy[out.len] = 0;
    stop_text_close(&s);
    buf_clear(&out);
    return copy;
}

TEST(the_first_string_ends_the_text)
{
    static const struct {
        const char *stops[3];
        size_t n;
        const char *text, *told;
        int found;
    } cases[] = {
        { { "END" }, 1, "one two END three", "one two ", 0 },
        { { "END" }, 1, "one EN two E", "one EN two E", -1 },
        { { "aab" }, 1, "aaab", "a", 0 },
        { { "\n\n", "User:" }, 2, "hello\nUser: x", "hello\n", 1 },
        { { "abc", "b" }, 2, "xabc", "x", 0 },
        { { "abc", "ab" }, 2, "xabc", "x", 1 },
        { { "x" }, 0, "xyz", "xyz", -1 },
        { { "\xc3\xa9" }, 1, "caf\xc3\xa9!", "caf", 0 },
        { { "END" }, 1, "END", "", 0 },
        { { "END" }, 1, "", "", -1 },
    };
    struct rng r = { test_seed };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int round = 0; round < 50; round++) {
            int found;
            char *got = told(cases[i].stops, cases[i].n, cases[i].text, &r, &found);
            /* Of two strings that end at the same place, pieces may decide which is named. */
            CHECK_MSG(found == cases[i].found || (i == 5 && found >= 0), "case %zu: string %d", i,
                      found);
            CHECK_MSG(!strcmp(got, cases[i].told), "case %zu: \"%s\"", i, got);
            free(got);
        }
}

TEST(bad_strings_are_refused)
{
    struct stop_text s;
    struct pv_error err = { 0 };
    const char *many[STOP_MAX_STRINGS + 1], *empty = "";
    char *large = calloc(1, STOP_MAX_LEN + 2);
    memset(large, 'a', STOP_MAX_LEN + 1);
    for (int i = 0; i <= STOP_MAX_STRINGS; i++)
        many[i] = "x";
    CHECK_EQ(stop_text_open(&s, many, STOP_MAX_STRINGS + 1, &err), PV_E_ARG);
    CHECK_STR(err.text, "17 stop strings were given, at most 16 are possible");
    CHECK_EQ(stop_text_open(&s, &empty, 1, NULL), PV_E_ARG);
    CHECK_EQ(stop_text_open(&s, (const char *const[]){ "a", large }, 2, NULL), PV_E_ARG);
    free(large);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
