/* Two open models' vision towers compared: the whole configuration, and every tensor. */
#ifndef PV_TESTS_SAME_TOWER_H
#define PV_TESTS_SAME_TOWER_H

#include "family/families.h"
#include "format/model_file.h"
#include "tensor/quant.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

/* A model opened; NULL and a failed check: it cannot be. mmproj may be NULL. */
static inline struct model_file *model_file_of(const char *path, const char *mmproj)
{
    struct model_file *mf = NULL;
    struct pv_error err = { 0 };
    CHECK_MSG(model_file_open(&mf, path, mmproj, 0, families, &err) == PV_OK, "%s", err.text);
    return mf;
}

/* `a` written from `b`: the inner width of its MLPs may be rounded up to whole blocks of `to`. */
static inline void same_vision_config(const struct vision_config *a, const struct vision_config *b,
                                      enum dtype to)
{
    CHECK(a->family == b->family);
    CHECK(a->hidden == b->hidden && a->n_layers == b->n_layers && a->n_heads == b->n_heads);
    CHECK(a->head_dim == b->head_dim && a->out == b->out);
    CHECK(a->ffn == (b->ffn + dtype_block(to) - 1) / dtype_block(to) * dtype_block(to));
    CHECK(a->patch == b->patch && a->image == b->image && a->temporal == b->temporal);
    CHECK(a->merge == b->merge && a->window == b->window && a->eps == b->eps);
    CHECK(!memcmp(a->full, b->full, (size_t)a->n_layers * sizeof *a->full));
    CHECK(!memcmp(a->mean, b->mean, sizeof a->mean) && !memcmp(a->std, b->std, sizeof a->std));
    CHECK(a->min_pixels == b->min_pixels && a->max_pixels == b->max_pixels);
    CHECK(a->video_min_pixels == b->video_min_pixels && a->positions == b->positions);
    CHECK(a->video_max_pixels == b->video_max_pixels && a->n_deepstack == b->n_deepstack);
    CHECK(!memcmp(a->deepstack, b->deepstack, sizeof a->deepstack));
    CHECK(a->tokens_per_second == b->tokens_per_second && a->max_tiles == b->max_tiles);
    CHECK(a->n_grid == b->n_grid && !memcmp(a->grid, b->grid, sizeof a->grid));
    CHECK(a->image_token == b->image_token && a->video_token == b->video_token);
    CHECK(a->vision_start == b->vision_start && a->vision_end == b->vision_end);
    CHECK(!memcmp(&a->audio, &b->audio, sizeof a->audio));
}

/* All numbers of a tensor in memory of malloc. */
static inline float *tensor_numbers(const struct tensor *t)
{
    int64_t n = tensor_rows(t) * tensor_cols(t);
    float *x = malloc(sizeof *x * (size_t)n);
    row_to_f32(x, t->data, t->dtype, n);
    return x;
}

/* `a` must hold what `b` holds, rounded to the type `to`. */
static inline void same_tensor(const struct tensor *a, const struct tensor *b, enum dtype to)
{
    int64_t n = tensor_rows(b) * tensor_cols(b);
    size_t size = dtype_row_size(to, n);
    float *x = tensor_numbers(b);
    uint8_t *want = malloc(size);
    row_from_f32(want, x, to, n);
    CHECK_MSG(a->dtype == to, "%s is %s", a->name, dtype_name(a->dtype));
    CHECK_MSG(a->n_dims == b->n_dims && !memcmp(a->dim, b->dim, sizeof a->dim), "%s: shape",
              a->name);
    CHECK_MSG(a->size == size && !memcmp(a->data, want, size), "%s differs", a->name);
    free(x);
    free(want);
}

/* The tensor [rows, cols] (rows 0: a vector) as F32 with zeros where `t` has nothing; its data is
 * of malloc. */
static inline struct tensor padded_tensor(const struct tensor *t, int64_t rows, int64_t cols)
{
    int64_t has_rows = tensor_rows(t), has = tensor_cols(t), n = rows ? rows : 1;
    float *x = tensor_numbers(t), *y = calloc((size_t)(n * cols), sizeof *y);
    struct tensor out = *t;
    for (int64_t r = 0; r < has_rows; r++)
        memcpy(y + r * cols, x + r * has, sizeof *x * (size_t)has);
    free(x);
    out.dtype = DTYPE_F32;
    out.dim[0] = rows ? rows : cols;
    out.dim[1] = rows ? cols : 1;
    out.data = y;
    out.size = sizeof *y * (size_t)(n * cols);
    return out;
}

/* A layer whose MLP was widened from `ffn` to `wide`, of the type `matrix` in all its matrices. */
static inline void same_wide_layer(const struct vision_layer_tensors *a,
                                   const struct vision_layer_tensors *b, int wide,
                                   enum dtype matrix)
{
    const struct tensor *pairs[5][2] = { { a->up, b->up },
                                         { a->gate, b->gate },
                                         { a->down, b->down },
                                         { a->up_bias, b->up_bias },
                                         { a->gate_bias, b->gate_bias } };
    for (int i = 0; i < 5; i++) {
        const struct tensor *x = pairs[i][0], *y = pairs[i][1];
        struct tensor want;
        CHECK(!x == !y);
        if (!x || !y)
            continue;
        want = padded_tensor(y, i > 2 ? 0 : i == 2 ? y->dim[0] : wide, i < 2 ? y->dim[1] : wide);
        same_tensor(x, &want, i > 2 ? DTYPE_F32 : matrix);
        free((void *)(uintptr_t)want.data);
    }
}

