/* Steps that come again and again. A step that comes for the second time is recorded as a graph,
 * and from then on played with one launch: what differs between the plays (slots, trees, tokens,
 * positions) lies in device memory that is filled before. The first time only its hash is kept:
 * perhaps it never comes again, and it must not push a graph out.
 *
 * To record and to instantiate takes the host longer than to launch, so a step that is to be
 * recorded is launched first as any other, and recorded while the GPU runs it.
 *
 * Kernels of attention are launched for a number of KV splits; a graph serves the stretch of an
 * answer that needs as many, or with very many a few less. Splits beyond the real length end at
 * once, so neither this nor recording changes a bit. */
#include "kernels/cuda/work.h"

#include <string.h>

enum { MAX_GRAPHS = 128, MAX_KEY = 256, MAX_SEEN = 1024 };

struct recorded {
    uint8_t key[MAX_KEY];
    size_t key_size;
    int positions;
    uint64_t used;         /* when */
    cudaGraphExec_t graph; /* NULL: not yet */
};

struct recorder {
    struct recorded entry[MAX_GRAPHS];
    uint64_t seen[MAX_SEEN]; /* hashes of steps, each at its place */
    struct recorded *now;    /* to be played or recorded; NULL: neither */
    bool capturing;
    bool fails; /* no more tries: steps are launched as they come */
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

/* Positions that kernels are launched for: whole splits, or with many at most a 64th more, for
 * blocks without work keep the kernel behind from starting. */
static int round_positions(int n)
{
    int unit = KV_ROUND;
    while (n / unit > 128)
        unit *= 2;
    return (n + unit - 1) / unit * unit;
}

static uint64_t hash_of(const struct work_plan *plan, int positions)
{
    const uint8_t *key = (const uint8_t *)plan->key;
    uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)positions;
    for (size_t i = 0; i < plan->key_size; i++)
        h = (h ^ key[i]) * 0x100000001b3u;
    return h ? h : 1;
}

static struct recorded *find(struct recorder *r, const struct work_plan *plan, int positions)
{
    for (int i = 0; i < MAX_GRAPHS; i++) {
        struct recorded *e = &r->entry[i];
        if (e->key_size == plan->key_size && e->positions == positions &&
            memcmp(e->key, plan->key, plan->key_size) == 0)
            return e;
    }
    return NULL;
}

/* In the place of the one that was not played for the longest time. */
static struct recorded *add(struct recorder *r, const struct work_plan *plan, int positions)
{
    struct recorded *oldest = &r->entry[0];
    for (int i = 1; i < MAX_GRAPHS; i++)
        if (r->entry[i].used < oldest->used)
            oldest = &r->entry[i];
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
    uint64_t hash, *seen;
    cudaSetDevice(w->gpu->index);
    w->n_runs = plan->n_runs;
    set_positions(w, stage_runs(w, plan));
    r->now = NULL;
    if (!plan->key || plan->key_size > MAX_KEY || w->error != cudaSuccess)
        return true;
    set_positions(w, round_positions(w->max_positions));
    r->now = find(r, plan, w->max_positions);
    if (!r->now) {
        hash = hash_of(plan, w->max_positions);
        seen = &r->seen[hash % MAX_SEEN];
        if (*seen == hash)
            r->now = add(r, plan, w->max_positions);
        *seen = hash;
    }
    if (r->now)
        r->now->used = ++r->clock;
    if (r->now && r->now->graph)
        return false;
    if (!r->fails) /* else it will not be faster */
        __atomic_fetch_add(&w->gpu->first_runs, 1, __ATOMIC_RELAXED);
    return true;
}

uint64_t recorder_first_runs(struct device *dev)
{
    struct cuda_device *gpu = (struct cuda_device *)dev->impl;
    return __atomic_load_n(&gpu->first_runs, __ATOMIC_RELAXED);
}

/* Asked for again, the operations do not run, so nothing that fails here fails the step. */
static void finish_recording(struct device_work *w)
{
    struct recorder *r = w->recorder;
    cudaGraph_t graph = NULL;
    cudaError_t e = cudaStreamEndCapture(w->stream, &graph);
    r->capturing = false;
    if (e == cudaSuccess)
        e = w->error;
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&r->now->graph, graph, 0);
    if (e != cudaSuccess) {
        r->now->graph = NULL;
        r->fails = true;
        w->error = cudaSuccess;
        cudaGetLastError();
    }
    if (graph)
        cudaGraphDestroy(graph);
    r->now = NULL;
}

void recorder_end(struct device_work *w)
{
    struct recorder *r = w->recorder;
    cudaSetDevice(w->gpu->index);
    if (r->capturing) {
        finish_recording(w);
    } else if (r->now && r->now->graph) {
        work_check(w, cudaGraphLaunch(r->now->graph, w->stream), "a recorded step");
        r->now = NULL;
    }
}

bool recorder_again(struct device_work *w)
{
    struct recorder *r = w->recorder;
    if (!r->now || r->fails || w->error != cudaSuccess)
        return false;
    cudaSetDevice(w->gpu->index);
    r->capturing =
        cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    r->fails = !r->capturing;
    return r->capturing;
}
