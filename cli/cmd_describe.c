/* prevue describe: videos and pictures in, words out. Further questions go to the same session, so
 * the video is decoded, encoded and read once. */
#include "answer.h"
#include "video_args.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

struct describe_args {
    struct arg_list videos, asks;
    const char *prompt, *system;
    struct choice_args choice;
    struct sampling_args sampling;
    struct model_args model;
    struct session_args session;
    struct limit_args limits;
};

#define AT(field) offsetof(struct describe_args, field)

static const struct option question_table[] = {
    { "prompt", 'p', NULL, OPTION_STRING, AT(prompt), 0, 0, "TEXT",
      "What to ask. Default: to describe the video.", NULL },
    { "ask", 0, NULL, OPTION_LIST, AT(asks), 0, 0, "TEXT",
      "A further question, when the one before is answered; may be given many times. The video is "
      "not decoded and not read again.",
      NULL },
    { "system", 0, "-sys --system-prompt", OPTION_STRING, AT(system), 0, 0, "TEXT",
      "A system message first. Default: the template's own.", NULL },
    { "video", 0, "--image", OPTION_LIST, AT(videos), 0, 0, "FILE", "The same as VIDEO.", NULL },
};

static const struct option_group describe_groups[] = {
    { "question", question_table, sizeof question_table / sizeof *question_table, 0 },
    { "frames", choice_table, N_CHOICE_OPTIONS, AT(choice) },
    { "answer", sampling_table, N_SAMPLING_OPTIONS, AT(sampling) },
    { "model", model_table, N_MODEL_OPTIONS, AT(model) },
    { "memory", session_table, N_SESSION_OPTIONS, AT(session) },
    { "limits", limit_table, N_LIMIT_OPTIONS, AT(limits) },
};

const struct option_set describe_options = {
    .command = "describe",
    .usage = "VIDEO... [-p PROMPT] [-m MODEL] [OPTIONS]",
    .about = "Answers a question about videos and pictures, which stand before the question in the "
             "order given. The text goes to stdout as it is produced. The model is a "
             "LLaVA-OneVision or Qwen2.5-VL; its family's rules say which frames it sees, 'prevue "
             "frames' shows them. An interrupt (Ctrl-C) stops after the current token and keeps "
             "what is there; a second one stops at once.",
    .groups = describe_groups,
    .n_groups = sizeof describe_groups / sizeof *describe_groups,
    .max_operands = MAX_ARGS,
    .examples = "  prevue describe clip.mp4 -m llava-onevision-qwen2-0.5b-ov-hf\n"
                "  prevue describe clip.mp4 -m qwen2.5-vl.gguf --mmproj mmproj.gguf --fps 1\n"
                "  prevue describe a.mp4 b.jpg -p 'Is b in a?' --ask 'When?' --json\n",
};

/* What was taken from each file, for the default question and for --json. */
struct sources {
    const struct arg_list *paths;
    struct pv_video_info info[MAX_ARGS];
};

static enum pv_status add_videos(pv_session *s, struct sources *src, struct pv_video_params *p,
                                 struct progress *progress, struct pv_error *err)
{
    progress->of_n = src->paths->n;
    p->progress = progress_step;
    p->progress_user = progress;
    for (int i = 0; i < src->paths->n; i++) {
        enum pv_status status;
        progress->video = i + 1;
        status = pv_add_video(s, src->paths->items[i], p, &src->info[i], err);
        progress_clear(progress);
        if (status) {
            name_file(err, src->paths->items[i]);
            return status;
        }
        report_lost(src->paths->items[i], &src->info[i]);
    }
    return PV_OK;
}

static const char *default_question(const struct sources *src)
{
    bool pictures = true, several = src->paths->n > 1;
    for (int i = 0; i < src->paths->n; i++)
        pictures = pictures && !(src->info[i].fps > 0);
    if (pictures)
        return several ? "Describe these pictures." : "Describe this picture.";
    return several ? "Describe these videos." : "Describe this video.";
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
    for (int i = 0; i < src->paths->n; i++) {
        buf_puts(b, i ? ",{" : "{");
        video_json(b, src->paths->items[i], &src->info[i]);
        buf_puts(b, "}");
    }
    buf_puts(b, "]}");
}

