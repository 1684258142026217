/* prevue inspect: what a model is and what memory it needs. */
#include "command.h"
#include "model_advice.h"

#include <stdio.h>

struct inspect_args {
    const char *model, *mmproj;
    int context;
    bool json, tensors, check;
};

#define AT(field) offsetof(struct inspect_args, field)

static const struct option inspect_table[] = {
    { "model", 'm', NULL, OPTION_STRING, AT(model), 0, 0, "MODEL", "The same as MODEL.", NULL },
    { "mmproj", 0, NULL, OPTION_STRING, AT(mmproj), 0, 0, "FILE",
      "GGUF file of the vision tower, if it is neither in MODEL nor in its directory.", NULL },
    { "context", 'c', "--ctx-size", OPTION_INT, AT(context), 0, 1 << 24, "N",
      "Context, in tokens, for which memory is given, at most the model's. Default (0): "
      "the model's, at most 32768.",
      NULL },
    { "tensors", 0, NULL, OPTION_FLAG, AT(tensors), 0, 0, NULL,
      "List every tensor with its type and shape.", NULL },
    { "check", 0, NULL, OPTION_FLAG, AT(check), 0, 0, NULL,
      "Read every weight, and fail if one is NaN or infinite.", NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL, "Print one JSON object.", NULL },
};

static const struct option_group inspect_groups[] = {
    { "options", inspect_table, sizeof inspect_table / sizeof *inspect_table, 0, SHORT_ALL },
};

const struct option_set inspect_options = {
    .command = "inspect",
    .usage = "MODEL [OPTIONS]",
    .about = "Describes a model: architecture, dimensions, types of its tensors, tokenizer, and "
             "the memory that weights, KV cache and scratch take. MODEL is a GGUF file or a "
             "Hugging Face directory. Opening checks the whole structure of the file, so a damaged "
             "one is reported here; --check looks at the numbers as well.",
    .groups = inspect_groups,
    .n_groups = 1,
    .max_operands = 1,
    .examples = "  prevue inspect qwen2.5.gguf\n"
                "  prevue inspect qwen2.5.gguf -c 16384 --json\n",
};

int cmd_inspect(int argc, char **argv)
{
    struct pv_model_params mp = pv_model_defaults();
    struct inspect_args a = { 0 };
    struct pv_error err = { 0 };
    struct arg_list operands = { 0 };
    char *text = NULL;
    pv_model *model = NULL;
    int r = options_parse(&inspect_options, &a, argc, argv, &operands);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if ((a.model != NULL) == (operands.n > 0))
        return options_misuse("inspect", a.model ? "the model is given twice" : "no model given");
    mp.path = a.model ? a.model : operands.items[0];
    if (advise_download("MODEL", mp.path) != OPTIONS_RUN)
        return EXIT_FAILED;
    mp.mmproj = a.mmproj;
    mp.threads = 1;
    mp.no_repack = true; /* nothing is multiplied */
    if (pv_model_open(&model, &mp, &err))
        return report("%s", err.text);
    if ((!a.check || !pv_model_check(model, &err)) &&
        !pv_model_describe(model, a.context, a.json, a.tensors, &text, &err)) {
        fputs(text, stdout);
        r = finish_output();
    } else {
        r = report("%s", err.text);
    }
    pv_free(text);
    pv_model_close(&model);
    return r;
}
