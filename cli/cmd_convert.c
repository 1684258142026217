/* prevue convert: a model of any readable form as GGUF. */
#include "base/file.h"
#include "command.h"
#include "progress.h"

#include <string.h>
#include <sys/stat.h>

struct convert_args {
    int type;
    const char *adapter;
    bool one_file, force;
};

/* The order of enum pv_type. */
#define TYPE_WORDS "f32 f16 bf16 q8_0 q4_0 q4_1 q5_1"
#define AT(field) offsetof(struct convert_args, field)

static const struct option convert_table[] = {
    { "type", 0, "--outtype", OPTION_CHOICE, AT(type), 0, 0, "TYPE",
      "Type of the weight matrices; vectors stay f32.", TYPE_WORDS },
    { "one-file", 0, NULL, OPTION_FLAG, AT(one_file), 0, 0, NULL,
      "Keep the vision tower in OUT.gguf.", NULL },
    { "adapter", 0, "--lora", OPTION_STRING, AT(adapter), 0, 0, "DIR",
      "Merge this PEFT adapter (LoRA) into SRC, a directory.", NULL },
    { "force", 0, NULL, OPTION_FLAG, AT(force), 0, 0, NULL, "Replace what exists.", NULL },
};

static const struct option_group convert_groups[] = {
    { "options", convert_table, sizeof convert_table / sizeof *convert_table, 0 },
};

const struct option_set convert_options = {
    .command = "convert",
    .usage = "SRC OUT.gguf --type TYPE [OPTIONS]",
    .about = "Writes SRC, a Hugging Face directory or a GGUF file, as a GGUF file that holds "
             "weights, configuration and tokenizer. The vision tower of a Qwen model goes to a "
             "second file beside it, named \"mmproj-\" and then as OUT.gguf is, where llama.cpp "
             "and prevue find it; that of a LLaVA model, or with --one-file any, is kept in "
             "OUT.gguf. A file appears under its name only when it is "
             "complete.",
    .groups = convert_groups,
    .n_groups = 1,
    .max_operands = 2,
    .examples = "  prevue convert Qwen2.5-0.5B-Instruct qwen2.5-q8_0.gguf --type q8_0\n"
                "  prevue convert llava-onevision-qwen2-0.5b-ov-hf ov.gguf --type q8_0\n",
};

/* Whether `path` may be written: 0, or the status of a failure, which has been reported. */
static int check_target(const char *path, const char *src_path, bool force)
{
    struct stat out;
    if (stat(path, &out) != 0)
        return 0;
    if (file_is_same(path, src_path))
        return report("%s: source and output are the same file", path);
    if (!S_ISREG(out.st_mode))
        return report("%s: exists and is not a regular file", path);
    return force ? 0 : report("%s: exists; --force replaces it", path);
}

/* The same of the file that a vision tower may go to. It would be taken for the tower of what is
 * written, so it may not stay there from another model either. */
static int check_tower(const char *path, const char *src_path, bool force)
{
    const char *slash = strrchr(path, '/');
    int n_dir = slash ? (int)(slash - path) + 1 : 0, result;
    struct buf tower;

    buf_init(&tower, MAX_TEXT);
    buf_printf(&tower, "%.*smmproj-%s", n_dir, path, path + n_dir);
    result = tower.failed ? report("out of memory for the name of %s", path)
                          : check_target(tower.data, src_path, force);
    buf_clear(&tower);
    return result;
}

int cmd_convert(int argc, char **argv)
{
    struct convert_args a = { .type = -1 };
    struct pv_error err = { 0 };
    struct pv_convert_params p = pv_convert_defaults();
    struct progress progress;
    struct arg_list operands = { 0 };
    const char **paths = operands.items;
    int r = options_parse(&convert_options, &a, argc, argv, &operands);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (operands.n < 2)
        return options_misuse("convert", "the %s is missing",
                              operands.n ? "output file" : "source");
    if (a.type < 0)
        return options_misuse("convert", "there is no type: give one with --type");
    r = check_target(paths[1], paths[0], a.force);
    if (!r)
        r = check_tower(paths[1], paths[0], a.force);
    if (r)
        return r;
    progress_init(&progress);
    p.type = (enum pv_type)a.type;
    p.one_file = a.one_file;
    p.adapter = a.adapter;
    p.progress = progress_step;
    p.progress_user = &progress;
    catch_interrupt();
    r = (int)pv_convert(paths[0], paths[1], &p, &err);
    progress_clear(&progress);
    if (r == PV_E_CANCELLED)
        return interrupted();
    return r ? report("%s", err.text) : 0;
}
