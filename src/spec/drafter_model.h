/* The drafter `model`: a decoder that gets part of the prompt. With the target's own weights it is
 * the drafter `self`. */
#ifndef PV_SPEC_DRAFTER_MODEL_H
#define PV_SPEC_DRAFTER_MODEL_H

#include "lm/decoder.h"
#include "spec/drafter.h"

/* Bytes that drafter_model_open allocates, without KV pages. */
size_t drafter_model_size(const struct decoder *dec, int chunk, int context);
/* Borrows steps. chunk: rows of a prefill step; vocab: the target's; only ids below it are
 * proposed. */
enum pv_status drafter_model_open(struct drafter **out, struct stepper *steps, int chunk,
                                  int context, int vocab, struct pv_error *err);

#endif
