/* Turns pixels into rows of patches. A byte has 256 values, and a table made by the host has the
 * result for each, so the bits are those of the host. Compared with doing it on the host, a quarter
 * of the bytes is copied, and no CPU core is busy while the GPU waits. */
#include "kernels/cuda/element.h"

namespace {

enum { THREADS = ELEMENT_THREADS };

/* One block per patch. */
__global__ void __launch_bounds__(THREADS) patch_kernel(struct patch_job j)
{
    const int rows = j.height / j.patch, columns = j.width / j.patch, m = j.merge;
    const int at = j.from + (int)blockIdx.x, slice = at / (rows * columns);
    const int in_slice = at - slice * rows * columns, unit = in_slice / (m * m);
    const int in_unit = in_slice - unit * m * m, units = columns / m;
    const int y = (unit / units * m + in_unit / m) * j.patch;
    const int x = (unit % units * m + in_unit % m) * j.patch;
    const int side = j.patch, area = side * side, row = 3 * j.temporal * area;
    const size_t line = (size_t)j.width * 3, frame = line * j.height;
    const uint8_t *corner =
        j.frames + (size_t)slice * j.temporal * frame + y * line + (size_t)x * 3;

    dep_launch();
    dep_wait();
    for (int e = (int)threadIdx.x; e < row; e += THREADS) {
        int plane = e / area, c = plane / j.temporal, t = plane - c * j.temporal;
        int place = e - plane * area, i = place / side, k = place - i * side;
        uint8_t value = corner[(size_t)t * frame + (size_t)i * line + (size_t)k * 3 + c];
        j.out[(size_t)blockIdx.x * row + e] = j.table[c * 256 + value];
    }
}

} // namespace

void cut_patches(struct device_work *w, const struct patch_job *job)
{
    if (job->n <= 0)
        return;
    work_check(w, launch(patch_kernel, dim3((unsigned)job->n), dim3(THREADS), 0, w->stream, *job),
               "patches");
}
