/* NCCL, loaded at run time. Declared by hand after its version 2 interface: results and data types
 * are integers, communicators are pointers. */
#include "kernels/cuda/nccl.h"

extern "C" {
#include "base/mem.h"
}

#ifndef PV_CUDASIM
#include <dlfcn.h>
#endif

enum { NCCL_BYTE = 1 /* ncclUint8 */, NCCL_MOST = 16 };

typedef void *communicator;

struct nccl {
    int n;
    communicator of[NCCL_MOST];
    void *library;
    int (*init_all)(communicator *, int, const int *);
    int (*destroy)(communicator);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*broadcast)(const void *, void *, size_t, int, int, communicator, cudaStream_t);
    int (*send)(const void *, size_t, int, int, communicator, cudaStream_t);
    int (*recv)(void *, size_t, int, int, communicator, cudaStream_t);
};

#ifdef PV_CUDASIM

static bool load(struct nccl *x)
{
    x->init_all = cudasim_nccl_init_all;
    x->destroy = cudasim_nccl_destroy;
    x->group_start = cudasim_nccl_group_start;
    x->group_end = cudasim_nccl_group_end;
    x->broadcast = cudasim_nccl_broadcast;
    x->send = cudasim_nccl_send;
    x->recv = cudasim_nccl_recv;
    return true;
}

static void unload(struct nccl *x)
{
    (void)x;
}

#else

template <class F> static bool find(struct nccl *x, F *to, const char *name)
{
    *to = (F)dlsym(x->library, name);
    return *to != NULL;
}

static bool load(struct nccl *x)
{
    x->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    return x->library && find(x, &x->init_all, "ncclCommInitAll") &&
           find(x, &x->destroy, "ncclCommDestroy") && find(x, &x->group_start, "ncclGroupStart") &&
           find(x, &x->group_end, "ncclGroupEnd") && find(x, &x->broadcast, "ncclBroadcast") &&
           find(x, &x->send, "ncclSend") && find(x, &x->recv, "ncclRecv");
}

static void unload(struct nccl *x)
{
    if (x->library)
        dlclose(x->library);
}

#endif

struct nccl *nccl_open(const int *gpus, int n)
{
    struct nccl *x = n <= NCCL_MOST ? (struct nccl *)mem_zalloc(sizeof *x) : NULL;
    if (!x)
        return NULL;
    if (!load(x) || x->init_all(x->of, n, gpus) != 0) {
        unload(x);
        mem_free(x);
        cudaGetLastError();
        return NULL;
    }
    x->n = n;
    return x;
}

void nccl_close(struct nccl **x)
{
    if (!*x)
        return;
    for (int i = 0; i < (*x)->n; i++)
        (*x)->destroy((*x)->of[i]);
    unload(*x);
    mem_free(*x);
    *x = NULL;
}

static cudaError_t told(int result)
{
    return result == 0 ? cudaSuccess : cudaErrorUnknown;
}

cudaError_t nccl_begin(struct nccl *x)
{
    return told(x->group_start());
}

cudaError_t nccl_end(struct nccl *x)
{
    return told(x->group_end());
}

cudaError_t nccl_broadcast(struct nccl *x, int r, int root, const void *from, void *to, size_t size,
                           cudaStream_t stream)
{
    return told(x->broadcast(from, to, size, NCCL_BYTE, root, x->of[r], stream));
}

cudaError_t nccl_send(struct nccl *x, int r, int to, const void *from, size_t size,
                      cudaStream_t stream)
{
    return told(x->send(from, size, NCCL_BYTE, to, x->of[r], stream));
}

cudaError_t nccl_receive(struct nccl *x, int r, int from, void *to, size_t size,
                         cudaStream_t stream)
{
    return told(x->recv(to, size, NCCL_BYTE, from, x->of[r], stream));
}
