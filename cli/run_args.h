/* Options shared by commands that run a model: the model and its device, memory, sampling. */
#ifndef PV_CLI_RUN_ARGS_H
#define PV_CLI_RUN_ARGS_H

#include "command.h"

struct model_args {
    const char *model, *mmproj, *cpumask, *device;
    int threads, ranks, draft_ranks;
    int tower_type;
    bool no_repack, dummy_weights;
};

struct session_args {
    int context, chunk, kv_type;
    uint64_t memory;
};

/* Results kept on disk. */
struct cache_args {
    const char *dir;
    uint64_t bytes;
    bool kv;
};

struct sampling_args {
    int max_tokens, top_k;
    double temperature, top_p, min_p;
    uint64_t seed;
    bool ignore_eos, json, stats;
};

#define SAMPLING_DEFAULTS                                                                          \
    {                                                                                              \
        .max_tokens = 256, .top_p = 1                                                              \
    }

/* The tables of the structs above. */
extern const struct option model_table[], session_table[], cache_table[], sampling_table[];
enum { N_MODEL_OPTIONS = 10, N_SESSION_OPTIONS = 4, N_CACHE_OPTIONS = 3, N_SAMPLING_OPTIONS = 9 };
enum { N_MODEL_SHORT = 4, N_SESSION_SHORT = 1, N_CACHE_SHORT = 1 }; /* that --help lists */
enum { N_DRAWING_OPTIONS = N_SAMPLING_OPTIONS - 2 };                /* without --json and --stats */

/* The parameters of the model to open, without limits. If no model is given, the one in models/ is
 * used. Starts the ranks (start_ranks.h). Returns OPTIONS_RUN, or reports a misuse and returns its
 * exit status. */
int model_args_check(const struct model_args *a, const char *command, struct pv_model_params *out);
/* The value of --device or --draft-device, or NULL. Returns OPTIONS_RUN, or reports a misuse and
 * returns its exit status. */
int device_option_check(const char *option, const char *value, const char *command);
struct pv_session_params session_args_params(const struct session_args *a);
/* Returns OPTIONS_RUN, or reports a misuse and returns its exit status. */
int cache_args_check(const struct cache_args *a, const char *command);
/* Later problems with the directory are printed to stderr. */
struct pv_cache_params cache_args_params(const struct cache_args *a);
struct pv_gen_params sampling_args_params(const struct sampling_args *a);
/* --no-thinking: calls pv_session_chat with this option. */
enum pv_status set_no_thinking(pv_session *s, bool no_thinking, struct pv_error *err);

#endif
