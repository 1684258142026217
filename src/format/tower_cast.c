/* A tower's matrices in another type than the file's, made when a model is opened. One block of
 * memory holds all copies; the threads of a pool take one matrix each. Where rows of the second
 * matrix of the MLPs would not be whole blocks, the MLPs become wider by zeros (vision_write.c). */
#include "base/mem.h"
#include "base/pool.h"
#include "base/work_queue.h"
#include "format/model_file_parts.h"
#include "tensor/quant.h"

#include <string.h>

/* A tensor, and what replaces it. */
struct cast_item {
    const struct tensor **slot;
    struct tensor to; /* data: set when all sizes are known */
};

struct casting {
    const struct tower_cast *how;
    struct cast_item *item;
    int n;
    size_t size;  /* bytes of all copies */
    int64_t cols; /* of the longest row */
    float *rows;  /* [threads, cols] */
    struct work_queue queue;
    atomic_int bad; /* index of an item that has a number too large for the type; -1: none */
    atomic_bool stopped;
};

static bool is_plain(enum dtype t)
{
    return dtype_block(t) == 1;
}

/* Note that a tensor becomes [rows, cols], or with rows 0 a vector of `cols` numbers. */
static void list_item(struct casting *c, const struct tensor **slot, int64_t rows, int64_t cols)
{
    const struct tensor *t = *slot;
    bool whole = t && cols % dtype_block(c->how->type) == 0;
    struct cast_item *item = &c->item[c->n];
    if (!t || (cols != tensor_cols(t) && !is_plain(t->dtype)))
        return;
    item->slot = slot;
    item->to = *t;
    item->to.dtype = rows && whole && is_plain(t->dtype) ? c->how->type : t->dtype;
    item->to.dim[0] = rows ? rows : cols;
    if (rows)
        item->to.dim[1] = cols;
    if (item->to.dtype == t->dtype && !memcmp(item->to.dim, t->dim, sizeof t->dim))
        return;
    item->to.size = (size_t)(rows ? rows : 1) * dtype_row_size(item->to.dtype, cols);
    c->size += arena_cost(item->to.size);
    c->cols = cols > c->cols ? cols : c->cols;
    c->n++;
}

static void list_merger(struct casting *c, struct vision_merger *m)
{
    const struct tensor **both[] = { &m->mm0, &m->mm2 };
    for (int i = 0; i < 2; i++)
        if (*both[i])
            list_item(c, both[i], tensor_rows(*both[i]), tensor_cols(*both[i]));
}

static void list_all(struct casting *c, struct model_file *mf, int ffn)
{
    int hidden = mf->vision.hidden;
    for (int i = 0; i < mf->vision.n_layers; i++) {
        struct vision_layer_tensors *l = &mf->vision_layer[i];
        const struct tensor **square[] = { &l->q, &l->k, &l->v, &l->o };
        for (int k = 0; k < 4; k++)
            list_item(c, square[k], hidden, hidden);
        list_item(c, &l->up, ffn, hidden);
        list_item(c, &l->gate, ffn, hidden);
        list_item(c, &l->down, hidden, ffn);
        list_item(c, &l->up_bias, 0, ffn);
        list_item(c, &l->gate_bias, 0, ffn);
    }
    list_merger(c, &mf->vision_tensors.merger);
    for (int k = 0; k < mf->vision.n_deepstack; k++)
        list_merger(c, &mf->vision_tensors.deepstack[k]);
}

/* The rows of the old tensor to the new one, whose memory is zero: what it has more stays so.
 * `row`: scratch. Returns false if the type cannot hold a number. */
