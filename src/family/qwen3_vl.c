/* Qwen3-VL: a tower with rope and learned positions stretched over pictures of any size; the
 * outputs of some of its layers go to the decoder too (deepstack). Each pair of frames of a video
 * is a block of its own, after a text that tells its time; positions carry row and column alone. */
#include "family/family_parts.h"

#include "lm/positions.h"
#include "video/timestamps.h"

static const struct vision_role top_roles[] = {
    { "patch_embed.proj.weight",
      "v.patch_embd.weight",
      { H, VDIM_PATCH },
      PLACE_TOWER,
      0,
      false,
      TOP(patch) },
    { "patch_embed.proj.bias", "v.patch_embd.bias", { H }, PLACE_TOWER, 0, false, TOP(patch_bias) },
    { "pos_embed.weight",
      "v.position_embd.weight",
      { VDIM_POSITIONS, H },
      PLACE_TOWER,
      0,
      false,
      TOP(position) },
    { "merger.norm.weight", "v.post_ln.weight", { H }, PLACE_TOWER, 0, false, TOP(merger.norm) },
    { "merger.norm.bias", "v.post_ln.bias", { H }, PLACE_TOWER, 0, false, TOP(merger.norm_bias) },
    { "weight", "mm.0.weight", { M, M }, PLACE_MM0, 0, false, TOP(merger.mm0) },
    { "bias", "mm.0.bias", { M }, PLACE_MM0, 0, false, TOP(merger.mm0_bias) },
    { "weight", "mm.2.weight", { OUT, M }, PLACE_MM2, 0, false, TOP(merger.mm2) },
    { "bias", "mm.2.bias", { OUT }, PLACE_MM2, 0, false, TOP(merger.mm2_bias) },
};

