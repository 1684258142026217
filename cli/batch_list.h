/* The list of a batch: a JSONL file in memory, one clip a line, read when its turn comes. */
#ifndef PV_CLI_BATCH_LIST_H
#define PV_CLI_BATCH_LIST_H

#include "base/buf.h"

enum { BATCH_HASH = 16 }; /* hexadecimal digits */

struct batch_list {
    const char *path; /* borrowed */
    struct buf text;
    size_t *at;  /* [n]: where each line begins, */
    int *len;    /* and its bytes, without the end of the line; */
    int *number; /* its number in the file, from 1 */
    int n;       /* of lines that are not blank */
};

/* False when it cannot be read or is no list, which has been reported. */
bool batch_list_read(struct batch_list *l, const char *path);
void batch_list_clear(struct batch_list *l);
/* Names the bytes of text[0..len). */
void batch_hash(char out[BATCH_HASH + 1], const char *text, size_t len);
/* The index of a line by its number in the file; -1: there is none. */
int batch_list_find(const struct batch_list *l, long long number);

#endif
