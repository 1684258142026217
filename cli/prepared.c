/* Which other options a prepared prompt may be combined with. */
#include "prepared.h"

#include "base/status.h"

bool is_prepared(const char *path)
{
    return path_ends(path, ".pvin");
}

bool has_prepared(const struct arg_list *videos)
{
    for (int i = 0; i < videos->n; i++)
        if (is_prepared(videos->items[i]))
            return true;
    return false;
}

static bool chooses(const struct choice_args *c)
{
    return c->frames || c->min_frames || c->max_frames || c->min_pixels || c->max_pixels ||
           c->rule || c->time_rule || c->fps > 0 || c->start > 0 || c->end > 0;
}

int prepared_check(const struct arg_list *videos, const char *command, const char *prompt,
                   const char *system, const struct choice_args *choice, const char *more)
{
    if (!has_prepared(videos))
        return OPTIONS_RUN;
    if (prompt || system || more)
        return options_misuse(
            command, "--%s cannot be used with a prepared prompt, which holds its question",
            prompt   ? "prompt"
            : system ? "system"
                     : more);
    if (chooses(choice))
        return options_misuse(command, "a prepared prompt holds its frames: options that choose "
                                       "frames have no meaning");
    return OPTIONS_RUN;
}

enum pv_status add_prepared(pv_session *s, const char *path, struct pv_error *err)
{
    enum pv_status st = pv_prompt_read(s, path, err);
    if (st)
        fail_names(err, path);
    return st;
}

bool can_be_shown(const pv_model *model, const struct pv_model_params *mp, bool prepared)
{
    if (prepared && pv_model_has_vision(model))
        return true;
    return can_be_shown_videos(model, mp);
}
