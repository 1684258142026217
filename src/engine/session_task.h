/* Runs the work of a session as a task of its engine. */
#ifndef PV_ENGINE_SESSION_TASK_H
#define PV_ENGINE_SESSION_TASK_H

#include "engine/session.h"

/* Queue a task for the session, one at a time. While it runs, s->task is set, and its pages can be
 * taken away and computed again; at its end they are published and returned to the pool. */
enum pv_status session_submit(struct pv_session *s, struct task **out,
                              const struct session_call *call, struct pv_error *err);
/* The same, and waits for its end. */
enum pv_status session_run(struct pv_session *s, enum pv_status (*fn)(void *arg, struct pv_error *),
                           void *arg, struct pv_error *err);

#endif