/* The answers so far, as members of an object each; one stands alone, several in an array. */
static void add_answer_json(struct buf *b, const struct answer *out, const char *question,
                            bool several, bool first)
{
    if (several) {
        buf_puts(b, first ? "{\"question\":" : ",{\"question\":");
        buf_json(b, question, strlen(question));
        buf_puts(b, ",");
    }
    answer_json(b, out, true);
    buf_puts(b, several ? "}" : "");
}

/* Question `at` of the session; the videos are there, or are added before question 0. */
static enum pv_status ask(pv_session *s, const struct describe_args *a, int at, struct sources *src,
                          struct pv_video_params *vp, struct buf *json, struct pv_error *err)
{
    const char *question = at ? a->asks.items[at - 1] : a->prompt;
    struct progress progress;
    struct answer out;
    enum pv_status status = PV_OK;

    progress_init(&progress);
    answer_init(&out, &a->sampling, &progress);
    if (at == 0)
        status = add_videos(s, src, vp, &progress, err);
    if (status)
        goto done;
    question = question ? question : default_question(src);
    status = pv_add_text(s, "user", question, err);
    if (status)
        goto done;
    if (at > 0 && !a->sampling.json)
        write_text("\n", 1);
    status = answer_run(&out, s, &a->sampling, err);
    if (status && status != PV_E_CANCELLED)
        goto done;
    if (a->sampling.json)
        add_answer_json(json, &out, question, a->asks.n > 0, at == 0);
    if (a->sampling.stats)
        answer_stats(&out);

done:
    answer_clear(&out);
    return status;
}

static void print_json(const struct buf *answers, const struct sources *src, bool several,
                       double total)
{
    struct buf b;
    buf_init(&b, answers->limit * 2);
    buf_puts(&b, several ? "{\"answers\":[" : "{");
    buf_puts(&b, answers->data);
    buf_puts(&b, several ? "]" : "");
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

static int run_session(pv_session *s, const struct describe_args *a, struct pv_video_params *vp)
{
    struct sources src = { .paths = &a->videos };
    struct pv_error err = { 0 };
    struct buf json;
    double begin = clock_now();
    enum pv_status status = PV_OK;

    buf_init(&json, (size_t)MAX_TEXT * 8);
    catch_interrupt();
    if (a->system)
        status = pv_add_text(s, "system", a->system, &err);
    for (int i = 0; i <= a->asks.n && !status && !interrupted(); i++)
        status = ask(s, a, i, &src, vp, &json, &err);
    if ((status == PV_OK || status == PV_E_CANCELLED) && json.len)
        print_json(&json, &src, a->asks.n > 0, clock_now() - begin);
    buf_clear(&json);
    return answer_exit(status, &err);
}

static int run_model(const struct describe_args *a, const struct pv_model_params *mp,
                     struct pv_video_params *vp)
{
    struct pv_session_params sp = session_args_params(&a->session);
    struct pv_error err = { 0 };
    pv_model *model = NULL;
    pv_session *session = NULL;
    int result = EXIT_FAILED;

    if (pv_model_open(&model, mp, &err))
        return report("%s", err.text);
    if (!pv_model_has_vision(model))
        report("%s: the model sees no videos: it has no vision tower%s", mp->path,
               mp->mmproj ? "" : ", and --mmproj names none");
    else if (!pv_model_has_tokenizer(model))
        report("%s: the model has no tokenizer, so it cannot be asked", mp->path);
    else if (pv_session_open(&session, model, &sp, &err))
        report("%s", err.text);
    else
        result = run_session(session, a, vp);
    pv_session_close(&session);
    pv_model_close(&model);
    return result;
}

int cmd_describe(int argc, char **argv)
{
    struct describe_args a = { .sampling = SAMPLING_DEFAULTS };
    struct pv_model_params mp;
    struct pv_video_params vp;
    int r = options_parse(&describe_options, &a, argc, argv, &a.videos);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    if (a.videos.n == 0)
        return options_misuse("describe", "there is no video");
    r = choice_args_check(&a.choice, "describe", &vp);
    if (r == OPTIONS_RUN)
        r = model_args_check(&a.model, "describe", &mp);
    if (r != OPTIONS_RUN)
        return r;
    mp.limits.memory_bytes = a.session.memory;
    limit_args_set(&a.limits, &mp.limits);
    return run_model(&a, &mp, &vp);
}
