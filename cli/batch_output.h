/* The results of a batch: a JSONL file to which one line is added for each clip. Every line ends in
 * a hash of itself, of its input and of the options, so that a run that was killed goes on where it
 * was, and never with results of something else. */
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

/* Opens the file and locks it for this run. done [list->n]: the clips whose results are there
 * already are set; of these, *n_failed are errors. Half a line at the end, which a killed run has
 * left, is cut off; with `retry` lines with errors are removed too. False when it is another kind
 * of file or holds the results of other clips or options, which has been reported. */
bool batch_output_open(struct batch_output *o, const char *path, const struct batch_list *list,
                       const char *settings, bool retry, bool *done, int *n_failed);
/* Adds the line of clip i: members without the first brace and without an end. Any thread. False:
 * not written, and nothing of it is there. */
bool batch_output_add(struct batch_output *o, const struct batch_list *list, int i,
                      const struct buf *members);
void batch_output_close(struct batch_output *o);

#endif
