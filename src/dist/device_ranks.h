/* Inside of the device that spreads decoders over ranks. */
#ifndef PV_DIST_DEVICE_RANKS_H
#define PV_DIST_DEVICE_RANKS_H

#include "dist/rank.h"
#include "dist/ranks.h"
#include "dist/wire_batch.h"

#include <pthread.h>

/* A layer as the decoder holds it (layer_weights.own). */
struct layer_handle {
    int id;                   /* of a layer that is spread; -1: */
    struct rank_layer *local; /* of one that is not */
};

struct rank_device {
    struct device dev;
    struct device_ops table;
    struct rank k;
    pthread_mutex_t lock;      /* of everything below, and of carrying out commands */
    struct batch_buffer queue; /* commands that nobody has carried out yet */
    int n_matrices, n_experts, n_layers;
    struct {
        const uint8_t *data;
        size_t size;
    } source[RANK_SOURCES];
    int n_sources;
};

struct device_work {
    struct rank_device *d;
    struct device_work *inner; /* rank 0's own */
    struct rank_work *w;       /* of a decoder; NULL: of something else */
    int id;                    /* -1: nothing that runs on it is spread */
    bool there;                /* the other ranks have x, cos and sin as they are */
    bool dirty;                /* something ran on them since the last wait */
    uint8_t *runs;             /* the last command_runs that they were sent */
    size_t runs_cap;
};

static inline struct rank_device *device_of(struct device *dev)
{
    return (struct rank_device *)dev; /* dev is its first member */
}

/* A command at the end of the queue, zeroed behind its head; the caller holds the lock. NULL: there
 * was a failure, which `wait` will tell. */
void *queue_push(struct rank_device *d, enum command_kind kind, int id, int work, size_t size);
/* Everything that is in the queue is done. The caller holds the lock. */
void queue_flush(struct rank_device *d);
/* The same without the lock; what failed so far. */
enum pv_status queue_settle(struct rank_device *d, struct pv_error *err);

/* The same for a session of which something may be in the queue. Others do not wait for it: a
 * drafter that runs beside the target on rank 0 is not stopped by the target's steps. */
static inline void work_settle(struct device_work *w)
{
    if (w->id >= 0)
        (void)queue_settle(w->d, NULL);
}

/* device_ranks_local.c: operations that run on rank 0 alone. */
void fill_local_ops(struct device_ops *table, const struct device_ops *inner);
/* device_ranks_weights.c */
void fill_weight_ops(struct device_ops *table);
/* device_ranks_steps.c */
void fill_step_ops(struct device_ops *table);

/* The pool that an address lies in; NULL: none. *id: its number. */
struct rank_pool *pool_find(const struct rank_device *d, const void *p, int *id);

#endif
