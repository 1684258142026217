/* A helper program and the socket to it. */
#ifndef PV_VIDEO_HELPER_PROCESS_H
#define PV_VIDEO_HELPER_PROCESS_H

#include "base/status.h"

#include <sys/types.h>

struct helper_process {
    pid_t pid;  /* 0: none */
    int socket; /* of messages; -1: none */
};

/* Where prevue-media is: beside the running program, in ../libexec/prevue, or where it was to be
 * installed. False: in none of these. */
bool helper_find(char *path, size_t size);
/* Starts the program with `file` as descriptor 3 and the socket as 4, and /dev/null before these.
 * It gets no variables of the environment but those of the dynamic linker and of sanitizers. */
enum pv_status helper_start(struct helper_process *h, const char *program, int file,
                            struct pv_error *err);
/* Kills it if it still runs, and waits for it. *status is what waitpid gives; -1: somebody else has
 * waited for it. */
void helper_end(struct helper_process *h, bool kill_it, int *status);

#endif
