/* One line of a list of clips: {"video": "a.mp4", "prompt": "What happens?", ...}. */
#ifndef PV_CLI_JSONL_H
#define PV_CLI_JSONL_H

#include "base/buf.h"

/* The strings of the members "video" and "prompt" of the object line[0..len), appended to the two
 * buffers; *has_prompt is false when there is none. Other members are passed over. Returns NULL, or
 * what is wrong with the line, as the end of a sentence. */
const char *jsonl_read(const char *line, size_t len, struct buf *video, struct buf *prompt,
                       bool *has_prompt);

#endif
