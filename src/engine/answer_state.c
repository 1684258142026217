/* Tokens are chosen on the device if possible, so that only ids are copied back. */
#include "engine/answer_state.h"

#include "base/mem.h"

enum pv_status answer_open(struct answer_state *a, int vocab, struct pv_error *err)
{
    size_t n = (size_t)vocab;
    a->vocab = vocab;
    a->logits = mem_alloc(n * sizeof *a->logits);
    a->candidates = mem_alloc(n * sizeof *a->candidates);
    if (!a->logits || !a->candidates)
        return fail_nomem(err, n * (sizeof *a->logits + sizeof *a->candidates));
    return PV_OK;
}

void answer_close(struct answer_state *a)
{
    mem_free(a->logits);
    mem_free(a->candidates);
    trace_close(&a->trace);
    *a = (struct answer_state){ 0 };
}

struct sampling answer_sampling(const struct pv_gen_params *p)
{
    return (struct sampling){ .temperature = p->temperature,
                              .top_k = p->top_k,
                              .top_p = p->top_p,
                              .min_p = p->min_p,
                              .seed = p->seed };
}

void answer_begin(struct answer_state *a, const struct pv_gen_params *p, bool gpu, bool observed,
                  double t0)
{
    bool filtered = p->top_k != 0 || p->top_p < 1 || p->min_p > 0;
    a->n = 0;
    a->how = answer_sampling(p);
    if (p->temperature == 0 && !observed)
        a->want = WANT_ARGMAX;
    else
        a->want = gpu && !observed && p->temperature > 0 && !filtered ? WANT_DRAWN : WANT_LOGITS;
    a->stats = (struct pv_stats){ 0 };
    trace_begin(&a->trace, p->trace, t0);
}

void answer_asks(struct answer_state *a, struct step *step, struct answer_ask *ask, enum want want,
                 const struct pv_gen_params *p, int position)
{
    ask->last = step->n - 1;
    ask->position = (uint64_t)position;
    ask->drawn = (struct step_choice){ .t = p ? p->temperature : 0,
                                       .drawn = &a->top,
                                       .position = &ask->position,
                                       .seed = p ? p->seed : 0 };
    step->n_logits = want != WANT_NOTHING;
    step->logit_rows = &ask->last;
    step->logits = want == WANT_LOGITS ? a->logits : NULL;
    step->argmax = want == WANT_ARGMAX ? &a->top : NULL;
    step->choice = want == WANT_DRAWN ? &ask->drawn : NULL;
}
