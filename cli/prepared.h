/* Prepared prompts (.pvin, see 'prevue prepare') given in place of videos and a question. */
#ifndef PV_CLI_PREPARED_H
#define PV_CLI_PREPARED_H

#include "video_args.h"

/* Whether its name says that a file is a prepared prompt. */
bool is_prepared(const char *path);
/* Whether one is among these. */
bool has_prepared(const struct arg_list *videos);

/* A prepared prompt must be the only input: its question and frames are in it, so options about
 * them would be ignored. `more` names a given option that asks for more; NULL: none. Returns
 * OPTIONS_RUN, or reports a misuse and returns its exit status. */
int prepared_check(const struct arg_list *videos, const char *command, const char *prompt,
                   const char *system, const struct choice_args *choice, const char *more);

/* pv_prompt_read; every error message names the file. */
enum pv_status add_prepared(pv_session *s, const char *path, struct pv_error *err);

/* Whether the model can take videos; reports an error if not. A prepared prompt needs no tokenizer,
 * a question in words does. */
bool can_be_shown(const pv_model *model, const struct pv_model_params *mp, bool prepared);

#endif
