/* prevue inspect: what a model is and what memory it needs. */
#include "command.h"

#include <stdio.h>
#include <string.h>

struct inspect_args {
    const char *model;
    int context;
    bool json, tensors;
};

#define AT(field) offsetof(struct inspect_args, field)

static const struct option inspect_table[] = {
    { "model", 'm', NULL, OPTION_STRING, AT(model), 0, 0, "MODEL", "The same as MODEL.", NULL },
    { "context", 'c', "--ctx-size", OPTION_INT, AT(context), 0, 1 << 24, "N",
      "Context, in tokens, to give the memory for. Default (0): the model's, at most 32768.",
      NULL },
    { "tensors", 0, NULL, OPTION_FLAG, AT(tensors), 0, 0, NULL,
      "List every tensor with its type and shape.", NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL, "Print one JSON object.", NULL },
};

const struct option_set inspect_options = {
    .command = "inspect",
    .usage = "MODEL [OPTIONS]",
    .about = "Describes a model: architecture, dimensions, types of its tensors, tokenizer, and "
             "the memory that weights, KV cache and scratch take. MODEL is a GGUF file or a "
             "Hugging Face directory. Opening checks the whole structure of the file, so a damaged "
             "one is reported here.",
    .options = inspect_table,
    .n_options = sizeof inspect_table / sizeof *inspect_table,
    .examples = "  prevue inspect qwen2.5.gguf\n"
                "  prevue inspect qwen2.5.gguf -c 16384 --json\n",
};

int cmd_inspect(int argc, char **argv)
{
    struct pv_model_params mp = pv_model_defaults();
    struct inspect_args a = { 0 };
    struct pv_error err = { 0 };
    const char *operand = NULL, *text;
    pv_model *model = NULL;
    int n, r = options_parse(&inspect_options, &a, argc, argv, &operand, 1, &n);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if ((a.model != NULL) == (n > 0))
        return options_misuse("inspect", n ? "the model is given twice" : "there is no model");
    mp.path = n ? operand : a.model;
    mp.threads = 1;
    if (pv_model_open(&model, &mp, &err))
        return report("%s", err.text);
    text = pv_model_describe(model, a.context, a.json, a.tensors, &err);
    if (text) {
        size_t len = strlen(text);
        fputs(text, stdout);
        if (len && text[len - 1] != '\n')
            putchar('\n');
        r = finish_output();
    } else {
        r = report("%s", err.text);
    }
    pv_model_close(&model);
    return r;
}
