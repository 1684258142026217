/* Shared by media_loader.c and media_loader_file.c: a media item under construction, to which
 * pictures are added one by one. */
#ifndef PV_ENGINE_MEDIA_LOADER_PARTS_H
#define PV_ENGINE_MEDIA_LOADER_PARTS_H

#include "audio/sound.h"
#include "engine/media_loader.h"

struct arrival {
    struct loaded_media s;
    struct resizer *resizer;   /* NULL: pictures are not resized */
    int n_frames;              /* expected */
    bool (*go_on)(void *user); /* called while a picture is resized; false: stop; may be NULL */
    void *user;
};

/* The sizes from which a media item is planned. */
struct arrival_shape {
    int height, width;
    int n_frames; /* 0: a still picture; or (width 0) only sound */
    double sample_fps;
    int n_chunks; /* of sound */
};

/* Plans the media item, checks the bounds and allocates. */
enum pv_status arrival_open(struct arrival *a, const struct vision_config *c,
                            const struct pv_video_params *p, const struct arrival_shape *shape,
                            const struct load_bounds *b, struct pv_error *err);
/* Add picture number `at`, of the planned size. False: go_on returned false. */
bool arrival_put(struct arrival *a, int at, int64_t index, double time, const uint8_t *rgb);
/* All pictures were added: move the result to *out. */
void arrival_finish(struct arrival *a, struct loaded_media *out);
/* Free what was not moved. */
void arrival_close(struct arrival *a);

/* media_loader_sound.c. Whether the model and the parameters ask for the sound. */
bool media_hears(const struct vision_config *c, const struct pv_video_params *p);
/* The number of chunks of n_samples samples; PV_E_LIMIT if it exceeds the bounds. */
enum pv_status sound_chunks(int *out, const struct vision_config *c, size_t n_samples,
                            const struct load_bounds *b, struct pv_error *err);
/* Compute the features of a media item whose memory is allocated. */
enum pv_status sound_features(struct media *m, const struct vision_config *c, const float *samples,
                              size_t n_samples, struct pv_error *err);
/* PV_E_ARG if a sample is not finite. */
enum pv_status sound_check(const float *samples, size_t n, struct pv_error *err);

#endif
