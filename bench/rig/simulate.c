/* Methods of speculation, simulated: the steps of target and drafter are real. They run and are
 * timed in the order of each method, including trees and threads. Which drafted tokens are accepted
 * is drawn at random, at the rate that the method's paper reports, because models with random
 * weights agree on nothing.
 *
 * Rates are those at 25,088 video tokens (ParallelVLM's table, if it has the method): a mean number
 * of tokens per round, from which the rate a of a single token follows. In a chain or tree of depth
 * d, a round gives 1 + a + a^2 + ... + a^d tokens. In a parallel method there are a / (1 - a)
 * tokens between two rejections, so a round gives (1 - a^g) / ((1 - a) (1 + a - a^g)). The speed is
 * this mean divided by the time of a round, of which some tens are run. */
#include "gpu_rig.h"

#include "base/clock.h"
#include "base/rng.h"

#include <pthread.h>
#include <string.h>

enum {
    QUESTION = 64, /* tokens of text */
    SPARSE = 1024, /* slots that the drafter of `std` reads */
    LANE_ROOM = 1024,
    WARM_UP = 8, /* rounds */
    LANE_ROWS = 64,
    TREE_WIDTH = 4, /* most likely tokens per node in the tree of 25 */
    HEAD_WIDTH = 8, /* nodes per level of a draft head's tree */
    HEAD_LEVELS = 4,
    HEAD_ROWS = 25,   /* rows that are verified */
    LARGE_LAYERS = 48 /* with more layers, use the rates of a large pair */
};

enum kind { KIND_AR, KIND_CHAIN, KIND_TREE, KIND_HEAD, KIND_PARALLEL };
enum who { WHO_NONE, WHO_MODEL, WHO_SELF, WHO_HEAD, WHO_COUNT };
enum sees { SEES_ALL, SEES_TENTH, SEES_SPARSE, SEES_TEXT };

static const double pruned = 0.9;

/* What a paper reports for a small pair (LLaVA-OneVision 7B with 0.5B) and a large one (72B with
 * 7B): tokens drafted at a time, and the mean; `from` names the source of the rate. */
struct published {
    int gamma;
    double mean;
    const char *from;
};

struct method {
    const char *name;
    enum kind kind;
    enum who who;
    enum sees sees;
    struct published small, large;
};

static const char of_parallelvlm[] = "ParallelVLM table", of_self[] = "ParallelVLM table 7B/7B";
static const char of_sparrow[] = "Sparrow table 7B", of_hippo[] = "HIPPO table";
static const char as_sd[] = "rate of sd", as_parallelvlm[] = "rate of parallelvlm";

static const struct method methods[] = {
    { "ar", KIND_AR, WHO_NONE, SEES_ALL, { 0, 1, "" }, { 0, 1, "" } },
    { "sd",
      KIND_CHAIN,
      WHO_MODEL,
      SEES_ALL,
      { 5, 4.26, of_parallelvlm },
      { 5, 4.14, of_parallelvlm } },
    { "onsd",
      KIND_CHAIN,
      WHO_MODEL,
      SEES_TEXT,
      { 5, 3.73, of_parallelvlm },
      { 5, 3.67, of_parallelvlm } },
    { "sd-tree",
      KIND_TREE,
      WHO_MODEL,
      SEES_ALL,
      { 5, 5.08, of_parallelvlm },
      { 5, 4.64, of_parallelvlm } },
    { "specvlm",
      KIND_TREE,
      WHO_MODEL,
      SEES_TENTH,
      { 5, 4.89, of_parallelvlm },
      { 5, 4.51, of_parallelvlm } },
    { "self-sd", KIND_TREE, WHO_SELF, SEES_TENTH, { 5, 4.94, of_self }, { 5, 4.94, of_self } },
    { "std", KIND_CHAIN, WHO_SELF, SEES_SPARSE, { 9, 8.04, of_self }, { 9, 8.04, of_self } },
    { "msd", KIND_HEAD, WHO_HEAD, SEES_ALL, { 5, 2.69, of_sparrow }, { 5, 2.69, of_sparrow } },
    { "sparrow", KIND_HEAD, WHO_HEAD, SEES_TEXT, { 5, 3.88, of_sparrow }, { 5, 3.88, of_sparrow } },
    { "pearl", KIND_PARALLEL, WHO_MODEL, SEES_ALL, { 3, 0, as_sd }, { 7, 0, as_sd } },
    { "hippo",
      KIND_PARALLEL,
      WHO_MODEL,
      SEES_TENTH,
      { 3, 8.47, as_parallelvlm },
      { 7, 8.05, of_hippo } },
    { "parallelvlm",
      KIND_PARALLEL,
      WHO_MODEL,
      SEES_TENTH,
      { 3, 8.47, of_parallelvlm },
      { 9, 6.82, of_parallelvlm } },
};

