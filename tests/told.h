/* Warnings of a cache on disk, as pv_cache_params.warn tells them. */
#ifndef PV_TESTS_TOLD_H
#define PV_TESTS_TOLD_H

#include <stdio.h>

struct told {
    int n;
    char last[1024];
};

static inline void warn(void *user, const char *sentence)
{
    struct told *t = user;
    t->n++;
    snprintf(t->last, sizeof t->last, "%s", sentence);
}

#endif
