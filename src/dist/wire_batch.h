/* The form in which a batch of commands is sent: a head with its size, then the commands. The first
 * BATCH_FIRST bytes are one message, so most batches need no second one. */
#ifndef PV_DIST_WIRE_BATCH_H
#define PV_DIST_WIRE_BATCH_H

#include "base/mem.h"
#include "base/status.h"
#include "dist/wire.h"

enum { BATCH_FIRST = 8192 };

struct batch_head {
    uint64_t size; /* including the head */
};

struct batch_buffer {
    uint8_t *data;
    size_t size, cap;
};

static inline enum pv_status batch_reserve(struct batch_buffer *b, size_t cap, struct pv_error *err)
{
    uint8_t *data;
    if (cap <= b->cap)
        return PV_OK;
    data = mem_realloc(b->data, cap);
    if (!data)
        return fail_nomem(err, cap);
    b->data = data;
    b->cap = cap;
    return PV_OK;
}

#endif
