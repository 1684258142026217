/* The table of drafters. Each drafter describes itself in one row: how it is opened, what it needs
 * and what it can do. The rest of the program asks for these properties and never for a particular
 * drafter, so a new drafter is a file with its row, an enumerator and an entry in drafter_kind.c.
 */
#ifndef PV_SPEC_DRAFTER_KIND_H
#define PV_SPEC_DRAFTER_KIND_H

#include "spec/drafter.h"

struct head_config;

/* The decoder whose steps make a drafter's tokens. */
enum drafter_decoder {
    DRAFTER_RUNS_NOTHING, /* it computes nothing that needs a device */
    DRAFTER_RUNS_DRAFT,   /* that of the draft model */
    DRAFTER_RUNS_TARGET,  /* that of the target */
    DRAFTER_RUNS_HEAD,    /* that of the target's draft head */
    DRAFTER_DECODERS
};

/* What a session has to open a drafter with. The drafter borrows all of it but `answer`, which it
 * copies. */
struct drafter_resources {
    struct stepper *steps; /* of the decoder that it runs, with the pool of its KV pages */
    const struct head_config *head_config;
    int chunk;   /* rows of a prefill step */
    int context; /* most slots of its KV cache */
    int vocab;   /* the target's */
    /* Parameters of the method, as in struct pv_method. */
    int keep;
    uint64_t seed;
    const int32_t *answer; /* [n_answer] */
    int n_answer;
    double errors;
};

struct drafter_kind {
    struct pv_drafter_info info; /* what users of the library may know too */
    /* NULL for plain decoding. The resources that `info` says it needs are there. */
    enum pv_status (*open)(struct drafter **out, const struct drafter_resources *r,
                           struct pv_error *err);
    /* Bytes that open allocates, without KV pages; NULL: negligible. */
    size_t (*size)(const struct drafter_resources *r);
    enum drafter_decoder runs;
    bool fits_trees;     /* it can grow a tree by prices (shape fitted): has probabilities of every
                            row of a tree */
    bool layer_scores;   /* begin needs the attention to the video of every layer separately */
    bool states;         /* begin needs the target's hidden states; in the parallel schedule it
                            therefore starts after the target's prefill */
    bool draft_media;    /* it reads rows of media in the draft model's space: from that model's
                            tower, unless both models have the same one */
    bool target_media;   /* it reads rows of media in the target's space */
    bool made_anew;      /* it is opened anew for each answer: it depends on the method */
    bool cheap;          /* its work is small beside one pass of the target: `auto` has no reason to
                            put it off, and in the parallel schedule the target waits for it */
    bool keeps_position; /* it was trained on the positions that rows have in the target */
};

/* NULL: unknown. PV_DRAFT_NONE has a row too, which can do nothing. */
const struct drafter_kind *drafter_find(enum pv_drafter drafter);

extern const struct drafter_kind drafter_model, drafter_self, drafter_sparse, drafter_head,
    drafter_ngram, drafter_random, drafter_oracle, drafter_cascade;

#endif
