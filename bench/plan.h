/* The tensors that make_model writes, as a list. */
#ifndef PV_BENCH_PLAN_H
#define PV_BENCH_PLAN_H

#include "shapes.h"
#include "tensor/quant.h"

#include <math.h>
#include <stdio.h>

/* One tensor to be written: mean + std * normal. */
struct plan {
    const char *suffix; /* the whole name if there is no layer */
    int64_t in, out;    /* out 0: one-dimensional */
    enum dtype dtype;
    float mean, std;
    int layer;         /* -1: none */
    const char *group; /* part of the name before the layer's number */
    int patch;  /* not 0: a convolution of this side over 3 channels, or along time over in / patch
                   channels */
    bool sound; /* along time */
};

enum { NAME_SIZE = 64 };

struct plan_list {
    struct plan *item;
    int n;
};

static inline void plan_add(struct plan_list *l, const struct plan *p, int layer)
{
    l->item[l->n] = *p;
    l->item[l->n].layer = layer;
    if (!l->item[l->n].group)
        l->item[l->n].group = "blk";
    l->n++;
}

static inline void plan_name(char name[NAME_SIZE], const struct plan *p)
{
    if (p->layer < 0)
        snprintf(name, NAME_SIZE, "%s", p->suffix);
    else
        snprintf(name, NAME_SIZE, "%s.%d.%s", p->group, p->layer, p->suffix);
}

/* If rows are not whole blocks of 256, use blocks of 32, as llama.cpp's tools do. */
static inline enum dtype whole_blocks(enum dtype t, int64_t in)
{
    return in % dtype_block(t) ? DTYPE_Q8_0 : t;
}

/* A matrix of an encoder stays at 16 bits if its rows are not whole blocks. */
static inline enum dtype tower_type(enum dtype t, int64_t in)
{
    t = whole_blocks(t, in);
    return in % dtype_block(t) ? DTYPE_F16 : t;
}

#endif
