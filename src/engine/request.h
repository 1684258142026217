/* Access to a request's session and task, for tests. */
#ifndef PV_ENGINE_REQUEST_H
#define PV_ENGINE_REQUEST_H

#include "engine/session.h"

/* The session in which it is answered. */
struct pv_session *request_session(const struct pv_request *r);
struct task *request_task(const struct pv_request *r);

#endif
