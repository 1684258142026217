/* A vision tower's configuration from GGUF metadata: llama.cpp's mmproj files, and our own. */
#ifndef PV_FORMAT_VISION_CONFIG_GGUF_H
#define PV_FORMAT_VISION_CONFIG_GGUF_H

#include "format/gguf.h"
#include "format/gguf_write.h"
#include "format/vision_config.h"

/* Whether the file has a tower (beside a decoder, or alone). */
bool vision_config_gguf_has(const struct gguf *g);
/* `decoder` (may be NULL): the family of the decoder; `v` (may be NULL): its vocabulary, for the
 * tokens the file does not name. */
enum pv_status vision_config_gguf_parse(struct vision_config *out, const struct gguf *g,
                                        const struct vocab *v, const struct family *decoder,
                                        const struct family *const *families, struct pv_error *err);
/* All keys of a tower. */
void vision_config_gguf_write(const struct vision_config *c, struct gguf_writer *w);

#endif
