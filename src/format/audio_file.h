/* The audio encoder of a model file: finds its tensors and derives its sizes from their shapes.
 * For vision_file.c and the writer. */
#ifndef PV_FORMAT_AUDIO_FILE_H
#define PV_FORMAT_AUDIO_FILE_H

#include "format/audio_roles.h"
#include "format/model_file_parts.h"

/* Find the encoder's tensors and complete mf->vision.audio, which holds the settings that shapes
 * do not give. The vision tower's tensors have been found before. `where` names the file in
 * messages. On failure the caller closes mf. */
enum pv_status audio_file_bind(struct model_file *mf, const char *where, struct pv_error *err);
void audio_file_close(struct model_file *mf);

/* The complete name of a role's tensor; `layer` is ignored for AUDIO_TOP. */
void audio_role_name(char *name, size_t size, const struct family_audio_encoder *h,
                     enum audio_group group, int layer, int role, bool gguf);
/* The tensor that was found for a role. */
const struct tensor *audio_role_tensor(const struct model_file *mf, enum audio_group group,
                                       int layer, int role);
/* How many times the file has the tensors of a group: 1, or the number of layers. */
int audio_group_count(const struct audio_config *c, enum audio_group group);

#endif
