/* One answer of a session: streamed to stdout as it is produced, or collected for --json, with its
 * statistics. Shared by `generate`, `describe` and `chat`. */
#ifndef PV_CLI_ANSWER_H
#define PV_CLI_ANSWER_H

#include "method_args.h"
#include "progress.h"

struct answer {
    struct buf text; /* --json: collected here */
    bool json, any, ends_line;
    const struct pv_model_params *model; /* borrowed */
    struct progress *progress;           /* borrowed */
    double begin, total;            /* seconds: when answer_init was called; from then to the end */
    const struct pv_method *method; /* borrowed */
    struct pv_stats stats;
    const int32_t *ids; /* [n_ids], owned by the session until its next answer */
    size_t n_ids;
    const char *finish; /* why it ended: "stop", "length" or "cancelled" */
};

/* `total` is measured from this call on. */
void answer_init(struct answer *a, const struct sampling_args *s, const struct pv_model_params *mp,
                 struct progress *progress);
void answer_clear(struct answer *a);

/* Generate an answer to what was added to the session. After PV_OK and PV_E_CANCELLED, `a` has the
 * answer so far with its statistics. Text mode leaves stdout at the beginning of a line. */
enum pv_status answer_run(struct answer *a, pv_session *s, const struct sampling_args *sampling,
                          const struct pv_method *method, struct pv_error *err);

/* Adds a comma and "model":"PATH". */
void model_json(struct buf *b, const struct pv_model_params *mp);
/* The members of a JSON object, without its braces; text only when the model has a tokenizer. */
void answer_json(struct buf *b, const struct answer *a, bool has_text);
/* Adds the ids as a line, for models without a tokenizer. */
void answer_ids(struct buf *b, const struct answer *a);
/* Prints the statistics to stderr. */
void answer_stats(const struct answer *a);

/* The exit status of a command whose last call returned `status`; reports err if it failed. */
int answer_exit(enum pv_status status, const struct pv_error *err);

#endif
