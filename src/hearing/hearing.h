/* Audio encoders on a device: log-mel features of a chunk of sound become tokens in the decoder's
 * space. A chunk is what attends to itself, silence at its end included; chunks are independent. */
#ifndef PV_HEARING_HEARING_H
#define PV_HEARING_HEARING_H

#include "format/model_file.h"
#include "tensor/device.h"
#include "vision/vision.h"

struct hearing;       /* weights on a device: immutable, shared */
struct hearing_state; /* activations and scratch of one chunk */

/* Borrows mf and dev. PV_E_UNSUPPORTED when the model does not hear. */
enum pv_status hearing_open(struct hearing **out, const struct model_file *mf, struct device *dev,
                            struct pv_error *err);
void hearing_close(struct hearing **h);
const struct audio_config *hearing_config(const struct hearing *h);

size_t hearing_state_size(const struct hearing *h);
enum pv_status hearing_state_open(struct hearing_state **out, const struct hearing *h,
                                  struct pv_error *err);
void hearing_state_close(struct hearing_state **st);
/* As vision_state_watch and vision_state_work_on. */
void hearing_state_watch(struct hearing_state *st, struct vision_watch watch);
void hearing_state_work_on(struct hearing_state *st, struct device *group);

/* mel [mel, audio_chunk_frames] -> out [audio_chunk_tokens, hidden of the decoder], both in host
 * memory. Allocates nothing. PV_E_CANCELLED: the watch stopped it. */
enum pv_status hearing_encode(const struct hearing *h, struct hearing_state *st, const float *mel,
                              float *out, struct pv_error *err);

#endif
