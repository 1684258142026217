/* Trees that grow behind a step: levels like those of a chain, but of several rows. After each
 * level the device finds the most likely tokens of its rows, and chooses among them the rows of the
 * next. How many rows a level has is known beforehand, so all levels are asked of the device at
 * once, as with chains. What the rows' children could be is fetched together in the end, from which
 * the caller draws the tree (spec/grow.c).
 *
 * A draft head's rows continue the states of their parents: the states of all rows stay on the
 * device, and `above` says which of them a row takes. */
#include "lm/decoder_parts.h"

#include <string.h>

/* What is known of the rows of one part's tree. They are numbered in the order in which they run,
 * from 0, the root. */
struct tree_rows {
    struct top_entry *top; /* [rows, k] */
    float *mass;           /* [rows] */
    int32_t *id;
    float *score;
    int32_t *above; /* a row's parent */
};

enum { ROW_FIELDS = 4 }; /* beside `top` */

size_t tree_rows_size(int k, int n)
{
    return (size_t)n * ((size_t)k * sizeof(struct top_entry) + ROW_FIELDS * sizeof(int32_t));
}

static const struct step_tree *tree_of(const struct pass *p)
{
    return p->part[0].step->tree;
}

/* Rows of each part's tree that run before this level; the root is one of them. */
static int rows_before(const struct pass *p, int level)
{
    const struct step_tree *t = tree_of(p);
    int n = level > 0;
    for (int i = 1; i < level; i++)
        n += t->level[i - 1];
    return n;
}

static int all_rows(const struct pass *p)
{
    return rows_before(p, p->n_levels);
}

/* The rows of part i: `base` is st->tree, or the same on the host. */
static struct tree_rows rows_of(const struct pass *p, uint8_t *base, int i)
{
    int k = tree_of(p)->k;
    size_t n = (size_t)all_rows(p);
    struct tree_rows r;
    r.top = (struct top_entry *)(base + (size_t)i * tree_rows_size(k, (int)n));
    r.mass = (float *)(r.top + n * (size_t)k);
    r.id = (int32_t *)(r.mass + n);
    r.score = (float *)(r.id + n);
    r.above = (int32_t *)(r.score + n);
    return r;
}

void tree_choose(struct pass *p, const struct part *part)
{
    struct decoder_state *st = p->st;
    const struct step_tree *t = part->step->tree;
    int i = (int)(part - p->part), n = part->n_logits, row0 = rows_before(p, p->level);
    struct tree_rows r = rows_of(p, st->tree, i);
    struct top_entry *top = r.top + (size_t)row0 * (size_t)t->k;
    const float *logits = st->logits + (size_t)part->logit0 * (size_t)p->dec->c.vocab;
    p->ops->top(st->work, top, r.mass + row0, logits, n, p->dec->c.vocab, t->k, 1);
    if (p->dec->names)
        p->ops->name_ids(st->work, &top->id, n * t->k, (int)(sizeof *top / sizeof(int32_t)),
                         p->dec->names);
    if (p->level + 1 == p->n_levels)
        return;
    struct grow_job job = { .top = r.top,
                            .mass = r.mass,
                            .k = t->k,
                            .row0 = row0,
                            .n = n,
                            .n_next = t->level[p->level],
                            .named = t->pick != NULL,
                            .id = r.id,
                            .score = r.score,
                            .above = r.above,
                            .run = part->seq0 };
    job.next = chain_next_ids(p) + i * job.n_next;
    p->ops->grow(st->work, &job);
}

/* ---- states of draft heads ---- */

static float *states_of(const struct pass *p, int i, int row)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    return p->st->tree_states + ((size_t)i * (size_t)all_rows(p) + (size_t)row) * hidden;
}

static bool keeps_states(const struct pass *p)
{
    return p->dec->is_draft_head && tree_of(p);
}

float *tree_states_place(const struct pass *p)
{
    if (!keeps_states(p) || p->level == 0 || p->n_parts > 1)
        return NULL;
    return states_of(p, 0, rows_before(p, p->level));
}

void tree_keep_states(struct pass *p, const float *states)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    for (int i = 0; keeps_states(p) && !tree_states_place(p) && i < p->n_parts; i++) {
        const struct part *part = &p->part[i];
        p->ops->copy(p->st->work, states_of(p, i, rows_before(p, p->level)),
                     states + (size_t)part->logit0 * hidden,
                     sizeof(float) * hidden * (size_t)part->n_logits);
    }
}

void tree_take_states(struct pass *p, float *to)
{
    int hidden = p->dec->c.hidden;
    for (int i = 0; i < p->n_parts; i++) {
        const struct part *part = &p->part[i];
        struct tree_rows r = rows_of(p, p->st->tree, i);
        p->ops->gather(p->st->work, to + (size_t)part->row0 * (size_t)hidden, states_of(p, i, 0),
                       r.above + rows_before(p, p->level), part->n, hidden);
    }
}

/* ---- results ---- */

void tree_get(struct pass *p)
{
    struct decoder_state *st = p->st;
    int k = tree_of(p)->k;
    size_t n = (size_t)all_rows(p), hidden = (size_t)p->dec->c.hidden;
    p->ops->get(st->work, st->host_tree, st->tree, (size_t)p->n_parts * tree_rows_size(k, (int)n));
    for (int i = 0; i < p->n_parts; i++) {
        const struct step *step = p->part[i].step;
        struct tree_rows r = rows_of(p, st->host_tree, i);
        memcpy(step->tree->top, r.top, sizeof *r.top * n * (size_t)k);
        memcpy(step->tree->mass, r.mass, sizeof *r.mass * n);
        memcpy(step->tree->ids, r.id, sizeof *r.id * n);
        if (step->states)
            p->ops->get(st->work, step->states, states_of(p, i, 0), sizeof(float) * hidden);
    }
}
