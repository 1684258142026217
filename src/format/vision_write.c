/* The tower of a written model: its tensors under llama.cpp's names and in the types its loader
 * expects. Norms, biases, the newline and the position table stay exact; so does the patch
 * embedding but in F16 files, and it is written as one convolution per frame of a patch.
 *
 * In files of a type with blocks, the inner width of the layers' MLPs is rounded up to whole blocks
 * (vision_whole_ffn): W_up and its gate get rows, and W_down columns, of zeros. A zero goes through
 * GELU and through silu(0) * 0 as a zero, so the file is just a tower of that width with the same
 * results, and no matrix of a layer has to stay F16. */
#include "format/audio_file.h"
#include "format/family.h"
#include "format/model_file_job.h"
#include "format/vision_config_gguf.h"
#include "tensor/quant.h"

#include <stdio.h>
#include <string.h>

void write_meta_tower(struct write_job *j)
{
    struct vision_config c = j->mf->vision;

    c.ffn = vision_whole_ffn(&c, j->type);
    vision_config_gguf_write(&c, j->w);
}

static enum dtype patch_type(const struct write_job *j)
{
    return j->type == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32;
}

/* The rows of one frame out of those of all frames of a patch: (channel, frame, pixel) to
 * (channel, pixel). */
static enum pv_status write_patch(struct write_job *j, const struct tensor *t, int frame,
                                  struct pv_error *err)
{
    const struct vision_config *c = &j->mf->vision;
    const size_t area = (size_t)c->patch * (size_t)c->patch;
    const int64_t cols = tensor_cols(t);
    const size_t frames = (size_t)cols / (3 * area), row_size = dtype_row_size(t->dtype, cols);
    float *picked = j->values + JOB_CHUNK;
    enum pv_status s = PV_OK;

    for (int64_t i = 0; i < c->hidden && !s; i++) {
        row_to_f32(j->values, (const uint8_t *)t->data + (size_t)i * row_size, t->dtype, cols);
        for (size_t channel = 0; channel < 3; channel++)
            memcpy(picked + channel * area, j->values + (channel * frames + (size_t)frame) * area,
                   area * sizeof *picked);
        s = write_values(j, picked, 3 * (int64_t)area, patch_type(j), t->name, err);
    }
    return s;
}

static enum pv_status write_patches(struct write_job *j, const char *name, bool data,
                                    struct pv_error *err)
{
    const struct vision_config *c = &j->mf->vision;
    const int64_t dim[4] = { c->hidden, 3, c->patch, c->patch };
    const struct tensor *const *patch = j->mf->vision_tensors.patch;
    char text[GGUF_MAX_NAME + 1];
    enum pv_status s = PV_OK;

    for (int frame = 0; frame < c->temporal && !s; frame++) {
        snprintf(text, sizeof text, frame ? "%s.%d" : "%s", name, frame);
        if (!data)
            gguf_writer_tensor(j->w, text, patch_type(j), 4, dim);
        else if (patch[1])
            s = write_patch(j, patch[frame], 0, err);
        else
            s = write_patch(j, patch[0], frame, err);
    }
    return s;
}

/* A dimension of a role as the file will have it. */
static int64_t written_dim(const struct write_job *j, enum vision_dim d, int64_t now)
{
    return d == VDIM_FFN ? vision_whole_ffn(&j->mf->vision, j->type) : now;
}

/* `cols` numbers: those of row r of the tensor, and zeros where it has none. */
static enum pv_status write_padded_row(struct write_job *j, const struct tensor *t, int64_t r,
                                       int64_t cols, enum dtype to, struct pv_error *err)
{
    int64_t has = r < tensor_rows(t) ? tensor_cols(t) : 0;
    const uint8_t *row = (const uint8_t *)t->data + (size_t)r * dtype_row_size(t->dtype, has);
    enum pv_status s = PV_OK;

    for (int64_t i = 0; i < cols && !s; i += JOB_CHUNK) {
        int64_t n = cols - i < JOB_CHUNK ? cols - i : JOB_CHUNK, own = has - i < n ? has - i : n;
        memset(j->values, 0, (size_t)n * sizeof *j->values);
        if (own > 0)
            row_to_f32(j->values, row + dtype_row_size(t->dtype, i), t->dtype, own);
        s = write_values(j, j->values, n, to, t->name, err);
    }
    return s;
}

