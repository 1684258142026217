/* Functions that drafters share. */
#include "spec/drafter.h"

#include "base/rng.h"

#include <math.h>

enum { DRAW_PURPOSE = 0x64726177 }; /* sets these random numbers apart from the verifier's */

void drafter_count(struct drafter *d, int len, int n)
{
    d->rows += n;
    d->slots += (int64_t)n * len + (int64_t)n * (n + 1) / 2;
}

bool drafter_chains_at_once(const struct decoder *dec, const struct draft_request *r)
{
    const struct sampling *how = r->how;
    bool filters = how->top_k > 0 || how->top_p < 1 || how->min_p > 0;
    return decoder_chains(dec) && !r->q &&
           (how->temperature == 0 || (!filters && !decoder_draft_ids(dec)));
}

void drafter_spread(const struct decoder *dec, float *logits, const float *drafted, int n)
{
    const int32_t *ids = decoder_draft_ids(dec);
    size_t own = (size_t)decoder_config(dec)->vocab, vocab = (size_t)decoder_input_vocab(dec);
    for (int i = 0; i < n; i++) {
        const float *from = drafted + (size_t)i * own;
        float *to = logits + (size_t)i * vocab;
        for (size_t t = 0; t < vocab; t++)
            to[t] = -INFINITY;
        for (size_t t = 0; t < own; t++)
            to[ids[t]] = from[t];
    }
}

int32_t drafter_draw(const float *q, int n, const struct sampling *how, uint64_t position)
{
    double u = rng_uniform(how->seed, position, DRAW_PURPOSE), sum = 0;
    int32_t last = 0;
    for (int i = 0; i < n; i++) {
        if (q[i] <= 0)
            continue;
        last = i;
        sum += q[i];
        if (u < sum)
            break;
    }
    return last;
}
