/* Shared by the files of the vision towers: weights, scratch memory and the parts of a call. */
#ifndef PV_VISION_TOWER_H
#define PV_VISION_TOWER_H

#include "base/mem.h"
#include "format/family.h"
#include "vision/tower_layer.h"
#include "vision/vision.h"

enum { TOWER_BLOCK_CHUNK = 8192 /* rows processed together if device_ops.tower exists */ };

/* An MLP from rows of the tower to tokens. */
struct merger {
    struct matrix mm0, mm2;
    const float *norm, *norm_bias; /* [norm_dim] or NULL */
    int norm_dim;                  /* hidden, or hidden times the rows of a token */
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
    uint8_t *joined; /* a patch matrix that was joined from two, on the host; or NULL */
    float *newline;  /* [out], on the host */
    float inv_freq[DEVICE_MAX_HEAD_DIM / 4]; /* of rope */
};

struct vision_state {
    struct device *dev;
    struct device_work *work;
    struct vision_watch watch;
    int max_patches;
    float *block;           /* on the device; contains the following */
    uint8_t *pixels;        /* if the device cuts patches: the frames of a call; else NULL */
    uint8_t *next_pixels;   /* and those of the next call, if put_ahead is supported; else NULL */
    float *table;           /* if the device cuts patches: values of bytes; else NULL */
    float *x;               /* [max_patches, hidden] */
    float *q, *k, *v;       /* [rows of one attention call, hidden]; its result replaces q; with
                               device_ops.tower only q, and only if the tower has windows */
    float *cos, *sin;       /* with rope: [max_patches, head_dim / 2]; else NULL */
    float *xn;              /* [TOWER_CHUNK, hidden] */
    float *gate;            /* of an MLP with a gate: [TOWER_CHUNK, ffn]; else NULL */
    float *up;              /* [TOWER_CHUNK, ...]: pixels; the inner rows of MLP and projector */
    float *tmp;             /* [TOWER_CHUNK, ...]: what is added to x; tokens */
    float *near, *mixed;    /* with tiles: [2 * widest, out], [widest, out] of llava.c */
    float *tokens, *pooled; /* with tiles: whole frames before and after pooling. `tokens` also
                               with device_ops.tower or deepstack; else NULL */
    int (*taps)[4];         /* rows that are interpolated, and their weights. With tiles: [widest or
                               a pooled frame]; with interpolated positions: [TOWER_CHUNK] */
    float (*weights)[4];
    float *lined;               /* pooled frames with newlines inserted; or NULL */
    int32_t *lines;             /* [rows of lined]: index of the pooled row */
    int32_t *units;             /* with windows: [units], their order */
    struct arena arena;         /* on the host; contains the following */
    int *slices;                /* first row of each slice, and the end */
    int *windows;               /* first row of each window, and the end; or NULL */
    int *order, *inverse;       /* with windows: the units of a call in window order, and back */
    int *segments;              /* [TOWER_CHUNK + 1] of one attention call */
    float *host_cos, *host_sin; /* with rope: [TOWER_CHUNK, head_dim / 2] */
    int32_t *host_lines;        /* host copies of lines, taps and weights */
    int (*host_taps)[4];
    float (*host_weights)[4];
};

/* One call of vision_encode. */
struct tower_pass {
    const struct vision *v;
    struct vision_state *st;
    const struct device_ops *ops;
    const float *patches;               /* on the host; NULL: `frames` is set */
    const struct vision_frames *frames; /* frames that the device cuts into patches */
    float *out;                         /* host; NULL: tokens stay in st->tokens */
    int n_slices, h, w;
    int n; /* rows: n_slices * h * w */
    int n_windows;
    bool stopped; /* the state's watch returned false */
};

static inline int tower_chunk(const struct vision *v)
{
    return v->dev->ops->tower ? TOWER_BLOCK_CHUNK : TOWER_CHUNK;
}

/* Floats per row of pixels. */
int tower_patch_size(const struct vision_config *c);
/* Tokens along the longer side of the largest still picture in tiles. */
int tower_widest(const struct vision_config *c);

/* y [n, hidden] = patches times the first matrix, slice by slice in their original order. */
void tower_embed(struct tower_pass *p, float *y);
/* Run all layers over st->x, and each deepstack merger after its layer. */
void tower_layers(struct tower_pass *p);
/* Rows of x -> tokens: norm (NULL: none), mm0, GELU, mm2. merge * merge consecutive rows are
 * concatenated to one token. The results are stored as floats [part * out, (part + 1) * out) of the
 * rows of st->tokens, or directly in p->out. */
void tower_project(struct tower_pass *p, const struct merger *m, const float *x, int part);

/* llava.c: pool n frames from st->tokens to st->pooled, or with newlines to st->lined. */
void llava_pool_tokens(const struct vision *v, struct vision_state *st, int n);
/* The same from rows of x, projector included. A device with gelu_blend pools between the
 * projector's matrices, which gives other last bits. */
void llava_project_pooled(struct tower_pass *p, const float *x);

/* places.c. Compute the bounds of slices and windows, and the order of rows if there are
 * windows. */
void places_plan(struct tower_pass *p);
/* Permute rows into window order, and back. */
void places_order(struct tower_pass *p, float *to, const float *from);
void places_restore(struct tower_pass *p, float *to, const float *from);
void places_frequencies(struct vision *v);
/* cos and sin of all rows, in the order in which the layers process them. */
void places_rope(struct tower_pass *p);
/* Add the learned positions, if the tower has them, to rows in their original order. */
void places_learned(struct tower_pass *p, float *x);

/* patch_matrix.c: join the matrices of two frames, [hidden, 3 * patch * patch] each, to one
 * [hidden, 3 * 2 * patch * patch]. */
enum pv_status patch_matrix_join(struct vision *v, const struct tensor *const frames[2],
                                 const float *bias, struct pv_error *err);

#endif
