/* Several GPUs as one device: opening them, memory of the KV cache, sessions. Everything that is
 * not spread over the GPUs runs on the first one, by the operations of a single GPU. */
#include "kernels/cuda/gpus.h"

#include "base/minmax.h"

#include <string.h>

static struct gpus_device *gpus_of(struct device *dev)
{
    return (struct gpus_device *)dev; /* dev is its first member */
}

static const struct device_ops *first_ops(const struct gpus_device *g)
{
    return g->gpu[0]->ops;
}

static void select_first(const struct gpus_device *g)
{
    cudaSetDevice(((const struct cuda_device *)g->gpu[0]->impl)->index);
}

/* ---- memory ---- */

const struct gpus_pool *gpus_pool_of(const struct gpus_device *g, const void *p)
{
    for (int i = 0; i < GPUS_POOLS; i++) {
        const struct gpus_pool *pool = &g->pool[i];
        if (pool->mem[0] && (const uint8_t *)p >= pool->mem[0] &&
            (const uint8_t *)p < pool->mem[0] + pool->size)
            return pool;
    }
    return NULL;
}

struct kv_layer gpus_kv(const struct gpus_pool *p, const struct kv_layer *kv, int r)
{
    size_t layers = (size_t)p->shape.n_layers, half0 = p->page_size[0] / 2 / layers;
    size_t half = p->page_size[r] / 2 / layers;
    size_t layer = (size_t)((const uint8_t *)kv->k - p->mem[0]) / half0 / 2;
    struct kv_layer own = *kv;
    own.n_kv = p->n_kv[r];
    own.k = p->mem[r] + 2 * layer * half;
    own.v = p->mem[r] + (2 * layer + 1) * half;
    own.page_size = p->page_size[r];
    return own;
}

static void free_pool(struct gpus_device *g, struct gpus_pool *p)
{
    for (int r = 0; r < g->n; r++)
        if (p->mem[r])
            g->gpu[r]->ops->free(g->gpu[r], p->mem[r]);
    memset(p, 0, sizeof *p);
    select_first(g);
}

static enum pv_status alloc_kv(struct device *dev, const struct kv_shape *shape, void **out,
                               int *n_kv, struct pv_error *err)
{
    struct gpus_device *g = gpus_of(dev);
    struct gpus_pool *p = NULL;
    enum pv_status s = PV_OK;
    for (int i = 0; i < GPUS_POOLS && !p; i++)
        p = g->pool[i].mem[0] ? NULL : &g->pool[i];
    if (!p)
        return fail(err, PV_E_LIMIT, "more than %d pools of keys and values", (int)GPUS_POOLS);
    p->shape = *shape;
    for (int r = 0; r < g->n && !s; r++) {
        struct head_part h = split_heads(shape->n_heads, shape->n_kv_heads, g->n, r);
        void *mem = NULL;
        size_t size = 0;
        p->n_kv[r] = h.kv.to - h.kv.from;
        p->page_size[r] = kv_page_size(shape->dtype, shape->n_layers, p->n_kv[r], shape->head_dim);
        s = mul_size(p->page_size[r], (size_t)shape->n_pages, &size)
                ? device_alloc(g->gpu[r], &mem, size, err)
                : fail(err, PV_E_LIMIT, "%d pages of %zu bytes are too many", shape->n_pages,
                       p->page_size[r]);
        p->mem[r] = (uint8_t *)mem;
        if (r == 0)
            p->size = size;
    }
    if (s) {
        free_pool(g, p);
        return s;
    }
    select_first(g);
    *out = p->mem[0];
    *n_kv = p->n_kv[0];
    return PV_OK;
}

static void gpus_free(struct device *dev, void *mem)
{
    struct gpus_device *g = gpus_of(dev);
    const struct gpus_pool *p = gpus_pool_of(g, mem);
    if (p && p->mem[0] == mem)
        free_pool(g, &g->pool[p - g->pool]);
    else
        first_ops(g)->free(g->gpu[0], mem);
}

/* Free and total memory of all GPUs together, because what needs most memory is spread over them. A
 * GPU that is listed several times counts once. */
