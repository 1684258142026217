/* One question about a clip, answered by several methods in turn in one session: what describe
 * --compare and bench have in common. */
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
    pv_text_fn on_text; /* is told the first answer; may be NULL */
    void *user;
    bool trace;   /* keep the spans of each method */
    bool bits;    /* answers are the same only if the logits that chose them are, to the bit */
    bool alone;   /* run each method in a session of its own, too */
    bool answers; /* keep texts and ids */
};

/* pv_span, without a session that owns it. */
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

/* Of each verification of an answer: drafted tokens that were accepted. */
struct trial_rounds {
    int *accepted; /* owned */
    int n;
};

enum identity { SAME, DIFFERENT, NOT_COMPARED };

struct trial_result {
    struct figures cell[MAX_CONTENDERS];
    enum identity identity[MAX_CONTENDERS];  /* with the answer of plain decoding */
    int frames, lost;                        /* taken; of these not decoded */
    uint64_t peak_bytes;                     /* most held so far */
    struct trial_span *span[MAX_CONTENDERS]; /* owned */
    size_t n_spans[MAX_CONTENDERS];
    struct trial_rounds rounds[MAX_CONTENDERS];           /* of the first repeat */
    struct buf text[MAX_CONTENDERS], ids[MAX_CONTENDERS]; /* of that, where trial.answers asks for
                                                             them; ids as a JSON array */
};

/* Every method once, then every method again: what slows the machine down for a while slows all of
 * them. The figures are medians over the repeats. The video is read by the model once, and its
 * seconds count for each method; so do those of a drafter for all methods that show it the same.
 *
 * Prefills that overlap cannot be seen that way. Where a method of the list is parallel, a trace
 * is wanted, or `alone` asks for it, each method runs once more in a session of its own, which
 * knows nothing: FIG_COLD_S, FIG_PEAK_BYTES and the spans. After a failure `out` holds nothing to
 * clear. */
enum pv_status trial_run(const struct trial *t, const struct trial_question *q,
                         struct trial_result *out, struct pv_error *err);
void trial_clear(struct trial_result *r);

#endif
