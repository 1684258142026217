/* One session's share of the memory limit that a model was opened with. All sessions of an engine
 * together stay below that limit; large allocations are claimed here first. */
#ifndef PV_ENGINE_BUDGET_H
#define PV_ENGINE_BUDGET_H

#include "engine/engine.h"

struct budget {
    struct pv_engine *engine;
    uint64_t counted; /* bytes of this session that are in engine->session_bytes */
    /* Bytes that the session holds, without the cached rows of media. */
    uint64_t (*held)(void *user);
    /* Shrink the cache of media rows to `room` bytes, because memory is claimed. */
    void (*give_way)(void *user, uint64_t room);
    void *user;
};

void budget_close(struct budget *b);
/* Bytes of the limit that no session of the engine has claimed. */
uint64_t budget_left(struct budget *b);
/* PV_E_LIMIT if `need` more bytes would exceed the limit; the message begins with `what`. The bytes
 * are counted once `held` includes them. */
enum pv_status budget_claim(struct budget *b, uint64_t need, const char *what,
                            struct pv_error *err);
/* Reserve memory in an encoder for media like m; *held: the bytes that the encoder has then. */
enum pv_status budget_claim_tower(struct budget *b, struct encoder *e, size_t *held,
                                  const struct media *m, struct pv_error *err);

#endif
