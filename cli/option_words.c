/* What the values of options are: the words that an option takes, from its table or from the
 * library, and what kind of thing a string is. --help, the manual page and the shell completions
 * say it, and the parser checks it. */
#include "options.h"

#include "prevue/prevue.h"

#include <stdio.h>
#include <string.h>

/* The name of a drafter; "": it needs an answer, which no option can give; NULL past the last. */
static const char *drafter_word(int i)
{
    const struct pv_drafter_info *info = pv_drafter_find(i);
    return !info ? NULL : info->needs_answer ? "" : info->name;
}

/* Values that are strings to the parser, and what --help calls them. */
static const struct {
    const char *metavar;
    enum value_kind kind;
    enum option_type words; /* VALUE_LIST: the type of options that take one of the words */
} string_kinds[] = {
    { "FILE", VALUE_FILE, OPTION_STRING },    { "FILE.pvin", VALUE_FILE, OPTION_STRING },
    { "MODEL", VALUE_FILE, OPTION_STRING },   { "HEAD", VALUE_FILE, OPTION_STRING },
    { "DIR", VALUE_DIR, OPTION_STRING },      { "METHODS", VALUE_LIST, OPTION_METHOD },
    { "V1,V2,...", VALUE_LIST, OPTION_VIEW },
};

/* The row of string_kinds for an option, or -1. */
static int find_string_kind(const struct option *o)
{
    int i = sizeof string_kinds / sizeof *string_kinds - 1;
    if (o->type != OPTION_STRING && o->type != OPTION_LIST)
        return -1;
    while (i >= 0 && strcmp(string_kinds[i].metavar, o->metavar) != 0)
        i--;
    return i;
}

enum value_kind option_kind(const struct option *o)
{
    int row = find_string_kind(o);
    char words[OPTION_WORDS_SIZE];
    if (o->type == OPTION_FLAG)
        return VALUE_NONE;
    if (row >= 0)
        return string_kinds[row].kind;
    option_words(o, words);
    return words[0] ? VALUE_WORDS : VALUE_ANY;
}

void option_words(const struct option *o, char *out)
{
    const size_t size = OPTION_WORDS_SIZE;
    int row = find_string_kind(o);
    enum option_type type = row >= 0 ? string_kinds[row].words : o->type;
    const char *name = "";
    size_t n = 0;

    snprintf(out, size, "%s", o->words ? o->words : "");
    if (type != OPTION_METHOD && type != OPTION_VIEW && type != OPTION_DRAFTER)
        return;
    for (int i = 0; name && n < size; i++) {
        name = type == OPTION_METHOD ? pv_method_name(i)
               : type == OPTION_VIEW ? pv_view_name(i)
                                     : drafter_word(i);
        if (name && *name)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", name);
    }
}

/* Names of drafters, methods and views that only the laboratory has. */
static const char lab_drafters[] = "cascade";
static const char lab_methods[] = "sd-rand sd-uniform sd-window sd-frame sd-fastvid sd-dycoke onsd";
static const char lab_views[] =
    "window-front window-middle window-back frame fastvid fastvid-exact "
    "dycoke dycoke-exact specvlm-grid specvlm-draft";

static bool is_among(const char *words, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = strstr(words, name); len && at; at = strstr(at + 1, name))
        if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
            return true;
    return false;
}

bool method_moved(const char *name)
{
    return is_among(lab_methods, name);
}

bool option_moved(const struct option *o, const char *value)
{
    switch (o->type) {
    case OPTION_METHOD:
        return method_moved(value);
    case OPTION_VIEW:
        return is_among(lab_views, value);
    case OPTION_DRAFTER:
        return is_among(lab_drafters, value);
    default:
        return false;
    }
}

int option_drafter(const char *name)
{
    const char *word = drafter_word(0);
    for (int i = 0; word; word = drafter_word(++i))
        if (*word && !strcmp(word, name))
            return i;
    return -1;
}

void option_text(const struct option *o, char *out)
{
    char words[OPTION_WORDS_SIZE] = "";
    if (option_kind(o) == VALUE_WORDS)
        option_words(o, words);
    snprintf(out, OPTION_TEXT_SIZE, "%s%s%s%s%s%s%s", o->help, words[0] ? " One of: " : "", words,
             words[0] ? "." : "", o->also ? " Also " : "", o->also ? o->also : "",
             o->also ? "." : "");
}
