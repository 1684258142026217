/* The calls that all kinds of transports have in common; counts their bytes. */
#include "dist/transport.h"

static enum pv_status checked(struct transport *t, enum pv_status s)
{
    t->broken = t->broken || s != PV_OK;
    return s;
}

static void count(struct transport *t, uint64_t sent, uint64_t received)
{
    t->counts.calls++;
    t->counts.sent += sent;
    t->counts.received += received;
}

enum pv_status transport_bcast(struct transport *t, void *data, size_t size, struct pv_error *err)
{
    if (t->n == 1 || size == 0)
        return PV_OK;
    if (t->rank == 0)
        count(t, (uint64_t)size * (uint64_t)(t->n - 1), 0);
    else
        count(t, 0, size);
    return checked(t, t->ops->bcast(t, data, size, err));
}

enum pv_status transport_gather(struct transport *t, void *all, const size_t *at, int to,
                                struct pv_error *err)
{
    uint64_t own = at[t->rank + 1] - at[t->rank], rest = at[t->n] - at[0] - own;
    bool receives = to == RANKS_ALL || to == t->rank;
    uint64_t others = to == RANKS_ALL ? (uint64_t)(t->n - 1) : to == t->rank ? 0 : 1;
    if (t->n == 1)
        return PV_OK;
    count(t, own * others, receives ? rest : 0);
    return checked(t, t->ops->gather(t, all, at, to, err));
}

enum pv_status transport_send(struct transport *t, int to, const void *data, size_t size,
                              struct pv_error *err)
{
    if (size == 0)
        return PV_OK;
    count(t, size, 0);
    return checked(t, t->ops->send(t, to, data, size, err));
}

enum pv_status transport_recv(struct transport *t, int from, void *data, size_t size,
                              struct pv_error *err)
{
    if (size == 0)
        return PV_OK;
    count(t, 0, size);
    return checked(t, t->ops->recv(t, from, data, size, err));
}

enum pv_status transport_check(const struct transport *t, struct pv_error *err)
{
    return t->ops->check ? t->ops->check(t, err) : PV_OK;
}

void transport_close(struct transport **t)
{
    if (*t)
        (*t)->ops->close(*t);
    *t = NULL;
}
