/* What random tiny models that see consist of: a shape for each family, and the names, shapes and
 * numbers of the tower's tensors.
 *
 * Names are spelled out here and not taken from the library's tables, so that its reader is tried
 * against a second opinion. Every tensor's numbers depend on its GGUF name alone, so that models of
 * different depths have layers in common. */
#ifndef PV_TESTS_TINY_PARTS_H
#define PV_TESTS_TINY_PARTS_H

#include "family/families.h"
#include "format/vision_config.h"
#include "make_file.h"
#include "tiny_model.h"

struct tiny_vision {
    const struct family *family;
    struct tiny_model text;
    int hidden, n_layers, n_heads, ffn, patch, image, window;
    int positions; /* of a learned table for any size */
    /* What to do differently. */
    int stored;             /* LLaVA directories: layers stored, n_layers when 0 */
    int layout;             /* of the names in a directory, see tiny_layouts */
    const char *drop;       /* leave this tensor (GGUF name) or GGUF key out */
    const char *reshape;    /* give this tensor one row more */
    const char *not_finite; /* the first number of this tensor is NaN */
    const char *from, *to;  /* replace this text in config.json */
    const char *processor;  /* preprocessor_config.json; NULL: the family's, "": no such file */
    const char *processor_file;
    const char *projector; /* of GGUF, NULL: the family's */
    bool all_full;         /* GGUF: n_wa_pattern 0 */
    bool llama_cpp;        /* GGUF: none of the keys that llama.cpp does not write */
    float noise;           /* added to all numbers, as a share of their deviation */
};

/* How the families' files differ. */
struct tiny_kind {
    const struct family *family;
    const char *arch, *projector;
    int text_layers, tower_layers;
    int layout, n_layouts; /* of tiny_layouts */
    const char *merger_norm;
    bool one_file, mlp_gate, norm_bias, fused;
};

enum { TINY_LLAVA_LAYOUTS = 5, TINY_QWEN_LAYOUTS = 2, TINY_DEEPSTACK = 2 };

static const struct tiny_kind tiny_kinds[] = {
    { &family_llava_onevision, "qwen2", "llava_ov", 2, 2, 0, TINY_LLAVA_LAYOUTS, NULL, true, false,
      true, false },
    { &family_qwen2_5_vl, "qwen2vl", "qwen2.5vl_merger", 2, 4, 5, TINY_QWEN_LAYOUTS,
      "merger.ln_q.weight", false, true, false, false },
    { &family_qwen2_vl, "qwen2vl", "qwen2vl_merger", 2, 4, 5, TINY_QWEN_LAYOUTS,
      "merger.ln_q.weight", false, false, true, false },
    { &family_qwen3_vl, "qwen3vl", "qwen3vl_merger", 3, 4, 7, TINY_QWEN_LAYOUTS,
      "merger.norm.weight", false, false, true, true },
    { &family_salmonn2_plus, "qwen2vl", "qwen2.5vl_merger", 2, 4, 5, TINY_QWEN_LAYOUTS,
      "merger.ln_q.weight", false, true, false, false },
};

/* Sizes of the audio encoder of a model that hears: features of real sound, but chunks of one
 * second, two tokens each. */
enum {
    TINY_MEL = 128,
    TINY_EAR = 16,
    TINY_EAR_FFN = 24,
    TINY_EAR_POSITIONS = 50,
    TINY_EAR_LAYERS = 2,
    TINY_QUERY = 12,
    TINY_QUERY_FFN = 20
};

enum { TINY_KINDS = sizeof tiny_kinds / sizeof *tiny_kinds };

static inline const struct tiny_kind *tiny_kind(const struct family *family)
{
    for (int i = 0; i < TINY_KINDS; i++)
        if (tiny_kinds[i].family == family)
            return &tiny_kinds[i];
    abort();
}

/* Layer of the tower after which deepstack vector k is taken. */
static inline int tiny_deepstack(const struct tiny_vision *m, int k)
{
    return k ? m->n_layers - 1 : m->n_layers / 2 - 1;
}

