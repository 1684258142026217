/* Hidden states of the rows that a KV cache holds, kept for a draft head: of tokens, the features
 * of the row before each (the state after the last norm, or the residual stream after some layers);
 * of media, where somebody wants it, the residual stream after some layer. They follow the cache:
 * what is known is a prefix of it. */
#ifndef PV_LM_STATES_H
#define PV_LM_STATES_H

#include "lm/decoder.h"

#include <pthread.h>

/* Rows of one kind, in the order of the cache. */
struct state_list {
    int *place;                     /* [context]: of a row in `rows`, -1: not kept */
    float *rows[HEAD_MAX_FEATURES]; /* [cap, hidden] of each feature */
    int n, cap, n_features;
};

struct states {
    int hidden, context;
    int n;                         /* rows [0, n) of the cache are known */
    bool all;                      /* of every row, not only of those before a token */
    int layer;                     /* > 0: the residual stream of media after so many layers too */
    struct head_features features; /* of a row that is kept */
    struct state_list post, mid;   /* rows of those, and of media */
    int *rows[2];                  /* scratch of states_tap */
    int max_rows;                  /* of a step */
    pthread_mutex_t lock;
};

/* max_rows: of one step. */
enum pv_status states_open(struct states *s, int context, int hidden, struct head_features features,
                           int max_rows, struct pv_error *err);
void states_close(struct states *s);
size_t states_size(const struct states *s);
/* Floats of a row's features: one after another. */
size_t states_width(const struct states *s);

/* What is to be kept from now on; when that is more than was kept so far, all is forgotten. */
void states_want(struct states *s, bool all, int layer);
/* Forget rows from n on. */
void states_truncate(struct states *s, int n);
/* Floats that rows [s->n, n) of the timeline will take, and `more` tokens behind them. */
size_t states_need(const struct states *s, const int32_t *ids, int n, int more);
/* Room for those. Memory for rows that come later is found when they come. */
enum pv_status states_reserve(struct states *s, const int32_t *ids, int n, int more,
                              struct pv_error *err);

/* The states of rows [0, n) become those of `from`, which knows them and kept as much of them. */
enum pv_status states_take(struct states *s, const struct states *from, int n,
                           struct pv_error *err);

enum { STATES_MAX_TAPS = HEAD_MAX_FEATURES + 1 };

/* Taps for a step over rows [from, from + n) of the timeline ids[n_line], to be committed when it
 * has run. Returns how many; 0, also when rows before `from` are not known, or there is no room. */
int states_tap(struct states *s, const int32_t *ids, int n_line, int from, int n,
               struct hidden_tap tap[STATES_MAX_TAPS]);
void states_commit(struct states *s, const int32_t *ids, int n_line, int from, int n);
/* Asks a step of decoding for the features of its rows [0, n), all of which logits are wanted of.
 * They go to `out`, `plane` floats from one feature's rows to the next's. `rows` holds 0 .. n - 1;
 * tap and rows live until the step has run. */
void states_ask(const struct states *s, struct step *step, int n, const int *rows, float *out,
                size_t plane, struct hidden_tap tap[STATES_MAX_TAPS]);
/* Rows of tokens that follow row `from` - 1, and their features: row path[i] of `from_rows`, which
 * states_ask has asked for, is the i-th. Nothing is done when rows before them are not known. */
enum pv_status states_add(struct states *s, int from, const float *from_rows, size_t plane,
                          const int *path, int n, struct pv_error *err);

/* While one thread adds, another may ask these two: how many rows are known, and what are the
 * features of one of them, [states_width]. False: not kept. */
int states_known(struct states *s);
bool states_copy(struct states *s, int row, float *out);

/* The k-th feature of a row, and a row of media, [hidden]; NULL: not kept. */
const float *states_feature(const struct states *s, int row, int k);
const float *states_mid(const struct states *s, int row);

#endif
