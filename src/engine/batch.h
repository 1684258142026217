/* Batching: steps of one decoder that several tasks wait for are run together, and their times are
 * measured. Used by the scheduler only. */
#ifndef PV_ENGINE_BATCH_H
#define PV_ENGINE_BATCH_H

#include "lm/decoder.h"

#include <pthread.h>

/* A step that a task waits for. */
struct batch_part {
    const struct step *step;
    bool ran;              /* result: what follows is there */
    enum pv_status status; /* result */
    struct pv_error *err;  /* may be NULL */
};

/* Decaying sums over steps, for a linear fit of their time over their rows. */
struct step_line {
    double n, rows, rows2, time, rows_time;
};

struct batch {
    const struct decoder *dec;
    struct decoder_state *st;
    struct kvpool *pool;
    pthread_mutex_t *lock;     /* held while a step runs, */
    bool (*go_on)(void *user); /* and waited for as lock_take does; NULL: in any case */
    void *user;
    struct step_line line;        /* steps without rows of prompts */
    struct step_line prompt_line; /* what rows of prompts add to a step */
    double part_s, part_n;        /* decaying: seconds and parts of the steps of `line` */
    double decode_s;              /* all seconds so far without what rows of prompts added */
    int64_t steps, parts, rows;
};

/* Runs the parts in as few joint steps as possible, in order. Those for which the lock was not had
 * (go_on) have not run. */
void batch_run(struct batch *b, struct batch_part **parts, int n);

/* Predicted seconds of a step of this many decode rows; 0: not known. */
double batch_step_s(const struct batch *b, double rows);
/* Seconds that one more decode row adds; 0: not known. */
double batch_row_s(const struct batch *b);
/* Seconds of such a step divided by the tasks that share it; 0: not known. */
double batch_part_s(const struct batch *b);
/* Prompt rows that may join a step of `rows` decode rows: the step takes at most twice as long as
 * without them, but there are always enough of them to outweigh the fixed cost of a step. */
int batch_prompt_rows(const struct batch *b, int rows);

#endif
