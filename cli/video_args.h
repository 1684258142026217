/* Options of commands that read videos: which frames are taken, how large, and what is refused. */
#ifndef PV_CLI_VIDEO_ARGS_H
#define PV_CLI_VIDEO_ARGS_H

#include "command.h"

struct choice_args {
    int frames, min_frames, max_frames, min_pixels, max_pixels, rule, time_rule;
    double fps, start, end;
    const char *formats;
    bool sandbox, no_sandbox, no_audio;
};

struct limit_args {
    uint64_t bytes;
    int pixels, frames;
    double seconds, decode_seconds;
    uint64_t decoded_pixels;
};

extern const struct option choice_table[], limit_table[];
enum { N_CHOICE_OPTIONS = 14, N_LIMIT_OPTIONS = 6 };
enum { N_CHOICE_SHORT = 6 }; /* that --help lists */

/* Check what belongs together and fill *out. Returns OPTIONS_RUN, or the status of a misuse, which
 * has been reported. */
int choice_args_check(const struct choice_args *a, const char *command,
                      struct pv_video_params *out);
/* Set the limits that were given; the others stay. */
void limit_args_set(const struct limit_args *a, struct pv_limits *out);

/* Can the model be asked about videos? If not, that has been reported. */
bool can_be_shown_videos(const pv_model *model, const struct pv_model_params *mp);
/* What is asked about these when nothing else is. */
const char *default_question(const struct pv_video_info *info, int n);
/* A line on stderr when the file ends early, and one when frames were lost. */
void report_lost(const char *path, const struct pv_video_info *info);
/* Members of a JSON object, without its braces, about a file and what was taken from it. */
void video_json(struct buf *b, const char *path, const struct pv_video_info *info);

#endif
