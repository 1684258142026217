/* One question about a clip, answered by several methods in turn in one session. Shared by
 * `describe --compare` and `bench`. */
#ifndef PV_CLI_TRIAL_H
#define PV_CLI_TRIAL_H

#include "figures.h"
#include "method_args.h"
#include "progress.h"

struct trial {
    pv_model *model;
    const struct pv_session_params *session; /* of the sessions that are opened */
    const struct contenders *who;
    struct pv_gen_params gen; /* without a method */
    struct pv_video_params video;
    int repeat;
    struct progress *progress;
    pv_text_fn on_text; /* gets the text of the first answer; may be NULL */
    void *user;
    bool trace;   /* keep the spans of each method */
    bool bits;    /* answers count as equal only if the logits that chose them are identical */
    bool alone;   /* also run each method in its own session */
    bool answers; /* keep texts and ids */
};

/* A copy of pv_span that no session owns. */
struct trial_span {
    enum pv_side side;
    char what[16];
    double begin, end;
    int rows;
};

struct trial_question {
    const struct arg_list *videos;
    const char *system, *prompt; /* may be NULL */
    bool no_thinking;
};

/* For each verification of an answer: the number of drafted tokens that were accepted. */
struct trial_rounds {
    int *accepted; /* owned */
    int n;
};

enum identity { SAME, DIFFERENT, NOT_COMPARED };

struct trial_result {
    struct figures cell[MAX_CONTENDERS];
    enum identity identity[MAX_CONTENDERS];  /* compared with the answer of plain decoding */
    int frames, lost;                        /* frames used; how many could not be decoded */
    uint64_t peak_bytes;                     /* peak memory so far */
    struct trial_span *span[MAX_CONTENDERS]; /* owned */
    size_t n_spans[MAX_CONTENDERS];
    struct trial_rounds rounds[MAX_CONTENDERS];           /* of the first repeat */
    struct buf text[MAX_CONTENDERS], ids[MAX_CONTENDERS]; /* of the first repeat, if trial.answers;
                                                             ids as a JSON array */
};

/* Run every method once, then every method again, and so on, so that a temporary slowdown of the
 * machine affects all of them. The figures are medians over the repeats. The model prefills the
 * video once, and that time counts for each method; likewise the prefill of a drafter, for all
 * methods that give it the same tokens.
 *
 * This cannot measure prefills that overlap. If a method of the list is parallel, or with `trace`
 * or `alone`, each method therefore runs once more in a new session, which gives FIG_COLD_S,
 * FIG_PEAK_BYTES and the spans. After a failure `out` needs no trial_clear. */
enum pv_status trial_run(const struct trial *t, const struct trial_question *q,
                         struct trial_result *out, struct pv_error *err);
void trial_clear(struct trial_result *r);

#endif
