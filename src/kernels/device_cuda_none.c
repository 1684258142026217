/* Takes the place of kernels/cuda in builds without CUDA: reports that there is no GPU support. */
#include "tensor/device.h"

enum pv_status device_cuda_open_several(struct device **out, const int *index, int n,
                                        struct pv_error *err)
{
    (void)n;
    return device_cuda_open(out, index[0], err);
}

enum pv_status device_cuda_open(struct device **out, int index, struct pv_error *err)
{
    (void)out;
    (void)index;
    return fail(err, PV_E_UNSUPPORTED,
                "this build has no CUDA support: rebuild with 'make CUDA=1', which needs nvcc");
}
