/* Random tiny models that see, of both families, as GGUF files and as Hugging Face directories that
 * hold the same numbers, with a tokenizer; whole, or with one thing wrong.
 *
 * Names, keys and layouts are spelled out here and not taken from the library's tables, so that its
 * reader is tried against a second opinion. Every tensor's numbers depend on its GGUF name alone,
 * so that models of different depths have layers in common.
 */
#ifndef PV_TESTS_TINY_VISION_H
#define PV_TESTS_TINY_VISION_H

#include "family/families.h"
#include "format/vision_config.h"
#include "make_file.h"
#include "tiny_model.h"

#include <sys/stat.h>

struct tiny_vision {
    const struct family *family;
    struct tiny_model text;
    int hidden, n_layers, n_heads, ffn, patch, image, window;
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

static inline struct tiny_vision tiny_vision(const struct family *family)
{
    static const char *const llava[] = { "<image>", "<video>", NULL };
    static const char *const qwen[] = { "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                                        "<|video_pad|>", NULL };
    bool is_llava = family == &family_llava_onevision;
    return (struct tiny_vision){ .family = family,
                                 .text = { .arch = is_llava ? "qwen2" : "qwen2vl",
                                           .hidden = 32,
                                           .n_layers = 2,
                                           .n_heads = 2,
                                           .n_kv = 1,
                                           .head_dim = 16,
                                           .ffn = 64,
                                           .vocab = 288,
                                           .type = DTYPE_F32,
                                           .tokenizer = true,
                                           .eos = TINY_IM_END,
                                           .extra = is_llava ? llava : qwen },
                                 .hidden = 32,
                                 .n_layers = is_llava ? 2 : 4,
                                 .n_heads = 2,
                                 .ffn = 48,
                                 .patch = 4,
                                 .image = 22, /* 5 patches and a rest */
                                 .window = 16 };
}

/* ---- the tower's tensors ---- */

struct tiny_part {
    char name[64];    /* in GGUF */
    const char *hf;   /* in a directory, after the prefix of its group */
    int group;        /* 0: a layer, 1: the tower, 2: first matrix, 3: second, 4: newline */
    int layer, third; /* third: 1..3 of fused q, k and v */
    int rows, cols;   /* rows 0: a vector */
    bool patch;
};

struct tiny_parts {
    struct tiny_part item[160];
    int n;
};

static inline void tiny_part(struct tiny_parts *l, int group, int layer, const char *name,
                             const char *hf, int rows, int cols)
{
    struct tiny_part *p = &l->item[l->n++];
    *p = (struct tiny_part){ .hf = hf, .group = group, .layer = layer, .rows = rows, .cols = cols };
    if (group == 0)
        snprintf(p->name, sizeof p->name, "v.blk.%d.%s", layer, name);
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

static inline void tiny_qwen_layer(struct tiny_parts *l, const struct tiny_vision *m, int i)
{
    static const char *const qkv[3][2] = { { "attn_q.weight", "attn_q.bias" },
                                           { "attn_k.weight", "attn_k.bias" },
                                           { "attn_v.weight", "attn_v.bias" } };
    int h = m->hidden, f = m->ffn;
    tiny_part(l, 0, i, "ln1.weight", "norm1.weight", 0, h);
    tiny_part(l, 0, i, "ln2.weight", "norm2.weight", 0, h);
    for (int j = 0; j < 3; j++) {
        tiny_part(l, 0, i, qkv[j][0], "attn.qkv.weight", h, h);
        l->item[l->n - 1].third = j + 1;
        tiny_part(l, 0, i, qkv[j][1], "attn.qkv.bias", 0, h);
        l->item[l->n - 1].third = j + 1;
    }
    tiny_part(l, 0, i, "attn_out.weight", "attn.proj.weight", h, h);
    tiny_part(l, 0, i, "attn_out.bias", "attn.proj.bias", 0, h);
    tiny_part(l, 0, i, "ffn_gate.weight", "mlp.gate_proj.weight", f, h);
    tiny_part(l, 0, i, "ffn_gate.bias", "mlp.gate_proj.bias", 0, f);
    tiny_part(l, 0, i, "ffn_up.weight", "mlp.up_proj.weight", f, h);
    tiny_part(l, 0, i, "ffn_up.bias", "mlp.up_proj.bias", 0, f);
    tiny_part(l, 0, i, "ffn_down.weight", "mlp.down_proj.weight", h, f);
    tiny_part(l, 0, i, "ffn_down.bias", "mlp.down_proj.bias", 0, h);
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
        tiny_part(l, 1, 0, "v.patch_embd.weight.1", NULL, h, area);
        l->item[1].patch = true;
        tiny_part(l, 1, 0, "v.post_ln.weight", "merger.ln_q.weight", 0, h);
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
                strstr(name, "norm.weight") || strstr(name, "post_ln.weight");
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

/* ---- GGUF ---- */

static inline void tiny_check(enum pv_status s, const struct pv_error *err)
{
    if (s) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

static inline void tiny_key_u32(struct gguf_writer *w, const struct tiny_vision *m, const char *key,
                                int value)
{
    if (!tiny_is(m->drop, key))
        gguf_writer_u32(w, key, (uint32_t)value);
}

static inline void tiny_key_f32(struct gguf_writer *w, const struct tiny_vision *m, const char *key,
                                float value)
{
    if (!tiny_is(m->drop, key))
        gguf_writer_f32(w, key, value);
}

static inline void tiny_llava_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    const int32_t grid[8] = { m->image,     m->image, m->image,     m->image * 2,
                              m->image * 2, m->image, m->image * 2, m->image * 2 };
    tiny_key_u32(w, m, "clip.vision.image_size", m->image);
    tiny_key_u32(w, m, "clip.vision.preproc_max_tiles", 9);
    if (!tiny_is(m->drop, "clip.vision.image_grid_pinpoints"))
        gguf_writer_i32s(w, "clip.vision.image_grid_pinpoints", grid, 8);
    tiny_key_u32(w, m, "clip.vision.image_token_id", TINY_IMAGE);
    tiny_key_u32(w, m, "clip.vision.video_token_id", TINY_VIDEO);
}

static inline void tiny_qwen_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    gguf_writer_bool(w, "clip.use_silu", true);
    tiny_key_u32(w, m, "clip.vision.image_size", 560);
    tiny_key_u32(w, m, "clip.vision.spatial_merge_size", 2);
    tiny_key_u32(w, m, "clip.vision.n_wa_pattern", m->all_full ? 0 : 2);
    if (m->llama_cpp)
        return;
    tiny_key_u32(w, m, "clip.vision.window_size", m->window);
    tiny_key_u32(w, m, "clip.vision.temporal_patch_size", 2);
    tiny_key_u32(w, m, "clip.vision.image_min_pixels", 1024);
    tiny_key_u32(w, m, "clip.vision.image_max_pixels", 65536);
    tiny_key_f32(w, m, "clip.vision.tokens_per_second", 2);
}

static inline void tiny_tower_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    const float mean[3] = { 0.5f, 0.25f, 0.75f }, std[3] = { 0.5f, 0.125f, 0.25f };
    const char *type = m->family == &family_llava_onevision ? "llava_ov" : "qwen2.5vl_merger";
    type = m->projector ? m->projector : type;
    gguf_writer_bool(w, "clip.has_vision_encoder", true);
    if (!tiny_is(m->drop, "clip.projector_type"))
        gguf_writer_string(w, "clip.projector_type", type, strlen(type));
    tiny_key_u32(w, m, "clip.vision.embedding_length", m->hidden);
    tiny_key_u32(w, m, "clip.vision.block_count", m->n_layers);
    tiny_key_u32(w, m, "clip.vision.attention.head_count", m->n_heads);
    tiny_key_u32(w, m, "clip.vision.feed_forward_length", m->ffn);
    tiny_key_u32(w, m, "clip.vision.patch_size", m->patch);
    tiny_key_u32(w, m, "clip.vision.projection_dim", m->text.hidden);
    tiny_key_f32(w, m, "clip.vision.attention.layer_norm_epsilon", 1e-6f);
    if (!tiny_is(m->drop, "clip.vision.image_mean"))
        gguf_writer_f32s(w, "clip.vision.image_mean", mean, 3);
    if (!tiny_is(m->drop, "clip.vision.image_std"))
        gguf_writer_f32s(w, "clip.vision.image_std", std, 3);
    if (m->family == &family_llava_onevision)
        tiny_llava_keys(w, m);
    else
        tiny_qwen_keys(w, m);
}

/* The type of a tensor: vectors, the position table and convolutions stay F32. */
static inline enum dtype tiny_part_type(const struct tiny_vision *m, const char *name, int rows,
                                        int cols)
{
    enum dtype t = (enum dtype)m->text.type;
    if (rows == 0 || strstr(name, "position_embd") || strstr(name, "patch_embd"))
        return DTYPE_F32;
    return cols % dtype_block(t) ? DTYPE_F16 : t;
}

/* List one tensor, or write its data. */
static inline void tiny_put_part(struct gguf_writer *w, const struct tiny_vision *m,
                                 const char *name, int rows, int cols, bool patch, bool data)
{
    struct pv_error err = { 0 };
    enum dtype t = tiny_part_type(m, name, rows, cols);
    if (tiny_is(m->drop, name))
        return;
    if (tiny_is(m->reshape, name)) {
        cols += rows ? 0 : 1;
        rows += rows ? 1 : 0;
    }
    if (!data) {
        int64_t deep[4] = { rows, 3, m->patch, m->patch };
        if (patch)
            gguf_writer_tensor(w, name, t, 4, deep);
        else
            tiny_list_tensor(w, &m->text, name, t, rows, cols);
        return;
    }
    int n = (rows ? rows : 1) * cols;
    float *x = tiny_numbers(m, name, rows, cols);
    uint8_t *bytes = malloc(dtype_row_size(t, n));
    row_from_f32(bytes, x, t, n);
    tiny_check(gguf_writer_data(w, bytes, dtype_row_size(t, n), &err), &err);
    free(x);
    free(bytes);
}

/* One file with the decoder, the tower, or both. */
static inline void tiny_vision_file(const struct tiny_vision *m, const char *path, bool text,
                                    bool tower)
{
    static struct tiny_list l;
    static struct tiny_parts parts;
    struct gguf_writer *w = NULL;
    struct pv_error err = { 0 };
    tiny_list_model(&l, &m->text);
    tiny_list_tower(&parts, m, m->n_layers);
    tiny_check(gguf_writer_open(&w, path, &err), &err);
    if (text) {
        tiny_put_config(w, &m->text);
    } else {
        gguf_writer_string(w, "general.architecture", "clip", 4);
        gguf_writer_string(w, "general.type", "mmproj", 6);
    }
    if (tower)
        tiny_tower_keys(w, m);
    for (int data = 0; data < 2; data++) {
        if (data)
            tiny_check(gguf_writer_begin(w, &err), &err);
        for (int i = 0; text && i < l.n; i++)
            tiny_put_part(w, m, l.item[i].name, l.item[i].rows, l.item[i].cols, false, data);
        for (int i = 0; tower && i < parts.n; i++)
            tiny_put_part(w, m, parts.item[i].name, parts.item[i].rows, parts.item[i].cols,
                          parts.item[i].patch, data);
    }
    tiny_check(gguf_writer_commit(&w, &err), &err);
}

/* NAME.gguf of the scratch directory, and for Qwen2.5-VL mmproj-NAME.gguf beside it. */
static inline const char *tiny_vision_gguf(const struct tiny_vision *m, const char *name,
                                           char path[256])
{
    bool pair = m->family == &family_qwen2_5_vl;
    snprintf(path, 256, "%s/mmproj-%s.gguf", scratch_dir(), name);
    if (pair)
        tiny_vision_file(m, path, false, true);
    snprintf(path, 256, "%s/%s.gguf", scratch_dir(), name);
    tiny_vision_file(m, path, true, !pair);
    return path;
}

/* ---- directories ---- */

/* Prefixes by group (tower, matrices, newline), the decoder's, and where layers are. */
static const char *const tiny_layouts[][6] = {
    { "vision_tower.vision_model.", "multi_modal_projector.linear_1.",
      "multi_modal_projector.linear_2.", "", "language_model.model.", "encoder.layers." },
    { "model.vision_tower.", "model.multi_modal_projector.linear_1.",
      "model.multi_modal_projector.linear_2.", "model.", "model.language_model.",
      "encoder.layers." },
    { "vision_tower.", "multi_modal_projector.linear_1.", "multi_modal_projector.linear_2.", "",
      "language_model.model.", "encoder.layers." },
    { "model.vision_tower.vision_model.", "model.multi_modal_projector.linear_1.",
      "model.multi_modal_projector.linear_2.", "model.", "model.language_model.",
      "encoder.layers." },
    { "model.vision_tower.vision_tower.vision_model.", "model.mm_projector.0.",
      "model.mm_projector.2.", "model.", "model.", "encoder.layers." },
    { "visual.", "visual.merger.mlp.0.", "visual.merger.mlp.2.", "", "model.", "blocks." },
    { "model.visual.", "model.visual.merger.mlp.0.", "model.visual.merger.mlp.2.", "",
      "model.language_model.", "blocks." },
};

enum { TINY_LLAVA_LAYOUTS = 5, TINY_QWEN_LAYOUTS = 2 };

static inline const char *const *tiny_layout(const struct tiny_vision *m)
{
    return tiny_layouts[m->layout +
                        (m->family == &family_llava_onevision ? 0 : TINY_LLAVA_LAYOUTS)];
}

struct tiny_shard {
    struct made header, data;
};

static inline void tiny_puts(struct made *m, const char *s)
{
    make_bytes(m, s, strlen(s));
}

static inline void tiny_entry(struct tiny_shard *sh, const char *prefix, const char *name,
                              const int *dim, int n_dims, const float *x)
{
    char text[300];
    size_t begin = sh->data.len, n = 1;
    for (int i = 0; i < n_dims; i++)
        n *= (size_t)dim[i];
    make_bytes(&sh->data, x, n * sizeof *x);
    snprintf(text, sizeof text, "%s\"%s%s\": {\"dtype\": \"F32\", \"shape\": [",
             sh->header.len > 1 ? ", " : "", prefix, name);
    tiny_puts(&sh->header, text);
    for (int i = 0; i < n_dims; i++) {
        snprintf(text, sizeof text, "%s%d", i ? ", " : "", dim[i]);
        tiny_puts(&sh->header, text);
    }
    snprintf(text, sizeof text, "], \"data_offsets\": [%zu, %zu]}", begin, sh->data.len);
    tiny_puts(&sh->header, text);
}

/* The patch embedding of both frames as one convolution: (row, channel, frame, pixel). */
static inline void tiny_entry_patch(struct tiny_shard *sh, const struct tiny_vision *m,
                                    const char *prefix, const struct tiny_part *p)
{
    int frames = m->family == &family_llava_onevision ? 1 : 2, area = m->patch * m->patch;
    int rows = p->rows + tiny_is(m->reshape, p->name);
    int dim[5] = { rows, 3, m->patch, m->patch, 0 };
    float *x = malloc(sizeof *x * (size_t)(rows * frames * p->cols));
    for (int f = 0; f < frames; f++) {
        float *from = tiny_numbers(m, f ? "v.patch_embd.weight.1" : p->name, rows, p->cols);
        for (int i = 0; i < rows * 3; i++)
            memcpy(x + (i * frames + f) * area, from + i * area, sizeof *x * (size_t)area);
        free(from);
    }
    if (frames == 2)
        memcpy(dim, (int[5]){ rows, 3, 2, m->patch, m->patch }, sizeof dim);
    tiny_entry(sh, prefix, p->hf, dim, frames == 2 ? 5 : 4, x);
    free(x);
}

/* One tensor of the tower; of fused ones the first third writes all three. */
static inline void tiny_entry_part(struct tiny_shard *sh, const struct tiny_vision *m,
                                   const struct tiny_part *p)
{
    const char *const *layout = tiny_layout(m);
    const char *prefix = layout[p->group ? p->group - 1 : 0];
    static const int to_next = 2; /* weight and bias alternate */
    char name[200];
    struct made all = { 0 };
    int rows = 0, dim[2];
    if (tiny_is(m->drop, p->name) || p->third > 1 || !p->hf)
        return;
    if (p->patch) {
        tiny_entry_patch(sh, m, prefix, p);
        return;
    }
    for (int i = 0; i < (p->third ? 3 : 1); i++) {
        const struct tiny_part *q = p + i * to_next;
        int more = tiny_is(m->reshape, q->name);
        int own = q->rows ? q->rows + more : q->cols + more;
        float *x = tiny_numbers(m, q->name, q->rows ? own : 0, q->rows ? q->cols : own);
        make_bytes(&all, x, sizeof *x * (size_t)(own * (q->rows ? q->cols : 1)));
        rows += own;
        free(x);
    }
    dim[0] = rows;
    dim[1] = p->cols;
    if (p->group == 0)
        snprintf(name, sizeof name, "%s%d.%s", layout[5], p->layer, p->hf);
    else
        snprintf(name, sizeof name, "%s", p->hf);
    tiny_entry(sh, prefix, name, dim, p->rows ? 2 : 1, (const float *)(const void *)all.data);
    free(all.data);
}

/* A tensor of the decoder under its name in a directory. */
static inline void tiny_entry_text(struct tiny_shard *sh, const struct tiny_vision *m,
                                   const struct tiny_tensor *t)
{
    static const char *const names[][2] = {
        { "attn_norm.", "input_layernorm." }, { "ffn_norm.", "post_attention_layernorm." },
        { "attn_q.", "self_attn.q_proj." },   { "attn_k.", "self_attn.k_proj." },
        { "attn_v.", "self_attn.v_proj." },   { "attn_output.", "self_attn.o_proj." },
        { "ffn_gate.", "mlp.gate_proj." },    { "ffn_up.", "mlp.up_proj." },
        { "ffn_down.", "mlp.down_proj." },
    };
    float *x = tiny_numbers(m, t->name, t->rows, t->cols);
    int dim[2] = { t->rows ? t->rows : t->cols, t->cols }, n_dims = t->rows ? 2 : 1;
    char name[200] = "";
    if (!strcmp(t->name, "token_embd.weight"))
        snprintf(name, sizeof name, "embed_tokens.weight");
    else if (!strcmp(t->name, "output_norm.weight"))
        snprintf(name, sizeof name, "norm.weight");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = strstr(t->name, names[i][0]);
        if (at && !name[0])
            snprintf(name, sizeof name, "layers.%d.%s%s", (int)strtol(t->name + 4, NULL, 10),
                     names[i][1], at + strlen(names[i][0]));
    }
    tiny_entry(sh, tiny_layout(m)[4], name, dim, n_dims, x);
    free(x);
}

static inline void tiny_write_in(const char *dir, const char *name, const void *data, size_t len)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    make_write(path, data, len);
}

