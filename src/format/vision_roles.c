/* The sizes that dimensions of a tower's tensors stand for. */
#include "format/vision_roles.h"

int64_t vision_dim_size(enum vision_dim d, const struct vision_config *c)
{
    switch (d) {
    case VDIM_HIDDEN:
        return c->hidden;
    case VDIM_FFN:
        return c->ffn;
    case VDIM_PATCH:
        return (int64_t)3 * c->temporal * c->patch * c->patch;
    case VDIM_POSITIONS:
        return c->positions ? c->positions : (int64_t)vision_side(c) * vision_side(c);
    case VDIM_MERGED:
        return (int64_t)c->hidden * c->merge * c->merge;
    case VDIM_OUT:
        return c->out;
    default:
        return 0;
    }
}
