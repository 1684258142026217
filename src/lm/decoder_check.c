/* Checks the arguments of steps before anything runs. */
#include "lm/decoder_parts.h"

static enum pv_status check_seq(const struct step *step, int index, const struct decoder_state *st,
                                struct pv_error *err)
{
    const struct step_seq *q = &step->seqs[index];
    int cap = q->kv->cap < st->context ? q->kv->cap : st->context;
    if (q->n < 1)
        return fail(err, PV_E_ARG, "sequence %d of a step has %d rows", index, q->n);
    if (q->pending < 0)
        return fail(err, PV_E_ARG, "sequence %d of a step has %d pending rows", index, q->pending);
    if (q->n > cap - q->kv->len || q->pending > cap - q->kv->len - q->n ||
        step_further_rows(step) > cap - q->kv->len - q->n - q->pending)
        return fail(err, PV_E_LIMIT, "%lld rows after %d do not fit a context of %d tokens",
                    (long long)q->n + q->pending + step_further_rows(step), q->kv->len, cap);
    if (q->kv->layer[0].dtype != st->kv_dtype)
        return fail(err, PV_E_ARG, "a KV cache of %s in a state made for %s",
                    dtype_name(q->kv->layer[0].dtype), dtype_name(st->kv_dtype));
    for (int i = 0; i < index; i++)
        if (step->seqs[i].kv == q->kv)
            return fail(err, PV_E_ARG, "sequences %d and %d of a step share a KV cache", i, index);
    for (int i = 0; q->parent && i < q->pending + q->n; i++)
        if (q->parent[i] < -1 || q->parent[i] >= i)
            return fail(err, PV_E_ARG, "row %d of a tree names row %d as its parent", i,
                        q->parent[i]);
    return PV_OK;
}

static enum pv_status check_columns(const struct column_tap *t, const struct step *step,
                                    int n_layers, struct pv_error *err)
{
    if (t->layer0 < 0 || t->layer0 >= t->layer1 || t->layer1 > n_layers)
        return fail(err, PV_E_ARG, "attention of layers %d to %d of %d was asked for", t->layer0,
                    t->layer1, n_layers);
    if (step->seqs[0].parent || step->seqs[0].pending > 0)
        return fail(err, PV_E_ARG, "attention of the rows of a tree was asked for");
    for (int i = 0; i < t->n_rows; i++)
        if (t->rows[i] < (i ? t->rows[i - 1] + 1 : 0) || t->rows[i] >= step->seqs[0].n)
            return fail(err, PV_E_ARG, "attention of row %d of %d was asked for, or out of order",
                        t->rows[i], step->seqs[0].n);
    for (int i = 0; i < t->n_keys; i++)
        if (t->keys[i] < (i ? t->keys[i - 1] + 1 : 0))
            return fail(err, PV_E_ARG, "attention to slot %d was asked for, or out of order",
                        t->keys[i]);
    return PV_OK;
}

/* Most taps of attention that look at one layer. */
static int most_columns(const struct step *step)
{
    int most = 0;
    for (int i = 0; i < step->n_columns; i++) {
        int taps = 0; /* taps that look at this one's first layer */
        for (int j = 0; j < step->n_columns; j++)
            taps += step->columns[j].layer0 <= step->columns[i].layer0 &&
                    step->columns[i].layer0 < step->columns[j].layer1;
        most = taps > most ? taps : most;
    }
    return most;
}

static enum pv_status check_taps(const struct decoder *dec, const struct step *step,
                                 struct pv_error *err)
{
    for (int i = 0; i < step->n_hidden; i++) {
        const struct hidden_tap *t = &step->hidden[i];
        if (!t->post_norm && (t->layer < TAP_EMBEDDING || t->layer >= dec->c.n_layers))
            return fail(err, PV_E_ARG, "states after layer %d of %d were asked for", t->layer,
                        dec->c.n_layers);
        for (int r = 0; r < t->n_rows; r++)
            if (t->rows[r] < 0 || t->rows[r] >= step->n)
                return fail(err, PV_E_ARG, "states of row %d of %d were asked for", t->rows[r],
                            step->n);
    }
    for (int i = 0; i < step->n_columns; i++) {
        enum pv_status s = check_columns(&step->columns[i], step, dec->c.n_layers, err);
        if (!s && step->columns[i].by_group && dec->c.spread)
            s = fail(err, PV_E_UNSUPPORTED, "attention by KV head of a model on several ranks");
        if (s)
            return s;
    }
    return PV_OK;
}

