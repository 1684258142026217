/* The media loader: pictures on their way into a prompt, taken from a file or from memory, sized
 * for the model. */
#ifndef PV_ENGINE_MEDIA_LOADER_H
#define PV_ENGINE_MEDIA_LOADER_H

#include "family/media.h"
#include "video/video.h"

struct loaded_media {
    struct media m;
    int n_frames;    /* pictures given, before any padding */
    int64_t *index;  /* [n_frames] owned: which frames of the video they are */
    double *time;    /* [n_frames] owned; NULL: not decoded */
    uint8_t *source; /* a still picture as it came, until it is known whether it is cut */
    struct pv_video_params params;
    struct pv_video_info info;
};

/* What bounds them. */
struct load_bounds {
    const struct pv_limits *limits;
    int max_rows;          /* room in the context */
    uint64_t max_bytes;    /* of pixels */
    uint64_t decode_bytes; /* while they are decoded; 0: any number */
    int threads;
};

/* A file with sound and no frames is taken by a model that hears. */
enum pv_status media_load_file(struct loaded_media *out, const struct vision_config *c,
                               const struct video_source *from, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err);
enum pv_status media_load_frames(struct loaded_media *out, const struct vision_config *c,
                                 const struct pv_frame *frames, size_t n, double fps,
                                 const struct pv_video_params *p, const struct load_bounds *b,
                                 struct pv_error *err);
/* What media_load_file found out about a file. */
struct known_media {
    struct pv_video_info info;
    bool still;
    int n_chunks;                /* of sound */
    uint8_t digest[DIGEST_SIZE]; /* of the media item */
};
/* The same as media_load_file for a file that is known, without decoding it: the pixels are loaded
 * when they are needed. Bytes in memory are copied. */
enum pv_status media_load_known(struct loaded_media *out, const struct vision_config *c,
                                const struct video_source *from, const struct known_media *k,
                                const struct pv_video_params *p, const struct load_bounds *b,
                                struct pv_error *err);
/* Decodes the file now, unless the pixels are here. PV_E_IO if it is not what it was. */
enum pv_status media_load_pixels(struct media *m, const struct vision_config *c, int threads,
                                 struct pv_error *err);
/* A still picture that may be cut gets its views: tiles when it is alone in its message. Nothing
 * happens to other media. */
enum pv_status media_load_finish(struct loaded_media *s, const struct vision_config *c, bool alone,
                                 struct pv_error *err);
void loaded_media_clear(struct loaded_media *s);
/* Bytes of its pixels and features. */
size_t loaded_media_size(const struct loaded_media *s);

/* The frames of a file one after the other, at their own size (no model). */
enum pv_status media_walk_file(const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, pv_frame_fn fn, void *user,
                               struct pv_video_info *info, struct pv_error *err);
/* The sound of a file, of sound alone too, between the seconds of the parameters. */
enum pv_status media_hear_file(struct sound *out, const char *path, const struct pv_video_params *p,
                               const struct load_bounds *b, struct pv_error *err);

#endif
