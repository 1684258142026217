/* A few threads for what would hold the loop up: parsing bodies, decoding media, submitting
 * requests. */
#ifndef PV_SERVER_WORKERS_H
#define PV_SERVER_WORKERS_H

#include "serve_loop.h"

struct workers;

/* One piece of work; embedded in what it is about. `run` is called on a worker, then `done.run` on
 * the loop's thread. */
struct work {
    struct work *next;
    void (*run)(struct work *w);
    struct loop_task done;
};

enum pv_status workers_open(struct workers **out, struct loop *loop, int threads,
                            struct pv_error *err);
/* Finishes what was added. */
void workers_close(struct workers **workers);
void workers_add(struct workers *w, struct work *work);

#endif
