/* Messages between the ranks of one model: processes (or threads) that each hold a part of its
 * weights. Rank 0 leads, the others follow; every rank makes the same calls in the same order.
 * Calls of one transport come from one thread at a time.
 *
 * After a failure (PV_E_IO: a rank has ended) a transport can only be closed. */
#ifndef PV_DIST_TRANSPORT_H
#define PV_DIST_TRANSPORT_H

#include "base/status.h"

enum { RANKS_MAX = 64, RANKS_ALL = -1 };

struct transport;

struct transport_ops {
    const char *name;
    /* Rank 0's bytes to all. */
    enum pv_status (*bcast)(struct transport *t, void *data, size_t size, struct pv_error *err);
    /* Rank r contributes bytes [at[r], at[r + 1]) of `all`, which are in its copy already. Rank
     * `to`, or RANKS_ALL, gets all of them; on other ranks the other bytes are undefined. */
    enum pv_status (*gather)(struct transport *t, uint8_t *all, const size_t *at, int to,
                             struct pv_error *err);
    enum pv_status (*send)(struct transport *t, int to, const void *data, size_t size,
                           struct pv_error *err);
    enum pv_status (*recv)(struct transport *t, int from, void *data, size_t size,
                           struct pv_error *err);
    /* Whether some rank has ended; from any thread. NULL: not known. */
    enum pv_status (*check)(const struct transport *t, struct pv_error *err);
    void (*close)(struct transport *t);
};

/* What a rank has sent and received with the functions below. */
struct transport_counts {
    uint64_t calls, sent, received; /* bytes */
};

struct transport {
    const struct transport_ops *ops;
    int rank, n;
    int lost;    /* a rank that was found to have ended; -1: none */
    bool leader; /* rank 0 closed its side but still runs: it reports the cause */
    bool broken; /* a call failed, or the ranks are out of step */
    bool apart;  /* rank 0 has no part of the distributed weights: it only leads */
    struct transport_counts counts;
};

enum pv_status transport_bcast(struct transport *t, void *data, size_t size, struct pv_error *err);
enum pv_status transport_gather(struct transport *t, void *all, const size_t *at, int to,
                                struct pv_error *err);
enum pv_status transport_send(struct transport *t, int to, const void *data, size_t size,
                              struct pv_error *err);
enum pv_status transport_recv(struct transport *t, int from, void *data, size_t size,
                              struct pv_error *err);
enum pv_status transport_check(const struct transport *t, struct pv_error *err);
void transport_close(struct transport **t);

/* transport_socket.c: n processes on this machine. The caller becomes rank 0; the others are forked
 * from it and return from this call too, each with its rank. Call it before any thread is started.
 * Closing rank 0's transport waits for the others to end. */
enum pv_status transport_fork(struct transport **out, int n, struct pv_error *err);
/* n ranks in this process, one for each of n threads. */
enum pv_status transport_threads(struct transport **out, int n, struct pv_error *err);
/* transport_mpi.c: the processes that mpirun started; PV_E_UNSUPPORTED in a build without MPI. */
enum pv_status transport_mpi(struct transport **out, struct pv_error *err);

#endif
