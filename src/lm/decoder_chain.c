/* Chains: rows that follow a step's last row, each of the token that was chosen after the one
 * before it. Every row is a level, a pass through all layers of one row for each part; in a tree
 * (decoder_tree.c), of several rows for each part. Where a row
 * lies and which position it has is known beforehand; only its token is not, and that goes from the
 * kernel that chooses it straight to the one that looks up its embedding. So all levels are asked
 * of the device at once, and the tokens are fetched together in the end.
 *
 * The inputs of level k lie k blocks in front of those of level 0, wherever the chain ends: a
 * recorded level finds them in chains of any length. */
#include "lm/decoder_parts.h"

#include <string.h>

size_t chain_inputs_size(int half, int max_logits)
{
    uint8_t base[1]; /* only offsets are taken from it */
    int parts = max_logits < STEP_MAX_PARTS ? max_logits : STEP_MAX_PARTS;
    return STEP_MAX_CHAIN * step_inputs_at(base, half, parts, parts).size;
}

/* Rows of a level beyond the first, of each part. */
static int level_rows(const struct pass *p, int level)
{
    const struct step_tree *t = p->part[0].step->tree;
    return t ? t->level[level - 1] : 1;
}

static int most_level_rows(const struct pass *p)
{
    int most = 1;
    for (int k = 1; k < p->n_levels; k++)
        most = level_rows(p, k) > most ? level_rows(p, k) : most;
    return most;
}

void chain_list_runs(struct pass *p)
{
    static const int unset[STEP_MAX_TREE]; /* the device fills in parents */
    bool tree = p->part[0].step->tree != NULL;
    memcpy(p->st->runs, p->runs, sizeof *p->runs * (size_t)p->n_seqs);
    for (int k = 1, before = 0; k < p->n_levels; before += level_rows(p, k++))
        for (int i = 0; i < p->n_seqs; i++) {
            const struct attn_run *first = &p->runs[i];
            int root = first->first_slot + first->pending + first->n, n = level_rows(p, k);
            p->st->runs[k * p->n_seqs + i] =
                (struct attn_run){ .row0 = i * n,
                                   .n = n,
                                   .first_slot = tree ? root : root + before,
                                   .parent = tree ? unset : NULL,
                                   .pending = tree ? before : 0,
                                   .kv = first->kv };
        }
}

/* The inputs of a level beyond the first: `base` is st->inputs, or the same on the host. */
static struct step_inputs level_inputs(const struct pass *p, uint8_t *base, int level)
{
    int half = p->dec->c.head_dim / 2, n = p->n_parts * most_level_rows(p);
    size_t size = step_inputs_at(base, half, n, n).size;
    return step_inputs_at(base - (size_t)level * size, half, n, n);
}

/* Ids and rope of part i's rows of a level, on the host. */
static void fill_part(struct pass *p, struct step_inputs *in, int i, int level, int row)
{
    const struct step *step = p->part[i].step;
    size_t half = (size_t)p->dec->c.head_dim / 2, n = (size_t)level_rows(p, level);
    const int32_t *pick = step->tree && step->tree->pick ? step->tree->pick + row : NULL;
    float *cos = in->cos + (size_t)i * n * half, *sin = in->sin + (size_t)i * n * half;
    rope_tables(&p->dec->rope, cos, sin, step->pos + step->n + level - 1, 1);
    for (size_t r = 0; r < n; r++) {
        size_t at = (size_t)i * n + r;
        in->ids[at] = pick ? pick[r] : 0; /* a token: which one, the device knows */
        in->rows[at] = (int32_t)at;
        if (r > 0) {
            memcpy(cos + r * half, cos, sizeof *cos * half);
            memcpy(sin + r * half, sin, sizeof *sin * half);
        }
    }
    if (step->choice)
        in->position[i] = step->choice->position[level];
}

size_t chain_fill_inputs(struct pass *p)
{
    size_t size = 0;
    for (int k = 1, row = 0; k < p->n_levels; row += level_rows(p, k++)) {
        struct step_inputs in = level_inputs(p, p->st->host_inputs, k);
        for (int i = 0; i < p->n_parts; i++)
            fill_part(p, &in, i, k, row);
        size += in.size;
    }
    return size;
}

int32_t *chain_next_ids(const struct pass *p)
{
    return level_inputs(p, p->st->inputs, p->level + 1).ids;
}

int32_t *chain_chosen(const struct pass *p)
{
    return p->st->chosen + (size_t)p->level * (size_t)p->n_parts;
}

void chain_next_level(struct pass *p)
{
    struct decoder_state *st = p->st;
    int32_t *tokens = chain_chosen(p);
    int n = level_rows(p, ++p->level);
    p->in = level_inputs(p, st->inputs, p->level);
    p->host_in = level_inputs(p, st->host_inputs, p->level);
    if (!p->part[0].step->tree)
        p->in.ids = tokens;
    p->n_rows = p->n = p->n_logits = p->n_parts * n;
    p->dropped = p->media = false;
    for (int i = 0; i < p->n_parts; i++) {
        struct part *part = &p->part[i];
        part->row0 = part->logit0 = i * n;
        part->seq0 = i;
        part->n = part->n_logits = n;
    }
    memcpy(p->runs, st->runs + p->level * p->n_seqs, sizeof *p->runs * (size_t)p->n_seqs);
    p->x = st->x;
    p->tmp = st->tmp;
    p->q = st->q;
    p->att = st->att;
}

void chain_get_tokens(struct pass *p)
{
    struct decoder_state *st = p->st;
    size_t n = (size_t)p->n_levels * (size_t)p->n_parts;
    p->ops->get(st->work, st->host_chosen, st->chosen, n * sizeof *st->chosen);
    for (int i = 0; i < p->n_parts; i++) {
        const struct step *step = p->part[i].step;
        int32_t *out = step->argmax ? step->argmax : step->choice->drawn;
        for (int k = 0; k < p->n_levels; k++)
            out[k] = st->host_chosen[k * p->n_parts + i];
    }
}
