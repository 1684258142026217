/* What config.json says of a mixture of experts. */
#ifndef PV_FORMAT_CONFIG_EXPERTS_HF_H
#define PV_FORMAT_CONFIG_EXPERTS_HF_H

#include "format/config.h"

#include <jansson.h>

/* What a family has of experts, and whether it normalises their weights. */
enum expert_rule {
    EXPERTS_NONE,  /* a dense decoder */
    EXPERTS_SAID,  /* the key norm_topk_prob says */
    EXPERTS_NORMED /* always, whatever the key says */
};

/* Fills the fields of `c` about experts from the decoder's object; n_layers is set already. `name`
 * is for messages. */
enum pv_status config_experts_hf(struct config *c, const json_t *text, enum expert_rule rule,
                                 const char *name, struct pv_error *err);

#endif
