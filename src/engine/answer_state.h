/* The answer that is being made, or was made last: how its tokens are chosen, and what is told
 * about it. Its tokens are rows of the sequence. */
#ifndef PV_ENGINE_ANSWER_STATE_H
#define PV_ENGINE_ANSWER_STATE_H

#include "engine/trace.h"
#include "lm/sampling.h"

/* What a step is to bring back of its last row. */
enum want { WANT_NOTHING, WANT_ARGMAX, WANT_DRAWN, WANT_LOGITS };

struct answer_state {
    int n;               /* tokens so far */
    struct sampling how; /* how they are drawn, */
    enum want want;      /* and what of a row that takes; WANT_DRAWN: drawn on the GPU */
    int vocab;
    float *logits;                /* [vocab] of the last row, when tokens are drawn here, */
    int32_t top;                  /* or the token itself, when they are not */
    struct candidate *candidates; /* [vocab] */
    struct pv_stats stats;
    struct trace trace;
};

enum pv_status answer_open(struct answer_state *a, int vocab, struct pv_error *err);
void answer_close(struct answer_state *a);

/* How the caller wants tokens drawn. */
struct sampling answer_sampling(const struct pv_gen_params *p);
/* A new answer. gpu: the model is on one, where tokens are drawn unless filters need to see the
 * logits; observed: somebody wants to see them here. t0: clock_now() of its beginning. */
void answer_begin(struct answer_state *a, const struct pv_gen_params *p, bool gpu, bool observed,
                  double t0);

#endif
