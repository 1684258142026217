/* The table of drafters. Each drafter describes itself in one row: how it is opened, what it needs
 * and what it can do. The rest of the program asks for these properties and never for a particular
 * drafter, so a new drafter is a file with its row, an enumerator and an entry in drafter_kind.c.
 */
#ifndef PV_SPEC_DRAFTER_KIND_H
#define PV_SPEC_DRAFTER_KIND_H

#include "spec/drafter.h"

struct head_config;

/* The decoder that a drafter runs. */
enum drafter_decoder {
    DRAFTER_RUNS_NOTHING, /* none */
    DRAFTER_RUNS_DRAFT,   /* the draft model's */
    DRAFTER_RUNS_TARGET,  /* the target's */
    DRAFTER_RUNS_HEAD,    /* that of the target's draft head */
    DRAFTER_DECODERS
};

/* What a drafter is opened with. It borrows all of it except `answer`, which it copies. */
struct drafter_resources {
    struct stepper *steps; /* of the decoder that the drafter runs, with the pool of its KV pages */
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
    struct pv_drafter_info info; /* the public part */
    /* NULL for plain decoding. The caller provides the resources that `info` asks for. */
    enum pv_status (*open)(struct drafter **out, const struct drafter_resources *r,
                           struct pv_error *err);
    /* Bytes that open allocates, without KV pages; NULL: negligible. */
    size_t (*size)(const struct drafter_resources *r);
    enum drafter_decoder runs;
    bool fits_trees;   /* it can propose trees of the shape `fitted`, because it has the
                          probabilities of every row of a tree */
    bool layer_scores; /* begin needs the attention to the video of every layer separately */
    bool states;       /* begin needs the target's hidden states; in the parallel schedule it
                          therefore starts after the target's prefill */
    bool draft_media;  /* its media rows come from the draft model's vision tower (or from the
                          target's if both models have the same) */
    bool target_media; /* its media rows come from the target's vision tower */
    bool made_anew;    /* it depends on the method's parameters and is opened for each answer */
    bool cheap;        /* it costs little compared with a pass of the target: `auto` starts it at
                          once, and in the parallel schedule the target waits for it */
    bool measures;     /* begin can measure its own attention to the video (draft_prompt.attention),
                          for views that want it */
    bool keeps_position; /* it was trained on the positions that rows have in the target */
};

/* Give a drafter its row, which must stay valid for as long as the process runs. Call it before a
 * model is opened; it is not safe beside other calls. False: the drafter has one. */
bool drafter_add(enum pv_drafter drafter, const struct drafter_kind *kind);

/* NULL: unknown, or a drafter that only the laboratory has (PV_DRAFT_CASCADE). PV_DRAFT_NONE has a
 * row too, without any ability. */
const struct drafter_kind *drafter_find(enum pv_drafter drafter);

extern const struct drafter_kind drafter_model, drafter_self, drafter_sparse, drafter_head,
    drafter_ngram, drafter_random, drafter_oracle;

#endif
