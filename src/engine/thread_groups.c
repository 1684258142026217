/* A thread group is a device of which only the threads are used (device_ops.work_on): weights,
 * kernels and scratch memory stay where they are, so the threads of a session can be divided and
 * united between any two steps.
 *
 * The number of threads for the drafter is chosen once per session: from the measured times of a
 * drafted token and of a verification with several divisions, a formula predicts the speed of each.
 */
#include "engine/thread_groups.h"

#include "base/clock.h"
#include "base/mem.h"
#include "spec/pearl.h"

enum {
    TRIAL_SLOTS = KV_CHUNK,
    TRIAL_ROWS = 6,  /* rows of a verification */
    TRIAL_TIMES = 3, /* repetitions; the best counts */
    TRIAL_WINDOW = 16
};
static const double trial_acceptance = 0.8;

/* Measure the seconds of a step of n rows on `threads` threads, with an empty cache. */
static enum pv_status time_step(const struct pv_session *s, const struct decoder *dec, int threads,
                                int n, double *seconds, struct pv_error *err)
{
    enum dtype kv_dtype = s->engine->kv;
    struct device *dev = decoder_device(dec), *group = NULL;
    struct decoder_state *st = NULL;
    struct kvcache kv = { 0 };
    int32_t ids[TRIAL_ROWS] = { 0 }, pos[TRIAL_ROWS][3] = { { 0 } }, best;
    int last = n - 1;
    size_t hidden = (size_t)decoder_config(dec)->hidden, width = decoder_feature_width(dec);
    size_t size = (size_t)n * (width > hidden ? width : hidden) * sizeof(float);
    float *features = mem_zalloc(size); /* for a draft head */
    struct step_seq seq = { .kv = &kv, .n = n };
    struct step step = { .n = n,
                         .ids = ids,
                         .features = features,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = 1,
                         .logit_rows = &last,
                         .argmax = &best };
    enum pv_status status = features ? PV_OK : fail_nomem(err, size);
    if (!status)
        status = device_cpu_open(&group, threads, s->model->cpu, err);
    if (!status)
        status = kvcache_open(&kv, dev, decoder_config(dec), kv_dtype, TRIAL_SLOTS, err);
    if (!status)
        status = decoder_state_open(&st, dec, TRIAL_ROWS, 1, TRIAL_SLOTS, kv_dtype, err);
    if (!status)
        dev->ops->work_on(decoder_state_work(st), group);
    *seconds = 0;
    for (int i = 0; i < TRIAL_TIMES && !status; i++) {
        double t0 = clock_now();
        status = decoder_step(dec, st, &step, err);
        t0 = clock_now() - t0;
        *seconds = i == 0 || t0 < *seconds ? t0 : *seconds;
    }
    decoder_state_close(&st);
    kvcache_close(&kv);
    device_close(&group);
    mem_free(features);
    return status;
}

/* Measure which part of n threads the drafter should get: 1, 2, 4, ... up to a half. */
static enum pv_status measure_part(const struct pv_session *s, const struct decoder *draft, int n,
                                   int *part, struct pv_error *err)
{
    double best = 0;
    int found = 1;
    for (int d = 1; d <= n / 2; d *= 2) {
        double token_s, target_s[TRIAL_WINDOW + 1] = { 0 }, rate;
        enum pv_status st = time_step(s, draft, d, 1, &token_s, err);
        int window;
        if (!st)
            st = time_step(s, s->model->dec, n - d, TRIAL_ROWS, &target_s[TRIAL_ROWS], err);
        if (st)
            return st;
        window = pearl_window(trial_acceptance, token_s, target_s, TRIAL_WINDOW);
        rate = pearl_rate(trial_acceptance, window, token_s, target_s[TRIAL_ROWS]);
        if (rate > best) {
            best = rate;
            found = d;
        }
    }
    *part = found;
    return PV_OK;
}

static enum pv_status open_groups(struct pv_session *s, const int threads[2], struct pv_error *err)
{
    struct drafting *d = &s->draft;
    for (int i = 0; i < 2; i++) {
        enum pv_status st;
        if (d->group[i] && d->group_threads[i] == threads[i])
            continue;
        device_close(&d->group[i]);
        st = device_cpu_open(&d->group[i], threads[i], s->model->cpu, err);
        if (st)
            return st;
        d->group_threads[i] = threads[i];
    }
    return PV_OK;
}

/* t: the task; if it is cancelled, the tower's threads are left as they are. NULL: change them in
 * any case. */
static void assign_model(struct pv_session *s, struct device *group, struct task *t)
{
    decoder_device(s->model->dec)->ops->work_on(s->target.base.work, group);
    if (!s->engine->encoder || task_lock(t, s->model->step_lock, NULL)) /* held by its users */
        return;
    encoder_work_on(s->engine->encoder, group);
    pthread_mutex_unlock(s->model->step_lock);
}

static void assign_drafter(struct pv_session *s, enum drafter_decoder which, struct device *group)
{
    const struct decoder *dec = engine_decoder(s->engine, which);
    decoder_device(dec)->ops->work_on(decoder_state_work(s->draft.lone_state[which]), group);
    if (s->draft.encoder)
        encoder_work_on(s->draft.encoder, group);
    if (s->draft.adapted.state)
        vision_adaptor_state_work_on(s->draft.adapted.state, group);
}

/* Divides the threads of one CPU. */
static enum pv_status divide_threads(struct speculation *sp, const struct decoder *draft,
                                     struct pv_error *err)
{
    struct pv_session *s = sp->s;
    int all = s->model->threads, threads[2] = { all, sp->method.draft_threads };
    int *part = &s->draft.part[sp->method.drafter];
    enum pv_status st = PV_OK;
    if (threads[1] == 0) {
        if (*part == 0 && all > 2)
            st = measure_part(s, draft, all, part, err);
        threads[1] = *part > 0 ? *part : 1;
    }
    threads[1] = threads[1] < all ? threads[1] : all;
    threads[0] = all > threads[1] ? all - threads[1] : 1;
    if (!st)
        st = open_groups(s, threads, err);
    if (st)
        return st;
    s->answer.stats.draft_threads = threads[1];
    s->draft.divided_for = sp->kind->runs;
    assign_drafter(s, sp->kind->runs, s->draft.group[1]);
    return PV_OK;
}

enum pv_status thread_groups_divide(struct speculation *sp, struct pv_error *err)
{
    struct pv_session *s = sp->s;
    const struct decoder *draft = engine_decoder(s->engine, sp->kind->runs);
    bool one_device = draft && decoder_device(draft) == s->model->dev;
    enum pv_status st =
        drafting_part(&s->draft, &sp->method, one_device ? DRAFT_DIVIDED : DRAFT_BESIDE, err);
    /* On a GPU both run at the same time, on separate streams. */
    if (!st && one_device && s->model->gpu < 0)
        st = divide_threads(sp, draft, err);
    if (st)
        drafting_join(&s->draft, &sp->method);
    return st;
}

void thread_groups_make_room(struct pv_session *s)
{
    if (s->draft.place == DRAFT_DIVIDED)
        assign_model(s, s->draft.group[0], s->task);
}

void thread_groups_unite(struct speculation *sp)
{
    struct pv_session *s = sp->s;
    if (s->draft.place == DRAFT_DIVIDED && s->model->gpu < 0) {
        assign_model(s, NULL, NULL);
        assign_drafter(s, s->draft.divided_for, NULL);
    }
    drafting_join(&s->draft, &sp->method);
}
