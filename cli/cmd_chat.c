/* prevue chat: a conversation about clips in the terminal. One session holds it, so a further
 * question neither decodes nor reads a clip again. Lines come from standard input, which may be a
 * pipe; answers go to stdout, everything else to stderr. */
#include "answer.h"
#include "chat_line.h"
#include "model_advice.h"
#include "option_groups.h"
#include "shown.h"
#include "video_args.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct chat_args {
    struct arg_list videos;
    const char *system;
    bool no_thinking;
    struct choice_args choice;
    struct sampling_args sampling;
    struct method_args method;
    struct model_args model;
    struct session_args session;
    struct cache_args cache;
    struct limit_args limits;
};

#define AT(field) offsetof(struct chat_args, field)

static const struct option chat_table[] = {
    { "system", 0, "-sys --system-prompt", OPTION_TEXT, AT(system), 0, 0, "TEXT",
      "System message at the start of the prompt. Default: that of the chat template.", NULL },
    { "no-thinking", 0, NULL, OPTION_FLAG, AT(no_thinking), 0, 0, NULL,
      "Ask for answers without a chain of thought. For models whose chat template has a switch "
      "for it, such as Qwen3; no effect on models that do not think.",
      NULL },
    { "video", 0, "--image", OPTION_LIST, AT(videos), 0, 0, "FILE", "The same as VIDEO.", NULL },
};

static const struct option_group chat_groups[] = {
    { "conversation", chat_table, sizeof chat_table / sizeof *chat_table, 0, SHORT_ALL },
    VIDEO_GROUPS(struct chat_args, N_DRAWING_OPTIONS),
};

const struct option_set chat_options = {
    .command = "chat",
    .usage = "[VIDEO...] [-m MODEL] [OPTIONS]",
    .about = "A conversation about videos and pictures: each line of standard input is a question. "
             "Clips are decoded and prefilled once; further questions reuse the KV cache. "
             "Lines that begin with a slash are commands: /clip FILE adds a clip to the next "
             "question, /stats prints what the last answer cost, /reset begins a new conversation, "
             "/help lists them all and /quit ends. An interrupt (Ctrl-C) stops the answer and not "
             "the program. Answers go to stdout, all else to stderr.",
    .groups = chat_groups,
    .n_groups = sizeof chat_groups / sizeof *chat_groups,
    .max_operands = MAX_ARGS,
    .examples = "  prevue chat clip.mp4 -m Qwen3-VL-2B-Instruct\n"
                "  printf '%s\\n' 'What happens?' 'And then?' | prevue chat clip.mp4\n",
};

enum { INTERRUPTS = 3 }; /* that are not answered: the last of them ends the program */

struct chat {
    const struct chat_args *args;
    struct pv_model_params model;
    struct pv_video_params video;
    struct pv_method method;
    const char *draft;
    pv_session *session;
    bool sees, terminal;
    struct progress progress;
    struct answer last;
    bool answered; /* there is a last answer */
    bool failed;   /* something was reported */
    bool quit;
};

static void complain(struct chat *c, const struct pv_error *err)
{
    report("%s", err->text);
    c->failed = true;
}

/* ---- clips ---- */

static void say_clip(const char *path, const struct pv_video_info *info)
{
    shown_puts(stderr, path);
    fprintf(stderr, ": %d of %lld frames, %d x %d, %.1f s\n", info->frames,
            (long long)info->total_frames, info->width, info->height, info->duration);
}

static void add_clip(struct chat *c, const char *path)
{
    struct pv_video_info info = { 0 };
    struct pv_error err = { 0 };
    enum pv_status s;

    if (!c->sees) {
        report("%s: the model cannot take videos: it has no vision tower", c->model.path);
        c->failed = true;
        return;
    }
    s = pv_add_video(c->session, path, &c->video, &info, &err);
    progress_clear(&c->progress);
    if (s == PV_E_CANCELLED) {
        report("%s: stopped, and not added", path);
    } else if (s) {
        fail_names(&err, path);
        complain(c, &err);
    } else {
        report_lost(path, &info);
        advise_real_model(&c->model, &info, 1);
        if (c->terminal)
            say_clip(path, &info);
    }
}

/* ---- questions ---- */

static void ask(struct chat *c, const char *question)
{
    struct pv_error err = { 0 };
    enum pv_status s;

    answer_clear(&c->last);
    answer_init(&c->last, &c->args->sampling, &c->model, &c->progress);
    s = pv_add_text(c->session, "user", question, &err);
    if (!s)
        s = answer_run(&c->last, c->session, &c->args->sampling, &c->method, &err);
    c->answered = c->answered || !s || s == PV_E_CANCELLED;
    if (s == PV_E_CANCELLED && c->terminal && interrupted())
        fputs("(stopped)\n", stderr);
    if (s && s != PV_E_CANCELLED)
        complain(c, &err);
    if (s == PV_E_LIMIT)
        report("/reset begins a new conversation; --context sets the room for one");
}

/* The first message, and what was said on the command line. */
static void begin(struct chat *c)
{
    struct pv_error err = { 0 };
    enum pv_status s = set_no_thinking(c->session, c->args->no_thinking, &err);
    if (!s && c->args->system)
        s = pv_add_text(c->session, "system", c->args->system, &err);
    if (s)
        complain(c, &err);
}

/* ---- commands ---- */

static void do_clip(struct chat *c, const char *path)
{
    if (*path)
        add_clip(c, path);
    else
        report("/clip needs the name of a file");
}

static void do_stats(struct chat *c, const char *rest)
{
    (void)rest;
    if (c->answered)
        answer_stats(&c->last);
    else
        report("there is no answer yet");
}

