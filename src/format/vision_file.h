/* The vision tower of a model file: finds and checks its configuration and tensors. For
 * model_file.c. */
#ifndef PV_FORMAT_VISION_FILE_H
#define PV_FORMAT_VISION_FILE_H

#include "format/model_file_parts.h"

/* Open the tower of `mf`, whose decoder is open. `mmproj`: see model_file_open. On failure the
 * caller closes mf. */
enum pv_status vision_file_open(struct model_file *mf, const char *mmproj, uint64_t limit,
                                const struct family *const *families, struct pv_error *err);
void vision_file_close(struct model_file *mf);

/* The path of the separate tower file of a GGUF model: same directory, name "mmproj-" followed by
 * the model's. The caller frees it (mem_free); NULL if out of memory. */
char *vision_file_sibling(const char *path);

#endif
