/* A sequence: the rows of a conversation (token ids, media, positions) and their keys and values in
 * the engine's pages. Owns both. */
#ifndef PV_ENGINE_SEQUENCE_H
#define PV_ENGINE_SEQUENCE_H

#include "engine/timeline.h"
#include "lm/kvcache.h"

struct sequence {
    struct timeline line;
    struct kvcache kv;     /* empty between answers: its pages are returned to the pool then */
    struct kv_key *digest; /* [context]: of the timeline's rows */
    int kept_len;          /* rows that the cache held before its pages were taken away */
    int32_t *kv_ids;       /* [context]: ids of the rows that the draft head's states cover */
    int n_kv_ids;
    int answer0;      /* first row of the last answer */
    bool ways_differ; /* rows of an answer have other bits than the same rows of a prompt */
};

/* Borrows the pool. */
enum pv_status sequence_open(struct sequence *q, struct kvpool *pool, int context, bool ways_differ,
                             struct pv_error *err);
void sequence_close(struct sequence *q);

/* Compute the digests of the timeline's rows. Returns how many leading rows are the same as at the
 * last call. */
int sequence_name(struct sequence *q);
/* Put the longest prefix of the timeline that is published in the pool, by any sequence, into the
 * cache; returns its length. Call it after sequence_name. */
int sequence_adopt(struct sequence *q, struct device_work *work);
/* Commit the first n rows of the last step; for a tree, the rows `path`. whole: they have passed
 * all layers, so the pages may be published. */
void sequence_commit(struct sequence *q, struct device_work *work, int n, const int *path,
                     bool whole);
/* Publish the pages and return them to the pool. */
void sequence_release(struct sequence *q);
/* The same in the middle of an answer, or while pages are computed again; kept_len records how many
 * rows there were. sequence_restore takes what the pool still has of them. */
void sequence_give_back(struct sequence *q);
void sequence_restore(struct sequence *q, struct device_work *work);

#endif
