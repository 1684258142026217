/* Tokens are chosen on the device where that is possible: only ids come back then. */
#include "engine/answer_state.h"

struct sampling answer_sampling(const struct pv_gen_params *p)
{
    return (struct sampling){ .temperature = p->temperature,
                              .top_k = p->top_k,
                              .top_p = p->top_p,
                              .min_p = p->min_p,
                              .seed = p->seed };
}

bool answer_draws_there(const struct pv_session *s, const struct pv_gen_params *p)
{
    return s->model->gpu >= 0 && !s->observer.show && p->temperature > 0 && p->top_k == 0 &&
           p->top_p >= 1 && p->min_p <= 0;
}

enum want answer_want(const struct pv_session *s, const struct pv_gen_params *p)
{
    if (p->temperature == 0 && !s->observer.show)
        return WANT_ARGMAX;
    return answer_draws_there(s, p) ? WANT_DRAWN : WANT_LOGITS;
}
