/* What a vision tower, its projector and its preprocessing need to know, from config.json and
 * preprocessor_config.json or from GGUF metadata. */
#ifndef PV_FORMAT_VISION_CONFIG_H
#define PV_FORMAT_VISION_CONFIG_H

#include "format/audio_config.h"

struct family;

/* Where the learned newline stands among the rows of a video. */
enum vision_newline {
    NEWLINE_END,   /* after the last frame */
    NEWLINE_FRAME, /* after each frame */
    NEWLINE_LINE,  /* after each line of tokens */
    NEWLINE_NONE
};

enum {
    VISION_MAX_LAYERS = 256,
    VISION_MAX_GRID = 64, /* resolutions of still pictures that are cut into tiles */
    VISION_MAX_DEEPSTACK = 8,
    VISION_MAX_POSITIONS = 1 << 14,
    VISION_MAX_PATCH = 64
};

struct vision_config {
    const struct family *family;                  /* NULL: no tower */
    int hidden, n_layers, n_heads, head_dim, ffn; /* n_layers: those that run */
    int patch;                                    /* pixels */
    int image;                                    /* side of the one input size, pixels; or 0 */
    int positions;                                /* rows of a learned table for any size; else 0 */
    int temporal;                                 /* frames of a patch: 1 or 2 */
    int merge;                                    /* 1 or 2 */
    int window;                                   /* pixels of a window's side; 0: no windows */
    bool full[VISION_MAX_LAYERS];                 /* layers that attend to the whole slice */
    float eps;
    int out; /* hidden size of the decoder */
    float mean[3], std[3];
    int64_t min_pixels, max_pixels;             /* area of still pictures of any size, */
    int64_t video_min_pixels, video_max_pixels; /* and of all frames of a video; 0: not bounded */
    float tokens_per_second;                    /* time in positions; 0: none */
    int n_deepstack; /* layers whose output also goes to the decoder, ascending */
    int deepstack[VISION_MAX_DEEPSTACK];
    int n_grid;
    int grid[VISION_MAX_GRID][2]; /* of pictures that are cut into tiles: (height, width) */
    int max_tiles;                /* "anyres_max_9" -> 9 */
    enum vision_newline newline;  /* of videos whose frames are pooled */
    /* Ids in the decoder's vocabulary; -1: none. */
    int32_t image_token, video_token, vision_start, vision_end;
    struct audio_config audio; /* hidden 0: the model does not hear */
};

/* Patches along a side of the one input size, and pooled tokens of a frame: ceil(half). */
static inline int vision_side(const struct vision_config *c)
{
    return c->image / c->patch;
}

static inline int vision_pooled_side(const struct vision_config *c)
{
    return (vision_side(c) + 1) / 2;
}

/* Floats of a row that goes to the decoder: its embedding, then the rows added after the first
 * layers. */
static inline int vision_row_size(const struct vision_config *c)
{
    return c->out * (1 + c->n_deepstack);
}

/* Bounds and relations that must hold whatever the file; `where` names it. */
enum pv_status vision_config_check(const struct vision_config *c, const char *where,
                                   struct pv_error *err);

#endif
