/* Records repeated steps as CUDA graphs. A step that occurs for the second time is recorded, and
 * from then on replayed with one launch. What differs between replays (slots, trees, tokens,
 * positions, page tables) is in device memory that is filled before. At the first occurrence only
 * the step's hash is stored: the step may never occur again, and must not evict a graph.
 *
 * The levels of a chain are separate steps, each recorded once for chains of any length. Their runs
 * are copied together before the first level, because a copy between two levels would delay the
 * second.
 *
 * Recording and instantiating a graph takes the host longer than launching the kernels. So a step
 * that is to be recorded is first launched as usual, and recorded while the GPU executes it.
 *
 * Attention kernels are launched for a number of KV splits. A graph serves the part of an answer
 * that needs this number, or, with very many splits, a few less. Splits beyond the real length
 * return at once, so neither this nor recording changes a bit. */
#include "kernels/cuda/work.h"

#include <string.h>

enum { MAX_GRAPHS = 128, MAX_KEY = 4096, MAX_SEEN = 256, SEEN_WAYS = 8 };

struct recorded {
    uint8_t key[MAX_KEY];
    size_t key_size;
    int positions, level;
    uint64_t used;         /* clock at the last replay */
    cudaGraphExec_t graph; /* NULL: not recorded yet */
};

struct recorder {
    struct recorded entry[MAX_GRAPHS];
    uint64_t seen[MAX_SEEN][SEEN_WAYS]; /* hashes of steps seen, the latest first */
    struct recorded *now;               /* entry to replay or record; NULL: neither */
    bool capturing;
    bool fails; /* recording failed: launch all steps as usual */
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

/* Positions of a run, including those of its rows. */
static int run_end(const struct attn_run *r)
{
    return r->first_slot + r->pending + r->n;
}

static int levels_of(const struct work_plan *plan)
{
    return plan->n_levels > 1 ? plan->n_levels : 1;
}

/* Positions of the longest run of a plan, over all levels of its chain. */
static int longest(const struct work_plan *plan)
{
    int most = 1;
    for (int i = 0; i < plan->n_runs * levels_of(plan); i++)
        most = run_end(&plan->runs[i]) > most ? run_end(&plan->runs[i]) : most;
    return most;
}

/* Write the page table of a run, followed by entries that name no page. */
static void stage_table(int32_t *to, int size, const struct attn_run *r)
{
    int n = (run_end(r) + KV_CHUNK - 1) / KV_CHUNK;
    memcpy(to, r->kv->page, sizeof *to * (size_t)n);
    for (int i = n; i < size; i++)
        to[i] = -1;
}

/* Rows of each tree that grows over the levels of a plan; 0: there is none. */
static int grown_rows(const struct work_plan *plan)
{
    const struct attn_run *last = plan->runs + (levels_of(plan) - 1) * plan->n_runs;
    return levels_of(plan) > 1 && plan->n_runs > 0 && last->parent ? last->pending + last->n : 0;
}

/* Write one level's runs and page tables on the host. Returns their size in bytes. */
static size_t fill_level(struct device_work *w, struct staged *s, const struct attn_run *runs,
                         int n_runs, int level)
{
    size_t size = (size_t)w->table_size, at = size * (size_t)n_runs;
    int shared = (level - 1) * (int)(w->staged_step / sizeof *s->list); /* back to level 1 */
    for (int i = 0; i < n_runs; i++) {
        const struct attn_run *r = &runs[i];
        size_t rows = (size_t)(r->pending + r->n);
        int32_t *page = s->list + size * (size_t)i;
        stage_table(page, w->table_size, r);
        s->run[i] = staged_run{ r->row0,
                                r->n,
                                r->first_slot,
                                r->pending,
                                r->parent != NULL,
                                w->grown ? (int)at - shared : (int)at,
                                page[slot_chunk(r->first_slot)],
                                page[slot_chunk(r->first_slot + r->pending)] };
        if (r->parent && w->grown) {
            at += (size_t)w->grown_rows;
        } else if (r->parent && rows <= w->list_size - at) {
            memcpy(s->list + at, r->parent, sizeof *s->list * rows);
            at += rows;
        } else if (r->parent) {
            work_check(w, cudaErrorInvalidValue, "a tree of too many rows");
        }
    }
    return sizeof *s + sizeof *s->list * at;
}

/* Copy the runs and their page tables to the device, in one copy. */
static void stage_runs(struct device_work *w, const struct work_plan *plan)
{
    int levels = levels_of(plan);
    size_t tables = (size_t)w->table_size * (size_t)plan->n_runs, size = 0, parents;
    w->grown_rows = grown_rows(plan);
    parents = (size_t)w->grown_rows * (size_t)plan->n_runs;
    w->staged_step =
        (sizeof(struct staged) + sizeof(int32_t) * (tables + parents) + 255) / 256 * 256;
    w->staged = (struct staged *)(w->staged_levels + w->staged_step * (size_t)plan->level);
    w->grown =
        parents > 0 ? ((struct staged *)(w->staged_levels + w->staged_step))->list + tables : NULL;
    if (plan->n_runs == 0 || plan->level > 0)
        return;
    if (plan->n_runs > MAX_RUNS || tables + RUN_PARENTS > w->list_size || parents > RUN_PARENTS ||
        levels > DEVICE_MAX_CHAIN) {
        work_check(w, cudaErrorInvalidValue, "page tables of too many slots");
        return;
    }
    if (w->staging)
        work_check(w, cudaStreamSynchronize(w->stream), "waiting for the stream");
    w->staging = true;
    for (int i = 0; i < levels; i++)
        size = w->staged_step * (size_t)i +
               fill_level(w, (struct staged *)(w->staged_host + w->staged_step * (size_t)i),
                          plan->runs + (size_t)i * (size_t)plan->n_runs, plan->n_runs, i);
    work_check(
        w,
        cudaMemcpyAsync(w->staged_levels, w->staged_host, size, cudaMemcpyHostToDevice, w->stream),
        "a copy to the GPU");
}

static uint64_t hash_more(uint64_t h, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_of(const struct work_plan *plan, int positions)
{
    uint64_t h = hash_more(0xcbf29ce484222325u, plan->key, plan->key_size);
    h = hash_more(h, &positions, sizeof positions);
    h = hash_more(h, &plan->level, sizeof plan->level);
    return h ? h : 1;
}

/* Whether the step has occurred before; remembers it. The table is set-associative: steps that
 * alternate, such as the levels of a chain, may share a place. */
static bool came_before(struct recorder *r, uint64_t hash)
{
    uint64_t *place = r->seen[hash % MAX_SEEN];
    for (int i = 0; i < SEEN_WAYS; i++)
        if (place[i] == hash)
            return true;
    memmove(place + 1, place, (SEEN_WAYS - 1) * sizeof *place);
    place[0] = hash;
    return false;
}

static struct recorded *find(struct recorder *r, const struct work_plan *plan, int positions)
{
    for (int i = 0; i < MAX_GRAPHS; i++) {
        struct recorded *e = &r->entry[i];
        if (e->key_size == plan->key_size && e->positions == positions && e->level == plan->level &&
            memcmp(e->key, plan->key, plan->key_size) == 0)
            return e;
    }
    return NULL;
}

/* Add an entry, in place of the least recently used one. */
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
    oldest->level = plan->level;
    return oldest;
}

static void set_positions(struct device_work *w, int n)
{
    w->max_positions = n;
    w->max_splits = (n + KV_SPLIT - 1) / KV_SPLIT;
    w->table_size = table_size(n);
}

/* Kernels read keys and values of earlier steps before they wait for the preceding kernel, so
 * kernels of another level must have ended. Graphs wait for each other anyway. */
static void part_levels(struct device_work *w, const struct work_plan *plan)
{
    if (plan->level > 0)
        work_check(w, cudaStreamSynchronize(w->stream), "waiting for the stream");
}

static bool is_keyed(const struct work_plan *plan)
{
    return plan->key && plan->key_size <= MAX_KEY;
}

void recorder_stage(struct device_work *w, const struct work_plan *plan)
{
    int positions = longest(plan);
    cudaSetDevice(w->gpu->index);
    w->n_runs = plan->n_runs;
    set_positions(w, is_keyed(plan) ? round_positions(positions) : positions);
    stage_runs(w, plan);
}

bool recorder_begin(struct device_work *w, const struct work_plan *plan)
{
    struct recorder *r = w->recorder;
    bool keyed = is_keyed(plan);
    recorder_stage(w, plan);
    r->now = NULL;
    if (!keyed || w->error != cudaSuccess) {
        part_levels(w, plan);
        return true;
    }
    r->now = find(r, plan, w->max_positions);
    if (!r->now) {
        if (came_before(r, hash_of(plan, w->max_positions)))
            r->now = add(r, plan, w->max_positions);
    }
    if (r->now)
        r->now->used = ++r->clock;
    if (r->now && r->now->graph)
        return false;
    part_levels(w, plan);
    if (!r->fails) /* otherwise later runs are not faster */
        __atomic_fetch_add(&w->gpu->first_runs, 1, __ATOMIC_RELAXED);
    return true;
}

uint64_t recorder_first_runs(struct device *dev)
{
    struct cuda_device *gpu = (struct cuda_device *)dev->impl;
    return __atomic_load_n(&gpu->first_runs, __ATOMIC_RELAXED);
}

/* The operations are only recorded this time, they do not run. So an error here is not an error of
 * the step. */
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

bool recorder_captures(const struct device_work *w)
{
    return w->recorder->capturing;
}

bool recorder_plays(const struct device_work *w)
{
    return w->recorder->now && w->recorder->now->graph;
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
