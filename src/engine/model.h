/* Inside of the two public handles. */
#ifndef PV_ENGINE_MODEL_H
#define PV_ENGINE_MODEL_H

#include "base/buf.h"
#include "lm/decoder.h"

#include <pthread.h>

struct tokenizer;
struct chat;

struct pv_model {
    struct model_file *file;
    struct device *dev;
    struct decoder *dec;
    struct tokenizer *tokenizer; /* NULL: the file has none, or a CORE build */
    struct pv_limits limits;
    int threads;
    uint64_t cpu;                /* features in use */
    struct buf describe;
    pthread_mutex_t step_lock;   /* the device runs one step at a time */
};

/* The 16-bit type whose attention is fastest on this model's device. */
enum dtype model_kv_dtype(const struct pv_model *m, enum pv_kv_type type);

#endif
