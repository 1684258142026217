/* Shared by the parts of bench_lm: a test, its samples, and the run they belong to. */
#ifndef PV_BENCH_SPEED_SPEED_H
#define PV_BENCH_SPEED_SPEED_H

#include <stdbool.h>
#include <stdio.h>

enum { MAX_SAMPLES = 256, MAX_LIST = 32, MAX_TESTS = MAX_LIST * (MAX_LIST + 2), MAX_FA = 2 };

/* Seconds, in the order in which they were measured. */
struct samples {
    double s[MAX_SAMPLES];
    int n;
};

void samples_add(struct samples *x, double seconds);
double samples_at(const struct samples *x, double part); /* 0 the best, 0.5 the median; n > 0 */

enum test_kind {
    TEST_DECODE,  /* one row a step, each fed the last one's argmax; a sample is one token */
    TEST_VERIFY,  /* a chain of rows, logits of all; a sample is one step */
    TEST_PREFILL, /* a chain of rows, logits of the last; a sample is one step */
    TEST_KINDS
};

const char *test_name(enum test_kind kind);

struct test {
    enum test_kind kind;
    int depth, rows; /* slots filled before, rows of a step */
    struct samples ours;
    struct samples peer[MAX_FA]; /* by the order of the -fa values asked for */
    double bytes, compute_s;     /* of a step: bytes read, seconds at the peak of its products */
};

struct int_list {
    int v[MAX_LIST];
    int n;
};

double seconds_now(void); /* monotonic */

#endif
