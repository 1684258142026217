/* prevue-lab: what measures and draws the methods of drafting. It is made of the parts of prevue.
 */
#include "command.h"
#include "lab.h"
#include "rows/lab_rows.h"

static const struct option_set help_set = {
    .command = "help",
    .usage = "[COMMAND]",
    .about = "Prints the list of commands, or what a command does and all of its options.",
    .max_operands = 1,
    .operands = VALUE_COMMAND,
};

static int run_help(int argc, char **argv);

static const struct command commands[] = {
    { "bench", "compare methods on clips", cmd_bench, &bench_options },
#ifndef PV_CORE
    { "view", "draw which video tokens each view keeps", cmd_view, &view_options },
#endif
    { "help", "this text, or that of a command", run_help, &help_set },
};

const struct program program = {
    .name = "prevue-lab",
    .about =
        "Compares methods of drafting for video language models, and draws what they keep of a\n"
        "video. Models, clips and options are those of prevue.\n",
    .commands = commands,
    .n = sizeof commands / sizeof *commands,
#ifdef PV_CORE
    .left_out = "view",
#endif
};

static int run_help(int argc, char **argv)
{
    struct arg_list names = { .n = 0 };
    const struct command *c = NULL;
    int r = options_parse(&help_set, NULL, argc, argv, &names);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (names.n > 0) {
        c = find_command(names.items[0]);
        if (!c)
            return unknown_command(names.items[0]);
    }
    if (c)
        options_help(c->set, true);
    else
        print_commands(stdout);
    return finish_output();
}

int main(int argc, char **argv)
{
    if (!lab_rows_add())
        return report("the tables of views and methods have no room for those of the laboratory");
    return program_run(argc, argv);
}
