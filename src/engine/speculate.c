/* The serial schedule, and what comes before it. The target's prefill gives the attention of the
 * question to the video; the view chooses from it what the drafter sees; then drafter and target
 * take turns. A round writes the whole tree behind the target's cache and commits nothing:
 * generate.c commits the rows whose tokens it emits. */
#include "engine/generate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

enum { SIMULATE_SEED = 0x73696d };
/* Tokens of an answer before `auto` wakes the drafter: a word or two are told sooner without. */
enum { AUTO_PATIENCE = 4 };
enum { MAX_WIDTH = 16 };      /* of a dynamic tree: what drafter_model.c grows */
enum { DEFAULT_KEEP = 1024 }; /* entries of a layer that `sparse` reads, as published */
enum { DEFAULT_WINDOW = 5, DEFAULT_TOTAL = 30, DEFAULT_DEPTH = 3, DEFAULT_WIDTH = 8 };

/* ---- the method ---- */

static bool is_llava(const struct pv_session *s)
{
    return s->model->vision && vision_config(s->model->vision)->kind == VISION_LLAVA;
}

static void fill_defaults(struct pv_method *m, const struct pv_session *s)
{
    if (m->window == 0)
        m->window = DEFAULT_WINDOW;
    if (m->total == 0)
        m->total = DEFAULT_TOTAL;
    if (m->depth == 0)
        m->depth = DEFAULT_DEPTH;
    if (m->width == 0)
        m->width = DEFAULT_WIDTH;
    if (m->keep == 0)
        m->keep = DEFAULT_KEEP;
    if (m->lambda == 0)
        m->lambda = is_llava(s) ? 0.4 : 0.5;
    if (m->positions == PV_POS_AUTO)
        m->positions = is_llava(s) ? PV_POS_COMPACT : PV_POS_ORIGINAL;
}

static enum pv_status choose_shape(struct shape *out, const struct pv_method *m,
                                   struct pv_error *err)
{
    switch (m->shape) {
    case PV_SHAPE_CHAIN:
        return shape_chain(out, m->window, err);
    case PV_SHAPE_DYNAMIC:
        return shape_dynamic(out, m->total, m->depth, m->width, err);
    case PV_SHAPE_TREE:
        if (m->tree_file)
            return shape_read(out, m->tree_file, err);
        shape_static25(out);
        return PV_OK;
    default:
        return fail(err, PV_E_ARG, "shape %d is not one that there is", (int)m->shape);
    }
}

static enum pv_status check_method(const struct pv_method *m, bool drawn, struct pv_error *err)
{
    if ((unsigned)m->drafter > PV_DRAFT_ORACLE)
        return fail(err, PV_E_ARG, "drafter %d is not one that there is", (int)m->drafter);
    if ((unsigned)m->accept > PV_ACCEPT_REJECTION)
        return fail(err, PV_E_ARG, "rule %d of acceptance is not one that there is",
                    (int)m->accept);
    if (m->simulate > 0 && drawn)
        return fail(err, PV_E_ARG, "simulated acceptance goes with temperature 0 only");
    if (!(m->ratio >= 0 && m->ratio <= 1))
        return fail(err, PV_E_ARG, "a pruning ratio of %g is not between 0 and 1", m->ratio);
    if (!(m->lambda >= 0 && m->lambda <= 1))
        return fail(err, PV_E_ARG, "a share of attention (lambda) of %g is not between 0 and 1",
                    m->lambda);
    if (m->shape == PV_SHAPE_DYNAMIC && m->width > MAX_WIDTH)
        return fail(err, PV_E_ARG, "a dynamic tree of width %d was asked for, 1 to %d are possible",
                    m->width, MAX_WIDTH);
    if (m->accept == PV_ACCEPT_REJECTION && m->shape == PV_SHAPE_CHAIN &&
        m->drafter != PV_DRAFT_MODEL && m->drafter != PV_DRAFT_SELF &&
        m->drafter != PV_DRAFT_SPARSE)
        return fail(err, PV_E_ARG,
                    "rejection of a chain needs a drafter with probabilities: a model, self or "
                    "sparse");
    return PV_OK;
}

/* Rows of videos, and the first row whose attention to them counts: of the last message, and after
 * the last video. */
