/* Metrics have the names that vLLM uses, with the prefix "prevue:". */
#include "serve_metrics.h"

#include "server.h"

#include <string.h>

static const double bounds[METRICS_BUCKETS] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                0.5,   1,      2.5,   5,    10,    30,   60,  300 };
static const double token_bounds[METRICS_BUCKETS] = { 1,     2,     5,     10,    20,   50,
                                                      100,   200,   500,   1000,  2000, 5000,
                                                      10000, 20000, 50000, 100000 };

static void observe(struct histogram *h, const double *bound, double v)
{
    int i = 0;
    while (i < METRICS_BUCKETS && v > bound[i])
        i++;
    h->bucket[i]++;
    h->n++;
    h->sum += v;
}

void metrics_request(struct metrics *m, const char *path, int status, double seconds)
{
    int i = 0;
    while (i + 1 < METRICS_STATUSES && m->status[i].n && m->status[i].status != status)
        i++;
    m->status[i].status = status;
    m->status[i].n++;
    if (strstr(path, "completions"))
        observe(&m->request, bounds, seconds);
}

void metrics_first_token(struct metrics *m, double seconds)
{
    observe(&m->first_token, bounds, seconds);
}

void metrics_interval(struct metrics *m, double seconds)
{
    observe(&m->interval, bounds, seconds);
}

void metrics_queue(struct metrics *m, double seconds)
{
    observe(&m->queue, bounds, seconds);
}

void metrics_failed(struct metrics *m)
{
    m->failed++;
}

void metrics_answer(struct metrics *m, const struct pv_stats *s, enum pv_finish finish)
{
    m->finish[finish]++;
    m->prompt_tokens += (uint64_t)s->prompt_tokens;
    m->cached_tokens += (uint64_t)s->reused_tokens;
    m->answer_tokens += (uint64_t)s->tokens;
    m->video_tokens += (uint64_t)s->video_tokens;
    m->rounds += (uint64_t)s->rounds;
    m->proposed += (uint64_t)s->proposed;
    m->accepted += (uint64_t)s->accepted;
    m->passes += (uint64_t)s->passes;
    observe(&m->prompt, token_bounds, (double)s->prompt_tokens);
    observe(&m->answer, token_bounds, (double)s->tokens);
}

/* ---- text ---- */

static void add_type(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP prevue:%s %s\n# TYPE prevue:%s %s\n", name, help, name, type);
}

static void add_number(struct buf *b, const char *name, const char *type, const char *help,
                       double v)
{
    add_type(b, name, type, help);
    buf_printf(b, "prevue:%s %.17g\n", name, v);
}

static void add_histogram(struct buf *b, const char *name, const char *help,
                          const struct histogram *h, const double *bound)
{
    uint64_t sum = 0;
    add_type(b, name, "histogram", help);
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        sum += h->bucket[i];
        buf_printf(b, "prevue:%s_bucket{le=\"%g\"} %llu\n", name, bound[i],
                   (unsigned long long)sum);
    }
    buf_printf(b, "prevue:%s_bucket{le=\"+Inf\"} %llu\nprevue:%s_sum %.9g\nprevue:%s_count %llu\n",
               name, (unsigned long long)h->n, name, h->sum, name, (unsigned long long)h->n);
}

static void add_requests(struct buf *b, const struct metrics *m)
{
    static const char *const names[METRICS_FINISHES] = { "none",   "stop",      "stop_string",
                                                         "length", "cancelled", "error" };
    add_type(b, "request_success_total", "counter", "Answers by finish reason.");
    for (int i = 1; i < METRICS_FINISHES; i++)
        buf_printf(b, "prevue:request_success_total{finished_reason=\"%s\"} %llu\n", names[i],
                   (unsigned long long)m->finish[i]);
    add_type(b, "http_requests_total", "counter", "HTTP requests by status; 0: no reply was sent.");
    for (int i = 0; i < METRICS_STATUSES && m->status[i].n; i++)
        buf_printf(b, "prevue:http_requests_total{status=\"%d\"} %llu\n", m->status[i].status,
                   (unsigned long long)m->status[i].n);
}

