/* A queue of token ids between two threads: a producer (drafter) that works ahead, and a consumer
 * (verifier) that may invalidate what was produced.
 *
 * The producer works in epochs. An epoch begins at a position: the tokens before it are final, and
 * the producer continues after them. The consumer can end an epoch at any time by naming a new
 * position. Tokens of the old epoch are then never delivered, and the producer notices at its next
 * call. The queue does not carry the tokens before the position: whatever the consumer wrote before
 * ring_restart (for example into an array that only grows) is visible to the producer after
 * ring_start.
 *
 * Passing a token and testing for a new epoch take no lock. A side that has to wait yields its
 * processor a few times and then sleeps. One producer, one consumer. */
#ifndef PV_BASE_RING_H
#define PV_BASE_RING_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ring;

enum { RING_MAX = 1024 }; /* capacity in tokens */

enum ring_state {
    RING_OK,
    RING_LOST,   /* the epoch is over: call ring_start and begin again */
    RING_STOPPED /* the answer is complete, or the other side has failed */
};

struct ring_start {
    uint32_t epoch;
    int32_t position;
};

/* A queue of up to `limit` tokens, 1 to RING_MAX; its first epoch begins at `position`. */
enum pv_status ring_open(struct ring **out, int limit, int position, struct pv_error *err);
/* Call it when neither side uses the ring any more. */
void ring_close(struct ring **ring);

/* Producer: where the current epoch began. */
struct ring_start ring_start(const struct ring *r);
/* Producer: whether this epoch is over. One atomic load, so it may be called often. */
bool ring_lost(const struct ring *r, uint32_t epoch);
/* Producer: append a token, waiting for space. If the result is not RING_OK, it was not added. */
enum ring_state ring_push(struct ring *r, uint32_t epoch, int32_t id);
/* Producer: no more tokens in this epoch; wait for the next one. Never returns RING_OK. */
enum ring_state ring_rest(struct ring *r, uint32_t epoch);

/* Consumer: take up to `most` tokens of this epoch, in order, waiting until there are `least` (at
 * most `most` and the limit; 0: do not wait). Returns the number, which is less than `least` if the
 * producer called ring_rest or the ring is stopped. */
int ring_take(struct ring *r, int32_t *ids, int least, int most);
/* Consumer: drop all tokens that were not taken and start an epoch after `position` tokens. */
void ring_restart(struct ring *r, int position);
/* From now on the producer waits when the queue holds `limit` tokens; 1 to RING_MAX. */
void ring_limit(struct ring *r, int limit);

/* Any thread: end all waiting, now and later. */
void ring_stop(struct ring *r);
bool ring_stopped(const struct ring *r);

#endif
