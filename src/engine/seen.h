/* Pictures on their way into a prompt: taken from a file or from memory, sized for the model. */
#ifndef PV_ENGINE_SEEN_H
#define PV_ENGINE_SEEN_H

#include "engine/media.h"
#include "video/video.h"

struct seen {
    struct media m;
    int n_frames;    /* pictures given, before any padding */
    int64_t *index;  /* [n_frames] owned */
    double *time;    /* [n_frames] owned */
    uint8_t *source; /* LLaVA still picture as it came, until it is known whether it is alone */
    struct pv_video_params params;
    struct pv_video_info info;
};

/* What bounds them. */
struct seen_bounds {
    const struct pv_limits *limits;
    int max_rows;       /* room in the context */
    uint64_t max_bytes; /* of pixels */
    int threads;
};

enum pv_status seen_file(struct seen *out, const struct vision_config *c,
                         const struct video_source *from, const struct pv_video_params *p,
                         const struct seen_bounds *b, struct pv_error *err);
enum pv_status seen_frames(struct seen *out, const struct vision_config *c,
                           const struct pv_frame *frames, size_t n, double fps,
                           const struct pv_video_params *p, const struct seen_bounds *b,
                           struct pv_error *err);
/* A LLaVA still picture gets its views: tiles when it is alone in its message. Nothing happens to
 * other media. */
enum pv_status seen_finish(struct seen *s, const struct vision_config *c, bool alone,
                           struct pv_error *err);
void seen_clear(struct seen *s);
/* Bytes of its pixels. */
size_t seen_size(const struct seen *s);

/* The frames of a file one after the other, at their own size (no model). */
enum pv_status seen_walk(const char *path, const struct pv_video_params *p,
                         const struct seen_bounds *b, pv_frame_fn fn, void *user,
                         struct pv_video_info *info, struct pv_error *err);

#endif
