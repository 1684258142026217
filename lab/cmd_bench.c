/* prevue-lab bench: methods on clips. Every clip is asked with every method, in turn, several
 * times; sums over the clips are printed in the end, and for each number of frames when clips
 * differ in it. Rows of CSV are written clip by clip, so that what is done is kept when a long run
 * is stopped. */
#include "answer.h"
#include "base/append.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/status.h"
#include "bench_csv.h"
#include "bench_intervals.h"
#include "bench_trace.h"
#include "clips.h"
#include "lab.h"
#include "machine.h"
#include "model_advice.h"
#include "multiple_choice.h"
#include "option_groups.h"
#include "prepared.h"
#include "prevue/testing.h"
#include "view_overlap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_REPEAT = 1000, MAX_GROUPS = 32, MAX_JSON = 1 << 30 };
#define LEAST_ACCEPTANCE 0.001
#define LEAST_SECONDS 1e-6
#define MOST_SECONDS 1e6

struct bench_args {
    struct arg_list videos;
    const char *methods, *ratios, *prompt, *system, *json, *csv, *commit, *trace, *timeline,
        *answers;
    int repeat;
    bool bits, alone, wide;
    double simulate, from, seconds;
    struct choice_args choice;
    struct sampling_args sampling;
    struct method_args method;
    struct model_args model;
    struct session_args session;
    struct cache_args cache;
    struct limit_args limits;
};

#define AT(field) offsetof(struct bench_args, field)

static const struct option bench_table[] = {
    { "videos", 0, "--video", OPTION_LIST, AT(videos), 0, 0, "FILE",
      "A video or a prepared prompt (.pvin), a directory of them, or a list: a .jsonl file with "
      "one object per line, which has \"video\" (a path relative to the list) and \"prompt\" (the "
      "question).",
      NULL },
    { "methods", 0, NULL, OPTION_STRING, AT(methods), 0, 0, "METHODS",
      "Comma-separated names of methods (see --method); plain decoding (ar) always comes first. "
      "NAME:self drafts with the model's own weights; NAME+OPTION=VALUE changes one of the "
      "drafting or view options for this method only. Default: auto.",
      NULL },
    { "ratios", 0, NULL, OPTION_STRING, AT(ratios), 0, 0, "R1,R2,...",
      "Run each method whose view prunes with each of these ratios.", NULL },
    { "prompt", 'p', NULL, OPTION_TEXT, AT(prompt), 0, 0, "TEXT",
      "Question for clips without one of their own. Default: to describe the video.", NULL },
    { "system", 0, "-sys --system-prompt", OPTION_TEXT, AT(system), 0, 0, "TEXT",
      "System message at the start of the prompt. Default: that of the chat template.", NULL },
    { "repeat", 'r', "--repetitions", OPTION_INT, AT(repeat), 1, MAX_REPEAT, "N",
      "Run everything N times; times are medians. Default: 3.", NULL },
    { "bits", 0, NULL, OPTION_FLAG, AT(bits), 0, 0, NULL,
      "Compare the logits of all tokens bit for bit, not only the tokens. Times then include this "
      "comparison.",
      NULL },
    { "simulate-acceptance", 0, NULL, OPTION_NUMBER, AT(simulate), LEAST_ACCEPTANCE, 1, "A",
      "Accept drafted tokens at random with probability A, to time models with random weights: the "
      "passes are real, the text is meaningless. Stop tokens are ignored.",
      NULL },
    { "wide", 0, NULL, OPTION_FLAG, AT(wide), 0, 0, NULL,
      "Print a table with all columns, about 150 characters wide. Default: at most 100.", NULL },
    { "json", 0, NULL, OPTION_STRING, AT(json), 0, 0, "FILE",
      "Write everything as one JSON object; \"-\" is standard output, without the table.", NULL },
    { "csv", 0, NULL, OPTION_STRING, AT(csv), 0, 0, "FILE",
      "Append one row for each clip and method; a new file gets a header.", NULL },
    { "answers", 0, NULL, OPTION_STRING, AT(answers), 0, 0, "FILE",
      "Write every method's answer: one JSON object per line with its video, prompt, method, text "
      "and token ids.",
      NULL },
    { "alone", 0, NULL, OPTION_FLAG, AT(alone), 0, 0, NULL,
      "Run each method once more in a new session: total times are then wall times, and each "
      "method's peak memory is known. Always done if a method is parallel.",
      NULL },
    { "trace", 0, NULL, OPTION_STRING, AT(trace), 0, 0, "FILE",
      "Write a timeline of model and drafter for chrome://tracing or Perfetto: one process per "
      "method and clip, each run in a new session.",
      NULL },
    { "timeline", 0, NULL, OPTION_STRING, AT(timeline), 0, 0, "FILE",
      "Draw this timeline for the first clip: a picture (.png), or a page that can be zoomed "
      "(.html).",
      NULL },
    { "timeline-from", 0, NULL, OPTION_TIME, AT(from), 0, MOST_SECONDS, "T",
      "Second at which the picture begins. Default: two parts, the whole run and its first rounds.",
      NULL },
    { "timeline-seconds", 0, NULL, OPTION_NUMBER, AT(seconds), LEAST_SECONDS, MOST_SECONDS, "S",
      "Number of seconds that the picture shows.", NULL },
    { "commit", 0, NULL, OPTION_STRING, AT(commit), 0, 0, "TEXT",
      "Program version to write to --csv and --json. Default: its number.", NULL },
};

