/* What `prevue inspect` prints about a vision tower. */
#ifndef PV_ENGINE_INSPECT_VISION_H
#define PV_ENGINE_INSPECT_VISION_H

#include "base/buf.h"
#include "engine/model.h"

static inline double describe_mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* Lines of text; none for a model without a tower. */
void describe_vision_text(struct buf *b, const struct pv_model *m);
/* The member ,"vision":{...}, or ,"vision":null. */
void describe_vision_json(struct buf *b, const struct pv_model *m);

#endif
