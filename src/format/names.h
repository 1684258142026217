/* A sorted table of names, to find one and to see that none is there twice. */
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
/* Sort; the name that occurs twice, or NULL. */
const struct str *names_sort(struct names *t);
/* The index stored with a name, -1 when it is not there. */
int names_find(const struct names *t, const char *name, size_t len);

/* Printable ASCII without space: what keys and tensor names of GGUF are made of. Keeps control
 * characters of a hostile file out of our messages. */
bool name_is_plain(const char *s, size_t len);

#endif
