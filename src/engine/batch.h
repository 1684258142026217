/* The steps of one decoder that several tasks wait for, run together; and how long they take. Used
 * by the scheduler alone. */
#ifndef PV_ENGINE_BATCH_H
#define PV_ENGINE_BATCH_H

#include "lm/decoder.h"

#include <pthread.h>

/* A step that somebody waits for. */
struct batch_part {
    const struct step *step;
    enum pv_status status; /* brought back */
    struct pv_error *err;  /* may be NULL */
};

/* Fading sums over steps: their time as a line over their rows. */
struct step_line {
    double n, rows, rows2, time, rows_time;
};

struct batch {
    const struct decoder *dec;
    struct decoder_state *st;
    struct kvpool *pool;
    pthread_mutex_t *lock;        /* held while a step runs */
    struct step_line line;        /* steps without rows of prompts */
    struct step_line prompt_line; /* what rows of prompts add to a step */
    double part_s, part_n;        /* fading: seconds and parts of the steps of `line` */
    double decode_s;              /* all seconds so far without what rows of prompts added */
    int64_t steps, parts, rows;
};

/* Runs the parts in as few joint steps as possible, in order. */
void batch_run(struct batch *b, struct batch_part **parts, int n);

/* Seconds of a step of so many rows that are not of prompts; 0: not known. */
double batch_step_s(const struct batch *b, double rows);
/* Seconds that one more such row takes; 0: not known. */
double batch_row_s(const struct batch *b);
/* Seconds of such a step that fall to one of those who share it; 0: not known. */
double batch_part_s(const struct batch *b);
/* Rows of prompts that may run beside `rows` other rows: together they take at most twice as long
 * as those rows alone; but at least so many that half of their time is not the price of a step. */
int batch_prompt_rows(const struct batch *b, int rows);

#endif
