/* The results of a batch: a JSONL file to which one line per clip is appended. Every line ends with
 * hashes of itself, of its input and of the options, so that a run that was killed can be
 * continued, and results of other inputs or options are never mixed in. */
#ifndef PV_CLI_BATCH_OUTPUT_H
#define PV_CLI_BATCH_OUTPUT_H

#include "batch_list.h"

#include <pthread.h>

struct batch_output {
    const char *path; /* borrowed */
    int fd;
    char settings[BATCH_HASH + 1];
    pthread_mutex_t lock;
    bool failed; /* a line could not be written, which has been reported */
};

/* Open the file and lock it for this run. done [list->n] is set for clips that have a result; of
 * these results, *n_failed are errors. An incomplete last line, left by a killed run or a power
 * failure, and blank lines are removed; with `retry`, lines with errors are removed too. Reports an
 * error and returns false if it is another kind of file, or holds the results of other clips or
 * options. */
bool batch_output_open(struct batch_output *o, const char *path, const struct batch_list *list,
                       const char *settings, bool retry, bool *done, int *n_failed);
/* Append the line of clip i. `members`: the members of its JSON object, without braces. May be
 * called from any thread. False: nothing was written. */
bool batch_output_add(struct batch_output *o, const struct batch_list *list, int i,
                      const struct buf *members);
void batch_output_close(struct batch_output *o);

#endif
