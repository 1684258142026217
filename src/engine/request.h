/* The inside of a request: for tests that look at its KV pages and its task. */
#ifndef PV_ENGINE_REQUEST_H
#define PV_ENGINE_REQUEST_H

#include "engine/session.h"

/* The session that it answers in. */
struct pv_session *request_session(const struct pv_request *r);
struct task *request_task(const struct pv_request *r);

#endif