static const struct option_group bench_groups[] = {
    { "benchmark", bench_table, sizeof bench_table / sizeof *bench_table, 0, SHORT_ALL },
    VIDEO_GROUPS(struct bench_args, N_DRAWING_OPTIONS),
};

const struct option_set bench_options = {
    .command = "bench",
    .usage = "FILE|DIR|LIST... --methods M1,M2,... [OPTIONS]\n"
             "--videos FILE|DIR|LIST --methods M1,M2,... [OPTIONS]",
    .about = "Answers questions about clips with several methods and compares what they cost. The "
             "methods take turns on each clip; each answer is compared with that of plain "
             "decoding, and the exit status is 1 when one differs. The table's sums are over all "
             "clips.",
    .groups = bench_groups,
    .n_groups = sizeof bench_groups / sizeof *bench_groups,
    .max_operands = MAX_ARGS,
    .examples = "  prevue-lab bench --videos samples --methods sd,sd-tree,specvlm,auto\n"
                "  prevue-lab bench --videos questions.jsonl -m large.gguf -d small.gguf \\\n"
                "      --methods sd-rand,specvlm --ratios 0,0.5,0.9 --csv views.csv\n"
                "  prevue-lab bench clip.mp4 --methods sd,pearl --timeline overlap.png\n",
};

/* What one benchmark is made of, and what it has found. */
struct bench {
    const struct bench_args *args;
    struct pv_model_params model;
    const char *draft;
    struct contenders who;
    struct pv_method_test test; /* of them all but plain decoding */
    struct trial trial;
    struct clips clips;
    struct tally all, group[MAX_GROUPS];
    int n_groups; /* of numbers of frames; more than MAX_GROUPS: not told apart */
    int failed;   /* clips */
    uint64_t peak_bytes;
    struct buf json; /* the clips so far */
    struct buf trace, answers;
    struct bench_stats stats;
    struct bench_profile profile;
    int processes;             /* in the trace */
    struct trial_result shown; /* on the timeline; its clip is NULL: none yet */
    const char *shown_clip;
};

/* ---- one clip ---- */

static void count(struct bench *b, const struct trial_result *r)
{
    int g = 0;
    tally_add(&b->all, &b->who, r);
    b->peak_bytes = b->peak_bytes > r->peak_bytes ? b->peak_bytes : r->peak_bytes;
    while (g < b->n_groups && g < MAX_GROUPS && b->group[g].frames != r->frames)
        g++;
    if (g == b->n_groups && g <= MAX_GROUPS)
        b->n_groups++;
    if (g < MAX_GROUPS) {
        b->group[g].frames = r->frames;
        tally_add(&b->group[g], &b->who, r);
    }
}

static void add_clip_json(struct bench *b, const struct clip *clip, const struct trial_result *r)
{
    struct tally one = { 0 };
    tally_add(&one, &b->who, r);
    buf_puts(&b->json, b->json.len ? ",\n{\"video\":" : "{\"video\":");
    buf_json(&b->json, clip->path, strlen(clip->path));
    if (clip->prompt) {
        buf_puts(&b->json, ",\"prompt\":");
        buf_json(&b->json, clip->prompt, strlen(clip->prompt));
    }
    buf_printf(&b->json, ",\"frames\":%d,\"lost\":%d,", r->frames, r->lost);
    tally_json(&b->json, &one, &b->who);
    buf_puts(&b->json, "}");
}

