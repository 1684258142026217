/* Prints the result of a comparison of methods, as a table or as JSON. */
#ifndef PV_CLI_COMPARISON_H
#define PV_CLI_COMPARISON_H

#include "base/buf.h"
#include "trial.h"

/* Sums over clips. */
struct tally {
    int frames, clips; /* frames 0: clips with different numbers of frames */
    struct figures sum[MAX_CONTENDERS];
    enum identity identity[MAX_CONTENDERS]; /* DIFFERENT if it is for any clip */
};

void tally_add(struct tally *t, const struct contenders *who, const struct trial_result *r);
/* Whether an answer differs that must be equal to that of plain decoding. */
bool tally_differs(const struct tally *t, const struct contenders *who);

/* The table with its heading; one line per method. Lines have at most 100 characters; `wide` adds
 * columns. */
void tally_table(struct buf *b, const struct tally *t, const struct contenders *who, bool wide);
/* "methods":[...]: a member of a JSON object. */
void tally_json(struct buf *b, const struct tally *t, const struct contenders *who);

/* Whether an answer equals that of plain decoding, as the table says it. */
const char *identity_word(const struct pv_method *m, enum identity identity);

#endif
