/* Steps of decoding and verification at given contexts, and the prefill of a long prompt. */
#include "gpu_rig.h"

#include "base/clock.h"

enum { WARM_UP = 3, DECODE_ROOM = 1024, PREFILL_SHARE = 5, MOST_ROWS = 64 };

static const double long_enough = 6; /* seconds after which prefills are not repeated */

/* ---- decode and verify ---- */

/* Time repeated steps. Tokens (or chains) follow one another, as in decoding; other rows are
 * verified again and again at the same place. */
static enum pv_status time_steps(struct lane *l, const struct lane_rows *rows, int context,
                                 int repeat, struct timings *t, struct pv_error *err)
{
    int32_t next = 0;
    struct lane_rows step = *rows;
    if (rows->n == 1)
        step.first = &next;
    lane_at(l, context);
    for (int i = 0; i < WARM_UP + repeat; i++) {
        double start = clock_now();
        enum pv_status s = lane_step(l, &step, err);
        double seconds = clock_now() - start;
        if (s)
            return s;
        if (i >= WARM_UP)
            timings_add(t, seconds);
        next = l->best[rows->chain];
        if (rows->n == 1)
            kvcache_advance(&l->kv, 1 + rows->chain);
    }
    return PV_OK;
}

static enum pv_status decode_row(struct rig *r, struct lane *l, const struct lane_rows *rows,
                                 int context, int repeat, struct pv_error *err)
{
    const struct rig_model *m = l->m;
    struct timings t = { .n = 0 };
    int levels = 1 + rows->chain;
    char note[48] = "";
    enum pv_status s = time_steps(l, rows, context, repeat, &t, err);
    if (s)
        return s;
    if (rows->chain > 0)
        snprintf(note, sizeof note, "%.4f ms a token", 1e3 * timings_at(&t, 0.5) / levels);
    results_row(r->results, &(struct result){
                                .model = m->shape,
                                .type = m->type,
                                .test = rows->parent      ? "tree"
                                        : rows->chain > 0 ? "drafted"
                                                          : "decode",
                                .context = context,
                                .rows = rows->n + rows->chain,
                                .samples = t.n,
                                .ms = 1e3 * timings_at(&t, 0.5),
                                .best_ms = 1e3 * timings_at(&t, 0),
                                .tokens = rows->n + rows->chain,
                                .bytes = levels * (rig_weight_bytes(m, rows->n) +
                                                   rig_kv_bytes(m, context + rows->n)),
                                .operations = levels * rig_operations(m, context, rows->n, rows->n),
                                .memory = rig_used(r),
                                .note = note });
    return PV_OK;
}

/* Chains of 5 tokens as a drafter makes them: one token after another driven by the host, and in
 * one step in which the device feeds each token to the next row. */
static enum pv_status drafted_rows(struct rig *r, struct lane *l, int context, int repeat,
                                   struct pv_error *err)
{
    struct lane_rows one = { .n = 1, .wanted = 1 };
    struct lane_rows chain = { .n = 1, .wanted = 1, .chain = 4 };
    enum pv_status s = decode_row(r, l, &one, context, repeat, err);
    return s ? s : decode_row(r, l, &chain, context, repeat, err);
}

enum pv_status test_drafted(struct rig *r, const struct rig_model *m, const struct plan *p,
                            struct pv_error *err)
{
    int longest = 0;
    struct lane l;
    enum pv_status s;
    for (int i = 0; i < p->contexts.n; i++)
        longest = p->contexts.v[i] > longest ? p->contexts.v[i] : longest;
    s = lane_open(&l, m, longest + DECODE_ROOM, MOST_ROWS, MOST_ROWS, err);
    if (s)
        return s;
    for (int c = 0; c < p->contexts.n && !s; c++)
        s = drafted_rows(r, &l, p->contexts.v[c], p->repeat, err);
    lane_close(&l);
    return s;
}

enum pv_status test_decode(struct rig *r, const struct rig_model *m, const struct plan *p,
                           struct pv_error *err)
{
    int parent[TREE25_ROWS], depth[TREE25_ROWS], longest = 0;
    struct lane l;
    enum pv_status s;
    for (int i = 0; i < p->contexts.n; i++)
        longest = p->contexts.v[i] > longest ? p->contexts.v[i] : longest;
    tree25(parent, depth);
    s = lane_open(&l, m, longest + DECODE_ROOM, MOST_ROWS, MOST_ROWS, err);
    if (s)
        return s;
    for (int c = 0; c < p->contexts.n && !s; c++) {
        for (int i = 0; i < p->rows.n && !s; i++) {
            int n = p->rows.v[i];
            struct lane_rows chain = { .n = n, .wanted = n };
            struct lane_rows tree = { .n = n, .wanted = n, .parent = parent, .depth = depth };
            s = decode_row(r, &l, &chain, p->contexts.v[c], p->repeat, err);
            if (!s && n == TREE25_ROWS)
                s = decode_row(r, &l, &tree, p->contexts.v[c], p->repeat, err);
        }
    }
    lane_close(&l);
    return s;
}

/* ---- prefill ---- */

static enum pv_status prefill_once(struct lane *l, int n, int chunk, struct pv_error *err)
{
    enum pv_status s = PV_OK;
    lane_at(l, 0);
    for (int at = 0; at < n && !s;) {
        int some = n - at < chunk ? n - at : chunk;
        int next = n - at - some < chunk ? n - at - some : chunk;
        struct lane_rows rows = { .n = some, .wanted = at + some == n, .next = next, .bulk = true };
        s = lane_step(l, &rows, err);
        if (!s)
            kvcache_advance(&l->kv, some);
        at += some;
    }
    return s;
}

enum pv_status test_prefill(struct rig *r, const struct rig_model *m, const struct plan *p,
                            struct pv_error *err)
{
    int n = p->prefill, repeat = p->repeat / PREFILL_SHARE;
    struct timings t = { .n = 0 };
    double begun;
    char note[48];
    struct lane l;
    enum pv_status s = lane_open(&l, m, n, p->chunk, 1, err);
    if (s)
        return s;
    begun = clock_now();
    for (int i = 0; i <= (repeat > 2 ? repeat : 2) && !s; i++) {
        double start = clock_now();
        s = prefill_once(&l, n, p->chunk, err);
        if (i > 0)
            timings_add(&t, clock_now() - start);
        if (t.n > 0 && clock_now() - begun > long_enough)
            break;
    }
    snprintf(note, sizeof note, "chunks of %d", p->chunk);
    if (!s)
        results_row(r->results, &(struct result){ .model = m->shape,
                                                  .type = m->type,
                                                  .test = "prefill",
                                                  .context = n,
                                                  .rows = n,
                                                  .samples = t.n,
                                                  .ms = 1e3 * timings_at(&t, 0.5),
                                                  .best_ms = 1e3 * timings_at(&t, 0),
                                                  .tokens = n,
                                                  .bytes = rig_weight_bytes(m, p->prefill),
                                                  .operations = rig_operations(m, 0, n, 1),
                                                  .memory = rig_used(r),
                                                  .note = note });
    lane_close(&l);
    return s;
}
