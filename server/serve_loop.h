/* The server's event loop: one thread that waits for sockets, for results of other threads, and for
 * signals. */
#ifndef PV_SERVER_SERVE_LOOP_H
#define PV_SERVER_SERVE_LOOP_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>

struct loop;

/* A function to call on the loop's thread. Embed it in the object it belongs to; zero all fields
 * except `run`. */
struct loop_task {
    struct loop_task *next;
    bool queued; /* under the loop's lock */
    void (*run)(struct loop_task *t);
};

enum pv_status loop_open(struct loop **out, struct pv_error *err);
void loop_close(struct loop **loop);

/* From any thread: run the task soon, once, even if it is posted several times before that. */
void loop_post(struct loop *l, struct loop_task *t);
/* From the loop's thread: cancel a posted task. */
void loop_cancel(struct loop *l, struct loop_task *t);

/* Wake up when this descriptor can be read. */
bool loop_watch_input(struct loop *l, int fd);
/* Call fn(user), once, when the other end of the socket closes its side. */
void loop_watch_hangup(struct loop *l, int fd, void (*fn)(void *user), void *user);
void loop_unwatch(struct loop *l, int fd, void *user);

/* Wait at most `seconds` for events and handle them. */
void loop_run(struct loop *l, double seconds);

#endif
