/* Options of the views holistic and alignment: what their scores are computed from. */
#ifndef PV_CLI_DRAFT_VIEW_ARGS_H
#define PV_CLI_DRAFT_VIEW_ARGS_H

#include "options.h"
#include "prevue/prevue.h"

/* 0, NULL and -1: as in the method. */
struct draft_view_args {
    double layer;
    const char *terms;
    int crops, text;
};

#define DRAFT_VIEW_DEFAULTS                                                                        \
    {                                                                                              \
        .crops = -1, .text = -1                                                                    \
    }

extern const struct option draft_view_table[];
enum { N_DRAFT_VIEW_OPTIONS = 4 };

/* Returns OPTIONS_RUN, or reports a misuse of `command` and returns its exit status. */
int draft_view_args_check(const struct draft_view_args *a, const char *command);
void draft_view_args_set(const struct draft_view_args *a, struct pv_method *m);
/* The first given option that this view (NULL: none) does not use; NULL if it uses all. *field: the
 * member of pv_view_info that is set for views which use the option. */
const char *draft_view_args_useless(const struct draft_view_args *a,
                                    const struct pv_view_info *view, size_t *field);

#endif
