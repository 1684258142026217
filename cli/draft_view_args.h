/* Options of the views that are guided by more than attention: what is looked at, and how. */
#ifndef PV_CLI_SIGHT_ARGS_H
#define PV_CLI_SIGHT_ARGS_H

#include "options.h"
#include "prevue/prevue.h"

/* 0, NULL and -1: as the method has it. */
struct sight_args {
    double layer;
    const char *terms;
    int crops, text;
};

#define SIGHT_DEFAULTS                                                                             \
    {                                                                                              \
        .crops = -1, .text = -1                                                                    \
    }

extern const struct option sight_table[];
enum { N_SIGHT_OPTIONS = 4 };

/* Returns OPTIONS_RUN, or the status of a misuse of `command`, which has been reported. */
int sight_args_check(const struct sight_args *a, const char *command);
void sight_args_set(const struct sight_args *a, struct pv_method *m);
/* The first of them that this view (NULL: none) does not use, and the field of pv_view_info that
 * views which use it have set; NULL: it uses all of them. */
const char *sight_args_useless(const struct sight_args *a, const struct pv_view_info *view,
                               size_t *field);

#endif
