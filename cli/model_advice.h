/* What to do when a model is not there, or is not the one for the job. */
#ifndef PV_CLI_MODEL_ADVICE_H
#define PV_CLI_MODEL_ADVICE_H

#include "options.h"
#include "prevue/prevue.h"

/* Is `path`, the value of `option` ("--model"), the name of a repository on the Hugging Face hub
 * and no file or directory? Then that and the command that downloads it have been reported, and the
 * result is the exit status; else OPTIONS_RUN. */
int advise_download(const char *option, const char *path);

/* A line on stderr when `path` is a directory with a tokenizer but no chat template. Its prompts
 * are then written in the form most such models have, ChatML. */
void advise_template(const char *path);

/* A line on stderr when nano, which knows only the clips of its synthetic world, is shown something
 * else. */
void advise_real_model(const struct pv_model_params *mp, const struct pv_video_info *info, int n);

/* Are there videos, each of which may be a file? A URL or "-" is not: that, and what to do instead,
 * has been reported as a misuse of `command`. Returns OPTIONS_RUN or the exit status. */
int check_videos(const char *command, const struct arg_list *videos);

#endif
