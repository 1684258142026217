/* The public handle of the ranks of a model. */
#include "engine/ranks_handle.h"

#include "base/cpu.h"
#include "base/mem.h"

enum pv_status pv_ranks_start(pv_ranks **out, int n, struct pv_error *err)
{
    struct pv_ranks *r = mem_zalloc(sizeof *r);
    enum pv_status s;
    if (!r)
        return fail_nomem(err, sizeof *r);
    r->here = n != 0;
    s = n == 0 ? transport_mpi(&r->t, err) : transport_fork(&r->t, n, err);
    if (s)
        mem_free(r);
    else
        *out = r;
    return s;
}

enum pv_status pv_ranks_start_draft(pv_ranks **out, int n, struct pv_error *err)
{
    pv_ranks *r = NULL;
    enum pv_status s = n >= 1 ? pv_ranks_start(&r, n + 1, err)
                              : fail(err, PV_E_ARG, "%d ranks cannot run a draft model", n);
    if (s)
        return s;
    r->t->apart = true;
    *out = r;
    return PV_OK;
}

enum pv_status pv_ranks_check(const pv_ranks *ranks, struct pv_error *err)
{
    return transport_check(ranks->t, err);
}

int pv_ranks_rank(const pv_ranks *ranks)
{
    return ranks->t->rank;
}

int pv_ranks_count(const pv_ranks *ranks)
{
    return ranks->t->n;
}

/* Only one rank reports that another has ended: rank 0, or, if that is the one that ended, rank 1.
 */
enum pv_status pv_ranks_follow(pv_ranks *ranks, struct pv_error *err)
{
    enum pv_status s = ranks_follow(ranks->t, err);
    bool tells =
        ranks->t->lost < 0 || (ranks->t->lost == 0 && !ranks->t->leader && ranks->t->rank == 1);
    if (s && !tells && err)
        err->text[0] = '\0';
    return s;
}

void pv_ranks_close(pv_ranks **ranks)
{
    if (!*ranks)
        return;
    if ((*ranks)->t->rank == 0 && !(*ranks)->t->broken)
        ranks_end((*ranks)->t);
    transport_close(&(*ranks)->t);
    mem_free(*ranks);
    *ranks = NULL;
}

void pv_ranks_traffic(const pv_ranks *ranks, uint64_t *messages, uint64_t *sent, uint64_t *received)
{
    *messages = ranks->t->counts.calls;
    *sent = ranks->t->counts.sent;
    *received = ranks->t->counts.received;
}

int ranks_threads(const struct pv_ranks *ranks)
{
    int all = cpu_count(), n = ranks && ranks->here ? ranks->t->n : 1;
    return all > n ? all / n : 1;
}
