/* NCCL in the simulator. At the end of a group the calls of all GPUs are matched, and become copies
 * between streams that wait for each other; what has no partner is an error, where the library
 * would hang. */
#include "cudasim/gpu.h"
#include "cudasim/runtime.h"

#include <stdio.h>
#include <vector>

struct communicator {
    int rank, n;
    communicator **all; /* of the same clique */
};

enum call_kind { BROADCAST, SEND, RECEIVE };

struct call {
    call_kind kind;
    const void *from;
    void *to;
    size_t count;
    int peer; /* or root */
    communicator *comm;
    cudaStream_t stream;
    bool done;
};

static thread_local std::vector<call> calls;
static thread_local int depth;

int cudasim_nccl_init_all(void **comms, int n, const int *devices)
{
    cudasim_gpu gpu;
    cudasim_is(&gpu);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (devices[i] == devices[j])
                return 5;
    if (!gpu.nccl)
        return 3;
    communicator **all = new communicator *[(size_t)n];
    for (int i = 0; i < n; i++)
        comms[i] = all[i] = new communicator{ i, n, all };
    return 0;
}

int cudasim_nccl_destroy(void *comm)
{
    communicator *c = (communicator *)comm;
    if (c->rank == c->n - 1)
        delete[] c->all;
    delete c;
    return 0;
}

static int add(const call &c)
{
    if (depth == 0 || c.count == 0)
        return 4;
    calls.push_back(c);
    return 0;
}

int cudasim_nccl_broadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                           cudaStream_t s)
{
    return type == 1 ? add({ BROADCAST, from, to, count, root, (communicator *)comm, s, false })
                     : 4;
}

int cudasim_nccl_send(const void *from, size_t count, int type, int peer, void *comm,
                      cudaStream_t s)
{
    return type == 1 ? add({ SEND, from, nullptr, count, peer, (communicator *)comm, s, false })
                     : 4;
}

int cudasim_nccl_recv(void *to, size_t count, int type, int peer, void *comm, cudaStream_t s)
{
    return type == 1 ? add({ RECEIVE, nullptr, to, count, peer, (communicator *)comm, s, false })
                     : 4;
}

int cudasim_nccl_group_start()
{
    depth++;
    return 0;
}

/* `to` gets what `from` has, when both streams are there; neither goes on before. */
static void carry(call &from, call &to)
{
    if (to.to != from.from)
        cudasim_between(from.stream, to.stream, to.to, from.from, from.count);
    from.done = to.done = true;
}

/* The first call of another GPU that belongs to c. */
static call *partner(const call &c, call_kind kind, int rank)
{
    for (call &d : calls)
        if (!d.done && d.kind == kind && d.comm->all == c.comm->all && d.comm->rank == rank &&
            (kind == BROADCAST ? d.peer == c.peer : d.peer == c.comm->rank) && d.count == c.count)
            return &d;
    return nullptr;
}

int cudasim_nccl_group_end()
{
    int result = 0;
    if (--depth > 0)
        return 0;
    for (call &c : calls) {
        if (c.done)
            continue;
        if (c.kind == SEND) {
            call *d = partner(c, RECEIVE, c.peer);
            if (d)
                carry(c, *d);
        } else if (c.kind == BROADCAST && c.comm->rank == c.peer) {
            for (int r = 0; r < c.comm->n; r++) {
                call *d = r == c.peer ? &c : partner(c, BROADCAST, r);
                if (d)
                    carry(c, *d);
            }
        }
    }
    for (const call &c : calls)
        if (!c.done) {
            fprintf(stderr, "CUDA simulator: a call of NCCL that the others did not make\n");
            result = 3;
        }
    calls.clear();
    return result;
}
