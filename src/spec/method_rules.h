/* Defaults of a method, and which combinations of its parts are possible. */
#ifndef PV_SPEC_METHOD_RULES_H
#define PV_SPEC_METHOD_RULES_H

#include "prevue/testing.h"
#include "spec/tree.h"

/* Default bounds of fitted trees, also used by `auto`. */
enum { FITTED_TOTAL = 32, FITTED_DEPTH = 15, FITTED_WIDTH = 4 };

/* What defaults depend on, besides the method itself. */
struct method_setting {
    bool has_draft, has_head;    /* of the session and its model */
    bool crowded;                /* many answers run at the same time */
    double lambda;               /* default of the model's family */
    enum pv_draft_pos positions; /* default of the family, for drafters that can use either */
    bool
        recorded; /* the device records steps (a GPU): only shapes that were seen before are fast */
};

/* Copy and complete a caller's struct (base/sized.h). */
enum pv_status method_read(struct pv_method *own, const struct pv_method *theirs,
                           struct pv_error *err);

/* The test settings of a method; all zero if it has none. */
struct pv_method_test method_test(const struct pv_method *m);

/* Replaces zeros by defaults. `auto` takes the draft head if there is no draft model, or if many
 * answers run at once: then a cheap drafter matters more than a high acceptance rate. */
void method_fill(struct pv_method *m, const struct method_setting *setting);

/* PV_E_ARG if the parts of the method cannot be combined or a number is out of range. Zeros that
 * method_fill would replace are accepted. */
enum pv_status method_check(const struct pv_method *m, struct pv_error *err);

/* The shape of a method that was filled and checked. PV_E_ARG for impossible sizes; other errors
 * come from reading `tree_file`. */
enum pv_status method_shape(struct shape *out, const struct pv_method *m, struct pv_error *err);

#endif