/* The tensor as one of [rows, cols]. */
static enum pv_status write_padded(struct write_job *j, const struct tensor *t, enum dtype to,
                                   int64_t rows, int64_t cols, struct pv_error *err)
{
    bool whole = cols == tensor_cols(t);
    enum pv_status s = whole ? write_tensor(j, t, to, err) : PV_OK;

    for (int64_t r = whole ? tensor_rows(t) : 0; r < rows && !s; r++)
        s = write_padded_row(j, t, r, cols, to, err);
    return s;
}

static enum pv_status write_role(struct write_job *j, const char *name, const struct vision_role *r,
                                 const void *tensors, bool data, struct pv_error *err)
{
    bool exact = r->dim[1] == VDIM_NONE || r->dim[0] == VDIM_POSITIONS;
    const struct tensor *t;
    int64_t rows, cols;
    enum dtype to;

    memcpy(&t, (const char *)tensors + r->slot, sizeof t);
    rows = r->dim[1] == VDIM_NONE ? 1 : written_dim(j, r->dim[0], tensor_rows(t));
    cols = written_dim(j, r->dim[r->dim[1] != VDIM_NONE], tensor_cols(t));
    to = exact ? DTYPE_F32 : write_matrix_type(cols, j->type);
    if (data)
        return write_padded(j, t, to, rows, cols, err);
    if (r->fused && r->part > 1) /* its bytes follow those of the first part */
        return PV_OK;
    const int64_t dim[2] = { (r->fused ? 3 : 1) * (t->n_dims > 1 ? rows : cols), cols };
    gguf_writer_tensor(j->w, name, to, t->n_dims, dim);
    return PV_OK;
}

/* An audio encoder's tensor: vectors, tables and convolutions stay exact, but in F16 files. */
static enum pv_status write_audio_role(struct write_job *j, enum audio_group group, int layer,
                                       int role, bool data, struct pv_error *err)
{
    const struct family_audio_encoder *h = j->mf->vision.family->audio_encoder;
    const struct audio_role *r = &h->roles[group].role[role];
    const struct tensor *t = audio_role_tensor(j->mf, group, layer, role);
    bool conv = r->dim[2] == ADIM_TAPS;
    bool matrix = r->dim[1] != ADIM_NONE && r->dim[2] == ADIM_NONE && r->dim[0] != ADIM_POSITIONS;
    enum dtype to = conv     ? patch_type(j)
                    : matrix ? write_matrix_type(tensor_cols(t), j->type)
                             : DTYPE_F32;
    char name[GGUF_MAX_NAME + 1];

    if (data)
        return write_tensor(j, t, to, err);
    audio_role_name(name, sizeof name, h, group, layer, role, true);
    gguf_writer_tensor(j->w, name, to, t->n_dims, t->dim);
    return PV_OK;
}

static enum pv_status write_audio(struct write_job *j, bool data, struct pv_error *err)
{
    const struct vision_config *c = &j->mf->vision;
    enum pv_status s = PV_OK;

    for (int group = 0; group < AUDIO_GROUPS; group++)
        for (int layer = 0; layer < audio_group_count(&c->audio, (enum audio_group)group); layer++)
            for (int i = 0; i < c->family->audio_encoder->roles[group].n && !s; i++)
                s = write_audio_role(j, (enum audio_group)group, layer, i, data, err);
    return s;
}

enum pv_status write_tower(struct write_job *j, bool data, struct pv_error *err)
{
    const struct model_file *mf = j->mf;
    const struct vision_roles roles = mf->vision.family->tower->roles;
    char name[GGUF_MAX_NAME + 1];
    enum pv_status s = PV_OK;

    for (int i = 0; i < roles.n_top && !s; i++) {
        const struct vision_role *r = &roles.top[i];
        if (r->dim[1] == VDIM_PATCH)
            s = write_patches(j, r->gguf, data, err);
        else
            s = write_role(j, r->gguf, r, &mf->vision_tensors, data, err);
    }
    for (int layer = 0; layer < mf->vision.n_layers; layer++)
        for (int i = 0; i < roles.n_layer && !s; i++) {
            snprintf(name, sizeof name, "v.blk.%d.%s", layer, roles.layer[i].gguf);
            s = write_role(j, name, &roles.layer[i], &mf->vision_layer[layer], data, err);
        }
    for (int k = 0; k < mf->vision.n_deepstack; k++)
        for (int i = 0; i < roles.n_merger && !s; i++) {
            snprintf(name, sizeof name, "v.deepstack.%d.%s", mf->vision.deepstack[k],
                     roles.merger[i].gguf);
            s = write_role(j, name, &roles.merger[i], &mf->vision_tensors.deepstack[k], data, err);
        }
    return s || !mf->vision.audio.hidden ? s : write_audio(j, data, err);
}
