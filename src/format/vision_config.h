/* What a vision tower, its projector and its preprocessing need to know, from config.json and
 * preprocessor_config.json or from GGUF metadata. */
#ifndef PV_FORMAT_VISION_CONFIG_H
#define PV_FORMAT_VISION_CONFIG_H

#include "base/status.h"

enum vision_kind {
    VISION_NONE,
    VISION_LLAVA,  /* SigLIP tower, two-layer projector, pooling: LLaVA-OneVision */
    VISION_QWEN2_5 /* window attention, 2-D rope, merger: Qwen2.5-VL */
};

enum {
    VISION_MAX_LAYERS = 256,
    VISION_MAX_GRID = 64, /* resolutions of LLaVA's still pictures */
    VISION_MAX_POSITIONS = 1 << 14,
    VISION_MAX_PATCH = 64
};

struct vision_config {
    enum vision_kind kind;
    int hidden, n_layers, n_heads, head_dim, ffn; /* n_layers: those that run */
    int patch;                                    /* pixels */
    int image;                                    /* LLaVA: side of the one input size, pixels */
    int temporal;                                 /* frames of a patch: 1 or 2 */
    int merge;                                    /* 1 or 2 */
    int window;                                   /* Qwen2.5: pixels of a window's side */
    bool full[VISION_MAX_LAYERS];                 /* layers that attend to the whole slice */
    float eps;
    int out; /* hidden size of the decoder */
    float mean[3], std[3];
    int64_t min_pixels, max_pixels; /* Qwen still pictures, as the processor's config says */
    float tokens_per_second;        /* Qwen2.5 */
    int n_grid;
    int grid[VISION_MAX_GRID][2]; /* LLaVA: (height, width) */
    int max_tiles;                /* LLaVA: "anyres_max_9" -> 9 */
    /* Ids in the decoder's vocabulary; -1: none. */
    int32_t image_token, video_token, vision_start, vision_end;
};

/* Patches along a side (LLaVA), and of pooled video tokens along a side: ceil(half). */
static inline int vision_side(const struct vision_config *c)
{
    return c->image / c->patch;
}

static inline int vision_pooled_side(const struct vision_config *c)
{
    return (vision_side(c) + 1) / 2;
}

/* Bounds and relations that must hold whatever the file; `where` names it. */
enum pv_status vision_config_check(const struct vision_config *c, const char *where,
                                   struct pv_error *err);

#endif
