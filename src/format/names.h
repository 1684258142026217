/* A sorted table of names, for lookup and for the detection of duplicates. */
#ifndef PV_FORMAT_NAMES_H
#define PV_FORMAT_NAMES_H

#include "format/vocab.h"

struct name_entry {
    struct str name; /* borrowed */
    int index;
};

struct names {
    struct name_entry *entry; /* owned */
    int n;
};

/* A table of n entries to be filled (entry[i] = { name, index }) and then sorted. */
enum pv_status names_open(struct names *t, int n, struct pv_error *err);
void names_close(struct names *t);
/* Sort the table. Returns a name that occurs twice, or NULL. */
const struct str *names_sort(struct names *t);
/* The index stored with a name, or -1. */
int names_find(const struct names *t, const char *name, size_t len);

/* Whether a name consists of printable ASCII without spaces, as keys and tensor names of GGUF
 * must. Keeps control characters of a hostile file out of our messages. */
bool name_is_plain(const char *s, size_t len);

#endif
