/* Qwen2.5-VL: a tower with rope and windows for pictures of any size, four patches of a pair of
 * frames merged into one token; positions carry time, row and column. */
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
    { "weight", "mm.0.weight", { M, M }, PLACE_MM0, 0, false, TOP(merger.mm0) },
    { "bias", "mm.0.bias", { M }, PLACE_MM0, 0, false, TOP(merger.mm0_bias) },
    { "weight", "mm.2.weight", { OUT, M }, PLACE_MM2, 0, false, TOP(merger.mm2) },
    { "bias", "mm.2.bias", { OUT }, PLACE_MM2, 0, false, TOP(merger.mm2_bias) },
};

static const struct vision_role layer_roles[] = {
    { "norm1.weight", "ln1.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm1) },
    { "attn.qkv.weight", "attn_q.weight", { H, H }, PLACE_TOWER, 1, false, LAYER(q) },
    { "attn.qkv.bias", "attn_q.bias", { H }, PLACE_TOWER, 1, false, LAYER(q_bias) },
    { "attn.qkv.weight", "attn_k.weight", { H, H }, PLACE_TOWER, 2, false, LAYER(k) },
    { "attn.qkv.bias", "attn_k.bias", { H }, PLACE_TOWER, 2, false, LAYER(k_bias) },
    { "attn.qkv.weight", "attn_v.weight", { H, H }, PLACE_TOWER, 3, false, LAYER(v) },
    { "attn.qkv.bias", "attn_v.bias", { H }, PLACE_TOWER, 3, false, LAYER(v_bias) },
    { "attn.proj.weight", "attn_out.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(o) },
    { "attn.proj.bias", "attn_out.bias", { H }, PLACE_TOWER, 0, false, LAYER(o_bias) },
    { "norm2.weight", "ln2.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm2) },
    { "mlp.gate_proj.weight", "ffn_gate.weight", { F, H }, PLACE_TOWER, 0, false, LAYER(gate) },
    { "mlp.gate_proj.bias", "ffn_gate.bias", { F }, PLACE_TOWER, 0, false, LAYER(gate_bias) },
    { "mlp.up_proj.weight", "ffn_up.weight", { F, H }, PLACE_TOWER, 0, false, LAYER(up) },
    { "mlp.up_proj.bias", "ffn_up.bias", { F }, PLACE_TOWER, 0, false, LAYER(up_bias) },
    { "mlp.down_proj.weight", "ffn_down.weight", { H, F }, PLACE_TOWER, 0, false, LAYER(down) },
    { "mlp.down_proj.bias", "ffn_down.bias", { H }, PLACE_TOWER, 0, false, LAYER(down_bias) },
};

static const struct vision_layout layouts[] = {
    /* the hub */
    { .prefix = { "visual.", "visual.merger.mlp.0.", "visual.merger.mlp.2.", "" },
      .layers = "blocks." },
    /* saved by transformers 4.52 on */
    { .prefix = { "model.visual.", "model.visual.merger.mlp.0.", "model.visual.merger.mlp.2.", "" },
      .layers = "blocks." },
};

static const struct vision_number numbers[] = {
    { .hf = "hidden_size", .gguf = "embedding_length", .slot = NUMBER(hidden) },
    { .hf = "intermediate_size", .gguf = "feed_forward_length", .slot = NUMBER(ffn) },
    { .hf = "out_hidden_size", .slot = NUMBER(out) },
    { .hf = "window_size", .gguf = "window_size", .slot = NUMBER(window), .missing = 112 },
    QWEN_NUMBERS,
};

static const struct vision_word words[] = { { .key = "hidden_act", .value = "silu" } };

const struct family_tower qwen2_5_vl_tower = {
    .projector = "qwen2.5vl_merger",
    .flag = "clip.use_silu",
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
    .windows = true,
    .clock = true,
    .rope = true,
    .gated = true,
    .roles = { .top = top_roles,
               .layer = layer_roles,
               .n_top = COUNT(top_roles),
               .n_layer = COUNT(layer_roles) },
    .layouts = layouts,
    .n_layouts = COUNT(layouts),
};

static const struct family_media media = { .plan = qwen_plan, .positions = qwen_positions };

const struct family family_qwen2_5_vl = {
    .name = "qwen2_5_vl",
    .title = "Qwen2.5-VL",
    .number = 2,
    .types = (const char *const[]){ "qwen2_5_vl", "qwen2_5_vl_text", NULL },
    .arch = "qwen2vl",
    .decoder = { .qkv_bias = true, .mrope = MROPE_SECTIONS },
    .tower = &qwen2_5_vl_tower,
    .frames = &qwen_utils_frames,
    .media = &media,
    .lambda = 0.5,
};
