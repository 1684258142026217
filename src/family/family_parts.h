/* Macros and shared parts for the tables of families. */
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

/* Shared by the LLaVA families: the tensors and numbers of their towers, and how LLaVA-OneVision
 * treats frames and pictures. */
enum { LLAVA_TOP = 8, LLAVA_LAYER = 16, LLAVA_LAYOUTS = 5, LLAVA_NUMBERS = 7 };
extern const struct vision_role llava_top_roles[LLAVA_TOP], llava_layer_roles[LLAVA_LAYER];
extern const struct vision_layout llava_layouts[LLAVA_LAYOUTS];
extern const struct vision_number llava_numbers[LLAVA_NUMBERS];
extern const struct family_frames llava_frames;
extern const struct family_media llava_media;
#define LLAVA_ROLES                                                                                \
    {                                                                                              \
        .top = llava_top_roles, .layer = llava_layer_roles, .n_top = LLAVA_TOP,                    \
        .n_layer = LLAVA_LAYER                                                                     \
    }
/* Frames are resized to the tower's square without keeping the aspect ratio; a still picture keeps
 * its size until it is cut into tiles. */
enum pv_status llava_frame_size(struct frame_size *out, const struct vision_config *c,
                                const struct pv_video_params *p, int height, int width,
                                int n_frames, struct pv_error *err);
/* Plans frames whose tokens are pooled to a quarter, with newlines, and the tiles of a still
 * picture. */
enum pv_status llava_plan(struct media *m, const struct vision_config *c,
                          const struct pv_video_params *p, double sample_fps, bool alone,
                          struct pv_error *err);

/* Rows of struct vision_number that all Qwen towers share. */
#define QWEN_NUMBERS                                                                               \
    { .hf = "depth", .gguf = "block_count", .slot = NUMBER(n_layers) },                            \
        { .hf = "num_heads", .gguf = "attention.head_count", .slot = NUMBER(n_heads) },            \
        { .hf = "patch_size", .gguf = "patch_size", .slot = NUMBER(patch) },                       \
        { .hf = "temporal_patch_size",                                                             \
          .gguf = "temporal_patch_size",                                                           \
          .slot = NUMBER(temporal),                                                                \
          .missing = 2 },                                                                          \
    {                                                                                              \
        .hf = "spatial_merge_size", .gguf = "spatial_merge_size", .slot = NUMBER(merge),           \
        .missing = 2                                                                               \
    }

/* Spellings of Qwen's tokens, by enum vision_token. */
extern const char *const qwen_tokens[VISION_TOKENS];

/* Frames and still pictures of any size are resized to multiples of a merged patch, with the area
 * limits of qwen-vl-utils. */
enum pv_status qwen_frame_size(struct frame_size *out, const struct vision_config *c,
                               const struct pv_video_params *p, int height, int width, int n_frames,
                               struct pv_error *err);
/* The tower of Qwen2.5-VL; video-SALMONN2+ has the same. */
extern const struct family_tower qwen2_5_vl_tower;
/* Frames as qwen-vl-utils chooses and sizes them. */
extern const struct family_frames qwen_utils_frames;
/* Slices of `temporal` frames, each a grid of merged patches. */
enum pv_status qwen_plan(struct media *m, const struct vision_config *c,
                         const struct pv_video_params *p, double sample_fps, bool alone,
                         struct pv_error *err);
/* Time, row and column of each token (M-RoPE); time follows vision_config.tokens_per_second. */
int32_t qwen_positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3]);

#endif
