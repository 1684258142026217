/* Writing a head as GGUF, under the names of the table in head_file.c and of the decoder's. */
#include "format/head_file_parts.h"
#include "format/model_file_job.h"
#include "format/roles.h"

#include <stdio.h>
#include <string.h>

static void write_words(struct write_job *j, const struct head_config *h)
{
    const char *positions = head_positions_word(h->positions),
               *visual = head_visual_word(h->visual);
    gguf_writer_string(j->w, HEAD_ARCH ".rope_positions", positions, strlen(positions));
    gguf_writer_string(j->w, HEAD_ARCH ".visual_rows", visual, strlen(visual));
    if (h->visual == HEAD_VISUAL_LAYER)
        gguf_writer_u32(j->w, HEAD_ARCH ".visual_layer", (uint32_t)h->visual_layer);
    if (h->target[0])
        gguf_writer_string(j->w, HEAD_ARCH ".target", h->target, strlen(h->target));
}

static void write_numbers(struct write_job *j, const struct config *c)
{
    gguf_writer_u32(j->w, HEAD_ARCH ".embedding_length", (uint32_t)c->hidden);
    gguf_writer_u32(j->w, HEAD_ARCH ".feed_forward_length", (uint32_t)c->ffn);
    gguf_writer_u32(j->w, HEAD_ARCH ".attention.head_count", (uint32_t)c->n_heads);
    gguf_writer_u32(j->w, HEAD_ARCH ".attention.head_count_kv", (uint32_t)c->n_kv_heads);
    gguf_writer_u32(j->w, HEAD_ARCH ".attention.key_length", (uint32_t)c->head_dim);
    gguf_writer_f32(j->w, HEAD_ARCH ".attention.layer_norm_rms_epsilon", c->rms_eps);
    if (c->rope_theta > 0)
        gguf_writer_f32(j->w, HEAD_ARCH ".rope.freq_base", c->rope_theta);
}

static void write_eagle3(struct write_job *j, const struct head_file *hf)
{
    const struct head_config *h = &hf->config;
    const char *layout = head_layout_word(h->layout);
    gguf_writer_string(j->w, HEAD_ARCH ".layout", layout, strlen(layout));
    if (h->features.n > 0)
        gguf_writer_i32s(j->w, HEAD_ARCH ".feature_layers", h->features.layer,
                         (size_t)h->features.n);
    if (h->norm_residual)
        gguf_writer_bool(j->w, HEAD_ARCH ".norm_residual", true);
    if (hf->draft_ids)
        gguf_writer_i32s(j->w, HEAD_ARCH ".draft_ids", hf->draft_ids, (size_t)hf->n_draft_ids);
}

static void write_keys(struct write_job *j, const void *file)
{
    const struct head_file *hf = file;
    write_general(j, HEAD_ARCH, "head");
    write_numbers(j, &hf->config.c);
    write_words(j, &hf->config);
    if (hf->config.layout == HEAD_LAYOUT_EAGLE3)
        write_eagle3(j, hf);
}

static const struct tensor *tensor_at(const void *file, int i, char *name, size_t cap)
{
    const struct head_file *hf = file;
    const struct tensor *t;
    if (i < HEAD_ROLE_COUNT) {
        snprintf(name, cap, "%s", head_role[i].gguf);
        memcpy(&t, (const char *)&hf->tensors + head_role[i].slot, sizeof t);
        return t;
    }
    i -= HEAD_ROLE_COUNT;
    if (role_layer[i].need == NEED_NEVER)
        return NULL;
    snprintf(name, cap, "blk.0.%s", role_layer[i].gguf);
    memcpy(&t, (const char *)&hf->tensors.layer + role_layer[i].slot, sizeof t);
    return t;
}

enum pv_status head_file_write_gguf(const struct head_file *hf, const char *out_path,
                                    enum dtype type, const struct write_watch *watch,
                                    struct pv_error *err)
{
    const struct companion_contents contents = { .file = hf,
                                                 .n_tensors = HEAD_ROLE_COUNT + ROLE_LAYER_COUNT,
                                                 .keys = write_keys,
                                                 .tensor = tensor_at };
    return companion_write_gguf(&hf->in, &contents, out_path, type, watch, err);
}
