/* Options that say how tokens are drafted: a preset, changes to it, and the draft model. Commands
 * that compare methods take a list of methods in the same terms. */
#ifndef PV_CLI_METHOD_ARGS_H
#define PV_CLI_METHOD_ARGS_H

#include "draft_view_args.h"
#include "run_args.h"

/* -1, 0 and NULL: as in the method. */
struct method_args {
    const char *draft, *draft_mmproj, *draft_device, *draft_text, *head, *method, *view, *shape,
        *lossy, *draft_adaptor;
    int drafter, schedule, accept, positions, draft_vision;
    int window, total, depth, width, keep, threads, draft_vocab;
    double ratio, lambda;
    struct draft_view_args draft_view;
};

#define METHOD_DEFAULTS                                                                            \
    {                                                                                              \
        .drafter = -1, .schedule = -1, .accept = -1, .positions = -1, .ratio = -1,                 \
        .draft_view = DRAFT_VIEW_DEFAULTS                                                          \
    }

extern const struct option method_table[];
enum { N_METHOD_OPTIONS = 24, N_METHOD_SHORT = 3 }; /* --help lists the first three */

/* Methods to be compared; the first is always plain decoding. */
enum { MAX_CONTENDERS = 96, LABEL_SIZE = 96, LOSSY_SIZE = 40 };

struct contender {
    struct pv_method method;
    char lossy[LOSSY_SIZE]; /* storage of method.lossy */
    char label[LABEL_SIZE]; /* as spelled in the list: a name and changes to it */
};

struct contenders {
    struct contender items[MAX_CONTENDERS];
    int n;
};

/* The draft model: the one that these options name, or NAME-draft.gguf in the directory of the
 * model NAME.gguf; NULL: none, or the model itself. The string is valid until the next call. */
const char *method_args_draft(const struct method_args *a, const struct pv_model_params *mp);

/* The same for the draft head, and NAME-head.gguf. */
const char *method_args_head(const struct method_args *a, const struct pv_model_params *mp);

/* Where a draft model, whose path is set, gets its video tokens from: with a vision adaptor that
 * the options name or that lies beside it, from the target's tower. */
void set_draft_vision(const struct method_args *a, struct pv_model_params *draft);

/* Set the model's draft head (NULL: none), and the draft vocabulary that the options ask for. */
void set_head(const struct method_args *a, struct pv_model_params *mp, const char *head);

/* The type of the KV cache: that of --kv-type, or of --lossy kv-fp8. */
enum pv_kv_type method_args_kv_type(const struct method_args *a,
                                    const struct session_args *session);

/* The method that the options describe. *draft: the draft model that it needs, NULL: none; a draft
 * head that it needs is set in *mp. Returns OPTIONS_RUN, or reports a misuse and returns its exit
 * status. */
int method_args_check(const struct method_args *a, const struct session_args *session,
                      const char *command, struct pv_model_params *mp, struct pv_method *out,
                      const char **draft);

/* A comma-separated list of methods: NAME or NAME:self, followed by the changes of a variant
 * (method_variant.h). The options apply to every method that uses them. With `ratios`
 * (comma-separated numbers; NULL: none) each method that prunes is entered once per ratio. */
int method_args_list(const struct method_args *a, const struct session_args *session,
                     const char *command, struct pv_model_params *mp, const char *names,
                     const char *ratios, struct contenders *out, const char **draft);

/* Its label, and its ratio if it prunes. */
void contender_title(char *out, size_t size, const struct contender *c);

/* The drafter's name in options. */
const char *drafter_name(enum pv_drafter drafter);
/* Adds members of a JSON object, without its braces: "method" and its drafter and view. */
void method_json(struct buf *b, const struct pv_method *m, const char *label);
/* The simulated probability of acceptance; 0: not simulated. */
double method_simulates(const struct pv_method *m);
/* Whether the model itself gets only part of the video (--lossy NAME:RATIO). */
bool method_prunes_model(const struct pv_method *m);
/* Whether the method's view uses a ratio. */
bool method_prunes(const struct pv_method *m);

/* Open the draft model on the threads of `model`; *out stays NULL if `path` is NULL. */
enum pv_status open_draft(pv_model **out, const char *path, const struct method_args *a,
                          const struct pv_model_params *mp, pv_model *model, struct pv_error *err);

#endif
