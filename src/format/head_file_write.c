/* Writing a head as GGUF, under the names of the table in head_file.c and of the decoder's. */
#include "base/mem.h"
#include "format/head_file_parts.h"
#include "format/model_file_job.h"
#include "format/roles.h"
#include "tensor/quant.h"

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

static void write_meta(struct write_job *j, const struct head_config *h)
{
    const struct config *c = &h->c;
    write_general(j, HEAD_ARCH, "head");
    gguf_writer_u32(j->w, HEAD_ARCH ".embedding_length", (uint32_t)c->hidden);
    gguf_writer_u32(j->w, HEAD_ARCH ".feed_forward_length", (uint32_t)c->ffn);
    gguf_writer_u32(j->w, HEAD_ARCH ".attention.head_count", (uint32_t)c->n_heads);
    gguf_writer_u32(j->w, HEAD_ARCH ".attention.head_count_kv", (uint32_t)c->n_kv_heads);
    gguf_writer_u32(j->w, HEAD_ARCH ".attention.key_length", (uint32_t)c->head_dim);
    gguf_writer_f32(j->w, HEAD_ARCH ".attention.layer_norm_rms_epsilon", c->rms_eps);
    if (c->rope_theta > 0)
        gguf_writer_f32(j->w, HEAD_ARCH ".rope.freq_base", c->rope_theta);
    write_words(j, h);
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

/* The i-th tensor and its name in the file; NULL: the head has none. */
static const struct tensor *tensor_at(const struct head_file *hf, int i, char *name, size_t cap)
{
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

static enum pv_status write_tensors(struct write_job *j, const struct head_file *hf, bool data,
                                    struct pv_error *err)
{
    char name[GGUF_MAX_NAME + 1];
    enum pv_status s = PV_OK;
    for (int i = 0; i < HEAD_ROLE_COUNT + ROLE_LAYER_COUNT && !s; i++) {
        const struct tensor *t = tensor_at(hf, i, name, sizeof name);
        enum dtype to;
        if (!t)
            continue;
        to = t->n_dims < 2 ? DTYPE_F32 : write_matrix_type(t, j->type);
        if (data)
            s = write_tensor(j, t, to, err);
        else
            gguf_writer_tensor(j->w, name, to, t->n_dims, t->dim);
    }
    return s;
}

enum pv_status head_file_write_gguf(const struct head_file *hf, const char *out_path,
                                    enum dtype type, const struct write_watch *watch,
                                    struct pv_error *err)
{
    struct write_job j = { .path = hf->path, .type = type, .watch = watch };
    enum pv_status s;

    if (!row_can_encode(type))
        return fail(err, PV_E_UNSUPPORTED, "%s: files of type %s cannot be written", out_path,
                    dtype_name(type));
    s = write_job_open(&j, err);
    if (!s)
        s = gguf_writer_open(&j.w, out_path, watch, err);
    if (!s) {
        write_meta(&j, &hf->config);
        if (hf->config.layout == HEAD_LAYOUT_EAGLE3)
            write_eagle3(&j, hf);
        s = write_tensors(&j, hf, false, err);
    }
    if (!s)
        s = gguf_writer_begin(j.w, err);
    if (!s)
        s = write_tensors(&j, hf, true, err);
    if (!s)
        s = gguf_writer_commit(&j.w, err);
    gguf_writer_abandon(&j.w);
    write_job_close(&j);
    return s;
}
