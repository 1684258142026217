/* prevue convert: a model of any readable form as one GGUF file. */
#include "command.h"

#include <stdio.h>
#include <sys/stat.h>

struct convert_args {
    int type;
    bool force;
};

/* The order of enum pv_type. */
#define TYPE_WORDS "f32 f16 bf16 q8_0 q4_0"
#define AT(field) offsetof(struct convert_args, field)

static const struct option convert_table[] = {
    { "type", 0, "--outtype", OPTION_CHOICE, AT(type), 0, 0, "TYPE",
      "Type of the weight matrices; vectors stay f32.", TYPE_WORDS },
    { "force", 0, NULL, OPTION_FLAG, AT(force), 0, 0, NULL, "Replace OUT.gguf when it exists.",
      NULL },
};

const struct option_set convert_options = {
    .command = "convert",
    .usage = "SRC OUT.gguf --type TYPE [--force]",
    .about = "Writes SRC, a Hugging Face directory or a GGUF file, as one GGUF file that holds "
             "weights, configuration and tokenizer. The file appears under its name only when it "
             "is complete.",
    .options = convert_table,
    .n_options = sizeof convert_table / sizeof *convert_table,
    .examples = "  prevue convert Qwen2.5-0.5B-Instruct qwen2.5-q8_0.gguf --type q8_0\n",
};

int cmd_convert(int argc, char **argv)
{
    struct convert_args a = { .type = -1 };
    struct pv_error err = { 0 };
    struct stat src, out;
    const char *paths[2] = { 0 };
    int n, r = options_parse(&convert_options, &a, argc, argv, paths, 2, &n);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (n < 2)
        return options_misuse("convert", "the %s is missing", n ? "output file" : "source");
    if (a.type < 0)
        return options_misuse("convert", "there is no type: give one with --type");
    if (stat(paths[1], &out) == 0) {
        if (stat(paths[0], &src) == 0 && src.st_dev == out.st_dev && src.st_ino == out.st_ino)
            return report("%s: source and output are the same file", paths[1]);
        if (!S_ISREG(out.st_mode))
            return report("%s: exists and is not a regular file", paths[1]);
        if (!a.force)
            return report("%s: exists; --force replaces it", paths[1]);
    }
    if (pv_convert(paths[0], paths[1], (enum pv_type)a.type, &err))
        return report("%s", err.text);
    return 0;
}
