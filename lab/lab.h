/* The commands of prevue-lab. */
#ifndef PV_LAB_LAB_H
#define PV_LAB_LAB_H

#include "options.h"

extern const struct option_set bench_options, view_options;

int cmd_bench(int argc, char **argv);
int cmd_view(int argc, char **argv); /* not in a CORE build */

#endif