static void gpus_room(struct device *dev, size_t *left, size_t *all)
{
    struct gpus_device *g = gpus_of(dev);
    *left = *all = 0;
    for (int r = 0; r < g->n; r++) {
        const struct cuda_device *gpu = (const struct cuda_device *)g->gpu[r]->impl;
        size_t l, a;
        bool before = false;
        for (int k = 0; k < r; k++)
            before = before || ((const struct cuda_device *)g->gpu[k]->impl)->index == gpu->index;
        if (before)
            continue;
        g->gpu[r]->ops->room(g->gpu[r], &l, &a);
        *left += l;
        *all += a;
    }
    select_first(g);
}

/* ---- sessions ---- */

static bool is_spread(const struct work_shape *s)
{
    return s->spread && s->context > 0;
}

static size_t up(size_t n)
{
    return (n + 255) / 256 * 256;
}

/* Compute the sizes of the buffers for a GPU's parts of rows. */
static void measure(struct gpus_work *g, const struct work_shape *s, bool uses_nccl)
{
    size_t rows = up((size_t)s->rows), f = sizeof(float);
    size_t pairs = (size_t)min_int(s->rows, EXPERT_ROWS) * (size_t)s->n_used;
    size_t q = (size_t)(s->n_heads * s->head_dim), ffn = up((size_t)s->ffn);
    /* Sized for whole rows: if there are few outputs, one GPU may have all of them. */
    g->pairs_size = f * pairs * (size_t)s->expert_ffn;
    g->part_size = max_size(f * rows * max_size(q, ffn), g->pairs_size);
    g->part_size = max_size(g->part_size, 8192); /* columns.cu */
    g->stage_size = max_size(g->part_size, f * rows * (size_t)s->hidden);
    g->stage_size = max_size(g->stage_size, f * FEW_ROWS * (size_t)s->out);
    g->stage_size = uses_nccl ? g->stage_size : 0;
}

static size_t carve(struct gpus_rank *k, uint8_t *base, const struct gpus_work *g,
                    const struct work_shape *s, bool first)
{
    size_t rows = up((size_t)s->rows), f = sizeof(float), at = 0;
    size_t half = f * rows * (size_t)(s->head_dim / 2);
    struct {
        void *field;
        size_t size;
    } parts[] = {
        { &k->part, g->part_size },
        { &k->part2, g->part_size },
        { &k->pairs, g->pairs_size },
        { &k->x, first ? 0 : f * rows * (size_t)s->hidden },
        { &k->cos, first ? 0 : half },
        { &k->sin, first ? 0 : half },
        { &k->rows, first ? 0 : sizeof(int32_t) * rows },
        { &k->logits, first ? 0 : f * FEW_ROWS * (size_t)s->out },
        { &k->stage, g->stage_size },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *p = base && parts[i].size > 0 ? base + at : NULL;
        memcpy(parts[i].field, &p, sizeof p);
        at += up(parts[i].size);
    }
    return at;
}

static void close_rank(struct gpus_device *g, struct gpus_rank *k, int r)
{
    if (k->w) {
        on_gpu(k);
        cudaStreamSynchronize(k->w->stream);
    }
    if (k->ready)
        cudaEventDestroy(k->ready);
    if (k->block)
        g->gpu[r]->ops->free(g->gpu[r], k->block);
    if (r > 0 && k->w)
        g->gpu[r]->ops->work_close(g->gpu[r], &k->w);
}

static void gpus_work_close(struct device *dev, struct device_work **work)
{
    struct gpus_device *g = gpus_of(dev);
    struct gpus_work *x = *work ? (*work)->gpus : NULL;
    for (int r = g->n - 1; x && r >= 0; r--)
        close_rank(g, &x->r[r], r);
    mem_free(x);
    first_ops(g)->work_close(g->gpu[0], work);
}

static enum pv_status open_rank(struct gpus_device *g, struct gpus_work *x, struct device_work *w,
                                const struct work_shape *s, int r, struct pv_error *err)
{
    struct gpus_rank *k = &x->r[r];
    struct device *gpu = g->gpu[r];
    size_t size = carve(k, NULL, x, s, r == 0);
    enum pv_status st = PV_OK;
    k->w = r == 0 ? w : NULL;
    if (r > 0)
        st = gpu->ops->work_open(gpu, &k->w, s, err);
    if (!st)
        st = device_alloc(gpu, &k->block, size, err);
    if (st)
        return st;
    carve(k, (uint8_t *)k->block, x, s, r == 0);
    on_gpu(k);
    if (cudaEventCreateWithFlags(&k->ready, cudaEventDisableTiming) != cudaSuccess)
        return fail(err, PV_E_DEVICE, "no event on %s", k->w->gpu->name);
    return PV_OK;
}

