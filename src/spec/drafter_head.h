/* The drafter `head`: one trained layer that continues the target's hidden states. */
#ifndef PV_SPEC_DRAFTER_HEAD_H
#define PV_SPEC_DRAFTER_HEAD_H

#include "format/head_file.h"
#include "lm/decoder.h"
#include "spec/drafter.h"

/* What a head wants kept of the target's states: media are rows of its own where `sees_media`. */
bool drafter_head_wants_all(const struct head_config *h, bool sees_media);
int drafter_head_wants_layer(const struct head_config *h, bool sees_media); /* 0: none */

/* Bytes that drafter_head_open allocates, beside KV pages. */
size_t drafter_head_size(const struct decoder *dec, int chunk, int context);
/* Borrows dec, a decoder of decoder_open_head, and h. chunk: rows of a prefill step. Needs the
 * target's states in prompts and requests. */
enum pv_status drafter_head_open(struct drafter **out, struct stepper *steps,
                                 const struct head_config *h, int chunk, int context,
                                 struct pv_error *err);

#endif