static bool cast_tensor(const struct tensor *to, const struct tensor *from, float *row)
{
    int64_t cols = tensor_cols(to), has = tensor_cols(from);
    size_t size = dtype_row_size(to->dtype, cols), from_size = dtype_row_size(from->dtype, has);
    bool ok = true;
    if (to->dtype == from->dtype && cols == has) {
        memcpy((void *)(uintptr_t)to->data, from->data, from->size);
        return true;
    }
    memset(row, 0, sizeof *row * (size_t)cols);
    for (int64_t r = 0; r < tensor_rows(from) && ok; r++) {
        uint8_t *out = (uint8_t *)(uintptr_t)to->data + (size_t)r * size;
        const uint8_t *in = (const uint8_t *)from->data + (size_t)r * from_size;
        row_to_f32(row, in, from->dtype, has);
        row_from_f32(out, row, to->dtype, cols);
        /* NaN is not seen in what it becomes. */
        ok = row_is_finite(in, from->dtype, has) && row_is_finite(out, to->dtype, cols);
    }
    return ok;
}

static void cast_run(void *arg, int thread, int n_threads)
{
    struct casting *c = arg;
    float *row = c->rows + (size_t)thread * (size_t)c->cols;
    (void)n_threads;
    for (int i = work_next(&c->queue); i >= 0 && !atomic_load(&c->stopped);
         i = work_next(&c->queue)) {
        if (!cast_tensor(&c->item[i].to, *c->item[i].slot, row))
            atomic_store(&c->bad, i);
        if (thread == 0 && c->how->go_on && !c->how->go_on(c->how->user))
            atomic_store(&c->stopped, true);
    }
}

static enum pv_status run_items(struct casting *c, const struct model_file *mf,
                                struct pv_error *err)
{
    struct pool *pool = NULL;
    enum pv_status s = pool_open(&pool, c->how->threads, err);
    if (s)
        return s;
    work_init(&c->queue, c->n);
    atomic_init(&c->bad, -1);
    atomic_init(&c->stopped, false);
    pool_run(pool, cast_run, c);
    pool_close(&pool);
    if (atomic_load(&c->stopped))
        return fail(err, PV_E_CANCELLED, "%s: stopped", mf->path);
    if (atomic_load(&c->bad) >= 0) {
        const struct cast_item *item = &c->item[atomic_load(&c->bad)];
        return fail(err, PV_E_FORMAT, "%s: the tensor %s has a number that %s cannot hold",
                    mf->path, item->to.name, dtype_name(item->to.dtype));
    }
    return PV_OK;
}

/* The copies become the tensors of the file. */
static void replace(struct model_file *mf, const struct casting *c, int ffn)
{
    for (int i = 0; i < c->n; i++) {
        mf->cast[i] = c->item[i].to;
        *c->item[i].slot = &mf->cast[i];
    }
    mf->vision.ffn = ffn;
}

static enum pv_status cast_listed(struct casting *c, struct model_file *mf, struct pv_error *err)
{
    size_t rows = sizeof *c->rows * (size_t)c->cols * (size_t)c->how->threads;
    struct arena a;
    mf->cast_data = mem_zalloc(c->size);
    mf->cast = mem_zalloc((size_t)c->n * sizeof *mf->cast);
    c->rows = mem_alloc(rows);
    if (!mf->cast_data || !mf->cast || !c->rows)
        return fail_nomem(err, c->size + rows);
    arena_init(&a, mf->cast_data, c->size);
    for (int i = 0; i < c->n; i++)
        c->item[i].to.data = arena_push(&a, c->item[i].to.size);
    return run_items(c, mf, err);
}

enum pv_status model_file_cast_tower(struct model_file *mf, const struct tower_cast *how,
                                     struct pv_error *err)
{
    struct casting c = { .how = how };
    int ffn = vision_whole_ffn(&mf->vision, how->type);
    size_t most = 9 * (size_t)mf->vision.n_layers + 2 + 2 * (size_t)mf->vision.n_deepstack;
    enum pv_status s = PV_OK;
    c.item = mem_zalloc((most + 1) * sizeof *c.item);
    if (!c.item)
        return fail_nomem(err, (most + 1) * sizeof *c.item);
    list_all(&c, mf, ffn);
    if (c.n > 0)
        s = cast_listed(&c, mf, err);
    if (c.n > 0 && !s)
        replace(mf, &c, ffn);
    mem_free(c.rows);
    mem_free(c.item);
    return s;
}
