/* Options that say how tokens are drafted: a preset, what is changed of it, and the draft model. A
 * list of methods, for commands that compare them, is made of the same parts. */
#ifndef PV_CLI_METHOD_ARGS_H
#define PV_CLI_METHOD_ARGS_H

#include "draft_view_args.h"
#include "run_args.h"

/* -1, 0 and NULL: as the method has it. */
struct method_args {
    const char *draft, *draft_mmproj, *draft_device, *draft_text, *head, *method, *view, *shape;
    int drafter, schedule, accept, positions;
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
enum { N_METHOD_OPTIONS = 21, N_METHOD_SHORT = 3 }; /* --help lists the first three */

/* Methods to be compared; the first is always plain decoding. */
enum { MAX_CONTENDERS = 96, LABEL_SIZE = 96 };

struct contender {
    struct pv_method method;
    char label[LABEL_SIZE]; /* its word in the list: a name and what is changed of it */
};

struct contenders {
    struct contender items[MAX_CONTENDERS];
    int n;
};

/* The draft model that these options name, or NAME-draft.gguf beside the model NAME.gguf; NULL:
 * none, or the model itself. The string lives until the next call. */
const char *method_args_draft(const struct method_args *a, const struct pv_model_params *mp);

/* The same for the draft head, and NAME-head.gguf. */
const char *method_args_head(const struct method_args *a, const struct pv_model_params *mp);

/* The model gets this head (NULL: none), with the draft vocabulary that the options ask for. */
void set_head(const struct method_args *a, struct pv_model_params *mp, const char *head);

/* One method. *draft is the draft model that it needs, NULL: none; the head that it needs becomes
 * the model's. Returns OPTIONS_RUN, or the status of a misuse, which has been reported. */
int method_args_check(const struct method_args *a, const char *command, struct pv_model_params *mp,
                      struct pv_method *out, const char **draft);

/* Methods separated by commas: NAME, NAME:self, and behind either the changes of a variant
 * (method_variant.h). What the options change is changed where it has a meaning. With `ratios`
 * (numbers separated by commas; NULL: none) each method that prunes is there once for each. */
int method_args_list(const struct method_args *a, const char *command, struct pv_model_params *mp,
                     const char *names, const char *ratios, struct contenders *out,
                     const char **draft);

/* Its label, and its ratio where it prunes. */
void contender_title(char *out, size_t size, const struct contender *c);

/* The words of the options. */
const char *drafter_name(enum pv_drafter drafter);
/* "method":..., and who drafts on what: members of a JSON object, without its braces. */
void method_json(struct buf *b, const struct pv_method *m, const char *label);
/* The probability of acceptance that it simulates; 0: none. */
double method_simulates(const struct pv_method *m);
/* Does what the drafter sees depend on a ratio? */
bool method_prunes(const struct pv_method *m);

/* Opens the draft model on the threads of `model`; *out stays NULL when `path` is NULL. */
enum pv_status open_draft(pv_model **out, const char *path, const struct method_args *a,
                          const struct pv_model_params *mp, pv_model *model, struct pv_error *err);

#endif
