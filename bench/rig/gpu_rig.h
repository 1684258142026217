/* Shared by the tests of bench_gpu: a device, models of real shapes with random weights on it,
 * lanes (a decoder with a state and a KV cache of random numbers), and rows of results. */
#ifndef PV_BENCH_RIG_GPU_RIG_H
#define PV_BENCH_RIG_GPU_RIG_H

#include "lm/decoder.h"
#include "vision/vision.h"

#include <stdio.h>

enum { RIG_MAX_SAMPLES = 512, RIG_NAME = 48, RIG_MAX_LIST = 16 };
enum { RIG_MAX_SEQUENCES = 64, RIG_MAX_BATCH = 1024 }; /* of a batch; its rows */

/* ---- times ---- */

struct timings {
    double s[RIG_MAX_SAMPLES];
    int n;
};

void timings_add(struct timings *t, double seconds);
double timings_at(const struct timings *t, double part); /* 0 the best, 0.5 the median; n > 0 */

/* ---- the machine ---- */

struct rig {
    bool gpu;
    int index;           /* of the GPU */
    struct device *dev;  /* the GPU, or the CPU of the first model */
    const char *folder;  /* where hollow files are written */
    const char *program; /* make_model */
    double bandwidth;    /* bytes/s: the larger of the measured and the given speed */
    double peak;         /* operations/s */
    int draft_vocab;     /* tokens that drafters score; 0: all */
    enum dtype kv;       /* type of KV caches: BF16 or F8 */
    struct results *results;
};

enum pv_status rig_open(struct rig *r, struct pv_error *err);
void rig_close(struct rig *r);
/* Bytes of the device in use; 0: not known. */
size_t rig_used(const struct rig *r);

/* Read speed of the device in bytes/s: the best of several passes over `size` bytes, by argmax of
 * f32 rows and by a product of one row with a matrix. */
enum pv_status rig_read_speed(struct rig *r, size_t size, double *speed, struct pv_error *err);

/* ---- models ---- */

struct rig_model {
    char shape[RIG_NAME], type[RIG_NAME]; /* as make_model names them */
    struct model_file *mf;
    struct device *dev; /* the rig's, or its own when several models run on the CPU */
    bool own_device;
    struct decoder *dec;
    double open_s;
    enum dtype kv; /* the rig's */
};

/* `name`: SHAPE:TYPE. The file is written if it does not exist yet. layers: number of layers
 * instead of the shape's, or 0. decoder false: only the file and the device, for a tower. */
enum pv_status rig_model_open(struct rig_model *m, struct rig *r, const char *name, int layers,
                              bool decoder, struct pv_error *err);
/* The decoder scores the rig's draft vocabulary only, if there is one. */
enum pv_status rig_model_narrow(struct rig_model *m, const struct rig *r, struct pv_error *err);
void rig_model_close(struct rig_model *m);

/* Bytes that a step reads: weights for so many rows, and keys and values of so many slots. */
/* Experts count as often as rows that choose at random are expected to use them. */
double rig_weight_bytes(const struct rig_model *m, int rows);
double rig_kv_bytes(const struct rig_model *m, int slots);
/* Operations of n rows after `context` slots, of which `wanted` have logits. */
double rig_operations(const struct rig_model *m, int context, int n, int wanted);

/* ---- lanes ---- */

enum { LANE_TOP = 8 };

struct lane {
    const struct rig_model *m;
    struct decoder_state *state;
    struct kvcache kv;
    int max_rows;
    uint64_t turn;         /* counter for the ids, which differ from step to step */
    int32_t *ids;          /* [max_rows] */
    int32_t *best;         /* [max_rows] */
    int32_t (*pos)[3];     /* [2 max_rows]: of this step, and of the next */
    int *rows;             /* [max_rows]: 0, 1, 2, ... */
    struct top_entry *top; /* [max_rows, LANE_TOP] */
    float *mass;           /* [max_rows] */
};

/* A step of a lane: n rows, as a chain or by parents, after the cache. */
struct lane_rows {
    int n;
    int wanted;           /* number of last rows whose argmax is computed */
    const int *parent;    /* [pending + n], NULL: a chain */
    const int *depth;     /* [pending + n], with parents */
    int pending;          /* rows of earlier steps, see struct step_seq */
    const float *embeds;  /* [n, hidden], NULL: tokens */
    bool embeds_there;    /* on the device */
    bool bulk;            /* rows of a prompt */
    int next;             /* rows that the next step will have; 0: unknown */
    int top;              /* most likely tokens of each of these rows; 0: only the argmax */
    const int32_t *first; /* the id of the first row; NULL: random */
    int chain; /* number of rows after the last, each with the token that the row before chose
                  (wanted is 1 then); n + chain is at most max_rows */
    const struct step_tree *tree; /* NULL: none. Then `chain` levels, and at most max_rows rows of
                                     LANE_TOP tokens each; the results stay in the lane */
};

