/* The fields of pv_engine: what all requests for one model share. */
#ifndef PV_ENGINE_ENGINE_H
#define PV_ENGINE_ENGINE_H

#include "engine/disk_identity.h"
#include "engine/encoder.h"
#include "engine/model.h"
#include "engine/scheduler.h"
#include "engine/shared_media.h"
#include "engine/state_cache.h"
#include "engine/vision_cache.h"
#include "spec/drafter_kind.h"
#include "spec/policy.h"
#include "spec/price.h"

#include <stdatomic.h>

/* Shared by drafters that run the same decoder; opened when first used. */
struct draft_engine {
    struct kvpool *pool;
    struct decoder_state *state; /* NULL: the target's */
    struct batch *batch;         /* NULL: not open */
    size_t size;
};

/* What `auto` has learnt from earlier answers. */
struct auto_memory {
    struct policy policy; /* of the answer that ended last */
    bool answered;
    double short_share; /* of answers too short for a drafter; decays */
};

struct pv_engine {
    struct pv_model *model, *draft; /* borrowed; draft NULL: no draft model */
    bool speculates;
    int context, chunk, max_requests;
    enum dtype kv;
    struct kvpool *pool;
    struct decoder_state *state;
    struct decoder_state *lane_state; /* for prompts in parallel with answers; NULL: none */
    struct encoder *encoder;          /* NULL: no vision tower. Protected by model->step_lock */
    atomic_size_t tower_bytes;        /* held by `encoder` */
    struct vision_cache *tower_rows;  /* rows that it computed; NULL: no vision tower */
    struct media_cache *media;        /* media used last; NULL: not kept */
    atomic_llong decoded, media_hits; /* files decoded, and those found in `media` */
    struct state_cache *states;       /* for draft heads; NULL: the model has none */
    struct engine_disk disk;
    struct scheduler *scheduler;
    struct batch *target;
    struct draft_engine drafts[DRAFTER_DECODERS];
    /* Statistics of the rounds of all sessions with each drafter, for fitted trees and `auto`. Used
     * by the scheduler's thread only. */
    struct price_book book[PV_DRAFT_COUNT][PRICE_BOOKS];
    struct auto_memory learnt[PV_DRAFT_COUNT][PRICE_BOOKS]; /* likewise */
    uint64_t vision_bytes, media_bytes;                     /* limits of `tower_rows`, `media` */
    atomic_size_t fixed_bytes;                              /* pools and scratch */
    atomic_uint_least64_t session_bytes;
    atomic_uint_least64_t last_session; /* number of the last session opened */
};

/* Rows of the largest step of the target; also the most rows whose logits a step computes. */
int engine_rows(const struct pv_engine *e);

/* The decoder of this kind; NULL: the engine has none. */
const struct decoder *engine_decoder(const struct pv_engine *e, enum drafter_decoder which);
/* Bytes that engine_drafts will allocate; 0 if it is open. */
size_t engine_drafts_size(const struct pv_engine *e, enum drafter_decoder which);
/* What drafters of this decoder share; opened if necessary. Call it on the scheduler's thread. */
enum pv_status engine_drafts(struct pv_engine *e, enum drafter_decoder which,
                             struct draft_engine **out, struct pv_error *err);

#endif
