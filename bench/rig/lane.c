/* Lanes: steps of a decoder over a KV cache of random numbers.
 *
 * The cache is filled as plain memory, whatever its layout: every element is a random number of the
 * cache's type. A step takes as long as after a real prefill, which would take longer than the rest
 * of the run. */
#include "gpu_rig.h"

#include "base/mem.h"
#include "base/rng.h"
#include "spec/tree.h"
#include "tensor/quant.h"

#include <string.h>

enum { FILL_ELEMENTS = 4 << 20, FILL_SHIFTS = 4096 };

enum pv_status rig_fill_pool(struct kvpool *pool, struct device *dev, enum dtype t,
                             struct pv_error *err)
{
    size_t piece = dtype_row_size(t, FILL_ELEMENTS), element = dtype_row_size(t, 1);
    float *row = mem_alloc(sizeof *row * FILL_SHIFTS);
    uint8_t *bytes = mem_alloc(piece + FILL_SHIFTS * element), *to = kvpool_memory(pool, 0);
    struct rng rng = { 1 };
    uint64_t turn = 0;
    if (!row || !bytes) {
        mem_free(row);
        mem_free(bytes);
        return fail_nomem(err, piece);
    }
    for (size_t at = 0; at < piece + FILL_SHIFTS * element; at += FILL_SHIFTS * element) {
        for (int i = 0; i < FILL_SHIFTS; i++)
            row[i] = rng_normal(&rng);
        if (t == DTYPE_F8) /* bytes that are good as codes and as exponents (tensor/f8.h) */
            for (int i = 0; i < FILL_SHIFTS; i++)
                bytes[at + (size_t)i] = (uint8_t)(0xe8 + rng_next(&rng) % 8);
        else
            row_from_f32(bytes + at, row, t, FILL_SHIFTS);
    }
    for (size_t at = 0; at < kvpool_size(pool); at += piece) {
        size_t n = kvpool_size(pool) - at < piece ? kvpool_size(pool) - at : piece;
        size_t shift = rng_bits(2, turn++, 0) % FILL_SHIFTS * element;
        dev->ops->upload(dev, to + at, bytes + shift, n);
    }
    mem_free(row);
    mem_free(bytes);
    return PV_OK;
}

enum pv_status lane_open(struct lane *l, const struct rig_model *m, int context, int max_rows,
                         int max_logits, struct pv_error *err)
{
    size_t n = (size_t)max_rows;
    enum pv_status s;
    *l = (struct lane){ .m = m, .max_rows = max_rows };
    l->ids = mem_zalloc(sizeof *l->ids * n);
    l->best = mem_zalloc(sizeof *l->best * n);
    l->pos = mem_zalloc(sizeof *l->pos * 2 * n);
    l->rows = mem_zalloc(sizeof *l->rows * n);
    l->top = mem_zalloc(sizeof *l->top * LANE_TOP * n);
    l->mass = mem_zalloc(sizeof *l->mass * n);
    s = l->ids && l->best && l->pos && l->rows && l->top && l->mass
            ? PV_OK
            : fail_nomem(err, n * sizeof *l->top);
    for (int i = 0; i < max_rows && !s; i++)
        l->rows[i] = i;
    if (!s)
        s = decoder_state_open(&l->state, m->dec, max_rows, max_logits, context, m->kv, err);
    if (!s)
        s = kvcache_open(&l->kv, m->dev, decoder_config(m->dec), m->kv, context, err);
    if (!s)
        s = rig_fill_pool(l->kv.pool, m->dev, m->kv, err);
    if (s)
        lane_close(l);
    return s;
}

void lane_close(struct lane *l)
{
    if (l->kv.pool)
        kvcache_close(&l->kv);
    decoder_state_close(&l->state);
    mem_free(l->ids);
    mem_free(l->best);
    mem_free(l->pos);
    mem_free(l->rows);
    mem_free(l->top);
    mem_free(l->mass);
    *l = (struct lane){ 0 };
}

void lane_at(struct lane *l, int length)
{
    kvcache_truncate(&l->kv, 0);
    kvcache_advance(&l->kv, length);
}

enum pv_status lane_step(struct lane *l, const struct lane_rows *rows, struct pv_error *err)
{
    uint64_t vocab = (uint64_t)decoder_config(l->m->dec)->vocab;
    struct step_choice choice = { .k = rows->top, .t = 1, .top = l->top, .mass = l->mass };
    struct step_seq seq = {
        .kv = &l->kv, .n = rows->n, .parent = rows->parent, .pending = rows->pending
    };
    struct step step = { .n = rows->n,
                         .ids = l->ids,
                         .embeds = rows->embeds,
                         .embeds_there = rows->embeds_there,
                         .pos = (const int32_t(*)[3])l->pos,
                         .n_seqs = 1,
                         .seqs = &seq,
                         .n_logits = rows->wanted,
                         .logit_rows = l->rows + (rows->n - rows->wanted),
                         .argmax = rows->wanted ? l->best : NULL,
                         .chain = rows->chain,
                         .bulk = rows->bulk,
                         .n_next = rows->next,
                         .next_pos = (const int32_t(*)[3])(l->pos + rows->n) };
    struct step_tree tree;
    for (int i = 0; i < rows->n + rows->chain; i++) {
        int at = rows->parent ? rows->depth[rows->pending + i] : i;
        l->ids[i] = rows->embeds ? -1 : (int32_t)(rng_bits(3, l->turn++, 0) % vocab);
        for (int k = 0; k < 3; k++)
            l->pos[i][k] = l->kv.len + at;
    }
    for (int i = rows->n; i < rows->n + rows->next; i++)
        for (int k = 0; k < 3; k++)
            l->pos[i][k] = l->kv.len + i;
    if (rows->top && l->m->dev->ops->top) {
        step.argmax = NULL;
        step.choice = &choice;
    }
    if (rows->tree) {
        tree = *rows->tree;
        tree.top = l->top;
        tree.mass = l->mass;
        tree.ids = l->best;
        step.tree = &tree;
        step.argmax = NULL;
    }
    if (rows->first)
        l->ids[0] = *rows->first;
    return decoder_step(l->m->dec, l->state, &step, err);
}

void tree25(int parent[TREE25_ROWS], int depth[TREE25_ROWS])
{
    struct shape s;
    shape_static25(&s);
    memcpy(parent, s.parent, sizeof *parent * TREE25_ROWS);
    for (int i = 0; i < TREE25_ROWS; i++)
        depth[i] = parent[i] < 0 ? 0 : depth[parent[i]] + 1;
}
