/* For check_cuda_sums.c: what Hopper's two ways to multiply make of the same numbers. Kernels for a
 * lone row go one way and those for several rows the other, and must give the same bits. */
#include "kernels/cuda/hopper.h"

#include "hopper_sums.h"

/* A thread's numbers of a tile of 16 x 8 as mma lays them over a warp, from row r0 and column c0 of
 * a matrix of 64 columns. */
#define AT(i, r0, c0) (((r0) + lane / 4 + (i) / 2 * 8) * 64 + (c0) + lane % 4 * 2 + (i) % 2)

#ifdef HOPPER_CODE

__device__ static void multiply(float *c, const uint16_t *a, const uint16_t *b, int lane)
{
    const uint32_t *rows = (const uint32_t *)a + lane / 4 * 32 + lane % 4;
    const uint32_t *columns = (const uint32_t *)b + lane / 4 * 32 + lane % 4;
    for (int k = 0; k < 32; k += 8) {
        const uint32_t x[4] = { rows[k], rows[k + 8 * 32], rows[k + 4], rows[k + 8 * 32 + 4] };
        const uint32_t y[2] = { columns[k], columns[k + 4] };
        mma_bf16(c, x, y);
    }
}

#endif

__global__ void __launch_bounds__(128) sums_kernel(struct hopper_sums s)
{
#ifdef HOPPER_CODE
    TILE_MEMORY(memory);
    size_t at = (size_t)blockIdx.x * SUMS_TILE;
    const uint16_t *a = s.a + at, *b = s.b + at;
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32 * 16;
    uint32_t base = shared_address(memory);
    float c[32], d[4];
    for (int i = (int)threadIdx.x; i < 64 * 8; i += 128) {
        int r = i / 8, to = r * 128 + ((i % 8) ^ (r & 7)) * 16;
        *(uint4 *)(memory + to) = ((const uint4 *)a)[i];
        *(uint4 *)(memory + 64 * 128 + to) = ((const uint4 *)b)[i];
    }
    shared_written();
    __syncthreads();
    for (int i = 0; i < 32; i++)
        c[i] = s.from[at + AT(i % 4, row, i / 4 * 8)];
    wgmma_fence();
    for (int k = 0; k < 4; k++)
        wgmma_shared<64>(c, tile_descriptor(base + k * 32, 16),
                         tile_descriptor(base + 64 * 128 + k * 32, 16), 1);
    wgmma_commit();
    wgmma_wait<0>();
    pin(c);
    for (int i = 0; i < 32; i++)
        s.wgmma[at + AT(i % 4, row, i / 4 * 8)] = c[i];
    for (int n = 0; n < 64; n += 8) {
        for (int i = 0; i < 4; i++)
            d[i] = s.from[at + AT(i, row, n)];
        multiply(d, a + row * 64, b + n * 64, lane);
        for (int i = 0; i < 4; i++)
            s.mma[at + AT(i, row, n)] = d[i];
        /* the other operand as the rows: number (r, c) is (c, r) of the others */
        for (int i = 0; i < 4; i++)
            d[i] = s.from[at + (n + lane % 4 * 2 + i % 2) * 64 + row + lane / 4 + i / 2 * 8];
        multiply(d, b + row * 64, a + n * 64, lane);
        for (int i = 0; i < 4; i++)
            s.turned[at + (n + lane % 4 * 2 + i % 2) * 64 + row + lane / 4 + i / 2 * 8] = d[i];
    }
#endif
}

/* In a build without code for it the kernel is empty and needs next to no registers. */
int hopper_sums_there(void)
{
    cudaFuncAttributes at;
    int major = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
           major == 9 && cudaFuncGetAttributes(&at, (const void *)sums_kernel) == cudaSuccess &&
           at.numRegs >= 32;
}

int hopper_sums_run(const struct hopper_sums *host, int tiles)
{
    size_t n = (size_t)tiles * SUMS_TILE;
    struct hopper_sums s = {};
    uint16_t *halves = NULL;
    float *floats = NULL;
    cudaError_t e = cudaMalloc(&halves, 2 * n * sizeof *halves);
    if (e == cudaSuccess)
        e = cudaMalloc(&floats, 4 * n * sizeof *floats);
    if (e == cudaSuccess) {
        s.a = halves, s.b = halves + n, s.from = floats;
        s.wgmma = floats + n, s.mma = floats + 2 * n, s.turned = floats + 3 * n;
        cudaMemcpy((void *)s.a, host->a, n * sizeof *halves, cudaMemcpyHostToDevice);
        cudaMemcpy((void *)s.b, host->b, n * sizeof *halves, cudaMemcpyHostToDevice);
        cudaMemcpy((void *)s.from, host->from, n * sizeof *floats, cudaMemcpyHostToDevice);
        e = launch(sums_kernel, dim3((unsigned)tiles), dim3(128), 2 * 64 * 128, (cudaStream_t)0, s);
    }
    if (e == cudaSuccess)
        e = cudaDeviceSynchronize();
    if (e == cudaSuccess) {
        cudaMemcpy(host->wgmma, s.wgmma, n * sizeof *floats, cudaMemcpyDeviceToHost);
        cudaMemcpy(host->mma, s.mma, n * sizeof *floats, cudaMemcpyDeviceToHost);
        e = cudaMemcpy(host->turned, s.turned, n * sizeof *floats, cudaMemcpyDeviceToHost);
    }
    cudaFree(halves);
    cudaFree(floats);
    return (int)e;
}