static inline void tiny_text_config(struct made *out, const struct tiny_model *t)
{
    char text[700];
    snprintf(text, sizeof text,
             "\"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
             "\"num_key_value_heads\": %d, \"intermediate_size\": %d, \"vocab_size\": %d, "
             "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-06, "
             "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"eos_token_id\": %d, "
             "\"tie_word_embeddings\": true",
             t->hidden, t->n_layers, t->n_heads, t->n_kv, t->ffn, t->vocab, t->eos);
    tiny_puts(out, text);
}

static inline void tiny_llava_config(struct made *out, const struct tiny_vision *m)
{
    char text[1500];
    int i = m->image, stored = m->stored ? m->stored : m->n_layers;
    tiny_puts(out, "{\"model_type\": \"llava_onevision\", \"text_config\": "
                   "{\"model_type\": \"qwen2\", ");
    tiny_text_config(out, &m->text);
    snprintf(text, sizeof text,
             "}, \"vision_config\": {\"model_type\": \"siglip_vision_model\", \"hidden_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, "
             "\"image_size\": %d, \"patch_size\": %d, \"vision_use_head\": false}, "
             "\"image_grid_pinpoints\": [[%d, %d], [%d, %d], [%d, %d], [%d, %d]], "
             "\"image_token_index\": %d, \"video_token_index\": %d, "
             "\"projector_hidden_act\": \"gelu\", \"tie_word_embeddings\": false, "
             "\"vision_aspect_ratio\": \"anyres_max_9\", \"vision_feature_layer\": %d, "
             "\"vision_feature_select_strategy\": \"full\"}",
             m->hidden, stored, m->n_heads, m->ffn, i, m->patch, i, i, i, 2 * i, 2 * i, i, 2 * i,
             2 * i, TINY_IMAGE, TINY_VIDEO, m->n_layers - stored - 1);
    tiny_puts(out, text);
}

