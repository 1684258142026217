/* What the files of the simulator share and kernels do not see. */
#ifndef PV_TESTS_CUDASIM_INSIDE_H
#define PV_TESTS_CUDASIM_INSIDE_H

#include "cudasim/runtime.h"

void cudasim_run_grid(const cudasim_site &site, dim3 grid, dim3 threads, size_t smem,
                      const std::function<void()> &body);

#endif
