/* One question about a clip, answered by several methods in turn in one session: what describe
 * --compare and bench have in common. */
#ifndef PV_CLI_TRIAL_H
#define PV_CLI_TRIAL_H

#include "figures.h"
#include "method_args.h"
#include "progress.h"

struct trial {
    pv_session *session;
    const struct contenders *who;
    struct pv_gen_params gen; /* without a method */
    struct pv_video_params video;
    int repeat;
    struct progress *progress;
    pv_text_fn on_text; /* is told the first answer; may be NULL */
    void *user;
};

struct trial_question {
    const struct arg_list *videos;
    const char *system, *prompt; /* may be NULL */
};

enum identity { SAME, DIFFERENT, NOT_COMPARED };

struct trial_result {
    struct figures cell[MAX_CONTENDERS];
    enum identity identity[MAX_CONTENDERS]; /* with the answer of plain decoding */
    int frames;                             /* taken */
    uint64_t peak_bytes;                    /* of the whole session so far */
};

/* Every method once, then every method again: what slows the machine down for a while slows all of
 * them. The figures are medians over the repeats. The video is read by the model once, and its
 * seconds count for each method; so do those of a drafter for all methods that show it the same. */
enum pv_status trial_run(const struct trial *t, const struct trial_question *q,
                         struct trial_result *out, struct pv_error *err);

#endif
