/* llama-bench on the same file, as a child process. */
#ifndef PV_BENCH_SPEED_PEER_H
#define PV_BENCH_SPEED_PEER_H

#include "base/status.h"
#include "speed.h"

struct peer {
    const char *program, *model;
    int threads, gen;
    struct int_list fa; /* -fa values, at most MAX_FA */
    char build[64];     /* the commit it says it was built from */
};

/* One run of llama-bench for the tests of one depth, all -fa values, `repeat` samples each; they
 * are added to the tests. For verify it computes the logits of the last row only. */
enum pv_status peer_run(struct peer *p, struct test *tests, int n_tests, int depth, int repeat,
                        struct pv_error *err);

#endif
