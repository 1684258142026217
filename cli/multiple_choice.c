/* Multiple choice. Models answer with a letter, a letter and the option's text, or the text alone;
 * anything else counts as wrong. */
#include "multiple_choice.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *next_option(const char *option)
{
    return option + strlen(option) + 1;
}

static bool is_letter(char c, int n)
{
    return c >= 'A' && c < 'A' + n;
}

/* Behind "A. ", "(A) " or "A) "; the text itself where it has no such beginning. */
static const char *behind_letter(const char *text, int letter)
{
    const char *at = text + (*text == '(');
    if (*at != 'A' + letter)
        return text;
    at++;
    if (*text == '(' && *at != ')')
        return text;
    if (*at != '.' && *at != ')' && *at != ':')
        return text;
    at++;
    return at + strspn(at, " ");
}

void choice_prompt(struct buf *out, const char *question, const char *options, int n)
{
    buf_puts(out, question);
    for (int i = 0; i < n; i++, options = next_option(options))
        buf_printf(out, "\n%c. %s", 'A' + i, behind_letter(options, i));
    buf_puts(out, "\nAnswer with the letter of the right option only.");
}

/* A letter that stands alone at the beginning: "B", "(B)", "B.", "B: ...", but not "A dog". */
static int leading_letter(const char *at, int n)
{
    bool open = *at == '(' || *at == '[';
    at += open;
    if (!is_letter(*at, n))
        return -1;
    if (open ? at[1] == ')' || at[1] == ']' : !at[1] || strchr(".):,\n", at[1]))
        return *at - 'A';
    return -1;
}

/* The letter behind "answer is", "answer:" or "option": the last one of them. */
static int named_letter(const char *text, int n)
{
    static const char *const words[] = { "answer is ", "answer: ", "option " };
    int found = -1;
    for (const char *at = text; *at; at++) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            size_t len = strlen(words[i]);
            const char *c = at + len;
            if (strncasecmp(at, words[i], len) != 0)
                continue;
            c += *c == '(';
            if (is_letter(*c, n) && !isalnum((unsigned char)c[1]))
                found = *c - 'A';
        }
    }
    return found;
}

static size_t length_of(const char *text)
{
    size_t n = strlen(text);
    while (n > 0 && (isspace((unsigned char)text[n - 1]) || text[n - 1] == '.'))
        n--;
    return n;
}

int choice_of(const char *answer, const char *options, int n)
{
    int found;
    size_t len;

    answer += strspn(answer, " \t\r\n*\"");
    len = length_of(answer);
    found = leading_letter(answer, n);
    for (int i = 0; i < n && found < 0; i++, options = next_option(options)) {
        const char *text = behind_letter(options, i);
        if (len > 0 && len == length_of(text) && !strncasecmp(answer, text, len))
            found = i;
    }
    return found >= 0 ? found : named_letter(answer, n);
}

int choice_key(const char *key, int n)
{
    const char *at = key + (*key == '(');
    int letter = toupper((unsigned char)*at);
    char *end;
    long number;

    if (is_letter((char)letter, n) && (!at[1] || (*key == '(' && !strcmp(at + 1, ")"))))
        return letter - 'A';
    number = strtol(key, &end, 10);
    return end > key && !*end && number >= 0 && number < n ? (int)number : -1;
}
