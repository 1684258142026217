/* The tables of the towers' tensors. SigLIP's last norm (post_layernorm) is in the files but in no
 * table: its output is not used. */
#include "format/vision_roles.h"

#define TOP(field) offsetof(struct vision_tensors, field)
#define LAYER(field) offsetof(struct vision_layer_tensors, field)
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define H VDIM_HIDDEN
#define F VDIM_FFN
#define M VDIM_MERGED
#define OUT VDIM_OUT

static const struct vision_role llava_top[] = {
    { "embeddings.patch_embedding.weight",
      "v.patch_embd.weight",
      { H, VDIM_PATCH },
      PLACE_TOWER,
      0,
      TOP(patch) },
    { "embeddings.patch_embedding.bias",
      "v.patch_embd.bias",
      { H },
      PLACE_TOWER,
      0,
      TOP(patch_bias) },
    { "embeddings.position_embedding.weight",
      "v.position_embd.weight",
      { VDIM_POSITIONS, H },
      PLACE_TOWER,
      0,
      TOP(position) },
    { "weight", "mm.0.weight", { OUT, H }, PLACE_MM0, 0, TOP(mm0) },
    { "bias", "mm.0.bias", { OUT }, PLACE_MM0, 0, TOP(mm0_bias) },
    { "weight", "mm.2.weight", { OUT, OUT }, PLACE_MM2, 0, TOP(mm2) },
    { "bias", "mm.2.bias", { OUT }, PLACE_MM2, 0, TOP(mm2_bias) },
    { "image_newline", "v.image_newline", { OUT }, PLACE_NEWLINE, 0, TOP(newline) },
};

static const struct vision_role llava_layer[] = {
    { "layer_norm1.weight", "ln1.weight", { H }, PLACE_TOWER, 0, LAYER(norm1) },
    { "layer_norm1.bias", "ln1.bias", { H }, PLACE_TOWER, 0, LAYER(norm1_bias) },
    { "self_attn.q_proj.weight", "attn_q.weight", { H, H }, PLACE_TOWER, 0, LAYER(q) },
    { "self_attn.q_proj.bias", "attn_q.bias", { H }, PLACE_TOWER, 0, LAYER(q_bias) },
    { "self_attn.k_proj.weight", "attn_k.weight", { H, H }, PLACE_TOWER, 0, LAYER(k) },
    { "self_attn.k_proj.bias", "attn_k.bias", { H }, PLACE_TOWER, 0, LAYER(k_bias) },
    { "self_attn.v_proj.weight", "attn_v.weight", { H, H }, PLACE_TOWER, 0, LAYER(v) },
    { "self_attn.v_proj.bias", "attn_v.bias", { H }, PLACE_TOWER, 0, LAYER(v_bias) },
    { "self_attn.out_proj.weight", "attn_out.weight", { H, H }, PLACE_TOWER, 0, LAYER(o) },
    { "self_attn.out_proj.bias", "attn_out.bias", { H }, PLACE_TOWER, 0, LAYER(o_bias) },
    { "layer_norm2.weight", "ln2.weight", { H }, PLACE_TOWER, 0, LAYER(norm2) },
    { "layer_norm2.bias", "ln2.bias", { H }, PLACE_TOWER, 0, LAYER(norm2_bias) },
    { "mlp.fc1.weight", "ffn_up.weight", { F, H }, PLACE_TOWER, 0, LAYER(up) },
    { "mlp.fc1.bias", "ffn_up.bias", { F }, PLACE_TOWER, 0, LAYER(up_bias) },
    { "mlp.fc2.weight", "ffn_down.weight", { H, F }, PLACE_TOWER, 0, LAYER(down) },
    { "mlp.fc2.bias", "ffn_down.bias", { H }, PLACE_TOWER, 0, LAYER(down_bias) },
};

static const struct vision_role qwen_top[] = {
    { "patch_embed.proj.weight",
      "v.patch_embd.weight",
      { H, VDIM_PATCH },
      PLACE_TOWER,
      0,
      TOP(patch) },
    { "merger.ln_q.weight", "v.post_ln.weight", { H }, PLACE_TOWER, 0, TOP(merger_norm) },
    { "weight", "mm.0.weight", { M, M }, PLACE_MM0, 0, TOP(mm0) },
    { "bias", "mm.0.bias", { M }, PLACE_MM0, 0, TOP(mm0_bias) },
    { "weight", "mm.2.weight", { OUT, M }, PLACE_MM2, 0, TOP(mm2) },
    { "bias", "mm.2.bias", { OUT }, PLACE_MM2, 0, TOP(mm2_bias) },
};

