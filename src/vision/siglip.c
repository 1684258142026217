/* SigLIP as LLaVA-OneVision uses it: learned positions, every frame
 * attends to itself, no norm after the last layer, a projector of two matrices on all tokens. */
#include "vision/tower.h"

void siglip_encode(struct tower_pass *p)
{
    const struct vision_config *c = &p->v->c;
    struct vision_state *st = p->st;
    int side = p->h * p->w;
    for (int i = 0; i <= p->n_slices; i++)
        st->slices[i] = i * side;
    tower_embed(p, st->x);
    for (int i = 0; i < p->n_slices; i++)
        p->ops->add(st->work, st->x + (size_t)i * (size_t)side * (size_t)c->hidden, p->v->position,
                    side, c->hidden);
    tower_layers(p);
    tower_project(p, st->x, NULL);
}
