/* A cache of hidden states of earlier prompts and answers, for draft heads: a request that begins
 * with the rows of an earlier one finds their keys and values in KV pages, and their states here.
 * It holds a few prompts, those used last. Used on the scheduler's thread only. */
#ifndef PV_ENGINE_STATE_CACHE_H
#define PV_ENGINE_STATE_CACHE_H

#include "lm/states.h"

struct state_cache;

/* Bytes that so many rows need. */
uint64_t state_cache_size(int64_t rows, int hidden, struct head_features features);
/* limit: bytes of all states. NULL: no memory. */
struct state_cache *state_cache_open(uint64_t limit);
void state_cache_close(struct state_cache **c);

/* Copy the states of rows with these digests; does nothing if memory is missing. */
void state_cache_keep(struct state_cache *c, const struct kv_key *rows, const struct states *s);
/* Put the states of the longest known prefix of rows [n] into s, if that is more than s covers. */
void state_cache_find(struct state_cache *c, const struct kv_key *rows, int n, struct states *s);

#endif
