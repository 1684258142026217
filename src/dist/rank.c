/* Executes commands on a rank: one function per kind. */
#include "dist/rank.h"

#include "base/build_id.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <string.h>

/* ---- tables ---- */

bool table_put(struct table *t, int id, void *what)
{
    if (id >= t->n) {
        int n = t->n > 0 ? t->n : 64;
        void **at;
        while (n <= id)
            n *= 2;
        at = mem_realloc(t->at, (size_t)n * sizeof *at);
        if (!at)
            return false;
        memset(at + t->n, 0, (size_t)(n - t->n) * sizeof *at);
        t->at = at;
        t->n = n;
    }
    t->at[id] = what;
    return true;
}

void *table_find(const struct table *t, int id)
{
    return id >= 0 && id < t->n ? t->at[id] : NULL;
}

static void table_close(struct table *t)
{
    mem_free(t->at);
    *t = (struct table){ 0 };
}

/* ---- communication ---- */

void rank_bcast(struct rank *k, void *data, size_t size)
{
    if (!k->status)
        k->status = transport_bcast(k->t, data, size, &k->err);
}

void rank_gather(struct rank *k, void *all, const size_t *at, int to)
{
    if (!k->status)
        k->status = transport_gather(k->t, all, at, to, &k->err);
}

/* ---- the device ---- */

static enum pv_status run_open(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_open *c = (const struct command_open *)head;
    if (strncmp(c->build, build_id(), sizeof c->build - 1))
        return fail(err, PV_E_ARG, "rank %d runs another build of prevue than rank 0", k->t->rank);
    if (c->cpu & ~cpu_flags())
        return fail(err, PV_E_UNSUPPORTED,
                    "the CPU of rank %d lacks features that rank 0 uses (--cpumask limits them)",
                    k->t->rank);
    return device_cpu_open(&k->dev, c->threads, c->cpu, err);
}

void rank_close(struct rank *k)
{
    for (int i = 0; i < k->works.n; i++) {
        struct rank_work *w = k->works.at[i];
        rank_work_close(&w);
    }
    for (int i = 0; i < k->layers.n; i++) {
        struct rank_layer *l = k->layers.at[i];
        rank_layer_close(&l);
    }
    for (int i = 0; i < k->experts.n; i++) {
        struct rank_experts *e = k->experts.at[i];
        rank_experts_close(&e);
    }
    for (int i = 0; i < k->pools.n; i++) {
        struct rank_pool *p = k->pools.at[i];
        rank_pool_close(k, &p);
    }
    for (int i = 0; i < k->matrices.n; i++) {
        struct rank_matrix *m = k->matrices.at[i];
        rank_matrix_close(k, &m);
    }
    struct table *tables[] = { &k->works, &k->layers, &k->experts, &k->pools, &k->matrices };
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        table_close(tables[i]);
    for (int i = 0; i < RANK_SOURCES; i++)
        file_map_close(&k->source[i]);
    device_close(&k->dev);
}

static enum pv_status run_close(struct rank *k, const struct command *c, struct pv_error *err)
{
    (void)c, (void)err;
    rank_close(k);
    return PV_OK;
}

/* ---- sessions ---- */

static enum pv_status run_work_open(struct rank *k, const struct command *c, struct pv_error *err)
{
    const struct command_work *m = (const struct command_work *)c;
    struct rank_work *w = NULL;
    enum pv_status s = rank_work_open(&w, k, &m->shape, err);
    if (!s && !table_put(&k->works, c->id, w)) {
        rank_work_close(&w);
        s = fail_nomem(err, sizeof *w);
    }
    return s;
}

static enum pv_status run_work_close(struct rank *k, const struct command *c, struct pv_error *err)
{
    struct rank_work *w = table_find(&k->works, c->id);
    (void)err;
    rank_work_close(&w);
    table_put(&k->works, c->id, NULL);
    return PV_OK;
}

