/* Steps of many sequences at once, each with its own cache in one pool: single rows, chains or
 * small trees, as a server runs them. */
#include "gpu_rig.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum { WARM_UP = 3, ROOM = 512 };

struct batch {
    const struct rig_model *m;
    struct kvpool *pool;
    struct decoder_state *state;
    struct kvcache kv[RIG_MAX_SEQUENCES];
    struct step_seq seq[RIG_MAX_SEQUENCES];
    int n_seqs, n; /* rows of all */
    int parent[RIG_MAX_BATCH], rows[RIG_MAX_BATCH];
    int32_t ids[RIG_MAX_BATCH], best[RIG_MAX_BATCH], pos[RIG_MAX_BATCH][3];
};

static void batch_close(struct batch *b)
{
    for (int i = 0; i < b->n_seqs; i++)
        if (b->kv[i].pool) {
            kvcache_release(&b->kv[i], NULL);
            kvcache_close(&b->kv[i]);
        }
    if (b->pool)
        kvpool_close(&b->pool);
    decoder_state_close(&b->state);
}

static enum pv_status batch_open(struct batch *b, const struct rig_model *m,
                                 const struct batch_plan *p, int context, struct pv_error *err)
{
    const struct config *c = decoder_config(m->dec);
    int most = context + ROOM, pages = (most + KV_CHUNK - 1) / KV_CHUNK * p->sequences;
    enum pv_status s;
    b->m = m;
    b->n = p->sequences * p->rows;
    s = decoder_state_open(&b->state, m->dec, b->n, b->n, most, m->kv, err);
    if (!s)
        s = kvpool_open(&b->pool, m->dev, c, m->kv, pages, err);
    if (!s)
        s = rig_fill_pool(b->pool, m->dev, m->kv, err);
    for (int i = 0; i < p->sequences && !s; i++) {
        s = kvcache_attach(&b->kv[i], b->pool, most, err);
        b->n_seqs = i + 1;
        if (!s && !kvcache_reserve(&b->kv[i], NULL, most))
            s = fail(err, PV_E_LIMIT, "a pool of %d pages is too small", pages);
        if (!s)
            kvcache_advance(&b->kv[i], context);
        b->seq[i] = (struct step_seq){ .kv = &b->kv[i],
                                       .n = p->rows,
                                       .parent = p->tree ? b->parent : NULL };
    }
    for (int i = 0; i < b->n; i++) {
        b->parent[i] = (i + 1) / 2 - 1;
        b->rows[i] = i;
    }
    return s;
}

static int depth_of(const struct batch *b, const struct batch_plan *p, int row)
{
    int depth = row;
    if (p->tree)
        for (depth = 0; b->parent[row] >= 0; row = b->parent[row])
            depth++;
    return depth;
}

static enum pv_status batch_step(struct batch *b, const struct batch_plan *p, uint64_t turn,
                                 struct pv_error *err)
{
    uint64_t vocab = (uint64_t)decoder_config(b->m->dec)->vocab;
    struct step step = { .n = b->n,
                         .ids = b->ids,
                         .pos = (const int32_t(*)[3])b->pos,
                         .n_seqs = b->n_seqs,
                         .seqs = b->seq,
                         .n_logits = b->n,
                         .logit_rows = b->rows,
                         .argmax = b->best };
    for (int i = 0; i < b->n; i++) {
        int at = b->kv[i / p->rows].len + depth_of(b, p, i % p->rows);
        b->ids[i] = (int32_t)(rng_bits(5, turn, (uint64_t)i) % vocab);
        for (int k = 0; k < 3; k++)
            b->pos[i][k] = at;
    }
    return decoder_step(b->m->dec, b->state, &step, err);
}

/* Every step except the first two is replayed from a recording; the recording is made during the
 * second. */
static enum pv_status time_batch(struct batch *b, const struct batch_plan *p, int repeat,
                                 struct timings *t, double *unrecorded, struct pv_error *err)
{
    for (int i = 0; i < WARM_UP + repeat; i++) {
        double start = clock_now();
        enum pv_status s = batch_step(b, p, (uint64_t)i, err);
        double seconds = clock_now() - start;
        if (s)
            return s;
        if (i == 1)
            *unrecorded = seconds;
        if (i >= WARM_UP)
            timings_add(t, seconds);
        for (int k = 0; k < b->n_seqs && p->rows == 1; k++)
            kvcache_advance(&b->kv[k], 1);
    }
    return PV_OK;
}

static enum pv_status batch_row(struct rig *r, const struct rig_model *m,
                                const struct batch_plan *p, int context, int repeat,
                                struct pv_error *err)
{
    struct batch *b = mem_zalloc(sizeof *b);
    struct timings t = { .n = 0 };
    double unrecorded = 0;
    char note[96];
    enum pv_status s;
    if (!b)
        return fail_nomem(err, sizeof *b);
    s = batch_open(b, m, p, context, err);
    if (!s)
        s = time_batch(b, p, repeat, &t, &unrecorded, err);
    snprintf(note, sizeof note, "%d sequences of %d row%s; %.2f ms when recorded", p->sequences,
             p->rows,
             p->tree       ? "s, trees"
             : p->rows > 1 ? "s, chains"
                           : "",
             1e3 * unrecorded);
    if (!s)
        results_row(r->results,
                    &(struct result){ .model = m->shape,
                                      .type = m->type,
                                      .test = "batch",
                                      .context = context,
                                      .rows = b->n,
                                      .samples = t.n,
                                      .ms = 1e3 * timings_at(&t, 0.5),
                                      .best_ms = 1e3 * timings_at(&t, 0),
                                      .tokens = b->n,
                                      .bytes = rig_weight_bytes(m, b->n) +
                                               p->sequences * rig_kv_bytes(m, context + p->rows),
                                      .operations = p->sequences *
                                                    rig_operations(m, context, p->rows, p->rows),
                                      .memory = rig_used(r),
                                      .note = note });
    batch_close(b);
    mem_free(b);
    return s;
}

enum pv_status test_batch(struct rig *r, const struct rig_model *m, const struct plan *p,
                          struct pv_error *err)
{
    enum pv_status s = PV_OK;
    for (int i = 0; i < p->n_batches && !s; i++)
        s = batch_row(r, m, &p->batches[i], p->batch_context, p->repeat, err);
    return s;
}
