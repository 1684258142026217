/* Vision towers on a device: pictures cut into patches become tokens in the decoder's space. One
 * interface, one file per tower.
 *
 * A slice is what attends to itself: one frame, or the frames of a patch (a pair). Slices
 * are independent, so how many are encoded together never changes a bit. */
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

/* max_patches: of one call of vision_encode. Everything a call needs is allocated here: per patch
 * one row of f32 where pictures have one size, or four (slices may then be as long as the call),
 * and a fixed part. */
size_t vision_state_size(const struct vision *v, int max_patches);
enum pv_status vision_state_open(struct vision_state **out, const struct vision *v, int max_patches,
                                 struct pv_error *err);
void vision_state_close(struct vision_state **st);
/* Asked before each layer from now on; false stops the call with PV_E_CANCELLED, and the state can
 * be used again. */
struct vision_watch {
    bool (*go_on)(void *user); /* NULL: is not asked */
    void *user;
};
void vision_state_watch(struct vision_state *st, struct vision_watch watch);
/* As device_ops.work_on. */
void vision_state_work_on(struct vision_state *st, struct device *group);

/* patches [n_slices * h * w, patch_row_size] (video/patches.h) -> out [n_slices * tokens, row],
 * row = vision_row_size, both in host memory: tower, then projector or mergers. Allocates nothing.
 * PV_E_LIMIT when the state is too small, PV_E_ARG when h and w do not suit the tower. */
enum pv_status vision_encode(const struct vision *v, struct vision_state *st, const float *patches,
                             int n_slices, int h, int w, float *out, struct pv_error *err);

/* The same from frames, where the device cuts patches itself (vision_cuts_patches): only their
 * bytes travel to it, and the tokens have the same bits. With `out` NULL as vision_encode_video. */
struct vision_frames {
    const uint8_t *rgb; /* [n_slices * temporal, height, width, 3]; host */
    int height, width;  /* pixels */
};
bool vision_cuts_patches(const struct vision *v);
enum pv_status vision_encode_frames(const struct vision *v, struct vision_state *st,
                                    const struct vision_frames *frames, int n_slices, float *out,
                                    const float **tokens, struct pv_error *err);

/* The same for the frames of a video, where vision_keeps_tokens: the tokens, pooled where the
 * tower has tiles (llava.h), stay on the device until the next call. */
bool vision_keeps_tokens(const struct vision *v);
enum pv_status vision_encode_video(const struct vision *v, struct vision_state *st,
                                   const float *patches, int n_slices, int h, int w,
                                   const float **tokens, struct pv_error *err);
struct device_work *vision_state_work(struct vision_state *st);
/* Encodes empty frames of at least so many patches, and forgets them: a device with a slow start
 * has then loaded what a call needs (0.2 s of the first video on an H200). Where the device cuts no
 * patches nothing happens. */
enum pv_status vision_rehearse(const struct vision *v, int patches, struct pv_error *err);
/* Patches that are best encoded together. */
int vision_batch(const struct vision *v);

#endif
