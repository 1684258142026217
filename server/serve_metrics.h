/* Counters and histograms of the server, in the text format of Prometheus. Used by the loop's
 * thread only. */
#ifndef PV_SERVER_SERVE_METRICS_H
#define PV_SERVER_SERVE_METRICS_H

#include "base/buf.h"

#include "prevue/prevue.h"

enum { METRICS_BUCKETS = 16, METRICS_STATUSES = 16, METRICS_FINISHES = PV_FINISH_ERROR + 1 };

struct histogram {
    uint64_t bucket[METRICS_BUCKETS + 1];
    uint64_t n;
    double sum;
};

struct metrics {
    struct histogram first_token, interval, request, queue, prompt, answer;
    uint64_t prompt_tokens, answer_tokens, cached_tokens, video_tokens;
    uint64_t rounds, proposed, accepted, passes;
    uint64_t failed;
    uint64_t finish[METRICS_FINISHES];
    struct {
        int status;
        uint64_t n;
    } status[METRICS_STATUSES];
};

struct server;

void metrics_request(struct metrics *m, const char *path, int status, double seconds);
void metrics_first_token(struct metrics *m, double seconds);
void metrics_interval(struct metrics *m, double seconds);
void metrics_queue(struct metrics *m, double seconds);
void metrics_answer(struct metrics *m, const struct pv_stats *s, enum pv_finish finish);
void metrics_failed(struct metrics *m);
/* Write all metrics, including those of the engine. */
void metrics_write(struct buf *b, struct server *s);

#endif
