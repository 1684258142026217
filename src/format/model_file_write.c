/* Writing a model as GGUF, so that both we and llama.cpp load it. From a GGUF file all metadata
 * and all tensors of the decoder are kept, only the types change; from a directory the decoder's
 * tensors are renamed. Values pass through f32 in chunks, except where the type stays: those bytes
 * are copied.
 *
 * The tower goes into a second file, unless its family keeps it in one. Both files are written
 * under temporary names and renamed at the end, the tower's first: a decoder never appears without
 * its tower. */
#include "base/mem.h"
#include "format/adapter_write.h"
#include "format/family.h"
#include "format/model_file_job.h"
#include "format/roles.h"
#include "format/vision_file.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <string.h>

enum pv_status write_job_open(struct write_job *j, const char *out_path, struct pv_error *err)
{
    if (!row_can_encode(j->type))
        return fail(err, PV_E_UNSUPPORTED, "%s: files of type %s cannot be written", out_path,
                    dtype_name(j->type));
    j->values = mem_alloc(2 * JOB_CHUNK * sizeof *j->values);
    j->bytes = mem_alloc(JOB_CHUNK * sizeof(float)); /* f32 is the largest type */
    if (j->values && j->bytes)
        return PV_OK;
    write_job_close(j);
    return fail_nomem(err, JOB_CHUNK * (2 * sizeof *j->values + sizeof(float)));
}

void write_job_close(struct write_job *j)
{
    mem_free(j->values);
    mem_free(j->bytes);
    j->values = NULL;
    j->bytes = NULL;
}

