/* A vision tower's configuration from a Hugging Face directory. */
#ifndef PV_FORMAT_VISION_CONFIG_HF_H
#define PV_FORMAT_VISION_CONFIG_HF_H

#include "format/vision_config.h"

/* Reads config.json and the preprocessor's files of a directory. out->family is NULL if
 * config.json describes no tower of one of the given families. */
enum pv_status vision_config_hf_open(struct vision_config *out, const char *dir,
                                     const struct family *const *families, struct pv_error *err);
/* The same from memory: `processor` (preprocessor_config.json) may be NULL; `name` is for
 * messages. */
enum pv_status vision_config_hf_parse(struct vision_config *out, const char *json, size_t len,
                                      const char *processor, size_t processor_len, const char *name,
                                      const struct family *const *families, struct pv_error *err);

#endif
