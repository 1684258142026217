/* A video or a still picture in a prompt: its pixels as the model sees them, how many rows of the
 * timeline they become, and where those rows lie in position space. */
#ifndef PV_FAMILY_MEDIA_H
#define PV_FAMILY_MEDIA_H

#include "base/buf.h"
#include "base/digest.h"
#include "family/frame_policy.h"
#include "format/config.h"
#include "video/tiles.h"

/* Where the pixels of a media item can be had again: a file, or (path NULL) its bytes. */
struct media_origin {
    char *path;    /* owned */
    uint8_t *data; /* [size]; owned */
    size_t size;
    char *allow_formats, *media_helper; /* owned */
    struct pv_video_params params;      /* without callbacks; limits and these two: those here */
    struct pv_limits limits;
};
void media_origin_close(struct media_origin *o); /* NULL is fine */

struct media;

enum { MEDIA_CAPTION_SIZE = 64 };

/* What a family does with a media item. */
struct family_media {
    /* All of struct media that follows from its sizes and the number of its frames. */
    enum pv_status (*plan)(struct media *m, const struct vision_config *c,
                           const struct pv_video_params *p, double sample_fps, bool alone,
                           struct pv_error *err);
    /* As media_positions; NULL: rows are counted like tokens. */
    int32_t (*positions)(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3]);
    /* The text before a run of a video of n frames, which are index[] of one that has fps a second;
     * NULL: there is none. */
    void (*caption)(char out[MEDIA_CAPTION_SIZE], const int64_t *index, int n, double fps, int run);
    /* The text after such a video, which lasts so many seconds; NULL: there is none. */
    void (*note)(struct buf *b, const int64_t *index, int n, double fps, double seconds);
    bool lined; /* a line ends after each media item */
};

/* The sound of a media item, in chunks that are encoded whole. */
struct media_sound {
    int n_chunks;   /* 0: none */
    int chunk_rows; /* rows of the prompt that a chunk becomes */
    int chunk_size; /* floats of its features */
    float *mel;     /* [n_chunks, mel, frames]; owned; NULL: as struct media.rgb */
};

struct media {
    const struct family *family;
    bool video;
    int height, width; /* pixels of a view */
    enum resize_kind resize;
    int n_views;  /* frames, whole slices of them; of a picture in tiles: views */
    uint8_t *rgb; /* [n_views, height, width, 3]; owned; NULL: not loaded yet, see `origin` */
    struct media_origin *origin; /* owned; NULL where the pixels are here */
    uint8_t digest[DIGEST_SIZE]; /* of all that its rows depend on: pixels, and how they are cut */
    /* The tower's side: slices of h x w patches, `temporal` views each. */
    int n_slices, h, w;
    int unit_rows; /* rows of one unit; units are encoded whole, one after the other */
    int n_units;   /* slices, but 1 for a picture in tiles */
    int line;      /* rows of a unit that are side by side in the picture */
    /* Rows are numbered pictures first, then the newline or the sound; in the prompt the rows of
     * each unit are followed by those of the sound that is heard meanwhile (media_row). */
    int run_rows;           /* rows that follow one another in the prompt; text lies between runs */
    bool newline;           /* one more row at the end */
    int n_rows;             /* in all */
    int merged_h, merged_w; /* tokens along the sides of a slice; 0: they are not merged */
    float slice_seconds;    /* of a video whose positions carry time */
    float tokens_per_second;
    enum pv_time_rule time_rule;
    struct media_sound sound;
    struct tiling tiling; /* of a picture in tiles; 0 rows: one square view and a newline */
    int source_height, source_width;
};

/* What a media item will be, from sizes alone: all of struct media but the pixels. n_frames 0: a
 * still picture; `alone`: the only one of its message (some families cut such a picture into
 * tiles). */
enum pv_status media_plan(struct media *m, const struct vision_config *c,
                          const struct pv_video_params *p, int height, int width, int n_frames,
                          double sample_fps, bool alone, struct pv_error *err);
/* Gives a planned video its sound; or of no pictures at all (media_plan_sound) all that it is. */
enum pv_status media_add_sound(struct media *m, const struct vision_config *c, int n_chunks,
                               struct pv_error *err);
enum pv_status media_plan_sound(struct media *m, const struct vision_config *c,
                                const struct pv_video_params *p, int n_chunks,
                                struct pv_error *err);
/* Rows of its pictures, of its sound. */
int media_picture_rows(const struct media *m);
int media_sound_rows(const struct media *m);
/* The row at a place of the prompt, counted from the item's first; *n (may be NULL): rows from
 * there on that follow one another in both countings. And where a row is. */
int media_row(const struct media *m, int place, int *n);
int media_place(const struct media *m, int row);
/* Stretches of the prompt that media_row finds, at most. */
int media_stretches(const struct media *m);
/* What is encoded whole and kept together: a unit of pictures, or a chunk of sound. */
struct media_unit {
    int number;   /* -1: none, the newline */
    int first, n; /* rows */
};
struct media_unit media_unit(const struct media *m, int row);
int media_units(const struct media *m);

/* Memory for pixels and features. */
enum pv_status media_reserve(struct media *m, struct pv_error *err);
size_t media_size(const struct media *m);       /* bytes of pixels */
size_t media_sound_size(const struct media *m); /* bytes of features */
/* Whether pixels and features are here. */
bool media_is_loaded(const struct media *m);
void media_clear(struct media *m);
/* The place of view i. */
uint8_t *media_view(const struct media *m, int i);
/* The last frame again, until there are n_views: whole slices. */
void media_pad(struct media *m, int n_frames);
/* All pixels and features are here: makes the digest. */
void media_seal(struct media *m);
/* The same with pixels that are elsewhere, on so many threads; m has memory for them. The digest
 * does not depend on them. */
void media_take_pixels(struct media *m, const uint8_t *rgb, int threads);
/* Of sealed media: equal digests, and equal places in time. */
bool media_equal(const struct media *a, const struct media *b);

/* Positions of the rows [row, row + n) of a media item, a run that begins at `start`: pos [n][3].
 * Returns where what follows begins. */
int32_t media_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3]);

#endif
