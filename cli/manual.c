/* The manual page in the man macros. Tables of options that several commands share are printed
 * once, in a section of their own; each command names those it takes. */
#include "command.h"
#include "guides.h"

#include <string.h>

/* --- text as roff --- */

/* Characters that roff would read as markup, or replace by typographic ones. */
static const struct {
    char c;
    const char *roff;
} roff_chars[] = {
    { '\\', "\\e" },  { '-', "\\-" },   { '\'', "\\(aq" }, { '`', "\\(ga" },
    { '^', "\\(ha" }, { '~', "\\(ti" }, { '"', "\\(dq" },
};
enum { N_ROFF_CHARS = sizeof roff_chars / sizeof *roff_chars };

/* The text as part of a line; a final newline is the caller's. */
static void put_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int k = 0;
        while (k < N_ROFF_CHARS && roff_chars[k].c != text[i])
            k++;
        if (k < N_ROFF_CHARS)
            fputs(roff_chars[k].roff, stdout);
        else
            putchar(text[i]);
    }
}

/* Lines as they are, each after `lead`, which is roff. "\&" keeps a dot or a quote that begins a
 * line from being read as a macro. */
static void put_lines(const char *lead, const char *text)
{
    puts(".nf");
    while (*text) {
        size_t n = strcspn(text, "\n");
        printf("\\&%s", lead);
        put_text(text, n);
        putchar('\n');
        text += n + (text[n] == '\n');
    }
    puts(".fi");
}

/* Paragraphs, which are separated by "\n" in the text. */
static void put_paragraphs(const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        puts(".PP");
        fputs("\\&", stdout);
        put_text(text, n);
        putchar('\n');
        text += n + (text[n] == '\n');
    }
}

/* --- options --- */

static void put_option(const struct option *o)
{
    char text[OPTION_TEXT_SIZE];
    puts(".TP");
    if (o->letter)
        printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", stdout);
    put_text(o->name, strlen(o->name));
    fputs("\\fR", stdout);
    if (o->metavar) {
        fputs(" \\fI", stdout);
        put_text(o->metavar, strlen(o->metavar));
        fputs("\\fR", stdout);
    }
    fputs("\n\\&", stdout);
    option_text(o, text);
    put_text(text, strlen(text));
    putchar('\n');
}

static void put_group(const struct option_group *group)
{
    for (int i = 0; i < group->n_options; i++)
        put_option(&group->options[i]);
}

/* The same options, whatever they are called and wherever their values lie. */
static bool is_same_table(const struct option_group *a, const struct option_group *b)
{
    return a->options == b->options && a->n_options == b->n_options;
}

/* How many commands take this table. `print`: name them. */
static int count_takers(const struct option_group *group, bool print)
{
    int n = 0;
    for (int i = 0; command_at(i); i++) {
        const struct option_set *set = command_at(i)->set;
        for (int g = 0; g < set->n_groups; g++) {
            if (!is_same_table(&set->groups[g], group))
                continue;
            if (print)
                printf("%s\\fB%s\\fR", n ? ", " : "", set->command);
            n++;
        }
    }
    return n;
}

/* The first group with this table. */
static const struct option_group *first_group(const struct option_group *group)
{
    for (int i = 0; command_at(i); i++) {
        const struct option_set *set = command_at(i)->set;
        for (int g = 0; g < set->n_groups; g++)
            if (is_same_table(&set->groups[g], group))
                return &set->groups[g];
    }
    return group;
}

/* --- sections --- */

static void put_synopsis(void)
{
    char lead[64];
    puts(".SH SYNOPSIS");
    for (int i = 0; command_at(i); i++) {
        const struct option_set *set = command_at(i)->set;
        snprintf(lead, sizeof lead, "\\fBprevue %s\\fR ", set->command);
        put_lines(lead, set->usage);
    }
}

static void put_command(const struct command *c)
{
    const struct option_set *set = c->set;
    int n = 0;

    printf(".SS prevue %s\n", c->name);
    put_paragraphs(set->about);
    for (int g = 0; g < set->n_groups; g++)
        if (count_takers(&set->groups[g], false) == 1)
            put_group(&set->groups[g]);
    put_option(&help_option);
    put_option(&help_all_option);
    for (int g = 0; g < set->n_groups; g++)
        if (count_takers(&set->groups[g], false) > 1)
            printf("%s%s", n++ ? ", " : ".PP\nThe options of these sections below apply too: ",
                   first_group(&set->groups[g])->title);
    if (n)
        puts(".");
    if (set->examples) {
        puts(".PP\nExamples:\n.PP");
        put_lines("", set->examples);
    }
}

/* Each table that several commands take, at the first of them. */
static void put_shared(void)
{
    puts(".SH OPTIONS OF SEVERAL COMMANDS");
    for (int i = 0; command_at(i); i++) {
        const struct option_set *set = command_at(i)->set;
        for (int g = 0; g < set->n_groups; g++) {
            const struct option_group *group = &set->groups[g];
            if (first_group(group) != group || count_takers(group, false) == 1)
                continue;
            printf(".SS %s\nFor ", group->title);
            count_takers(group, true);
            puts(".");
            put_group(group);
        }
    }
}

void print_manual(void)
{
    printf(".TH PREVUE 1 \"\" \"prevue %s\" \"User Commands\"\n", pv_version());
    puts(".SH NAME\nprevue \\- describe videos with language models, on CPUs and GPUs");
    put_synopsis();
    puts(
        ".SH DESCRIPTION\n"
        "prevue runs video and text language models from GGUF files and Hugging Face directories.\n"
        "It decodes speculatively: a small drafter proposes tokens, and the model verifies "
        "several\n"
        "of them at once.\n"
        "The text is the same, bit for bit, with any drafter or none.\n"
        ".PP\n"
        "A value follows its option, or stands behind an equals sign: \\fB\\-\\-threads 4\\fR or\n"
        "\\fB\\-\\-threads=4\\fR.\n"
        "A number may be joined to a letter (\\fB\\-t4\\fR), and \\fB\\-\\-\\fR ends the options.");
    puts(".SH COMMANDS");
    for (int i = 0; command_at(i); i++)
        put_command(command_at(i));
    put_shared();
    puts(".SH EXIT STATUS\n"
         ".TP\n0\nDone.\n"
         ".TP\n1\nSomething failed; one sentence on standard error says what.\n"
         ".TP\n2\nThe command line made no sense.\n"
         ".TP\n130\nInterrupted.\n"
         ".TP\n141\nStandard output is a pipe that nobody reads any more.\n"
         ".TP\n143\nTerminated.");
}
