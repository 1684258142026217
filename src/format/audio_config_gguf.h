/* The settings of an audio encoder that cannot be derived from tensor shapes, read from and
 * written to GGUF metadata. Keys of the encoder are llama.cpp's; those of the Q-Former are ours. */
#ifndef PV_FORMAT_AUDIO_CONFIG_GGUF_H
#define PV_FORMAT_AUDIO_CONFIG_GGUF_H

#include "format/audio_config.h"
#include "format/gguf.h"
#include "format/gguf_write.h"

/* Whether the file has an audio encoder. */
bool audio_config_gguf_has(const struct gguf *g);
enum pv_status audio_config_gguf_parse(struct audio_config *c, const struct gguf *g,
                                       struct pv_error *err);
/* Writes all keys, also those that the reader derives from shapes. */
void audio_config_gguf_write(const struct audio_config *c, struct gguf_writer *w);

#endif
