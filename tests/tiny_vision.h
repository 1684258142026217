/* Random tiny models that see, of all families, as GGUF files and (tiny_vision_dir.h) as Hugging
 * Face directories that hold the same numbers, with a tokenizer; whole, or with one thing wrong.
 *
 * Keys and layouts are spelled out here and not taken from the library's tables, so that its reader
 * is tried against a second opinion. */
#ifndef PV_TESTS_TINY_VISION_H
#define PV_TESTS_TINY_VISION_H

#include "tiny_parts.h"
#include "tiny_vision_dir.h"

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

static inline void tiny_window_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    gguf_writer_bool(w, "clip.use_silu", true);
    tiny_key_u32(w, m, "clip.vision.n_wa_pattern", m->all_full ? 0 : 2);
    if (!m->llama_cpp)
        tiny_key_u32(w, m, "clip.vision.window_size", m->window);
    if (!m->llama_cpp)
        tiny_key_f32(w, m, "clip.vision.tokens_per_second", 2);
}

static inline void tiny_deepstack_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    uint8_t flags[VISION_MAX_LAYERS] = { 0 };
    for (int k = 0; k < m->text.n_deepstack; k++)
        flags[tiny_deepstack(m, k)] = 1;
    gguf_writer_bool(w, "clip.use_gelu", true);
    if (!tiny_is(m->drop, "clip.vision.is_deepstack_layers"))
        gguf_writer_bools(w, "clip.vision.is_deepstack_layers", flags, (size_t)m->n_layers);
}

static inline void tiny_sound_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    if (!tiny_is(m->drop, "clip.has_audio_encoder"))
        gguf_writer_bool(w, "clip.has_audio_encoder", true);
    tiny_key_u32(w, m, "clip.audio.block_count", TINY_EAR_LAYERS);
    tiny_key_u32(w, m, "clip.audio.qformer.block_count", 1);
    tiny_key_u32(w, m, "clip.audio.attention.head_count", 2);
    tiny_key_f32(w, m, "clip.audio.attention.layer_norm_epsilon", 1e-5f);
    tiny_key_u32(w, m, "clip.audio.qformer.head_count", 3);
    tiny_key_f32(w, m, "clip.audio.qformer.layer_norm_epsilon", 1e-12f);
    tiny_key_u32(w, m, "clip.audio.qformer.window", 25);
    tiny_key_u32(w, m, "clip.audio.token_id", TINY_AUDIO_PAD);
}

static inline void tiny_qwen_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    if (tiny_kind(m->family)->mlp_gate) /* those of Qwen2.5-VL */
        tiny_window_keys(w, m);
    if (m->family->audio_encoder)
        tiny_sound_keys(w, m);
    if (m->text.n_deepstack)
        tiny_deepstack_keys(w, m);
    tiny_key_u32(w, m, "clip.vision.image_size", 560);
    tiny_key_u32(w, m, "clip.vision.spatial_merge_size", 2);
    if (m->llama_cpp)
        return;
    tiny_key_u32(w, m, "clip.vision.temporal_patch_size", 2);
    tiny_key_u32(w, m, "clip.vision.image_min_pixels", 1024);
    tiny_key_u32(w, m, "clip.vision.image_max_pixels", 65536);
}

static inline void tiny_tower_keys(struct gguf_writer *w, const struct tiny_vision *m)
{
    const float mean[3] = { 0.5f, 0.25f, 0.75f }, std[3] = { 0.5f, 0.125f, 0.25f };
    const char *type = m->projector ? m->projector : tiny_kind(m->family)->projector;
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
    int64_t dim[3];
    if (rows == 0 || strstr(name, "position_embd") || strstr(name, "patch_embd") ||
        tiny_dims(name, rows, cols, dim) == 3)
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
        int64_t deep[4] = { rows, 3, m->patch, m->patch }, dim[3];
        if (tiny_dims(name, rows, cols, dim) == 3)
            gguf_writer_tensor(w, name, t, 3, dim);
        else if (patch)
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
    tiny_check(gguf_writer_open(&w, path, NULL, &err), &err);
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

/* NAME.gguf of the scratch directory, and for Qwen's families mmproj-NAME.gguf beside it. */
static inline const char *tiny_vision_gguf(const struct tiny_vision *m, const char *name,
                                           char path[256])
{
    bool pair = !tiny_kind(m->family)->one_file;
    snprintf(path, 256, "%s/mmproj-%s.gguf", scratch_dir(), name);
    if (pair)
        tiny_vision_file(m, path, false, true);
    snprintf(path, 256, "%s/%s.gguf", scratch_dir(), name);
    tiny_vision_file(m, path, true, !pair);
    return path;
}

#endif
