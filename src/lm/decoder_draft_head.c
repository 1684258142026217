/* How the rows of a draft head begin; what follows is a layer like any other. EAGLE: x = W_fc (e,
 * h). EAGLE-3: x = W_fc (h_1, .., h_k) or a state of the head's own, and q, k and v of (norm(e),
 * norm(x)). */
#include "lm/decoder_parts.h"

/* Where the features of rows from `at` floats on arrive. */
static float *features_at(const struct pass *p, size_t at)
{
    const struct decoder_state *st = p->st;
    if (p->dec->n_features > 0)
        return st->tapped + (size_t)p->dec->n_features * at;
    return (p->dec->hidden_norm ? st->xn
                                : st->pair + (size_t)st->max_rows * (size_t)p->dec->c.hidden) +
           at;
}

void draft_head_put_features(struct pass *p)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    for (int i = 0; i < p->n_parts && p->dec->is_draft_head; i++) {
        const struct step *step = p->part[i].step;
        size_t width = p->dec->n_features > 0 && !step->own_features
                           ? (size_t)p->dec->n_features * hidden
                           : hidden;
        p->ops->put(p->st->work, features_at(p, (size_t)p->part[i].row0 * hidden), step->features,
                    sizeof(float) * width * (size_t)step->n);
    }
}

void draft_head_take_features(struct pass *p)
{
    if (p->dec->is_draft_head && p->level > 0)
        tree_take_states(p, features_at(p, 0));
}

void draft_head_fuse_features(struct pass *p)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    for (int i = 0; i < p->n_parts; i++) {
        const struct part *part = &p->part[i];
        size_t at = (size_t)part->row0 * hidden;
        struct matmul_job job = { &p->dec->fc, p->x + at, hidden };
        if (part->step->own_features || p->level > 0)
            p->ops->copy(p->st->work, p->x + at, features_at(p, at),
                         sizeof(float) * hidden * (size_t)part->n);
        else
            p->ops->matmul(p->st->work, &job, 1, features_at(p, at), part->n);
    }
}

void draft_head_widen_rows(struct pass *p)
{
    const struct decoder *dec = p->dec;
    struct decoder_state *st = p->st;
    size_t hidden = (size_t)dec->c.hidden;
    float *second = st->pair + (size_t)st->max_rows * hidden;
    int n = p->n_rows;
    p->ops->rmsnorm(st->work, st->pair, st->xn, dec->layer[0].attn_norm, n, dec->c.hidden,
                    dec->c.rms_eps);
    p->ops->rmsnorm(st->work, second, p->x, dec->hidden_norm, n, dec->c.hidden, dec->c.rms_eps);
    if (dec->norm_residual)
        p->ops->copy(st->work, p->x, second, sizeof(float) * (size_t)n * hidden);
    p->ops->gather(st->work, st->wide, st->pair, st->order, 2 * n, dec->c.hidden);
}

void draft_head_pair_rows(struct pass *p, int i, int n, const float *ready)
{
    const struct decoder *dec = p->dec;
    struct decoder_state *st = p->st;
    int hidden = dec->c.hidden;
    size_t at = (size_t)i * (size_t)hidden;
    float *x = p->x + at, *first = st->pair + at;
    float *second = first + (size_t)st->max_rows * (size_t)hidden;
    float *to = dec->embed_norm ? x : first;
    struct matmul_job job = { &dec->fc, x, (size_t)hidden };
    if (ready)
        pass_put_rows(p, to, ready, n);
    else
        p->ops->embed(st->work, to, &dec->embed, p->in.ids + i, n, NULL);
    if (dec->embed_norm)
        p->ops->rmsnorm(st->work, first, x, dec->embed_norm, n, hidden, dec->c.rms_eps);
    if (dec->hidden_norm)
        p->ops->rmsnorm(st->work, second, st->xn + at, dec->hidden_norm, n, hidden, dec->c.rms_eps);
    p->ops->gather(st->work, st->wide + 2 * at, st->pair, st->order + 2 * i, 2 * n, hidden);
    p->ops->matmul(st->work, &job, 1, st->wide + 2 * at, n);
}