static const struct vision_role layer_roles[] = {
    { "norm1.weight", "ln1.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm1) },
    { "norm1.bias", "ln1.bias", { H }, PLACE_TOWER, 0, false, LAYER(norm1_bias) },
    { "attn.qkv.weight", "attn_qkv.weight", { H, H }, PLACE_TOWER, 1, true, LAYER(q) },
    { "attn.qkv.weight", "attn_qkv.weight", { H, H }, PLACE_TOWER, 2, true, LAYER(k) },
    { "attn.qkv.weight", "attn_qkv.weight", { H, H }, PLACE_TOWER, 3, true, LAYER(v) },
    { "attn.qkv.bias", "attn_qkv.bias", { H }, PLACE_TOWER, 1, true, LAYER(q_bias) },
    { "attn.qkv.bias", "attn_qkv.bias", { H }, PLACE_TOWER, 2, true, LAYER(k_bias) },
    { "attn.qkv.bias", "attn_qkv.bias", { H }, PLACE_TOWER, 3, true, LAYER(v_bias) },
    { "attn.proj.weight", "attn_out.weight", { H, H }, PLACE_TOWER, 0, false, LAYER(o) },
    { "attn.proj.bias", "attn_out.bias", { H }, PLACE_TOWER, 0, false, LAYER(o_bias) },
    { "norm2.weight", "ln2.weight", { H }, PLACE_TOWER, 0, false, LAYER(norm2) },
    { "norm2.bias", "ln2.bias", { H }, PLACE_TOWER, 0, false, LAYER(norm2_bias) },
    { "mlp.linear_fc1.weight", "ffn_up.weight", { F, H }, PLACE_TOWER, 0, false, LAYER(up) },
    { "mlp.linear_fc1.bias", "ffn_up.bias", { F }, PLACE_TOWER, 0, false, LAYER(up_bias) },
    { "mlp.linear_fc2.weight", "ffn_down.weight", { H, F }, PLACE_TOWER, 0, false, LAYER(down) },
    { "mlp.linear_fc2.bias", "ffn_down.bias", { H }, PLACE_TOWER, 0, false, LAYER(down_bias) },
};

static const struct vision_role merger_roles[] = {
    { "norm.weight", "norm.weight", { M }, PLACE_TOWER, 0, false, MERGER(norm) },
    { "norm.bias", "norm.bias", { M }, PLACE_TOWER, 0, false, MERGER(norm_bias) },
    { "linear_fc1.weight", "fc1.weight", { M, M }, PLACE_TOWER, 0, false, MERGER(mm0) },
    { "linear_fc1.bias", "fc1.bias", { M }, PLACE_TOWER, 0, false, MERGER(mm0_bias) },
    { "linear_fc2.weight", "fc2.weight", { OUT, M }, PLACE_TOWER, 0, false, MERGER(mm2) },
    { "linear_fc2.bias", "fc2.bias", { OUT }, PLACE_TOWER, 0, false, MERGER(mm2_bias) },
};

static const struct vision_layout layouts[] = {
    { .prefix = { "model.visual.", "model.visual.merger.linear_fc1.",
                  "model.visual.merger.linear_fc2.", "" },
      .layers = "blocks.",
      .mergers = "deepstack_merger_list." },
    { .prefix = { "visual.", "visual.merger.linear_fc1.", "visual.merger.linear_fc2.", "" },
      .layers = "blocks.",
      .mergers = "deepstack_merger_list." },
};

static const struct vision_number numbers[] = {
    { .hf = "hidden_size", .gguf = "embedding_length", .slot = NUMBER(hidden) },
    { .hf = "intermediate_size", .gguf = "feed_forward_length", .slot = NUMBER(ffn) },
    { .hf = "out_hidden_size", .slot = NUMBER(out) },
    { .hf = "num_position_embeddings", .slot = NUMBER(positions) },
    QWEN_NUMBERS,
};

static const struct vision_word words[] = { { .key = "hidden_act", .value = "gelu_pytorch_tanh" } };

static const struct family_tower tower = {
    .projector = "qwen3vl_merger",
    .flag = "clip.use_gelu",
    .said_size = 768,
    .numbers = numbers,
    .n_numbers = COUNT(numbers),
    .words = words,
    .n_words = COUNT(words),
    .token = qwen_tokens,
    .eps = 1e-6f,
    .mean = { 0.5f, 0.5f, 0.5f },
    .std = { 0.5f, 0.5f, 0.5f },
    .min_pixels = 65536,
    .max_pixels = 16777216,
    .video_min_pixels = 4096,
    .video_max_pixels = 25165824,
    .rope = true,
    .interpolated = true,
    .gelu = GELU_TANH,
    .roles = { .top = top_roles,
               .layer = layer_roles,
               .merger = merger_roles,
               .n_top = COUNT(top_roles),
               .n_layer = COUNT(layer_roles),
               .n_merger = COUNT(merger_roles) },
    .layouts = layouts,
    .n_layouts = COUNT(layouts),
};

/* All frames of a video share one area; what the caller asks for is of one frame. */
static enum pv_status frame_size(struct frame_size *out, const struct vision_config *c,
                                 const struct pv_video_params *p, int height, int width,
                                 int n_frames, struct pv_error *err)
{
    struct frame_size r = { .kind = RESIZE_FLOAT };
    int n = n_frames > c->temporal ? n_frames : c->temporal;
    int64_t min = c->video_min_pixels, max = c->video_max_pixels;
    enum pv_status s;
    if (n_frames == 0)
        return qwen_frame_size(out, c, p, height, width, 0, err);
    if (p->max_pixels && p->max_pixels < max / n)
        max = p->max_pixels * n;
    if (p->min_pixels && p->min_pixels <= max / n)
        min = p->min_pixels * n;
    min = min < max ? min : max;
    s = smart_resize_video(&r.height, &r.width, n, height, width, c->patch * c->merge, min, max,
                           err);
    if (!s)
        *out = r;
    return s;
}

static enum pv_status plan(struct media *m, const struct vision_config *c,
                           const struct pv_video_params *p, double sample_fps, bool alone,
                           struct pv_error *err)
{
    enum pv_status s = qwen_plan(m, c, p, sample_fps, alone, err);
    m->slice_seconds = 0;
    m->time_rule = PV_TIME_AUTO;
    m->run_rows = m->video ? m->unit_rows : 0;
    return s;
}

/* A run is one block. */
static int32_t positions(const struct media *m, int32_t start, int row, int n, int32_t (*pos)[3])
{
    (void)row, (void)n;
    return positions_block(pos, start, m->merged_h, m->merged_w);
}

static void caption(char out[MEDIA_CAPTION_SIZE], const int64_t *index, int n, double fps, int run)
{
    pair_text(out, pair_seconds(index, n, run, fps));
}

_Static_assert((int)MEDIA_CAPTION_SIZE >= (int)PAIR_TEXT_SIZE, "captions have room");

static const struct family_frames frames = {
    .rule = CHOOSE_QWEN3,
    .fps = 2,
    .min_frames = 4,
    .max_frames = 768,
    .size = frame_size,
};

static const struct family_media media = {
    .plan = plan,
    .positions = positions,
    .caption = caption,
};

const struct family family_qwen3_vl = {
    .name = "qwen3_vl",
    .title = "Qwen3-VL",
    .number = 4,
    .types = (const char *const[]){ "qwen3_vl", "qwen3_vl_text", NULL },
    .arch = "qwen3vl",
    .decoder = { .qk_norm = true, .mrope = MROPE_INTERLEAVED },
    .tower = &tower,
    .frames = &frames,
    .media = &media,
    .lambda = 0.5,
};

const struct family family_qwen3_vl_moe = {
    .name = "qwen3_vl_moe",
    .title = "Qwen3-VL-MoE",
    .number = 5,
    .types = (const char *const[]){ "qwen3_vl_moe", "qwen3_vl_moe_text", NULL },
    .arch = "qwen3vlmoe",
    .decoder = { .qk_norm = true, .mrope = MROPE_INTERLEAVED, .experts = EXPERTS_NORMED },
    .tower = &tower,
    .frames = &frames,
    .media = &media,
    .lambda = 0.5,
};
