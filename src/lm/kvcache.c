/* KV cache: one device block, layer after layer, K of all heads and then V of all heads. */
#include "lm/kvcache.h"

#include "base/mem.h"

#include <assert.h>

enum { PATH_MAX_ROWS = 1024 };

static int round_context(int context)
{
    return (context + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK;
}

static size_t half_size(const struct config *c, enum dtype dtype, int cap)
{
    return dtype_row_size(dtype, (int64_t)c->n_kv_heads * c->head_dim) * (size_t)cap;
}

size_t kvcache_size(const struct config *c, enum dtype dtype, int context)
{
    return 2 * (size_t)c->n_layers * half_size(c, dtype, round_context(context));
}

enum pv_status kvcache_open(struct kvcache *kv, struct device *dev, const struct config *c,
                            enum dtype dtype, int context, struct pv_error *err)
{
    int cap = round_context(context);
    size_t half = half_size(c, dtype, cap), size = kvcache_size(c, dtype, context);
    struct kv_layer *layer = mem_zalloc(sizeof *layer * (size_t)c->n_layers);
    void *block;
    uint8_t *mem;
    enum pv_status s;
    if (!layer)
        return fail_nomem(err, sizeof *layer * (size_t)c->n_layers);
    s = device_alloc(dev, &block, size, err);
    if (s) {
        mem_free(layer);
        return s;
    }
    mem = block;
    for (int i = 0; i < c->n_layers; i++)
        layer[i] = (struct kv_layer){ .dtype = dtype,
                                      .n_kv = c->n_kv_heads,
                                      .d = c->head_dim,
                                      .cap = cap,
                                      .k = mem + 2 * (size_t)i * half,
                                      .v = mem + (2 * (size_t)i + 1) * half };
    *kv = (struct kvcache){
        .dev = dev, .n_layers = c->n_layers, .cap = cap, .layer = layer, .mem = mem, .size = size
    };
    return PV_OK;
}

void kvcache_close(struct kvcache *kv)
{
    if (kv->mem)
        kv->dev->ops->free(kv->dev, kv->mem);
    mem_free(kv->layer);
    *kv = (struct kvcache){ 0 };
}

void kvcache_truncate(struct kvcache *kv, int len)
{
    assert(len >= 0 && len <= kv->len);
    kv->len = len;
}

void kvcache_advance(struct kvcache *kv, int n)
{
    assert(n >= 0 && n <= kv->cap - kv->len);
    kv->len += n;
}

void kvcache_gather(struct kvcache *kv, struct device_work *w, const int *path, int n)
{
    int to[PATH_MAX_ROWS], from[PATH_MAX_ROWS];
    assert(n <= PATH_MAX_ROWS && n <= kv->cap - kv->len);
    for (int i = 0; i < n; i++) {
        to[i] = kv->len + i;
        from[i] = kv->len + path[i];
        assert(path[i] >= i && (i == 0 || path[i] > path[i - 1]));
    }
    for (int l = 0; l < kv->n_layers; l++)
        kv->dev->ops->kv_move(w, &kv->layer[l], to, from, n);
    kv->len += n;
}

void kvcache_copy(struct kvcache *to, const struct kvcache *from, struct device_work *w, int layer,
                  const int *to_slots, const int *from_slots, int n)
{
    const struct kv_layer *a = &to->layer[layer], *b = &from->layer[layer];
    assert(to != from && to->dev == from->dev && to->n_layers == from->n_layers);
    assert(a->dtype == b->dtype && a->n_kv == b->n_kv && a->d == b->d);
    to->dev->ops->kv_copy(w, a, b, to_slots, from_slots, n);
}
