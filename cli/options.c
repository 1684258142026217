/* The option parser. Accepted forms: --name VALUE, --name=VALUE, -n VALUE, -n4 (numbers only),
 * every spelling in `also`, and -- to end the options. A value may begin with a dash, but an
 * argument that is itself the spelling of an option is never taken for a value: "-m -p hi" is a
 * forgotten model, not a model named "-p". */
#include "options.h"

#include "base/utf8.h"
#include "prevue/prevue.h"
#include "program.h"
#include "shown.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 26, HELP_WIDTH = 80, MAX_WORD = 64 };

const struct option help_option = {
    .name = "help", .letter = 'h', .type = OPTION_FLAG, .help = "Print the usual options and exit."
};
const struct option help_all_option = { .name = "help-all",
                                        .type = OPTION_FLAG,
                                        .help = "Print all options and exit." };

int options_misuse(const char *command, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "%s%s%s: ", program.name, command ? " " : "", command ? command : "");
    va_start(ap, fmt);
    shown_vprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "; see '%s help%s%s'\n", program.name, command ? " " : "",
            command ? command : "");
    return 2;
}

/* --- words and numbers --- */

/* Is text[0..len) one of the words? Its index, or -1. */
static int find_word(const char *words, const char *text, size_t len)
{
    for (int i = 0; words && *words; i++) {
        size_t n = strcspn(words, " ");
        if (n == len && memcmp(words, text, len) == 0)
            return i;
        words += n + (words[n] == ' ');
    }
    return -1;
}

