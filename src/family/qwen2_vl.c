/* Qwen2-VL: the tower of Qwen2.5-VL's predecessor, with LayerNorm, a plain MLP and no windows.
 * Frames are chosen and sized as Qwen2.5-VL's are; time counts pairs of frames. */
#include "family/family_parts.h"

static const struct vision_role top_roles[] = {
    { "patch_embed.proj.weight",
      "v.patch_embd.weight",
      { H, VDIM_PATCH },
      PLACE_TOWER,
      0,
      false,
      TOP(patch) },
    { "merger.ln_q.weight", "v.post_ln.weight", { H }, PLACE_TOWER, 0, false, TOP(merger.norm) },
    { "merger.ln_q.bias", "v.post_ln.bias", { H }, PLACE_TOWER, 0, false, TOP(merger.norm_bias) },
    { "weight", "mm.0.weight", { M, M }, PLACE_MM0, 0, false, TOP(merger.mm0) },
    { "bias", "mm.0.bias", { M }, PLACE_MM0, 0, false, TOP(merger.mm0_bias) },
    { "weight", "mm.2.weight", { OUT, M }, PLACE_MM2, 0, false, TOP(merger.mm2) },
    { "bias", "mm.2.bias", { OUT }, PLACE_MM2, 0, false, TOP(merger.mm2_bias) },
};

static const struct vision_role layer_roles[] = {
    { "norm1.weight", "ln1.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm1) },
    { "norm1.bias", "ln1.bias", { H }, PLACE_TOWER, 0, false, LAYER(norm1_bias) },
    { "attn.qkv.weight", "attn_q.weight", { H, H }, PLACE_TOWER, 1, false, LAYER(q) },
    { "attn.qkv.weight", "attn_k.weight", { H, H }, PLACE_TOWER, 2, false, LAYER(k) },
    { "attn.qkv.weight", "attn_v.weight", { H, H }, PLACE_TOWER, 3, false, LAYER(v) },
    { "attn.qkv.bias", "attn_q.bias", { H }, PLACE_TOWER, 1, false, LAYER(q_bias) },
    { "attn.qkv.bias", "attn_k.bias", { H }, PLACE_TOWER, 2, false, LAYER(k_bias) },
    { "attn.qkv.bias", "attn_v.bias", { H }, PLACE_TOWER, 3, false, LAYER(v_bias) },
    { "attn.proj.weight", "attn_out.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(o) },
    { "attn.proj.bias", "attn_out.bias", { H }, PLACE_TOWER, 0, false, LAYER(o_bias) },
    { "norm2.weight", "ln2.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm2) },
    { "norm2.bias", "ln2.bias", { H }, PLACE_TOWER, 0, false, LAYER(norm2_bias) },
    { "mlp.fc1.weight", "ffn_up.weight", { F, H }, PLACE_TOWER, 0, false, LAYER(up) },
    { "mlp.fc1.bias", "ffn_up.bias", { F }, PLACE_TOWER, 0, false, LAYER(up_bias) },
    { "mlp.fc2.weight", "ffn_down.weight", { H, F }, PLACE_TOWER, 0, false, LAYER(down) },
    { "mlp.fc2.bias", "ffn_down.bias", { H }, PLACE_TOWER, 0, false, LAYER(down_bias) },
};

static const struct vision_layout layouts[] = {
    /* the hub */
    { .prefix = { "visual.", "visual.merger.mlp.0.", "visual.merger.mlp.2.", "" },
      .layers = "blocks." },
    /* saved by transformers 4.52 on */
    { .prefix = { "model.visual.", "model.visual.merger.mlp.0.", "model.visual.merger.mlp.2.", "" },
      .layers = "blocks." },
};

/* hidden_size of this tower's configuration is the decoder's. */
static const struct vision_number numbers[] = {
    { .hf = "embed_dim", .gguf = "embedding_length", .slot = NUMBER(hidden) },
    { .hf = "mlp_ratio", .gguf = "feed_forward_length", .slot = NUMBER(ffn), .times_hidden = true },
    { .hf = "hidden_size", .slot = NUMBER(out) },
    QWEN_NUMBERS,
};

static const struct vision_word words[] = { { .key = "hidden_act", .value = "quick_gelu" } };

static const struct family_tower tower = {
    .projector = "qwen2vl_merger",
    .said_size = 560,
    .numbers = numbers,
    .n_numbers = COUNT(numbers),
    .words = words,
    .n_words = COUNT(words),
    .token = qwen_tokens,
    .eps = 1e-6f,
    .mean = { 0.48145466f, 0.4578275f, 0.40821073f },
    .std = { 0.26862954f, 0.26130258f, 0.27577711f },
    .min_pixels = 4 * 28 * 28,
    .max_pixels = 16384 * 28 * 28,
    .rope = true,
    .gelu = GELU_QUICK,
    .roles = { .top = top_roles,
               .layer = layer_roles,
               .n_top = COUNT(top_roles),
               .n_layer = COUNT(layer_roles) },
    .layouts = layouts,
    .n_layouts = COUNT(layouts),
};

/* One position for each slice, whatever its seconds. */
static enum pv_status plan(struct media *m, const struct vision_config *c,
                           const struct pv_video_params *p, double sample_fps, bool alone,
                           struct pv_error *err)
{
    enum pv_status s = qwen_plan(m, c, p, sample_fps, alone, err);
    m->slice_seconds = m->video;
    m->tokens_per_second = 1;
    return s;
}

static const struct family_media media = { .plan = plan, .positions = qwen_positions };

const struct family family_qwen2_vl = {
    .name = "qwen2_vl",
    .title = "Qwen2-VL",
    .number = 3,
    .types = (const char *const[]){ "qwen2_vl", "qwen2_vl_text", NULL },
    .arch = "qwen2vl",
    .decoder = { .qkv_bias = true, .mrope = MROPE_SECTIONS },
    .tower = &tower,
    .frames = &qwen_utils_frames,
    .media = &media,
    .lambda = 0.5,
};
