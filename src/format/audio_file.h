/* The audio encoder of a model file: its sizes taken from the shapes of its tensors, and the
 * tensors bound. For vision_file.c and the writer. */
#ifndef PV_FORMAT_AUDIO_FILE_H
#define PV_FORMAT_AUDIO_FILE_H

#include "format/audio_roles.h"
#include "format/model_file_parts.h"

/* The vision tower is bound; what no shape says is in mf->vision.audio. `where` names the file. On
 * failure the caller closes mf. */
enum pv_status audio_file_bind(struct model_file *mf, const char *where, struct pv_error *err);
void audio_file_close(struct model_file *mf);

/* The complete name of a role's tensor; `layer` counts only in groups of layers. */
void audio_role_name(char *name, size_t size, const struct family_hearing *h,
                     enum audio_group group, int layer, int role, bool gguf);
/* A role's tensor, bound. */
const struct tensor *audio_role_tensor(const struct model_file *mf, enum audio_group group,
                                       int layer, int role);
/* How many times the roles of a group are there. */
int audio_group_count(const struct audio_config *c, enum audio_group group);

#endif
