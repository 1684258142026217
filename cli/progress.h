/* The progress line of long phases, and interrupts: both are handled in callbacks that the library
 * makes while it works. */
#ifndef PV_CLI_PROGRESS_H
#define PV_CLI_PROGRESS_H

#include "prevue/prevue.h"

/* One line on stderr that is overwritten again and again, only if stderr is a terminal. */
struct progress {
    bool terminal;
    int shown;        /* columns on the screen now */
    double last;      /* when it was written */
    int video, of_n;  /* which of how many videos is being decoded; not shown if of_n is 1 */
    const char *name; /* borrowed; what is converted */
    char stage[96];   /* which part of a longer job this is; "": not shown */
};

void progress_init(struct progress *p);
/* A pv_progress_fn whose `user` is the struct progress; returns false after an interrupt. */
bool progress_step(void *user, enum pv_phase phase, int64_t done, int64_t total);
/* Set the current part of a longer job: shown at once, and before the text of progress_step. */
void progress_stage(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Show any line, unless the last one was shown a moment ago. */
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Remove the line from the screen; call it before anything else is written to the terminal. */
void progress_clear(struct progress *p);

/* An interrupt (Ctrl-C) or SIGTERM ends the program at once, with status 130 or 143. For programs
 * and phases that have nothing to clean up. */
void exit_on_interrupt(void);
/* From now on the first interrupt requests a stop, the second one ends the program. */
void catch_interrupt(void);
/* The same, but the n-th one ends the program; clear_interrupt restarts the count. */
void catch_interrupts(int n);
/* The requested stop has happened; continue. */
void clear_interrupt(void);
/* Whether the signal was SIGINT, not SIGTERM. */
bool interrupt_is_ctrl_c(void);
/* The exit status for an interrupt: 128 plus the signal's number; 0: there was none. */
int interrupted(void);

#endif
