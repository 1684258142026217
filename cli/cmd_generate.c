/* prevue generate: a prompt in, text out. Text streams to stdout as it is produced; statistics go
 * to stderr, so a pipe sees the answer alone. */
#include "base/mem.h"
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct generate_args {
    const char *model, *prompt, *file, *ids, *system, *cpumask;
    int max_tokens, context, threads, chunk, top_k, kv_type;
    float temperature, top_p, min_p;
    uint64_t seed, memory;
    bool raw, ignore_eos, json, stats;
};

/* The order of enum pv_kv_type. */
#define KV_WORDS "auto f16 bf16 f32"
#define AT(field) offsetof(struct generate_args, field)

static const struct option generate_table[] = {
    { "model", 'm', NULL, OPTION_STRING, AT(model), 0, 0, "MODEL",
      "GGUF file or Hugging Face directory.", NULL },
    { "prompt", 'p', NULL, OPTION_STRING, AT(prompt), 0, 0, "TEXT",
      "The user's message, put into the model's chat template.", NULL },
    { "file", 'f', NULL, OPTION_STRING, AT(file), 0, 0, "FILE",
      "Read the message from a file, \"-\" being standard input. One newline at its end is "
      "dropped, except with --raw.",
      NULL },
    { "system", 0, "-sys --system-prompt", OPTION_STRING, AT(system), 0, 0, "TEXT",
      "A system message before the user's. Default: the template's own.", NULL },
    { "raw", 0, NULL, OPTION_FLAG, AT(raw), 0, 0, NULL,
      "No chat template: continue the text as it is. Special tokens spelled in it count.", NULL },
    { "prompt-ids", 0, NULL, OPTION_STRING, AT(ids), 0, 0, "1,2,3",
      "The prompt as token ids, without template; \"-\" reads them from standard input.", NULL },
    { "max-tokens", 'n', "--predict --n-predict", OPTION_INT, AT(max_tokens), 1, INT_MAX, "N",
      "Stop after N tokens. Default: 256.", NULL },
    { "context", 'c', "--ctx-size", OPTION_INT, AT(context), 0, 1 << 24, "N",
      "Tokens of prompt and answer that memory is set aside for. Default (0): what the prompt and "
      "--max-tokens need, at most what the model was made for.",
      NULL },
    { "threads", 't', NULL, OPTION_INT, AT(threads), 0, 256, "N",
      "Threads to use. Default (0): all cores this process may use. The text does not depend on "
      "it.",
      NULL },
    { "temperature", 0, "--temp", OPTION_FLOAT, AT(temperature), 0, 100, "T",
      "0 takes the likeliest token every time; above, tokens are drawn. Default: 0.", NULL },
    { "top-k", 0, NULL, OPTION_INT, AT(top_k), 0, INT_MAX, "K",
      "Draw from the K likeliest tokens. Default (0): off.", NULL },
    { "top-p", 0, NULL, OPTION_FLOAT, AT(top_p), 0, 1, "P",
      "Draw from the fewest likeliest tokens whose probabilities reach P together. Default (1): "
      "off.",
      NULL },
    { "min-p", 0, NULL, OPTION_FLOAT, AT(min_p), 0, 1, "P",
      "Drop tokens less likely than P times the likeliest. Default (0): off.", NULL },
    { "seed", 's', NULL, OPTION_U64, AT(seed), 0, 0, "S",
      "The noise of drawing is a function of the seed and the position: the same seed gives the "
      "same text. Default: 0.",
      NULL },
    { "kv-type", 0, "-ctk --cache-type-k", OPTION_CHOICE, AT(kv_type), 0, 0, "TYPE",
      "Type of the KV cache; auto is the machine's fastest 16-bit type. Default: auto.", KV_WORDS },
    { "chunk", 'b', "-ub --batch-size --ubatch-size", OPTION_INT, AT(chunk), 0, 1 << 20, "N",
      "Prompt tokens of one step. Default (0): 512.", NULL },
    { "ignore-eos", 0, NULL, OPTION_FLAG, AT(ignore_eos), 0, 0, NULL,
      "Go on past the model's stop tokens, for measurements.", NULL },
    { "json", 0, NULL, OPTION_FLAG, AT(json), 0, 0, NULL,
      "Print one JSON object with text, ids and statistics instead of the text.", NULL },
    { "stats", 0, NULL, OPTION_FLAG, AT(stats), 0, 0, NULL,
      "Print counts and speeds to stderr at the end.", NULL },
    { "cpumask", 0, NULL, OPTION_STRING, AT(cpumask), 0, 0, "SET",
      "CPU features allowed: names apart by commas as 'prevue version' prints them, \"none\", "
      "\"all\", or their bits as a number (0x30).",
      NULL },
    { "limit-memory", 0, NULL, OPTION_BYTES, AT(memory), 0, 0, "BYTES",
      "Refuse to start when KV cache and scratch would take more; K, M, G and T may follow.",
      NULL },
};

