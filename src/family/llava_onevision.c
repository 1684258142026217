/* LLaVA-OneVision: a SigLIP tower of one input size, a projector of two matrices on all tokens, in
 * front of a Qwen2 decoder. A frame is squeezed to the tower's square and its tokens are pooled to
 * a quarter; a video ends with the learned newline. A still picture that is alone in its message is
 * cut into tiles. SigLIP's last norm (post_layernorm) is in the files but in no table: its output
 * is not used. */
#include "family/family_parts.h"

#include "vision/llava.h"

const struct vision_role llava_top_roles[LLAVA_TOP] = {
    { "embeddings.patch_embedding.weight",
      "v.patch_embd.weight",
      { H, VDIM_PATCH },
      PLACE_TOWER,
      0,
      false,
      TOP(patch) },
    { "embeddings.patch_embedding.bias",
      "v.patch_embd.bias",
      { H },
      PLACE_TOWER,
      0,
      false,
      TOP(patch_bias) },
    { "embeddings.position_embedding.weight",
      "v.position_embd.weight",
      { VDIM_POSITIONS, H },
      PLACE_TOWER,
      0,
      false,
      TOP(position) },
    { "weight", "mm.0.weight", { OUT, H }, PLACE_MM0, 0, false, TOP(merger.mm0) },
    { "bias", "mm.0.bias", { OUT }, PLACE_MM0, 0, false, TOP(merger.mm0_bias) },
    { "weight", "mm.2.weight", { OUT, OUT }, PLACE_MM2, 0, false, TOP(merger.mm2) },
    { "bias", "mm.2.bias", { OUT }, PLACE_MM2, 0, false, TOP(merger.mm2_bias) },
    { "image_newline", "v.image_newline", { OUT }, PLACE_NEWLINE, 0, false, TOP(newline) },
};