/* Matrices and vectors of one struct of tensor pointers; matrices are of the type wanted where
 * their rows are whole blocks, else F16. */
static inline void same_tensors(const void *a, const void *b, size_t size, enum dtype matrix)
{
    for (size_t at = 0; at < size; at += sizeof(void *)) {
        const struct tensor *x, *y;
        memcpy(&x, (const char *)a + at, sizeof x);
        memcpy(&y, (const char *)b + at, sizeof y);
        CHECK(!x == !y);
        if (x && y && y->n_dims == 1)
            same_tensor(x, y, DTYPE_F32);
        else if (x && y)
            same_tensor(x, y, tensor_cols(y) % dtype_block(matrix) ? DTYPE_F16 : matrix);
    }
}

/* The numbers of the patch embedding's row i, frames apart: [temporal][3 * patch * patch]. */
static inline void patch_row(float *out, const struct model_file *mf, int i)
{
    const struct vision_config *c = model_file_vision(mf);
    const struct vision_tensors *t = model_file_vision_tensors(mf);
    int area = c->patch * c->patch, frames = t->patch[1] ? 1 : c->temporal;
    for (int f = 0; f < c->temporal; f++) {
        float *x = tensor_numbers(t->patch[t->patch[1] ? f : 0]);
        const float *row = x + (size_t)(i * 3 * frames * area);
        for (int ch = 0; ch < 3; ch++)
            memcpy(out + (f * 3 + ch) * area, row + (ch * frames + (t->patch[1] ? 0 : f)) * area,
                   sizeof *out * (size_t)area);
        free(x);
    }
}

/* The audio encoder: what is not a matrix of two dimensions stays F32, but in F16 files
 * convolutions. */
static inline void same_audio_encoder(const struct model_file *a, const struct model_file *b,
                                      enum dtype type)
{
    const struct audio_config *c = &model_file_vision(a)->audio;
    struct audio_tensors x = *model_file_audio_tensors(a), y = *model_file_audio_tensors(b);
    enum dtype conv = type == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32;
    if (!c->hidden)
        return;
    same_tensor(x.conv1, y.conv1, conv);
    same_tensor(x.conv2, y.conv2, conv);
    same_tensor(x.position, y.position, DTYPE_F32);
    same_tensor(x.query, y.query, DTYPE_F32);
    x.conv1 = x.conv2 = x.position = x.query = NULL;
    y.conv1 = y.conv2 = y.position = y.query = NULL;
    same_tensors(&x, &y, sizeof x, type);
    for (int i = 0; i < c->n_layers; i++)
        same_tensors(model_file_audio_layer(a, i), model_file_audio_layer(b, i),
                     sizeof(struct vision_layer_tensors), type);
    for (int i = 0; i < c->q_layers; i++)
        same_tensors(model_file_query_layer(a, i), model_file_query_layer(b, i),
                     sizeof(struct query_layer_tensors), type);
}

/* The tower of `a` must be that of `b` (of F32 or F16) written in the type `type`. */
static inline void same_tower(const struct model_file *a, const struct model_file *b,
                              enum dtype type)
{
    const struct vision_config *c = model_file_vision(a);
    struct vision_tensors x = *model_file_vision_tensors(a), y = *model_file_vision_tensors(b);
    float p[2 * 3 * 64 * 64] = { 0 }, q[2 * 3 * 64 * 64] = { 0 };
    int n = c->temporal * 3 * c->patch * c->patch;
    same_vision_config(c, model_file_vision(b), type);
    for (int i = 0; i < c->hidden; i++) {
        uint8_t bytes[sizeof p];
        enum dtype to = type == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32;
        patch_row(p, a, i);
        patch_row(q, b, i);
        row_from_f32(bytes, q, to, n);
        row_to_f32(q, bytes, to, n);
        CHECK_MSG(!memcmp(p, q, sizeof *p * (size_t)n), "row %d of the patch embedding", i);
    }
    if (x.position)
        same_tensor(x.position, y.position, DTYPE_F32);
    x.patch[0] = x.patch[1] = x.position = y.patch[0] = y.patch[1] = y.position = NULL;
    same_tensors(&x, &y, sizeof x, type);
    for (int i = 0; i < c->n_layers; i++) {
        struct vision_layer_tensors l = *model_file_vision_layer(a, i);
        struct vision_layer_tensors m = *model_file_vision_layer(b, i);
        same_wide_layer(&l, &m, c->ffn, type);
        l.up = l.gate = l.down = l.up_bias = l.gate_bias = NULL;
        m.up = m.gate = m.down = m.up_bias = m.gate_bias = NULL;
        same_tensors(&l, &m, sizeof l, type);
    }
    same_audio_encoder(a, b, type);
}

#endif