/* Edit distance of two short words. */
static int distance(const char *a, size_t na, const char *b, size_t nb)
{
    int row[MAX_WORD + 1];
    if (na > MAX_WORD || nb > MAX_WORD)
        return MAX_WORD;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

bool nearest_word(char *out, size_t out_size, const char *text, const char *words)
{
    int best = 3; /* three letters wrong is another word */
    while (words && *words) {
        size_t n = strcspn(words, " ");
        int d = distance(text, strlen(text), words, n);
        if (d < best && d < (int)n && n < out_size) {
            best = d;
            memcpy(out, words, n);
            out[n] = 0;
        }
        words += n + (words[n] == ' ');
    }
    return best < 3;
}

bool parse_int(const char *text, long long min, long long max, long long *out)
{
    char *end;
    long long v;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || *end || errno || *text == ' ' || v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool parse_u64(const char *text, uint64_t *out)
{
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char *end;
    unsigned long long v;
    if (text[0] < '0' || text[0] > '9') /* strtoull would take spaces and a minus sign */
        return false;
    errno = 0;
    v = strtoull(text, &end, hex ? 16 : 10);
    if (*end || errno)
        return false;
    *out = v;
    return true;
}

bool parse_bytes(const char *text, uint64_t *out)
{
    static const char suffixes[] = "KMGT";
    char digits[24];
    size_t n = strspn(text, "0123456789");
    const char *suffix = text + n;
    int shift = 0;
    uint64_t v;

    if (n == 0 || n >= sizeof digits)
        return false;
    memcpy(digits, text, n);
    digits[n] = 0;
    if (!parse_u64(digits, &v))
        return false;
    if (*suffix) {
        const char *s = strchr(suffixes, *suffix & ~0x20); /* upper case */
        if (!s || !*s)
            return false;
        shift = 10 * (int)(s - suffixes + 1);
        suffix++;
        if (*suffix && strcmp(suffix, "B") != 0 && strcmp(suffix, "iB") != 0)
            return false;
    }
    if (v > UINT64_MAX >> shift)
        return false;
    *out = v << shift;
    return true;
}

bool parse_number(const char *text, double min, double max, double *out)
{
    char *end;
    double v;
    errno = 0;
    v = strtod(text, &end);
    if (end == text || *end || *text == ' ' || !isfinite(v) || v < min || v > max)
        return false;
    *out = v;
    return true;
}

bool parse_time(const char *text, double min, double max, double *out)
{
    const char *seconds = text;
    double whole = 0, v;

    /* Minutes follow hours and seconds follow minutes; behind a colon there are less than 60. */
    for (int parts = 0; strchr(seconds, ':'); parts++) {
        size_t n = strspn(seconds, "0123456789");
        if (parts == 2 || n == 0 || n > 9 || seconds[n] != ':')
            return false;
        v = strtod(seconds, NULL);
        if (parts > 0 && v >= 60)
            return false;
        whole = (whole + v) * 60;
        seconds += n + 1;
    }
    /* strtod would take hexadecimal, exponents and signs: of a time only digits and a point. */
    if (seconds[strspn(seconds, "0123456789.")] || !parse_number(seconds, 0, max, &v) ||
        (seconds != text && v >= 60) || whole + v < min || whole + v > max)
        return false;
    *out = whole + v;
    return true;
}

/* --- parsing --- */

static bool is_number(const struct option *o)
{
    return o->type == OPTION_INT || o->type == OPTION_U64 || o->type == OPTION_NUMBER ||
           o->type == OPTION_TIME || o->type == OPTION_BYTES;
}

static bool spells(const struct option *o, const char *arg, size_t len)
{
    if (len == 2 && arg[0] == '-' && o->letter && arg[1] == o->letter)
        return true;
    if (len > 2 && !strncmp(arg, "--", 2) && strlen(o->name) == len - 2 &&
        !memcmp(arg + 2, o->name, len - 2))
        return true;
    return find_word(o->also, arg, len) >= 0;
}

/* The option that arg[0..len) spells, or NULL; *base: where its group's struct lies. */
static const struct option *find_option(const struct option_set *set, const char *arg, size_t len,
                                        size_t *base)
{
    for (int g = 0; g < set->n_groups; g++) {
        const struct option_group *group = &set->groups[g];
        for (int i = 0; i < group->n_options; i++) {
            if (spells(&group->options[i], arg, len)) {
                *base = group->offset;
                return &group->options[i];
            }
        }
    }
    if (spells(&help_all_option, arg, len))
        return &help_all_option;
    return spells(&help_option, arg, len) ? &help_option : NULL;
}

static int unknown_option(const struct option_set *set, const char *arg)
{
    size_t len = strcspn(arg, "=");
    char typed[MAX_WORD], best[MAX_WORD];
    snprintf(typed, sizeof typed, "%.*s", (int)(len < MAX_WORD ? len : MAX_WORD - 1), arg);
    for (int g = 0; g < set->n_groups && !strncmp(arg, "--", 2); g++) {
        for (int i = 0; i < set->groups[g].n_options; i++) {
            if (nearest_word(best, sizeof best, typed + 2, set->groups[g].options[i].name))
                return options_misuse(set->command, "unknown option %s (did you mean --%s?)", typed,
                                      best);
        }
    }
    return options_misuse(set->command, "unknown option %s", typed);
}

/* Say what the option takes. */
static int bad_value(const struct option_set *set, const struct option *o, const char *name,
                     const char *value)
{
    size_t good = utf8_prefix(value, strlen(value));
    char words[OPTION_WORDS_SIZE];

    switch (o->type) {
    case OPTION_INT:
        return options_misuse(set->command,
                              "option %s takes a whole number from %.0f to %.0f, not \"%s\"", name,
                              o->min, o->max, value);
    case OPTION_U64:
        return options_misuse(set->command,
                              "option %s takes a whole number from 0 to 2^64-1, not \"%s\"", name,
                              value);
    case OPTION_NUMBER:
        return options_misuse(set->command, "option %s takes a number from %g to %g, not \"%s\"",
                              name, o->min, o->max, value);
    case OPTION_TIME:
        return options_misuse(set->command,
                              "option %s takes seconds from %g to %g, or [HH:]MM:SS, not \"%s\"",
                              name, o->min, o->max, value);
    case OPTION_BYTES:
        return options_misuse(
            set->command, "option %s takes a number of bytes such as 4096, 512M or 8G, not \"%s\"",
            name, value);
    case OPTION_TEXT:
    case OPTION_TEXTS:
        if (good < strlen(value))
            return options_misuse(
                set->command, "option %s takes text in UTF-8, and byte 0x%02x at offset %zu is not",
                name, (unsigned char)value[good], good);
        /* fall through */
    case OPTION_LIST:
        return options_misuse(set->command, "option %s is given more than %d times", name,
                              (int)MAX_ARGS);
    default:
        option_words(o, words);
        if (option_moved(o, value))
            return options_misuse(set->command, "option %s: " OPTION_MOVED, name, value);
        return options_misuse(set->command, "option %s takes one of: %s; not \"%s\"", name, words,
                              value);
    }
}

static bool add_arg(struct arg_list *list, const char *value)
{
    if (list->n == MAX_ARGS)
        return false;
    list->items[list->n++] = value;
    return true;
}

/* Store the value; false when it is not one that the option takes. */
static bool store(const struct option *o, void *at, const char *value)
{
    char words[OPTION_WORDS_SIZE];
    long long n;

    switch (o->type) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return true;
    case OPTION_TEXT:
        if (!utf8_valid(value, strlen(value)))
            return false;
        /* fall through */
    case OPTION_STRING:
        *(const char **)at = value;
        return true;
    case OPTION_TEXTS:
        if (!utf8_valid(value, strlen(value)))
            return false;
        /* fall through */
    case OPTION_LIST:
        return add_arg(at, value);
    case OPTION_INT:
        if (!parse_int(value, (long long)o->min, (long long)o->max, &n))
            return false;
        *(int *)at = (int)n;
        return true;
    case OPTION_U64:
        return parse_u64(value, at);
    case OPTION_NUMBER:
        return parse_number(value, o->min, o->max, at);
    case OPTION_TIME:
        return parse_time(value, o->min, o->max, at);
    case OPTION_BYTES:
        return parse_bytes(value, at);
    case OPTION_METHOD:
    case OPTION_VIEW:
        option_words(o, words);
        if (find_word(words, value, strlen(value)) < 0)
            return false;
        *(const char **)at = value;
        return true;
    case OPTION_DRAFTER:
        if (option_drafter(value) < 0)
            return false;
        *(int *)at = option_drafter(value);
        return true;
    case OPTION_CHOICE:
        if (find_word(o->words, value, strlen(value)) < 0)
            return false;
        *(int *)at = find_word(o->words, value, strlen(value));
        return true;
    }
    return false;
}

/* One option beginning at argv[*i]; *i is left on the last argument it used. */
static int parse_option(const struct option_set *set, void *args, int argc, char **argv, int *i)
{
    const char *arg = argv[*i];
    size_t len = strlen(arg), name_len = strcspn(arg, "="), base = 0, ignored;
    const struct option *o = find_option(set, arg, len, &base);
    const char *value = NULL;
    char name[MAX_WORD];

    if (!o && arg[1] != '-' && len > 2) { /* -t4 */
        o = find_option(set, arg, 2, &base);
        o = o && is_number(o) ? o : NULL;
        if (o) {
            value = arg + 2;
            name_len = 2;
        }
    }
    if (!o && arg[name_len] == '=') {
        o = find_option(set, arg, name_len, &base);
        value = arg + name_len + 1;
    }
    if (!o)
        return unknown_option(set, arg);
    snprintf(name, sizeof name, "%.*s", (int)name_len, arg);
    if (o == &help_option || o == &help_all_option) {
        options_help(set, o == &help_all_option);
        return 0;
    }
    if (o->type == OPTION_FLAG && value)
        return options_misuse(set->command, "option %s takes no value", name);
    if (o->type != OPTION_FLAG && !value) {
        if (*i + 1 == argc)
            return options_misuse(set->command, "option %s needs a value (%s)", name, o->metavar);
        value = argv[++*i];
        if (find_option(set, value, strlen(value), &ignored))
            return options_misuse(set->command,
                                  "option %s needs a value (%s), and %s is an option; write "
                                  "--%s=%s if it is meant",
                                  name, o->metavar, value, o->name, value);
    }
    if (!store(o, (char *)args + base + o->offset, value))
        return bad_value(set, o, name, value);
    return OPTIONS_RUN;
}

int options_parse(const struct option_set *set, void *args, int argc, char **argv,
                  struct arg_list *operands)
{
    bool only_operands = false;
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_operands && !strcmp(argv[i], "--")) {
            only_operands = true;
        } else if (!only_operands && argv[i][0] == '-' && argv[i][1]) {
            int r = parse_option(set, args, argc, argv, &i);
            if (r != OPTIONS_RUN)
                return r;
        } else if (n == set->max_operands || !operands || !add_arg(operands, argv[i])) {
            return options_misuse(set->command, "unexpected argument \"%s\"%s", argv[i],
                                  n > 1 ? ": there are too many" : "");
        } else {
            n++;
        }
    }
    return OPTIONS_RUN;
}

