/* The clips of a benchmark, from files, directories and lists. */
#ifndef PV_CLI_CLIPS_H
#define PV_CLI_CLIPS_H

#include "options.h"

enum { MAX_CLIPS = 65536 };

struct clip {
    char *path;         /* owned */
    char *prompt;       /* owned; NULL: no prompt of its own. Includes the options, if any */
    char *options;      /* owned; NULL: none. n_options strings, each with a final NUL */
    int n_options, key; /* key: the right option; -1: unknown */
};

struct clips {
    struct clip *items; /* [n], owned */
    int n, cap;
};

/* Each source is a video or picture, a directory (its videos, sorted by name) or a list: a file
 * whose name ends in .jsonl, with paths relative to the list's directory. A prepared prompt (.pvin)
 * counts as a video; those of a directory are used if it has no videos. Reports an error and
 * returns false on failure. */
bool clips_read(struct clips *c, const struct arg_list *sources);
void clips_clear(struct clips *c);
/* The path of an entry, resolved relative to the list's directory, in new memory (mem_free); NULL:
 * out of memory. */
char *clips_place(const char *list, const char *path);
/* Whether all of them are prepared prompts. */
bool clips_prepared(const struct clips *c);

#endif
