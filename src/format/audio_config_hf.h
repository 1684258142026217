/* What no tensor's shape says of an audio encoder, from config.json. */
#ifndef PV_FORMAT_AUDIO_CONFIG_HF_H
#define PV_FORMAT_AUDIO_CONFIG_HF_H

#include "format/audio_config.h"
#include "format/audio_roles.h"
#include "format/json_hf.h"

/* `root`: the whole of config.json; `name`: of the file, for messages. */
enum pv_status audio_config_hf_read(struct audio_config *c, const struct family_hearing *h,
                                    const json_t *root, const char *name, struct pv_error *err);

#endif
