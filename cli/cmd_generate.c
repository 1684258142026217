/* prevue generate: a prompt in, text out. Text streams to stdout as it is produced; statistics go
 * to stderr, so a pipe sees the answer alone. */
#include "answer.h"
#include "model_advice.h"
#include "option_groups.h"

#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

struct generate_args {
    const char *prompt, *file, *ids, *system;
    bool raw, no_thinking;
    struct model_args model;
    struct session_args session;
    struct cache_args cache;
    struct sampling_args sampling;
    struct method_args method;
};

#define AT(field) offsetof(struct generate_args, field)

static const struct option prompt_table[] = {
    { "prompt", 'p', NULL, OPTION_TEXT, AT(prompt), 0, 0, "TEXT",
      "The user's message, put into the model's chat template.", NULL },
    { "file", 'f', NULL, OPTION_STRING, AT(file), 0, 0, "FILE",
      "Read the message from a file; \"-\" is standard input. One newline at its end is "
      "dropped, except with --raw.",
      NULL },
    { "system", 0, "-sys --system-prompt", OPTION_TEXT, AT(system), 0, 0, "TEXT",
      "System message at the start of the prompt. Default: that of the chat template.", NULL },
    { "no-thinking", 0, NULL, OPTION_FLAG, AT(no_thinking), 0, 0, NULL,
      "Ask for an answer without a chain of thought. For models whose chat template has a switch "
      "for it, such as Qwen3; no effect on models that do not think.",
      NULL },
    { "raw", 0, NULL, OPTION_FLAG, AT(raw), 0, 0, NULL,
      "No chat template: continue the text as it is. Special tokens that are spelled in it are "
      "recognised.",
      NULL },
    { "prompt-ids", 0, NULL, OPTION_STRING, AT(ids), 0, 0, "1,2,3",
      "The prompt as token ids, without template; \"-\" reads them from standard input.", NULL },
};

static const struct option_group generate_groups[] = {
    { "prompt", prompt_table, sizeof prompt_table / sizeof *prompt_table, 0, SHORT_ALL },
    { "answer", sampling_table, N_SAMPLING_OPTIONS, AT(sampling), SHORT_ALL },
    RUN_GROUPS(struct generate_args),
};

const struct option_set generate_options = {
    .command = "generate",
    .usage = "-m MODEL -p TEXT [OPTIONS]\n-m MODEL -f FILE [OPTIONS]\n"
             "-m MODEL --prompt-ids 1,2,3 [OPTIONS]",
    .about = "Answers a prompt. The text goes to stdout as it is produced. A model without a "
             "tokenizer takes --prompt-ids and answers with ids. An interrupt (Ctrl-C) ends the "
             "answer after the current token; a second one ends the program at once.",
    .groups = generate_groups,
    .n_groups = sizeof generate_groups / sizeof *generate_groups,
    .examples = "  prevue generate -m qwen2.5.gguf -p 'Name three rivers.'\n"
                "  prevue generate -m qwen2.5.gguf -f letter.txt --temp 0.7 --top-p 0.9 -s 7\n"
                "  prevue generate -m qwen2.5.gguf --raw -p 'Once upon a time' -n 64 --stats\n",
};

/* --- the prompt --- */

struct prompt {
    struct buf text;
    int32_t *ids; /* owned */
    size_t n_ids;
};

/* Ids separated by commas or white space. Returns OPTIONS_RUN or an exit status. */
static int parse_ids(struct prompt *p, const char *text)
{
    size_t cap = strlen(text) / 2 + 1; /* an id and what follows it take two characters */
    p->ids = mem_alloc(cap * sizeof *p->ids);
    if (!p->ids)
        return report("out of memory for %zu token ids", cap);
    for (;;) {
        char number[16];
        long long id;
        size_t n;
        text += strspn(text, " \t\r\n");
        n = strcspn(text, ", \t\r\n");
        snprintf(number, sizeof number, "%.*s", (int)(n < sizeof number ? n : sizeof number - 1),
                 text);
        if (!parse_int(number, 0, INT32_MAX, &id))
            return options_misuse(
                "generate",
                "option --prompt-ids takes token ids separated by commas, and id %zu "
                "of them is \"%s\"",
                p->n_ids + 1, number);
        p->ids[p->n_ids++] = (int32_t)id;
        text += n;
        text += strspn(text, " \t\r\n");
        if (!*text)
            return OPTIONS_RUN;
        text += *text == ',';
    }
}

