/* What media_loader.c and media_loader_file.c share: pictures arriving one by one. */
#ifndef PV_ENGINE_MEDIA_LOADER_PARTS_H
#define PV_ENGINE_MEDIA_LOADER_PARTS_H

#include "audio/sound.h"
#include "engine/media_loader.h"

struct arrival {
    struct loaded_media s;
    struct resizer *resizer;   /* NULL: kept as it comes */
    int n_frames;              /* expected */
    bool (*go_on)(void *user); /* asked while a picture is resized; NULL: nobody */
    void *user;
};

/* What a media item is planned from. */
struct arrival_shape {
    int height, width;
    int n_frames; /* 0: a still picture; or (width 0) sound alone */
    double sample_fps;
    int n_chunks; /* of sound */
};

/* Plans the media item, checks the bounds and allocates. */
enum pv_status arrival_open(struct arrival *a, const struct vision_config *c,
                            const struct pv_video_params *p, const struct arrival_shape *shape,
                            const struct load_bounds *b, struct pv_error *err);
/* Picture number `at`, of the planned size. False: it is not to go on. */
bool arrival_put(struct arrival *a, int at, int64_t index, double time, const uint8_t *rgb);
/* All pictures are here: hands them over. */
void arrival_finish(struct arrival *a, struct loaded_media *out);
/* Frees what was not handed over. */
void arrival_close(struct arrival *a);

/* media_loader_sound.c. Whether the sound of a media item is wanted. */
bool media_hears(const struct vision_config *c, const struct pv_video_params *p);
/* Chunks of so many samples, within the bounds. */
enum pv_status sound_chunks(int *out, const struct vision_config *c, size_t n_samples,
                            const struct load_bounds *b, struct pv_error *err);
/* The features of a media item whose memory is reserved. */
enum pv_status sound_features(struct media *m, const struct vision_config *c, const float *samples,
                              size_t n_samples, struct pv_error *err);
/* All of them are finite. */
enum pv_status sound_check(const float *samples, size_t n, struct pv_error *err);

#endif
