/* Ranks of one machine: a socket between every two of them. A call exchanges data with several
 * ranks at once and never waits for one of them while another is ready, so no order of calls on the
 * other side can block it. A rank that ends closes its sockets, which every other rank notices when
 * it next waits for it, so nobody hangs. */
#include "base/mem.h"
#include "dist/transport.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NO_FD = -1, SIGNAL_STEP = 256 };

struct socket_transport {
    struct transport base;
    int fd[RANKS_MAX];        /* to each other rank */
    pid_t child[RANKS_MAX];   /* of rank 0, if ranks were forked; 0: none */
    pid_t started[RANKS_MAX]; /* the same, but never changed */
    int killed;   /* of rank 0: what find_killed found, rank * SIGNAL_STEP + signal; 0: nothing.
                     Atomic; set before the child is waited for */
    pid_t parent; /* of a forked rank: process id of rank 0 */
};

/* Data to send to one rank, and to receive from it. */
struct flow {
    const uint8_t *out;
    uint8_t *in;
    size_t out_left, in_left;
};

/* Find out how the child process of a rank that is gone ended. Returns true if a signal killed it.
 * The sockets are closed by now, so the children that still run will end too. */
static bool find_killed(struct socket_transport *s, int *rank, int *by)
{
    bool found = false;
    for (int r = 1; r < s->base.n; r++) {
        siginfo_t info = { 0 };
        if (s->child[r] <= 0 || waitid(P_PID, (id_t)s->child[r], &info, WEXITED | WNOWAIT))
            continue;
        if (info.si_code != CLD_EXITED && !found) {
            found = true;
            *rank = r;
            *by = info.si_status;
            __atomic_store_n(&s->killed, r * SIGNAL_STEP + *by, __ATOMIC_RELEASE);
        }
        (void)waitpid(s->child[r], NULL, 0);
        s->child[r] = 0;
    }
    return found;
}

static void close_sockets(struct socket_transport *s)
{
    for (int r = 0; r < s->base.n; r++) {
        if (s->fd[r] != NO_FD)
            close(s->fd[r]);
        s->fd[r] = NO_FD;
    }
}

static enum pv_status fail_killed(const struct transport *t, int rank, int by, struct pv_error *err)
{
    return fail(err, PV_E_IO, "rank %d of %d was killed by signal %d", rank, t->n, by);
}

/* Whether rank 0 still runs. If it noticed a failure, it waits for its children. If it was killed,
 * the children soon have another parent, shortly after its sockets are closed. */
static bool leader_runs(const struct socket_transport *s)
{
    const struct timespec moment = { .tv_nsec = 50 * 1000 * 1000 };
    if (s->parent <= 0)
        return false;
    (void)nanosleep(&moment, NULL);
    return getppid() == s->parent;
}

static enum pv_status fail_lost(struct socket_transport *s, int rank, struct pv_error *err)
{
    int signal_number;
    s->base.lost = rank;
    s->base.leader = rank == 0 && leader_runs(s);
    close_sockets(s);
    if (find_killed(s, &rank, &signal_number))
        return fail_killed(&s->base, rank, signal_number, err);
    return fail(err, PV_E_IO, "rank %d of %d has ended", rank, s->base.n);
}

