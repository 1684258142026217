/* The ranks of a command: processes that run its model together. */
#ifndef PV_CLI_START_RANKS_H
#define PV_CLI_START_RANKS_H

#include "command.h"

/* The ranks that mpirun started, else n processes, else (n 0 or 1) none. Rank 0 returns, with *out
 * set or NULL: OPTIONS_RUN, or the status of a failure that has been reported. The others follow it
 * to its end, and exit. Calls after the first give the same ranks. */
int start_ranks(int n, const char *command, pv_ranks **out);

#endif