/* The cache is filled with random numbers and has length 0; lane_at sets its length. */
enum pv_status lane_open(struct lane *l, const struct rig_model *m, int context, int max_rows,
                         int max_logits, struct pv_error *err);
void lane_close(struct lane *l);
void lane_at(struct lane *l, int length);
enum pv_status lane_step(struct lane *l, const struct lane_rows *rows, struct pv_error *err);

/* Every element of a pool becomes a random number of its type, whatever the layout. */
enum pv_status rig_fill_pool(struct kvpool *pool, struct device *dev, enum dtype t,
                             struct pv_error *err);

/* The tree of 25 proposed tokens and its root: parents and depths of 26 rows. */
enum { TREE25_ROWS = 26 };
void tree25(int parent[TREE25_ROWS], int depth[TREE25_ROWS]);

/* ---- results ---- */

struct result {
    const char *model, *type, *test;
    int context, rows, samples;
    double ms, best_ms; /* per step, prefill or call; per token if simulated */
    double tokens;      /* tokens in that time; 0: none */
    double bytes, operations;
    size_t memory; /* bytes of the device in use */
    const char *note;
};

struct results {
    struct rig *rig;
    const char *csv; /* path; NULL: none */
    const char *machine, *date, *commit;
    struct peer_row *peer;
    int n_peer;
};

/* Results are appended to csv; peer: a CSV of peer_hf.py to compare with. Either may be NULL. */
enum pv_status results_open(struct results *r, struct rig *rig, const char *csv, const char *peer,
                            const char *commit, struct pv_error *err);
void results_close(struct results *r);
void results_head(const struct results *r, const char *title);
void results_row(const struct results *r, const struct result *x); /* to table and CSV */
void results_csv(const struct results *r, const struct result *x);
/* Milliseconds of the peer for the same test; 0 if it has none. */
double results_peer(const struct results *r, const struct result *x);

/* ---- tests ---- */

struct batch_plan {
    int sequences, rows; /* rows of each */
    bool tree;           /* else a chain */
};

struct plan {
    struct {
        int v[RIG_MAX_LIST];
        int n;
    } contexts, rows;
    int repeat, prefill, chunk;
    int frames, size, batch; /* towers: frames, side in pixels, frames per call (0: default) */
    int rounds;              /* of each simulated method */
    int gamma;               /* 0: as published */
    int by_level;            /* 1: the host asks for every level of a draft tree */
    struct batch_plan batches[RIG_MAX_LIST];
    int n_batches, batch_context;
    const char *methods; /* NULL: all */
};

enum pv_status test_decode(struct rig *r, const struct rig_model *m, const struct plan *p,
                           struct pv_error *err);
/* Tokens of a chain of 5, one after another and in one step. */
enum pv_status test_drafted(struct rig *r, const struct rig_model *m, const struct plan *p,
                            struct pv_error *err);
/* Steps of many sequences. */
enum pv_status test_batch(struct rig *r, const struct rig_model *m, const struct plan *p,
                          struct pv_error *err);
enum pv_status test_prefill(struct rig *r, const struct rig_model *m, const struct plan *p,
                            struct pv_error *err);
/* The tower of a model, and with a decoder (LLaVA) the time to the first token. */
enum pv_status test_tower(struct rig *r, const struct rig_model *m, const struct plan *p,
                          struct pv_error *err);
enum pv_status test_first_token(struct rig *r, const struct rig_model *m, const struct plan *p,
                                struct pv_error *err);
/* The audio encoder, one chunk at a time. */
enum pv_status test_audio_encoder(struct rig *r, const struct rig_model *m, const struct plan *p,
                                  struct pv_error *err);
/* The whole table of methods with a target and a drafter; `head` has one layer of the target's
 * width. Acceptance is drawn at random. */
enum pv_status test_simulate(struct rig *r, const struct rig_model *target,
                             const struct rig_model *draft, const struct rig_model *head,
                             const struct plan *p, struct pv_error *err);

/* Chains by acceptance at the plan's contexts. */
enum pv_status test_sweep(struct rig *r, const struct rig_model *target,
                          const struct rig_model *draft, const struct plan *p,
                          struct pv_error *err);

#endif