/* Checks that one prompt was given and reads it. */
static int read_prompt(struct prompt *p, const struct generate_args *a)
{
    int given = (a->prompt != NULL) + (a->file != NULL) + (a->ids != NULL);
    if (given != 1)
        return options_misuse("generate", "%s: give one of --prompt, --file and --prompt-ids",
                              given ? "more than one prompt given" : "no prompt given");
    if (a->ids && (a->system || a->raw || a->no_thinking))
        return options_misuse(
            "generate", "--%s cannot be combined with --prompt-ids, which is the whole prompt",
            a->system ? "system"
            : a->raw  ? "raw"
                      : "no-thinking");
    if (a->raw && (a->system || a->no_thinking))
        return options_misuse("generate",
                              "--%s cannot be combined with --raw, which is the whole prompt",
                              a->system ? "system" : "no-thinking");
    if (a->prompt)
        return buf_puts(&p->text, a->prompt) ? OPTIONS_RUN : report("the prompt is too long");
    if (a->ids && strcmp(a->ids, "-") != 0)
        return parse_ids(p, a->ids);
    if (!read_text(&p->text, a->ids ? "-" : a->file))
        return EXIT_FAILED;
    if (p->text.len && memchr(p->text.data, 0, p->text.len))
        return report("%s: holds a zero byte, so it is not text", a->ids ? "-" : a->file);
    if (a->ids)
        return parse_ids(p, p->text.len ? p->text.data : "");
    if (!is_text(a->file, p->text.data, p->text.len))
        return EXIT_FAILED;
    if (!a->raw && p->text.len && p->text.data[p->text.len - 1] == '\n')
        p->text.data[--p->text.len] = 0;
    return OPTIONS_RUN;
}

/* Context that prompt and answer need. The template adds a few words; 256 tokens are ample. */
static int needed_context(const struct generate_args *a, const struct prompt *p,
                          const pv_model *model)
{
    enum { TEMPLATE_ROOM = 256, TREE_ROOM = 64 }; /* a tree is verified behind the last token */
    size_t n = p->n_ids, system = 0;
    int most = pv_model_max_context(model);
    if (!p->n_ids) {
        /* A failure here comes again, with its sentence, when the text is added. */
        if (pv_tokenize(model, p->text.data ? p->text.data : "", p->text.len, true, NULL, 0, &n,
                        NULL))
            return 0;
        if (a->system &&
            pv_tokenize(model, a->system, strlen(a->system), true, NULL, 0, &system, NULL))
            return 0;
        n += system + TEMPLATE_ROOM;
    }
    n += (size_t)a->sampling.max_tokens + TREE_ROOM;
    return most > 0 && n > (size_t)most ? most : n > INT_MAX ? INT_MAX : (int)n;
}

static enum pv_status add_prompt(pv_session *s, const pv_model *model,
                                 const struct generate_args *a, const struct prompt *p,
                                 struct pv_error *err)
{
    const char *text = p->text.data ? p->text.data : "";
    enum pv_status st;
    int32_t *ids;
    size_t n = 0;

    if (p->n_ids)
        return pv_add_ids(s, p->ids, p->n_ids, err);
    if (!a->raw) {
        st = set_no_thinking(s, a->no_thinking, err);
        if (st)
            return st;
        st = a->system ? pv_add_text(s, "system", a->system, err) : PV_OK;
        return st ? st : pv_add_text(s, "user", text, err);
    }
    ids = tokenize_text(model, text, p->text.len, true, &n, err);
    if (!ids)
        return err->code;
    st = pv_add_ids(s, ids, n, err);
    mem_free(ids);
    return st;
}

