/* Runs a batch: several clips at a time, each on a thread that decodes it and waits for its
 * answers; the engine generates these together. */
#ifndef PV_CLI_BATCH_RUN_H
#define PV_CLI_BATCH_RUN_H

#include "batch_output.h"
#include "prevue/prevue.h"

struct batch_run {
    const struct batch_list *list;
    struct batch_output *out;
    pv_engine *engine;
    const struct pv_gen_params *gen;
    const struct pv_video_params *video;
    const char *system, *prompt; /* NULL: none; the prompt of clips without one */
    bool no_thinking;
    const bool *skip; /* [list->n]: has a result, or belongs to another shard */
    int jobs;         /* clips at a time */
};

struct batch_counts {
    int wanted, answered, failed;
    int64_t tokens;
    double seconds;
};

/* Returns when all clips have a result, after an interrupt, or if a line could not be written. */
void batch_answer_all(const struct batch_run *b, struct batch_counts *counts);

#endif
