/* The main loop of a rank other than rank 0. */
#include "base/mem.h"
#include "dist/rank.h"
#include "dist/ranks.h"
#include "dist/wire_batch.h"

#include <string.h>

/* Receive the next batch of commands. */
static enum pv_status receive(struct transport *t, struct batch_buffer *b, struct pv_error *err)
{
    struct batch_head head;
    enum pv_status s = batch_reserve(b, BATCH_FIRST, err);
    if (!s)
        s = transport_bcast(t, b->data, BATCH_FIRST, err);
    if (s)
        return s;
    memcpy(&head, b->data, sizeof head);
    b->size = (size_t)head.size;
    if (b->size <= BATCH_FIRST)
        return PV_OK;
    s = batch_reserve(b, b->size, err);
    return s ? s : transport_bcast(t, b->data + BATCH_FIRST, b->size - BATCH_FIRST, err);
}

/* Execute a batch. *end is set if COMMAND_END was in it. */
static enum pv_status run_batch(struct rank *k, const struct batch_buffer *b, bool *end,
                                struct pv_error *err)
{
    size_t at = sizeof(struct batch_head);
    while (at < b->size) {
        const struct command *c = (const struct command *)(b->data + at);
        enum pv_status s;
        *end = c->kind == COMMAND_END;
        if (*end)
            return PV_OK;
        s = rank_run(k, c, err);
        if (!s && k->status)
            s = fail(err, k->status, "%s", k->err.text);
        if (s)
            return s;
        at += (size_t)c->size;
    }
    return PV_OK;
}

enum pv_status ranks_follow(struct transport *t, struct pv_error *err)
{
    struct rank k = { .t = t };
    struct batch_buffer b = { 0 };
    enum pv_status s = PV_OK;
    bool end = false;
    while (!s && !end) {
        s = receive(t, &b, err);
        if (!s)
            s = run_batch(&k, &b, &end, err);
    }
    rank_close(&k);
    mem_free(b.data);
    return s;
}

void ranks_end(struct transport *t)
{
    uint8_t first[BATCH_FIRST] = { 0 };
    struct batch_head head = { .size = sizeof head + sizeof(struct command) };
    struct command end = { .kind = COMMAND_END, .size = sizeof end };
    memcpy(first, &head, sizeof head);
    memcpy(first + sizeof head, &end, sizeof end);
    (void)transport_bcast(t, first, sizeof first, NULL);
}
