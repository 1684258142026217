/* The clips of a benchmark, from files, directories and lists. */
#ifndef PV_CLI_CLIPS_H
#define PV_CLI_CLIPS_H

#include "options.h"

enum { MAX_CLIPS = 65536 };

struct clip {
    char *path;         /* owned */
    char *prompt;       /* owned; NULL: none of its own. With options: these are in it */
    char *options;      /* owned; NULL: none. n_options strings, each with a NUL behind it */
    int n_options, key; /* the right one; -1: it is not known */
};

struct clips {
    struct clip *items; /* [n], owned */
    int n, cap;
};

/* Each source is a video or picture, a directory (its videos, by name) or a list: a file whose name
 * ends in .jsonl, with paths that begin at the list's place. False when that fails, which has been
 * reported. A prepared prompt (.pvin) stands for a video too; of a directory these are taken when
 * it has no videos. */
bool clips_read(struct clips *c, const struct arg_list *sources);
void clips_clear(struct clips *c);
/* A path of a list begins where the list lies: it in fresh memory (mem_free); NULL: there is none.
 */
char *clips_place(const char *list, const char *path);
/* Are all of them prepared prompts? */
bool clips_prepared(const struct clips *c);

#endif
