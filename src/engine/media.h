/* A video or a still picture in a prompt: its pixels as the model sees them, how many rows of the
 * timeline they become, and where those rows lie in position space. */
#ifndef PV_ENGINE_MEDIA_H
#define PV_ENGINE_MEDIA_H

#include "base/digest.h"
#include "engine/frame_policy.h"
#include "format/config.h"
#include "video/tiles.h"

/* Where the pixels of a medium can be had again: a file, or (path NULL) its bytes. */
struct media_origin {
    char *path;    /* owned */
    uint8_t *data; /* [size]; owned */
    size_t size;
    struct pv_video_params params; /* without callbacks; limits: those below */
    struct pv_limits limits;
};

struct media {
    enum vision_kind kind;
    bool video;
    int height, width; /* pixels of a view */
    enum resize_kind resize;
    int n_views;  /* frames, an even number of them for Qwen; LLaVA still: views */
    uint8_t *rgb; /* [n_views, height, width, 3]; owned; NULL: not loaded yet, see `origin` */
    struct media_origin *origin; /* owned; NULL where the pixels are here */
    uint8_t digest[DIGEST_SIZE]; /* of all that its rows depend on: pixels, and how they are cut */
    /* The tower's side: slices of h x w patches, `temporal` views each. */
    int n_slices, h, w;
    int unit_rows;          /* rows of one unit; units are encoded whole, one after the other */
    int n_units;            /* slices, but 1 for a LLaVA still picture */
    bool newline;           /* one more row at the end (LLaVA video) */
    int n_rows;             /* in all */
    int merged_h, merged_w; /* Qwen: tokens along the sides of a slice */
    float slice_seconds;    /* Qwen video */
    float tokens_per_second;
    enum pv_time_rule time_rule;
    struct tiling tiling; /* LLaVA still; 0 rows: one square view and a newline */
    int source_height, source_width;
};

/* What a medium will be, from sizes alone: all of struct media but the pixels. n_frames 0: a still
 * picture; `alone`: the only one of its message (LLaVA cuts such a picture into tiles). */
enum pv_status media_plan(struct media *m, const struct vision_config *c,
                          const struct pv_video_params *p, int height, int width, int n_frames,
                          double sample_fps, bool alone, struct pv_error *err);
/* Memory for the pixels. */
enum pv_status media_reserve(struct media *m, struct pv_error *err);
size_t media_size(const struct media *m);
void media_clear(struct media *m);
/* The place of view i. */
uint8_t *media_view(const struct media *m, int i);
/* The last frame again, until there are n_views (Qwen takes frames in pairs). */
void media_pad(struct media *m, int n_frames);
/* All pixels are here: makes the digest. */
void media_seal(struct media *m);
/* Of sealed media: equal digests, and equal places in time. */
bool media_equal(const struct media *a, const struct media *b);

/* Tokens of one line of a unit: LLaVA pools to a square. */
int media_grid_width(const struct media *m);
/* Positions of all rows of a medium that begins at `start`: pos [n_rows][3]. Returns where what
 * follows begins. */
int32_t media_positions(const struct media *m, int32_t start, int32_t (*pos)[3]);

#endif
