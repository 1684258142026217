/* Audio encoders on a device: turns the log-mel features of a chunk of sound into tokens of the
 * decoder's width. Attention spans a chunk, including the silence that pads it; chunks are
 * independent. */
#ifndef PV_HEARING_HEARING_H
#define PV_HEARING_HEARING_H

#include "format/model_file.h"
#include "tensor/device.h"
#include "vision/vision.h"

struct hearing;       /* weights on a device: immutable, shared */
struct hearing_state; /* activations and scratch of one chunk */

/* Borrows mf and dev. PV_E_UNSUPPORTED if the model has no audio encoder. */
enum pv_status hearing_open(struct hearing **out, const struct model_file *mf, struct device *dev,
                            struct pv_error *err);
void hearing_close(struct hearing **h);
const struct audio_config *hearing_config(const struct hearing *h);

size_t hearing_state_size(const struct hearing *h);
enum pv_status hearing_state_open(struct hearing_state **out, const struct hearing *h,
                                  struct pv_error *err);
void hearing_state_close(struct hearing_state **st);
/* See vision_state_watch and vision_state_work_on. */
void hearing_state_watch(struct hearing_state *st, struct vision_watch watch);
void hearing_state_work_on(struct hearing_state *st, struct device *group);

/* mel [mel, audio_chunk_frames] -> out [audio_chunk_tokens, hidden of the decoder], both in host
 * memory. Allocates nothing. PV_E_CANCELLED if the watch returned false. */
enum pv_status hearing_encode(const struct hearing *h, struct hearing_state *st, const float *mel,
                              float *out, struct pv_error *err);

#endif
