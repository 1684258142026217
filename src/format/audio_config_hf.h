/* The settings of an audio encoder that cannot be derived from tensor shapes, from config.json. */
#ifndef PV_FORMAT_AUDIO_CONFIG_HF_H
#define PV_FORMAT_AUDIO_CONFIG_HF_H

#include "format/audio_config.h"
#include "format/audio_roles.h"
#include "format/json_hf.h"

/* `root`: the top-level object of config.json; `name`: the file's name, for messages. */
enum pv_status audio_config_hf_read(struct audio_config *c, const struct family_audio_encoder *h,
                                    const json_t *root, const char *name, struct pv_error *err);

#endif
