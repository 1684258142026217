/* A few threads for work that would block the event loop: parsing bodies, decoding media,
 * submitting requests. */
#ifndef PV_SERVER_WORKERS_H
#define PV_SERVER_WORKERS_H

#include "serve_loop.h"

struct workers;

/* One piece of work; embed it in the object it belongs to. `run` is called on a worker thread, then
 * `done.run` on the loop's thread. */
struct work {
    struct work *next;
    void (*run)(struct work *w);
    struct loop_task done;
};

enum pv_status workers_open(struct workers **out, struct loop *loop, int threads,
                            struct pv_error *err);
/* Waits until all work that was added is done. */
void workers_close(struct workers **workers);
void workers_add(struct workers *w, struct work *work);

#endif
