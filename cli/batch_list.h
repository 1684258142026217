/* The list of a batch: a JSONL file with one clip per line. The text is kept in memory; a line is
 * parsed when it is needed. */
#ifndef PV_CLI_BATCH_LIST_H
#define PV_CLI_BATCH_LIST_H

#include "base/buf.h"

enum { BATCH_HASH = 16 }; /* hexadecimal digits */

struct batch_list {
    const char *path; /* borrowed */
    struct buf text;
    size_t *at;  /* [n]: offset of each line */
    int *len;    /* [n]: its bytes, without the newline */
    int *number; /* [n]: its number in the file, from 1 */
    int n;       /* lines that are not blank */
};

/* Reports an error and returns false if the file cannot be read or is not a list. */
bool batch_list_read(struct batch_list *l, const char *path);
void batch_list_clear(struct batch_list *l);
/* Whether line[0..len) is nothing but blanks; such lines of lists and results mean nothing. */
bool batch_line_is_blank(const char *line, size_t len);
/* A short hash of text[0..len), in hexadecimal. */
void batch_hash(char out[BATCH_HASH + 1], const char *text, size_t len);
/* The index of a line by its number in the file; -1: there is none. */
int batch_list_find(const struct batch_list *l, long long number);

#endif
