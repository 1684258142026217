/* The fields of the device that distributes decoders over ranks. */
#ifndef PV_DIST_DEVICE_RANKS_H
#define PV_DIST_DEVICE_RANKS_H

#include "dist/rank.h"
#include "dist/ranks.h"
#include "dist/wire_batch.h"

#include <pthread.h>

/* What layer_weights.handle points to. */
struct layer_handle {
    int id;                   /* of a distributed layer; -1: it is not distributed, and */
    struct rank_layer *local; /* this is the layer on rank 0 */
};

struct rank_device {
    struct device dev;
    struct device_ops table;
    struct rank k;
    pthread_mutex_t lock;      /* protects the fields below and the execution of commands */
    struct batch_buffer queue; /* commands that are not executed yet */
    int n_matrices, n_experts, n_layers;
    struct {
        const uint8_t *data;
        size_t size;
    } source[RANK_SOURCES];
    int n_sources;
};

struct device_work {
    struct rank_device *d;
    struct device_work *inner; /* of rank 0's CPU */
    struct rank_work *w;       /* for a decoder; else NULL */
    int id;                    /* -1: nothing that runs on it is distributed */
    bool there;                /* the other ranks have the present x, cos and sin */
    bool dirty;                /* the other ranks have executed something since the last wait */
    uint8_t *runs;             /* the last command_runs that was sent to them */
    size_t runs_cap;
};

static inline struct rank_device *device_of(struct device *dev)
{
    return (struct rank_device *)dev; /* dev is its first member */
}

/* Append a command to the queue; its bytes after the head are zero. The caller holds the lock.
 * NULL: there was a failure, which `wait` will report. */
void *queue_push(struct rank_device *d, enum command_kind kind, int id, int work, size_t size);
/* Execute everything in the queue. The caller holds the lock. */
void queue_flush(struct rank_device *d);
/* The same, taking the lock; returns the first failure so far. */
enum pv_status queue_settle(struct rank_device *d, struct pv_error *err);

/* The same for a work that may have commands in the queue. Other works do not wait: a drafter that
 * runs on rank 0 in parallel with the target is not delayed by the target's steps. */
static inline void work_settle(struct device_work *w)
{
    if (w->id >= 0)
        (void)queue_settle(w->d, NULL);
}

/* device_ranks_local.c: operations that run on rank 0 only. */
void fill_local_ops(struct device_ops *table, const struct device_ops *inner);
/* device_ranks_weights.c */
void fill_weight_ops(struct device_ops *table);
/* device_ranks_steps.c */
void fill_step_ops(struct device_ops *table);

/* The pool that contains an address; NULL: none. *id: its number. */
struct rank_pool *pool_find(const struct rank_device *d, const void *p, int *id);

#endif
