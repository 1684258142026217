/* Which part of a batch this process does: given, or by the environment of Slurm and Kubernetes. */
#ifndef PV_CLI_BATCH_SHARD_H
#define PV_CLI_BATCH_SHARD_H

#include <stdbool.h>
#include <stddef.h>

struct batch_shard {
    int index, of; /* index from 1 to `of` */
};

/* "2/8", or "/8" for the index of the environment, or NULL for the environment alone (1 of 1 where
 * that says nothing). Returns OPTIONS_RUN, or the status of a misuse, which has been reported. */
int batch_shard_find(struct batch_shard *s, const char *text);
/* "out.jsonl" becomes "out-2-of-8.jsonl" where there are several; false: too long. */
bool batch_shard_name(const struct batch_shard *s, const char *path, char *out, size_t size);

#endif