static inline struct tiny_vision tiny_vision(const struct family *family)
{
    static const char *const llava[] = { "<image>", "<video>", NULL };
    static const char *const qwen[] = { "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                                        "<|video_pad|>", NULL };
    static const char *const hears[] = { "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                                         "<|video_pad|>",    "<|audio_pad|>",  NULL };
    const struct tiny_kind *kind = tiny_kind(family);
    bool is_llava = family == &family_llava_onevision, deep = family == &family_qwen3_vl;
    return (struct tiny_vision){ .family = family,
                                 .text = { .arch = kind->arch,
                                           .hidden = 32,
                                           .n_layers = kind->text_layers,
                                           .n_heads = 2,
                                           .n_kv = 1,
                                           .head_dim = 16,
                                           .ffn = 64,
                                           .vocab = 288,
                                           .type = DTYPE_F32,
                                           .tokenizer = true,
                                           .eos = TINY_IM_END,
                                           .extra = family->audio_encoder ? hears
                                                    : is_llava            ? llava
                                                                          : qwen,
                                           .n_deepstack = deep ? TINY_DEEPSTACK : 0 },
                                 .hidden = 32,
                                 .n_layers = kind->tower_layers,
                                 .n_heads = 2,
                                 .ffn = family == &family_qwen2_vl ? 64 : 48, /* a multiple */
                                 .patch = 4,
                                 .image = 22, /* 5 patches and a rest */
                                 .window = 16,
                                 .positions = deep ? 9 : 0 };
}

/* ---- the tower's tensors ---- */

struct tiny_part {
    char name[64];  /* in GGUF */
    const char *hf; /* in a directory, after the prefix of its group */
    int group; /* 0: a layer, 1: the tower, 2: first matrix, 3: second, 4: newline, 5: a deepstack
                  merger; of the audio encoder 6: once, 7: a layer, 8: a layer of the Q-Former */
    int layer, third; /* third: 1..3 of fused q, k and v */
    int rows, cols;   /* rows 0: a vector */
    bool patch;
};

struct tiny_parts {
    struct tiny_part item[200];
    int n;
};

static inline void tiny_part(struct tiny_parts *l, int group, int layer, const char *name,
                             const char *hf, int rows, int cols)
{
    static const char *const numbered[9] = {
        [0] = "v.blk.", [5] = "v.deepstack.", [7] = "a.blk.", [8] = "a.qf.blk."
    };
    struct tiny_part *p = &l->item[l->n++];
    *p = (struct tiny_part){ .hf = hf, .group = group, .layer = layer, .rows = rows, .cols = cols };
    if (numbered[group])
        snprintf(p->name, sizeof p->name, "%s%d.%s", numbered[group], layer, name);
    else
        snprintf(p->name, sizeof p->name, "%s", name);
}

static inline void tiny_llava_layer(struct tiny_parts *l, const struct tiny_vision *m, int i)
{
    int h = m->hidden, f = m->ffn;
    tiny_part(l, 0, i, "ln1.weight", "layer_norm1.weight", 0, h);
    tiny_part(l, 0, i, "ln1.bias", "layer_norm1.bias", 0, h);
    tiny_part(l, 0, i, "ln2.weight", "layer_norm2.weight", 0, h);
    tiny_part(l, 0, i, "ln2.bias", "layer_norm2.bias", 0, h);
    tiny_part(l, 0, i, "attn_q.weight", "self_attn.q_proj.weight", h, h);
    tiny_part(l, 0, i, "attn_q.bias", "self_attn.q_proj.bias", 0, h);
    tiny_part(l, 0, i, "attn_k.weight", "self_attn.k_proj.weight", h, h);
    tiny_part(l, 0, i, "attn_k.bias", "self_attn.k_proj.bias", 0, h);
    tiny_part(l, 0, i, "attn_v.weight", "self_attn.v_proj.weight", h, h);
    tiny_part(l, 0, i, "attn_v.bias", "self_attn.v_proj.bias", 0, h);
    tiny_part(l, 0, i, "attn_out.weight", "self_attn.out_proj.weight", h, h);
    tiny_part(l, 0, i, "attn_out.bias", "self_attn.out_proj.bias", 0, h);
    tiny_part(l, 0, i, "ffn_up.weight", "mlp.fc1.weight", f, h);
    tiny_part(l, 0, i, "ffn_up.bias", "mlp.fc1.bias", 0, f);
    tiny_part(l, 0, i, "ffn_down.weight", "mlp.fc2.weight", h, f);
    tiny_part(l, 0, i, "ffn_down.bias", "mlp.fc2.bias", 0, h);
}

/* Vectors of a norm: a weight, and a bias where the family has one. */
static inline void tiny_norm(struct tiny_parts *l, const struct tiny_vision *m, int i,
                             const char *const names[4])
{
    tiny_part(l, 0, i, names[0], names[1], 0, m->hidden);
    if (tiny_kind(m->family)->norm_bias)
        tiny_part(l, 0, i, names[2], names[3], 0, m->hidden);
}

static inline void tiny_qwen_attention(struct tiny_parts *l, const struct tiny_vision *m, int i)
{
    static const char *const qkv[3][2] = { { "attn_q.weight", "attn_q.bias" },
                                           { "attn_k.weight", "attn_k.bias" },
                                           { "attn_v.weight", "attn_v.bias" } };
    int h = m->hidden;
    if (tiny_kind(m->family)->fused) {
        tiny_part(l, 0, i, "attn_qkv.weight", "attn.qkv.weight", 3 * h, h);
        tiny_part(l, 0, i, "attn_qkv.bias", "attn.qkv.bias", 0, 3 * h);
    }
    for (int j = 0; j < 3 && !tiny_kind(m->family)->fused; j++) {
        tiny_part(l, 0, i, qkv[j][0], "attn.qkv.weight", h, h);
        l->item[l->n - 1].third = j + 1;
        tiny_part(l, 0, i, qkv[j][1], "attn.qkv.bias", 0, h);
        l->item[l->n - 1].third = j + 1;
    }
    tiny_part(l, 0, i, "attn_out.weight", "attn.proj.weight", h, h);
    tiny_part(l, 0, i, "attn_out.bias", "attn.proj.bias", 0, h);
}

static inline void tiny_qwen_layer(struct tiny_parts *l, const struct tiny_vision *m, int i)
{
    static const char *const norms[2][4] = {
        { "ln1.weight", "norm1.weight", "ln1.bias", "norm1.bias" },
        { "ln2.weight", "norm2.weight", "ln2.bias", "norm2.bias" },
    };
    static const char *const mlp[3][4] = {
        { "mlp.up_proj.weight", "mlp.up_proj.bias", "mlp.down_proj.weight", "mlp.down_proj.bias" },
        { "mlp.fc1.weight", "mlp.fc1.bias", "mlp.fc2.weight", "mlp.fc2.bias" },
        { "mlp.linear_fc1.weight", "mlp.linear_fc1.bias", "mlp.linear_fc2.weight",
          "mlp.linear_fc2.bias" },
    };
    const struct tiny_kind *kind = tiny_kind(m->family);
    const char *const *hf = mlp[kind->mlp_gate ? 0 : kind->fused ? 2 : 1];
    int h = m->hidden, f = m->ffn;
    tiny_norm(l, m, i, norms[0]);
    tiny_norm(l, m, i, norms[1]);
    tiny_qwen_attention(l, m, i);
    if (kind->mlp_gate) {
        tiny_part(l, 0, i, "ffn_gate.weight", "mlp.gate_proj.weight", f, h);
        tiny_part(l, 0, i, "ffn_gate.bias", "mlp.gate_proj.bias", 0, f);
    }
    tiny_part(l, 0, i, "ffn_up.weight", hf[0], f, h);
    tiny_part(l, 0, i, "ffn_up.bias", hf[1], 0, f);
    tiny_part(l, 0, i, "ffn_down.weight", hf[2], h, f);
    tiny_part(l, 0, i, "ffn_down.bias", hf[3], 0, h);
}

static inline void tiny_deepstack_merger(struct tiny_parts *l, const struct tiny_vision *m, int i)
{
    int wide = 4 * m->hidden;
    tiny_part(l, 5, i, "norm.weight", "norm.weight", 0, wide);
    tiny_part(l, 5, i, "norm.bias", "norm.bias", 0, wide);
    tiny_part(l, 5, i, "fc1.weight", "linear_fc1.weight", wide, wide);
    tiny_part(l, 5, i, "fc1.bias", "linear_fc1.bias", 0, wide);
    tiny_part(l, 5, i, "fc2.weight", "linear_fc2.weight", m->text.hidden, wide);
    tiny_part(l, 5, i, "fc2.bias", "linear_fc2.bias", 0, m->text.hidden);
}

/* What Qwen's towers have beside their layers and the merger's matrices. */
static inline void tiny_qwen_top(struct tiny_parts *l, const struct tiny_vision *m)
{
    const struct tiny_kind *kind = tiny_kind(m->family);
    int h = m->hidden;
    tiny_part(l, 1, 0, "v.patch_embd.weight.1", NULL, h, 3 * m->patch * m->patch);
    l->item[1].patch = true;
    if (m->positions) {
        tiny_part(l, 1, 0, "v.patch_embd.bias", "patch_embed.proj.bias", 0, h);
        tiny_part(l, 1, 0, "v.position_embd.weight", "pos_embed.weight", m->positions, h);
    }
    tiny_part(l, 1, 0, "v.post_ln.weight", kind->merger_norm, 0, h);
    if (kind->norm_bias)
        tiny_part(l, 1, 0, "v.post_ln.bias", kind->fused ? "merger.norm.bias" : "merger.ln_q.bias",
                  0, h);
    for (int k = 0; k < m->text.n_deepstack; k++)
        tiny_deepstack_merger(l, m, tiny_deepstack(m, k));
}

/* A matrix and its bias, or a norm, of the audio encoder. */
static inline void tiny_sound_part(struct tiny_parts *l, int group, int layer, const char *gguf,
                                   const char *hf, int rows, int cols, bool bias)
{
    static char names[64][2][64]; /* of directories: few, and the same each time */
    static int n_names;
    char name[48];
    int at = 0;
    snprintf(name, sizeof name, "%s.weight", hf);
    while (at < n_names && strcmp(names[at][0], name) != 0)
        at++;
    if (at == n_names) {
        snprintf(names[n_names][0], sizeof names[0][0], "%s", name);
        snprintf(names[n_names++][1], sizeof names[0][1], "%s.bias", hf);
    }
    snprintf(name, sizeof name, "%s.weight", gguf);
    tiny_part(l, group, layer, name, names[at][0], rows, cols);
    snprintf(name, sizeof name, "%s.bias", gguf);
    if (bias)
        tiny_part(l, group, layer, name, names[at][1], 0, rows ? rows : cols);
}

static inline void tiny_sound_layer(struct tiny_parts *l, int i)
{
    const int h = TINY_EAR, f = TINY_EAR_FFN;
    tiny_sound_part(l, 7, i, "ln1", "self_attn_layer_norm", 0, h, true);
    tiny_sound_part(l, 7, i, "ln2", "final_layer_norm", 0, h, true);
    tiny_sound_part(l, 7, i, "attn_q", "self_attn.q_proj", h, h, true);
    tiny_sound_part(l, 7, i, "attn_k", "self_attn.k_proj", h, h, false);
    tiny_sound_part(l, 7, i, "attn_v", "self_attn.v_proj", h, h, true);
    tiny_sound_part(l, 7, i, "attn_out", "self_attn.out_proj", h, h, true);
    tiny_sound_part(l, 7, i, "ffn_up", "fc1", f, h, true);
    tiny_sound_part(l, 7, i, "ffn_down", "fc2", h, f, true);
}

static inline void tiny_query_layer(struct tiny_parts *l, int i)
{
    const int q = TINY_QUERY, h = TINY_EAR, f = TINY_QUERY_FFN;
    tiny_sound_part(l, 8, i, "self_v", "attention.self.value", q, q, true);
    tiny_sound_part(l, 8, i, "self_out", "attention.output.dense", q, q, true);
    tiny_sound_part(l, 8, i, "self_ln", "attention.output.LayerNorm", 0, q, true);
    tiny_sound_part(l, 8, i, "cross_q", "crossattention.self.query", q, q, true);
    tiny_sound_part(l, 8, i, "cross_k", "crossattention.self.key", q, h, true);
    tiny_sound_part(l, 8, i, "cross_v", "crossattention.self.value", q, h, true);
    tiny_sound_part(l, 8, i, "cross_out", "crossattention.output.dense", q, q, true);
    tiny_sound_part(l, 8, i, "cross_ln", "crossattention.output.LayerNorm", 0, q, true);
    tiny_sound_part(l, 8, i, "ffn_up", "intermediate_query.dense", f, q, true);
    tiny_sound_part(l, 8, i, "ffn_down", "output_query.dense", q, f, true);
    tiny_sound_part(l, 8, i, "ffn_ln", "output_query.LayerNorm", 0, q, true);
}

static inline void tiny_list_sound(struct tiny_parts *l, const struct tiny_vision *m)
{
    const int h = TINY_EAR, q = TINY_QUERY;
    tiny_sound_part(l, 6, 0, "a.conv1d.1", "conv1", h, 3 * TINY_MEL, true);
    tiny_sound_part(l, 6, 0, "a.conv1d.2", "conv2", h, 3 * h, true);
    tiny_part(l, 6, 0, "a.position_embd.weight", "embed_positions.weight", TINY_EAR_POSITIONS, h);
    tiny_sound_part(l, 6, 0, "a.post_ln", "layer_norm", 0, h, true);
    tiny_part(l, 6, 0, "a.qf.query", "q_tokens", 1, q);
    tiny_sound_part(l, 6, 0, "a.qf.ln", "qformer.bert.embeddings.LayerNorm", 0, q, true);
    tiny_sound_part(l, 6, 0, "mm.a.proj", "audio_proj", m->text.hidden, q, true);
    for (int i = 0; i < TINY_EAR_LAYERS; i++)
        tiny_sound_layer(l, i);
    tiny_query_layer(l, 0);
}

/* Dimensions of a tensor: one, two, or three where the audio encoder has such. */
static inline int tiny_dims(const char *name, int rows, int cols, int64_t dim[3])
{
    bool conv = strstr(name, "conv1d") != NULL, query = !strcmp(name, "a.qf.query");
    dim[0] = rows ? rows : cols;
    dim[1] = conv ? cols / 3 : query ? 1 : cols;
    dim[2] = conv ? 3 : cols;
    return rows == 0 ? 1 : conv || query ? 3 : 2;
}

/* The patch embedding comes first: one tensor a frame. */
static inline void tiny_list_tower(struct tiny_parts *l, const struct tiny_vision *m, int n_layers)
{
    bool llava = m->family == &family_llava_onevision;
    int h = m->hidden, out = m->text.hidden, side = m->image / m->patch, wide = llava ? h : 4 * h;
    int middle = llava ? out : wide, area = 3 * m->patch * m->patch;
    l->n = 0;
    tiny_part(l, 1, 0, "v.patch_embd.weight",
              llava ? "embeddings.patch_embedding.weight" : "patch_embed.proj.weight", h, area);
    l->item[0].patch = true;
    if (llava) {
        tiny_part(l, 1, 0, "v.patch_embd.bias", "embeddings.patch_embedding.bias", 0, h);
        tiny_part(l, 1, 0, "v.position_embd.weight", "embeddings.position_embedding.weight",
                  side * side, h);
        tiny_part(l, 4, 0, "v.image_newline", "image_newline", 0, out);
    } else {
        tiny_qwen_top(l, m);
    }
    tiny_part(l, 2, 0, "mm.0.weight", "weight", middle, wide);
    tiny_part(l, 2, 0, "mm.0.bias", "bias", 0, middle);
    tiny_part(l, 3, 0, "mm.2.weight", "weight", out, middle);
    tiny_part(l, 3, 0, "mm.2.bias", "bias", 0, out);
    for (int i = 0; i < n_layers; i++)
        if (llava)
            tiny_llava_layer(l, m, i);
        else
            tiny_qwen_layer(l, m, i);
    if (m->family->audio_encoder)
        tiny_list_sound(l, m);
}

static inline bool tiny_is(const char *option, const char *name)
{
    return option && !strcmp(option, name);
}

/* The numbers of a tensor, by its name: [rows, cols] in memory of malloc. */
static inline float *tiny_numbers(const struct tiny_vision *m, const char *name, int rows, int cols)
{
    uint64_t hash = 1469598103934665603u;
    int n = (rows ? rows : 1) * cols;
    float *x = malloc(sizeof *x * (size_t)n);
    float std = rows ? 1.5f / sqrtf((float)cols) : 0.2f;
    bool norm = strstr(name, "ln1.weight") || strstr(name, "ln2.weight") ||
                strstr(name, "norm.weight") || strstr(name, "ln.weight");
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    struct rng r = { hash };
    for (int i = 0; i < n; i++)
        x[i] = (norm ? 1.0f : 0.0f) + std * rng_normal(&r);
    for (int i = 0; i < n && m->noise > 0; i++)
        x[i] += m->noise * std * rng_normal(&r);
    if (tiny_is(m->not_finite, name))
        x[0] = NAN;
    return x;
}

#endif
