/* The messages of a request: roles, text, and media in the forms that clients send. */
#ifndef PV_SERVER_CHAT_PARTS_H
#define PV_SERVER_CHAT_PARTS_H

#include "chat_request.h"
#include "json_fields.h"

/* Fills messages, parts and media from the array; *r has its defaults for videos. */
bool chat_parts_read(struct chat_request *r, const json_t *messages, const struct chat_rules *rules,
                     struct api_error *e);
/* Options of frames and sound, in vLLM's names, over *out. */
bool chat_frames_read(struct pv_video_params *out, const json_t *o, const struct chat_rules *rules,
                      struct api_error *e);

#endif
