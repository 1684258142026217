/* Token ids from one thread, which makes them ahead of need, to another, which takes them and may
 * find that they are lost.
 *
 * The maker works in epochs. An epoch begins at a position: the tokens before it stand, the maker
 * goes on behind them. The taker ends an epoch at any time by naming a new position; what was made
 * in the old one is never handed out, and the maker learns of it at its next look. The tokens
 * before the position are not sent: whatever the taker wrote before ring_restart (an array that
 * only grows, say) the maker may read up to that position after ring_start.
 *
 * Passing a token or looking takes no lock. Who has to wait looks a few times, letting others run
 * in between, and then sleeps. One maker, one taker. */
#ifndef PV_BASE_RING_H
#define PV_BASE_RING_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct ring;

enum { RING_MAX = 1024 }; /* tokens in a ring */

enum ring_state {
    RING_OK,
    RING_LOST,   /* the epoch is over: begin again at ring_start */
    RING_STOPPED /* nothing more is wanted, or the other side has failed */
};

struct ring_start {
    uint32_t epoch;
    int32_t position;
};

/* A ring in which up to `limit` tokens lie, 1 to RING_MAX; its first epoch begins at `position`. */
enum pv_status ring_open(struct ring **out, int limit, int position, struct pv_error *err);
/* When neither side uses it any more. */
void ring_close(struct ring **ring);

/* The maker's side. Where the epoch began that holds now. */
struct ring_start ring_start(const struct ring *r);
/* Whether work for this epoch is in vain: one load, to be asked as often as one likes. */
bool ring_lost(const struct ring *r, uint32_t epoch);
/* The next token of the epoch, when there is room; anything but RING_OK: it was not taken. */
enum ring_state ring_push(struct ring *r, uint32_t epoch, int32_t id);
/* No more tokens in this epoch: wait for the next one. Never RING_OK. */
enum ring_state ring_rest(struct ring *r, uint32_t epoch);

/* The taker's side. Up to `most` tokens of this epoch in the order in which they were made, waiting
 * until there are `least` (at most `most` and the limit; 0: no waiting). Fewer than `least` when
 * the maker rests or the ring is stopped. Returns how many. */
int ring_take(struct ring *r, int32_t *ids, int least, int most);
/* All that was made and not taken is lost: go on behind `position` tokens. */
void ring_restart(struct ring *r, int position);
/* From now on the maker waits when so many tokens lie in the ring; 1 to RING_MAX. */
void ring_limit(struct ring *r, int limit);

/* Either side, or a third thread: all waiting ends, now and later. */
void ring_stop(struct ring *r);
bool ring_stopped(const struct ring *r);

#endif
