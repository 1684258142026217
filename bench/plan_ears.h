/* The tensors and keys of an audio encoder with its Q-Former, under the names of our own converter:
 * llama.cpp has none for them. */
#ifndef PV_BENCH_PLAN_EARS_H
#define PV_BENCH_PLAN_EARS_H

#include "gguf_bytes.h"
#include "plan.h"

#include <string.h>

/* One-dimensional tensors of an audio encoder's layers, as names and sizes. */
struct small_plan {
    const char *name;
    int64_t n;
};

static inline void plan_small(struct plan_list *l, const struct small_plan *p, const char *group,
                              int layer)
{
    bool scale = strstr(p->name, "ln") && strstr(p->name, ".weight");
    const struct plan one = {
        .suffix = p->name, .in = p->n, .group = group, .mean = scale ? 1 : 0, .std = 0.1f
    };
    plan_add(l, &one, layer);
}

static inline void plan_product(struct plan_list *l, const char *name, int64_t in, int64_t out,
                                enum dtype t, const char *group, int layer)
{
    const struct plan one = { .suffix = name,
                              .in = in,
                              .out = out,
                              .dtype = tower_type(t, in),
                              .std = 0.5f / sqrtf((float)in),
                              .group = group };
    plan_add(l, &one, layer);
}

static inline void plan_ears_layer(struct plan_list *l, const struct ears *e, int layer,
                                   enum dtype t)
{
    static const char group[] = "a.blk";
    int64_t h = e->hidden, ffn = e->ffn;
    const struct small_plan small[] = {
        { "ln1.weight", h },    { "ln1.bias", h },      { "ln2.weight", h },
        { "ln2.bias", h },      { "attn_q.bias", h },   { "attn_v.bias", h },
        { "attn_out.bias", h }, { "ffn_up.bias", ffn }, { "ffn_down.bias", h },
    };
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        plan_small(l, &small[i], group, layer);
    plan_product(l, "attn_q.weight", h, h, t, group, layer);
    plan_product(l, "attn_k.weight", h, h, t, group, layer);
    plan_product(l, "attn_v.weight", h, h, t, group, layer);
    plan_product(l, "attn_out.weight", h, h, t, group, layer);
    plan_product(l, "ffn_up.weight", h, ffn, t, group, layer);
    plan_product(l, "ffn_down.weight", ffn, h, t, group, layer);
}

static inline void plan_query_layer(struct plan_list *l, const struct ears *e, int layer,
                                    enum dtype t)
{
    static const char group[] = "a.qf.blk";
    int64_t h = e->hidden, q = e->q_hidden, ffn = e->q_ffn;
    const struct small_plan small[] = {
        { "self_v.bias", q },   { "self_out.bias", q },  { "self_ln.weight", q },
        { "self_ln.bias", q },  { "cross_q.bias", q },   { "cross_k.bias", q },
        { "cross_v.bias", q },  { "cross_out.bias", q }, { "cross_ln.weight", q },
        { "cross_ln.bias", q }, { "ffn_up.bias", ffn },  { "ffn_down.bias", q },
        { "ffn_ln.weight", q }, { "ffn_ln.bias", q },
    };
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        plan_small(l, &small[i], group, layer);
    plan_product(l, "self_v.weight", q, q, t, group, layer);
    plan_product(l, "self_out.weight", q, q, t, group, layer);
    plan_product(l, "cross_q.weight", q, q, t, group, layer);
    plan_product(l, "cross_k.weight", h, q, t, group, layer);
    plan_product(l, "cross_v.weight", h, q, t, group, layer);
    plan_product(l, "cross_out.weight", q, q, t, group, layer);
    plan_product(l, "ffn_up.weight", q, ffn, t, group, layer);
    plan_product(l, "ffn_down.weight", ffn, q, t, group, layer);
}

static inline void plan_ears(struct plan_list *l, const struct shape *s, enum dtype t)
{
    const struct ears *e = s->ears;
    int64_t h = e->hidden, q = e->q_hidden;
    enum dtype conv = t == DTYPE_BF16 || t == DTYPE_F16 ? t : DTYPE_F32;
    const struct plan convs[] = {
        { .suffix = "a.conv1d.1.weight",
          .in = (int64_t)3 * e->mel,
          .out = h,
          .dtype = conv,
          .std = 1 / sqrtf(3.0f * (float)e->mel),
          .patch = 3,
          .sound = true },
        { .suffix = "a.conv1d.2.weight",
          .in = 3 * h,
          .out = h,
          .dtype = conv,
          .std = 1 / sqrtf(3.0f * (float)h),
          .patch = 3,
          .sound = true },
        { .suffix = "a.qf.query",
          .in = q,
          .out = 1,
          .std = 1,
          .patch = e->q_hidden,
          .sound = true },
        { .suffix = "a.position_embd.weight", .in = h, .out = e->positions, .std = 0.1f },
    };
    const struct small_plan small[] = {
        { "a.conv1d.1.bias", h },        { "a.conv1d.2.bias", h }, { "a.post_ln.weight", h },
        { "a.post_ln.bias", h },         { "a.qf.ln.weight", q },  { "a.qf.ln.bias", q },
        { "mm.a.proj.bias", s->hidden },
    };
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++)
        plan_add(l, &convs[i], -1);
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        plan_small(l, &small[i], NULL, -1);
    plan_product(l, "mm.a.proj.weight", q, s->hidden, t, NULL, -1);
    for (int i = 0; i < e->n_layers; i++)
        plan_ears_layer(l, e, i, t);
    for (int i = 0; i < e->q_layers; i++)
        plan_query_layer(l, e, i, t);
}

static inline void put_ears_keys(FILE *f, const struct ears *e)
{
    static const char a[] = "clip.audio.";
    put_key(f, "clip.", "has_audio_encoder", GGUF_BOOL);
    putc(1, f);
    put_u32(f, a, "num_mel_bins", (uint32_t)e->mel);
    put_u32(f, a, "embedding_length", (uint32_t)e->hidden);
    put_u32(f, a, "feed_forward_length", (uint32_t)e->ffn);
    put_u32(f, a, "block_count", (uint32_t)e->n_layers);
    put_u32(f, a, "attention.head_count", (uint32_t)e->n_heads);
    put_f32(f, a, "attention.layer_norm_epsilon", 1e-5f);
    put_u32(f, a, "qformer.embedding_length", (uint32_t)e->q_hidden);
    put_u32(f, a, "qformer.feed_forward_length", (uint32_t)e->q_ffn);
    put_u32(f, a, "qformer.block_count", (uint32_t)e->q_layers);
    put_u32(f, a, "qformer.head_count", (uint32_t)e->q_heads);
    put_f32(f, a, "qformer.layer_norm_epsilon", 1e-12f);
    put_u32(f, a, "qformer.window", (uint32_t)e->window);
}

#endif
