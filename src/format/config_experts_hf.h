/* The keys of config.json about a mixture of experts. */
#ifndef PV_FORMAT_CONFIG_EXPERTS_HF_H
#define PV_FORMAT_CONFIG_EXPERTS_HF_H

#include "format/config.h"

#include <jansson.h>

/* Fill the fields of `c` about experts. `text` is the decoder's object of config.json; c->n_layers
 * must be set. `name` is for messages. */
enum pv_status config_experts_hf(struct config *c, const json_t *text, enum expert_rule rule,
                                 const char *name, struct pv_error *err);

#endif
