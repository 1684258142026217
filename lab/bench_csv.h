/* Writes the figures of a benchmark as CSV: a row for each clip and method. */
#ifndef PV_LAB_BENCH_CSV_H
#define PV_LAB_BENCH_CSV_H

#include "comparison.h"

/* The values that all rows of CSV have in common. */
struct csv_row {
    const char *machine, *commit, *model, *draft, *clip;
    int threads;
};

void csv_header(struct buf *b);
/* One row per method, for one clip. */
void csv_rows(struct buf *b, const struct csv_row *row, const struct contenders *who,
              const struct trial_result *r);

#endif
