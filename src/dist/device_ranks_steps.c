/* Steps on the device of all ranks: operations that run on every rank become commands. Arguments in
 * host memory are copied into the command. x, cos and sin are read when the command is executed;
 * nothing else of the same session runs before that. */
#include "dist/device_ranks.h"

#include <string.h>

/* ---- runs ---- */

static int pages_of(const struct attn_run *r)
{
    return (r->first_slot + r->pending + r->n + KV_CHUNK - 1) / KV_CHUNK;
}

static size_t count_numbers(const struct attn_run *runs, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += (size_t)pages_of(&runs[i]) +
               (runs[i].parent ? (size_t)(runs[i].pending + runs[i].n) : 0);
    return sum;
}

/* Queue the runs, unless the other ranks have the same ones already. */
static void push_runs(struct device_work *w, const struct attn_run *runs, int n)
{
    struct rank_device *d = w->d;
    size_t numbers = count_numbers(runs, n);
    struct command_runs *c =
        queue_push(d, COMMAND_RUNS, 0, w->id,
                   sizeof *c + (size_t)n * sizeof(struct wire_run) + numbers * sizeof(int32_t));
    struct wire_run *run = c ? (struct wire_run *)(c + 1) : NULL;
    int32_t *at = c ? (int32_t *)(run + n) : NULL;
    if (!c)
        return;
    c->n_runs = n;
    c->n_numbers = (int32_t)numbers;
    for (int i = 0; i < n; i++) {
        int pool = -1, pages = pages_of(&runs[i]);
        (void)pool_find(d, runs[i].kv->k, &pool);
        run[i] = (struct wire_run){ .row0 = runs[i].row0,
                                    .n = runs[i].n,
                                    .first_slot = runs[i].first_slot,
                                    .pending = runs[i].pending,
                                    .pool = pool,
                                    .n_pages = pages,
                                    .tree = runs[i].parent != NULL };
        memcpy(at, runs[i].kv->page, sizeof *at * (size_t)pages);
        at += pages;
    }
    for (int i = 0; i < n; i++) {
        int nodes = runs[i].parent ? runs[i].pending + runs[i].n : 0;
        for (int k = 0; k < nodes; k++)
            *at++ = runs[i].parent[k];
    }
    size_t size = (size_t)c->head.size;
    if (size > w->runs_cap)
        return;
    if (!memcmp(c, w->runs, size))
        d->queue.size -= size;
    else
        memcpy(w->runs, c, size);
}

/* ---- layers ---- */

static size_t columns_size(const struct attn_block *b)
{
    size_t size = (size_t)b->n_columns * sizeof(struct wire_columns);
    for (int i = 0; i < b->n_columns; i++)
        size += sizeof(int32_t) * (size_t)(b->columns[i].n_rows + b->columns[i].n_keys);
    return size;
}

static void write_columns(struct command_attn *c, const struct attn_block *b)
{
    struct wire_columns *col = (struct wire_columns *)(c + 1);
    int32_t *at = (int32_t *)(col + b->n_columns);
    c->n_columns = b->n_columns;
    for (int i = 0; i < b->n_columns; i++) {
        const struct column_job *j = &b->columns[i];
        col[i] = (struct wire_columns){ .run = (int32_t)(j->run - b->runs),
                                        .n_rows = j->n_rows,
                                        .n_keys = j->n_keys,
                                        .over_keys = j->over_keys,
                                        .sums = (uint64_t)(uintptr_t)j->sums };
        memcpy(at, j->rows, sizeof *at * (size_t)j->n_rows);
        memcpy(at + j->n_rows, j->keys, sizeof *at * (size_t)j->n_keys);
        at += j->n_rows + j->n_keys;
    }
}

/* A layer's number in its pool. */
static int layer_of(const struct rank_pool *p, const struct kv_layer *kv)
{
    size_t both = p->page_size / (size_t)p->shape.n_layers;
    return (int)((size_t)((const uint8_t *)kv->k - p->mem) / both);
}