static int threads_used(const struct bench *b)
{
    return b->model.threads ? b->model.threads : cpu_count();
}

static const char *commit_of(const struct bench *b)
{
    return b->args->commit ? b->args->commit : pv_version();
}

static enum pv_status write_csv(struct bench *b, const struct clip *clip,
                                const struct trial_result *r, struct pv_error *err)
{
    struct csv_row row = { .machine = machine_name(),
                           .commit = commit_of(b),
                           .model = b->model.path,
                           .draft = b->draft ? b->draft : "",
                           .clip = clip->path,
                           .threads = threads_used(b) };
    struct buf header, text;
    enum pv_status s;

    if (!b->args->csv)
        return PV_OK;
    buf_init(&header, MAX_TEXT);
    buf_init(&text, MAX_TEXT);
    csv_header(&header);
    csv_rows(&text, &row, &b->who, r);
    if (header.failed || text.failed)
        s = fail(err, PV_E_NOMEM, "%s: no memory for the rows of %s", b->args->csv, clip->path);
    else
        s = file_append(b->args->csv, header.data, text.data, text.len, err);
    buf_clear(&header);
    buf_clear(&text);
    return s;
}

/* Did method k choose the right option? */
static bool is_right(const struct clip *clip, const struct trial_result *r, int k)
{
    return r->text[k].len &&
           choice_of(r->text[k].data, clip->options, clip->n_options) == clip->key;
}

/* The score of a clip that has one becomes a figure of each method. */
static void score(const struct bench *b, const struct clip *clip, struct trial_result *r)
{
    for (int k = 0; k < b->who.n && clip->key >= 0; k++) {
        r->cell[k].v[FIG_SCORED] = 1;
        r->cell[k].v[FIG_RIGHT] = is_right(clip, r, k);
    }
}

static void add_answers(struct bench *b, const struct clip *clip, const struct trial_result *r)
{
    const char *prompt = clip->prompt ? clip->prompt : b->args->prompt;
    for (int k = 0; k < b->who.n; k++) {
        const struct contender *c = &b->who.items[k];
        buf_puts(&b->answers, "{\"video\":");
        buf_json(&b->answers, clip->path, strlen(clip->path));
        if (prompt) {
            buf_puts(&b->answers, ",\"prompt\":");
            buf_json(&b->answers, prompt, strlen(prompt));
        }
        buf_puts(&b->answers, ",\"method\":");
        buf_json(&b->answers, c->label, strlen(c->label));
        if (method_prunes(&c->method))
            buf_printf(&b->answers, ",\"ratio\":%.6g", c->method.ratio);
        if (r->text[k].len) {
            buf_puts(&b->answers, ",\"text\":");
            buf_json(&b->answers, r->text[k].data, r->text[k].len);
        }
        if (clip->key >= 0)
            buf_printf(&b->answers, ",\"right\":%s", is_right(clip, r, k) ? "true" : "false");
        buf_puts(&b->answers, ",\"ids\":");
        buf_add(&b->answers, r->ids[k].data, r->ids[k].len);
        buf_puts(&b->answers, "}\n");
        b->answers.failed = b->answers.failed || r->text[k].failed || r->ids[k].failed;
    }
}

/* A clip that fails is told and left out. */
static enum pv_status run_clip(struct bench *b, const struct clip *clip, struct pv_error *err)
{
    struct arg_list video = { .items = { clip->path }, .n = 1 };
    struct trial_question q = { .videos = &video,
                                .system = b->args->system,
                                .prompt = clip->prompt ? clip->prompt : b->args->prompt };
    struct pv_error why = { 0 };
    struct trial_result r;
    enum pv_status s = trial_run(&b->trial, &q, &r, &why);

    if (s == PV_E_CANCELLED)
        return s;
    if (s) {
        report("%s%s%s", strstr(why.text, clip->path) ? "" : clip->path,
               strstr(why.text, clip->path) ? "" : ": ", why.text);
        b->failed++;
        return PV_OK;
    }
    score(b, clip, &r);
    count(b, &r);
    if (!stats_add(&b->stats, r.cell, b->who.n))
        report("%s: no memory for its figures: it is not in the statistics", clip->path);
    profiles_add(&b->profile, &b->who, &r);
    if (b->args->json)
        add_clip_json(b, clip, &r);
    if (b->args->answers)
        add_answers(b, clip, &r);
    if (b->args->trace)
        trace_events(&b->trace, clip->path, &b->who, &r, &b->processes);
    s = write_csv(b, clip, &r, err);
    if (b->args->timeline && !b->shown_clip) {
        b->shown = r;
        b->shown_clip = clip->path;
    } else {
        trial_clear(&r);
    }
    return s;
}