bool step_runs_all_layers(const struct step *step)
{
    return step->layer0 == 0 && step->layer1 == 0;
}

bool step_reads_ids(const struct decoder *dec, const struct step *step)
{
    return step->layer0 == 0 || step->layer0 < dec->c.n_deepstack;
}

static enum pv_status check_ids(const struct decoder *dec, const struct step *step,
                                struct pv_error *err)
{
    if (!step_reads_ids(dec, step))
        return PV_OK;
    if (!step->ids)
        return fail(err, PV_E_ARG,
                    "a step from layer %d on without ids: %d layers add to rows of media",
                    step->layer0, dec->c.n_deepstack);
    for (int i = 0; i < step->n; i++)
        if (step->ids[i] >= dec->input_vocab || (step->ids[i] < 0 && !step->embeds))
            return fail(err, PV_E_ARG, "token id %d is not in the vocabulary of %d",
                        (int)step->ids[i], dec->input_vocab);
    return PV_OK;
}

static enum pv_status check_layers(const struct step *step, int n_layers, struct pv_error *err)
{
    int from = step->layer0, to = step->layer1;
    if (step_runs_all_layers(step) && step->columns_only)
        return fail(err, PV_E_ARG, "columns alone of all layers");
    if (step_runs_all_layers(step))
        return PV_OK;
    if (from < 0 || from >= to || to > n_layers)
        return fail(err, PV_E_ARG, "a step over layers %d to %d of %d", from, to, n_layers);
    if (!step->residual && (from > 0 || to < n_layers))
        return fail(err, PV_E_ARG, "a step over layers %d to %d of %d without a residual stream",
                    from, to, n_layers);
    if (step->n_logits > 0 && to < n_layers)
        return fail(err, PV_E_ARG, "logits of a step that ends with layer %d of %d", to, n_layers);
    if (step->columns_only && (from == 0 || to != from + 1 || step->n_logits > 0))
        return fail(err, PV_E_ARG, "columns alone of layers %d to %d of %d", from, to, n_layers);
    return PV_OK;
}

/* The caches have the layers that run. */
static enum pv_status check_caches(const struct step *step, int n_layers, struct pv_error *err)
{
    bool all = step_runs_all_layers(step);
    int from = all ? 0 : step->layer0, to = all ? n_layers : step->layer1;
    for (int i = 0; i < step->n_seqs; i++) {
        const struct kvcache *kv = step->seqs[i].kv;
        if (kv->layer0 > from || to > kv->layer0 + kv->n_layers)
            return fail(err, PV_E_ARG,
                        "a step over layers %d to %d with a KV cache of layers %d to %d", from, to,
                        kv->layer0, kv->layer0 + kv->n_layers);
    }
    return PV_OK;
}

static enum pv_status check_head(const struct decoder *dec, const struct step *step,
                                 struct pv_error *err)
{
    if (dec->is_draft_head && !step->features)
        return fail(err, PV_E_ARG, "a step of a head without features");
    if (dec->n_features > 0 && step->bulk)
        return fail(err, PV_E_ARG, "rows of a head among the rows of a prompt");
    for (int i = 0; dec->n_features > 0 && i < step->n; i++)
        if (step->ids[i] < 0 && step->ids[i] != STEP_PAIRED)
            return fail(err, PV_E_ARG, "row %d of a head has no feature", i);
    return PV_OK;
}

int step_further_rows(const struct step *step)
{
    int n = 0;
    for (int i = 0; step->tree && i < step->chain; i++)
        n += step->tree->level[i];
    return step->tree ? n : step->chain;
}

bool step_trees_agree(const struct step *a, const struct step *b)
{
    const struct step_tree *x = a->tree, *y = b->tree;
    bool same = !x == !y;
    if (!same || !x)
        return same;
    same = a->chain == b->chain && x->k == y->k && !x->pick == !y->pick;
    for (int i = 0; i < a->chain && same; i++)
        same = x->level[i] == y->level[i];
    return same;
}

bool decoder_state_holds(const struct decoder_state *st, const struct step *step, int n)
{
    int most = st->max_logits < STEP_MAX_PARTS ? st->max_logits : STEP_MAX_PARTS;
    most = most < st->max_rows ? most : st->max_rows;
    for (int i = 0; step->tree && i < step->chain; i++)
        if (step->tree->level[i] > most / n)
            return false;
    return !step->tree || n * (1 + step_further_rows(step)) <= STEP_MAX_TREE;
}

