/* The rows of a step before the layers: embeddings of tokens, rows of media as they were given (the
 * rows of a head: decoder_draft_head.c). And what rows of media bring along for later: with
 * config.n_deepstack = K a row is 1 + K vectors of `hidden` floats, the first of which is its
 * embedding; after layer k < K vector 1 + k is added to the row's residual stream, x = x + v. Rows
 * of tokens have nothing added, not even zero, which would turn -0 into 0. */
#include "lm/decoder_parts.h"

/* What the rows of a run have in common. */
static int row_kind(const struct pass *p, int i)
{
    int32_t id = p->host_in.ids[i];
    return id >= 0 ? 0 : p->dec->is_draft_head && id == STEP_PAIRED ? STEP_PAIRED : STEP_READY;
}

void pass_put_rows(struct pass *p, float *to, const float *from, int n)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    p->ops->put(p->st->work, to, from, sizeof(float) * (size_t)n * hidden);
}

/* ---- wide rows of media ---- */

static size_t media_width(const struct pass *p)
{
    return (size_t)config_media_width(&p->dec->c);
}

/* The wide rows of a part, on the device. */
static const float *media_rows(const struct pass *p, const struct part *part)
{
    if (part->step->embeds_there)
        return part->step->embeds;
    return p->st->media + (size_t)part->row0 * media_width(p);
}

/* Vector k of the rows [row, row + n) of a part: a wide row is 1 + K rows of `hidden` floats. */
static void take_vector(struct pass *p, float *to, const struct part *part, int row, int n, int k)
{
    const int32_t *order = p->st->media_order + (size_t)k * (size_t)p->st->max_rows + row;
    p->ops->gather(p->st->work, to, media_rows(p, part), order, n, p->dec->c.hidden);
}

/* The next run of rows of media in a part, from row *row on: its length, 0 at the end. */
static int next_media(const struct pass *p, const struct part *part, int *row)
{
    const int32_t *ids = p->host_in.ids + part->row0;
    int n = 0;
    while (*row < part->step->n && ids[*row] >= 0)
        ++*row;
    while (*row + n < part->step->n && ids[*row + n] < 0)
        n++;
    return n;
}

void pass_put_media(struct pass *p)
{
    size_t width = media_width(p);
    for (int k = 0; k < p->n_parts && p->media && p->dec->c.n_deepstack > 0; k++) {
        const struct part *part = &p->part[k];
        int row = 0, n = part->step->embeds_there ? 0 : next_media(p, part, &row);
        while (n > 0) {
            p->ops->put(p->st->work, p->st->media + (size_t)(part->row0 + row) * width,
                        part->step->embeds + (size_t)row * width,
                        sizeof(float) * (size_t)n * width);
            row += n;
            n = next_media(p, part, &row);
        }
    }
}

bool pass_deepens(const struct pass *p, int layer)
{
    return p->media && layer < p->dec->c.n_deepstack;
}

/* No row has been dropped yet: that is after the last layer's attention, and the last layer has no
 * vector (config.h). */
void pass_add_deepstack(struct pass *p, int layer)
{
    int hidden = p->dec->c.hidden;
    for (int k = 0; k < p->n_parts && pass_deepens(p, layer); k++) {
        const struct part *part = &p->part[k];
        int row = 0;
        for (int n = next_media(p, part, &row); n > 0; n = next_media(p, part, &row)) {
            size_t at = (size_t)(part->row0 + row) * (size_t)hidden;
            take_vector(p, p->tmp + at, part, row, n, 1 + layer);
            p->ops->add(p->st->work, p->x + at, p->tmp + at, n, hidden);
            row += n;
        }
    }
}

/* ---- what the first layer starts from ---- */

/* The part that row i belongs to. */
static const struct part *part_of(const struct pass *p, int i)
{
    int k = p->n_parts - 1;
    while (p->part[k].row0 > i)
        k--;
    return &p->part[k];
}

/* Rows of tokens go together, whatever their parts; those of embeddings by part. */
void pass_embed_rows(struct pass *p)
{
    size_t hidden = (size_t)p->dec->c.hidden;
    for (int i = 0; i < p->n_rows;) {
        int n = 1, kind = row_kind(p, i);
        const struct part *part = part_of(p, i);
        int end = kind ? part->row0 + part->step->n : p->n_rows;
        while (i + n < end && row_kind(p, i + n) == kind)
            n++;
        const float *ready = kind ? part->step->embeds + (size_t)(i - part->row0) * hidden : NULL;
        float *x = (p->dec->n_features > 0 ? p->st->xn : p->x) + (size_t)i * hidden;
        if (p->dec->n_features > 0 && ready)
            pass_put_rows(p, x, ready, n);
        else if (p->dec->n_features > 0)
            p->ops->embed(p->st->work, x, &p->dec->embed, p->in.ids + i, n, NULL);
        else if (kind && p->dec->c.n_deepstack > 0)
            take_vector(p, x, part, i - part->row0, n, 0);
        else if (kind == STEP_READY && part->step->embeds_there)
            p->ops->copy(p->st->work, x, ready, sizeof(float) * (size_t)n * hidden);
        else if (kind == STEP_READY)
            pass_put_rows(p, x, ready, n);
        else if (p->dec->is_draft_head)
            draft_head_pair_rows(p, i, n, ready);
        else
            p->ops->embed(p->st->work, x, &p->dec->embed, p->in.ids + i, n,
                          n == p->n_rows && !p->bulk ? p->dec->layer[0].attn_norm : NULL);
        i += n;
    }
}
