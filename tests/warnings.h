/* Collects the warnings of a cache on disk (pv_cache_params.warn). */
#ifndef PV_TESTS_WARNINGS_H
#define PV_TESTS_WARNINGS_H

#include <stdio.h>

struct warnings {
    int n;
    char last[1024];
};

static inline void warn(void *user, const char *sentence)
{
    struct warnings *t = user;
    t->n++;
    snprintf(t->last, sizeof t->last, "%s", sentence);
}

#endif