/* --- the answer --- */

/* Text mode streamed already; ids and JSON are printed now. */
static void print_answer(const struct answer *out, bool has_text)
{
    struct buf b;

    buf_init(&b, (size_t)MAX_TEXT * 8);
    if (out->json) {
        buf_puts(&b, "{");
        answer_json(&b, out, has_text);
        model_json(&b, out->model);
        buf_puts(&b, "}\n");
    } else if (!has_text) {
        answer_ids(&b, out);
    }
    if (b.failed)
        report("the answer is too long to be printed");
    else if (b.len)
        write_text(b.data, b.len);
    buf_clear(&b);
}

static int run_session(pv_session *s, const pv_model *model, const struct pv_model_params *mp,
                       const struct generate_args *a, const struct prompt *p,
                       const struct pv_method *method)
{
    struct progress progress;
    struct answer out;
    struct pv_error err = { 0 };
    enum pv_status st;

    progress_init(&progress);
    answer_init(&out, &a->sampling, mp, &progress);
    st = add_prompt(s, model, a, p, &err);
    if (st)
        goto done;
    catch_interrupt();
    st = answer_run(&out, s, &a->sampling, method, &err);
    if (st == PV_OK || st == PV_E_CANCELLED) {
        print_answer(&out, pv_model_has_tokenizer(model));
        if (a->sampling.stats)
            answer_stats(&out);
    }

done:
    answer_clear(&out);
    return answer_exit(st, &err);
}

/* Opens models and session for a prompt that has been read. */
static int run_model(const struct generate_args *a, const struct prompt *p,
                     const struct pv_model_params *mp, const struct pv_method *method,
                     const char *draft_path)
{
    struct pv_session_params sp = session_args_params(&a->session);
    struct pv_error err = { 0 };
    pv_model *model = NULL, *draft = NULL;
    pv_session *session = NULL;
    int result = EXIT_FAILED;

    sp.kv_type = method_args_kv_type(&a->method, &a->session);
    if (pv_model_open(&model, mp, &err))
        return report("%s", err.text);
    if (!p->n_ids && !pv_model_has_tokenizer(model)) {
        report_no_tokenizer(mp->path, "give the prompt as --prompt-ids");
        goto close;
    }
    if (!p->n_ids && !a->raw)
        advise_template(mp->path);
    if (open_draft(&draft, draft_path, &a->method, mp, model, &err)) {
        report("%s", err.text);
        goto close;
    }
    if (!sp.max_context)
        sp.max_context = needed_context(a, p, model);
    sp.draft = draft;
    sp.cache = cache_args_params(&a->cache);
    sp.speculate = method->drafter != PV_DRAFT_NONE;
    if (pv_session_open(&session, model, &sp, &err)) {
        report("%s", err.text);
        goto close;
    }
    result = run_session(session, model, mp, a, p, method);
    pv_session_close(&session);

close:
    pv_model_close(&draft);
    pv_model_close(&model);
    return result;
}

int cmd_generate(int argc, char **argv)
{
    struct generate_args a = { .sampling = SAMPLING_DEFAULTS, .method = METHOD_DEFAULTS };
    struct pv_model_params mp;
    struct pv_method method = { .size = sizeof method };
    const char *draft = NULL;
    struct prompt p = { 0 };
    int r = options_parse(&generate_options, &a, argc, argv, NULL);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    r = model_args_check(&a.model, "generate", &mp);
    if (r == OPTIONS_RUN)
        r = cache_args_check(&a.cache, "generate");
    if (r == OPTIONS_RUN)
        r = method_args_check(&a.method, &a.session, "generate", &mp, &method, &draft);
    if (r != OPTIONS_RUN)
        return r;
    mp.limits.memory_bytes = a.session.memory;
    buf_init(&p.text, MAX_TEXT);
    r = read_prompt(&p, &a);
    if (r == OPTIONS_RUN)
        r = run_model(&a, &p, &mp, &method, draft);
    buf_clear(&p.text);
    mem_free(p.ids);
    return r;
}
