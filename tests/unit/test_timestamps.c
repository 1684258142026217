/* Seconds of pairs of frames against Qwen3VLProcessor of transformers 5.22. */
#include "video/timestamps.h"

#include "test.h"

#include <locale.h>

static void check_pairs(const int64_t *index, int n, double fps, const char *const *want)
{
    for (int pair = 0; pair < (n + 1) / 2; pair++) {
        char text[PAIR_TEXT_SIZE];
        size_t len = pair_text(text, pair_seconds(index, n, pair, fps));
        CHECK_MSG(!strcmp(text, want[pair]) && len == strlen(text), "pair %d: %s, not %s", pair,
                  text, want[pair]);
    }
}

TEST(pairs)
{
    static const int64_t thirty[] = { 0, 15, 30, 45 }, odd[] = { 0, 13, 26 }, one[] = { 7 };
    static const int64_t first[] = { 0, 1, 2, 3, 4, 5 }, ntsc[] = { 0, 14, 29, 43, 57, 72, 86 };
    static const int64_t slow[] = { 0, 3, 6, 9, 12, 15 };
    check_pairs(thirty, 4, 30, (const char *[]){ "<0.2 seconds>", "<1.2 seconds>" });
    check_pairs(odd, 3, 25, (const char *[]){ "<0.3 seconds>", "<1.0 seconds>" });
    check_pairs(first, 6, 24,
                (const char *[]){ "<0.0 seconds>", "<0.1 seconds>", "<0.2 seconds>" });
    check_pairs(
        ntsc, 7, 29.97,
        (const char *[]){ "<0.2 seconds>", "<1.2 seconds>", "<2.2 seconds>", "<2.9 seconds>" });
    check_pairs(slow, 6, 2, (const char *[]){ "<0.8 seconds>", "<3.8 seconds>", "<6.8 seconds>" });
    check_pairs(one, 1, 0, (const char *[]){ "<0.3 seconds>" }); /* fps not known: 24 */
    CHECK_EQ(pair_seconds(one, 1, 0, 0), 7.0 / 24);
}

TEST(rounding)
{
    static const struct {
        double t;
        const char *text;
    } cases[] = { { 0.0, "<0.0 seconds>" },       { 0.05, "<0.1 seconds>" },
                  { 0.15, "<0.1 seconds>" },      { 0.25, "<0.2 seconds>" },
                  { 0.35, "<0.3 seconds>" },      { 0.45, "<0.5 seconds>" },
                  { 0.65, "<0.7 seconds>" },      { 2.25, "<2.2 seconds>" },
                  { 9.95, "<9.9 seconds>" },      { 99.95, "<100.0 seconds>" },
                  { 1234.55, "<1234.5 seconds>" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[PAIR_TEXT_SIZE];
        pair_text(text, cases[i].t);
        CHECK_MSG(!strcmp(text, cases[i].text), "%.17g: %s", cases[i].t, text);
    }
}

/* Where the machine has a locale that writes a comma, it changes nothing. */
TEST(other_locales)
{
    static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "pt_BR.UTF-8" };
    char text[PAIR_TEXT_SIZE];
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++)
        found = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!found)
        printf("  no locale with a comma on this machine: not tried\n");
    pair_text(text, 12.5);
    setlocale(LC_NUMERIC, "C");
    CHECK(!strcmp(text, "<12.5 seconds>"));
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
