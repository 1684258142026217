/* prevue describe: answers questions about videos and pictures. Further questions use the same
 * session, so the video is decoded, encoded and prefilled once. */
#include "answer.h"
#include "comparison.h"
#include "model_advice.h"
#include "option_groups.h"
#include "prepared.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

struct describe_args {
    struct arg_list videos, asks;
    const char *prompt, *system, *compare;
    bool no_thinking;
    struct choice_args choice;
    struct sampling_args sampling;
    struct method_args method;
    struct model_args model;
    struct session_args session;
    struct cache_args cache;
    struct limit_args limits;
};

#define AT(field) offsetof(struct describe_args, field)

static const struct option question_table[] = {
    { "prompt", 'p', NULL, OPTION_TEXT, AT(prompt), 0, 0, "TEXT",
      "What to ask. Default: to describe the video.", NULL },
    { "ask", 0, NULL, OPTION_TEXTS, AT(asks), 0, 0, "TEXT",
      "A follow-up question, asked after the answer before it; may be given many times. The video "
      "is neither decoded nor prefilled again.",
      NULL },
    { "system", 0, "-sys --system-prompt", OPTION_TEXT, AT(system), 0, 0, "TEXT",
      "System message at the start of the prompt. Default: that of the chat template.", NULL },
    { "no-thinking", 0, NULL, OPTION_FLAG, AT(no_thinking), 0, 0, NULL,
      "Ask for an answer without a chain of thought. For models whose chat template has a switch "
      "for it, such as Qwen3; no effect on models that do not think.",
      NULL },
    { "compare", 0, NULL, OPTION_STRING, AT(compare), 0, 0, "METHODS",
      "Answer with plain decoding and then with each of these methods (comma-separated names), and "
      "print a table of their times. NAME:self drafts with the model's own weights.",
      NULL },
    { "video", 0, "--image", OPTION_LIST, AT(videos), 0, 0, "FILE", "The same as VIDEO.", NULL },
};

static const struct option_group describe_groups[] = {
    { "question", question_table, sizeof question_table / sizeof *question_table, 0, SHORT_ALL },
    VIDEO_GROUPS(struct describe_args, N_SAMPLING_OPTIONS),
};

const struct option_set describe_options = {
    .command = "describe",
    .usage = "VIDEO... [-p PROMPT] [-m MODEL] [OPTIONS]",
    .about = "Answers a question about videos and pictures, which come before the question in the "
             "prompt, in the order given. The text goes to stdout as it is produced. The model "
             "must have a vision "
             "tower (Qwen3-VL, Qwen2.5-VL, Qwen2-VL, LLaVA-OneVision, LLaVA-Video); the rules of "
             "its family say which frames it gets; 'prevue frames' shows them. A prepared prompt "
             "(.pvin, from 'prevue prepare') replaces videos and question; if the model has no "
             "tokenizer, the answer is a line of token ids. An interrupt (Ctrl-C) ends the answer "
             "after the current token; a second one ends the program at once.",
    .groups = describe_groups,
    .n_groups = sizeof describe_groups / sizeof *describe_groups,
    .max_operands = MAX_ARGS,
    .examples = "  prevue describe clip.mp4 -m llava-onevision-qwen2-0.5b-ov-hf\n"
                "  prevue describe clip.mp4 -m qwen2.5-vl.gguf --mmproj mmproj.gguf --fps 1\n"
                "  prevue describe clip.mp4 -m large.gguf -d small.gguf --stats\n"
                "  prevue describe clip.mp4 -m large.gguf -d self --compare sd,specvlm,std\n"
                "  prevue describe a.mp4 b.jpg -p 'Is b in a?' --ask 'When?' --json\n",
};

/* What the arguments ask for. */
struct plan {
    struct pv_model_params model;
    const char *draft; /* NULL: no draft model */
    struct pv_video_params video;
    struct pv_method method;
    struct contenders who; /* --compare; n 0: one method */
};

