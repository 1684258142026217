/* The media loader: reads videos, pictures and sound from a file or from memory and prepares them
 * for the model's encoders. */
#ifndef PV_ENGINE_MEDIA_LOADER_H
#define PV_ENGINE_MEDIA_LOADER_H

#include "family/media.h"
#include "video/video.h"

#include <stdatomic.h>

struct loaded_media {
    struct media m;
    int n_frames;    /* frames used, without padding */
    int64_t *index;  /* [n_frames] owned: their numbers in the video */
    double *time;    /* [n_frames] owned; NULL: not decoded */
    uint8_t *source; /* a still picture at its own size, until it is known whether it is tiled */
    struct pv_video_params params;
    struct pv_video_info info;
};

/* Limits. */
struct load_bounds {
    const struct pv_limits *limits;
    int max_rows;          /* free rows of the context */
    uint64_t max_bytes;    /* of pixels */
    uint64_t decode_bytes; /* of memory for decoding; 0: no limit */
    int threads;
    atomic_llong *decoded; /* counts the files that are decoded; may be NULL */
};

/* A file with sound but no frames is accepted if the model has an audio encoder. */
enum pv_status media_load_file(struct loaded_media *out, const struct vision_config *c,
                               const struct video_source *from, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err);
enum pv_status media_load_frames(struct loaded_media *out, const struct vision_config *c,
                                 const struct pv_frame *frames, size_t n, double fps,
                                 const struct pv_video_params *p, const struct load_bounds *b,
                                 struct pv_error *err);
/* The result of media_load_file in a form that can be stored. */
struct known_media {
    struct pv_video_info info;
    bool still;
    int n_chunks;                /* of sound */
    uint8_t digest[DIGEST_SIZE]; /* of the media item */
};
/* Like media_load_file for a file whose properties are known, without decoding it: pixels are
 * loaded when they are needed. Bytes in memory are copied. */
enum pv_status media_load_known(struct loaded_media *out, const struct vision_config *c,
                                const struct video_source *from, const struct known_media *k,
                                const struct pv_video_params *p, const struct load_bounds *b,
                                struct pv_error *err);
/* PV_E_LIMIT unless the item is within the bounds. */
enum pv_status media_fits(const struct loaded_media *s, const struct load_bounds *b,
                          struct pv_error *err);
/* Decode the file now, unless the pixels are in memory; of the bounds, only threads and `decoded`
 * count. PV_E_IO if the file has changed. */
enum pv_status media_load_pixels(struct media *m, const struct vision_config *c,
                                 const struct load_bounds *how, struct pv_error *err);
/* The media item as it goes into a prompt. A still picture of a family with tiles is cut into tiles
 * if it is the only picture of its message (alone); other media are copied. */
enum pv_status media_load_finish(struct media *out, const struct loaded_media *s,
                                 const struct vision_config *c, bool alone, struct pv_error *err);
void loaded_media_clear(struct loaded_media *s);
/* Bytes of its pixels and features. */
size_t loaded_media_size(const struct loaded_media *s);

/* Call fn for the frames of a file, at their own size (no model). */
enum pv_status media_walk_file(const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, pv_frame_fn fn, void *user,
                               struct pv_video_info *info, struct pv_error *err);
/* The sound of a file, with or without video, between the times in the parameters. */
enum pv_status media_hear_file(struct sound *out, const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err);

#endif
