/* The sum is computed anew for every claim, from what the owners of memory report, so freeing
 * memory needs no notification. */
#include "engine/budget.h"

#include <stdio.h>

void budget_close(struct budget *b)
{
    if (b->engine)
        atomic_fetch_sub(&b->engine->session_bytes, b->counted);
    *b = (struct budget){ 0 };
}

uint64_t budget_left(struct budget *b)
{
    struct pv_engine *e = b->engine;
    uint64_t limit = e->model->limits.memory_bytes, used, held = b->held(b->user);
    atomic_fetch_add(&e->session_bytes, held - b->counted);
    b->counted = held;
    used = atomic_load(&e->fixed_bytes) + atomic_load(&e->tower_bytes) +
           atomic_load(&e->session_bytes);
    return used < limit ? limit - used : 0;
}

enum pv_status budget_claim(struct budget *b, uint64_t need, const char *what, struct pv_error *err)
{
    uint64_t left = budget_left(b);
    if (need > left)
        return fail(err, PV_E_LIMIT,
                    "%s needs %llu bytes of memory, %llu of the limit of %llu are left", what,
                    (unsigned long long)need, (unsigned long long)left,
                    (unsigned long long)b->engine->model->limits.memory_bytes);
    b->give_way(b->user, left - need);
    return PV_OK;
}

enum pv_status budget_claim_tower(struct budget *b, struct encoder *e, size_t *held,
                                  const struct media *m, struct pv_error *err)
{
    size_t size = encoder_size(e, m);
    char what[96];
    enum pv_status s;
    snprintf(what, sizeof what, "a vision tower for pictures of %d x %d pixels", m->width,
             m->height);
    s = budget_claim(b, size > *held ? size - *held : 0, what, err);
    if (!s)
        s = encoder_reserve(e, m, err);
    if (!s)
        *held = size;
    return s;
}