static enum pv_status check_tree_rows(const struct step *step, struct pv_error *err)
{
    const struct step_tree *t = step->tree;
    int before = 0, rows = 1;
    for (int i = 0; i < step->chain; i++) {
        if (t->level[i] < 1 || t->level[i] > DEVICE_MAX_LEVEL)
            return fail(err, PV_E_ARG, "level %d of a tree has %d rows, 1 to %d are possible", i,
                        t->level[i], (int)DEVICE_MAX_LEVEL);
        for (int r = before; t->pick && r < before + t->level[i]; r++)
            if (t->pick[r] < 0 || t->pick[r] >= rows * t->k)
                return fail(err, PV_E_ARG, "row %d of a tree is candidate %d of %d", r + 1,
                            (int)t->pick[r], rows * t->k);
        before += t->level[i];
        rows = 1 + before;
    }
    return PV_OK;
}

/* What a tree can grow behind. */
static enum pv_status check_tree(const struct decoder *dec, const struct decoder_state *st,
                                 const struct step *step, struct pv_error *err)
{
    const struct step_tree *t = step->tree;
    enum pv_status s;
    if (!decoder_grows(dec))
        return fail(err, PV_E_UNSUPPORTED, "trees do not grow on device %s", dec->dev->ops->name);
    if (step->chain < 1 || step->chain > STEP_MAX_CHAIN || t->k < 1 || t->k > DEVICE_MAX_LEVEL)
        return fail(err, PV_E_LIMIT,
                    "a tree of %d levels and %d tokens per row; %d and %d are "
                    "possible",
                    step->chain, t->k, (int)STEP_MAX_CHAIN, (int)DEVICE_MAX_LEVEL);
    s = check_tree_rows(step, err);
    if (s)
        return s;
    if (!decoder_state_holds(st, step, 1))
        return fail(err, PV_E_LIMIT, "a tree of %d rows does not fit the state",
                    step_further_rows(step));
    if (step->n_seqs != 1 || step->seqs[0].parent || step->bulk || !step_runs_all_layers(step) ||
        step->n_hidden > 0 || step->n_columns > 0 || step->n_logits != 1 ||
        step->logit_rows[0] != step->n - 1 || step->logits || step->argmax || step->choice)
        return fail(err, PV_E_ARG,
                    "a tree behind a step that is no chain of tokens, or of which "
                    "more is wanted");
    return PV_OK;
}

/* What a chain can follow. */
static enum pv_status check_chain(const struct decoder *dec, const struct step *step,
                                  struct pv_error *err)
{
    const struct step_choice *c = step->choice;
    bool drawn = c && c->drawn && c->k == 0;
    if (step->chain == 0)
        return PV_OK;
    if (step->chain < 0 || step->chain > STEP_MAX_CHAIN)
        return fail(err, PV_E_LIMIT, "a chain of %d rows behind a step, %d are possible",
                    step->chain, STEP_MAX_CHAIN);
    if (step->n_seqs != 1 || step->seqs[0].parent || step->seqs[0].pending > 0 || step->bulk ||
        !step_runs_all_layers(step) || dec->is_draft_head || step->n_hidden > 0 ||
        step->n_columns > 0)
        return fail(err, PV_E_ARG, "a chain behind a step that is no chain of tokens itself");
    if (step->n_logits != 1 || step->logit_rows[0] != step->n - 1 || step->logits || step->states ||
        (step->argmax != NULL) == drawn || (c && !drawn))
        return fail(err, PV_E_ARG,
                    "a chain behind a step of which more or less is wanted than a token");
    return PV_OK;
}