static inline void tiny_qwen_config(struct made *out, const struct tiny_vision *m)
{
    char text[1500];
    tiny_puts(out, "{\"model_type\": \"qwen2_5_vl\", ");
    tiny_text_config(out, &m->text);
    snprintf(text, sizeof text,
             ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [4, 2, 2]}, "
             "\"vision_config\": {\"depth\": %d, \"hidden_act\": \"silu\", \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"num_heads\": %d, \"in_chans\": 3, "
             "\"out_hidden_size\": %d, \"patch_size\": %d, \"spatial_merge_size\": 2, "
             "\"spatial_patch_size\": %d, \"window_size\": %d, "
             "\"fullatt_block_indexes\": [1, 3, 31], \"tokens_per_second\": 2, "
             "\"temporal_patch_size\": 2}, \"image_token_id\": %d, \"video_token_id\": %d, "
             "\"vision_start_token_id\": %d, \"vision_end_token_id\": %d}",
             m->n_layers, m->hidden, m->ffn, m->n_heads, m->text.hidden, m->patch, m->patch,
             m->window, TINY_IMAGE_PAD, TINY_VIDEO_PAD, TINY_VISION_START, TINY_VISION_END);
    tiny_puts(out, text);
}

static inline void tiny_write_config(const struct tiny_vision *m, const char *dir)
{
    struct made c = { 0 }, out = { 0 };
    const char *at;
    if (m->family == &family_llava_onevision)
        tiny_llava_config(&c, m);
    else
        tiny_qwen_config(&c, m);
    make_bytes(&c, "", 1);
    at = m->from ? strstr((char *)c.data, m->from) : NULL;
    if (m->from && !at) {
        fprintf(stderr, "config.json has no %s\n", m->from);
        exit(1);
    }
    make_bytes(&out, c.data, at ? (size_t)(at - (char *)c.data) : c.len - 1);
    if (at) {
        tiny_puts(&out, m->to);
        tiny_puts(&out, at + strlen(m->from));
    }
    tiny_write_in(dir, "config.json", out.data, out.len);
    free(c.data);
    free(out.data);
}