static void list_video_rows(struct speculation *sp, struct pv_session *s)
{
    struct draft_side *d = &s->draft;
    int last = -1;
    d->n_rows = 0;
    for (int k = 0; k < s->line.n_spans; k++) {
        const struct media_span *span = &s->line.span[k];
        const struct media *m = &s->line.media[span->medium].m;
        last = span->row0 + m->n_rows - 1;
        for (int i = 0; m->video && i < m->n_units * m->unit_rows; i++)
            d->rows[d->n_rows++] = span->row0 + i;
    }
    sp->query0 = last + 1 > s->message0 ? last + 1 : s->message0;
    if (sp->query0 >= s->line.n)
        sp->query0 = s->line.n - 1;
}

static enum pv_status reserve_scores(struct speculation *sp, struct pv_session *s,
                                     struct pv_error *err)
{
    struct draft_side *d = &s->draft;
    size_t layers = (size_t)decoder_config(s->model->dec)->n_layers;
    size_t need = 2 * layers * (size_t)d->n_rows;
    memset(d->scores, 0, (size_t)d->n_rows * sizeof *d->scores);
    if (!sp->by_layer || need == 0)
        return PV_OK;
    if (need > d->n_layer_scores) {
        mem_free(d->layer_scores);
        d->n_layer_scores = 0;
        d->layer_scores = mem_alloc(need * sizeof *d->layer_scores);
        if (!d->layer_scores)
            return fail_nomem(err, need * sizeof *d->layer_scores);
        d->n_layer_scores = need;
    }
    memset(d->layer_scores, 0, need * sizeof *d->layer_scores);
    return PV_OK;
}

/* What the session's limit of memory leaves for rows of media. */
static uint64_t room_for_features(const struct pv_session *s)
{
    size_t hidden = (size_t)decoder_config(s->model->dec)->hidden;
    uint64_t used = s->fixed_bytes + timeline_media_size(&s->line);
    for (int i = 0; i < s->draft.n_features; i++)
        used += (uint64_t)s->draft.features[i].n_rows * (hidden * sizeof(float) + sizeof(bool));
    return used < s->model->limits.memory_bytes ? s->model->limits.memory_bytes - used : 0;
}

/* Room to draw tokens from a whole tree. */
static enum pv_status reserve_drawing(struct pv_session *s, bool rejection, struct pv_error *err)
{
    size_t vocab = (size_t)pv_model_vocab_size(s->model), n = TREE_MAX * vocab;
    if (!s->tree_logits)
        s->tree_logits = mem_alloc(n * sizeof *s->tree_logits);
    if (rejection && !s->draft_q)
        s->draft_q = mem_zalloc(n * sizeof *s->draft_q);
    if (rejection && !s->verify_scratch)
        s->verify_scratch = mem_alloc(verify_scratch((int)vocab) * sizeof *s->verify_scratch);
    if (!s->tree_logits || (rejection && (!s->draft_q || !s->verify_scratch)))
        return fail_nomem(err, n * sizeof *s->tree_logits);
    return PV_OK;
}

enum pv_status speculation_open(struct speculation *sp, struct pv_session *s,
                                const struct pv_gen_params *p, struct pv_error *err)
{
    const struct pv_method *m = p->method;
    enum pv_status st;
    *sp = (struct speculation){ 0 };
    s->draft.keep_features = false;
    if (!m || m->drafter == PV_DRAFT_NONE)
        return PV_OK;
    if (!s->speculates)
        return fail(err, PV_E_ARG, "method '%s' in a session that was not opened for speculation",
                    m->name);
    sp->method = *m;
    shape_static25(&sp->tree);
    policy_open(&sp->policy, shape_rows(&sp->tree));
    fill_defaults(&sp->method, s);
    sp->view = view_named(m->view ? m->view : "full");
    if (sp->view == VIEW_COUNT)
        return fail(err, PV_E_ARG, "there is no view '%s'", m->view);
    st = check_method(&sp->method, p->temperature > 0, err);
    if (!st)
        st = choose_shape(&sp->shape, &sp->method, err);
    if (!st)
        st = draft_side_drafter(s, &sp->method, &sp->drafter, err);
    if (!st && (p->temperature > 0 || s->observer.show))
        st = reserve_drawing(s, m->accept == PV_ACCEPT_REJECTION, err);
    if (st)
        return st;
    draft_side_forget(&s->draft, &s->line);
    s->draft.room = room_for_features(s);
    list_video_rows(sp, s);
    sp->by_layer = m->drafter == PV_DRAFT_SPARSE;
    sp->guided = s->draft.n_rows > 0 && (sp->by_layer || view_wants_scores(sp->view));
    s->draft.keep_features = m->drafter == PV_DRAFT_SELF || view_wants_features(sp->view) ||
                             (m->drafter == PV_DRAFT_MODEL && s->draft.shared);
    return reserve_scores(sp, s, err);
}

