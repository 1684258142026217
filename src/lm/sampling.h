/* Sampling: the token at a position is a function of the logits there and of (seed, position)
 * only. */
#ifndef PV_LM_SAMPLING_H
#define PV_LM_SAMPLING_H

#include "base/status.h"

struct sampling {
    float temperature; /* 0: greedy; the largest logit, the lowest id among equals */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off; 0: one candidate */
    float min_p;       /* 0: off */
    uint64_t seed;
};

struct candidate {
    float logit;
    int32_t id;
};

/* PV_E_ARG if a parameter is out of range. */
enum pv_status sampling_check(const struct sampling *s, struct pv_error *err);

/* Apply temperature, then top-k, top-p and min-p, in the order of Hugging Face; then choose the
 * largest logit / T + Gumbel noise of (seed, position, id). scratch [n]. */
int32_t sample_token(const float *logits, int n, const struct sampling *s, uint64_t position,
                     struct candidate *scratch);

enum { SAMPLE_TOP_MAX = 64 };

/* The k (at most SAMPLE_TOP_MAX) tokens that sample_token prefers, in that order: ids[0] is its
 * choice, ids[1] its choice if ids[0] did not exist, and so on. After the tokens that pass the
 * filters, the others follow by falling logit. Returns the number of tokens, at least 1; fewer than
 * k if fewer are possible (those with a logit of NaN or -infinity are not). ids [k], scratch
 * [n]. */
int sample_top(const float *logits, int n, const struct sampling *s, uint64_t position, int k,
               int32_t *ids, struct candidate *scratch);

/* The probabilities p [n] with which sample_token chooses, over all seeds. scratch [n]. */
void sample_distribution(const float *logits, int n, const struct sampling *s, float *p,
                         struct candidate *scratch);

#endif
