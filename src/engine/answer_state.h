/* The current answer of a session, or its last one: how its tokens are chosen, its statistics and
 * its trace. The tokens themselves are rows of the sequence. */
#ifndef PV_ENGINE_ANSWER_STATE_H
#define PV_ENGINE_ANSWER_STATE_H

#include "engine/trace.h"
#include "lm/decoder.h"
#include "lm/sampling.h"

/* What a step must return for its last row. */
enum want { WANT_NOTHING, WANT_ARGMAX, WANT_DRAWN, WANT_LOGITS };

struct answer_state {
    int n;               /* tokens so far */
    struct sampling how; /* sampling parameters, */
    enum want want;      /* and what a step returns for them; WANT_DRAWN: sampled on the GPU */
    int vocab;
    float *logits;                /* [vocab] of the last row, if tokens are sampled on the host, */
    int32_t top;                  /* or else the token itself */
    struct candidate *candidates; /* [vocab] */
    struct pv_stats stats;
    struct trace trace;
};

enum pv_status answer_open(struct answer_state *a, int vocab, struct pv_error *err);
void answer_close(struct answer_state *a);

/* The sampling that the caller asked for. */
struct sampling answer_sampling(const struct pv_gen_params *p);
/* Begins an answer. gpu: the model is on a GPU, which samples tokens unless filters need the logits
 * on the host; observed: the caller wants the logits. t0: clock_now() when the answer began. */
void answer_begin(struct answer_state *a, const struct pv_gen_params *p, bool gpu, bool observed,
                  double t0);

/* What a step points to; it must live until the step has run. */
struct answer_ask {
    int last;
    uint64_t position;
    struct step_choice drawn;
};
/* Let the step store in the answer what is wanted of its last row. p: the sampling, NULL if nothing
 * is drawn; position: rows of the timeline. Call it when step->n is set. */
void answer_asks(struct answer_state *a, struct step *step, struct answer_ask *ask, enum want want,
                 const struct pv_gen_params *p, int position);

#endif
