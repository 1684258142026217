/* Generation: after the prefill tokens are appended one step, or one round of speculation, at a
 * time. */
#include "engine/generate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/sized.h"
#include "engine/lossy_run.h"
#include "engine/media_rows.h"
#include "engine/prefill.h"
#include "engine/speculate.h"
#include "format/tensor_check.h"
#include "spec/lossy.h"
#include "spec/method_rules.h"

#include <string.h>

void pv_gen_params_init(struct pv_gen_params *p, size_t size)
{
    static const struct pv_gen_params usual = { .max_new_tokens = 256, .top_p = 1 };
    sized_init(p, size, &usual, sizeof usual);
}

enum pv_status generate_read(struct pv_gen_params *own, struct pv_method *method,
                             const struct pv_gen_params *theirs, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    *own = pv_gen_defaults();
    if (theirs)
        s = sized_read(own, sizeof *own, theirs, "an answer", err);
    if (s || !own->method)
        return s;
    s = method_read(method, own->method, err);
    own->method = method;
    return s;
}

static bool is_stop(const struct pv_session *s, int32_t id)
{
    const struct config *c = decoder_config(s->model->dec);
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] == id)
            return true;
    return false;
}

/* The receiver of the answer's tokens, and whether the answer has ended. */
struct answer_output {
    const struct pv_gen_params *p;
    answer_fn *on_token;
    void *user;
    bool new_pass; /* the model's last pass has given no token of the answer yet */
    bool ended;
};

/* Emit a token of the answer with the text that it completes; id -1: the text that is still held
 * back. */
static enum pv_status emit(struct pv_session *s, const struct answer_output *out, int32_t id,
                           bool drafted, struct pv_error *err)
{
    struct answer_token token = { .id = id, .drafted = drafted };
    token.text = dialogue_text(s->dialogue, id, id < 0, &token.len);
    if (!token.text)
        return fail(err, PV_E_NOMEM, "out of memory for the text of token %d", s->answer.n);
    if (out->on_token && (id >= 0 || token.len > 0) && !out->on_token(out->user, &token))
        return fail(err, PV_E_CANCELLED, "generation was cancelled after %d tokens", s->answer.n);
    return PV_OK;
}

/* Process the next token of the answer: a stop token ends it, any other is appended and emitted.
 * A pass is counted by the first token that it gives: the one that gives a stop token alone is not.
 * `drafted`: a drafter had proposed it. */
static enum pv_status append_token(struct pv_session *s, struct answer_output *out, int32_t id,
                                   bool drafted, struct pv_error *err)
{
    enum pv_status st;
    out->ended = !out->p->ignore_stop && is_stop(s, id);
    if (out->ended)
        return PV_OK;
    timeline_push(&s->seq.line, id);
    s->answer.n++;
    s->answer.stats.tokens++;
    s->answer.stats.passes += out->new_pass;
    out->new_pass = false;
    task_count_tokens(s->task, 1);
    st = emit(s, out, id, drafted, err);
    out->ended = s->answer.n >= out->p->max_new_tokens;
    if (st || out->ended)
        return st;
    if (s->seq.line.n >= s->seq.line.context)
        return fail(err, PV_E_LIMIT,
                    "the context of %d tokens is full after %d tokens of "
                    "answer",
                    s->seq.line.context, s->answer.n);
    return PV_OK;
}

/* Choose the token after the last row of a plain decoding step. */
static int32_t choose(struct pv_session *s)
{
    if (s->answer.want != WANT_LOGITS)
        return s->answer.top;
    if (s->observer.show)
        s->observer.show(s->observer.user, s->answer.n, s->answer.logits);
    return sample_token(s->answer.logits, s->answer.vocab, &s->answer.how, (uint64_t)s->seq.line.n,
                        s->answer.candidates);
}

/* Plain decoding; lossy NULL: with the whole model. */
static enum pv_status decode(struct pv_session *s, struct answer_output *out,
                             struct lossy_run *lossy, struct pv_error *err)
{
    for (;;) {
        double t0;
        enum pv_status st = append_token(s, out, choose(s), false, err);
        if (st || out->ended)
            return st;
        t0 = clock_now();
        st = lossy ? lossy_token(lossy, s->answer.want, err)
                   : prefill_token(s, out->p, s->answer.want, err);
        if (st)
            return st;
        trace_add(&s->answer.trace, PV_SIDE_MODEL, "decode", t0, 1);
        out->new_pass = true;
    }
}

/* Speculative decoding: rounds instead of single steps. As in plain decoding, the last emitted
 * token is not in the cache unless a stop token followed it. */
