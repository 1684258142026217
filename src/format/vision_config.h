/* The configuration of a vision tower, its projector and its preprocessing, from config.json and
 * preprocessor_config.json or from GGUF metadata. */
#ifndef PV_FORMAT_VISION_CONFIG_H
#define PV_FORMAT_VISION_CONFIG_H

#include "format/audio_config.h"
#include "tensor/dtype.h"

struct family;

/* Where a learned newline vector is inserted among the rows of a video. */
enum vision_newline {
    NEWLINE_END,   /* after the last frame */
    NEWLINE_FRAME, /* after each frame */
    NEWLINE_LINE,  /* after each line of tokens of a frame */
    NEWLINE_NONE
};

enum {
    VISION_MAX_LAYERS = 256,
    VISION_MAX_GRID = 64, /* permitted resolutions of still pictures that are cut into tiles */
    VISION_MAX_DEEPSTACK = 8,
    VISION_MAX_POSITIONS = 1 << 14,
    VISION_MAX_PATCH = 64
};

struct vision_config {
    const struct family *family;                  /* NULL: no tower */
    int hidden, n_layers, n_heads, head_dim, ffn; /* n_layers: the layers that are computed */
    int patch;                                    /* side of a patch in pixels */
    int image;     /* side of the only input size in pixels; 0: pictures of any size */
    int positions; /* rows of the learned position table that is interpolated; 0: none */
    int temporal;  /* frames per patch: 1 or 2 */
    int merge;     /* a token is made of merge * merge patches; 1 or 2 */
    int window;    /* side of an attention window in pixels; 0: no windows */
    bool full[VISION_MAX_LAYERS]; /* the layer attends to the whole slice instead of windows */
    float eps;
    int out; /* hidden size of the decoder */
    float mean[3], std[3];
    int64_t min_pixels, max_pixels;             /* area of a still picture */
    int64_t video_min_pixels, video_max_pixels; /* area of all frames of a video; 0: no bound */
    float tokens_per_second; /* temporal positions per second of video; 0: not used */
    int n_deepstack;         /* layers whose output also goes to the decoder, ascending */
    int deepstack[VISION_MAX_DEEPSTACK];
    int n_grid;
    int grid[VISION_MAX_GRID][2]; /* resolutions for tiled pictures: (height, width) */
    int max_tiles;                /* "anyres_max_9" -> 9 */
    enum vision_newline newline;  /* in videos whose frames are pooled */
    /* Token ids in the decoder's vocabulary; -1: none. */
    int32_t image_token, video_token, vision_start, vision_end;
    struct audio_config audio; /* hidden 0: no audio encoder */
};

/* Patches along a side of the only input size; and tokens along a side after 2 x 2 pooling, rounded
 * up. */
static inline int vision_side(const struct vision_config *c)
{
    return c->image / c->patch;
}

static inline int vision_pooled_side(const struct vision_config *c)
{
    return (vision_side(c) + 1) / 2;
}

/* Floats per row that goes to the decoder: its embedding, then the n_deepstack vectors that are
 * added after the decoder's first layers. */
static inline int vision_row_size(const struct vision_config *c)
{
    return c->out * (1 + c->n_deepstack);
}

/* The inner width of the layers' MLPs, rounded up to whole blocks of a type. */
int vision_whole_ffn(const struct vision_config *c, enum dtype t);

/* Check the bounds and relations that hold for every file format; `where` names the file. */
enum pv_status vision_config_check(const struct vision_config *c, const char *where,
                                   struct pv_error *err);

#endif