static enum pv_status gpus_work_open(struct device *dev, struct device_work **out,
                                     const struct work_shape *s, struct pv_error *err)
{
    struct gpus_device *g = gpus_of(dev);
    struct device_work *w = NULL;
    enum pv_status st = first_ops(g)->work_open(g->gpu[0], &w, s, err);
    if (!st && is_spread(s)) {
        w->gpus = (struct gpus_work *)mem_zalloc(sizeof *w->gpus);
        if (!w->gpus)
            st = fail_nomem(err, sizeof *w->gpus);
        if (!st) {
            w->gpus->g = g;
            w->gpus->n = g->n;
            measure(w->gpus, s, g->nccl != NULL);
        }
        for (int r = 0; r < g->n && !st; r++)
            st = open_rank(g, w->gpus, w, s, r, err);
    }
    select_first(g);
    if (st)
        gpus_work_close(dev, &w);
    else
        *out = w;
    return st;
}

/* Bytes on the first GPU. */
static size_t gpus_work_size(struct device *dev, const struct work_shape *s)
{
    struct gpus_device *g = gpus_of(dev);
    size_t size = first_ops(g)->work_size(g->gpu[0], s);
    struct gpus_work x = {};
    struct gpus_rank k = {};
    if (!is_spread(s))
        return size;
    measure(&x, s, g->nccl != NULL);
    return size + carve(&k, NULL, &x, s, true);
}

static bool gpus_begin(struct device_work *w, const struct work_plan *plan)
{
    struct gpus_work *g = w->gpus;
    bool runs;
    for (int r = 1; g && r < g->n; r++)
        recorder_stage(g->r[r].w, plan);
    runs = recorder_begin(w, plan);
    if (g && runs)
        gpus_fork(g);
    else if (g)
        gpus_join(g);
    if (g)
        g->there = NULL;
    return runs;
}

static void gpus_end(struct device_work *w)
{
    struct gpus_work *g = w->gpus;
    bool plays = recorder_plays(w) && !recorder_captures(w);
    if (g && !plays)
        gpus_join(g);
    recorder_end(w);
    if (g && plays)
        gpus_fork(g);
}

static bool gpus_again(struct device_work *w)
{
    bool again = recorder_again(w);
    if (w->gpus && again)
        gpus_fork(w->gpus);
    return again;
}

static enum pv_status gpus_wait(struct device_work *w, struct pv_error *err)
{
    struct gpus_work *g = w->gpus;
    const struct device_ops *ops = w->gpu->dev.ops;
    enum pv_status s = ops->wait(w, err);
    for (int r = 1; g && r < g->n; r++) {
        struct pv_error more = {};
        enum pv_status st = ops->wait(g->r[r].w, &more);
        if (st && !s)
            s = fail(err, st, "%s", more.text);
    }
    cudaSetDevice(w->gpu->index);
    return s;
}

/* ---- keys and values ---- */

static void gpus_kv_move(struct device_work *w, const struct kv_layer *kv, const int *to,
                         const int *from, int n)
{
    struct gpus_work *g = w->gpus;
    const struct gpus_pool *p = g ? gpus_pool_of(g->g, kv->k) : NULL;
    if (!p) {
        kv_move(w, kv, to, from, n);
        return;
    }
    for (int r = 0; r < g->n; r++) {
        struct kv_layer own = gpus_kv(p, kv, r);
        on_gpu(&g->r[r]);
        kv_move(g->r[r].w, &own, to, from, n);
    }
    on_gpu(&g->r[0]);
}

static void gpus_kv_copy(struct device_work *w, const struct kv_layer *to,
                         const struct kv_layer *from, const int *to_slots, const int *from_slots,
                         int n)
{
    struct gpus_work *g = w->gpus;
    const struct gpus_pool *p = g ? gpus_pool_of(g->g, to->k) : NULL;
    const struct gpus_pool *q = g ? gpus_pool_of(g->g, from->k) : NULL;
    if (!p || !q) {
        kv_copy(w, to, from, to_slots, from_slots, n);
        return;
    }
    for (int r = 0; r < g->n; r++) {
        struct kv_layer a = gpus_kv(p, to, r), b = gpus_kv(q, from, r);
        on_gpu(&g->r[r]);
        kv_copy(g->r[r].w, &a, &b, to_slots, from_slots, n);
    }
    on_gpu(&g->r[0]);
}

