/* The table of a Qwen decoder's tensors. Both file formats store linear weights as [out, in] with
 * the input contiguous, and neither permutes rows, so names are the only difference. */
#include "format/roles.h"

#define SLOT(field) offsetof(struct layer_tensors, field)

const struct role role_layer[ROLE_LAYER_COUNT] = {
    { "input_layernorm.weight", "attn_norm.weight", { DIM_HIDDEN }, NEED_ALWAYS, SLOT(attn_norm) },
    { "self_attn.q_proj.weight", "attn_q.weight", { DIM_Q, DIM_HIDDEN }, NEED_ALWAYS, SLOT(q) },
    { "self_attn.k_proj.weight", "attn_k.weight", { DIM_KV, DIM_HIDDEN }, NEED_ALWAYS, SLOT(k) },
    { "self_attn.v_proj.weight", "attn_v.weight", { DIM_KV, DIM_HIDDEN }, NEED_ALWAYS, SLOT(v) },
    { "self_attn.q_proj.bias", "attn_q.bias", { DIM_Q }, NEED_QKV_BIAS, SLOT(q_bias) },
    { "self_attn.k_proj.bias", "attn_k.bias", { DIM_KV }, NEED_QKV_BIAS, SLOT(k_bias) },
    { "self_attn.v_proj.bias", "attn_v.bias", { DIM_KV }, NEED_QKV_BIAS, SLOT(v_bias) },
    { "self_attn.q_norm.weight", "attn_q_norm.weight", { DIM_HEAD }, NEED_QK_NORM, SLOT(q_norm) },
    { "self_attn.k_norm.weight", "attn_k_norm.weight", { DIM_HEAD }, NEED_QK_NORM, SLOT(k_norm) },
    { "self_attn.o_proj.weight",
      "attn_output.weight",
      { DIM_HIDDEN, DIM_Q },
      NEED_ALWAYS,
      SLOT(o) },
    { "self_attn.o_proj.bias", "attn_output.bias", { DIM_HIDDEN }, NEED_NEVER, 0 },
    { "post_attention_layernorm.weight",
      "ffn_norm.weight",
      { DIM_HIDDEN },
      NEED_ALWAYS,
      SLOT(ffn_norm) },
    { "mlp.gate_proj.weight", "ffn_gate.weight", { DIM_FFN, DIM_HIDDEN }, NEED_DENSE, SLOT(gate) },
    { "mlp.up_proj.weight", "ffn_up.weight", { DIM_FFN, DIM_HIDDEN }, NEED_DENSE, SLOT(up) },
    { "mlp.down_proj.weight", "ffn_down.weight", { DIM_HIDDEN, DIM_FFN }, NEED_DENSE, SLOT(down) },
    { "mlp.gate.weight",
      "ffn_gate_inp.weight",
      { DIM_EXPERTS, DIM_HIDDEN },
      NEED_SPARSE,
      SLOT(router) },
};

const struct role role_embed = {
    "embed_tokens.weight", "token_embd.weight", { DIM_VOCAB, DIM_HIDDEN }, NEED_ALWAYS, 0
};
const struct role role_norm = {
    "norm.weight", "output_norm.weight", { DIM_HIDDEN }, NEED_ALWAYS, 0
};
const struct role role_lm_head = {
    "lm_head.weight", "output.weight", { DIM_VOCAB, DIM_HIDDEN }, NEED_ALWAYS, 0
};

bool role_needed(const struct role *r, const struct config *c, int layer)
{
    switch (r->need) {
    case NEED_ALWAYS:
        return true;
    case NEED_QKV_BIAS:
        return c->qkv_bias;
    case NEED_QK_NORM:
        return c->qk_norm;
    case NEED_DENSE:
        return !c->sparse[layer];
    case NEED_SPARSE:
        return c->sparse[layer];
    default:
        return false;
    }
}

int64_t role_dim_size(enum role_dim d, const struct config *c)
{
    switch (d) {
    case DIM_HIDDEN:
        return c->hidden;
    case DIM_Q:
        return (int64_t)c->n_heads * c->head_dim;
    case DIM_KV:
        return (int64_t)c->n_kv_heads * c->head_dim;
    case DIM_HEAD:
        return c->head_dim;
    case DIM_FFN:
        return c->ffn;
    case DIM_VOCAB:
        return c->vocab;
    case DIM_EXPERTS:
        return c->n_experts;
    default:
        return 0;
    }
}