/* --- help --- */

/* Words of `text` from column `column` on, each line but the first indented to `indent`. */
static void print_wrapped(const char *text, int column, int indent)
{
    const char *gap = "";
    while (*text) {
        int n = (int)strcspn(text, " \n");
        if (column + (int)strlen(gap) + n > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
            gap = "";
        }
        printf("%s%.*s", gap, n, text);
        column += (int)strlen(gap) + n;
        gap = " ";
        text += n;
        if (*text == '\n') {
            printf("\n%*s", indent, "");
            column = indent;
            gap = "";
        }
        text += *text != 0;
    }
    putchar('\n');
}

static void print_option(const struct option *o)
{
    char head[HELP_WIDTH], help[OPTION_TEXT_SIZE];
    int n = snprintf(head, sizeof head, "  %c%c%s --%s%s%s", o->letter ? '-' : ' ',
                     o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
                     o->metavar ? " " : "", o->metavar ? o->metavar : "");
    option_text(o, help);
    printf("%s", head);
    if (n >= HELP_COLUMN - 1)
        printf("\n%*s", HELP_COLUMN, "");
    else
        printf("%*s", HELP_COLUMN - n, "");
    print_wrapped(help, HELP_COLUMN, HELP_COLUMN);
}

/* How many options of a group are listed. */
static int n_listed(const struct option_group *g, bool all)
{
    return all || g->n_short == 0 ? g->n_options : g->n_short > 0 ? g->n_short : 0;
}

void options_help(const struct option_set *set, bool all)
{
    const char *usage = set->usage;
    const char *lead = "usage:";
    int left_out = 0;
    while (*usage) {
        int n = (int)strcspn(usage, "\n");
        printf("%-6s %s %s %.*s\n", lead, program.name, set->command, n, usage);
        usage += n + (usage[n] == '\n');
        lead = "";
    }
    putchar('\n');
    print_wrapped(set->about, 0, 0);
    for (int g = 0; g < set->n_groups; g++) {
        int n = n_listed(&set->groups[g], all);
        left_out += set->groups[g].n_options - n;
        if (n > 0)
            printf("\n%s:\n", set->groups[g].title);
        for (int i = 0; i < n; i++)
            print_option(&set->groups[g].options[i]);
    }
    print_option(&help_option);
    print_option(&help_all_option);
    if (left_out)
        printf("\n%d more options tune drafting, memory and limits: '%s %s --help-all'.\n",
               left_out, program.name, set->command);
    if (set->examples)
        printf("\nexamples:\n%s", set->examples);
}
