/* The drafter `head`: one trained layer that continues the target's hidden states. */
#ifndef PV_SPEC_DRAFTER_HEAD_H
#define PV_SPEC_DRAFTER_HEAD_H

#include "format/head_file.h"
#include "lm/decoder.h"
#include "spec/drafter.h"

/* Which hidden states of the target a head needs. sees_media: the view shows media to the head.
 * wants_all: states of every row, not only of those before a token. wants_layer: the residual
 * stream of media rows after this many layers. */
bool drafter_head_wants_all(const struct head_config *h, bool sees_media);
int drafter_head_wants_layer(const struct head_config *h, bool sees_media); /* 0: none */

/* Bytes that drafter_head_open allocates, without KV pages. */
size_t drafter_head_size(const struct decoder *dec, int chunk, int context);
/* Borrows h, and steps, a stepper of a decoder from decoder_open_head. chunk: rows of a prefill
 * step. Prompts given to it must have draft_prompt.states. */
enum pv_status drafter_head_open(struct drafter **out, struct stepper *steps,
                                 const struct head_config *h, int chunk, int context,
                                 struct pv_error *err);

#endif
