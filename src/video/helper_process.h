/* Starts and ends the helper program, and exchanges messages with it. */
#ifndef PV_VIDEO_HELPER_PROCESS_H
#define PV_VIDEO_HELPER_PROCESS_H

#include "base/status.h"

#include <stddef.h>
#include <sys/types.h>

struct helper_process {
    pid_t pid;  /* 0: none */
    int socket; /* preserves message boundaries; -1: none */
};

/* Find prevue-media: in the directory of the running program, in ../libexec/prevue relative to it,
 * or in the directory configured at build time. False if it is in none of these. */
bool helper_find(char *path, size_t size);
/* Start the program with `file` as descriptor 3, the socket as 4 and /dev/null as 0 to 2. Of the
 * environment it gets only the variables of the dynamic linker and of sanitizers. */
enum pv_status helper_start(struct helper_process *h, const char *program, int file,
                            struct pv_error *err);
/* Send a message, with the descriptor `fd` attached unless it is negative. Whether it arrives shows
 * with the next message or the end. */
void helper_send(const struct helper_process *h, const void *message, size_t size, int fd);
/* Wait up to `ms` milliseconds for a message or the end. False: there was neither. */
bool helper_wait(const struct helper_process *h, int ms);
/* Receive a message. Returns its size, which is larger than `size` if only its beginning fitted; 0
 * or less: the helper has ended. */
ssize_t helper_receive(const struct helper_process *h, void *message, size_t size);
/* Wait for the program to end; kill_it: kill it first. *status is that of waitpid, or -1 if another
 * part of the process has waited for it already. */
void helper_end(struct helper_process *h, bool kill_it, int *status);

#endif
