/* prevue convert: a model of any readable form as GGUF. */
#include "base/file.h"
#include "command.h"
#include "prevue/about.h"
#include "progress.h"
#include "shown.h"

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
    { "force", 0, NULL, OPTION_FLAG, AT(force), 0, 0, NULL, "Replace existing files.", NULL },
};

static const struct option_group convert_groups[] = {
    { "options", convert_table, sizeof convert_table / sizeof *convert_table, 0, SHORT_ALL },
};

const struct option_set convert_options = {
    .command = "convert",
    .usage = "SRC OUT.gguf --type TYPE [OPTIONS]",
    .about =
        "Writes SRC, a Hugging Face directory or a GGUF file, as a GGUF file that holds "
        "weights, configuration and tokenizer. The vision tower of a Qwen model is written to a "
        "second file in the same directory, named \"mmproj-\" followed by the name of OUT.gguf, "
        "where llama.cpp and prevue find it. The tower of a LLaVA model, and with --one-file any "
        "tower, is kept in OUT.gguf. A file gets its name only when it is complete.",
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

/* The name of the file that a vision tower may go to: "mmproj-" before that of `path`. */
static bool tower_name(struct buf *out, const char *path)
{
    size_t n_dir = strlen(path) - strlen(path_name(path));
    buf_init(out, MAX_TEXT);
    return buf_printf(out, "%.*smmproj-%s", (int)n_dir, path, path_name(path));
}

static void say_size(const char *lead, const char *path, const struct stat *st)
{
    fputs(lead, stderr);
    shown_puts(stderr, path);
    fprintf(stderr, " (%.1f MiB)", (double)st->st_size / (1 << 20));
}

/* What was written. The tower's file may be there from before (--force): `old` is what stat said
 * of it then. */
static void report_written(const char *path, const char *tower, const struct stat *old)
{
    struct stat now;
    fputs("prevue: wrote ", stderr);
    if (stat(path, &now) == 0)
        say_size("", path, &now);
    if (stat(tower, &now) == 0 && (now.st_ino != old->st_ino || now.st_mtime != old->st_mtime))
        say_size(" and the vision tower ", tower, &now);
    fputc('\n', stderr);
}

/* A head may have parts that prevue does not run. */
static void report_unused(const char *src)
{
    char unused[256];
    if (pv_head_unused(src, unused, sizeof unused, NULL) == PV_OK && unused[0])
        report("%s: not converted: %s; the head drafts without it and accepts fewer tokens", src,
               unused);
}

int cmd_convert(int argc, char **argv)
{
    struct convert_args a = { .type = -1 };
    struct pv_error err = { 0 };
    struct pv_convert_params p = pv_convert_defaults();
    struct progress progress;
    struct arg_list operands = { 0 };
    struct stat old = { 0 };
    struct buf tower;
    const char **paths = operands.items;
    int r = options_parse(&convert_options, &a, argc, argv, &operands);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (operands.n < 2)
        return options_misuse("convert", "the %s is missing",
                              operands.n ? "output file" : "source");
    if (a.type < 0)
        return options_misuse("convert", "no type given: choose one with --type");
    if (!tower_name(&tower, paths[1]))
        return report("out of memory for the name of %s", paths[1]);
    r = check_target(paths[1], paths[0], a.force);
    /* The tower's file would be taken for that of what is written: none may stay from another. */
    if (!r)
        r = check_target(tower.data, paths[0], a.force);
    if (!r) {
        (void)stat(tower.data, &old);
        progress_init(&progress);
        progress.name = path_name(paths[0]);
        p.type = (enum pv_type)a.type;
        p.one_file = a.one_file;
        p.adapter = a.adapter;
        p.progress = progress_step;
        p.progress_user = &progress;
        catch_interrupt();
        r = (int)pv_convert(paths[0], paths[1], &p, &err);
        progress_clear(&progress);
        if (r)
            r = r == PV_E_CANCELLED ? interrupted() : report("%s", err.text);
        else {
            report_written(paths[1], tower.data, &old);
            report_unused(paths[0]);
        }
    }
    buf_clear(&tower);
    return r;
}
