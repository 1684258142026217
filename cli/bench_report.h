/* What a comparison of methods found: as a table, as JSON, as rows of CSV. */
#ifndef PV_CLI_BENCH_REPORT_H
#define PV_CLI_BENCH_REPORT_H

#include "base/buf.h"
#include "trial.h"

/* Sums over clips. */
struct tally {
    int frames, clips; /* frames 0: clips of any number */
    struct figures sum[MAX_CONTENDERS];
    enum identity identity[MAX_CONTENDERS]; /* DIFFERENT when one of the clips is */
};

void tally_add(struct tally *t, const struct contenders *who, const struct trial_result *r);
/* Does an answer differ that may not? */
bool tally_differs(const struct tally *t, const struct contenders *who);

/* The table, with its heading; one line a method. Lines have at most 100 characters, unless `wide`
 * adds columns. */
void tally_table(struct buf *b, const struct tally *t, const struct contenders *who, bool wide);
/* "methods":[...]: a member of a JSON object. */
void tally_json(struct buf *b, const struct tally *t, const struct contenders *who);

/* What is the same in all rows of CSV. */
struct csv_row {
    const char *machine, *commit, *model, *draft, *clip;
    int threads;
};

void csv_header(struct buf *b);
/* One row a method, of one clip. */
void csv_rows(struct buf *b, const struct csv_row *row, const struct contenders *who,
              const struct trial_result *r);

#endif
