/* One layer of a KV cache whose pages lie in no order among pages of others, as in a pool that has
 * been used for a while. */
#ifndef PV_TESTS_SCATTERED_H
#define PV_TESTS_SCATTERED_H

#include "base/mem.h"
#include "base/rng.h"
#include "tensor/device.h"

#include <stdlib.h>

enum { SCATTERED_OTHERS = 2 }; /* pages of the pool that are not this sequence's */

static inline struct kv_layer scattered_open(enum dtype t, int n_kv, int d, int cap, struct rng *r)
{
    int n = cap / KV_CHUNK, all = n + SCATTERED_OTHERS;
    int32_t *page = malloc((size_t)all * sizeof *page);
    size_t size = (size_t)n_kv * kv_head_size(t, d);
    for (int i = 0; i < all; i++)
        page[i] = i;
    for (int i = all - 1; i > 0; i--) {
        int j = (int)(rng_next(r) % (uint64_t)(i + 1));
        int32_t kept = page[i];
        page[i] = page[j];
        page[j] = kept;
    }
    return (struct kv_layer){ .dtype = t,
                              .n_kv = n_kv,
                              .d = d,
                              .cap = cap,
                              .k = mem_zalloc(size * (size_t)all),
                              .v = mem_zalloc(size * (size_t)all),
                              .page_size = size,
                              .n_pool = all,
                              .page = page };
}

static inline void scattered_close(struct kv_layer *kv)
{
    mem_free(kv->k);
    mem_free(kv->v);
    free((void *)(uintptr_t)kv->page);
}

#endif
