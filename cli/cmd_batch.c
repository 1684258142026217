/* prevue batch: questions about many videos, answered together, one line of results each. */
#include "batch_run.h"
#include "batch_shard.h"
#include "clips.h"
#include "method_args.h"
#include "option_groups.h"
#include "progress.h"
#include "video_args.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_JOBS = 2, USUAL_JOBS = 8, GPU_JOBS = 16, MAX_JOBS = 64, PATH_SIZE = 4096 };

struct batch_args {
    struct arg_list lists;
    const char *output, *shard, *prompt, *system;
    int jobs;
    uint64_t kv_memory;
    bool retry, no_thinking;
    struct choice_args choice;
    struct sampling_args sampling;
    struct method_args method;
    struct model_args model;
    struct session_args session;
    struct cache_args cache;
    struct limit_args limits;
};

#define AT(field) offsetof(struct batch_args, field)

static const struct option batch_table[] = {
    { "output", 'o', NULL, OPTION_STRING, AT(output), 0, 0, "FILE",
      "File for the results, one JSON object per line. Results of an earlier run that was stopped "
      "are kept, and their clips skipped.",
      NULL },
    { "jobs", 'j', NULL, OPTION_INT, AT(jobs), 1, MAX_JOBS, "K",
      "Clips at a time: decoded on a thread each, answered together. Default: as many as there are "
      "processors, from 2 to 8; with a GPU 16.",
      NULL },
    { "shard", 0, NULL, OPTION_STRING, AT(shard), 0, 0, "I/N",
      "Process only part I of N, and insert \"-I-of-N\" into the output's name. Default: from "
      "Slurm's environment (array jobs and tasks). /N takes I from Slurm or from a Kubernetes "
      "indexed Job.",
      NULL },
    { "retry", 0, NULL, OPTION_FLAG, AT(retry), 0, 0, NULL,
      "Try clips again whose result is an error.", NULL },
    { "prompt", 'p', NULL, OPTION_TEXT, AT(prompt), 0, 0, "TEXT",
      "Question for clips without one of their own. Default: to describe them.", NULL },
    { "system", 0, "-sys --system-prompt", OPTION_TEXT, AT(system), 0, 0, "TEXT",
      "System message at the start of the prompt. Default: that of the chat template.", NULL },
    { "no-thinking", 0, NULL, OPTION_FLAG, AT(no_thinking), 0, 0, NULL,
      "Ask for answers without a chain of thought, as in 'prevue describe'.", NULL },
    { "kv-memory", 0, NULL, OPTION_BYTES, AT(kv_memory), 0, 0, "BYTES",
      "Memory for the keys and values of all clips together; K, M, G and T may follow. Default: "
      "what one full context takes.",
      NULL },
};

static const struct option_group batch_groups[] = {
    { "batch", batch_table, sizeof batch_table / sizeof *batch_table, 0, SHORT_ALL },
    VIDEO_GROUPS(struct batch_args, N_DRAWING_OPTIONS),
};

const struct option_set batch_options = {
    .command = "batch",
    .usage = "LIST.jsonl -o OUT.jsonl [-m MODEL] [OPTIONS]",
    .about =
        "Answers questions about many videos and pictures. Each line of the list is a JSON object: "
        "\"video\" (a path relative to the list), and optionally \"prompt\" (a question) or "
        "\"questions\" (several, each asked by itself) and \"id\"; other members are ignored. Each "
        "line of the output has the line's number, its id and video, and \"answers\" or \"error\", "
        "in the order in which clips are done.\nA run may be killed at any moment and started "
        "again: no clip is lost, and none is done twice. A clip that cannot be read becomes a line "
        "with an error, and the run continues; the exit status is then 1.",
    .groups = batch_groups,
    .n_groups = sizeof batch_groups / sizeof *batch_groups,
    .max_operands = 1,
    .examples = "  prevue batch clips.jsonl -o answers.jsonl -m model.gguf\n"
                "  prevue batch clips.jsonl -o answers.jsonl -p 'What happens?' --jobs 16\n"
                "  prevue batch clips.jsonl -o answers.jsonl --shard 2/8\n",
};

