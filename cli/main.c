/* prevue: the table of commands. */
#include "command.h"
#include "progress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    { "describe", "answer a question about videos and pictures", cmd_describe, &describe_options },
#ifndef PV_CORE
    { "chat", "a conversation about videos and pictures", cmd_chat, &chat_options },
    { "batch", "answer questions about many videos", cmd_batch, &batch_options },
    { "frames", "write the frames that a model gets as PNG files, and the sound", cmd_frames,
      &frames_options },
    { "view", "draw which video tokens each view keeps", cmd_view, &view_options },
    { "prepare", "write a question about videos to a file, for machines without FFmpeg",
      cmd_prepare, &prepare_options },
#endif
    { "serve", "an OpenAI-compatible server with a web page", cmd_serve, &serve_options },
    { "bench", "compare methods on clips", cmd_bench, &bench_options },
    { "generate", "answer a prompt", cmd_generate, &generate_options },
    { "tokenize", "token ids of a text", cmd_tokenize, &tokenize_options },
    { "models", "published models: sizes, memory, drafters, how to download them", cmd_models,
      &models_options },
    { "inspect", "contents of a model, and the memory it needs", cmd_inspect, &inspect_options },
    { "convert", "write a model as one GGUF file", cmd_convert, &convert_options },
    { "version", "version and CPU features in use", cmd_version, &version_options },
    { "help", "this text, or that of a command", cmd_help, &help_options },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const struct command *command_at(int i)
{
    return i >= 0 && i < N_COMMANDS ? &commands[i] : NULL;
}

const struct command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    }
    return NULL;
}

int unknown_command(const char *name)
{
    char words[256] = "", best[64];
    size_t n = 0;
#ifdef PV_CORE
    static const char *const left_out[] = { "batch", "chat", "frames", "prepare", "view" };
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (!strcmp(name, left_out[i]))
            return options_misuse(NULL,
                                  "the command %s is not in this build, which was made without "
                                  "FFmpeg and other libraries (make CORE=1)",
                                  name);
#endif
    for (int i = 0; i < N_COMMANDS && n < sizeof words; i++)
        n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", i ? " " : "", commands[i].name);
    if (nearest_word(best, sizeof best, name, words))
        return options_misuse(NULL, "unknown command \"%s\" (did you mean %s?)", name, best);
    return options_misuse(NULL, "unknown command \"%s\"", name);
}

void print_commands(FILE *to)
{
    fprintf(to, "usage: prevue COMMAND [OPTIONS]\n\n"
                "Runs video and text language models on CPUs and NVIDIA GPUs, from GGUF files\n"
                "and Hugging Face directories.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(
        to,
        "\n'prevue help COMMAND' lists the options of a command. The exit status is 0 "
        "when\ndone, 1 when something failed, 2 when the command line was wrong, 130 "
        "when\ninterrupted, 141 when the reader of the output has gone and 143 when terminated.\n");
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

int main(int argc, char **argv)
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
        return cmd_help(argc - 1, argv + 1);
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
        return cmd_version(argc - 1, argv + 1);
    c = find_command(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
