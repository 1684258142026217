/* The fields of pv_ranks. */
#ifndef PV_ENGINE_RANKS_HANDLE_H
#define PV_ENGINE_RANKS_HANDLE_H

#include "dist/ranks.h"

struct pv_ranks {
    struct transport *t;
    bool here; /* all ranks are on this machine and share its cores */
};

/* Threads of each rank by default: its share of the cores. NULL: all of them. */
int ranks_threads(const struct pv_ranks *ranks);

#endif