static enum pv_status decode_rounds(struct pv_session *s, struct answer_output *out,
                                    struct speculation *sp, struct pv_error *err)
{
    struct round r;
    enum pv_status st = append_token(s, out, choose(s), false, err);
    while (!st && !out->ended) {
        int row = 1;
        st = speculation_round(sp, &r, err);
        if (st)
            break;
        out->new_pass = true;
        for (; row < r.verdict.n && !st && !out->ended; row++)
            st = append_token(s, out, r.tree.id[r.verdict.path[row]], true, err);
        if (st || out->ended) {
            int emitted =
                s->seq.line.n - s->seq.kv.len; /* rows of this round, and the last token */
            bool stopped = !st && s->answer.n < out->p->max_new_tokens;
            round_commit(s, &r, stopped ? emitted : emitted - 1);
            s->answer.stats.accepted -= r.verdict.n - emitted; /* accepted, but not emitted */
            break;
        }
        round_commit(s, &r, r.verdict.n);
        st = append_token(s, out, r.verdict.next, false, err);
    }
    return st;
}

/* End the answer as the chat template does, so that another message can follow. If there is no room
 * for that, the timeline is full, which the next call reports. */
static void end_answer(struct pv_session *s)
{
    struct id_span span = { 0 };
    if (dialogue_end(s->dialogue, &span, NULL) == PV_OK)
        pv_add_ids(s, span.ids, span.n, NULL);
}

static enum pv_status check_params(const struct pv_session *s, const struct pv_gen_params *p,
                                   struct pv_error *err)
{
    struct sampling how = answer_sampling(p);
    if (p->max_new_tokens < 1)
        return fail(err, PV_E_ARG, "%d new tokens were asked for, at least 1 is possible",
                    p->max_new_tokens);
    if (p->method && p->method->lossy && !lossy_prunes(p->method->lossy) &&
        s->engine->kv != DTYPE_F8)
        return fail(err, PV_E_ARG,
                    "method.lossy is \"" PV_LOSSY_KV_FP8 "\", but the KV cache is %s: open the "
                    "engine with kv_type PV_KV_FP8",
                    dtype_name(s->engine->kv));
    if (s->n_pending > 0)
        return fail(err, PV_E_ARG, "a video or picture was added without the text of its message");
    if (s->seq.line.n == 0)
        return fail(err, PV_E_ARG, "the prompt is empty");
    if (s->seq.line.n >= s->seq.line.context)
        return fail(err, PV_E_LIMIT, "a prompt of %d tokens leaves no room in a context of %d",
                    s->seq.line.n, s->seq.line.context);
    return sampling_check(&how, err);
}

/* Append what the template puts before an answer. If there is no room, the timeline is unchanged.
 */
enum pv_status generate_ask(struct pv_session *s, const struct pv_gen_params *p,
                            struct pv_error *err)
{
    struct id_span span = { 0 };
    struct timeline_mark mark = timeline_mark(&s->seq.line);
    enum pv_status st = dialogue_ask(s->dialogue, &span, err);
    if (!st)
        st = pv_add_ids(s, span.ids, span.n, err);
    if (!st)
        st = check_params(s, p, err);
    if (st) {
        timeline_return(&s->seq.line, mark);
        s->messages = true;
    }
    return st;
}

static void begin_answer(struct pv_session *s, const struct pv_gen_params *p, double t0)
{
    struct pv_stats *stats = &s->answer.stats;
    answer_begin(&s->answer, p, s->model->gpu >= 0, s->observer.show != NULL, t0);
    stats->frames = s->frames;
    stats->lost_frames = s->lost_frames;
    stats->video_s = s->video_s;
    stats->video_tokens = s->seq.line.n_video_rows;
    s->seq.answer0 = s->seq.line.n;
}

/* Prefill everything up to the prompt's last row; sets *lossy if the method is lossy. */
static enum pv_status read_prompt(struct speculation *sp, struct lossy_run **lossy,
                                  struct pv_error *err)
{
    struct pv_session *s = sp->s;
    enum pv_status st = speculation_start(sp, err);
    if (st || !sp->p->method || !lossy_prunes(sp->p->method->lossy))
        return st ? st : speculation_prefill(sp, s->answer.want, err);
    st = lossy_open(lossy, s, sp->p, err);
    return st ? st : lossy_prefill(*lossy, s->answer.want, err);
}

