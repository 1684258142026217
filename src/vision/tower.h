/* What the files of the vision towers share: the weights, the scratch, and the transformer layer
 * that all towers are made of. */
#ifndef PV_VISION_TOWER_H
#define PV_VISION_TOWER_H

#include "base/mem.h"
#include "format/family.h"
#include "vision/tower_layer.h"
#include "vision/vision.h"

enum { TOWER_BLOCK_CHUNK = 8192 /* rows together where the device has a block */ };

/* Rows of the tower to tokens. */
struct merger {
    struct matrix mm0, mm2;
    const float *norm, *norm_bias; /* [norm_dim] or NULL */
    int norm_dim;                  /* hidden, or that of the rows of a token side by side */
};

struct vision {
    struct vision_config c;
    struct device *dev;
    enum dtype attn; /* of keys and values */
    struct matrix patch;
    struct merger merger, deepstack[VISION_MAX_DEEPSTACK];
    const float *position; /* [positions, hidden] or NULL */
    struct tower_layer *layer;
    float *small;    /* norms, biases and positions as f32, on the device */
    uint8_t *joined; /* the patch matrix put together from two, on the host; or NULL */
    float *newline;  /* [out], on the host */
    float inv_freq[DEVICE_MAX_HEAD_DIM / 4]; /* of rope */
};

struct vision_state {
    struct device *dev;
    struct device_work *work;
    struct vision_watch watch;
    int max_patches;
    float *block;           /* on the device; the following lie in it */
    uint8_t *pixels;        /* where the device cuts patches: the frames of a call, */
    float *table;           /* and what their bytes become; else NULL */
    float *x;               /* [max_patches, hidden] */
    float *q, *k, *v;       /* [rows attended together, hidden]; attention's result replaces q;
                               with a block for the layer only q, and only with windows */
    float *cos, *sin;       /* with rope: [max_patches, head_dim / 2]; else NULL */
    float *xn;              /* [TOWER_CHUNK, hidden] */
    float *gate;            /* of an MLP with a gate: [TOWER_CHUNK, ffn]; else NULL */
    float *up;              /* [TOWER_CHUNK, ...]: pixels, the MLP's and the projector's middle */
    float *tmp;             /* [TOWER_CHUNK, ...]: what is added to x; tokens */
    float *near, *mixed;    /* of tiles: [2 * widest, out], [widest, out] of llava.c */
    float *tokens, *pooled; /* of whole frames, of tiles before and after pooling; else only where
                               the device has a block for the layer, or rows have several parts */
    int (*taps)[4];         /* of tiles: [widest or a pooled frame]; of stretched positions:
                               [TOWER_CHUNK]; and their weights */
    float (*weights)[4];
    float *lined;               /* pooled frames with newlines among their rows; or NULL */
    int32_t *lines;             /* [rows of lined]: their pooled rows */
    int32_t *units;             /* with windows: [units], an order of them */
    struct arena arena;         /* on the host; the following lie in it */
    int *slices;                /* rows where slices begin, and the end */
    int *windows;               /* rows where windows begin, and the end; or NULL */
    int *order, *inverse;       /* with windows: the units of a call by window, and back */
    int *segments;              /* [TOWER_CHUNK + 1] of one attention call */
    float *host_cos, *host_sin; /* with rope: [TOWER_CHUNK, head_dim / 2] */
    int32_t *host_lines;        /* as above, and the following */
    int (*host_taps)[4];
    float (*host_weights)[4];
};

/* One call of vision_encode. */
struct tower_pass {
    const struct vision *v;
    struct vision_state *st;
    const struct device_ops *ops;
    const float *patches;               /* host; */
    const struct vision_frames *frames; /* or frames that the device cuts */
    float *out;                         /* host; NULL: tokens stay in st->tokens */
    int n_slices, h, w;
    int n; /* rows: n_slices * h * w */
    int n_windows;
    bool stopped; /* by the state's watch */
};

static inline int tower_chunk(const struct vision *v)
{
    return v->dev->ops->tower ? TOWER_BLOCK_CHUNK : TOWER_CHUNK;
}

/* Floats of a row of pixels. */
int tower_patch_size(const struct vision_config *c);
/* Tokens along the wider side of the largest still picture in tiles. */
int tower_widest(const struct vision_config *c);

/* y [n, hidden] = the patches through the first matrix, slice by slice as they came. */
void tower_embed(struct tower_pass *p, float *y);
/* All layers over st->x; the further mergers run after theirs. */
void tower_layers(struct tower_pass *p);
/* Rows of x -> tokens: norm (NULL: none), mm0, gelu, mm2. They become the floats [part * out,
 * (part + 1) * out) of the rows of st->tokens, or go to the caller as they are made. A token is
 * merge * merge rows side by side. */
void tower_project(struct tower_pass *p, const struct merger *m, const float *x, int part);

/* llava.c: n frames of st->tokens to st->pooled. */
void llava_pool_tokens(const struct vision *v, struct vision_state *st, int n);

/* places.c. Bounds of slices and windows, and the order of rows where there are windows. */
void places_plan(struct tower_pass *p);
/* Rows into window order, and back. */
void places_order(struct tower_pass *p, float *to, const float *from);
void places_restore(struct tower_pass *p, float *to, const float *from);
void places_frequencies(struct vision *v);
/* cos and sin of all rows as the layers see them. */
void places_rope(struct tower_pass *p);
/* Adds the learned positions to rows as they came, where the tower has them. */
void places_learned(struct tower_pass *p, float *x);

/* patch_matrix.c: the frames' matrices [hidden, 3 * patch * patch] as one
 * [hidden, 3 * 2 * patch * patch]. */
enum pv_status patch_matrix_join(struct vision *v, const struct tensor *const frames[2],
                                 const float *bias, struct pv_error *err);

#endif