/* ---- the end ---- */

static void print_tally(struct buf *out, const struct bench *b, const struct tally *t)
{
    buf_printf(out, "%d clip%s, ", t->clips, t->clips == 1 ? "" : "s");
    if (t->frames)
        buf_printf(out, "%d frame%s each, ", t->frames, t->frames == 1 ? "" : "s");
    buf_printf(out, "%d thread%s, median of %d", threads_used(b), threads_used(b) == 1 ? "" : "s",
               b->args->repeat);
    if (b->args->simulate > 0)
        buf_printf(out, ", SIMULATED acceptance %.4g", b->args->simulate);
    buf_puts(out, b->args->bits ? "; identical: tokens and bits of logits\n" : "\n");
    tally_table(out, t, &b->who, b->args->wide);
}

static void print_tables(const struct bench *b)
{
    bool apart = b->n_groups > 1 && b->n_groups <= MAX_GROUPS;
    struct tally all = b->all;
    struct buf out;

    buf_init(&out, MAX_TEXT);
    for (int g = 0; g < b->n_groups && apart; g++) {
        print_tally(&out, b, &b->group[g]);
        buf_puts(&out, "\n");
    }
    all.frames = b->n_groups == 1 ? b->group[0].frames : 0;
    print_tally(&out, b, &all);
    buf_printf(&out, "%.1f MiB held at most, all methods in one session\n",
               (double)b->peak_bytes / (1 << 20));
    if (b->stats.clips > 1) {
        buf_puts(&out, "\n");
        intervals_table(&out, &b->stats, &b->profile, &b->who);
    }
    write_text(out.data, out.len);
    buf_clear(&out);
}

static void add_text_json(struct buf *out, const char *name, const char *text)
{
    buf_printf(out, "\"%s\":", name);
    buf_json(out, text, strlen(text));
    buf_puts(out, ",");
}

static void make_json(struct buf *out, const struct bench *b)
{
    const struct bench_args *a = b->args;
    buf_puts(out, "{");
    add_text_json(out, "machine", machine_name());
    add_text_json(out, "commit", commit_of(b));
    add_text_json(out, "model", b->model.path);
    if (b->draft)
        add_text_json(out, "draft", b->draft);
    if (a->simulate > 0)
        buf_printf(out, "\"SIMULATED\":%.6g,", a->simulate);
    buf_printf(out,
               "\"threads\":%d,\"repeat\":%d,\"max_tokens\":%d,\"temperature\":%.6g,"
               "\"seed\":%llu,\"failed_clips\":%d,\"peak_bytes\":%llu,\n\"all\":{\"clips\":%d,",
               threads_used(b), a->repeat, a->sampling.max_tokens, a->sampling.temperature,
               (unsigned long long)a->sampling.seed, b->failed, (unsigned long long)b->peak_bytes,
               b->all.clips);
    tally_json(out, &b->all, &b->who);
    buf_puts(out, "},\n");
    intervals_json(out, &b->stats, &b->profile, &b->who);
    buf_puts(out, ",\n\"by_frames\":[");
    for (int g = 0; g < b->n_groups && b->n_groups <= MAX_GROUPS; g++) {
        buf_printf(out, "%s{\"frames\":%d,\"clips\":%d,", g ? ",\n" : "", b->group[g].frames,
                   b->group[g].clips);
        tally_json(out, &b->group[g], &b->who);
        buf_puts(out, "}");
    }
    buf_puts(out, "],\n\"clips\":[");
    buf_add(out, b->json.data, b->json.len);
    buf_puts(out, "]}\n");
    out->failed = out->failed || b->json.failed;
}

static int write_json(const struct bench *b)
{
    struct pv_error err = { 0 };
    struct buf out;

    buf_init(&out, MAX_JSON);
    make_json(&out, b);
    if (!out.failed && !strcmp(b->args->json, "-"))
        write_text(out.data, out.len);
    else
        write_file(b->args->json, &out, &err);
    buf_clear(&out);
    return err.code ? report("%s", err.text) : 0;
}

