/* What both programs do with their tables of commands. */
#include "program.h"

#include "command.h"
#include "progress.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

const struct command *command_at(int i)
{
    return i >= 0 && i < program.n ? &program.commands[i] : NULL;
}

const struct command *find_command(const char *name)
{
    for (int i = 0; i < program.n; i++) {
        if (!strcmp(program.commands[i].name, name))
            return &program.commands[i];
    }
    return NULL;
}

/* Is the name among words that are separated by spaces? */
static bool is_among(const char *words, const char *name)
{
    size_t len = strlen(name);
    while (words && *words) {
        size_t n = strcspn(words, " ");
        if (n == len && !memcmp(words, name, n))
            return true;
        words += n + (words[n] == ' ');
    }
    return false;
}

int unknown_command(const char *name)
{
    char words[256] = "", best[64];
    size_t n = 0;
    if (is_among(program.moved, name))
        return options_misuse(NULL, "the command %s has moved: it is now '%s %s'", name,
                              program.moved_to, name);
    if (is_among(program.left_out, name))
        return options_misuse(NULL,
                              "the command %s is not in this build, which was made without "
                              "FFmpeg and other libraries (make CORE=1)",
                              name);
    for (int i = 0; i < program.n && n < sizeof words; i++)
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", i ? " " : "",
                              program.commands[i].name);
    if (nearest_word(best, sizeof best, name, words))
        return options_misuse(NULL, "unknown command \"%s\" (did you mean %s?)", name, best);
    return options_misuse(NULL, "unknown command \"%s\"", name);
}

void print_commands(FILE *to)
{
    fprintf(to, "usage: %s COMMAND [OPTIONS]\n\n%s\ncommands:\n", program.name, program.about);
    for (int i = 0; i < program.n; i++)
        fprintf(to, "  %-10s %s\n", program.commands[i].name, program.commands[i].summary);
    fprintf(to,
            "\n'%s help COMMAND' lists the options of a command. The exit status is 0 when\n"
            "done, 1 when something failed, 2 when the command line was wrong, 130 when\n"
            "interrupted, 141 when the reader of the output has gone and 143 when terminated.\n",
            program.name);
}

static bool asks_help(const char *arg)
{
    return !strcmp(arg, "--help") || !strcmp(arg, "-h");
}

/* Were one of the three standard descriptors closed, the next file opened would take its number,
 * and a message meant for the terminal would go into a model. */
static void hold_standard_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == 0 ? O_RDWR : O_RDONLY);
    }
}

/* --version, for a program that has no such command. */
static int print_version(void)
{
    printf("%s %s\n", program.name, pv_version());
    return finish_output();
}

int program_run(int argc, char **argv)
{
    const struct command *c;

    hold_standard_descriptors();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error: finish_output */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file over the limit on sizes */
    exit_on_interrupt();
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_MISUSED;
    }
    if (asks_help(argv[1]))
        return find_command("help")->run(argc - 1, argv + 1);
    c = find_command(argv[1]);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        c = find_command("version");
        if (!c)
            return print_version();
    }
    return c ? c->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
