/* Products of few rows with Q4_0 weights: the kernels of matmul_few_kernel.cuh for this type. */
#include "kernels/cuda/matmul_few_kernel.cuh"

cudaError_t few_run_q4_0(const struct few_params *p, int mt, int nt, int blocks, size_t smem,
                         cudaStream_t stream)
{
    return few_run<DTYPE_Q4_0>(p, mt, nt, blocks, smem, stream);
}