static int write_trace(const struct bench *b)
{
    struct pv_error err = { 0 };
    struct buf out;

    buf_init(&out, MAX_JSON);
    buf_puts(&out, "[\n");
    buf_add(&out, b->trace.data, b->trace.len);
    buf_puts(&out, "\n]\n");
    out.failed = out.failed || b->trace.failed;
    write_file(b->args->trace, &out, &err);
    buf_clear(&out);
    return err.code ? report("%s", err.text) : 0;
}

static int write_answers(const struct bench *b)
{
    struct pv_error err = { 0 };
    struct buf out = b->answers;
    write_file(b->args->answers, &out, &err);
    return err.code ? report("%s", err.text) : 0;
}

/* Not in a CORE build, which `check` says. */
static int draw_timeline(const struct bench *b)
{
#ifdef PV_CORE
    (void)b;
    return 0;
#else
    const struct bench_args *a = b->args;
    struct overlap o = { .clip = b->shown_clip,
                         .model = b->model.path,
                         .who = &b->who,
                         .found = &b->shown,
                         .from = a->from,
                         .seconds = a->seconds };
    struct pv_error err = { 0 };
    if (path_ends(a->timeline, ".png"))
        overlap_picture(&o, a->timeline, &err);
    else
        overlap_page(&o, a->timeline, &err);
    return err.code ? report("%s", err.text) : 0;
#endif
}

static int write_files(const struct bench *b)
{
    const struct bench_args *a = b->args;
    int result = a->json ? write_json(b) : 0, more = a->trace ? write_trace(b) : 0;
    result = result ? result : more;
    more = a->answers ? write_answers(b) : 0;
    result = result ? result : more;
    more = a->timeline ? draw_timeline(b) : 0;
    return result ? result : more;
}

/* What was done until the end, or until an interrupt. */
static int finish(struct bench *b, enum pv_status status, const struct pv_error *err)
{
    const char *json = b->args->json;
    int written = 0, result;

    if (b->all.clips && !(json && !strcmp(json, "-")))
        print_tables(b);
    if (b->all.clips)
        written = write_files(b);
    result = answer_exit(status, err);
    if (result || written)
        return result ? result : written;
    if (tally_differs(&b->all, &b->who))
        return report("a method's text is not that of plain decoding");
    return b->failed ? report("%d of %d clips could not be answered", b->failed, b->clips.n) : 0;
}

static int run_clips(struct bench *b, pv_model *model, const struct pv_session_params *sp)
{
    struct progress progress;
    struct pv_error err = { 0 };
    enum pv_status s = PV_OK;

    progress_init(&progress);
    b->trial.model = model;
    b->trial.session = sp;
    b->trial.progress = &progress;
    for (int i = 0; i < b->clips.n; i++)
        b->trial.answers = b->trial.answers || b->clips.items[i].key >= 0;
    catch_interrupt();
    for (int i = 0; i < b->clips.n && !s && !interrupted(); i++) {
        progress.video = i + 1;
        progress.of_n = b->clips.n;
        s = run_clip(b, &b->clips.items[i], &err);
    }
    return finish(b, s, &err);
}

static int run_models(struct bench *b)
{
    struct pv_session_params sp = session_args_params(&b->args->session);
    struct pv_error err = { 0 };
    pv_model *model = NULL, *draft = NULL;
    int result = EXIT_FAILED;

    sp.kv_type = method_args_kv_type(&b->args->method, &b->args->session);
    if (pv_model_open(&model, &b->model, &err))
        return report("%s", err.text);
    if (!can_be_shown(model, &b->model, clips_prepared(&b->clips)))
        goto close;
    sp.speculate = b->who.n > 1;
    sp.cache = cache_args_params(&b->args->cache);
    open_draft(&draft, b->draft, &b->args->method, &b->model, model, &err);
    sp.draft = draft;
    result = err.code ? report("%s", err.text) : run_clips(b, model, &sp);

close:
    pv_model_close(&draft);
    pv_model_close(&model);
    return result;
}

/* ---- the beginning ---- */