struct plan {
    struct pv_model_params model;
    const char *draft; /* NULL: no draft model */
    struct pv_video_params video;
    struct pv_method method;
    struct pv_gen_params gen;
    struct batch_shard shard;
    char output[PATH_SIZE];
    char settings[BATCH_HASH + 1];
};

/* All that a result depends on, but for the clip and its question: speculation changes nothing of
 * it, unless the text may follow the drafter. */
static void name_settings(const struct batch_args *a, struct plan *plan)
{
    const struct sampling_args *s = &a->sampling;
    const struct choice_args *c = &a->choice;
    struct buf b;
    buf_init(&b, MAX_TEXT);
    buf_printf(&b, "%s\n%s\n%s\n%s\n", plan->model.path,
               plan->model.mmproj ? plan->model.mmproj : "", a->prompt ? a->prompt : "",
               a->system ? a->system : "");
    buf_printf(&b, "%d %d %g %g %g %llu %d %d\n", s->max_tokens, s->top_k, s->temperature, s->top_p,
               s->min_p, (unsigned long long)s->seed, s->ignore_eos, a->no_thinking);
    buf_printf(&b, "%d %d %d %d %d %d %d %g %g %g %d\n", c->frames, c->min_frames, c->max_frames,
               c->min_pixels, c->max_pixels, c->rule, c->time_rule, c->fps, c->start, c->end,
               c->no_audio);
    if (plan->method.accept == PV_ACCEPT_REJECTION)
        buf_printf(&b, "rejection %s %s\n", plan->method.name, plan->draft ? plan->draft : "");
    if (plan->method.lossy)
        buf_printf(&b, "lossy %s\n", plan->method.lossy);
    batch_hash(plan->settings, b.data ? b.data : "", b.len);
    buf_clear(&b);
}

static int make_plan(const struct batch_args *a, struct plan *plan)
{
    int r;
    if (a->lists.n == 0)
        return options_misuse("batch", "no list of clips given");
    if (!a->output)
        return options_misuse("batch", "no output file given: name one with -o");
    r = batch_shard_find(&plan->shard, a->shard);
    if (r == OPTIONS_RUN)
        r = choice_args_check(&a->choice, "batch", &plan->video);
    if (r == OPTIONS_RUN)
        r = cache_args_check(&a->cache, "batch");
    if (r == OPTIONS_RUN)
        r = model_args_check(&a->model, "batch", &plan->model);
    if (r != OPTIONS_RUN)
        return r;
    if (!batch_shard_name(&plan->shard, a->output, plan->output, sizeof plan->output))
        return options_misuse("batch", "the output's name is too long");
    plan->model.limits.memory_bytes = a->session.memory;
    limit_args_set(&a->limits, &plan->model.limits);
    r = method_args_check(&a->method, &a->session, "batch", &plan->model, &plan->method,
                          &plan->draft);
    if (r != OPTIONS_RUN)
        return r;
    plan->gen = sampling_args_params(&a->sampling);
    plan->gen.method =
        plan->method.drafter != PV_DRAFT_NONE || plan->method.lossy ? &plan->method : NULL;
    name_settings(a, plan);
    return OPTIONS_RUN;
}

/* What came of it, on stderr. there: results of earlier runs, `failed` of them errors. */
static int sum_up(const struct batch_counts *c, const char *output, int there, int failed,
                  bool written)
{
    char before[64] = "";
    if (there > 0)
        snprintf(before, sizeof before, ", %d were there already", there);
    if (c->wanted > 0)
        fprintf(stderr,
                "prevue: %d clips answered, %d failed%s; %.1f s, %.2f clips/s, %.1f "
                "tokens/s\n",
                c->answered, c->failed, before, c->seconds,
                c->seconds > 0 ? (c->answered + c->failed) / c->seconds : 0,
                c->seconds > 0 ? (double)c->tokens / c->seconds : 0);
    else
        fprintf(stderr, "prevue: all %d clips were there already, %d of them with an error\n",
                there, failed);
    if (!written)
        return EXIT_FAILED;
    if (c->answered + c->failed < c->wanted)
        return interrupted() ? interrupted() : EXIT_FAILED;
    if (c->failed + failed > 0)
        return report("%s: its lines with \"error\" say why clips failed; --retry tries them again",
                      output);
    return 0;
}

