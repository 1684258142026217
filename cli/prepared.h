/* Prepared prompts (.pvin, see 'prevue prepare') where videos and a question are expected. */
#ifndef PV_CLI_PREPARED_H
#define PV_CLI_PREPARED_H

#include "video_args.h"

/* Does its name say that a file is one? */
bool is_prepared(const char *path);
/* Is one among these? */
bool has_prepared(const struct arg_list *videos);

/* A prepared prompt comes alone, its question and its frames are in it: what was said about them
 * beside it would be ignored. `more` names an option that was given and asks more; NULL: none.
 * Returns OPTIONS_RUN, or the status of a misuse, which has been reported. */
int prepared_check(const struct arg_list *videos, const char *command, const char *prompt,
                   const char *system, const struct choice_args *choice, const char *more);

/* pv_prompt_read, the file named in every sentence. */
enum pv_status add_prepared(pv_session *s, const char *path, struct pv_error *err);

/* Can the model be shown these? Unlike a question in words a prepared one needs no tokenizer. If
 * not, that has been reported. */
bool can_be_shown(const pv_model *model, const struct pv_model_params *mp, bool prepared);

#endif