static enum pv_status run_runs(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_runs *c = (const struct command_runs *)head;
    const struct wire_run *run = (const struct wire_run *)(c + 1);
    struct rank_work *w = table_find(&k->works, head->work);
    int32_t *at = w->numbers;
    if (c->n_runs > RANK_RUNS || (size_t)c->n_numbers > w->numbers_cap)
        return fail(err, PV_E_LIMIT, "a step of %d runs with %d pages and parents is too large",
                    c->n_runs, c->n_numbers);
    memcpy(w->numbers, run + c->n_runs, sizeof *at * (size_t)c->n_numbers);
    w->n_runs = c->n_runs;
    for (int i = 0; i < c->n_runs; i++) {
        w->pool[i] = run[i].pool;
        w->kv[i].page = at;
        w->kv[i].cap = run[i].n_pages * KV_CHUNK;
        at += run[i].n_pages;
    }
    for (int i = 0; i < c->n_runs; i++) {
        w->runs[i] = (struct attn_run){ .row0 = run[i].row0,
                                        .n = run[i].n,
                                        .first_slot = run[i].first_slot,
                                        .pending = run[i].pending,
                                        .parent = run[i].tree ? at : NULL,
                                        .kv = &w->kv[i] };
        at += run[i].tree ? run[i].pending + run[i].n : 0;
    }
    return PV_OK;
}

/* ---- layers ---- */

enum { MAX_COLUMNS = 16 };

static int read_columns(const struct command_attn *c, struct rank_work *w, struct column_job *jobs)
{
    const struct wire_columns *col = (const struct wire_columns *)(c + 1);
    const int32_t *at = (const int32_t *)(col + c->n_columns);
    for (int i = 0; i < c->n_columns; i++) {
        jobs[i] = (struct column_job){ .sums = (float *)(uintptr_t)col[i].sums,
                                       .run = &w->runs[col[i].run],
                                       .n_rows = col[i].n_rows,
                                       .rows = at,
                                       .n_keys = col[i].n_keys,
                                       .keys = at + col[i].n_rows,
                                       .over_keys = col[i].over_keys != 0 };
        at += col[i].n_rows + col[i].n_keys;
    }
    return c->n_columns;
}

static enum pv_status run_attn(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_attn *c = (const struct command_attn *)head;
    struct rank_work *w = table_find(&k->works, head->work);
    const struct rank_layer *l = table_find(&k->layers, head->id);
    size_t rows = sizeof(float) * (size_t)c->n * (size_t)l->shape.hidden;
    size_t half = sizeof(float) * (size_t)c->n * (size_t)(l->shape.head_dim / 2);
    struct column_job jobs[MAX_COLUMNS];
    bool leads = k->t->rank == 0;
    float *x = leads ? (float *)(uintptr_t)c->x : w->x;
    float *cos = leads ? (float *)(uintptr_t)c->cos : w->cos;
    float *sin = leads ? (float *)(uintptr_t)c->sin : w->sin;
    float *wide = leads ? (float *)(uintptr_t)c->wide : c->wide ? w->wide : NULL;
    if (c->n_columns > MAX_COLUMNS)
        return fail(err, PV_E_LIMIT, "%d column sums of one layer are too many", c->n_columns);
    if (c->fresh) {
        rank_bcast(k, x, rows);
        rank_bcast(k, cos, half);
        rank_bcast(k, sin, half);
    }
    if (c->wide)
        rank_bcast(k, wide, 2 * rows);
    for (int i = 0; i < w->n_runs; i++)
        w->kv[i] = rank_kv_layer(table_find(&k->pools, w->pool[i]), c->kv_layer, w->kv[i].page,
                                 w->kv[i].cap / KV_CHUNK);
    struct attn_args a = { .x = x,
                           .wide = wide,
                           .cos = cos,
                           .sin = sin,
                           .n = c->n,
                           .n_runs = w->n_runs,
                           .runs = w->runs,
                           .n_columns = read_columns(c, w, jobs),
                           .columns = jobs };
    layer_attn(w, l, &a);
    return PV_OK;
}

