/* The tensors of vision towers, under the names of llama.cpp. */
#ifndef PV_BENCH_PLAN_TOWER_H
#define PV_BENCH_PLAN_TOWER_H

#include "plan.h"

static inline void plan_tower_layer(struct plan_list *l, const struct tower *v, int layer,
                                    enum dtype t)
{
    int64_t h = v->hidden, ffn = v->ffn;
    enum dtype wide = tower_type(t, h), narrow = tower_type(t, ffn);
    float in_h = 1 / sqrtf((float)h), to_stream = 1 / sqrtf(2.0f * (float)v->n_layers);
    const struct plan both[] = {
        { "ln1.weight", h, 0, DTYPE_F32, 1, 0.1f, 0, "v.blk", 0, false },
        { "ln2.weight", h, 0, DTYPE_F32, 1, 0.1f, 0, "v.blk", 0, false },
        { "attn_q.weight", h, h, wide, 0, in_h, 0, "v.blk", 0, false },
        { "attn_q.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
        { "attn_k.weight", h, h, wide, 0, in_h, 0, "v.blk", 0, false },
        { "attn_k.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
        { "attn_v.weight", h, h, wide, 0, in_h, 0, "v.blk", 0, false },
        { "attn_v.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
        { "attn_out.weight", h, h, wide, 0, to_stream * in_h, 0, "v.blk", 0, false },
        { "attn_out.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
        { "ffn_up.weight", h, ffn, wide, 0, in_h, 0, "v.blk", 0, false },
        { "ffn_up.bias", ffn, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
        { "ffn_down.weight", ffn, h, narrow, 0, to_stream / sqrtf((float)ffn), 0, "v.blk", 0,
          false },
        { "ffn_down.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
    };
    const struct plan fused[] = {
        { "attn_qkv.weight", h, 3 * h, wide, 0, in_h, 0, "v.blk", 0, false },
        { "attn_qkv.bias", 3 * h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
    };
    const struct plan norms[] = { { "ln1.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false },
                                  { "ln2.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0, false } };
    const struct plan gate[] = { { "ffn_gate.weight", h, ffn, wide, 0, in_h, 0, "v.blk", 0, false },
                                 { "ffn_gate.bias", ffn, 0, DTYPE_F32, 0, 0.1f, 0, "v.blk", 0,
                                   false } };
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++)
        if (!v->positions || i < 2 || i > 7) /* Qwen3-VL has one matrix for q, k and v */
            plan_add(l, &both[i], layer);
    for (int i = 0; v->positions && i < 2; i++)
        plan_add(l, &fused[i], layer);
    for (int i = 0; i < 2; i++)
        plan_add(l, v->llava || v->positions ? &norms[i] : &gate[i], layer);
}

/* The tensors of a Qwen3-VL tower other than its layers and its first merger. */
static inline void plan_deepstack(struct plan_list *l, const struct shape *s, enum dtype t)
{
    const struct tower *v = s->tower;
    int64_t h = v->hidden, m = 4 * h, out = s->hidden;
    const int layers[] = { v->deep0, v->deep1, v->deep2 };
    float std = 1 / sqrtf((float)m);
    const struct plan top[] = {
        { "v.patch_embd.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
        { "v.position_embd.weight", h, v->positions, DTYPE_F32, 0, 0.5f, 0, NULL, 0, false },
        { "v.post_ln.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
    };
    const struct plan merger[] = {
        { "norm.weight", m, 0, DTYPE_F32, 1, 0.1f, 0, "v.deepstack", 0, false },
        { "norm.bias", m, 0, DTYPE_F32, 0, 0.1f, 0, "v.deepstack", 0, false },
        { "fc1.weight", m, m, tower_type(t, m), 0, std, 0, "v.deepstack", 0, false },
        { "fc1.bias", m, 0, DTYPE_F32, 0, 0.1f, 0, "v.deepstack", 0, false },
        { "fc2.weight", m, out, tower_type(t, m), 0, std, 0, "v.deepstack", 0, false },
        { "fc2.bias", out, 0, DTYPE_F32, 0, 0.1f, 0, "v.deepstack", 0, false },
    };
    for (int i = 0; i < 3; i++)
        plan_add(l, &top[i], -1);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 6; i++)
            plan_add(l, &merger[i], layers[k]);
}

/* The tower with its projector or merger, under the names of llama.cpp. */
static inline void plan_tower(struct plan_list *l, const struct shape *s, enum dtype t)
{
    const struct tower *v = s->tower;
    int64_t h = v->hidden, area = (int64_t)3 * v->patch * v->patch, out = s->hidden;
    int64_t side = v->image / v->patch, wide = v->llava ? h : 4 * h, mid = v->llava ? out : wide;
    enum dtype conv = t == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32;
    float std = 1 / sqrtf((float)area);
    const struct plan first = {
        "v.patch_embd.weight", area, h, conv, 0, std, 0, NULL, v->patch, false
    };
    const struct plan llava[] = {
        { "v.patch_embd.bias", h, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
        { "v.position_embd.weight", h, side * side, DTYPE_F32, 0, 0.5f, 0, NULL, 0, false },
        { "v.image_newline", out, 0, DTYPE_F32, 0, 1, 0, NULL, 0, false },
    };
    const struct plan qwen[] = {
        { "v.patch_embd.weight.1", area, h, conv, 0, std, 0, NULL, v->patch, false },
        { "v.post_ln.weight", h, 0, DTYPE_F32, 1, 0.1f, 0, NULL, 0, false },
    };
    const struct plan mm[] = {
        { "mm.0.weight", wide, mid, tower_type(t, wide), 0, 1 / sqrtf((float)wide), 0, NULL, 0,
          false },
        { "mm.0.bias", mid, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
        { "mm.2.weight", mid, out, tower_type(t, mid), 0, 1 / sqrtf((float)mid), 0, NULL, 0,
          false },
        { "mm.2.bias", out, 0, DTYPE_F32, 0, 0.1f, 0, NULL, 0, false },
    };
    plan_add(l, &first, -1);
    for (int i = 0; i < (v->llava ? 3 : 2); i++)
        plan_add(l, v->llava ? &llava[i] : &qwen[i], -1);
    for (int i = 0; i < 4; i++)
        plan_add(l, &mm[i], -1);
    if (v->positions)
        plan_deepstack(l, s, t);
    for (int i = 0; i < v->n_layers; i++)
        plan_tower_layer(l, v, i, t);
}

#endif
