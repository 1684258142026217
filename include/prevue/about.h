/* Facts for bug reports: this build of the library, and what it finds on this machine. */
#ifndef PV_ABOUT_H
#define PV_ABOUT_H

#include "prevue/prevue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A hash of the library's source code, in hexadecimal. */
PV_API const char *pv_build_id(void);
/* The compiler and its version. */
PV_API const char *pv_compiler(void);
/* The i-th linked library as "name version", counted from 0; false past the last one. A CORE build
 * has none. */
PV_API bool pv_library(int i, char *out, size_t size);
/* Decodes a small video from memory in the sandbox (PV_SANDBOX_ON). PV_OK if this works on this
 * machine; otherwise `err` says why not. */
PV_API enum pv_status pv_sandbox_check(struct pv_error *err);
/* The i-th GPU, its driver and CUDA's versions. Fails past the last one, and in a build without
 * CUDA. */
PV_API enum pv_status pv_gpu(int i, char *out, size_t size, struct pv_error *err);
/* Which parts of a draft head (GGUF file or directory) are not used, as one clause in `out`; "" if
 * all are, or if `path` is not a draft head. pv_convert leaves these parts out. */
PV_API enum pv_status pv_head_unused(const char *path, char *out, size_t size,
                                     struct pv_error *err);

#ifdef __cplusplus
}
#endif

#endif