static int check(const struct bench_args *a, struct bench *b)
{
    const char *methods = a->methods ? a->methods : "auto";
    int r = check_videos("bench", &a->videos);

    if (r != OPTIONS_RUN)
        return r;
    if (a->timeline && !path_ends(a->timeline, ".png") && !path_ends(a->timeline, ".html"))
        return options_misuse("bench", "--timeline must end in .png or .html, not \"%s\"",
                              a->timeline);
#ifdef PV_CORE
    if (a->timeline)
        return options_misuse("bench", "--timeline: this build draws no pictures");
#endif
    if ((a->from > 0 || a->seconds > 0) && !(a->timeline && path_ends(a->timeline, ".png")))
        return options_misuse("bench", "--timeline-from and --timeline-seconds are for a picture "
                                       "(--timeline FILE.png)");
    r = prepared_check(&a->videos, "bench", a->prompt, a->system, &a->choice, NULL);
    if (r == OPTIONS_RUN)
        r = choice_args_check(&a->choice, "bench", &b->trial.video);
    if (r == OPTIONS_RUN)
        r = cache_args_check(&a->cache, "bench");
    if (r == OPTIONS_RUN)
        r = model_args_check(&a->model, "bench", &b->model);
    if (r != OPTIONS_RUN)
        return r;
    b->model.limits.memory_bytes = a->session.memory;
    limit_args_set(&a->limits, &b->model.limits);
    r = method_args_list(&a->method, &a->session, "bench", &b->model, methods, a->ratios, &b->who,
                         &b->draft);
    b->test.simulate = a->simulate;
    for (int i = 1; i < b->who.n; i++)
        b->who.items[i].method.test = &b->test;
    return r;
}

/* Rows are added to a table like ours only, never to a file that is something else. */
static bool is_our_csv(FILE *f, const char *path)
{
    struct buf header;
    char line[1024] = "";
    bool same;

    buf_init(&header, sizeof line);
    csv_header(&header);
    same = fgets(line, sizeof line, f) == NULL || (header.data && !strcmp(line, header.data));
    buf_clear(&header);
    if (!same)
        report("%s: exists, and its first line is not the header of a table of bench", path);
    return same;
}

/* Before the work: can rows be added? */
static bool csv_fits(const char *path)
{
    bool fits = true;
    FILE *f;

    if (!path || !file_exists(path))
        return !path || can_write(path);
    f = fopen(path, "r+b");
    if (f)
        fits = is_our_csv(f, path);
    else
        report("%s: cannot be opened: %s", path, strerror(errno));
    if (f)
        fclose(f);
    return f && fits;
}

/* What is to be written can be, and is nothing else that is read or written. */
static bool outputs_fit(const struct bench *b)
{
    const struct bench_args *a = b->args;
    const char *out[] = { a->json && strcmp(a->json, "-") != 0 ? a->json : NULL, a->trace,
                          a->answers, a->timeline, a->csv };
    const char *model[] = { b->model.path, b->model.mmproj, b->model.head, b->draft,
                            a->method.draft_mmproj };

    for (int i = 0; i < (int)(sizeof out / sizeof *out); i++) {
        if (!out[i])
            continue;
        if (!is_apart(out[i], out, i) || !is_apart(out[i], a->videos.items, a->videos.n) ||
            !is_apart(out[i], model, (int)(sizeof model / sizeof *model)))
            return false;
        for (int k = 0; k < b->clips.n; k++)
            if (!is_apart(out[i], (const char *[]){ b->clips.items[k].path }, 1))
                return false;
        if (out[i] != a->csv && !can_write(out[i]))
            return false;
    }
    return true;
}

int cmd_bench(int argc, char **argv)
{
    static struct bench b; /* its tables are large */
    struct bench_args a = { .sampling = SAMPLING_DEFAULTS, .method = METHOD_DEFAULTS, .repeat = 3 };
    int r = options_parse(&bench_options, &a, argc, argv, &a.videos);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    a.sampling.ignore_eos = a.sampling.ignore_eos || a.simulate > 0;
    b.args = &a;
    r = check(&a, &b);
    if (r != OPTIONS_RUN)
        return r;
    b.trial.who = &b.who;
    b.trial.gen = sampling_args_params(&a.sampling);
    b.trial.repeat = a.repeat;
    b.trial.bits = a.bits;
    b.trial.trace = a.trace || a.timeline;
    b.trial.alone = a.alone;
    b.trial.answers = a.answers != NULL;
    buf_init(&b.json, MAX_JSON);
    buf_init(&b.trace, MAX_JSON);
    buf_init(&b.answers, MAX_JSON);
    r = EXIT_FAILED;
    if (clips_read(&b.clips, &a.videos) && outputs_fit(&b) && csv_fits(a.csv))
        r = run_models(&b);
    buf_clear(&b.json);
    buf_clear(&b.trace);
    buf_clear(&b.answers);
    stats_clear(&b.stats);
    trial_clear(&b.shown);
    clips_clear(&b.clips);
    return r;
}
