/* Defaults of a method, and which combinations of its parts are possible. */
#ifndef PV_SPEC_METHOD_RULES_H
#define PV_SPEC_METHOD_RULES_H

#include "prevue/testing.h"
#include "spec/tree.h"

/* Bounds of the fitted trees that a method has by default and that `auto` grows. */
enum { FITTED_TOTAL = 32, FITTED_DEPTH = 15, FITTED_WIDTH = 4 };

/* What defaults depend on beside the method itself. */
struct method_setting {
    bool has_draft, has_head;    /* of the session and its model */
    bool crowded;                /* many answers run at once */
    double lambda;               /* of the model's family */
    enum pv_draft_pos positions; /* of the family: for drafters that can have either */
    bool recorded; /* the model's device is fast at steps of shapes that came before only: a GPU */
};

/* A caller's method. */
enum pv_status method_read(struct pv_method *own, const struct pv_method *theirs,
                           struct pv_error *err);

/* The knobs for tests; all zero where the method has none. */
struct pv_method_test method_test(const struct pv_method *m);

/* Replaces zeros by defaults. `auto` takes the draft head if there is no draft model, or if many
 * answers run at once: then a cheap drafter matters more than a high acceptance rate. */
void method_fill(struct pv_method *m, const struct method_setting *setting);

/* PV_E_ARG, with one sentence, when the parts of the method do not go together or a number is out
 * of range. Zeros that method_fill would replace are fine. */
enum pv_status method_check(const struct pv_method *m, struct pv_error *err);

/* The shape of a method that was filled and checked. PV_E_ARG for sizes that are not possible, and
 * what reading `tree_file` may return. */
enum pv_status method_shape(struct shape *out, const struct pv_method *m, struct pv_error *err);

#endif