static const struct vision_role qwen_layer[] = {
    { "norm1.weight", "ln1.weight", { H }, PLACE_TOWER, 0, LAYER(norm1) },
    { "attn.qkv.weight", "attn_q.weight", { H, H }, PLACE_TOWER, 1, LAYER(q) },
    { "attn.qkv.bias", "attn_q.bias", { H }, PLACE_TOWER, 1, LAYER(q_bias) },
    { "attn.qkv.weight", "attn_k.weight", { H, H }, PLACE_TOWER, 2, LAYER(k) },
    { "attn.qkv.bias", "attn_k.bias", { H }, PLACE_TOWER, 2, LAYER(k_bias) },
    { "attn.qkv.weight", "attn_v.weight", { H, H }, PLACE_TOWER, 3, LAYER(v) },
    { "attn.qkv.bias", "attn_v.bias", { H }, PLACE_TOWER, 3, LAYER(v_bias) },
    { "attn.proj.weight", "attn_out.weight", { H, H }, PLACE_TOWER, 0, LAYER(o) },
    { "attn.proj.bias", "attn_out.bias", { H }, PLACE_TOWER, 0, LAYER(o_bias) },
    { "norm2.weight", "ln2.weight", { H }, PLACE_TOWER, 0, LAYER(norm2) },
    { "mlp.gate_proj.weight", "ffn_gate.weight", { F, H }, PLACE_TOWER, 0, LAYER(gate) },
    { "mlp.gate_proj.bias", "ffn_gate.bias", { F }, PLACE_TOWER, 0, LAYER(gate_bias) },
    { "mlp.up_proj.weight", "ffn_up.weight", { F, H }, PLACE_TOWER, 0, LAYER(up) },
    { "mlp.up_proj.bias", "ffn_up.bias", { F }, PLACE_TOWER, 0, LAYER(up_bias) },
    { "mlp.down_proj.weight", "ffn_down.weight", { H, F }, PLACE_TOWER, 0, LAYER(down) },
    { "mlp.down_proj.bias", "ffn_down.bias", { H }, PLACE_TOWER, 0, LAYER(down_bias) },
};

static const struct vision_layout layouts[] = {
    { VISION_LLAVA, /* llava-hf */
      { "vision_tower.vision_model.", "multi_modal_projector.linear_1.",
        "multi_modal_projector.linear_2.", "" },
      "encoder.layers." },
    { VISION_LLAVA, /* saved by transformers 5.2x */
      { "vision_tower.", "multi_modal_projector.linear_1.", "multi_modal_projector.linear_2.", "" },
      "encoder.layers." },
    { VISION_LLAVA, /* saved by transformers 4.5x */
      { "model.vision_tower.vision_model.", "model.multi_modal_projector.linear_1.",
        "model.multi_modal_projector.linear_2.", "model." },
      "encoder.layers." },
    { VISION_LLAVA, /* saved by transformers 5.0 */
      { "model.vision_tower.", "model.multi_modal_projector.linear_1.",
        "model.multi_modal_projector.linear_2.", "model." },
      "encoder.layers." },
    { VISION_LLAVA, /* lmms-lab */
      { "model.vision_tower.vision_tower.vision_model.", "model.mm_projector.0.",
        "model.mm_projector.2.", "model." },
      "encoder.layers." },
    { VISION_QWEN2_5, /* the hub */
      { "visual.", "visual.merger.mlp.0.", "visual.merger.mlp.2.", "" },
      "blocks." },
    { VISION_QWEN2_5, /* saved by transformers 4.52 on */
      { "model.visual.", "model.visual.merger.mlp.0.", "model.visual.merger.mlp.2.", "" },
      "blocks." },
};

struct vision_roles vision_roles(enum vision_kind kind)
{
    static const struct vision_roles llava = { llava_top, llava_layer, COUNT(llava_top),
                                               COUNT(llava_layer) };
    static const struct vision_roles qwen = { qwen_top, qwen_layer, COUNT(qwen_top),
                                              COUNT(qwen_layer) };
    return kind == VISION_LLAVA ? llava : qwen;
}

const struct vision_layout *vision_layout(int i)
{
    return i < COUNT(layouts) ? &layouts[i] : NULL;
}

int64_t vision_dim_size(enum vision_dim d, const struct vision_config *c)
{
    switch (d) {
    case VDIM_HIDDEN:
        return c->hidden;
    case VDIM_FFN:
        return c->ffn;
    case VDIM_PATCH:
        return (int64_t)3 * c->temporal * c->patch * c->patch;
    case VDIM_POSITIONS:
        return (int64_t)vision_side(c) * vision_side(c);
    case VDIM_MERGED:
        return (int64_t)c->hidden * c->merge * c->merge;
    case VDIM_OUT:
        return c->out;
    default:
        return 0;
    }
}
