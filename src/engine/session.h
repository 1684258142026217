/* Inside of the public handle of a session: shared by session.c and generate.c. */
#ifndef PV_ENGINE_SESSION_H
#define PV_ENGINE_SESSION_H

#include "engine/dialogue.h"
#include "engine/draft_side.h"
#include "engine/encoder.h"
#include "engine/seen.h"
#include "engine/timeline.h"
#include "lm/sampling.h"
#include "spec/verify.h"

enum { SESSION_MAX_PENDING = 64 }; /* media of one message */

/* For tests: is shown the logits that chose each token of an answer. */
struct logits_observer {
    void (*show)(void *user, int token, const float *logits);
    void *user;
};

struct pv_session {
    struct pv_model *model;
    struct kvcache kv;
    struct decoder_state *state;
    struct dialogue *words;  /* NULL: no tokenizer */
    struct encoder *encoder; /* NULL: no vision tower */
    size_t fixed_bytes;      /* KV cache and scratch */
    int chunk;
    struct timeline line;
    int32_t *kv_ids; /* [context]: what slots 0 .. kv.len - 1 hold */
    float *embeds;   /* [chunk, hidden]: rows of media in a step */
    int n_pending;
    struct seen pending[SESSION_MAX_PENDING]; /* wait for the text of their message */
    int answer0, n_answer;
    int message0;  /* first row after the last answer */
    bool messages; /* the last thing added was a message: the template asks for an answer */
    float *logits; /* [vocab] of the last row, when tokens are drawn, */
    int32_t top;   /* or its largest, when they are not */
    struct candidate *candidates; /* [vocab] */
    bool speculates;
    struct draft_side draft;
    enum pv_drafter drafting;    /* of the answer being made */
    int32_t tree_best[TREE_MAX]; /* the likeliest token after each row of a tree, */
    float *tree_logits;          /* [TREE_MAX, vocab], or all logits, when tokens are drawn */
    float *draft_q;              /* [TREE_MAX, vocab]: the drafter's distributions (rejection) */
    float *verify_scratch;       /* rejection */
    struct logits_observer observer;
    struct pv_stats stats;
    int64_t frames, lost_frames; /* since the last answer */
    double video_s;
};

#endif