/* Send as much as possible without waiting. Returns false if the other side is gone. */
static bool move_out(int fd, struct flow *f, bool *moved)
{
    while (f->out_left > 0) {
        ssize_t n = send(fd, f->out, f->out_left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        f->out += n;
        f->out_left -= (size_t)n;
        *moved = true;
    }
    return true;
}

static bool move_in(int fd, struct flow *f, bool *moved)
{
    while (f->in_left > 0) {
        ssize_t n = recv(fd, f->in, f->in_left, MSG_DONTWAIT);
        if (n == 0)
            return false;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        f->in += n;
        f->in_left -= (size_t)n;
        *moved = true;
    }
    return true;
}

/* Wait until data can be sent to, or received from, some rank. */
static void wait_any(const struct socket_transport *s, const struct flow *flow)
{
    struct pollfd p[RANKS_MAX];
    nfds_t n = 0;
    for (int r = 0; r < s->base.n; r++) {
        int events = (flow[r].out_left > 0 ? POLLOUT : 0) | (flow[r].in_left > 0 ? POLLIN : 0);
        if (events)
            p[n++] = (struct pollfd){ .fd = s->fd[r], .events = (short)events };
    }
    (void)poll(p, n, -1);
}

static enum pv_status exchange(struct socket_transport *s, struct flow *flow, struct pv_error *err)
{
    if (s->base.lost >= 0)
        return fail(err, PV_E_IO, "rank %d of %d has ended", s->base.lost, s->base.n);
    for (;;) {
        bool left = false, moved = false;
        for (int r = 0; r < s->base.n; r++) {
            if (!move_out(s->fd[r], &flow[r], &moved) || !move_in(s->fd[r], &flow[r], &moved))
                return fail_lost(s, r, err);
            left = left || flow[r].out_left > 0 || flow[r].in_left > 0;
        }
        if (!left)
            return PV_OK;
        if (!moved)
            wait_any(s, flow);
    }
}

static enum pv_status socket_bcast(struct transport *t, void *data, size_t size,
                                   struct pv_error *err)
{
    struct flow flow[RANKS_MAX] = { { 0 } };
    for (int r = 1; r < t->n && t->rank == 0; r++)
        flow[r] = (struct flow){ .out = data, .out_left = size };
    if (t->rank > 0)
        flow[0] = (struct flow){ .in = data, .in_left = size };
    return exchange((struct socket_transport *)t, flow, err);
}

static enum pv_status socket_gather(struct transport *t, uint8_t *all, const size_t *at, int to,
                                    struct pv_error *err)
{
    struct flow flow[RANKS_MAX] = { { 0 } };
    for (int r = 0; r < t->n; r++) {
        if (r == t->rank)
            continue;
        if (to == RANKS_ALL || to == r) {
            flow[r].out = all + at[t->rank];
            flow[r].out_left = at[t->rank + 1] - at[t->rank];
        }
        if (to == RANKS_ALL || to == t->rank) {
            flow[r].in = all + at[r];
            flow[r].in_left = at[r + 1] - at[r];
        }
    }
    return exchange((struct socket_transport *)t, flow, err);
}

static enum pv_status socket_send(struct transport *t, int to, const void *data, size_t size,
                                  struct pv_error *err)
{
    struct flow flow[RANKS_MAX] = { { 0 } };
    flow[to] = (struct flow){ .out = data, .out_left = size };
    return exchange((struct socket_transport *)t, flow, err);
}

static enum pv_status socket_recv(struct transport *t, int from, void *data, size_t size,
                                  struct pv_error *err)
{
    struct flow flow[RANKS_MAX] = { { 0 } };
    flow[from] = (struct flow){ .in = data, .in_left = size };
    return exchange((struct socket_transport *)t, flow, err);
}

/* Changes nothing, because another thread may be waiting for the same children. */
static enum pv_status socket_check(const struct transport *t, struct pv_error *err)
{
    const struct socket_transport *s = (const struct socket_transport *)t;
    int ended = 0, killed;
    for (int r = 1; r < t->n; r++) {
        siginfo_t info = { 0 };
        if (s->started[r] <= 0)
            continue;
        if (waitid(P_PID, (id_t)s->started[r], &info, WEXITED | WNOHANG | WNOWAIT))
            ended = r; /* another thread has waited for it */
        else if (info.si_pid == s->started[r] && info.si_code != CLD_EXITED)
            return fail_killed(t, r, info.si_status, err);
        else if (info.si_pid == s->started[r])
            ended = r;
    }
    killed = __atomic_load_n(&s->killed, __ATOMIC_ACQUIRE);
    if (killed)
        return fail_killed(t, killed / SIGNAL_STEP, killed % SIGNAL_STEP, err);
    return ended ? fail(err, PV_E_IO, "rank %d of %d has ended", ended, t->n) : PV_OK;
}

static void socket_close(struct transport *t)
{
    struct socket_transport *s = (struct socket_transport *)t;
    int rank, by;
    close_sockets(s);
    (void)find_killed(s, &rank, &by);
    mem_free(s);
}

static const struct transport_ops socket_ops = { .name = "sockets",
                                                 .bcast = socket_bcast,
                                                 .gather = socket_gather,
                                                 .send = socket_send,
                                                 .recv = socket_recv,
                                                 .check = socket_check,
                                                 .close = socket_close };

/* ---- opening ---- */

static enum pv_status open_all(struct socket_transport **all, int n, struct pv_error *err)
{
    for (int r = 0; r < n; r++) {
        all[r] = mem_zalloc(sizeof *all[r]);
        if (!all[r])
            return fail_nomem(err, sizeof *all[r]);
        all[r]->base = (struct transport){ .ops = &socket_ops, .rank = r, .n = n, .lost = -1 };
        for (int k = 0; k < n; k++)
            all[r]->fd[k] = NO_FD;
    }
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            int pair[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
                return fail(err, PV_E_IO, "no sockets for %d ranks: %s", n, strerror(errno));
            all[a]->fd[b] = pair[0];
            all[b]->fd[a] = pair[1];
        }
    return PV_OK;
}

/* Close all transports except that of rank `keep`. */
static void close_others(struct socket_transport **all, int n, int keep)
{
    for (int r = 0; r < n; r++) {
        if (!all[r] || r == keep)
            continue;
        close_sockets(all[r]);
        mem_free(all[r]);
        all[r] = NULL;
    }
}

static enum pv_status check_ranks(int n, struct pv_error *err)
{
    return n >= 1 && n <= RANKS_MAX
               ? PV_OK
               : fail(err, PV_E_ARG, "%d ranks asked for: 1 to %d are possible", n, RANKS_MAX);
}

enum pv_status transport_threads(struct transport **out, int n, struct pv_error *err)
{
    struct socket_transport *all[RANKS_MAX] = { NULL };
    enum pv_status s = check_ranks(n, err);
    if (!s)
        s = open_all(all, n, err);
    if (s)
        close_others(all, n < RANKS_MAX ? n : RANKS_MAX, -1);
    for (int r = 0; r < n && !s; r++)
        out[r] = &all[r]->base;
    return s;
}

enum pv_status transport_fork(struct transport **out, int n, struct pv_error *err)
{
    struct socket_transport *all[RANKS_MAX] = { NULL };
    enum pv_status s = check_ranks(n, err);
    pid_t parent = getpid();
    int rank = 0;
    if (s)
        return s;
    s = open_all(all, n, err);
    for (int r = 1; r < n && !s && rank == 0; r++) {
        pid_t child = fork();
        if (child < 0)
            s = fail(err, PV_E_IO, "rank %d could not be started: %s", r, strerror(errno));
        else if (child == 0)
            rank = r;
        else
            all[0]->child[r] = all[0]->started[r] = child;
    }
    if (s) { /* running ranks notice that their sockets are closed, and end */
        struct socket_transport *first = all[0];
        close_others(all, n, 0);
        if (first)
            socket_close(&first->base);
        return s;
    }
    close_others(all, n, rank);
    all[rank]->parent = rank > 0 ? parent : 0;
    *out = &all[rank]->base;
    return PV_OK;
}
