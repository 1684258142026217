/* Which part of a batch this process handles: from an option, or from the environment variables of
 * Slurm and Kubernetes. */
#ifndef PV_CLI_BATCH_SHARD_H
#define PV_CLI_BATCH_SHARD_H

#include <stdbool.h>
#include <stddef.h>

struct batch_shard {
    int index, of; /* index from 1 to `of` */
};

/* text: "2/8"; or "/8", the index is taken from the environment; or NULL, both are (1 of 1 if it
 * says nothing). Returns OPTIONS_RUN, or reports a misuse and returns its exit status. */
int batch_shard_find(struct batch_shard *s, const char *text);
/* If there are several shards, "out.jsonl" becomes "out-2-of-8.jsonl". False: too long. */
bool batch_shard_name(const struct batch_shard *s, const char *path, char *out, size_t size);

#endif
