/* The tensors of a vision tower and its projector by what they do: their names in either kind of
 * file, and their shapes. */
#ifndef PV_FORMAT_VISION_ROLES_H
#define PV_FORMAT_VISION_ROLES_H

#include "format/model_file.h"

enum vision_dim {
    VDIM_NONE,
    VDIM_HIDDEN,
    VDIM_FFN,
    VDIM_PATCH,     /* a patch's pixels: stored as (3, [temporal,] patch, patch) */
    VDIM_POSITIONS, /* patches of LLaVA's one input size */
    VDIM_MERGED,    /* hidden size of the patches of one token together */
    VDIM_OUT        /* hidden size of the decoder */
};

/* Where a name begins in a directory. */
enum vision_place { PLACE_TOWER, PLACE_MM0, PLACE_MM2, PLACE_NEWLINE };

struct vision_role {
    const char *hf;   /* after the place's prefix, or after that of the layer */
    const char *gguf; /* complete, or after "v.blk.N." */
    enum vision_dim dim[2];
    enum vision_place place;
    int part;    /* 1..3: in a directory it is this third of the tensor's rows (fused q, k, v) */
    size_t slot; /* offset in struct vision_tensors or struct vision_layer_tensors */
};

/* How one release of one family prefixes its tensors in a directory. */
struct vision_layout {
    enum vision_kind kind;
    const char *prefix[4]; /* by enum vision_place */
    const char *layers;    /* after the tower's prefix, before the number of the layer */
};

struct vision_roles {
    const struct vision_role *top, *layer;
    int n_top, n_layer;
};

/* `kind` is not VISION_NONE. */
struct vision_roles vision_roles(enum vision_kind kind);
/* The i-th layout to be tried, NULL past the last. */
const struct vision_layout *vision_layout(int i);
/* The size of a dimension; 0 for VDIM_NONE. */
int64_t vision_dim_size(enum vision_dim d, const struct vision_config *c);

#endif
