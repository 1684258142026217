/* A media item: a video, still picture or sound in a prompt. Holds its pixels as the model takes
 * them, the number of prompt rows that they become, and the positions of these rows. */
#ifndef PV_FAMILY_MEDIA_H
#define PV_FAMILY_MEDIA_H

#include "base/buf.h"
#include "base/digest.h"
#include "family/frame_policy.h"
#include "format/config.h"
#include "video/tiles.h"

#include <pthread.h>
#include <stdatomic.h>

/* Where the pixels of a media item can be read again: a file, or (path NULL) its bytes in
 * memory. */
struct media_origin {
    char *path;    /* owned */
    uint8_t *data; /* [size]; owned */
    size_t size;
    char *allow_formats, *media_helper; /* owned */
    struct pv_video_params params;      /* without callbacks; its pointers refer to fields here */
    struct pv_limits limits;
};
void media_origin_close(struct media_origin *o); /* NULL is fine */

/* Pixels and features, which all copies of a media item share; freed with the last of them. */
struct media_store {
    atomic_int copies;
    pthread_mutex_t lock;        /* protects the pointers while the pixels are read again */
    uint8_t *rgb;                /* owned; NULL: not loaded yet */
    float *mel;                  /* owned; likewise */
    struct media_origin *origin; /* owned; NULL if everything was loaded at once */
};

struct media;

enum { MEDIA_CAPTION_SIZE = 64 };

/* How a family treats a media item. */
struct family_media {
    /* Computes all fields of struct media that follow from sizes and the number of frames. */
    enum pv_status (*plan)(struct media *m, const struct vision_config *c,
                           const struct pv_video_params *p, double sample_fps, bool alone,
                           struct pv_error *err);
    /* See media_positions; NULL: consecutive positions, as for tokens of text. */
    int32_t (*positions)(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3]);
    /* The text before run number `run` of a video, of which n frames, index[], were sampled at fps
     * frames per second of the file. NULL: no such text. */
    void (*caption)(char out[MEDIA_CAPTION_SIZE], const int64_t *index, int n, double fps, int run);
    /* The text after such a video, which lasts `seconds`. NULL: no such text. */
    void (*note)(struct buf *b, const int64_t *index, int n, double fps, double seconds);
    bool lined; /* a newline follows each media item */
};

/* The sound of a media item, in chunks that are encoded independently. */
struct media_sound {
    int n_chunks;   /* 0: no sound */
    int chunk_rows; /* prompt rows of a chunk */
    int chunk_size; /* floats of a chunk's features */
    float *mel;     /* [n_chunks, mel, frames] of the store; NULL: not loaded yet, like media.rgb */
};

struct media {
    const struct family *family;
    bool video;
    int height, width; /* pixels of a view (a picture as the tower takes it) */
    enum resize_kind resize;
    int n_views;  /* frames, padded to whole slices; for a picture in tiles: whole picture and tiles
                   */
    uint8_t *rgb; /* [n_views, height, width, 3] of the store; NULL: not loaded yet */
    struct media_store *store;   /* NULL: only planned */
    uint8_t digest[DIGEST_SIZE]; /* of everything that determines its rows: pixels and layout */
    /* Input of the tower: slices of h x w patches, `temporal` views each. */
    int n_slices, h, w;
    int unit_rows; /* rows of a unit; a unit is the smallest part that is encoded by itself */
    int n_units;   /* one per slice; 1 for a picture in tiles */
    int line;      /* rows of a unit that form one line of the picture */
    /* Rows are numbered pictures first, then the newline or the sound. In the prompt, the rows of
     * each unit are followed by those of the sound during that time (media_row translates). */
    int run_rows;           /* rows of a run: consecutive in the prompt; text separates runs */
    bool newline;           /* one more row at the end */
    int n_rows;             /* total */
    int merged_h, merged_w; /* tokens along the sides of a slice; 0: tokens are not merged */
    float slice_seconds;    /* duration of a slice, in a video whose positions follow time */
    float tokens_per_second;
    enum pv_time_rule time_rule;
    struct media_sound sound;
    struct tiling tiling; /* of a picture in tiles; rows 0: one square view and a newline */
    int source_height, source_width;
};

/* Plan a media item from sizes: sets all of struct media except the pixels. n_frames 0: a still
 * picture; `alone`: the only picture of its message (some families cut such a picture into
 * tiles). */
enum pv_status media_plan(struct media *m, const struct vision_config *c,
                          const struct pv_video_params *p, int height, int width, int n_frames,
                          double sample_fps, bool alone, struct pv_error *err);
/* Add sound to a planned video; media_plan_sound plans an item with sound only. */
enum pv_status media_add_sound(struct media *m, const struct vision_config *c, int n_chunks,
                               struct pv_error *err);
enum pv_status media_plan_sound(struct media *m, const struct vision_config *c,
                                const struct pv_video_params *p, int n_chunks,
                                struct pv_error *err);
/* Number of rows of its pictures, and of its sound. */
int media_picture_rows(const struct media *m);
int media_sound_rows(const struct media *m);
/* The row at a place of the prompt, where place 0 is the item's first; *n (may be NULL): how many
 * rows from there on are consecutive in both numberings. media_place is the inverse. */
int media_row(const struct media *m, int place, int *n);
int media_place(const struct media *m, int row);
/* Upper bound of the number of such consecutive ranges. */
int media_stretches(const struct media *m);
/* A part that is encoded and cached as a whole: a unit of pictures, or a chunk of sound. */
struct media_unit {
    int number;   /* -1: none (the newline) */
    int first, n; /* rows */
};
struct media_unit media_unit(const struct media *m, int row);
int media_units(const struct media *m);

/* Allocate memory for pixels and features. */
enum pv_status media_reserve(struct media *m, struct pv_error *err);
/* The pixels are to be read from `o`, which is owned from now on, also on failure. */
enum pv_status media_put_off(struct media *m, struct media_origin *o, struct pv_error *err);
/* Another media item with the same pixels. */
struct media media_copy(const struct media *m);
size_t media_size(const struct media *m);       /* bytes of pixels */
size_t media_sound_size(const struct media *m); /* bytes of features */
/* Whether pixels and features are in memory. */
bool media_is_loaded(const struct media *m);
void media_clear(struct media *m);
/* The pixels of view i. */
uint8_t *media_view(const struct media *m, int i);
/* Repeat the last frame until there are n_views, so that all slices are complete. */
void media_pad(struct media *m, int n_frames);
/* Compute the digest; all pixels and features must be in memory. */
void media_seal(struct media *m);
/* Copy pixels from `rgb` into m->rgb, which is allocated, and compute the digest, on `threads`
 * threads. The digest does not depend on their number. */
void media_take_pixels(struct media *m, const uint8_t *rgb, int threads);
/* Compares sealed media: equal digests and equal times. */
bool media_equal(const struct media *a, const struct media *b);

/* Positions pos [n][3] of the rows [row, row + n) of a media item, a run that begins at position
 * `start`. Returns the position of what follows. */
int32_t media_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3]);

#endif
