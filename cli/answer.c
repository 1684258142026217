/* Answers: streaming, JSON, statistics. */
#include "answer.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "figures.h"
#include "shown.h"

#include <stdio.h>
#include <string.h>

void answer_init(struct answer *a, const struct sampling_args *s, const struct pv_model_params *mp,
                 struct progress *progress)
{
    *a =
        (struct answer){ .json = s->json, .model = mp, .progress = progress, .begin = clock_now() };
    buf_init(&a->text, MAX_TEXT);
}

void answer_clear(struct answer *a)
{
    buf_clear(&a->text);
}

static bool on_text(void *user, const char *utf8, size_t len)
{
    struct answer *a = user;
    progress_clear(a->progress);
    if (len && a->json) {
        buf_add(&a->text, utf8, len);
    } else if (len) {
        write_text(utf8, len);
        a->any = true;
        a->ends_line = utf8[len - 1] == '\n';
    }
    return !interrupted() && !ferror(stdout) && !a->text.failed;
}

enum pv_status answer_run(struct answer *a, pv_session *s, const struct sampling_args *sampling,
                          const struct pv_method *method, struct pv_error *err)
{
    struct pv_gen_params gen = sampling_args_params(sampling);
    enum pv_status st;

    a->method = method;
    gen.method = method;
    gen.progress = progress_step;
    gen.progress_user = a->progress;
    st = pv_generate(s, &gen, on_text, a, err);
    progress_clear(a->progress);
    if (a->any && !a->ends_line)
        write_text("\n", 1);
    a->ids = pv_session_answer(s, &a->n_ids);
    a->finish = st == PV_E_CANCELLED                       ? "cancelled"
                : a->n_ids >= (size_t)sampling->max_tokens ? "length"
                                                           : "stop";
    a->stats.size = sizeof a->stats;
    pv_session_stats(s, &a->stats);
    a->total = clock_now() - a->begin;
    return st;
}

void model_json(struct buf *b, const struct pv_model_params *mp)
{
    buf_puts(b, ",\"model\":");
    buf_json(b, mp->path, strlen(mp->path));
}

void answer_json(struct buf *b, const struct answer *a, bool has_text)
{
    const struct pv_stats *st = &a->stats;
    struct figures f = figures_of(st);

    if (has_text) {
        buf_puts(b, "\"text\":");
        buf_json(b, a->text.data ? a->text.data : "", a->text.len);
        buf_puts(b, ",");
    }
    buf_puts(b, "\"ids\":");
    add_ids_json(b, a->ids, a->n_ids);
    buf_printf(b, ",\"finish_reason\":\"%s\",", a->finish);
    method_json(b, a->method, a->method->name);
    buf_printf(b,
               ",\"video_tokens\":%lld,\"draft_video_tokens\":%lld,"
               "\"reused_tokens\":%lld,\"prompt_tokens\":%lld,\"tokens\":%lld,\"passes\":%lld,"
               "\"proposed\":%lld,\"accepted_per_pass\":%.4g,\"tokens_per_pass\":%.4g,"
               "\"mean_run\":%.4g,\"acceptance\":%.4g,\"draft_rows\":%lld,\"draft_slots\":%lld",
               (long long)st->video_tokens, (long long)st->draft_video_tokens,
               (long long)st->reused_tokens, (long long)st->prompt_tokens, (long long)st->tokens,
               (long long)st->passes, (long long)st->proposed, accepted_per_pass(&f),
               tokens_per_pass(&f), mean_run(&f), acceptance(&f), (long long)st->draft_rows,
               (long long)st->draft_slots);
    buf_printf(b,
               ",\"seconds\":{\"video\":%.6f,\"vision\":%.6f,\"prefill\":%.6f,\"view\":%.6f,"
               "\"draft_prefill\":%.6f,\"draft\":%.6f,\"verify\":%.6f,\"decode\":%.6f,"
               "\"total\":%.6f},\"tokens_per_second\":%.4g,\"peak_bytes\":%llu",
               st->video_s, st->vision_s, st->prefill_s, st->view_s, st->draft_prefill_s,
               st->draft_s, st->verify_s, st->decode_s, a->total, tokens_per_second(&f),
               (unsigned long long)st->peak_bytes);
    if (st->parallel_rounds > 0) {
        buf_puts(b, ",");
        parallel_json(b, &f, 1);
    }
    if (method_prunes_model(a->method))
        buf_printf(b, ",\"video_kept\":%.4g", st->video_kept);
}

