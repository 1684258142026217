/* One rank's part of a model: its slices of the matrices, its KV heads, and the execution of
 * commands. Rank 0 and the others run the same code. Each rank's device is a CPU, so device memory
 * is host memory.
 *
 * A failure of the transport is kept in `status`; nothing is sent or received after it. */
#ifndef PV_DIST_RANK_H
#define PV_DIST_RANK_H

#include "base/file.h"
#include "dist/parts_of_ranks.h"
#include "dist/wire.h"

enum { RANK_SOURCES = 64, RANK_RUNS = 64, RANK_REPORT = 128 };

/* A table of objects by number. */
struct table {
    void **at;
    int n;
};

struct rank_matrix {
    struct matrix m; /* this rank's outputs, in the device's form; m.out 0: it has none */
    int out;         /* of the whole matrix */
    void *rows;      /* weights received from rank 0; NULL: they are in a mapped file */
    float *bias;
};

struct rank_experts {
    struct rank *k;
    struct expert_weights e;
    struct matrix *matrix; /* [3, n] */
    float *router;
    int hidden;
};

/* A distributed layer, or (n_ranks 1) a layer that is on rank 0 only. */
struct rank_layer {
    int n_ranks;
    struct layer_shape shape;
    struct part q, kv; /* heads */
    struct layer_weights w;
    struct ranges q_at, hidden_at, ffn_at; /* floats of a row */
    float *norms;
};

struct rank_pool {
    struct kv_shape shape;
    int n_kv;
    uint8_t *mem;
    size_t size, page_size;
};

/* Scratch of one session. */
struct rank_work {
    struct rank *k;
    struct device_work *inner;
    struct work_shape shape;
    float *x, *wide, *cos, *sin;
    float *xn, *q, *key, *value, *att, *up, *sums;
    float *stage[2]; /* parts of all ranks, one after the other */
    float *full[2];  /* complete rows assembled from them */
    size_t stage_cap[2];
    void *block;
    int n_runs;
    struct attn_run runs[RANK_RUNS];
    struct kv_layer kv[RANK_RUNS];
    int pool[RANK_RUNS];
    int32_t *numbers; /* pages and parents of the runs */
    size_t numbers_cap;
};

struct rank {
    struct transport *t;
    struct device *dev;
    struct table matrices, experts, layers, pools, works;
    struct file_map source[RANK_SOURCES];
    bool everywhere[RANK_SOURCES]; /* rank 0: every rank has the file */
    enum pv_status status;
    struct pv_error err;
    /* Rank 0: the first failure of a step that the last COMMAND_SYNC found. */
    enum pv_status report;
    struct pv_error report_err;
};

/* Closes the device and everything that is left in the tables. */
void rank_close(struct rank *k);

/* Execute a command; COMMAND_END is handled by the caller. */
enum pv_status rank_run(struct rank *k, const struct command *c, struct pv_error *err);

/* Communication; the first failure is kept in k->status. */
void rank_bcast(struct rank *k, void *data, size_t size);
void rank_gather(struct rank *k, void *all, const size_t *at, int to);

/* False if out of memory. */
bool table_put(struct table *t, int id, void *what);
void *table_find(const struct table *t, int id);

/* rank_work.c */
size_t rank_work_size(const struct rank *k, const struct work_shape *s);
enum pv_status rank_work_open(struct rank_work **out, struct rank *k, const struct work_shape *s,
                              struct pv_error *err);
void rank_work_close(struct rank_work **w);
/* Most int32 numbers (pages and parents) in the runs of a step. */
size_t rank_work_numbers(const struct work_shape *s);

/* rank_layer.c: the two halves of a layer. */
struct attn_args {
    float *x;
    const float *wide, *cos, *sin;
    int n, n_runs;
    const struct attn_run *runs;
    int n_columns;
    struct column_job *columns; /* sums: on rank 0 */
};
void layer_attn(struct rank_work *w, const struct rank_layer *l, const struct attn_args *a);
/* rows NULL: all n rows. */
void layer_finish(struct rank_work *w, const struct rank_layer *l, float *x, int n,
                  const int32_t *rows, int n_rows);
/* y = x . m^T with all outputs, on rank 0. */
void matrix_product(struct rank_work *w, const struct rank_matrix *m, float *y, size_t y_stride,
                    const float *x, int n);

/* rank_weights.c */
enum pv_status rank_take(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_drop(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_take_experts(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_drop_experts(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_take_layer(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_drop_layer(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_source(struct rank *k, const struct command *c, struct pv_error *err);
void rank_matrix_close(struct rank *k, struct rank_matrix **m);
void rank_experts_close(struct rank_experts **e);
void rank_layer_close(struct rank_layer **l);
/* A checksum of samples of a file, to see whether two ranks have the same file. */
void source_sum(const struct file_map *map, uint8_t out[DIGEST_SIZE]);

/* rank_kv.c */
enum pv_status rank_kv_open(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_kv_close(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_kv_move(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_kv_copy(struct rank *k, const struct command *c, struct pv_error *err);
enum pv_status rank_kv_page(struct rank *k, const struct command *c, struct pv_error *err);
void rank_pool_close(struct rank *k, struct rank_pool **p);
/* A layer of a pool, for a sequence with these pages. */
struct kv_layer rank_kv_layer(const struct rank_pool *p, int layer, const int32_t *pages,
                              int n_pages);

#endif