static bool begins(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* A tensor of a tower that lies in the decoder's file. */
static bool is_tower(const struct tensor *t)
{
    return begins(t->name, "v.") || begins(t->name, "mm.") || begins(t->name, "a.");
}

static bool ends(const char *s, const char *tail)
{
    size_t len = strlen(s), tail_len = strlen(tail);
    return len >= tail_len && !strcmp(s + len - tail_len, tail);
}

/* The type a tensor of the decoder gets: norms and other vectors stay exact, and so do routers,
 * which choose experts by small differences. */
static enum dtype new_type(const struct tensor *t, enum dtype type)
{
    static const char *const exact[] = { "norm.weight", ".mlp.gate.weight",
                                         ".ffn_gate_inp.weight" };

    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (ends(t->name, exact[i]))
            return DTYPE_F32;
    return t->n_dims < 2 ? DTYPE_F32 : write_matrix_type(tensor_cols(t), type);
}

enum pv_status write_values(struct write_job *j, const float *values, int64_t n, enum dtype to,
                            const char *name, struct pv_error *err)
{
    row_from_f32(j->bytes, values, to, n);
    /* Also where a finite number was too large for the f16 of the new type. */
    if (!row_is_finite(j->bytes, to, n))
        return fail(err, PV_E_FORMAT, "%s: the tensor %s has a number that %s cannot hold", j->path,
                    name, dtype_name(to));
    return gguf_writer_data(j->w, j->bytes, dtype_row_size(to, n), err);
}

enum pv_status write_tensor(struct write_job *j, const struct tensor *t, enum dtype to,
                            struct pv_error *err)
{
    int64_t n = tensor_rows(t) * tensor_cols(t);
    const uint8_t *src = t->data;
    bool adapted;
    enum pv_status s = write_adapted(j, t, to, &adapted, err);

    if (s || adapted)
        return s;
    if (to == t->dtype)
        return gguf_writer_data(j->w, t->data, t->size, err);
    for (int64_t i = 0; i < n && !s; i += JOB_CHUNK) {
        int64_t part = n - i < JOB_CHUNK ? n - i : JOB_CHUNK;
        row_to_f32(j->values, src, t->dtype, part);
        s = write_values(j, j->values, part, to, t->name, err);
        src += dtype_row_size(t->dtype, part);
    }
    return s;
}

static enum pv_status write_data(struct write_job *j, const struct tensor *t, struct pv_error *err)
{
    return write_tensor(j, t, new_type(t, j->type), err);
}

static void list_tensor(struct write_job *j, const char *name, const struct tensor *t)
{
    gguf_writer_tensor(j->w, name, new_type(t, j->type), t->n_dims, t->dim);
}

/* A tensor's place in the list, or its data. */
static enum pv_status write_one(struct write_job *j, const char *name, const struct tensor *t,
                                bool data, struct pv_error *err)
{
    if (data)
        return write_data(j, t, err);
    list_tensor(j, name, t);
    return PV_OK;
}

static enum pv_status write_layer_hf(struct write_job *j, int layer, bool data,
                                     struct pv_error *err)
{
    const struct config *c = &j->mf->config;
    char name[GGUF_MAX_NAME + 1];
    enum pv_status s = PV_OK;

    for (int i = 0; i < ROLE_LAYER_COUNT && !s; i++) {
        const struct role *r = &role_layer[i];
        const struct tensor *t;
        if (!role_needed(r, c, layer))
            continue;
        snprintf(name, sizeof name, "blk.%d.%s", layer, r->gguf);
        memcpy(&t, (const char *)&j->mf->layer[layer] + r->slot, sizeof t);
        s = write_one(j, name, t, data, err);
    }
    return s || !c->sparse[layer] ? s : write_experts(j, layer, data, err);
}

/* The decoder's tensors of a directory: table, norm, head, then the layers. */
static enum pv_status write_tensors_hf(struct write_job *j, bool data, struct pv_error *err)
{
    const struct model_file *mf = j->mf;
    enum pv_status s = write_one(j, role_embed.gguf, mf->embed, data, err);

    if (!s)
        s = write_one(j, role_norm.gguf, mf->norm, data, err);
    if (!s && !mf->config.tied)
        s = write_one(j, role_lm_head.gguf, mf->lm_head, data, err);
    for (int i = 0; i < mf->config.n_layers && !s; i++)
        s = write_layer_hf(j, i, data, err);
    return s;
}

static enum pv_status write_tensors_gguf(struct write_job *j, bool data, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    for (int i = 0; i < gguf_n_tensors(j->mf->gguf) && !s; i++) {
        const struct tensor *t = gguf_tensor(j->mf->gguf, i);
        if (j->mf->vision.family && is_tower(t))
            continue;
        s = write_one(j, t->name, t, data, err);
    }
    return s;
}

/* The list of the decoder's tensors, or their data. */
static enum pv_status write_decoder(struct write_job *j, bool data, struct pv_error *err)
{
    return j->mf->gguf ? write_tensors_gguf(j, data, err) : write_tensors_hf(j, data, err);
}

/* What goes into one file. */
struct contents {
    bool decoder, tower;
};

static enum pv_status write_meta(struct write_job *j, struct contents what, struct pv_error *err)
{
    enum pv_status s = PV_OK;

    if (what.decoder && j->mf->gguf)
        write_meta_copy(j, j->mf->gguf);
    else if (what.decoder)
        s = write_meta_text(j, err);
    else if (j->mf->mmproj)
        write_meta_copy(j, j->mf->mmproj);
    else
        write_general(j, "clip", "mmproj");
    if (what.tower)
        write_meta_tower(j);
    return s;
}

/* One whole file, but for the commit; *w is the caller's also on failure. */
static enum pv_status write_file(struct write_job *j, struct gguf_writer **w, const char *path,
                                 struct contents what, struct pv_error *err)
{
    enum pv_status s = gguf_writer_open(w, path, j->watch, err);

    if (s)
        return s;
    j->w = *w;
    s = write_meta(j, what, err);
    for (int data = 0; data < 2 && !s; data++) {
        if (data)
            s = gguf_writer_begin(j->w, err);
        if (!s && what.decoder)
            s = write_decoder(j, data, err);
        if (!s && what.tower)
            s = write_tower(j, data, err);
    }
    return s;
}

/* The two files of a decoder and its tower. */
static enum pv_status write_pair(struct write_job *j, const char *out_path, struct pv_error *err)
{
    struct gguf_writer *text = NULL, *tower = NULL;
    char *tower_path = vision_file_sibling(out_path);
    enum pv_status s;

    if (tower_path)
        s = write_file(j, &text, out_path, (struct contents){ .decoder = true }, err);
    else
        s = fail_nomem(err, strlen(out_path));
    if (!s)
        s = write_file(j, &tower, tower_path, (struct contents){ .tower = true }, err);
    if (!s)
        s = gguf_writer_commit(&tower, err);
    if (!s) {
        s = gguf_writer_commit(&text, err);
        if (s)
            remove(tower_path);
    }
    gguf_writer_abandon(&text);
    gguf_writer_abandon(&tower);
    mem_free(tower_path);
    return s;
}

static enum pv_status write_single(struct write_job *j, const char *out_path, struct pv_error *err)
{
    const struct contents what = { .decoder = true, .tower = j->mf->vision.family != NULL };
    struct gguf_writer *w = NULL;
    enum pv_status s = write_file(j, &w, out_path, what, err);

    if (!s)
        s = gguf_writer_commit(&w, err);
    gguf_writer_abandon(&w);
    return s;
}

enum pv_status model_file_write_gguf(const struct model_file *mf, const char *out_path,
                                     enum dtype type, bool one_file,
                                     const struct write_watch *watch, struct pv_error *err)
{
    struct write_job j = { .mf = mf, .path = mf->path, .type = type, .watch = watch };
    enum pv_status s = write_job_open(&j, out_path, err);

    if (s)
        return s;
    if (mf->vision.family && !one_file && !mf->vision.family->tower->in_one_file)
        s = write_pair(&j, out_path, err);
    else
        s = write_single(&j, out_path, err);
    write_job_close(&j);
    return s;
}