void answer_ids(struct buf *b, const struct answer *a)
{
    for (size_t i = 0; i < a->n_ids; i++)
        buf_printf(b, "%s%d", i ? " " : "", (int)a->ids[i]);
    buf_puts(b, "\n");
}

/* The ending of a noun after a number, padded so that columns stay where they are. */
static const char *plural(long long n)
{
    return n == 1 ? " " : "s";
}

static void print_speculation(const struct answer *a, const struct figures *f)
{
    const struct pv_stats *st = &a->stats;
    fprintf(stderr,
            "draft   %6lld token%s in %8.3f s by %s; it saw %lld of %lld video tokens (view %s: "
            "%.3f s, prefill %.3f s)\n",
            (long long)st->proposed, plural(st->proposed), st->draft_s,
            drafter_name(a->method->drafter), (long long)st->draft_video_tokens,
            (long long)st->video_tokens, a->method->view, st->view_s, st->draft_prefill_s);
    fprintf(stderr,
            "verify  %6lld round%s in %8.3f s: %.2f tokens accepted a round, %.2f tokens a pass, "
            "mean run %.2f, acceptance %.1f %%\n",
            (long long)st->rounds, plural(st->rounds), st->verify_s, accepted_per_pass(f),
            tokens_per_pass(f), mean_run(f), 100 * acceptance(f));
    if (st->parallel_rounds > 0)
        fprintf(
            stderr,
            "at once %6lld round%s: window %d, %d of the threads draft, %lld tokens drafted during "
            "the prefill, %lld lost, longest run %lld, %.3f s waited for the drafter\n",
            (long long)st->parallel_rounds, st->parallel_rounds == 1 ? "" : "s", st->window,
            st->draft_threads, (long long)st->startup_tokens, (long long)st->wasted,
            (long long)st->longest_run, st->wait_s);
}

void answer_stats(const struct answer *a)
{
    const struct pv_stats *st = &a->stats;
    struct figures f = figures_of(st);
    int threads = a->model->threads ? a->model->threads : cpu_count();

    fputs("model   ", stderr);
    shown_puts(stderr, a->model->path);
    if (a->model->device)
        fprintf(stderr, " on %s", a->model->device);
    fprintf(stderr, ", %d thread%s\n", threads, threads == 1 ? "" : "s");
    if (st->frames)
        fprintf(stderr, "video   %6lld frame%s in %8.3f s (%.1f frames/s), %lld lost\n",
                (long long)st->frames, plural(st->frames), st->video_s,
                quotient((double)st->frames, st->video_s), (long long)st->lost_frames);
    if (st->vision_s > 0)
        fprintf(stderr, "vision  %6lld token%s in %8.3f s\n", (long long)st->video_tokens,
                plural(st->video_tokens), st->vision_s);
    fprintf(stderr, "prompt  %6lld token%s in %8.3f s (%.1f tokens/s), %lld reused\n",
            (long long)st->prompt_tokens, plural(st->prompt_tokens), st->prefill_s,
            quotient((double)(st->prompt_tokens - st->reused_tokens), st->prefill_s),
            (long long)st->reused_tokens);
    fprintf(stderr, "answer  %6lld token%s in %8.3f s (%.1f tokens/s), %lld pass%s, method %s\n",
            (long long)st->tokens, plural(st->tokens), st->decode_s, tokens_per_second(&f),
            (long long)st->passes, st->passes == 1 ? "" : "es", a->method->name);
    if (a->method->lossy && !method_prunes_model(a->method))
        fprintf(stderr, "LOSSY   %s: keys and values were rounded to 8 bits\n", a->method->lossy);
    if (method_prunes_model(a->method))
        fprintf(stderr,
                "LOSSY   %s: an answer token reads %.1f %% of the video's keys and values\n",
                a->method->lossy, 100 * st->video_kept);
    if (a->method->drafter != PV_DRAFT_NONE)
        print_speculation(a, &f);
    fprintf(stderr, "total   %15s %8.3f s, %.1f MiB held at most\n", "", a->total,
            (double)st->peak_bytes / (1 << 20));
}

int answer_exit(enum pv_status status, const struct pv_error *err)
{
    int written = finish_output();
    if (status && status != PV_E_CANCELLED)
        return report("%s", err->text);
    if (written)
        return written;
    return interrupted() ? interrupted() : status ? EXIT_FAILED : 0;
}
