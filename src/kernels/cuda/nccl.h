/* The few calls of NCCL that exchanges need. The library is not linked: it is loaded if it is
 * installed (libnccl.so.2), and its header is not needed to build. */
#ifndef PV_KERNELS_CUDA_NCCL_H
#define PV_KERNELS_CUDA_NCCL_H

#include "kernels/cuda/launch.h"

struct nccl;

/* Make a communicator for each of n different GPUs; NULL if the library is missing or fails. */
struct nccl *nccl_open(const int *gpus, int n);
void nccl_close(struct nccl **x);

/* Calls for all GPUs between these two form one group. */
cudaError_t nccl_begin(struct nccl *x);
cudaError_t nccl_end(struct nccl *x);
/* GPU r's part: `size` bytes of the root's `from` become `to`. */
cudaError_t nccl_broadcast(struct nccl *x, int r, int root, const void *from, void *to, size_t size,
                           cudaStream_t stream);
cudaError_t nccl_send(struct nccl *x, int r, int to, const void *from, size_t size,
                      cudaStream_t stream);
cudaError_t nccl_receive(struct nccl *x, int r, int from, void *to, size_t size,
                         cudaStream_t stream);

#endif
