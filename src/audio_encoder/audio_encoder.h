/* Audio encoders on a device: turns the log-mel features of a chunk of sound into tokens of the
 * decoder's width. Attention spans a chunk, including the silence that pads it; chunks are
 * independent. */
#ifndef PV_AUDIO_ENCODER_AUDIO_ENCODER_H
#define PV_AUDIO_ENCODER_AUDIO_ENCODER_H

#include "format/model_file.h"
#include "tensor/device.h"
#include "vision/vision.h"

struct audio_encoder;       /* weights on a device: immutable, shared */
struct audio_encoder_state; /* activations and scratch of one chunk */

/* Borrows mf and dev. PV_E_UNSUPPORTED if the model has no audio encoder. */
enum pv_status audio_encoder_open(struct audio_encoder **out, const struct model_file *mf,
                                  struct device *dev, struct pv_error *err);
void audio_encoder_close(struct audio_encoder **h);
const struct audio_config *audio_encoder_config(const struct audio_encoder *h);

size_t audio_encoder_state_size(const struct audio_encoder *h);
enum pv_status audio_encoder_state_open(struct audio_encoder_state **out,
                                        const struct audio_encoder *h, struct pv_error *err);
void audio_encoder_state_close(struct audio_encoder_state **st);
/* See vision_state_watch and vision_state_work_on. */
void audio_encoder_state_watch(struct audio_encoder_state *st, struct vision_watch watch);
void audio_encoder_state_work_on(struct audio_encoder_state *st, struct device *group);

/* mel [mel, audio_chunk_frames] -> out [audio_chunk_tokens, hidden of the decoder], both in host
 * memory. Allocates nothing. PV_E_CANCELLED if the watch returned false. */
enum pv_status audio_encoder_encode(const struct audio_encoder *h, struct audio_encoder_state *st,
                                    const float *mel, float *out, struct pv_error *err);

#endif
