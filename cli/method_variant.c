/* A variant is parsed as a command line: each +OPTION=VALUE becomes --OPTION=VALUE, read by the
 * tables of the options themselves. Options that name files are left out: all methods of a list
 * share the draft model and the head. */
#include "method_variant.h"

#include <stdio.h>
#include <string.h>

enum { MAX_CHANGES = 16 };

/* The options of drafting that do not name a file or a preset: those from "drafter" on. */
static int first_option(void)
{
    int i = 0;
    while (i < N_METHOD_OPTIONS && strcmp(method_table[i].name, "drafter") != 0)
        i++;
    return i;
}

/* "+a=1+b=2" as the arguments "--a=1" and "--b=2", in words[]; how many, or 0: too long. */
static int split(const char *text, char *words, char *argv[MAX_CHANGES + 1])
{
    char *at = words;
    int n = 0;

    while (*text == '+' && n < MAX_CHANGES) {
        size_t len = strcspn(text + 1, "+");
        size_t room = VARIANT_SIZE - (size_t)(at - words);
        if (len + 3 > room)
            return 0;
        argv[1 + n++] = at;
        at += snprintf(at, room, "--%.*s", (int)len, text + 1) + 1;
        text += 1 + len;
    }
    return *text ? 0 : n;
}

int variant_parse(const char *command, const char *text, struct method_args *args, char *words)
{
    int first = first_option(), n;
    const struct option_group groups[] = {
        { "drafting", method_table + first, N_METHOD_OPTIONS - first, 0, SHORT_ALL },
        { "views", draft_view_table, N_DRAFT_VIEW_OPTIONS, offsetof(struct method_args, draft_view),
          SHORT_ALL },
    };
    const struct option_set set = { .command = command, .groups = groups, .n_groups = 2 };
    char *argv[MAX_CHANGES + 1] = { NULL };

    n = split(text, words, argv);
    if (n == 0)
        return options_misuse(command,
                              "\"%s\" is longer than %d characters or has more than %d changes",
                              text, VARIANT_SIZE - 3 * MAX_CHANGES, MAX_CHANGES);
    for (int i = 1; i <= n; i++)
        if (!strchr(argv[i], '='))
            return options_misuse(command, "\"%s\": a change of a method is +OPTION=VALUE", text);
    return options_parse(&set, args, n + 1, argv, NULL);
}
