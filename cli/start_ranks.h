/* The ranks of a command: processes that run its model together. */
#ifndef PV_CLI_START_RANKS_H
#define PV_CLI_START_RANKS_H

#include "command.h"

/* Use the ranks that mpirun started; else start n processes; else (n 0 or 1) none. n_draft more
 * processes are for the draft model. Only rank 0 returns: OPTIONS_RUN with *out set or NULL, or the
 * exit status of a failure, which is reported. The other ranks serve rank 0 and then exit. Later
 * calls return the same ranks. */
int start_ranks(int n, int n_draft, const char *command, pv_ranks **out);
/* The ranks of the draft model; NULL: none were started. */
pv_ranks *draft_ranks(void);

#endif
