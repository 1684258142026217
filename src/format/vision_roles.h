/* The tensors of a vision tower and its projector by role: their names in safetensors and in GGUF
 * files, and their shapes. */
#ifndef PV_FORMAT_VISION_ROLES_H
#define PV_FORMAT_VISION_ROLES_H

#include "format/model_file.h"

enum vision_dim {
    VDIM_NONE,
    VDIM_HIDDEN,
    VDIM_FFN,
    VDIM_PATCH,     /* a patch's pixels: stored as (3, [temporal,] patch, patch) */
    VDIM_POSITIONS, /* rows of the table of learned positions */
    VDIM_MERGED,    /* hidden size times the patches of one token */
    VDIM_OUT        /* hidden size of the decoder */
};

/* Which prefix of struct vision_layout a tensor's name in a directory begins with. */
enum vision_place { PLACE_TOWER, PLACE_MM0, PLACE_MM2, PLACE_NEWLINE };

struct vision_role {
    const char *hf;   /* after the place's prefix, or after that of the layer or merger */
    const char *gguf; /* complete, or after "v.blk.N." or "v.deepstack.N." */
    enum vision_dim dim[2];
    enum vision_place place;
    int part;    /* 1..3: in a directory, this third of the rows of a fused qkv tensor; else 0 */
    bool fused;  /* fused in GGUF files too */
    size_t slot; /* offset in struct vision_tensors, vision_layer_tensors or vision_merger */
};

/* The prefixes of tensor names in a directory; releases of one family differ in them. */
struct vision_layout {
    const char *prefix[4]; /* by enum vision_place */
    const char *layers;    /* between the tower's prefix and the layer's number */
    const char *mergers;   /* the same for deepstack mergers; NULL: the family has none */
};

struct vision_roles {
    const struct vision_role *top, *layer, *merger; /* merger: of each deepstack merger */
    int n_top, n_layer, n_merger;
};

/* The size of a dimension; 0 for VDIM_NONE. */
int64_t vision_dim_size(enum vision_dim d, const struct vision_config *c);

#endif