/* More clips than that only wait for the same processors. */
static int usual_jobs(const struct plan *plan)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (plan->model.device && strcmp(plan->model.device, "cpu") != 0)
        return GPU_JOBS;
    return n < LEAST_JOBS ? LEAST_JOBS : n > USUAL_JOBS ? USUAL_JOBS : (int)n;
}

static enum pv_status open_engine(pv_engine **out, pv_model *model, pv_model *draft,
                                  const struct batch_args *a, const struct plan *plan, int jobs,
                                  struct pv_error *err)
{
    struct pv_engine_params p = pv_engine_defaults();
    p.max_context = a->session.context;
    p.chunk = a->session.chunk;
    p.kv_type = method_args_kv_type(&a->method, &a->session);
    p.max_requests = jobs;
    p.kv_bytes = a->kv_memory;
    p.draft = draft;
    p.speculate = plan->gen.method != NULL;
    p.cache = cache_args_params(&a->cache);
    return pv_engine_open(out, model, &p, err);
}

static int run_engine(const struct batch_args *a, const struct plan *plan,
                      const struct batch_run *run, int there, int failed)
{
    struct batch_run b = *run;
    struct batch_counts counts;
    struct pv_error err = { 0 };
    pv_model *model = NULL, *draft = NULL;
    int result = EXIT_FAILED;

    if (!pv_model_open(&model, &plan->model, &err) && can_be_shown_videos(model, &plan->model)) {
        open_draft(&draft, plan->draft, &a->method, &plan->model, model, &err);
        if (!err.code)
            open_engine(&b.engine, model, draft, a, plan, b.jobs, &err);
        if (!err.code) {
            catch_interrupt();
            batch_answer_all(&b, &counts);
            result = sum_up(&counts, plan->output, there, failed, !b.out->failed);
        }
    }
    if (err.code)
        report("%s", err.text);
    pv_engine_close(&b.engine);
    pv_model_close(&draft);
    pv_model_close(&model);
    return result;
}

static int run_list(const struct batch_args *a, const struct plan *plan,
                    const struct batch_list *list)
{
    struct batch_output out;
    struct batch_run b = { .list = list,
                           .out = &out,
                           .gen = &plan->gen,
                           .video = &plan->video,
                           .system = a->system,
                           .prompt = a->prompt,
                           .no_thinking = a->no_thinking,
                           .jobs = a->jobs ? a->jobs : usual_jobs(plan) };
    bool *skip = mem_zalloc((size_t)list->n * sizeof *skip);
    int result, failed, there = 0, wanted = 0;

    if (!skip)
        return report("out of memory for %d clips", list->n);
    if (!batch_output_open(&out, plan->output, list, plan->settings, a->retry, skip, &failed)) {
        mem_free(skip);
        return EXIT_FAILED;
    }
    for (int i = 0; i < list->n; i++) {
        there += skip[i];
        skip[i] = skip[i] || i % plan->shard.of != plan->shard.index - 1;
        wanted += !skip[i];
    }
    b.skip = skip;
    b.jobs = b.jobs < wanted ? b.jobs : wanted;
    if (wanted > 0) {
        result = run_engine(a, plan, &b, there, failed);
    } else {
        result = sum_up(&(struct batch_counts){ 0 }, plan->output, there, failed, true);
    }
    batch_output_close(&out);
    mem_free(skip);
    return result;
}

int cmd_batch(int argc, char **argv)
{
    struct batch_args a = { .sampling = SAMPLING_DEFAULTS, .method = METHOD_DEFAULTS };
    struct plan plan = { 0 };
    struct batch_list list;
    int r = options_parse(&batch_options, &a, argc, argv, &a.lists);

    if (r != OPTIONS_RUN)
        return r ? r : finish_output();
    r = make_plan(&a, &plan);
    if (r != OPTIONS_RUN)
        return r;
    if (!is_apart(plan.output, a.lists.items, 1) || !batch_list_read(&list, a.lists.items[0]))
        return EXIT_FAILED;
    r = run_list(&a, &plan, &list);
    batch_list_clear(&list);
    return r;
}