static void push_attn(struct device_work *w, const struct attn_block *b, int layer)
{
    struct rank_device *d = w->d;
    const struct rank_pool *p;
    struct command_attn *c;
    int pool;
    pthread_mutex_lock(&d->lock);
    push_runs(w, b->runs, b->n_runs);
    p = pool_find(d, b->runs[0].kv->k, &pool);
    c = queue_push(d, COMMAND_ATTN, layer, w->id, sizeof *c + columns_size(b));
    if (c) {
        c->n = b->n;
        c->kv_layer = layer_of(p, b->runs[0].kv);
        c->fresh = !w->there;
        c->x = (uint64_t)(uintptr_t)b->x;
        c->wide = (uint64_t)(uintptr_t)b->wide;
        c->cos = (uint64_t)(uintptr_t)b->cos;
        c->sin = (uint64_t)(uintptr_t)b->sin;
        write_columns(c, b);
    }
    pthread_mutex_unlock(&d->lock);
    w->there = w->dirty = true;
}

static void ranks_attn(struct device_work *w, const struct attn_block *b)
{
    enum { MAX_COLUMNS = 16 };
    const struct layer_handle *h = b->w->handle;
    struct column_job jobs[MAX_COLUMNS];
    if (h->id >= 0) {
        push_attn(w, b, h->id);
        return;
    }
    work_settle(w);
    for (int i = 0; i < b->n_columns && i < MAX_COLUMNS; i++)
        jobs[i] = b->columns[i];
    struct attn_args a = { .x = (float *)(uintptr_t)b->x,
                           .wide = b->wide,
                           .cos = b->cos,
                           .sin = b->sin,
                           .n = b->n,
                           .n_runs = b->n_runs,
                           .runs = b->runs,
                           .n_columns = b->n_columns < MAX_COLUMNS ? b->n_columns : MAX_COLUMNS,
                           .columns = jobs };
    layer_attn(w->w, h->local, &a);
}

static void ranks_finish(struct device_work *w, const struct finish_block *b)
{
    const struct layer_handle *h = b->w->handle;
    struct rank_device *d = w->d;
    size_t rows = b->rows ? sizeof(int32_t) * (size_t)b->n_rows : 0;
    struct command_finish *c;
    if (h->id < 0) {
        work_settle(w);
        layer_finish(w->w, h->local, b->x, b->n, b->rows, b->n_rows);
        return;
    }
    pthread_mutex_lock(&d->lock);
    c = queue_push(d, COMMAND_FINISH, h->id, w->id, sizeof *c + rows);
    if (c) {
        c->n = b->n;
        c->n_rows = b->n_rows;
        c->some = b->rows != NULL;
        c->x = (uint64_t)(uintptr_t)b->x;
        if (rows > 0)
            memcpy(c + 1, b->rows, rows);
    }
    pthread_mutex_unlock(&d->lock);
}

/* ---- products outside layers ---- */

static void ranks_matmul(struct device_work *w, const struct matmul_job *jobs, int n_jobs,
                         const float *x, int n)
{
    struct rank_device *d = w->d;
    if (jobs[0].w->spread.kind == SPREAD_NONE) {
        work_settle(w);
        d->k.dev->ops->matmul(w->inner, jobs, n_jobs, x, n);
        w->there = false;
        return;
    }
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < n_jobs; i++) {
        struct command_matmul *c =
            queue_push(d, COMMAND_MATMUL, jobs[i].w->number - 1, w->id, sizeof *c);
        if (!c)
            break;
        c->n = n;
        c->x = (uint64_t)(uintptr_t)x;
        c->y = (uint64_t)(uintptr_t)jobs[i].y;
        c->y_stride = jobs[i].y_stride;
    }
    pthread_mutex_unlock(&d->lock);
    w->there = false; /* its input replaced x on the other ranks */
    w->dirty = true;
}

/* ---- the cache ---- */

static int last_page(const int *slots, int n)
{
    return n > 0 ? slots[n - 1] / KV_CHUNK + 1 : 0;
}