/* ---- guidance ---- */

int speculation_taps(const struct speculation *sp, struct pv_session *s, int n, const int *rows,
                     struct column_tap *tap)
{
    struct draft_side *d = &s->draft;
    int layers = decoder_config(s->model->dec)->n_layers, n_taps = sp->by_layer ? layers : 1;
    for (int i = 0; i < n_taps; i++)
        tap[i] = (struct column_tap){
            .layer0 = sp->by_layer ? i : 0,
            .layer1 = sp->by_layer ? i + 1 : layers,
            .n_rows = n,
            .rows = rows,
            .n_keys = d->n_rows,
            .keys = d->rows,
            .sums =
                sp->by_layer ? d->layer_scores + (size_t)(layers + i) * (size_t)d->n_rows : d->sums,
        };
    return n_taps;
}

void speculation_add(const struct speculation *sp, struct pv_session *s, int n_taps)
{
    struct draft_side *d = &s->draft;
    size_t n = (size_t)d->n_rows;
    for (int t = 0; t < n_taps; t++) {
        float *to = sp->by_layer ? d->layer_scores + (size_t)t * n : d->scores;
        const float *from = sp->by_layer ? d->layer_scores + (size_t)(n_taps + t) * n : d->sums;
        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    }
}

/* ---- what the drafter sees ---- */

/* Features of a video's first n rows: those that were kept, or made again, and then in *made too.
 */
static enum pv_status find_features(struct pv_session *s, const struct medium *m, int n,
                                    const float **out, float **made, struct pv_error *err)
{
    size_t hidden = (size_t)decoder_config(s->model->dec)->hidden;
    size_t size = (size_t)n * hidden * sizeof(float);
    enum pv_status st;
    *out = draft_side_features(&s->draft, m, 0, n, hidden);
    if (*out)
        return PV_OK;
    *made = mem_alloc(size);
    if (!*made)
        return fail_nomem(err, size);
    pthread_mutex_lock(s->model->step_lock);
    st = encoder_rows(s->encoder, &m->m, m->key, 0, n, *made, err);
    pthread_mutex_unlock(s->model->step_lock);
    *out = *made;
    return st;
}

/* The view of one video; `first` is its first row's place in draft.rows. */
static enum pv_status view_video(const struct speculation *sp, struct pv_session *s,
                                 const struct media_span *span, int first, struct pv_error *err)
{
    struct draft_side *d = &s->draft;
    const struct medium *m = &s->line.media[span->medium];
    int n = m->m.n_units * m->m.unit_rows, n_kept, *kept = mem_alloc((size_t)n * sizeof *kept);
    float *made = NULL;
    struct view_input in = { .n_frames = m->m.n_units,
                             .frame_tokens = m->m.unit_rows,
                             .ratio = sp->method.ratio,
                             .lambda = sp->method.lambda,
                             .seed = sp->method.draft_seed,
                             .scores = sp->guided ? d->scores + first : NULL,
                             .width = decoder_config(s->model->dec)->hidden };
    enum pv_status st = kept ? PV_OK : fail_nomem(err, (size_t)n * sizeof *kept);
    if (!st && view_wants_features(sp->view))
        st = find_features(s, m, n, &in.features, &made, err);
    if (!st)
        st = view_choose(sp->view, &in, kept, &n_kept, NULL, err);
    if (!st) {
        memset(d->seen + span->row0, false, (size_t)n * sizeof *d->seen);
        for (int i = 0; i < n_kept; i++)
            d->seen[span->row0 + kept[i]] = true;
    }
    mem_free(made);
    mem_free(kept);
    return st;
}

