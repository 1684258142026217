/* The work of a session as a task of its engine. */
#ifndef PV_ENGINE_SESSION_TASK_H
#define PV_ENGINE_SESSION_TASK_H

#include "engine/session.h"

/* Runs `run` as a task of the engine. Meanwhile s->task is that task, and its pages can be given
 * back and computed again; in the end they go back to the pool, which remembers what they hold. */
enum pv_status session_run(struct pv_session *s,
                           enum pv_status (*run)(struct task *t, void *arg, struct pv_error *err),
                           void *call, struct pv_error *err);

#endif
