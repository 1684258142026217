/* prevue help: the commands, the options of one, and what is made from the tables of options: the
 * manual page and the completions of shells. */
#include "command.h"
#include "guides.h"

#include <stddef.h>
#include <stdio.h>

struct help_args {
    bool man;
    int shell; /* enum guide_shell, or -1 */
};

#define AT(field) offsetof(struct help_args, field)

static const struct option help_table[] = {
    { "man", 0, NULL, OPTION_FLAG, AT(man), 0, 0, NULL,
      "Print the manual page, for man -l or as prevue.1.", NULL },
    { "completions", 0, NULL, OPTION_CHOICE, AT(shell), 0, 0, "SHELL",
      "Print the completions of the command line for this shell.", "bash zsh fish" },
};

static const struct option_group help_groups[] = {
    { "help", help_table, sizeof help_table / sizeof *help_table, 0, SHORT_ALL },
};

const struct option_set help_options = {
    .command = "help",
    .usage = "[COMMAND]\n--man\n--completions SHELL",
    .about = "Prints the list of commands, or what a command does and all of its options. 'make "
             "install' "
             "installs the manual page and the completions.",
    .groups = help_groups,
    .n_groups = sizeof help_groups / sizeof *help_groups,
    .max_operands = 1,
    .operands = VALUE_COMMAND,
    .examples = "  prevue help describe\n"
                "  prevue help --man | man -l -\n"
                "  source <(prevue help --completions bash)\n",
};

int cmd_help(int argc, char **argv)
{
    struct help_args a = { .shell = -1 };
    struct arg_list names = { .n = 0 };
    const struct command *c = NULL;
    int r = options_parse(&help_options, &a, argc, argv, &names);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if ((names.n > 0) + a.man + (a.shell >= 0) > 1)
        return options_misuse("help", "give one of a command, --man and --completions");
    if (names.n > 0) {
        c = find_command(names.items[0]);
        if (!c)
            return unknown_command(names.items[0]);
    }
    if (c)
        options_help(c->set, true);
    else if (a.man)
        print_manual();
    else if (a.shell >= 0)
        print_completions((enum guide_shell)a.shell);
    else
        print_commands(stdout);
    return finish_output();
}
