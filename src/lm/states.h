/* Hidden states of the rows in a KV cache, kept for a draft head. For the row before each token:
 * its features (the state after the last norm, or the residual stream after some layers). For media
 * rows, if requested: the residual stream after one layer. The states always cover a prefix of the
 * cache. */
#ifndef PV_LM_STATES_H
#define PV_LM_STATES_H

#include "lm/decoder.h"

#include <pthread.h>

/* States of one kind, in the order of the cache. */
struct state_list {
    int *place;                     /* [context]: index of a cache row in `rows`, -1: not kept */
    float *rows[HEAD_MAX_FEATURES]; /* [cap, hidden] of each feature */
    int n, cap, n_features;
};

struct states {
    int hidden, context;
    int n;                         /* rows [0, n) of the cache are covered */
    bool all;                      /* keep every row, not only those before a token */
    int layer;                     /* > 0: also keep media rows after this many layers */
    struct head_features features; /* which states of a row are kept */
    struct state_list post, mid;   /* features; media rows */
    int *rows[2];                  /* scratch of states_tap */
    int max_rows;                  /* of a step */
    pthread_mutex_t lock;
};

/* max_rows: most rows of a step. */
enum pv_status states_open(struct states *s, int context, int hidden, struct head_features features,
                           int max_rows, struct pv_error *err);
void states_close(struct states *s);
size_t states_size(const struct states *s);
/* Bytes of one row of which everything is kept. */
size_t states_row_size(int hidden, struct head_features features);
/* Floats of a row's features, which are stored one after another. */
size_t states_width(const struct states *s);

/* Set what is kept from now on. If that is more than before, all states are dropped. */
void states_want(struct states *s, bool all, int layer);
/* Drop rows from n on. */
void states_truncate(struct states *s, int n);
/* Floats that rows [s->n, n) of the timeline will need, and `more` tokens after them. */
size_t states_need(const struct states *s, const int32_t *ids, int n, int more);
/* Allocate memory for those. For further rows memory is allocated when they are added. */
enum pv_status states_reserve(struct states *s, const int32_t *ids, int n, int more,
                              struct pv_error *err);

/* Copy the states of rows [0, n) from `from`, which covers them and keeps at least as much. */
enum pv_status states_take(struct states *s, const struct states *from, int n,
                           struct pv_error *err);

enum { STATES_MAX_TAPS = HEAD_MAX_FEATURES + 1 };

/* Make taps for a step over rows [from, from + n) of the timeline ids[n_line]; call states_commit
 * when the step has run. Returns their number; 0 also if rows before `from` are not covered, or
 * there is no memory. */
int states_tap(struct states *s, const int32_t *ids, int n_line, int from, int n,
               struct hidden_tap tap[STATES_MAX_TAPS]);
void states_commit(struct states *s, const int32_t *ids, int n_line, int from, int n);
/* Make a decoding step return the features of its rows [0, n), all of which have logits, in `out`;
 * the rows of different features are `plane` floats apart. `rows` holds 0 .. n - 1; tap and rows
 * must live until the step has run. */
void states_ask(const struct states *s, struct step *step, int n, const int *rows, float *out,
                size_t plane, struct hidden_tap tap[STATES_MAX_TAPS]);
/* Add n rows of tokens after row `from` - 1: the features of the i-th are row path[i] of
 * `from_rows`, the output of states_ask. Does nothing if the rows before them are not covered. */
enum pv_status states_add(struct states *s, int from, const float *from_rows, size_t plane,
                          const int *path, int n, struct pv_error *err);

/* These two may be called while another thread adds: the number of covered rows, and the features
 * [states_width] of one of them. False: not kept. */
int states_known(struct states *s);
bool states_copy(struct states *s, int row, float *out);

/* The k-th feature of a row, and the state of a media row, [hidden]; NULL: not kept. */
const float *states_feature(const struct states *s, int row, int k);
const float *states_mid(const struct states *s, int row);

#endif
