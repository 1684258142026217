/* A sequence: the rows of a conversation (token ids, media, positions) and their keys and values in
 * the engine's pages. Owns both. */
#ifndef PV_ENGINE_SEQUENCE_H
#define PV_ENGINE_SEQUENCE_H

#include "engine/timeline.h"
#include "lm/kvcache.h"

struct sequence {
    struct timeline line;
    struct kvcache kv;     /* empty between answers: its pages are then the pool's */
    struct kv_key *digest; /* [context]: of the rows of the timeline that the cache holds */
    int kept_len;          /* rows that were given back and will be computed again */
    int32_t *kv_ids;       /* [context]: the rows that the states of a draft head are of, */
    int n_kv_ids;          /* and how many */
    int answer0;           /* the first row of the last answer */
    bool ways_differ;      /* rows of an answer have other bits than the same rows of a prompt */
};

/* Borrows the pool. */
enum pv_status sequence_open(struct sequence *q, struct kvpool *pool, int context, bool ways_differ,
                             struct pv_error *err);
void sequence_close(struct sequence *q);

/* Makes the digests of the timeline's rows. Returns how many rows at the beginning are those of the
 * last time. */
int sequence_name(struct sequence *q);
/* The rows of the timeline that the pool has, whoever computed them, are in the cache from now on;
 * returns how many. After sequence_name. */
int sequence_adopt(struct sequence *q, struct device_work *work);
/* The first n rows of the last step become part of the cache; of a tree those of `path`. `whole`:
 * they have been through all layers, so that others may have them. */
void sequence_commit(struct sequence *q, struct device_work *work, int n, const int *path,
                     bool whole);
/* The pages go back to the pool, which remembers what they hold. */
void sequence_release(struct sequence *q);
/* The same in the middle of an answer; then what the pool still has of those rows: kept_len says
 * how many there were. */
void sequence_give_back(struct sequence *q); /* also while they are computed again */
void sequence_restore(struct sequence *q, struct device_work *work);

#endif