static inline void tiny_write_processor(const struct tiny_vision *m, const char *dir)
{
    const char *file = m->processor_file ? m->processor_file : "preprocessor_config.json";
    const char *text = m->processor;
    if (!text)
        text = m->family == &family_llava_onevision
                   ? "{\"image_mean\": [0.5, 0.25, 0.75], \"image_std\": [0.5, 0.125, 0.25]}"
                   : "{\"image_mean\": [0.5, 0.25, 0.75], \"image_std\": [0.5, 0.125, 0.25], "
                     "\"min_pixels\": 1024, \"max_pixels\": 65536}";
    if (text[0])
        tiny_write_in(dir, file, text, strlen(text));
}

/* vocab.json, merges.txt and tokenizer_config.json. */
static inline void tiny_write_tokenizer(const struct tiny_vision *m, const char *dir)
{
    const char *token[TINY_MAX_TOKENS];
    int n = tiny_tokens(&m->text, token);
    struct made vocab = { 0 }, config = { 0 }, merges = { 0 };
    char text[200];
    tiny_puts(&vocab, "{");
    tiny_puts(&config, "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"added_tokens_decoder\": {");
    for (int i = 0; i < n; i++) {
        bool quote = token[i][0] == '"' || token[i][0] == '\\';
        if (i < TINY_ENDOFTEXT)
            snprintf(text, sizeof text, "%s\"%s%s\": %d", i ? ", " : "", quote ? "\\" : "",
                     token[i], i);
        else
            snprintf(text, sizeof text, "%s\"%d\": {\"content\": \"%s\", \"special\": true}",
                     i > TINY_ENDOFTEXT ? ", " : "", i, token[i]);
        tiny_puts(i < TINY_ENDOFTEXT ? &vocab : &config, text);
    }
    tiny_puts(&vocab, "}");
    tiny_puts(&config, "}, \"eos_token\": \"<|im_end|>\"}");
    for (int i = 0; i < 4; i++) {
        tiny_puts(&merges, tiny_merges[i]);
        tiny_puts(&merges, "\n");
    }
    tiny_write_in(dir, "vocab.json", vocab.data, vocab.len);
    tiny_write_in(dir, "merges.txt", merges.data, merges.len);
    tiny_write_in(dir, "tokenizer_config.json", config.data, config.len);
    free(vocab.data);
    free(merges.data);
    free(config.data);
}