static void do_reset(struct chat *c, const char *rest)
{
    (void)rest;
    pv_session_reset(c->session);
    c->answered = false;
    begin(c);
    if (c->terminal)
        fputs("a new conversation, without clips\n", stderr);
}

static void do_quit(struct chat *c, const char *rest)
{
    (void)rest;
    c->quit = true;
}

static void do_help(struct chat *c, const char *rest);

static const struct {
    const char *name, *value, *help;
    void (*run)(struct chat *c, const char *rest);
} commands[] = {
    { "/clip", "FILE", "add a video or picture to the next question", do_clip },
    { "/stats", "", "what the last answer cost: tokens, seconds, drafting", do_stats },
    { "/reset", "", "begin a new conversation, without clips", do_reset },
    { "/help", "", "this list", do_help },
    { "/quit", "", "end; so does the end of input (Ctrl-D)", do_quit },
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void do_help(struct chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "%-6s %-5s %s\n", commands[i].name, commands[i].value, commands[i].help);
    fputs("Any other line is a question. Ctrl-C stops an answer.\n", stderr);
}

static void run_command(struct chat *c, const char *line)
{
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    for (int i = 0; i < N_COMMANDS; i++)
        if (strlen(commands[i].name) == n && !memcmp(commands[i].name, line, n)) {
            commands[i].run(c, rest);
            return;
        }
    report("unknown command %.*s (/help lists them)", n < 64 ? (int)n : 64, line);
    c->failed = true;
}

/* ---- the conversation ---- */

static void converse(struct chat *c)
{
    struct buf line;
    buf_init(&line, CHAT_LINE_MAX);
    while (!c->quit && !ferror(stdout)) {
        enum chat_line got;
        if (c->terminal)
            fputs("> ", stderr);
        got = chat_line_read(&line, stdin);
        if (interrupted() && !interrupt_is_ctrl_c())
            break;
        if (got == CHAT_LINE_INTERRUPTED) {
            fputs("\n(/quit or Ctrl-D ends)\n", stderr);
            clear_interrupt();
            continue;
        }
        if (got == CHAT_LINE_END)
            break;
        if (got == CHAT_LINE_LONG || !is_text("standard input", line.data, line.len)) {
            if (got == CHAT_LINE_LONG)
                report("standard input: a line has more than %d bytes", (int)CHAT_LINE_MAX);
            c->failed = true;
            continue;
        }
        if (line.len && line.data[0] == '/')
            run_command(c, line.data);
        else if (line.len)
            ask(c, line.data);
        if (interrupted() && !interrupt_is_ctrl_c())
            break;
        clear_interrupt();
    }
    if (c->terminal && !c->quit)
        fputc('\n', stderr);
    buf_clear(&line);
}

static int run_session(struct chat *c)
{
    int written;
    catch_interrupts(INTERRUPTS);
    answer_init(&c->last, &c->args->sampling, &c->model, &c->progress);
    begin(c);
    for (int i = 0; i < c->args->videos.n && !interrupted(); i++)
        add_clip(c, c->args->videos.items[i]);
    if (c->terminal)
        fputs("Ask about the clips; /clip FILE adds one, /help lists commands, Ctrl-D ends.\n",
              stderr);
    clear_interrupt();
    converse(c);
    answer_clear(&c->last);
    written = finish_output();
    if (written || interrupted())
        return written ? written : interrupted();
    return c->failed && !c->terminal ? EXIT_FAILED : 0;
}

static int run_model(struct chat *c)
{
    struct pv_session_params sp = session_args_params(&c->args->session);
    struct pv_error err = { 0 };
    pv_model *model = NULL, *draft = NULL;
    int result = EXIT_FAILED;

    sp.kv_type = method_args_kv_type(&c->args->method, &c->args->session);
    if (pv_model_open(&model, &c->model, &err))
        return report("%s", err.text);
    if (!pv_model_has_tokenizer(model)) {
        report_no_tokenizer(c->model.path, "it cannot be talked to");
        goto close;
    }
    advise_template(c->model.path);
    open_draft(&draft, c->draft, &c->args->method, &c->model, model, &err);
    sp.draft = draft;
    sp.speculate = c->method.drafter != PV_DRAFT_NONE;
    sp.cache = cache_args_params(&c->args->cache);
    if (!err.code)
        pv_session_open(&c->session, model, &sp, &err);
    c->sees = pv_model_has_vision(model);
    result = err.code ? report("%s", err.text) : run_session(c);

close:
    pv_session_close(&c->session);
    pv_model_close(&draft);
    pv_model_close(&model);
    return result;
}

int cmd_chat(int argc, char **argv)
{
    struct chat_args a = { .sampling = SAMPLING_DEFAULTS, .method = METHOD_DEFAULTS };
    struct chat c = { .args = &a, .terminal = isatty(STDIN_FILENO) == 1 };
    int r = options_parse(&chat_options, &a, argc, argv, &a.videos);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (a.videos.n)
        r = check_videos("chat", &a.videos);
    if (r == OPTIONS_RUN)
        r = choice_args_check(&a.choice, "chat", &c.video);
    if (r == OPTIONS_RUN)
        r = cache_args_check(&a.cache, "chat");
    if (r == OPTIONS_RUN)
        r = model_args_check(&a.model, "chat", &c.model);
    if (r == OPTIONS_RUN)
        r = method_args_check(&a.method, &a.session, "chat", &c.model, &c.method, &c.draft);
    if (r != OPTIONS_RUN)
        return r;
    c.model.limits.memory_bytes = a.session.memory;
    limit_args_set(&a.limits, &c.model.limits);
    progress_init(&c.progress);
    c.video.progress = progress_step;
    c.video.progress_user = &c.progress;
    return run_model(&c);
}
