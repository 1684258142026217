/* Random tiny models that see as Hugging Face directories. */
#ifndef PV_TESTS_TINY_VISION_DIR_H
#define PV_TESTS_TINY_VISION_DIR_H

#include "tiny_parts.h"

#include <sys/stat.h>

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
    { "model.visual.", "model.visual.merger.linear_fc1.", "model.visual.merger.linear_fc2.", "",
      "model.language_model.", "blocks." },
    { "visual.", "visual.merger.linear_fc1.", "visual.merger.linear_fc2.", "", "model.",
      "blocks." },
};

static inline const char *const *tiny_layout(const struct tiny_vision *m)
{
    return tiny_layouts[m->layout + tiny_kind(m->family)->layout];
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

/* One tensor of the audio encoder. */
static inline void tiny_entry_sound(struct tiny_shard *sh, const struct tiny_vision *m,
                                    const struct tiny_part *p)
{
    int rows = p->rows + (p->rows && tiny_is(m->reshape, p->name));
    int cols = p->cols + (!p->rows && tiny_is(m->reshape, p->name));
    float *x = tiny_numbers(m, p->name, rows, cols);
    int64_t dim[3];
    int n = tiny_dims(p->name, rows, cols, dim);
    const int shape[3] = { (int)dim[0], (int)dim[1], (int)dim[2] };
    char prefix[64] = "audio.";
    if (p->group > 6)
        snprintf(prefix, sizeof prefix, "audio.%s%d.",
                 p->group == 7 ? "layers." : "qformer.bert.encoder.layer.", p->layer);
    tiny_entry(sh, prefix, p->hf, shape, n, x);
    free(x);
}

/* One tensor of the tower; of fused ones the first third writes all three. */
static inline void tiny_entry_part(struct tiny_shard *sh, const struct tiny_vision *m,
                                   const struct tiny_part *p)
{
    const char *const *layout = tiny_layout(m);
    const char *prefix = layout[p->group % 5 && p->group < 5 ? p->group - 1 : 0];
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
    if (p->group >= 6) {
        tiny_entry_sound(sh, m, p);
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
    else if (p->group == 5)
        snprintf(name, sizeof name, "deepstack_merger_list.%d.%s", p->layer == tiny_deepstack(m, 1),
                 p->hf);
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
        { "attn_norm.", "input_layernorm." },    { "ffn_norm.", "post_attention_layernorm." },
        { "attn_q.", "self_attn.q_proj." },      { "attn_k.", "self_attn.k_proj." },
        { "attn_v.", "self_attn.v_proj." },      { "attn_output.", "self_attn.o_proj." },
        { "ffn_gate.", "mlp.gate_proj." },       { "ffn_up.", "mlp.up_proj." },
        { "ffn_down.", "mlp.down_proj." },       { "attn_q_norm.", "self_attn.q_norm." },
        { "attn_k_norm.", "self_attn.k_norm." },
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

/* The members that Qwen's towers share, and the ids of the tokens. */
static inline void tiny_qwen_rest(struct made *out, const struct tiny_vision *m)
{
    char text[500];
    snprintf(text, sizeof text,
             "\"depth\": %d, \"num_heads\": %d, \"patch_size\": %d, \"spatial_merge_size\": 2, "
             "\"temporal_patch_size\": 2}, \"image_token_id\": %d, \"video_token_id\": %d, "
             "\"vision_start_token_id\": %d, \"vision_end_token_id\": %d}",
             m->n_layers, m->n_heads, m->patch, TINY_IMAGE_PAD, TINY_VIDEO_PAD, TINY_VISION_START,
             TINY_VISION_END);
    tiny_puts(out, text);
}

/* What equals the reference's own values is left out, as it leaves it out. */
static inline void tiny_sound_config(struct made *out)
{
    char text[300];
    snprintf(text, sizeof text,
             ", \"audio_token_id\": %d, \"audio_config\": {\"model_type\": \"whisper\", "
             "\"encoder_attention_heads\": 2, \"second_per_window\": 0.5, "
             "\"qformer_config\": {\"num_attention_heads\": 3, \"query_length\": 1}}",
             (int)TINY_AUDIO_PAD);
    tiny_puts(out, text);
}

static inline void tiny_qwen25_config(struct made *out, const struct tiny_vision *m)
{
    char text[1500];
    tiny_puts(out, "{\"model_type\": \"qwen2_5_vl\", ");
    tiny_text_config(out, &m->text);
    if (m->family->audio_encoder)
        tiny_sound_config(out);
    snprintf(text, sizeof text,
             ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [4, 2, 2]}, "
             "\"vision_config\": {\"hidden_act\": \"silu\", \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"in_chans\": 3, \"out_hidden_size\": %d, "
             "\"spatial_patch_size\": %d, \"window_size\": %d, "
             "\"fullatt_block_indexes\": [1, 3, 31], \"tokens_per_second\": 2, ",
             m->hidden, m->ffn, m->text.hidden, m->patch, m->window);
    tiny_puts(out, text);
    tiny_qwen_rest(out, m);
}

static inline void tiny_qwen2_config(struct made *out, const struct tiny_vision *m)
{
    char text[1500];
    tiny_puts(out, "{\"model_type\": \"qwen2_vl\", ");
    tiny_text_config(out, &m->text);
    snprintf(text, sizeof text,
             ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [4, 2, 2]}, "
             "\"vision_config\": {\"embed_dim\": %d, \"mlp_ratio\": %d, \"in_chans\": 3, "
             "\"hidden_size\": %d, \"spatial_patch_size\": %d, ",
             m->hidden, m->ffn / m->hidden, m->text.hidden, m->patch);
    tiny_puts(out, text);
    tiny_qwen_rest(out, m);
}

static inline void tiny_qwen3_config(struct made *out, const struct tiny_vision *m)
{
    char text[1500];
    tiny_puts(out, "{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": true, "
                   "\"text_config\": {\"model_type\": \"qwen3_vl_text\", ");
    tiny_text_config(out, &m->text);
    snprintf(text, sizeof text,
             ", \"head_dim\": %d, \"attention_bias\": false, \"rope_scaling\": "
             "{\"rope_type\": \"default\", \"mrope_interleaved\": true, "
             "\"mrope_section\": [4, 2, 2]}}, \"vision_config\": {\"model_type\": \"qwen3_vl\", "
             "\"hidden_act\": \"gelu_pytorch_tanh\", \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"in_channels\": 3, \"out_hidden_size\": %d, "
             "\"num_position_embeddings\": %d, \"deepstack_visual_indexes\": [%d, %d], ",
             m->text.head_dim, m->hidden, m->ffn, m->text.hidden, m->positions,
             tiny_deepstack(m, 0), tiny_deepstack(m, 1));
    tiny_puts(out, text);
    tiny_qwen_rest(out, m);
}

static inline void tiny_write_config(const struct tiny_vision *m, const char *dir)
{
    struct made c = { 0 }, out = { 0 };
    const char *at;
    if (m->family == &family_llava_onevision)
        tiny_llava_config(&c, m);
    else if (tiny_kind(m->family)->mlp_gate)
        tiny_qwen25_config(&c, m);
    else if (m->family == &family_qwen2_vl)
        tiny_qwen2_config(&c, m);
    else
        tiny_qwen3_config(&c, m);
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