const struct vision_role llava_layer_roles[LLAVA_LAYER] = {
    { "layer_norm1.weight", "ln1.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm1) },
    { "layer_norm1.bias", "ln1.bias", { H }, PLACE_TOWER, 0, false, LAYER(norm1_bias) },
    { "self_attn.q_proj.weight", "attn_q.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(q) },
    { "self_attn.q_proj.bias", "attn_q.bias", { H }, PLACE_TOWER, 0, false, LAYER(q_bias) },
    { "self_attn.k_proj.weight", "attn_k.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(k) },
    { "self_attn.k_proj.bias", "attn_k.bias", { H }, PLACE_TOWER, 0, false, LAYER(k_bias) },
    { "self_attn.v_proj.weight", "attn_v.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(v) },
    { "self_attn.v_proj.bias", "attn_v.bias", { H }, PLACE_TOWER, 0, false, LAYER(v_bias) },
    { "self_attn.out_proj.weight", "attn_out.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(o) },
    { "self_attn.out_proj.bias", "attn_out.bias", { H }, PLACE_TOWER, 0, false, LAYER(o_bias) },
    { "layer_norm2.weight", "ln2.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm2) },
    { "layer_norm2.bias", "ln2.bias", { H }, PLACE_TOWER, 0, false, LAYER(norm2_bias) },
    { "mlp.fc1.weight", "ffn_up.weight", { F, H }, PLACE_TOWER, 0, false, LAYER(up) },
    { "mlp.fc1.bias", "ffn_up.bias", { F }, PLACE_TOWER, 0, false, LAYER(up_bias) },
    { "mlp.fc2.weight", "ffn_down.weight", { H, F }, PLACE_TOWER, 0, false, LAYER(down) },
    { "mlp.fc2.bias", "ffn_down.bias", { H }, PLACE_TOWER, 0, false, LAYER(down_bias) },
};

const struct vision_layout llava_layouts[LLAVA_LAYOUTS] = {
    /* llava-hf */
    { .prefix = { "vision_tower.vision_model.", "multi_modal_projector.linear_1.",
                  "multi_modal_projector.linear_2.", "" },
      .layers = "encoder.layers." },
    /* saved by transformers 5.2x */
    { .prefix = { "vision_tower.", "multi_modal_projector.linear_1.",
                  "multi_modal_projector.linear_2.", "" },
      .layers = "encoder.layers." },
    /* saved by transformers 4.5x */
    { .prefix = { "model.vision_tower.vision_model.", "model.multi_modal_projector.linear_1.",
                  "model.multi_modal_projector.linear_2.", "model." },
      .layers = "encoder.layers." },
    /* saved by transformers 5.0 */
    { .prefix = { "model.vision_tower.", "model.multi_modal_projector.linear_1.",
                  "model.multi_modal_projector.linear_2.", "model." },
      .layers = "encoder.layers." },
    /* lmms-lab */
    { .prefix = { "model.vision_tower.vision_tower.vision_model.", "model.mm_projector.0.",
                  "model.mm_projector.2.", "model." },
      .layers = "encoder.layers." },
};

const struct vision_number llava_numbers[LLAVA_NUMBERS] = {
    { .hf = "hidden_size", .gguf = "embedding_length", .slot = NUMBER(hidden) },
    { .hf = "num_hidden_layers", .gguf = "block_count", .slot = NUMBER(n_layers) },
    { .hf = "intermediate_size", .gguf = "feed_forward_length", .slot = NUMBER(ffn) },
    { .hf = "num_attention_heads", .gguf = "attention.head_count", .slot = NUMBER(n_heads) },
    { .hf = "image_size", .gguf = "image_size", .slot = NUMBER(image) },
    { .hf = "patch_size", .gguf = "patch_size", .slot = NUMBER(patch) },
    { .gguf = "preproc_max_tiles", .slot = NUMBER(max_tiles) },
};

static const struct vision_word words[] = {
    { .key = "model_type", .value = "siglip_vision_model" },
    { .key = "hidden_act", .value = "gelu_pytorch_tanh" },
    { .root = true, .key = "projector_hidden_act", .value = "gelu" },
    { .root = true, .key = "vision_feature_select_strategy", .value = "full", .needed = true },
    { .root = true, .key = "multimodal_projector_bias", .value = "true" },
};

static const char *const tokens[VISION_TOKENS] = {
    [VISION_IMAGE_TOKEN] = "<image>",
    [VISION_VIDEO_TOKEN] = "<video>",
};

static const struct family_tower tower = {
    .projector = "llava_ov",
    .flag = "clip.use_gelu",
    .in_one_file = true,
    .numbers = llava_numbers,
    .n_numbers = LLAVA_NUMBERS,
    .words = words,
    .n_words = COUNT(words),
    .token = tokens,
    .eps_key = "layer_norm_eps",
    .eps = 1e-6f,
    .mean = { 0.5f, 0.5f, 0.5f },
    .std = { 0.5f, 0.5f, 0.5f },
    .fixed = true,
    .tiles = true,
    .layered = true,
    .gelu = GELU_TANH,
    .roles = LLAVA_ROLES,
    .layouts = llava_layouts,
    .n_layouts = LLAVA_LAYOUTS,
};

enum pv_status llava_frame_size(struct frame_size *out, const struct vision_config *c,
                                const struct pv_video_params *p, int height, int width,
                                int n_frames, struct pv_error *err)
{
    bool still = n_frames == 0; /* keeps its size until it is cut */
    (void)p, (void)err;
    *out = (struct frame_size){ .height = still ? height : c->image,
                                .width = still ? width : c->image,
                                .kind = RESIZE_PILLOW };
    return PV_OK;
}

enum pv_status llava_plan(struct media *m, const struct vision_config *c,
                          const struct pv_video_params *p, double sample_fps, bool alone,
                          struct pv_error *err)
{
    int side = vision_side(c);
    (void)p, (void)sample_fps;
    if (m->video) {
        m->n_slices = m->n_units = m->n_views;
        m->unit_rows = llava_frame_tokens(c);
        m->newline = c->newline == NEWLINE_END;
    } else {
        m->height = m->width = c->image;
        if (alone && c->n_grid > 0) {
            m->tiling = tiling_choose(m->source_height, m->source_width, (const int(*)[2])c->grid,
                                      c->n_grid, c->image);
            m->n_views = 1 + m->tiling.rows * m->tiling.cols;
            m->unit_rows = llava_image_tokens(c, &m->tiling, m->source_height, m->source_width);
        } else {
            m->n_views = 1;
            m->unit_rows = side * side + 1;
        }
        m->n_slices = m->n_views;
        m->n_units = 1;
    }
    if (m->unit_rows < 1)
        return fail(err, PV_E_ARG, "a picture of %d x %d pixels leaves no tokens", m->source_width,
                    m->source_height);
    m->h = m->w = side;
    if (m->video && c->newline == NEWLINE_LINE)
        m->line = vision_pooled_side(c) + 1;
    else if (m->video && c->newline == NEWLINE_FRAME)
        m->line = m->unit_rows;
    else
        while (m->line * m->line < m->unit_rows) /* pooled to a square */
            m->line++;
    return PV_OK;
}

const struct family_frames llava_frames = {
    .rule = CHOOSE_LINSPACE,
    .frames = 32,
    .size = llava_frame_size,
};

const struct family_media llava_media = { .plan = llava_plan };

const struct family family_llava_onevision = {
    .name = "llava_onevision",
    .title = "LLaVA-OneVision",
    .number = 1,
    .types = (const char *const[]){ "llava_onevision", NULL },
    .arch = "qwen2",
    .by_text = true,
    .tower = &tower,
    .frames = &llava_frames,
    .media = &llava_media,
    .lambda = 0.4,
    .compact_drafting = true,
};
