/* A function that can be interrupted: it runs on a stack of its own until it yields, and goes on
 * from there when it is resumed. All of a fiber runs on one thread, so code of several fibers needs
 * no locks between its yields. */
#ifndef PV_BASE_FIBER_H
#define PV_BASE_FIBER_H

#include <stdbool.h>

struct fiber;

/* NULL: no memory for a stack. */
struct fiber *fiber_open(void (*run)(void *arg), void *arg);
/* Runs the fiber until it yields or its function returns. Not from inside itself. */
void fiber_resume(struct fiber *f);
/* From inside the fiber: returns when it is resumed the next time. */
void fiber_yield(struct fiber *f);
bool fiber_ended(const struct fiber *f);
/* Frees a fiber that has ended or was never resumed; NULL is fine. */
void fiber_close(struct fiber **f);

#endif
