/* A decoder's configuration from GGUF metadata. */
#ifndef PV_FORMAT_CONFIG_GGUF_H
#define PV_FORMAT_CONFIG_GGUF_H

#include "format/config.h"
#include "format/gguf.h"

/* `families`: the known families, ended by NULL. `v` (may be NULL) is searched for the stop tokens
 * that are known by their spelling. */
enum pv_status config_gguf_parse(struct config *out, const struct gguf *g, const struct vocab *v,
                                 const struct family *const *families, struct pv_error *err);

#endif
