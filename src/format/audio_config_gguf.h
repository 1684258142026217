/* What no tensor's shape says of an audio encoder, from GGUF metadata and back. llama.cpp has
 * names for the encoder; those of the Q-Former are ours. */
#ifndef PV_FORMAT_AUDIO_CONFIG_GGUF_H
#define PV_FORMAT_AUDIO_CONFIG_GGUF_H

#include "format/audio_config.h"
#include "format/gguf.h"
#include "format/gguf_write.h"

/* Whether the file has an audio encoder. */
bool audio_config_gguf_has(const struct gguf *g);
enum pv_status audio_config_gguf_parse(struct audio_config *c, const struct gguf *g,
                                       struct pv_error *err);
/* All keys, those too that shapes tell. */
void audio_config_gguf_write(const struct audio_config *c, struct gguf_writer *w);

#endif