const struct option_set generate_options = {
    .command = "generate",
    .usage = "-m MODEL -p TEXT [OPTIONS]\n-m MODEL -f FILE [OPTIONS]\n"
             "-m MODEL --prompt-ids 1,2,3 [OPTIONS]",
    .about = "Answers a prompt. The text goes to stdout as it is produced. A model without a "
             "tokenizer takes --prompt-ids and answers with ids. An interrupt (Ctrl-C) stops after "
             "the current token and keeps what is there; a second one stops at once.",
    .options = generate_table,
    .n_options = sizeof generate_table / sizeof *generate_table,
    .examples = "  prevue generate -m qwen2.5.gguf -p 'Name three rivers.'\n"
                "  prevue generate -m qwen2.5.gguf -f letter.txt --temp 0.7 --top-p 0.9 -s 7\n"
                "  prevue generate -m qwen2.5.gguf --raw -p 'Once upon a time' -n 64 --stats\n",
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

/* The first interrupt asks, the second is the default action. */
static void catch_interrupt(void)
{
    struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
}

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* --- the prompt --- */

struct prompt {
    struct buf text;
    int32_t *ids; /* owned */
    size_t n_ids;
};

/* Ids apart by commas or white space. Returns OPTIONS_RUN or an exit status. */
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
            return options_misuse("generate",
                                  "option --prompt-ids takes token ids apart by commas, and id %zu "
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
                              given ? "there is more than one prompt" : "there is no prompt");
    if (a->ids && (a->system || a->raw))
        return options_misuse("generate", "--prompt-ids is the whole prompt: --%s has no meaning",
                              a->system ? "system" : "raw");
    if (a->raw && a->system)
        return options_misuse("generate", "--raw is the whole prompt: --system has no meaning");
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
    if (!a->raw && p->text.len && p->text.data[p->text.len - 1] == '\n')
        p->text.data[--p->text.len] = 0;
    return OPTIONS_RUN;
}

/* Context that prompt and answer need. The template adds a few words; 256 tokens are ample. */
static int needed_context(const struct generate_args *a, const struct prompt *p,
                          const pv_model *model)
{
    enum { TEMPLATE_ROOM = 256 };
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
    n += (size_t)a->max_tokens;
    return most > 0 && n > (size_t)most ? most : n > INT_MAX ? INT_MAX : (int)n;
}

static enum pv_status add_prompt(pv_session *s, const pv_model *model,
                                 const struct generate_args *a, const struct prompt *p,
                                 struct pv_error *err)
{
    const char *text = p->text.data ? p->text.data : "";
    enum pv_status status;
    int32_t *ids;
    size_t n = 0;

    if (p->n_ids)
        return pv_add_ids(s, p->ids, p->n_ids, err);
    if (!a->raw) {
        status = a->system ? pv_add_text(s, "system", a->system, err) : PV_OK;
        return status ? status : pv_add_text(s, "user", text, err);
    }
    ids = tokenize_text(model, text, p->text.len, true, &n, err);
    if (!ids)
        return err->code;
    status = pv_add_ids(s, ids, n, err);
    mem_free(ids);
    return status;
}

