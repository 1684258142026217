/* Advice for users whose model is missing or does not suit the task. */
#ifndef PV_CLI_MODEL_ADVICE_H
#define PV_CLI_MODEL_ADVICE_H

#include "options.h"
#include "prevue/prevue.h"

/* If `path`, the value of `option` ("--model"), is no file or directory but the name of a
 * repository on the Hugging Face hub, report that with the command that downloads it, and return
 * the exit status; else return OPTIONS_RUN. */
int advise_download(const char *option, const char *path);

/* Print a line to stderr if `path` is a directory with a tokenizer but no chat template. Prompts
 * then use ChatML, the form that most such models have. */
void advise_template(const char *path);

/* Print a line to stderr if the model nano, which knows only its synthetic clips, gets another
 * video. */
void advise_real_model(const struct pv_model_params *mp, const struct pv_video_info *info, int n);

/* Check that there are videos and that each can be a file. A missing video, a URL or "-" is
 * reported as a misuse of `command`, with what to do instead. Returns OPTIONS_RUN or the exit
 * status. */
int check_videos(const char *command, const struct arg_list *videos);

#endif
