/* One session's share of the memory limit that a model was opened with. All sessions of an engine
 * together stay below that limit; large allocations are claimed here first. */
#ifndef PV_ENGINE_BUDGET_H
#define PV_ENGINE_BUDGET_H

#include "engine/engine.h"

struct budget {
    struct pv_engine *engine;
    uint64_t counted; /* bytes of this session that are in engine->session_bytes */
    /* Bytes that the session holds, without rows of media that it keeps to save the tower work. */
    uint64_t (*held)(void *user);
    /* Those rows have `room` bytes from now on: they give way to whatever is claimed. */
    void (*give_way)(void *user, uint64_t room);
    void *user;
};

void budget_close(struct budget *b);
/* Bytes of the limit that no session of the engine has claimed. */
uint64_t budget_left(struct budget *b);
/* PV_E_LIMIT when `need` more bytes are over the limit: "<what> needs ... bytes". The bytes count
 * when `held` says that the session has them. */
enum pv_status budget_claim(struct budget *b, uint64_t need, const char *what,
                            struct pv_error *err);
/* Room in an encoder for media like m; *held: the bytes it has. */
enum pv_status budget_claim_tower(struct budget *b, struct encoder *e, size_t *held,
                                  const struct media *m, struct pv_error *err);

#endif
