/* A decoder's configuration from a Hugging Face config.json. */
#ifndef PV_FORMAT_CONFIG_HF_H
#define PV_FORMAT_CONFIG_HF_H

#include "format/config.h"

/* Reads config.json of a directory, and the stop tokens of generation_config.json if it exists.
 * `families`: the known families, ended by NULL. */
enum pv_status config_hf_open(struct config *out, const char *dir,
                              const struct family *const *families, struct pv_error *err);
/* The same from memory: `generation` may be NULL; `name` is for messages. */
enum pv_status config_hf_parse(struct config *out, const char *json, size_t len,
                               const char *generation, size_t generation_len, const char *name,
                               const struct family *const *families, struct pv_error *err);

#endif
