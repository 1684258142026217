/* The vision tower of a model file: found, checked, and its tensors bound. For model_file.c. */
#ifndef PV_FORMAT_VISION_FILE_H
#define PV_FORMAT_VISION_FILE_H

#include "format/model_file_parts.h"

/* `mf` is open but for the tower. `mmproj` as in model_file_open. On failure the caller closes
 * mf. */
enum pv_status vision_file_open(struct model_file *mf, const char *mmproj, uint64_t limit,
                                const struct family *const *families, struct pv_error *err);
void vision_file_close(struct model_file *mf);

/* Where the tower of a GGUF model lies when it has a file of its own: beside it, "mmproj-" before
 * its name. NULL when out of memory; mem_free. */
char *vision_file_sibling(const char *path);

#endif
