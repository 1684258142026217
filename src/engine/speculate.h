/* Speculation in a session: what is asked of the prefill, what the drafter sees, and the rounds. */
#ifndef PV_ENGINE_SPECULATE_H
#define PV_ENGINE_SPECULATE_H

#include "engine/session.h"
#include "spec/policy.h"
#include "spec/view.h"

struct parallel;

/* A method made ready for one answer. */
struct speculation {
    struct pv_method method; /* zeros filled in */
    struct drafter *drafter; /* NULL: plain decoding */
    enum view_kind view;
    struct shape shape;
    bool guided;   /* the view or the drafter wants the prompt's attention to the video */
    bool by_layer; /* for every layer alone */
    bool aligned;  /* or the alignment of its residual stream instead */
    int layers;    /* of the model that are looked at, the first ones; */
    bool early;    /* then the view is wanted, before the prefill's end */
    bool seen;     /* the view is chosen */
    struct parallel *parallel; /* the parallel schedule at work, or NULL */
    int query0;                /* first row of the prompt whose attention counts */
    bool asleep;               /* it could not be told the prompt */
    bool awake;                /* the drafter knows the prompt */
    double wake_s;             /* seconds that took, when it was in the middle of an answer */
    struct policy policy;      /* automatic */
    struct policy_choice choice;
    struct shape tree;
    int slow_rounds; /* on end, whose times were not believed */
};

/* Before the prefill: the method's parts, and the video rows of the timeline. */
enum pv_status speculation_open(struct speculation *sp, struct pv_session *s,
                                const struct pv_gen_params *p, struct pv_error *err);
/* Taps for a prefill step of rows [from, from + n) at or after query0; tap [n_layers]. Returns how
 * many. speculation_add adds what they brought to the scores. */
int speculation_taps(const struct speculation *sp, struct pv_session *s, int n, const int *rows,
                     struct column_tap *tap);
void speculation_add(const struct speculation *sp, struct pv_session *s, int n_taps);
/* After the prefill: the view alone, in s->draft.seen. */
enum pv_status speculation_see(struct speculation *sp, struct pv_session *s, struct pv_error *err);
/* After the prefill: the view, and the drafter's prefill; in the parallel schedule the drafter is
 * shown the view, if it has not been. */
enum pv_status speculation_begin(struct speculation *sp, struct pv_session *s,
                                 const struct pv_gen_params *p, struct pv_error *err);

/* One round: the drafter proposes after the last token of the answer, the model verifies. */
struct round {
    struct tree tree;
    struct verdict verdict;
};
/* The model's part of it: runs and judges r->tree, begun with the last token of the answer. */
enum pv_status speculation_verify(const struct speculation *sp, struct pv_session *s,
                                  const struct pv_gen_params *p, struct round *r,
                                  struct pv_error *err);
/* Whether the times of a round tell how long such rounds take. Devices may need longer for steps
 * that are new to them: first_runs counts these, of both sides, and is asked before the round. Not
 * all rounds on end can be disbelieved, or nothing would ever be learnt. */
uint64_t speculation_first_runs(const struct pv_session *s);
bool speculation_believes(struct speculation *sp, const struct pv_session *s, uint64_t before);
/* Simulated acceptance: whether the token of this row, to stand at `position`, is accepted. */
bool speculation_drawn(const struct speculation *sp, uint64_t seed, uint64_t position, int row);
enum pv_status speculation_round(struct speculation *sp, struct pv_session *s,
                                 const struct pv_gen_params *p, struct round *r,
                                 struct pv_error *err);

#endif