/* The directory NAME of the scratch directory. */
static inline const char *tiny_vision_dir(const struct tiny_vision *m, const char *name,
                                          char path[256])
{
    static struct tiny_list l;
    static struct tiny_parts parts;
    struct tiny_shard sh = { 0 };
    struct made file = { 0 };
    snprintf(path, 256, "%s/%s", scratch_dir(), name);
    scratch_remove(path);
    mkdir(path, 0700);
    tiny_write_config(m, path);
    tiny_write_processor(m, path);
    if (m->text.tokenizer)
        tiny_write_tokenizer(m, path);
    tiny_list_model(&l, &m->text);
    tiny_list_tower(&parts, m, m->stored ? m->stored : m->n_layers);
    tiny_puts(&sh.header, "{");
    for (int i = 0; i < l.n; i++)
        tiny_entry_text(&sh, m, &l.item[i]);
    for (int i = 0; i < parts.n; i++)
        tiny_entry_part(&sh, m, &parts.item[i]);
    make_bytes(&sh.header, "}", 2); /* with the NUL */
    make_string(&file, (const char *)sh.header.data);
    make_bytes(&file, sh.data.data, sh.data.len);
    tiny_write_in(path, "model.safetensors", file.data, file.len);
    free(sh.header.data);
    free(sh.data.data);
    free(file.data);
    return path;
}

#endif
