/* The token at a position as a function of the logits there and of (seed, position) alone. */
#ifndef PV_LM_SAMPLING_H
#define PV_LM_SAMPLING_H

#include "base/status.h"

struct sampling {
    float temperature; /* 0: the largest logit, the lowest id of equals */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off; 0: one candidate */
    float min_p;       /* 0: off */
    uint64_t seed;
};

struct candidate {
    float logit;
    int32_t id;
};

/* One clear sentence when a parameter has no meaning. */
enum pv_status sampling_check(const struct sampling *s, struct pv_error *err);

/* scratch [n]. Temperature, then top-k, top-p and min-p, as Hugging Face orders them; of what is
 * left, the largest logit / T + Gumbel noise of (seed, position, id). */
int32_t sample_token(const float *logits, int n, const struct sampling *s, uint64_t position,
                     struct candidate *scratch);

enum { SAMPLE_TOP_MAX = 64 };

/* The k (at most SAMPLE_TOP_MAX) tokens that sample_token would choose first, in that order: ids[0]
 * is its answer, ids[1] what it would answer were ids[0] not there, and so on. Once the tokens that
 * the filters leave are used up the others follow, by falling logit. Fewer than k come out when
 * fewer are possible (a logit that is NaN or -infinity is not), but never none. ids [k],
 * scratch [n]. Returns how many. */
int sample_top(const float *logits, int n, const struct sampling *s, uint64_t position, int k,
               int32_t *ids, struct candidate *scratch);

/* The probabilities [n] with which sample_token chooses, over all seeds. scratch [n]. */
void sample_distribution(const float *logits, int n, const struct sampling *s, float *p,
                         struct candidate *scratch);

#endif
