/* The model under test: opened, its cache filled to a depth, and steps of it timed. */
#ifndef PV_BENCH_SPEED_STEPS_H
#define PV_BENCH_SPEED_STEPS_H

#include "engine/model.h"
#include "floor.h"
#include "kernels/kernels.h"
#include "speed.h"

struct bench_model {
    pv_model *model;
    struct decoder_state *state;
    struct kvcache kv;
    enum dtype kv_dtype;
    int max_rows;
    int32_t *ids, *argmax; /* [max_rows] */
    int32_t (*pos)[3];     /* [max_rows] */
    int *rows;             /* [max_rows] 0, 1, 2, ... */
    float *random;         /* keys and values to fill the cache with */
};

struct bench_model_params {
    const char *path;
    int threads; /* 0: all cores */
    uint64_t cpu_mask;
    bool no_repack;
    enum pv_kv_type kv_type;
    int context, max_rows, max_logits;
};

enum pv_status bench_model_open(struct bench_model *b, const struct bench_model_params *p,
                                struct pv_error *err);
void bench_model_close(struct bench_model *b);

const struct kernels *bench_model_kernels(const struct bench_model *b);
struct pool *bench_model_pool(const struct bench_model *b);
/* The type of the weights: the one with the most bytes. */
enum dtype bench_model_dtype(const struct bench_model *b);

/* Make the cache hold `depth` slots. New ones get random keys and values through the device, as a
 * step would write them: speed does not depend on what they are, and a real prefill of a deep
 * context would take longer than everything else. */
void bench_model_fill(struct bench_model *b, int depth);

/* One sample of a test at its depth, which must be filled: for decode the mean of `gen` tokens.
 * The cache is as before afterwards. */
enum pv_status bench_model_sample(struct bench_model *b, const struct test *t, int gen,
                                  double *seconds, struct pv_error *err);

/* Fill t->bytes and t->compute_s. */
void bench_model_count(const struct bench_model *b, struct test *t,
                       const struct peak_rate peak[PEAK_KINDS]);

#endif
