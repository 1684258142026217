/* What media_loader.c and media_loader_file.c share: pictures arriving one by one. */
#ifndef PV_ENGINE_MEDIA_LOADER_PARTS_H
#define PV_ENGINE_MEDIA_LOADER_PARTS_H

#include "engine/media_loader.h"

struct arrival {
    struct loaded_media s;
    struct resizer *resizer;   /* NULL: kept as it comes */
    int n_frames;              /* expected */
    bool (*go_on)(void *user); /* asked while a picture is resized; NULL: nobody */
    void *user;
};

/* Plans the medium, checks the bounds and allocates; n_frames 0: a still picture. */
enum pv_status arrival_open(struct arrival *a, const struct vision_config *c,
                            const struct pv_video_params *p, int height, int width, int n_frames,
                            double sample_fps, const struct load_bounds *b, struct pv_error *err);
/* Picture number `at`, of the planned size. False: it is not to go on. */
bool arrival_put(struct arrival *a, int at, int64_t index, double time, const uint8_t *rgb);
/* All pictures are here: hands them over. */
void arrival_finish(struct arrival *a, struct loaded_media *out);
/* Frees what was not handed over. */
void arrival_close(struct arrival *a);

#endif
