/* For bug reports: what this build of the library is, and what it finds on this machine. */
#ifndef PV_ABOUT_H
#define PV_ABOUT_H

#include "prevue/prevue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A digest of the library's code in hexadecimal. */
PV_API const char *pv_build_id(void);
/* The compiler and its version. */
PV_API const char *pv_compiler(void);
/* The libraries that are linked in, one by one from 0, each as "name version"; false past the last,
 * which in a CORE build is at once. */
PV_API bool pv_library(int i, char *out, size_t size);
/* Can videos be decoded in the sandbox here (PV_SANDBOX_ON)? Tries it with a small video in memory.
 * PV_OK, or in err why not. */
PV_API enum pv_status pv_sandbox_check(struct pv_error *err);
/* The i-th GPU, its driver and CUDA's versions. Fails past the last one, and in a build without
 * CUDA. */
PV_API enum pv_status pv_gpu(int i, char *out, size_t size, struct pv_error *err);

#ifdef __cplusplus
}
#endif

#endif
