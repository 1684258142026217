/* Groups of options that several commands have in common. `args` is the command's struct of
 * arguments; its members of these types have the names used here. */
#ifndef PV_CLI_OPTION_GROUPS_H
#define PV_CLI_OPTION_GROUPS_H

#include "method_args.h"
#include "run_args.h"
#include "video_args.h"

/* How tokens are drafted, and which model runs where. */
#define RUN_GROUPS(args)                                                                           \
    { "drafting", method_table, N_METHOD_OPTIONS, offsetof(args, method), N_METHOD_SHORT },        \
        { "views", draft_view_table, N_DRAFT_VIEW_OPTIONS, offsetof(args, method.draft_view),      \
          SHORT_NONE },                                                                            \
        { "model", model_table, N_MODEL_OPTIONS, offsetof(args, model), N_MODEL_SHORT },           \
        { "memory", session_table, N_SESSION_OPTIONS, offsetof(args, session), N_SESSION_SHORT },  \
    {                                                                                              \
        "cache", cache_table, N_CACHE_OPTIONS, offsetof(args, cache), N_CACHE_SHORT                \
    }

/* The same with frames, sampling (the first n_sampling options of sampling_table) and limits. */
#define VIDEO_GROUPS(args, n_sampling)                                                             \
    { "frames", choice_table, N_CHOICE_OPTIONS, offsetof(args, choice), N_CHOICE_SHORT },          \
        { "answer", sampling_table, n_sampling, offsetof(args, sampling), SHORT_ALL },             \
        RUN_GROUPS(args),                                                                          \
    {                                                                                              \
        "limits", limit_table, N_LIMIT_OPTIONS, offsetof(args, limits), SHORT_NONE                 \
    }

#endif
