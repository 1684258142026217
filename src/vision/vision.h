/* Vision towers on a device: turns pictures, cut into patches, into tokens of the decoder's width.
 *
 * A slice is the unit of attention: one frame, or the frames of one patch (a pair). Slices are
 * independent, so the number of slices that are encoded together does not change a bit. */
#ifndef PV_VISION_VISION_H
#define PV_VISION_VISION_H

#include "format/model_file.h"
#include "tensor/device.h"

struct vision;       /* weights on a device: immutable, shared */
struct vision_state; /* activations and scratch */

/* Borrows mf and dev. PV_E_UNSUPPORTED when the model has no tower. */
enum pv_status vision_open(struct vision **out, const struct model_file *mf, struct device *dev,
                           struct pv_error *err);
void vision_close(struct vision **v);
const struct vision_config *vision_config(const struct vision *v);
struct device *vision_device(const struct vision *v);

/* Tokens of a slice of h x w patches, before pooling. */
int vision_slice_tokens(const struct vision *v, int h, int w);

/* Allocates everything that a call of vision_encode with up to max_patches patches needs: a fixed
 * part, and per patch one row of floats, or four if pictures can have any size (a slice may then be
 * as long as the call). */
size_t vision_state_size(const struct vision *v, int max_patches);
enum pv_status vision_state_open(struct vision_state **out, const struct vision *v, int max_patches,
                                 struct pv_error *err);
void vision_state_close(struct vision_state **st);
/* A function that is called before each layer. If it returns false, the call ends with
 * PV_E_CANCELLED, and the state can be used again. */
struct vision_watch {
    bool (*go_on)(void *user); /* may be NULL */
    void *user;
};
void vision_state_watch(struct vision_state *st, struct vision_watch watch);
/* See device_ops.work_on. */
void vision_state_work_on(struct vision_state *st, struct device *group);

/* patches [n_slices * h * w, patch_row_size] (video/patches.h) -> out [n_slices * tokens, row], row
 * = vision_row_size, both in host memory: tower, then projector or mergers. Allocates nothing.
 * PV_E_LIMIT if the state is too small, PV_E_ARG if the tower cannot take h x w patches. */
enum pv_status vision_encode(const struct vision *v, struct vision_state *st, const float *patches,
                             int n_slices, int h, int w, float *out, struct pv_error *err);

/* The same from frames, on devices that cut patches themselves (vision_cuts_patches): only the
 * bytes are transferred, and the tokens have the same bits. If `out` is NULL, the tokens stay on
 * the device as with vision_encode_video. */
struct vision_frames {
    const uint8_t *rgb; /* [n_slices * temporal, height, width, 3]; host */
    int height, width;  /* pixels */
};
bool vision_cuts_patches(const struct vision *v);
enum pv_status vision_encode_frames(const struct vision *v, struct vision_state *st,
                                    const struct vision_frames *frames, int n_slices, float *out,
                                    const float **tokens, struct pv_error *err);

/* The same for the frames of a video, if vision_keeps_tokens: the tokens stay on the device and are
 * valid until the next call. If the tower has tiles, they are pooled (llava.h). Does not wait:
 * operations of vision_state_work find the tokens, and its wait reports errors. */
bool vision_keeps_tokens(const struct vision *v);
enum pv_status vision_encode_video(const struct vision *v, struct vision_state *st,
                                   const float *patches, int n_slices, int h, int w,
                                   const float **tokens, struct pv_error *err);
struct device_work *vision_state_work(struct vision_state *st);
/* Warm-up: encode empty frames of at least `patches` patches and drop the result, so that the
 * device has loaded the code that a call needs (saves 0.2 s of the first video on an H200). Does
 * nothing on devices that do not cut patches. */
enum pv_status vision_rehearse(const struct vision *v, int patches, struct pv_error *err);
/* The number of patches per call that gives the best speed. */
int vision_batch(const struct vision *v);

#endif
