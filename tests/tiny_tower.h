/* Random tiny vision towers for tests: a model file made in memory, not read from a disk, so that
 * any shape and type can be had; and the tower opened on a device. (That files of towers are read
 * rightly is proven elsewhere.) */
#ifndef PV_TESTS_TINY_TOWER_H
#define PV_TESTS_TINY_TOWER_H

#include "base/mem.h"
#include "base/rng.h"
#include "family/families.h"
#include "format/model_file_parts.h"
#include "rig.h"
#include "tensor/quant.h"
#include "vision/tower.h"

#include <math.h>

enum { TOWER_MAX_TENSORS = 128 };

struct tiny_tower {
    struct model_file mf;
    struct vision_layer_tensors layer[8];
    struct tensor tensor[TOWER_MAX_TENSORS];
    int n_tensors;
    struct rng rng;
    struct device *dev;
    struct vision *v;
};

/* Weights [rows, cols] (rows 0: a vector) of variance std^2 around mean. A row that the type's
 * blocks do not divide is F16, vectors are F32, as in files. */
static inline const struct tensor *tower_tensor(struct tiny_tower *t, enum dtype type, int rows,
                                                int cols, float mean, float std)
{
    struct tensor *out = &t->tensor[t->n_tensors++];
    int n = rows ? rows : 1;
    float *row = malloc(sizeof(float) * (size_t)cols);
    uint8_t *data;
    size_t row_size;
    type = rows == 0 ? DTYPE_F32 : cols % dtype_block(type) ? DTYPE_F16 : type;
    row_size = dtype_row_size(type, cols);
    data = malloc(row_size * (size_t)n);
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < cols; i++)
            row[i] = mean + std * rng_normal(&t->rng);
        row_from_f32(data + (size_t)r * row_size, row, type, cols);
    }
    free(row);
    *out = (struct tensor){ .name = "",
                            .dtype = type,
                            .n_dims = rows ? 2 : 1,
                            .dim = { rows ? rows : cols, rows ? cols : 1, 1, 1, 1, 1, 1, 1 },
                            .data = data,
                            .size = row_size * (size_t)n };
    return out;
}

/* Attention neither flat nor one-hot, so that a wrong row anywhere is seen. */
static inline void tower_layer(struct tiny_tower *t, enum dtype type,
                               struct vision_layer_tensors *l)
{
    const struct vision_config *c = &t->mf.vision;
    int h = c->hidden, ffn = c->ffn;
    bool gated = c->family->tower->gated;
    float in = 1 / sqrtf((float)h), back = 1 / sqrtf((float)ffn);
    l->norm1 = tower_tensor(t, type, 0, h, 1, 0.2f);
    l->norm2 = tower_tensor(t, type, 0, h, 1, 0.2f);
    if (!gated) {
        l->norm1_bias = tower_tensor(t, type, 0, h, 0, 0.2f);
        l->norm2_bias = tower_tensor(t, type, 0, h, 0, 0.2f);
    }
    l->q = tower_tensor(t, type, h, h, 0, 1.5f * in);
    l->k = tower_tensor(t, type, h, h, 0, 1.5f * in);
    l->v = tower_tensor(t, type, h, h, 0, in);
    l->o = tower_tensor(t, type, h, h, 0, in);
    l->q_bias = tower_tensor(t, type, 0, h, 0, 0.3f);
    l->k_bias = tower_tensor(t, type, 0, h, 0, 0.3f);
    l->v_bias = tower_tensor(t, type, 0, h, 0, 0.3f);
    l->o_bias = tower_tensor(t, type, 0, h, 0, 0.3f);
    l->up = tower_tensor(t, type, ffn, h, 0, in);
    l->up_bias = tower_tensor(t, type, 0, ffn, 0, 0.3f);
    l->down = tower_tensor(t, type, h, ffn, 0, back);
    l->down_bias = tower_tensor(t, type, 0, h, 0, 0.3f);
    if (gated) {
        l->gate = tower_tensor(t, type, ffn, h, 0, in);
        l->gate_bias = tower_tensor(t, type, 0, ffn, 0, 0.3f);
    }
}

/* A merger or projector of rows `wide` long; its norm covers `norm_dim` of them, 0: none. */
static inline void tower_merger(struct tiny_tower *t, enum dtype type, struct vision_merger *m,
                                int norm_dim, int wide, int middle)
{
    const struct vision_config *c = &t->mf.vision;
    if (norm_dim)
        m->norm = tower_tensor(t, type, 0, norm_dim, 1, 0.2f);
    if (norm_dim && !c->family->tower->gated)
        m->norm_bias = tower_tensor(t, type, 0, norm_dim, 0, 0.2f);
    m->mm0 = tower_tensor(t, type, middle, wide, 0, 1 / sqrtf((float)wide));
    m->mm0_bias = tower_tensor(t, type, 0, middle, 0, 0.3f);
    m->mm2 = tower_tensor(t, type, c->out, middle, 0, 1 / sqrtf((float)middle));
    m->mm2_bias = tower_tensor(t, type, 0, c->out, 0, 0.3f);
}

/* The model file of a configuration; `split`: the patch matrix in two, one per frame. */
static inline void tower_make(struct tiny_tower *t, const struct vision_config *c, enum dtype type,
                              bool split)
{
    struct vision_tensors *top = &t->mf.vision_tensors;
    int wide = c->hidden * c->merge * c->merge, row = 3 * c->patch * c->patch;
    bool llava = c->family == &family_llava_onevision;
    int positions = llava ? vision_side(c) * vision_side(c) : c->positions;
    *t = (struct tiny_tower){ .rng = { 7 + (uint64_t)type } };
    t->mf.path = "tiny";
    t->mf.vision = *c;
    t->mf.vision_layer = t->layer;
    for (int i = 0; i < 1 + split; i++)
        top->patch[i] = tower_tensor(t, type, c->hidden, split ? row : row * c->temporal, 0,
                                     1 / sqrtf((float)row));
    if (positions > 0) {
        top->patch_bias = tower_tensor(t, type, 0, c->hidden, 0, 0.3f);
        top->position = tower_tensor(t, DTYPE_F32, positions, c->hidden, 0, 0.5f);
    }
    if (llava)
        top->newline = tower_tensor(t, type, 0, c->out, 0, 1);
    for (int i = 0; i < c->n_layers; i++)
        tower_layer(t, type, &t->layer[i]);
    tower_merger(t, type, &top->merger, llava ? 0 : c->hidden, wide, llava ? c->out : wide);
    for (int k = 0; k < c->n_deepstack; k++)
        tower_merger(t, type, &top->deepstack[k], wide, wide, wide);
}

/* Open it on a device; false (and a failed check) when that fails. */
static inline bool tower_start(struct tiny_tower *t, int level, int threads)
{
    struct pv_error err = { 0 };
    enum pv_status s = device_cpu_open(&t->dev, threads, cpu_levels[level].flags, &err);
    if (!s)
        s = vision_open(&t->v, &t->mf, t->dev, &err);
    return CHECK_MSG(s == PV_OK, "%s", err.text);
}

static inline void tower_stop(struct tiny_tower *t)
{
    vision_close(&t->v);
    device_close(&t->dev);
}

static inline void tower_free(struct tiny_tower *t)
{
    tower_stop(t);
    for (int i = 0; i < t->n_tensors; i++)
        free((void *)(uintptr_t)t->tensor[i].data);
}

static inline float *random_floats(size_t n, uint64_t seed)
{
    struct rng r = { seed };
    float *x = malloc(sizeof(float) * n);
    for (size_t i = 0; i < n; i++)
        x[i] = rng_normal(&r);
    return x;
}

#endif
