/* Chains: rows that follow a step's last row, each of the token that was chosen after the one
 * before it. Every row is a level, a pass through all layers of one row for each part. Where a row
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

void chain_list_runs(struct pass *p)
{
    memcpy(p->st->runs, p->runs, sizeof *p->runs * (size_t)p->n_seqs);
    for (int k = 1; k < p->n_levels; k++)
        for (int i = 0; i < p->n_seqs; i++) {
            const struct attn_run *first = &p->runs[i];
            p->st->runs[k * p->n_seqs + i] =
                (struct attn_run){ .row0 = i,
                                   .n = 1,
                                   .first_slot = first->first_slot + first->n + k - 1,
                                   .kv = first->kv };
        }
}

/* The inputs of a level beyond the first: `base` is st->inputs, or the same on the host. */
static struct step_inputs level_inputs(const struct pass *p, uint8_t *base, int level)
{
    int half = p->dec->c.head_dim / 2;
    size_t size = step_inputs_at(base, half, p->n_parts, p->n_parts).size;
    return step_inputs_at(base - (size_t)level * size, half, p->n_parts, p->n_parts);
}

size_t chain_fill_inputs(struct pass *p)
{
    size_t half = (size_t)p->dec->c.head_dim / 2, size = 0;
    for (int k = 1; k < p->n_levels; k++) {
        struct step_inputs in = level_inputs(p, p->st->host_inputs, k);
        for (int i = 0; i < p->n_parts; i++) {
            const struct step *step = p->part[i].step;
            in.ids[i] = 0; /* a token: which one, the device knows */
            in.rows[i] = i;
            if (step->choice)
                in.position[i] = step->choice->position[k];
            rope_tables(&p->dec->rope, in.cos + (size_t)i * half, in.sin + (size_t)i * half,
                        step->pos + step->n + k - 1, 1);
        }
        size += in.size;
    }
    return size;
}

int32_t *chain_chosen(const struct pass *p)
{
    return p->st->chosen + (size_t)p->level * (size_t)p->n_parts;
}

void chain_next_level(struct pass *p)
{
    struct decoder_state *st = p->st;
    int32_t *tokens = chain_chosen(p);
    p->level++;
    p->in = level_inputs(p, st->inputs, p->level);
    p->host_in = level_inputs(p, st->host_inputs, p->level);
    p->in.ids = tokens;
    p->n_rows = p->n = p->n_logits = p->n_parts;
    p->dropped = p->media = false;
    for (int i = 0; i < p->n_parts; i++) {
        struct part *part = &p->part[i];
        part->row0 = part->seq0 = part->logit0 = i;
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
