/* What the tables of families are written with. */
#ifndef PV_FAMILY_FAMILY_PARTS_H
#define PV_FAMILY_FAMILY_PARTS_H

#include "family/families.h"
#include "family/frame_policy.h"
#include "family/media.h"

#define TOP(field) offsetof(struct vision_tensors, field)
#define MERGER(field) offsetof(struct vision_merger, field)
#define LAYER(field) offsetof(struct vision_layer_tensors, field)
#define NUMBER(field) offsetof(struct vision_config, field)
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define H VDIM_HIDDEN
#define F VDIM_FFN
#define M VDIM_MERGED
#define OUT VDIM_OUT

/* Spellings of Qwen's tokens, by enum vision_token. */
extern const char *const qwen_tokens[VISION_TOKENS];

/* Frames and still pictures of any size, which become multiples of merged patches: as qwen-vl-utils
 * bounds a frame's area. */
enum pv_status qwen_frame_size(struct frame_size *out, const struct vision_config *c,
                               const struct pv_video_params *p, int height, int width, int n_frames,
                               struct pv_error *err);
/* Frames as qwen-vl-utils chooses and sizes them. */
extern const struct family_frames qwen_utils_frames;
/* Slices of `temporal` frames, each a grid of merged patches. */
enum pv_status qwen_plan(struct media *m, const struct vision_config *c,
                         const struct pv_video_params *p, double sample_fps, bool alone,
                         struct pv_error *err);
/* Time, row and column of each token (M-RoPE), time by the clock of struct vision_config. */
int32_t qwen_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3]);

#endif