/* What was taken from each file, for the default question and for --json. */
struct sources {
    const struct arg_list *paths;
    bool prepared; /* there is one, with its question */
    bool words;    /* the model can say them */
    struct pv_video_info info[MAX_ARGS];
};

static enum pv_status add_videos(pv_session *s, struct sources *src, struct pv_video_params *p,
                                 struct progress *progress, struct pv_error *err)
{
    if (src->prepared)
        return add_prepared(s, src->paths->items[0], err);
    progress->of_n = src->paths->n;
    p->progress = progress_step;
    p->progress_user = progress;
    for (int i = 0; i < src->paths->n; i++) {
        enum pv_status st;
        progress->video = i + 1;
        st = pv_add_video(s, src->paths->items[i], p, &src->info[i], err);
        progress_clear(progress);
        if (st) {
            fail_names(err, src->paths->items[i]);
            return st;
        }
        report_lost(src->paths->items[i], &src->info[i]);
    }
    return PV_OK;
}

/* ,"frames":{"taken":32,"lost":0,"videos":[{...}]} */
static void add_frames_json(struct buf *b, const struct sources *src)
{
    long long taken = 0, lost = 0;
    for (int i = 0; i < src->paths->n; i++) {
        taken += src->info[i].frames;
        lost += src->info[i].lost;
    }
    buf_printf(b, ",\"frames\":{\"taken\":%lld,\"lost\":%lld,\"videos\":[", taken, lost);
    for (int i = 0; i < src->paths->n && !src->prepared; i++) {
        buf_puts(b, i ? ",{" : "{");
        video_json(b, src->paths->items[i], &src->info[i]);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

/* The answers so far, as members of an object each; one stands alone, several in an array. */
static void add_answer_json(struct buf *b, const struct answer *out, const char *question,
                            bool several, bool first, bool words)
{
    if (several) {
        buf_puts(b, first ? "{\"question\":" : ",{\"question\":");
        buf_json(b, question, strlen(question));
        buf_puts(b, ",");
    }
    answer_json(b, out, words);
    buf_puts(b, several ? "}" : "");
}

static void print_ids(const struct answer *out)
{
    struct buf b;
    buf_init(&b, MAX_TEXT);
    answer_ids(&b, out);
    write_text(b.data, b.len);
    buf_clear(&b);
}

/* Question `at` of the session; the videos are there, or are added before question 0. */
static enum pv_status ask(pv_session *s, const struct describe_args *a, const struct plan *plan,
                          int at, struct sources *src, struct buf *json, struct pv_error *err)
{
    struct pv_video_params vp = plan->video;
    const char *question = at ? a->asks.items[at - 1] : a->prompt;
    struct progress progress;
    struct answer out;
    enum pv_status st = PV_OK;

    progress_init(&progress);
    answer_init(&out, &a->sampling, &plan->model, &progress);
    if (at == 0)
        st = add_videos(s, src, &vp, &progress, err);
    if (st)
        goto done;
    if (at == 0 && !src->prepared)
        advise_real_model(&plan->model, src->info, src->paths->n);
    question = question ? question : default_question(src->info, src->paths->n);
    if (!src->prepared)
        st = pv_add_text(s, "user", question, err);
    if (st)
        goto done;
    if (at > 0 && !a->sampling.json)
        write_text("\n", 1);
    st = answer_run(&out, s, &a->sampling, &plan->method, err);
    if (st && st != PV_E_CANCELLED)
        goto done;
    if (src->prepared) {
        src->info[0] = (struct pv_video_info){ .frames = (int)out.stats.frames,
                                               .lost = (int)out.stats.lost_frames };
        report_lost(src->paths->items[0], &src->info[0]);
    }
    if (a->sampling.json)
        add_answer_json(json, &out, question, a->asks.n > 0, at == 0, src->words);
    else if (!src->words)
        print_ids(&out);
    if (a->sampling.stats)
        answer_stats(&out);

done:
    answer_clear(&out);
    return st;
}

static void print_json(const struct buf *answers, const struct pv_model_params *mp,
                       const struct sources *src, bool several, double total)
{
    struct buf b;
    buf_init(&b, answers->limit * 2);
    buf_puts(&b, several ? "{\"answers\":[" : "{");
    buf_puts(&b, answers->data);
    buf_puts(&b, several ? "]" : "");
    model_json(&b, mp);
    add_frames_json(&b, src);
    if (several)
        buf_printf(&b, ",\"seconds\":{\"total\":%.6f}", total);
    buf_puts(&b, "}\n");
    if (b.failed || answers->failed)
        report("the answer is too long to be printed as JSON");
    else
        write_text(b.data, b.len);
    buf_clear(&b);
}

static int run_session(pv_session *s, bool words, const struct describe_args *a,
                       const struct plan *plan)
{
    struct sources src = { .paths = &a->videos,
                           .prepared = has_prepared(&a->videos),
                           .words = words };
    struct pv_error err = { 0 };
    struct buf json;
    double begin = clock_now();
    enum pv_status st = set_no_thinking(s, a->no_thinking, &err);

    buf_init(&json, (size_t)MAX_TEXT * 8);
    catch_interrupt();
    if (!st && a->system)
        st = pv_add_text(s, "system", a->system, &err);
    for (int i = 0; i <= a->asks.n && !st && !interrupted(); i++)
        st = ask(s, a, plan, i, &src, &json, &err);
    if ((st == PV_OK || st == PV_E_CANCELLED) && json.len)
        print_json(&json, &plan->model, &src, a->asks.n > 0, clock_now() - begin);
    buf_clear(&json);
    return answer_exit(st, &err);
}

/* --- several methods --- */

/* The first answer: shown as it comes, or kept for --json. */
struct echo {
    bool json, any, ends_line;
    struct buf text;
};

static bool echo_text(void *user, const char *utf8, size_t len)
{
    struct echo *e = user;
    if (e->json)
        return buf_add(&e->text, utf8, len);
    if (len) {
        write_text(utf8, len);
        e->any = true;
        e->ends_line = utf8[len - 1] == '\n';
    }
    return !ferror(stdout);
}

static void print_comparison(const struct tally *tally, const struct plan *plan,
                             const struct echo *e)
{
    struct buf b;
    buf_init(&b, (size_t)MAX_TEXT * 8);
    if (e->json) {
        buf_puts(&b, "{\"text\":");
        buf_json(&b, e->text.data ? e->text.data : "", e->text.len);
        model_json(&b, &plan->model);
        buf_puts(&b, ",");
        tally_json(&b, tally, &plan->who);
        buf_puts(&b, "}\n");
    } else {
        tally_table(&b, tally, &plan->who, false);
    }
    if (b.failed)
        report("the comparison is too long to be printed");
    else
        write_text(b.data, b.len);
    buf_clear(&b);
}

/* The text is there once: all methods give the same one, or the table says so. */
static int compare_methods(pv_model *model, const struct pv_session_params *sp,
                           const struct describe_args *a, const struct plan *plan)
{
    struct progress progress;
    struct echo echo = { .json = a->sampling.json };
    struct trial t = { .model = model,
                       .session = sp,
                       .who = &plan->who,
                       .gen = sampling_args_params(&a->sampling),
                       .video = plan->video,
                       .repeat = 1,
                       .progress = &progress,
                       .on_text = echo_text,
                       .user = &echo };
    struct trial_question q = { .videos = &a->videos,
                                .system = a->system,
                                .prompt = a->prompt,
                                .no_thinking = a->no_thinking };
    struct trial_result r;
    struct tally tally = { 0 };
    struct pv_error err = { 0 };
    enum pv_status s;
    int result;

    progress_init(&progress);
    buf_init(&echo.text, MAX_TEXT);
    catch_interrupt();
    s = trial_run(&t, &q, &r, &err);
    if (echo.any)
        write_text("\n\n", echo.ends_line ? 1 : 2);
    if (!s) {
        tally_add(&tally, &plan->who, &r);
        print_comparison(&tally, plan, &echo);
    }
    buf_clear(&echo.text);
    trial_clear(&r);
    result = answer_exit(s, &err);
    if (!result && tally_differs(&tally, &plan->who))
        return report("a method's text is not that of plain decoding");
    return result;
}

static bool speculates(const struct plan *plan)
{
    return plan->who.n > 1 || (!plan->who.n && plan->method.drafter != PV_DRAFT_NONE);
}

static int run_model(const struct describe_args *a, const struct plan *plan)
{
    const struct pv_model_params *mp = &plan->model;
    struct pv_session_params sp = session_args_params(&a->session);
    struct pv_error err = { 0 };
    pv_model *model = NULL, *draft = NULL;
    pv_session *session = NULL;
    int result = EXIT_FAILED;

    sp.kv_type = method_args_kv_type(&a->method, &a->session);
    if (pv_model_open(&model, mp, &err))
        return report("%s", err.text);
    sp.speculate = speculates(plan);
    sp.cache = cache_args_params(&a->cache);
    if (!can_be_shown(model, mp, has_prepared(&a->videos)))
        goto close;
    if (!has_prepared(&a->videos))
        advise_template(mp->path);
    open_draft(&draft, plan->draft, &a->method, mp, model, &err);
    sp.draft = draft;
    if (!err.code && !plan->who.n)
        pv_session_open(&session, model, &sp, &err);
    if (err.code)
        report("%s", err.text);
    else
        result = plan->who.n ? compare_methods(model, &sp, a, plan)
                             : run_session(session, pv_model_has_tokenizer(model), a, plan);

close:
    pv_session_close(&session);
    pv_model_close(&draft);
    pv_model_close(&model);
    return result;
}

static int make_plan(const struct describe_args *a, struct plan *plan)
{
    int r = check_videos("describe", &a->videos);
    if (r != OPTIONS_RUN)
        return r;
    if (a->compare && a->asks.n)
        return options_misuse("describe",
                              "--ask cannot be combined with --compare, which is for one question");
    for (int i = 0; i < a->videos.n; i++)
        if (path_ends(a->videos.items[i], ".jsonl") || file_is_dir(a->videos.items[i]))
            return options_misuse("describe",
                                  "%s is not a video: for many of them there is 'prevue batch', "
                                  "which takes a list",
                                  a->videos.items[i]);
    if (has_prepared(&a->videos) && a->videos.n > 1)
        return options_misuse("describe", "a prepared prompt cannot be combined with other videos");
    r = prepared_check(&a->videos, "describe", a->prompt, a->system, &a->choice,
                       a->asks.n        ? "ask"
                       : a->no_thinking ? "no-thinking"
                                        : NULL);
    if (r == OPTIONS_RUN)
        r = choice_args_check(&a->choice, "describe", &plan->video);
    if (r == OPTIONS_RUN)
        r = cache_args_check(&a->cache, "describe");
    if (r == OPTIONS_RUN)
        r = model_args_check(&a->model, "describe", &plan->model);
    if (r != OPTIONS_RUN)
        return r;
    plan->model.limits.memory_bytes = a->session.memory;
    limit_args_set(&a->limits, &plan->model.limits);
    if (a->compare)
        return method_args_list(&a->method, &a->session, "describe", &plan->model, a->compare, NULL,
                                &plan->who, &plan->draft);
    return method_args_check(&a->method, &a->session, "describe", &plan->model, &plan->method,
                             &plan->draft);
}

int cmd_describe(int argc, char **argv)
{
    struct describe_args a = { .sampling = SAMPLING_DEFAULTS, .method = METHOD_DEFAULTS };
    struct plan plan = { 0 };
    int r = options_parse(&describe_options, &a, argc, argv, &a.videos);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    r = make_plan(&a, &plan);
    return r == OPTIONS_RUN ? run_model(&a, &plan) : r;
}