static enum pv_status step_check(const struct decoder *dec, const struct decoder_state *st,
                                 const struct step *step, struct pv_error *err)
{
    enum pv_status of_ids, of_layers, of_head, s;
    int n = 0;
    if (step->n < 1 || step->n > st->max_rows || step->n_seqs < 1 || step->n_seqs > STEP_MAX_SEQS ||
        step->n_logits < 0 || step->n_logits > st->max_logits)
        return fail(err, PV_E_LIMIT,
                    "a step of %d rows, %d sequences and %d logit rows; %d, %d "
                    "and %d are possible",
                    step->n, step->n_seqs, step->n_logits, st->max_rows, STEP_MAX_SEQS,
                    st->max_logits);
    for (int i = 0; i < step->n_seqs; i++) {
        s = check_seq(step, i, st, err);
        if (s)
            return s;
        n += step->seqs[i].n;
    }
    if (n != step->n)
        return fail(err, PV_E_ARG, "a step of %d rows whose sequences have %d", step->n, n);
    of_ids = check_ids(dec, step, err);
    if (of_ids)
        return of_ids;
    of_head = check_head(dec, step, err);
    if (of_head)
        return of_head;
    of_layers = check_layers(step, dec->c.n_layers, err);
    if (!of_layers)
        of_layers = check_caches(step, dec->c.n_layers, err);
    if (of_layers)
        return of_layers;
    for (int i = 0; step->bulk && i < step->n_seqs; i++)
        if (step->seqs[i].parent || step->seqs[i].pending > 0)
            return fail(err, PV_E_ARG, "a tree among the rows of a prompt");
    /* Rows may not be asked for twice over: the scratch holds one state of each. */
    if (step->n_logits > step->n)
        return fail(err, PV_E_ARG, "logits of %d rows of %d", step->n_logits, step->n);
    for (int i = 0; i < step->n_logits; i++)
        if (step->logit_rows[i] < 0 || step->logit_rows[i] >= step->n)
            return fail(err, PV_E_ARG, "logits of row %d of %d", step->logit_rows[i], step->n);
    if (step->choice &&
        (step->choice->k < 0 || step->choice->k > DEVICE_MAX_TOP || !(step->choice->t > 0)))
        return fail(err, PV_E_ARG, "the %d likeliest tokens at temperature %g were asked for",
                    step->choice->k, (double)step->choice->t);
    if (step->choice && step->choice->drawn && dec->draft_ids)
        return fail(err, PV_E_ARG, "a step with a draft vocabulary cannot draw tokens");
    s = step->tree ? check_tree(dec, st, step, err) : check_chain(dec, step, err);
    return s ? s : check_taps(dec, step, err);
}

/* What two steps that run together must have in common, and must not. */
static enum pv_status check_pair(const struct decoder *dec, const struct step *a,
                                 const struct step *b, struct pv_error *err)
{
    if (a->layer0 != b->layer0 || a->layer1 != b->layer1 || a->columns_only != b->columns_only)
        return fail(err, PV_E_ARG, "steps over layers %d to %d and %d to %d cannot run together",
                    a->layer0, a->layer1, b->layer0, b->layer1);
    if (a->bulk != b->bulk && decoder_ways_differ(dec))
        return fail(err, PV_E_ARG, "rows of a prompt and rows of an answer cannot run together");
    if (!step_trees_agree(a, b))
        return fail(err, PV_E_ARG, "trees of different forms cannot grow together");
    if (a->chain != b->chain || (a->chain > 0 && !a->argmax != !b->argmax))
        return fail(err, PV_E_ARG, "chains of %d and %d rows cannot run together", a->chain,
                    b->chain);
    for (int i = 0; i < a->n_seqs; i++)
        for (int j = 0; j < b->n_seqs; j++)
            if (a->seqs[i].kv == b->seqs[j].kv)
                return fail(err, PV_E_ARG, "two steps that run together share a KV cache");
    return PV_OK;
}

enum pv_status steps_check(const struct decoder *dec, const struct decoder_state *st,
                           const struct step *const *steps, int n, struct pv_error *err)
{
    int rows = 0, seqs = 0, logits = 0, columns = 0;
    if (n < 1 || n > STEP_MAX_PARTS)
        return fail(err, PV_E_LIMIT, "%d steps cannot run together, 1 to %d can", n,
                    STEP_MAX_PARTS);
    for (int i = 0; i < n; i++) {
        enum pv_status s = step_check(dec, st, steps[i], err);
        for (int j = 0; j < i && !s; j++)
            s = check_pair(dec, steps[j], steps[i], err);
        if (s)
            return s;
        rows += steps[i]->n;
        seqs += steps[i]->n_seqs;
        logits += steps[i]->n_logits;
        columns += most_columns(steps[i]);
    }
    if (columns > LAYER_MAX_COLUMNS)
        return fail(err, PV_E_LIMIT, "%d taps of attention look at one layer, %d can", columns,
                    LAYER_MAX_COLUMNS);
    if (!decoder_state_holds(st, steps[0], n))
        return fail(err, PV_E_LIMIT, "%d trees of %d rows do not fit the state", n,
                    step_further_rows(steps[0]));
    if (rows > st->max_rows || seqs > STEP_MAX_SEQS || logits > st->max_logits)
        return fail(err, PV_E_LIMIT,
                    "steps of %d rows, %d sequences and %d logit rows together; %d, %d and %d are "
                    "possible",
                    rows, seqs, logits, st->max_rows, STEP_MAX_SEQS, st->max_logits);
    return PV_OK;
}
