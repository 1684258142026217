/* Options of commands that read videos: which frames are used, their size, and limits. */
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

/* Check that the options agree with each other and fill *out. Returns OPTIONS_RUN, or reports a
 * misuse and returns its exit status. */
int choice_args_check(const struct choice_args *a, const char *command,
                      struct pv_video_params *out);
/* Set the limits that were given; the others do not change. */
void limit_args_set(const struct limit_args *a, struct pv_limits *out);

/* Whether the model can take videos; reports an error if not. */
bool can_be_shown_videos(const pv_model *model, const struct pv_model_params *mp);
/* The question if the user gives none. */
const char *default_question(const struct pv_video_info *info, int n);
/* Print a line to stderr if the file is truncated, and one if frames could not be decoded. */
void report_lost(const char *path, const struct pv_video_info *info);
/* Adds members of a JSON object, without its braces, about a file and the frames used from it. */
void video_json(struct buf *b, const char *path, const struct pv_video_info *info);

#endif
