/* What the files of the vision towers share: the weights, the scratch, and the transformer layer
 * that both towers are made of. */
#ifndef PV_VISION_TOWER_H
#define PV_VISION_TOWER_H

#include "base/mem.h"
#include "vision/vision.h"

/* Rows that go through the matrices together: a frame of 27 x 27 patches is one chunk. Enough to
 * read each weight once for many rows; what an MLP needs between its matrices is bounded by it. A
 * multiple of merge * merge. */
enum { TOWER_CHUNK = 768, TOWER_BLOCK_CHUNK = 8192 /* where the device has a block */ };

struct vision {
    struct vision_config c;
    struct device *dev;
    enum dtype attn; /* of keys and values */
    struct matrix patch, mm0, mm2;
    const float *position;    /* LLaVA: [side * side, hidden] */
    const float *merger_norm; /* Qwen2.5: [hidden] */
    struct tower_layer *layer;
    float *small;   /* norms, biases and positions as f32, on the device */
    float *joined;  /* the patch matrix put together from two, on the host; or NULL */
    float *newline; /* LLaVA: [out], on the host */
    float inv_freq[DEVICE_MAX_HEAD_DIM / 4]; /* Qwen2.5 */
};

struct vision_state {
    struct device *dev;
    struct device_work *work;
    int max_patches;
    float *block;           /* on the device; the following lie in it */
    float *x;               /* [max_patches, hidden] */
    float *q, *k, *v;       /* [rows attended together, hidden]; attention's result replaces q;
                               with a block for the layer only q, of Qwen2.5 */
    float *cos, *sin;       /* Qwen2.5: [max_patches, head_dim / 2]; else NULL */
    float *xn;              /* [TOWER_CHUNK, hidden] */
    float *gate;            /* Qwen2.5: [TOWER_CHUNK, ffn]; else NULL */
    float *up;              /* [TOWER_CHUNK, ...]: pixels, the MLP's and the projector's middle */
    float *tmp;             /* [TOWER_CHUNK, ...]: what is added to x; tokens */
    float *near, *mixed;    /* LLaVA: [2 * widest, out], [widest, out] of llava.c */
    float *tokens, *pooled; /* of whole frames, LLaVA's before and after pooling; Qwen2.5: only
                               where the device has a block for the layer */
    int (*taps)[4];         /* LLaVA: [widest or a pooled frame], and their weights */
    float (*weights)[4];
    int32_t *units;             /* Qwen2.5: [units], an order of them */
    struct arena arena;         /* on the host; the following lie in it */
    int *slices;                /* rows where slices begin, and the end */
    int *windows;               /* Qwen2.5: the same for windows */
    int *order, *inverse;       /* Qwen2.5: the units of a call by window, and back */
    int *segments;              /* [TOWER_CHUNK + 1] of one attention call */
    float *host_cos, *host_sin; /* Qwen2.5: [TOWER_CHUNK, head_dim / 2] */
    int (*host_taps)[4];        /* LLaVA, as above */
    float (*host_weights)[4];
};

/* One call of vision_encode. */
struct tower_pass {
    const struct vision *v;
    struct vision_state *st;
    const struct device_ops *ops;
    const float *patches; /* host */
    float *out;           /* host; NULL: tokens stay in st->tokens */
    int n_slices, h, w;
    int n; /* rows: n_slices * h * w */
    int n_windows;
};

static inline int tower_chunk(const struct vision *v)
{
    return v->dev->ops->tower ? TOWER_BLOCK_CHUNK : TOWER_CHUNK;
}

/* Floats of a row of pixels. */
int tower_patch_size(const struct vision_config *c);
/* Tokens along the wider side of the largest still picture (LLaVA). */
int tower_widest(const struct vision_config *c);

/* y [n, hidden] = the patches through the first matrix, slice by slice as they came. */
void tower_embed(struct tower_pass *p, float *y);
/* All layers over st->x. */
void tower_layers(struct tower_pass *p);
/* Rows [at, at + n) of x -> tokens: norm (NULL: none), mm0, gelu, mm2, and out to the caller.
 * A token is merge * merge rows side by side. */
void tower_project(struct tower_pass *p, const float *x, const float *norm);

/* llava.c: n frames of st->tokens to st->pooled. */
void llava_pool_tokens(const struct vision *v, struct vision_state *st, int n);

/* siglip.c */
void siglip_encode(struct tower_pass *p);

/* qwen2_5_vit.c */
void qwen2_5_encode(struct tower_pass *p);
void qwen2_5_frequencies(struct vision *v);
/* The two frames' matrices [hidden, 3 * patch * patch] as one [hidden, 3 * 2 * patch * patch]. */
enum pv_status qwen2_5_join(struct vision *v, const struct tensor *const frames[2],
                            struct pv_error *err);

#endif
