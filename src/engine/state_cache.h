/* Hidden states of prompts and answers that have been run, for draft heads: a request that begins
 * with rows of an earlier one finds their keys and values in the KV pages, and their states here.
 * Few prompts are remembered, the ones used last. On the scheduler's thread. */
#ifndef PV_ENGINE_STATE_CACHE_H
#define PV_ENGINE_STATE_CACHE_H

#include "lm/states.h"

struct state_cache;

/* limit: bytes of all states. NULL: no memory. */
struct state_cache *state_cache_open(uint64_t limit);
void state_cache_close(struct state_cache **c);

/* Copies the states of rows with these digests; without memory they are not kept. */
void state_cache_keep(struct state_cache *c, const struct kv_key *rows, const struct states *s);
/* The states of as many of rows [n] as are known, where those are more than s knows. */
void state_cache_find(struct state_cache *c, const struct kv_key *rows, int n, struct states *s);

#endif
