/* Antialiased bicubic resizing of 8-bit RGB, as in Pillow and in torchvision, and the sizes to
 * which the Qwen families resize. */
#ifndef PV_VIDEO_RESIZE_H
#define PV_VIDEO_RESIZE_H

#include "base/status.h"
#include "video/image.h"

enum resize_kind {
    RESIZE_PILLOW, /* integer weights, 8-bit between the two passes: identical to Pillow 13 */
    RESIZE_FLOAT   /* float weights, rounded once at the end (torchvision on float tensors) */
};

enum { RESIZE_MAX_SIDE = 65535, RESIZE_MAX_FRAMES = 1 << 20 };

struct resizer; /* the weights of one pair of sizes, and scratch: one thread at a time */

/* PV_E_ARG when a side is not in 1..RESIZE_MAX_SIDE. */
enum pv_status resizer_open(struct resizer **out, enum resize_kind kind, int in_height,
                            int in_width, int out_height, int out_width, struct pv_error *err);
void resizer_close(struct resizer **r);
/* in [in_height, in_width, 3] -> out [out_height, out_width, 3]. Allocates nothing. */
void resizer_run(struct resizer *r, uint8_t *out, const uint8_t *in);

/* Returns row y [in_width, 3] of a picture that is not in memory as a whole; it must stay valid
 * until the next call. NULL: stop. */
typedef const uint8_t *(*resize_row_fn)(void *user, int y);

/* The same with rows from fn, which is called once per row, from the top. False: fn returned NULL,
 * and `out` is incomplete. */
bool resizer_run_rows(struct resizer *r, uint8_t *out, resize_row_fn fn, void *user);

/* The size to resize to: height and width are multiples of `factor`, min_pixels <= area <=
 * max_pixels, and the aspect ratio is nearly kept, as in Hugging Face's processors. A side that
 * would round to 0 becomes one factor, even if the area is then too large. PV_E_ARG if one side is
 * more than 200 times the other. */
enum pv_status smart_resize(int *out_height, int *out_width, int height, int width, int factor,
                            int64_t min_pixels, int64_t max_pixels, struct pv_error *err);

/* The same for a video of `frames` frames, which the tower takes in pairs; the limits are for all
 * frames together, as in Qwen3-VL's processor. Frames that are smaller than `factor` in height or
 * width are enlarged first (transformers 4.57 refuses them). PV_E_ARG for fewer than 2 frames. */
enum pv_status smart_resize_video(int *out_height, int *out_width, int frames, int height,
                                  int width, int factor, int64_t min_pixels, int64_t max_pixels,
                                  struct pv_error *err);

#endif
