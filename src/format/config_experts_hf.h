/* What config.json says of a mixture of experts. */
#ifndef PV_FORMAT_CONFIG_EXPERTS_HF_H
#define PV_FORMAT_CONFIG_EXPERTS_HF_H

#include "format/config.h"

#include <jansson.h>

/* Fills the fields of `c` about experts from the decoder's object; n_layers is set already. `name`
 * is for messages. */
enum pv_status config_experts_hf(struct config *c, const json_t *text, enum expert_rule rule,
                                 const char *name, struct pv_error *err);

#endif
