/* A vision tower's configuration from GGUF metadata: llama.cpp's mmproj files, and our own. */
#ifndef PV_FORMAT_VISION_CONFIG_GGUF_H
#define PV_FORMAT_VISION_CONFIG_GGUF_H

#include "format/gguf.h"
#include "format/gguf_write.h"
#include "format/vision_config.h"

/* Whether the file has a tower, with or without a decoder. */
bool vision_config_gguf_has(const struct gguf *g);
/* `decoder` (may be NULL): the family of the decoder. `v` (may be NULL): the decoder's vocabulary,
 * which is searched for special tokens whose ids are not in the file. */
enum pv_status vision_config_gguf_parse(struct vision_config *out, const struct gguf *g,
                                        const struct vocab *v, const struct family *decoder,
                                        const struct family *const *families, struct pv_error *err);
/* Write all keys of a tower. */
void vision_config_gguf_write(const struct vision_config *c, struct gguf_writer *w);

#endif
