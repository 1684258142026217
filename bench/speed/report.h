/* The results of a run: a table for people, lines of CSV for bench/csv. */
#ifndef PV_BENCH_SPEED_REPORT_H
#define PV_BENCH_SPEED_REPORT_H

#include "floor.h"
#include "peer.h"
#include "speed.h"

#include <stddef.h>

struct report {
    char machine[160], date[32], command[512];
    const char *commit, *model, *type, *kv, *kernels;
    int threads;
    bool best;                      /* report the best sample instead of the median */
    double read_before, read_after; /* bytes a second */
    size_t read_size;
    struct peak_rate peak[PEAK_KINDS];
    double others;           /* part of the machine's CPU time that other processes used */
    const struct peer *peer; /* NULL: none */
    const struct test *tests;
    int n_tests;
};

/* Processor and date; the command with the folders of its paths left out. */
void report_init(struct report *r, int argc, char **argv);

void report_print(const struct report *r, FILE *f);
/* Append to a file, with a line of names when it is new. */
enum pv_status report_csv(const struct report *r, const char *path, struct pv_error *err);

/* CPU time so far, in clock ticks: of the machine, its idle time, and of this process and the
 * children it has waited for. Zero if the system does not report it. */
struct cpu_times {
    double total, idle, own;
};
struct cpu_times cpu_times_now(void);
/* The share of CPU time that other processes used between two measurements. */
double cpu_times_others(const struct cpu_times *a, const struct cpu_times *b);

#endif