enum { N_METHODS = sizeof methods / sizeof methods[0] };

/* ---- rates ---- */

/* Mean number of tokens per round of depth d. */
static double round_tokens(double a, int d)
{
    double sum = 1, power = 1;
    for (int i = 0; i < d; i++) {
        power *= a;
        sum += power;
    }
    return sum;
}

static double parallel_tokens(double a, int g)
{
    double power = round_tokens(a, g) - round_tokens(a, g - 1);
    return (1 - power) / ((1 - a) * (1 + a - power));
}

static double rate_of_round(double mean, int d)
{
    double low = 0, high = 1;
    for (int i = 0; i < 60; i++) {
        double mid = 0.5 * (low + high);
        if (round_tokens(mid, d) < mean)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static double rate_of(const struct method *m, bool large)
{
    const struct published *p = large ? &m->large : &m->small;
    if (m->kind == KIND_AR)
        return 0;
    if (m->kind == KIND_PARALLEL && p->mean == 0) /* pearl has the drafter of sd */
        return rate_of_round(large ? methods[1].large.mean : methods[1].small.mean, 5);
    if (m->kind == KIND_PARALLEL)
        return p->mean / (1 + p->mean);
    return rate_of_round(p->mean, p->gamma);
}

/* ---- state of a simulation ---- */

/* A second host thread that drafts while the target verifies. */
struct drafting {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool asked, ended; /* a round was requested; no more rounds will be */
    enum pv_status status;
    struct pv_error err;
};

struct stage {
    const struct plan *plan;
    struct rig *rig;
    struct lane target;
    struct lane draft;
    bool has_draft;
    const struct method *m;
    int gamma, context, parent[TREE25_ROWS], depth[TREE25_ROWS];
    double rate;
    uint64_t draws;
    struct drafting background;
    /* of one run */
    int lag; /* rows that the drafter has not processed yet */
    bool warming;
    int rounds, most; /* rounds so far, rounds in all */
    double draft_s, target_s, total_s;
};

/* How many of at most n consecutive tokens are accepted. During warm-up, each number in turn, since
 * the drafter's next step has as many rows. */
static int draw_accepted(struct stage *s, int n)
{
    int k = 0;
    if (s->warming)
        return n - s->rounds % (n + 1);
    while (k < n && rng_uniform(7, s->draws++, 0) < s->rate)
        k++;
    return k;
}

static enum pv_status chain_rows(struct lane *l, int n, int top, struct pv_error *err)
{
    struct lane_rows rows = { .n = n, .wanted = 1, .top = top };
    enum pv_status s = lane_step(l, &rows, err);
    if (!s)
        kvcache_advance(&l->kv, n);
    return s;
}

/* Draft g tokens in one step; its first rows are those that the drafter has not processed yet. */
static enum pv_status draft_chain(struct stage *s, int g, struct pv_error *err)
{
    struct lane_rows rows = { .n = s->lag, .wanted = 1, .chain = g - 1 };
    enum pv_status st = lane_step(&s->draft, &rows, err);
    if (!st)
        kvcache_advance(&s->draft.kv, s->lag + g - 1);
    return st;
}

/* Draft a tree in one step. */
static enum pv_status draft_at_once(struct stage *s, const struct step_tree *tree, int n_levels,
                                    struct pv_error *err)
{
    struct lane_rows rows = { .n = s->lag, .wanted = 1, .chain = n_levels, .tree = tree };
    enum pv_status st = lane_step(&s->draft, &rows, err);
    if (!st)
        kvcache_advance(&s->draft.kv, s->lag);
    return st;
}

static bool grows_ahead(const struct stage *s)
{
    return decoder_grows(s->draft.m->dec) && !s->plan->by_level;
}

/* Run the rows of one level after those of earlier levels. */
static enum pv_status draft_level(struct stage *s, int pending, int n, const int *parent,
                                  const int *depth, struct pv_error *err)
{
    struct lane_rows rows = { .n = n,
                              .wanted = n,
                              .parent = parent,
                              .depth = depth,
                              .pending = pending,
                              .top = s->m->kind == KIND_HEAD ? HEAD_WIDTH : TREE_WIDTH };
    return lane_step(&s->draft, &rows, err);
}

/* Draft the inner nodes of the tree of 25: levels of 4, 4, 1 and 1 rows. */
static enum pv_status draft_tree(struct stage *s, struct pv_error *err)
{
    static const int parent[10] = { -1, -1, -1, -1, 0, 0, 0, 1, 4, 8 };
    static const int depth[10] = { 0, 0, 0, 0, 1, 1, 1, 1, 2, 3 };
    static const int level[4] = { 4, 4, 1, 1 };
    static const int32_t pick[10] = { 0, 1, 2, 3, 4, 5, 6, 8, 20, 36 };
    static const struct step_tree tree = { .k = TREE_WIDTH, .level = { 4, 4, 1, 1 }, .pick = pick };
    enum pv_status st = PV_OK;
    if (grows_ahead(s))
        return draft_at_once(s, &tree, 4, err);
    st = chain_rows(&s->draft, s->lag, TREE_WIDTH, err);
    for (int i = 0, at = 0; i < 4 && !st; at += level[i++])
        st = draft_level(s, at, level[i], parent, depth, err);
    return st;
}

/* Draft a head's tree: all levels have the same width, and each hangs on the best nodes of the
 * level before. */
static enum pv_status draft_head(struct stage *s, struct pv_error *err)
{
    int parent[HEAD_LEVELS * HEAD_WIDTH], depth[HEAD_LEVELS * HEAD_WIDTH];
    struct step_tree tree = { .k = HEAD_WIDTH };
    enum pv_status st;
    for (int i = 0; i < HEAD_LEVELS; i++)
        tree.level[i] = HEAD_WIDTH;
    if (grows_ahead(s))
        return draft_at_once(s, &tree, HEAD_LEVELS, err);
    st = chain_rows(&s->draft, s->lag, HEAD_WIDTH, err);
    for (int i = 0; i < HEAD_LEVELS * HEAD_WIDTH; i++) {
        depth[i] = i / HEAD_WIDTH;
        parent[i] = depth[i] ? (depth[i] - 1) * HEAD_WIDTH + i % HEAD_WIDTH / 2 : -1;
    }
    for (int i = 0; i < HEAD_LEVELS && !st; i++)
        st = draft_level(s, i * HEAD_WIDTH, HEAD_WIDTH, parent, depth, err);
    return st;
}

static enum pv_status verify_chain(struct stage *s, int n, struct pv_error *err)
{
    struct lane_rows rows = { .n = n, .wanted = n };
    return lane_step(&s->target, &rows, err);
}

static enum pv_status verify_tree(struct stage *s, int n, struct pv_error *err)
{
    struct lane_rows rows = { .n = n, .wanted = n, .parent = s->parent, .depth = s->depth };
    return lane_step(&s->target, &rows, err);
}

/* ---- serial methods ---- */

static enum pv_status round_ar(struct stage *s, struct pv_error *err)
{
    double start = clock_now();
    enum pv_status st = chain_rows(&s->target, 1, 0, err);
    s->target_s += clock_now() - start;
    return st;
}

static enum pv_status round_chain(struct stage *s, struct pv_error *err)
{
    int g = s->gamma, begin = s->draft.kv.len + s->lag, k;
    double start = clock_now(), middle;
    enum pv_status st = draft_chain(s, g, err);
    middle = clock_now();
    if (!st)
        st = verify_chain(s, g + 1, err);
    s->draft_s += middle - start;
    s->target_s += clock_now() - middle;
    if (st)
        return st;
    k = draw_accepted(s, g);
    kvcache_advance(&s->target.kv, k + 1);
    kvcache_truncate(&s->draft.kv, begin + (k < g ? k : g - 1));
    s->lag = k < g ? 1 : 2;
    return PV_OK;
}

static enum pv_status round_tree(struct stage *s, struct pv_error *err)
{
    static const int path[6] = { 0, 1, 5, 13, 21, 24 };
    bool head = s->m->kind == KIND_HEAD;
    double start = clock_now(), middle;
    enum pv_status st = head ? draft_head(s, err) : draft_tree(s, err);
    int k;
    middle = clock_now();
    if (!st)
        st = verify_tree(s, head ? HEAD_ROWS : TREE25_ROWS, err);
    if (st)
        return st;
    k = draw_accepted(s, 5);
    kvcache_gather(&s->target.kv, decoder_state_work(s->target.state), path, k + 1);
    s->draft_s += middle - start;
    s->target_s += clock_now() - middle;
    s->lag = k + 1; /* the drafter keeps nothing of its tree */
    return PV_OK;
}

/* ---- parallel methods ---- */

static void *draft_rounds(void *user)
{
    struct stage *s = user;
    struct drafting *d = &s->background;
    pthread_mutex_lock(&d->lock);
    while (!d->ended) {
        if (!d->asked) {
            pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        double start = clock_now();
        enum pv_status st = draft_chain(s, s->gamma, &d->err);
        s->draft_s += clock_now() - start;
        pthread_mutex_lock(&d->lock);
        d->status = st;
        d->asked = false;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void ask_draft(struct drafting *d)
{
    pthread_mutex_lock(&d->lock);
    d->asked = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static enum pv_status await_draft(struct drafting *d, struct pv_error *err)
{
    pthread_mutex_lock(&d->lock);
    while (d->asked)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
    return d->status ? fail(err, d->status, "%s", d->err.text) : PV_OK;
}

/* A round of PEARL. If nothing is pending, the target verifies one row, which tells whether the
 * first drafted token is right. Otherwise it verifies the pending window while the drafter makes
 * the next one. */
static enum pv_status round_parallel(struct stage *s, bool *pending, struct pv_error *err)
{
    int g = s->gamma, rows = *pending ? g : 1, k, drafted = s->draft.kv.len;
    double start = clock_now();
    enum pv_status st, ours;
    s->lag = 1;
    ask_draft(&s->background);
    ours = verify_chain(s, rows, err);
    s->target_s += clock_now() - start;
    st = await_draft(&s->background, err);
    if (ours || st)
        return ours ? ours : st;
    k = draw_accepted(s, rows);
    if (k == rows) { /* what was drafted becomes pending */
        kvcache_advance(&s->target.kv, rows);
        *pending = true;
        return PV_OK;
    }
    kvcache_advance(&s->target.kv, k + 1 < rows ? k + 1 : rows);
    kvcache_truncate(&s->draft.kv, *pending ? drafted - g + k + 2 : drafted + 1);
    *pending = false;
    return PV_OK;
}

static enum pv_status run_parallel(struct stage *s, struct pv_error *err)
{
    struct drafting *d = &s->background;
    bool pending = false, started;
    enum pv_status st = PV_OK;
    *d = (struct drafting){ .asked = false };
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    started = pthread_create(&d->thread, NULL, draft_rounds, s) == 0;
    if (!started)
        st = fail(err, PV_E_NOMEM, "no thread to draft on");
    for (; !st && s->rounds < s->most; s->rounds++)
        st = round_parallel(s, &pending, err);
    pthread_mutex_lock(&d->lock);
    d->ended = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (started)
        pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    return st;
}

/* ---- runs ---- */

static enum pv_status run_serial(struct stage *s, struct pv_error *err)
{
    enum pv_status st = PV_OK;
    for (; !st && s->rounds < s->most; s->rounds++) {
        if (s->m->kind == KIND_AR)
            st = round_ar(s, err);
        else if (s->m->kind == KIND_CHAIN)
            st = round_chain(s, err);
        else
            st = round_tree(s, err);
    }
    return st;
}

static int draft_context(const struct stage *s)
{
    int video = s->context - QUESTION;
    switch (s->m->sees) {
    case SEES_TENTH:
        return QUESTION + (int)((1 - pruned) * video + 1e-9);
    case SEES_SPARSE:
        return s->context < SPARSE ? s->context : SPARSE;
    case SEES_TEXT:
        return QUESTION;
    default:
        return s->context;
    }
}

/* First runs some rounds without measuring, because a device may record steps when they first
 * repeat. */
static enum pv_status run_method(struct stage *s, struct pv_error *err)
{
    enum pv_status st = PV_OK;
    for (int i = 0; i < 2 && !st; i++) {
        double start = clock_now();
        s->warming = i == 0;
        s->most = s->warming ? WARM_UP : s->plan->rounds;
        s->lag = 1;
        s->rounds = 0;
        s->draft_s = s->target_s = 0;
        s->draws = 0;
        lane_at(&s->target, s->context);
        if (s->has_draft)
            lane_at(&s->draft, draft_context(s));
        st = s->m->kind == KIND_PARALLEL ? run_parallel(s, err) : run_serial(s, err);
        s->total_s = clock_now() - start;
    }
    return st;
}

/* Milliseconds per token, at the published rate. */
static double token_ms(const struct stage *s)
{
    double tokens = 1;
    if (s->m->kind == KIND_PARALLEL)
        tokens = parallel_tokens(s->rate, s->gamma);
    else if (s->m->kind != KIND_AR)
        tokens = round_tokens(s->rate, s->gamma);
    return 1e3 * s->total_s / s->rounds / tokens;
}

static void print_method(const struct stage *s, bool large, double ar_ms, double peer_ms)
{
    const struct published *p = large ? &s->m->large : &s->m->small;
    double ms = token_ms(s), round = 1e3 * s->total_s / s->rounds;
    char note[160], test[32], seen[16] = "-", peer[16] = "-";
    if (s->has_draft)
        snprintf(seen, sizeof seen, "%d", draft_context(s));
    if (peer_ms > 0)
        snprintf(peer, sizeof peer, "%.2f", peer_ms / ms);
    printf("%-12s %7s %5d %6.3f %9.2f %9.3f %9.3f %9.3f %9.1f %7.2f %7s %6.1f  %s\n", s->m->name,
           seen, s->gamma, s->rate, round / ms, round, 1e3 * s->draft_s / s->rounds,
           1e3 * s->target_s / s->rounds, 1e3 / ms, ar_ms / ms, peer,
           1e-9 * (double)rig_used(s->rig), p->from);
    fflush(stdout);
    snprintf(test, sizeof test, "simulated %s", s->m->name);
    snprintf(note, sizeof note,
             "SIMULATED acceptance %.3f a token (%s); drafter %s sees %s; %.2f times ar", s->rate,
             p->from, s->has_draft ? s->draft.m->shape : "none", seen, ar_ms / ms);
    results_csv(s->rig->results, &(struct result){ .model = s->target.m->shape,
                                                   .type = s->target.m->type,
                                                   .test = test,
                                                   .context = s->context,
                                                   .rows = s->gamma,
                                                   .samples = s->rounds,
                                                   .ms = ms,
                                                   .best_ms = ms,
                                                   .tokens = 1,
                                                   .memory = rig_used(s->rig),
                                                   .note = note });
}

static bool method_wanted(const struct plan *p, const char *name)
{
    size_t len = strlen(name);
    if (!p->methods || !strcmp(name, "ar"))
        return true;
    for (const char *at = p->methods; *at; at += strcspn(at, ",")) {
        at += *at == ',';
        if (!strncmp(at, name, len) && (at[len] == ',' || !at[len]))
            return true;
    }
    return false;
}

static void print_head(const struct stage *s, const struct rig_model *draft)
{
    const struct rig_model *t = s->target.m;
    printf("\nSIMULATED ACCEPTANCE: %s:%s with %s:%s, %d tokens of context, %d rounds each.\n"
           "Steps are real and timed; what is accepted is drawn at random at the papers' rates.\n",
           t->shape, t->type, draft->shape, draft->type, s->context, s->plan->rounds);
    printf("%-12s %7s %5s %6s %9s %9s %9s %9s %9s %7s %7s %6s  %s\n", "method", "sees", "gamma",
           "rate", "tok/round", "ms/round", "drafting", "verifying", "tokens/s", "x ar", "x hf",
           "GB", "rate from");
}

/* Simulate one method: opens its drafter's lane, runs it, prints its line. */
static enum pv_status simulate_method(struct stage *s, const struct method *m,
                                      const struct rig_model *who, bool large, double *ar_ms,
                                      double peer_ms, struct pv_error *err)
{
    bool chain = m->kind == KIND_CHAIN || m->kind == KIND_PARALLEL;
    int gamma = large ? m->large.gamma : m->small.gamma;
    enum pv_status st = PV_OK;
    s->m = m;
    s->gamma = s->plan->gamma && chain ? s->plan->gamma : gamma;
    s->rate = rate_of(m, large);
    s->has_draft = who != NULL;
    if (who)
        st = lane_open(&s->draft, who, draft_context(s) + LANE_ROOM, LANE_ROWS, LANE_ROWS, err);
    if (st)
        return st;
    st = run_method(s, err);
    if (!st && m->kind == KIND_AR)
        *ar_ms = token_ms(s);
    if (!st)
        print_method(s, large, *ar_ms, peer_ms);
    if (who)
        lane_close(&s->draft);
    return st;
}

enum pv_status test_simulate(struct rig *r, const struct rig_model *target,
                             const struct rig_model *draft, const struct rig_model *head,
                             const struct plan *p, struct pv_error *err)
{
    const struct config *c = model_file_config(target->mf);
    const struct rig_model *models[WHO_COUNT] = { NULL, draft, target, head };
    bool large = c->n_layers > LARGE_LAYERS;
    struct stage s = { .plan = p, .rig = r, .context = p->prefill + QUESTION };
    struct result same = {
        .model = target->shape, .test = "decode", .context = p->prefill, .rows = 1
    };
    double ar_ms = 0, peer_ms = results_peer(r->results, &same);
    enum pv_status st =
        lane_open(&s.target, target, s.context + LANE_ROOM, LANE_ROWS, LANE_ROWS, err);
    if (st)
        return st;
    tree25(s.parent, s.depth);
    print_head(&s, draft);
    for (int i = 0; i < N_METHODS && !st; i++)
        if (method_wanted(p, methods[i].name))
            st = simulate_method(&s, &methods[i], models[methods[i].who], large, &ar_ms, peer_ms,
                                 err);
    lane_close(&s.target);
    return st;
}