/* "avx2,amx", "none", "all", 0x30. */
static bool parse_cpumask(const char *text, uint64_t *out)
{
    uint64_t mask = 0;
    if (parse_u64(text, out))
        return true;
    if (!strcmp(text, "all") || !strcmp(text, "none")) {
        *out = text[0] == 'a' ? ~(uint64_t)0 : 0;
        return true;
    }
    while (*text) {
        size_t n = strcspn(text, ", ");
        int bit = 0;
        const char *name = pv_cpu_feature_name(0);
        while (name && (strlen(name) != n || memcmp(name, text, n) != 0))
            name = pv_cpu_feature_name(++bit);
        if (!name)
            return false;
        mask |= (uint64_t)1 << bit;
        text += n + (text[n] != 0);
    }
    *out = mask;
    return mask != 0;
}

/* --- the answer --- */

struct output {
    struct buf text; /* --json: gathered here */
    bool json, any, ends_line;
};

static bool on_text(void *user, const char *utf8, size_t len)
{
    struct output *o = user;
    if (len && o->json) {
        buf_add(&o->text, utf8, len);
    } else if (len) {
        write_text(utf8, len);
        o->any = true;
        o->ends_line = utf8[len - 1] == '\n';
    }
    return !interrupted && !ferror(stdout) && !o->text.failed;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* The first token of an answer comes out of the prefill; the others are decoding. */
static double decode_speed(const struct pv_stats *st)
{
    return ratio((double)(st->tokens > 1 ? st->tokens - 1 : 0), st->decode_s);
}

static void print_json(const struct output *o, const int32_t *ids, size_t n_ids, bool has_text,
                       const struct pv_stats *st, double total)
{
    double per_pass = ratio((double)st->tokens, (double)st->passes);
    struct buf b;

    buf_init(&b, (size_t)MAX_TEXT * 8);
    buf_puts(&b, "{");
    if (has_text) {
        buf_puts(&b, "\"text\":");
        buf_json(&b, o->text.data ? o->text.data : "", o->text.len);
        buf_puts(&b, ",");
    }
    buf_puts(&b, "\"ids\":");
    add_ids_json(&b, ids, n_ids);
    buf_printf(&b,
               ",\"method\":\"ar\",\"video_tokens\":0,\"draft_video_tokens\":0,"
               "\"prompt_tokens\":%lld,\"tokens\":%lld,\"passes\":%lld,\"accepted_per_pass\":0,"
               "\"tokens_per_pass\":%.4g,\"mean_run\":%.4g,\"acceptance\":0",
               (long long)st->prompt_tokens, (long long)st->tokens, (long long)st->passes, per_pass,
               per_pass);
    buf_printf(&b,
               ",\"seconds\":{\"video\":0,\"vision\":0,\"prefill\":%.6f,\"view\":0,"
               "\"draft_prefill\":0,\"draft\":0,\"verify\":0,\"decode\":%.6f,\"total\":%.6f},"
               "\"tokens_per_second\":%.4g}\n",
               st->prefill_s, st->decode_s, total, decode_speed(st));
    if (b.failed)
        report("the answer is too long to be printed as JSON");
    else
        write_text(b.data, b.len);
    buf_clear(&b);
}

static void print_stats(const struct pv_stats *st, double total)
{
    fprintf(stderr, "prompt  %6lld tokens in %8.3f s (%.1f tokens/s), %lld reused\n",
            (long long)st->prompt_tokens, st->prefill_s,
            ratio((double)(st->prompt_tokens - st->reused_tokens), st->prefill_s),
            (long long)st->reused_tokens);
    fprintf(stderr, "answer  %6lld tokens in %8.3f s (%.1f tokens/s), %lld passes\n",
            (long long)st->tokens, st->decode_s, decode_speed(st), (long long)st->passes);
    fprintf(stderr, "total   %15s %8.3f s\n", "", total);
}

/* Text mode streamed already; ids and JSON are printed now. */
static void print_answer(const pv_session *s, const struct output *o, const struct generate_args *a,
                         bool has_text, double total)
{
    struct pv_stats st;
    size_t n = 0;
    const int32_t *ids = pv_session_answer(s, &n);

    pv_session_stats(s, &st);
    if (a->json) {
        print_json(o, ids, n, has_text, &st, total);
    } else if (!has_text) {
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", (int)ids[i]);
        printf("\n");
    } else if (o->any && !o->ends_line) {
        printf("\n");
    }
    fflush(stdout);
    if (a->stats)
        print_stats(&st, total);
}

static int run_session(pv_session *s, const pv_model *model, const struct generate_args *a,
                       const struct prompt *p)
{
    struct pv_gen_params gen = pv_gen_defaults();
    struct output out = { .json = a->json };
    bool has_text = pv_model_has_tokenizer(model);
    struct pv_error err = { 0 };
    double begin = now();
    enum pv_status status;

    gen.max_new_tokens = a->max_tokens;
    gen.temperature = a->temperature;
    gen.top_k = a->top_k;
    gen.top_p = a->top_p;
    gen.min_p = a->min_p;
    gen.seed = a->seed;
    gen.ignore_stop = a->ignore_eos;
    status = add_prompt(s, model, a, p, &err);
    if (status)
        return report("%s", err.text);

    buf_init(&out.text, MAX_TEXT);
    catch_interrupt();
    status = pv_generate(s, &gen, on_text, &out, &err);
    if (status == PV_OK || status == PV_E_CANCELLED)
        print_answer(s, &out, a, has_text, now() - begin);
    else if (out.any && !out.ends_line)
        printf("\n");
    buf_clear(&out.text);
    if (status && status != PV_E_CANCELLED) {
        finish_output();
        return report("%s", err.text);
    }
    if (finish_output())
        return EXIT_FAILED;
    return interrupted ? EXIT_INTERRUPTED : status ? EXIT_FAILED : 0;
}

/* Opens model and session for a prompt that has been read. */
static int run_model(const struct generate_args *a, const struct prompt *p, uint64_t cpu_mask)
{
    struct pv_model_params mp = pv_model_defaults();
    struct pv_session_params sp = pv_session_defaults();
    struct pv_error err = { 0 };
    pv_model *model = NULL;
    pv_session *session = NULL;
    int result = EXIT_FAILED;

    mp.path = a->model;
    mp.threads = a->threads;
    mp.cpu_mask = cpu_mask;
    mp.limits.memory_bytes = a->memory;
    if (pv_model_open(&model, &mp, &err))
        return report("%s", err.text);
    if (!p->n_ids && !pv_model_has_tokenizer(model)) {
        report("%s: the model has no tokenizer; give the prompt as --prompt-ids", a->model);
        goto close_model;
    }
    sp.max_context = a->context ? a->context : needed_context(a, p, model);
    sp.chunk = a->chunk;
    sp.kv_type = (enum pv_kv_type)a->kv_type;
    if (pv_session_open(&session, model, &sp, &err)) {
        report("%s", err.text);
        goto close_model;
    }
    result = run_session(session, model, a, p);
    pv_session_close(&session);

close_model:
    pv_model_close(&model);
    return result;
}

int cmd_generate(int argc, char **argv)
{
    struct generate_args a = { .max_tokens = 256, .top_p = 1 };
    struct prompt p = { 0 };
    uint64_t cpu_mask = ~(uint64_t)0;
    int n, r = options_parse(&generate_options, &a, argc, argv, NULL, 0, &n);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (!a.model)
        return options_misuse("generate", "there is no model: give one with --model");
    if (a.cpumask && !parse_cpumask(a.cpumask, &cpu_mask))
        return options_misuse("generate",
                              "option --cpumask takes CPU features apart by commas, \"none\", "
                              "\"all\" or a number, not \"%s\"",
                              a.cpumask);
    buf_init(&p.text, MAX_TEXT);
    r = read_prompt(&p, &a);
    if (r == OPTIONS_RUN)
        r = run_model(&a, &p, cpu_mask);
    buf_clear(&p.text);
    mem_free(p.ids);
    return r;
}
