/* Steps that come again and again. A step with a key that was seen before is recorded as a graph,
 * and from then on played with one launch: what differs between the plays (slots, trees, tokens,
 * positions) lies in device memory that is filled before.
 *
 * Kernels of attention are launched for a number of KV splits; a graph serves the stretch of an
 * answer that needs as many, or with very many a few less. Splits beyond the real length end at
 * once, so neither this nor recording changes a bit. */
#include "kernels/cuda/work.h"

#include <string.h>

enum { MAX_GRAPHS = 64, MAX_KEY = 256 };

struct recorded {
    uint8_t key[MAX_KEY];
    size_t key_size;
    int positions;
    uint64_t used;         /* when */
    cudaGraphExec_t graph; /* NULL: seen once */
};

struct recorder {
    struct recorded entry[MAX_GRAPHS];
    struct recorded *now; /* being recorded or to be played; NULL: neither */
    bool capturing;
    uint64_t clock;
};

enum pv_status recorder_open(struct device_work *w, struct pv_error *err)
{
    w->recorder = (struct recorder *)mem_zalloc(sizeof *w->recorder);
    return w->recorder ? PV_OK : fail_nomem(err, sizeof *w->recorder);
}

void recorder_close(struct device_work *w)
{
    if (!w->recorder)
        return;
    for (int i = 0; i < MAX_GRAPHS; i++)
        if (w->recorder->entry[i].graph)
            cudaGraphExecDestroy(w->recorder->entry[i].graph);
    mem_free(w->recorder);
    w->recorder = NULL;
}

/* The runs to where kernels read them. Returns the positions that the longest has. */
static int stage_runs(struct device_work *w, const struct work_plan *plan)
{
    struct staged *s = w->staged_host;
    int at = 0, most = 1;
    if (plan->n_runs == 0)
        return 1;
    /* The last copy may still be reading. */
    work_check(w, cudaStreamSynchronize(w->stream), "waiting for the stream");
    for (int i = 0; i < plan->n_runs; i++) {
        const struct attn_run *r = &plan->runs[i];
        int rows = r->pending + r->n, end = r->first_slot + rows;
        struct staged_run *to = &s->run[i];
        *to = staged_run{ r->row0, r->n, r->first_slot, r->pending, r->parent != NULL, at };
        if (r->parent && rows <= RUN_PARENTS - at) {
            memcpy(s->parent + at, r->parent, sizeof *s->parent * (size_t)rows);
            at += rows;
        } else if (r->parent) {
            work_check(w, cudaErrorInvalidValue, "a tree of too many rows");
        }
        most = end > most ? end : most;
    }
    work_check(w,
               cudaMemcpyAsync(w->staged, s,
                               offsetof(struct staged, parent) + sizeof(int) * (size_t)at,
                               cudaMemcpyHostToDevice, w->stream),
               "a copy to the GPU");
    return most;
}

/* Positions that kernels are launched for, to the least multiple of a split, or with many of them
 * at most a 64th more: blocks without work keep the kernel behind from starting. */
static int round_positions(int n)
{
    int splits = (n + KV_SPLIT_LEAST - 1) / KV_SPLIT_LEAST, unit = 1;
    while (splits / unit > 128)
        unit *= 2;
    return (splits + unit - 1) / unit * unit * KV_SPLIT_LEAST;
}

static struct recorded *find(struct recorder *r, const struct work_plan *plan, int positions)
{
    struct recorded *oldest = &r->entry[0];
    for (int i = 0; i < MAX_GRAPHS; i++) {
        struct recorded *e = &r->entry[i];
        if (e->key_size == plan->key_size && e->positions == positions &&
            memcmp(e->key, plan->key, plan->key_size) == 0)
            return e;
        if (e->used < oldest->used)
            oldest = e;
    }
    if (oldest->graph)
        cudaGraphExecDestroy(oldest->graph);
    memset(oldest, 0, sizeof *oldest);
    memcpy(oldest->key, plan->key, plan->key_size);
    oldest->key_size = plan->key_size;
    oldest->positions = positions;
    return oldest;
}

static void set_positions(struct device_work *w, int n)
{
    w->max_positions = n;
    w->max_splits = (n + KV_SPLIT - 1) / KV_SPLIT;
}

bool recorder_begin(struct device_work *w, const struct work_plan *plan)
{
    struct recorder *r = w->recorder;
    bool seen;
    cudaSetDevice(w->gpu->index);
    w->n_runs = plan->n_runs;
    set_positions(w, stage_runs(w, plan));
    r->now = NULL;
    r->capturing = false;
    if (!plan->key || plan->key_size > MAX_KEY || w->error != cudaSuccess)
        return true;
    set_positions(w, round_positions(w->max_positions));
    r->now = find(r, plan, w->max_positions);
    seen = r->now->used > 0;
    r->now->used = ++r->clock;
    if (r->now->graph)
        return false;
    if (!seen) { /* perhaps it never comes again; and kernels are set up by their first launch */
        r->now = NULL;
        return true;
    }
    r->capturing =
        cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (!r->capturing)
        r->now = NULL;
    return true;
}

void recorder_end(struct device_work *w)
{
    struct recorder *r = w->recorder;
    cudaSetDevice(w->gpu->index);
    if (r->capturing) {
        cudaGraph_t graph = NULL;
        work_check(w, cudaStreamEndCapture(w->stream, &graph), "recording a step");
        r->capturing = false;
        if (graph) {
            work_check(w, cudaGraphInstantiate(&r->now->graph, graph, 0), "recording a step");
            cudaGraphDestroy(graph);
        }
    }
    if (r->now && r->now->graph)
        work_check(w, cudaGraphLaunch(r->now->graph, w->stream), "a recorded step");
    r->now = NULL;
}
