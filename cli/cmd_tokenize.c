/* prevue tokenize: the token ids of a text. */
#include "base/mem.h"
#include "command.h"

#include <stdio.h>
#include <string.h>

struct tokenize_args {
    const char *model, *file;
    bool json, pieces, no_special;
};

#define AT(field) offsetof(struct tokenize_args, field)

static const struct option tokenize_table[] = {
    { "model", 'm', NULL, OPTION_STRING, AT(model), 0, 0, "MODEL",
      "GGUF file or Hugging Face directory.", NULL },
    { "file", 'f', NULL, OPTION_STRING, AT(file), 0, 0, "FILE",
      "Take the text from a file, as it is; \"-\" is standard input.", NULL },
    { "no-special", 0, NULL, OPTION_FLAG, AT(no_special), 0, 0, NULL,
      "Treat special tokens that are spelled in the text (such as <|im_end|>) as ordinary text.",
      NULL },
    { "pieces", 0, NULL, OPTION_FLAG, AT(pieces), 0, 0, NULL,
      "One line per token: the id, a tab and its text as a JSON string.", NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL,
      "Print one JSON object with ids and pieces.", NULL },
};

static const struct option_group tokenize_groups[] = {
    { "options", tokenize_table, sizeof tokenize_table / sizeof *tokenize_table, 0, SHORT_ALL },
};

const struct option_set tokenize_options = {
    .command = "tokenize",
    .usage = "-m MODEL [OPTIONS] TEXT\n-m MODEL [OPTIONS] -f FILE",
    .about = "Prints the token ids of a text on one line. No chat template is applied. In pieces, "
             "bytes that are only part of a character are shown as U+FFFD.",
    .groups = tokenize_groups,
    .n_groups = 1,
    .max_operands = 1,
    .operands = VALUE_ANY,
    .examples = "  prevue tokenize -m qwen2.5.gguf 'Hello, world'\n"
                "  prevue tokenize -m qwen2.5.gguf --pieces -f letter.txt\n",
};

static void add_piece(struct buf *b, const pv_model *model, int32_t id)
{
    size_t len = 0;
    const char *bytes = pv_token_bytes(model, id, &len);
    buf_json(b, bytes ? bytes : "", bytes ? len : 0);
}

static int print_ids(const pv_model *model, const struct tokenize_args *a, const int32_t *ids,
                     size_t n)
{
    struct buf b;
    int result = 0;

    buf_init(&b, (size_t)MAX_TEXT * 16);
    if (a->json) {
        buf_puts(&b, "{\"ids\":");
        add_ids_json(&b, ids, n);
        buf_puts(&b, ",\"pieces\":[");
        for (size_t i = 0; i < n; i++) {
            buf_puts(&b, i ? "," : "");
            add_piece(&b, model, ids[i]);
        }
        buf_puts(&b, "]}\n");
    } else if (a->pieces) {
        for (size_t i = 0; i < n; i++) {
            buf_printf(&b, "%d\t", (int)ids[i]);
            add_piece(&b, model, ids[i]);
            buf_puts(&b, "\n");
        }
    } else {
        for (size_t i = 0; i < n; i++)
            buf_printf(&b, "%s%d", i ? " " : "", (int)ids[i]);
        buf_puts(&b, "\n");
    }
    if (b.failed)
        result = report("out of memory for the ids of the text");
    else if (b.len)
        write_text(b.data, b.len);
    buf_clear(&b);
    return result ? result : finish_output();
}

static int run(const struct tokenize_args *a, const char *text, size_t len)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_error err = { 0 };
    pv_model *model = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int result = EXIT_FAILED;

    mp.path = a->model;
    mp.threads = 1;
    if (pv_model_open(&model, &mp, &err))
        return report("%s", err.text);
    if (!pv_model_has_tokenizer(model)) {
        report("%s: the model has no tokenizer", a->model);
        goto close_model;
    }
    ids = tokenize_text(model, text, len, !a->no_special, &n, &err);
    result = ids ? print_ids(model, a, ids, n) : report("%s", err.text);
    mem_free(ids);

close_model:
    pv_model_close(&model);
    return result;
}

int cmd_tokenize(int argc, char **argv)
{
    struct tokenize_args a = { 0 };
    struct arg_list operands = { 0 };
    struct buf b;
    int r = options_parse(&tokenize_options, &a, argc, argv, &operands);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (!a.model)
        return options_misuse("tokenize", "no model given: name one with --model");
    if ((operands.n > 0) == (a.file != NULL))
        return options_misuse("tokenize", "give either a text or --file");
    if (!a.file)
        return run(&a, operands.items[0], strlen(operands.items[0]));
    buf_init(&b, MAX_TEXT);
    r = EXIT_FAILED;
    if (read_text(&b, a.file) && is_text(a.file, b.data, b.len))
        r = run(&a, b.data ? b.data : "", b.len);
    buf_clear(&b);
    return r;
}
