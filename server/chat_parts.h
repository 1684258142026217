/* Reads the messages of a request: roles, text, and media in the forms that clients send. */
#ifndef PV_SERVER_CHAT_PARTS_H
#define PV_SERVER_CHAT_PARTS_H

#include "chat_request.h"
#include "json_fields.h"

/* Fill messages, parts and media from the array; r->video holds the defaults for videos. */
bool chat_parts_read(struct chat_request *r, const json_t *messages, const struct chat_rules *rules,
                     struct api_error *e);
/* Read options for frames and sound, under vLLM's names, into *out. */
bool chat_frames_read(struct pv_video_params *out, const json_t *o, const struct chat_rules *rules,
                      struct api_error *e);

#endif
