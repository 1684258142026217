/* The progress line of long phases, and interrupts: both live in the callbacks that the library
 * calls on its way. */
#ifndef PV_CLI_PROGRESS_H
#define PV_CLI_PROGRESS_H

#include "prevue/prevue.h"

/* One line on stderr, only where that is a terminal, written over itself. */
struct progress {
    bool terminal;
    int shown;        /* columns on the screen now */
    double last;      /* when it was written */
    int video, of_n;  /* which of how many videos is being decoded; of_n 1: not said */
    const char *name; /* borrowed; what is converted */
    char stage[96];   /* which part of a longer work this is; "": not said */
};

void progress_init(struct progress *p);
/* A pv_progress_fn whose `user` is the struct progress; false once an interrupt has come. */
bool progress_step(void *user, enum pv_phase phase, int64_t done, int64_t total);
/* Which part of a longer work comes now: shown at once, and before what progress_step says, until
 * the next. */
void progress_stage(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Any line, if the last one is old enough. */
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Take the line off the screen: before anything else is written to the terminal. */
void progress_clear(struct progress *p);

/* An interrupt (Ctrl-C) or SIGTERM ends the program at once, with status 130 or 143: for the whole
 * of it, as long as there is nothing to clear up. */
void exit_on_interrupt(void);
/* From now on the first one asks to stop, the second one ends the program. */
void catch_interrupt(void);
/* The same, but the n-th one ends the program; clear_interrupt begins to count again. */
void catch_interrupts(int n);
/* What an interrupt asked to stop has stopped; go on. */
void clear_interrupt(void);
/* Was it SIGINT, and not SIGTERM? */
bool interrupt_is_ctrl_c(void);
/* The exit status that an interrupt asks for: 128 and the signal's number; 0: there was none. */
int interrupted(void);

#endif