static enum pv_status run_finish(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_finish *c = (const struct command_finish *)head;
    struct rank_work *w = table_find(&k->works, head->work);
    float *x = k->t->rank == 0 ? (float *)(uintptr_t)c->x : w->x;
    (void)err;
    layer_finish(w, table_find(&k->layers, head->id), x, c->n,
                 c->some ? (const int32_t *)(c + 1) : NULL, c->n_rows);
    return PV_OK;
}

static enum pv_status run_matmul(struct rank *k, const struct command *head, struct pv_error *err)
{
    const struct command_matmul *c = (const struct command_matmul *)head;
    struct rank_work *w = table_find(&k->works, head->work);
    const struct rank_matrix *m = table_find(&k->matrices, head->id);
    float *x = k->t->rank == 0 ? (float *)(uintptr_t)c->x : w->x;
    (void)err;
    rank_bcast(k, x, sizeof *x * (size_t)c->n * (size_t)m->m.in);
    matrix_product(w, m, (float *)(uintptr_t)c->y, (size_t)c->y_stride, x, c->n);
    return PV_OK;
}

/* ---- failures of steps ---- */

struct report {
    int32_t status;
    char text[RANK_REPORT - sizeof(int32_t)];
};

/* Tell rank 0 what failed on which rank. */
static enum pv_status run_sync(struct rank *k, const struct command *c, struct pv_error *err)
{
    struct report all[RANKS_MAX], *own = &all[k->t->rank];
    struct rank_work *w = table_find(&k->works, c->work);
    struct pv_error e = { 0 };
    size_t at[RANKS_MAX + 1];
    (void)err;
    memset(own, 0, sizeof *own);
    own->status = w ? (int32_t)k->dev->ops->wait(w->inner, &e) : PV_OK;
    for (size_t i = 0; i < sizeof own->text - 1 && i < sizeof e.text && e.text[i]; i++)
        own->text[i] = e.text[i];
    for (int r = 0; r <= k->t->n; r++)
        at[r] = (size_t)r * sizeof *all;
    rank_gather(k, all, at, 0);
    k->report = PV_OK;
    for (int r = 0; k->t->rank == 0 && !k->status && r < k->t->n && !k->report; r++) {
        all[r].text[sizeof all[r].text - 1] = '\0';
        k->report_err = (struct pv_error){ 0 };
        if (all[r].status)
            k->report = fail(&k->report_err, (enum pv_status)all[r].status, "%s", all[r].text);
    }
    return PV_OK;
}

typedef enum pv_status command_fn(struct rank *k, const struct command *c, struct pv_error *err);

static command_fn *const command_fns[COMMAND_COUNT] = {
    [COMMAND_OPEN] = run_open,
    [COMMAND_CLOSE] = run_close,
    [COMMAND_SOURCE] = rank_source,
    [COMMAND_TAKE] = rank_take,
    [COMMAND_DROP] = rank_drop,
    [COMMAND_TAKE_EXPERTS] = rank_take_experts,
    [COMMAND_DROP_EXPERTS] = rank_drop_experts,
    [COMMAND_TAKE_LAYER] = rank_take_layer,
    [COMMAND_DROP_LAYER] = rank_drop_layer,
    [COMMAND_KV_OPEN] = rank_kv_open,
    [COMMAND_KV_CLOSE] = rank_kv_close,
    [COMMAND_WORK_OPEN] = run_work_open,
    [COMMAND_WORK_CLOSE] = run_work_close,
    [COMMAND_RUNS] = run_runs,
    [COMMAND_ATTN] = run_attn,
    [COMMAND_FINISH] = run_finish,
    [COMMAND_MATMUL] = run_matmul,
    [COMMAND_KV_MOVE] = rank_kv_move,
    [COMMAND_KV_COPY] = rank_kv_copy,
    [COMMAND_KV_PAGE] = rank_kv_page,
    [COMMAND_SYNC] = run_sync,
};

enum pv_status rank_run(struct rank *k, const struct command *c, struct pv_error *err)
{
    if (c->kind < 0 || c->kind >= COMMAND_COUNT || !command_fns[c->kind])
        return fail(err, PV_E_FORMAT, "rank %d received the unknown command %d", k->t->rank,
                    c->kind);
    return command_fns[c->kind](k, c, err);
}
