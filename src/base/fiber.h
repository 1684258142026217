/* Fibers (coroutines): a function that runs on its own stack until it yields, and continues from
 * there when it is resumed. Fibers that are resumed by the same thread need no locks between their
 * yields. */
#ifndef PV_BASE_FIBER_H
#define PV_BASE_FIBER_H

#include <stdbool.h>

struct fiber;

/* NULL if there is no memory for a stack. */
struct fiber *fiber_open(void (*run)(void *arg), void *arg);
/* Run the fiber until it yields or its function returns. Must not be called by the fiber itself. */
void fiber_resume(struct fiber *f);
/* Called by the fiber's function: returns when the fiber is resumed. */
void fiber_yield(struct fiber *f);
/* Frees a fiber that has ended or was never resumed; NULL is fine. */
void fiber_close(struct fiber **f);

#endif
