/* The KV cache of one sequence. Slots [0, len) are committed; a step writes its rows behind them
 * and commits nothing, so that rollback is doing nothing. */
#ifndef PV_LM_KVCACHE_H
#define PV_LM_KVCACHE_H

#include "format/config.h"
#include "tensor/device.h"

struct kvcache {
    struct device *dev;     /* borrowed */
    int n_layers, cap, len; /* cap: a multiple of KV_CHUNK */
    struct kv_layer *layer; /* [n_layers] */
    void *mem;              /* on the device */
    size_t size;
};

/* Bytes of a cache of `context` slots. */
size_t kvcache_size(const struct config *c, enum dtype dtype, int context);
enum pv_status kvcache_open(struct kvcache *kv, struct device *dev, const struct config *c,
                            enum dtype dtype, int context, struct pv_error *err);
void kvcache_close(struct kvcache *kv);
/* Forget all slots from `len` on. */
void kvcache_truncate(struct kvcache *kv, int len);
/* Commit the first n rows of the last step (a chain). */
void kvcache_advance(struct kvcache *kv, int n);
/* Commit the rows path[0] < path[1] < ... of the last step, in that order. */
void kvcache_gather(struct kvcache *kv, struct device_work *w, const int *path, int n);
/* Slot to_slots[i] of a layer becomes slot from_slots[i] of the same layer of another cache, of the
 * same model, device and type. Commits nothing. */
void kvcache_copy(struct kvcache *to, const struct kvcache *from, struct device_work *w, int layer,
                  const int *to_slots, const int *from_slots, int n);

#endif