/* All rows but what the view leaves out of each video. */
static enum pv_status choose_rows(const struct speculation *sp, struct pv_session *s,
                                  struct pv_error *err)
{
    int first = 0;
    memset(s->draft.seen, true, (size_t)s->line.n * sizeof *s->draft.seen);
    for (int k = 0; k < s->line.n_spans; k++) {
        const struct media_span *span = &s->line.span[k];
        const struct media *m = &s->line.media[span->medium].m;
        enum pv_status st;
        if (!m->video)
            continue;
        st = view_video(sp, s, span, first, err);
        if (st)
            return st;
        first += m->n_units * m->unit_rows;
    }
    return PV_OK;
}

/* Of the device that the drafter at work runs on. */
static pthread_mutex_t *drafter_lock(const struct pv_session *s)
{
    return s->drafting == PV_DRAFT_MODEL ? s->draft.model->step_lock : s->model->step_lock;
}

/* Rows of one medium from the target's tower: kept, or made again. The caller holds the drafter's
 * lock, which may be another than the target's. */
static enum pv_status target_rows(struct pv_session *s, const struct medium *m, int row, int n,
                                  float *out, struct pv_error *err)
{
    size_t hidden = (size_t)decoder_config(s->model->dec)->hidden;
    const float *kept = draft_side_features(&s->draft, m, row, n, hidden);
    bool other = drafter_lock(s) != s->model->step_lock;
    enum pv_status st;
    if (kept) {
        memcpy(out, kept, (size_t)n * hidden * sizeof *out);
        return PV_OK;
    }
    if (other)
        pthread_mutex_lock(s->model->step_lock);
    st = encoder_rows(s->encoder, &m->m, m->key, row, n, out, err);
    if (other)
        pthread_mutex_unlock(s->model->step_lock);
    return st;
}

/* Rows of media for the drafter: the draft model's own tower, or the target's. Rows of two equal
 * media may follow one another. */
static enum pv_status embed_rows(void *user, int from, int n, float *out, struct pv_error *err)
{
    struct pv_session *s = user;
    bool own = s->drafting == PV_DRAFT_MODEL && !s->draft.shared;
    size_t hidden = (size_t)decoder_config(own ? s->draft.model->dec : s->model->dec)->hidden;
    for (int done = 0; done < n;) {
        int row;
        const struct medium *m = timeline_medium(&s->line, from + done, &row);
        int some = m->m.n_rows - row < n - done ? m->m.n_rows - row : n - done;
        float *to = out + (size_t)done * hidden;
        enum pv_status st = PV_OK;
        if (own)
            st = encoder_reserve(s->draft.encoder, &m->m, err);
        if (!st)
            st = own ? encoder_rows(s->draft.encoder, &m->m, m->key, row, some, to, err)
                     : target_rows(s, m, row, some, to, err);
        if (st)
            return st;
        done += some;
    }
    return PV_OK;
}

/* Video rows that the drafter looks at; of `sparse`, in one layer. */
static int64_t count_seen(const struct speculation *sp, const struct pv_session *s)
{
    int64_t n = 0, text = s->line.n - s->line.n_video_rows, keep = sp->method.keep;
    switch (sp->method.drafter) {
    case PV_DRAFT_SPARSE:
        return keep <= text                         ? 0
               : keep - text < s->line.n_video_rows ? keep - text
                                                    : s->line.n_video_rows;
    case PV_DRAFT_MODEL:
    case PV_DRAFT_SELF:
        for (int i = 0; i < s->line.n; i++)
            n += s->draft.seen[i] && s->line.ids[i] < 0;
        return n;
    default:
        return 0;
    }
}

enum pv_status speculation_see(struct speculation *sp, struct pv_session *s, struct pv_error *err)
{
    bool blind = sp->method.drafter == PV_DRAFT_MODEL && !s->draft.model->vision;
    enum pv_status st;
    if (blind) /* a drafter without eyes sees words */
        sp->view = VIEW_NONE;
    st = choose_rows(sp, s, err);
    for (int i = 0; i < s->line.n && blind && !st; i++)
        s->draft.seen[i] = s->line.ids[i] >= 0;
    s->stats.draft_video_tokens = count_seen(sp, s);
    return st;
}