static void add_engine(struct buf *b, struct server *s)
{
    struct pv_engine_counts c = { .size = sizeof c };
    if (!s->engine)
        return;
    pv_engine_stats(s->engine, &c);
    add_number(b, "num_requests_running", "gauge", "Requests that the engine runs.", c.running);
    add_number(b, "num_requests_waiting", "gauge", "Requests that wait for the engine.",
               c.queued + s->n_waiting);
    add_number(b, "kv_cache_usage_perc", "gauge",
               "Share of the KV pages that running requests use, 0 to 1.",
               c.pages ? (double)c.pages_used / (double)c.pages : 0);
    add_number(b, "kv_cache_pages_cached", "gauge", "KV pages kept for reuse.",
               (double)c.pages_cached);
    add_number(b, "prefix_cache_hits_total", "counter", "KV pages found in the cache.",
               (double)c.page_hits);
    add_number(b, "kv_cache_evictions_total", "counter", "KV pages taken from the cache.",
               (double)c.pages_evicted);
    add_number(b, "num_preemptions_total", "counter", "Requests whose KV pages were taken.",
               (double)c.preemptions);
    add_number(b, "engine_steps_total", "counter", "Steps of the model.", (double)c.steps);
    add_number(b, "engine_rows_total", "counter", "Rows in these steps.", (double)c.rows);
    add_number(b, "engine_draft_steps_total", "counter", "Steps of drafters.",
               (double)c.draft_steps);
    add_number(b, "mm_cache_hits", "counter",
               "Videos and pictures whose decoding a cache saved, in memory or on disk.",
               (double)(c.media_found + c.disk_files));
    add_number(b, "media_decoded_total", "counter", "Videos and pictures decoded.",
               (double)c.media_decoded);
    add_number(b, "disk_cache_rows_total", "counter", "Parts of media read from the cache on disk.",
               (double)c.disk_rows);
    add_number(b, "disk_cache_pages_total", "counter", "KV pages read from the cache on disk.",
               (double)c.disk_pages);
    add_number(b, "disk_cache_damaged_total", "counter", "Damaged files of the cache on disk.",
               (double)c.disk_damaged);
}

void metrics_write(struct buf *b, struct server *s)
{
    const struct metrics *m = &s->metrics;
    add_engine(b, s);
    add_number(b, "http_connections", "gauge", "Connections of clients.",
               http_connections(s->http));
    add_requests(b, m);
    add_number(b, "request_failed_total", "counter", "Requests that ended with an error.",
               (double)m->failed);
    add_number(b, "prompt_tokens_total", "counter", "Tokens of prompts.", (double)m->prompt_tokens);
    add_number(b, "prompt_tokens_cached_total", "counter", "Those found in the KV cache.",
               (double)m->cached_tokens);
    add_number(b, "prompt_tokens_video_total", "counter", "Those of videos and pictures.",
               (double)m->video_tokens);
    add_number(b, "generation_tokens_total", "counter", "Tokens of answers.",
               (double)m->answer_tokens);
    add_number(b, "model_passes_total", "counter", "Passes of the model that made them.",
               (double)m->passes);
    add_number(b, "spec_decode_num_drafts_total", "counter", "Rounds of speculation.",
               (double)m->rounds);
    add_number(b, "spec_decode_num_draft_tokens_total", "counter", "Tokens that drafters proposed.",
               (double)m->proposed);
    add_number(b, "spec_decode_num_accepted_tokens_total", "counter",
               "Those that the model accepted.", (double)m->accepted);
    add_histogram(b, "time_to_first_token_seconds", "From the request to its first token.",
                  &m->first_token, bounds);
    add_histogram(b, "inter_token_latency_seconds", "Between two deliveries of tokens.",
                  &m->interval, bounds);
    add_histogram(b, "e2e_request_latency_seconds", "Of whole completions.", &m->request, bounds);
    add_histogram(b, "request_queue_time_seconds", "From the request to its submission.", &m->queue,
                  bounds);
    add_histogram(b, "request_prompt_tokens", "Tokens of a prompt.", &m->prompt, token_bounds);
    add_histogram(b, "request_generation_tokens", "Tokens of an answer.", &m->answer, token_bounds);
}
