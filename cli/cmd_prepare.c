/* prevue prepare: a question about videos as a file, for a machine that has neither FFmpeg nor a
 * tokenizer. `describe` and `bench` accept it instead of a video. */
#include "model_advice.h"
#include "prepared.h"
#include "progress.h"
#include "run_args.h"

#include "base/status.h"

#include <stdio.h>

struct prepare_args {
    struct arg_list videos;
    const char *prompt, *system, *output;
    struct choice_args choice;
    struct model_args model;
    struct session_args session;
    struct limit_args limits;
};

#define AT(field) offsetof(struct prepare_args, field)

static const struct option question_table[] = {
    { "prompt", 'p', NULL, OPTION_TEXT, AT(prompt), 0, 0, "TEXT",
      "What to ask. Default: to describe the video.", NULL },
    { "system", 0, "-sys --system-prompt", OPTION_TEXT, AT(system), 0, 0, "TEXT",
      "System message at the start of the prompt. Default: that of the chat template.", NULL },
    { "output", 'o', NULL, OPTION_STRING, AT(output), 0, 0, "FILE.pvin",
      "The file to write; an existing one is replaced.", NULL },
    { "video", 0, "--image", OPTION_LIST, AT(videos), 0, 0, "FILE", "The same as VIDEO.", NULL },
};

static const struct option_group prepare_groups[] = {
    { "question", question_table, sizeof question_table / sizeof *question_table, 0, SHORT_ALL },
    { "frames", choice_table, N_CHOICE_OPTIONS, AT(choice), N_CHOICE_SHORT },
    { "model", model_table, N_MODEL_OPTIONS, AT(model), N_MODEL_SHORT },
    { "memory", session_table, N_SESSION_OPTIONS, AT(session), N_SESSION_SHORT },
    { "limits", limit_table, N_LIMIT_OPTIONS, AT(limits), SHORT_NONE },
};

const struct option_set prepare_options = {
    .command = "prepare",
    .usage = "VIDEO... [-p PROMPT] [-m MODEL] -o FILE.pvin [OPTIONS]",
    .about = "Writes a question about videos and pictures as one file: token ids, and the frames "
             "as the model sees them, not compressed. 'describe' and 'bench' accept it instead of "
             "a video, with this model or another of its family, also in builds without libraries "
             "(make CORE=1). The answer is the same as with the video.",
    .groups = prepare_groups,
    .n_groups = sizeof prepare_groups / sizeof *prepare_groups,
    .max_operands = MAX_ARGS,
    .examples = "  prevue prepare clip.mp4 -p 'Who enters?' -m large.gguf -o clip.pvin\n"
                "  prevue describe clip.pvin -m large.gguf -d small.gguf\n"
                "  prevue-lab bench clip.pvin -m large.gguf -d small.gguf --methods sd,specvlm\n",
};

/* The whole question in the session. */
static enum pv_status add_question(pv_session *s, const struct prepare_args *a,
                                   struct pv_video_params *vp, struct pv_error *err)
{
    struct pv_video_info info[MAX_ARGS];
    struct progress progress;
    enum pv_status st = a->system ? pv_add_text(s, "system", a->system, err) : PV_OK;

    progress_init(&progress);
    progress.of_n = a->videos.n;
    vp->progress = progress_step;
    vp->progress_user = &progress;
    for (int i = 0; i < a->videos.n && !st; i++) {
        progress.video = i + 1;
        st = pv_add_video(s, a->videos.items[i], vp, &info[i], err);
        progress_clear(&progress);
        if (st)
            fail_names(err, a->videos.items[i]);
        else
            report_lost(a->videos.items[i], &info[i]);
    }
    if (st)
        return st;
    return pv_add_text(s, "user", a->prompt ? a->prompt : default_question(info, a->videos.n), err);
}

static int run_model(const struct prepare_args *a, const struct pv_model_params *mp,
                     struct pv_video_params *vp)
{
    struct pv_session_params sp = session_args_params(&a->session);
    struct pv_error err = { 0 };
    pv_model *model = NULL;
    pv_session *session = NULL;
    enum pv_status s = PV_OK;
    int result = EXIT_FAILED;

    if (pv_model_open(&model, mp, &err))
        return report("%s", err.text);
    if (!can_be_shown_videos(model, mp))
        goto close;
    catch_interrupt();
    s = pv_session_open(&session, model, &sp, &err);
    if (!s)
        s = add_question(session, a, vp, &err);
    if (!s)
        s = pv_prompt_write(session, a->output, &err);
    if (s == PV_E_CANCELLED && interrupted())
        result = interrupted();
    else
        result = s ? report("%s", err.text) : 0;

close:
    pv_session_close(&session);
    pv_model_close(&model);
    return result;
}

int cmd_prepare(int argc, char **argv)
{
    struct prepare_args a = { 0 };
    struct pv_model_params mp;
    struct pv_video_params vp;
    int r = options_parse(&prepare_options, &a, argc, argv, &a.videos);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    r = check_videos("prepare", &a.videos);
    if (r != OPTIONS_RUN)
        return r;
    if (has_prepared(&a.videos))
        return options_misuse("prepare", "a .pvin file is prepared already");
    if (!a.output || !is_prepared(a.output))
        return options_misuse("prepare", "--output names the file to write, and ends in .pvin");
    r = choice_args_check(&a.choice, "prepare", &vp);
    if (r == OPTIONS_RUN)
        r = model_args_check(&a.model, "prepare", &mp);
    if (r != OPTIONS_RUN)
        return r;
    mp.limits.memory_bytes = a.session.memory;
    limit_args_set(&a.limits, &mp.limits);
    if (!is_apart(a.output, a.videos.items, a.videos.n) || !is_apart(a.output, &mp.path, 1) ||
        !can_write(a.output))
        return EXIT_FAILED;
    return run_model(&a, &mp, &vp);
}