static void ranks_kv_move(struct device_work *w, const struct kv_layer *kv, const int *to,
                          const int *from, int n)
{
    struct rank_device *d = w->d;
    int id, pages = last_page(from, n); /* slots are ascending and only move down */
    const struct rank_pool *p;
    if (w->id < 0) {
        d->k.dev->ops->kv_move(w->inner, kv, to, from, n);
        return;
    }
    pthread_mutex_lock(&d->lock);
    p = pool_find(d, kv->k, &id);
    struct command_kv_move *c =
        p ? queue_push(d, COMMAND_KV_MOVE, id, w->id,
                       sizeof *c + sizeof(int32_t) * (size_t)(pages + 2 * n))
          : NULL;
    if (c) {
        int32_t *at = (int32_t *)(c + 1);
        c->layer = layer_of(p, kv);
        c->n = n;
        c->n_pages = pages;
        memcpy(at, kv->page, sizeof *at * (size_t)pages);
        memcpy(at + pages, to, sizeof *at * (size_t)n);
        memcpy(at + pages + n, from, sizeof *at * (size_t)n);
    } else if (!p) {
        queue_flush(d);
        d->k.dev->ops->kv_move(w->inner, kv, to, from, n);
    }
    pthread_mutex_unlock(&d->lock);
}

static int most_page(const int *slots, int n)
{
    int most = 0;
    for (int i = 0; i < n; i++)
        most = slots[i] / KV_CHUNK + 1 > most ? slots[i] / KV_CHUNK + 1 : most;
    return most;
}

static void ranks_kv_copy(struct device_work *w, const struct kv_layer *to,
                          const struct kv_layer *from, const int *to_slots, const int *from_slots,
                          int n)
{
    struct rank_device *d = w->d;
    int id, from_id, pages = most_page(to_slots, n), from_pages = most_page(from_slots, n);
    const struct rank_pool *a, *b;
    if (w->id < 0) {
        d->k.dev->ops->kv_copy(w->inner, to, from, to_slots, from_slots, n);
        return;
    }
    pthread_mutex_lock(&d->lock);
    a = pool_find(d, to->k, &id);
    b = pool_find(d, from->k, &from_id);
    struct command_kv_copy *c =
        a && b ? queue_push(d, COMMAND_KV_COPY, id, w->id,
                            sizeof *c + sizeof(int32_t) * (size_t)(pages + from_pages + 2 * n))
               : NULL;
    if (c) {
        int32_t *at = (int32_t *)(c + 1);
        c->from = from_id;
        c->layer = layer_of(a, to);
        c->from_layer = layer_of(b, from);
        c->n = n;
        c->n_pages = pages;
        c->from_pages = from_pages;
        memcpy(at, to->page, sizeof *at * (size_t)pages);
        memcpy(at + pages, from->page, sizeof *at * (size_t)from_pages);
        at += pages + from_pages;
        memcpy(at, to_slots, sizeof *at * (size_t)n);
        memcpy(at + n, from_slots, sizeof *at * (size_t)n);
    } else if (!a && !b) {
        queue_flush(d);
        d->k.dev->ops->kv_copy(w->inner, to, from, to_slots, from_slots, n);
    }
    pthread_mutex_unlock(&d->lock);
}

/* Copy memory of rank 0, or a page of a pool on every rank. */
static void ranks_copy(struct device_work *w, void *dst, const void *src, size_t size)
{
    struct rank_device *d = w->d;
    int id;
    const struct rank_pool *p;
    if (w->id < 0) {
        d->k.dev->ops->copy(w->inner, dst, src, size);
        return;
    }
    pthread_mutex_lock(&d->lock);
    p = pool_find(d, dst, &id);
    struct command_kv_page *c = p ? queue_push(d, COMMAND_KV_PAGE, id, w->id, sizeof *c) : NULL;
    if (c) {
        c->to = (int32_t)((size_t)((uint8_t *)dst - p->mem) / p->page_size);
        c->from = (int32_t)((size_t)((const uint8_t *)src - p->mem) / p->page_size);
    } else if (!p) {
        queue_flush(d);
        d->k.dev->ops->copy(w->inner, dst, src, size);
        w->there = false;
    }
    pthread_mutex_unlock(&d->lock);
}

void fill_step_ops(struct device_ops *table)
{
    table->attn = ranks_attn;
    table->finish = ranks_finish;
    table->matmul = ranks_matmul;
    table->kv_move = ranks_kv_move;
    table->kv_copy = ranks_kv_copy;
    table->copy = ranks_copy;
}