/* The drafter's prefill. */
static enum pv_status wake(struct speculation *sp, struct pv_session *s, struct pv_error *err)
{
    struct draft_prompt prompt = { .n = s->answer0,
                                   .ids = s->line.ids,
                                   .pos = (const int32_t(*)[3])s->line.pos,
                                   .next = s->line.next - s->n_answer,
                                   .seen = s->draft.seen,
                                   .original = sp->method.positions == PV_POS_ORIGINAL,
                                   .embed = embed_rows,
                                   .user = s,
                                   .target = &s->kv,
                                   .scores = s->draft.layer_scores,
                                   .n_scores = s->draft.n_rows,
                                   .score_rows = s->draft.rows };
    pthread_mutex_t *lock;
    double t0 = clock_now(), t1, tower = 0;
    enum pv_status st;
    st = speculation_see(sp, s, err);
    if (st)
        return st;
    t1 = clock_now();
    if (s->encoder) { /* a view that wanted features may have run the tower */
        double again = encoder_take_seconds(s->encoder);
        s->stats.vision_s += again;
        t0 += again;
    }
    s->stats.view_s = t1 - t0;
    s->drafting = sp->method.drafter;
    lock = drafter_lock(s);
    pthread_mutex_lock(lock);
    st = sp->drafter->begin(sp->drafter, &prompt, err);
    pthread_mutex_unlock(lock);
    if (s->draft.encoder)
        tower = encoder_take_seconds(s->draft.encoder);
    if (s->encoder)
        tower += encoder_take_seconds(s->encoder);
    s->stats.vision_s += tower;
    s->stats.draft_prefill_s = clock_now() - t1 - tower;
    sp->awake = !st;
    return st;
}

enum pv_status speculation_begin(struct speculation *sp, struct pv_session *s, struct pv_error *err)
{
    return sp->drafter && !sp->method.automatic ? wake(sp, s, err) : PV_OK;
}

/* ---- rounds ---- */

static enum pv_status propose(struct speculation *sp, struct pv_session *s,
                              const struct pv_gen_params *p, const struct sampling *how,
                              struct tree *tree, struct pv_error *err)
{
    int left = p->max_new_tokens - s->n_answer, room = s->line.context - s->line.n;
    struct draft_request req = { .answer = s->line.ids + s->answer0,
                                 .n_answer = s->n_answer,
                                 .position = (uint64_t)s->line.n,
                                 .how = how,
                                 .shape = &sp->shape,
                                 .tree = tree,
                                 .most = left < room ? left : room,
                                 .target = &s->kv };
    pthread_mutex_t *lock = drafter_lock(s);
    double t0 = clock_now();
    enum pv_status st;
    tree_begin(tree, s->line.ids[s->line.n - 1]);
    if (shape_rows(&sp->shape) > s->line.context - s->kv.len || req.most < 1)
        return PV_OK; /* no room to verify: the root alone */
    if (sp->method.accept == PV_ACCEPT_REJECTION && sp->shape.kind == SHAPE_CHAIN &&
        how->temperature > 0)
        req.q = s->draft_q;
    pthread_mutex_lock(lock);
    st = sp->drafter->propose(sp->drafter, &req, err);
    pthread_mutex_unlock(lock);
    s->stats.draft_s += clock_now() - t0;
    return st;
}

static enum pv_status run_tree(struct pv_session *s, const struct tree *t, bool greedy,
                               struct pv_error *err)
{
    int32_t pos[TREE_MAX][3];
    int all[TREE_MAX];
    bool chain = true;
    struct step_seq seq = { .kv = &s->kv, .n = t->n };
    struct step step = { .n = t->n,
                         .ids = t->id,
                         .pos = (const int32_t(*)[3])pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = t->n,
                         .logit_rows = all,
                         .logits = greedy ? NULL : s->tree_logits,
                         .argmax = greedy ? s->tree_best : NULL };
    enum pv_status st;
    for (int i = 0; i < t->n; i++) {
        all[i] = i;
        for (int a = 0; a < 3; a++)
            pos[i][a] = s->line.next - 1 + t->depth[i];
        chain = chain && t->parent[i] == i - 1;
    }
    seq.parent = chain ? NULL : t->parent;
    pthread_mutex_lock(s->model->step_lock);
    st = decoder_step(s->model->dec, s->state, &step, err);
    pthread_mutex_unlock(s->model->step_lock);
    return st;
}

