/* Knobs for tests and benchmarks. They are no part of the stable interface: what is declared here
 * may change in any release. Zero means off. */
#ifndef PV_TESTING_H
#define PV_TESTING_H

#include "prevue/prevue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pv_model_params.test; read by pv_model_open. */
struct pv_model_test {
    bool dummy_weights; /* random weights instead of the file's, for timing only; needs a GPU */
};

/* pv_method.test; it must live as long as the call or the request that uses the method. */
struct pv_method_test {
    const int32_t *answer; /* drafter oracle: the known answer, */
    size_t n_answer;
    double errors;   /* and the share of its tokens that are proposed wrongly */
    uint64_t seed;   /* drafters random and oracle */
    double simulate; /* > 0: accept proposed tokens with this probability, right or wrong, to time
                        models whose weights are not there; the text is meaningless */
};

#ifdef __cplusplus
}
#endif

#endif
