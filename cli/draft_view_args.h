/* Options of the draft views holistic and alignment: what their scores are computed from. */
#ifndef PV_CLI_DRAFT_VIEW_ARGS_H
#define PV_CLI_DRAFT_VIEW_ARGS_H

#include "options.h"
#include "prevue/prevue.h"

/* 0, NULL and -1: as the method has it. */
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

/* Returns OPTIONS_RUN, or the status of a misuse of `command`, which has been reported. */
int draft_view_args_check(const struct draft_view_args *a, const char *command);
void draft_view_args_set(const struct draft_view_args *a, struct pv_method *m);
/* The first of them that this view (NULL: none) does not use, and the field of pv_view_info that
 * views which use it have set; NULL: it uses all of them. */
const char *draft_view_args_useless(const struct draft_view_args *a,
                                    const struct pv_view_info *view, size_t *field);

#endif
