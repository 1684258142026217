/* lmms-lab's layout: LLaVA-OneVision as its makers published it, and LLaVA-Video. The tower is
 * known by its name, and the prompt has no token for pictures. LLaVA-Video is LLaVA-OneVision with
 * 64 frames, newlines among the tokens of each frame, and a sentence after the video that tells the
 * times of its frames. */
#include "family/family_parts.h"

static const struct vision_known known[] = {
    /* 27 layers, of which the reference drops the last. */
    { "siglip-so400m-patch14-384", 1152, 26, 16, 4304, 384, 14 },
};

static const struct vision_word words[] = {
    { .root = true, .key = "mm_patch_merge_type", .value = "spatial_unpad", .needed = true },
    { .root = true, .key = "mm_projector_type", .value = "mlp2x_gelu", .needed = true },
    { .root = true, .key = "mm_spatial_pool_mode", .value = "bilinear" },
    { .root = true, .key = "mm_spatial_pool_stride", .value = "2", .number = 2 },
    { .root = true, .key = "add_faster_video", .value = "false" },
};

static const char *const no_tokens[VISION_TOKENS] = { NULL };

/* The tower of both, under its name in GGUF. */
#define TOWER(type)                                                                                \
    {                                                                                              \
        .projector = type, .flag = "clip.use_gelu", .in_one_file = true, .numbers = llava_numbers, \
        .n_numbers = LLAVA_NUMBERS, .words = words, .n_words = COUNT(words), .known = known,       \
        .n_known = COUNT(known), .token = no_tokens, .eps = 1e-6f, .mean = { 0.5f, 0.5f, 0.5f },   \
        .std = { 0.5f, 0.5f, 0.5f }, .fixed = true, .tiles = true, .lined = true,                  \
        .gelu = GELU_TANH, .roles = LLAVA_ROLES, .layouts = llava_layouts,                         \
        .n_layouts = LLAVA_LAYOUTS                                                                 \
    }

static const struct family_tower original_tower = TOWER("llava_ov");
static const struct family_tower video_tower = TOWER("llava_video");

/* As the model's card writes it. */
static void note(struct buf *b, const int64_t *index, int n, double fps, double seconds)
{
    buf_printf(b,
               "The video lasts for %.2f seconds, and %d frames are uniformly sampled from it. "
               "These frames are located at ",
               seconds, n);
    for (int i = 0; i < n; i++)
        buf_printf(b, "%s%.2fs", i ? "," : "", fps > 0 ? (double)index[i] / fps : 0);
    buf_puts(b, ".Please answer the following questions related to this video.");
}

static const struct family_frames frames = {
    .rule = CHOOSE_LINSPACE,
    .frames = 64,
    .size = llava_frame_size,
};

static const struct family_media media = { .plan = llava_plan, .note = note };

const struct family family_llava_video = {
    .name = "llava_video",
    .title = "LLaVA-Video",
    .number = 6,
    .types = (const char *const[]){ "llava", "llava_qwen", NULL },
    .signs = (const struct family_sign[]){ { "architectures", "LlavaQwenForCausalLM" },
                                           { "mm_newline_position", "grid|frame" },
                                           { NULL, NULL } },
    .arch = "qwen2",
    .decoder = { .qkv_bias = true },
    .tower = &video_tower,
    .frames = &frames,
    .media = &media,
    .lambda = 0.4,
    .compact_drafting = true,
};

const struct family family_llava_original = {
    .name = "llava_onevision",
    .title = "LLaVA-OneVision",
    .number = 1,
    .types = (const char *const[]){ "llava", "llava_qwen", NULL },
    .signs =
        (const struct family_sign[]){ { "architectures", "LlavaQwenForCausalLM" }, { NULL, NULL } },
    .arch = "qwen2",
    .decoder = { .qkv_bias = true },
    .tower = &original_tower,
    .frames = &llava_frames,
    .media = &llava_media,
    .lambda = 0.4,
    .compact_drafting = true,
};