static void count_round(struct pv_session *s, const struct round *r)
{
    int last = r->verdict.path[r->verdict.n - 1];
    bool leaf = true;
    for (int i = last + 1; i < r->tree.n; i++)
        leaf = leaf && r->tree.parent[i] != last;
    s->stats.passes++;
    s->stats.rounds++;
    s->stats.proposed += r->tree.n - 1;
    s->stats.accepted += r->verdict.n - 1;
    s->stats.rejections += !leaf;
}

/* `auto`: what this round is to be. */
static enum pv_status choose_round(struct speculation *sp, struct pv_session *s,
                                   struct pv_error *err)
{
    double t0 = clock_now();
    enum pv_status st = PV_OK;
    if (!sp->awake && !sp->asleep && s->n_answer >= AUTO_PATIENCE) {
        /* A drafter that cannot is no reason to stop: the answer goes on without it. */
        sp->asleep = wake(sp, s, NULL) != PV_OK;
        sp->wake_s = clock_now() - t0;
    }
    sp->choice = (struct policy_choice){ POLICY_PLAIN, 0 };
    if (!st && sp->awake)
        sp->choice = policy_next(&sp->policy);
    if (sp->choice.kind == POLICY_TREE)
        sp->shape = sp->tree;
    else if (sp->choice.kind == POLICY_CHAIN)
        st = shape_chain(&sp->shape, sp->choice.window, err);
    return st;
}

/* A drawn outcome: each token is accepted with the method's probability, first children first. */
static void simulate(const struct speculation *sp, const struct pv_session *s, struct round *r,
                     uint64_t seed, uint64_t position)
{
    struct verdict *v = &r->verdict;
    int at = 0;
    v->n = 1;
    v->path[0] = 0;
    for (int i = 1; i < r->tree.n; i++) {
        uint64_t here = position + (uint64_t)r->tree.depth[i];
        if (r->tree.parent[i] != at)
            continue;
        if (rng_uniform(seed ^ SIMULATE_SEED, here, (uint64_t)i) >= sp->method.simulate)
            continue;
        v->path[v->n++] = at = i;
    }
    v->next = s->tree_best[at];
}

enum pv_status speculation_round(struct speculation *sp, struct pv_session *s,
                                 const struct pv_gen_params *p, struct round *r,
                                 struct pv_error *err)
{
    struct sampling how = generate_sampling(p);
    int vocab = pv_model_vocab_size(s->model);
    bool greedy = p->temperature == 0 && !s->observer.show;
    uint64_t position = (uint64_t)s->line.n;
    enum pv_status st = sp->method.automatic ? choose_round(sp, s, err) : PV_OK;
    double draft_s = s->stats.draft_s, t0;
    if (!st && sp->method.automatic && sp->choice.kind == POLICY_PLAIN)
        tree_begin(&r->tree, s->line.ids[s->line.n - 1]);
    else if (!st)
        st = propose(sp, s, p, &how, &r->tree, err);
    t0 = clock_now();
    if (!st)
        st = run_tree(s, &r->tree, greedy, err);
    if (st)
        return st;
    if (sp->method.simulate > 0)
        simulate(sp, s, r, how.seed, position);
    else if (greedy)
        verify_greedy(&r->verdict, &r->tree, s->tree_best);
    else if (sp->method.accept == PV_ACCEPT_EXACT)
        verify_exact(&r->verdict, &r->tree, s->tree_logits, vocab, &how, position, s->candidates);
    else if (sp->shape.kind == SHAPE_CHAIN)
        verify_rejection_chain(&r->verdict, &r->tree, s->tree_logits, s->draft_q, vocab, &how,
                               position, s->verify_scratch, s->candidates);
    else
        verify_rejection_tree(&r->verdict, &r->tree, s->tree_logits, vocab, &how, position,
                              s->verify_scratch, s->candidates);
    t0 = clock_now() - t0;
    s->stats.verify_s += t0;
    count_round(s, r);
    policy_learn(&sp->policy, sp->choice, r->tree.n, r->tree.n - 1, r->verdict.n - 1,
                 s->stats.draft_s - draft_s, t0);
    for (int i = 0; i < r->verdict.n && s->observer.show; i++)
        s->observer.show(s->observer.user, s->n_answer + i,
                         s->tree_logits + (size_t)r->verdict.path[i] * (size_t)vocab);
    return PV_OK;
}