/* Copy memory of the first GPU, or a page of a pool on every GPU. */
static void gpus_copy(struct device_work *w, void *dst, const void *src, size_t size)
{
    struct gpus_work *g = w->gpus;
    const struct gpus_pool *p = g ? gpus_pool_of(g->g, dst) : NULL;
    const struct device_ops *ops = w->gpu->dev.ops;
    if (!p) {
        ops->copy(w, dst, src, size);
        return;
    }
    size_t to = (size_t)((uint8_t *)dst - p->mem[0]) / p->page_size[0];
    size_t from = (size_t)((const uint8_t *)src - p->mem[0]) / p->page_size[0];
    for (int r = 0; r < g->n; r++)
        ops->copy(g->r[r].w, p->mem[r] + to * p->page_size[r], p->mem[r] + from * p->page_size[r],
                  p->page_size[r]);
    on_gpu(&g->r[0]);
}

/* ---- the device ---- */

static void gpus_close(struct device **dev)
{
    struct gpus_device *g = gpus_of(*dev);
    gpus_disconnect(g);
    for (int r = g->n - 1; r >= 0; r--)
        device_close(&g->gpu[r]);
    mem_free(g);
    *dev = NULL;
}

static void fill_ops(struct gpus_device *g)
{
    g->ops = *first_ops(g);
    g->ops.free = gpus_free;
    g->ops.room = gpus_room;
    g->ops.take = gpus_take;
    g->ops.drop = gpus_drop;
    g->ops.draw = gpus_draw;
    g->ops.join = NULL; /* not possible: parts lie on several GPUs */
    g->ops.take_experts = gpus_take_experts;
    g->ops.drop_experts = gpus_drop_experts;
    g->ops.take_layer = gpus_take_layer;
    g->ops.drop_layer = gpus_drop_layer;
    g->ops.alloc_kv = alloc_kv;
    g->ops.close = gpus_close;
    g->ops.work_size = gpus_work_size;
    g->ops.work_open = gpus_work_open;
    g->ops.work_close = gpus_work_close;
    g->ops.begin = gpus_begin;
    g->ops.end = gpus_end;
    g->ops.again = gpus_again;
    g->ops.wait = gpus_wait;
    g->ops.attn = gpus_attn;
    g->ops.finish = gpus_finish;
    g->ops.logits = gpus_logits;
    g->ops.matmul = gpus_matmul;
    g->ops.kv_move = gpus_kv_move;
    g->ops.kv_copy = gpus_kv_copy;
    g->ops.copy = gpus_copy;
}

/* All GPUs must be of the same kind, because the choice of kernels, and thus the bits of results,
 * depends on the GPU. */
static enum pv_status check_alike(const struct gpus_device *g, struct pv_error *err)
{
    const struct cuda_device *a = (const struct cuda_device *)g->gpu[0]->impl;
    for (int r = 1; r < g->n; r++) {
        const struct cuda_device *b = (const struct cuda_device *)g->gpu[r]->impl;
        if (strcmp(a->identity, b->identity) != 0)
            return fail(err, PV_E_UNSUPPORTED,
                        "one model cannot use GPU %d (%s) and GPU %d (%s) together: they must be "
                        "alike",
                        a->index, a->name, b->index, b->name);
    }
    return PV_OK;
}

extern "C" enum pv_status device_cuda_open_several(struct device **out, const int *index, int n,
                                                   struct pv_error *err)
{
    struct gpus_device *g = (struct gpus_device *)mem_zalloc(sizeof *g);
    struct device *dev;
    enum pv_status s = PV_OK;
    if (!g)
        return fail_nomem(err, sizeof *g);
    if (n > GPUS_MOST)
        s = fail(err, PV_E_LIMIT, "one model can use %d GPUs, not %d", (int)GPUS_MOST, n);
    for (int r = 0; r < n && !s; r++) {
        s = device_cuda_open(&g->gpu[r], index[r], err);
        g->n += !s;
    }
    if (!s)
        s = check_alike(g, err);
    if (!s)
        gpus_connect(g);
    dev = &g->dev;
    if (s) {
        gpus_close(&dev);
        return s;
    }
    fill_ops(g);
    g->dev = *g->gpu[0];
    g->dev.ops = &g->ops;
    select_first(g);
    *out = dev;
    return PV_OK;
}