static enum pv_status make_answer(struct pv_session *s, const struct pv_gen_params *p,
                                  answer_fn *on_token, void *user, struct pv_error *err)
{
    bool dialogue = s->messages;
    struct timeline_mark before = timeline_mark(&s->seq.line);
    enum pv_status st = check_params(s, p, err);
    double t0 = clock_now(), t1, t2;
    struct pv_stats *stats = &s->answer.stats;
    struct answer_output output = { .p = p, .on_token = on_token, .user = user, .new_pass = true };
    struct speculation sp;
    struct lossy_run *lossy = NULL;
    if (!st && dialogue)
        st = generate_ask(s, p, err);
    if (st)
        return st;
    begin_answer(s, p, t0);
    st = speculation_open(&sp, s, p, err);
    if (!st)
        st = read_prompt(&sp, &lossy, err);
    t1 = clock_now();
    stats->vision_s += session_take_tower(s);
    stats->prefill_s = t1 - t0 - stats->vision_s - stats->view_s;
    if (!st)
        st = speculation_begin(&sp, err);
    t2 = clock_now();
    if (st) { /* restore the state before the call, so that it can be repeated */
        lossy_close(&lossy);
        speculation_close(&sp);
        timeline_return(&s->seq.line, before);
        s->seq.answer0 = s->seq.line.n;
        s->messages = dialogue;
        return st;
    }
    s->frames = s->lost_frames = 0;
    s->video_s = 0;
    st = sp.phase != DRAFT_OFF ? decode_rounds(s, &output, &sp, err)
                               : decode(s, &output, lossy, err);
    lossy_close(&lossy);
    speculation_close(&sp);
    if (st == PV_E_CANCELLED) {
        size_t dropped; /* drop an incomplete character */
        dialogue_text(s->dialogue, 0, true, &dropped);
    } else {
        enum pv_status held = emit(s, &output, -1, false, err);
        st = st ? st : held;
    }
    stats->decode_s = clock_now() - t2 - sp.wake_s;
    if (dialogue)
        end_answer(s);
    s->message0 = s->seq.line.n;
    return st;
}

/* Numbers of a step were not finite: find out whether the weights are the cause. */
static enum pv_status blame_weights(const struct pv_session *s, struct pv_error *err)
{
    const struct pv_model *draft = s->engine->draft;
    enum pv_status st = model_file_check(s->model->file, err);
    if (!st && draft)
        st = model_file_check(draft->file, err);
    return st ? st
              : fail(err, PV_E_FORMAT,
                     "%s: %s, though all weights are: they are too large for this computation",
                     model_file_path(s->model->file), DEVICE_NOT_FINITE);
}

enum pv_status generate_answer(struct pv_session *s, const struct pv_gen_params *p,
                               answer_fn *on_token, void *user, struct pv_error *err)
{
    struct pv_error why = { 0 };
    enum pv_status st = make_answer(s, p, on_token, user, &why);
    if (st == PV_E_NOT_FINITE)
        return blame_weights(s, err);
    return st ? fail(err, st, "%s", why.text) : PV_OK;
}

/* One answer as a task of the engine. */
struct generate_call {
    struct pv_session *s;
    const struct pv_gen_params *p;
    pv_text_fn on_text;
    void *user;
};

static bool tell_text(void *user, const struct answer_token *t)
{
    struct generate_call *c = user;
    return c->on_text(c->user, t->text, t->len);
}

static enum pv_status generate_task(void *arg, struct pv_error *err)
{
    struct generate_call *c = arg;
    return generate_answer(c->s, c->p, c->on_text ? tell_text : NULL, c, err);
}

enum pv_status pv_generate(pv_session *s, const struct pv_gen_params *p, pv_text_fn on_text,
                           void *user, struct pv_error *err)
{
    struct logits_observer kept = s->observer;
    struct pv_gen_params own;
    struct pv_method method;
    struct generate_call call = { s, &own, on_text, user };
    enum pv_status st = generate_read(&own, &method, p, err);
    if (st)
        return st;
    if (own.on_logits)
        s->observer = (struct logits_observer){ own.on_logits, own.logits_user };
    st = session_run(s, generate_task, &call, err);
    s->observer = kept;
    return st;
}

const int32_t *pv_session_answer(const pv_session *s, size_t *n)
{
    *n = (size_t)s->answer.n;
    return s->seq.line.ids + s->seq.answer0;
}

const struct pv_span *pv_session_spans(const pv_session *s, size_t *n)
{
    *n = s->answer.trace.n;
    return s->answer.trace.span;
}

void pv_session_stats(const pv_session *s, struct pv_stats *out)
{
    struct pv_stats own = s->answer.stats;
    own.peak_bytes = mem_peak();
    sized_write(out, &own, sizeof own);
}
